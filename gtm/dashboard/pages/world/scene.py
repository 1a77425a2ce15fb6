"""What the map draws, and the tables that say the same: from rows of demand, of now or of then."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import log2
from typing import TYPE_CHECKING, Any, TypeVar

from gtm.client.objects import JsonObject
from gtm.dashboard.pages.world.seen import DemandFilter, Now, Then
from gtm.storage.errors import UP, DatabaseUnfit, StorageBusy, StorageReadOnly, StorageUnavailable

if TYPE_CHECKING:
    from gtm.client import types

MOST_FLOWS = 500
"""Flows that are drawn."""
MOST_COUNTRIES = 15
"""Countries that the table names."""
MOST_ARCS = 100

Key = TypeVar("Key")


def scene_now(seen: Now, chosen: DemandFilter) -> dict[str, Any]:
    """Regions, demand by cell and country, flows to regions, and arcs of what spills between regions."""
    spill = seen.top.spill if not chosen.any else ()
    return {
        "at": seen.top.at,
        "regions": [_region(one, seen.demand.served) for one in seen.top.regions],
        **_drawn(seen.demand.rows),
        "arcs": [[one.from_, one.to, _short(one.requests_per_second)] for one in spill[:MOST_ARCS]],
    }


def scene_then(seen: Then) -> dict[str, Any]:
    """The scene of a recorded minute: regions stand where they stand now, and of their state nothing is known but use and price."""
    demand = seen.demand
    return {
        "at": demand.at if demand.recorded else None,
        "regions": [
            {
                **_place(one),
                "state": "then",
                "use": seen.plans.get(name, {}).get("use"),
                "price": _short(seen.plans.get(name, {}).get("price_ms") or 0.0),
                "served": _short(demand.served.get(name, 0.0)),
            }
            for name, one in seen.regions.items()
        ],
        **_drawn(demand.rows),
        "arcs": [[home, to, _short(rps)] for home, to, rps in away(demand.rows)],
    }


def _drawn(rows: Iterable[types.DemandRow]) -> dict[str, Any]:
    flows: dict[tuple[float, float, str], float] = defaultdict(float)
    cells: dict[tuple[float, float], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in rows:
        cell, rps = row.cell, row.requests_per_second
        if cell.lat is None or cell.lon is None:
            continue
        place = cell.lat, cell.lon
        cells[place][0] += rps
        if row.region is None:
            cells[place][1] += rps
        else:
            flows[*place, row.region] += rps
    largest = sorted(flows.items(), key=lambda one: -one[1])[:MOST_FLOWS]
    return {
        "cells": [
            [lat, lon, _short(all_), _short(refused)] for (lat, lon), (all_, refused) in sorted(cells.items())
        ],
        "flows": [[lat, lon, region, _short(rps)] for (lat, lon, region), rps in largest],
        "countries": [
            [one.country, _short(one.rps), _short(one.refused)] for one in by_country(rows) if one.country
        ],
    }


def _region(one: types.TopRegion, served: Mapping[str, float]) -> dict[str, Any]:
    return {
        **_place(JsonObject(one, name=one.region)),
        "state": one.health if one.admin_state == "active" else one.admin_state,
        "use": one.utilisation,
        "price": _short(one.price_ms),
        "served": _short(served.get(one.region, 0.0)),
    }


def _place(one: JsonObject) -> dict[str, Any]:
    return {name: one[name] for name in ("name", "lat", "lon")}


def _short(value: float) -> float:
    """Three digits: what is drawn is no finer."""
    return float(f"{value:.3g}")


def by_country(rows: Iterable[types.DemandRow]) -> list[JsonObject]:
    """Countries with what their clients ask for, what of it is refused, and the regions that serve it. None: unknown, or several.

    The most first, those with about as much by name: a list that moves each second cannot be read.
    """
    found = sorted(summed(rows, "country"), key=_place_in_list)
    return [JsonObject(one, regions=largest(one.regions)) for one in found]


def summed(rows: Iterable[types.DemandRow], by: str) -> Iterable[JsonObject]:
    """What is asked for by part of demand cells: requests per second, those of them that are refused, and those that each region serves."""
    found: dict[str | None, JsonObject] = {}
    for row in rows:
        name, rps = row.cell[by], row.requests_per_second
        one = found.setdefault(name, JsonObject({by: name}, rps=0.0, refused=0.0, regions=defaultdict(float)))
        one["rps"] += rps
        if row.region is None:
            one["refused"] += rps
        else:
            one.regions[row.region] += rps
    return found.values()


def _place_in_list(one: JsonObject) -> tuple[int, str]:
    return -round(log2(one.rps)) if one.rps > 0 else 99, one.country or ""


def by_region(rows: Iterable[types.DemandRow]) -> dict[str, list[tuple[str, float]]]:
    """Region → the countries that most of what it serves comes from."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        if row.region is not None:
            found[row.region][row.cell.country or "unknown"] += row.requests_per_second
    return {region: largest(countries)[:4] for region, countries in found.items()}


