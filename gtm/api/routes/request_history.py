"""What requests took, and where they were sent instead of home, as recorded minute by minute."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from heapq import nlargest
from operator import itemgetter
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field

from gtm.api.context import Ctx, Viewer, reply
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
from gtm.api.schemas.base import Schema
from gtm.control.overview import took_facts
from gtm.core.capacity.durations import Took
from gtm.core.model.services import PLANNED
from gtm.storage.history.demand import DemandStep, SentAwayStep
from gtm.storage.history.requests import PushedStep, TookStep

router = strict_router(prefix="/v1/demand", tags=["demand"])

MOST_STEPS = 170
"""Of requests' times: a day in quarters of an hour, a week in hours."""
_MOST_SPILLOVER_STEPS = 60
"""Of a day in hours, that are added up."""
MOST_SERIES = 100


class TookView(Schema):
    """What requests took, from when their heads had come: half of them took no longer than a p50, 99 of 100 no longer than a p99. Null: there was none."""

    requests: int
    first_byte_p50_ms: float | None
    """Half of the answers with a body had its first byte, a stream's first token, by then."""
    first_byte_p99_ms: float | None
    p50_ms: float | None
    """Half of them had ended by then."""
    p99_ms: float | None


_NONE: dict[str, None] = dict.fromkeys(TookView.model_fields)


class TookSeries(Schema):
    """What requests took that a region served for a service; columns as long as `times`, null: no request ended then."""

    region: str
    service: str
    model: str | None
    """Empty: they named none; `other`: all that nobody has declared. Null: models are not told apart."""
    whole: TookView
    """Over all of the time, from the sums of what was counted."""
    requests: list[int | None]
    first_byte_p50_ms: list[float | None]
    first_byte_p99_ms: list[float | None]
    p50_ms: list[float | None]
    p99_ms: list[float | None]


class RequestTimesView(Schema):
    """What requests took, step by step."""

    since: datetime
    until: datetime
    step_seconds: float
    times: list[float]
    """The beginnings of steps in which requests ended, in POSIX seconds."""
    series: list[TookSeries]
    """Those with most requests first."""
    left_out: int
    """Series with fewer requests that are not told."""


class SpilloverSeries(Schema):
    """Requests of a service that did not stay at home."""

    service: str
    from_: str = Field(alias="from")
    to: str
    by: Literal["edges", "balancers"]
    """Who sent them: edges, away from the region that their class likes best; or balancers of that region, for want of a slot."""
    requests: float
    """How many the whole time had."""
    rates: list[float]
    """Per second of the time that was watched, step by step, as `times` are."""


class SpilloverView(Schema):
    """What went from region to region, step by step."""

    since: datetime
    until: datetime
    step_seconds: float
    times: list[float]
    """The beginnings of steps of which a minute was recorded, in POSIX seconds."""
    series: list[SpilloverSeries]
    """Those with most requests first."""
    left_out: int
    """Series with fewer requests that are not told."""


@router.get("/times")
async def get_request_times(
    *,
    ctx: Ctx,
    _: Viewer,
    since: Since = None,
    until: Until = None,
    region: OnlyRegion = None,
    service: OnlyService = None,
    models: Annotated[bool, Query(description="Tell models apart.")] = False,
) -> TypedResponse[RequestTimesView]:
    """What requests took at regions' model servers, by region, service and time.

    Counted by gtm's balancers, in the region that served them; recorded minute by minute as long as demand is (`GTM_DEMAND_DAYS`), and joined
    to 171 steps at the most. Percentiles are read from counts in buckets that grow by an eighth at the most.
    """
    begin, end = span_of(since, until)
    step = step_of(begin, end, MOST_STEPS)
    async with ctx.database.transaction() as transaction:
        found = await transaction.requests.took(
            begin, end, step, region=region, service=service, by_model=models
        )
    told = await asyncio.to_thread(_times, found, models=models)
    return reply({"since": begin, "until": end, "step_seconds": step.total_seconds(), **told})


@router.get("/spillover")
async def get_spillover(
    ctx: Ctx, _: Viewer, since: Since = None, until: Until = None, service: OnlyService = None
) -> TypedResponse[SpilloverView]:
    """What went from region to region, by service and time, as it was counted.

    By edges: requests that they sent elsewhere than to the region that their class likes best, usable or not, of services that are steered by
    latency or place; a DNS answer counts as the requests that it stands for. By balancers: requests that found no slot, and that a peer region took.
    Recorded minute by minute (`GTM_DEMAND_DAYS`), joined to at most 61 steps.
    """
    begin, end = span_of(since, until)
    step = step_of(begin, end, _MOST_SPILLOVER_STEPS)
    async with ctx.database.transaction() as transaction:
        watched = await transaction.demand.timeline(begin, end, step)
        sent = await transaction.demand.sent_away(begin, end, step, service)
        pushed = await transaction.requests.pushed(begin, end, step, service)
    # Where else than home the operator's own order or weights send requests is no spillover.
    others = {one.name for one in ctx.present.policy.services if one.steering not in PLANNED}
    told = await asyncio.to_thread(
        _spillover, watched, [one for one in sent if one.service not in others], pushed
    )
    return reply({"since": begin, "until": end, "step_seconds": step.total_seconds(), **told})


def _times(found: Sequence[TookStep], *, models: bool) -> dict[str, Any]:
    times = sorted({one.start for one in found})
    steps: dict[tuple[str, str, str], dict[datetime, Took]] = defaultdict(dict)
    wholes: dict[tuple[str, str, str], Took] = defaultdict(Took)
    for one in found:
        key = one.region, one.service, one.model
        steps[key][one.start] = one.took
        wholes[key].add(one.took.first_bytes, one.took.ends)
    largest = nlargest(MOST_SERIES, wholes, key=lambda key: sum(wholes[key].ends.values()))
    series = []
    for key in largest:
        region, service, model = key
        told = [took_facts(steps[key].get(start)) or _NONE for start in times]
        series.append(
            {
                "region": region,
                "service": service,
                "model": model if models else None,
                "whole": took_facts(wholes[key]),
                **{name: [one[name] for one in told] for name in TookView.model_fields},
            }
        )
    return {
        "times": [start.timestamp() for start in times],
        "series": series,
        "left_out": len(wholes) - len(series),
    }


def _spillover(
    watched: Iterable[DemandStep], sent: Iterable[SentAwayStep], pushed: Iterable[PushedStep]
) -> dict[str, Any]:
    seconds = {one.start: one.seconds for one in watched if one.seconds > 0}
    places = {start: place for place, start in enumerate(seconds)}
    counts: dict[tuple[str, str, str, str], list[float]] = defaultdict(lambda: [0.0] * len(places))
    for away in sent:
        if away.start in places:
            counts[away.service, away.home, away.region, "edges"][places[away.start]] += away.requests
    for push in pushed:
        if (
            push.start in places
        ):  # what a peer failed to take is told when it failed, which may be a minute later
            counts[push.service, push.region, push.peer, "balancers"][places[push.start]] += push.requests
    lengths = [*seconds.values()]
    rows = [
        {
            "service": service,
            "from": home,
            "to": region,
            "by": by,
            "requests": max(0.0, sum(values)),
            "rates": [max(0.0, value) / length for value, length in zip(values, lengths, strict=True)],
        }
        for (service, home, region, by), values in counts.items()
    ]
    series = nlargest(MOST_SERIES, rows, key=itemgetter("requests"))
    return {
        "times": [start.timestamp() for start in seconds],
        "series": series,
        "left_out": len(rows) - len(series),
    }
