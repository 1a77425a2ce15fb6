"""Which of several weighted candidates a client sticks to: weighted rendezvous hashing.

A client's score for a candidate is `-ln(u) / weight`, with `u` uniform in (0, 1) by client and candidate; the lowest
score wins. Candidates win in proportion to their weights, and a weight that changes by x% moves about x% of clients
and no others (Schindelhauer and Schomaker, "Weighted Distributed Hash Tables", SPAA 2005).
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from math import log

_MASK = (1 << 64) - 1


def key_hash(key: str) -> int:
    """64 bits of a client's key, or a candidate's name; the same in every process and on every machine."""
    return int.from_bytes(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _mix(value: int) -> int:
    """The finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014): every input bit flips half the output."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def fraction(client: int, salt: int) -> float:
    """Where a client stands between 0 and 1, evenly spread over clients, and independently for each salt (64 bits)."""
    return (_mix(client ^ salt) + 0.5) / 2**64


def rendezvous(client: int, candidates: Sequence[int], weights: Sequence[float]) -> int:
    """The index of the client's candidate.

    Args:
        client: `key_hash` of the client's key.
        candidates: `key_hash` of each candidate's name.
        weights: of each candidate, all above 0.
    """
    best, best_score = 0, float("inf")
    for index, candidate in enumerate(candidates):
        score = -log(fraction(client, candidate)) / weights[index]
        if score < best_score:
            best, best_score = index, score
    return best
