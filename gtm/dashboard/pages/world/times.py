"""The line of time below the map: how much was recorded when, for a slider to run over."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from gtm.dashboard.inside import ApiProblem, Inside
from gtm.dashboard.pages.world.seen import as_time

if TYPE_CHECKING:
    from gtm.client import types

SPANS = {"1h": timedelta(hours=1), "24h": timedelta(hours=24), "7d": timedelta(days=7)}
"""How much of the past the line shows → in the address."""
_SPAN = "24h"
_HEIGHT = 100
_CHUNK = timedelta(hours=1)
"""What times of a line begin at a multiple of, so that steps do."""


@dataclass(frozen=True, slots=True)
class Line:
    """`count` steps of `step` seconds from `since` on; `bars` are recorded demand as a path of SVG, `count` by 100. `at` is the step that is shown; None: now."""

    span: str
    since: datetime
    step: int
    count: int
    bars: str
    most: float
    recorded: int
    at: int | None
    problem: Mapping[str, Any] | None = None

    @property
    def first(self) -> str:
        """As a field of time takes it."""
        return self.since.strftime("%Y-%m-%dT%H:%M")

    @property
    def shown(self) -> str:
        """The step that is shown, likewise; the last one, if that is now."""
        steps = self.count if self.at is None else self.at
        return (self.since + timedelta(seconds=self.step * steps)).strftime("%Y-%m-%dT%H:%M")

    @property
    def last(self) -> str:
        """The time at which the line ends, as fields of forms have it."""
        return (self.since + timedelta(seconds=self.step * self.count)).strftime("%Y-%m-%dT%H:%M")


async def line(api: Inside, span: str | None, at: str | None) -> Line:
    """The last hour, day or week; if the moment shown lies before it, as much time around that."""
    name = span if span in SPANS else _SPAN
    now = datetime.fromtimestamp(time.time(), UTC)
    shown = None if at is None else as_time(at)
    since, until = now - SPANS[name], now
    if shown is not None and shown < since and shown.year > 2000:
        since, until = shown - SPANS[name] / 2, shown + SPANS[name] / 2
    since -= timedelta(seconds=since.timestamp() % (_CHUNK.total_seconds() if name != "1h" else 60))
    problem: Mapping[str, Any] | None = None
    items: Sequence[types.StepSchema] = ()
    step = 60.0
    try:
        found = await api.get("/v1/demand/timeline", since=since.isoformat(), until=until.isoformat())
        items, step = found.items_, found.step
    except ApiProblem as refused:
        problem = refused.document
    count = max(1, round((until - since).total_seconds() / step))
    places = {
        round((datetime.fromisoformat(one.start) - since).total_seconds() / step): one.requests / one.seconds
        for one in items
    }
    most = max(places.values(), default=0.0)
    return Line(
        span=name,
        since=since,
        step=round(step),
        count=count,
        bars="".join(_bar(place, rate, most) for place, rate in sorted(places.items())),
        most=most,
        recorded=sum(one.minutes for one in items),
        at=None if shown is None else min(count, max(0, int((shown - since).total_seconds() // step))),
        problem=problem,
    )


def _bar(place: int, rate: float, most: float) -> str:
    """No bar is lower than can be seen: a recorded step without requests is no gap."""
    height = max(4.0, _HEIGHT * rate / most) if most else 4.0
    return f"M{place} {_HEIGHT}V{_HEIGHT - height:.1f}h1V{_HEIGHT}z"
