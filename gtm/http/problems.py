"""Errors as problem documents (RFC 9457), and responses ready to be sent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from gtm.core.model.outcomes import UnknownNameError
from gtm.core.model.refusals import form_of, problem_type, with_error

Headers = tuple[tuple[bytes, bytes], ...]

CODES = {
    "invalid_request": (400, "The request cannot be understood"),
    "contradiction": (400, "The request and its host name contradict each other"),
    "unauthorized": (401, "A token is needed"),
    "forbidden": (403, "The token does not permit this"),
    "untrusted_proxy": (403, "Proxies alone that the edge trusts may ask this"),
    "origin_not_allowed": (403, "Pages of this origin may not ask this"),
    "not_found": (404, "There is nothing here"),
    "unknown_service": (404, "There is no such service"),
    "method_not_allowed": (405, "The method is not allowed here"),
    "request_timeout": (408, "The request took too long to arrive"),
    "content_too_large": (413, "The request is too large"),
    "uri_too_long": (414, "The address is too long"),
    "unsupported_media_type": (415, "The content type is not supported"),
    "foreign_host": (421, "This machine alone may ask this, by one of its own names"),
    "refused_edge": (421, "Another edge may answer this request, this one may not"),
    "unknown_tenant": (422, "There is no such tenant"),
    "unknown_data_class": (422, "There is no such data class"),
    "unknown_model": (422, "There is no such model"),
    "over_fair_share": (429, "This tenant is over its share of a capacity that is short"),
    "refused_residency": (451, "Residency rules forbid serving this request"),
    "internal_error": (500, "gtm failed"),
    "not_ready": (503, "Not ready yet"),
    "refused_overload": (503, "No capacity is left for this request now"),
    "refused_unavailable": (503, "No region can serve this request now"),
}
"""Code → HTTP status and title. The problem's type is `urn:gtm:problem:` and the code."""

_JSON = b"application/json"
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*")

NO_STORE = (b"cache-control", b"no-store")
"""Look-ups and refusals depend on more than their URL (who asks, from where, the state of the world): RFC 9111 §5.2.2.5
keeps every cache from serving them to anyone, or later."""


class ProblemError(Exception):
    """A request that ends in a problem document.

    Args:
        code: one of the codes above.
        detail: what was wrong, and what to do.
        headers: to send along.
    """

    def __init__(self, code: str, detail: str, headers: Headers = ()) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.headers = headers

    @classmethod
    def unknown_name(cls, error: UnknownNameError) -> ProblemError:
        """The problem of a name that the policy does not know: 404 for a service, 422 for a tenant, data class or model."""
        return cls(f"unknown_{error.kind.replace(' ', '_')}", str(error))

    def document(self, instance: str) -> dict[str, Any]:
        """The problem document for the request at `instance`."""
        return problem(self.code, self.detail, instance)

    def response(
        self, instance: str, headers: Headers = (), *, of_service: bool = False, accept: bytes = b""
    ) -> Response:
        """The problem as a response, with more headers; `of_service`: in the place of a service's answer, which clients of model APIs read, in the form that such a one takes (`accept`)."""
        document, media = self.document(instance), None
        if of_service:
            form = form_of(instance.encode(), accept)
            document, media = with_error(document, anthropics=form.anthropics), form.media
        return json_response(document["status"], document, (*self.headers, *headers), media=media)


class Head(NamedTuple):
    """A response's status and headers but for its length: as ASGI wants them, and as lines to be sent as they are.

    `closes`: the connection ends with this response.
    """

    status: int
    headers: Headers
    lines: bytes
    closes: bool


class Response(NamedTuple):
    """A response ready to be sent. `count` is the key of the decision it carries, for `gtm_decisions_total`."""

    head: Head
    body: bytes
    counted_as: str | None = None

    @property
    def start(self) -> dict[str, Any]:
        """The ASGI message that begins it."""
        # One of status 204 has no length (RFC 9110 §8.6).
        length = () if self.head.status == 204 else ((b"content-length", b"%d" % len(self.body)),)
        return {
            "type": "http.response.start",
            "status": self.head.status,
            "headers": (*self.head.headers, *length),
        }


def head_of(status: int, headers: Headers) -> Head:
    """The head of a response.

    Raises:
        ValueError: a header could be taken for two (RFC 9110 §5.5).
    """
    lines = []
    for name, value in headers:
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ValueError(f"{name!r}: {value!r} is no header")
        lines.append(b"%b: %b\r\n" % (name, value))
    return Head(status, headers, b"".join(lines), (b"connection", b"close") in headers)


def response_of(status: int, headers: Headers, body: bytes, count: str | None = None) -> Response:
    """A response of these parts."""
    return Response(head_of(status, headers), body, count)


def problem(code: str, detail: str, instance: str, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A problem document of one of the codes above, with extension members (RFC 9457 §3.2)."""
    status, title = CODES[code]
    return {
        "type": problem_type(code),
        "title": title,
        "status": status,
        "detail": detail,
        "instance": instance,
        "code": code,
        **(more or {}),
    }


def json_response(
    status: int,
    document: Any,
    headers: Sequence[tuple[bytes, bytes]] = (),
    count: str | None = None,
    *,
    media: bytes | None = None,
) -> Response:
    """A JSON response; without a media type, one from 400 on is a problem."""
    return response_of(status, json_headers(status, headers, media), msgspec.json.encode(document), count)


def json_headers(
    status: int, headers: Sequence[tuple[bytes, bytes]] = (), media: bytes | None = None
) -> Headers:
    """The headers of a JSON response, but for its length; without a media type, one from 400 on is a problem."""
    media = media or (_JSON if status < 400 else b"application/problem+json")
    return ((b"content-type", media), NO_STORE, *headers)
