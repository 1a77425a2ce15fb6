"""What all answers share, as the OpenAPI document describes it: problems, pages, changes."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, TypeVar

from gtm.control.lead.edges import SyncState
from gtm.documents.described import Described
from gtm.storage.resources import PutOutcome

T = TypeVar("T")


class Schema(Described):
    """Base of all answers."""


class ErrorSchema(Schema):
    """One thing wrong."""

    path: str
    """The place of the fault: `services.chat.members[0].region`."""
    code: str
    message: str


class ProblemSchema(Schema):
    """A problem document (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    """The path asked for."""
    code: str
    """The type in a word."""
    errors: tuple[ErrorSchema, ...] = ()


class SilentSchema(Schema):
    """An edge not heard of for 10 seconds: the revision that it had, and when it was last heard of."""

    name: str
    revision: int
    since: datetime


class SyncSchema(Schema):
    """How far a revision has got."""

    revision: int
    state: SyncState
    """PENDING: a live edge lacks the revision, or no edge is live. STALE: no live edge waits for it, but a silent one had an
    older, or a live one has an older on its disk, or one keeps a revision that the database has lost. IN_SYNC: every live edge has it, and so had the silent ones when they were last heard of."""
    in_sync: list[str]
    pending: list[str]
    unreachable: list[str]
    """Edges not heard of for 10 seconds."""
    silent: list[SilentSchema]
    """The same, with what they had."""
    unsaved: list[str]
    """Live edges that have it and cannot keep it on their disk."""
    lost: list[str]
    """Live edges that keep a revision which the database has lost; they are sent this one once `revisions:accept-older` says so."""


class Page(Schema, Generic[T]):
    """Part of a list. The next part: the same request with `cursor` set to `next_cursor`; null at the end."""

    items: list[T]
    next_cursor: str | None


class ManagedSchema(Schema):
    """The manager of a resource."""

    manager: str
    """The tool, and what of it owns the resource: `terraform/prod-network`."""
    since: datetime


class ResourcePage(Page[T], Generic[T]):
    """Part of a list of resources."""

    managed_by: dict[str, ManagedSchema]
    """Name → who manages it; resources that no tool manages are left out."""
    etags: dict[str, str]
    """Name → its entity tag, for If-Match and `unless_changed`."""


class Changed(Schema):
    """The outcome of a change."""

    revision: int
    """The revision in force now; a change that changes nothing makes no new one."""
    sync: SyncSchema
    warnings: list[str]


class ResourceChanged(Changed, Generic[T]):
    """The outcome of a PUT."""

    outcome: PutOutcome
    resource: T
    managed_by: ManagedSchema | None
    """Who manages it from now on."""


class Liveness(Schema):
    """The process runs."""

    status: str


class Readiness(Liveness):
    """Answers are correct."""

    revision: int


_WORDS = {
    400: "The request cannot be understood.",
    401: "No token, or none that counts.",
    403: "The token's role is not enough.",
    404: "There is no such thing.",
    409: "What is there stands against it.",
    412: "The resource is not what the client thinks.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    421: "This machine alone may ask this, by one of its own names.",
    422: "The content is wrong; `errors` lists everything that is.",
    503: "The database cannot be reached; nothing was changed.",
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of an endpoint that needs a token: the statuses given, and those that any such may end in."""
    schema = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemSchema"}}}
    return {
        status: {"description": _WORDS[status], "content": schema}
        for status in sorted({*statuses, 400, 401, 403, 422, 503})
    }
