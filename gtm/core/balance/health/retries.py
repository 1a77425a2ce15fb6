"""How much may be sent again: a budget, so that retries do not multiply the load when everything fails.

Source: the retry budgets of Finagle and linkerd (a share of requests, and a floor per second for those who send few). As a token bucket:
a request puts `share` in, a second `floor`, a retry takes 1; at most `most` stay in it. Hence in any t seconds

    retries ≤ most + share × requests + floor × t
"""

from __future__ import annotations


class RetryBudget:
    """The retries that may be made now; one second's floor to begin with. Times may not decrease."""

    __slots__ = ("_at", "_came", "_left", "floor", "most", "refused", "share", "taken")

    def __init__(self, now: float, *, share: float = 0.2, floor: float = 1.0, most: float = 10.0) -> None:
        self.share = share
        self.floor = floor
        self.most = most
        self.taken = 0
        """Retries so far."""
        self.refused = 0
        """Retries that there was no budget for."""
        self._left = min(floor, most)
        self._came = 0
        """Requests since then."""
        self._at = now

    def requested(self) -> None:
        """A request came; a retry is none."""
        self._came += 1

    def take(self, now: float) -> bool:
        """Whether something may be sent again; if so, it is counted."""
        self._earn(now)
        if self._left < 1.0 - 1e-9:  # five fifths are one
            self.refused += 1
            return False
        self._left -= 1.0
        self.taken += 1
        return True

    def left(self, now: float) -> float:
        """Retries that there is budget for."""
        self._earn(now)
        return max(0.0, self._left)

    def _earn(self, now: float) -> None:
        # Whatever only adds may be added at once: the bound takes the same from the sum.
        more = self._came * self.share
        self._came = 0
        if now > self._at:
            more += (now - self._at) * self.floor
            self._at = now
        self._left = min(self._left + more, self.most)
