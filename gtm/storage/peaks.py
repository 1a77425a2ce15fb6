"""How much the edges of each token asked for: the busiest minute of each hour of the last day."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from sqlalchemy import delete, func, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from gtm.core.demand.belief import HOUR, HOURS, WORLD, Peaks
from gtm.storage import tables


class PeakRepository:
    """Peaks by token and hour (`gtm.core.demand.belief`)."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def load(self) -> dict[tuple[str, int], float]:
        """All that is kept."""
        found = await self._connection.execute(select(tables.demand_peaks))
        return {(row.token, int(row.hour.timestamp()) // HOUR): row.rate for row in found}

    async def recorded(self, now: float) -> dict[tuple[str, int], float]:
        """What all edges together asked for in the last day, from recorded demand: for a database from before peaks were kept."""
        query = text(
            """
            SELECT hour, max(rate) AS rate FROM (
                SELECT date_bin('1 hour', minute, TIMESTAMPTZ '2000-01-01 00:00:00Z') AS hour,
                       sum(total) / greatest(30, least(60, sum(seconds))) AS rate
                FROM demand_minutes WHERE minute >= :since GROUP BY minute
            ) AS minutes GROUP BY hour
            """
        )
        found = await self._connection.execute(query, {"since": _time(now - HOURS * HOUR)})
        return {(WORLD, int(row.hour.timestamp()) // HOUR): row.rate for row in found}

    async def save(self, changed: Peaks, now: float, heirs: Mapping[str, str]) -> None:
        """Keep peaks that grew, of two the higher; drop those older than a day, and those of tokens that have no heir.

        Args:
            changed: peaks.
            now: POSIX seconds.
            heirs: the tokens that count; empty: they are not known.
        """
        table = tables.demand_peaks
        if changed:
            query = insert(table)
            higher = func.greatest(table.c.rate, query.excluded.rate)
            query = query.on_conflict_do_update(index_elements=["token", "hour"], set_={"rate": higher})
            rows = [
                {"token": token, "hour": _time(hour * HOUR), "rate": rate}
                for (token, hour), rate in sorted(changed.items())
            ]
            await self._connection.execute(query, rows)
        await self._connection.execute(delete(table).where(table.c.hour < _time(now - (HOURS + 1) * HOUR)))
        if heirs:
            await self._connection.execute(
                delete(table).where(table.c.token.not_in([WORLD, *heirs.values()]))
            )


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
