"""Accounts at identity providers, and the names by which they have come."""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from gtm.core.model.access import Accounts
from gtm.storage import tables


class AccountRepository:
    """Which account has had which name. Nothing is forgotten: a token may be owned by any of the names."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def seen(self, account: str, name: str) -> None:
        """An account came by a name."""
        query = insert(tables.accounts).values(account=account, name=name.lower())
        await self._connection.execute(query.on_conflict_do_nothing())

    async def by_name(self) -> Accounts:
        """The accounts of every name."""
        found: dict[str, set[str]] = defaultdict(set)
        for account, name in await self._connection.execute(
            select(tables.accounts.c.account, tables.accounts.c.name)
        ):
            found[name].add(account)
        return {name: frozenset(accounts) for name, accounts in found.items()}
