"""Recording what requests took and what balancers pushed, minute by minute, as regions' balancers tell it.

Laws:
  1. A minute is that in which it was told, by control's clock: a second or two after the requests ended.
  2. What was not told is not recorded, rather than recorded as idle.
  3. What was told in the minute that runs and in the one before it can be had by region (`lately`), whether the database is there or not, and where nothing is recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import floor, inf

from gtm.control.lead.history.recording import MinuteWriter
from gtm.core.balance.spill.room import CAME, FAILED
from gtm.core.capacity.durations import Took, TookBy, add
from gtm.core.demand.traffic import MINUTE
from gtm.feed.reports import BalancerReport, table_of
from gtm.storage.history.requests import RequestMinute
from gtm.storage.session import Database, Transaction

EVERY = 5.0
"""Seconds between writings."""
MOST_ROWS = 100
"""Services and models that are told apart of a region in a minute; beyond these, a service's other models are one."""
MOST_WAYS = 2000
"""Services and peers that what a region pushes in a minute is told apart by."""
_SETTLED = 120.0
"""Seconds after which a step is added up: its minutes are written by then, if there is a database."""


@dataclass(slots=True)
class _Open:
    took: dict[str, TookBy] = field(default_factory=dict)
    pushed: dict[str, dict[tuple[str, str], float]] = field(default_factory=dict)


class RequestHistory(MinuteWriter[tuple[float, RequestMinute]]):
    """Records for one control process.

    Args:
        database: where.
        source: a name that no other control process has.
        retention: how long minutes are kept; 0: nothing is recorded.
        clock: POSIX seconds.
    """

    what = "what requests took"

    def __init__(
        self,
        database: Database,
        source: str,
        retention: timedelta,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(database, retention)
        self._source = source
        self._clock = clock
        self._open: dict[int, _Open] = {}
        self._lately: dict[int, dict[str, Took]] = {}
        self._sums = 0.0

    def take(self, report: BalancerReport) -> None:
        """Count what a balancer tells of its region, once."""
        number, told = floor(self._clock() / MINUTE), table_of(report.times)
        if told:
            if number not in self._lately:
                self._lately = {one: by for one, by in self._lately.items() if abs(number - one) == 1}
            of_region = self._lately.setdefault(number, {}).setdefault(report.region, Took())
            for took in told.values():
                of_region.add(took.first_bytes, took.ends)
        if not self._retention:
            return
        minute = self._open.setdefault(number, _Open())
        if told:
            add(minute.took.setdefault(report.region, {}), told, MOST_ROWS)
        ways = minute.pushed.setdefault(report.region, {})
        for (service, peer), requests in _pushed(report.pushes).items():
            if (service, peer) in ways or len(ways) < MOST_WAYS:
                ways[service, peer] = ways.get((service, peer), 0.0) + requests

    def lately(self) -> dict[str, Took]:
        """What requests took by region, of those that were told of in this minute and the one before: in the last 60 to 120 s."""
        number = floor(self._clock() / MINUTE)
        found: dict[str, Took] = {}
        for minute in (number - 1, number):
            for region, took in self._lately.get(minute, {}).items():
                found.setdefault(region, Took()).add(took.first_bytes, took.ends)
        return found

    def look(self, now: float) -> None:
        """Let the minutes that are over be written."""
        self._add(self._finished(now))

    def end(self, now: float = inf) -> None:  # noqa: ARG002 - the minute ends, whatever the time
        self._add(self._finished(inf))

    def _finished(self, now: float) -> Iterable[tuple[float, RequestMinute]]:
        for minute in sorted(one for one in self._open if (one + 1) * MINUTE <= now):
            heard = self._open.pop(minute)
            pushed = {
                (region, *way): requests
                for region, ways in heard.pushed.items()
                for way, requests in ways.items()
                if requests
            }
            if heard.took or pushed:
                yield minute * MINUTE, RequestMinute(heard.took, pushed)

    async def run(self) -> None:
        """Record until cancelled; at the end, what was heard of the last minute."""

        async def look() -> None:
            self.look(self._clock())

        await self.run_every(EVERY, self._clock, look)

    async def _write(self, now: float) -> None:
        await super()._write(now)
        if now >= self._sums:
            async with self._database.transaction() as transaction:
                more = await transaction.requests.sum_up(datetime.fromtimestamp(now - _SETTLED, UTC))
            self._sums = 0.0 if more else now + MINUTE

    async def _record(self, transaction: Transaction, minute: tuple[float, RequestMinute]) -> None:
        start = datetime.fromtimestamp(minute[0], UTC)
        await transaction.requests.record(start, self._source, minute[1])

    async def _forget(self, transaction: Transaction, before: datetime) -> None:
        await transaction.requests.forget(before)


def _pushed(told: Mapping[str, float]) -> dict[tuple[str, str], float]:
    """Requests that peers took, by service and peer: what one failed to take came home. Of a push that fails in a later minute that one lacks it."""
    found: dict[tuple[str, str], float] = {}
    for key, count in told.items():
        service, peer, why = key.split("\t")
        if peer and why != CAME:
            way = service, peer
            found[way] = found.get(way, 0.0) + (-count if why == FAILED else count)
    return found
