"""What requests took, as curves and as a table: of a region by service, of a service by region."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gtm.client.generated import control_calls as calls
from gtm.dashboard import charts
from gtm.dashboard.inside import Inside
from gtm.dashboard.pages.plan_history import MOST_CURVES

if TYPE_CHECKING:
    from gtm.client import types

MOST_ROWS = 50
_LONG_MS = 10_000.0
"""What takes longer is told in seconds."""
_DRAWN = {
    "To the first byte, p50": "first_byte_p50_ms",
    "To the first byte, p99": "first_byte_p99_ms",
    "To the end, p50": "p50_ms",
    "To the end, p99": "p99_ms",
}


async def look(
    api: Inside,
    span: tuple[datetime, datetime],
    marks: list[dict[str, Any]],
    *,
    region: str | None = None,
    service: str | None = None,
) -> dict[str, Any]:
    """What was recorded of the requests of a region, or of a service; `told`: the database tells it now.

    Args:
        api: asked for whoever looks.
        span: the axis.
        marks: of `gtm.dashboard.charts.marks`.
        region: curves are by service.
        service: curves are by region.
    """
    found, by_model = await asyncio.gather(
        *(
            api.ask_if_told(
                calls.get_request_times(
                    region=region, service=service, since=span[0], until=span[1], models=models
                )
            )
            for models in (None, True)
        )
    )
    if found is None or by_model is None:
        return {"told": False, "figures": [], "rows": [], "more": 0, "not_drawn": 0}

    def label(one: types.TookSeries) -> str:
        return str(one.service if region is not None else one.region)

    return {
        "told": True,
        "by": "service" if region is not None else "region",
        "figures": _figures(found, label, span, marks, region or "answers"),
        "not_drawn": max(0, len(found.series) - MOST_CURVES) + found.left_out,
        "rows": [
            {"label": label(one), "model": one.model, **_whole(one)} for one in by_model.series[:MOST_ROWS]
        ],
        "more": max(0, len(by_model.series) - MOST_ROWS) + by_model.left_out,
        "step": found.step_seconds,
    }


def _whole(one: types.TookSeries) -> dict[str, float | None]:
    return {name: getattr(one.whole, name) for name in ("requests", *_DRAWN.values())}


def _figures(
    found: types.RequestTimesView,
    label: Callable[[types.TookSeries], str],
    span: tuple[datetime, datetime],
    marks: list[dict[str, Any]],
    sync: str,
) -> list[dict[str, Any]]:
    """A figure for each measure: percentiles do not add up, so what is beyond so many curves is not drawn."""
    drawn = found.series[:MOST_CURVES]
    figures = []
    for title, field in _DRAWN.items() if drawn else ():
        curves: dict[str, list[float | None]] = {label(one): getattr(one, field) for one in drawn}
        known = [value for values in curves.values() for value in values if value is not None]
        unit = "s" if max(known, default=0.0) >= _LONG_MS else "ms"
        if unit == "s":
            curves = {
                name: [None if value is None else value / 1000 for value in values]
                for name, values in curves.items()
            }
        chart = charts.chart(curves, unit, found.times, found.step_seconds, span, marks=marks, sync=sync)
        figures.append({"title": title, "chart": chart})
    return figures
