"""What all endpoints share: how requests are read, and what the OpenAPI document says of a function that answers them."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime, timedelta
from enum import Enum
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.datastructures import DefaultPlaceholder
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_typed_return_annotation
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import StreamingResponse
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from gtm.api.schemas.base import errors
from gtm.control.errors import BadRequest
from gtm.control.policy.traffic import since_now
from gtm.documents import fields
from gtm.feed.reports import MAX_REVISION
from gtm.nesting import loads

T = TypeVar("T")

HeldRevision = Annotated[int, Query(ge=0, le=MAX_REVISION, description="The revision it holds; 0: none.")]
HeldChecksum = Annotated[
    str | None,
    Query(
        pattern="^[0-9a-f]{64}$",
        description="The checksum of that revision: numbers repeat once a database is restored from a backup.",
    ),
]

OnlyRegion = Annotated[fields.Name | None, Query(description="Only this region; left out: all.")]
OnlyService = Annotated[fields.Name | None, Query(description="Only this service.")]
Since = Annotated[fields.Moment | None, Query(description="From then on; left out: 24 hours ago.")]
Until = Annotated[fields.Moment | None, Query(description="Until before then; left out: now.")]


def strict_router(
    prefix: str = "",
    tags: list[str | Enum] | None = None,
    *,
    include_in_schema: bool = True,
    any_query: bool = False,
    public: bool = False,
) -> APIRouter:
    """A router whose endpoints reject query parameters that they do not have. All of the application's are made by this.

    `any_query`: they pass over them. `public`: they take no token, and state themselves which errors they may end in.

    An endpoint is described by its function: name, docstring (the first sentence is the summary) and return annotation; what the decorator
    states goes before these.
    """
    return APIRouter(
        prefix=prefix,
        tags=tags,
        include_in_schema=include_in_schema,
        responses={} if public else errors(),
        dependencies=[] if any_query else [Depends(known_query)],
        route_class=_Route,
    )


def text_answer(media_type: str, description: str) -> dict[int | str, dict[str, Any]]:
    """The `responses` of an endpoint that answers with text of a media type."""
    return {200: {"description": description, "content": {media_type: {"schema": {"type": "string"}}}}}


class TypedResponse(Response, Generic[T]):
    """A response as the return annotation of an endpoint: JSON of this type; None: no content, and status 204."""


class _Request(Request):
    """Reads JSON of a bounded depth."""

    async def json(self) -> Any:
        return loads(await self.body())


class _Route(APIRoute):
    def __init__(self, path: str, endpoint: Callable[..., Any], **given: Any) -> None:
        summary, _, description = inspect.cleandoc(endpoint.__doc__ or "").partition("\n\n")
        given["operation_id"] = given["operation_id"] or endpoint.__name__
        given["summary"] = given["summary"] or summary.removesuffix(".")
        # Without a description FastAPI takes the docstring, and would repeat the summary: a space is one.
        given["description"] = given["description"] or " ".join(description.split()) or " "
        given["responses"] = dict(sorted(given["responses"].items()))
        returned = get_typed_return_annotation(endpoint)
        if get_origin(returned) is TypedResponse and isinstance(given["response_model"], DefaultPlaceholder):
            (model,) = get_args(returned)
            empty = model is type(None)
            given |= {"response_model": None, "status_code": 204} if empty else {"response_model": model}
        super().__init__(path, endpoint, **given)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            return without_stream(request, await handler(_Request(request.scope, request.receive)))

        return bounded

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Say whether a request is for this route; HEAD is wherever GET is (RFC 9110 §9.1)."""
        return super().matches({**scope, "method": "GET"} if scope.get("method") == "HEAD" else scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer HEAD as GET; the server leaves out the body."""
        if scope["method"] == "HEAD" and "GET" in (self.methods or ()):
            await self.app(scope, receive, send)
        else:
            await super().handle(scope, receive, send)


def without_stream(request: Request, response: Response) -> Response:
    """The same answer; to HEAD without what would be streamed, which nobody sees and which may have no end."""
    if request.method == "HEAD" and isinstance(response, StreamingResponse):
        headless = Response(status_code=response.status_code)
        headless.raw_headers = response.raw_headers
        return headless
    return response


async def known_query(request: Request) -> None:
    """Reject query parameters that the endpoint does not have: a misspelt one would silently do nothing.

    Raises:
        RequestValidationError: with each of them.
    """
    dependant = getattr(request.scope.get("route"), "dependant", None)
    if dependant is None:
        return
    known = set(_names(dependant))
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        raise RequestValidationError(
            [
                {"type": "extra_forbidden", "loc": ("query", name), "msg": "", "input": None}
                for name in dict.fromkeys(unknown)
            ]
        )


def _names(dependant: Dependant) -> Iterator[str]:
    """The query parameters of an endpoint and of all that it depends on."""
    yield from (field.alias for field in dependant.query_params)
    for one in dependant.dependencies:
        yield from _names(one)


LONGEST = timedelta(days=3660)
_STEPS = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 15, 60, 360, 1440, 10_080))


def span_of(since: datetime | None, until: datetime | None) -> tuple[datetime, datetime]:
    """From when and until when is asked for, by `Since` and `Until`."""
    begin, now = since_now(since, time.time())
    return begin, now if until is None else until


def step_of(since: datetime, until: datetime, most: int) -> timedelta:
    """The shortest step of which there are so many at most.

    Raises:
        BadRequest: the time is none, or longer than ten years.
    """
    if not timedelta(0) < until - since <= LONGEST:
        raise BadRequest("`until` must be later than `since`, by ten years at most")
    return next((one for one in _STEPS if (until - since) / one <= most), _STEPS[-1])
