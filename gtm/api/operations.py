"""For machines that watch control: alive, ready, metrics. No token needed."""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from gtm.api.context import Ctx, reply
from gtm.api.gauges import ControlGauges
from gtm.api.middleware import Metrics
from gtm.api.problems import problem
from gtm.api.schemas import Liveness, Readiness, errors
from gtm.control.publish import FeedHub

router = APIRouter(tags=["operations"])


@router.get("/healthz", operation_id="healthz", summary="Whether the process runs", response_model=Liveness)
async def healthz() -> Response:
    """It does."""
    return reply({"status": "ok"})


@router.get(
    "/readyz",
    operation_id="readyz",
    summary="Whether answers are correct",
    description="The database answers, and the policy in it compiled and is being published.",
    response_model=Readiness,
    responses={503: errors()[503]},
)
async def readyz(ctx: Ctx) -> Response:
    """Ask the database now."""
    if not await ctx.hub.ping():
        return problem(
            503, "the database cannot be reached; edges are served from memory", title="unavailable"
        )
    if ctx.hub.snapshot is None:
        return problem(503, "no policy revision is loaded yet", title="unavailable")
    return reply({"status": "ready", "revision": ctx.hub.snapshot.revision})


def metrics_router(metrics: Metrics, hub: FeedHub) -> APIRouter:
    """`/metrics`, with gauges that look at the hub when they are scraped."""
    metrics.registry.register(ControlGauges(hub))
    scraped = APIRouter(tags=["operations"])

    @scraped.get(
        "/metrics",
        operation_id="metrics",
        summary="Prometheus metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def scrape() -> Response:
        return Response(generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return scraped
