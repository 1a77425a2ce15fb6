"""Answers to other people's proxies, which ask by the head of a request whether it may go on, and where: forward-auth (docs/proxies.md).

The decision is a redirect's. What differs is how it is told: in fields of an answer that has no body, for that is all that proxies hand on.

    the request may go on   200   `x-gtm-region`, `x-gtm-upstream` (host and port), `x-gtm-upstream-url`, and the handoff for the region's balancer
    it may not              the refusal's status, or the one that the proxy understands (`deny`); then the true one is `x-gtm-status`

Laws:
  1. Only proxies of the operator's are answered: of others nobody knows whose request it is.
  2. What a client's own path and query say is not read: a proxy may put them behind the path that it asks.
  3. Every refusal is told whole in fields (`x-gtm-problem`, RFC 9457 in ASCII): some proxies throw bodies away.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

from gtm.core.decision.options import Option
from gtm.core.memory import Memory
from gtm.core.model.addresses import host_port
from gtm.core.model.refusals import error_member
from gtm.core.model.regions import Endpoint
from gtm.http.answers.routes import EdgeHandoffs, ResolvedRequest
from gtm.http.problems import NO_STORE, Head, Headers, ProblemError, Response, head_of, response_of

PATH = "/v1/authorize"
FIELD = b"x-gtm-authorize"
"""By this proxies say that they ask, where they ask by a service's own host: that has all paths for itself."""
DENIALS = ("401", "403")
"""Statuses by which proxies let refusals be told that know no others: NGINX knows 2xx, 401 and 403 (`ngx_http_auth_request_module`), and Envoy takes 5xx for a fault of the edge."""
_OPTIONS = 256
QUESTIONS = 1 << 18
"""Bytes of what is remembered of questions."""
_MOST_DETAIL = 1000
"""Bytes of a refusal's words, which are in `x-gtm-problem` twice: NGINX takes heads of 4 KiB (`proxy_buffer_size`), and a client's own words may be among them."""
_PORTS = {"http": 80, "https": 443}
_QUERY = ("service", "deny", "deny_5xx")
_FIELDS = (b"x-gtm-service", b"x-gtm-deny", b"x-gtm-deny-5xx")


class Denial(NamedTuple):
    """The status by which all refusals are told, and those of 500 and more; None: by their own."""

    every: int | None = None
    faults: int | None = None

    def told(self, status: int) -> int:
        """The status by which a refusal is told."""
        return self.every or (status >= 500 and self.faults) or status


class ProxyQuestion(NamedTuple):
    """What a proxy says of its question: the service, None: the host name says it; and how refusals are told."""

    service: str | None
    deny: Denial


def is_asked(path: str) -> bool:
    """Whether proxies ask by a path: a client's own may stand behind it."""
    return path.startswith(PATH) and (len(path) == len(PATH) or path[len(PATH)] == "/")


ProxyWords = bytes | tuple[bytes | None, ...]
"""What a proxy says of its question: a query, or `_FIELDS`."""


def question_in(path: str, query: bytes, headers: Mapping[bytes, bytes]) -> ProxyWords:
    """What a proxy says: by the query of the path itself, or by fields. Below the path stands a client's own target, which says nothing here."""
    # Fields that the proxy adds: one that hands all of a client's fields on asks the path itself.
    return query if path == PATH else tuple(headers.get(field) for field in _FIELDS)


def question_size(words: ProxyWords, _: ProxyQuestion) -> int:
    """Bytes by which a question that is remembered counts."""
    return 300 + (len(words) if isinstance(words, bytes) else sum(len(one or b"") for one in words))


def read_question(words: ProxyWords) -> ProxyQuestion:
    """Read a proxy's question.

    Raises:
        ProblemError: a parameter is unknown or given twice, or none that can be.
    """
    said: dict[str, str] = {}
    if isinstance(words, bytes):
        for name, value in parse_qsl(words.decode("latin-1"), keep_blank_values=True):
            if name not in _QUERY or name in said:
                text = f"parameter `{name[:40]}` is unknown or given twice; known are {', '.join(_QUERY)}"
                raise ProblemError("invalid_request", text)
            said[name] = value
    else:
        said = {
            name: value.decode("latin-1")
            for name, value in zip(_QUERY, words, strict=True)
            if value is not None
        }
    statuses = [said.get(name) for name in _QUERY[1:]]
    if not {None, *DENIALS}.issuperset(statuses):
        text = "`deny` and `deny_5xx` can be 401 or 403: the status that tells a refusal"
        raise ProblemError("invalid_request", text)
    denial = Denial(*(None if status is None else int(status) for status in statuses))
    return ProxyQuestion(said.get("service") or None, denial)


