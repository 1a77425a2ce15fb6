"""Regions: a table of all, and for each what is known of its health, load, capacity and neighbours, with the evidence."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from gtm.client.generated import control_calls as calls
from gtm.dashboard.charts import moment
from gtm.dashboard.inside import ApiProblem, Inside, name
from gtm.dashboard.pages import region_charts
from gtm.dashboard.rendering import rendered
from gtm.dashboard.tenants import together
from gtm.dashboard.visits import Visit, page

if TYPE_CHECKING:
    from gtm.client import types

MOST_ROWS = 2000
"""Rows of demand that the countries of a region's clients are from, the largest first."""
AGAIN_S = 10
"""After which a page asks again what probes said: what it draws are pieces of five minutes."""
MOST_COUNTRIES = 12
STATES = ("up", "down", "unknown", "draining", "disabled", "full")
"""What regions can be narrowed to."""


@dataclass(frozen=True, slots=True)
class RegionFilter:
    """Which regions are shown; None: all. `find` is a part of the name, `country` where they stand."""

    find: str | None = None
    state: str | None = None
    country: str | None = None

    @classmethod
    def of(cls, visit: Visit) -> RegionFilter:
        """The filter that a page's address states."""
        return cls(**{one: visit.query(one) for one in cls.__slots__})

    def holds(self, one: types.TopRegion) -> bool:
        """Whether a region is among them."""
        return (
            (self.find is None or self.find.lower() in one.region)
            and (self.country is None or self.country == one.country)
            and (
                self.state is None or self.state == state_of(one) or (self.state == "full" and one.exhausted)
            )
        )

    @property
    def any(self) -> bool:
        """Whether any is left out."""
        return any(value is not None for value in asdict(self).values())


def state_of(one: types.TopRegion) -> str:
    """What somebody has switched, else what edges see."""
    return str(one.health if one.admin_state == "active" else one.admin_state)


@page("/regions")
async def _regions(visit: Visit) -> Response:
    chosen = RegionFilter.of(visit)
    shown = table(await visit.api.get_top(), chosen)
    countries = sorted({one.country for one in shown["top"].regions})
    return visit.render(
        "regions.html",
        chosen=chosen,
        states_to_choose=STATES,
        countries=countries,
        query=visit.request.url.query,
        **shown,
    )


@page("/live/regions")
async def _live_regions(visit: Visit) -> Response:
    chosen, api = RegionFilter.of(visit), visit.api

    async def render() -> Mapping[str, str]:
        return {"regions": rendered("regions_table.html", table(await api.get_top(), chosen))}

    return visit.stream(render, "regions", asdict(chosen))


def table(top: types.TopView, chosen: RegionFilter) -> dict[str, Any]:
    """What the table shows: the regions chosen, and how many of all there are in each state."""
    counts: dict[str, int] = defaultdict(int)
    for one in top.regions:
        counts[state_of(one)] += 1
        counts["full"] += one.exhausted
        counts["unsure"] += one.freshness in ("stale", "lost")
    return {"top": top, "counts": counts, "regions": [one for one in top.regions if chosen.holds(one)]}


@page("/regions/{name}")
async def _region(visit: Visit) -> Response:
    which = name(visit.part("name"))
    shown = await look(visit.api, which)
    older = visit.query("changes")
    (document, missing), past, charts = await asyncio.gather(
        _document(visit.api, which),
        history(visit.api, which, _span(visit), older, datetime.now(UTC)),
        region_charts.look(visit.api, which, region_charts.over_of(visit), datetime.now(UTC)),
    )
    return visit.render(
        "region.html",
        document=document,
        missing=missing,
        history=past,
        charts=charts,
        older=older,
        again=AGAIN_S,
        may=visit.may("operator"),
        **shown,
    )


def _span(visit: Visit) -> str:
    asked = visit.query("history") or ""
    return asked if asked in SPANS else "hour"


@page("/regions/{name}/history")
async def _history(visit: Visit) -> Response:
    """What probes said, as a part that the page asks for now and then: the database has it, so it is no part of the stream."""
    which, span = name(visit.part("name")), _span(visit)
    if not visit.partial:
        return visit.go(f"/regions/{which}?history={span}#history")
    past = await history(visit.api, which, span, None, datetime.now(UTC))
    return visit.render("region_history.html", region={"region": which}, history=past, older=None)


