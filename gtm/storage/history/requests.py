"""What requests took and what balancers pushed, minute by minute, and sums of that by quarter of an hour and by hour.

Laws:
  1. Counts are stored, never percentiles: those of any time, region and service follow from the sums of their counts.
  2. A sum is that of all minutes in its step: it is made once the step is over, and anew when a minute of it is written later.
  3. Each control process writes under a source name of its own, in place of what it said of the minute before: nothing counts twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Table, delete, text

from gtm.core.capacity.durations import Took, TookBy
from gtm.storage import locks, tables
from gtm.storage.repository import Repository, upsert

SPANS = (15, 60)
"""Minutes of the steps that sums are kept of, the shortest first."""
_ORIGIN = "TIMESTAMPTZ '2000-01-01 00:00:00Z'"
_FIRST_BYTE, _END = "first_byte", "end"


@dataclass(frozen=True, slots=True)
class RequestMinute:
    """What balancers told in a minute: what requests took, by region; how many were handed to peers, by region, service and peer."""

    took: Mapping[str, TookBy]
    pushed: Mapping[tuple[str, str, str], float]


@dataclass(frozen=True, slots=True)
class TookStep:
    """What requests of a step took that a region served for a service; the model is empty where models are not told apart."""

    start: datetime
    region: str
    service: str
    model: str
    took: Took


@dataclass(frozen=True, slots=True)
class PushedStep:
    """Requests of a step that a region's balancers handed to a peer region's."""

    start: datetime
    service: str
    region: str
    peer: str
    requests: float


# Steps that are added up as such, and the minutes of all others.
_PARTS = """
    SELECT * FROM {table} WHERE span = :span AND span > 1 AND start >= :since AND start <= :until - make_interval(mins => :span)
    UNION ALL
    SELECT * FROM {table} AS told WHERE span = 1 AND start >= :since AND start < :until AND NOT EXISTS (
        SELECT FROM {table} AS sums
        WHERE sums.span = :span AND sums.span > 1 AND sums.start = date_bin(make_interval(mins => :span), told.start, {origin})
            AND sums.start >= :since AND sums.start <= :until - make_interval(mins => :span)
    )
