"""What was measured of round trips: sums of networks, operators, countries, places and regions. No client is in it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import delete, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from gtm.core.latency import Level, Sum
from gtm.storage import tables

SumKey = tuple[Level, str, str]
"""Level, key and region."""

_CHUNK = 1000


class LatencyRepository:
    """Sums by level, key and region."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def load(self) -> list[Sum]:
        """Every sum."""
        found = await self._connection.execute(select(tables.latency_sums))
        return [
            Sum(
                Level(row.level),
                row.key,
                row.region,
                row.weight,
                row.mean,
                row.spread,
                row.updated_at.timestamp(),
                row.sources,
            )
            for row in found
        ]

    async def save(self, changed: Iterable[Sum], gone: Iterable[SumKey]) -> None:
        """Store sums that changed, and delete those that are gone; one older than what is stored changes nothing."""
        table = tables.latency_sums
        query = insert(table)
        new = query.excluded
        query = query.on_conflict_do_update(
            index_elements=["level", "key", "region"],
            set_={name: new[name] for name in ("weight", "mean", "spread", "updated_at", "sources")},
            where=table.c.updated_at <= new.updated_at,
        )
        # Sorted, so that two control processes that write the same rows never wait for each other in a circle.
        rows = [_row(kept) for kept in sorted(changed)]
        for start in range(0, len(rows), _CHUNK):
            await self._connection.execute(query, rows[start : start + _CHUNK])
        keys = sorted(gone)
        for start in range(0, len(keys), _CHUNK):
            identity = tuple_(table.c.level, table.c.key, table.c.region)
            await self._connection.execute(delete(table).where(identity.in_(keys[start : start + _CHUNK])))


def _row(kept: Sum) -> dict[str, Any]:
    row = kept._asdict()
    updated_at = datetime.fromtimestamp(row.pop("updated"), UTC)
    return {**row, "level": kept.level.value, "updated_at": updated_at}