async def _document(api: Inside, which: str) -> tuple[Mapping[str, Any] | None, str]:
    """What the policy says of a region, or why that cannot be said: the database has it, all else is in memory."""
    try:
        return await api.get_regions(which), ""
    except ApiProblem as found:
        return None, str(found)


@page("/live/regions/{name}")
async def _live_region(visit: Visit) -> Response:
    which, api, may = name(visit.part("name")), visit.api, visit.may("operator")

    async def render() -> Mapping[str, str]:
        try:
            shown = {**await look(api, which), "may": may}
        except ApiProblem as found:
            return {"head": rendered("problem_part.html", {"problem": found.document})}
        return {part: rendered(f"region_{part}.html", shown) for part in ("head", "now")}

    return visit.stream(render, "region", which, may)


async def look(api: Inside, which: str) -> dict[str, Any]:
    """All that is known now of a region, from answers that come from memory.

    Raises:
        ApiProblem: 404, there is no such region.
    """
    top = await api.get_top()
    region = _of(which, top.regions)
    if region is None:
        raise ApiProblem(404, {"title": "not found", "detail": f"there is no region `{which}`"})
    health, load, balancers, inside, status, demand = await asyncio.gather(
        api.get_health(region=which),
        api.get_load(region=which),
        api.list_balancers(),
        api.get_inside(region=which),
        api.get_status(),
        api.get_demand(limit=MOST_ROWS, region=which),
    )
    capacity = _of(which, load.regions)
    return {
        "at": top.at,
        "region": region,
        "state": state_of(region),
        "health": _of(which, health.regions),
        "capacity": capacity,
        "reductions": [] if capacity is None else list(reductions(capacity)),
        "balancers": [one for one in balancers.items_ if one.region == which],
        "inside": inside_of(inside.items_),
        "sync": status.sync,
        "clients": clients(demand),
        **neighbours(top, which),
    }


def inside_of(shown: Sequence[types.InsideView]) -> dict[str, Any]:
    """The inside of a region: the servers as each balancer sees them, and tenants of all balancers together, those first that have most."""
    usable: dict[str, bool] = {}
    for balancer in shown:
        for server in balancer.servers:
            usable[server.url] = usable.get(server.url, False) or server.usable
    return {
        "balancers": shown,
        "servers": len(usable),
        "usable": sum(usable.values()),
        "tenants": sorted(
            together(shown),
            key=lambda one: (-one.running - one.waiting, -one.requests_per_second, one.name),
        ),
        "servers_left_out": sum(one.servers_left_out for one in shown),
        "tenants_left_out": sum(one.tenants_left_out for one in shown),
    }


def _of(which: str, found: Iterable[Any]) -> Any:
    """What a list has of a region."""
    return next((one for one in found if one.region == which), None)


def clients(demand: types.DemandView) -> list[tuple[str, str, float]]:
    """Where those are whom edges send somewhere: country, service, requests per second; the most first."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for row in demand.rows:
        cell = row.cell
        found[cell.country or "unknown", cell.service] += row.requests_per_second
    most = sorted(found.items(), key=lambda one: (-one[1], one[0]))[:MOST_COUNTRIES]
    return [(*place, rps) for place, rps in most if rps >= 0.005]


def neighbours(top: types.TopView, which: str) -> dict[str, Any]:
    """What leaves a region and what comes to it: by plan, by free slots, and by its balancers; and the rules of that."""
    return {
        name: [one for one in top[name] if which in (one.from_, one.to)]
        for name in ("spill", "corrections", "pushes")
    } | {"quotas": [one for one in top.quotas if one.from_ == which or which in one.to]}


def reductions(capacity: types.RegionCapacityView) -> Iterator[tuple[str, str]]:
    """What makes a region's capacity for new clients less than its limits: how much, and why."""
    if capacity.admin_state != "active":
        yield "nothing is left", f"The region is {capacity.admin_state}: it takes no new clients."
    if capacity.health < 1:
        up = "This share of its endpoints is up." if capacity.health else "None of its endpoints is up."
        yield f"× {_percent(capacity.health)}", up
    if capacity.slow_start < 1:
        yield (
            f"× {_percent(capacity.slow_start)}",
            "Slow start: so far have endpoints that came back ramped up.",
        )
    if capacity.freshness == "stale":
        yield "no gain", "Load reports are late: until new ones come, the region gets no more than before."
    if capacity.freshness == "lost":
        yield "× 50%", "Load reports have stopped: a region that falls silent counts half."
    if capacity.backlog > 0:
        yield (
            f"{capacity.backlog:,.0f} waiting",
            "Requests that wait for a slot: what they need to be gone in 10 s is not for new clients.",
        )
    if capacity.reserve > 0:
        yield f"× {_percent(1 - capacity.reserve)}", "The reserve, which no plan uses."


