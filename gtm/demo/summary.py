"""What became of the demo's requests: counts, and times as histograms, so that traffic may last for days."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil, exp, log
from typing import Any

RECENT = 5.0
"""Seconds that the live line looks back."""
_STEP = log(1.02)


class End(StrEnum):
    """How a request of the demo's ended."""

    SERVED = "served"
    REFUSED_RESIDENCY = "refused_residency"
    """By the edge or a region's balancer (451), or at the refusal address that DNS gave."""
    REFUSED_UNAVAILABLE = "refused_unavailable"
    REFUSED_OVERLOAD = "refused_overload"
    OVER_FAIR_SHARE = "over_fair_share"
    """By the edge, or by a region's balancer (429)."""
    WRONG_REGION = "wrong_region"
    """Sent to a region that may not serve it: its balancer said so (421)."""
    REGION_FULL = "region_full"
    """Sent to a region whose queue was full (503), or that had no slot for it in time (504)."""
    REGION_GONE = "region_gone"
    """Sent to a region that refused the connection, broke it off, or failed (502)."""
    NO_DECISION = "no_decision"
    """The edge gave no answer that could be used."""


@dataclass(frozen=True, slots=True)
class Result:
    """One request, with times in ms.

    `decision_ms` is how long it took to know where to go, `first_byte_ms` how long from then until the region's first
    byte, `wait_ms` the part of that in the region's queue. `network_ms` is simulated, and in none of them. `reason` is
    what a redirect states.
    """

    end: End
    via: str
    country: str
    region: str = ""
    decision_ms: float = 0.0
    first_byte_ms: float = 0.0
    wait_ms: float = 0.0
    network_ms: float | None = None
    reason: str = ""


class WaitHistogram:
    """Times in buckets 2% wide."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0

    def add(self, value: float) -> None:
        """Take in a time, in ms."""
        self._buckets[ceil(log(max(value, 0.01)) / _STEP)] += 1
        self.count += 1

    def quantile(self, share: float) -> float | None:
        """The time that so large a share (0–1) does not exceed, at most 2% too high; None if there is none."""
        wanted, seen = share * self.count, 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return exp(bucket * _STEP)
        return None

    def document(self) -> dict[str, float | None]:
        """Median and 99th percentile, in ms."""
        return {name: _rounded(self.quantile(share)) for name, share in (("p50", 0.5), ("p99", 0.99))}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


@dataclass(slots=True)
class _Times:
    """Times of requests that were served."""

    served: int = 0
    decision: WaitHistogram = field(default_factory=WaitHistogram)
    first_byte: WaitHistogram = field(default_factory=WaitHistogram)
    wait: WaitHistogram = field(default_factory=WaitHistogram)
    network: WaitHistogram = field(default_factory=WaitHistogram)

    def add(self, result: Result) -> None:
        self.served += 1
        self.decision.add(result.decision_ms)
        self.first_byte.add(result.first_byte_ms)
        self.wait.add(result.wait_ms)
        if result.network_ms is not None:
            self.network.add(result.network_ms)

    def document(self) -> dict[str, Any]:
        return {
            "decision_ms": self.decision.document(),
            "first_byte_ms": self.first_byte.document(),
            "queue_wait_ms": self.wait.document(),
            "network_rtt_ms": self.network.document(),
        }


class Summary:
    """All requests so far."""

    def __init__(self) -> None:
        self.ends: Counter[End] = Counter()
        self.via: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.not_sent = 0
        self._all = _Times()
        self._regions: defaultdict[str, _Times] = defaultdict(_Times)
        self._failed: defaultdict[str, Counter[End]] = defaultdict(Counter)
        self._recent: deque[tuple[float, Result]] = deque()

    def add(self, result: Result, now: float) -> None:
        """Take in a request that ended at a monotonic time."""
        self.ends[result.end] += 1
        self.via[result.via] += 1
        if result.reason:
            self.reasons[result.reason] += 1
        if result.end is End.SERVED:
            self._all.add(result)
            self._regions[result.region].add(result)
        elif result.region:
            self._failed[result.region][result.end] += 1
        self._recent.append((now, result))
        while self._recent[0][0] < now - RECENT:
            self._recent.popleft()

    @property
    def sent(self) -> int:
        """Requests that have ended."""
        return self.ends.total()

    def document(self, seconds: float) -> dict[str, Any]:
        """The whole, as `--json` prints it."""
        names = sorted({*self._regions, *self._failed})
        return {
            "seconds": round(seconds, 1),
            "requests": self.sent,
            "requests_per_second": round(self.sent / max(seconds, 0.1), 1),
            "not_sent": self.not_sent,
            "via": dict(sorted(self.via.items())),
            "reasons": dict(sorted(self.reasons.items())),
            "outcomes": {end.value: self.ends[end] for end in End if self.ends[end]},
            **self._all.document(),
            "regions": {name: self._region(name, seconds) for name in names},
        }

    def _region(self, name: str, seconds: float) -> dict[str, Any]:
        times = self._regions[name]
        return {
            "served": times.served,
            "requests_per_second": round(times.served / max(seconds, 0.1), 1),
            **{end.value: count for end, count in sorted(self._failed[name].items())},
            **times.document(),
        }

    def line(self, seconds: float, in_flight: int, now: float) -> str:
        """What goes on, over the last seconds, as one line."""
        recent = [result for at, result in self._recent if at >= now - RECENT]
        window = max(min(seconds, RECENT), 0.1)
        served = Counter(result.region for result in recent if result.end is End.SERVED)
        times = WaitHistogram()
        for result in recent:
            if result.end is End.SERVED:
                times.add(result.first_byte_ms)
        others = Counter(result.end.value for result in recent if result.end is not End.SERVED)
        parts = [
            f"{seconds:.0f} s",
            f"{len(recent) / window:.0f}/s",
            f"{in_flight} in flight",
            f"first byte p50 {times.quantile(0.5) or 0:.0f} ms, p99 {times.quantile(0.99) or 0:.0f} ms",
            _rates(served, window),
        ]
        if others:
            parts.append(_rates(others, window))
        return " · ".join(part for part in parts if part)


def _rates(counts: Mapping[str, int], window: float) -> str:
    return ", ".join(f"{name} {count / window:.0f}/s" for name, count in sorted(counts.items()))
