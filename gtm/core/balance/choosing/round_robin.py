"""Smooth weighted round robin: in turn, by weight, evenly spread (nginx's). The baseline: it looks at no load at all."""

from __future__ import annotations

from collections.abc import Sequence

from gtm.core.balance.choosing.values import Candidate


def pick(candidates: Sequence[Candidate]) -> Candidate:
    """The next of the candidates (at least one). Credits are kept at the servers' counts.

    Everyone gains its weight; who has most serves, and pays the weights of all.
    """
    total = 0.0
    best = candidates[0]
    for candidate in candidates:
        candidate.flight.credit += candidate.weight
        total += candidate.weight
        if candidate.flight.credit > best.flight.credit:
            best = candidate
    best.flight.credit -= total
    return best
