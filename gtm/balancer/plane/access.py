"""The access log's lines: one JSON object for each request that has ended, however (docs/balancer.md, "Access log").

Laws:
  1. Whatever bytes a client sends, a line is one line: JSON in ASCII, of `LONGEST` bytes at the most, its newline included.
  2. A line has no query of a target (keys and handoffs come by it), no header but the user agent, and no more of a client's address than
     `clients` says; of one that a peer region pushed here, its network at the most: no more is known.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from ipaddress import ip_address
from typing import TYPE_CHECKING

import msgspec

from gtm.balancer.plane.tracing import read_parent
from gtm.balancer.wire.refusals import Refusal
from gtm.core.handoff.claims import client_network
from gtm.core.handoff.verdict import Verdict
from gtm.geoip.address import Address

if TYPE_CHECKING:
    from gtm.balancer.plane.client.downstream import Downstream
    from gtm.balancer.plane.contracts import SentRequest
    from gtm.balancer.plane.exchange import Exchange
    from gtm.balancer.wire.heads import RequestHead

LONGEST = 4096
"""Bytes of a line: as many as a pipe takes at once from several writers without mixing them (Linux, pipe(7): PIPE_BUF)."""
_PATH, _AGENT, _NAME = 1024, 256, 256
"""Bytes kept of a path, of a user agent, and of each name."""
_LEAST = 48
"""Characters kept of each text of a line that would be too long: more of them are escaped than anybody means."""
UNKNOWN = "unknown"
"""A client whose address is not known, as `X-Forwarded-For` and RFC 7239 (§6.2) write it."""
_KNOWN = 4096
_ODD = re.compile(rb"[^\x21-\x7e]")
_USER_AGENT = b"user-agent:"


class ClientDetail(StrEnum):
    """How much of a client's address is told."""

    FULL = "full"
    NETWORK = "network"
    """Its /24, or /48 of IPv6."""
    NONE = "none"


class AccessLine(msgspec.Struct, omit_defaults=True):
    """One request. Times in milliseconds, sizes in bytes of bodies; what is not known, or was not, is left out."""

    time: str
    how: str
    total_ms: float
    client: str | None = None
    service: str | None = None
    tenant: str | None = None
    model: str | None = None
    priority: str | None = None
    method: str | None = None
    path: str | None = None
    status: int | None = None
    code: str | None = None
    backend: str | None = None
    pushed_to: str | None = None
    queue_ms: float | None = None
    first_byte_ms: float | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    hedged: str | None = None
    trace: str | None = None
    user_agent: str | None = None


_TEXTS = (
    "client",
    "service",
    "tenant",
    "model",
    "method",
    "path",
    "code",
    "backend",
    "pushed_to",
    "user_agent",
)
_encoder = msgspec.json.Encoder()


