"""The policy as a whole, its revisions, and the regions' admin states."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Path, Query, Response
from pydantic import Field

from gtm.api.context import (
    Comment,
    Context,
    Ctx,
    FenceAdmin,
    Force,
    ForceReason,
    Operator,
    Viewer,
    Writing,
    reply,
)
from gtm.api.paging import Cursor, IfMatch, Limit, decode_number, encode_cursor, is_number, precondition
from gtm.api.query import TypedResponse, strict_router
from gtm.api.routes.policy.resources import changed, put_reply
from gtm.api.schemas.base import Page, ResourceChanged, errors, picked
from gtm.api.schemas.policy import (
    AcceptedView,
    DiffView,
    PolicyChanged,
    PolicyView,
    RevisionSchema,
    RevisionView,
)
from gtm.control.errors import BadRequest, PreconditionFailed
from gtm.control.policy import changes as policy
from gtm.control.policy import resources, revisions
from gtm.control.policy.trial import ChangeOutcome
from gtm.core.model.kinds import KINDS
from gtm.core.model.policy import Policy
from gtm.core.model.regions import AdminState
from gtm.documents import fields, yamls
from gtm.documents.parts import DraftDocument, Held
from gtm.documents.resources import Document, RegionDocument
from gtm.documents.schema import concise_policy, export_policy

router = strict_router(prefix="/v1")

YAML = "application/yaml"
"""RFC 9512."""
Number = Annotated[int, Path(ge=1, le=2**63 - 1, description="The revision's number.")]
_ETAG = {"ETag": {"description": "The revision, for If-Match on apply.", "schema": {"type": "string"}}}


class ApplyRequest(DraftDocument):
    """A whole policy to put in force: what it does not hold is deleted, unless it says that it is a part of one."""

    dry_run: fields.Flag = False
    """Only say what would change."""
    comment: fields.Text = ""
    """Kept with the revision."""
    unless_changed: Annotated[tuple[Held, ...], Field(max_length=1000)] = ()
    """Resources that must be as they were read."""
    defer: fields.Flag = False
    """Whether what is in `delete` may wait until nothing refers to it and no fence opens by it: a later change makes the deletion then. For tools that make changes one by one."""
    only_own: fields.Flag = False
    """Whether of what the policy does not hold only that is deleted which the tool of `GTM-Managed-By` manages."""


class AcceptOlderRequest(Document):
    """Why going back is meant."""

    reason: fields.Text = ""
    """Kept in the audit log."""


class RollbackRequest(Document):
    """The options of rolling back."""

    dry_run: fields.Flag = False
    """Only say what would change."""
    comment: fields.Text = ""
    """Kept with the new revision."""


@router.get(
    "/policy",
    tags=["policy"],
    responses={200: {"headers": _ETAG, "content": {YAML: {"schema": {"type": "string"}}}}},
)
async def get_policy(
    *,
    ctx: Ctx,
    _: Viewer,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
    admin_states: Annotated[
        bool, Query(description="Include the regions' admin states and the zones' challenges.")
    ] = False,
) -> TypedResponse[PolicyView]:
    """Export the whole policy.

    JSON, or YAML for `Accept: application/yaml`. Regions carry their admin state and zones their challenges only if asked for, since
    applying an export must not undo a drain or delete a challenge made since.
    """
    current, revision = await policy.current_policy(ctx.database)
    headers = {"ETag": f'"{revision}"', "Vary": "Accept"}
    if YAML in accept:
        text = yamls.dump(concise_policy(current, admin_states=admin_states))
        return TypedResponse(text, headers=headers, media_type=YAML)
    document = {kind: getattr(current, kind) for kind in KINDS}  # encoded as they are: a large one is 7 MB
    if not admin_states:
        operated = export_policy(Policy(regions=current.regions, zones=current.zones))
        document |= {kind: operated[kind] for kind in ("regions", "zones")}
    return reply({"revision": revision, "policy": document}, headers=headers)


@router.post("/policy:apply", tags=["policy"], responses=errors(409, 412, 413, 415))
async def apply_policy(
    *,
    ctx: Ctx,
    who: Operator,
    body: ApplyRequest,
    if_match: IfMatch = None,
    force: Force = False,
    force_reason: ForceReason = "",
    writing: Writing,
) -> TypedResponse[PolicyChanged]:
    """Put a whole policy in force, or a part of one.

    All or nothing. `If-Match` with the ETag of `GET /v1/policy` guards against changes made meanwhile, `unless_changed` against those of
    single resources. With `partial`, what the policy does not hold stays. A tool (`GTM-Managed-By`) manages from then on what the policy
    holds.
    """
    expected = _expected(if_match)
    outcome = await policy.apply(
        ctx.database,
        body,
        ctx.intent(who, body.comment, force=force, reason=force_reason, writer=writing, expected=expected),
        dry_run=body.dry_run,
        held=body.unless_changed,
        only_own=body.only_own,
        defer=body.defer,
    )
    return await _policy_reply(ctx, outcome, dry_run=body.dry_run)


def _expected(if_match: str | None) -> int | None:
    tags = precondition(if_match, None).match
    if tags is None or tags == {"*"}:
        return None
    numbers = [tag.strip('"') for tag in tags]
    if len(numbers) > 1:
        raise BadRequest("`If-Match` takes one revision here")
    if not is_number(numbers[0]):
        raise PreconditionFailed("this is not the revision in force: read the policy again")
    return int(numbers[0])


async def _policy_reply(
    ctx: Context, outcome: ChangeOutcome, *, dry_run: bool = False
) -> TypedResponse[PolicyChanged]:
    return reply({**outcome.document(dry_run=dry_run), **await changed(ctx, outcome)})


@router.get("/revisions", tags=["revisions"], responses=errors(400))
async def list_revisions(
    *,
    ctx: Ctx,
    _: Viewer,
    limit: Limit = 100,
    cursor: Cursor = None,
    below: Annotated[
        int | None, Query(ge=1, le=2**63 - 1, description="Only revisions of lower numbers.")
    ] = None,
) -> TypedResponse[Page[RevisionSchema]]:
    """List revisions, newest first.

    A page of revisions: who made each, when, why, and what it changed in a line.
    """
    bounds = [bound for bound in (decode_number(cursor), below) if bound is not None]
    found = await revisions.list_page(ctx.database, min(bounds, default=None), limit + 1)
    more = encode_cursor(str(found[limit - 1].number)) if len(found) > limit else None
    return reply({"items": found[:limit], "next_cursor": more})


@router.get("/revisions/{number:segment}", tags=["revisions"], responses=errors(404))
async def get_revision(ctx: Ctx, _: Viewer, number: Number) -> TypedResponse[RevisionView]:
    """Get a revision with its policy.

    A revision, with the whole policy as it was.
    """
    revision, then = await revisions.get(ctx.database, number)
    return reply(picked(RevisionView, revision, policy=export_policy(then, admin_states=True)))


@router.get("/revisions/{number:segment}/diff", tags=["revisions"], responses=errors(404))
async def diff_revision(
    ctx: Ctx,
    _: Viewer,
    number: Number,
    against: Annotated[
        int | None,
        Query(ge=0, le=2**63 - 1, description="0: the empty policy. Left out: the revision before."),
    ] = None,
) -> TypedResponse[DiffView]:
    """What differs between two revisions.

    Get the differences between revision `against` and revision `number`.
    """
    other, changes = await revisions.diff(ctx.database, number, against)
    return reply({"revision": number, "against": other, "changes": changes})


@router.post(
    "/revisions/{number:segment}:rollback", tags=["revisions"], responses=errors(404, 409, 412, 413, 415)
)
async def rollback_revision(
    *,
    ctx: Ctx,
    who: Operator,
    number: Number,
    body: RollbackRequest | None = None,
    if_match: IfMatch = None,
    force: Force = False,
    force_reason: ForceReason = "",
    writing: Writing,
) -> TypedResponse[PolicyChanged]:
    """Put an earlier revision's policy in force again.

    Makes a new revision. Regions keep their admin state of today, zones their challenges. `If-Match` with the ETag of `GET /v1/policy`
    guards against changes made meanwhile.
    """
    asked = body or RollbackRequest()
    expected = _expected(if_match)
    intent = ctx.intent(
        who, asked.comment, force=force, reason=force_reason, writer=writing, expected=expected
    )
    outcome = await revisions.rollback(ctx.database, number, intent, dry_run=asked.dry_run)
    return await _policy_reply(ctx, outcome, dry_run=asked.dry_run)


@router.post("/revisions:accept-older", tags=["revisions"], responses=errors(409, 413, 415))
async def accept_older(ctx: Ctx, who: FenceAdmin, body: AcceptOlderRequest) -> TypedResponse[AcceptedView]:
    """Say that going back to what the database has is meant.

    For a database that was restored from a backup: edges and balancers that hold revisions which it has lost keep them until then, and are
    sent its own at once afterwards. Whoever does this may open a fence by it: nobody can tell what was lost. 409: nobody holds any.
    """
    lost = await revisions.accept_older(ctx.database, by=who.actor, reason=body.reason)
    await ctx.replica.watch.refresh()
    return reply({"lost": [{"after": fork.after, "up_to": fork.up_to} for fork in lost]})


_STATES = {
    "drain": (AdminState.DRAINING, "Take no new clients in a region"),
    "activate": (AdminState.ACTIVE, "Let a region take clients again"),
    "disable": (AdminState.DISABLED, "Take a region out of service, and stop probing it"),
}


def _add_state(verb: str, state: AdminState, summary: str) -> None:
    @router.post(
        f"/regions/{{name:segment}}:{verb}",
        tags=["regions"],
        operation_id=f"{verb}_region",
        summary=summary,
        response_model=ResourceChanged[RegionDocument],
        responses=errors(404, 409),
    )
    async def set_state(
        *,
        ctx: Ctx,
        who: Operator,
        name: fields.Name,
        comment: Comment = "",
        force: Force = False,
        force_reason: ForceReason = "",
    ) -> Response:
        intent = ctx.intent(who, comment.strip(), force=force, reason=force_reason)
        return await put_reply(ctx, await resources.set_admin_state(ctx.database, name, state, intent))


for _verb, (_state, _summary) in _STATES.items():
    _add_state(_verb, _state, _summary)
