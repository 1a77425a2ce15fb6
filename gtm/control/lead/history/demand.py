"""Recording demand, minute by minute, for simulations of later policies. No client's address is in it.

Laws:
  1. What is recorded are requests: DNS answers count as the requests that they stand for.
  2. Time that nobody watched is not recorded, rather than recorded as idle: each minute says for how long it was watched.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import nlargest
from math import floor, inf

from gtm.control.lead.demand import PerAnswer, Reported, requests_of
from gtm.control.lead.history.recording import MinuteWriter
from gtm.core.demand.rows import Row
from gtm.core.demand.traffic import MINUTE
from gtm.storage.session import Database, Transaction

logger = logging.getLogger(__name__)

SAMPLE = 5.0
"""Seconds between looks at the rates; these are smoothed over 3 s."""
MAX_ROWS = 50_000
"""Rows that are kept of a minute: the largest."""
_SETTLED = 3600.0
"""Seconds after which an hour is added up: its minutes wait for the database no longer."""
_MAX_BYTES = 2_000


@dataclass(frozen=True, slots=True)
class Minute:
    """Requests by row from the POSIX time `start` on; `seconds` of it were watched."""

    start: float
    counts: Mapping[Row, float]
    seconds: float


@dataclass(slots=True)
class DemandTally:
    """Adds rates up to counts by minute. Times are POSIX seconds."""

    _open: dict[int, dict[Row, float]] = field(default_factory=dict)
    _watched: dict[int, float] = field(default_factory=dict)
    """Seconds of each."""

    def add(self, rates: Mapping[Row, float], per_answer: PerAnswer, began: float, ended: float) -> None:
        """Count rates that held from one time to another.

        Args:
            rates: requests or DNS answers per second.
            per_answer: how many requests a DNS answer stands for.
            began: in POSIX seconds.
            ended: likewise; nothing is counted if it is not later.
        """
        at = began
        while at < ended:
            minute = floor(at / MINUTE)
            until = min(ended, (minute + 1) * MINUTE)
            counts = self._open.setdefault(minute, {})
            self._watched[minute] = self._watched.get(minute, 0.0) + until - at
            for row, rate in rates.items():
                requests = requests_of(row, rate, per_answer)
                if row in counts or storable(row.text):
                    counts[row] = counts.get(row, 0.0) + requests * (until - at)
            at = until

    def finished(self, now: float) -> list[Minute]:
        """The minutes that are over, each given out once. Empty ones are among them: somebody watched."""
        over = sorted(minute for minute in self._open if (minute + 1) * MINUTE <= now)
        return [
            Minute(minute * MINUTE, _largest(self._open.pop(minute)), self._watched.pop(minute))
            for minute in over
        ]


def storable(row: str) -> bool:
    """Whether Postgres can hold and index a row's text."""
    return "\0" not in row and len(row.encode(errors="replace")) <= _MAX_BYTES


def _largest(counts: dict[Row, float]) -> dict[Row, float]:
    if len(counts) <= MAX_ROWS:
        return counts
    logger.warning("demand has %d rows in a minute; the %d largest are recorded", len(counts), MAX_ROWS)
    return dict(nlargest(MAX_ROWS, counts.items(), key=lambda one: one[1]))


class Recorder(MinuteWriter[Minute]):
    """Records for one control process.

    Args:
        database: where.
        source: a name that no other control process has.
        retention: how long minutes are kept.
    """

    what = "demand"

    def __init__(self, database: Database, source: str, retention: timedelta) -> None:
        super().__init__(database, retention)
        self._source = source
        self._tally = DemandTally()
        self._last: float | None = None
        self._adds_up = 0.0

    def sample(self, rates: Mapping[Row, float], per_answer: PerAnswer, now: float) -> None:
        """Take in the rates as they are; they count for the time since the last look, if that was lately."""
        if self._last is not None and 0 < now - self._last <= 2 * SAMPLE:
            self._tally.add(rates, per_answer, self._last, now)
        self._last = now
        self._add(self._tally.finished(now))

    def end(self, now: float = inf) -> None:  # noqa: ARG002 - the minute ends, whatever the time
        self._add(self._tally.finished(inf))

    async def _write(self, now: float) -> None:
        await super()._write(now)
        if now >= self._adds_up:
            async with self._database.transaction() as transaction:
                more = await transaction.demand.sum_hour(datetime.fromtimestamp(now - _SETTLED, UTC))
            self._adds_up = 0.0 if more else now + MINUTE

    async def _record(self, transaction: Transaction, minute: Minute) -> None:
        start = datetime.fromtimestamp(minute.start, UTC)
        await transaction.demand.record(start, self._source, minute.counts, minute.seconds)

    async def _forget(self, transaction: Transaction, before: datetime) -> None:
        await transaction.demand.forget(before)


async def run(
    recorder: Recorder,
    reported: Callable[[], Reported],
    per_answer: Callable[[], PerAnswer],
    clock: Callable[[], float] = time.time,
) -> None:
    """Record until cancelled; at the end, what was watched of the last minute.

    Args:
        recorder: of this process.
        reported: the rates of all edges now.
        per_answer: how many requests a DNS answer stands for.
        clock: POSIX seconds.
    """

    async def look() -> None:
        recorder.sample(await asyncio.to_thread(reported().rates), per_answer(), clock())

    await recorder.run_every(SAMPLE, clock, look)
