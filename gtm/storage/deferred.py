"""Deletions that wait until nothing keeps them (docs/api.md, "Deletions that wait")."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import delete, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from gtm.storage import tables
from gtm.storage.resources import Key


@dataclass(frozen=True, slots=True)
class Deferred:
    """A resource that is to be deleted: for which tool, who asked for it and when, and what keeps it."""

    kind: str
    name: str
    manager: str | None
    """For which tool; null: for a person."""
    asked_by: str
    asked_at: datetime
    why: str
    """What keeps the resource, in a sentence."""
    refused: bool
    """Whether the safety rules keep it, and not a resource that names it."""

    @property
    def key(self) -> Key:
        """The resource's kind and name."""
        return self.kind, self.name


class DeferredRepository:
    """Deletions that wait, by kind and name."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def list(self) -> list[Deferred]:
        """All of them, the oldest first."""
        table = tables.deferred_deletions
        query = select(table).order_by(table.c.asked_at, table.c.kind, table.c.name)
        return [Deferred(**row) for row in (await self._connection.execute(query)).mappings()]

    async def put(self, deferred: Iterable[Deferred]) -> None:
        """Keep some; of one that waits already, what keeps it now."""
        rows = [asdict(one) for one in deferred]
        if rows:
            query = insert(tables.deferred_deletions).values(rows)
            now = {"why": query.excluded.why, "refused": query.excluded.refused}
            await self._connection.execute(
                query.on_conflict_do_update(index_elements=["kind", "name"], set_=now)
            )

    async def forget(self, keys: Collection[Key]) -> None:
        """Have the deletions of some resources wait no more."""
        table = tables.deferred_deletions
        if keys:
            await self._connection.execute(
                delete(table).where(tuple_(table.c.kind, table.c.name).in_(sorted(keys)))
            )
