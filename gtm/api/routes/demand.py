"""Demand, now and as recorded."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

from fastapi import Query, Response

from gtm.api.context import Ctx, Viewer, reply
from gtm.api.query import OnlyRegion, strict_router
from gtm.api.schemas.base import errors
from gtm.api.schemas.traffic import DemandView, RecordedView
from gtm.api.steps import step_of
from gtm.control.lead.demand import PerAnswer, requests_of
from gtm.control.policy import traffic
from gtm.control.policy.situation import requests_by_cell
from gtm.core.demand.cells import Cell
from gtm.core.demand.rows import Row
from gtm.documents import fields

router = strict_router(prefix="/v1", tags=["demand"])

_MOST_STEPS = 300


@router.get(
    "/demand",
    operation_id="get_demand",
    summary="Demand now, by region, ranking class and demand cell",
    description="Smoothed over 3 s; an edge that stops reporting counts for 30 s more. From memory.",
    response_model=DemandView,
    responses=errors(),
)
async def get_demand(
    ctx: Ctx,
    _: Viewer,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Most rows in the answer.")] = 1000,
    region: OnlyRegion = None,
) -> Response:
    """The largest rows."""
    active = ctx.leading()
    rates = await asyncio.to_thread(active.reports.reported.rates)
    if region is not None:
        rates = {row: rate for row, rate in rates.items() if row.region == region}
    largest = sorted(rates.items(), key=lambda one: -one[1])
    per_answer = active.planning.latest.per_answer
    rows = [found for row, rate in largest if (found := _row(row, rate, per_answer)) is not None]
    total = sum(requests_by_cell(rates, per_answer).values())
    return reply(
        {"at": time.time(), "rate": total, "rows": rows[:limit], "left_out": max(0, len(rows) - limit)}
    )


def _row(row: Row, rate: float, per_answer: PerAnswer) -> dict[str, Any] | None:
    """A row as JSON; None if its cell is damaged."""
    try:
        cell = Cell.parse(row.cell)
    except ValueError:
        return None
    return {
        "region": row.region or None,
        "outcome": row.outcome,
        "via": row.via,
        "ranking_class": row.ranking_class,
        "cell": traffic.cell_json(cell),
        "rate": rate,
        "requests_per_second": requests_of(row, rate, per_answer),
    }


@router.get(
    "/demand/recorded",
    operation_id="get_recorded_demand",
    summary="Recorded demand by demand cell, with its peak and a timeline",
    description="Minutes that were not recorded count as no time, not as idle.",
    response_model=RecordedView,
    responses=errors(404),
)
async def get_recorded(
    ctx: Ctx,
    _: Viewer,
    since: Annotated[fields.Moment | None, Query(description="From then on; left out: 24 hours ago.")] = None,
    until: Annotated[fields.Moment | None, Query(description="Until before then; left out: now.")] = None,
) -> Response:
    """Add up what was recorded, over all control processes that recorded it."""
    begin, now = traffic.since_now(since, time.time())
    end = now if until is None else until
    step = step_of(begin, end, _MOST_STEPS)
    found = await traffic.recorded(ctx.database, begin, end)
    async with ctx.database.transaction() as transaction:
        timeline = await transaction.demand.timeline(begin, end, step)
    return reply({**traffic.traffic_json(found), "timeline": timeline})
