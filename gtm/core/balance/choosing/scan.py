"""The best of all: exact where counts are fresh, and n looks a request. With old counts, everybody runs to the same server."""

from __future__ import annotations

from collections.abc import Sequence

from gtm.core.balance.choosing.values import Candidate, Scoring


def pick(candidates: Sequence[Candidate], score: Scoring, cost: float, draw: float) -> Candidate:
    """The candidate (of at least one) with the lowest score; the draw, uniform in [0, 1), decides between equals."""
    best: list[Candidate] = []
    lowest = float("inf")
    for candidate in candidates:
        value = score(candidate, cost)
        if value < lowest:
            lowest, best = value, [candidate]
        elif value == lowest:
            best.append(candidate)
    return best[int(draw * len(best))]
