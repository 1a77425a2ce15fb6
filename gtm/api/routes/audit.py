"""The audit log: who did what, when, by what, and why."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated

import msgspec
from fastapi import Depends, Query, Response
from fastapi.responses import StreamingResponse

from gtm.api.context import Ctx, Principal, Viewer, reply
from gtm.api.paging import Cursor, Limit, decode_number, encode_cursor
from gtm.api.query import TypedResponse, strict_router, text_answer
from gtm.api.schemas.base import Page, Schema
from gtm.core.model.access import Role, permits
from gtm.documents import fields
from gtm.storage.history.audit import Entry, WantedEntries
from gtm.storage.session import Database

router = strict_router(prefix="/v1", tags=["audit"])

PRIVATE = ("token", "session", "sign-in")
"""Families of actions that only admins read of: they tell of people and of ways in, not of what is in force."""
LINES = "application/jsonl"
AT_ONCE = 1000


class EntryView(Schema, of=Entry):
    """Something that was done."""


_Text = Annotated[str | None, Query(max_length=253, pattern=fields.LINE_PATTERN)]


def wanted(
    *,
    who: Annotated[_Text, Query(description="Part of who did it, in any case.")] = None,
    action: Annotated[
        str | None,
        Query(
            max_length=100,
            pattern=r"^[a-z-]+(\.[a-z_-]+)?$",
            description="An action (`region.drain`), or a family of them (`region`).",
        ),
    ] = None,
    target: Annotated[_Text, Query(description="Part of what it was done to, in any case.")] = None,
    since: Annotated[fields.Moment | None, Query(description="From then on.")] = None,
    until: Annotated[fields.Moment | None, Query(description="Until before then.")] = None,
    forced: Annotated[
        bool | None, Query(description="Only what overruled safety rules, or only what did not.")
    ] = None,
    public: Annotated[
        bool, Query(description="Without what is about tokens, sessions and sign-ins, as viewers see it.")
    ] = False,
    oldest_first: Annotated[bool, Query(description="List the oldest entry first.")] = False,
) -> tuple[WantedEntries, bool]:
    """What is looked for, and whether the oldest comes first."""
    hidden = PRIVATE if public else ()
    return WantedEntries(who, action, target, since, until, forced, hidden), oldest_first


_Looked = Annotated[tuple[WantedEntries, bool], Depends(wanted)]


def _seen_by(who: Principal, looked: WantedEntries) -> WantedEntries:
    return looked if permits(who.role, Role.ADMIN) else replace(looked, hidden=PRIVATE)


@router.get("/audit")
async def list_audit(
    ctx: Ctx, who: Viewer, looked: _Looked, limit: Limit = 100, cursor: Cursor = None
) -> TypedResponse[Page[EntryView]]:
    """Search the audit log, the newest first.

    Every change and every forced action. What is about tokens, sessions and sign-ins only admins see.
    """
    sought, oldest_first = looked
    async with ctx.database.transaction() as transaction:
        found = await transaction.audit.list(
            _seen_by(who, sought), decode_number(cursor), limit + 1, oldest_first=oldest_first
        )
    more = encode_cursor(str(found[limit - 1].id)) if len(found) > limit else None
    return reply({"items": found[:limit], "next_cursor": more})


@router.get("/audit:export", response_class=Response, responses=text_answer(LINES, "An entry a line."))
async def export_audit(ctx: Ctx, who: Viewer, looked: _Looked) -> Response:
    """The same as lines of JSON, without pages.

    All that is found, as it is read.
    """
    sought, oldest_first = _seen_by(who, looked[0]), looked[1]
    first = await _piece(
        ctx.database, sought, None, oldest_first=oldest_first
    )  # a database that is away is told of
    headers = {"Cache-Control": "no-store", "Content-Disposition": 'attachment; filename="gtm-audit.jsonl"'}
    lines = _lines(ctx.database, sought, first, oldest_first=oldest_first)
    return StreamingResponse(lines, media_type=LINES, headers=headers)


async def _lines(
    database: Database, sought: WantedEntries, piece: list[Entry], *, oldest_first: bool
) -> AsyncIterator[bytes]:
    while piece:
        yield b"".join(msgspec.json.encode(one) + b"\n" for one in piece)
        if len(piece) < AT_ONCE:
            return
        piece = await _piece(database, sought, piece[-1].id, oldest_first=oldest_first)


async def _piece(
    database: Database, sought: WantedEntries, after: int | None, *, oldest_first: bool
) -> list[Entry]:
    async with database.transaction() as transaction:
        return await transaction.audit.list(sought, after, AT_ONCE, oldest_first=oldest_first)
