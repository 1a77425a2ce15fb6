"""What regions' balancers follow, and the line on which they say how many slots are free. Load they report by `gtm.api.routes.load`.

Law: a balancer has no vote on health and no zone-signing keys. Nobody waits for the revision that it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from ipaddress import ip_address
from time import time
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from fastapi import Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect

from gtm.api.context import Balancer, Context, Ctx, Viewer, reply, reply_lines
from gtm.api.query import HeldChecksum, HeldRevision, OnlyRegion, TypedResponse, strict_router, text_answer
from gtm.api.reported import (
    answer,
    body,
    bound_problems,
    inside_problems,
    key_problems,
    learned_problems,
    lease_problems,
    time_problems,
)
from gtm.api.schemas.base import Schema, errors, picked
from gtm.control.errors import BadRequest, Forbidden, Invalid
from gtm.control.lead.balancers import Heard, HeardInside
from gtm.control.lead.rooms import MOST_PARTS, Rooms
from gtm.control.live.subscribers import MOST_BALANCERS
from gtm.control.live.tokens import speaks_for
from gtm.core.latency.samples import Level
from gtm.core.model.access import REPORTER_LENGTH, Role
from gtm.core.model.problems import Problem
from gtm.core.model.services import Priority
from gtm.feed.reports import BalancerReply, BalancerReport, ServerShown, TenantShown
from gtm.feed.wire import CONTENT_TYPE, RoomReport
from gtm.geoip.address import parse_address
from gtm.nesting import shallow
from gtm.options import peer_place

router = strict_router(prefix="/v1/balancers", tags=["balancers"])


class TierSchema(Schema):
    """Requests of a tier: those that backends have, and those in the queue."""

    running: int
    waiting: int


class BalancerView(Schema, of=Heard):
    """A region's balancer, as it last said."""

    tiers: dict[str, TierSchema]


class ShownServerView(Schema, of=ServerShown):
    """A model server, as one balancer sees it."""


class ShownTenantView(Schema, of=TenantShown):
    """What one balancer has of a tenant."""


class InsideView(Schema, of=HeardInside):
    """The inside of a region, as one of its balancers showed it."""


class InsideList(Schema):
    """What balancers showed within 30 seconds."""

    items: list[InsideView]


class BalancerList(Schema):
    """All of them."""

    items: list[BalancerView]


_TIERS = frozenset(map(str, Priority))
_NAME = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$"


@router.get(
    "/{name:segment}/feed",
    response_class=StreamingResponse,
    responses=text_answer(CONTENT_TYPE, "The stream."),
)
async def balancer_feed(
    ctx: Ctx,
    who: Balancer,
    name: Annotated[str, Path(pattern=_NAME, description="The balancer's name, for people.")],
    revision: HeldRevision = 0,
    sha256: HeldChecksum = None,
) -> StreamingResponse:
    """Follow the policy, health, load and tokens, as a balancer.

    The stream that edges follow, without zone-signing keys: JSON messages, one a line. It ends with the connection, and with the token.
    """

    def still_allowed() -> bool:
        held = ctx.present.token(who.sha256, time())
        return held is not None and held.role is Role.BALANCER

    ctx.leading()
    subscribers = ctx.replica.subscribers
    subscribers.require_room(who.name, MOST_BALANCERS)
    await ctx.replica.watch.heard_of(revision)
    lines = subscribers.stream_to_balancer(name, revision, sha256, still_allowed, who.name)
    return reply_lines(lines)


def report_problems(found: BalancerReport, regions: str | None) -> list[Problem]:
    """Everything that is wrong with a report of a balancer whose token is for these regions (None: all)."""
    return [
        *bound_problems(found),
        *key_problems(found.handoff_keys),
        *lease_problems(found.leases),
        *_own_problems(found, regions),
        *_peer_problems(found),
        *_push_problems(found, regions),
        *time_problems(found, regions),
        *inside_problems(found.inside, found.region),
        *learned_problems(found.latency, found.witnesses),
    ]


_KEPT = re.compile(r"[^\t]{1,300}\t[^\t]{0,300}\t[a-z_]{1,40}")


def _push_problems(found: BalancerReport, regions: str | None) -> Iterator[Problem]:
    """What is wrong with what it says of pushes."""
    if found.pushes and not speaks_for(regions, found.region):
        words = f"the token does not speak for region `{found.region[:253]}`: a balancer pushes from its own"
        yield Problem("pushes", "forbidden", words)
    if not all(_KEPT.fullmatch(told) for told in found.pushes):
        yield Problem(
            "pushes", "malformed", "each is a service, a region or nothing, and a code, with tabs between"
        )
    if not all(0 <= count < 1e12 for count in found.pushes.values()):
        yield Problem("pushes", "out_of_range", "counts must be between 0 and 10^12")


