"""The control tier's application."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi

from gtm import __version__
from gtm.api import docs, operations, problems
from gtm.api.context import Context, prepare
from gtm.api.middleware import BodyLimit, Counting, Metrics
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
    request_history,
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
from gtm.control.policy.questions import Answers
from gtm.control.replica import Replica
from gtm.core.model.access import STARTED_IT, Role
from gtm.core.policy.snapshot import Snapshot
from gtm.geoip.networks import Locate
from gtm.settings import ControlSettings
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
    settings: ControlSettings,
    locate: Locate,
    answers: Answers | None = None,
    *,
    name: str = "",
    deposed: Callable[[], None] | None = None,
    names: frozenset[str] = frozenset(),
) -> FastAPI:
    """The application. It follows the database from start-up to shutdown, and then disposes of it.

    A server that stops gracefully waits for open answers, and feeds never end by themselves: call
    `app.state.context.replica.subscribers.close()` first, or bound the wait.

    Args:
        database: where policy and tokens are; need not be reachable yet.
        settings: what the process was told.
        locate: where an address is.
        answers: what an edge would send, for explanations; None: they don't say.
        name: what other control processes on the database are told of this one: a host and a port.
        deposed: called when another is active in place of this one, which should end then.
        names: what this machine is known by, for what is open only to it.
    """

    def end_feeds() -> None:
        replica.subscribers.close()
        if deposed is not None:
            deposed()

    election = Election(database, name, end_feeds)
    replica = Replica(database, settings, election)
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
    context = app.state.context = Context(database, replica, settings, locate, failed, answers)
    if settings.sign_in:
        context.links.make(Person(STARTED_IT, Role.ADMIN), settings.sign_in)
    problems.install(app)
    for router in (*_routers(), operations.metrics_router(metrics, replica, settings.metrics_allow, names)):
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
        request_history,
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
