"""Plan: how demand is spread over regions this second, what is full, what that costs, and who is refused."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from gtm.dashboard.inside import Inside
from gtm.dashboard.rendering import count, rendered
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
    plan, top = await asyncio.gather(api.get_plan(), api.get_top())
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


# Flows between two columns of places, as bands whose widths are rates (Sankey 1898). Widths that depend on data are attributes of SVG,
# which need no style. Few flows are drawn, so that each can be told from the others: the smaller places of a column are one.

WIDTH, HEIGHT = 760.0, 380.0
LEFT, RIGHT = 170.0, 590.0
"""Where the bars of the two columns begin."""
BAR = 10.0
GAP = 10.0
"""Between two places of a column."""
MOST = 12
"""Places of a column."""
OTHERS = "other regions"
LEAST = 0.5
"""Height below which nothing would be seen."""

Flows = Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class Bar:
    """A place of a column. `y` is its upper end."""

    name: str
    label: str
    x: float
    y: float
    height: float
    rate: float

    @property
    def middle(self) -> float:
        """The height at which the bar's label stands."""
        return round(self.y + self.height / 2, 1)


@dataclass(frozen=True, slots=True)
class Band:
    """A flow; `path` is its outline."""

    start: str
    end: str
    rate: float
    path: str
    kind: str


@dataclass(frozen=True, slots=True)
class Picture:
    """All that is drawn."""

    left: tuple[Bar, ...]
    right: tuple[Bar, ...]
    bands: tuple[Band, ...]


def picture(flows: Flows, kinds: Mapping[str, str]) -> Picture:
    """Where everything stands.

    Args:
        flows: from a place of the left column to one of the right: the rate.
        kinds: of ends of the right column that are no regions, which stand last: the kind of their bands.
    """
    largest = _joined({pair: rate for pair, rate in flows.items() if rate > 0}, frozenset(kinds))
    sums = _sums(largest, 0), _sums(largest, 1)
    total = sum(largest.values())
    if not total:
        return Picture((), (), ())
    rows = max(map(len, sums))
    scale = (HEIGHT - GAP * (rows - 1)) / total
    left = _column(sums[0], LEFT, scale, frozenset(kinds))
    right = _column(sums[1], RIGHT, scale, frozenset(kinds))
    return Picture(
        tuple(left.values()), tuple(right.values()), tuple(_bands(largest, left, right, scale, kinds))
    )


def _joined(flows: Flows, kept: frozenset[str]) -> dict[tuple[str, str], float]:
    """The same with the smaller places of each column as one."""
    large = []
    for side in (0, 1):
        order = sorted(
            (name for name in _sums(flows, side).items() if name[0] not in kept), key=lambda one: -one[1]
        )
        names = [name for name, _ in order]
        large.append(kept.union(names if len(names) <= MOST else names[: MOST - 1]))
    found: dict[tuple[str, str], float] = {}
    for (start, end), rate in flows.items():
        pair = start if start in large[0] else OTHERS, end if end in large[1] else OTHERS
        found[pair] = found.get(pair, 0.0) + rate
    return found


def _sums(flows: Flows, side: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for pair, rate in flows.items():
        found[pair[side]] = found.get(pair[side], 0.0) + rate
    return found


def _column(sums: Mapping[str, float], x: float, scale: float, last: frozenset[str]) -> dict[str, Bar]:
    """Its bars from above, by name, so that they stay where they are while rates move."""
    found, y = {}, 0.0
    for name in sorted(sums, key=lambda one: (one in last, one == OTHERS, one)):
        height = max(LEAST, sums[name] * scale)
        found[name] = Bar(name, _label(name), x, round(y, 1), round(height, 1), sums[name])
        y += height + GAP
    return found


def _bands(
    flows: Flows,
    left: Mapping[str, Bar],
    right: Mapping[str, Bar],
    scale: float,
    kinds: Mapping[str, str],
) -> Iterable[Band]:
    places = {name: number for number, name in enumerate([*left, *right])}
    ends = {name: number for number, name in enumerate(right)}
    starts, stops = dict.fromkeys(left, 0.0), dict.fromkeys(right, 0.0)
    for start, end in sorted(flows, key=lambda pair: (places[pair[0]], ends[pair[1]])):
        rate = flows[start, end]
        height = max(LEAST, rate * scale)
        path = _path(left[start].y + starts[start], right[end].y + stops[end], height)
        starts[start] += height
        stops[end] += height
        kind = kinds.get(end, "home" if start == end != OTHERS else "away")
        yield Band(start, end, rate, path, kind)


def _path(y0: float, y1: float, height: float) -> str:
    """The outline of a band.

    >>> _path(0, 100, 10)
    'M180 0C380 0 380 100 590 100V110C380 110 380 10 180 10Z'
    """
    x0, x1 = LEFT + BAR, RIGHT
    middle = (LEFT + RIGHT) / 2
    return (
        f"M{x0:g} {y0:.4g}C{middle:g} {y0:.4g} {middle:g} {y1:.4g} {x1:g} {y1:.4g}V{y1 + height:.4g}"
        f"C{middle:g} {y1 + height:.4g} {middle:g} {y0 + height:.4g} {x0:g} {y0 + height:.4g}Z"
    )


def _label(name: str, most: int = 20) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
