"""Second persons' approvals of changes that open a fence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import Field

from gtm.api.context import Ctx, FenceAdmin, Principal, Viewer, reply
from gtm.api.query import TypedResponse, strict_router
from gtm.api.schemas.base import Schema, errors, picked
from gtm.control.policy import approvals
from gtm.control.policy.approvals import Author
from gtm.documents import fields
from gtm.documents.resources import Document
from gtm.storage.approvals import Approval

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
    owner: str | None
    """Whose the token or session was that approved; null: unknown."""
    reason: str
    created_at: datetime
    expires_at: datetime
    objection: str | None
    """Why it would not count for a change by whoever asks: who counts as one with whom; null: it counts as long as it stands."""


class ApprovalList(Schema):
    """The latest approvals."""

    items: list[ApprovalView]


@router.post("", status_code=201, responses=errors(413, 415))
async def approve_fence(ctx: Ctx, who: FenceAdmin, body: ApprovalRequest) -> TypedResponse[ApprovalView]:
    """Approve of a change that opens a fence.

    It counts only if nobody has both in hand, what approves and what makes the change: their owners, and whoever made them.
    """
    now = datetime.now(UTC)
    made = await approvals.approve(
        ctx.database,
        body.sha256,
        by=who.actor,
        reason=body.reason.strip(),
        now=now,
        expires_at=body.expires_at or now + timedelta(hours=1),
    )
    return reply(_view(made, approvals.objection(_author(who), made, {})), 201)


@router.get("")
async def list_fence_approvals(ctx: Ctx, who: Viewer) -> TypedResponse[ApprovalList]:
    """List approvals, the latest first.

    Approvals that have ended are in the list, too.
    """
    found = await approvals.list_all(ctx.database, _author(who))
    return reply({"items": [_view(one.approval, one.objection) for one in found]})


def _author(who: Principal) -> Author:
    """Whoever asks, as if they made the change."""
    return Author(who.name, who.hands)


def _view(made: Approval, objection: str | None) -> dict[str, Any]:
    return picked(ApprovalView, made, owner=made.hands.owner, objection=objection)
