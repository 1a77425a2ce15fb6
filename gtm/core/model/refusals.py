"""What clients of model APIs read of a refusal of gtm's own, beside the problem document (RFC 9457 §3.2 lets it have further members).

OpenAI's SDKs show `error.message`, and raise by the status; those of Anthropic show the whole document, and tell errors by `error.type`, where `type` is `error`.
Without `error` Node's says "451 status code (no body)".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

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
_PROBLEM, _JSON = b"application/problem+json", b"application/json"
_MAX_INSTANCE = 256
_STRAY_PERCENT = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_QUALITY = re.compile(rb"0(?:\.\d{0,3})?|1(?:\.0{0,3})?")
"""A weight of a media range (RFC 9110 §12.4.2)."""


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


class RefusalForm(NamedTuple):
    """How a refusal is told: as an error of Anthropic's form or as a problem with OpenAI's `error`, and labelled as what."""

    anthropics: bool
    media: bytes


REFUSAL_FORMS = (RefusalForm(False, _PROBLEM), RefusalForm(False, _JSON), RefusalForm(True, _JSON))
"""All that there are."""


def form_of(path: bytes, accept: bytes = b"") -> RefusalForm:
    """The form of a refusal, by the path that is asked for and what the client takes (RFC 9110 §12.5.1).

    Whoever asks for problem documents by name gets one, wherever. Else it is an error of Anthropic's form on the paths of its messages, and a problem everywhere else: labelled as plain
    JSON for those who name that, or `text/html`, since clients that go by the label know that one, and browsers show it.

    >>> form_of(b"/v1/messages").anthropics, form_of(b"/v1/messages", b"application/problem+json").anthropics
    (True, False)
    >>> form_of(b"/v1/embeddings").media, form_of(b"/v1/embeddings", b"application/json").media
    (b'application/problem+json', b'application/json')
    """
    asked = _qualities(accept) if accept else {}
    problem, plain = asked.get(_PROBLEM, 0.0), max(asked.get(_JSON, 0.0), asked.get(b"text/html", 0.0))
    if problem and problem >= plain:
        return REFUSAL_FORMS[0]
    if is_anthropics(path):
        return REFUSAL_FORMS[2]
    return REFUSAL_FORMS[1 if plain else 0]


def _qualities(accept: bytes) -> dict[bytes, float]:
    """The media ranges that a client names, in lower case, and how much it wants each, 0 to 1: of more than 64, the first ones."""
    found = {}
    for one in accept.split(b",", 64)[:64]:
        name, *parameters = (part.strip().lower() for part in one.split(b";", 8)[:8])
        quality = next((part[2:] for part in parameters if part.startswith(b"q=")), b"1")
        found[name] = float(quality) if _QUALITY.fullmatch(quality) else 0.0
    return found


def problem_type(code: str) -> str:
    """The `type` of a problem document (RFC 9457 §3.1.1): a name of gtm's own for the code."""
    return f"urn:gtm:problem:{code.replace('_', '-')}"


def instance_of(raw_path: bytes) -> str:
    """A path as the `instance` of a problem: a relative reference whatever the bytes, without the query."""
    # A second slash in front would make an authority of what follows (RFC 3986 §4.2).
    path = _STRAY_PERCENT.sub(b"%25", raw_path[:_MAX_INSTANCE].lstrip(b"/"))
    return "/" + quote(path, safe="/%:@!$&'()*+,;=~")


def with_error(document: Mapping[str, Any], *, anthropics: bool) -> dict[str, Any]:
    """A problem document with the member `error`, as OpenAI's API has it or Anthropic's, which has a `type` of its own in place of the problem's."""
    status, code, detail = document["status"], document["code"], document["detail"]
    error = error_member(status, code, detail)
    if not anthropics:
        return {**document, "error": error}
    kind = _ANTHROPICS_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {**document, "type": "error", "error": {**error, "type": kind}}
