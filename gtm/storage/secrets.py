"""Keys that control makes for itself: the same for all its processes, and after each start."""

from __future__ import annotations

import secrets

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from gtm.storage import tables

LENGTH = 32
"""Bytes of a key."""


class SecretRepository:
    """Keys by name."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def key(self, name: str) -> bytes:
        """The key of a name; the first to ask makes it."""
        table = tables.secrets
        made = insert(table).values(name=name, value=secrets.token_bytes(LENGTH))
        await self._connection.execute(made.on_conflict_do_nothing())
        found = await self._connection.execute(select(table.c.value).where(table.c.name == name))
        return bytes(found.scalar_one())
