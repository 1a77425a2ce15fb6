"""The plan's history: what the planner decided for each region, minute by minute, and sums of that by quarter of an hour and by hour.

Law: a sum is that of the minutes in its step. Who writes a minute sums up its step anew in the same transaction, and minutes are forgotten by
whole hours.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

from sqlalchemy import delete, func, text
from sqlalchemy.dialects.postgresql import insert

from gtm.core.plan.history import RegionMinute
from gtm.storage import locks, tables
from gtm.storage.repository import Repository

SPANS = (timedelta(hours=1), timedelta(minutes=15))
"""Steps that sums are kept of, the longest first; each is a multiple of the next."""
_TOLD = timedelta(days=1)
"""How far back sums are made anew by a control that begins to record."""
_INSTANT = timedelta(microseconds=1)
_ORIGIN = "TIMESTAMPTZ '2000-01-01 00:00:00Z'"


Column = Literal[
    "minutes",
    "demand",
    "planned",
    "away",
    "refused",
    "use",
    "most_use",
    "price_ms",
    "most_price_ms",
    "exhausted",
]
"""What is told of a step, and of all: how many minutes were recorded, the means over these, and the highest use and price."""
COLUMNS: tuple[Column, ...] = get_args(Column)
_MEANS: tuple[Column, ...] = ("demand", "planned", "away", "refused", "price_ms", "exhausted")
_STEP: dict[Column, str] = {
    "minutes": "minutes",
    **{name: f"{name} / minutes" for name in _MEANS},
    "use": "use / nullif(use_minutes, 0)",
    "most_use": "most_use",
    "most_price_ms": "most_price_ms",
}
_WHOLE: dict[Column, str] = {
    "minutes": "sum(minutes)::integer",
    **{name: f"sum({name}) / sum(minutes)" for name in _MEANS},
    "use": "sum(use) / nullif(sum(use_minutes), 0)",
    "most_use": "max(most_use)",
    "most_price_ms": "max(most_price_ms)",
}


@dataclass(frozen=True, slots=True)
class RegionSteps:
    """A region: each of `COLUMNS` over all of the time; when steps began, in POSIX seconds and any order; and of those, the columns asked for."""

    region: str
    whole: Mapping[str, float | None]
    starts: Sequence[float]
    columns: Mapping[str, Sequence[float | None]]


_SUM_UP = f"""
INSERT INTO plan_sums
SELECT :span, date_bin(make_interval(mins => :span), minute, {_ORIGIN}), region, count(*),
  sum(demand), sum(planned), sum(away), sum(refused), count(use), sum(use), max(use), sum(price_ms), max(price_ms), sum(exhausted)
FROM plan_minutes
WHERE minute >= :since AND minute < :until
GROUP BY 2, 3
ON CONFLICT (span, start, region) DO UPDATE SET
  minutes = excluded.minutes, demand = excluded.demand, planned = excluded.planned, away = excluded.away, refused = excluded.refused,
  use_minutes = excluded.use_minutes, use = excluded.use, most_use = excluded.most_use,
  price_ms = excluded.price_ms, most_price_ms = excluded.most_price_ms, exhausted = excluded.exhausted
