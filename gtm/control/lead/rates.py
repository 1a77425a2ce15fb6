"""Smoothed rates of what edges and balancers count, by pairs of words: what free slots moved (docs/spill-back.md), what DNS did."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from math import exp
from operator import itemgetter

from gtm.control.lead.demand import FORGET_BELOW, KEPT, TIME_CONSTANT

MAX_PAIRS = 10_000
"""Pairs that are kept of one source: those with the highest rates."""


@dataclass(slots=True)
class _Source:
    heard: float
    rates: dict[str, float] = field(default_factory=dict)


class RateBook:
    """The rates of all sources. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}

    def take(self, source: str, counts: Mapping[str, float], seconds: float, now: float) -> None:
        """Take in what a source counted in the last seconds.

        Args:
            source: which, by a name that no other has.
            counts: by two words with a tab between, as the region that the plan chose (empty: none) and the one that took the request.
            seconds: that were counted.
            now: monotonic seconds.
        """
        known = self._sources.setdefault(source, _Source(now))
        known.heard = now
        kept = exp(-max(seconds, 0.0) / TIME_CONSTANT)
        rates = {pair: rate * kept for pair, rate in known.rates.items() if rate * kept > FORGET_BELOW}
        for pair, count in counts.items():
            rates[pair] = rates.get(pair, 0.0) + count * (1 - kept) / max(seconds, 1e-3)
        known.rates = dict(nlargest(MAX_PAIRS, rates.items(), key=itemgetter(1)))

    def rates(self, now: float) -> dict[tuple[str, str], float]:
        """How many a second of each pair, over all sources."""
        self._forget(now)
        found: dict[tuple[str, str], float] = defaultdict(float)
        for source in self._sources.values():
            for pair, rate in source.rates.items():
                first, _, second = pair.partition("\t")
                found[first, second] += rate
        return dict(found)

    def of(self, source: str, now: float) -> dict[str, float]:
        """The same of one source alone, by pairs as it told them."""
        self._forget(now)
        known = self._sources.get(source)
        return {} if known is None else dict(known.rates)

    def forget(self, source: str) -> None:
        """Drop what a source counted."""
        self._sources.pop(source, None)

    def _forget(self, now: float) -> None:
        self._sources = {name: one for name, one in self._sources.items() if now - one.heard <= KEPT}
