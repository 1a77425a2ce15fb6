"""What a balancer says when it does not serve: problem documents (RFC 9457), with OpenAI's error form beside them.

Clients of model servers read `error.message`, `error.type` and `error.code`; everybody else the problem's own members. One document
has both, since RFC 9457 §3.2 lets a problem have further members. On the paths of Anthropic's messages it is an error of that API's form, and what it is labelled as goes by what the client
takes (`gtm.core.model.refusals.form_of`).

| status | when |
|---|---|
| 307 | there is no room here, and a peer region has some (RFC 9110 §15.4.8); Location says where |
| 400, 408, 413, 431, 501, 505 | the request cannot be read, or is not carried |
| 421 | the request belongs in another region (RFC 9110 §15.5.20); Location says where |
| 429 | the tenant is over its share or limits: try again after Retry-After |
| 451 | no region may serve it (RFC 7725) |
| 502 | a backend failed it |
| 503 | nothing here can serve it now |
| 504 | its time ran out |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from math import ceil

import msgspec

from gtm.core.model.refusals import form_of, instance_of, problem_type, with_error


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that is not served: HTTP status, a stable code, what was wrong and what to do.

    `retry_after`: seconds until it is worth another try. `location`: where the request belongs. `headers`: further ones.
    """

    status: int
    code: str
    detail: str
    retry_after: float | None = None
    location: bytes | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()


def no_model(model: str | None) -> Refusal:
    """What is said where no backend is for a model. Its name is written as Python writes it: clients make names up, and some hold what no answer can."""
    words = f"no backend here serves the model {model!r}: `GET /v1/models` lists those that are"
    return Refusal(404, "backends_no_model", words)


def refusal_response(
    refusal: Refusal, *, closes: bool, head_only: bool = False, path: bytes = b"", accept: bytes = b""
) -> bytes:
    """The bytes of the response that refuses.

    Args:
        refusal: what to say.
        closes: the connection ends with it.
        head_only: the request was HEAD.
        path: of its target, if that could be read.
        accept: what the client takes, likewise.
    """
    problem = {
        "type": problem_type(refusal.code),
        "title": HTTPStatus(refusal.status).phrase,
        "status": refusal.status,
        "detail": refusal.detail,
        **({"instance": instance_of(path)} if path else {}),
        "code": refusal.code,
    }
    form = form_of(path, accept)
    body = msgspec.json.encode(with_error(problem, anthropics=form.anthropics))
    lines = [
        b"HTTP/1.1 %d %b" % (refusal.status, HTTPStatus(refusal.status).phrase.encode()),
        b"content-type: " + form.media,
        b"cache-control: no-store",
        b"content-length: %d" % len(body),
        *_more(refusal, closes=closes),
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + (b"" if head_only else body)


def last_event(path: bytes, detail: str) -> bytes:
    """What ends a stream of events that broke off, so that its reader can say why: in the form of the API that was asked.

    Clients of Anthropic's messages go by the event's name ("Streaming messages", "Error events"), those of OpenAI's by the member `error`; of its responses, by `type`, too.

    Args:
        path: of the request's target.
        detail: what was wrong.
    """
    message, code = f"the stream broke off: {detail}", "backend_lost"
    error: dict[str, object] = {"message": message, "type": "server_error", "code": code}
    if path.endswith(b"/messages"):
        said: dict[str, object] = {"type": "error", "error": {"type": "api_error", "message": message}}
    elif path.endswith(b"/responses"):
        said = {"type": "error", "code": code, "message": message, "param": None, "error": error}
    else:
        return b"data: %b\n\n" % msgspec.json.encode({"error": error})
    return b"event: error\ndata: %b\n\n" % msgspec.json.encode(said)


def _more(refusal: Refusal, *, closes: bool) -> Sequence[bytes]:
    lines = [b"%b: %b" % header for header in refusal.headers]
    if refusal.retry_after is not None:
        lines.append(b"retry-after: %d" % max(1, ceil(refusal.retry_after)))
    if refusal.location is not None:
        lines.append(b"location: " + refusal.location)
    if closes:
        lines.append(b"connection: close")
    return lines
