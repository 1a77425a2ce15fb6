"""gRPC's standard health check of a backend: `grpc.health.v1.Health/Check`, over HTTP/2 on a connection of its own.

The protocol is two messages of one field each (grpc/grpc-proto, `grpc/health/v1/health.proto`) in gRPC's frame of five bytes over HTTP/2
(grpc/grpc, `doc/PROTOCOL-HTTP2.md`): a library for it would be larger than the balancer. HTTP/2 itself is h2's.

Laws:
  1. As `asking`: a connection each, one time-out for the whole, bounded bytes, those that HPACK makes of a few too, and nothing that comes is
     repeated but statuses.
  2. Only SERVING passes. Whatever else comes, or does not, is an `AskingError` that says what it was.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import cast

import h2.config
import h2.connection
import h2.events
import h2.exceptions
from h2.settings import SettingCodes, Settings
from hpack import HPACKError
from hyperframe.exceptions import HyperframeError
from hyperframe.frame import SettingsFrame

from gtm.balancer.health.asking import Answer, AskingError, NoRoomError, authority, words_of
from gtm.balancer.health.question import Question
from gtm.balancer.plane.backend.backends import Route
from gtm.transport import no_room

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
) -> Answer:
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
        async with asyncio.timeout(timeout):
            await route.connection(lambda: protocol, tls, port)
            status, code, message = await protocol.done
    except TimeoutError as error:
        raise AskingError(f"no answer within {timeout:g} s") from error
    except (OSError, UnicodeError) as error:
        if no_room(error):
            raise NoRoomError from error
        raise AskingError(words_of(error)) from error
    finally:
        protocol.close()
    wrong = _wrong(status, code, message, service)
    if wrong:
        raise AskingError(wrong)
    return Answer(200, b"", loop.time() - began)


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


class Checking(Question[tuple[str, str | None, bytes]]):
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
