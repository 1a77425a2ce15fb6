"""Plan: how demand is spread over regions this second, what is full, what that costs, and who is refused."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from gtm.dashboard.inside import Inside
from gtm.dashboard.rendering import count, rendered
from gtm.dashboard.sankey import picture
from gtm.dashboard.visits import Visit, page

if TYPE_CHECKING:
    from gtm.client import types

MOST_CLASSES = 30
MOST_FLOWS = 40
REFUSED, WAITS = "refused", "waits at home"
_KINDS = {REFUSED: "refused", WAITS: "waits"}
_SEEN = 1e-3
"""Requests per second below which nothing is told of a flow."""


@page("/plan")
async def _plan(visit: Visit) -> Response:
    """The page with the plan of now, so that it reads without scripts."""
    service = visit.query("service")
    seen = await look(visit.api)
    names = sorted({one.service for one in seen["plan"].classes})
    return visit.render(
        "plan.html",
        chosen=service,
        names=names,
        query=visit.request.url.query,
        **body(seen, service),
    )


@page("/live/plan")
async def _live(visit: Visit) -> Response:
    """Stream the page's body as the plan changes."""
    service, api = visit.query("service"), visit.api

    async def render() -> Mapping[str, str]:
        return {"plan": rendered("plan_body.html", body(await look(api), service))}

    return visit.stream(render, "plan", service)


async def look(api: Inside) -> dict[str, Any]:
    """The plan, and regions as they are."""
    plan, top = await asyncio.gather(api.get("/v1/plan"), api.get("/v1/top"))
    return {"plan": plan, "top": top}


def body(seen: Mapping[str, Any], service: str | None) -> dict[str, Any]:
    """All that moves."""
    plan, top = seen["plan"], seen["top"]
    classes = [one for one in plan.classes if service in (None, one.service)]
    asking = [one for one in classes if one.requests_per_second > 0]
    flows = flows_of(asking, plan.queued)
    total = sum(one.requests_per_second for one in asking)
    return {
        "plan": plan,
        "regions": top.regions,
        "service": service,
        "total": total,
        "refused": sum(rate for (_, end), rate in flows.items() if end == REFUSED),
        "waits": sum(rate for (_, end), rate in flows.items() if end == WAITS),
        "away": sum(rate for (start, end), rate in flows.items() if end not in _KINDS and start != end),
        "picture": picture(flows, _KINDS),
        "flows": sorted(flows.items(), key=lambda one: (-one[1], one[0]))[:MOST_FLOWS],
        "more_flows": max(0, len(flows) - MOST_FLOWS),
        "binding": _binding(plan, top.regions),
        "classes": sorted(asking, key=_interest)[:MOST_CLASSES],
        "asking": len(asking),
        "idle": len(classes) - len(asking),
        "tenants": [
            {"class": one, "tenant": tenant, "refused": share}
            for one in asking
            for tenant, share in sorted(one.tenants.items())
        ][:MOST_CLASSES],
    }


def flows_of(classes: Sequence[types.PlanClass], queued: Mapping[str, float]) -> dict[tuple[str, str], float]:
    """Requests per second from homes to regions, to refusal, and to where they wait."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for one in classes:
        home, rate = one.home or "no home", one.requests_per_second
        waiting = queued.get(one.class_, 0.0)
        for region, served in one.planned.items():
            found[home, region] += max(0.0, served - waiting) if region == home else served
        found[home, REFUSED] += rate - sum(one.planned.values())
        found[home, WAITS] += waiting
    return {pair: rate for pair, rate in found.items() if rate >= _SEEN}


def _interest(one: types.PlanClass) -> tuple[float, float, str]:
    """What is refused or leaves home first, then the largest."""
    rate = one.requests_per_second
    return -round(rate - one.planned.get(one.home or "", 0.0), 3), -rate, one.class_


def _binding(plan: types.PlanView, regions: Sequence[types.TopRegion]) -> list[dict[str, str]]:
    """What the plan cannot exceed, in sentences."""
    quotas = {one.name: one for one in plan.quotas}
    known = {one.region for one in regions}
    found = []
    for name in plan.binding:
        if name in quotas:
            one = quotas[name]
            if one.from_ is None:
                words = f"takes no more of other regions' clients than the {count(one.allowed)}/s allowed."
                found.append({"kind": "region", "name": ", ".join(one.to), "words": words})
            else:
                words = f"lets no more than {count(one.allowed)}/s leave {one.from_} for {', '.join(one.to)}."
                found.append({"kind": "rule", "name": name, "words": words})
        elif name in known:
            price = plan.prices.get(name, 0.0)
            words = f"is full: one more request a second there would cost all others {count(price)} ms. What it cannot take goes elsewhere, waits or is refused."
            found.append({"kind": "region", "name": name, "words": words})
        else:
            found.append({"kind": "bound", "name": name, "words": "is exhausted."})
    return found
