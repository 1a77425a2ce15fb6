"""What clients of model APIs read of a refusal of gtm's own, beside the problem document (RFC 9457 §3.2 lets it have further members).

OpenAI's SDKs show `error.message`, and raise by the status; those of Anthropic show the whole document, and tell errors by `error.type`, where `type` is `error`.
Without `error` Node's says "451 status code (no body)".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TYPES = {
    400: "invalid_request_error",
    404: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}
_ANTHROPICS_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    451: "permission_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Of Anthropic's API ("Errors"); others are `invalid_request_error` or `api_error`."""
_ANTHROPICS = re.compile(rb"/v1/messages(?:/|$)")


def error_member(status: int, code: str, detail: str) -> dict[str, str | None]:
    """The member `error` as OpenAI's API has it: for whom, of a refusal with this status and stable code, and what was wrong."""
    kind = _TYPES.get(status, "server_error" if status >= 500 else "gtm_refusal")
    return {"message": detail, "type": kind, "code": code, "param": None}


def is_anthropics(path: bytes) -> bool:
    """Whether a path at a service, without its query, is one of Anthropic's messages.

    >>> is_anthropics(b"/v1/messages/count_tokens"), is_anthropics(b"/v1/threads/t/messages")
    (True, False)
    """
    return _ANTHROPICS.search(path) is not None


def with_error(document: Mapping[str, Any], *, anthropics: bool) -> dict[str, Any]:
    """A problem document with the member `error`, as OpenAI's API has it or Anthropic's, which has a `type` of its own in place of the problem's."""
    status, code, detail = document["status"], document["code"], document["detail"]
    error = error_member(status, code, detail)
    if not anthropics:
        return {**document, "error": error}
    kind = _ANTHROPICS_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {**document, "type": "error", "error": {**error, "type": kind}}


def media_type(document: Mapping[str, Any]) -> bytes:
    """What a refusal's document is: a problem, or an error of Anthropic's form."""
    return b"application/json" if document["type"] == "error" else b"application/problem+json"
