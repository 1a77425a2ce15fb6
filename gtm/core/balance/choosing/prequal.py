"""Prequal's hot-cold rule: of a few servers, the fastest that is not hot; if all are hot, the one with the least in flight.

A server is hot that has more in flight than most (`Flights.hot`). Latency decides between cold ones, so that load settles where it is
served fastest, and requests in flight, which say sooner than latency that a server fills up, bound it. Prequal asks servers by
probes; a balancer that has counts and latencies of its own needs none.

Source: Wydrowski, Kleinberg, Rumble and Archer, "Load is not what you should balance: Introducing Prequal" (NSDI 2024), §4.
"""

from __future__ import annotations

from bisect import bisect_right

from gtm.core.balance.choosing.values import Candidate, Eligible

DRAWS = 5
"""How many servers are looked at: less than Prequal's pool of 16 probes, for these figures are not stale."""
_NEXT = 0.6180339887498949
"""From one draw to the next: steps of the golden ratio spread evenly (Weyl's sequence), and need no other random number."""


def pick(eligible: Eligible, hot: float, typical: float | None, draw: float) -> Candidate:
    """One of the eligible (at least one).

    Args:
        eligible: who may.
        hot: requests per weight above which a server is hot.
        typical: the latency per cost that counts for a server of which no latency is known; None: no latency is known at all.
        draw: uniform in [0, 1).
    """
    candidates, sums = eligible.candidates, eligible.sums
    best, lowest = candidates[0], (2, 0.0, 0.0)
    for _ in range(DRAWS):
        candidate = candidates[min(bisect_right(sums, draw * sums[-1]), len(sums) - 1)]
        rank = _rank(candidate, hot, typical)
        if rank < lowest:
            best, lowest = candidate, rank
        draw = (draw + _NEXT) % 1.0
    return best


def _rank(candidate: Candidate, hot: float, typical: float | None) -> tuple[int, float, float]:
    """Cold before hot; cold ones by latency, then by load; hot ones by load. Load is by weight."""
    flight = candidate.flight
    load = flight.outstanding / candidate.weight
    if load > hot:
        return 1, load, 0.0
    latency = flight.latency_by_load.expected(flight.outstanding)
    if latency is None:
        latency = 0.0 if typical is None else typical
    return 0, latency, load
