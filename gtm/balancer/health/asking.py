"""One small request to a backend on a connection of its own, for checks and scrapes.

Laws:
  1. A kept connection would hide that nobody listens any more: each request opens one, and closes it.
  2. Nothing a backend sends can hurt: heads, bodies and trailers are bounded, nothing is decompressed, no redirect is followed.
  3. What goes wrong is an `AskingError` with words that an operator can act on; nothing a backend sends is repeated but its status.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from gtm.balancer.health.question import Question
from gtm.balancer.plane.backend.backends import Route
from gtm.balancer.wire.heads import MAX_HEAD
from gtm.transport import no_room


class AskingError(Exception):
    """There was no answer; the message says why, in words."""


class NoRoomError(Exception):
    """Nobody could be asked for want of descriptors or memory here, which says nothing of a backend."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A backend's answer. `seconds` from the beginning, with the connection."""

    status: int
    body: bytes
    seconds: float


async def ask(
    route: Route,
    target: str,
    *,
    timeout: float,  # noqa: ASYNC109 - it is for the whole, and said in the error
    most: int,
    content: bytes | None = None,
    port: int | None = None,
    key: str = "",
) -> Answer:
    """Ask once: GET, or POST of JSON.

    Args:
        route: to the backend.
        target: path and query; the route's own path goes before it.
        timeout: seconds for all of it, from the name's resolution to the end of the body.
        most: bytes of a body that are taken.
        content: JSON to post.
        port: another than the route's.
        key: a bearer token to show; empty: none.

    Raises:
        NoRoomError: nobody was asked.
        AskingError: no answer, no complete one in time, or none that can be read.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    protocol = Asking(loop.create_future(), most)
    try:
        async with asyncio.timeout(timeout):
            transport, _ = await route.connection(lambda: protocol, route.tls, port)
            transport.write(_request(route, target, content, port or route.port, key))
            status, body = await protocol.done
    except TimeoutError as error:
        raise AskingError(f"no answer within {timeout:g} s") from error
    except (OSError, HttpParserError, UnicodeError) as error:
        if no_room(error):
            raise NoRoomError from error
        raise AskingError(words_of(error)) from error
    finally:
        protocol.close()
    return Answer(status, body, loop.time() - began)


def authority(route: Route, port: int) -> bytes:
    """Whom a check asks, as it says itself: what the file says (`host`), or the host and port of the URL."""
    if route.host_field is not None:
        return route.host_field
    host = f"[{route.host}]" if ":" in route.host else route.host
    return b"%b:%d" % (host.encode("idna") if not host.isascii() else host.encode(), port)


def _request(route: Route, target: str, content: bytes | None, port: int, key: str) -> bytes:
    head = (
        b"%b %b%b HTTP/1.1\r\nhost: %b\r\nuser-agent: gtm-balancer\r\naccept: */*\r\naccept-encoding: identity\r\n"
        % (
            b"GET" if content is None else b"POST",
            route.prefix,
            target.encode("latin-1", "replace"),
            authority(route, port),
        )
    )
    if key:
        head += b"authorization: Bearer %b\r\n" % key.encode()
    if content is None:
        return head + b"connection: close\r\n\r\n"
    return head + b"connection: close\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        len(content),
        content,
    )


_PIECES, _PIECE = 256, 32
"""An answer may come in so many reads, and have so many chunks, and one more of each for each so many bytes of its body: one byte costs as
much as thousands."""
_FRAMING, _FRAMED = 2 * MAX_HEAD, 8
"""It may have so many bytes that are not of its body, and so many more for each that is: what a server can send is bounded by nothing else."""


class Asking(Question[tuple[int, bytes]]):
    """A connection for one request. `done` gets status and body, or an exception."""

    def __init__(self, done: asyncio.Future[tuple[int, bytes]], most: int) -> None:
        super().__init__(done)
        self._most = most
        self._parser = HttpResponseParser(self)
        self._body = bytearray()
        self._kept = 0
        """Bytes since the beginning, or since the last of the body: the parser keeps a head, and trailers, whole."""
        self._reads = self._came = self._pieces = 0
        self._headed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Some of the answer."""
        if self.done.done():
            return
        self._reads += 1
        self._came += len(data)
        self._kept += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._fail(error)
        if self._kept > MAX_HEAD:
            self._fail(HttpParserError("head"))
        elif self._came > _FRAMING + _FRAMED * len(self._body):
            self._fail(HttpParserError("more framing than body"))
        elif self._is_many(self._reads):
            self._fail(HttpParserError("in reads of a few bytes"))

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed: the end of an answer that says no length (RFC 9112 §6.3, rule 8), or a failure."""
        if self.done.done():
            return
        if exc is None and self._headed and self._open_ended:
            self._finish()
        else:
            self._fail(exc or ConnectionAbortedError())

    def on_header(self, name: bytes, value: bytes) -> None:  # noqa: ARG002 - the parser's form
        """A header."""
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._open_ended = False

    _open_ended = True

    def on_headers_complete(self) -> None:
        """The head is there."""
        if self._parser.get_status_code() >= 200:
            self._headed = True

    def on_body(self, body: bytes) -> None:
        """Some of the body."""
        self._kept = 0
        self._body += body
        self._pieces += 1
        if len(self._body) > self._most:
            raise HttpParserError(f"longer than {self._most} bytes")
        if self._is_many(self._pieces):
            raise HttpParserError("in pieces of a few bytes")

    def _is_many(self, pieces: int) -> bool:
        return pieces > _PIECES + len(self._body) // _PIECE

    def on_message_complete(self) -> None:
        """The end of it."""
        if self._headed and not self.done.done():
            self._finish()

    def _finish(self) -> None:
        self.done.set_result((self._parser.get_status_code(), bytes(self._body)))

    def _fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error if isinstance(error, OSError) else HttpParserError(str(error)))


_WORDS: tuple[tuple[type[Exception], str], ...] = (
    (ConnectionRefusedError, "connection refused"),
    (ConnectionResetError, "connection reset"),
    (ConnectionAbortedError, "the connection was closed before the answer was complete"),
    (HttpParserError, "the answer is no HTTP, or longer than is read"),
)


def words_of(error: Exception) -> str:
    """What happened to a connection, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS with it: {(error.reason or str(error)).lower()}"
    known = next((words for kind, words in _WORDS if isinstance(error, kind)), None)
    if known is not None:
        return known
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"cannot connect: {text[:120].lower()}"
