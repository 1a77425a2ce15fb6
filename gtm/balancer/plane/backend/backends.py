"""The way to one backend: its address, and connections to it that wait for the next request.

The last one that came back is taken first: those beyond what the load needs grow old and are closed, before the backend
closes them itself (many model servers do after five seconds) under a request that is on its way. One that has waited for longer
than a moment is looked at in the kernel before it is taken: what it was sent meanwhile is its end, or nobody's.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import TypeVar, cast
from urllib.parse import SplitResult, urlsplit

from httptools import HttpParserError, HttpResponseParser

from gtm.balancer.plane.backend.upstream import Upstream
from gtm.balancer.plane.flow import feed, left_in
from gtm.core.handoff.keys import PublicKeys
from gtm.core.model.addresses import host_port
from gtm.destinations import Destination, DestinationError, Network, addresses
from gtm.geoip.client import is_in
from gtm.handoff.proof import FIELD, NONCE, PATH, proves, question

IDLE = 4.0
"""Seconds after which a connection that waits is closed: uvicorn, which serves most model servers, waits for five."""
MAX_IDLE = 256
"""Connections that wait to one backend."""
_FRESH = 0.1
"""Seconds for which a connection that came back is taken without a look."""
_EACH = 0.5
"""Seconds for an address to take a connection, while the same server has another to try."""

_Protocol = TypeVar("_Protocol", bound=asyncio.Protocol)
_PLAIN = re.compile(r"[\x21-\x7e]+")


class Work:
    """What a backend's model does. `heard`: when it last sent something that a model has made; refusals, lists and the like say nothing of an engine.

    It stands where a route does for a connection (`Upstream.teller`), so that a chunk costs no more.
    """

    __slots__ = ("heard",)

    def __init__(self) -> None:
        self.heard = -inf


class Route:
    """How one backend is reached.

    Args:
        url: `http://` or `https://`, host, port, and a path that goes before every target; behind a `#` the server's addresses, where its
            host is a name that several servers have (`gtm.runtime.balancer.backends_file`).
        tls: what an https backend must show, and what is shown to it; asked for if it is one.
        server_name: the name that it must show, and is asked by (SNI); None: the URL's host.
        idle: seconds after which a connection that waits is closed.

    Raises:
        ValueError: the URL is none that can be reached.
    """

    def __init__(
        self,
        url: str,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        *,
        server_name: str | None = None,
        idle: float = IDLE,
    ) -> None:
        wrong = ValueError(f"`{url[:200]}` is no URL of a backend: write `http://host:port`")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise wrong from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise wrong
        if parts.username is not None or not _PLAIN.fullmatch(parts.hostname + parts.path):
            raise wrong
        self.url = url
        self.host = parts.hostname
        self._places = _places(parts, port or (443 if parts.scheme == "https" else 80))
        self.port = self._places[0][1]
        self.host_field: bytes | None = None
        """What requests say there in Host; None: what their clients say, and of checks the URL's."""
        self.prefix = parts.path.rstrip("/").encode()
        self.tls = tls() if parts.scheme == "https" else None
        self.server_name = (server_name or domain_of(self.host)) if self.tls is not None else None
        self._idle: list[Upstream] = []
        self._idle_for = idle
        self.open = 0
        """Connections there are, busy or not."""
        self._closed = False
        self.heard = -inf
        """When it last sent something to any request, but for `work`."""
        self.work = Work()

    @property
    def waiting(self) -> int:
        """Connections that wait."""
        return len(self._idle)

    def take(self, now: float) -> Upstream | None:
        """A connection that waits, if there is one."""
        while self._idle:
            found = self._idle.pop()
            if found.usable and (now - found.idle_since < _FRESH or found.silent):
                return found
            found.abort()
        return None

    def put(self, connection: Upstream, now: float) -> None:
        """Take a connection back whose response is complete."""
        if self._closed or not connection.usable or len(self._idle) >= MAX_IDLE:
            connection.abort()
            return
        if not connection.transport.is_reading():  # its end would not be noticed
            connection.transport.resume_reading()
        connection.idle_since = now
        self._idle.append(connection)

    def expire(self, now: float) -> None:
        """Close those that have waited for too long: the first ones, since the last is taken first."""
        kept = now - self._idle_for
        count = 0
        for connection in self._idle:
            if connection.idle_since > kept:
                break
            count += 1
            connection.abort()
        if count:
            del self._idle[:count]

    def close(self) -> None:
        """Close all that wait, and those that are busy once they are given back: nobody comes this way any more."""
        self._closed = True
        for connection in self._idle:
            connection.abort()
        self._idle.clear()

    async def connect(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> Upstream:
        """Open another connection.

        Raises:
            OSError: the backend does not take it.
            ssl.SSLError: it does not show what it must.
        """
        connection = await self.opened(loop, clock)
        if not connection.usable:
            raise ConnectionError("the backend closed the connection as soon as it had taken it")
        # Counted here: of one that is given up while it opens, the event loop never tells the end.
        connection.counted = True
        self.open += 1
        return connection

    async def opened(
        self,
        loop: asyncio.AbstractEventLoop,  # noqa: ARG002 - of a peer's route
        clock: Callable[[], float],
    ) -> Upstream:
        """A connection that has just opened.

        Raises:
            OSError: nobody takes it.
            ssl.SSLError: who does does not show what it must.
        """
        _, connection = await self.connection(lambda: Upstream(self, clock), self.tls)
        return connection

    async def connection(
        self, protocol: Callable[[], _Protocol], tls: ssl.SSLContext | None, port: int | None = None
    ) -> tuple[asyncio.Transport, _Protocol]:
        """A connection to one of the server's addresses, for whatever is spoken on it. `port`: another than its own.

        Raises:
            OSError: nobody takes it.
            ssl.SSLError: who does does not show what it must.
        """
        *first, last = self._places
        for place in first:
            try:
                async with asyncio.timeout(_EACH):
                    return await self._connection(protocol, tls, place, port)
            except OSError:  # a TimeoutError too
                continue
        return await self._connection(protocol, tls, last, port)

    async def _connection(
        self,
        protocol: Callable[[], _Protocol],
        tls: ssl.SSLContext | None,
        place: tuple[str, int],
        port: int | None,
    ) -> tuple[asyncio.Transport, _Protocol]:
        name = None if tls is None else self.server_name
        loop = asyncio.get_running_loop()
        return await connected(loop, protocol, place[0], port or place[1], tls=tls, server_name=name)


def domain_of(host: str) -> str:
    """The domain that servers stand for: of `_http._tcp.example.com`, a name of SRV records, it is `example.com` (RFC 9525 §6.2, SRV-ID)."""
    labels = host.split(".", 2)
    return labels[2] if is_srv(host) else host


def is_srv(host: str) -> bool:
    """Whether a host is a name of SRV records (RFC 2782): no server's own name begins with an underscore."""
    return host.startswith("_") and host.count(".") >= 2 and host.split(".", 2)[1].startswith("_")


def placed(url: str, places: Sequence[tuple[str, int | None]]) -> str:
    """The name of one server of those that a URL's host stands for: the URL, and where the server is. A port is given where the URL has none."""
    return f"{url}#{','.join(_written(*place) for place in places)}"


def _written(address: str, port: int | None) -> str:
    return address if port is None else host_port(address, port)


def _places(parts: SplitResult, port: int) -> tuple[tuple[str, int], ...]:
    """Where a server is: hosts and ports, to be tried in this order."""
    found = []
    for one in parts.fragment.split(","):
        own = urlsplit(f"//{one}") if one.startswith("[") or one.count(":") == 1 else None
        found.append((one, port) if own is None else (own.hostname or "", own.port or port))
    return tuple(found) if parts.fragment else ((parts.hostname or "", port),)


# --- Connections to other servers: how they open, and what is still read of one that breaks.
#
# A server may answer before it has all of a request, and close: what is written to it then fails, while its answer waits to be read (RFC 9112
# §9.5). Event loops tell only of the failure. So what the kernel still has is read first: here beneath TLS, and by `Upstream` where there is none.


KEEPALIVE = 30
"""Seconds of silence after which the kernel asks whether the other side is there; half a minute later it is not."""
_Made = TypeVar("_Made", bound=asyncio.Protocol)


async def connected(
    loop: asyncio.AbstractEventLoop,
    made: Callable[[], _Made],
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None,
    server_name: str | None,
) -> tuple[asyncio.Transport, _Made]:
    """Open a connection.

    Args:
        loop: the event loop.
        made: makes its protocol.
        host: a name or an address.
        port: likewise.
        tls: what the server must show; None: it speaks no TLS.
        server_name: the name that it must show.

    Raises:
        OSError: nobody takes it.
        ssl.SSLError: who does does not show what it must.
    """
    if tls is None:
        transport, protocol = await loop.create_connection(made, host, port)
        _keep_alive(transport)
        return transport, protocol
    raw, _ = await loop.create_connection(asyncio.Protocol, host, port)
    _keep_alive(raw)
    protocol = made()
    try:
        secure = await loop.start_tls(raw, protocol, tls, server_hostname=server_name)
    except BaseException:
        raw.abort()
        raise
    if secure is None:
        raise ConnectionError("the connection ended while TLS began")
    raw.set_protocol(_BeneathTls(raw, cast("asyncio.BufferedProtocol", raw.get_protocol())))
    protocol.connection_made(secure)
    return secure, protocol


def _keep_alive(transport: asyncio.Transport) -> None:
    """Have the kernel ask on a silent connection: a long answer may be silent for minutes, in which NAT forgets it, or a machine dies."""
    connection = transport.get_extra_info("socket")
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", KEEPALIVE), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, name):  # not everywhere
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class _BeneathTls(asyncio.BufferedProtocol):
    """Hands on what TLS gets, and what is left of it when the connection breaks."""

    def __init__(self, raw: asyncio.Transport, tls: asyncio.BufferedProtocol) -> None:
        self._raw = raw
        self._tls = tls
        self.get_buffer, self.buffer_updated = tls.get_buffer, tls.buffer_updated  # type: ignore[method-assign]
        self.eof_received = tls.eof_received  # type: ignore[method-assign]
        self.pause_writing, self.resume_writing = tls.pause_writing, tls.resume_writing  # type: ignore[method-assign]

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            for data in left_in(self._raw):
                feed(self._tls, data)
        self._tls.connection_lost(exc)


# --- The way to an endpoint of a peer region: judged before it is connected to, and asked for a proof before it sees a request. ---
#
# Laws:
#   1. A connection goes to an address that was looked at (`gtm.destinations`): whoever writes a policy chooses the name.
#   2. A connection carries nothing of a client's before who is there has proven to be a balancer of the region (`gtm.handoff.proof`); to an
#      edge, which has no other way to a region, a certificate of the endpoint's name is as good, or an address in a network that its operator trusts.


_MOST = 8 * 1024
"""Bytes of an answer that asks for a proof."""


class UnprovenError(ConnectionError):
    """Where an endpoint of a peer region leads is no place to push to, or who answers there has not proven to be a balancer of the region."""


class PeerRoute(Route):
    """See above, and `Route`.

    Args:
        url: the endpoint's.
        region: whose it is.
        keys: what control publishes now.
        allowed: networks that are connected to whatever they are.
        tls: what an https endpoint must show, asked for if it is one.
        idle: seconds after which a connection that waits is closed.
        unproven: told of each connection that nothing is sent on, and why.
        trusted: networks of servers that need no proof, and so do those that show a certificate; None: all need it.
        who: what is to be started otherwise, for words about an address.
    """

    def __init__(
        self,
        url: str,
        region: str,
        keys: Callable[[], PublicKeys],
        *,
        allowed: tuple[Network, ...] = (),
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        idle: float,
        unproven: Callable[[str, str], None] = lambda *_: None,
        trusted: tuple[Network, ...] | None = None,
        who: str = "balancer",
    ) -> None:
        super().__init__(url, tls, idle=idle)
        self._trusted = trusted
        self._who = who
        self._region = region
        self._keys = keys
        self._allowed = allowed
        self._unproven = unproven
        self._authority = urlsplit(url).netloc.encode()

    async def opened(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> Upstream:
        """See `Route`.

        Raises:
            UnprovenError: it may not be connected to, or who is there has not proven to be a balancer of the region.
        """
        try:
            return await self._proven(loop, clock)
        except UnprovenError as error:
            self._unproven(self.url, str(error))
            raise

    async def _proven(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> Upstream:
        try:
            places = await addresses(Destination(self.host, self.port), self._allowed)
        except DestinationError as error:
            hint = f"if that is meant, start the {self._who} with GTM_PROBE_ALLOW={error.literal}"
            raise UnprovenError(f"{error}; {hint}") from error
        for place in places[:-1]:
            try:
                async with asyncio.timeout(_EACH):
                    transport, protocol = await self._connected(loop, clock, place)
                break
            except OSError:  # a TimeoutError too
                continue
        else:
            transport, protocol = await self._connected(loop, clock, places[-1])
        if isinstance(protocol, Upstream):
            return protocol
        try:
            await protocol.done
        except BaseException:
            transport.abort()
            raise
        connection = Upstream(self, clock)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if transport.is_closing():
            connection.usable = False
        return connection

    async def _connected(
        self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float], place: Destination
    ) -> tuple[asyncio.Transport, Upstream | _Asking]:
        trusted = self._trusted
        sure = trusted is not None and (self.tls is not None or is_in(place.host, trusted))
        return await connected(
            loop,
            (lambda: Upstream(self, clock)) if sure else (lambda: self._asking(loop)),
            place.host,
            place.port,
            tls=self.tls,
            server_name=self.server_name,
        )

    def _asking(self, loop: asyncio.AbstractEventLoop) -> _Asking:
        asked = question(self._region, os.urandom(NONCE))
        head = b"GET %b HTTP/1.1\r\nhost: %b\r\n%b: %b\r\n\r\n" % (
            self.prefix + PATH,
            self._authority,
            FIELD,
            asked,
        )
        return _Asking(head, lambda said: proves(asked, said, self._keys()), loop.create_future())


class _Asking(asyncio.Protocol):
    """Asks on a new connection, and reads one answer."""

    def __init__(self, head: bytes, proven: Callable[[bytes], bool], done: asyncio.Future[None]) -> None:
        self.done = done
        self._head = head
        self._proven = proven
        self._parser = HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._said = b""
        self._read = 0
        self._begun = self._answers = 0
        self._lasts = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._head)

    def data_received(self, data: bytes) -> None:
        """What came; of one answer that ends where it says, and after which the connection lasts, its proof counts."""
        self._read += len(data)
        if self._read > _MOST:
            return self._fail("its answer is too long")
        try:
            self._parser.feed_data(data)
        except HttpParserError:
            return self._fail("its answer is no HTTP")
        if self._answers:
            self._judge()
        return None

    def _judge(self) -> None:
        if self._begun > 1:
            self._fail("it goes on after its answer")
        elif not self._lasts:
            self._fail("it ends the connection after its answer")
        elif not self._proven(self._said):
            self._fail("it is no balancer of the region whose key control publishes")
        elif not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the contract
        self._fail("it closed the connection")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the answer; of two that prove something neither does."""
        if name.lower() == FIELD:
            self._said = b"" if self._said else value

    def on_message_begin(self) -> None:
        """An answer begins."""
        self._begun += 1

    def on_message_complete(self) -> None:
        """It has ended. An interim one (1xx) is none."""
        if self._parser.get_status_code() >= 200:
            self._answers += 1
            self._lasts = self._parser.should_keep_alive()
        else:
            self._begun -= 1

    def _fail(self, why: str) -> None:
        if not self.done.done():
            self.done.set_exception(UnprovenError(f"the endpoint has not proven to be a balancer's: {why}"))
