"""What goes on this second: the plan, and everything at a glance."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from time import time
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from gtm.api.context import Ctx, Viewer, reply
from gtm.api.query import (
    OnlyRegion,
    Since,
    TypedResponse,
    Until,
    span_of,
    step_of,
    strict_router,
)
from gtm.api.routes.request_history import TookView
from gtm.api.schemas.base import ManagedSchema, Schema
from gtm.control.overview import moment_of, plan_document, top_document
from gtm.core.capacity.load import Freshness
from gtm.core.model.regions import AdminState
from gtm.core.model.services import Priority
from gtm.core.model.state import HealthStatus
from gtm.storage.history.plans import COLUMNS, Column, RegionSteps

router = strict_router(prefix="/v1", tags=["plan"])

MOST_STEPS = 170
"""Of a history: a day in quarters of an hour, a week in hours."""


class PlanFacts(Schema):
    """When the plan was made, and how."""

    epoch: int
    """Of the state that the edges hold."""
    made: float | None
    """When, in POSIX seconds; null: there is none yet."""
    age: float | None
    """Seconds."""
    tick_ms: float
    """The time that making the plan took, in ms."""
    error: str | None
    """Why the last tick made none, and the plan before it stays."""


class PlanClass(Schema):
    """How the requests of one ranking class are spread."""

    class_: str = Field(alias="class")
    service: str
    priority: Priority | None
    requests_per_second: float
    home: str | None
    """The region that it prefers of those that are usable; null while there is no demand."""
    weights: dict[str, float]
    """Region → share of what is served."""
    planned: dict[str, float]
    """Region → requests per second that it is to serve, tenants' own shares considered; what is missing to the whole is refused."""
    shed: float
    """The share that is refused for want of capacity."""
    tenants: dict[str, float]
    """Tenants whose share differs, because they are beyond their fair share or within it."""
    idle_since: float | None
    """Since when there has been no demand, in POSIX seconds."""


class QuotaUse(Schema):
    """A spillover rule, or what a region takes of others' demand (`spill_in:REGION`), in requests per second."""

    name: str
    from_: str | None = Field(alias="from")
    to: list[str]
    allowed: float | None
    planned: float
    binding: bool
    """The plan has exhausted it."""


class PlanView(PlanFacts):
    """The last plan."""

    classes: list[PlanClass]
    prices: dict[str, float]
    """What one more request a second in a region would cost all others, in ms of latency."""
    moving: list[str]
    """Services with traffic on its way to where the plan wants it: their answers carry `min_ttl`."""
    quotas: list[QuotaUse]
    binding: list[str]
    """Regions and quotas that are exhausted."""
    queued: dict[str, float]
    """By class, requests per second beyond capacity that wait at home, where the service does not shed."""


class RegionWhole(Schema):
    """A region over all of the time. Rates in requests per second, means of the minutes that were recorded."""

    minutes: int
    """The number of minutes that were recorded."""
    demand: float
    """Requests per second of clients whose home the region is."""
    planned: float
    """The requests a second that the plan had it serve."""
    away: float
    """Of `demand`, what went to other regions."""
    refused: float
    """Of `demand`, what was refused for want of capacity."""
    use: float | None
    """The share of its limit that it reported outstanding; null: it never did."""
    most_use: float | None
    """The highest share in a minute."""
    price_ms: float
    most_price_ms: float
    exhausted: float
    """The share of the time at which it was full."""


_MISSING: Any = Field(default_factory=list)


class RegionHistory(Schema):
    """A region's past: columns as long as `times`; null: nothing was recorded then. Where `column` asks for one of them, the others are missing."""

    region: str
    whole: RegionWhole
    minutes: list[int | None] = _MISSING
    demand: list[float | None] = _MISSING
    planned: list[float | None] = _MISSING
    away: list[float | None] = _MISSING
    refused: list[float | None] = _MISSING
    use: list[float | None] = _MISSING
    most_use: list[float | None] = _MISSING
    price_ms: list[float | None] = _MISSING
    most_price_ms: list[float | None] = _MISSING
    exhausted: list[float | None] = _MISSING


class PlanHistoryView(Schema):
    """The plans of the past, minute by minute."""

    since: datetime
    until: datetime
    step_seconds: float
    times: list[float]
    """When steps with a recorded minute began, in POSIX seconds."""
    regions: list[RegionHistory]


class TopEdge(Schema):
    """An edge heard of within the last 10 seconds."""

    name: str
    age: float
    revision: int
    epoch: int


class TopSlots(Schema):
    """What a region's balancers say of their slots."""

    open: float
    """Free, less requests that wait."""
    counted: float
    """Those of them that edges and peers go by: no more than the policy's `capacity.outstanding` of the region, where it is stated."""
    limit: float
    waiting: float
    age: float
    """Seconds since the oldest of their reports that count."""


