"""The region's slots, and what of them is kept for each tier: nested protection levels.

A tier may take a slot while, for it and every tier above but the first, that tier and those below together run less than what
the tiers above it leave of the limit:

  batch                      < limit - reserved(real-time) - reserved(near-real-time)
  batch + near-real-time     < limit - reserved(real-time)
  all                        < limit

So no lower tier ever takes what a higher one reserves, and there is nothing to preempt when a burst of batch work is followed
by a real-time request. A higher tier may take what a lower one reserves. Slots that end go first to tiers that wait and run less
than they reserve, the highest first, then to the highest that waits. If the first rule names a tier, it may take the slot: say
batch runs less than it reserves, and a slot is free that near-real-time, above its reserve, could take. Then batch < reserved(batch)
≤ limit - reserved(real-time) - reserved(near-real-time), and the other two lines are those of near-real-time.

Reserves are parts of the limit, counted from the top and rounded up to whole slots; but one slot is always left to the lowest
tier, and a tier that reserves nothing only waits its turn.

Example: 10 slots, reserves 0.2, 0.1 and 0.05. Real-time has 2 for itself, near-real-time 1, batch 1.

>>> slots = Slots((0.2, 0.1, 0.05))
>>> slots.resize(10)
>>> slots.caps, slots.reserved
((10, 8, 7), (2, 1, 1))
>>> slots.running[2] = 7
>>> [slots.room(tier) for tier in (0, 1, 2)]
[True, True, False]
>>> slots.running[1] = 1
>>> [slots.room(tier) for tier in (0, 1, 2)]
[True, False, False]

Source: Littlewood 1972, "Forecasting and control of passenger bookings" (nested protection levels); Key 1990, "Optimal control and
trunk reservation in loss networks".
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf


class Slots:
    """How many requests of each tier run, of how many."""

    __slots__ = ("_reserves", "caps", "limit", "reserved", "running")

    def __init__(self, reserves: Sequence[float]) -> None:
        self._reserves = tuple(reserves)
        self.running = [0, 0, 0]
        self.limit: int | None = None
        self.caps: tuple[float, float, float] = (inf, inf, inf)
        self.reserved: tuple[int, int, int] = (0, 0, 0)

    def resize(self, limit: int | None) -> None:
        """Go on with so many slots; None: nobody knows how many there are, and there is always room."""
        self.limit = limit
        if limit is None:
            self.caps, self.reserved = (inf, inf, inf), (0, 0, 0)
            return
        first, second, third = self._reserves
        spare = max(limit - 1, 0)
        one = min(_up(first * limit), spare)
        two = min(_up((first + second) * limit), spare)
        three = min(_up((first + second + third) * limit), limit)
        self.caps = (limit, limit - one, limit - two)
        self.reserved = (one, two - one, three - two)

    def reserve(self, reserves: Sequence[float]) -> None:
        """Go on with other reserves."""
        self._reserves = tuple(reserves)
        self.resize(self.limit)

    def room(self, tier: int) -> bool:
        """Whether a request of the tier may begin."""
        first, second, third = self.running
        all_cap, lower_cap, lowest_cap = self.caps
        if first + second + third >= all_cap:
            return False
        if tier == 0:
            return True
        return second + third < lower_cap and (tier == 1 or third < lowest_cap)

    def following(self, waiting: Sequence[int]) -> int | None:
        """The tier that the next slot goes to, given how many wait in each; None: no request may begin."""
        chosen: int | None = None
        for tier in (0, 1, 2):
            if waiting[tier] and self.room(tier):
                if self.running[tier] < self.reserved[tier]:
                    return tier
                if chosen is None:
                    chosen = tier
        return chosen


def _up(slots: float) -> int:
    return ceil(slots - 1e-9)
