"""One small request to a backend on a connection of its own, for checks and scrapes.

Laws:
  1. A kept connection would hide that nobody listens any more: each request opens one, and closes it.
  2. Nothing a backend sends can hurt: heads, bodies and trailers are bounded, nothing is decompressed, no redirect is followed.
  3. What goes wrong is an `AskingError` with words that an operator can act on; nothing a backend sends is repeated but its status.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

import h2.config
import h2.connection
import h2.events
import h2.exceptions
from h2.settings import SettingCodes, Settings
from hpack import HPACKError
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from hyperframe.exceptions import HyperframeError
from hyperframe.frame import SettingsFrame

from gtm.balancer.plane.backend.backends import Route
from gtm.balancer.wire.heads import MAX_HEAD
from gtm.transport import no_room
from gtm.waiting import waiting

# --- A connection on which one thing is asked of a backend. ---


_Answered = TypeVar("_Answered")


class BackendQuestion(asyncio.Protocol, Generic[_Answered]):
    """`done` gets what is answered, or an exception."""

    def __init__(self, done: asyncio.Future[_Answered]) -> None:
        self.done = done
        self._transport: asyncio.Transport | None = None

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.abort()
        if self.done.done():
            if not self.done.cancelled():
                self.done.exception()  # it has been seen
        else:
            self.done.cancel()


class AskingError(Exception):
    """There was no answer; the message says why, in words."""


class LateError(AskingError):
    """Time ran out, and nothing else is known."""


class NoRoomError(Exception):
    """Nobody could be asked for want of descriptors or memory here, which says nothing of a backend."""


@dataclass(frozen=True, slots=True)
class BackendAnswer:
    """A backend's answer. `seconds` from the beginning, with the connection. `retry_after`: it has that field."""

    status: int
    body: bytes
    seconds: float
    retry_after: bool = False


async def ask(
    route: Route,
    target: str,
    *,
    timeout: float,  # noqa: ASYNC109 - it is for the whole, and said in the error
    most: int,
    content: bytes | None = None,
    port: int | None = None,
    key: str = "",
) -> BackendAnswer:
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
        async with waiting(timeout):
            transport, _ = await route.connection(lambda: protocol, route.tls, port)
            transport.write(_request(route, target, content, port or route.port, key))
            status, body = await protocol.done
    except TimeoutError as error:
        raise LateError(f"no answer within {timeout:g} s") from error
    except (OSError, HttpParserError, UnicodeError) as error:
        if no_room(error):
            raise NoRoomError from error
        raise AskingError(words_of(error)) from error
    finally:
        protocol.close()
    return BackendAnswer(status, body, loop.time() - began, protocol.retry_after)


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


class Asking(BackendQuestion[tuple[int, bytes]]):
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
        self.retry_after = False
        """The answer has that field."""

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
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self._open_ended = False
        elif name == b"retry-after":
            self.retry_after = True

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


# --- gRPC's standard health check of a backend: `grpc.health.v1.Health/Check`, over HTTP/2 on a connection of its own.
#
# The protocol is two messages of one field each (grpc/grpc-proto, `grpc/health/v1/health.proto`) in gRPC's frame of five bytes over HTTP/2
# (grpc/grpc, `doc/PROTOCOL-HTTP2.md`): a library for it would be larger than the balancer. HTTP/2 itself is h2's.
#
# Laws:
#   1. As `asking`: a connection each, one time-out for the whole, bounded bytes, those that HPACK makes of a few too, and nothing that comes is
#      repeated but statuses.
#   2. Only SERVING passes. Whatever else comes, or does not, is an `AskingError` that says what it was.


