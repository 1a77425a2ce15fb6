"""Drafts as people write them: YAML, read and checked as `gtm check` does."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Any

from fastapi import Response
from pydantic import Field, StrictStr

from gtm.api.context import Ctx, Viewer, reply
from gtm.api.query import strict_router
from gtm.api.schemas.base import ErrorSchema, Schema, errors
from gtm.control.errors import Unavailable
from gtm.core.model.policy import Policy
from gtm.core.model.problems import Problem
from gtm.documents import fields
from gtm.documents.folders import check_references, read_text
from gtm.documents.parts import ResourceName, merged
from gtm.documents.resources import MAX_RESOURCES, Document

router = strict_router(prefix="/v1", tags=["policy"])

MAX_TEXT = 1024 * 1024
"""Characters of a text; what is larger is checked by `gtm check`."""
MOST_PAIRS = 200_000
"""Regions × services and rules of a policy that is compiled as well: more would take seconds, in control's own process."""
_CALLED = "draft"
_LINE = re.compile(rf"^{_CALLED}:([0-9]+): ")
_SAID = re.compile(r"^line ([0-9]+), column [0-9]+: ")


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
    """What a text says."""

    problems: list[LineProblem]
    """By line. Empty: it is sound."""
    compiled: bool
    """Whether names and their effects were looked at, too; larger policies are only read here, and compiled when they are planned."""
    policy: dict[str, Any] | None
    """What it holds, as `policy:apply` takes it; null: it has problems."""
    revision: int
    """The revision in force, that a partial text was read with."""


@router.post(
    "/policy:read",
    operation_id="read_policy",
    summary="Read a draft written as YAML",
    description="What is wrong with it, line by line, as `gtm check` says it, and what it says as JSON. Changes nothing.",
    response_model=ReadView,
    responses=errors(413, 415),
)
async def read(ctx: Ctx, _: Viewer, body: ReadRequest) -> Response:
    """Read a text, and compile the policy that it makes."""
    running = ctx.present.compiled
    if running is None:
        raise Unavailable("no policy revision is loaded yet: try again")
    found = await asyncio.to_thread(_read, body, running.policy)
    return reply({**found, "revision": ctx.present.revision})


def _read(asked: ReadRequest, running: Policy) -> dict[str, Any]:
    folder = read_text(asked.text, _CALLED)
    gone = {(one.kind, one.name) for one in asked.delete}

    def whole(part: Policy) -> Policy:
        return merged(running, part, gone) if asked.partial else part

    problems, compiled = list(folder.problems), not folder.problems
    if compiled:
        compiled = _pairs(whole(folder.document().to_core())) <= MOST_PAIRS
        if compiled:
            problems, _ = check_references(folder, whole)
    policy = None if problems else folder.document().model_dump(mode="json", exclude_unset=True)
    lined = sorted((_lined(one) for one in problems), key=lambda one: one["line"] or 0)
    return {"problems": lined, "compiled": compiled, "policy": policy}


def _pairs(policy: Policy) -> int:
    return len(policy.regions) * (len(policy.services) + len(policy.residency_rules))


def _lined(problem: Problem) -> dict[str, Any]:
    path, message, line = problem.path, problem.message, None
    if found := _LINE.match(path):
        line, path = int(found[1]), path[found.end() :]
    elif path == _CALLED:
        path = ""
        if found := _SAID.match(message):
            line, message = int(found[1]), message[found.end() :]
    return {"path": path, "code": problem.code, "message": message, "line": line}