def _percent(value: float) -> str:
    return f"{100 * value:.0f}%"


# What probes said of a region lately, as strips of time and in words.

SPANS = {"hour": timedelta(hours=1), "day": timedelta(hours=24)}
"""What can be looked at: the last hour, the last day."""
MOST_SERIES = 40
MOST_CHANGES = 20
WIDTH = 1000.0
"""Of a strip, in units of its drawing."""


async def history(api: Inside, region: str, span: str, cursor: str | None, now: datetime) -> dict[str, Any]:
    """What the page shows: a strip of each series, and changes in words.

    Args:
        api: asked for whoever looks.
        region: its name.
        span: one of `SPANS`.
        cursor: of the changes, to go on behind; None: the newest.
        now: the end of the strips.
    """
    since = now - SPANS[span]
    steps, changes = await asyncio.gather(
        api.ask(calls.list_health_steps(region=region, since=since, until=now, limit=MOST_SERIES)),
        api.ask(calls.list_health_changes(region=region, limit=MOST_CHANGES, cursor=cursor)),
    )
    begins = moment(steps.since)
    return {
        "span": span,
        "since": begins,
        "until": now,
        "complete": steps.complete and changes.complete,
        "series": [strip(one, begins, now, steps.step_seconds) for one in steps.items_],
        "more": steps.next_cursor is not None,
        "changes": changes.items_,
        "older": changes.next_cursor,
    }


def strip(series: types.SeriesView, since: datetime, until: datetime, step_seconds: float) -> dict[str, Any]:
    """A series as it is drawn: `pieces` of time that were alike, and what they come to."""
    steps = series.steps
    told = [one.probes for one in steps if one.probes is not None]
    slowest = [one.p99_ms for one in steps if one.p99_ms is not None]
    return {
        "endpoint": series.endpoint,
        "vantage": series.vantage,
        "pieces": list(_pieces(steps, since, until, timedelta(seconds=step_seconds))),
        "probes": sum(told) if told else None,
        "failed": sum(one.failed for one in steps),
        "p99_ms": max(slowest, default=None),
        "changes": sum(one.changes for one in steps),
    }


def kind_of(step: types.StepView) -> str:
    """How a step is drawn: `bad` if the verdict was down in it, `warn` if probes failed, else `good`."""
    if step.worst == "down":
        return "bad"
    return "warn" if step.failed else "good"


def _pieces(
    steps: Sequence[types.StepView], since: datetime, until: datetime, size: timedelta
) -> Iterator[dict[str, Any]]:
    """Steps that follow each other and are alike, as one; where nothing was heard there is none."""
    whole = (until - since).total_seconds()
    alike: list[types.StepView] = []
    for step in (*steps, None):
        if alike and (step is None or _parts(alike[-1], step, size)):
            begins, ends = moment(alike[0].start), min(until, moment(alike[-1].start) + size)
            yield {
                "kind": kind_of(alike[0]),
                "x": round(WIDTH * (begins - since).total_seconds() / whole, 2),
                "width": round(WIDTH * (ends - begins).total_seconds() / whole, 2),
                "words": _words(alike, begins, ends),
            }
            alike = []
        if step is not None:
            alike.append(step)


def _parts(one: types.StepView, other: types.StepView, size: timedelta) -> bool:
    """Whether a step begins a new piece: it is not like the one before, or time is missing between them."""
    return kind_of(one) != kind_of(other) or moment(other.start) - moment(one.start) != size


def _words(alike: Sequence[types.StepView], begins: datetime, ends: datetime) -> str:
    """A piece in words."""
    kind = kind_of(alike[0])
    state = {"bad": "down for a time", "warn": "up, but probes failed", "good": "up"}[kind]
    told = [one.probes for one in alike if one.probes is not None]
    probes = f"; {sum(one.failed for one in alike)} of {sum(told)} probes failed" if told else ""
    detail = next((one.detail for one in reversed(alike) if one.detail), "")
    return f"{begins:%H:%M}–{ends:%H:%M} UTC: {state}{probes}{f'; last: {detail}' if detail else ''}"
