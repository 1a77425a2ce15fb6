"""How fast work gets done here, and so how long a wait must at least be.

Little's law: with n slots in use and requests that hold one for s seconds on average, n / s end per second. In cost of work: if a
slot does p units per second (the sum of the costs of requests that ended, by the sum of the seconds that they ran), the region
does at most n × p per second, whether anything waits or not. A tenant's requests of a tier are served in the order in which they
came. So where all that wait there have later deadlines than a new one (none will be gone before it by its deadline), it begins
after all of them: cost a. Even if nobody else were served, that takes

    a / (n × p) seconds.

Every other way to count what is ahead can be wrong to the request's harm. Requests with earlier deadlines may reach them, and
the rest moves up: where all have the same patience, even a long queue says nothing. Other tenants and higher tiers may have
nothing more to send. So only this is used, with twice the measured pace, as the mean is known no better where requests differ a
hundredfold, and only once 50 requests have ended.
"""

from __future__ import annotations

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
