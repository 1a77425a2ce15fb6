"""Consistent hashing with bounded loads: requests of one key go to one server, unless it has too much.

Theory. Servers have points on a ring, in proportion to weight; a key goes to the server of the next point. A server with more than
`bound` times its share of what is in flight, rounded up, is passed over for the next on the ring. The capacities

    ⌈bound × (m + 1) × weight / all weights⌉,   m requests in flight at the eligible

add up to more than m, so one always has room. A server that comes or goes moves the keys near its points, and no others but for
some O(1/ε²) by the bound, ε = bound − 1.

Laws:
  1. No server that is picked had its capacity in flight.
  2. Without load, a key's server depends on the key and the servers alone, and a server that leaves moves none but its own keys (while
     the servers' mean weight and number stay between the same powers of two, from which the number of points follows).

Source: Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads" (SODA 2018).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil, floor, log2

from gtm.core.balance.backends import Backend
from gtm.core.balance.choosing.values import Candidate, Eligible
from gtm.core.model.affinity import key_hash

_POINTS = 16_384
_FEWEST, _MOST = 16, 128
"""Points of a server of middling weight: this many on the ring, by the number of servers, but within these."""


@dataclass(frozen=True, slots=True, eq=False)
class HashRing:
    """Points of 64 bits, ascending, and the number of the server that each belongs to."""

    points: tuple[int, ...]
    owners: tuple[int, ...]

    def after(self, key: str) -> Iterator[int]:
        """Servers' numbers in the order in which a key meets them, each once."""
        start = bisect_right(self.points, key_hash(key))
        owners, count = self.owners, len(self.owners)
        met: set[int] = set()
        for step in range(count):
            number = owners[(start + step) % count]
            if number not in met:
                met.add(number)
                yield number


def ring(backends: Sequence[Backend]) -> HashRing:
    """The ring of a pool's servers; some ms for a thousand."""
    if not backends:
        return HashRing((), ())
    unit = _power(sum(backend.weight for backend in backends) / len(backends))
    points = min(max(_power(_POINTS / len(backends)), _FEWEST), _MOST)
    found: list[tuple[int, int]] = []
    for number, backend in enumerate(backends):
        count = min(max(1, round(points * backend.weight / unit)), _POINTS)
        found += [(point, number) for point in _points(backend.name, count)]
    found.sort()
    return HashRing(tuple(point for point, _ in found), tuple(number for _, number in found))


def within(order: Iterable[int], eligible: Eligible, bound: float) -> tuple[Candidate | None, bool]:
    """The first candidate in an order of servers' numbers that has room within its bounded share; None: none in that order has.

    And whether one before it had none.

    Args:
        order: numbers of servers of the pool, whether or not they are eligible.
        eligible: who may, at least one.
        bound: times its share that each may have.
    """
    share = bound * _share(eligible)
    moved = False
    for number in order:
        candidate = eligible.numbered.get(number)
        if candidate is None:
            continue
        if candidate.flight.outstanding < ceil(share * candidate.weight):
            return candidate, moved
        moved = True
    return None, moved


def starves(candidate: Candidate, eligible: Eligible, least: float) -> bool:
    """Whether a candidate has less than this part of its share, rounded down."""
    return candidate.flight.outstanding < floor(least * _share(eligible) * candidate.weight)


def _share(eligible: Eligible) -> float:
    """Requests for each unit of weight, with one that comes."""
    flying = sum([candidate.flight.outstanding for candidate in eligible.candidates]) + 1
    return flying / eligible.sums[-1]


def _power(value: float) -> float:
    """The power of two at or below a value."""
    return 2.0 ** floor(log2(value))


def _points(name: str, count: int) -> list[int]:
    """The first `count` points of a server: eight from each hash of 64 bytes."""
    points: list[int] = []
    for block in range(-(-count // 8)):
        digest = blake2b(f"{name} {block}".encode("utf-8", "surrogatepass")).digest()
        points += [int.from_bytes(digest[at : at + 8], "big") for at in range(0, 64, 8)]
    return points[:count]
