"""People at the dashboard: their sessions, and the names by which accounts at identity providers have come."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import Executable, delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert

from gtm.core.model.access import Accounts, Role
from gtm.storage import tables
from gtm.storage.repository import Repository


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who is signed in.

    `id` names it in lists; `sha256` is that of the secret in the cookie. `token` is the SHA-256 in hex of the token that it was
    opened with, and ends with; empty: an identity provider said who it is. `agent` is what the browser calls itself.
    """

    id: str
    sha256: bytes
    name: str
    role: Role
    token: str
    agent: str
    """The name that the browser gives itself (`User-Agent`)."""
    created_at: datetime
    seen_at: datetime
    """When it was used last, to a minute."""
    expires_at: datetime


class SessionRepository(Repository):
    """Sessions, those that have ended forgotten."""

    async def add(self, session: Session) -> None:
        """Store one, and forget those that have expired."""
        table = tables.sessions
        await self._execute(delete(table).where(table.c.expires_at <= func.now()))
        await self._execute(insert(table).values(asdict(session)))

    async def seen(self, ids: dict[str, datetime]) -> None:
        """They were used at these times."""
        table = tables.sessions
        for one, at in ids.items():
            await self._execute(update(table).where(table.c.id == one).values(seen_at=at))

    async def live(self, limit: int = 100_000) -> list[Session]:
        """Those that have not expired, the latest used first."""
        table = tables.sessions
        query = (
            select(table)
            .where(table.c.expires_at > func.now())
            .order_by(table.c.seen_at.desc(), table.c.id)
            .limit(limit)
        )
        return await self._sessions(query)

    async def end_oldest(self, name: str, kept: int) -> list[Session]:
        """End all of a person's but those that were used last; which were."""
        table = tables.sessions
        newest = (
            select(table.c.id)
            .where(table.c.name == name)
            .order_by(table.c.seen_at.desc(), table.c.created_at.desc(), table.c.id)
            .limit(kept)
        )
        query = delete(table).where(table.c.name == name, table.c.id.not_in(newest)).returning(*table.columns)
        return await self._sessions(query)

    async def end(self, *, id_: str | None = None, name: str | None = None) -> list[Session]:
        """End one by its id, or all of a person's by the name, or both; which were."""
        table = tables.sessions
        query = delete(table).where(or_(table.c.id == id_, table.c.name == name)).returning(*table.columns)
        return await self._sessions(query)

    async def _sessions(self, query: Executable) -> list[Session]:
        return [Session(**{**row, "role": Role(row["role"])}) for row in await self._rows(query)]


class AccountRepository(Repository):
    """Which account has had which name. Nothing is forgotten: a token may be owned by any of the names."""

    async def seen(self, account: str, name: str) -> None:
        """An account came by a name."""
        query = insert(tables.accounts).values(account=account, name=name.lower())
        await self._execute(query.on_conflict_do_nothing())

    async def by_name(self) -> Accounts:
        """The accounts of every name."""
        found: dict[str, set[str]] = defaultdict(set)
        for account, name in await self._execute(select(tables.accounts.c.account, tables.accounts.c.name)):
            found[name].add(account)
        return {name: frozenset(accounts) for name, accounts in found.items()}
