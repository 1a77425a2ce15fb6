"""Every error as `application/problem+json` (RFC 9457)."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from gtm.api.query import TypedResponse
from gtm.control.errors import ControlError
from gtm.core.model.problems import PolicyError, Problem
from gtm.core.model.refusals import problem_type
from gtm.documents import patching
from gtm.documents.schema import PolicyDocument
from gtm.documents.structure import body_models, problems_of_errors
from gtm.nesting import ShapeError
from gtm.secret import redact
from gtm.storage.errors import StorageUnavailable
from gtm.storage.turns import Busy

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
PATCHES = (patching.MEDIA_TYPE, "application/json")
"""What bodies of PATCH may be (`Accept-Patch`, RFC 5789 §3.1)."""
_RETRY_AFTER = {"Retry-After": "2"}


def problem(
    status: int,
    detail: str,
    *,
    title: str = "",
    errors: Sequence[Problem] = (),
    headers: dict[str, str] | None = None,
    members: Mapping[str, Any] | None = None,
    instance: str = "",
) -> TypedResponse[Any]:
    """A problem document, with the members that an edge's have too.

    `type` and `code` name the kind of problem for programs, `detail` says it for people; `instance` is the path asked for.
    `members` are further ones of its kind (RFC 9457 §3.2).
    """
    words = title or HTTPStatus(status).phrase.lower()
    code = re.sub(r"[^a-z]+", "_", words.lower())
    content: dict[str, Any] = {
        "type": problem_type(code),
        "title": words,
        "status": status,
        "detail": redact(detail),
        **({"instance": instance} if instance else {}),
        "code": code,
    }
    if errors:
        content["errors"] = errors
    content.update(members or {})
    return TypedResponse(msgspec.json.encode(content), status, headers, MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Answer every exception of an application that is foreseen with a problem document; `unexpected` is for others."""
    app.add_exception_handler(ControlError, _control)
    app.add_exception_handler(PolicyError, _policy)
    app.add_exception_handler(StorageUnavailable, _storage)
    app.add_exception_handler(Busy, _busy)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientDisconnect, _gone)


def control_problem(error: ControlError, instance: str = "") -> Response:
    """The answer to a request that cannot be done."""
    return problem(
        error.status,
        error.detail,
        title=error.title,
        errors=error.problems,
        headers=error.headers,
        members=error.members,
        instance=instance,
    )


async def _control(request: Request, error: Exception) -> Response:
    assert isinstance(error, ControlError)  # noqa: S101 - registered for it
    return control_problem(error, request.url.path)


async def _gone(_request: Request, _error: Exception) -> Response:
    """The client hung up while its body was read: nobody sees this."""
    return Response(status_code=400)


async def _policy(request: Request, error: Exception) -> Response:
    assert isinstance(error, PolicyError)  # noqa: S101 - registered for it
    count = len(error.problems)
    detail = f"the policy would have {count} problem{'' if count == 1 else 's'}; nothing was changed"
    return problem(422, detail, title="invalid", errors=error.problems, instance=request.url.path)


async def _busy(request: Request, error: Exception) -> Response:
    assert isinstance(error, Busy)  # noqa: S101 - registered for it
    detail = f"{error}; nothing was changed, try again"
    if error.own:
        return problem(429, detail, headers=_RETRY_AFTER, instance=request.url.path)
    return problem(503, detail, title="busy", headers=_RETRY_AFTER, instance=request.url.path)


async def _storage(request: Request, error: Exception) -> Response:
    logger.warning("answered 503: %s", error)
    assert isinstance(error, StorageUnavailable)  # noqa: S101 - registered for it
    remedy = f" ({error.remedy})" if error.remedy else ""
    return problem(
        503,
        f"the database {error.why}: nothing was changed; edges go on answering, try again{remedy}",
        title="unavailable",
        headers=_RETRY_AFTER,
        instance=request.url.path,
    )


async def _validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it
    raw = error.errors()
    if any(item["type"] == "json_invalid" for item in raw):
        reason = next(item.get("ctx", {}).get("error", "") for item in raw if item["type"] == "json_invalid")
        return problem(400, f"the body is not JSON: {str(reason).lower()}", instance=request.url.path)
    errors: list[Problem] = []
    models = body_models(request.scope.get("route"))
    for item in raw:
        where, *loc = item["loc"]
        document = error.body if where == "body" else None
        if where == "body" and loc[:1] == ["policy"] and isinstance(document, dict):
            loc, document = loc[1:], document.get("policy")
            models = [PolicyDocument]
        prefix = _resource(request) if where == "body" else f"{where} parameter "
        model = models[0] if where == "body" and models else None
        errors += problems_of_errors([{**item, "loc": tuple(loc)}], document, prefix, model)
    count = len(errors)
    detail = f"the request has {count} problem{'' if count == 1 else 's'}; nothing was changed"
    return problem(422, detail, title="invalid", errors=errors, instance=request.url.path)


def _resource(request: Request) -> str:
    """`services.chat` for `PUT /v1/services/chat` (and PATCH), so that paths read as in a policy."""
    parts = request.url.path.split("/")
    is_resource = request.method in {"PUT", "PATCH"} and len(parts) == 4
    return f"{parts[2].replace('-', '_')}.{parts[3]}" if is_resource else ""


async def _http(request: Request, error: Exception) -> Response:
    """The framework's own errors: unknown routes, methods, bodies that cannot be read."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    headers = dict(error.headers or {})
    detail = str(error.detail)
    if error.status_code == 404:
        detail = f"there is nothing at `{request.url.path}`"
    elif error.status_code == 405:
        allowed = sorted(_methods(request))
        headers["Allow"] = ", ".join(allowed)
        if "PATCH" in allowed:
            headers["Accept-Patch"] = ", ".join(PATCHES)
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=headers)
        detail = f"`{request.method}` is not allowed here; allowed: {headers['Allow']}"
    elif error.status_code == 400:
        why = error.__cause__
        detail = f"the body is {why}" if isinstance(why, ShapeError) else "the body cannot be read as JSON"
    return problem(error.status_code, detail, headers=headers, instance=request.url.path)


def _methods(request: Request) -> set[str]:
    """The methods of the path asked for, over all routes (RFC 9110 §15.5.6 wants them all)."""
    here = (route for route in request.app.routes if route.path_regex.match(request.url.path))
    found = {method for route in here for method in route.methods}
    return found | {"HEAD"} if "GET" in found else found


def unexpected(method: str, path: str, error: Exception) -> Response:
    """Log an exception that nobody foresaw; the answer to the request that met it."""
    logger.error("unexpected error at %s %s", method, path, exc_info=error)
    return problem(500, "gtm made a mistake; its log says which", instance=path)
