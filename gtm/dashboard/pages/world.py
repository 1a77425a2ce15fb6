"""World: a map of where requests come from, where they are served, and what is wrong now."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from gtm.core.model.services import Priority
from gtm.dashboard.inside import ApiProblem, Inside
from gtm.dashboard.rendering import rendered
from gtm.dashboard.security import HEADERS
from gtm.dashboard.visits import Visit, page

MOST_ROWS = 2000
"""Rows of demand that a map is made from, the largest first."""
MOST_FLOWS = 500
"""Flows that are drawn."""
STREAM = {**HEADERS, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def routes() -> list[Route]:
    """The page, and its stream."""
    return [page("/", _world), page("/live/world", _live)]


BY = ("service", "tenant", "data_class", "priority", "country")
"""What the map can be narrowed down by."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which requests are shown; None: all. `country` is the clients', or a jurisdiction, of which `countries` are the members."""

    service: str | None = None
    tenant: str | None = None
    data_class: str | None = None
    priority: str | None = None
    country: str | None = None
    countries: frozenset[str] = frozenset()

    @classmethod
    def of(cls, visit: Visit, members: Mapping[str, frozenset[str]]) -> Filter:
        """What the address says, where jurisdictions have these members."""
        given = {name: visit.query(name) for name in BY}
        return cls(**given, countries=members.get(given["country"] or "", frozenset()))

    def holds(self, cell: Mapping[str, Any]) -> bool:
        """Whether a demand cell is among them."""
        return all(value is None or cell[name] == value for name, value in self.given.items()) and (
            self.country is None or cell["country"] in (self.countries or {self.country})
        )

    @property
    def given(self) -> Mapping[str, str | None]:
        """All but where clients are."""
        return {name: getattr(self, name) for name in BY if name != "country"}

    @property
    def any(self) -> bool:
        """Whether anything is left out."""
        return any(getattr(self, name) is not None for name in BY)


async def _world(visit: Visit) -> Response:
    """The page with what is known now, so that it reads without scripts."""
    members = await jurisdictions(visit.api)
    chosen = Filter.of(visit, members)
    seen = await look(visit.api)
    return visit.render(
        "world.html",
        chosen=chosen,
        choices=choices(seen.demand),
        jurisdictions=sorted(members),
        query=visit.request.url.query,
        scene=scene(seen, chosen),
        **side(seen, chosen),
    )


async def _live(visit: Visit) -> Response:
    """The same as it changes."""
    chosen, api = Filter.of(visit, await jurisdictions(visit.api)), visit.api

    async def render() -> Mapping[str, str]:
        seen = await look(api)
        beside = side(seen, chosen)
        return {
            "side": rendered("world_side.html", beside),
            "table": rendered("world_table.html", beside),
            "scene": json.dumps(scene(seen, chosen), separators=(",", ":")),
        }

    key = json.dumps(["world", *(getattr(chosen, name) for name in BY)])
    stream = visit.dashboard.live.stream(key, render, lambda: still_signed_in(visit))
    return StreamingResponse(stream, media_type="text/event-stream", headers=STREAM)


def still_signed_in(visit: Visit) -> bool:
    """Whether a session goes on."""
    return visit.dashboard.context.present.session(visit.session.sha256.hex(), time.time()) is not None


@dataclass(frozen=True, slots=True)
class Seen:
    """Answers of the API at one moment: `/v1/top`, `/v1/demand`, `/v1/status`."""

    top: Mapping[str, Any]
    demand: Mapping[str, Any]
    status: Mapping[str, Any]


async def look(api: Inside) -> Seen:
    """What goes on now."""
    top, demand, status = await asyncio.gather(
        api.get("/v1/top"), api.get("/v1/demand", limit=MOST_ROWS), api.get("/v1/status")
    )
    return Seen(top, demand, status)


async def jurisdictions(api: Inside) -> Mapping[str, frozenset[str]]:
    """Those of several countries, and which these are; none, while the database is away."""
    try:
        found = await api.get("/v1/jurisdictions", limit=1000)
    except ApiProblem:
        return {}
    return {one["name"]: frozenset(one["countries"]) for one in found["items"] if one["origin"] != "country"}


def choices(demand: Mapping[str, Any]) -> Mapping[str, list[str]]:
    """What there is to filter by, of what is asked for now."""
    cells = [row["cell"] for row in demand["rows"]]
    found = {name: sorted({cell[name] for cell in cells if cell[name]}) for name in BY}
    return {**found, "priority": [one.value for one in Priority]}


