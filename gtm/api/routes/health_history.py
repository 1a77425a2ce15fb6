"""What probes said lately: verdicts that changed, and how probes ended, five minutes by five minutes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import Query

from gtm.api.context import Context, Ctx, Viewer, reply
from gtm.api.paging import Cursor, Limit, decode_cursor, decode_number, encode_cursor
from gtm.api.query import (
    OnlyRegion,
    TypedResponse,
    Until,
    strict_router,
)
from gtm.api.schemas.base import Page, Schema, errors, picked
from gtm.control.errors import BadRequest, NotFound
from gtm.control.lead.history import health as health_history
from gtm.control.lead.history.health import HealthRecorder
from gtm.core.health.history import STEP, TOGETHER, HistorySeries, HistoryStep, VerdictChange
from gtm.core.model.state import HealthStatus
from gtm.documents import fields
from gtm.storage.history.health import WantedChanges

router = strict_router(prefix="/v1", tags=["health"])

LONGEST = timedelta(days=1)
"""The longest time that one answer has steps of."""
_EARLIEST, _LATEST = datetime(2000, 1, 2, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC)
_ALL = "*"
"""The vantage, in requests, of what all edges say together: no edge has such a name."""


class ChangeView(Schema):
    """A verdict that became another."""

    at: datetime
    """When control heard of it, by its clock: the order of what edges with wrong clocks say."""
    region: str
    endpoint: str
    vantage: str | None
    """The edge whose verdict it is; null: that of all together."""
    before: HealthStatus
    """`unknown`: it is the first that is known."""
    after: HealthStatus
    detail: str
    """What the probe met that failed, in words; empty: it answered as it should."""
    status: int | None
    """HTTP's, of the probe that decided it, where there was one."""
    latency_ms: float | None
    """What that probe took, where there was a whole exchange."""
    edge_at: datetime | None
    """When it was by the edge's own clock, but not later than `at`; null: that of all together."""


class ChangePage(Page[ChangeView]):
    """Changes, the newest first."""

    complete: bool
    """False: the database is away, and what is older than an hour is missing."""


class StepView(Schema, of=HistoryStep):
    """What was heard of a series in the five minutes from `start` on."""

    start: datetime


class SeriesView(Schema):
    """An endpoint as one vantage sees it."""

    endpoint: str
    vantage: str | None
    """An edge; null: all together."""
    steps: list[StepView]
    """The oldest first. Time in which nothing was heard has none."""


class StepsPage(Page[SeriesView]):
    """Series by endpoint, that of all together first."""

    since: datetime
    until: datetime
    step_seconds: float
    complete: bool
    """False: the database is away, and what control has not heard within the last hour is missing."""


_Endpoint = Annotated[
    str | None,
    Query(max_length=2000, pattern=fields.LINE_PATTERN, description="Only the endpoint of this URL."),
]
_Vantage = Annotated[
    str | None,
    Query(max_length=253, pattern=fields.LINE_PATTERN, description="Only this edge; `*`: all together."),
]
_Since = Annotated[fields.Moment | None, Query(description="From then on.")]


@router.get("/health/changes")
async def list_health_changes(
    ctx: Ctx,
    _: Viewer,
    *,
    region: OnlyRegion = None,
    endpoint: _Endpoint = None,
    vantage: _Vantage = None,
    since: _Since = None,
    until: Until = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> TypedResponse[ChangePage]:
    """Verdicts that changed, the newest first.

    There are changes of each edge and of all edges together, with what the probe met. They are kept for as long as control is told to.
    """
    wanted = WantedChanges(region, endpoint, _vantage(vantage), _number(since), _number(until))
    found, complete = await health_history.changes(
        ctx.database, _recorder(ctx), wanted, decode_number(cursor), limit + 1
    )
    more = encode_cursor(str(found[limit - 1].number)) if len(found) > limit else None
    return reply(
        {"items": [_change(one) for one in found[:limit]], "next_cursor": more, "complete": complete}
    )


@router.get("/health/steps", responses=errors(404))
async def list_health_steps(
    ctx: Ctx,
    _: Viewer,
    *,
    region: Annotated[fields.Name, Query(description="The region.")],
    endpoint: _Endpoint = None,
    vantage: _Vantage = None,
    since: Annotated[
        fields.Moment | None, Query(description="From then on; left out: an hour before `until`.")
    ] = None,
    until: Until = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> TypedResponse[StepsPage]:
    """How a region's probes ended, five minutes by five minutes.

    The answer has each endpoint as every edge sees it, over at most a day. Times are control's.
    """
    ends = until or datetime.now(UTC)
    if not _EARLIEST < ends < _LATEST:
        raise BadRequest("`until` must be a moment of the years 2000 to 2999")
    begins = since or ends - timedelta(hours=1)
    if not timedelta(0) < ends - begins <= LONGEST:
        raise BadRequest(
            "`since` must be before `until`, and by no more than 24 hours: ask for one day after the other"
        )
    if region not in {one.name for one in ctx.present.policy.regions}:
        raise NotFound(f"there is no region `{region}`")
    after = _after(cursor)
    first = begins.timestamp() // STEP * STEP  # the step that `since` is in, too
    found = await health_history.steps(ctx.database, _recorder(ctx), region, first, ends.timestamp())
    fitting = [
        (series, steps)
        for series, steps in found.series.items()
        if endpoint in (None, series.url)
        and _vantage(vantage) in (None, series.vantage)
        and (after is None or (series.url, series.vantage) > after)
    ]
    last = fitting[limit - 1][0] if len(fitting) > limit else None
    return reply(
        {
            "items": [_series(*one) for one in fitting[:limit]],
            "next_cursor": encode_cursor(f"{last.url}\n{last.vantage}") if last else None,
            "since": datetime.fromtimestamp(first, UTC),
            "until": ends,
            "step_seconds": STEP,
            "complete": found.complete,
        }
    )


def _recorder(ctx: Context) -> HealthRecorder | None:
    """That of the active control; a standby answers by what is written down alone."""
    active = ctx.replica.active
    return None if active is None else active.health_recorder


def _vantage(asked: str | None) -> str | None:
    return TOGETHER if asked == _ALL else asked


def _number(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1e6)


def _after(cursor: str | None) -> tuple[str, str] | None:
    """The endpoint and vantage that a cursor stands behind."""
    last = decode_cursor(cursor)
    if last is None:
        return None
    url, _, vantage = last.partition("\n")
    return url, vantage


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _change(one: VerdictChange) -> dict[str, Any]:
    return picked(
        ChangeView,
        one,
        at=_time(one.at),
        region=one.series.region,
        endpoint=one.series.url,
        vantage=one.series.vantage or None,
        latency_ms=one.ms,
        edge_at=None if one.edge_at is None else _time(one.edge_at),
    )


def _series(series: HistorySeries, steps: list[HistoryStep]) -> dict[str, Any]:
    return {
        "endpoint": series.url,
        "vantage": series.vantage or None,
        "steps": [picked(StepView, step, start=_time(step.start)) for step in steps],
    }
