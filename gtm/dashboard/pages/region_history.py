"""What probes said of a region lately, as strips of time and in words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from gtm.dashboard.inside import Inside

if TYPE_CHECKING:
    from gtm.client import types

SPANS = {"hour": timedelta(hours=1), "day": timedelta(hours=24)}
"""What can be looked at: the last hour, the last day."""
MOST_SERIES = 40
MOST_CHANGES = 20
WIDTH = 1000.0
"""Of a strip, in units of its drawing."""


async def history(api: Inside, region: str, span: str, cursor: str | None, now: datetime) -> dict[str, Any]:
    """What the page shows: a strip of each series, and changes in words.

    Args:
        api: asked for whoever looks.
        region: its name.
        span: one of `SPANS`.
        cursor: of the changes, to go on behind; None: the newest.
        now: the end of the strips.
    """
    since = now - SPANS[span]
    steps, changes = await asyncio.gather(
        api.get(
            "/v1/health/steps",
            region=region,
            since=since.isoformat(),
            until=now.isoformat(),
            limit=MOST_SERIES,
        ),
        api.get("/v1/health/changes", region=region, limit=MOST_CHANGES, cursor=cursor),
    )
    begins = _time(steps.since)
    return {
        "span": span,
        "since": begins,
        "until": now,
        "complete": steps.complete and changes.complete,
        "series": [strip(one, begins, now, steps.step_seconds) for one in steps.items_],
        "more": steps.next_cursor is not None,
        "changes": changes.items_,
        "older": changes.next_cursor,
    }


def strip(series: types.SeriesView, since: datetime, until: datetime, step_seconds: float) -> dict[str, Any]:
    """A series as it is drawn: `pieces` of time that were alike, and what they come to."""
    steps = series.steps
    told = [one.probes for one in steps if one.probes is not None]
    slowest = [one.p99_ms for one in steps if one.p99_ms is not None]
    return {
        "endpoint": series.endpoint,
        "vantage": series.vantage,
        "pieces": list(_pieces(steps, since, until, timedelta(seconds=step_seconds))),
        "probes": sum(told) if told else None,
        "failed": sum(one.failed for one in steps),
        "p99_ms": max(slowest, default=None),
        "changes": sum(one.changes for one in steps),
    }


def kind_of(step: types.StepView) -> str:
    """How a step is drawn: `bad` if the verdict was down in it, `warn` if probes failed, else `good`."""
    if step.worst == "down":
        return "bad"
    return "warn" if step.failed else "good"


def _pieces(
    steps: Sequence[types.StepView], since: datetime, until: datetime, size: timedelta
) -> Iterator[dict[str, Any]]:
    """Steps that follow each other and are alike, as one; where nothing was heard there is none."""
    whole = (until - since).total_seconds()
    alike: list[types.StepView] = []
    for step in (*steps, None):
        if alike and (step is None or _parts(alike[-1], step, size)):
            begins, ends = _time(alike[0].start), min(until, _time(alike[-1].start) + size)
            yield {
                "kind": kind_of(alike[0]),
                "x": round(WIDTH * (begins - since).total_seconds() / whole, 2),
                "width": round(WIDTH * (ends - begins).total_seconds() / whole, 2),
                "words": _words(alike, begins, ends),
            }
            alike = []
        if step is not None:
            alike.append(step)


def _parts(one: types.StepView, other: types.StepView, size: timedelta) -> bool:
    """Whether a step begins a new piece: it is not like the one before, or time is missing between them."""
    return kind_of(one) != kind_of(other) or _time(other.start) - _time(one.start) != size


def _words(alike: Sequence[types.StepView], begins: datetime, ends: datetime) -> str:
    """A piece in words."""
    kind = kind_of(alike[0])
    state = {"bad": "down for a time", "warn": "up, but probes failed", "good": "up"}[kind]
    told = [one.probes for one in alike if one.probes is not None]
    probes = f"; {sum(one.failed for one in alike)} of {sum(told)} probes failed" if told else ""
    detail = next((one.detail for one in reversed(alike) if one.detail), "")
    return f"{begins:%H:%M}–{ends:%H:%M} UTC: {state}{probes}{f'; last: {detail}' if detail else ''}"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
