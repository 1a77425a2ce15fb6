"""Quotas that are a share of a home region's demand, held by those who see that demand: no lease, and no lag behind a burst.

A lease is a rate: a share of what demand was a second ago, in parts to whoever asked before. When demand grows eightfold for four
seconds, a rate follows too late, and its buckets save too little. But what a share allows follows from the requests themselves:
each request of the home earns `share` tokens where it is seen first, and whoever serves one elsewhere spends one. Nobody asks anybody.

    edge (over HTTP) ──earns share; what it cannot save goes in the handoff──▶ home's balancer: earns that
    DNS, or a handoff used again ─────────────────────────────────────────────▶ home's balancer: earns what the plan left

Laws:
  1. A bucket's level is never below 0 nor above `DEPTH`, and starts at 0. So from the start on, what was spent is at most what was
     earned; in any stretch of time, at most that and `DEPTH` for each holder (a process).
  2. No request earns more than its share, whatever came with it: what a handoff brings counts up to the share of the request that
     brings it, once. A replay is worth no more than any other request.
  3. Only the home's balancers earn, of requests that no balancer pushed.

docs/quotas.md is the page of promises, docs/decisions/0024-earned-shares.md says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum

from gtm.core.quota.names import QuotaText

DEPTH = 2.0
"""Requests that a bucket saves at the most."""
LEAST = 1e-4
"""Tokens; what is less is not worth a claim."""
_ROUNDING = 1e-9

Worth = tuple[tuple[QuotaText, float], ...]
"""Tokens that one request earns (0 to 1), by quota."""
Earn = Callable[[Worth], Worth]
"""A request was seen, worth so much: keeps it, and returns what it could not keep."""


class Sight(Enum):
    """How a request of a home region came to that region's balancer."""

    FIRST = "first"
    """Nobody saw it before: by DNS, or by a handoff of a look-up that brought one before."""
    HANDED = "handed"
    """An edge saw it, and its handoff says what the edge could not save."""
    SEEN = "seen"
    """It was seen elsewhere, or nobody can tell."""


def earned(sight: Sight, worth: Worth, left: Worth, credit: Mapping[str, float]) -> Worth:
    """What a request earns at its home's balancer.

    Args:
        sight: how it came.
        worth: the shares, as an edge earns them.
        left: what the plan's cached answers leave of these.
        credit: what its handoff says that the edge did not save, by quota.
    """
    if sight is Sight.FIRST:
        return left
    if sight is Sight.SEEN or not credit:
        return ()
    return tuple((quota, min(share, credit[quota])) for quota, share in worth if credit.get(quota, 0.0) > 0)


class ShareBucket:
    """One holder's part of one share."""

    __slots__ = ("_level",)

    def __init__(self) -> None:
        self._level = 0.0

    def earn(self, tokens: float) -> float:
        """A request was seen, worth so many tokens (0 to 1). Returns those that could not be saved."""
        level = self._level + tokens
        if level <= DEPTH:
            self._level = level
            return 0.0
        self._level = DEPTH
        return level - DEPTH

    def ready(self) -> bool:
        """Whether one request may be served elsewhere; `spend` then spends for it."""
        return self._level >= 1.0 - _ROUNDING

    def spend(self) -> None:
        """Spend for one request, for which `ready` has just said yes."""
        self._level = max(0.0, self._level - 1.0)


class ShareBuckets:
    """All shares of one holder. Used by its answering thread alone."""

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: dict[QuotaText, ShareBucket] = {}

    def earn(self, worth: Iterable[tuple[QuotaText, float]]) -> Worth:
        """A request was seen. Returns what of its worth could not be saved."""
        over = []
        for quota, tokens in worth:
            bucket = self._buckets.get(quota)
            if bucket is None:
                bucket = self._buckets[quota] = ShareBucket()
            left = bucket.earn(tokens)
            if left >= LEAST:
                over.append((quota, left))
        return tuple(over)

    def of(self, quota: QuotaText) -> ShareBucket | None:
        """The bucket of a share, if anything was earned of it yet."""
        return self._buckets.get(quota)
