"""A quota that is a share of a home region's demand, kept by those who see that demand: no lease, and no lag behind a burst.

A lease is a rate: a share of what demand was a second ago, in parts to whoever asked before. When demand grows eightfold for four
seconds, a rate follows too late, and its buckets save too little. But what a share allows follows from the requests themselves:
whoever sees one of the home's earns a share of a token, and whoever spills one spends a token. Σ spent ≤ share × Σ seen + what
is saved, over any time and however many take part, and nobody asks anybody.

The holder that sees a request first (the edge; the balancer, of one that came without a handoff) earns. What it cannot save it may
hand on with the request, as credit for the balancer that serves it.
"""

from __future__ import annotations

DEPTH = 2.0
"""Requests that a bucket saves at the most."""
_ROUNDING = 1e-9


class ShareBucket:
    """One holder's part of a rule with `max_share`.

    Law: over any time, what was spent is at most what was earned in it, and `DEPTH`.
    """

    __slots__ = ("_level",)

    def __init__(self) -> None:
        self._level = 0.0

    def earn(self, tokens: float) -> float:
        """A request was seen, worth so many tokens (0 to 1). Returns those that could not be saved."""
        level = self._level + tokens
        self._level = min(level, DEPTH)
        return level - self._level

    def ready(self) -> bool:
        """Whether one request may be spilled; `spend` then spends for it."""
        return self._level >= 1.0 - _ROUNDING

    def spend(self) -> None:
        """Spend for one request."""
        self._level -= 1.0