def scene(seen: Seen, chosen: Filter) -> dict[str, Any]:
    """What the map draws: regions, places of demand, flows from these to regions, and arcs of what spills between regions."""
    rows = [row for row in seen.demand["rows"] if chosen.holds(row["cell"])]
    flows: dict[tuple[float, float, str], float] = defaultdict(float)
    places: dict[tuple[float, float], list[float]] = defaultdict(lambda: [0.0, 0.0])
    served: dict[str, float] = defaultdict(float)
    for row in rows:
        cell, rps = row["cell"], row["requests_per_second"]
        if row["region"] is not None:
            served[row["region"]] += rps
        if cell["lat"] is None or cell["lon"] is None:
            continue
        place = cell["lat"], cell["lon"]
        places[place][0] += rps
        if row["region"] is None:
            places[place][1] += rps
        else:
            flows[*place, row["region"]] += rps
    largest = sorted(flows.items(), key=lambda one: -one[1])[:MOST_FLOWS]
    return {
        "at": seen.top["at"],
        "regions": [_region(one, served) for one in seen.top["regions"]],
        "places": [
            [lat, lon, _short(all_), _short(refused)]
            for (lat, lon), (all_, refused) in sorted(places.items())
        ],
        "flows": [[lat, lon, region, _short(rps)] for (lat, lon, region), rps in largest],
        "arcs": [
            [one["from"], one["to"], _short(one["requests_per_second"])]
            for one in seen.top["spill"]
            if not chosen.any
        ],
    }


def _region(one: Mapping[str, Any], served: Mapping[str, float]) -> dict[str, Any]:
    return {
        "name": one["region"],
        "lat": one["lat"],
        "lon": one["lon"],
        "state": one["health"] if one["admin_state"] == "active" else one["admin_state"],
        "use": one["utilisation"],
        "price": _short(one["price_ms"]),
        "served": _short(served.get(one["region"], 0.0)),
    }


def _short(value: float) -> float:
    """Three digits: what is drawn is no finer."""
    return float(f"{value:.3g}")


def side(seen: Seen, chosen: Filter) -> dict[str, Any]:
    """What stands beside the map."""
    rows = [row for row in seen.demand["rows"] if chosen.holds(row["cell"])]
    refusals: dict[str, float] = defaultdict(float)
    by_region: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        if row["region"] is None:
            refusals[row["outcome"]] += row["requests_per_second"]
        else:
            by_region[row["region"]][row["cell"]["country"] or "unknown"] += row["requests_per_second"]
    return {
        "top": seen.top,
        "sync": seen.status["sync"],
        "total": sum(row["requests_per_second"] for row in rows),
        "refusals": sorted(refusals.items(), key=lambda one: -one[1]),
        "flows": {
            region: sorted(countries.items(), key=lambda one: -one[1])[:5]
            for region, countries in by_region.items()
        },
        "served": {region: sum(countries.values()) for region, countries in by_region.items()},
        "wrong": wrong(seen),
    }


def wrong(seen: Seen) -> list[tuple[str, str, str]]:
    """What is wrong now, the worst first: how bad, a sentence, and the region that it is about, if it is about one."""
    found = [*_of_control(seen), *(line for one in seen.top["regions"] for line in _of_region(one))]
    for one in seen.top["refusals"]:
        if one["requests_per_second"] >= 0.01:
            why = one["outcome"].replace("_", " ")
            words = f"{one['requests_per_second']:.3g} requests per second for {one['service']} are refused: {why}."
            found.append((2, "bad", words, ""))
    found += [(6, "warn", words, "") for words in seen.status["warnings"]]
    return [(kind, words, region) for _, kind, words, region in sorted(found)]


def _of_control(seen: Seen) -> Iterator[tuple[int, str, str, str]]:
    if seen.top["database"] == "down":
        words = "The database cannot be reached: nothing can be changed or recorded. Edges and this page go on from memory."
        yield 0, "bad", words, ""
    if seen.top["plan"]["error"]:
        yield 2, "bad", f"The planner failed, so the plan before stays: {seen.top['plan']['error']}", ""
    sync = seen.status["sync"]
    if sync["state"] != "IN_SYNC":
        late = ", ".join([*sync["pending"], *sync["unreachable"]])
        words = f": {late}" if late else ", for no edge is heard of"
        yield 3, "warn", f"Revision {sync['revision']} is not everywhere yet{words}.", ""


def _of_region(one: Mapping[str, Any]) -> Iterator[tuple[int, str, str, str]]:
    name = one["region"]
    if one["health"] == "down" and one["admin_state"] != "disabled":
        yield 1, "bad", f"Region {name} is down: its clients are served elsewhere, inside their fences.", name
    elif one["admin_state"] != "active":
        yield 5, "warn", f"Region {name} is {one['admin_state']}.", name
    elif one["health"] == "unknown":
        yield (
            3,
            "warn",
            f"Nobody has probed region {name} yet: it gets no clients that another may take.",
            name,
        )
    if one["exhausted"]:
        yield 4, "warn", f"Region {name} is full: what it cannot take goes elsewhere or is refused.", name
