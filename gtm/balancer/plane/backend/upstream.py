"""One connection to a backend.

It carries one exchange at a time. What the backend says is parsed strictly, and told to the exchange as it comes; what comes beyond
the end of a response, or between two, is nobody's: the connection ends. All that one read brings goes to the client in one write, if it is not
many small pieces: those are read in turns with all else that waits, and nothing more is taken of the connection meanwhile.

A backend that sends no more (FIN) has ended the connection for us, at once: what was not sent to it yet is not waited for. One that has answered
before it had all of a body, and has closed, resets what is still written to it: what it said is read before that counts (RFC 9112 §9.5).
"""

from __future__ import annotations

import asyncio
import logging
import re
import select
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from gtm.balancer.plane.flow import Outflow, left_in, waits
from gtm.balancer.wire.heads import MAX_FRAMING, MAX_HEAD, MAX_HEADERS
from gtm.balancer.wire.responses import (
    CHUNKED,
    PIECE,
    TURN,
    Chunks,
    ResponseError,
    ResponseHead,
    read_response_head,
)
from gtm.core.balance.health.values import Failure

if TYPE_CHECKING:
    from gtm.balancer.plane.backend.backends import Route, Work
    from gtm.balancer.plane.exchange import Exchange

_log = logging.getLogger(__name__)
_MAX_INTERIM = 16
"""Interim responses (1xx) before the one that counts."""
_LINGER = 2.0
"""Seconds that a tunnel's end waits for what is still to be sent."""
KEEPS_ALIVE = 160
"""Bytes of what may say no more than that a connection is alive, with its framing: events are longer as a rule."""
_COMMENT = rb":[^\r\n]*+(?:\r\n|\r|\n)++"
_PING = rb"event: ?ping(?:\r\n|\r|\n)(?:data:[^\r\n]*+(?:\r\n|\r|\n))?+(?:\r\n|\r|\n)++"
keeps_alive = re.compile(
    rb"(?:(?:[0-9A-Fa-f]{1,2}\r\n)?+(?:%b|%b)++(?:\r\n)?+)++" % (_COMMENT, _PING)
).fullmatch
"""Whether what came of a stream of events is comments and pings (WHATWG HTML §9.2.6, `: ping`; Anthropic's `event: ping`), in chunks or not: a front sends
those, whether the engine behind it lives or not."""
_UNREADABLE = "the backend's response cannot be read"


