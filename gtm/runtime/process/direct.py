"""HTTP/1.1 with answers in place: what nearly every request to an edge is costs a fraction of an ASGI call.

A look-up is a head and nothing else, and its answer is known at once. Through ASGI it takes a task, a scope, a cycle with an
event, two messages that are checked line by line, and a timer: some 17 µs of processor time on which nothing depends. Here the
parser's end of the head calls a plain function, and what that returns goes to the transport in one write.

Answers are written when all requests that were there to read in a round of the event loop are answered. Each write leads through
the kernel to waking somebody, out of a virtual machine and back; what runs after that finds its caches cold. With a write after each
answer, a look-up by a new client took 59 µs where it takes 39 with the writes in a row.

    bytes ─▶ PatientProtocol (bounds, deadlines) ─▶ head complete ─▶ in place? ─yes─▶ answer(…) ─▶ one write
                                                                        └─no──▶ uvicorn's cycle, a task, ASGI

In place is what begins with `GET /` or `HEAD /`, has no body and asks for no other protocol, on a connection on which nothing
waits to be answered or written, and is the first to end in what was read at once. All else goes through ASGI as before: bodies,
pipelined requests behind the first (each gets a turn of the event loop, so that no client takes it for long), clients that
do not take their answers.

Laws:
  1. Byte for byte the answers are those that the same application gives through ASGI, in the same order, however what is sent is
     cut (tests/runtime/process/test_direct.py). More is answered in one case: a good request before something in the same read
     that cannot be read, which through ASGI gets `connection: close`, or nothing where that is a wrong body.
  2. Every bound of `PatientProtocol` holds: a head that came in many pieces is measured there, before it is looked at here.
  3. A connection that waits between requests ends after the same time, within a tick of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gtm.runtime.process.http import FRAMING, MAX_HEADERS, PatientProtocol

Lines = Sequence[tuple[bytes, bytes]]


class Head(Protocol):
    """What begins an answer, but for its length."""

    @property
    def status(self) -> int:
        """The status as the answer's first line has it."""

    @property
    def lines(self) -> bytes:
        """Header lines."""

    @property
    def closes(self) -> bool:
        """One of them is `connection: close`."""


class Answer(Protocol):
    """An answer. HEAD gets all of it but the body."""

    @property
    def head(self) -> Head:
        """The head of the answer."""

    @property
    def body(self) -> bytes:
        """What follows; its length is sent with the head."""


AnswerHead = Callable[[str, bytes, list[tuple[bytes, bytes]], str | None, str], Answer | None]
"""From method, target as it was sent (path and query), headers with lower-case names, peer, and HTTP version: the answer, or None if
it needs ASGI. It never raises."""


