"""Recorded demand: how many requests there were of each row (`gtm.core.demand.rows.Row`, stored as text), minute by minute.

Each control process records what it heard, under a source name of its own; what is read is the sum over all sources.
Minutes without a record are no minutes without demand: nobody was there to count. Nor are those of which a part was watched, as when
control starts anew in them: they are told with the seconds that all sources watched together, 60 at most, and what is told per second is per
second of these.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Text, any_, cast, delete, func, literal, select, text, update
from sqlalchemy.dialects.postgresql import ARRAY, insert

from gtm.core.demand import belief
from gtm.core.demand.rows import SEPARATOR, Row
from gtm.core.demand.traffic import MINUTE
from gtm.core.model.joined import unescaped
from gtm.storage import locks, tables
from gtm.storage.repository import Repository, upsert

HOUR = timedelta(hours=1)
_SIGHTED = timedelta(hours=1)
"""How exactly `last_seen` of a row is kept: not every minute writes every row."""


@dataclass(frozen=True, slots=True)
class DemandStep:
    """A step of the timeline: how many minutes of it were recorded, for how many seconds these were watched, and how many requests there were."""

    start: datetime
    minutes: int
    """Of the step, how many were recorded."""
    seconds: float
    """For how many seconds control was there to count: fewer than 60 of a minute in which it started or ended."""
    requests: float


@dataclass(frozen=True, slots=True)
class AnsweredStep:
    """Requests of a step that were answered alike: of a service, by the tier that answered (`via`), to a region (empty: refused), with an outcome."""

    start: datetime
    service: str
    via: str
    region: str
    outcome: str
    requests: float


@dataclass(frozen=True, slots=True)
class SentAwayStep:
    """Requests of a step that edges sent to another region than the one that their class likes best."""

    start: datetime
    service: str
    home: str
    region: str
    requests: float


@dataclass(frozen=True, slots=True)
class WantedDemand:
    """Which rows are asked for; None: all. `countries` are the clients'."""

    region: str | None = None
    service: str | None = None
    tenant: str | None = None
    data_class: str | None = None
    priority: str | None = None
    countries: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class MinuteSums:
    """The requests of a minute by region (empty: refused) and outcome; the largest rows, and how many there are; for how many seconds it was watched."""

    seconds: float
    sums: Mapping[tuple[str, str], float]
    rows: Mapping[Row, float]
    number: int


# The hours of a time that are added up, and the minutes of all others.
_PARTS = """
    SELECT hour AS at, rows, counts FROM demand_hours WHERE hour >= :since AND hour <= :last
    UNION ALL
    SELECT minute AS at, rows, counts::double precision[] FROM demand_minutes AS minutes
    WHERE minute >= :since AND minute < :until AND NOT EXISTS (
        SELECT FROM demand_hours
        WHERE hour = date_bin('1 hour', minutes.minute, TIMESTAMPTZ '2000-01-01 00:00:00Z') AND hour >= :since AND hour <= :last
    )
"""
_MINUTES = """
    SELECT minute AS at, rows, counts::double precision[] AS counts FROM demand_minutes
    WHERE minute >= :since AND minute < :until
"""
_WATCHED = "SELECT coalesce(least(60, sum(seconds)), 60) FROM demand_minutes WHERE minute = :start"
_CELL = "split_part(r.row, E'\\t', 6)"
_COUNTRY = f"split_part({_CELL}, '|', 2)"
_PLACES = {
    "service": "split_part(r.row, E'\\t', 1)",
    "region": "split_part(r.row, E'\\t', 2)",
    "tenant": f"split_part({_CELL}, '|', 5)",
    "data_class": f"split_part({_CELL}, '|', 6)",
    "priority": f"split_part({_CELL}, '|', 8)",
}
"""Where a stored row says so (`Row.text`, `Cell.text`). Names of a policy stand there as they are (`gtm.core.model.joined`)."""
_HOME = "split_part(split_part(split_part(r.row, E'\\t', 5), '|', 3), '>', 1)"
"""The region that a row's ranking class likes best (`ClassKey.text`)."""


