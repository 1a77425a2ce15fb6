"""Second persons' approvals of changes that open a fence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Response
from pydantic import Field

from gtm.api.context import Ctx, FenceAdmin, Viewer, reply
from gtm.api.query import strict_router
from gtm.api.schemas.base import Schema, errors
from gtm.control.policy import approvals
from gtm.documents import fields
from gtm.documents.resources import Document

router = strict_router(prefix="/v1/fence-approvals", tags=["policy"])


class ApprovalRequest(Document):
    """A change to approve of."""

    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """The change's fingerprint, as its refusal or a dry run of it names it."""
    reason: Annotated[str, Field(min_length=1, max_length=1000, pattern=fields.LINE_PATTERN)]
    """Kept with the revision."""
    expires_at: fields.Moment | None = None
    """Absent: in an hour."""


class ApprovalView(Schema):
    """Somebody's approval of one change to one revision."""

    sha256: str
    approver: str
    reason: str
    created_at: datetime
    expires_at: datetime


class ApprovalList(Schema):
    """The latest approvals."""

    items: list[ApprovalView]


@router.post(
    "",
    status_code=201,
    operation_id="approve_fence",
    summary="Approve of a change that opens a fence",
    description="It has to be somebody else's: an approval by the token that makes the change counts for nothing.",
    response_model=ApprovalView,
    responses=errors(413, 415),
)
async def approve(ctx: Ctx, who: FenceAdmin, body: ApprovalRequest) -> Response:
    """Approve of a change that somebody else is to make, by its fingerprint."""
    now = datetime.now(UTC)
    made = await approvals.approve(
        ctx.database,
        body.sha256,
        by=who.actor,
        reason=body.reason.strip(),
        now=now,
        expires_at=body.expires_at or now + timedelta(hours=1),
    )
    return reply(made, 201)


@router.get(
    "",
    operation_id="list_fence_approvals",
    summary="List approvals, the latest first",
    response_model=ApprovalList,
    responses=errors(),
)
async def list_(ctx: Ctx, _: Viewer) -> Response:
    """Those that have ended included."""
    return reply({"items": await approvals.list_all(ctx.database)})
