"""How far edges are believed when they say how much is asked of them.

What an edge counts of its own clients nobody else sees, so nobody can check it; and the plan, which is made from it, moves
clients of all edges, or refuses them. An edge that lies (its token was stolen) must not move others by more than an honest
burst of its own clients would.

Laws:
  1. A lone token is believed wholly: there are no others.
  2. A token is believed up to `BURST` times its own busiest minute of the last day, at once: an honest burst counts in full.
  3. Further it is believed as far as somebody else's word makes it likely, whichever is most: without a history as far as
     the median of the other tokens asks; as far as regions report more arrivals, or the world asked for more in its busiest minute, than the
     others ask for now (clients move from an edge that ends to another); and as far as `PART` of what all regions can serve.
  4. PeakBook grows slowly, or it would be its own witness: a minute is recorded up to twice the busiest of earlier hours,
     or as far as regions report more arrivals than others ask for. What law 3 makes likely otherwise is recorded by one part
     in `BURST`, so that the burst which follows from it is what was likely. A liar who is patient doubles what he may say
     each hour, and no faster.

So the largest lie of one edge does to others what a burst of `BURST` times its busiest minute would; of one without a
history, what a second edge like the others would, or a twentieth of all capacity.

Example. Frankfurt asked for 100 a second at most, Dublin for 20. Dublin says a billion now: it is believed up to 160.

>>> evidence = Evidence({"fra": 100.0, "dub": 20.0}, world=120.0, arrivals=0.0, part=0.0)
>>> limits({"fra": 90.0, "dub": 1e9}, evidence)["dub"]
160.0

Frankfurt's edge ends, and its clients come to Dublin, as many as the world asked for before: they all count.

>>> limits({"fra": 0.0, "dub": 119.0}, Evidence({"fra": 100.0, "dub": 1.0}, 120.0, 0.0, 0.0))["dub"]
120.0
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from operator import add
from statistics import median_low
from typing import NamedTuple

BURST = 8.0
"""Times its own busiest minute that a token is believed."""
GROWTH = 2.0
"""Times the busiest minute of earlier hours that a minute counts in the history by its token's word alone."""
PART = 0.05
"""Of what all regions can serve: so much any token may ask for."""
MINUTE = 60.0
"""Seconds that a history's rates are means of."""
HOUR = 3600
"""Seconds for which a history keeps one number."""
HOURS = 24
"""Hours that a history goes back."""
WORLD = ""
"""Stands for all tokens together in a history."""

Peaks = Mapping[tuple[str, int], float]
"""By token and hour (of POSIX time): the requests per second of its busiest minute, as far as it counts."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What tokens are judged by. All in requests (or DNS answers) per second.

    `peaks` are the busiest minutes of the last day by token, `world` that of all together, `arrivals` what regions report to
    arrive, in what edges count (of DNS one answer stands for many), `part` what any token may ask for.
    """

    peaks: Mapping[str, float] = field(default_factory=dict)
    world: float = 0.0
    arrivals: float = 0.0
    part: float = inf


UNKNOWN = Evidence()
"""Nothing is known to judge by, and any token may ask for anything."""


def limits(claims: Mapping[str, float], evidence: Evidence) -> dict[str, float]:
    """How much of each token's claim counts at most.

    Args:
        claims: what each token says that is asked of its edges now, in requests (or DNS answers) per second.
        evidence: what it is judged by.
    """
    return {
        token: max(BURST * evidence.peaks.get(token, 0.0), *likely)
        for token, likely in _likely(claims, evidence).items()
    }


class _Likely(NamedTuple):
    """How much of a token's claim others make likely (law 3): other tokens and the world, and what regions see arrive."""

    others: float
    arrivals: float


