"""Demand, now and as recorded: its rows narrowed down, summed up, and the largest of them one by one."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from heapq import nlargest
from operator import itemgetter
from typing import Annotated, Any

from fastapi import Query

from gtm.api.context import Context, Ctx, Viewer, reply
from gtm.api.query import (
    OnlyRegion,
    OnlyService,
    Since,
    TypedResponse,
    Until,
    span_of,
    step_of,
    strict_router,
)
from gtm.api.schemas.base import errors
from gtm.api.schemas.traffic import AnswersView, DemandView, RecordedView, TimelineView
from gtm.control.errors import NotFound
from gtm.control.lead.demand import PerAnswer, requests_of
from gtm.control.policy import traffic
from gtm.core.demand.cells import Cell
from gtm.core.demand.rows import ClassKey, Row
from gtm.core.demand.traffic import MINUTE
from gtm.core.model.services import Priority
from gtm.core.policy.jurisdictions import countries_at
from gtm.documents import fields
from gtm.storage.history.demand import AnsweredStep, DemandStep, MinuteSums, WantedDemand

_KNOWN = 65_536
"""Cells that are read once: as many as the rows of one edge."""


_Told = tuple[Row, float | None, float]
"""A row, its rate as edges count, and the requests per second that it stands for."""


class Which(WantedDemand):
    """The rows that are asked for, of those of now."""

    def of(self, rates: Mapping[Row, float]) -> Iterator[tuple[Row, float]]:
        """Those rows."""
        stated = {
            name: value
            for name in ("tenant", "data_class", "priority")
            if (value := getattr(self, name)) is not None
        }
        looks_inside = bool(stated) or self.countries is not None
        for row, rate in rates.items():
            if (self.region is None or row.region == self.region) and (
                self.service is None or row.service == self.service
            ):
                if looks_inside and not self._holds(row, stated):
                    continue
                yield row, rate

    def _holds(self, row: Row, stated: Mapping[str, Any]) -> bool:
        cell = cell_of_text(row.cell)
        return (
            cell is not None
            and all(getattr(cell, name) == value for name, value in stated.items())
            and (self.countries is None or cell.country in self.countries)
        )


@lru_cache(_KNOWN)
def cell_of_text(text: str) -> Cell | None:
    """A cell; None if it is damaged."""
    try:
        return Cell.parse(text)
    except ValueError:
        return None


@lru_cache(_KNOWN)
def _preferred(ranking_class: str) -> str | None:
    try:
        order = ClassKey.parse(ranking_class).order
    except ValueError:
        return None
    return order[0] if order else None


def demand_now(rates: Mapping[Row, float], per_answer: PerAnswer, which: Which, limit: int) -> dict[str, Any]:
    """What is asked for now, as `DemandView` without its times.

    Args:
        rates: requests or DNS answers per second of each row.
        per_answer: how many requests a DNS answer stands for.
        which: rows are wanted.
        limit: how many of them are told apart at most, those first that edges count most of.
    """
    found = [(row, rate, requests_of(row, rate, per_answer)) for row, rate in which.of(rates)]
    served: dict[str, float] = defaultdict(float)
    refused: dict[str, float] = defaultdict(float)
    for row, _, requests in found:
        if row.region:
            served[row.region] += requests
        else:
            refused[row.outcome] += requests
    largest = nlargest(limit, found, key=itemgetter(1))
    return _document(served, refused, largest, len(found))


def demand_then(found: MinuteSums) -> dict[str, Any]:
    """The same of a recorded minute: per second of those that somebody watched."""
    seconds = found.seconds
    served: dict[str, float] = defaultdict(float)
    refused: dict[str, float] = defaultdict(float)
    for (region, outcome), count in found.sums.items():
        if region:
            served[region] += count / seconds
        else:
            refused[outcome] += count / seconds
    rows = [(row, None, count / seconds) for row, count in found.rows.items()]
    return _document(served, refused, rows, found.number)


def _document(
    served: Mapping[str, float], refused: Mapping[str, float], rows: Sequence[_Told], number: int
) -> dict[str, Any]:
    return {
        "rate": sum(served.values()) + sum(refused.values()),
        "served": served,
        "refused": refused,
        "rows": list(_told(rows)),
        "left_out": max(0, number - len(rows)),
    }


def _told(rows: Iterable[_Told]) -> Iterator[dict[str, Any]]:
    """Rows as `DemandRow`; those whose cell is damaged are left out."""
    for row, rate, requests in rows:
        cell = cell_of_text(row.cell)
        if cell is not None:
            yield {
                "region": row.region or None,
                "outcome": row.outcome,
                "via": row.via,
                "ranking_class": row.ranking_class,
                "preferred": _preferred(row.ranking_class),
                "cell": cell,
                "rate": rate,
                "requests_per_second": requests,
            }


router = strict_router(prefix="/v1", tags=["demand"])

_MOST_STEPS = 300
_MOST_ANSWER_STEPS = 60
_MOST_SERIES = 500
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
    service: OnlyService = None,
    tenant: Annotated[fields.Name | None, Query(description="Only requests that state this tenant.")] = None,
    data_class: Annotated[
        fields.Name | None, Query(description="Only requests that state this data class.")
    ] = None,
    priority: Annotated[Priority | None, Query(description="Only requests of this priority.")] = None,
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
    since: Since = None,
    until: Until = None,
) -> TypedResponse[TimelineView]:
    """How many requests were recorded, step by step.

    In as many steps of 1, 5, 15 or 60 minutes, 6 hours, a day or a week as 300 are enough for.
    """
    begin, end = span_of(since, until)
    step = step_of(begin, end, _MOST_STEPS)
    async with ctx.database.transaction() as transaction:
        items = await transaction.demand.timeline(begin, end, step)
    return reply({"since": begin, "until": end, "step": step.total_seconds(), "items": items})


@router.get("/demand/answers")
async def get_demand_answers(
    ctx: Ctx,
    _: Viewer,
    since: Since = None,
    until: Until = None,
    service: OnlyService = None,
) -> TypedResponse[AnswersView]:
    """How requests were answered, step by step: by the tier that answered, region and outcome.

    Recorded minute by minute (`GTM_DEMAND_DAYS`), joined to at most 61 steps. A DNS answer counts as the requests that it stands for.
    """
    begin, end = span_of(since, until)
    step = step_of(begin, end, _MOST_ANSWER_STEPS)
    async with ctx.database.transaction() as transaction:
        watched = await transaction.demand.timeline(begin, end, step)
        found = await transaction.demand.answered(begin, end, step, service)
    told = await asyncio.to_thread(_answers, watched, found)
    return reply({"since": begin, "until": end, "step_seconds": step.total_seconds(), **told})


def _answers(watched: Sequence[DemandStep], found: Sequence[AnsweredStep]) -> dict[str, Any]:
    times = [one.start for one in watched if one.seconds > 0]
    places = {start: place for place, start in enumerate(times)}
    seconds = {one.start: one.seconds for one in watched}
    rates: dict[tuple[str, str, str, str], list[float]] = {}
    requests: dict[tuple[str, str, str, str], float] = defaultdict(float)
    for one in found:
        if one.start in places:
            key = one.service, one.via, one.region, one.outcome
            requests[key] += one.requests
            rates.setdefault(key, [0.0] * len(times))[places[one.start]] += one.requests / seconds[one.start]
    largest = nlargest(_MOST_SERIES, requests.items(), key=itemgetter(1))
    series = [
        {
            "service": service,
            "via": via,
            "region": region or None,
            "outcome": outcome,
            "requests": count,
            "rates": rates[service, via, region, outcome],
        }
        for (service, via, region, outcome), count in largest
    ]
    moments = [start.timestamp() for start in times]
    return {"times": moments, "series": series, "left_out": len(requests) - len(series)}


@router.get("/demand/recorded", responses=errors(404))
async def get_recorded_demand(
    ctx: Ctx,
    _: Viewer,
    since: Since = None,
    until: Until = None,
) -> TypedResponse[RecordedView]:
    """Recorded demand by demand cell, with its peak and a timeline.

    Minutes that were not recorded count as no time, not as idle.
    """
    begin, end = span_of(since, until)
    step = step_of(begin, end, _MOST_STEPS)
    found = await traffic.recorded(ctx.database, begin, end)
    async with ctx.database.transaction() as transaction:
        timeline = await transaction.demand.timeline(begin, end, step)
    # Beside the event loop: tens of thousands of cells take a while.
    return await asyncio.to_thread(lambda: reply({**traffic.traffic_json(found), "timeline": timeline}))
