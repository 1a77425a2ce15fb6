"""Connections to other servers: how they open, and what is still read of one that breaks.

A server may answer before it has all of a request, and close: what is written to it then fails, while its answer waits to be read (RFC 9112
§9.5). Event loops tell only of the failure. So what the kernel still has is read first: here beneath TLS, and by `Upstream` where there is none.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TypeVar, cast

from gtm.balancer.plane.flow import feed, left_in

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
        return await loop.create_connection(made, host, port)
    raw, _ = await loop.create_connection(asyncio.Protocol, host, port)
    protocol = made()
    try:
        transport = await loop.start_tls(raw, protocol, tls, server_hostname=server_name)
    except BaseException:
        raw.abort()
        raise
    if transport is None:
        raise ConnectionError("the connection ended while TLS began")
    raw.set_protocol(_BeneathTls(raw, cast("asyncio.BufferedProtocol", raw.get_protocol())))
    protocol.connection_made(transport)
    return transport, protocol


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
