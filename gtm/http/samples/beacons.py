"""What pages need to measure regions: the script, the regions to measure, and leave to ask from any origin.

The script is `data/beacon.js`, as it is served.
"""

from __future__ import annotations

from importlib.resources import files
from random import sample, shuffle
from urllib.parse import parse_qsl, urlsplit

from gtm.core.model.outcomes import Outcome
from gtm.core.model.regions import Endpoint, Probe, ProbeType
from gtm.http.answers.routes import ResolvedRequest
from gtm.http.problems import ProblemError, Response, json_response, response_of
from gtm.http.requests.lookup import check_value

MAX_TARGETS = 5
_NEAREST = 3
"""How many of the targets are the first in order; the others are any, or a region that is estimated too far away
would never be measured."""

OPEN = ((b"access-control-allow-origin", b"*"),)
"""Pages of any origin may read the answer. It holds nothing that the page could not ask itself: no cookie is read."""

PREFLIGHT = response_of(
    204,
    (
        *OPEN,
        (b"access-control-allow-methods", b"POST"),
        (b"access-control-allow-headers", b"content-type"),
        (b"access-control-max-age", b"86400"),
    ),
    b"",
)
"""The answer to OPTIONS (Fetch Standard, CORS-preflight fetch): browsers ask before they post application/json."""


def _script() -> Response:
    body = (files("gtm.http") / "data" / "beacon.js").read_bytes()
    headers = (
        (b"content-type", b"text/javascript; charset=utf-8"),
        (b"cache-control", b"public, max-age=3600"),
        (b"cross-origin-resource-policy", b"cross-origin"),
        *OPEN,
    )
    return response_of(200, headers, body)


SCRIPT = _script()


def parse_service(query: bytes) -> str:
    """The service that `GET /v1/beacon-targets` is asked about.

    Raises:
        ProblemError: the query is not one parameter `service`.
    """
    try:
        pairs = parse_qsl(query.decode(), keep_blank_values=True, errors="strict", max_num_fields=4)
    except ValueError as error:
        raise ProblemError("invalid_request", "the query cannot be read; it is `service=NAME`") from error
    if len(pairs) != 1 or pairs[0][0] != "service":
        raise ProblemError("invalid_request", "the one parameter is `service`")
    check_value(*pairs[0])
    return pairs[0][1]


def targets(resolved: ResolvedRequest) -> Response:
    """The regions that a client may measure: where it may be sent now, at most `MAX_TARGETS`, shuffled."""
    option = resolved.routing.choice.alone
    if option is not None and option.outcome is Outcome.REFUSED_EDGE:
        status, document, headers = resolved.rendered(option)
        return json_response(status, document, (*headers, *OPEN))
    view = resolved.routing.view
    eligible = resolved.routing.choice.eligible & resolved.routing.ranking.group.allowed
    order = [
        number
        for number in resolved.routing.ranking.group.order
        if eligible >> number & 1 and view.endpoints[number]
    ]
    near, others = order[:_NEAREST], order[_NEAREST:]
    chosen = near + sample(others, min(len(others), MAX_TARGETS - len(near)))
    shuffle(chosen)
    found = []
    for number in chosen:
        region = view.snapshot.regions[number]
        found.append({"region": region.name, "url": target_url(view.endpoints[number][0], region.probe)})
    return json_response(200, {"targets": found}, OPEN)


def target_url(endpoint: Endpoint, probe: Probe) -> str:
    """What is fetched to measure an endpoint: the path of its health check, if that is asked where clients come in."""
    parts = urlsplit(endpoint.url)
    same_port = probe.port is None or probe.port == parts.port
    if probe.type is ProbeType.TCP or probe.type.value != parts.scheme or not same_port:
        return endpoint.url
    return f"{parts.scheme}://{parts.netloc}{probe.path}"
