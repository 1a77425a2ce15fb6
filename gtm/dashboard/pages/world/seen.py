"""What the map is made from: answers of the API about now, or about a recorded minute, for the requests that are asked about."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from gtm.client.generated import control_calls as calls
from gtm.client.objects import JsonObject
from gtm.core.model.services import Priority
from gtm.dashboard.inside import ApiProblem, Inside
from gtm.dashboard.visits import Visit

if TYPE_CHECKING:
    from gtm.client import types

MOST_ROWS = 2000
"""Rows of demand that a map is made from, the largest first. Sums are of all."""
AROUND = timedelta(minutes=10)
"""How far from a moment changes of health are told of."""
MOST_CHANGES = 10
BY = ("service", "tenant", "data_class", "priority", "country")
"""What the map can be narrowed down by."""
_ZONED = re.compile(r"(?:[Zz]|[+-]\d\d:?\d\d)$")


@dataclass(frozen=True, slots=True)
class DemandFilter:
    """Which requests are shown; None: all. `country` is the clients', or a jurisdiction."""

    service: str | None = None
    tenant: str | None = None
    data_class: str | None = None
    priority: str | None = None
    country: str | None = None

    @classmethod
    def of(cls, visit: Visit) -> DemandFilter:
        """The filter that a page's address states."""
        return cls(**{name: visit.query(name) for name in BY})

    @property
    def asked(self) -> dict[str, Any]:
        """The filter as parameters of the API."""
        given = {"client" if name == "country" else name: getattr(self, name) for name in BY}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def given(self) -> dict[str, str]:
        """The filter as parameters of a page's address."""
        return {name: value for name in BY if (value := getattr(self, name)) is not None}

    @property
    def any(self) -> bool:
        """Whether anything is left out."""
        return bool(self.given)


NOTHING: Any = JsonObject(recorded=None, rate=0.0, served={}, refused={}, rows=(), left_out=0)
"""The demand of those whom nobody knows."""


@dataclass(frozen=True, slots=True)
class Now:
    """Answers of the API at one moment: `/v1/top`, `/v1/demand`, `/v1/status`. `problem` is why demand cannot be asked for so."""

    top: types.TopView
    demand: types.DemandView
    status: types.StatusView
    problem: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Then:
    """Demand of a recorded minute, and the regions of now by name. `at` is the moment asked about, as the address has it."""

    at: str
    demand: types.DemandView
    regions: Mapping[str, types.RegionNamed] = field(default_factory=dict)
    problem: Mapping[str, Any] | None = None
    changes: Sequence[Mapping[str, Any]] = ()
    """Of health, within `AROUND` of it; the newest first."""
    plans: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What was recorded of the plan of that minute: `use` and `price_ms` by region."""


async def now(api: Inside, chosen: DemandFilter) -> Now:
    """The world as it is now."""
    top, (demand, problem), status = await asyncio.gather(
        api.get_top(), _demand(api, chosen), api.get_status()
    )
    return Now(top, demand, status, problem)


async def then(api: Inside, chosen: DemandFilter, at: str) -> Then:
    """What was recorded. `at` without a zone is UTC."""
    zoned = at if _ZONED.search(at) else f"{at}Z"
    names, (demand, problem), changes = await asyncio.gather(
        api.list_names(limit=1000), _demand(api, chosen, at=zoned), _changes(api, at)
    )
    plans = await _plans(api, demand.recorded)
    return Then(at, demand, {one.name: one for one in names.regions}, problem, changes, plans)


async def _plans(api: Inside, recorded: types.RecordedMinute | None) -> Mapping[str, Mapping[str, Any]]:
    """What the planner recorded of a minute; nothing, where it did not."""
    if recorded is None:
        return {}
    start = datetime.fromtimestamp(recorded.start, UTC)
    until = start + timedelta(seconds=recorded.seconds)
    found = await api.ask_if_told(calls.get_plan_history(since=start, until=until, column="minutes"))
    return {one.region: one.whole for one in found.regions} if found else {}


async def _changes(api: Inside, at: str) -> Sequence[Mapping[str, Any]]:
    """Verdicts of all edges together that changed around a moment; none, if that cannot be told."""
    moment = as_time(at)
    if moment is None or not 2000 < moment.year < 3000:
        return ()
    since, until = moment - AROUND, moment + AROUND
    found = await api.ask_if_told(
        calls.list_health_changes(vantage="*", since=since, until=until, limit=MOST_CHANGES)
    )
    return found.items_ if found else ()


async def _demand(
    api: Inside, chosen: DemandFilter, **more: Any
) -> tuple[types.DemandView, Mapping[str, Any] | None]:
    """The demand of those; none of such as the API does not know, or has no record of, and why."""
    try:
        return await api.get_demand(limit=MOST_ROWS, **chosen.asked, **more), None
    except ApiProblem as problem:
        if not more and problem.status >= 500:
            raise
        return NOTHING, problem.document


async def jurisdictions(api: Inside) -> Sequence[str]:
    """Those of several countries; none, while the database is away."""
    found = await api.ask_if_told(calls.list_jurisdictions(limit=1000))
    return sorted(one.name for one in found.items_ if one.origin != "country") if found else ()


def choices(demand: types.DemandView) -> Mapping[str, list[str]]:
    """What there is to filter by, of what is asked for."""
    cells = [row.cell for row in demand.rows]
    found = {name: sorted({cell[name] for cell in cells if cell[name]}) for name in BY}
    return {**found, "priority": [one.value for one in Priority]}


def as_time(text: str) -> datetime | None:
    """A moment as an address has it, in UTC; None if it is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    try:
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except OverflowError:
        return None


# The line of time below the map: how much was recorded when, for a slider to run over.

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
        found = await api.get_demand_timeline(since=since, until=until)
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
