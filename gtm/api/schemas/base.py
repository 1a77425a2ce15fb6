"""What all answers share, as the OpenAPI document describes it: problems, pages, changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from inspect import get_annotations
from types import UnionType
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from gtm.control.lead.edges import Silent, Sync
from gtm.core.model.problems import Problem
from gtm.documents.described import Described
from gtm.storage.resources import Managed, PutOutcome

T = TypeVar("T")
_ANSWERED: dict[type[Any], type[Schema]] = {}
"""Value → as what it is answered."""


class Schema(Described):
    """Base of all answers.

    `class TokenView(Schema, of=Token)`: the answer has the fields of that dataclass, but for those that it is `without`; values in it are as these are
    answered.
    """

    def __init_subclass__(
        cls, of: type[Any] | None = None, without: Collection[str] = (), **given: Any
    ) -> None:
        super().__init_subclass__(**given)
        if of is not None:
            hints, names = get_type_hints(of), (one.name for one in fields(of) if one.name not in without)
            cls.__annotations__ = {**{name: _answered(hints[name]) for name in names}, **get_annotations(cls)}
            cls.__value__ = of
            _ANSWERED.setdefault(of, cls)


def _answered(kind: Any) -> Any:
    """The type of a value's field as its answer has it."""
    origin, given = get_origin(kind), tuple(map(_answered, get_args(kind)))
    if origin is tuple:
        return list[given[0]]  # type: ignore[valid-type]
    if origin in (Union, UnionType):
        return Union[given]  # noqa: UP007 - of as many as there are
    if origin in (dict, Mapping):
        return dict[given[0], given[1]]  # type: ignore[valid-type]
    return _ANSWERED.get(kind, kind)


def picked(answer: type[Schema], value: object, **others: Any) -> dict[str, Any]:
    """An answer: its fields are those of a value, but for `others`."""
    return {name: others[name] if name in others else getattr(value, name) for name in answer.model_fields}


class ErrorSchema(Schema, of=Problem):
    """One thing wrong."""


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


class SilentSchema(Schema, of=Silent):
    """An edge not heard of for 10 seconds: the revision that it had, and when it was last heard of."""


class SyncSchema(Schema, of=Sync):
    """How far a revision has got."""


class Page(Schema, Generic[T]):
    """Part of a list. The next part: the same request with `cursor` set to `next_cursor`; null at the end."""

    items: list[T]
    next_cursor: str | None


class ManagedSchema(Schema, of=Managed):
    """The manager of a resource."""


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
    """The outcome of a PUT or PATCH."""

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
