"""What regions report of their load: the newest report of each reporter, summed, and how long it counts.

Laws (missing never means idle, silence is not zero):
  1. A signal that a report does not have is not known; it is never taken for 0.
  2. A report is fresh for 5 s and stale for 30 s. Stale values still count, but the region gains nothing by them.
  3. A region that has reported and is silent for longer is lost: it counts as half of what it declared and last
     reported, for a day. Only a region that never reported counts as what it declared.
  4. A reporter that lags more than 30 s behind the region's newest report is gone, and with it what it reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

FRESH = 5.0
"""Seconds for which a report is the present."""
STALE = 30.0
"""Seconds after which a reporter is gone, and a region without any other is lost."""
FORGOTTEN = 86_400.0
"""Seconds of silence after which a region counts as one that never reported."""
MAX_SOURCES = 1_000
"""Reporters of one region and service."""

Key = tuple[str, str]
"""A region's and a service's name; the service is empty for the region as a whole."""


class Freshness(StrEnum):
    """How far a load can be relied on."""

    FRESH = "fresh"
    STALE = "stale"
    LOST = "lost"
    NEVER = "never"
    """Nothing was ever reported."""


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What one reporter (a balancer, a server) says of its part of a region. None: it does not say.

    `at` is when it was received: POSIX seconds by the receiver's clock. `outstanding` requests are being served,
    `queue` requests wait; `limit` is how many can be served at once. Service time (how long a request is served), wait
    and rates are of the last seconds; `tokens_per_second` are generated, `input_tokens_per_second` read in prompts. `kv_cache_usage` and `utilization` are shares (0–1, the latter may be more).
    """

    region: str
    service: str = ""
    source: str = ""
    at: float = 0.0
    outstanding: float | None = None
    queue: float | None = None
    limit: float | None = None
    service_time_ms: float | None = None
    queue_wait_ms: float | None = None
    requests_per_second: float | None = None
    tokens_per_second: float | None = None
    input_tokens_per_second: float | None = None
    gpu_memory_used_bytes: float | None = None
    gpu_memory_total_bytes: float | None = None
    kv_cache_usage: float | None = None
    utilization: float | None = None
    models: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """What all reporters of a region and service (empty: the region as a whole) say together.

    `at` is the newest report's time, `sources` how many reporters count. Amounts and rates are sums over those that
    state them, times and shares are means (of times, weighted by requests per second where all state them).
    """

    region: str
    service: str
    at: float
    sources: int
    outstanding: float | None = None
    queue: float | None = None
    limit: float | None = None
    service_time_ms: float | None = None
    queue_wait_ms: float | None = None
    requests_per_second: float | None = None
    tokens_per_second: float | None = None
    input_tokens_per_second: float | None = None
    gpu_memory_used_bytes: float | None = None
    gpu_memory_total_bytes: float | None = None
    kv_cache_usage: float | None = None
    utilization: float | None = None
    models: tuple[str, ...] | None = None

    def age(self, now: float) -> float:
        """Seconds since the newest report; 0 for one from a clock that has since stepped back."""
        return max(0.0, now - self.at)


def freshness(load: Load | None, now: float) -> Freshness:
    """How far a load can be relied on at a POSIX time; None: nothing was reported."""
    if load is None or load.age(now) > FORGOTTEN:
        return Freshness.NEVER
    if load.age(now) > STALE:
        return Freshness.LOST
    return Freshness.STALE if load.age(now) > FRESH else Freshness.FRESH