@dataclass(slots=True, eq=False, repr=False)
class Upstream(asyncio.Protocol, Outflow):
    """A connection to a backend: whose it is, what was read of the present response, and where the reading stands.

    Args:
        route: whose connection it is.
        clock: monotonic seconds.
    """

    route: Route
    clock: Callable[[], float]
    exchange: Exchange | None = None
    usable: bool = False
    """Open, and nothing wrong was heard on it."""
    counted: bool = False
    """Its route counts it as open."""
    writable: bool = True
    idle_since: float = 0.0
    heard: float = 0.0
    """When the backend last said something to the present exchange that is more than that it is alive, or had all of its request."""
    bare: bool = False
    """The head of the present response came alone."""
    told_silent: bool = False
    """It was told that nothing came for the present exchange for long."""
    teller: Route | Work = field(init=False)
    """Whose `heard` says when something of the present answer came last: the route's work, if a model makes it."""
    served: int = 0
    """Exchanges before the present one."""
    _parser: HttpResponseParser = field(init=False)
    _headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    _reason: bytes = b""
    _response: ResponseHead | None = None
    _done: bool = False
    _eof: bool = False
    _tunnel: bool = False
    _interim: int = 0
    _bare: int = 0
    _fed: int = 0
    """Bytes of the present response that the parser was fed, framing and all."""
    _parts: int = 0
    """Pieces of bodies in this turn that the parser has told of."""
    _later: bytes = b""
    """What came of the present response and is read in later turns."""
    _chunks: Chunks | None = None
    """Where the present response's chunks are told apart without the parser, which stands before the next."""

    def __post_init__(self) -> None:
        self.teller = self.route
        self._parser = HttpResponseParser(self)

    @property
    def behind(self) -> bool:
        """Whether some of what came has not been read: no more is taken of the connection before."""
        return bool(self._later)

    @property
    def silent(self) -> bool:
        """Whether nothing waits to be read: of an idle connection, what does is its end, or is nobody's.

        It asks the kernel: the event loop may not have come to it yet.
        """
        return not waits(self.transport, select.POLLIN)

    # --- from the exchange ---

    def start(self, exchange: Exchange, data: bytes) -> None:
        """Send a request's head, and what there is of its body."""
        self.exchange = exchange
        self._done = False
        self._response = None
        self._interim = self._fed = self._bare = 0
        self._chunks = None
        self.told_silent = self.bare = False
        self.teller = self.route
        self.heard = self.clock()
        self.transport.write(data)

    def abort(self) -> None:
        """End the connection at once: the backend sees it, and stops working for nobody."""
        self.usable = False
        self.exchange = None
        if self.transport is not None:
            self.transport.abort()

    def finish(self, loop: asyncio.AbstractEventLoop) -> None:
        """End a tunnel: what is written already is sent first."""
        self.usable = False
        self.exchange = None
        self.transport.close()
        loop.call_later(_LINGER, self.transport.abort)

    def tunnel(self) -> None:
        """From now on bytes are carried as they are."""
        self._tunnel = True

    # --- from the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The backend took the connection."""
        self.transport = cast("asyncio.Transport", transport)
        self.usable = True

    def eof_received(self) -> bool:
        """The backend sends no more."""
        self._eof = True
        self.usable = False
        if self._later and self.exchange is not None:
            return True  # what came is read first: see `_read_on`
        tunnelled = self._tunnel and self.exchange is not None
        self._lost(None)
        if not tunnelled:
            self.transport.abort()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection to the backend has ended."""
        if self.counted:
            self.counted = False
            self.route.open -= 1
        self.usable = False
        if exc is not None and self.route.tls is None:  # beneath TLS it has been done
            self._hear_out()
        if not self._later:
            self._lost(exc)

    def _hear_out(self) -> None:
        """Take what the backend said before the connection broke: where it is a write that has failed, nobody has read that yet."""
        for data in left_in(self.transport):
            if self.exchange is None:
                return
            self.data_received(data)

    def _lost(self, exc: Exception | None) -> None:
        exchange, self.exchange = self.exchange, None
        if exchange is None:
            return
        response = self._response
        if (
            response is not None
            and not self._tunnel
            and response.length is None
            and not response.chunked
            and self._eof
        ):
            exchange.response_ended(reusable=False)  # its end is the connection's (RFC 9112 §6.3, rule 8)
        else:
            exchange.backend_lost(str(exc) if exc else "the backend closed the connection")

    def pause_writing(self) -> None:
        """The backend takes no more for now."""
        self.writable = False
        if self.exchange is not None:
            self.exchange.regulate()

    def resume_writing(self) -> None:
        """The backend takes more bytes again."""
        self.writable = True
        if self.exchange is not None:
            self.exchange.regulate()

    def data_received(self, data: bytes) -> None:
        """The backend has sent these bytes."""
        exchange = self.exchange
        if exchange is None:  # nobody asked
            self.abort()
            return
        if len(data) > KEEPS_ALIVE or not exchange.answer.events or keeps_alive(data) is None:
            self.heard = self.teller.heard = self.clock()
        if exchange.finds is not None:
            exchange.finds.piece(data)
        if self._later:
            self._later += data
            return
        chunks = self._chunks
        if chunks is not None:
            size = chunks.whole(data)
            if size < 0:
                self._split(exchange, chunks, data)
                return
            # As it came: it is what would be written.
            answer = exchange.answer
            if not answer.size:
                exchange.first_byte, answer.first = self.heard, data
            answer.size += size
            answer.pieces += 1
            answer.tail = data[-6:-2]
            if exchange.meter is not None:
                exchange.meter.chunks(data, size)
            exchange.client.transport.write(data)
        elif self._tunnel:
            if exchange.meter is not None:
                exchange.meter.message(data)
            exchange.carry(data)
        elif exchange.unsaid is not None:
            if exchange.begins(data):
                self._begin_late(exchange, data)
        elif self._fed or not self._apart(exchange, data):
            self._parse(exchange, data)

    def _apart(self, exchange: Exchange, data: bytes) -> bool:
        """Have the parser read a whole head that may say that chunks follow, and no more. False: all that came is the parser's to read.

        Then it stands before the first chunk: with no line end but CRLF in it, the head ends for every reader at its first empty line.
        """
        if exchange.head.method == b"HEAD" or exchange.head.version != "1.1":
            return False
        end = data.find(b"\r\n\r\n", 0, MAX_HEAD) + 4
        if (
            end < 4
            or data.find(b"hunked", 0, end) < 0
            or data.count(b"\n", 0, end) != data.count(b"\r\n", 0, end)
        ):
            return False
        rest = data[end:]
        self.bare = not rest
        if self._feed(exchange, data[:end]) is None:
            return True
        if self._done:
            self.usable = self.usable and not rest
            self._ended(exchange)
        elif self._response is not None and exchange.answer.framing is CHUNKED:
            self._begin_chunks(exchange, rest)
        elif rest:
            self._parse(exchange, rest)
        else:
            exchange.flush()
        return True

    def _begin_chunks(self, exchange: Exchange, data: bytes) -> None:
        self._chunks = Chunks()
        if data:
            self._split(exchange, self._chunks, data)
        else:
            exchange.flush()

    def _begin_late(self, exchange: Exchange, data: bytes) -> None:
        """The first that follows a head that was kept back."""
        if len(data) > KEEPS_ALIVE or keeps_alive(data) is None:
            self.teller.heard = self.heard
        chunks = self._chunks = Chunks()
        size = chunks.whole(data)
        if size < 0:
            self._split(exchange, chunks, data)
            return
        answer = exchange.answer
        exchange.first_byte, answer.first, answer.size, answer.pieces = self.heard, data, size, 1
        answer.tail = data[-6:-2]
        if exchange.meter is not None:
            exchange.meter.chunks(data, size)
        exchange.client.transport.write(answer.take() + data)

    def _split(self, exchange: Exchange, chunks: Chunks, data: bytes) -> None:
        """Take chunks that are not whole, not plain, or the last."""
        pieces, rest = chunks.split(data)
        if pieces and not exchange.answer.size:
            exchange.first_byte = self.heard
        if pieces:
            exchange.answer.pieces += len(pieces) - 1
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            if not exchange.answer.size:
                exchange.answer.first = body
            if exchange.meter is not None:
                exchange.meter.piece(body)
            exchange.answer.body(body)
        if chunks.broken:
            self._malformed(exchange, f"{_UNREADABLE}: a chunk does not end where its size says")
        elif not rest:
            exchange.flush()
            if chunks.later:
                self._put_off(exchange, chunks.later)
        else:
            self._chunks = None
            self._parse(exchange, rest)

    def _put_off(self, exchange: Exchange, data: bytes) -> None:
        """Read the rest of what came when others have had their turn."""
        self._later = data
        exchange.regulate()
        exchange.proxy.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        data, self._later = self._later, b""
        exchange = self.exchange
        if exchange is None or not data:  # it has ended since
            return
        if self._chunks is not None:
            self._split(exchange, self._chunks, data)
        else:
            self._parse(exchange, data)
        if self.exchange is not exchange or self._later:
            return
        if self._eof or self.transport.is_closing():
            self._lost(None)
            self.transport.abort()
        else:
            exchange.regulate()

    def _ended(self, exchange: Exchange) -> None:
        """The response is complete."""
        self.exchange = None
        self.served += 1
        exchange.response_ended(reusable=self.usable)

    def _parse(self, exchange: Exchange, data: bytes) -> None:
        """Have the parser read what came: where many small pieces may be in it, so much that others can wait for it."""
        if len(data) > PIECE and ((response := self._response) is None or response.chunked):
            self._parse_in_turns(exchange, data)
            return
        rest = self._feed(exchange, data)
        if rest is None:
            return
        if exchange.tunnelled:
            exchange.flush()
            if rest:
                exchange.carry(rest)
        elif self._done:
            self._ended(exchange)
        else:
            exchange.flush()

    def _parse_in_turns(self, exchange: Exchange, data: bytes) -> None:
        at = self._parts = 0
        end = len(data)
        while True:
            response = self._response
            small = end > PIECE and (response is None or response.chunked)
            piece = data[at : at + PIECE] if small else data[at:]
            rest = self._feed(exchange, piece)
            if rest is None:
                return
            at += len(piece)
            if exchange.tunnelled:
                exchange.flush()
                if rest := rest + data[at:]:
                    exchange.carry(rest)
                return
            if self._done:
                self.usable = self.usable and at >= end
                self._ended(exchange)
                return
            if at >= end:
                exchange.flush()
                return
            if self._parts > TURN:
                exchange.flush()
                self._put_off(exchange, data[at:])
                return

    def _feed(self, exchange: Exchange, data: bytes) -> bytes | None:
        """Parse what came; what of it is behind an upgrade, None if the exchange has failed."""
        rest = b""
        self._fed += len(data)
        self._bare += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
        except HttpParserError as error:
            self.usable = False
            if not self._done:
                self._malformed(exchange, f"{_UNREADABLE}: {_reason(error)}")
                return None
        response = self._response
        if response is None:
            if self._fed > MAX_HEAD:
                self._malformed(exchange, f"the backend's response has a head of more than {MAX_HEAD} bytes")
                return None
        elif response.chunked and not self._done and self._fed > 2 * MAX_HEAD + 8 * exchange.answer.size:
            self._malformed(exchange, "the backend's chunks are more framing than body")
            return None
        elif response.chunked and not self._done and self._bare > MAX_FRAMING:
            detail = (
                f"more than {MAX_FRAMING} bytes stand between two pieces of the backend's body, or behind it"
            )
            self._malformed(exchange, detail)
            return None
        return rest

    def _malformed(self, exchange: Exchange, detail: str) -> None:
        self.abort()
        exchange.backend_lost(detail, Failure.MALFORMED)

    # --- from the parser ---

    def on_message_begin(self) -> None:
        """The first byte of a response."""
        if self._done:  # beyond the one that was asked for
            self.usable = False
        self._headers = []
        self._reason = b""

    def on_status(self, reason: bytes) -> None:
        """Its reason phrase, maybe in parts."""
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        if self._done:
            return
        if self._response is not None and self.exchange is not None:
            self.exchange.answer.trailer(name, value)
        else:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is there."""
        exchange = self.exchange
        if self._done or exchange is None or self._response is not None:
            return
        self._bare = 0
        headers, parser = self._headers, self._parser
        if len(headers) > MAX_HEADERS or (
            self._fed > MAX_HEAD and sum(len(name) + len(value) for name, value in headers) > MAX_HEAD
        ):
            raise ResponseError(f"its head is longer than {MAX_HEAD} bytes or {MAX_HEADERS} lines")
        status = parser.get_status_code()
        response = read_response_head(status, self._reason, headers, parser.get_http_version())
        if status < 200 and status != 101:
            self._interim += 1
            if self._interim > _MAX_INTERIM:
                raise ResponseError(f"more than {_MAX_INTERIM} interim responses")
            exchange.interim(response)
            return
        exchange.response_began(response)
        self._response = response
        if not parser.should_keep_alive():
            self.usable = False
        if exchange.head.method == b"HEAD":
            # The parser would wait for the body that the length speaks of (RFC 9112 §6.3, rule 1).
            self._done = True
            self._parser = HttpResponseParser(self)

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._bare = 0
        self._parts += 1
        if self._done:  # of an answer to HEAD: there is none, and more of it may come
            self.usable = False
        elif self.exchange is not None:
            if not self.exchange.answer.size:
                self.exchange.first_byte, self.exchange.answer.first = self.heard, body
            if self.exchange.meter is not None:
                self.exchange.meter.piece(body)
            self.exchange.answer.body(body)

    def on_message_complete(self) -> None:
        """The end of a response."""
        if self._response is not None:
            self._done = True


def _reason(error: HttpParserError) -> str:
    cause = error.__context__
    if cause is None or isinstance(cause, ResponseError):
        return str(cause or error)
    _log.error("a response could not be handled", exc_info=cause)
    return "an error of gtm's own"
