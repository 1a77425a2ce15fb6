"""A balancer's own page: `/metrics`, `/state` (what it knows of backends, tiers, tenants) and `/readyz`, apart from what it carries.

Whoever may not read them by `metrics_allow` is told so: a state names backends and tenants.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, Protocol, cast

import msgspec
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from gtm.core.policy.snapshot import Snapshot
from gtm.core.shares import client_prefix
from gtm.geoip.client import peer_address
from gtm.geoip.near import foreign
from gtm.runtime.process.connections import Connections
from gtm.settings import Network

_METHODS = (b"GET", b"HEAD", b"OPTIONS")
_MAX = 8192
_CONNECTIONS = 64
_TEXT = b"text/plain; version=0.0.4; charset=utf-8"
_JSON = b"application/json"


class ShownBalancer(Protocol):
    """What a balancer shows of itself, of whatever processes it is."""

    async def unready(self) -> str:
        """Say why it serves no requests; nothing: it serves them."""

    async def metrics(self) -> bytes:
        """Counters and gauges, as Prometheus text."""

    async def state(self) -> dict[str, Any]:
        """The state of the balancer as it is now."""


@dataclass(eq=False, repr=False)
class Admin:
    """The page, to whom may read it.

    Args:
        shown: what is on it.
        allow: networks that may read it.
        names: what this machine is known by (`gtm.geoip.near`).
        snapshot: the policy in force.
        more: what else belongs to the state.
        counted: what else belongs to the metrics.
    """

    shown: ShownBalancer
    allow: Sequence[Network]
    more: Callable[[], dict[str, Any]] = dict
    counted: Callable[[], bytes] = bytes
    _: KW_ONLY
    names: frozenset[str] = frozenset()
    snapshot: Callable[[], Snapshot | None] = lambda: None

    def __post_init__(self) -> None:
        self.room = Connections(_CONNECTIONS)
        """Who asks nothing takes no descriptor from what is carried."""

    def connection(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        return _Connection(self)

    def allows(self, peer: str | None) -> bool:
        """Whether somebody there may read."""
        if peer is None:
            return False
        address = ip_address(peer.partition("%")[0])
        return any(address in network for network in self.allow)

    async def answer(self, path: bytes, peer: str | None, host: bytes = b"") -> tuple[int, bytes, bytes]:
        """Status, content type and body."""
        if path == b"/readyz":
            why = await self.shown.unready()
            said = {"ready": False, "detail": why} if why else {"ready": True}
            return (503 if why else 200), _JSON, msgspec.json.encode(said)
        if not self.allows(peer):
            return 403, _JSON, msgspec.json.encode({"detail": "not for this address: see --metrics-allow"})
        words = foreign(peer, host, self.names, self.snapshot())
        if words:
            return 421, _JSON, msgspec.json.encode({"detail": words})
        if path == b"/metrics":
            return 200, _TEXT, await self.shown.metrics() + self.counted()
        if path == b"/state":
            state = await self.shown.state() | self.more()
            return 200, _JSON, msgspec.json.format(msgspec.json.encode(state), indent=2)
        return 404, _JSON, msgspec.json.encode({"detail": "there are /metrics, /state and /readyz"})


class _Connection(asyncio.Protocol):
    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._url = b""
        self._host = b""
        self._read = 0
        self._parser = HttpRequestParser(self)
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peername = transport.get_extra_info("peername")
        address = peer_address(peername[0] if isinstance(peername, tuple) else None)
        self._admin.room.enter(self, None if address is None else client_prefix(address.packed))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the contract
        self._admin.room.leave(self)

    def evict(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._read += len(data)
        if self._read > _MAX:
            self._transport.close()
            return
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            pass  # asked for another protocol, or for a tunnel: answered as what it is, and what follows is not read
        except HttpParserError:
            self._transport.close()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"host":
            self._host = value

    def on_message_complete(self) -> None:
        if self._answering is None:
            self._answering = asyncio.ensure_future(self._answer())

    async def _answer(self) -> None:
        peer = self._transport.get_extra_info("peername")
        method, path = self._parser.get_method(), self._url.partition(b"?")[0]
        if method in _METHODS:
            allow = b""
            status, kind, body = await self._admin.answer(
                path, peer[0] if isinstance(peer, tuple) else None, self._host
            )
        else:
            allow = b"allow: %b\r\n" % b", ".join(_METHODS)
            status, kind, body = 405, _JSON, msgspec.json.encode({"detail": "this page is only read"})
        self._transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n%bconnection: close\r\n\r\n%b"
            % (
                status,
                HTTPStatus(status).phrase.encode(),
                kind,
                len(body),
                allow,
                b"" if method == b"HEAD" else body,  # RFC 9110 §9.3.2
            )
        )
        self._transport.close()
