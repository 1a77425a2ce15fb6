"""Uvicorn's HTTP/1.1, with bounds on the size and time of requests."""

from __future__ import annotations

import asyncio
import json
import re
import resource
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast
from weakref import WeakKeyDictionary

import uvicorn
import uvloop
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from gtm.core.shares import client_prefix
from gtm.geoip.client import is_in, peer_address
from gtm.runtime.process.connections import Connections, fitting
from gtm.settings import Network

if TYPE_CHECKING:
    from gtm.http.problems import Response


MAX_HEAD = 32 * 1024
"""Bytes of a request's head: its first line and its header lines."""
MAX_HEADERS = 100
"""Header lines of a request."""

_PIECE = 16 * 1024
"""Bytes fed to the parser at once. It keeps what it cannot tell yet: a line that has not ended."""
_TOO_MANY = (431, f"the request has more than the {MAX_HEADERS} header lines accepted")
_ABSOLUTE = re.compile(rb"https?://([^/?#@]+)([/?].*)?", re.IGNORECASE)
"""A target that names everything (RFC 9112 §3.2.2), without a user's name (RFC 9110 §4.2.4)."""
FRAMING = frozenset((b"content-length", b"transfer-encoding"))
"""The headers that say that a request has a body (RFC 9112 §6)."""


_CONNECTIONS: WeakKeyDictionary[ServerState, Connections] = WeakKeyDictionary()
_BETWEEN, _HEAD, _BODY = range(3)
"""What of a request arrives now."""


