"""World: a map of where requests come from, where they are served, and what is wrong now; and the same of the last days, as recorded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.responses import JSONResponse, Response

from gtm.dashboard.pages.world import seen
from gtm.dashboard.pages.world.scene import away, scene_now, scene_then, tables, wrong
from gtm.dashboard.pages.world.seen import DemandFilter, Now, Then, choices, jurisdictions, line
from gtm.dashboard.rendering import rendered
from gtm.dashboard.security import PERSONAL
from gtm.dashboard.visits import Visit, page


@page("/")
async def _world(visit: Visit) -> Response:
    """The page with what is known, so that it reads without scripts."""
    chosen, api, at = DemandFilter.of(visit), visit.api, visit.query("at")
    shown, every, names, times = await asyncio.gather(
        _look(visit, chosen, at),
        _look(visit, DemandFilter(), at) if chosen.any else asyncio.sleep(0),
        jurisdictions(api),
        line(api, visit.query("span"), at),
    )
    return visit.render(
        "world.html",
        shown.problem["status"] if shown.problem else 200,
        chosen=chosen,
        choices=choices((every or shown).demand),
        jurisdictions=names,
        query=urlencode(chosen.given),
        problem=shown.problem,
        line=times,
        at=at,
        **(_of_now(shown, chosen) if isinstance(shown, Now) else _of_then(shown)),
    )


async def _look(visit: Visit, chosen: DemandFilter, at: str | None) -> Now | Then:
    if at is None:
        return await seen.now(visit.api, chosen)
    return await seen.then(visit.api, chosen, at)


def _of_now(shown: Now, chosen: DemandFilter) -> dict[str, Any]:
    """What templates know of the present."""
    return {
        "recorded": None,
        "scene": scene_now(shown, chosen),
        "top": shown.top,
        "regions": shown.top.regions,
        "sync": shown.status.sync,
        "wrong": wrong(shown),
        **tables(shown.demand),
    }


def _of_then(shown: Then) -> dict[str, Any]:
    """What templates know of a recorded minute: regions that are gone are among them."""
    served = shown.demand.served
    gone = sorted(served.keys() - shown.regions.keys())
    regions = [
        {
            "region": name,
            "gone": name in gone,
            "utilisation": plan.get("use"),
            "price_ms": plan.get("price_ms"),
        }
        for name in (*shown.regions, *gone)
        for plan in (shown.plans.get(name, {}),)
    ]
    return {
        "recorded": shown.demand.recorded or {"start": None, "seconds": 0, "revision": None},
        "scene": scene_then(shown),
        "regions": regions,
        "changes": shown.changes,
        "away": away(shown.demand.rows),
        **tables(shown.demand),
    }


def _parts(values: Mapping[str, Any]) -> dict[str, str]:
    """The parts of the page that change, by name."""
    beside = "world_side_then.html" if values["recorded"] else "world_side.html"
    return {
        "side": rendered(beside, values),
        "table": rendered("world_table.html", values),
        "scene": json.dumps(values["scene"], separators=(",", ":")),
    }


@page("/live/world")
async def _live(visit: Visit) -> Response:
    """What goes on, as it changes."""
    chosen, api = DemandFilter.of(visit), visit.api

    async def render() -> Mapping[str, str]:
        return _parts(_of_now(await seen.now(api, chosen), chosen))

    return visit.stream(render, "world", chosen.given)


@page("/live/then")
async def _then(visit: Visit) -> Response:
    """The parts of the page as of a recorded minute."""
    shown = await seen.then(visit.api, DemandFilter.of(visit), visit.query("at") or "")
    values = _of_then(shown)
    when = rendered("world_when.html", {**values, "problem": shown.problem})
    return JSONResponse({**_parts(values), "when": when}, headers=PERSONAL)
