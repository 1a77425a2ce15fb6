"""The best of all: exact where counts are fresh, and n looks a request. With old counts, everybody runs to the same server."""

from __future__ import annotations

from collections.abc import Sequence

from gtm.core.balance.choosing.values import Candidate, Scoring


def pick(candidates: Sequence[Candidate], score: Scoring, cost: float, draw: float) -> Candidate:
    """The candidate (of at least one) with the lowest score; if it is known to be full, the best of those that are not.

    The draw, uniform in [0, 1), decides between equals.
    """
    best = _best(candidates, score, cost, draw)
    if best.flight.known >= best.slots > 0:  # as `full`, at half the cost
        free = [candidate for candidate in candidates if not candidate.full]
        if free:
            return _best(free, score, cost, draw)
    return best


def _best(candidates: Sequence[Candidate], score: Scoring, cost: float, draw: float) -> Candidate:
    best = candidates[0]
    lowest = score(best, cost)
    equal: list[Candidate] | None = None
    for candidate in candidates[1:]:
        value = score(candidate, cost)
        if value < lowest:  # a score that is no number is no better than another
            lowest, best, equal = value, candidate, None
        elif value == lowest:
            if equal is None:
                equal = [best]
            equal.append(candidate)
    return best if equal is None else equal[int(draw * len(equal))]