class DemandRepository(Repository):
    """Demand by minute."""

    async def record(
        self, minute: datetime, source: str, counts: Mapping[Row, float], seconds: float = MINUTE
    ) -> None:
        """Store what a source counted in a minute, in place of what it has said of it before; `seconds` of it were watched."""
        texts = [row.text for row in counts]
        # Whoever adds up its hour now would not see it. The hour is added up anew.
        await locks.take(self._connection, locks.Lock.DEMAND_HISTORY)
        hours = tables.demand_hours
        await self._execute(delete(hours).where(hours.c.hour <= minute, hours.c.hour > minute - HOUR))
        identities = await self._identities(sorted(texts), minute)
        values: dict[str, Any] = {
            "total": sum(counts.values()),
            "rows": [identities[text] for text in texts],
            "counts": list(counts.values()),
            "seconds": min(seconds, MINUTE),
        }
        query = upsert(tables.demand_minutes).values(minute=minute, source=source, **values)
        await self._execute(query)

    async def _identities(self, rows: list[str], minute: datetime) -> dict[str, int]:
        table = tables.demand_rows
        wanted = table.c.row == any_(cast(literal(rows, ARRAY(Text)), ARRAY(Text)))
        # First this: a row that is seen again is safe from being forgotten meanwhile.
        seen = update(table).where(wanted, table.c.last_seen < minute - _SIGHTED).values(last_seen=minute)
        await self._execute(seen)
        found = await self._known(wanted)
        missing = [{"row": row, "last_seen": minute} for row in rows if row not in found]
        if missing:
            query = insert(table).on_conflict_do_nothing(index_elements=["row"])
            await self._execute(query, missing)
            found = await self._known(wanted)
        return found

    async def _known(self, wanted: ColumnElement[bool]) -> dict[str, int]:
        query = select(tables.demand_rows.c.row, tables.demand_rows.c.id).where(wanted)
        return {row.row: row.id for row in await self._execute(query)}

    async def cells(
        self, since: datetime, until: datetime, services: Collection[str] | None
    ) -> dict[str, float]:
        """The requests of some services, or of all, by demand cell, as text, in the minutes from `since` to before `until`. Added up by the database: rows are many more than cells."""
        query = text(
            rf"""
            SELECT r.cell, sum(c.count)
            FROM ({_PARTS}) AS m
            CROSS JOIN LATERAL unnest(m.rows, m.counts) AS c(id, count)
            JOIN (
                SELECT id, split_part(row, E'\t', 6) AS cell
                FROM demand_rows
                WHERE CAST(:services AS text[]) IS NULL OR split_part(row, E'\t', 1) = ANY (:services)
            ) AS r ON r.id = c.id
            GROUP BY r.cell
            ORDER BY r.cell
            """  # noqa: S608 - likewise
        )
        asked = {**_time(since, until), "services": None if services is None else list(services)}
        found = await self._execute(query, asked)
        return {unescaped(SEPARATOR, cell): float(count) for cell, count in found}

    async def minute(self, start: datetime, wanted: WantedDemand, limit: int) -> MinuteSums:
        """What was recorded in a minute, summed up by the database; see `MinuteSums`."""
        conditions: dict[str, Any] = {
            name: str(value) for name in _PLACES if (value := getattr(wanted, name)) is not None
        }
        held = "".join(f" AND {_PLACES[name]} = :{name}" for name in conditions)
        if wanted.countries is not None:
            held += f" AND {_COUNTRY} = ANY(:countries)"
            conditions["countries"] = sorted(wanted.countries)
        query = text(
            f"""
            WITH asked AS MATERIALIZED (
                SELECT r.row, sum(c.count::double precision) AS count
                FROM demand_minutes AS m
                CROSS JOIN LATERAL unnest(m.rows, m.counts) AS c(id, count)
                JOIN demand_rows AS r ON r.id = c.id
                WHERE m.minute = :start{held}
                GROUP BY r.row
            )
            SELECT NULL, split_part(row, E'\t', 2), split_part(row, E'\t', 3), sum(count), count(*)
            FROM asked GROUP BY 2, 3
            UNION ALL
            (SELECT row, NULL, NULL, count, 1 FROM asked ORDER BY count DESC, row LIMIT :limit)
            """  # noqa: S608 - what is put in are constants of this module
        )
        watched = await self._execute(text(_WATCHED), {"start": start})
        sums, rows, number = {}, {}, 0
        found = await self._execute(query, {"start": start, "limit": limit, **conditions})
        for stored, region, outcome, count, many in found:
            if stored is None:
                sums[unescaped(SEPARATOR, region), unescaped(SEPARATOR, outcome)] = float(count)
                number += many
                continue
            with suppress(ValueError):
                rows[Row.parse(stored)] = float(count)
        return MinuteSums(float(watched.scalar_one()), sums, rows, number)

    async def timeline(self, since: datetime, until: datetime, step: timedelta) -> list[DemandStep]:
        """The requests step by step, full hours if steps are hours; steps without any recorded minute are left out."""
        query = text(
            """
            SELECT date_bin(:step, minute, TIMESTAMPTZ '2000-01-01 00:00:00Z'), count(*), sum(seconds), sum(total)
            FROM (
                SELECT minute, least(60, sum(seconds)) AS seconds, sum(total) AS total
                FROM demand_minutes
                WHERE minute >= :since AND minute < :until
                GROUP BY minute
            ) AS minutes
            GROUP BY 1
            ORDER BY 1
            """
        )
        found = await self._execute(query, {"since": since, "until": until, "step": step})
        return [DemandStep(start, minutes, seconds, total) for start, minutes, seconds, total in found]

    async def answered(
        self, since: datetime, until: datetime, step: timedelta, service: str | None
    ) -> list[AnsweredStep]:
        """How requests of a service, or of all, were answered, step by step. Where steps are hours, hours that are added up are read as such."""
        parts = _PARTS if step >= HOUR else _MINUTES
        held = "" if service is None else f"WHERE {_PLACES['service']} = :service"
        query = text(
            f"""
            SELECT date_bin(:step, m.at, TIMESTAMPTZ '2000-01-01 00:00:00Z'), r.service, r.via, r.region, r.outcome, sum(c.count)
            FROM ({parts}) AS m
            CROSS JOIN LATERAL unnest(m.rows, m.counts) AS c(id, count)
            JOIN (
                SELECT id, {_PLACES["service"]} AS service, {_PLACES["region"]} AS region,
                       split_part(r.row, E'\t', 3) AS outcome, split_part(r.row, E'\t', 4) AS via
                FROM demand_rows AS r {held}
            ) AS r ON r.id = c.id
            GROUP BY 1, 2, 3, 4, 5
            ORDER BY 1
            """  # noqa: S608 - what is put in are constants of this module
        )
        asked: dict[str, Any] = {"since": since, "until": until, "step": step}
        asked |= {} if step < HOUR else {"last": until - HOUR}
        asked |= {} if service is None else {"service": service}
        found = await self._execute(query, asked)
        return [
            AnsweredStep(
                start,
                unescaped(SEPARATOR, named),
                unescaped(SEPARATOR, via),
                unescaped(SEPARATOR, region),
                unescaped(SEPARATOR, outcome),
                float(count),
            )
            for start, named, via, region, outcome, count in found
        ]

    async def sent_away(
        self, since: datetime, until: datetime, step: timedelta, service: str | None
    ) -> list[SentAwayStep]:
        """What edges sent elsewhere than home, step by step; of a service or of all. Read as `answered` reads."""
        parts = _PARTS if step >= HOUR else _MINUTES
        query = text(
            f"""
            SELECT date_bin(:step, m.at, TIMESTAMPTZ '2000-01-01 00:00:00Z'), r.service, r.home, r.region, sum(c.count)
            FROM ({parts}) AS m
            CROSS JOIN LATERAL unnest(m.rows, m.counts) AS c(id, count)
            JOIN (
                SELECT id, {_PLACES["service"]} AS service, {_HOME} AS home, {_PLACES["region"]} AS region FROM demand_rows AS r
            ) AS r ON r.id = c.id
            WHERE r.home <> '' AND r.region <> '' AND r.home <> r.region
                AND (CAST(:service AS text) IS NULL OR r.service = :service)
            GROUP BY 1, 2, 3, 4
            ORDER BY 1, 2, 3, 4
            """  # noqa: S608 - what is put in are constants of this module
        )
        asked: dict[str, Any] = {"since": since, "until": until, "step": step, "service": service}
        asked |= {} if step < HOUR else {"last": until - HOUR}
        found = await self._execute(query, asked)
        return [
            SentAwayStep(start, unescaped(SEPARATOR, named), home, region, float(count))
            for start, named, home, region, count in found
        ]

    async def busiest(self, since: datetime, until: datetime) -> datetime | None:
        """The minute with most requests per second, the first of equals; None if none was recorded.

        Where less than half of it was watched, as if half of it was: of some seconds, nobody can tell what they come to in a minute.
        """
        query = text(
            """
            SELECT minute FROM demand_minutes
            WHERE minute >= :since AND minute < :until
            GROUP BY minute
            ORDER BY sum(total) / greatest(30, least(60, sum(seconds))) DESC, minute
            LIMIT 1
            """
        )
        found: datetime | None = (
            await self._execute(query, {"since": since, "until": until})
        ).scalar_one_or_none()
        return found

    async def last_minute(self, since: datetime, until: datetime) -> datetime | None:
        """The last recorded minute that began at `since` or later and not after `until`; None if none did."""
        minute = tables.demand_minutes.c.minute
        query = select(func.max(minute)).where(minute >= since, minute <= until)
        found: datetime | None = (await self._execute(query)).scalar_one()
        return found

    async def sum_hour(self, before: datetime) -> bool:
        """Add up the newest hour that was over before a time and is not added up yet; False: there is none."""
        await locks.take(self._connection, locks.Lock.DEMAND_HISTORY)
        query = text(
            """
            SELECT max(hour) FROM (
                SELECT DISTINCT date_bin('1 hour', minute, TIMESTAMPTZ '2000-01-01 00:00:00Z') AS hour FROM demand_minutes
            ) AS hours
            WHERE hour <= :last AND NOT EXISTS (SELECT FROM demand_hours WHERE demand_hours.hour = hours.hour)
            """
        )
        hour = (await self._execute(query, {"last": before - HOUR})).scalar_one()
        if hour is None:
            return False
        add_up = text(
            """
            INSERT INTO demand_hours (hour, rows, counts)
            SELECT :hour, coalesce(array_agg(id), '{}'), coalesce(array_agg(count), '{}')
            FROM (
                SELECT c.id, sum(c.count::double precision) AS count
                FROM demand_minutes AS m
                CROSS JOIN LATERAL unnest(m.rows, m.counts) AS c(id, count)
                WHERE m.minute >= :hour AND m.minute < :until
                GROUP BY c.id
            ) AS sums
            """
        )
        await self._execute(add_up, {"hour": hour, "until": hour + HOUR})
        return True

    async def forget(self, before: datetime) -> None:
        """Delete the minutes before a time, and the rows that none since has had."""
        # What is left of an hour of which minutes go is read minute by minute.
        for column in (tables.demand_minutes.c.minute, tables.demand_hours.c.hour):
            await self._execute(delete(column.table).where(column < before))
        await self._execute(
            delete(tables.demand_rows).where(tables.demand_rows.c.last_seen < before - 2 * _SIGHTED)
        )


