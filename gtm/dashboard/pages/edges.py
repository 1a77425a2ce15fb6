"""Edges: which answer from what, what each sees of regions, keys of signed zones, and whose tokens they speak with."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from gtm.client.generated import control_calls as calls
from gtm.client.objects import JsonObject
from gtm.core.demand.rows import TIERS
from gtm.core.model.access import Role
from gtm.dashboard.inside import ApiProblem, Inside, name
from gtm.dashboard.rendering import rendered
from gtm.dashboard.visits import Visit, page

if TYPE_CHECKING:
    from gtm.client import types

MOST_LATE = 5
"""Revisions that are looked up, of edges that lack the newest."""
MOST_DIFFERING = 100
"""Endpoints that a page of one edge tells of."""


@page("/edges")
async def _edges(visit: Visit) -> Response:
    """Edges as they are now; keys and tokens, which move slowly, as of now."""
    seen, dnssec, tokens = await asyncio.gather(look(visit.api), visit.api.list_dnssec(), _tokens(visit))
    return visit.render("edges.html", **body(seen), dnssec=dnssec, tokens=tokens)


@page("/live/edges")
async def _live(visit: Visit) -> Response:
    """The edges as they change."""
    api = visit.api

    async def render() -> Mapping[str, str]:
        return {"edges": rendered("edges_body.html", body(await look(api)))}

    return visit.stream(render, "edges")


@page("/edges/{name}")
async def _edge(visit: Visit) -> Response:
    """What one edge sees, answers and limits."""
    wanted = name(visit.part("name"))
    seen = await look(visit.api)
    found = next((one for one in body(seen)["edges"] if one.name == wanted), None)
    if found is None:
        raise ApiProblem(404, {"title": "not found", "detail": f"no edge named `{wanted}` was ever heard of"})
    told = await visit.api.get_edge(wanted)
    rows = [row for row in _rows(seen.health) if row.edge.partition("/")[0] == wanted]
    rows.sort(key=lambda row: (row.status == row.agreed, row.status == "up", row.region, row.url))
    return visit.render(
        "edge.html",
        one=found,
        dns=None if told.dns is None else dns_shares(told.dns),
        limits=told.dns_limits,
        certificates=told.certificates,
        may=visit.may("operator"),
        revision=seen.status.sync.revision,
        rows=rows[:MOST_DIFFERING],
        left_out=max(0, len(rows) - MOST_DIFFERING),
    )


@page("/edges/{name}/forget", methods=("POST",), role=Role.OPERATOR)
async def _forget(visit: Visit) -> Response:
    """Strike an edge off that is gone; the API refuses while it is live."""
    wanted = name(visit.part("name"))
    await visit.api.forget_edge(wanted)
    return visit.go("/edges")


def dns_shares(dns: types.DnsRates) -> dict[str, Any]:
    """Answers per second by type, response code and transport, each with its share of all; and what was limited and dropped."""
    total = sum(one.per_second for one in dns.answered)

    def by(key: str) -> list[tuple[str, float, float]]:
        added: dict[str, float] = defaultdict(float)
        for one in dns.answered:
            added[one[key]] += one.per_second
        return (
            [(word, rate, rate / total) for word, rate in sorted(added.items(), key=lambda one: -one[1])]
            if total
            else []
        )

    kinds = {"type": by("type"), "response code": by("rcode"), "transport": by("transport")}
    return {"total": total, "kinds": kinds, "limited": dns.limited, "dropped": dns.dropped}


async def look(api: Inside) -> JsonObject:
    """Edges, what they see, and the revisions that some of them lack."""
    edges, status, health = await asyncio.gather(api.list_edges(), api.get_status(), api.get_health())
    revision = status.sync.revision
    lacked = sorted({one.revision + 1 for one in edges.items_ if one.revision < revision})
    # What is not known, as while the database is down, stands there as None.
    found = await asyncio.gather(*(api.ask_if_told(calls.get_revision(one)) for one in lacked[:MOST_LATE]))
    made = {number: one and one.created_at for number, one in zip(lacked, found, strict=False)}
    return JsonObject(edges=edges.items_, status=status, health=health, made=made)


async def _tokens(visit: Visit) -> list[Any] | None:
    """Edges' tokens, for those who may see them."""
    if not visit.may("admin"):
        return None
    found = await visit.api.ask(calls.list_tokens(limit=1000))
    return [one for one in found.items_ if one.role == "edge"]


def body(seen: JsonObject) -> dict[str, Any]:
    """All that moves: those first that need somebody to look."""
    status, revision = seen.status, seen.status.sync.revision
    views = _views(_rows(seen.health))
    edges = [
        JsonObject(
            one,
            behind=one.revision < revision or one.name in status.sync.lost,
            lacks_since=seen.made.get(one.revision + 1) if one.revision < revision else None,
            other_version=one.version != status.version,
            view=views.get(one.name),
        )
        for one in seen.edges
    ]
    live = [one for one in edges if one.live]
    return {
        "edges": sorted(edges, key=lambda one: (one.live and not one.behind, one.live, one.name)),
        "sync": status.sync,
        "control": status,
        "live": len(live),
        "in_sync": sum(not one.behind for one in live),
        "decisions": _added(one.decisions for one in live),
        "warnings": [words for words in status.warnings if "edge" in words],
    }


def _rows(health: types.HealthView) -> list[JsonObject]:
    """What each edge sees of each endpoint, beside what all see together."""
    return [
        JsonObject(found, edge=edge, region=region.region, url=endpoint.url, agreed=endpoint.status)
        for region in health.regions
        for endpoint in region.endpoints
        for edge, found in endpoint.vantages.items()
    ]


def _views(rows: Iterable[JsonObject]) -> dict[str, dict[str, Any]]:
    """By edge: endpoints up and not, and those that it sees otherwise than all together."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        view = found.setdefault(row.edge.partition("/")[0], {"counts": Counter(), "differs": 0})
        view["counts"][row.status] += 1
        view["differs"] += row.status != row.agreed
    return found


def _added(decisions: Iterable[Mapping[str, float] | None]) -> dict[str, float]:
    known: Sequence[Mapping[str, float]] = [one for one in decisions if one is not None]
    return {tier: sum(one.get(tier, 0.0) for one in known) for tier in TIERS}
