"""Least outstanding requests: how many there would be, by weight."""

from __future__ import annotations

from gtm.core.balance.choosing.values import Candidate


def score(candidate: Candidate, cost: float) -> float:  # noqa: ARG001 - all scores are asked alike
    """Requests in flight, with this one, per weight."""
    return (candidate.flight.outstanding + 1.0) / candidate.weight
