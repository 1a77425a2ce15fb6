"""Power of two choices: of two servers that are drawn, the better one.

Theory. Two draws, without replacement, in exact proportion to weight: the first falls among the running sums of the weights,
the second among these less the first's part. No table of whole numbers stands between: a weight of 0.3 is 0.3. Where scores are
equal the first wins, so that servers that are equally good get exactly their weights' part of requests. With two choices the longest
of n queues is O(log log n), with one it is O(log n / log log n) (Mitzenmacher 2001); a third gains little. And since most requests do
not see the best server, those who have old counts do not all run there.

One uniform number does for both draws: its first 26 bits place the first, the other bits the second.

Laws:
  1. Every candidate can be picked, whatever the scores, but the worst (of at least two, if it is worse than all others).
  2. Equal scores: shares are the weights', exactly.
  3. Where both drawn are known to be full and another is not, one that is not known to be is picked: a request waits nowhere while another
     server may have room.

Example. Mean time in system of M/M/1 servers at 90 % with two choices: Σ 0.9^(2^i − 2), i ≥ 1.

>>> round(sum(0.9 ** (2**i - 2) for i in range(1, 20)), 2)
2.61

Sources: Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing" (IEEE TPDS 2001); Vvedenskaya, Dobrushin and Karpelevich
(1996), the sum; Lu et al., "Join-Idle-Queue" (Performance 2011), free slots first.
"""

from __future__ import annotations

from bisect import bisect_right

from gtm.core.balance.choosing.values import Candidate, Eligible, Scoring

_HIGH = float(1 << 26)


def one(eligible: Eligible, draw: float) -> Candidate:
    """One of the eligible (at least one), by weight; `draw` is uniform in [0, 1)."""
    return eligible.candidates[_at(eligible.sums, draw * eligible.sums[-1])]


def pick(eligible: Eligible, score: Scoring, cost: float, draw: float) -> Candidate:
    """The better of two of the eligible (at least one)."""
    candidates, sums = eligible.candidates, eligible.sums
    if len(candidates) == 1:
        return candidates[0]
    first = _at(sums, draw * sums[-1])
    low = sums[first - 1] if first else 0.0
    width = sums[first] - low
    place = (draw * _HIGH) % 1.0 * (sums[-1] - width)
    second = _at(sums, place if place < low else place + width)
    if second == first:  # by rounding alone
        second = first - 1 if first else 1
    best, other = candidates[first], candidates[second]
    if score(other, cost) < score(best, cost):
        best, other = other, best
    if best.full:
        return _with_room(candidates, first) or best if other.full else other
    return best


def _at(sums: tuple[float, ...], place: float) -> int:
    index = bisect_right(sums, place)
    return index if index < len(sums) else len(sums) - 1


def _with_room(candidates: tuple[Candidate, ...], start: int) -> Candidate | None:
    """The first from `start` on, in a circle, that is not known to be full."""
    for part in (candidates[start:], candidates[:start]):
        for candidate in part:
            if not candidate.flight.known >= candidate.slots > 0:  # as `full`, at half the cost
                return candidate
    return None
