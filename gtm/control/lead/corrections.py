"""What edges moved by free slots (docs/spill-back.md): smoothed rates by the region that the plan chose and the one that took them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from math import exp
from operator import itemgetter

from gtm.control.lead.demand import FORGET_BELOW, KEPT, TIME_CONSTANT

MAX_PAIRS = 10_000
"""Pairs of regions that are kept of one edge: those with the highest rates."""


@dataclass(slots=True)
class _Edge:
    heard: float
    rates: dict[str, float] = field(default_factory=dict)


class CorrectionBook:
    """The rates of all edges. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._edges: dict[str, _Edge] = {}

    def take(self, edge: str, counts: Mapping[str, float], seconds: float, now: float) -> None:
        """Take in what an edge moved in the last seconds.

        Args:
            edge: which, by a name that no other has.
            counts: by two regions' names with a tab between; the first is empty for what the plan refused.
            seconds: that were counted.
            now: monotonic seconds.
        """
        known = self._edges.setdefault(edge, _Edge(now))
        known.heard = now
        kept = exp(-max(seconds, 0.0) / TIME_CONSTANT)
        rates = {pair: rate * kept for pair, rate in known.rates.items() if rate * kept > FORGET_BELOW}
        for pair, count in counts.items():
            rates[pair] = rates.get(pair, 0.0) + count * (1 - kept) / max(seconds, 1e-3)
        known.rates = dict(nlargest(MAX_PAIRS, rates.items(), key=itemgetter(1)))

    def rates(self, now: float) -> dict[tuple[str, str], float]:
        """Requests per second by the region that the plan chose (empty: none) and the one that took them."""
        self._edges = {name: edge for name, edge in self._edges.items() if now - edge.heard <= KEPT}
        found: dict[tuple[str, str], float] = defaultdict(float)
        for edge in self._edges.values():
            for pair, rate in edge.rates.items():
                drawn, _, taken = pair.partition("\t")
                found[drawn, taken] += rate
        return dict(found)