@router.post(
    "/{name:segment}/report",
    openapi_extra=body(BalancerReport, "leases", "latency", "witnesses"),
    responses={
        200: answer(BalancerReply, "Taken in; the leases of quotas that the balancer holds from now on."),
        **errors(404, 409, 413, 415),
    },
)
async def report_balancer(
    ctx: Ctx,
    who: Balancer,
    request: Request,
    name: Annotated[
        str, Path(pattern=_NAME, description="The balancer's name, which tells it from others of its token.")
    ],
) -> Response:
    """Report keys and quotas, as a balancer.

    The public keys that it signs pushes with, which are published under the token's name, and what it did with the leases of quotas; the
    reply leases it its part, as edges have theirs. Once a second.
    """
    active = ctx.leading()
    try:
        found = msgspec.json.decode(shallow(await request.body()), type=BalancerReport)
    except ValueError as error:
        raise Invalid(f"the report cannot be read: {str(error).lower()}") from error
    problems = report_problems(found, who.regions)
    if problems:
        raise Invalid("the report is not acceptable; it was ignored", problems)
    if found.region and not speaks_for(who.regions, found.region):
        raise _not_for(who.name, found.region)
    names = {region.name for region in ctx.present.policy.regions}
    known = {told: count for told, count in found.pushes.items() if told.split("\t")[1] in {"", *names}}
    services = {service.name for service in ctx.present.policy.services}
    times = tuple(one for one in found.times if one.service in services)
    here = found.region in names
    found = replace(found, pushes=known if here else {}, times=times if here else ())
    held = ctx.present.tokens.get(who.sha256)
    token_id = "" if held is None else held.id
    notice = ""
    if found.address and not _reached_from(ctx, request, found):
        source = request.client.host if request.client else "an unknown address"
        notice = (
            f"other balancers of region `{found.region}` are not told of `{found.address}`: the report came from `{source}`, and no endpoint of "
            "the region is there; start control with GTM_PEER_ALLOW=NETWORK, or give the balancer --peer-address"
        )
        found = replace(found, address="")
    taken = active.balancers.take(who.name, token_id, name, found, who.sha256[:REPORTER_LENGTH])
    return reply(replace(taken, notice=notice))


def _reached_from(ctx: Context, request: Request, found: BalancerReport) -> bool:
    """Whether others may be told that they reach a balancer where it says.

    They send datagrams there, so whoever has a token must not choose at will who gets them: it is the address that the report comes
    from, one that the region's endpoints have, or in a network that control was started with. A report from this very machine may name any of its
    loopback addresses.
    """
    host = ip_address(peer_place(found.address)[0])
    source = parse_address(request.client.host.partition("%")[0]) if request.client else None
    if source is not None and (host == source or (host.is_loopback and source.is_loopback)):
        return True
    if any(host in network for network in ctx.settings.peer_allow if network.version == host.version):
        return True
    return any(
        str(host) in {*endpoint.ipv4, *endpoint.ipv6, (urlsplit(endpoint.url).hostname or "")}
        for region in ctx.present.policy.regions
        if region.name == found.region
        for endpoint in region.endpoints
    )


def _own_problems(found: BalancerReport, regions: str | None) -> list[Problem]:
    """What is wrong with what a balancer says of itself, and with whose round trips it tells."""
    problems = []
    texts = {"region": (found.region, 253), "version": (found.version, 100)}
    for field, (text, most) in texts.items():
        if len(text) > most or not all("!" <= char <= "~" for char in text):
            problems.append(
                Problem(field, "invalid_format", f"must be at most {most} printable ASCII characters")
            )
    known = all(
        tier in _TIERS and min(counts) >= 0 and max(counts) < 1e9 for tier, counts in found.tiers.items()
    )
    if not known:
        words = f"must have counts of requests by {', '.join(sorted(_TIERS))}"
        problems.append(Problem("tiers", "out_of_range", words))
    told = {delta.region for delta in found.latency} | {witness.region for witness in found.witnesses}
    others = sorted(region for region in told if not speaks_for(regions, region))
    if others:
        words = f"the token does not speak for region `{others[0][:253]}`: a balancer measures round trips to its own"
        problems.append(Problem("latency", "forbidden", words))
    if any(delta.level is Level.REGION for delta in found.latency):
        words = "regions measure each other by probes, and no balancer does"
        problems.append(Problem("latency", "out_of_range", words))
    return problems


