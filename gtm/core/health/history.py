"""What probes said lately: when verdicts changed, and of each five minutes how many probes there were and how they ended.

Laws:
  1. Whoever hears says when: every time is that at which control heard of it, so that what edges with wrong clocks say stands in one
     order. What an edge's own clock said is kept beside it.
  2. Unknown is no verdict: a change is between two verdicts of one series, or from none to its first. An edge that restarts, or is
     not heard of for a while, changes nothing by that.
  3. Time in which nothing was heard of a series has no step, rather than a good one.
  4. Memory is bounded by the policy's endpoints and by edges' names, whatever is reported: of a series, `MOST_CHANGES` of a step
     are kept one by one and the others counted; of a voter, `MOST_VANTAGES` are followed.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, floor
from typing import NamedTuple

from gtm.core.health.verdicts import HealthTable
from gtm.core.model.state import EndpointHealth, HealthStatus

STEP = 300.0
"""Seconds of a step; steps begin at multiples of it."""
KEPT = 3600.0
"""Seconds for which steps and changes are kept here."""
MOST_CHANGES = 10
"""Changes of one series and step that are kept one by one."""
MOST_VANTAGES = 200
"""Edges of one voter whose series are followed."""
MOST_TIMES = 600
"""Probes of one series and step whose time counts for the percentiles: the newest."""
MOST_RECENT = 20_000
"""Changes kept here: the newest."""
MOST_LAST = 50_000
"""Series not heard of now whose last verdict is remembered."""
TOGETHER = ""
"""The vantage of what all say together."""


class Probed(NamedTuple):
    """One probe's outcome, as an edge tells it: the time of the whole exchange in ms and HTTP's status, where there were any.

    `failure` says what was wrong; empty: the endpoint answered as it should.
    """

    region: str
    url: str
    ms: float | None
    status: int | None
    failure: str


class HistorySeries(NamedTuple):
    """An endpoint, as one edge sees it or all together (`TOGETHER`)."""

    region: str
    url: str
    vantage: str


@dataclass(frozen=True, slots=True)
class VerdictChange:
    """A verdict that became another. `number` is when control heard of it, in whole µs of POSIX time; no two of a control share one.

    `detail`, `status` and `ms` are what the probe met that decided it. `edge_at` is when it was by the edge's own clock, in POSIX
    seconds; None of what all say together.
    """

    number: int
    series: HistorySeries
    before: HealthStatus
    after: HealthStatus
    detail: str
    status: int | None = None
    ms: float | None = None
    edge_at: float | None = None

    @property
    def at(self) -> float:
        """POSIX seconds."""
        return self.number / 1e6


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """What was heard of a series in the `STEP` seconds from the POSIX time `start` on.

    `probes` is None where the edge does not tell outcomes, as those before this version and all together. `p50_ms` and `p99_ms` are of
    the probes that were answered as they should (nearest rank). `worst` is the worst verdict at any time in it. `changes` counts all,
    those too that are not kept one by one. `detail` is the last failure.
    """

    start: float
    worst: HealthStatus
    """The worst verdict at any time in it."""
    probes: int | None = None
    """Null: not told, as by edges of earlier versions, and of all together."""
    failed: int = 0
    p50_ms: float | None = None
    """Of the probes that were answered as they should: half took no longer."""
    p99_ms: float | None = None
    changes: int = 0
    """Of the verdict; beyond ten of one step they are counted here alone."""
    detail: str = ""
    """The last failure in words."""


@dataclass(slots=True)
class _Open:
    """The step of a series that is not over."""

    worst: HealthStatus
    heard: bool = True
    probes: int = 0
    failed: int = 0
    times: array[float] = field(default_factory=lambda: array("f"))
    timed: int = 0
    changes: int = 0
    detail: str = ""

    def probed(self, one: Probed) -> None:
        """Count an outcome."""
        self.probes += 1
        if one.failure:
            self.failed += 1
            self.detail = one.failure
        elif one.ms is not None:
            if self.timed < MOST_TIMES:
                self.times.append(one.ms)
            else:
                self.times[self.timed % MOST_TIMES] = one.ms
            self.timed += 1

    def step(self, start: float, *, told: bool) -> HistoryStep:
        """What it comes to; `told`: whether the vantage tells outcomes."""
        times = sorted(self.times)
        return HistoryStep(
            start,
            self.worst,
            self.probes if told else None,
            self.failed,
            _rank(times, 0.5),
            _rank(times, 0.99),
            self.changes,
            self.detail,
        )


@dataclass(slots=True)
class _Live:
    """A series as it is now."""

    status: HealthStatus
    open: _Open
    done: deque[HistoryStep] = field(default_factory=deque)


class History:
    """What one control process heard. Times are POSIX seconds by its clock, which may be set: nothing goes back by that."""

    def __init__(self) -> None:
        self.left_out = 0
        """Reports of edges that are not followed, since their voter has too many."""
        self.recent: deque[VerdictChange] = deque(maxlen=MOST_RECENT)
        """The newest changes, the oldest first."""
        self._waiting: list[VerdictChange] = []
        self._last: dict[HistorySeries, HealthStatus] = {}
        self._firsts: list[VerdictChange] | None = []
        self._series: dict[str, dict[tuple[str, str], _Live]] = {}
        self._finished: list[tuple[HistorySeries, HistoryStep]] = []
        self._silent: set[str] = set()
        self._voters: dict[str, set[str]] = {}
        self._number = 0
        self._start = 0.0
        self._began: float | None = None

    def known(self, last: Mapping[HistorySeries, HealthStatus]) -> None:
        """Take the last verdicts that were written down before: what this process heard first is a change only if it differs."""
        firsts, self._firsts, self._last = self._firsts or [], None, dict(last)
        for first in firsts:
            self._keep_first(first)

    def heard(
        self, voter: str, vantage: str, health: HealthTable, probed: Iterable[Probed] | None, now: float
    ) -> None:
        """Take in what an edge reports.

        Args:
            voter: who answers for it.
            vantage: its name.
            health: its verdicts.
            probed: outcomes since its last report, in their order; None: it does not tell any.
            now: when it was heard.
        """
        names = self._voters.setdefault(voter, set())
        if vantage not in names:
            if len(names) >= MOST_VANTAGES:
                self.left_out += 1
                return
            names.add(vantage)
        self._roll(now)
        deciding = {(one.region, one.url): one for one in probed or ()}
        live = self._verdicts(vantage, health, deciding, now)
        (self._silent.add if probed is None else self._silent.discard)(vantage)
        for one in probed or ():
            found = live.get((one.region, one.url))
            if found is not None:
                found.open.probed(one)

    def judged(self, votes: HealthTable, now: float) -> None:
        """Take in what all say together."""
        self._roll(now)
        self._silent.add(TOGETHER)
        self._verdicts(TOGETHER, votes, {}, now)

    def finished(self, now: float) -> list[tuple[HistorySeries, HistoryStep]]:
        """The steps that are over, each given once."""
        self._roll(now)
        finished, self._finished = self._finished, []
        return finished

    def unfinished(self) -> list[tuple[HistorySeries, HistoryStep]]:
        """What was heard of the steps that are not over."""
        return [
            (
                HistorySeries(region, url, vantage),
                one.open.step(self._start, told=vantage not in self._silent),
            )
            for vantage, live in self._series.items()
            for (region, url), one in live.items()
            if one.open.heard
        ]

    def _roll(self, now: float) -> None:
        """Begin the next step, if it is time, and forget what is too old."""
        start = floor(now / STEP) * STEP
        if start <= self._start:
            return
        began, self._start = self._start, start
        if self._began is None:
            # What was heard before of this step another control has; of the next on, all is here.
            self._began = start + STEP
        for vantage, live in list(self._series.items()):
            for (region, url), one in list(live.items()):
                self._close(HistorySeries(region, url, vantage), one, began)
                if not one.done:
                    del live[region, url]
                    if len(self._last) < MOST_LAST:
                        self._last[HistorySeries(region, url, vantage)] = one.status
            if not live:
                del self._series[vantage]
                self._silent.discard(vantage)
                for names in self._voters.values():
                    names.discard(vantage)
        while self.recent and self.recent[0].at < now - KEPT:
            self.recent.popleft()

    def _close(self, series: HistorySeries, live: _Live, began: float) -> None:
        """End the step of a series that began then."""
        if live.open.heard:
            step = live.open.step(began, told=series.vantage not in self._silent)
            live.done.append(step)
            self._finished.append((series, step))
        while live.done and live.done[0].start < self._start - KEPT:
            live.done.popleft()
        live.open = _Open(live.status, heard=False)

    def covers(self, since: float) -> bool:
        """Whether all steps that begin from a POSIX time on are kept here."""
        return self._began is not None and since >= max(self._began, self._start - KEPT)

    def waiting(self) -> list[VerdictChange]:
        """The changes since the last time, each given once, the oldest first."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def steps(self, region: str) -> Iterator[tuple[HistorySeries, list[HistoryStep]]]:
        """What is kept here of a region: the steps of each series, and the one that is not over."""
        for vantage, live in self._series.items():
            for (name, url), one in live.items():
                if name == region:
                    told = vantage not in self._silent
                    now = [one.open.step(self._start, told=told)] if one.open.heard else []
                    yield HistorySeries(region, url, vantage), [*one.done, *now]

    def _verdicts(
        self, vantage: str, health: HealthTable, deciding: Mapping[tuple[str, str], Probed], now: float
    ) -> dict[tuple[str, str], _Live]:
        live = self._series.setdefault(vantage, {})
        for region, endpoints in health.items():
            for url, one in endpoints.items():
                if one.status is HealthStatus.UNKNOWN:
                    continue
                found = live.get((region, url))
                if found is None:
                    found = live[region, url] = _Live(one.status, _Open(one.status))
                elif found.status is one.status:
                    found.open.heard = True
                    continue
                series = HistorySeries(region, url, vantage)
                self._changed(series, found, one, deciding.get((region, url)), now)
        return live

    def _changed(
        self, series: HistorySeries, live: _Live, health: EndpointHealth, probed: Probed | None, now: float
    ) -> None:
        before = live.status
        first = before is health.status
        live.status, live.open.heard = health.status, True
        if health.status is HealthStatus.DOWN:
            live.open.worst = HealthStatus.DOWN
        self._number = max(self._number + 1, round(now * 1e6))
        change = VerdictChange(
            self._number,
            series,
            HealthStatus.UNKNOWN if first else before,
            health.status,
            health.detail,
            probed.status if probed else None,
            probed.ms if probed else health.latency_ms,
            health.since if series.vantage != TOGETHER else None,
        )
        if first:
            self._keep_first(change) if self._firsts is None else self._firsts.append(change)
            return
        live.open.changes += 1
        if live.open.changes <= MOST_CHANGES:
            self._keep(change)

    def _keep_first(self, change: VerdictChange) -> None:
        """Keep the first verdict of a series, if it is not the one that was written down last."""
        before = self._last.pop(change.series, HealthStatus.UNKNOWN)
        if before is not change.after:
            self._keep(replace(change, before=before))

    def _keep(self, change: VerdictChange) -> None:
        self.recent.append(change)
        self._waiting.append(change)


def _rank(times: list[float], share: float) -> float | None:
    """The nearest-rank percentile of sorted times."""
    return round(times[max(0, ceil(share * len(times)) - 1)], 3) if times else None
