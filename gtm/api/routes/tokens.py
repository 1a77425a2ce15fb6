"""Bearer tokens: made, listed and revoked by admins."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Path
from pydantic import Field, StrictStr

from gtm.api.context import Admin, Ctx, reply
from gtm.api.paging import NO_CURSOR, Cursor, Limit, decode_cursor, encode_cursor
from gtm.api.query import TypedResponse, strict_router
from gtm.api.schemas.base import Page, errors
from gtm.api.schemas.state import TokenCreated, TokenView
from gtm.control.errors import BadRequest
from gtm.control.live import tokens
from gtm.control.live.tokens import LONGEST_GRACE
from gtm.core.model.access import OWNER_PATTERN, Role
from gtm.documents import fields
from gtm.documents.resources import Document
from gtm.storage.tokens import Place

router = strict_router(prefix="/v1/tokens", tags=["tokens"])


Owner = Annotated[str, Field(max_length=400, pattern=f"^{OWNER_PATTERN}$")]


Digest = Annotated[StrictStr, Field(pattern="^[0-9a-f]{64}$")]
"""SHA-256 in hex."""


class TokenRequest(Document):
    """A token to make."""

    name: fields.Name
    role: Role
    expires_at: fields.Moment | None = None
    """Absent: never."""
    edges: str | None = Field(default=None, max_length=253, pattern=f"^{tokens.EDGES_PATTERN}$")
    """Of role `edge`: the edge that it speaks for, or a pattern of names (`fra-*`). Absent: the edge of its own name."""
    regions: str | None = Field(default=None, max_length=63, pattern=f"^{tokens.REGIONS_PATTERN}$")
    """Of role `balancer`, and if wanted of role `reporter`: the region that it may report on, or a pattern of names (`eu-*`).
    Absent, a reporter may report on any."""
    names: str | None = Field(default=None, max_length=253, pattern=f"^{tokens.NAMES_PATTERN}$")
    """Of role `acme`: the name for whose certificates it may write challenges, or a pattern of names (`*.example.com`, which includes `example.com`)."""
    owner: Owner | None = None
    """The person or automation that stands behind it, people as they are called when they sign in. Absent: the owner of what it is made with."""
    sha256: Digest | None = None
    """Of a text that whoever asks has drawn, from at least 128 bits of chance, and that control never sees. Absent: control draws one."""


def _drawn(body: TokenRequest | RotateRequest) -> bytes | None:
    return None if body.sha256 is None else bytes.fromhex(body.sha256)


@router.post("", status_code=201, responses=errors(409, 413, 415))
async def create_token(ctx: Ctx, who: Admin, body: TokenRequest) -> TypedResponse[TokenCreated]:
    """Make a token.

    The answer holds its text, which is shown this once and stored nowhere.
    """
    made = await tokens.create(
        ctx.database,
        body.name,
        body.role,
        by=who.actor,
        now=datetime.now(UTC),
        expires_at=body.expires_at,
        edges=body.edges,
        regions=body.regions,
        names=body.names,
        owner=body.owner,
        drawn=_drawn(body),
    )
    await ctx.replica.watch.refresh()
    return reply({**asdict(made.token), "token": made.text or None}, 201, {"Cache-Control": "no-store"})


@router.get("", responses=errors(400))
async def list_tokens(
    ctx: Ctx, _: Admin, limit: Limit = 100, cursor: Cursor = None
) -> TypedResponse[Page[TokenView]]:
    """List tokens, by name.

    Revoked and expired ones included, the latest of a name first.
    """
    found = await tokens.list_page(ctx.database, _after(cursor), limit + 1)
    items, more = found[:limit], None
    if len(found) > limit:
        name, created, identity = tokens.place(items[-1])
        more = encode_cursor(f"{created.isoformat()} {identity} {name}")
    return reply({"items": items, "next_cursor": more})


def _after(cursor: str | None) -> Place | None:
    """Where the page before ended.

    Raises:
        BadRequest: the cursor is not one of ours.
    """
    last = decode_cursor(cursor)
    if last is None:
        return None
    created, _, rest = last.partition(" ")
    identity, _, name = rest.partition(" ")
    try:
        return name, datetime.fromisoformat(created).astimezone(UTC), identity
    except (ValueError, OverflowError) as error:
        raise BadRequest(NO_CURSOR) from error


class RotateRequest(Document):
    """How to replace a token's text."""

    grace_seconds: Annotated[float, Field(ge=0, le=LONGEST_GRACE.total_seconds())] = 3600.0
    """For how long the old text works yet."""
    owner: Owner | None = None
    """Another owner. Absent: the one it has."""
    sha256: Digest | None = None
    """Of the new text, if whoever asks has drawn it."""


@router.post("/{token:segment}:rotate", status_code=201, responses=errors(404, 413, 415))
async def rotate_token(
    ctx: Ctx,
    who: Admin,
    token: Annotated[str, Path(pattern=fields.NAME_PATTERN, description="The token's name.")],
    body: RotateRequest | None = None,
) -> TypedResponse[TokenCreated]:
    """Replace a token's text.

    The new token has the name, role, expiry and owner of the old one, which works until the grace is over. The answer holds its text, which
    is shown this once and stored nowhere.
    """
    wanted = body or RotateRequest()
    grace = timedelta(seconds=wanted.grace_seconds)
    made = await tokens.rotate(
        ctx.database,
        token,
        by=who.actor,
        now=datetime.now(UTC),
        grace=grace,
        owner=wanted.owner,
        drawn=_drawn(wanted),
    )
    await ctx.replica.watch.refresh()
    return reply({**asdict(made.token), "token": made.text or None}, 201, {"Cache-Control": "no-store"})


@router.delete("/{token:segment}", responses=errors(404))
async def revoke_token(
    ctx: Ctx,
    who: Admin,
    token: Annotated[str, Path(pattern=fields.NAME_PATTERN, description="The token's id or its name.")],
) -> TypedResponse[TokenView]:
    """Revoke a token.

    For good; by name, with those that it has replaced. It stops working here at once, and at edges as soon as the feed has told them. Its
    name is free again.
    """
    ended = await tokens.revoke(ctx.database, token, by=who.actor)
    await ctx.replica.watch.refresh()
    return reply(ended)
