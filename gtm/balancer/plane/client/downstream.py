"""One client's connection.

Requests are parsed as they come and answered one after the other. While one is being answered, what follows it is read (so that a
client that goes away is noticed) and kept, within bounds; then reading stops until it is its turn. Bytes are parsed in the order
in which they came: as long as something is kept, what comes is kept behind it.

A client that sends no more (FIN) is taken for gone, as most proxies do: nothing else tells that it no longer waits. Where reading has
stopped, its end stands behind what it has sent and is not heard: then it is sent something at times, which one that is gone resets.

An answer that is complete reaches a client that is still sending: a reset would take it away, so what comes is thrown away for a while,
as long as something comes (RFC 9112 §9.6; NGINX's `lingering_close` does so). One that broke off ends by a reset, where its end could pass for the answer's.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections import deque
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from math import inf
from typing import TYPE_CHECKING, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from gtm.balancer.plane.exchange import CONNECTING, ENDED, NEW, READING, WAITING, Exchange
from gtm.balancer.plane.flow import REQUEST, Outflow, hung_up
from gtm.balancer.plane.timeouts import end_if_late
from gtm.balancer.wire.heads import MAX_FRAMING, MAX_HEAD, MAX_HEADERS, HeadError, read_head
from gtm.balancer.wire.refusals import Refusal, refusal_response
from gtm.balancer.wire.responses import PIECE, TURN
from gtm.core.handoff.verdict import Verdict
from gtm.core.shares import client_prefix

if TYPE_CHECKING:
    from gtm.balancer.plane.proxy import Proxy

_RESET = struct.pack("ii", 1, 0)
"""No lingering: what is not sent is dropped, and the other side told so."""
PROBE = 1.0
"""Seconds after which a client that is not read from is asked whether it is there."""
LINGER, MOST_LINGER = 2.0, 30.0
"""Seconds in which a client that goes on sending what nobody reads sends some of it, and for which it may."""
_MAX_UNREAD = 64 * 1024
"""Bytes kept of what follows a request that is being answered, before reading stops."""
_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, repr=False)
class Downstream(asyncio.Protocol, Outflow):
    """A client's connection: whose it is, what was read of it, whose turn it is, and what is awaited.

    Args:
        proxy: what all connections share.
        secure: whether the client speaks TLS.
    """

    proxy: Proxy
    _: KW_ONLY
    secure: bool = False
    peer: str | None = None
    """The client's address, as the connection or a trusted proxy before it (PROXY protocol) says; None: it is unknown."""
    _told: bool = False
    """A trusted proxy has said who the client is."""
    heard: float = 0.0
    """When the client last sent something."""
    writable: bool = True
    deadline: float = inf
    """Monotonic seconds at which what is awaited from the client is late."""
    _parser: HttpRequestParser = field(init=False)
    _url: bytes = b""
    _headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    in_head: bool = False
    """A request's head has begun, and is not whole."""
    held: int = 0
    """Bytes that are kept of what it has sent, as they were last told."""
    _ahead: int = 0
    """Bytes of the last read that were not parsed when the present piece began."""
    _fed: int = 0
    """Bytes fed since the present request began, as long as its head is not complete."""
    _frame: int = 0
    """Bytes of a chunked body that are not of the body."""
    _bare: int = 0
    """Those since the last piece of it."""
    _parts: int = 0
    """Pieces of bodies in this turn."""
    _gathered: list[bytes] = field(default_factory=list)
    """Those of them that the exchange has not been told of."""
    _receiving: Exchange | None = None
    _current: Exchange | None = None
    _waiting: deque[Exchange] = field(default_factory=deque)
    _unread: bytearray = field(default_factory=bytearray)
    paused: bool = False
    """Nothing is read from it for now."""
    probe_at: float = inf
    """Monotonic seconds at which it is asked whether it is there, as long as nothing is read from it."""
    _full: bool = False
    """There is no room for what the present request sends."""
    _refusal: Refusal | None = None
    """What follows could not be read: said when its turn comes."""
    _lingers_until: float = 0.0
    """Monotonic seconds until which what it sends is thrown away, so that it can take its answer; 0: it is not."""
    _ended: bool = False
    """Nothing more is read from the client."""

    def __post_init__(self) -> None:
        self._parser = HttpRequestParser(self)

    @property
    def answering(self) -> bool:
        """Whether something of the present request's answer went to the client."""
        return self._current is not None and self._current.answering

    @property
    def current(self) -> Exchange | None:
        """The request whose turn it is."""
        return self._current

    @property
    def waiting(self) -> int:
        """Requests whose turn has not come."""
        return len(self._waiting)

    def come(self, exchange: Exchange) -> int:
        """How many bytes of a request's body have come, those too that are yet to be parsed: a head's length more at most."""
        received, length = exchange.received, exchange.head.length
        if exchange is not self._receiving and self._receiving is not None:
            return received
        return received + (self._ahead if length is None else min(self._ahead, length - received))

    @property
    def kept(self) -> int:
        """Bytes that came and wait here: what is not read, and of the head that is being read."""
        return len(self._unread) + sum(len(name) + len(value) for name, value in self._headers)

    # --- from the event loop ---

    def told(self, peer: str | None) -> None:
        """A trusted proxy says who the client is, None if it does not know: whoever is connected is not asked any more."""
        self.peer, self._told = peer, True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self.transport = cast("asyncio.Transport", transport)
        if not self._told:
            peer = transport.get_extra_info("peername")
            self.peer = peer[0] if isinstance(peer, tuple) else None
        self.heard = self.proxy.now()
        self.deadline = self.heard + self.proxy.limits.head_timeout
        self.proxy.entered(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the contract
        """It is gone: so is what was done for it."""
        self.proxy.left(self)
        self._gone()

    def eof_received(self) -> bool:
        """It sends no more. What is written still goes out, for a while."""
        self.deadline = self.proxy.now() + LINGER
        self._gone()
        return False

    def pause_writing(self) -> None:
        """The client does not take what it gets."""
        self.writable = False
        if self._current is not None:
            self._current.regulate()

    def resume_writing(self) -> None:
        """The client takes more bytes again."""
        self.writable = True
        if self._current is not None:
            self._current.regulate()
        elif self._unread:
            self.proxy.loop.call_soon(self._read_on)

    def data_received(self, data: bytes) -> None:
        """The client has sent these bytes."""
        if self._ended or self._refusal is not None:
            if self._lingers_until:
                self.deadline = min(self._lingers_until, self.proxy.now() + LINGER)
            return
        self.heard = self.proxy.now()
        current = self._current
        if current is not None and current.tunnelled:
            current.carry_up(data)
        elif self._unread or not self._reads_on:
            self._keep(data)
        else:
            self._feed(data)
        # Not of most requests, which are whole and sent.
        if self._receiving is not None or self.in_head or self.held or self._unread or self._waiting:
            self.settle()

    # --- what is kept of what came ---

    def settle(self) -> None:
        """Tell how much is kept of what came."""
        held = 0
        if not self._ended:
            if self.in_head and self._current is None:
                self.proxy.room.begins(self)
            held = len(self._unread) + REQUEST * len(self._waiting) + (self._fed if self.in_head else 0)
            if self._current is not None:
                held += self._current.held
        if held != self.held:
            self.held = held
            self.proxy.hold(self, held)

    def whose(self) -> Hashable:
        """The client that what it holds counts for: on a connection of a trusted proxy, an edge or a balancer whose request is being answered."""
        verdict = None if self._current is None else self._current.verdict
        if isinstance(verdict, Verdict) and verdict.believed is not None and verdict.believed.carried:
            return verdict.believed.pushed
        found = self.proxy.whose(self, self.peer)
        if found is self and self._current is not None:
            address = self.proxy.gate.client(self._current)
            return client_prefix(address) if address else b""
        return found

    @property
    def _reads_on(self) -> bool:
        """Whether what comes next may be parsed: it is of the request that is being answered, or nothing is, and the client takes its answers."""
        return self.writable if self._current is None else self._receiving is self._current

    @property
    def _is_deaf(self) -> bool:
        """Whether nobody hears what comes next: the connection ends before."""
        last = self._waiting[-1] if self._waiting else self._current
        if last is None or last is self._receiving:
            return False
        return not last.head.keep_alive and not last.head.upgrade

    def _keep(self, data: bytes) -> None:
        if self._is_deaf:
            self._unread[:] = data[:1]  # reading goes on, for its end; that something came, `end` must know
        else:
            self._unread += data
        self.regulate()

    def regulate(self, *, full: bool | None = None) -> None:
        """Read from the client, or not: not while there is no room for what it sends.

        Args:
            full: there is no room for more of the present request's body; None: as before.
        """
        if full is not None:
            self._full = full
        pause = (self._full or len(self._unread) > _MAX_UNREAD) and not self._ended
        if pause != self.paused and not self.transport.is_closing():
            self.paused = pause
            if pause:
                self.transport.pause_reading()
                self.probe_at = self.proxy.now() + PROBE
            else:
                self.transport.resume_reading()
                self.heard = self.proxy.now()

    def give_way(self, refusal: Refusal) -> None:
        """Keep nothing of what came: others need the room."""
        current = self._current
        if current is not None and current.phase in (READING, WAITING, CONNECTING):
            current.refuse(refusal)
        else:
            if current is not None:
                current.forget()
            self._unread.clear()
            for exchange in self._waiting:
                exchange.cancel()
            self._waiting.clear()
            if self._receiving is not current:
                self._receiving = None
            self.settle()
            if self.held or self._receiving is None:
                self.refuse(refusal)
        self.settle()

    # --- parsing ---

    def _feed(self, data: bytes) -> None:
        start, self._parts = 0, 0
        while True:
            whole = not start and len(data) <= PIECE
            piece = data if whole else data[start : start + self._piece()]
            self._ahead = len(data) - start
            rest = self._feed_piece(piece)
            start += len(piece) - rest
            if start >= len(data) or self._ended or self._refusal is not None:
                return
            if not self._reads_on:
                self._keep(data[start:])
                return
            if (self._receiving is None and not self.in_head) or self._parts > TURN:
                # A client that sends many requests at once, or a body in bytes, must not keep the event loop.
                self._keep(data[start:])
                self.proxy.loop.call_soon(self._read_on)
                return

    def _piece(self) -> int:
        """Bytes to feed at once: what is left of a body, or so many that few requests can be among them."""
        receiving = self._receiving
        if receiving is None or receiving.head.length is None:
            return PIECE
        return max(PIECE, receiving.head.length - receiving.received)

    def _feed_piece(self, piece: bytes) -> int:
        """Parse some bytes; how many at their end were not."""
        self._frame += len(piece)
        self._bare += len(piece)
        try:
            self._parser.feed_data(piece)
        except HttpParserUpgrade as upgrade:
            self._parser = HttpRequestParser(self)
            return len(piece) - int(upgrade.args[0])
        except HttpParserError as error:
            self._unreadable(error)
            return 0
        if self._gathered:
            self._tell_body()
        if self.in_head:
            self._fed += len(piece)
            if self._fed > MAX_HEAD + PIECE:
                self.refuse(Refusal(*_long(self._url)))
            return 0
        exchange = self._receiving
        if exchange is None or not exchange.head.chunked:
            return 0
        # Sizes, extensions and trailers: eight bytes for each of the body's, and a head's worth.
        if self._frame > MAX_HEAD + 8 * exchange.received:
            self.refuse(Refusal(400, "chunks", "the body's chunks are more framing than body"))
        elif self._bare > MAX_FRAMING:
            detail = f"more than {MAX_FRAMING} bytes stand between two pieces of the body, or behind it"
            self.refuse(Refusal(431, "trailers_too_large", detail))
        return 0

    def _tell_body(self) -> None:
        """Give the exchange what was parsed of its body as one piece: a backend, too, takes as long for a chunk of one byte as for one of thousands."""
        gathered, self._gathered = self._gathered, []
        receiving = self._receiving
        if receiving is None or self._ended:
            return
        try:
            receiving.body(gathered[0] if len(gathered) == 1 else b"".join(gathered))
        except Exception as error:  # noqa: BLE001 - it is logged; the request is refused
            self._internal(error)

    def _unreadable(self, error: HttpParserError) -> None:
        cause = error.__context__
        if isinstance(cause, HeadError):
            self.refuse(Refusal(cause.status, cause.code, cause.detail))
        elif cause is not None:
            self._internal(cause)
        else:
            self.refuse(Refusal(400, "malformed", f"the request cannot be read: {error}"))

    def _internal(self, error: BaseException) -> None:
        _log.error("a request could not be handled", exc_info=error)
        self.refuse(Refusal(500, "internal", "an error of gtm's own"))

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._url = b""
        self._headers = []
        self.in_head = True
        self._fed = self._frame = self._bare = 0
        if self._current is None:
            self.deadline = self.proxy.now() + self.proxy.limits.head_timeout

    def on_url(self, url: bytes) -> None:
        """A part of the request's target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer: none may become a header behind the fence's back (RFC 9110 §6.5.1)."""
        if self.in_head:
            self._headers.append((name, value))
        elif self._receiving is not None:
            self._receiving.trailer(name, value)

    def on_headers_complete(self) -> None:
        """The head is there."""
        self.in_head = False
        if self._ended:
            return
        parser, headers = self._parser, self._headers
        if len(headers) > MAX_HEADERS or (
            self._fed > MAX_HEAD - PIECE  # else it cannot be
            and sum(len(name) + len(value) for name, value in headers) + len(self._url) > MAX_HEAD
        ):
            raise HeadError(*_long(self._url))
        head = read_head(
            parser.get_method(),
            self._url,
            parser.get_http_version(),
            headers,
            keep_alive=parser.should_keep_alive(),
            upgrades=parser.should_upgrade(),
        )
        self._frame = self._bare = 0
        exchange = self._receiving = Exchange(self.proxy, self, head)
        if self._current is None:
            self._current = exchange
            self.deadline = inf
            self.proxy.room.arrived(self)
            exchange.begin()
        else:
            self._waiting.append(exchange)

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._bare = 0
        self._parts += 1
        self._gathered.append(body)

    def on_message_complete(self) -> None:
        """The end of a request."""
        exchange, gathered = self._receiving, self._gathered
        if gathered and exchange is not None and not self._ended:
            self._gathered = []
            exchange.body(gathered[0] if len(gathered) == 1 else b"".join(gathered))
        self._receiving = None
        if exchange is not None and not self._ended:
            exchange.body_ended()

    # --- from the exchange ---

    def write(self, data: bytes) -> None:
        """Send something to the client."""
        self.transport.write(data)

    def tunnel(self) -> bytes:
        """The present request's connection leaves HTTP: what came behind it already."""
        early, self._unread = bytes(self._unread), bytearray()
        self.regulate()  # it may have been more than is kept
        if self.held:
            self.settle()
        return early

    def finished(self, exchange: Exchange, *, keep_alive: bool) -> None:
        """The answer is complete: go on with the next request, or end."""
        if self._current is not exchange:
            return
        self._current = None
        self._full = False
        if not keep_alive or self._ended or not exchange.complete:  # what follows is still of the request
            self.end()
            return
        if self._waiting:
            self._current = self._waiting.popleft()
            # Not at once: a client that sends many would keep the event loop.
            self.proxy.loop.call_soon(self._begin, self._current)
        elif self._refusal is not None:
            self._ended = True
            self.transport.write(refusal_response(self._refusal, closes=True))
            self._linger()
            return
        elif self.proxy.draining and not self.in_head and not self._unread:
            self.end()
            return
        else:
            limits = self.proxy.limits
            self.deadline = self.proxy.now() + (limits.head_timeout if self.in_head else limits.keep_alive)
            self.proxy.room.rests(self, arriving=self.in_head or bool(self._unread))
        if self._unread:
            self.proxy.loop.call_soon(self._read_on)
        if self.paused:
            self.regulate()

    def _begin(self, exchange: Exchange) -> None:
        if self._current is exchange and not self._ended:
            exchange.begin()

    def _read_on(self) -> None:
        if self._unread and self._reads_on and not self._ended and self._refusal is None:
            unread, self._unread = bytes(self._unread), bytearray()
            self._feed(unread)
            self.regulate()
            self.settle()

    # --- what is late ---

    def look(self, now: float) -> None:
        """Look whether something is late."""
        if self._ended:
            # Only what is written is awaited, as long as the client takes it.
            if self.stuck(now) > self.proxy.limits.stall_timeout or (not self.left and now >= self.deadline):
                self.transport.abort()
        elif now >= self.deadline:
            self.deadline = inf
            self.time_is_up()
        elif self.paused and self._is_gone():
            self._gone()
            self.transport.abort()
        elif self._current is not None:
            if self.paused and now >= self.probe_at:
                self.probe_at = now + PROBE
                self._current.probe()
            self._look_at(self._current, now)

    @staticmethod
    def _look_at(current: Exchange, now: float) -> None:
        if current.sending:
            current.renew()
        if current.phase is not ENDED and current.phase is not NEW:
            end_if_late(current, now)

    def time_is_up(self) -> None:
        """What was awaited from the client did not come."""
        if self.in_head:
            self.refuse(Refusal(408, "request_timeout", "the request's head did not arrive in time"))
        else:
            self.end()

    # --- the end ---

    def _gone(self) -> None:
        self._ended = True
        self._unread.clear()
        current, self._current = self._current, None
        if current is not None:
            current.cancel()
        for exchange in self._waiting:
            exchange.cancel()
        self._waiting.clear()

    def _is_gone(self) -> bool:
        """Of a tunnel, what it sent before still counts."""
        tunnelled = self._current is not None and self._current.tunnelled
        return not tunnelled and hung_up(self.transport)

    def refuse(self, refusal: Refusal) -> None:
        """Answer what cannot be read, behind what was asked before, and end."""
        if self._ended or self._refusal is not None:
            return
        if self._is_deaf:
            self._refusal = refusal
            return
        current, receiving = self._current, self._receiving
        self.proxy.stats.refused(refusal)
        if receiving is not None and receiving.phase is not NEW:
            receiving.refusal = refusal  # its own end is told
        else:
            self.proxy.unread(self, refusal, self._url if receiving is None else receiving.head.target)
        if receiving is not None and receiving is not current:
            self._receiving = None  # one that waits, of whose body no more can be read
            self._waiting.remove(receiving)
            receiving.cancel()
        if current is not None and current is not receiving:
            self._refusal = refusal  # when its turn comes
            return
        self._ended = True
        if current is not None:
            self._current = None
            broken = current.answering
            current.cancel()
            if broken:  # the middle of an answer is no place for another
                self.abort()
                return
        self.transport.write(refusal_response(refusal, closes=True))
        self._linger()

    def end(self) -> None:
        """End the connection once everything is sent."""
        receiving = self._receiving
        more = self.in_head or (receiving is not None and not receiving.complete)
        if more or self._unread or self._waiting or self.paused or self._refusal is not None:
            self._linger()
            return
        self._ended = True
        self.deadline = self.proxy.now() + LINGER
        self.transport.close()

    def _linger(self) -> None:
        """Let the client send on what nobody reads, for a while: a reset would take the answer from it (RFC 9112 §9.6)."""
        self._ended = True
        self._unread.clear()
        if self.held:
            self.settle()
        now = self.proxy.now()
        self.deadline, self._lingers_until = now + LINGER, now + MOST_LINGER
        self.proxy.room.rests(self, arriving=True)  # nothing is answered any more: others may have its place
        self.regulate(full=False)
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()

    def abort(self) -> None:
        """End it at once, by a reset: the client shall not take what it got for all."""
        self._ended = True
        with suppress(OSError):
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def evict(self) -> None:
        """Make room for another connection."""
        if self.answering:
            self.abort()
            return
        self._ended = True
        self.transport.abort()

    def drain(self) -> None:
        """No further request is taken: end now if nothing is asked, else after the answer.

        Whoever has just connected asked before it could know: its first request is on the way, and is waited for.
        """
        if self._current is None and not self.in_head and not self._unread and not self._ended:
            limits = self.proxy.limits
            if self.deadline == self.heard + limits.head_timeout:  # set when it came: it has sent nothing yet
                self.deadline = min(self.deadline, self.heard + limits.first_request)
            else:
                self.end()


def _long(url: bytes) -> tuple[int, str, str]:
    if len(url) > MAX_HEAD // 2:
        return 414, "uri_too_long", f"the target is longer than {MAX_HEAD // 2} bytes"
    return 431, "head_too_large", f"the head is longer than {MAX_HEAD} bytes or {MAX_HEADERS} lines"
