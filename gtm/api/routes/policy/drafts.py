"""Drafts tried out before they are in force: simulated under traffic, and explained for one request."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
from fastapi import Request as HttpRequest
from pydantic import TypeAdapter, ValidationError

from gtm.api.context import Context, Ctx, Viewer, Writing, reply
from gtm.api.query import TypedResponse, strict_router
from gtm.api.schemas.base import errors
from gtm.api.schemas.policy import PolicyChanged
from gtm.api.schemas.traffic import ExplanationView, SimulationView
from gtm.control.errors import ContentTooLarge, NotFound
from gtm.control.policy.changes import current_policy
from gtm.control.policy.drafts import DraftJob, PlanRequest, SimulateRequest, done, explained, pairs, parsed
from gtm.control.policy.gone import in_text, remembered
from gtm.control.policy.questions import ExplainRequest
from gtm.control.policy.simulation import Situation
from gtm.control.policy.traffic import recorded, since_now
from gtm.control.policy.trial import Rules, Trial
from gtm.core.demand.traffic import Traffic, TrafficSample
from gtm.core.model.requests import Location
from gtm.documents import fields as f
from gtm.geoip.networks import locate_client, parse_client, told_subnet
from gtm.nesting import shallow

router = strict_router(prefix="/v1", tags=["policy"])

BODIES = (SimulateRequest, ExplainRequest, PlanRequest)
"""Documents that are read elsewhere: FastAPI must be told of them."""
MAX_QUESTION = 64 * 1024
"""Bytes of a question without a draft, which is answered at once."""
MAX_SHORT = 16 * 1024
"""Bytes of a draft that is planned in control's own process, within a policy of no more than `MAX_PAIRS_HERE` regions × services and rules: two tenths of
a second at worst."""
MAX_PAIRS_HERE = 5_000
_MOMENT: TypeAdapter[Any] = TypeAdapter(f.Moment | None)


class _Glance(msgspec.Struct):
    """What control itself must know of a body; all else stays bytes here."""

    policy: msgspec.Raw = msgspec.Raw(b"null")
    traffic: msgspec.Raw = msgspec.Raw(b'"recorded"')
    traffic_csv: msgspec.Raw = msgspec.Raw(b"null")
    since: Any = None
    client_ip: Any = None
    over: Any = None


def _glance(body: bytes) -> _Glance:
    """A look at a body; at one that is wrong, as if it said nothing: who reads it says what is wrong."""
    try:
        return msgspec.json.decode(shallow(body), type=_Glance)
    except ValueError:
        return _Glance(policy=msgspec.Raw(b"{}"), traffic=msgspec.Raw(b"{}"))


def _described(model: type[Any]) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


@router.post("/policy:simulate", responses=errors(404, 413, 415), openapi_extra=_described(SimulateRequest))
async def simulate_policy(ctx: Ctx, _: Viewer, request: HttpRequest) -> TypedResponse[SimulationView]:
    """Try a draft, or a scenario, with traffic.

    What the policy in force makes of it, and what the draft would (left out: the same policy) if a `scenario` came true: regions that fail
    or drain, other capacity, more demand, a day to come. Else health, latency and load are as they are now. Shares, latency, spillover,
    refusals, room, and what moves. Changes nothing. It is worked out in a process with bounds on its memory and time (413 says which was
    met); 503 with Retry-After: too many are at work.
    """
    running = ctx.running()
    body = await request.body()
    situation = await ctx.situation()
    traffic, missing = None, ""
    try:
        traffic = await _traffic(ctx, _glance(body), situation)
    except NotFound as error:
        missing = error.detail
    # Apart: it takes a processor for seconds.
    places = ctx.settings.geoip_db, ctx.settings.geoip_overrides
    job = DraftJob(
        "simulate", body, situation, running.policy, running.revision, traffic, missing, geoip=places
    )
    return TypedResponse(await ctx.apart.run(job), media_type="application/json")


@router.post("/policy:plan", responses=errors(413, 415), openapi_extra=_described(PlanRequest))
async def plan_policy(
    ctx: Ctx, who: Viewer, request: HttpRequest, writing: Writing
) -> TypedResponse[PolicyChanged]:
    """Say what a whole policy, or a part of one, would change.

    What `policy:apply` says of a dry run: changes, findings, what the safety rules say to whoever asks, what other tools manage. It takes
    no right to change anything, so that pull requests can plan. What is long is looked at in a process of its own, as by `policy:simulate`.
    """
    body = await request.body()
    situation = await ctx.situation()
    async with ctx.database.transaction() as transaction:
        managed = await transaction.policy.managed()
        gone = await remembered(transaction, await transaction.gone.list(), in_text(body))
    running, revision = await current_policy(ctx.database)
    rules = Rules(ctx.settings.max_moved_share, who.role, ctx.present.keys, ctx.settings.fence_approvals)
    job = DraftJob("plan", body, situation, running, revision, trial=Trial(rules, writing, managed, gone))
    # What is short in a thread, which Terraform waits for several times a plan; else apart.
    if len(body) <= MAX_SHORT and pairs(running) <= MAX_PAIRS_HERE:
        async with ctx.readers:
            found = await asyncio.to_thread(done, job)
        return reply({**found, "sync": await ctx.sync(revision)})
    said = await ctx.apart.run(job)
    sync = msgspec.json.encode(await ctx.sync(revision))
    return TypedResponse(said[:-1] + b',"sync":' + sync + b"}", media_type="application/json")


async def _traffic(ctx: Context, glance: _Glance, situation: Situation) -> Traffic | None:
    """What control knows of traffic, if it is asked for."""
    if bytes(glance.traffic_csv) != b"null":
        return None
    if bytes(glance.traffic) == b'"current"':
        if not situation.demand:
            raise NotFound("no demand is known now: no edge has reported any within half a minute")
        sample = TrafficSample(situation.demand, 1.0, situation.now)
        return Traffic(sample, sample)
    if bytes(glance.traffic) != b'"recorded"':
        return None
    try:
        since = _MOMENT.validate_json(msgspec.json.encode(glance.since))
    except ValidationError:
        return None  # it is told with all else that is wrong
    return await recorded(ctx.database, *since_now(since, time.time()))


@router.post("/route:explain", responses=errors(413, 415), openapi_extra=_described(ExplainRequest))
async def explain_route(ctx: Ctx, _: Viewer, request: HttpRequest) -> TypedResponse[ExplanationView]:
    """Explain a decision, by the policy in force or by a draft.

    With health, plan and latency as they are now at control, and with what an edge would send: the DNS answers, or the redirect. Edges
    explain what they answer at their own `GET /v1/route?explain=1`. A draft is looked at in a process of its own, as by `policy:simulate`.
    """
    running = ctx.running()
    body = await request.body()
    glance = _glance(body)
    location = await _location(ctx, glance)
    situation = await ctx.situation()
    job = DraftJob(
        "explain", body, situation, running.policy, running.revision, location=location, answers=ctx.answers
    )
    if bytes(glance.policy) != b"null":
        return TypedResponse(await ctx.apart.run(job), media_type="application/json")
    if len(body) > MAX_QUESTION:
        raise ContentTooLarge(f"a question without a draft may have {MAX_QUESTION} bytes")
    asked = parsed(ExplainRequest, body)
    return reply(await asyncio.to_thread(explained, job, asked, running))


async def _location(ctx: Context, glance: _Glance) -> Location | None:
    """Where the client is that was named, if one was that can be read; over DNS, the subnet that resolvers tell of it."""
    named = glance.client_ip
    try:
        client = parse_client(named) if isinstance(named, str) and len(named) <= 64 else None
    except ValueError:
        return None
    if client is not None and glance.over == "dns":
        client = told_subnet(client)
    return None if client is None else await asyncio.to_thread(locate_client, client, ctx.locate)
