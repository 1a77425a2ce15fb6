"""A region over the last hour, day or week: load against capacity, probes' and requests' times, refusals and spillover, with what happened on the way."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from gtm.client.generated import control_calls as calls
from gtm.dashboard import charts
from gtm.dashboard.inside import Inside, name
from gtm.dashboard.pages import request_times
from gtm.dashboard.pages.plan_history import OVER, over_in_words
from gtm.dashboard.pages.simulate import BACK
from gtm.dashboard.visits import Visit, page

if TYPE_CHECKING:
    from gtm.client import types

USUAL = "1h"
_LONGEST_STEPS = "24h"
"""The longest of the times that probes' steps are asked for."""


def over_of(visit: Visit) -> str:
    """The time that a page's address states."""
    asked = visit.query("over") or ""
    return asked if asked in OVER else USUAL


@page("/regions/{name}/charts")
async def _charts(visit: Visit) -> Response:
    which, over = name(visit.part("name")), over_of(visit)
    shown = await look(visit.api, which, over, datetime.now(UTC))
    template = "region_charts.html" if visit.partial else "region_charts_page.html"
    return visit.render(template, region={"region": which}, charts=shown)


async def look(api: Inside, which: str, over: str, now: datetime) -> dict[str, Any]:
    """What was recorded of a region; nothing of what the database does not tell now.

    Args:
        api: asked for whoever looks.
        which: the region.
        over: one of `OVER`.
        now: the end of the charts.
    """
    since, until = now - BACK[over], now
    plan, steps, verdicts, revisions = await asyncio.gather(
        api.ask_if_told(calls.get_plan_history(region=which, since=since, until=until)),
        _steps(api, which, over, since, until),
        api.ask_if_told(
            calls.list_health_changes(region=which, vantage="*", since=since, limit=charts.MOST_MARKS + 1)
        ),
        api.ask_if_told(calls.list_revisions(limit=charts.MOST_MARKS + 1)),
    )
    marks, left_out = charts.marks(
        since, [] if revisions is None else revisions.items_, [] if verdicts is None else verdicts.items_
    )
    took = await request_times.look(api, (since, until), marks, region=which)
    figures: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    if plan is not None and plan.regions:
        columns = _columns(plan.regions[0])
        rows = [
            {"at": at, **{field: columns[field][place] for field in columns}}
            for place, at in enumerate(plan.times)
        ][::-1]
        percent = [None if one is None else 100 * one for one in columns["use"]]
        drawings: list[tuple[str, str, dict[str, Any]]] = [
            (
                "Load against capacity",
                "%",
                {"in use": percent, "limit": [100.0] * len(percent)},
            ),
            ("Refused of its home demand", "/s", {"refused": columns["refused"]}),
            (
                "Spillover",
                "/s",
                {"out": columns["out"], "in": columns["in"]},
            ),
        ]
        figures = [
            {
                "title": title,
                "chart": charts.chart(
                    curves, unit, plan.times, plan.step_seconds, (since, until), marks=marks, sync=which
                ),
            }
            for title, unit, curves in drawings
        ]
    probes = [] if steps is None else _probes(steps)
    if steps is not None and probes:
        curves = {"p50": [one["p50"] for one in probes]}
        curves["p99"] = [one["p99"] for one in probes]
        drawing = charts.chart(
            curves,
            "ms",
            [one["at"] for one in probes],
            steps.step_seconds,
            (since, until),
            marks=marks,
            sync=which,
        )
        figures.insert(1, {"title": "What probes took", "chart": drawing})
    return {
        "over": over,
        "spans": OVER,
        "told": plan is not None,
        "figures": figures,
        "took": took,
        "rows": rows,
        "probes": probes[::-1],
        "step": 0.0 if plan is None else plan.step_seconds,
        "probe_step": 0.0 if steps is None else steps.step_seconds,
        "marks": marks,
        "left_out": left_out,
        "over_words": over_in_words(over),
    }


async def _steps(
    api: Inside, which: str, over: str, since: datetime, until: datetime
) -> types.StepsPage | None:
    if BACK[over] > BACK[_LONGEST_STEPS]:
        return None
    return await api.ask_if_told(calls.list_health_steps(region=which, since=since, until=until, limit=1000))


def _columns(region: types.RegionHistory) -> dict[str, list[float | None]]:
    """What was planned by step; `out` is what of its home demand went elsewhere, `in` what came from elsewhere."""
    parts = zip(region.planned, region.demand, region.away, region.refused, strict=True)
    coming = [_coming(*one) for one in parts]
    return {
        "use": region.use,
        "demand": region.demand,
        "planned": region.planned,
        "refused": region.refused,
        "out": region.away,
        "in": coming,
    }


def _coming(
    planned: float | None, demand: float | None, away: float | None, refused: float | None
) -> float | None:
    """What of the requests that a region serves has its home elsewhere."""
    if planned is None or demand is None or away is None or refused is None:
        return None
    return max(0.0, planned - (demand - away - refused))


def _probes(steps: types.StepsPage) -> list[dict[str, Any]]:
    """What probes that were answered took, by step, over all edges and endpoints: the median of their p50, the highest p99."""
    found: dict[float, list[tuple[float, float]]] = defaultdict(list)
    for series in steps.items_:
        for step in series.steps:
            if series.vantage and step.p50_ms is not None and step.p99_ms is not None:
                found[charts.moment(step.start).timestamp()].append((step.p50_ms, step.p99_ms))
    return [
        {"at": at, "p50": median(one for one, _ in several), "p99": max(one for _, one in several)}
        for at, several in sorted(found.items())
    ]
