"""Least outstanding work: when the server would be done with all it has, and this request. Knows that requests differ."""

from __future__ import annotations

from gtm.core.balance.choosing.values import Candidate


def score(candidate: Candidate, cost: float) -> float:
    """Seconds of work in flight, with this request's `cost`, per weight."""
    return (candidate.flight.backlog_us * 1e-6 + cost) / candidate.weight
