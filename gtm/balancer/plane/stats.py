"""What a balancer counts, as plain numbers: cheap to count, rendered when somebody asks."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING

from gtm.core.capacity import durations
from gtm.core.capacity.durations import OTHER, Counts, TookBy
from gtm.core.handoff.verdict import Verdict
from gtm.feed.reports import MAX_SHOWN_TEXT

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
"""Upper bounds of the histograms' buckets in seconds, each of them one of `gtm.core.capacity.durations.BOUNDS`."""
_COARSE = (*(bisect_left(BOUNDS, bound) for bound in durations.BOUNDS), len(BOUNDS))
"""By the place of a bucket there, the one here that it is a part of."""

EACH = 16
"""One choice of so many is timed."""
KEPT = 900.0
"""Seconds for which what was counted of a server that is gone stays: time for the last of it to be scraped."""
MOST_SERIES = 20_000
"""Servers, and combinations of server, status and end, that are told apart: servers come and go, and say what status they like."""
_LOOK_EVERY = 60.0
"""Seconds between looks at which servers are gone."""


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

    def take(self, counts: Mapping[int, int], seconds: float) -> None:
        """Count requests of finer buckets, that took so many seconds together."""
        for bucket, count in counts.items():
            self.counts[_COARSE[bucket]] += count
        self.total += seconds

    def merge(self, other: Histogram) -> None:
        """Count all that another has."""
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


class _Fresh:
    """What requests took that have ended since they were last added up."""

    __slots__ = ("ends", "ends_total", "first_bytes", "first_bytes_total")

    def __init__(self) -> None:
        self.ends: Counts = {}
        self.first_bytes: Counts = {}
        self.ends_total = self.first_bytes_total = 0.0