"""  # noqa: S608 - what is put in is a constant of this module

# A row for each region, its steps as arrays: a week of 100 regions is 17,000 steps.
_STEPS = f"""
SELECT region, {", ".join(_WHOLE[name] for name in COLUMNS)}, array_agg(extract(epoch FROM start)::double precision){{columns}}
FROM (
  SELECT region, date_bin(:step, start, {_ORIGIN}) AS start, sum(minutes) AS minutes,
    sum(demand) AS demand, sum(planned) AS planned, sum(away) AS away, sum(refused) AS refused,
    sum(use_minutes) AS use_minutes, sum(use) AS use, max(most_use) AS most_use,
    sum(price_ms) AS price_ms, max(most_price_ms) AS most_price_ms, sum(exhausted) AS exhausted
  FROM (
    SELECT region, start, minutes, demand, planned, away, refused, use_minutes, use, most_use, price_ms, most_price_ms, exhausted
    FROM plan_sums
    WHERE span = :span AND start >= :first AND start < :last
    UNION ALL
    SELECT region, minute, 1, demand, planned, away, refused, num_nonnulls(use), use, use, price_ms, price_ms, exhausted
    FROM plan_minutes
    WHERE minute >= :since AND minute < :first OR minute >= :last AND minute < :until
  ) AS parts
  WHERE CAST(:region AS text) IS NULL OR region = :region
  GROUP BY 1, 2
) AS steps
GROUP BY region
ORDER BY region
"""  # noqa: S608 - likewise


class PlanRepository(Repository):
    """Plans by region and minute."""

    async def record(self, minute: datetime, regions: Mapping[str, RegionMinute]) -> None:
        """Store a minute. Where another control has stored a part of it, the two are joined by their samples."""
        if not regions:
            return
        # Two controls, each of which did not see the other's minute, would sum up the step without it.
        await locks.take(self._connection, locks.Lock.PLAN_HISTORY)
        table = tables.plan_minutes
        rows = [{"minute": minute, "region": name, **asdict(one)} for name, one in sorted(regions.items())]
        query = insert(table)
        new, samples = query.excluded, table.c.samples + query.excluded.samples
        means = {
            name: (table.c[name] * table.c.samples + new[name] * new.samples) / samples for name in _MEANS
        }
        use = (table.c.use * table.c.samples + new.use * new.samples) / samples
        means["use"] = func.coalesce(use, table.c.use, new.use)
        query = query.on_conflict_do_update(
            index_elements=["minute", "region"], set_={**means, "samples": samples}
        )
        await self._execute(query, rows)
        for span in SPANS:
            await self._sum_up(span, _floor(minute, span), _floor(minute, span) + span)

    async def sum_up(self, now: datetime) -> None:
        """Make the sums of the last day anew, or of longer if they end before: a control of an earlier version writes minutes alone."""
        await locks.take(self._connection, locks.Lock.PLAN_HISTORY)
        query = text("SELECT max(start) FROM plan_sums WHERE span = :span")
        last = (await self._execute(query, {"span": _minutes(SPANS[0])})).scalar_one()
        since = _floor(now - _TOLD if last is None else min(last, now - _TOLD), SPANS[0])
        for span in SPANS:
            await self._sum_up(span, since, now + _TOLD)

    async def _sum_up(self, span: timedelta, since: datetime, until: datetime) -> None:
        """Make the sums of whole steps anew."""
        asked = {"span": _minutes(span), "since": since, "until": until}
        await self._execute(text(_SUM_UP), asked)

    async def steps(
        self,
        since: datetime,
        until: datetime,
        step: timedelta,
        region: str | None = None,
        columns: Collection[Column] = COLUMNS,
    ) -> list[RegionSteps]:
        """The minutes from `since` to before `until`, joined to steps; of one region, or of all by name.

        What of it is whole steps of `SPANS` is read from their sums.
        """
        span = next((one for one in SPANS if not step % one), None)
        first = last = until
        if span is not None:
            begin, end = _floor(since - _INSTANT, span) + span, _floor(until, span)
            first, last = (begin, end) if begin < end else (until, until)
        told = [name for name in COLUMNS if name in columns]
        query = _STEPS.format(columns="".join(f", array_agg({_STEP[name]})" for name in told))
        asked = {
            "since": since,
            "until": until,
            "step": step,
            "region": region,
            "span": _minutes(span or timedelta()),
            "first": first,
            "last": last,
        }
        count = 1 + len(COLUMNS)
        return [
            RegionSteps(
                row[0],
                dict(zip(COLUMNS, row[1:count], strict=True)),
                row[count],
                dict(zip(told, row[count + 1 :], strict=True)),
            )
            for row in await self._execute(text(query), asked)
        ]

    async def forget(self, before: datetime) -> None:
        """Delete the minutes of the hours that are over before a time, and their sums."""
        hour = _floor(before, SPANS[0])
        for column in (tables.plan_minutes.c.minute, tables.plan_sums.c.start):
            await self._execute(delete(column.table).where(column < hour))


def _floor(at: datetime, span: timedelta) -> datetime:
    """When the step began that a moment is in."""
    return at - (at - datetime(2000, 1, 1, tzinfo=UTC)) % span


def _minutes(span: timedelta) -> int:
    return span // timedelta(minutes=1)