@router.get("")
async def list_balancers(ctx: Ctx, _: Viewer) -> TypedResponse[BalancerList]:
    """List the balancers heard of in the last hour, by region and name.

    What each said of itself in its last report. Answered from memory, also while the database is down.
    """
    return reply({"items": [_heard(one) for one in ctx.leading().balancers.heard()]})


@router.get("/inside")
async def get_inside(ctx: Ctx, _: Viewer, region: OnlyRegion = None) -> TypedResponse[InsideList]:
    """List model servers and tenants as regions' balancers show them.

    Each balancer shows its own every other second: of several, each has its own counts. Answered from memory, also while the database is down.
    """
    found = ctx.leading().balancers.inside(region)
    return reply({"items": [{**asdict(one), "age": round(one.age, 1)} for one in found]})


def _heard(one: Heard) -> dict[str, Any]:
    tiers = {tier: {"running": r, "waiting": w} for tier, (r, w) in sorted(one.tiers.items())}
    return picked(BalancerView, one, age=round(one.age, 1), tiers=tiers)


def _peer_problems(report: BalancerReport) -> list[Problem]:
    """What is wrong with where a balancer says that others reach it."""
    problems = []
    try:
        if report.address:
            peer_place(report.address)
    except ValueError as error:
        problems.append(Problem("address", "invalid_format", str(error)))
    if report.address and not report.region:
        problems.append(Problem("region", "required", "an address is of a balancer of some region"))
    return problems


def _not_for(token: str, region: str) -> Forbidden:
    return Forbidden(
        f"the token `{token}` does not speak for region `{region}`: make one that does, "
        f"gtm token create NAME --role balancer --regions {region}"
    )


_MAX_REPORT = 16 * 1024
"""Bytes of one line."""
_GOODBYE = b"{}"
_REPORTS = msgspec.json.Decoder(RoomReport)


@router.post(
    "/{name:segment}/room",
    description="A body that goes on for up to a minute: a report a line whenever slots change, an empty line every 0.1 s in between, "
    "and `{}` at its end. A body that breaks off, or three beats that are missed, make every edge probe the region at once. A line is "
    '`{"source", "started", "sequence", "age", "whole": {"free", "limit", "waiting"}, "parts": {…}}`; `source` is the name above. Of '
    f"`parts` those count that the policy names, {MOST_PARTS} at most; a line has {_MAX_REPORT} bytes at most.",
    openapi_extra={
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "string"}}}}
    },
    responses=errors(413, 415),
)
async def report_room(
    ctx: Ctx,
    who: Balancer,
    request: Request,
    name: Annotated[
        str, Path(pattern=_NAME, description="The balancer's name, which tells it from others of its region.")
    ],
    region: Annotated[str, Query(max_length=253, description="The balancer's region.")],
) -> TypedResponse[None]:
    """Say how many slots of a region are free, as its balancer."""
    rooms = ctx.leading().rooms
    if not speaks_for(who.regions, region):
        raise _not_for(who.name, region)
    # Two that share a name are told apart by their tokens: neither takes the other's place.
    source = f"{who.name}/{name}"
    rooms.opened(region, source)
    said = False
    try:
        said = await _read_lines(request, rooms, region, source)
    except ClientDisconnect:
        pass
    finally:
        rooms.closed(region, source, said=said)
    return TypedResponse(status_code=204)


async def _read_lines(request: Request, rooms: Rooms, region: str, source: str) -> bool:
    """Take lines in until the body ends; whether it ended as its sender meant.

    Raises:
        BadRequest: a line is no report.
    """
    rest, said = b"", False
    async for chunk in request.stream():
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _MAX_REPORT:
            raise BadRequest(f"a line is longer than {_MAX_REPORT} bytes")
        for line in lines:
            said = line == _GOODBYE
            if not line or said:
                rooms.beat(region, source)
                continue
            if not rooms.reads(region, source):
                rooms.beat(region, source)
                continue
            try:
                report = _REPORTS.decode(shallow(line))
            except ValueError as error:
                raise BadRequest(f"a line is no report of slots: {str(error).lower()}") from error
            rooms.beat(region, source)
            rooms.heard(region, replace(report, source=source))
    return said
