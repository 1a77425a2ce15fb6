"""Drafts tried out before they are in force: simulated under traffic, and explained for one request."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Response
from pydantic import AfterValidator, Field, StrictStr, model_validator
from pydantic_core import PydanticCustomError

from gtm.api.context import Context, Ctx, Viewer, reply
from gtm.api.schemas import errors
from gtm.api.traffic_schemas import ExplanationView, SimulationView
from gtm.control import fields as f
from gtm.control import simulation
from gtm.control.documents import Document, PolicyDocument
from gtm.control.errors import NotFound, Unavailable
from gtm.control.situation import Situation
from gtm.control.traffic import KindDocument, TrafficDocument, recorded, since_now
from gtm.core.model import Location, Request
from gtm.core.snapshot import Snapshot
from gtm.core.traffic import Sample, Traffic
from gtm.geoip.networks import locate_client, parse_client

router = APIRouter(prefix="/v1")


class SimulateRequest(Document):
    """A draft, and the traffic to try it with."""

    policy: PolicyDocument
    traffic: Literal["recorded", "current"] | TrafficDocument = "recorded"
    """`recorded` since a moment, the `current` rates, or any other."""
    since: f.Moment | None = None
    """For recorded traffic; left out: 24 hours ago."""


def _client(value: str) -> str:
    try:
        return parse_client(value)
    except ValueError as error:
        raise PydanticCustomError("invalid_format", "{text}", {"text": str(error)}) from error


class ExplainRequest(KindDocument):
    """One request, and the draft to decide it by; without one, the policy in force decides."""

    client_ip: Annotated[StrictStr, AfterValidator(_client), Field(max_length=64)] | None = None
    """An address, or a subnet as a resolver states it; in place of country and coordinates."""
    affinity: Annotated[f.Line, Field(min_length=1)] | None = None
    policy: PolicyDocument | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        stated = {"country", "lat", "lon", "anonymous", "accuracy_km", "spans"} & self.model_fields_set
        if self.client_ip is not None and stated:
            text = (
                "give either `client_ip` or `country`, `lat`, `lon`, `anonymous`, `accuracy_km` and `spans`"
            )
            raise PydanticCustomError("overlap", "{text}", {"text": text})
        return self


@router.post(
    "/policy:simulate",
    tags=["policy"],
    operation_id="simulate_policy",
    summary="Try a draft with traffic",
    description="What the policy in force and the draft would each make of it, with health, latency and load as they "
    "are now: shares, latency, spillover, refusals, room, and what moves. Changes nothing.",
    response_model=SimulationView,
    responses=errors(404, 413, 415),
)
async def simulate(ctx: Ctx, _: Viewer, body: SimulateRequest) -> Response:
    """One at a time: each takes a processor for seconds."""
    running = _running(ctx)
    draft = await asyncio.to_thread(simulation.compile_draft, body.policy, running.policy)
    situation = ctx.live.situation()
    asked = await _traffic(ctx, body, situation, running, draft)
    async with ctx.simulating:
        found = await asyncio.to_thread(simulation.simulated, situation, asked, running, draft)
    return reply({**found, "revision": running.revision})


async def _traffic(
    ctx: Context, body: SimulateRequest, situation: Situation, running: Snapshot, draft: Snapshot
) -> Traffic:
    if body.traffic == "recorded":
        return await recorded(ctx.database, *since_now(body.since, time.time()))
    if body.traffic == "current":
        if not situation.demand:
            raise NotFound("no demand is known now: no edge has reported any within half a minute")
        sample = Sample(situation.demand, 1.0, situation.now)
        return Traffic(sample, sample)
    known = simulation.priorities(draft.policy, running.policy)
    return await asyncio.to_thread(body.traffic.traffic, known)


@router.post(
    "/route:explain",
    tags=["policy"],
    operation_id="explain_route",
    summary="Explain a decision, by the policy in force or by a draft",
    description="With health, plan and latency as they are now at control. Edges explain what they answer at their "
    "own `GET /v1/route?explain=1`.",
    response_model=ExplanationView,
    responses=errors(413, 415),
)
async def explain(ctx: Ctx, _: Viewer, body: ExplainRequest) -> Response:
    """Decide it, and say all of why."""
    snapshot = running = _running(ctx)
    if body.policy is not None:
        snapshot = await asyncio.to_thread(simulation.compile_draft, body.policy, running.policy)
    request = Request(
        body.service,
        await _location(ctx, body),
        body.tenant,
        body.data_class,
        body.model,
        body.affinity,
        body.priority,
    )
    found: dict[str, Any] = await asyncio.to_thread(
        simulation.explanation, ctx.live.situation(), snapshot, request, body.client_ip
    )
    return reply({**found, "draft": body.policy is not None})


async def _location(ctx: Context, body: ExplainRequest) -> Location:
    if body.client_ip is None:
        return body.location
    return await asyncio.to_thread(locate_client, body.client_ip, ctx.locate)


def _running(ctx: Context) -> Snapshot:
    if ctx.hub.compiled is None:
        raise Unavailable("no policy revision is loaded yet: try again")
    return ctx.hub.compiled
