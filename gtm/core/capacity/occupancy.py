"""How long requests take in a region that does not say: by Little's law, from how many are in it and how many come.

Theory. In the long run L = λ · W (J. D. C. Little, "A proof for the queuing formula L = λW", Operations Research 9, 1961):
requests being served (L, `outstanding`) are those that leave a second (λ) times how long each is served (W, the service
time). Load reports tell L, and edges count what they send to the region. What leaves is what was sent less what piled up:

    served = sent − growth of (outstanding + queue)          service time = outstanding ÷ served

All three are means over the same seconds with the same weights, or their quotient would be of different times: counts of
demand arrive smoothed over `demand_constant`, so outstanding and growth are smoothed alike first. The means forget with a
time constant of 20 s, and count from the first report on as if nothing had been before.

The result is in the planner's own unit, slots per counted request, also where that is not a request of the region's: where a
DNS answer stands for many requests, or where others use the region too, the region counts as being as full as it says it is.
Where clearly more piles up than was sent, it is such another unit, and what piles up cannot be taken off what was sent.

A queue that stands although the means say that it should not (requests beyond a full queue were turned away, so that less
was served than came) is answered too: each second that it stands, requests count 5% longer, at most twice as long.

Example. limit 64, outstanding 64, queue growing by 10 a second, 30 requests a second sent: 20 a second leave, each was served
for 64 ÷ 20 = 3.2 s, and what the slots take is 20 a second, whatever was declared.

Laws:
  1. Silence is no observation: only a new report adds to the means, and too little of it says nothing.
  2. What a region reports of its service time itself is never overruled.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

from gtm.core.capacity.load import STALE, Load

TIME_CONSTANT = 20.0
"""Seconds in which the means forget."""
_ENOUGH_SECONDS = 2.5
"""Seconds observed before the means say anything: three reports of one each second."""
_ENOUGH_REQUESTS = 2.0
_ENOUGH_OCCUPIED = 5.0
"""Request-seconds seen before the means say anything: fewer are a few short ones, or none, that happened to be there when
reports were made. Over the full time constant that is a mean of a quarter of a request: a region that is left nearly empty
because a far too long time was declared must be seen to be quick, or it would stay empty."""
_LEAST_SERVED = 0.05
"""Share of what was sent that counts as served at least: a region that nothing leaves at all is full, not infinitely slow."""
_OTHER_UNIT = 1.5
"""What piles up, per request sent, from which on the two cannot be the same requests."""
_STANDING = 0.05
"""Queue, as a share of the slots, that counts as standing (one request, if that is more)."""
_GROWTH = 0.05
"""By which share requests count longer for each second that a queue stands."""
_MOST = 20.0
_LONGEST_MS = 3.6e6


@dataclass(frozen=True, slots=True)
class Occupancy:
    """What was observed of a region (or one of its services) so far. `at` is the newest report's POSIX time in seconds.

    `inside` and `queue` are of that report; `outstanding` and `growth` (requests a second) are smoothed as demand is.
    `weight` is how many seconds the sums are of (those of long ago count less), `occupied` sums outstanding requests over
    them, `sent` and `piled` requests sent and piled up. `standing` is how long a queue has been standing, in seconds.
    """

    at: float
    inside: float
    queue: float
    outstanding: float
    growth: float = 0.0
    weight: float = 0.0
    occupied: float = 0.0
    sent: float = 0.0
    piled: float = 0.0
    standing: float = 0.0

    @property
    def service_time_ms(self) -> float | None:
        """How long a request is served, in ms per request sent; None while too little was observed."""
        if self.weight < _ENOUGH_SECONDS or self.sent < _ENOUGH_REQUESTS:
            return None
        if self.occupied < _ENOUGH_OCCUPIED:
            return None
        piled = self.piled if self.piled <= _OTHER_UNIT * self.sent else 0.0
        served = max(self.sent - piled, _LEAST_SERVED * self.sent)
        longer = 1 + _GROWTH * self.standing
        return min(1000 * self.occupied / served * longer, _LONGEST_MS)


def observe(before: Occupancy | None, load: Load, sent: float, demand_constant: float) -> Occupancy | None:
    """Take a report into account.

    Args:
        before: what was observed so far.
        load: the newest of the region or service. One without `outstanding` is no observation.
        sent: what edges count to send there now, in requests per second.
        demand_constant: the time constant, in seconds, over which `sent` is smoothed.

    Returns:
        `before` itself if the load is not newer. A new beginning after a silence of `STALE` seconds.
    """
    if load.outstanding is None:
        return None
    queue = load.queue or 0.0
    inside = load.outstanding + queue
    if before is None or load.at - before.at > STALE or load.at < before.at:
        return Occupancy(load.at, inside, queue, load.outstanding)
    seconds = load.at - before.at
    if seconds == 0:
        return before
    alike = exp(-seconds / demand_constant)
    keep = exp(-seconds / TIME_CONSTANT)
    outstanding = load.outstanding + (before.outstanding - load.outstanding) * alike
    change = (inside - before.inside) / seconds
    growth = change + (before.growth - change) * alike
    return Occupancy(
        at=load.at,
        inside=inside,
        queue=queue,
        outstanding=outstanding,
        growth=growth,
        weight=before.weight * keep + seconds,
        occupied=before.occupied * keep + outstanding * seconds,
        sent=before.sent * keep + sent * seconds,
        piled=before.piled * keep + growth * seconds,
        standing=_standing(before, load, queue, seconds),
    )


def _standing(before: Occupancy, load: Load, queue: float, seconds: float) -> float:
    """How long a queue has been standing; half as fast back again once it falls or is gone."""
    slots = load.limit if load.limit is not None else load.outstanding or 0.0
    least = max(1.0, _STANDING * slots)
    stands = min(queue, before.queue) >= least and queue >= before.queue * (1 - _GROWTH * seconds)
    return min(max(before.standing + (seconds if stands else -seconds / 2), 0.0), _MOST)
