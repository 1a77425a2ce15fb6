"""For machines that watch control: alive, ready, metrics. From near, no token is needed."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from gtm.api.context import Credentials, Ctx, reply, requires
from gtm.api.gauges import ControlGauges, ReportsDropped
from gtm.api.middleware import Metrics
from gtm.api.problems import problem
from gtm.api.query import TypedResponse, strict_router
from gtm.api.schemas.base import Liveness, Readiness, errors
from gtm.control.replica import Replica
from gtm.core.model.access import Role
from gtm.core.policy.snapshot import Snapshot
from gtm.geoip.address import parse_address
from gtm.geoip.near import foreign
from gtm.settings import Network

router = strict_router(tags=["operations"], any_query=True, public=True)
"""What monitors ask. They put numbers into the query against caches, and HAProxy asks by OPTIONS unless it is told otherwise."""
_FRESH = {"Cache-Control": "no-store"}


@router.options("/healthz", include_in_schema=False)
@router.get("/healthz")
async def healthz() -> TypedResponse[Liveness]:
    """Whether the process runs.

    Always 200: no other part is asked, the database least of all.
    """
    return reply({"status": "ok"}, headers=_FRESH)


@router.options("/readyz", include_in_schema=False)
@router.get("/readyz", responses={503: errors()[503]})
async def readyz(ctx: Ctx) -> TypedResponse[Readiness]:
    """Whether answers are correct.

    The database would take a change, the policy in it compiled and is being published, and this control is the active one.
    """
    if trouble := await ctx.replica.watch.ping():
        remedy = f": {trouble.remedy}" if trouble.remedy else ""
        words = f"not ready for writes: the database {trouble.why}{remedy}; edges are served from memory"
        return problem(503, words, title="unavailable", headers=_FRESH)
    ctx.leading()
    if ctx.present.message is None:
        return problem(503, "no policy revision is loaded yet", title="unavailable")
    return reply({"status": "ready", "revision": ctx.present.revision}, headers=_FRESH)


_viewer = requires(Role.VIEWER)


def metrics_router(
    metrics: Metrics, replica: Replica, allowed: tuple[Network, ...], names: frozenset[str]
) -> APIRouter:
    """Make `/metrics`, with gauges that look at the process when they are scraped.

    Args:
        metrics: the process's own counters.
        replica: what gauges look at.
        allowed: networks that need no token.
        names: what this machine is known by (`gtm.geoip.near`).
    """
    gauges = ControlGauges(replica)
    metrics.registry.register(gauges)
    metrics.registry.register(ReportsDropped(replica))
    scraped = strict_router(tags=["operations"], public=True)

    @scraped.get(
        "/metrics",
        operation_id="metrics",
        summary="Prometheus metrics",
        response_class=Response,
        description=f"Outside the networks of `GTM_METRICS_ALLOW` (by default this machine), for tokens of role `{Role.VIEWER}`.",
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
            **{status: errors(421)[status] for status in (401, 403, 421)},
        },
    )
    async def scrape(ctx: Ctx, request: Request, credentials: Credentials) -> Response:
        if not _near(request, allowed):
            await _viewer(request, ctx, credentials)
        elif words := _foreign(request, names, ctx.present.compiled):
            if credentials is None:
                return problem(421, words, title="foreign host")
            await _viewer(request, ctx, credentials)
        await gauges.look()
        return Response(generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return scraped


def _foreign(request: Request, names: frozenset[str], snapshot: Snapshot | None) -> str:
    """Say what is wrong with the Host of a request over loopback; nothing: it is this machine's."""
    peer = None if request.client is None else request.client.host
    return foreign(peer, request.headers.get("host", "").encode("latin-1"), names, snapshot)


def _near(request: Request, allowed: tuple[Network, ...]) -> bool:
    """Whether a request comes from a network without a proxy between, behind which it could be anybody's."""
    if request.client is None or {"x-forwarded-for", "forwarded"}.intersection(request.headers):
        return False
    client = parse_address(request.client.host.partition("%")[0])
    return any(client in network for network in allowed)
