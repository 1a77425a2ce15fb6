"""The history of health (`gtm.core.health.history`): changes one by one, steps by region."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from sqlalchemy import delete, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.engine import RowMapping

from gtm.core.health.history import HistorySeries, HistoryStep, VerdictChange
from gtm.core.model.state import HealthStatus
from gtm.storage import tables
from gtm.storage.repository import Repository, upsert


@dataclass(frozen=True, slots=True)
class WantedChanges:
    """Which changes are looked for; None: all. `since` is within, `until` without, both as `VerdictChange.number`."""

    region: str | None = None
    url: str | None = None
    vantage: str | None = None
    since: int | None = None
    until: int | None = None

    def holds(self, one: VerdictChange) -> bool:
        """Whether a change is among them."""
        series = one.series
        return (
            self.region in (None, series.region)
            and self.url in (None, series.url)
            and self.vantage in (None, series.vantage)
            and (self.since is None or one.number >= self.since)
            and (self.until is None or one.number < self.until)
        )


class HealthRepository(Repository):
    """Changes by number, which grows; steps by region and start."""

    async def add(self, changes: Sequence[VerdictChange]) -> None:
        """Write changes down. What is there already stays."""
        query = insert(tables.health_changes).on_conflict_do_nothing()
        await self._write(query, [_row(one) for one in changes])

    async def record(self, source: str, steps: Iterable[tuple[HistorySeries, HistoryStep]]) -> None:
        """Write steps down, each region's in place of what the source has said of it before."""
        found = sorted(steps, key=_place)
        rows = [
            {
                "region": region,
                "start": datetime.fromtimestamp(start, UTC),
                "source": source,
                "series": [
                    [series.url, series.vantage, *map(_storable, astuple(step)[1:])] for series, step in of
                ],
            }
            for (region, start), of in groupby(found, _place)
        ]
        await self._write(upsert(tables.health_steps), rows)

    async def changes(self, wanted: WantedChanges, before: int | None, limit: int) -> list[VerdictChange]:
        """At most `limit` changes, the newest first, older than the number `before`."""
        table = tables.health_changes
        query = select(table).order_by(table.c.number.desc()).limit(limit)
        if before is not None:
            query = query.where(table.c.number < before)
        for column in ("region", "url", "vantage"):
            value = getattr(wanted, column)
            if value is not None:
                query = query.where(table.c[column] == value)
        if wanted.since is not None:
            query = query.where(table.c.number >= wanted.since)
        if wanted.until is not None:
            query = query.where(table.c.number < wanted.until)
        return [_change(row) for row in await self._rows(query)]

    async def steps(
        self, region: str, since: datetime, until: datetime
    ) -> list[tuple[str, HistorySeries, HistoryStep]]:
        """The steps of a region that begin from `since` to before `until`, the oldest first, each with who wrote it."""
        table = tables.health_steps
        query = (
            select(table)
            .where(table.c.region == region, table.c.start >= since, table.c.start < until)
            .order_by(table.c.start, table.c.source)
        )
        return [
            (row["source"], HistorySeries(region, url, vantage), _step(row["start"], told))
            for row in await self._rows(query)
            for url, vantage, *told in row["series"]
        ]

    async def last(self) -> dict[HistorySeries, HealthStatus]:
        """The last verdict of each series that is kept."""
        query = text(
            """
            SELECT DISTINCT ON (region, url, vantage) region, url, vantage, after
            FROM health_changes ORDER BY region, url, vantage, number DESC
            """
        )
        found = await self._execute(query)
        return {
            HistorySeries(region, url, vantage): HealthStatus(after) for region, url, vantage, after in found
        }

    async def forget(self, before: datetime) -> None:
        """Delete what is older."""
        number = round(before.timestamp() * 1e6)
        await self._execute(delete(tables.health_changes).where(tables.health_changes.c.number < number))
        await self._execute(delete(tables.health_steps).where(tables.health_steps.c.start < before))


def _place(one: tuple[HistorySeries, HistoryStep]) -> tuple[str, float]:
    return one[0].region, one[1].start


def _storable(value: Any) -> Any:
    """A value as Postgres takes it: no text with a NUL or half a surrogate pair."""
    return (
        value.replace("\0", "\ufffd").encode(errors="replace").decode() if isinstance(value, str) else value
    )


def _row(one: VerdictChange) -> dict[str, Any]:
    row = asdict(one)
    said = {"before": one.before.value, "after": one.after.value, "detail": _storable(one.detail)}
    return {**row.pop("series")._asdict(), **row, **said}


def _change(row: RowMapping) -> VerdictChange:
    found = dict(row)
    series = HistorySeries(*map(found.pop, HistorySeries._fields))
    before, after = HealthStatus(found.pop("before")), HealthStatus(found.pop("after"))
    return VerdictChange(series=series, before=before, after=after, **found)


def _step(start: datetime, told: Sequence[Any]) -> HistoryStep:
    worst, *others = told
    return HistoryStep(start.timestamp(), HealthStatus(worst), *others)
