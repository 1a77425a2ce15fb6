"""What requests took, counted in buckets that are the same everywhere: counts of workers, balancers and minutes add up to those of all.

Theory. A percentile cannot be had from percentiles of parts; it can from the parts' counts. A bucket is at most an eighth wider than the one
before it, so a percentile that is read from counts is that far from the exact one at the most, between 1 ms and `BOUNDS[-1]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

OTHER = "other"
"""The name that all models have together which nobody has declared: clients make names of models up."""
_DIGITS = (
    *("1", "1.1", "1.2", "1.35", "1.5", "1.65", "1.8", "2", "2.25", "2.5", "2.75", "3"),
    *("3.3", "3.6", "4", "4.5", "5", "5.5", "6", "6.6", "7.3", "8", "9"),
)
"""The bounds in each power of ten; those of the balancer's metrics are among them."""
_LONGEST = 4000.0
BOUNDS = tuple(
    bound for power in range(-3, 4) for digits in _DIGITS if (bound := float(f"{digits}e{power}")) <= _LONGEST
)
"""Upper bounds of the buckets in seconds, each within its bucket; the last bucket has none."""

MOST_TOLD = 500
"""Rows of a table at the most that a balancer tells at once."""
Counts = dict[int, int]
"""How many requests are in each bucket, by its place in `BOUNDS`; those without any are left out."""


def added(one: Counts, other: Mapping[int, int]) -> None:
    """Add all that another has."""
    for bucket, count in other.items():
        one[bucket] = one.get(bucket, 0) + count


def quantile(counts: Mapping[int, int], share: float) -> float | None:
    """The seconds that a share of the requests did not exceed (nearest rank, evenly spread inside of its bucket); None: there were none.

    Args:
        counts: by bucket.
        share: above 0, at most 1.
    """
    rank = max(1, ceil(share * sum(counts.values())))
    for bucket, count in sorted(counts.items()):
        if count < rank:
            rank -= count
            continue
        if bucket >= len(BOUNDS):
            break
        least = BOUNDS[bucket - 1] if bucket else 0.0
        return least + (BOUNDS[bucket] - least) * (rank - 0.5) / count
    return BOUNDS[-1] if counts else None


@dataclass(slots=True)
class Took:
    """What some requests took: to the first byte of their answers' bodies (of those that had one), and to the end."""

    first_bytes: Counts = field(default_factory=dict)
    ends: Counts = field(default_factory=dict)

    def add(self, first_bytes: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """Add what others took."""
        added(self.first_bytes, first_bytes)
        added(self.ends, ends)


TookBy = dict[tuple[str, str], Took]
"""By service and model; the model is empty where a request names none."""


def place(table: TookBy, service: str, model: str, most: int = MOST_TOLD // 2) -> Took | None:
    """Where requests of a service and model are counted in a table: beyond `most` rows with its other models, beyond twice as many nowhere (None)."""
    for key, room in (((service, model), most), ((service, OTHER), 2 * most)):
        found = table.get(key)
        if found is None and len(table) < room:
            found = table[key] = Took()
        if found is not None:
            return found
    return None


def add(table: TookBy, more: TookBy, most: int = MOST_TOLD // 2) -> None:
    """Add another table to one; `most`: see `place`."""
    for (service, model), took in more.items():
        into = place(table, service, model, most)
        if into is not None:
            into.add(took.first_bytes, took.ends)
