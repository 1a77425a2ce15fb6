"""Keys that control makes for itself: the same for all its processes, and after each start."""

from __future__ import annotations

import secrets

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from gtm.storage import tables
from gtm.storage.repository import Repository

LENGTH = 32
"""Bytes of a key."""


class SecretRepository(Repository):
    """Keys by name."""

    async def key(self, name: str) -> bytes:
        """The key of a name; the first to ask makes it."""
        table = tables.secrets
        made = insert(table).values(name=name, value=secrets.token_bytes(LENGTH))
        await self._execute(made.on_conflict_do_nothing())
        found = await self._execute(select(table.c.value).where(table.c.name == name))
        return bytes(found.scalar_one())