class DirectProtocol(PatientProtocol):
    """One connection; see above."""

    def __init__(self, direct: Direct, **given: Any) -> None:
        super().__init__(**given)
        self._direct = direct
        self._peer: str | None = None
        self._first = False
        """No request has ended yet in what is being read."""
        self._in_place = False
        """The request that is being read is answered already."""
        self._unsent = b""
        """Answers in place that wait for the end of this round of the event loop."""
        self._resting_since = 0.0
        self._resting: asyncio.TimerHandle | None = None
        """Fires when the connection may have waited long enough between requests: one timer for many of them."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """A client is there."""
        super().connection_made(transport)
        self._peer = self.client[0] if self.client else None

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """The client has sent these bytes."""
        self._first = True
        super().data_received(data)

    def on_message_begin(self) -> None:
        """The first byte of a request: as uvicorn, but for the scope that most requests need not."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self.begins()

    def on_headers_complete(self) -> None:
        """The end of its head."""
        if self._ended:
            return
        if self._first and self._is_plain():
            self._first = False
            version = self.parser.get_http_version()
            method = self.parser.get_method().decode("ascii")
            answer = self._direct.answer(method, self.url, self.headers, self._peer, version)
            if answer is not None:
                self._in_place = True
                self._write(answer, method, keep_alive=version != "1.0" and self.parser.should_keep_alive())
                return
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        HttpToolsProtocol.on_message_begin(self)
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The end of a request."""
        if self._in_place:
            self._in_place = False
            self.headers = []
            self.ends_answered()
        elif not self._ended:
            super().on_message_complete()

    def _is_plain(self) -> bool:
        """Whether the request may be answered in place, by its head and what goes on on the connection."""
        url = self.url
        return (
            not self._head  # it is short, or is measured first
            and self.parser.get_method() in (b"GET", b"HEAD")
            and url.startswith(b"/")
            and url.isascii()
            and b"#" not in url
            and len(self.headers) <= MAX_HEADERS
            and all(name not in FRAMING for name, _ in self.headers)
            and not self.parser.should_upgrade()
            and not self.answering
            and not self.flow.write_paused
        )

    def _write(self, answer: Answer, method: str, *, keep_alive: bool) -> None:
        head, body = answer.head, answer.body
        beginning, ends = self._direct.beginning(head.status, self.server_state.default_headers)
        closes = head.closes or ends
        goes_on = keep_alive and not closes
        if not self._unsent:
            self._direct.send_soon(self)
        self._unsent += b"%b%bcontent-length: %d\r\n%b\r\n%b" % (
            beginning,
            head.lines,
            len(body),
            b"" if goes_on or closes else b"connection: close\r\n",
            b"" if method == "HEAD" else body,
        )
        self.server_state.total_requests += 1
        if not goes_on:
            self.send()
            self._ended = True
            self.transport.close()
            return
        self._resting_since = self.loop.time()
        if self._resting is None:
            self._resting = self.loop.call_later(self.timeout_keep_alive, self._rested)

    def send(self) -> None:
        """Send what was answered in place and waits."""
        unsent, self._unsent = self._unsent, b""
        if unsent and not self.transport.is_closing():
            self.transport.write(unsent)

    def shutdown(self) -> None:
        """The server ends: what is answered is sent first."""
        self.send()
        super().shutdown()

    def _refuse(self, status: int, detail: str) -> None:
        self.send()
        super()._refuse(status, detail)

    def _rested(self) -> None:
        """End the connection if it has waited for long enough since the last answer in place."""
        self._resting = None
        if self.arriving or self.answering or self.timeout_keep_alive_task is not None:
            return  # other deadlines hold until the next answer in place
        left = self._resting_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._resting = self.loop.call_later(left, self._rested)
        else:
            self.transport.close()


class Direct:
    """What all connections of one server share.

    Args:
        answer: answers requests that are all head.
        protocol: of each connection.
    """

    def __init__(self, answer: AnswerHead, protocol: type[DirectProtocol] = DirectProtocol) -> None:
        self.answer = answer
        self._protocol = protocol
        self._headers: Lines | None = None
        self._beginnings: dict[int, bytes] = {}
        self._ends = False
        self._unsent: list[DirectProtocol] = []

    def send_soon(self, connection: DirectProtocol) -> None:
        """Send a connection's answers once all that was there to read in this round of the event loop is answered.

        What a task writes on the same connection comes later, for the task is made later.
        """
        if not self._unsent:
            connection.loop.call_soon(self._send)
        self._unsent.append(connection)

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, []
        for connection in unsent:
            connection.send()

    def beginning(self, status: int, headers: Lines) -> tuple[bytes, bool]:
        """Status line and the server's own header lines, and whether these end connections.

        Args:
            status: of the answer.
            headers: the server's own; uvicorn makes a new list whenever one changes (Date, each second).
        """
        if headers is not self._headers:
            self._headers = headers
            self._beginnings = {}
            self._ends = (b"connection", b"close") in headers
        found = self._beginnings.get(status)
        if found is None:
            lines = b"".join(b"%b: %b\r\n" % header for header in headers)
            found = b"HTTP/1.1 %d %b\r\n%b" % (status, HTTPStatus(status).phrase.encode(), lines)
            self._beginnings[status] = found
        return found, self._ends

    def __call__(self, **given: Any) -> DirectProtocol:
        """The protocol of one connection, as uvicorn makes them."""
        return self._protocol(self, **given)
