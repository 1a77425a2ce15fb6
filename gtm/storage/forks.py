"""Revisions that a database has lost: it was restored from a backup, and those who follow it hold later ones."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from gtm.storage import tables
from gtm.storage.revisions import REVISION_CHANNEL


@dataclass(frozen=True, slots=True)
class Fork:
    """Revisions after `after`, up to `up_to`, were published and are lost. `accepted_at`: somebody said that going back is meant."""

    after: int
    up_to: int
    noted_at: datetime
    accepted_at: datetime | None = None

    def has(self, revision: int) -> bool:
        """Whether a revision is one of those lost."""
        return self.after < revision <= self.up_to


class ForkRepository:
    """What was lost, by the revision after which it was."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def open(self) -> list[Fork]:
        """Those of which nobody has said yet that going back is meant, the oldest first."""
        table = tables.forks
        query = select(table).where(table.c.accepted_at.is_(None)).order_by(table.c.after)
        return [Fork(**row) for row in (await self._connection.execute(query)).mappings()]

    async def note(self, after: int, up_to: int) -> None:
        """Somebody holds a revision that is later than the latest, `after`."""
        table = tables.forks
        query = insert(table).values(after=after, up_to=up_to)
        await self._connection.execute(
            query.on_conflict_do_update(
                index_elements=["after"],
                set_={"up_to": query.excluded.up_to, "accepted_at": None},
                where=table.c.up_to < query.excluded.up_to,
            )
        )

    async def accept(self) -> list[Fork]:
        """Going back is meant: all that are open are so no more, which every control is notified of."""
        found = await self.open()
        table = tables.forks
        await self._connection.execute(
            update(table).where(table.c.accepted_at.is_(None)).values(accepted_at=func.now())
        )
        await self._connection.execute(select(func.pg_notify(REVISION_CHANNEL, "")))
        return found