MAX_RECEIVED, MAX_READS = 16 * 1024, 256
"""Bytes that are taken of one connection, and how often some come; the answer is some 200. Frames may have nine bytes and nothing in them, and
each takes some ten microseconds."""
MAX_FIELDS = 8 * 1024
"""Of one head or of trailers, unpacked (HPACK names in one byte what it has said before)."""
_MOST_HEADS = 8
"""Heads of one answer, with interim ones."""
_AT_ONCE = 1024
"""Bytes that are unpacked before it is looked at what they were."""
_MAX_MESSAGE = 1024
_TARGET = "/grpc.health.v1.Health/Check"
_SERVING = 1
_SAID = {0: "UNKNOWN", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}
"""`HealthCheckResponse.ServingStatus` but SERVING."""
_CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE"),
    *("UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
"""gRPC's status codes, from 0 (grpc/grpc, `doc/statuscodes.md`)."""
_ELSEWHERE = "set `port` to that of gRPC"
_NO_HTTP2 = f"what answers there speaks no HTTP/2: {_ELSEWHERE}, or `type` to http"
_TYPED = 4
"""Bytes of a frame that say its length and type; a server's first is SETTINGS (RFC 9113 §3.4)."""


async def check_grpc(
    route: Route,
    service: str,
    *,
    timeout: float,  # noqa: ASYNC109 - it is for the whole, and said in the error
    port: int | None = None,
    tls: ssl.SSLContext | None = None,
) -> BackendAnswer:
    """Ask once whether a service is served.

    Args:
        route: to the backend; its path does not count.
        service: the service's name; empty: the whole server.
        timeout: seconds for all of it, from the name's resolution to the trailers.
        port: another than the route's.
        tls: what an https backend must show, offering HTTP/2 (ALPN `h2`); None: the connection is plain (h2c by prior knowledge).

    Returns:
        It is: a status of 200 without a body.

    Raises:
        AskingError: it is not, or nobody says.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    protocol = Checking(
        loop.create_future(), head_of(route, port or route.port, timeout), framed_name(service)
    )
    try:
        async with waiting(timeout):
            await route.connection(lambda: protocol, tls, port)
            status, code, message = await protocol.done
    except TimeoutError as error:
        raise LateError(f"no answer within {timeout:g} s") from error
    except (OSError, UnicodeError) as error:
        if no_room(error):
            raise NoRoomError from error
        raise AskingError(words_of(error)) from error
    finally:
        protocol.close()
    wrong = _wrong(status, code, message, service)
    if wrong:
        raise AskingError(wrong)
    return BackendAnswer(200, b"", loop.time() - began)


def _wrong(status: str, code: str | None, message: bytes, service: str) -> str:
    """What is wrong with an answer that is complete; empty: nothing.

    Args:
        status: HTTP's.
        code: gRPC's status; None: it said none.
        message: the body, with gRPC's frame.
        service: what was asked for.
    """
    if status != "200" or code is None:
        return f"status {_number(status)} without gRPC's: what answers there is no gRPC server; {_ELSEWHERE}"
    if code == "0":
        serving = serving_of(message)
        if serving is None:
            return "the answer is no HealthCheckResponse"
        said = "" if serving == _SERVING else _SAID.get(serving, "a status that is not known")
    else:
        shown = _number(code)
        known = shown != "?" and int(shown) < len(_CODES)
        said = _CODES[int(shown)] if known else f"gRPC status {shown}, which is not known"
    if said in ("NOT_FOUND", "SERVICE_UNKNOWN"):
        return f"it knows no service `{service}` ({said}): set `service` to one that it has, or leave it out"
    if said == "UNIMPLEMENTED":
        return "it speaks gRPC, but not its health protocol (UNIMPLEMENTED): let it serve grpc.health.v1"
    return f"it says {said}" if said else ""


def _number(text: str) -> str:
    """A status, if it is one: nothing else that a backend sends is repeated."""
    return text if text.isascii() and text.isdecimal() and len(text) <= 3 else "?"


def head_of(route: Route, port: int, timeout: float) -> list[tuple[str, str]]:
    """The head of a check's request."""
    return [
        (":method", "POST"),
        (":scheme", "http" if route.tls is None else "https"),
        (":path", _TARGET),
        (":authority", authority(route, port).decode()),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("grpc-timeout", f"{max(1, min(int(timeout * 1000), 99_999_999))}m"),
        ("user-agent", "gtm-balancer"),
    ]


def framed_name(service: str) -> bytes:
    """A `HealthCheckRequest`, `string service = 1`, in a frame that says: not compressed."""
    name = service.encode()
    message = b"\x0a" + _varint(len(name)) + name if name else b""
    return b"\x00" + len(message).to_bytes(4, "big") + message


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def serving_of(body: bytes) -> int | None:
    """`HealthCheckResponse.status` (an enum in field 1; absent: 0), of the one message in a body; None: it is none.

    Fields that are not known are passed over, and of one that is there twice the last counts, as in every protobuf reader.
    """
    if len(body) < 5 or body[0] or len(body) - 5 != int.from_bytes(body[1:5], "big"):
        return None
    found, at = 0, 5
    while at < len(body):
        key, at = _read_varint(body, at)
        field, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _read_varint(body, at)
            if field == 1:
                found = value
        elif wire == 2 and field != 1:
            length, at = _read_varint(body, at)
            at += length
        elif wire in (1, 5) and field != 1:
            at += 8 if wire == 1 else 4
        else:
            return None
        if not field:
            return None
    return found if at == len(body) else None


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    """A number of at most ten bytes, and where the next one begins; that is negative where there is none."""
    value = 0
    for shift in range(0, 70, 7):
        if not 0 <= at < len(body):
            break
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    return 0, -(1 << 70)


_HEADS = (h2.events.InformationalResponseReceived, h2.events.ResponseReceived, h2.events.TrailersReceived)


class Checking(BackendQuestion[tuple[str, str | None, bytes]]):
    """A connection for one call. `done` gets HTTP's status, gRPC's and the body, or an exception.

    Args:
        done: see above.
        head: the request's.
        body: the request's.
    """

    def __init__(
        self, done: asyncio.Future[tuple[str, str | None, bytes]], head: list[tuple[str, str]], body: bytes
    ) -> None:
        super().__init__(done)
        self._head, self._body = head, body
        self._h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding="latin-1")
        )
        # From the start on, not from the server's word that it has read it. What a server would push is not wanted.
        self._h2.local_settings = Settings(
            client=True,
            initial_values={SettingCodes.ENABLE_PUSH: 0, SettingCodes.MAX_HEADER_LIST_SIZE: MAX_FIELDS},
        )
        self._h2.decoder.max_header_list_size = MAX_FIELDS
        self._heads = 0
        self._first = b""
        self._left, self._reads = MAX_RECEIVED, 0
        self._status = ""
        self._code: str | None = None
        self._message = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open: say all there is to say."""
        self._transport = cast("asyncio.Transport", transport)
        secure = transport.get_extra_info("ssl_object")
        if secure is not None and secure.selected_alpn_protocol() != "h2":
            self._fail(f"it speaks no HTTP/2 by TLS (ALPN): {_ELSEWHERE}")
            return
        self._h2.initiate_connection()
        self._h2.send_headers(1, self._head)  # the one stream's number is 1
        self._h2.send_data(1, self._body, end_stream=True)
        self._transport.write(self._h2.data_to_send())

    def data_received(self, data: bytes) -> None:
        """Some of the answer."""
        if self.done.done():
            return
        self._left -= len(data)
        if self._left < 0:
            self._fail(f"the answer is longer than {MAX_RECEIVED} bytes")
            return
        self._reads += 1
        if self._reads > MAX_READS:
            self._fail("the answer comes in pieces of a few bytes")
            return
        if len(self._first) < _TYPED:
            # h2 would wait for the end of the frame whose length is in `HTT`.
            self._first += data[: _TYPED - len(self._first)]
            if len(self._first) == _TYPED and self._first[-1] != SettingsFrame.type:
                self._fail(_NO_HTTP2)
                return
        for at in range(0, len(data), _AT_ONCE):
            self._read(data[at : at + _AT_ONCE])
            if self.done.done():
                return
        if self._transport is not None:
            self._transport.write(self._h2.data_to_send())

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed before the answer was complete."""
        if not self.done.done():
            self.done.set_exception(exc if isinstance(exc, OSError) else ConnectionAbortedError())

    def _read(self, data: bytes) -> None:
        try:
            events = self._h2.receive_data(data)
        except h2.exceptions.DenialOfServiceError:
            self._fail(f"a head of the answer is longer than {MAX_FIELDS} bytes")
        except (h2.exceptions.H2Error, HPACKError, HyperframeError):
            self._fail(_NO_HTTP2)
        else:
            for event in events:
                self._take(event)

    def _take(self, event: h2.events.Event) -> None:
        if self.done.done():
            return
        if isinstance(event, _HEADS):
            self._heads += 1
            if self._heads > _MOST_HEADS:
                self._fail(f"the answer has more than {_MOST_HEADS} heads")
        if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
            self._take_fields(event.headers or ())
        elif isinstance(event, h2.events.DataReceived):
            self._message += event.data or b""
            if len(self._message) > _MAX_MESSAGE:
                self._fail("the answer is no HealthCheckResponse")
        elif isinstance(event, h2.events.StreamEnded):
            self.done.set_result((self._status, self._code, bytes(self._message)))
        elif isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated):
            self._fail("it broke the call off")

    def _take_fields(self, fields: Iterable[tuple[str | bytes, str | bytes]]) -> None:
        for name, value in fields:
            if name == ":status":
                self._status = str(value)
            elif name == "grpc-status":
                self._code = str(value)

    def _fail(self, words: str) -> None:
        if not self.done.done():
            self.done.set_exception(AskingError(words))
