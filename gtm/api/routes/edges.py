"""What edges read and report, and what is known of them: feed, health, sync."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from time import time
from typing import Annotated

import msgspec
from fastapi import Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from gtm.api.context import Ctx, Edge, Operator, Principal, Viewer, reply, reply_lines
from gtm.api.query import HeldChecksum, HeldRevision, TypedResponse, strict_router, text_answer
from gtm.api.reported import (
    answer,
    body,
    bound_problems,
    key_problems,
    learned_problems,
    lease_problems,
    told_problems,
)
from gtm.api.schemas.base import Schema, errors
from gtm.control.errors import Forbidden, Invalid, NotFound
from gtm.control.lead import edges
from gtm.control.lead.edges import EdgeView, told_by
from gtm.control.lead.takeover import plan_problem
from gtm.control.live import tokens
from gtm.control.live.present import Present
from gtm.control.live.subscribers import MOST_EDGES
from gtm.core.model.access import Role
from gtm.core.model.certificates import Certificate
from gtm.core.model.countries import COUNTRIES
from gtm.core.model.problems import Problem
from gtm.core.policy.edges import EdgePlace
from gtm.feed.reports import DnsLimits, EdgeReply, EdgeReport
from gtm.feed.sealing import Seal
from gtm.feed.wire import CONTENT_TYPE, EDGE_NAME, SEALING_KEY
from gtm.nesting import shallow


class EdgeSchema(Schema, of=EdgeView):
    """An edge as last heard of."""


class DnsAnswers(Schema):
    """DNS answers of one kind."""

    type: str
    """Of the question; `other`: one that gtm has no name for."""
    rcode: str
    transport: str
    per_second: float


class DnsRates(Schema):
    """What an edge's DNS does, per second, smoothed over 3 s."""

    answered: list[DnsAnswers]
    """The most first."""
    limited: dict[str, float]
    """Replies over UDP beyond a client prefix's budget, by what became of them: `slipped` (sent without records, with TC) or `dropped`."""
    dropped: dict[str, float]
    """Packets that were no questions, by why."""


class DnsLimitsSchema(Schema, of=DnsLimits):
    """What DNS grants a client prefix (/24 or /56) each second and process."""


class CertificateSchema(Schema, of=Certificate):
    """A certificate that an endpoint showed to the edge's last probe of it."""

    region: str
    endpoint: str
    not_before: datetime
    not_after: datetime
    days_left: float
    """Negative: it has ended."""
    ends_soon: bool
    """Within 21 days, or it has ended."""


class EdgeDetail(EdgeSchema):
    """An edge, with what its DNS does and the certificates that it meets.

    What an edge of an earlier version does not tell is null, as is everything of an edge that is not live.
    """

    dns: DnsRates | None
    dns_limits: DnsLimitsSchema | None
    certificates: list[CertificateSchema] | None
    """Those that end first come first."""


router = strict_router(prefix="/v1", tags=["edges"])

_EDGE_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$"
EdgeName = Annotated[str, Path(pattern=_EDGE_PATTERN, description="The edge's name.")]
_MAX_DETAIL = 1000
_MAX_NAME = 63


class EdgeList(Schema):
    """All edges."""

    items: list[EdgeSchema]


@router.get("/feed", response_class=StreamingResponse, responses=text_answer(CONTENT_TYPE, "The stream."))
async def feed(
    ctx: Ctx,
    who: Edge,
    edge: Annotated[str, Query(pattern=_EDGE_PATTERN, description="The edge's name.")],
    revision: HeldRevision = 0,
    sha256: HeldChecksum = None,
    *,
    key: Annotated[
        str | None,
        Header(
            alias=SEALING_KEY,
            pattern="^[A-Za-z0-9+/]{43}=$",
            description="Its public key (X25519, in base64), which the zone-signing keys of signed zones are sealed to. Without "
            "one it is sent none.",
        ),
    ] = None,
) -> StreamingResponse:
    """Follow the policy, health and tokens.

    A stream of JSON messages, one a line, that ends with the connection: all an edge needs at once, then each change as it happens, and a
    heartbeat every second.
    """

    def still_allowed() -> bool:
        held = ctx.present.token(who.sha256, time())
        return held is not None and held.role is Role.EDGE and tokens.speaks_for(held.edges, edge)

    ctx.leading()
    _check_name(who, edge)
    ctx.replica.subscribers.require_room(who.name, MOST_EDGES)
    await ctx.replica.watch.heard_of(revision)
    seal = None if key is None else _seal(key, edge, who.sha256)
    lines: AsyncIterator[bytes] = ctx.replica.subscribers.stream(
        edge, revision, sha256, still_allowed, seal=seal, token=who.name
    )
    return reply_lines(lines)


def _seal(key: str, edge: str, token: str) -> Seal:
    """What seals to the follower that told a public key."""
    try:
        return Seal(key, edge, token)
    except ValueError as error:
        raise Invalid(f"the header {SEALING_KEY} holds no public key of X25519") from error


