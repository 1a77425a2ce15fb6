"""The plan's history: what the planner decided for each region, minute by minute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, func, text
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from gtm.core.plan.history import RegionMinute
from gtm.storage import tables

_MEANS = ("demand", "planned", "away", "refused", "price_ms", "exhausted")


@dataclass(frozen=True, slots=True)
class RegionStep:
    """A region in a step of time: how many of its minutes were recorded, the means over these, and the highest use and price."""

    start: datetime
    region: str
    minutes: int
    demand: float
    planned: float
    away: float
    refused: float
    use: float | None
    most_use: float | None
    price_ms: float
    most_price_ms: float
    exhausted: float


class PlanRepository:
    """Plans by region and minute."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def record(self, minute: datetime, regions: Mapping[str, RegionMinute]) -> None:
        """Store a minute. Where another control has stored a part of it, the two are joined by their samples."""
        if not regions:
            return
        table = tables.plan_minutes
        rows = [{"minute": minute, "region": name, **asdict(one)} for name, one in sorted(regions.items())]
        query = upsert(table)
        new, samples = query.excluded, table.c.samples + query.excluded.samples
        means = {
            name: (table.c[name] * table.c.samples + new[name] * new.samples) / samples for name in _MEANS
        }
        use = (table.c.use * table.c.samples + new.use * new.samples) / samples
        means["use"] = func.coalesce(use, table.c.use, new.use)
        query = query.on_conflict_do_update(
            index_elements=["minute", "region"], set_={**means, "samples": samples}
        )
        await self._connection.execute(query, rows)

    async def steps(
        self, since: datetime, until: datetime, step: timedelta, region: str | None = None
    ) -> list[RegionStep]:
        """The minutes from `since` to before `until`, joined to steps, by region and time; of one region, or of all."""
        query = text(
            """
            SELECT date_bin(:step, minute, TIMESTAMPTZ '2000-01-01 00:00:00Z'), region, count(*),
              avg(demand), avg(planned), avg(away), avg(refused), avg(use), max(use), avg(price_ms), max(price_ms), avg(exhausted)
            FROM plan_minutes
            WHERE minute >= :since AND minute < :until AND (CAST(:region AS text) IS NULL OR region = :region)
            GROUP BY 1, 2
            ORDER BY 2, 1
            """
        )
        asked = {"since": since, "until": until, "step": step, "region": region}
        return [RegionStep(*row) for row in await self._connection.execute(query, asked)]

    async def forget(self, before: datetime) -> None:
        """Delete the minutes before a time."""
        await self._connection.execute(
            delete(tables.plan_minutes).where(tables.plan_minutes.c.minute < before)
        )
