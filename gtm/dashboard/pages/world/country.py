"""A country: what its clients ask for and where they are served, which rules concern them, and what its law is a part of."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.responses import Response

from gtm.client.generated import control_calls as calls
from gtm.client.objects import JsonObject
from gtm.core.model.countries import COUNTRIES
from gtm.dashboard.inside import Inside
from gtm.dashboard.pages.residency import few, matrix_row
from gtm.dashboard.pages.world.scene import largest, summed
from gtm.dashboard.pages.world.seen import MOST_ROWS
from gtm.dashboard.visits import Visit, page

if TYPE_CHECKING:
    from gtm.client import types

PER_PAGE = 20
MOST_RULES = 30
"""Rules of which the text is fetched."""
MOST_EXPLAINED = 8
"""Services of which the odds are asked: those that most is asked of."""


@page("/countries")
async def _countries(visit: Visit) -> Response:
    """A list, by what is asked for now; `code` is one to go to."""
    asked = (visit.query("code") or "").upper()
    if asked in COUNTRIES:
        return visit.go(f"/countries/{asked}")
    demand, names = await asyncio.gather(
        visit.api.get_demand(limit=MOST_ROWS), visit.api.list_names(limit=1000)
    )
    sums: dict[str, float] = defaultdict(float)
    for row in demand.rows:
        if row.cell.country is not None:
            sums[row.cell.country] += row.requests_per_second
    standing: dict[str | None, list[str]] = defaultdict(list)
    for region in names.regions:
        standing[region.country].append(region.name)
    codes = sorted(COUNTRIES, key=lambda code: (-sums.get(code, 0.0), -len(standing.get(code, ())), code))
    return visit.render(
        "countries.html", codes=codes, sums=sums, standing=standing, asked=visit.query("code"), few=few
    )


@page("/countries/{code}")
async def _country(visit: Visit) -> Response:
    """All that is known of one."""
    code, api = visit.part("code"), visit.api
    if code not in COUNTRIES:
        raise HTTPException(404, "there is no country of such a code")
    matrix, demand, names, latency, law = await asyncio.gather(
        api.ask(calls.get_residency(client=code, limit=PER_PAGE, cursor=visit.query("cursor"))),
        api.get_demand(client=code, limit=MOST_ROWS),
        api.list_names(limit=1000),
        api.get_latency(country=code),
        _law(api, code),
    )
    rows = [matrix_row(one) for one in matrix.items_]
    services = by_service(demand.rows)
    named = list(dict.fromkeys(rule for row in rows for part in row.cells[0] for rule in part.rules))
    rules, odds = await asyncio.gather(_rules(api, named), _odds(api, code, services, rows))
    return visit.render(
        "country.html",
        code=code,
        demand=demand,
        refusals=sorted(demand.refused.items(), key=lambda one: -one[1]),
        served=sorted(demand.served.items(), key=lambda one: -one[1]),
        services=services[:PER_PAGE],
        services_left=max(0, len(services) - PER_PAGE),
        odds=odds,
        matrix=matrix,
        rows=rows,
        rules=rules,
        rules_left=max(0, len(named) - MOST_RULES),
        standing=[one for one in names.regions if one.country == code],
        regions=[
            one for one in (latency.estimates.regions if latency.estimates else ()) if one.rtt_ms is not None
        ],
        law=law,
        following=urlencode({"cursor": matrix.next_cursor}) if matrix.next_cursor else None,
        first=visit.query("cursor") is None,
        few=few,
    )


def by_service(rows: Iterable[types.DemandRow]) -> list[JsonObject]:
    """Services by what is asked of them: how much of it is refused, and the shares that regions serve; the most first."""
    return [
        JsonObject(one, regions=[(name, rps / one.rps) for name, rps in largest(one.regions)])
        for one in sorted(summed(rows, "service"), key=lambda one: -one.rps)
        if one.rps > 0
    ]


def _last(pair: tuple[str, float]) -> float:
    return -pair[1]


async def _law(api: Inside, code: str) -> Mapping[str, Any] | None:
    """What the country is a member of, or was, with dates, and notes on its law; None, while the database is away."""
    found, own = await asyncio.gather(
        api.ask_if_told(calls.list_jurisdictions(limit=1000)), api.ask_if_told(calls.get_jurisdictions(code))
    )
    return {"laws": own.laws, **memberships(found.items_, code)} if found and own else None


def memberships(
    jurisdictions: Iterable[types.JurisdictionView], code: str
) -> dict[str, list[dict[str, Any]]]:
    """Jurisdictions that have a country as a member now, and memberships that are over or to come."""
    now, other = [], []
    for one in jurisdictions:
        terms = [term for term in one.terms if term["member"] == code]
        decisions = [each for each in one.decisions if each.country == code]
        told = {
            "name": one.name,
            "display_name": one.display_name,
            "since": next((term.get("effective_from") for term in terms), None),
            "until": next((term.get("effective_until") for term in terms), None),
            "decisions": decisions,
        }
        if code in one.countries:
            now.append(told)
        elif terms:
            other.append(told)
        other += [
            {**told, "since": each.since, "until": each.until, "decisions": []}
            for each in one.past
            if each.country == code
        ]
    return {"now": now, "other": other}


async def _rules(api: Inside, names: Sequence[str]) -> list[Mapping[str, Any]]:
    """Rules with their text; those that cannot be read have their name alone."""
    asked = names[:MOST_RULES]
    found = await asyncio.gather(*(api.ask_if_told(calls.get_residency_rules(name)) for name in asked))
    return [one or {"name": name} for name, one in zip(asked, found, strict=True)]


async def _odds(
    api: Inside, code: str, services: Sequence[JsonObject], rows: Sequence[JsonObject]
) -> dict[str, Mapping[str, Any]]:
    """Service → where a new request from the middle of the country would go, and with what odds."""
    names = dict.fromkeys([one.service for one in services] + [one.service for one in rows])

    async def one(name: str) -> Mapping[str, Any] | None:
        answer = await api.ask_if_told(calls.explain_route({"service": name, "country": code}))
        if answer is None:
            return None
        shares = [(each.region, each.share) for each in answer.candidates if each.share > 0]
        return {"shares": sorted(shares, key=_last), "shed": answer.shed}

    asked = list(names)[:MOST_EXPLAINED]
    found = await asyncio.gather(*map(one, asked))
    return {name: told for name, told in zip(asked, found, strict=True) if told is not None}
