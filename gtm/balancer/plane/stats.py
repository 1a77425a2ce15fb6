"""What a balancer counts, as plain numbers: cheap to count, rendered when somebody asks."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING

from gtm.core.handoff.verdict import Verdict

if TYPE_CHECKING:
    from gtm.balancer.plane.exchange import Exchange
    from gtm.balancer.wire.refusals import Refusal

BOUNDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
    300.0,
)
"""Upper bounds of the histograms' buckets in seconds."""


EACH = 16
"""One choice of so many is timed."""


class Histogram:
    """Seconds by bucket, the last without a bound, and their sum."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class Stats:
    """Since the process began."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int, str]] = Counter()
        """By backend, status and how they ended."""
        self.refusals: Counter[str] = Counter()
        """By code."""
        self.failures: Counter[str] = Counter()
        """Of backends."""
        self.came: Counter[str] = Counter()
        """Requests that backends have had, and a balancer of another region before: pushed here or sent on. By service."""
        self.retries = 0
        self.without_room: Counter[str] = Counter()
        """Connections to backends that could not be made for want of descriptors or memory here, by what for: `request`, `check`."""
        self.picks = 0
        """Times that a backend was to be chosen."""
        self.decisions = 0
        """Those of them that were timed, one of `EACH`; and their seconds."""
        self.decision_seconds = 0.0
        self.waited = 0.0
        """Seconds that requests which backends have had were in the queue before."""
        self.durations: dict[str, Histogram] = {}
        """Of whole requests, by backend."""
        self.first_bytes: dict[str, Histogram] = {}
        """To the first byte of the answer's body, a stream's first token; of one without a body, to its head. By backend."""
        self.between: dict[str, Histogram] = {}
        """Between two pieces of a stream of events, in the mean of the stream, by backend: from token to token."""

    def refused(self, refusal: Refusal) -> None:
        """Count a refusal. Who is sent on by a redirect is not refused."""
        if refusal.status >= 400:
            self.refusals[refusal.code] += 1

    def failed(self, url: str) -> None:
        """Count a failure of a backend."""
        self.failures[url] += 1

    def ended(self, exchange: Exchange, url: str, how: str, now: float) -> None:
        """Count a request that has ended."""
        self.requests[url, exchange.status, how] += 1
        if url:
            self.waited += exchange.waited
            verdict = exchange.verdict
            if isinstance(verdict, Verdict) and verdict.believed is not None and verdict.believed.hop:
                assert verdict.routing is not None  # noqa: S101 - what is served is for some service
                self.came[verdict.routing.request.service] += 1
            began, first_byte = exchange.began, exchange.first_byte
            # As `Histogram.add`, in half of the time.
            histogram, seconds = self.durations.get(url) or self._new(self.durations, url), now - began
            histogram.counts[bisect_left(BOUNDS, seconds)] += 1
            histogram.total += seconds
            if first_byte:
                histogram, seconds = (
                    self.first_bytes.get(url) or self._new(self.first_bytes, url),
                    first_byte - began,
                )
                histogram.counts[bisect_left(BOUNDS, seconds)] += 1
                histogram.total += seconds
            answer = exchange.answer
            if answer.events and answer.pieces > 1 and how == "answered":
                mean = (now - first_byte) / (answer.pieces - 1)
                (self.between.get(url) or self._new(self.between, url)).add(mean)

    def served(self) -> tuple[int, float, float]:
        """How many requests backends have had; their seconds together, those in the queue apart."""
        return (
            sum(sum(histogram.counts) for histogram in self.durations.values()),
            sum(histogram.total for histogram in self.durations.values()) - self.waited,
            self.waited,
        )

    @staticmethod
    def _new(table: dict[str, Histogram], url: str) -> Histogram:
        found = table[url] = Histogram()
        return found
