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

>>> slots = TierSlots((0.2, 0.1, 0.05))
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


class TierSlots:
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


def _up(slots: float) -> int:
    return ceil(slots - 1e-9)


# --- How fast work gets done here, and so how long a wait must at least be.
#
# Little's law: with n slots in use and requests that hold one for s seconds on average, n / s end per second. In cost of work: if a
# slot does p units per second (the sum of the costs of requests that ended, by the sum of the seconds that they ran), the region
# does at most n × p per second, whether anything waits or not. A tenant's requests of a tier are served in the order in which they
# came. So where all that wait there have later deadlines than a new one (none will be gone before it by its deadline), it begins
# after all of them: cost a. Even if nobody else were served, that takes
#
#     a / (n × p) seconds.
#
# Every other way to count what is ahead can be wrong to the request's harm. Requests with earlier deadlines may reach them, and
# the rest moves up: where all have the same patience, even a long queue says nothing. Other tenants and higher tiers may have
# nothing more to send. So only this is used, with twice the measured pace, as the mean is known no better where requests differ a
# hundredfold, and only once 50 requests have ended.


_LEAST = 50
"""Requests that must have ended before anything is said."""
_KEPT = 0.98
"""What is kept of the sums with each request that ends: they go back about fifty requests."""
_DOUBT = 2.0
"""The region may be this many times as fast as was measured."""


class Pace:
    """Sums over requests that ended, the latest counting most."""

    __slots__ = ("_cost", "_ended", "_number", "_seconds")

    def __init__(self) -> None:
        self._ended = 0
        self._number = 0.0
        self._cost = 0.0
        self._seconds = 0.0

    def ended(self, cost: float, seconds: float) -> None:
        """A request of this expected cost held its slot for so long."""
        self._ended += 1
        self._number = self._number * _KEPT + 1.0
        self._cost = self._cost * _KEPT + cost
        self._seconds = self._seconds * _KEPT + seconds

    def least_wait(self, ahead: float, slots: int | None) -> float:
        """Seconds that a wait behind so much cost takes at least; 0: not known to take any."""
        if self._ended < _LEAST or not slots or self._cost <= 0.0:
            return 0.0
        return ahead * self._seconds / (self._cost * slots * _DOUBT)

    def turn(self, requests: int, slots: int | None) -> float | None:
        """Seconds in which about so many requests end on so many slots; None: not known."""
        if self._ended < _LEAST or not slots:
            return None
        return requests * self._seconds / (self._number * slots)
