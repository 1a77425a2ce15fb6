"""How slow a server is, from the requests that ended there: measured here, read by scores and picks.

Latencies are given per second of work that the request was expected to cost: a long answer is not a slow server.
"""

from __future__ import annotations

from math import exp

DECAY_S = 10.0
"""Time constant, in seconds, of what is forgotten."""
_BUCKETS = 12
_BLEND = 0.2
"""How much of a new latency enters the mean of its bucket."""


class PeakEwma:
    """An exponentially weighted mean that rises at once and falls slowly (Finagle's `peak_ewma`; linkerd2-proxy).

    A server that turns slow is noticed by its first slow request, one that recovers is believed gradually.
    """

    __slots__ = ("_at", "value")

    def __init__(self) -> None:
        self.value: float | None = None
        self._at = 0.0

    def observe(self, latency: float, now: float) -> None:
        """Take a latency into account. `now`: seconds of a clock that does not step back."""
        value = self.value
        if value is None or latency >= value:
            self.value = latency
        else:
            self.value = latency + self.weight(now) * (value - latency)
        self._at = max(self._at, now)

    def weight(self, now: float) -> float:
        """What the mean still counts, 1 when it was just observed, falling to 0."""
        return exp((self._at - now) / DECAY_S) if now > self._at else 1.0


class LatencyByLoad:
    """What requests took that came when so many were in flight: Prequal's estimate (Wydrowski et al., NSDI 2024, §4.1).

    Loads fall into buckets by powers of two; each keeps a mean that forgets.
    """

    __slots__ = ("_means",)

    def __init__(self) -> None:
        self._means: list[float | None] = [None] * _BUCKETS

    def observe(self, latency: float, load: float) -> None:
        """Take the latency of a request into account that met `load` others."""
        bucket = min(_BUCKETS - 1, int(load + 1).bit_length() - 1)
        mean = self._means[bucket]
        self._means[bucket] = latency if mean is None else mean + _BLEND * (latency - mean)

    def expected(self, load: float) -> float | None:
        """What a request would take that meets `load` others: of the nearest bucket, lower first; None: nothing is known."""
        bucket = min(_BUCKETS - 1, int(load + 1).bit_length() - 1)
        for distance in range(_BUCKETS):
            for near in (bucket - distance, bucket + distance):
                if 0 <= near < _BUCKETS:
                    mean = self._means[near]
                    if mean is not None:
                        return mean
        return None
