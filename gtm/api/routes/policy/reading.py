"""Drafts as people write them: YAML, read and checked as `gtm check` does."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from pydantic import Field, StrictStr

from gtm.api.context import Ctx, Viewer, reply
from gtm.api.query import TypedResponse, strict_router
from gtm.api.schemas.base import ErrorSchema, Schema, errors
from gtm.control.policy import drafts
from gtm.control.policy.drafts import DraftText
from gtm.documents import fields
from gtm.documents.parts import ResourceName
from gtm.documents.resources import MAX_RESOURCES, Document

router = strict_router(prefix="/v1", tags=["policy"])

MAX_TEXT = 1024 * 1024
"""Characters of a text; what is larger is checked by `gtm check`."""
SHORT = 64 * 1024
"""Characters of a text that is read in control's own process, which people who type wait for: a tenth of a second at worst. One with anchors may become
much more (`gtm.documents.yamls`), and is read apart."""


class ReadRequest(Document):
    """A text to read."""

    text: Annotated[StrictStr, Field(max_length=MAX_TEXT)]
    """YAML, as in a file of a policy."""
    partial: fields.Flag = False
    """Whether resources that it does not hold stay as they are."""
    delete: Annotated[tuple[ResourceName, ...], Field(max_length=MAX_RESOURCES)] = ()
    """What is deleted although the text is partial."""


class LineProblem(ErrorSchema):
    """Something wrong with a text."""

    line: int | None
    """From 1; null: it is nowhere in the text, but wrong because of it."""


class ReadView(Schema):
    """The documents that a text holds, and what is wrong with it."""

    problems: list[LineProblem]
    """By line. Empty: it is sound."""
    compiled: bool
    """Whether names and their effects were looked at, too; larger policies are only read here, and compiled when they are planned."""
    policy: dict[str, Any] | None
    """What it holds, as `policy:apply` takes it; null: it has problems."""
    revision: int
    """The revision in force, that a partial text was read with."""


@router.post("/policy:read", responses=errors(413, 415))
async def read_policy(ctx: Ctx, _: Viewer, body: ReadRequest) -> TypedResponse[ReadView]:
    """Read a draft written as YAML.

    What is wrong with it, line by line, as `gtm check` says it, and what it says as JSON. Changes nothing. A long text, or one with
    anchors, is read in a process with bounds on its memory and time (413 says which was met); 503 with Retry-After: too many are at work.
    """
    running = ctx.running()
    gone = frozenset((one.kind, one.name) for one in body.delete)
    asked = DraftText(body.text, body.partial, gone, running.policy, running.revision)
    if len(body.text) > SHORT or "&" in body.text:
        return TypedResponse(await ctx.apart.run(asked), media_type="application/json")
    async with ctx.readers:
        return reply(await asyncio.to_thread(drafts.read, asked))