class LoadBook:
    """The newest report of every reporter. Not safe to share between threads."""

    def __init__(self) -> None:
        self._reports: dict[Key, dict[str, LoadReport]] = {}
        self._loads: dict[Key, Load] = {}

    def take(self, report: LoadReport) -> bool:
        """Take in a report; an older one of its reporter's is replaced.

        Returns:
            False if the region and service have `MAX_SOURCES` other reporters that count.
        """
        key = (report.region, report.service)
        held = self._reports.setdefault(key, {})
        if len(held) >= MAX_SOURCES and report.source not in held:
            held = self._reports[key] = {item.source: item for item in _counting(held.values())}
            if len(held) >= MAX_SOURCES:
                return False
        known = held.get(report.source)
        if known is None or known.at <= report.at:
            held[report.source] = report
            self._loads.pop(key, None)
        return True

    def retain(self, wanted: Callable[[Key], bool]) -> None:
        """Forget all regions and services but those wanted."""
        self._reports = {key: held for key, held in self._reports.items() if wanted(key)}
        self._loads = {key: load for key, load in self._loads.items() if key in self._reports}

    def loads(self) -> dict[Key, Load]:
        """The load of every region and service that has reported. How far it counts is for `freshness` to say."""
        for key, held in self._reports.items():
            if key not in self._loads:
                self._loads[key] = summed(*key, list(held.values()))
        return dict(self._loads)


def summed(region: str, service: str, reports: Sequence[LoadReport]) -> Load:
    """One load from the reports, at least one, of a region and service."""
    counting = _counting(reports)
    models = [report.models for report in counting if report.models is not None]
    return Load(
        region,
        service,
        at=max(report.at for report in counting),
        sources=len(counting),
        outstanding=_total(report.outstanding for report in counting),
        queue=_total(report.queue for report in counting),
        limit=_total(report.limit for report in counting),
        service_time_ms=mean([(item.service_time_ms, item.requests_per_second) for item in counting]),
        queue_wait_ms=mean([(item.queue_wait_ms, item.requests_per_second) for item in counting]),
        requests_per_second=_total(report.requests_per_second for report in counting),
        tokens_per_second=_total(report.tokens_per_second for report in counting),
        input_tokens_per_second=_total(report.input_tokens_per_second for report in counting),
        gpu_memory_used_bytes=_total(report.gpu_memory_used_bytes for report in counting),
        gpu_memory_total_bytes=_total(report.gpu_memory_total_bytes for report in counting),
        kv_cache_usage=mean([(report.kv_cache_usage, None) for report in counting]),
        utilization=mean([(report.utilization, None) for report in counting]),
        models=tuple(sorted({model for each in models for model in each})) if models else None,
    )


def whole(region: str, loads: Iterable[Load]) -> Load | None:
    """What the loads of a region's services say of the region: amounts and throughput, but no limit.

    Whether their slots are the same or others' is not known. None if there are no loads.
    """
    held = list(loads)
    if not held:
        return None
    newest = max(load.at for load in held)
    counting = [load for load in held if newest - load.at <= STALE]
    return Load(
        region,
        "",
        at=newest,
        sources=max(load.sources for load in counting),
        outstanding=_total(load.outstanding for load in counting),
        queue=_total(load.queue for load in counting),
        requests_per_second=_total(load.requests_per_second for load in counting),
        tokens_per_second=_total(load.tokens_per_second for load in counting),
        input_tokens_per_second=_total(load.input_tokens_per_second for load in counting),
    )


def _counting(reports: Iterable[LoadReport]) -> list[LoadReport]:
    """The reports of those that have not fallen silent while others went on."""
    held = list(reports)
    newest = max(report.at for report in held)
    return [report for report in held if newest - report.at <= STALE]


def _total(values: Iterable[float | None]) -> float | None:
    stated = [value for value in values if value is not None]
    return sum(stated) if stated else None


def mean(values: Iterable[tuple[float | None, float | None]]) -> float | None:
    """The mean of those values, with their weights, that are known; unweighted unless all weights are above 0."""
    stated = [(value, weight or 0.0) for value, weight in values if value is not None]
    if not stated:
        return None
    if not all(weight > 0 for _, weight in stated):
        return sum(value for value, _ in stated) / len(stated)
    return sum(value * weight for value, weight in stated) / sum(weight for _, weight in stated)
