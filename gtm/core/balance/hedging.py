"""When a request that waits for its first byte is asked of a second server too (docs/balancer.md, "Hedging"): after how long, and how many at the most.

Theory. Of each kind of call the seconds to the first byte are kept as a fading histogram, as those of service are (`gtm.core.balance.work`). A request is
late when it has waited for longer than its kind's `QUANTILE`. One that was hedged counts as one that waited just so long: nobody knows how long it would have waited, and for the
quantile it is enough that it was no less. Were it left out, the slowest 1 of 100 would be missing from what is learned, the quantile would fall, more would be
late, and so on; did it count by what its client waited, a few that stand still would have all others wait for as long. How many are hedged is bounded as a share of a
service's requests, for all may be late at once: what is beyond that share counts by how long it waited, so that of a service that has become slower that is learned.

Laws:
  1. Nothing is late before `LEAST` requests of its kind are known, nor before the exact quantile of those that were known when it was worked out last; and it is late
     after √2 times that (1 ms at the least).
  2. Whenever a hedge is allowed, the hedges of the last `WINDOW_S` seconds, this one with them, are no more than the share of the requests of that time.
  3. Memory is bounded, whatever names clients make up: the kinds that were used least recently are forgotten.

Example.

>>> from gtm.core.balance.work import AskedWork
>>> kind = kind_of("chat", b"/v1/chat/completions", AskedWork("llama", 500, 256), streams=True)
>>> known = FirstBytes().of(kind)
>>> for number in range(106):
...     late = known.late
...     known.learn(3.0 if number == 50 else 0.2)
>>> late, known.late
(None, 0.256)

Sources: Dean & Barroso, "The Tail at Scale" (CACM 56/2, 2013), "hedged requests": after the 95th percentile they cost 5% more; gRFC A6 (hedging, throttled);
Envoy's `hedge_on_per_try_timeout`; grafana/loki#4826 (a store that is slow for everybody: all are hedged, which does more harm than good).
"""

from __future__ import annotations

from collections import OrderedDict, deque

from gtm.core.balance.work import Durations, class_of, durations_of

QUANTILE = 0.99
"""The part of the requests of a kind that have their first byte sooner than a late one."""
LEAST, AGAIN = 106, 16
"""Requests of a kind before which nobody knows who is late; and after which that is worked out anew."""
MOST_KINDS = 4096
WINDOW_S, _SLICES = 60.0, 12
"""Seconds of which hedges are a share of the requests, and into how many slices they are cut: the oldest is forgotten whole."""

CallClass = tuple[str, bytes, bool, tuple[str, int, int]]
"""A kind of call: requests of one take about as long to their first byte."""


def kind_of(service: str, path: bytes, asked: tuple[str, int, int | None], *, streams: bool) -> CallClass:
    """The kind of a request. When a stream begins does not depend on how long it may become."""
    return service, path, streams, class_of((asked[0], asked[1], None) if streams else asked)


class KnownWaits(Durations):
    """How long requests of one kind wait for their first byte."""

    __slots__ = ("_left", "late")

    def __init__(self) -> None:
        super().__init__()
        self.late: float | None = None
        """Seconds after which a request is late; None: too few of its kind are known."""
        self._left = LEAST

    def learn(self, seconds: float) -> None:
        """A request has had its first byte, so long after it was sent. What is no duration is left out."""
        super().learn(seconds)
        self._left -= 1
        if not self._left:
            self._left, self.late = AGAIN, self.quantile(QUANTILE)


class FirstBytes:
    """How long requests of each kind wait for their first byte."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[CallClass, KnownWaits] = OrderedDict()

    def __len__(self) -> int:
        """Count the kinds of call that something is known of."""
        return len(self._kinds)

    def of(self, kind: CallClass) -> KnownWaits:
        """Those of one kind, of which a request has come."""
        return durations_of(self._kinds, kind, MOST_KINDS, KnownWaits)


class HedgeShare:
    """Requests of the last `WINDOW_S` seconds, and those of them that were hedged."""

    __slots__ = ("_slices", "hedges", "requests")

    def __init__(self) -> None:
        self.requests = self.hedges = 0
        self._slices: deque[list[int]] = deque()
        """Each one's number, requests and hedges."""

    def requested(self, now: float) -> None:
        """A request was sent to its server. `now`: seconds of a clock that does not step back."""
        self._at(now)[1] += 1
        self.requests += 1

    def look(self, now: float) -> None:
        """Forget what is too old."""
        self._at(now)

    def allows(self, now: float, share: float) -> bool:
        """Whether one more may be hedged, of a share in (0, 1) of the requests."""
        self._at(now)
        return self.hedges + 1 <= share * self.requests + 1e-9

    def hedged(self, now: float) -> None:
        """One was."""
        self._at(now)[2] += 1
        self.hedges += 1

    def _at(self, now: float) -> list[int]:
        """The slice of now; those that are too old are forgotten."""
        number, slices = int(now * _SLICES / WINDOW_S), self._slices
        if slices and slices[-1][0] >= number:
            return slices[-1]
        while slices and slices[0][0] <= number - _SLICES:
            _, requests, hedges = slices.popleft()
            self.requests -= requests
            self.hedges -= hedges
        slices.append([number, 0, 0])
        return slices[-1]
