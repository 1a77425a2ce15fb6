"""Which tools manage resources of the policy, and letting go of them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gtm.api.context import Ctx, Operator, Viewer, reply
from gtm.api.query import TypedResponse, strict_router
from gtm.api.routes.policy.resources import refreshed
from gtm.api.schemas.base import Schema, errors
from gtm.control.errors import Invalid
from gtm.control.policy import managers
from gtm.control.policy.managers import Manager
from gtm.core.model.problems import Problem
from gtm.documents import fields
from gtm.documents.parts import ResourceName
from gtm.documents.resources import MAX_RESOURCES, Document

router = strict_router(prefix="/v1", tags=["managers"])


class ManagerView(Schema, of=Manager):
    """A tool, and what it manages."""


class ManagerList(Schema):
    """Every tool that manages something, by name."""

    items: list[ManagerView]


class ReassignRequest(Document):
    """Who is to manage what a tool manages."""

    manager: fields.Manager
    """The manager that the resource has now."""
    to: fields.Manager | None = None
    """The manager that it shall have; left out: none."""
    resources: Annotated[tuple[ResourceName, ...], Field(max_length=MAX_RESOURCES)] | None = None
    """Which resources; left out: all that it manages."""
    reason: Annotated[fields.Line, Field(min_length=1)]
    """Why; kept in the audit log."""


class ReassignView(Schema):
    """The resources that another tool manages now, or nobody."""

    resources: list[ResourceName]


@router.get("/managers")
async def list_managers(ctx: Ctx, _: Viewer) -> TypedResponse[ManagerList]:
    """List the tools that manage resources.

    Answered from memory, also while the database is down.
    """
    return reply({"items": managers.summed(ctx.present.managed)})


@router.post("/managers:reassign", responses=errors(404, 409, 413, 415))
async def reassign_managers(ctx: Ctx, who: Operator, body: ReassignRequest) -> TypedResponse[ReassignView]:
    """Let another tool manage resources, or none.

    The resources stay as they are, and there is no revision. All or nothing: 409 if one of them is not managed by `manager`, 404 if that
    manages nothing.
    """
    if not body.reason.strip():
        problem = Problem("reason", "missing", "say why: it is kept in the audit log")
        raise Invalid(f"{problem}", (problem,))
    keys = None if body.resources is None else [(one.kind, one.name) for one in body.resources]
    done = await managers.reassign(
        ctx.database, body.manager, body.to, keys, by=who.actor, reason=body.reason.strip()
    )
    await refreshed(ctx)
    return reply({"resources": [{"kind": kind, "name": name} for kind, name in done]})
