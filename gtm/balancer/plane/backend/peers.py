"""The way to an endpoint of a peer region: judged before it is connected to, and asked for a proof before it sees a request.

Laws:
  1. A connection goes to an address that was looked at (`gtm.destinations`): whoever writes a policy chooses the name.
  2. A connection carries nothing of a client's before who is there has proven to be a balancer of the region (`gtm.handoff.proof`).
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpResponseParser

from gtm.balancer.plane.backend.backends import Route, connected
from gtm.balancer.plane.backend.upstream import Upstream
from gtm.core.handoff.keys import PublicKeys
from gtm.destinations import Destination, DestinationError, Network, addresses
from gtm.handoff.proof import FIELD, NONCE, PATH, proves, question

_EACH = 0.5
"""Seconds for an address to take a connection, while there are others to try."""
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
    ) -> None:
        super().__init__(url, tls, idle=idle)
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
            hint = f"if that is meant, start the balancer with GTM_PROBE_ALLOW={error.literal}"
            raise UnprovenError(f"{error}; {hint}") from error
        for place in places[:-1]:
            try:
                async with asyncio.timeout(_EACH):
                    transport, asking = await self._connected(loop, place)
                break
            except OSError:  # a TimeoutError too
                continue
        else:
            transport, asking = await self._connected(loop, places[-1])
        try:
            await asking.done
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
        self, loop: asyncio.AbstractEventLoop, place: Destination
    ) -> tuple[asyncio.Transport, _Asking]:
        asked = question(self._region, os.urandom(NONCE))
        head = b"GET %b HTTP/1.1\r\nhost: %b\r\n%b: %b\r\n\r\n" % (
            self.prefix + PATH,
            self._authority,
            FIELD,
            asked,
        )
        return await connected(
            loop,
            lambda: _Asking(head, lambda said: proves(asked, said, self._keys()), loop.create_future()),
            place.host,
            place.port,
            tls=self.tls,
            server_name=self.server_name,
        )


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