def untrusted() -> ProblemError:
    """What is said to who is no proxy of the operator's."""
    text = "proxies ask this, about their clients: name the networks of yours in GTM_TRUSTED_PROXIES of this edge"
    return ProblemError("untrusted_proxy", text)


def refused(document: dict[str, Any], deny: Denial, more: Headers = (), count: str | None = None) -> Response:
    """A refusal, told by its own status or by one that the proxy understands."""
    status, detail = document["status"], document["detail"]
    while len(json.dumps(detail)) > _MOST_DETAIL:
        detail = detail[: len(detail) * 3 // 4] + "…"
    short = {name: document[name] for name in ("type", "title", "status")}
    short |= {"detail": detail, "code": document["code"]}
    short["error"] = error_member(status, document["code"], detail)
    text = json.dumps(short).encode()
    headers = (
        (b"content-type", b"application/problem+json"),
        NO_STORE,
        (b"x-gtm-status", b"%d" % status),
        (b"x-gtm-code", document["code"].encode()),
        (b"x-gtm-problem", text),
        *more,
    )
    return response_of(deny.told(status), headers, text, count)


def admitted(way: tuple[Option, Endpoint, int]) -> Head:
    """What is said of a request that may go on: by its option, its endpoint and the revision of the policy."""
    option, endpoint, revision = way
    parts = urlsplit(endpoint.url)
    upstream = host_port(parts.hostname or "", parts.port or _PORTS[parts.scheme.lower()])
    headers = (
        NO_STORE,
        (b"x-gtm-region", quote(option.region or "").encode()),
        (b"x-gtm-upstream", upstream.encode()),
        (b"x-gtm-upstream-url", endpoint.url.rstrip("/").encode()),
        (b"x-gtm-reason", option.reason.value.encode()),
        (b"x-gtm-revision", str(revision).encode()),
    )
    return head_of(200, headers)


def closing(answer: Response) -> Response:
    """The answer to a question that says that a body follows: some proxies say so and send none, and the next question is no body of this one."""
    head = head_of(answer.head.status, (*answer.head.headers, (b"connection", b"close")))
    return answer._replace(head=head)


class AuthorizeRoute:
    """What is answered about requests that are alike.

    Args:
        resolved: decides.
        deny: how refusals are told.
        handoffs: signs; None: this edge signs nothing.
        heads: `admitted`, for all requests.
    """

    __slots__ = ("_answers", "_deny", "_handoffs", "_heads", "_last", "_resolved", "_tokens")

    def __init__(
        self,
        resolved: ResolvedRequest,
        deny: Denial,
        handoffs: EdgeHandoffs | None,
        heads: Memory[tuple[Option, Endpoint, int], Head],
    ) -> None:
        self._resolved = resolved
        self._deny = deny
        self._handoffs = handoffs
        self._heads = heads
        self._answers: Memory[Option, Response] = Memory(self._answer, _OPTIONS)
        self._tokens: dict[str | None, tuple[bytes, float]] = {}
        self._last: tuple[Option, bytes, Response] | None = None
        """What was answered last with a handoff."""

    def respond(self) -> Response:
        """The answer about one request.

        Raises:
            ProblemError: no handoff can be made now.
        """
        option = self._resolved.pick()
        if option.region is None or self._handoffs is None:
            return self._answers[option]
        believed = self._handoffs.believed
        token = self._handoffs.of_carried(self._resolved.routing, option, self._tokens) if believed else None
        if token is None:  # without one the region's balancer would judge by where the proxy stands
            text = "the law is about to change, or balancers have not heard of this edge's key yet: try again"
            raise ProblemError("not_ready", text, ((b"retry-after", b"1"),))
        last = self._last
        if last is not None and last[0] is option and last[1] is token:
            return last[2]
        answer = self._answers[option]
        head = answer.head
        more = ((b"gtm-handoff", token), (b"gtm-push", b"1"))
        lines = b"%bgtm-handoff: %b\r\ngtm-push: 1\r\n" % (head.lines, token)
        whole = Response(head._replace(headers=(*head.headers, *more), lines=lines), b"", answer.counted_as)
        self._last = option, token, whole
        return whole

    def _answer(self, option: Option) -> Response:
        resolved = self._resolved
        routing, count = resolved.routing, resolved.counted_as(option, "authorize")
        endpoint = routing.endpoint(option)
        if endpoint is None:
            _, document, more = resolved.rendered(option)
            return refused(document, self._deny, tuple(more), count)
        return Response(self._heads[option, endpoint, routing.view.snapshot.revision], b"", count)
