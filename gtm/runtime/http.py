"""Uvicorn's HTTP/1.1, with a deadline for the heads of requests."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


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