def _time(since: datetime, until: datetime) -> dict[str, datetime]:
    """What `_PARTS` asks for: `last` is the latest beginning of an hour that is over."""
    return {"since": since, "until": until, "last": until - HOUR}


class PeakRepository(Repository):
    """Peaks by token and hour (`gtm.core.demand.belief`)."""

    async def load(self) -> dict[tuple[str, int], float]:
        """All that is kept."""
        found = await self._execute(select(tables.demand_peaks))
        return {(row.token, int(row.hour.timestamp()) // belief.HOUR): row.rate for row in found}

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
        found = await self._execute(query, {"since": _moment(now - belief.HOURS * belief.HOUR)})
        return {(belief.WORLD, int(row.hour.timestamp()) // belief.HOUR): row.rate for row in found}

    async def save(self, changed: belief.Peaks, now: float, heirs: Mapping[str, str]) -> None:
        """Keep peaks that grew, of two the higher; drop those older than a day, and those of tokens that have no heir.

        Args:
            changed: peaks.
            now: POSIX seconds.
            heirs: the tokens that count; empty: they are not known.
        """
        table = tables.demand_peaks
        query = upsert(table, rate=func.greatest(table.c.rate, insert(table).excluded.rate))
        rows = [
            {"token": token, "hour": _moment(hour * belief.HOUR), "rate": rate}
            for (token, hour), rate in sorted(changed.items())
        ]
        await self._write(query, rows)
        await self._execute(
            delete(table).where(table.c.hour < _moment(now - (belief.HOURS + 1) * belief.HOUR))
        )
        if heirs:
            await self._execute(delete(table).where(table.c.token.not_in([belief.WORLD, *heirs.values()])))


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
