"""A service's requests over the last hour, day or week: how they were answered, by outcome, region and way; what they took; where they went instead of home."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from gtm.client.generated import control_calls as calls
from gtm.dashboard import charts
from gtm.dashboard.inside import Inside, name
from gtm.dashboard.pages import request_times
from gtm.dashboard.pages.plan_history import MOST_CURVES, OVER, over_in_words
from gtm.dashboard.pages.region_charts import over_of
from gtm.dashboard.pages.simulate import BACK
from gtm.dashboard.visits import Visit, page

if TYPE_CHECKING:
    from gtm.client import types

MOST_ROWS = 100
_MOST_WAYS = 20
"""Ways from region to region that the table has."""
_OTHERS = "others"


@page("/services/{name}/answers")
async def _answers(visit: Visit) -> Response:
    which, over = name(visit.part("name")), over_of(visit)
    shown = await look(visit.api, which, over, datetime.now(UTC))
    template = "service_answers.html" if visit.partial else "service_answers_page.html"
    return visit.render(template, service=which, charts=shown)


async def look(api: Inside, which: str, over: str, now: datetime) -> dict[str, Any]:
    """What was recorded of a service's answers.

    Args:
        api: asked for whoever looks.
        which: the service; one that was deleted since is what was recorded of it.
        over: one of `OVER`.
        now: the end of the charts.
    """
    since = now - BACK[over]
    found, spillover, revisions = await asyncio.gather(
        api.ask_if_told(calls.get_demand_answers(service=which, since=since, until=now)),
        api.ask_if_told(calls.get_spillover(service=which, since=since, until=now)),
        api.ask_if_told(calls.list_revisions(limit=charts.MOST_MARKS + 1)),
    )
    marks, left_out = charts.marks(since, [] if revisions is None else revisions.items_, [])
    return {
        "over": over,
        "spans": OVER,
        "over_words": over_in_words(over),
        "told": found is not None,
        "marks": marks,
        "left_out": left_out,
        "took": await request_times.look(api, (since, now), marks, service=which),
        "spillover": _spillover(spillover, (since, now), marks),
        **({"figures": [], "rows": [], "more": 0} if found is None else _shown(found, (since, now), marks)),
    }


def _shown(
    found: types.AnswersView, span: tuple[datetime, datetime], marks: list[dict[str, Any]]
) -> dict[str, Any]:
    by: dict[str, Callable[[types.AnswersSeries], str]] = {
        "Outcome": lambda one: str(one.outcome).replace("_", " "),
        "Region": lambda one: one.region or "refused",
        "Way": lambda one: str(one.via),
    }
    figures = [
        {
            "title": f"By {title.lower()}",
            "chart": _chart(curves_of(found, key), found, span, marks),
        }
        for title, key in by.items()
    ]
    total = sum(one.requests for one in found.series)
    rows = [
        {
            "via": one.via,
            "region": one.region,
            "outcome": one.outcome,
            "requests": one.requests,
            "share": one.requests / total if total else None,
            "most": max(one.rates, default=0.0),
        }
        for one in found.series[:MOST_ROWS]
    ]
    more = found.left_out + len(found.series) - len(rows)
    table = [
        {"at": at, "rates": [values[place] for curve in figures for values in _values(curve)]}
        for place, at in enumerate(found.times)
    ][::-1]
    return {
        "figures": figures if found.series else [],
        "rows": rows,
        "more": more,
        "table": table,
        "step": found.step_seconds,
    }


def _chart(
    curves: Mapping[str, list[float]],
    found: types.AnswersView | types.SpilloverView,
    span: tuple[datetime, datetime],
    marks: list[dict[str, Any]],
) -> dict[str, Any]:
    return charts.chart(curves, "/s", found.times, found.step_seconds, span, marks=marks, sync="answers")


def _spillover(
    found: types.SpilloverView | None, span: tuple[datetime, datetime], marks: list[dict[str, Any]]
) -> dict[str, Any]:
    """What went elsewhere, by who sent it; `told`: the database tells it now."""
    if found is None:
        return {"told": False}
    figures = []
    for title, by in (("Sent away by edges", "edges"), ("Pushed by balancers", "balancers")):
        sums = {f"{one.from_} → {one.to}": one.rates for one in found.series if one.by == by}
        if sums:
            figures.append({"title": title, "chart": _chart(_largest(sums), found, span, marks)})
    rows = [
        {
            "from": one.from_,
            "to": one.to,
            "by": one.by,
            "requests": one.requests,
            "most": max(one.rates, default=0.0),
        }
        for one in found.series[:_MOST_WAYS]
    ]
    more = found.left_out + len(found.series) - len(rows)
    return {"told": True, "figures": figures, "rows": rows, "more": more, "step": found.step_seconds}


def _values(figure: dict[str, Any]) -> list[list[float]]:
    return [one["values"] for one in figure["chart"]["series"]]


def curves_of(found: types.AnswersView, key: Callable[[types.AnswersSeries], str]) -> dict[str, list[float]]:
    """Rates by what a key tells apart, as `_largest` has them."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(found.times))
    for one in found.series:
        curve = sums[key(one)]
        for place, rate in enumerate(one.rates):
            curve[place] += rate
    return _largest(sums)


def _largest(sums: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """The largest first; those beyond so many that can be told apart are one."""
    ordered = sorted(sums.items(), key=lambda item: (-sum(item[1]), item[0]))
    kept = dict(ordered if len(ordered) <= MOST_CURVES else ordered[: MOST_CURVES - 1])
    rest = [values for label, values in ordered if label not in kept]
    if rest:
        kept[_OTHERS] = [sum(several) for several in zip(*rest, strict=True)]
    return kept
