"""The control tier's application."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi

from gtm import __version__
from gtm.api import docs, operations, problems
from gtm.api.context import Context
from gtm.api.middleware import BodyLimit, Counting, Metrics
from gtm.api.once import prepare
from gtm.api.routes import (
    audit,
    balancers,
    demand,
    dnssec,
    edges,
    handoff,
    health_history,
    latency,
    lists,
    load,
    overview,
    sessions,
    status,
    tokens,
)
from gtm.api.routes.policy import (
    approvals,
    challenges,
    drafts,
    inventory,
    jurisdictions,
    managers,
    reading,
    residency,
    whole,
)
from gtm.api.routes.policy.resources import SLUGS, resource_router
from gtm.api.schemas.base import ProblemSchema
from gtm.api.schemas.state import EndpointHealthSchema
from gtm.control.lead.election import Election
from gtm.control.live.failed_sign_ins import FailedSignIns
from gtm.control.live.sessions import Person
from gtm.control.policy.drafts import GeoIP
from gtm.control.policy.questions import Answers
from gtm.control.replica import Replica
from gtm.core.model.access import STARTED_IT, Role
from gtm.core.model.requests import Location
from gtm.core.policy.snapshot import Snapshot
from gtm.geoip.networks import Locate
from gtm.geoip.reader import Locator
from gtm.settings import (
    DEFAULT_AUDIT_DAYS,
    DEFAULT_DEMAND_DAYS,
    DEFAULT_HALF_LIFE,
    DEFAULT_MAX_MOVED_SHARE,
    DEFAULT_PROBE_DAYS,
    LOOPBACK,
    DnssecSettings,
    Network,
)
from gtm.storage.errors import StorageUnavailable
from gtm.storage.session import Database

MAX_BODY = 10 * 1024 * 1024
"""Bytes accepted in the body of a request."""

_TAGS = [
    {"name": "policy", "description": "The whole policy: export, plan, apply."},
    {"name": "revisions", "description": "What the policy was, and the way back."},
    *({"name": slug} for slug in SLUGS.values()),
    {"name": "managers", "description": "Which tools manage resources."},
    {"name": "residency", "description": "Who may be served where, and until when."},
    {"name": "health", "description": "What the edges' probes say."},
    {"name": "demand", "description": "What clients ask for, now and as recorded."},
    {"name": "load", "description": "What regions report, and what they can take."},
    {"name": "latency", "description": "Measured round trips."},
    {"name": "plan", "description": "What the planner makes of it all, every second."},
    {"name": "edges", "description": "The feed, and which edges have what."},
    {"name": "balancers", "description": "The feed of regions' balancers."},
    {"name": "dnssec", "description": "Keys of signed zones."},
    {"name": "tokens", "description": "Bearer tokens."},
    {"name": "sessions", "description": "People who are signed in at the dashboard."},
    {"name": "audit", "description": "Who did what, when, and why."},
    {"name": "operations", "description": "For machines that watch control."},
]


def create_app(
    database: Database,
    *,
    max_moved: float = DEFAULT_MAX_MOVED_SHARE,
    fence_approvals: int = 0,
    demand_days: int = DEFAULT_DEMAND_DAYS,
    audit_days: int = DEFAULT_AUDIT_DAYS,
    probe_days: int = DEFAULT_PROBE_DAYS,
    half_life: float = DEFAULT_HALF_LIFE,
    signing: DnssecSettings | None = None,
    locate: Locate | None = None,
    geoip: GeoIP = (None, None),
    metrics_allow: tuple[Network, ...] = LOOPBACK,
    name: str = "",
    deposed: Callable[[], None] | None = None,
    sign_in: str = "",
    dashboard_url: str | None = None,
    answers: Answers | None = None,
    peer_allow: tuple[Network, ...] = (),
    names: frozenset[str] = frozenset(),
) -> FastAPI:
    """The application. It follows the database from start-up to shutdown, and then disposes of it.

    A server that stops gracefully waits for open answers, and feeds never end by themselves: call
    `app.state.context.replica.subscribers.close()` first, or bound the wait.

    Args:
        database: where policy and tokens are; need not be reachable yet.
        max_moved: the share (0–1) of the present demand that a change may move at once.
        fence_approvals: how many others have to approve of a change that opens a fence.
        demand_days: days for which recorded demand is kept, 0 if none is to be recorded.
        audit_days: days for which the audit log is kept.
        probe_days: days for which the history of health is kept, 0 if it is not to be written down.
        half_life: seconds after which a measured round trip counts half.
        signing: how keys of signed zones are kept; None: this process has no key file.
        locate: where an address is; None: by the shipped database.
        geoip: what `locate` reads: a database and overrides; None: the shipped one, and none.
        metrics_allow: networks that read the metrics without a token.
        name: what other control processes on the database are told of this one: a host and a port.
        deposed: called when another is active in place of this one, which should end then.
        sign_in: the secret of a link that signs in as admin once; empty: there is none.
        dashboard_url: where people find the dashboard, if another stands before it.
        answers: what an edge would send, for explanations; None: they don't say.
        peer_allow: networks in which balancers may say that others reach them.
        names: what this machine is known by, for what is open only to it.
    """

    def end_feeds() -> None:
        replica.subscribers.close()
        if deposed is not None:
            deposed()

    election = Election(database, name, end_feeds)
    replica = Replica(
        database,
        half_life=half_life,
        dnssec=signing,
        election=election,
        demand_days=demand_days,
        audit_days=audit_days,
        probe_days=probe_days,
    )
    failed = FailedSignIns(database)
    metrics = Metrics()

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with contextlib.suppress(StorageUnavailable):  # served from the moment it comes back
            await replica.watch.refresh()
        running = asyncio.create_task(replica.run())
        failing = asyncio.create_task(failed.run())
        preparing = asyncio.create_task(prepare(replica.current, _ready))
        await election.first()
        try:
            yield
        finally:
            replica.subscribers.close()
            running.cancel()
            failing.cancel()
            preparing.cancel()
            await asyncio.wait([running, failing, preparing])  # each part saves what it has to at its end
            await database.dispose()

    app = FastAPI(
        title="gtm control",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        openapi_tags=_TAGS,
    )
    context = app.state.context = Context(
        database,
        replica,
        locate or _locate,
        max_moved,
        fence_approvals,
        failed=failed,
        answers=answers,
        dashboard_url=dashboard_url,
        geoip=geoip,
        peer_allow=peer_allow,
    )
    if sign_in:
        context.links.make(Person(STARTED_IT, Role.ADMIN), sign_in)
    problems.install(app)
    for router in (*_routers(), operations.metrics_router(metrics, replica, metrics_allow, names)):
        # As they are: `include_router` would make all of them anew, which takes as long as it took to make them.
        app.router.routes.extend(router.routes)
    app.add_middleware(BodyLimit, max_body=MAX_BODY)
    app.add_middleware(Counting, metrics=metrics)
    _describe(app)
    return app


def _routers() -> Iterator[APIRouter]:
    """All but `/metrics`, in the order in which the OpenAPI document shows them."""
    yield whole.router
    yield jurisdictions.router
    yield residency.router
    yield from map(resource_router, SLUGS)
    for module in (
        challenges,
        inventory,
        reading,
        managers,
        approvals,
        drafts,
        demand,
        dnssec,
        tokens,
        sessions,
        audit,
        edges,
        balancers,
        handoff,
        status,
        health_history,
        load,
        latency,
        overview,
        lists,
        operations,
        docs,
    ):
        yield module.router


def _ready(snapshot: Snapshot) -> None:
    residency.ready(snapshot)
    inventory.ready(snapshot.policy)


@cache
def _locator() -> Locator:
    return Locator()


def _locate(address: str | bytes) -> Location:
    """Where an address is by the shipped database, which is read when it is first needed."""
    return _locator().locate(address)


def _describe(app: FastAPI) -> None:
    """Describe errors as what they are: FastAPI would describe its own format for 422."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title,
                version=app.version,
                description="Which region should serve this request? The policy behind the answer, and its state.",
                routes=app.routes,
                tags=app.openapi_tags,
            )
            schemas = document["components"]["schemas"]
            for model in (ProblemSchema, EndpointHealthSchema):
                found = model.model_json_schema(
                    ref_template="#/components/schemas/{model}", mode="serialization"
                )
                schemas.update(found.pop("$defs", {}))
                schemas[model.__name__] = found
            for body in drafts.BODIES:
                found = body.model_json_schema(ref_template="#/components/schemas/{model}")
                for name, schema in found.pop("$defs", {}).items():
                    schemas.setdefault(name, schema)
                schemas[body.__name__] = found
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to extend it
