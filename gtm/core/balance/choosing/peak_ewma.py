"""Latency as a multiplier of any score: a server that is twice as slow counts as twice as full.

What is measured rises at once and falls slowly (`gtm.core.balance.flights.PeakEwma`), relative to the other servers.
"""

from __future__ import annotations

from gtm.core.balance.choosing.values import Candidate, Scoring


def weighted(score: Scoring) -> Scoring:
    """A score times how slow the server is beside the others."""

    def with_latency(candidate: Candidate, cost: float) -> float:
        return score(candidate, cost) * candidate.flight.slowness

    return with_latency
