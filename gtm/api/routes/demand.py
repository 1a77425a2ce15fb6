"""Demand, now and as recorded."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import Query

from gtm.api.context import Context, Ctx, Viewer, reply
from gtm.api.query import OnlyRegion, TypedResponse, step_of, strict_router
from gtm.api.schemas.base import errors
from gtm.api.schemas.traffic import DemandView, RecordedView, TimelineView
from gtm.control.demand_rows import Which, demand_now, demand_then
from gtm.control.errors import NotFound
from gtm.control.policy import traffic
from gtm.core.demand.traffic import MINUTE
from gtm.core.model.services import Priority
from gtm.core.policy.jurisdictions import countries_at
from gtm.documents import fields

router = strict_router(prefix="/v1", tags=["demand"])

_MOST_STEPS = 300
_BACK = timedelta(hours=1)
"""How long before a moment the minute may lie that is shown for it."""
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


@router.get("/demand", responses=errors(404))
async def get_demand(
    *,
    ctx: Ctx,
    _: Viewer,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Most rows in the answer.")] = 1000,
    at: Annotated[fields.Moment | None, Query(description="When; left out: now.")] = None,
    region: OnlyRegion = None,
    service: Annotated[fields.Name | None, Query(description="Only this service.")] = None,
    tenant: Annotated[fields.Name | None, Query(description="Only requests that state this one.")] = None,
    data_class: Annotated[fields.Name | None, Query(description="Likewise.")] = None,
    priority: Annotated[Priority | None, Query(description="Only requests of this one.")] = None,
    client: Annotated[
        fields.JurisdictionName | None,
        Query(
            description="Only clients in this country, or in the countries that this jurisdiction has at that time."
        ),
    ] = None,
) -> TypedResponse[DemandView]:
    """Demand now or then, by region, ranking class and demand cell.

    Now: smoothed over 3 s; an edge that stops reporting counts for 30 s more; from memory. Then (`at`): of the recorded minute in which
    that moment lies or, where that was not recorded, of the last one up to an hour before.
    """
    now = time.time()
    countries = None if client is None else _countries(ctx, client, now if at is None else at.timestamp())
    which = Which(region, service, tenant, data_class, priority, countries)
    if at is not None:
        return reply(await _then(ctx, at, which, limit))
    active = ctx.leading()
    reported, per_answer = active.reports.reported, active.planning.latest.per_answer
    found = await asyncio.to_thread(lambda: demand_now(reported.rates(), per_answer, which, limit))
    return reply({"at": now, "recorded": None, **found})


def _countries(ctx: Context, client: str, at: float) -> frozenset[str]:
    snapshot = ctx.present.compiled
    periods = None if snapshot is None else snapshot.jurisdictions.get(client)
    if periods is None:
        raise NotFound(f"there is no jurisdiction or country `{client}`")
    return countries_at(periods, at)


async def _then(ctx: Context, at: datetime, which: Which, limit: int) -> dict[str, Any]:
    """The demand of the last recorded minute before a moment."""
    seconds = timedelta(seconds=MINUTE)
    async with ctx.database.transaction() as transaction:
        start = await transaction.demand.last_minute(max(at, _EARLIEST) - _BACK - seconds, at)
        if start is None:
            raise NotFound(
                f"no demand is recorded in the hour until {at.isoformat()}: control records it minute by minute while edges "
                "report to it, and keeps it for GTM_DEMAND_DAYS"
            )
        found = await transaction.demand.minute(start, which, limit)
        revision = await transaction.revisions.in_force(start)
    recorded = {"start": start.timestamp(), "seconds": found.seconds, "revision": revision}
    return {"at": start.timestamp(), "recorded": recorded, **demand_then(found)}


@router.get("/demand/timeline")
async def get_demand_timeline(
    ctx: Ctx,
    _: Viewer,
    since: Annotated[fields.Moment | None, Query(description="From then on; left out: 24 hours ago.")] = None,
    until: Annotated[fields.Moment | None, Query(description="Until before then; left out: now.")] = None,
) -> TypedResponse[TimelineView]:
    """How many requests were recorded, step by step.

    In as many steps of 1, 5, 15 or 60 minutes, 6 hours, a day or a week as 300 are enough for.
    """
    begin, end = _span(since, until)
    step = step_of(begin, end, _MOST_STEPS)
    async with ctx.database.transaction() as transaction:
        items = await transaction.demand.timeline(begin, end, step)
    return reply({"since": begin, "until": end, "step": step.total_seconds(), "items": items})


@router.get("/demand/recorded", responses=errors(404))
async def get_recorded_demand(
    ctx: Ctx,
    _: Viewer,
    since: Annotated[fields.Moment | None, Query(description="From then on; left out: 24 hours ago.")] = None,
    until: Annotated[fields.Moment | None, Query(description="Until before then; left out: now.")] = None,
) -> TypedResponse[RecordedView]:
    """Recorded demand by demand cell, with its peak and a timeline.

    Minutes that were not recorded count as no time, not as idle.
    """
    begin, end = _span(since, until)
    step = step_of(begin, end, _MOST_STEPS)
    found = await traffic.recorded(ctx.database, begin, end)
    async with ctx.database.transaction() as transaction:
        timeline = await transaction.demand.timeline(begin, end, step)
    # Beside the event loop: tens of thousands of cells take a while.
    return await asyncio.to_thread(lambda: reply({**traffic.traffic_json(found), "timeline": timeline}))


def _span(since: datetime | None, until: datetime | None) -> tuple[datetime, datetime]:
    begin, now = traffic.since_now(since, time.time())
    return begin, now if until is None else until