@dataclass(eq=False, repr=False)
class AccessLines:
    """Makes the lines, of each request's end, once.

    Args:
        put: takes each line, with its newline.
        clients: how much of a client's address is told.
        find: finds the client behind trusted proxies, by the peer and its headers `X-Forwarded-For` and `Forwarded`.
        wall: POSIX seconds.
    """

    put: Callable[[bytes], None]
    _: KW_ONLY
    clients: ClientDetail
    find: Callable[[str | None, bytes | None, bytes | None], Address | None]
    wall: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._second = -1
        self._begins = ""
        """The present second as it is written."""
        self._texts: dict[bytes, str] = {}
        """Clients' addresses as they are written."""

    def ended(self, exchange: Exchange, sent: SentRequest | None, how: str, now: float) -> None:
        """Write the line of a request that has ended."""
        head, began, status, refusal = exchange.head, exchange.began, exchange.status, exchange.refusal
        took = now - began
        line = AccessLine(self._time(self.wall() - took), how, round(1000 * took, 1))
        line.method, line.path, line.user_agent = (
            head.method.decode("latin-1")[:_NAME],
            _path(head.path),
            _agent(head),
        )
        line.queue_ms = round(1000 * exchange.waited, 1)
        line.bytes_in, line.bytes_out = exchange.received, exchange.returned
        if status:
            line.status = status
        if exchange.first_byte:
            line.first_byte_ms = round(1000 * (exchange.first_byte - began), 1)
        if refusal is not None:
            line.code = refusal.code
        if exchange.hedge is not None and exchange.hedge.outcome:
            line.hedged = exchange.hedge.outcome
        if exchange.facts.model is not None:
            line.model = exchange.facts.model[:_NAME]
        if exchange.span is not None or b"traceparent" in head.seen:
            line.trace = _trace(exchange)
        if sent is not None:
            if sent.push is None:
                line.backend = sent.route.url[:_NAME]
            else:
                line.pushed_to = sent.push.region
        self._asked(line, exchange)
        self.put(_encoded(line))

    def unread(self, client: Downstream, refusal: Refusal, target: bytes) -> None:
        """Write the line of a request that could not be read."""
        line = AccessLine(self._time(self.wall()), "refused", 0.0, status=refusal.status, code=refusal.code)
        if target:
            line.path = _path(target.partition(b"?")[0])
        self._at(line, client.peer, None, None)
        self.put(_encoded(line))

    def _asked(self, line: AccessLine, exchange: Exchange) -> None:
        """Who asks, and for what: as the law's judgement found out, if there was one."""
        verdict = exchange.verdict
        if not isinstance(verdict, Verdict) or verdict.routing is None:
            seen = exchange.head.seen
            self._at(line, exchange.client.peer, seen.get(b"x-forwarded-for"), seen.get(b"forwarded"))
            return
        routing = verdict.routing
        request = routing.request
        line.service, line.tenant = request.service, request.tenant
        line.priority = routing.ranking.group.priority.value
        client = routing.client
        if self.clients is ClientDetail.NONE:
            return
        if client and verdict.believed is not None and verdict.believed.carried:
            line.client = client_network(client)
            return
        line.client = self._texts.get(client) or self._text(client)

    def _at(
        self, line: AccessLine, peer: str | None, x_forwarded_for: bytes | None, forwarded: bytes | None
    ) -> None:
        """Who asks, where nothing was judged."""
        if self.clients is ClientDetail.NONE:
            return
        address = self.find(peer, x_forwarded_for, forwarded)
        client = b"" if address is None else address.packed
        line.client = self._texts.get(client) or self._text(client)

    def _text(self, client: bytes) -> str:
        if len(self._texts) >= _KNOWN:
            self._texts.clear()
        if not client:
            return UNKNOWN
        text = str(ip_address(client)) if self.clients is ClientDetail.FULL else client_network(client)
        self._texts[client] = text
        return text

    def _time(self, at: float) -> str:
        """RFC 3339, in UTC."""
        second, rest = divmod(int(1000 * at), 1000)
        if second != self._second:
            self._second = second
            self._begins = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._begins}.{rest:03d}Z"


def _agent(head: RequestHead) -> str | None:
    said = next((line[11:] for line in head.lines if line[:11].lower() == _USER_AGENT), None)
    return None if said is None else said.strip()[:_AGENT].decode("utf-8", "backslashreplace")


def _trace(exchange: Exchange) -> str | None:
    if exchange.span is not None:
        return exchange.span.context.trace.hex()
    context = read_parent(exchange.head.seen[b"traceparent"])
    return None if context is None else context.trace.hex()


def _path(path: bytes) -> str:
    """A path as RFC 3986 §2.1 would write it: what cannot stand in one is percent-encoded."""
    text = path[:_PATH] if path.isascii() else _ODD.sub(lambda found: b"%%%02X" % found[0][0], path[:_PATH])
    return text[:_PATH].decode("latin-1")


def _encoded(line: AccessLine) -> bytes:
    """Laws 1: bytes that are not ASCII (and would be line ends to some readers) are escaped, as DEL is; long lines are cut."""
    try:
        text = _encoder.encode(line)
    except UnicodeEncodeError:  # half of a surrogate pair, in a model's name
        text = b"\xff"
    if len(text) >= LONGEST or b"\x7f" in text or not text.isascii():
        text = _plain(line)
        if len(text) >= LONGEST:
            for name in _TEXTS:
                value = getattr(line, name)
                if value is not None:
                    setattr(line, name, value[:_LEAST])
            text = _plain(line)
    return text + b"\n"


def _plain(line: AccessLine) -> bytes:
    found = {
        name: value for name in AccessLine.__struct_fields__ if (value := getattr(line, name)) is not None
    }
    return json.dumps(found, separators=(",", ":")).encode().replace(b"\x7f", b"\\u007f")
