"""What the map is made from: answers of the API about now, or about a recorded minute, for the requests that are asked about."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

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
class Filter:
    """Which requests are shown; None: all. `country` is the clients', or a jurisdiction."""

    service: str | None = None
    tenant: str | None = None
    data_class: str | None = None
    priority: str | None = None
    country: str | None = None

    @classmethod
    def of(cls, visit: Visit) -> Filter:
        """The filter that a page's address states."""
        return cls(**{name: visit.query(name) for name in BY})

    @property
    def asked(self) -> dict[str, str]:
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


async def now(api: Inside, chosen: Filter) -> Now:
    """The world as it is now."""
    top, (demand, problem), status = await asyncio.gather(
        api.get("/v1/top"), _demand(api, chosen), api.get("/v1/status")
    )
    return Now(top, demand, status, problem)


async def then(api: Inside, chosen: Filter, at: str) -> Then:
    """What was recorded. `at` without a zone is UTC."""
    zoned = at if _ZONED.search(at) else f"{at}Z"
    names, (demand, problem), changes = await asyncio.gather(
        api.get("/v1/names", limit=1000), _demand(api, chosen, at=zoned), _changes(api, at)
    )
    plans = await _plans(api, demand.recorded)
    return Then(at, demand, {one.name: one for one in names.regions}, problem, changes, plans)


async def _plans(api: Inside, recorded: types.RecordedMinute | None) -> Mapping[str, Mapping[str, Any]]:
    """What the planner recorded of a minute; nothing, where it did not."""
    if recorded is None:
        return {}
    start = datetime.fromtimestamp(recorded.start, UTC)
    until = start + timedelta(seconds=recorded.seconds)
    try:
        found = await api.get(
            "/v1/plan/history", since=start.isoformat(), until=until.isoformat(), column="minutes"
        )
    except ApiProblem:
        return {}
    return {one.region: one.whole for one in found.regions}


async def _changes(api: Inside, at: str) -> Sequence[Mapping[str, Any]]:
    """Verdicts of all edges together that changed around a moment; none, if that cannot be told."""
    moment = as_time(at)
    if moment is None or not 2000 < moment.year < 3000:
        return ()
    since, until = (moment - AROUND).isoformat(), (moment + AROUND).isoformat()
    try:
        found = await api.get("/v1/health/changes", vantage="*", since=since, until=until, limit=MOST_CHANGES)
    except ApiProblem:
        return ()
    items: Sequence[Mapping[str, Any]] = found.items_
    return items


async def _demand(
    api: Inside, chosen: Filter, **more: str
) -> tuple[types.DemandView, Mapping[str, Any] | None]:
    """The demand of those; none of such as the API does not know, or has no record of, and why."""
    try:
        return await api.get("/v1/demand", limit=MOST_ROWS, **chosen.asked, **more), None
    except ApiProblem as problem:
        if not more and problem.status >= 500:
            raise
        return NOTHING, problem.document


async def jurisdictions(api: Inside) -> Sequence[str]:
    """Those of several countries; none, while the database is away."""
    try:
        found = await api.get("/v1/jurisdictions", limit=1000)
    except ApiProblem:
        return ()
    return sorted(one.name for one in found.items_ if one.origin != "country")


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
