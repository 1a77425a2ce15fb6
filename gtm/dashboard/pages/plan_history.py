"""The plan's history: what the planner decided for each region over the last hour, day or week, as curves and as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from gtm.dashboard import charts
from gtm.dashboard.inside import ApiProblem
from gtm.dashboard.pages.simulate import BACK, TRAFFIC
from gtm.dashboard.rendering import ms, rate, share
from gtm.dashboard.visits import Visit, page

if TYPE_CHECKING:
    from gtm.client import types

MOST_CURVES = 8
"""Regions with a curve: so many lines can be told apart."""
MOST_ROWS = 100


@dataclass(frozen=True, slots=True)
class Measure:
    """What a curve is of: the API's field, in words, and how its values are written."""

    field: Any
    words: str
    written: Callable[[float | None], str]
    unit: str


MEASURES = {
    "use": Measure("use", "Use of the limit", share, "%"),
    "price": Measure("price_ms", "Price", ms, "ms"),
    "demand": Measure("demand", "Home demand", rate, "/s"),
    "planned": Measure("planned", "Planned", rate, "/s"),
    "away": Measure("away", "Away from home", rate, "/s"),
    "refused": Measure("refused", "Refused", rate, "/s"),
}
OVER = {name: TRAFFIC[name].removeprefix("of ") for name in BACK}
USUAL = "24h"


@page("/plan/history")
async def _history(visit: Visit) -> Response:
    measure = visit.query("measure") if visit.query("measure") in MEASURES else "use"
    over = visit.query("over") if visit.query("over") in OVER else USUAL
    assert measure is not None and over is not None  # noqa: S101, PT018 - both have a usual value
    values: dict[str, Any] = {"measure": measure, "over": over, "measures": MEASURES, "spans": OVER}
    template = "plan_history.html" if visit.partial else "plan_history_page.html"
    since = datetime.now(UTC) - BACK[over]
    asked = f"$GTM_CONTROL_URL/v1/plan/history?since=$(date -u -d '-{over_in_words(over)}' +%FT%TZ)"
    values["commands"] = [f'curl -H "Authorization: Bearer $GTM_TOKEN" "{asked}"']
    try:
        found = await visit.api.get_plan_history(since=since, column=MEASURES[measure].field)
    except ApiProblem as problem:
        return visit.render(template, problem.status, problem=problem.document, shown=None, **values)
    return visit.render(template, problem=None, shown=shown(found, MEASURES[measure]), **values)


def over_in_words(over: str) -> str:
    """A span as `date` takes it.

    >>> [over_in_words(one) for one in OVER]
    ['1 hour', '24 hours', '7 days']
    """
    return {"1h": "1 hour", "24h": "24 hours", "7d": "7 days"}[over]


def shown(found: types.PlanHistoryView, measure: Measure) -> dict[str, Any]:
    """A history as the templates have it: curves of the regions with most of a measure, and a row for each region."""
    regions = sorted(found.regions, key=lambda one: (-_most(one[measure.field]), one.region))
    curves = regions[:MOST_CURVES]
    factor = 100 if measure.unit == "%" else 1
    return {
        "step": found.step_seconds,
        "times": found.times,
        "curves": curves,
        "table": [
            (at, [one[measure.field][place] for one in curves]) for place, at in enumerate(found.times)
        ][::-1],
        "left_out": max(0, len(regions) - len(curves)),
        "rows": [{"region": one.region, **one.whole} for one in regions[:MOST_ROWS]],
        "more": max(0, len(regions) - MOST_ROWS),
        "chart": charts.chart(
            {
                one.region: [None if value is None else value * factor for value in one[measure.field]]
                for one in curves
            },
            measure.unit,
            found.times,
            found.step_seconds,
            (charts.moment(found.since), charts.moment(found.until)),
        ),
    }


def _most(values: Sequence[float | None]) -> float:
    return max((value for value in values if value is not None), default=0.0)