"""


def _parts(table: Table) -> str:
    return _PARTS.format(table=table.name, origin=_ORIGIN)


_SUMS = {
    tables.request_times: """
        SELECT :span, :start, region, service, model, measure, '', array_agg(bucket ORDER BY bucket), array_agg(count ORDER BY bucket)
        FROM (
            SELECT region, service, model, measure, c.bucket, sum(c.count)::bigint AS count
            FROM request_times CROSS JOIN LATERAL unnest(buckets, counts) AS c(bucket, count)
            WHERE span = 1 AND start >= :start AND start < :until
            GROUP BY 1, 2, 3, 4, 5
        ) AS added GROUP BY 3, 4, 5, 6
    """,
    tables.request_pushes: """
        SELECT :span, :start, region, service, peer, '', sum(requests)
        FROM request_pushes WHERE span = 1 AND start >= :start AND start < :until GROUP BY 3, 4, 5
    """,
}


class RequestRepository(Repository):
    """Requests by region, service and minute."""

    async def record(self, minute: datetime, source: str, told: RequestMinute) -> None:
        """Store what a source heard of a minute, in place of what it has said of it before."""
        # Whoever adds up its step now would not see it. The step is added up anew.
        await locks.take(self._connection, locks.Lock.REQUEST_HISTORY)
        for table in _SUMS:
            for span in SPANS:
                length = timedelta(minutes=span)
                start = table.c.start
                late = delete(table).where(table.c.span == span, start <= minute, start > minute - length)
                await self._execute(late)
        at = {"span": 1, "start": minute, "source": source}
        times = [
            {
                **at,
                "region": region,
                "service": service,
                "model": model,
                "measure": measure,
                "buckets": list(counts),
                "counts": list(counts.values()),
            }
            for region, table in told.took.items()
            for (service, model), took in table.items()
            for measure, counts in ((_FIRST_BYTE, took.first_bytes), (_END, took.ends))
            if counts
        ]
        pushes = [
            {**at, "region": region, "service": service, "peer": peer, "requests": requests}
            for (region, service, peer), requests in told.pushed.items()
        ]
        await self._write(upsert(tables.request_times), times)
        await self._write(upsert(tables.request_pushes), pushes)

    async def sum_up(self, before: datetime) -> bool:
        """Add up the newest step of each kind that was over before a time and is not added up yet; False: there is none.

        What a day before the last sum is not added up is left, to be read minute by minute.
        """
        await locks.take(self._connection, locks.Lock.REQUEST_HISTORY)
        more = False
        for table in _SUMS:
            for span in SPANS:
                more |= await self._sum_up(table, span, before)
        return more

    async def _sum_up(self, table: Table, span: int, before: datetime) -> bool:
        length = timedelta(minutes=span)
        # Each step is looked up by the primary key: 2 ms where a day has 288,000 rows of minutes, which take 47 ms to read.
        query = text(
            f"""
            SELECT max(step) FROM generate_series(
                date_bin(:length, coalesce(
                    (SELECT max(start) FROM {table.name} WHERE span = :span) - interval '1 day',
                    (SELECT min(start) FROM {table.name} WHERE span = 1)
                ), {_ORIGIN}), :last, :length
            ) AS step
            WHERE EXISTS (SELECT FROM {table.name} WHERE span = 1 AND start >= step AND start < step + :length)
                AND NOT EXISTS (SELECT FROM {table.name} WHERE span = :span AND start = step)
            """  # noqa: S608 - what is put in are constants of this module
        )
        asked = {"span": span, "length": length, "last": before - length}
        start = (await self._execute(query, asked)).scalar_one()
        if start is None:
            return False
        add_up = text(f"INSERT INTO {table.name} {_SUMS[table]}")
        await self._execute(add_up, {"span": span, "start": start, "until": start + length})
        return True

    async def took(
        self,
        since: datetime,
        until: datetime,
        step: timedelta,
        *,
        region: str | None = None,
        service: str | None = None,
        by_model: bool = False,
    ) -> list[TookStep]:
        """What requests took, step by step; of a region or service, or of all, the first step first."""
        query = text(
            f"""
            SELECT at, region, service, model, measure, array_agg(bucket), array_agg(count)
            FROM (
                SELECT date_bin(:step, m.start, {_ORIGIN}) AS at, m.region, m.service,
                       CASE WHEN :by_model THEN m.model ELSE '' END AS model, m.measure, c.bucket, sum(c.count)::bigint AS count
                FROM ({_parts(tables.request_times)}) AS m
                CROSS JOIN LATERAL unnest(m.buckets, m.counts) AS c(bucket, count)
                WHERE (CAST(:region AS text) IS NULL OR m.region = :region) AND (CAST(:service AS text) IS NULL OR m.service = :service)
                GROUP BY 1, 2, 3, 4, 5, 6
            ) AS added
            GROUP BY 1, 2, 3, 4, 5
            ORDER BY 1, 2, 3, 4, 5
            """  # noqa: S608 - likewise
        )
        asked = {**_time(since, until, step), "region": region, "service": service, "by_model": by_model}
        found: dict[tuple[datetime, str, str, str], Took] = {}
        for start, where, named, model, measure, buckets, counts in await self._execute(query, asked):
            took = found.setdefault((start, where, named, model), Took())
            into = took.first_bytes if measure == _FIRST_BYTE else took.ends
            into.update(zip(buckets, counts, strict=True))
        return [TookStep(*key, took) for key, took in found.items()]

    async def pushed(
        self, since: datetime, until: datetime, step: timedelta, service: str | None
    ) -> list[PushedStep]:
        """What balancers handed to peers, step by step; of a service or of all, the first step first."""
        query = text(
            f"""
            SELECT date_bin(:step, m.start, {_ORIGIN}), m.service, m.region, m.peer, sum(m.requests)
            FROM ({_parts(tables.request_pushes)}) AS m
            WHERE CAST(:service AS text) IS NULL OR m.service = :service
            GROUP BY 1, 2, 3, 4
            ORDER BY 1, 2, 3, 4
            """  # noqa: S608 - likewise
        )
        found = await self._execute(query, {**_time(since, until, step), "service": service})
        return [PushedStep(*row) for row in found]

    async def forget(self, before: datetime) -> None:
        """Delete what began before a time; of a step of which minutes go, what is left is read minute by minute."""
        for table in _SUMS:
            await self._execute(delete(table).where(table.c.start < before))


def _time(since: datetime, until: datetime, step: timedelta) -> dict[str, Any]:
    """What `_PARTS` asks for: sums are read of the longest steps that a step is a multiple of."""
    minutes = step // timedelta(minutes=1)
    span = max((span for span in SPANS if not minutes % span), default=1)
    return {"since": since, "until": until, "step": step, "span": span}
