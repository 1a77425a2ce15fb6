"""Which pages of other origins may read an edge's answers about a service: by the service's `cors` (`gtm.core.model.cors`).

Behind a redirect to another host a browser asks as the origin `null` (Fetch standard, "HTTP-redirect fetch"), and asks leave anew: what
is behind it answers for itself.
"""

from __future__ import annotations

from gtm.core.model.cors import Cors, Fields, answer_fields, preflight_fields
from gtm.http.problems import Headers, ProblemError, Response, response_of
from gtm.http.requests.incoming import ASKED_FIELDS, ASKED_METHOD, Incoming


def readable(response: Response, cors: Cors, origin: bytes) -> Response:
    """The same answer, which a page of an origin may read if the service lets it."""
    head = response.head
    headers = (*head.headers, *_headers(answer_fields(cors, origin.decode("latin-1"))))
    return response_of(head.status, headers, response.body, response.counted_as)


def is_preflight(incoming: Incoming) -> bool:
    """Whether a browser asks if a page may send a request."""
    headers = incoming.headers
    return incoming.method == "OPTIONS" and b"origin" in headers and ASKED_METHOD in headers


def preflight(incoming: Incoming, cors: Cors | None) -> Response:
    """The answer to a preflight: never a redirect, which no browser follows then. It holds no data, and no law is asked.

    Raises:
        ProblemError: the service lets no page of this origin ask.
    """
    said = incoming.headers.get
    origin, method, fields = (
        said(name, b"").decode("latin-1") for name in (b"origin", ASKED_METHOD, ASKED_FIELDS)
    )
    if cors is None or not cors.allows(origin):
        text = "pages of this origin may not use the service: list it in `cors.origins` of the service in the policy"
        raise ProblemError("origin_not_allowed", text)
    return response_of(204, _headers(preflight_fields(cors, origin, method, fields)), b"")


def _headers(fields: Fields) -> Headers:
    return tuple((name.encode(), value.encode("latin-1")) for name, value in fields)
