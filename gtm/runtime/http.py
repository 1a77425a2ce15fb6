"""Uvicorn's HTTP/1.1, with a deadline for the heads of requests, and an end that breaks no connection off."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_FINISH_EVERY = 0.05


class PatientServer(uvicorn.Server):
    """Uvicorn, with signals left to us, that lets clients close their connections before it ends.

    Args:
        config: uvicorn's.
        started: called once it accepts connections.
    """

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._started = started
        self._deadline = inf

    def finish(self, grace: float) -> None:
        """End, from any thread or a signal handler.

        Nothing more is accepted. For `grace` seconds every response asks its client to close (RFC 9112 §9.6), and what
        is open then is closed between requests. Asked again, the time only gets shorter.
        """
        self._deadline = min(self._deadline, time.monotonic() + grace)
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections."""
        await super().startup(sockets)
        self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See `finish`."""
        for sock in sockets or ():
            asyncio.get_running_loop().remove_reader(sock)
        await asyncio.sleep(0)  # a server that is closed drops what it has accepted this moment
        for server in self.servers:
            server.close()
        headers = self.server_state.default_headers
        self.server_state.default_headers = [*headers, (b"connection", b"close")]
        while time.monotonic() < self._deadline:
            await asyncio.sleep(_FINISH_EVERY)  # first, because some may have been accepted this moment
            if not self.server_state.connections:
                break
        await super().shutdown(sockets)


class PatientProtocol(HttpToolsProtocol):
    """Closes connections on which no head of a request arrives in time.

    Uvicorn keeps them for ever: a few hundred clients that never finish a head would use up the process's descriptors.
    Connections that wait between requests are left to its own keep-alive timeout, bodies to the applications.
    """

    head_timeout = 10.0
    """Seconds from the connection, or the first byte of a further request, to the end of the head."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """A client is there."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._forget()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        """The end of its head."""
        self._forget()
        super().on_headers_complete()

    def _expect_head(self) -> None:
        self._forget()
        self._deadline = self.loop.call_later(self.head_timeout, self.transport.close)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