@router.post(
    "/edges/{name:segment}/report",
    openapi_extra=body(EdgeReport, "leases", "recovered", "tied"),
    responses={
        200: answer(EdgeReply, "Taken in; the leases of quotas that the edge holds from now on."),
        **errors(404, 409, 413, 415),
    },
)
async def report(ctx: Ctx, who: Edge, name: EdgeName, request: Request) -> Response:
    """Report what an edge sees.

    Every edge sends one every other second.
    """
    active = ctx.leading()
    _check_name(who, name)
    try:  # by msgspec, since there are so many of them
        found = msgspec.json.decode(shallow(await request.body()), type=EdgeReport)
    except ValueError as error:
        raise Invalid(f"the report cannot be read: {str(error).lower()}") from error
    problems = list(_report_problems(found, ctx.present))
    if problems:
        raise Invalid("the report is not acceptable; it was ignored", problems)
    held = ctx.present.tokens.get(who.sha256)
    address = request.client.host if request.client else ""
    return reply(active.reports.take(name, address, found, who.name, "" if held is None else held.id))


def _check_name(who: Principal, name: str) -> None:
    """Whether a token speaks for an edge.

    Raises:
        Forbidden: it does not. The header `GTM-Edge-Name` says which it is for.
    """
    if tokens.speaks_for(who.edges, name):
        return
    edges = who.edges or ""
    give = f"one that matches `{edges}`" if "*" in edges else f"`{edges}`"
    raise Forbidden(
        f"the token `{who.name}` does not speak for an edge named `{name}`: start the edge as {give} (--name, "
        f"GTM_EDGE_NAME), or make it a token of its own: gtm token create {name} --role edge",
        headers={EDGE_NAME: edges},
    )


def _place_problems(place: EdgePlace) -> Iterator[Problem]:
    for field in ("country", "operator_country"):
        if getattr(place, field) is not None and getattr(place, field) not in COUNTRIES:
            yield Problem(f"place.{field}", "unknown_reference", "is not a country code (ISO 3166-1 alpha-2)")
    if place.region is not None and len(place.region) > _MAX_NAME:
        text = f"a region's name has at most {_MAX_NAME} characters"
        yield Problem("place.region", "too_long", text)


def _report_problems(found: EdgeReport, present: Present) -> list[Problem]:
    problems = [*bound_problems(found), *_place_problems(found.place)]
    problems += [
        Problem(field, "out_of_range", "counts must be between 0 and 10^12")
        for field in ("demand", "corrections", "dns")
        if not all(0 <= count < 1e12 for count in (getattr(found, field) or {}).values())
    ]
    problems += told_problems(found)
    problems += learned_problems(found.latency, found.witnesses)
    if found.plan is not None and (text := plan_problem(found.plan)) is not None:
        problems.append(Problem("plan", "out_of_range", text))
    problems += lease_problems(found.leases)
    problems += key_problems(found.handoff_keys)
    known = len(present.policy.regions)
    # Edges report on the regions of the revision they hold; far more than there are is a mistake.
    if len(found.health) > 2 * known + 1000:
        problems.append(Problem("health", "out_of_range", "names far more regions than there are"))
    elif any(len(one.detail) > _MAX_DETAIL for region in found.health.values() for one in region.values()):
        problems.append(Problem("health", "too_long", f"a detail may have {_MAX_DETAIL} characters"))
    for table in (found.addresses or {}).values():
        if any(len(one.detail) > _MAX_DETAIL for known in table.values() for one in known.values()):
            problems.append(Problem("addresses", "too_long", f"a detail may have {_MAX_DETAIL} characters"))
            break
    return problems


@router.get("/edges")
async def list_edges(ctx: Ctx, _: Viewer) -> TypedResponse[EdgeList]:
    """List the edges, by name.

    The list has every edge that was ever heard of.
    """
    active, decisions = ctx.replica.active, {}
    if active is not None:
        decisions = await asyncio.to_thread(active.reports.reported.decisions)
    now = datetime.now(UTC)
    return reply({"items": await edges.list_all(ctx.database, ctx.replica.edges(), now, decisions)})


@router.get("/edges/{name:segment}", responses=errors(404))
async def get_edge(ctx: Ctx, _: Viewer, name: EdgeName) -> TypedResponse[EdgeDetail]:
    """An edge, with what its DNS does and the certificates that it meets.

    It is the edge as the list of edges has it, and what it tells of its DNS and of certificates besides.
    """
    active, decisions = ctx.replica.active, {}
    if active is not None:
        decisions = await asyncio.to_thread(active.reports.reported.decisions)
    now = datetime.now(UTC)
    known = await edges.list_all(ctx.database, ctx.replica.edges(), now, decisions)
    found = next((one for one in known if one.name == name), None)
    if found is None:
        raise NotFound(f"there is no edge `{name}`")
    rates = (lambda _: {}) if active is None else active.reports.dns_rates
    told = told_by(name, ctx.replica.edges(), rates, now)
    return reply({**asdict(found), **told})


@router.delete("/edges/{name:segment}", responses=errors(404, 409))
async def forget_edge(ctx: Ctx, who: Operator, name: EdgeName) -> TypedResponse[None]:
    """Forget an edge that is gone for good.

    It no longer counts as unreachable. Should it report again, it is known again. An edge that is live is not forgotten.
    """
    await edges.forget(ctx.database, ctx.leading().reports.vantages, name, by=who.actor)
    ctx.replica.handoff_keys.forget(name)
    return TypedResponse(status_code=204)
