"""Residency: who may be served where and by which rule, what begins or ends, what rules that only watch would have refused."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from shlex import quote
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.responses import Response

from gtm.client.calls import Call
from gtm.client.generated import control_calls as calls
from gtm.client.objects import JsonObject
from gtm.dashboard.inside import ApiProblem, Inside
from gtm.dashboard.visits import Visit, page

if TYPE_CHECKING:
    from gtm.client import types

FILTERS = ("service", "client", "tenant", "data_class", "at")
PER_PAGE = 20
MOST_NAMES = 6
"""Names that a cell lists before it counts them."""
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@page("/residency")
async def _residency(visit: Visit) -> Response:
    """All of it; what cannot be asked so is told above the form."""
    chosen = {name: visit.query(name) for name in FILTERS}
    problem, status = None, 200
    try:
        seen = await _look(visit.api, _asked(chosen), visit.query("cursor"))
    except ApiProblem as found:
        if found.status >= 500:
            raise
        problem, status = found.document, found.status
        seen = await _look(visit.api, {}, None)
    tenants, data_classes = await asyncio.gather(
        _names(visit.api, calls.list_tenants(limit=100)),
        _names(visit.api, calls.list_data_classes(limit=100)),
    )
    here = {name: value for name, value in chosen.items() if value}
    matrix = seen["matrix"]
    following = urlencode({**here, "cursor": matrix.next_cursor}) if matrix.next_cursor else None
    return visit.render(
        "residency.html",
        status,
        **seen,
        problem=problem,
        chosen=chosen,
        tenants=tenants,
        data_classes=data_classes,
        rows=[matrix_row(one) for one in matrix.items_],
        following=following,
        first=urlencode(here) if visit.query("cursor") else None,
        then=lambda at: "/residency?" + urlencode({**here, "at": at}),
        until=_until,
        few=few,
        question=urlencode(_asked(chosen)),
        ask="".join(
            f" --{name.replace('_', '-')} {quote(value)}"
            for name, value in _asked(chosen).items()
            if name in ("tenant", "data_class", "at")
        ),
    )


def _asked(chosen: Mapping[str, str | None]) -> dict[str, Any]:
    """The form's fields as the API takes them. A day is its beginning in UTC; today, which has begun, is now."""
    asked = {name: value for name, value in chosen.items() if value}
    at = asked.get("at", "")
    if at == datetime.now(UTC).date().isoformat():
        del asked["at"]
    elif _DATE.fullmatch(at):
        asked["at"] = f"{at}T00:00:00Z"
    return asked


async def _look(api: Inside, asked: Mapping[str, Any], cursor: str | None) -> dict[str, Any]:
    stated = {name: asked[name] for name in ("tenant", "data_class", "at") if name in asked}
    matrix, calendar, watched, jurisdictions = await asyncio.gather(
        api.ask(calls.get_residency(**asked, limit=PER_PAGE, cursor=cursor)),
        api.get_residency_calendar(**stated),
        api.get_monitored_rules(),
        api.ask(calls.list_jurisdictions(limit=1000)),
    )
    decisions = [
        JsonObject(one, jurisdiction=each.name) for each in jurisdictions.items_ for one in each.decisions
    ]
    return {
        "matrix": matrix,
        "calendar": calendar,
        "watched": watched,
        "decisions": sorted(decisions, key=lambda one: (one.until or "9999", one.country)),
    }


async def _names(api: Inside, call: Call[Any]) -> list[str]:
    """The names on a page of a list."""
    return [one.name for one in (await api.ask(call)).items_]


def matrix_row(one: types.MatrixRow) -> JsonObject:
    """A service with its cells in words."""
    members = one.members
    cells = [[JsonObject(part, **_words(part.regions, members)) for part in cell] for cell in one.cells]
    return JsonObject(service=one.service, members=members, cells=cells)


def _words(regions: Sequence[str], members: Sequence[str]) -> dict[str, Any]:
    """Regions as people say them: all, all but a few, or some."""
    if not regions:
        return {"kind": "none", "named": []}
    outside = [name for name in members if name not in regions]
    if not outside:
        return {"kind": "all", "named": []}
    if len(regions) > MOST_NAMES and len(outside) <= MOST_NAMES:
        return {"kind": "all_but", "named": outside}
    return {"kind": "some", "named": regions}


def few(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """Some names, and how many more."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _until(at: str, now: float) -> str:
    """How long it is until then."""
    days = (datetime.fromisoformat(at).timestamp() - now) / 86_400
    if days >= 730:
        return f"in {days / 365.25:.0f} years"
    if days >= 2:
        return f"in {days:.0f} days"
    hours = 24 * days
    return f"in {hours:.0f} h" if hours >= 2 else f"in {max(0, 60 * hours):.0f} min"
