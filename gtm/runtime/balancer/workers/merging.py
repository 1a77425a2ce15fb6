"""What several workers show of themselves, as one balancer's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gtm.core.balance.health.values import BackendState

STANDINGS = (
    *(BackendState.DRAINING, BackendState.DOWN, BackendState.HELD, BackendState.EJECTED),
    *(BackendState.UNKNOWN, BackendState.TRIAL, BackendState.WARMING, BackendState.UP),
)
"""From what is most against a backend to what is nothing against it. Of what one worker has not asked yet another knows more."""


def _part(shares: Sequence[int | None]) -> int | None:
    """Of what each may fill; None: nobody knows how much there is."""
    return None if None in shares else sum(share or 0 for share in shares)


def _pushes(tables: Sequence[Iterable[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    pushes: Counter[tuple[str, str]] = Counter()
    for one in (one for table in tables for one in table):
        pushes[one["region"], one["why"]] += one["requests"]
    return [
        {"region": region, "why": why, "requests": count} for (region, why), count in sorted(pushes.items())
    ]


def _backend(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One backend: what each worker has there, and how the one stands to it that has most against it."""
    worst = min(rows, key=lambda row: STANDINGS.index(row["state"]))
    return {
        **worst,
        "in_flight": sum(row["in_flight"] for row in rows),
        "work_s": sum(row["work_s"] for row in rows),
        "outstanding": max(row["outstanding"] for row in rows),
    }


def _backends(tables: Sequence[Iterable[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for row in (row for table in tables for row in table):
        rows.setdefault(row["url"], []).append(row)
    return [_backend(one) for one in rows.values()]


def _summed(values: Iterable[Any]) -> Any:
    """Numbers added up, through mappings of mappings."""
    all_of_them = [value for value in values if value is not None]
    if all_of_them and isinstance(all_of_them[0], Mapping):
        names = dict.fromkeys(name for value in all_of_them for name in value)
        return {name: _summed(value.get(name) for value in all_of_them) for name in names}
    return sum(all_of_them)


_MERGED: Mapping[str, Callable[[Sequence[Any]], Any]] = MappingProxyType(
    {
        "draining": all,
        # A worker that was started since has what others wait for.
        "waits_for_start": lambda lists: sorted({one for waits in lists for one in waits}),
        "connections": sum,
        "share": _part,
        "backends": _backends,
        "tiers": _summed,
        "choices": _summed,
        "tenants": _summed,
        "at_peers": _summed,
        "pushes": _pushes,
    }
)
"""Counts are added up, what is known of backends is the least hopeful worker's, all else is the first's."""


def merged_state(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The state of all."""
    if not states:
        return {"backends": [], "tiers": {}, "workers": []}
    merged = {
        name: merge([state[name] for state in states]) for name, merge in _MERGED.items() if name in states[0]
    }
    return {**states[0], **merged}
