"""Connections to other servers: how they open, and what is still read of one that breaks.

A server may answer before it has all of a request, and close: what is written to it then fails, while its answer waits to be read (RFC 9112
§9.5). Event loops tell only of the failure. So what the kernel still has is read first: here beneath TLS, and by `Upstream` where there is none.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar, cast

from gtm.balancer.plane.flow import feed, left_in

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