def _likely(claims: Mapping[str, float], evidence: Evidence) -> dict[str, _Likely]:
    """Of each token; all of a lone one's."""
    if len(claims) < 2:
        return dict.fromkeys(claims, _Likely(inf, inf))
    said = list(claims.values())
    # What the others say is added up without the token's own claim: taken off a sum again, a claim of 2⁵² takes small ones along.
    before, after = accumulate(said, initial=0.0), list(accumulate(reversed(said), initial=0.0))[-2::-1]
    found = {}
    for token, rest in zip(claims, map(add, before, after), strict=False):
        like_others = 0.0
        if token not in evidence.peaks:
            like_others = median_low(other for name, other in claims.items() if name != token)
        others = max(like_others, evidence.part, evidence.world - rest)
        found[token] = _Likely(others, evidence.arrivals - rest)
    return found


class PeakBook:
    """The busiest minutes of the last day, by token. Times are POSIX seconds."""

    def __init__(self) -> None:
        self._peaks: dict[tuple[str, int], float] = {}
        self._counts: dict[str, float] = {}
        self._minute: int | None = None

    def add(self, peaks: Peaks) -> None:
        """Take in what was kept."""
        self._peaks |= {key: max(rate, self._peaks.get(key, 0.0)) for key, rate in peaks.items()}

    def count(self, token: str, requests: float) -> None:
        """A token's edges were asked so often since the last time."""
        self._counts[token] = self._counts.get(token, 0.0) + requests

    def evidence(self, now: float, arrivals: float, part: float) -> Evidence:
        """What tokens are judged by now. Ends the minute, if it is over."""
        minute = int(now // MINUTE)
        if self._minute is None:
            # The first minute is not whole: what was counted in it makes no rate.
            self._minute, self._counts = minute, {}
        elif minute > self._minute:
            seconds = MINUTE * (minute - self._minute)
            self._record(
                {token: count / seconds for token, count in self._counts.items()}, now, arrivals, part
            )
            self._minute, self._counts = minute, {}
        elif minute < self._minute:  # the clock stepped back
            self._minute = minute
        return self._evidence(now, arrivals, part)

    def _evidence(self, now: float, arrivals: float, part: float) -> Evidence:
        peaks = self.busiest(now)
        return Evidence(peaks, peaks.pop(WORLD, 0.0), arrivals, part)

    def peaks(self) -> Peaks:
        """All that is to be kept."""
        return dict(self._peaks)

    def retain(self, successors: Mapping[str, str]) -> None:
        """Forget the tokens that are not live; what a rotated token did is its successor's."""
        kept: dict[tuple[str, int], float] = {}
        for (token, hour), rate in self._peaks.items():
            heir = WORLD if token == WORLD else successors.get(token)
            if heir is not None:
                kept[heir, hour] = max(rate, kept.get((heir, hour), 0.0))
        self._peaks = kept

    def busiest(self, now: float) -> dict[str, float]:
        """The busiest minute of each token in the last day."""
        return self._busiest(int(now // HOUR) + 1)

    def _busiest(self, before: int) -> dict[str, float]:
        """The busiest minute of each token in the hours of the last day before one."""
        found: dict[str, float] = {}
        for (token, hour), rate in self._peaks.items():
            if before - HOURS - 1 <= hour < before:
                found[token] = max(rate, found.get(token, 0.0))
        return found

    def _record(self, claims: Mapping[str, float], now: float, arrivals: float, part: float) -> None:
        """Take in a minute's mean rates."""
        hour = int(now // HOUR)
        likely, earlier = _likely(claims, self._evidence(now, arrivals, part)), self._busiest(hour)
        counted = {
            token: min(
                claim,
                max(GROWTH * earlier.get(token, 0.0), likely[token].others / BURST, likely[token].arrivals),
            )
            for token, claim in claims.items()
        }
        counted[WORLD] = sum(counted.values())
        for token, rate in counted.items():
            self._peaks[token, hour] = max(rate, self._peaks.get((token, hour), 0.0))
        self._peaks = {key: rate for key, rate in self._peaks.items() if key[1] >= hour - HOURS}