class PatientProtocol(HttpToolsProtocol):
    """Uvicorn's HTTP/1.1 with bounds on what a client can make a process keep, and for how long.

    Uvicorn keeps a head of any size, and waits for it for ever. Here (RFC 9112 §3 and §9.5, RFC 6585 §5):

      - a head has at most `MAX_HEAD` bytes and `MAX_HEADERS` lines, else 431, or 414 where its target alone is longer;
      - what frames a body (sizes and extensions of chunks, trailers) has at most `MAX_HEAD` bytes and eight for each of
        the body's, else 400; trailers do not become headers (RFC 9110 §6.5.1);
      - a head arrives within `head_timeout` and a body within `body_timeout`, else 408. What still comes of a body that
        was answered already is thrown away;
      - no body is read before the application asks for it: where the head is answered and the connection closed, nothing
        of it is taken but what came along with the head.

    After each of the first three the connection is closed, and so is the one idle longest where there are as many as may be
    (`gtm.runtime.process.connections`). Connections that wait between requests are left to uvicorn's own
    keep-alive timeout. Upgrades are ignored (RFC 9110 §7.8): nothing here speaks another protocol.
    """

    head_timeout = 10.0
    """Seconds from the connection, or the first byte of a further request, to the end of the head."""
    body_timeout = 60.0
    """Seconds from the head to the end of the body."""
    trusted: Sequence[Network] = ()
    """The operator's own proxies: a connection of theirs is many clients', and counts for itself alone."""
    max_connections: int | None = None
    """Connections of one server at most; None: as many as the process's descriptors allow."""
    linger = 2.0
    """Seconds for which a client may go on sending what nobody reads, so that it gets to read the answer."""

    _deadline: asyncio.TimerHandle | None = None
    _timed: tuple[int, int] | None = None
    """What the deadline is for: the part, and the number of the request."""
    _part = _BETWEEN
    _requests = 0
    _told: tuple[int, ...] = ()
    """How much the parser had told after the last piece that did not end a request: what it is fed since, it keeps."""
    _kept = 0
    """Bytes of the pieces since then."""
    _head = 0
    """Bytes of the present head's pieces but the first and the last."""
    _frame = 0
    """Bytes of the present body's pieces that are not of the body."""
    _body = 0
    """Bytes of the present body."""
    _refusal: tuple[int, str] | None = None
    _ended = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """A client is there."""
        super().connection_made(transport)
        self._connections = self.all_connections
        self._counted_for = self._whose()
        self._connections.enter(self, self._counted_for)
        self._told = (0, _BETWEEN, 0, 0, 0)
        self.url, self.headers = b"", []
        self._expect(_HEAD, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._forget()
        self._connections.leave(self)
        self._counted_for = None  # it may be this object itself
        super().connection_lost(exc)

    def _whose(self) -> Hashable:
        """The client that the connection counts for: a prefix of addresses."""
        peer = self.client[0] if self.client else None
        address = peer_address(peer)
        if address is None:
            return None
        return self if is_in(peer, self.trusted) else client_prefix(address.packed)

    def evict(self) -> None:
        """Make room for another client."""
        self._ended = True
        self._forget()
        self.transport.abort()  # its client may take nothing

    @property
    def all_connections(self) -> Connections:
        """All connections of this server."""
        connections = _CONNECTIONS.get(self.server_state)
        if connections is None:
            limit = self.max_connections
            descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            connections = _CONNECTIONS[self.server_state] = Connections(
                fitting(descriptors) if limit is None else limit
            )
        return connections

    def data_received(self, data: bytes) -> None:
        """Feed the parser piece by piece, so that it never keeps more than a piece or two beyond what is accepted."""
        self._unset_keepalive_if_required()
        if len(data) <= _PIECE:
            self._feed(data)
        else:
            view = memoryview(data)
            for start in range(0, len(data), _PIECE):
                self._feed(view[start : start + _PIECE])
        if self._part != _BETWEEN or self._deadline is not None or self._kept:
            self._watch()

    def _feed(self, piece: bytes | memoryview) -> None:
        if self._ended:
            return
        part, requests = self._part, self._requests
        try:
            self.parser.feed_data(piece)
        except HttpParserUpgrade as upgrade:
            self._ignore(upgrade, piece)
            return
        except HttpParserError:
            self._stopped()
            return
        if self._part == _BETWEEN and (self._requests != requests or part != _BETWEEN):
            self._kept = 0  # the end of a request, as of nearly all
        else:
            self._measure(len(piece), begun=self._requests != requests)

    def _stopped(self) -> None:
        """The parser does not go on."""
        self._refuse(*self._refusal or (400, "the request is not valid HTTP/1.1"))

    def _measure(self, size: int, *, begun: bool) -> None:
        """Hold a request against its bounds after a piece that did not end it, and may have begun it."""
        told = (self._requests, self._part, len(self.url), len(self.headers), self._body)
        self._kept = self._kept + size if told == self._told or self._part == _BETWEEN else 0
        before, self._told = self._told, told
        if begun:
            self._head = self._frame = 0
        elif self._part == _HEAD:
            self._head += size
            if max(self._head, len(self.url)) > MAX_HEAD:
                self._refuse(*self._too_long())
            elif len(self.headers) > MAX_HEADERS:
                self._refuse(*_TOO_MANY)
        elif self._part == _BODY:
            if before[1] == _BODY:
                self._frame += size - (self._body - before[4])
            too_much = self._frame > MAX_HEAD + 8 * self._body or self._kept > MAX_HEAD
            if too_much or len(self.headers) > MAX_HEADERS:
                self._refuse(400, "the body's chunks or trailers hold more than a body may be framed with")
        elif self._kept > MAX_HEAD:
            self._refuse(400, "more blank lines than a request may begin with")

    def _watch(self) -> None:
        """Have a deadline for what does not arrive whole, and for nothing else."""
        if self._ended:
            return
        part = _HEAD if self._part == _BETWEEN and self._kept else self._part
        if part != _BETWEEN:
            if self._timed != (part, self._requests):
                self._expect(part, self._requests)
            return
        self._forget()
        cycle = self.cycle  # None at first; complete where a request was answered before it had arrived
        if cycle is not None and cycle.response_complete:  # type: ignore[redundant-expr]
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _too_long(self) -> tuple[int, str]:
        if len(self.url) > MAX_HEAD:
            return 414, f"the request's target is longer than the {MAX_HEAD} bytes accepted of a whole head"
        return 431, f"the request's head is longer than the {MAX_HEAD} bytes accepted"

    def _ignore(self, upgrade: HttpParserUpgrade, piece: bytes | memoryview) -> None:
        """Go on in HTTP/1.1 after a request that asked for another protocol. After CONNECT comes nothing of ours."""
        if self._ended:
            return
        if self.scope["method"] == "CONNECT":
            self.cycle.keep_alive = False
            self._ended = True
        else:
            self._feed(memoryview(piece)[upgrade.args[0] :])

    def _should_upgrade(self) -> bool:
        return False

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self.begins()

    def begins(self) -> None:
        """A request begins."""
        self._connections.begins(self)
        self._part = _HEAD
        self._requests += 1

    def ends_answered(self) -> None:
        """A request has ended that is answered already."""
        self._part = _BETWEEN
        self._connections.rests(self, arriving=False)

    @property
    def arriving(self) -> bool:
        """Whether a request has begun to arrive, and has not ended."""
        return self._part != _BETWEEN

    @property
    def answering(self) -> bool:
        """Whether the application is to answer a request."""
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete  # type: ignore[redundant-expr]  # None at first

    def on_headers_complete(self) -> None:
        """The end of its head."""
        if self._head:  # it came in more than two pieces, which may be too long together
            lines = sum(len(name) + len(value) + 4 for name, value in self.headers)
            if len(self.parser.get_method()) + len(self.url) + 12 + lines + 2 > MAX_HEAD:
                self._fail(*self._too_long())
        if len(self.headers) > MAX_HEADERS:
            self._fail(*_TOO_MANY)
        self._named_whole()
        super().on_headers_complete()  # where it fails the request has no answer yet, and gets one
        self._part = _BODY
        self._body = 0
        for name, _ in self.headers:
            if name in FRAMING:
                self.flow.pause_reading()  # until the application receives, or has answered
                self.cycle.transport = _Lingering(self)  # type: ignore[assignment]  # all that a cycle uses of one
                break
        self.headers = []  # of trailers, from now on

    def _named_whole(self) -> None:
        """Read a target that names everything as a path, and as Host what it names: that counts (RFC 9112 §3.2.2)."""
        if self.url.startswith(b"/") or self.url == b"*":
            return
        found = _ABSOLUTE.fullmatch(self.url)
        if found is None:
            self._fail(400, "the target is neither a path nor `http://HOST/PATH` (RFC 9112 §3.2)")
        rest = found[2] or b""
        self.url = rest if rest.startswith(b"/") else b"/" + rest
        # The scope has this very list.
        self.headers[:] = [(name, found[1] if name == b"host" else value) for name, value in self.headers]

    def on_response_complete(self) -> None:
        """An answer is written; where its connection lingers, nothing more is read."""
        if isinstance(self.cycle.transport, _Lingering) and self.cycle.transport.lingers:
            self.server_state.total_requests += 1
        else:
            super().on_response_complete()
        self._rest()

    def _fail(self, status: int, detail: str) -> NoReturn:
        """Make the parser stop."""
        self._refusal = status, detail
        raise ValueError(detail)

    def on_body(self, body: bytes) -> None:
        """A piece of its body."""
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request has come to its end."""
        self._part = _BETWEEN
        self._connections.arrived(self)
        super().on_message_complete()
        self._rest()

    def _rest(self) -> None:
        """Say so where it is the client's turn again."""
        if self._part != _BETWEEN:
            self._connections.rests(self, arriving=True)
        elif self.cycle.response_complete and not self.pipeline:
            self._connections.rests(self, arriving=False)

    def _expect(self, part: int, request: int) -> None:
        """Begin to wait for the end of a part of a request."""
        self._forget()
        self._timed = (part, request)
        seconds = self.head_timeout if part is _HEAD else self.body_timeout
        self._deadline = self.loop.call_later(seconds, self._late)

    def _forget(self) -> None:
        self._timed = None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        """A part of a request did not arrive in time."""
        if self._part is _BETWEEN:
            self.transport.close()  # nothing was asked
            return
        what, seconds = ("body", self.body_timeout) if self._part is _BODY else ("head", self.head_timeout)
        self._refuse(408, f"the request's {what} took longer than {seconds:g} s")

    def _refuse(self, status: int, detail: str) -> None:
        """Read no further, and say why, unless earlier requests wait for their answers: they get them."""
        self._ended = True
        self._forget()
        cycle, answering = self.cycle, self.answering
        if self._part is _BODY:
            if not answering or cycle.response_started or self.pipeline:
                self.transport.close()
                return
            cycle.disconnected = True  # nothing of the application's is sent any more
            cycle.message_event.set()
        elif answering:
            self._end_after_answer()
            return
        self.transport.write(_problem(status, detail, self.server_state.default_headers))
        self.linger_on()

    def _end_after_answer(self) -> None:
        """Have the end of the answer close the connection, whatever its client still sends."""
        self.cycle.keep_alive = False
        self.cycle.transport = _Lingering(self, more=True)  # type: ignore[assignment]  # all that a cycle uses of one

    def linger_on(self) -> None:
        """Close the connection once its client had time to read what it was sent."""
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()  # what comes is thrown away: unread, it would take the answer with it (RFC 9112 §9.6)
        self._deadline = self.loop.call_later(self.linger, self.transport.close)


def _problem(status: int, detail: str, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """An answer that no application made: a problem document (RFC 9457), after which the connection is closed."""
    title = HTTPStatus(status).phrase
    words = title.lower()
    document = {
        "type": f"urn:gtm:problem:{words.replace(' ', '-')}",
        "title": words,
        "status": status,
        "detail": detail,
        "code": words.replace(" ", "_").replace("-", "_"),
    }
    body = json.dumps(document).encode()
    lines = [b"HTTP/1.1 %d %s" % (status, title.encode()), *(b"%s: %s" % header for header in headers)]
    lines += [
        b"content-type: application/problem+json",
        b"content-length: %d" % len(body),
        b"connection: close",
    ]
    return b"\r\n".join((*lines, b"", body))


class _Lingering:
    """The transport of a request with a body, or with something behind it that nobody answers (`more`). Closed before that was read, it lets the client read the answer first.

    A socket that is closed with bytes unread is reset at once, which may take the answer from the client (RFC 9112 §9.6).
    """

    def __init__(self, protocol: PatientProtocol, *, more: bool = False) -> None:
        self._protocol = protocol
        self._transport = protocol.transport
        self._more = more
        self.lingers = False

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._transport.write(data)

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self.lingers or self._transport.is_closing()

    def close(self) -> None:
        """End the connection, at once if nothing is left to read."""
        more = self._more or self._protocol.cycle.more_body
        if not more or self.is_closing() or not self._transport.can_write_eof():
            self._transport.close()
            return
        self.lingers = True
        if self._more:
            self._protocol.linger_on()
            return
        self._transport.write_eof()
        self._protocol.loop.call_later(self._protocol.linger, self._transport.close)


# --- HTTP/1.1 with answers in place: what nearly every request to an edge is costs a fraction of an ASGI call. ---
#
# A look-up is a head and nothing else, and its answer is known at once. Through ASGI it takes a task, a scope, a cycle with an
# event, two messages that are checked line by line, and a timer: some 17 µs of processor time on which nothing depends. Here the
# parser's end of the head calls a plain function, and what that returns goes to the transport in one write.
#
# Answers are written when all requests that were there to read in a round of the event loop are answered. Each write leads through
# the kernel to waking somebody, out of a virtual machine and back; what runs after that finds its caches cold. With a write after each
# answer, a look-up by a new client took 59 µs where it takes 39 with the writes in a row.
#
#     bytes ─▶ PatientProtocol (bounds, deadlines) ─▶ head complete ─▶ in place? ─yes─▶ answer(…) ─▶ one write
#                                                                         └─no──▶ uvicorn's cycle, a task, ASGI
#
# A third way is a carrier's (`gtm.runtime.edge.worker.carry`): where it wants a request, by its head, it gets the connection, with all bytes
# of the request as they came, and gives it back when the request is answered. So a request has one parser that counts, and every other
# request on the connection is answered as above. It gets only what begins a read: a request that came right behind another (pipelined)
# ends the connection unanswered once that one is answered, upon which clients send it again (RFC 9112 §9.3.2).
#
# In place is what begins with `GET /` or `HEAD /`, has no body and asks for no other protocol, on a connection on which nothing
# waits to be answered or written, and is the first to end in what was read at once. All else goes through ASGI as before: bodies,
# pipelined requests behind the first (each gets a turn of the event loop, so that no client takes it for long), clients that
# do not take their answers.
#
# Laws:
#   1. Byte for byte the answers are those that the same application gives through ASGI, in the same order, however what is sent is
#      cut (tests/runtime/process/test_direct.py). More is answered in one case: a good request before something in the same read
#      that cannot be read, which through ASGI gets `connection: close`, or nothing where that is a wrong body.
#   2. Every bound of `PatientProtocol` holds: a head that came in many pieces is measured there, before it is looked at here.
#   3. A connection that waits between requests ends after the same time, within a tick of the event loop.


Lines = Sequence[tuple[bytes, bytes]]


AnswerHead = Callable[[str, bytes, list[tuple[bytes, bytes]], str | None, str], "Response | None"]
"""From method, target as it was sent (path and query), headers with lower-case names, peer, and HTTP version: the answer, or None if
it needs ASGI. It never raises."""


class HandedConnection(asyncio.Protocol):
    """What reads a connection meanwhile that was handed to a carrier."""

    __slots__ = ()

    def drain(self) -> None:
        """The server ends: take no further request."""


class RequestCarrier(Protocol):
    """Carries requests to other servers."""

    def wants(self, target: bytes, lines: Lines) -> bool:
        """Whether it takes the request of this target, as it was sent, and header lines with names in lower case."""

    def take(self, connection: DirectProtocol) -> HandedConnection:
        """What reads a connection from now on; at the end of a request it calls `DirectProtocol.take_back`, or ends the connection."""

    def drain(self) -> None:
        """The server ends: each connection ends with its next answer."""

    def close(self) -> None:
        """The server has ended: what is not answered breaks off."""


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
        self._raw: bytes | None = None
        """What came since a request began, as long as its head is not whole; None: that is not known, or nobody asks."""
        self._raw_of = 0
        """The number of the request that stands at its beginning."""
        self._unread = b""
        """What a carrier has read behind its requests: it comes before what is read next."""
        self._wanted = False
        """A carrier wants the request whose head is whole now."""
        self._handed: HandedConnection | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """A client is there."""
        super().connection_made(transport)
        self._peer = self.client[0] if self.client else None

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        self._raw = self._handed = None
        self._unread = b""
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """The client has sent these bytes."""
        if self._unread:
            data, self._unread = self._unread + data, b""
        self._first = True
        if self._raw is not None:
            self._raw += data
        elif (
            self._direct.carrier is not None
            and self._part == _BETWEEN
            and not (self._kept or self.answering or self._ended)
        ):
            self._raw, self._raw_of = data, self._requests + 1
        super().data_received(data)
        if self._wanted:
            self._hand_over()
        elif self._raw is not None and not self._begins_raw:
            self._raw = None

    @property
    def _begins_raw(self) -> bool:
        """Whether the request that arrives now is the first thing in `_raw`, or nothing but blank lines is in it yet."""
        if self._ended:
            return False
        if self._part == _BETWEEN:
            return bool(self._kept) and self._requests < self._raw_of
        return self._part == _HEAD and self._requests == self._raw_of

    # --- connections that a carrier has ---

    def _stopped(self) -> None:
        if not self._wanted:
            super()._stopped()

    def _hand_over(self) -> None:
        """Let a carrier read the request, or end the connection where its first byte is not known."""
        carrier, raw, self._raw, self._wanted = self._direct.carrier, self._raw, None, False
        self._forget()
        self._ended = True
        self.send()
        if raw is None or carrier is None:
            if self.answering:
                self._end_after_answer()
            else:
                self.linger_on()
            return
        self._connections.leave(self)
        handed = self._handed = carrier.take(self)
        self.transport.set_protocol(handed)
        handed.connection_made(self.transport)
        if self.flow.write_paused:
            handed.pause_writing()
        handed.data_received(raw)

    def take_back(self, unread: bytes, *, writable: bool) -> None:
        """Read the connection again: all that the carrier was asked is answered.

        Args:
            unread: what it has read behind that.
            writable: the client takes what it gets.
        """
        self._handed = None
        if writable:
            self.flow.resume_writing()
        else:
            self.flow.pause_writing()
        self.parser = HttpRequestParser(self)
        with suppress(AttributeError):  # as uvicorn does; httptools < 0.6.3 has none
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._part, self._kept, self._told, self._ended = _BETWEEN, 0, (), False
        self.url, self.headers = b"", []
        self._connections.enter(self, self._counted_for)
        self.begins()
        self.ends_answered()
        self.transport.set_protocol(self)
        self._resting_since = self.loop.time()
        if self._resting is None:
            self._resting = self.loop.call_later(self.timeout_keep_alive, self._rested)
        if unread:
            self._unread = unread
            self.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._unread and not self.transport.is_closing():
            self.data_received(b"")

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
        self._named_whole()
        carrier = self._direct.carrier
        if carrier is not None and carrier.wants(self.url, self.headers):
            if not self._begins_raw:
                self._raw = None
            self._wanted = True
            raise ValueError("somebody else reads it")
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

    def _write(self, answer: Response, method: str, *, keep_alive: bool) -> None:
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
        if self._handed is not None:
            self._handed.drain()
            return
        self.send()
        super().shutdown()

    def _refuse(self, status: int, detail: str) -> None:
        self.send()
        super()._refuse(status, detail)

    def _rested(self) -> None:
        """End the connection if it has waited for long enough since the last answer in place."""
        self._resting = None
        if self.arriving or self.answering or self.timeout_keep_alive_task is not None or self._handed:
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
        carrier: takes requests to other servers; None: none is.
    """

    def __init__(
        self,
        answer: AnswerHead,
        protocol: type[DirectProtocol] = DirectProtocol,
        carrier: RequestCarrier | None = None,
    ) -> None:
        self.answer = answer
        self.carrier = carrier
        self.tls: ListenerTls | None = None
        """What connections show; None: they speak no TLS."""
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

    def __call__(self, **given: Any) -> asyncio.Protocol:
        """The protocol of one connection, as uvicorn makes them."""
        protocol = self._protocol(self, **given)
        return protocol if self.tls is None else _TlsFront(protocol).begins(self.tls.context)


class _TlsFront:
    """What a connection asks whose TLS handshake is awaited (`ProxiedConnection`): it counts, and has the time of a head."""

    def __init__(self, protocol: DirectProtocol) -> None:
        self._protocol = protocol
        self.loop = protocol.loop
        self.room = protocol.all_connections
        self.limits = self
        self.head_timeout = protocol.head_timeout

    def begins(self, context: ssl.SSLContext) -> asyncio.Protocol:
        """The protocol of the handshake."""
        from gtm.balancer.plane.client.proxy_protocol import ProxiedConnection  # few need it

        return ProxiedConnection(cast("Any", self), (), context)

    def whose(self, connection: Hashable, peer: str | None) -> Hashable:
        """The client that the connection counts for."""
        address = peer_address(peer)
        if address is None:
            return None
        return connection if is_in(peer, self._protocol.trusted) else client_prefix(address.packed)

    def connection(self, *, secure: bool) -> DirectProtocol:  # noqa: ARG002 - the contract
        """What reads the connection from now on."""
        return self._protocol


# --- Uvicorn as every HTTP server of gtm runs it, with an end that breaks no connection off. ---


Application = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application, whatever it calls its parameters' types."""

KEEP_ALIVE = 75
"""Seconds for which a client's connection may wait for its next request: longer than the minute that proxies and load
balancers keep theirs, which would else send a request into a connection that is just being closed."""
_FINISH_EVERY = 0.05


def server_config(
    app: Application,
    *,
    grace: int,
    lifespan: bool = True,
    answer: AnswerHead | None = None,
    trusted: Sequence[Network] = (),
    carrier: RequestCarrier | None = None,
) -> uvicorn.Config:
    """How every HTTP server of gtm runs: with `PatientProtocol`, logs of our own, and no header that clients could forge.

    Args:
        app: the ASGI application.
        grace: seconds that answers may take once the server ends; feeds never end by themselves.
        lifespan: the application wants to know when the server starts and ends.
        answer: answers, in place, requests that are all head (`gtm.runtime.process.http`); None: the application does.
        trusted: networks of proxies whose connections are many clients'.
        carrier: takes requests to other servers; None: none is.
    """
    protocol: type[PatientProtocol] = PatientProtocol if answer is None else DirectProtocol
    protocol = type(protocol.__name__, (protocol,), {"trusted": tuple(trusted)})
    return uvicorn.Config(
        app,
        http=protocol if answer is None else Direct(answer, protocol, carrier),  # type: ignore[arg-type]  # it is only called
        log_config=None,
        access_log=False,
        lifespan="auto" if lifespan else "off",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=grace,
    )


class ListenerTls(Protocol):
    """A listener's certificates (`gtm.balancer.wire.tls.ServerContext`)."""

    @property
    def context(self) -> ssl.SSLContext:
        """The context that the listener's sockets are made with."""

    def look(self) -> str | None:
        """Read the files again if they have changed; what is wrong with them now, if something is."""


def listener_tls(certificate: Path, key: Path) -> ListenerTls:
    """What a listener shows whose certificate and key are in these files (PEM).

    Raises:
        ValueError: they cannot be used; says why, and what to do.
    """
    from gtm.balancer.wire.tls import ServerCertificate, ServerContext, ServerTls  # few need it

    return ServerContext(ServerTls(certificates=(ServerCertificate(chain=certificate, key=key),)))


class PatientServer(uvicorn.Server):
    """Uvicorn, with signals left to us, that lets clients close their connections before it ends.

    Args:
        config: uvicorn's.
        started: called once it accepts connections.
        tls: what it shows; None: it speaks no TLS.
    """

    def __init__(
        self, config: uvicorn.Config, started: Callable[[], None], tls: ListenerTls | None = None
    ) -> None:
        super().__init__(config)
        self._started = started
        self._tls = tls
        self._deadline = inf

    def run_on(self, sockets: list[socket.socket] | None) -> None:
        """Serve until told to end, on an event loop of this thread's own.

        Args:
            sockets: that listen; None: one of the configuration's port.
        """
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self.serve(sockets))

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
        http: object = self.config.http
        if isinstance(http, Direct):
            http.tls = self._tls
        await super().startup(sockets)
        self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let the requests that are being answered come to their end."""
        for server in self.servers:
            server.close()
        headers = self.server_state.default_headers
        self.server_state.default_headers = [*headers, (b"connection", b"close")]
        http: object = self.config.http
        carrier = http.carrier if isinstance(http, Direct) else None
        if carrier is not None:
            carrier.drain()
        while time.monotonic() < self._deadline:
            await asyncio.sleep(_FINISH_EVERY)  # first, because some may have been accepted this moment
            if not self.server_state.connections:
                break
        await super().shutdown(sockets)
        if carrier is not None:
            carrier.close()
            await asyncio.sleep(0)  # in which the event loop does so
