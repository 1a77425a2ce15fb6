"""What an edge worker may spend of a quota: a token bucket that also keeps account of the last ten seconds.

Laws (docs/decisions/0007-quota-leases.md has the proof):
  1. At every admission, what was admitted in the last `WINDOW` is no more than what the rate allowed in it. A plain
     token bucket lets its whole depth through on top, and as a whole request is its least depth, many small buckets
     would exceed a small quota by far.
  2. A bucket saves no more than its depth, starts empty (in debt, if another process held its lease before), and is
     emptied when its rate falls.
  3. A bucket whose lease has ended admits nothing.
"""

from __future__ import annotations

from collections import deque
from math import sqrt

WINDOW = 10.0
"""Seconds over which what is admitted never exceeds what was leased."""
_BURST_S = 0.1
_BURST_SIGMA = 2.0
"""A bucket saves at most a request, this many seconds of its rate, and this many standard deviations of the requests that
come at random in a second (their square root): one that saved less would waste what clients leave between them."""

_GRAIN = 1 / 64
"""Admissions closer together than this, in seconds, count as one entry that leaves the window with its end."""
_SLOW = 0.002 * WINDOW
"""Seconds that an admission counts beyond the window: ten seconds by a clock 0.2 % fast are as many short."""
_ROUNDING = 1e-6
"""Requests; far above the rounding of sums, far below one."""


def depth(rate: float, buckets: int = 1) -> float:
    """The most, in requests, that `buckets` with equal parts of a rate (requests per second) together can have saved."""
    return buckets + _BURST_S * rate + _BURST_SIGMA * sqrt(rate * buckets)


class TokenBucket:
    """One worker's part of one lease. Times are seconds of a clock that never steps back, and may not decrease."""

    __slots__ = ("_at", "_depth", "_earned", "_level", "_past", "_rate", "_spent", "_takes", "_until")

    def __init__(self) -> None:
        self._at = 0.0
        self._until = float("-inf")
        self._rate = 0.0
        self._depth = 0.0
        self._level = 0.0
        self._earned = 0.0  # requests that all rates so far allowed
        self._spent = 0  # requests admitted inside the window
        self._takes: deque[tuple[float, int]] = deque()  # (when it is certainly past, how many)
        self._past: deque[tuple[float, float, float]] = deque()  # (from when, earned by then, rate since)

    @classmethod
    def successor(cls, now: float, rate: float, until: float) -> TokenBucket:
        """The bucket of a worker that takes over a running lease: in debt by what its predecessor may have saved."""
        bucket = cls()
        bucket.lease(now, rate, until)
        bucket._level = -depth(rate)
        return bucket

    def lease(self, now: float, rate: float, until: float) -> None:
        """Go on at `rate` requests per second, from now until `until`; what is saved never grows by it."""
        self._settle(now)
        if rate < self._rate:
            self._level = min(self._level, 0.0)
        if rate != self._rate:
            self._change(now, rate)
        self._until = until
        self._trim(now - WINDOW)

    def take(self, now: float) -> bool:
        """Admit one request now, if there is one to admit."""
        if self.ready(now):
            self.spend()
            return True
        return False

    def ready(self, now: float) -> bool:
        """Whether one request may be admitted now; `spend` then admits it."""
        if now >= self._until:
            return False
        elapsed = now - self._at
        if elapsed > 0.0:
            gained = elapsed * self._rate
            self._earned += gained
            level = self._level + gained
            self._level = level if level < self._depth else self._depth  # noqa: FURB136 - half the cost
            self._at = now
        if self._level < 1.0 - _ROUNDING:
            return False
        horizon = now - WINDOW
        takes, past = self._takes, self._past
        if (takes and takes[0][0] <= horizon) or (len(past) > 1 and past[1][0] <= horizon):
            self._trim(horizon)
        start, before, rate = past[0]
        if horizon > start:
            before += (horizon - start) * rate
        return self._spent + 1 <= self._earned - before + _ROUNDING

    def spend(self) -> None:
        """Admit the request for which `ready` has just said yes."""
        self._level -= 1.0
        self._spent += 1
        takes = self._takes
        if takes:
            end, count = takes[-1]
            if self._at + _SLOW < end:
                takes[-1] = (end, count + 1)
                return
        takes.append((self._at + _GRAIN + _SLOW, 1))

    def _settle(self, now: float) -> None:
        """Bring the account up to now; a lease that has ended since earned until its end."""
        end = min(now, self._until)
        if end > self._at:
            gained = (end - self._at) * self._rate
            self._earned += gained
            self._level = min(self._level + gained, self._depth)
        if now >= self._until and self._rate:
            self._change(max(end, self._at), 0.0)
            self._level = min(self._level, 0.0)
        self._at = max(now, self._at)

    def _change(self, at: float, rate: float) -> None:
        self._rate = rate
        self._depth = depth(rate) if rate else 0.0
        self._level = min(self._level, self._depth)
        self._past.append((at, self._earned, rate))

    def _trim(self, horizon: float) -> None:
        """Forget what lies before the window, except the rate that reaches into it."""
        takes, past = self._takes, self._past
        while takes and takes[0][0] <= horizon:
            self._spent -= takes.popleft()[1]
        while len(past) > 1 and past[1][0] <= horizon:
            past.popleft()
