"""A region's servers as a queue: limited slots, first in, first out, with a bound on those that wait."""

from __future__ import annotations

from collections import deque
from heapq import heapreplace
from math import inf


class SlotQueue:
    """Slots that a request holds for its whole service time (G/G/c, first in, first out).

    Service times are known when a request comes, so the recursion of Kiefer and Wolfowitz ("On the Theory of Queues with
    Many Servers", 1955) does without events: a request starts when the slot that is free first is free.

    Args:
        slots: how many requests are served at once.
        waiting: how many may wait; a request beyond is refused.
    """

    __slots__ = ("_free", "_starts", "slots", "waiting")

    def __init__(self, slots: int, waiting: int) -> None:
        self.slots = slots
        self.waiting = waiting
        self._free = [0.0] * slots
        self._starts: deque[float] = deque()

    def offer(self, now: float, hold: float) -> float:
        """Take a request that holds a slot for `hold` s. Returns its wait in s, infinite if it is refused.

        Requests must come in the order of time.
        """
        first = self._free[0]
        if first <= now:
            heapreplace(self._free, now + hold)
            return 0.0
        starts = self._starts
        while starts and starts[0] <= now:
            starts.popleft()
        if len(starts) >= self.waiting:
            return inf
        starts.append(first)
        heapreplace(self._free, first + hold)
        return first - now

    def delay(self, now: float) -> float:
        """What a request that came now would wait, in s, infinite if it would be refused."""
        first = self._free[0]
        if first <= now:
            return 0.0
        starts = self._starts
        while starts and starts[0] <= now:
            starts.popleft()
        return inf if len(starts) >= self.waiting else first - now

    def load(self, now: float) -> tuple[int, int]:
        """Requests in service, and requests waiting."""
        starts = self._starts
        while starts and starts[0] <= now:
            starts.popleft()
        return sum(free > now for free in self._free), len(starts)
