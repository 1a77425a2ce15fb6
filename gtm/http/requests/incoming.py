"""A request as the ASGI server hands it over, read as far as gtm cares."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from gtm.core.model.cors import Cors
from gtm.http.problems import ProblemError

if TYPE_CHECKING:
    from gtm.http.answers.routes import Routes
    from gtm.http.problems import Headers, Response


# --- Entries of the edge's route table: what answers a path, by which methods, and what it is counted as. ---


@dataclass(frozen=True, slots=True)
class Page:
    """One of the edge's pages.

    `label` is its name in the metrics. `answer` makes the response from a request's head; where it is None, `take` reads the
    body, and returns None if the client is gone or has had its answer in pieces. `methods` are those it takes; OPTIONS is
    answered with `preflight`. Errors carry `error_headers`: those that browsers want before a page of another origin may read
    them.
    """

    label: str
    answer: Callable[[Incoming, Routes], Response] | None = None
    take: Callable[[Incoming, Receive, Send], Awaitable[Response | None]] | None = None
    methods: tuple[str, ...] = ("GET", "HEAD")
    preflight: Response | None = None
    error_headers: Headers = ()


OTHER = Page("other")
"""What no page answers: a path that gtm has not, or a head that cannot be read."""
AUTHORIZE = Page("authorize")
"""The paths at which other people's proxies ask."""
REDIRECT = Page("redirect")
"""The paths of services' own hosts, and those below `/r/`."""


# --- A request as the ASGI server hands it over, read as far as gtm cares. ---


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

BODY_TIMEOUT = 10.0
"""Seconds in which a body must have arrived."""

LISTS = frozenset((b"x-forwarded-for", b"forwarded"))
"""Headers whose lines are joined; the others below may be given once."""

SAID = {
    b"x-gtm-tenant": "X-GTM-Tenant",
    b"x-gtm-data-class": "X-GTM-Data-Class",
    b"x-gtm-model": "X-GTM-Model",
    b"x-gtm-affinity": "X-GTM-Affinity",
    b"x-gtm-priority": "X-GTM-Priority",
}
"""What a request that is to be redirected says of itself: query and path are its service's."""

ASKED_METHOD, ASKED_FIELDS = b"access-control-request-method", b"access-control-request-headers"
"""What a browser's preflight asks for (Fetch standard §4.8)."""

_JOINED = LISTS.union((b"origin", b"transfer-encoding", ASKED_METHOD, ASKED_FIELDS))
"""Others of them are lists, too, or allow nobody when they are given twice."""
OF_PROXIES = (b"x-forwarded-host", b"x-gtm-service", b"x-gtm-deny", b"x-gtm-deny-5xx", b"x-gtm-authorize")
"""What proxies say that ask by forward-auth."""
_SINGLE = (
    *(b"host", b"authorization", b"content-type", b"content-length", b"content-encoding"),
    *(*SAID, *OF_PROXIES),
)
_READ = _JOINED.union(_SINGLE)


@dataclass(slots=True, eq=False, repr=False)
class Incoming:
    """One request.

    `page` is what answers it, `headers` are the ones gtm reads, once `read_headers` was called. `started`: a part of the
    answer has been sent. `cors`: what pages of other origins may read of its answer; None: nothing, or no page asks.

    Args:
        method: in capitals.
        target: path and query as they were sent.
        lines: the headers' names in lower case, and values, as they came.
        peer: the socket's peer, None if it has none.
        version: of HTTP.
    """

    method: str
    target: InitVar[bytes]
    lines: Iterable[tuple[bytes, bytes]]
    peer: str | None
    version: str
    raw_path: bytes = field(init=False)
    query: bytes = field(init=False)
    path: str = field(init=False)
    page: Page = field(init=False, default=OTHER)
    started: bool = field(init=False, default=False)
    cors: Cors | None = field(init=False, default=None)
    headers: dict[bytes, bytes] = field(init=False, default_factory=dict)

    def accept(self) -> bytes:
        """What the client takes (`Accept`), by which the form of a refusal goes: looked for where there is one."""
        return b",".join(value for name, value in self.lines if name == b"accept")

    def __post_init__(self, target: bytes) -> None:
        self.raw_path, _, self.query = target.partition(b"?")
        path = self.raw_path.decode("ascii", "replace")
        self.path = unquote(path) if "%" in path else path

    @classmethod
    def of_scope(cls, scope: Scope) -> Incoming:
        """The request that an ASGI server describes."""
        raw: bytes | None = scope.get("raw_path")
        raw_path = quote(scope["path"], errors="replace").encode() if raw is None else raw
        client = scope.get("client")
        return cls(
            scope["method"],
            raw_path + b"?" + scope.get("query_string", b""),
            scope.get("headers", ()),
            client[0] if client else None,
            scope.get("http_version", "1.1"),
        )

    def read_headers(self) -> ProblemError | None:
        """Collect the headers that matter, and say what is wrong: one of them is given twice (for Host, RFC 9112 §3.2), or Host is missing in HTTP/1.1."""
        headers, wrong = self.headers, None
        for name, value in self.lines:
            if name in _READ:
                if name not in headers:
                    headers[name] = value
                elif name in _JOINED:
                    headers[name] += b", " + value  # RFC 9110 §5.3
                else:
                    wrong = f"the {name.decode().title()} header is given twice"
        if b"host" not in headers and self.version == "1.1":
            wrong = "the Host header is missing"
        return None if wrong is None else ProblemError("invalid_request", wrong)

    @property
    def has_body(self) -> bool:
        """Whether its head says that anything follows; once the headers are read."""
        headers = self.headers
        return headers.get(b"content-length", b"0").strip() != b"0" or b"transfer-encoding" in headers

    def require(self, allowed: tuple[str, ...]) -> None:
        """Let only some methods through.

        Raises:
            ProblemError: the method is another one.
        """
        if self.method not in allowed:
            text = ", ".join(allowed)
            raise ProblemError(
                "method_not_allowed", f"{self.path} takes {text}", ((b"allow", text.encode()),)
            )

    def require_json(self, other: str | None = None) -> None:
        """Let only JSON through, as application/json (or the `other` content type) and not compressed.

        Raises:
            ProblemError: the content type or encoding is another one.
        """
        media = self.headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")
        accepted = [media_type for media_type in ("application/json", other) if media_type is not None]
        if media not in accepted:
            text = f"{self.path} takes the content type {' or '.join(accepted)}"
            raise ProblemError("unsupported_media_type", text)
        if self.headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise ProblemError("unsupported_media_type", f"{self.path} takes no content encoding")

    async def body(self, receive: Receive, limit: int) -> bytes | None:
        """The whole body, None if the client went away.

        Raises:
            ProblemError: it is longer than `limit` bytes, or takes longer than `BODY_TIMEOUT`.
        """
        too_large = f"the body is larger than the {limit} bytes accepted"
        stated = self.headers.get(b"content-length", b"")
        if stated.isdigit() and (len(stated) > 18 or int(stated) > limit):
            raise ProblemError("content_too_large", too_large)
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_TIMEOUT):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return None
                    body += message.get("body", b"")
                    if len(body) > limit:
                        raise ProblemError("content_too_large", too_large)
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError as error:
            raise ProblemError("request_timeout", f"the body took longer than {BODY_TIMEOUT:g} s") from error
