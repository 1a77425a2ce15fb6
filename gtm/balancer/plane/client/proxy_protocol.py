r"""The PROXY protocol: a TCP proxy before the balancer tells whose connection it carries (HAProxy's specification, versions 1 and 2).

    v1: `PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n`, at most 107 bytes; `PROXY UNKNOWN …\r\n` tells nothing
    v2: 12 bytes of signature, version and command, family and transport, length; addresses; type-length-values, which are skipped

A header that names no TCP client (`UNKNOWN`, the families AF_UNSPEC and AF_UNIX) makes the client unknown: the connection's own address is
the proxy's, and says nothing of who is behind it. The command LOCAL (§2.2) says that the connection is the proxy's own, such as its health
check: then the proxy is the client.

Connections from networks that are trusted must begin with a header; what begins otherwise is closed. All others are no proxies: they
are clients, who speak for themselves, and a header from one of them is no HTTP. Nobody guesses whether there is one (§2).

The header comes before TLS. It is read on the raw connection, and what came behind it in the same bytes is given to the handshake.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, cast

from gtm.balancer.plane.flow import feed
from gtm.geoip.client import is_in
from gtm.settings import Network

if TYPE_CHECKING:
    from gtm.balancer.plane.proxy import Proxy

_log = logging.getLogger(__name__)

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_LOCAL, _PROXY = 0x20, 0x21
"""Version 2 and a command."""
_MAX_V1 = 107
_MAX_V2 = 4096
"""Bytes of a header: 232 are the longest addresses; the rest is for values that are skipped."""
_ADDRESSES = {0x11: 12, 0x21: 36, 0x31: 216, 0x00: 0}
"""Bytes of the addresses by family and transport: TCP over IPv4, over IPv6, UNIX streams, unspecified."""


class ProxyHeaderError(ValueError):
    """Bytes that are no header: why."""


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """What a header says of its connection: the client's address, None if it is unknown; and the header's length in bytes.

    `local`: the connection is the proxy's own, and the client is whoever is connected.
    """

    source: str | None
    size: int
    local: bool = False


def read_proxy_header(data: bytes) -> ProxyHeader | None:
    """The header that a connection begins with; None as long as more bytes are needed.

    Raises:
        ProxyHeaderError: it begins with none.
    """
    if data[:1] == b"P":
        return _read_v1(data)
    if SIGNATURE.startswith(data[: len(SIGNATURE)]):
        return _read_v2(data)
    raise ProxyHeaderError("the connection does not begin with a PROXY header")


def _read_v1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, _MAX_V1)
    if not data.startswith(b"PROXY "[: len(data)]):
        raise ProxyHeaderError("the connection does not begin with a PROXY header")
    if end < 0:
        if len(data) >= _MAX_V1:
            raise ProxyHeaderError(f"the header has no end within {_MAX_V1} bytes")
        return None
    words = data[:end].split(b" ")
    if words[1] == b"UNKNOWN":
        return ProxyHeader(None, end + 2)
    version = {b"TCP4": 4, b"TCP6": 6}.get(words[1])
    if version is None or len(words) != 6:
        raise ProxyHeaderError("the header is not `PROXY TCP4|TCP6 source destination port port`")
    source, _ = _address(words[2], version), _address(words[3], version)
    for port in words[4:]:
        if not (port.isdigit() and str(int(port)).encode() == port and int(port) < 65536):
            raise ProxyHeaderError("a port of the header is none")
    return ProxyHeader(source, end + 2)


def _address(word: bytes, version: int) -> str:
    try:
        found = ip_address(word.decode("ascii"))
    except ValueError:
        raise ProxyHeaderError("an address of the header is none") from None
    if found.version != version or b"%" in word:
        raise ProxyHeaderError("an address of the header is of another family than it says")
    return str(found)


def _read_v2(data: bytes) -> ProxyHeader | None:
    if len(data) < 16:
        return None
    command, family = data[12], data[13]
    length = int.from_bytes(data[14:16])
    if command not in (_LOCAL, _PROXY):
        raise ProxyHeaderError(f"version and command {command:#04x} are not known")
    if 16 + length > _MAX_V2:
        raise ProxyHeaderError(f"the header is longer than {_MAX_V2} bytes")
    needed = _ADDRESSES.get(family)
    if command == _PROXY and (needed is None or length < needed):
        raise ProxyHeaderError(f"{length} bytes are no addresses of family and transport {family:#04x}")
    if len(data) < 16 + length:
        return None
    if command == _LOCAL:
        return ProxyHeader(None, 16 + length, local=True)  # addresses do not count
    source = None
    if family in (0x11, 0x21):
        source = str(ip_address(data[16 : 20 if family == 0x11 else 32]))
    return ProxyHeader(source, 16 + length)


class ProxiedConnection(asyncio.Protocol):
    """A connection whose client is told, or that speaks TLS, before anything else; then the client's own protocol takes it over.

    Args:
        proxy: what all connections share.
        trusted: networks of the proxies that are believed.
        tls: a listener's context, if it speaks TLS.
    """

    __slots__ = ("_data", "_late", "_proxy", "_task", "_tls", "_transport", "_trusted")

    def __init__(self, proxy: Proxy, trusted: Sequence[Network], tls: ssl.SSLContext | None = None) -> None:
        self._proxy = proxy
        self._trusted = trusted
        self._tls = tls
        self._transport = cast("asyncio.Transport", None)
        self._data = b""
        self._task: asyncio.Task[None] | None = None
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody is there: a proxy that is believed, or a client."""
        self._transport = cast("asyncio.Transport", transport)
        peername = transport.get_extra_info("peername")
        peer = peername[0] if isinstance(peername, tuple) else None
        proxied = is_in(peer, self._trusted)
        self._proxy.room.enter(self, self if proxied else self._proxy.whose(self, peer))
        if proxied:
            timeout = self._proxy.limits.head_timeout
            self._late = self._proxy.loop.call_later(timeout, self._transport.abort)
        else:
            self._hand_over(None, b"")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the contract
        """It is gone before it was handed over."""
        self._on_time()
        self._proxy.room.leave(self)

    def evict(self) -> None:
        """Make room for another connection."""
        self._on_time()
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Some of the header; or, while TLS begins, of what the client says in it."""
        self._data += data
        if self._task is not None:
            return
        try:
            header = read_proxy_header(self._data)
        except ProxyHeaderError as error:
            _log.warning("a connection from a trusted proxy was closed: %s", error)
            self._transport.abort()
            return
        if header is not None:
            self._on_time()
            self._hand_over(None if header.local else header, self._data[header.size :])

    def _on_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _hand_over(self, told: ProxyHeader | None, rest: bytes) -> None:
        if self._tls is not None:
            self._transport.pause_reading()
            self._data = b""
            self._task = self._proxy.loop.create_task(self._begin_tls(self._tls, told, rest))
        else:
            self._become(self._transport, told, rest)

    def _become(self, transport: asyncio.Transport, told: ProxyHeader | None, rest: bytes) -> None:
        self._proxy.room.leave(self)
        client = self._proxy.connection(secure=self._tls is not None)
        if told is not None:
            client.told(told.source)
        transport.set_protocol(client)
        client.connection_made(transport)
        if rest:
            client.data_received(rest)

    async def _begin_tls(self, tls: ssl.SSLContext, told: ProxyHeader | None, rest: bytes) -> None:
        loop, raw = self._proxy.loop, self._transport
        timeout = self._proxy.limits.head_timeout
        # Anew: event loops begin to read once a connection's `connection_made` has returned, whatever that has said.
        raw.pause_reading()
        rest, self._data = rest + self._data, b""
        handshake = loop.create_task(
            loop.start_tls(raw, self, tls, server_side=True, ssl_handshake_timeout=timeout)
        )
        if rest:
            # Behind the first step of `start_tls`, and behind what that step asks for.
            loop.call_soon(loop.call_soon, _feed, raw, rest)
        try:
            transport = await handshake
        except (OSError, asyncio.CancelledError):
            raw.abort()
            self._proxy.room.leave(self)
            return
        if transport is None or transport.is_closing():
            self._proxy.room.leave(self)
            return
        early, self._data = self._data, b""
        self._become(transport, told, early)


def _feed(raw: asyncio.Transport, data: bytes) -> None:
    """Give the handshake bytes that were read before it began."""
    if raw.is_closing():
        return
    feed(cast("asyncio.BufferedProtocol", raw.get_protocol()), data)