class TopRegion(Schema):
    """A region. Rates are in requests per second."""

    region: str
    country: str
    lat: float
    lon: float
    admin_state: AdminState
    managed_by: ManagedSchema | None
    """The tool that manages it; its admin state is operators' all the same."""
    health: HealthStatus
    freshness: Freshness
    """How old the region's last load report is."""
    report_age: float | None
    outstanding: float | None
    queue: float | None
    limit: float | None
    """Requests at once: the least of what is declared and reported."""
    usable: float | None
    """What of it new clients may use."""
    utilisation: float | None
    """Outstanding by limit."""
    requests_per_second: float | None
    """The requests a second that the region reports."""
    service_time_ms: float | None
    free_slots: TopSlots | None
    """Null: nothing is known. By these, edges correct the plan's choices of single requests."""
    demand: float
    """Requests per second of clients whose home the region is."""
    decided: float
    """The requests a second that edges send there."""
    planned: float
    price_ms: float
    exhausted: bool
    latency_p99_ms: float | None
    """Estimated, network and processing, of what is planned there."""
    measured: TookView | None
    """What requests took that ended there in the last one to two minutes, by the region's balancers; null: none of gtm's balancers tells of any."""


class TopSpill(Schema):
    """What goes to another region than home, in requests per second."""

    from_: str = Field(alias="from")
    to: str
    requests_per_second: float
    """The requests a second that edges' decisions send on this way."""
    planned: float
    quotas: list[str]
    """The rules that it counts against."""


class TopCorrection(Schema):
    """What edges send elsewhere than the plan chose, for want of a free slot there; in requests per second."""

    from_: str | None = Field(alias="from")
    """Null: the plan refused them."""
    to: str
    requests_per_second: float


class TopPush(Schema):
    """What found no slot at a region's balancer, in requests per second."""

    from_: str = Field(alias="from")
    to: str | None
    """The peer region that took it; null: it stayed."""
    why: str
    """`moved`: carried there; `redirected`: its client was sent there; `failed`: of those carried, what the peer did not take; else why it
    stayed."""
    requests_per_second: float
    quotas: list[str]
    """The rules that it counts against, where the region is its home."""


class TopRefusal(Schema):
    """Requests that are refused, by reason."""

    service: str
    outcome: str
    requests_per_second: float


class TopView(Schema):
    """Everything at a glance."""

    at: float
    """The time of the figures, in POSIX seconds."""
    revision: int
    database: str = Field(json_schema_extra={"enum": ["up", "down"]})
    plan: PlanFacts
    edges: list[TopEdge]
    requests_per_second: float
    """All demand that the plan knows."""
    latency_p99_ms: float | None
    """Estimated, network and processing, over all that is planned."""
    decisions: dict[str, float]
    """Per second by tier: `dns`, `lookup`, `redirect`, `carry`, `authorize`. A DNS answer is one, however many requests follow."""
    regions: list[TopRegion]
    spill: list[TopSpill]
    corrections: list[TopCorrection]
    """Those of single requests, by free slots; the largest first. They are among `spill` where they leave home."""
    pushes: list[TopPush]
    """What balancers sent on to peers for want of a slot, and what they kept and why; the largest first."""
    quotas: list[QuotaUse]
    refusals: list[TopRefusal]


@router.get("/plan")
async def get_plan(ctx: Ctx, _: Viewer) -> TypedResponse[PlanView]:
    """The last plan, and what it rests on.

    Made anew every second; answered from memory, also while the database is down.
    """
    moment = await moment_of(ctx.present, ctx.leading(), time())
    return reply(await asyncio.to_thread(plan_document, moment))


@router.get("/plan/history")
async def get_plan_history(
    ctx: Ctx,
    _: Viewer,
    since: Since = None,
    until: Until = None,
    region: OnlyRegion = None,
    column: Annotated[
        Column | None,
        Query(description="Only this of each step; left out: all, which is much of many regions."),
    ] = None,
) -> TypedResponse[PlanHistoryView]:
    """What the planner decided, by region and time.

    Recorded minute by minute, as long as demand is (`GTM_DEMAND_DAYS`), and joined to steps. Regions that were deleted since are among
    them.
    """
    begin, end = span_of(since, until)
    step = step_of(begin, end, MOST_STEPS)
    columns = COLUMNS if column is None else (column,)
    async with ctx.database.transaction() as transaction:
        found = await transaction.plans.steps(begin, end, step, region, columns)
    told = await asyncio.to_thread(_history, found)
    return reply({"since": begin, "until": end, "step_seconds": step.total_seconds(), **told})


def _history(found: Sequence[RegionSteps]) -> dict[str, Any]:
    """Columns by region, all as long as the times are: nothing where nothing was recorded."""
    times = sorted(set().union(*(one.starts for one in found)))
    regions = []
    for one in found:
        places = {start: place for place, start in enumerate(one.starts)}
        at = [places.get(start) for start in times]
        columns = {
            name: [None if place is None else column[place] for place in at]
            for name, column in one.columns.items()
        }
        regions.append({"region": one.region, "whole": one.whole, **columns})
    return {"times": times, "regions": regions}


@router.get("/top")
async def get_top(ctx: Ctx, _: Viewer) -> TypedResponse[TopView]:
    """Everything at a glance, for one poll a second.

    Regions, spillover, refusals, the plan; answered from memory, also while the database is down.
    """
    present, active = ctx.present, ctx.leading()
    moment = await moment_of(present, active, time())
    edges = active.reports.vantages.live()
    return reply(
        await asyncio.to_thread(
            top_document, moment, edges, database=present.database, managed=present.managed
        )
    )