class Stats:
    """Since the process began.

    Law: a request's times are counted once, when it ends; `settle` adds them to what is told by backend, and by service and model.
    """

    def __init__(self) -> None:
        self.declared: Callable[[str], bool] = lambda _: False
        """Whether somebody declares a model of this name: times of others are not told apart."""
        self.requests: dict[tuple[str, int, str], int] = {}
        """By backend, status and how they ended."""
        self.left_out = 0
        """Requests that are not among these, since there were `MOST_SERIES` of them."""
        self.refusals: Counter[str] = Counter()
        """Refusals, by their code."""
        self.failures: Counter[str] = Counter()
        """Failures of backends, by URL."""
        self.full: Counter[str] = Counter()
        """Requests that a backend had no room for, as it said."""
        self.taken: Counter[tuple[str, str]] = Counter()
        """Requests without a byte of an answer at a backend that was judged down, by its URL and what became of them then: `moved`, `queued`, `refused`."""
        self.hedges: Counter[str] = Counter()
        """Requests that were late, by what became of asking a second server (docs/balancer.md, "Hedging")."""
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
        """Seconds from a request's arrival to the end of its answer, by backend."""
        self.first_bytes: dict[str, Histogram] = {}
        """To the first byte of the answer's body, a stream's first token; of one without a body, to its head. By backend."""
        self.between: dict[str, Histogram] = {}
        """Between two pieces of a stream of events, in the mean of the stream, by backend: from token to token."""

        self._fresh: dict[tuple[str, str, str], _Fresh] = {}
        """These are kept by backend, service and model."""
        self._models: dict[str | None, str] = {}
        """The names that models are counted under, of those since the last `settle`."""
        self._took: TookBy = {}
        """Since `take_times`."""
        self._beyond = Histogram()
        """Of requests at servers of which nothing is told any more, or never was."""
        self._gone: dict[str, float] = {}
        """Servers that are gone, and since when."""
        self._looked = 0.0

    def keep(self, servers: Container[str], now: float) -> list[str]:
        """Say which servers there are; those that are gone are forgotten `KEPT` seconds later. Looks once a minute.

        Returns:
            Those that are forgotten now.
        """
        if now - self._looked < _LOOK_EVERY:
            return []
        self._looked = now
        self.settle()
        known = {url for url, _, _ in self.requests}.union(self.failures, self.full, self.durations)
        known.update(url for url, _ in self.taken)
        gone = {url for url in known if url and url not in servers}
        self._gone = {url: self._gone.get(url, now) for url in gone}
        over = [url for url, since in self._gone.items() if now - since >= KEPT]
        for url in over:
            self._forget(url)
        return over

    def _forget(self, url: str) -> None:
        del self._gone[url]
        self.requests = {key: count for key, count in self.requests.items() if key[0] != url}
        histogram = self.durations.pop(url, None)
        if histogram is not None:
            self._beyond.merge(histogram)
        self.failures.pop(url, None)
        self.full.pop(url, None)
        self.taken = Counter({key: count for key, count in self.taken.items() if key[0] != url})
        self.first_bytes.pop(url, None)
        self.between.pop(url, None)

    def refused(self, refusal: Refusal) -> None:
        """Count a refusal. Who is sent on by a redirect is not refused."""
        if refusal.status >= 400:
            self.refusals[refusal.code] += 1

    def failed(self, url: str) -> None:
        """Count a failure of a backend."""
        if url in self.failures or len(self.failures) < MOST_SERIES:
            self.failures[url] += 1

    def rescued(self, url: str, how: str, count: int) -> None:
        """Count requests that were taken from a backend that was judged down."""
        if (url, how) in self.taken or len(self.taken) < MOST_SERIES:
            self.taken[url, how] += count

    def ended(self, exchange: Exchange, url: str, how: str, now: float) -> None:
        """Count a request that has ended."""
        key = url, exchange.status, how
        try:
            self.requests[key] += 1
        except KeyError:
            if len(self.requests) < MOST_SERIES:
                self.requests[key] = 1
            else:
                self.left_out += 1
        if url:
            self.waited += exchange.waited
            verdict, service = exchange.verdict, ""
            if isinstance(verdict, Verdict) and verdict.routing is not None:
                service = verdict.routing.request.service
                if verdict.believed is not None and verdict.believed.hop:
                    self.came[service] += 1
            began, first_byte = exchange.began, exchange.first_byte
            model = exchange.fallback or exchange.facts.model
            name = self._models.get(model)
            if name is None:
                name = self._named(model)
            served = url, service, name
            fresh = self._fresh.get(served)
            if fresh is None:
                fresh = self._begin(served)
            seconds = now - began
            bucket, counts = bisect_left(durations.BOUNDS, seconds), fresh.ends
            counts[bucket] = counts.get(bucket, 0) + 1
            fresh.ends_total += seconds
            if first_byte:
                seconds = first_byte - began
                bucket, counts = bisect_left(durations.BOUNDS, seconds), fresh.first_bytes
                counts[bucket] = counts.get(bucket, 0) + 1
                fresh.first_bytes_total += seconds
            answer = exchange.answer
            if answer.events and answer.pieces > 1 and how == "answered":
                mean = (now - first_byte) / (answer.pieces - 1)
                (self.between.get(url) or self._new(self.between, url)).add(mean)

    def _named(self, model: str | None) -> str:
        """The name that a model's requests are counted under."""
        if not model:
            name = ""
        else:
            known = len(model) <= MAX_SHOWN_TEXT and model.isprintable() and self.declared(model)
            name = model if known else OTHER
        if len(self._models) < MOST_SERIES:
            self._models[model] = name
        return name

    def _begin(self, key: tuple[str, str, str]) -> _Fresh:
        if len(self._fresh) >= MOST_SERIES:
            self.settle()
        fresh = self._fresh[key] = _Fresh()
        return fresh

    def settle(self) -> None:
        """Add what has ended since the last time to what is told."""
        fresh, self._fresh, self._models = self._fresh, {}, {}
        for (url, service, model), one in fresh.items():
            ends = self.durations.get(url) or self._new(self.durations, url)
            ends.take(one.ends, one.ends_total)
            if one.first_bytes:
                first_bytes = self.first_bytes.get(url) or self._new(self.first_bytes, url)
                first_bytes.take(one.first_bytes, one.first_bytes_total)
            took = durations.place(self._took, service, model) if service else None
            if took is not None:
                took.add(one.first_bytes, one.ends)

    def take_times(self) -> TookBy:
        """What requests of each service and model took that have ended since this was last asked."""
        self.settle()
        took, self._took = self._took, {}
        return took

    def served(self) -> tuple[int, float, float]:
        """How many requests backends have had; their seconds together, those in the queue apart."""
        self.settle()
        each = (*self.durations.values(), self._beyond)
        return (
            sum(sum(histogram.counts) for histogram in each),
            sum(histogram.total for histogram in each) - self.waited,
            self.waited,
        )

    def _new(self, table: dict[str, Histogram], url: str) -> Histogram:
        if len(table) >= MOST_SERIES:
            return self._beyond if table is self.durations else Histogram()
        found = table[url] = Histogram()
        return found