def away(rows: Iterable[types.DemandRow]) -> list[tuple[str, str, float]]:
    """What was served in another region than its class likes best: from, to, requests per second; the most first."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for row in rows:
        home, region = row.preferred, row.region
        if home is not None and region is not None and home != region:
            found[home, region] += row.requests_per_second
    return [(home, region, rps) for (home, region), rps in largest(found)[:MOST_ARCS]]


def largest(sums: Mapping[Key, float]) -> list[tuple[Key, float]]:
    """Sums by what they are of, the largest first."""
    return sorted(sums.items(), key=lambda one: -one[1])


def tables(demand: types.DemandView) -> dict[str, Any]:
    """What the tables below the map, and the numbers beside it, say of demand."""
    countries = by_country(demand.rows)
    return {
        "total": demand.rate,
        "served": demand.served,
        "refusals": largest(demand.refused),
        "flows": by_region(demand.rows),
        "countries": countries[:MOST_COUNTRIES],
        "countries_left": max(0, len(countries) - MOST_COUNTRIES),
        "rows_left": demand.left_out,
    }


# What is wrong now, in sentences.


def wrong(seen: Now) -> list[tuple[str, str, str]]:
    """What is wrong now, the worst first: how bad, a sentence, and the region that it is about, if it is about one."""
    found = [*_of_control(seen), *(line for one in seen.top.regions for line in _of_region(one))]
    for one in seen.top.refusals:
        if one.requests_per_second >= 0.01:
            why = one.outcome.replace("_", " ")
            words = f"{one.requests_per_second:.3g} requests per second for {one.service} are refused: {why}."
            found.append((2, "bad", words, ""))
    found += [(6, "warn", words, "") for words in seen.status.warnings]
    return [(kind, words, region) for _, kind, words, region in sorted(found)]


def _of_control(seen: Now) -> Iterator[tuple[int, str, str, str]]:
    if seen.top.database != UP:
        why = {kind.state: kind.why for kind in (StorageReadOnly, StorageBusy, DatabaseUnfit)}.get(
            seen.top.database, StorageUnavailable.why
        )
        words = (
            f"The database {why}: nothing can be changed or recorded. Edges and this page go on from memory."
        )
        yield 0, "bad", words, ""
    if seen.top.plan.error:
        yield 2, "bad", f"The planner failed, so the plan before stays: {seen.top.plan.error}", ""
    sync = seen.status.sync
    if sync.state != "IN_SYNC":
        late = ", ".join([*sync.pending, *sync.lost, *sync.unreachable])
        words = f": {late}" if late else ", for no edge is heard of"
        yield 3, "warn", f"Revision {sync.revision} is not everywhere yet{words}.", ""


def _of_region(one: types.TopRegion) -> Iterator[tuple[int, str, str, str]]:
    name = one.region
    if one.health == "down" and one.admin_state != "disabled":
        yield 1, "bad", f"Region {name} is down: its clients are served elsewhere, inside their fences.", name
    elif one.admin_state != "active":
        yield 5, "warn", f"Region {name} is {one.admin_state}.", name
    elif one.health == "unknown":
        yield (
            3,
            "warn",
            f"Nobody has probed region {name} yet: it gets no clients that another may take.",
            name,
        )
    if one.exhausted:
        yield 4, "warn", f"Region {name} is full: what it cannot take goes elsewhere or is refused.", name
