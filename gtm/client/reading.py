"""From a response to an answer, or to the exception that says what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import httpx

from gtm.client.calls import Answer, Call, Content
from gtm.client.errors import NotGtm, ProblemError
from gtm.client.objects import JsonObject
from gtm.nesting import ShapeError, loads

T = TypeVar("T")


def answer(
    url: str,
    call: Call[T],
    response: httpx.Response,
    tier: str | None,
    hook: Callable[[dict[str, Any]], Any] | None,
) -> Answer[T]:
    """The answer to a call, its body read already.

    Args:
        url: the server's.
        call: what was asked.
        response: what came.
        tier: what the server's problems say of it (`X-GTM-Tier`); None: nothing.
        hook: makes JSON objects; None: each is a `JsonObject`.

    Raises:
        ProblemError: gtm says no.
        NotGtm: it was not gtm that spoke.
    """
    status = response.status_code
    headers = {name.lower(): value for name, value in response.headers.items()}
    failed = status >= 400 and status not in call.accept
    nothing = call.content is Content.NOTHING and status == 204 and not failed
    if nothing or (status == 304 and "If-None-Match" in call.fields):
        return Answer(status, None, headers)  # type: ignore[arg-type]  # T is None of calls that have no content
    if response.is_redirect or status in {204, 304}:
        raise NotGtm(url, _said(response))
    if call.content is Content.TEXT and not failed:
        return Answer(status, response.text, headers)  # type: ignore[arg-type]  # T is str of such calls
    if call.content is Content.NOTHING and not failed:
        raise NotGtm(url, _said(response))
    try:
        value = loads(response.content, hook or JsonObject)
    except ShapeError as error:
        raise NotGtm(url, f"{_said(response)}, {error}") from error
    except ValueError as error:
        raise NotGtm(url, _said(response)) from error
    if not isinstance(value, dict) or (status >= 400 and headers.get("x-gtm-tier") != tier):
        raise NotGtm(url, _said(response))
    if failed:
        raise ProblemError.of(status, value, _seconds(headers.get("retry-after")))
    return Answer(status, value, headers)  # type: ignore[arg-type]  # T is what the API's document says


def line(url: str, text: str) -> Any:
    """The value of one line.

    Raises:
        NotGtm: it is no JSON.
    """
    try:
        return loads(text, JsonObject)
    except ShapeError as error:
        raise NotGtm(url, f"a line that is {error}") from error
    except ValueError as error:
        raise NotGtm(url, "a line that is not JSON") from error


def _said(response: httpx.Response) -> str:
    kind = response.headers.get("Content-Type", "").partition(";")[0]
    return f"status {response.status_code}{f', {kind}' if kind else ''}"


def _seconds(text: str | None) -> float | None:
    """What `Retry-After` says, as gtm does: in seconds (RFC 9110 §10.2.3). None: nothing, or a proxy's date."""
    return float(text[:9]) if text is not None and text.isascii() and text.isdigit() else None
