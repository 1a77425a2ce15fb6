"""How a quota is shared between edges and balancers: by max-min fairness among tokens, in parts that are worth having.

Theory. Who holds a token says how much it wants, and may lie. So nobody gets more than it asks for before all have what they ask for, or
as much as any (max-min fair rates): a lie gains what others leave, and costs none of them its equal part. A token is one, whatever number
of edges, balancers and instances it speaks for; these divide its part by the same rule.

Source: Bertsekas and Gallager, "Data Networks" (1992), §6.5.2, max-min fair rates by water filling.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

LEAST = 0.3
"""The smallest rate that an edge or a worker is leased, in requests per second, unless the whole quota is smaller: three
requests per window. Below, most of it would be lost to rounding to whole requests."""

_HEADROOM = 2.0
"""An edge gets at most this many times its demand; what nobody needs stays free for who needs it next."""
_FLOOR = 0.02
"""Part of a quota that is spread over all edges in any case, so that new demand need not wait for its first lease."""
_TRACE = 0.03
"""Demand below this, in requests per second, is the trace of a request long ago."""
_STICKY = 1.5
"""Where there are fewer parts than edges, one that holds a part keeps it against this many times its demand."""


NOTHING = 1e-9
"""Requests per second of which no part is worth having: one in thirty years. Of numbers near the least that there are, parts are 0."""


def shares(
    demand: Mapping[str, float],
    total: float,
    holding: Collection[str] = (),
    owners: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """What each edge should hold of a quota; the sum is at most `total`.

    Args:
        demand: of every edge, in requests per second.
        total: the quota, in requests per second.
        holding: the edges that hold a part now, which matters only where not all can.
        owners: the token of each edge; None: each has its own.
    """
    if not demand or total < NOTHING:
        return {}
    owned = _owned(demand, owners)
    fair = _fair(demand, total, owned)
    wanted = sum(demand.values())
    spread = max(_FLOOR * total, (total - _HEADROOM * wanted) / 2) / len(owned)
    floors = {
        edge: floor for edges in owned.values() for edge in edges if (floor := spread / len(edges)) >= LEAST
    }
    pool = total - sum(floors.values())
    served = _served(demand, fair, pool, holding)
    wanted = sum(fair[edge] for edge in served)
    parts = dict(floors)
    for edge in served:
        proportional = pool * (fair[edge] / wanted) if wanted > 0 else 0.0
        generous = max(_HEADROOM * fair[edge], LEAST)
        parts[edge] = floors.get(edge, 0.0) + min(proportional, generous)
    return parts


def _owned(demand: Mapping[str, float], owners: Mapping[str, str] | None) -> Mapping[str, list[str]]:
    """The edges of each token."""
    if owners is None:
        return {edge: [edge] for edge in demand}
    found: dict[str, list[str]] = defaultdict(list)
    for edge in demand:
        found[owners[edge]].append(edge)
    return found


def _fair(demand: Mapping[str, float], total: float, owned: Mapping[str, list[str]]) -> Mapping[str, float]:
    """What of each edge's demand counts: all of it where the quota suffices, else what it is left by max-min fairness."""
    sums = {owner: sum(demand[edge] for edge in edges) for owner, edges in owned.items()}
    if sum(sums.values()) <= total:
        return demand
    found: dict[str, float] = {}
    for owner, part in max_min(sums, total).items():
        found |= max_min({edge: demand[edge] for edge in owned[owner]}, part)
    return found


def max_min(wants: Mapping[str, float], total: float) -> dict[str, float]:
    """Parts of a total by max-min fairness: nobody has more than it wants, nor more than another that wants more than it has."""
    parts: dict[str, float] = {}
    left = total
    for number, name in enumerate(sorted(wants, key=lambda one: (wants[one], one))):
        parts[name] = min(wants[name], max(0.0, left) / (len(wants) - number))
        left -= parts[name]
    return parts


def _served(
    demand: Mapping[str, float], fair: Mapping[str, float], pool: float, holding: Collection[str]
) -> list[str]:
    """The edges whose proportional part of the pool is worth having; the one that may want most, if none is."""

    def standing(edge: str) -> tuple[float, float, str]:
        sticks = _STICKY if edge in holding else 1.0
        return (
            round(-fair[edge] * sticks, 9),
            -demand[edge] * sticks,
            edge,
        )  # rounded: equal parts differ by less

    ranked = sorted((edge for edge in demand if demand[edge] >= _TRACE), key=standing)
    del ranked[max(1, int(pool / LEAST)) :]
    wanted = sum(fair[edge] for edge in ranked)
    while len(ranked) > 1 and pool * min(fair[edge] for edge in ranked) < LEAST * wanted:
        wanted -= fair[ranked.pop()]
    return ranked


def parts_of(rate: float, workers: int, held_rate: float = 0.0, held_parts: int = 1) -> int:
    """How many workers a lease of `rate` requests per second is split between.

    As many as get `LEAST` each. But when an edge's rate grows, no worker's part may fall, and when it falls, none may
    grow: control's books know edges, and a rate that moved between two workers would escape them.
    """
    wanted = max(1, min(workers, int(rate / LEAST)))
    if held_rate <= 0:
        return wanted
    each = held_rate / held_parts
    if rate >= held_rate:
        return max(held_parts, min(wanted, int(rate / each * (1 + 1e-12))))
    return next((parts for parts in range(wanted, held_parts) if rate / parts <= each), held_parts)
