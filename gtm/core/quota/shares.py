"""How a quota is shared between edges: in proportion to demand, in parts that are worth having."""

from __future__ import annotations

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


def shares(demand: Mapping[str, float], total: float, holding: Collection[str] = ()) -> dict[str, float]:
    """What each edge should hold of a quota; the sum is at most `total`.

    Args:
        demand: of every edge, in requests per second.
        total: the quota, in requests per second.
        holding: the edges that hold a part now, which matters only where not all can.
    """
    if not demand or total <= 0:
        return {}
    wanted = sum(demand.values())
    floor = max(_FLOOR * total, (total - _HEADROOM * wanted) / 2) / len(demand)
    if floor < LEAST:
        floor = 0.0
    pool = total - floor * len(demand)
    served = _served(demand, pool, holding)
    wanted = sum(demand[edge] for edge in served)
    parts = dict.fromkeys(demand, floor) if floor else {}
    for edge in served:
        proportional = pool * demand[edge] / wanted
        generous = max(_HEADROOM * demand[edge], LEAST)
        parts[edge] = floor + min(proportional, generous)
    return parts


def _served(demand: Mapping[str, float], pool: float, holding: Collection[str]) -> list[str]:
    """The edges whose proportional part of the pool is worth having; the one that wants most, if none is."""

    def standing(edge: str) -> float:
        return demand[edge] * (_STICKY if edge in holding else 1.0)

    ranked = sorted(
        (edge for edge in demand if demand[edge] >= _TRACE), key=lambda edge: (-standing(edge), edge)
    )
    del ranked[max(1, int(pool / LEAST)) :]
    wanted = sum(demand[edge] for edge in ranked)
    while len(ranked) > 1 and pool * min(demand[edge] for edge in ranked) < LEAST * wanted:
        wanted -= demand[ranked.pop()]
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
