"""Traffic of the past, as simulations read it: how often each demand cell asked, on average and at its peak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import floor, gcd, isfinite

MINUTE = 60.0
"""The shortest interval that peaks are told apart by, in seconds."""
_GRAINS = (300, 900, 3600, 86_400)
"""Times that are all multiples of one of these are those of longer intervals."""
MAX_ENTRIES = 1_000_000
"""Counts that a `TrafficBuilder` holds at once; past it, neighbouring intervals are joined."""


@dataclass(frozen=True, slots=True)
class TrafficSample:
    """How often each demand cell (`gtm.core.demand.cells`) asked within some seconds, from the POSIX time `start` on."""

    counts: Mapping[str, float]
    seconds: float
    start: float | None = None

    @property
    def requests(self) -> float:
        """The number of requests that the sample stands for."""
        return sum(self.counts.values())

    @property
    def rates(self) -> dict[str, float]:
        """Requests per second of each cell that asked at all."""
        return {cell: count / self.seconds for cell, count in self.counts.items() if count > 0}


@dataclass(frozen=True, slots=True)
class Traffic:
    """All requests of a time, and those of its busiest interval; the same where nobody knows when they were made."""

    whole: TrafficSample
    peak: TrafficSample


@dataclass(slots=True)
class TrafficBuilder:
    """Adds requests up, in bounded memory however long the time is.

    Requests that come with a POSIX time are counted by interval: of a minute, or longer where all times are those of
    full hours, say. The traffic then lasts from the first interval to the last. `seconds` is how long it lasts if no
    request has a time.

    Raises:
        ValueError: `add` was given a count or a time that is no number.
    """

    seconds: float
    most: int = MAX_ENTRIES
    _interval: float = MINUTE
    _untimed: dict[str, float] = field(default_factory=dict)
    _timed: dict[int, dict[str, float]] = field(default_factory=dict)
    _entries: int = 0
    _grain: int = 0

    def add(self, cell: str, count: float, at: float | None = None) -> None:
        """Count requests of a cell."""
        if not (isfinite(count) and count >= 0) or (at is not None and not isfinite(at)):
            raise ValueError(f"`{count}` requests at `{at}`")
        if at is None:
            self._untimed[cell] = self._untimed.get(cell, 0.0) + count
            return
        self._grain = gcd(self._grain, int(at)) if at == int(at) else 1
        counts = self._timed.setdefault(floor(at / self._interval), {})
        if cell not in counts:
            self._entries += 1
        counts[cell] = counts.get(cell, 0.0) + count
        while self._entries > self.most and len(self._timed) > 1:
            self._join(2 * self._interval)

    def traffic(self) -> Traffic:
        """What was added so far. Requests without a time are spread evenly over that of the others."""
        if not self._timed:
            whole = TrafficSample(dict(self._untimed), self.seconds)
            return Traffic(whole, whole)
        grains = (grain for grain in _GRAINS if self._grain % grain == 0 and grain % self._interval == 0)
        grain = max(grains, default=self._interval)
        if grain > self._interval:
            self._join(grain)
        first, last = min(self._timed), max(self._timed)
        seconds = (last - first + 1) * self._interval
        total = dict(self._untimed)
        for counts in self._timed.values():
            _merge(total, counts, 1.0)
        busiest = max(self._timed, key=lambda number: sum(self._timed[number].values()))
        peak = dict(self._timed[busiest])
        _merge(peak, self._untimed, self._interval / seconds)
        return Traffic(
            TrafficSample(total, seconds, first * self._interval),
            TrafficSample(peak, self._interval, busiest * self._interval),
        )

    def _join(self, interval: float) -> None:
        """Longer intervals, a multiple of those so far."""
        times = round(interval / self._interval)
        joined: dict[int, dict[str, float]] = {}
        for number, counts in self._timed.items():
            _merge(joined.setdefault(number // times, {}), counts, 1.0)
        self._timed, self._interval = joined, interval
        self._entries = sum(map(len, joined.values()))


def _merge(total: dict[str, float], counts: Mapping[str, float], part: float) -> None:
    for cell, count in counts.items():
        total[cell] = total.get(cell, 0.0) + part * count
