"""Request smuggling is two readings of the same bytes (RFC 9112 §11.2): random and damaged streams go through the balancer, and others read what a backend gets.

Four readers: one written from RFC 9112 alone, here, reads what clients send, and says which requests there are; llhttp and h11 read what each connection to a backend
carried; and a reader of answers reads what the client got. Connections are new or have served before, to clients and to backends; heads repeat but for their length; backends
answer before a body is there, send interim answers, and send answers that nobody asked for. The laws:

  1. What a backend gets is for llhttp and for h11 the same requests, in the same number, and nothing is left over but on a connection that was cut.
  2. They are the requests that the strict reader finds, in their order, from the first one on: none more, none other, each with its own method, target and body.
  3. What is not forwarded is refused: a status from 400 on (never 500), the end of the connection, and nothing behind it.
  4. Each answer is the answer to its own request; another client's request between two streams gets its own, too.

Mutants of the balancer that 4 × 5,000 streams killed: the memory of heads that there once was (keyed by their bytes without the length, which an empty length hit; and by an
interim answer's bytes); a length is what `int` makes of the digits it begins with; lengths are not checked; a coding is not checked, or is taken from HTTP/1.0; a Host is
not needed; an upgrade with a body goes on; the client's own framing fields go on; chunks go on without their sizes, or without the last one; a head keeps the lines of the one before
it; a connection to a backend is used again though the request's body has not ended; an interim answer is taken for the answer; an answer to HEAD is waited for; the answer of
before is still there. Those that llhttp alone stops (two lengths, a length beside a coding, an empty one) live: gtm checks them behind it.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, NamedTuple
from zlib import crc32

import h11
import pytest
from httptools import HttpParserUpgrade, HttpRequestParser

from gtm.balancer.plane.backend.backends import Route
from gtm.balancer.plane.backend.upstream import Upstream
from gtm.balancer.plane.client.downstream import Downstream
from gtm.balancer.plane.contracts import Limits
from gtm.balancer.plane.proxy import Proxy
from gtm.balancer.wire.heads import HeadError, read_head
from gtm.balancer.wire.responses import ResponseError, read_response_head
from gtm.runtime.process.connections import MAX_CONNECTIONS, Connections
from tests import uvloops
from tests.balancer.world import Admission, Gate, Picker
from tests.effort import ALL, FEW, SOAK

STREAMS = 1_000_000 if SOAK else 100_000 if ALL else 8_000 if FEW else 20_000


class Asked(NamedTuple):
    """A request: what is done by it, to what, and with which bytes."""

    method: bytes
    target: bytes
    body: bytes


# --- the strict reader of requests: RFC 9112, sections 2 to 7, and 9110 for tokens and lengths ---

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_START = re.compile(rb"(%b) +([\x21-\x7e]+) +HTTP/1\.([01])" % _TOKEN)
"""Spaces in a row are allowed between words (§3)."""
_FIELD = re.compile(rb"(%b):[ \t]*((?:[\x21-\xff](?:[ \t\x21-\xff]*[\x21-\xff])?)?)[ \t]*" % _TOKEN)
_SIZE = re.compile(rb"([0-9A-Fa-f]+)[ \t]*(?:;[\t \x21-\xff]*)?")
_HTTP = re.compile(rb"https?://[^/?#]*(/[^#]*|\?[^#]*)?", re.IGNORECASE)


class _WrongError(Exception):
    """What no request is, or whose rest has not come."""


class Read(NamedTuple):
    """What a client sent, as far as it has one meaning.

    `requests` are complete; `begun` is the method of one behind them of which no more than the head could be read; `whole`: nothing stands behind them.
    """

    requests: list[Asked]
    begun: bytes
    whole: bool


def strict(data: bytes) -> Read:
    """Read what a client sent."""
    found: list[Asked] = []
    at, method = 0, b""
    try:
        while at < len(data):
            while data[at : at + 1] in (
                b"\r",
                b"\n",
            ):  # empty lines before a request are none of it (§2.2), in whichever form
                at += 1
            method = b""
            (method, target, said, old), at = _head(data, at)
            body, at = _body(data, at, said)
            found.append(Asked(method, target, body))
            method = b""
            if _is_last(said, old=old):
                return Read(found, b"", whole=False)
    except _WrongError:
        return Read(found, method, whole=False)
    return Read(found, b"", whole=True)


def _line(data: bytes, at: int) -> tuple[bytes, int]:
    end = data.find(b"\r\n", at)
    if end < 0:
        raise _WrongError
    line = data[at:end]
    if b"\n" in line or b"\r" in line or b"\0" in line:
        raise _WrongError
    return line, end + 2


def _fields(data: bytes, at: int) -> tuple[list[tuple[bytes, bytes]], int]:
    found = []
    while True:
        line, at = _line(data, at)
        if not line:
            return found, at
        one = _FIELD.fullmatch(line)
        if one is None:
            raise _WrongError
        found.append((one[1].lower(), one[2]))


_Said = dict[bytes, list[bytes]]


def _head(data: bytes, at: int) -> tuple[tuple[bytes, bytes, _Said, bool], int]:
    line, at = _line(data, at)
    start = _START.fullmatch(line)
    if start is None:
        raise _WrongError
    method, target, old = start[1], start[2], start[3] == b"0"
    fields, at = _fields(data, at)
    said = {name: [value for key, value in fields if key == name] for name, _ in fields}
    if not target.startswith(b"/"):
        whole = _HTTP.fullmatch(target)
        if whole is None and not (target == b"*" and method == b"OPTIONS"):
            raise _WrongError
        if whole is not None:
            rest = whole[1] or (b"*" if method == b"OPTIONS" else b"/")
            target = b"/" + rest if rest.startswith(b"?") else rest
    if len(said.get(b"host", [])) != 1 and not (old and b"host" not in said):
        raise _WrongError
    codings, lengths = said.get(b"transfer-encoding", []), said.get(b"content-length", [])
    if codings and (old or lengths or [one.lower() for one in codings] != [b"chunked"]):
        raise _WrongError
    if lengths and (len(lengths) > 1 or not re.fullmatch(rb"[0-9]{1,30}", lengths[0])):
        raise _WrongError
    return (method, target, said, old), at


def _body(data: bytes, at: int, said: _Said) -> tuple[bytes, int]:
    if b"transfer-encoding" in said:
        return _chunked(data, at)
    size = int(said.get(b"content-length", [b"0"])[0])
    if at + size > len(data):
        raise _WrongError
    return data[at : at + size], at + size


def _is_last(said: _Said, *, old: bool) -> bool:
    # Proxy-Connection is an old way to say the same (RFC 9112 appendix C.2.2).
    connection = said.get(b"connection", []) + said.get(b"proxy-connection", [])
    options = {one.strip(b" \t").lower() for value in connection for one in value.split(b",")}
    return b"close" in options or (old and b"keep-alive" not in options)


def _chunked(data: bytes, at: int) -> tuple[bytes, int]:
    body = b""
    while True:
        line, at = _line(data, at)
        size = _SIZE.fullmatch(line)
        if size is None:
            raise _WrongError
        length = int(size[1], 16)
        if not length:
            return body, _fields(data, at)[1]
        if at + length + 2 > len(data):
            raise _WrongError
        if data[at + length : at + length + 2] != b"\r\n":
            raise _WrongError
        body, at = body + data[at : at + length], at + length + 2


# --- two readers of what a backend gets ---


class _Llhttp:
    """Requests as servers with llhttp (Node.js, uvicorn) read them, as they come."""

    def __init__(self) -> None:
        self.requests: list[Asked] = []
        self.inside = False
        self._url = self._body = b""
        self._parser = HttpRequestParser(self)

    def feed(self, data: bytes) -> None:
        """Read on."""
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._parser = HttpRequestParser(self)  # not taken up: the next request follows

    def on_message_begin(self) -> None:
        self.inside, self._url, self._body = True, b"", b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_headers_complete(self) -> None:
        self.begun(self._parser.get_method(), self._url)

    def begun(self, method: bytes, target: bytes) -> None:
        """The head of a request is there."""

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self.inside = False
        self.requests.append(Asked(self._parser.get_method(), self._url, self._body))


def _by_h11(data: bytes) -> list[Asked]:
    """Requests as h11 (uvicorn's other parser, Hypercorn) reads them; complete ones only."""
    found: list[Asked] = []
    reader = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    reader.receive_data(data)
    head, body = None, b""
    while True:
        event = reader.next_event()
        if isinstance(event, h11.Request):
            head, body = event, b""
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            found.append(Asked(bytes(head.method), bytes(head.target), body))
            reader.send(h11.Response(status_code=200, headers=[(b"content-length", b"0")]))
            reader.send(h11.EndOfMessage())
            if reader.our_state is h11.MUST_CLOSE:
                return found
            reader.start_next_cycle()
        else:
            return found


# --- the world: a balancer between transports that are kept in memory ---


class _Pipe(asyncio.Transport):
    """Keeps what is written to it, and hands it to a listener."""

    events: ClassVar[int] = 0
    """What was done to all of them."""
    silent: ClassVar[socket.socket]
    """One on which nothing comes: the kernel is asked whether something waits."""

    def __init__(self, heard: Callable[[bytes], None] | None = None) -> None:
        super().__init__({"peername": ("192.0.2.7", 1), "socket": _Pipe.silent})
        self.written = bytearray()
        self.ended = False
        self.aborted = False
        self._heard = heard

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.ended, "written behind the end"
        _Pipe.events += 1
        self.written += data
        if self._heard is not None:
            self._heard(bytes(data))

    def is_closing(self) -> bool:
        return self.ended

    def is_reading(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.ended = self.aborted = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class _Server(_Llhttp):
    """A backend's side of one connection: it answers each request with what it understood, or as soon as the head is there, as many do."""

    def __init__(self, upstream: Upstream, loop: asyncio.AbstractEventLoop, chance: Random) -> None:
        super().__init__()
        self.pipe = _Pipe(self._came)
        self.judged = 0
        self._answered = False
        self._upstream, self._loop, self._chance = upstream, loop, chance
        upstream.connection_made(self.pipe)

    def end(self) -> None:
        """It has served enough."""
        if not self.pipe.ended:
            self._upstream.eof_received()

    def _came(self, data: bytes) -> None:
        before = len(self.requests)
        self.feed(data)
        for asked in self.requests[before:]:
            if self._answered:
                self._answered = False
            else:
                self._say(asked.method, _mark(asked))

    def begun(self, method: bytes, target: bytes) -> None:
        """Maybe it need not know more."""
        if self._chance.random() < 0.2:
            self._answered = True
            self._say(method, _early(method, target))

    def _say(self, method: bytes, mark: bytes) -> None:
        self._loop.call_soon(self._answer, _answer_to(method, mark, self._chance))

    def _answer(self, data: bytes) -> None:
        if not self.pipe.ended:
            self._upstream.data_received(data)


def _mark(asked: Asked) -> bytes:
    return b"%b %b %d %08x" % (asked.method, asked.target, len(asked.body), crc32(asked.body))


def _early(method: bytes, target: bytes) -> bytes:
    return b"early %b %b" % (method, target)


_FORGED = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged"


def _answer_to(method: bytes, mark: bytes, chance: Random) -> bytes:
    """An answer: maybe behind an interim one, with a length or in chunks, and maybe with another behind it that nobody asked for."""
    early = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" * chance.choice((0, 0, 0, 1))
    framing, body = b"content-length: %d" % len(mark), mark
    if chance.random() < 0.5:
        framing, body = b"transfer-encoding: chunked", b"%x\r\n%b\r\n0\r\n\r\n" % (len(mark), mark)
    behind = _FORGED if chance.random() < 0.03 else b""
    return b"%bHTTP/1.1 200 OK\r\n%b\r\n\r\n%b%b" % (
        early,
        framing,
        b"" if method == b"HEAD" else body,
        behind,
    )


class _Way(Route):
    """To backends that are `_Server`s."""

    def __init__(self, chance: Random) -> None:
        super().__init__("http://192.0.2.1:1")
        self.servers: list[_Server] = []
        self._chance = chance

    def take(self, now: float) -> Upstream | None:
        """A connection that waits, or a new one."""
        found = super().take(now)
        if found is None:
            loop = asyncio.get_running_loop()
            found = Upstream(self, loop.time)
            self.servers.append(_Server(found, loop, self._chance))
        return found


@dataclass
class _Client:
    """A client's connection, and all that went over it."""

    downstream: Downstream
    pipe: _Pipe = field(default_factory=_Pipe)
    sent: bytes = b""

    def __post_init__(self) -> None:
        self.downstream.connection_made(self.pipe)

    def send(self, data: bytes) -> None:
        self.sent += data
        self.downstream.data_received(data)


class World:
    """A balancer that goes on from stream to stream, with connections that wait; and what backends got since the last look."""

    def __init__(self, chance: Random) -> None:
        self.way = _Way(chance)
        loop = asyncio.get_running_loop()
        self.proxy = Proxy(
            Gate(),
            Admission(),
            Picker([self.way]),
            room=Connections(MAX_CONNECTIONS),
            loop=loop,
            region="r",
            limits=Limits(),
        )
        self.refused = self.forwarded = 0

    def client(self) -> _Client:
        return _Client(self.proxy.connection())

    async def settle(self) -> None:
        """Until nothing is left to do: nobody writes any more, and no answer is on its way."""
        quiet, before = 0, -1
        while quiet < 4:
            await asyncio.sleep(0)
            quiet, before = (quiet + 1 if before == _Pipe.events else 0), _Pipe.events

    def rest(self) -> None:
        """No client waits: nor does half a request wait for its other half, which would be another client's."""
        for server in self.way.servers:
            assert server.pipe.ended or not server.inside, bytes(server.pipe.written)

    def took(self) -> list[Asked]:
        """All requests that came to backends since the last look; law 1, of each connection that has ended."""
        found: list[Asked] = []
        left: list[_Server] = []
        for server in self.way.servers:
            found += server.requests[server.judged :]
            server.judged = len(server.requests)
            if server.judged > 10:
                server.end()
            if server.pipe.ended:
                assert _by_h11(bytes(server.pipe.written)) == server.requests, bytes(server.pipe.written)
            else:
                left.append(server)
        self.way.servers = left
        return found


def _answers(data: bytes, methods: list[bytes]) -> tuple[list[tuple[int, bytes]], bytes]:
    """Statuses and bodies of the answers to these, in order, and of one refusal; and what stands behind them."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while at < len(data):
        line, at = _line(data, at)
        assert re.fullmatch(rb"HTTP/1\.1 [1-5][0-9][0-9] [\t\x20-\x7e]*", line), line
        status = int(line[9:12])
        fields, at = _fields(data, at)
        said = dict(fields)
        if status < 200:
            continue
        refused = status >= 400
        assert status != 500, "an error of gtm's own"
        if not refused and methods and methods.pop(0) == b"HEAD":
            body = b""
        elif b"transfer-encoding" in said:
            body, at = _chunked(data, at)
        elif b"content-length" in said:
            body, at = data[at : at + int(said[b"content-length"])], at + int(said[b"content-length"])
        else:
            body, at = data[at:], len(data)
        found.append((status, body))
        if refused:
            assert said.get(b"connection") == b"close"
            return found, data[at:]
    return found, b""


# --- what clients send ---

_LENGTHS = [
    b"N", b"", b"+N", b"-N", b"N ", b"\tN", b"0N", b"N, N", b"N,M", b"N N", b"0xH", b"N.0", b"Ne0", b"N_0", b"0" * 4300 + b"N", b"9" * 30, b"N\x0b", "٣".encode(), b"M", b"L",
    b"N\r\n N",
]  # fmt: skip
"""N is the body's length, M one more, L one less, H the length by a base of sixteen."""
_CODINGS = [
    b"chunked", b"Chunked", b"chunked, chunked", b"gzip, chunked", b"chunked, identity", b"identity", b"", b" chunked", b"chunked ", b"\x0bchunked", b"xchunked",
    b"chunked;q=1", b'"chunked"', b"chunked\r\nTransfer-Encoding: chunked", b"chunked\r\n ", b"chun\tked", b"chunked\x00",
]  # fmt: skip
_OTHERS = [
    b"Host: b", b"Host : a", b"X: y", b"X:", b"X", b": x", b" X: y", b"\tX: y", b"X y: z", b"X: a\rb", b"X: a\nb", b"X: a\x00b", b"Connection: close", b"Connection: keep-alive",
    b"Connection: content-length", b"Connection: transfer-encoding, host", b"Connection: upgrade\r\nUpgrade: websocket", b"Connection: upgrade\r\nUpgrade: h2c", b"Upgrade: x",
    b"Expect: 100-continue", b"Content_Length: 3", b"Content-Length\t: 3", b"Content-Length:3", b"Transfer_Encoding: chunked", b"Transfer-Encoding : chunked", b"Trailer: host",
    b"TE: trailers", b"Content-Type: application/json", b"X: \xff\xfe", b"X-Forwarded-For: 1.2.3.4", b"gtm-tenant: a", b"Proxy-Connection: keep-alive", b"Keep-Alive: max=1",
]  # fmt: skip
_SIZES = [
    b"H", b"H", b"H", b"0H", b"H;a=b", b'H;a="\r\n"', b"H;a\n", b"H ", b" H", b"0xH", b"+H", b"-H", b"", b"H_0", b"1" + b"0" * 16 + b"H", b"Hg", b"H\r",
]  # fmt: skip
_TARGETS = [
    b"/",
    b"/a?b=c",
    b"/v1/chat/completions",
    b"http://a/x",
    b"http://a?x",
    b"http://a",
    b"*",
    b"//a/b",
    b"/a b",
    b"/\xff",
    b"/#f",
    b"a",
    b"",
    b"/a%0d%0ab",
]
_VERSIONS = [
    b"HTTP/1.0",
    b"HTTP/1.2",
    b"HTTP/2.0",
    b"HTTP/0.9",
    b"http/1.1",
    b"HTTP/1.1 ",
    b"HTTP/1.11",
    b"HTTP/01.1",
    b"HTTP/1",
    b"",
]
_SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
_EDITS = [
    b"\r",
    b"\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\0",
    b" ",
    b"\t",
    b":",
    b"0",
    b"1",
    b"f",
    b";",
    b",",
    b"\xa0",
    b"\x0b",
    b"0\r\n\r\n",
    b"Content-Length: 5\r\n",
    _SMUGGLED,
]


def _made(chance: Random, odd: float) -> bytes:
    """A request, of whose parts each is odd with this probability."""
    pick = chance.choice

    def usual(value: bytes, among: list[bytes]) -> bytes:
        return pick(among) if chance.random() < odd else value

    body = pick(
        (b"", b"", b"abc", b'{"model": "m"}', _SMUGGLED, b"0\r\n\r\n", b"3\r\nabc\r\n0\r\n\r\n", b"x" * 300)
    )
    method = pick((b"GET", b"POST", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"DELETE"))
    method = usual(
        method, [b"get", b"CONNECT", b"TRACE", b"G ET", b"\x00GET", b"PRI", b"SEARCH", b"M-SEARCH", b""]
    )
    lines = [
        usual(b"Host: a", [b"Host: ", b"Host: a, b", b"host: a:80", b"X: y", b"Host: a/b", b"Host: a@b"])
    ]
    if chance.random() < 0.3:
        lines += [pick(_OTHERS[-9:]) for _ in range(chance.randrange(3))]
    if chance.random() < odd:
        lines += [pick(_OTHERS) for _ in range(chance.randrange(1, 3))]
    framing = pick(("length", "length", "chunked", "none")) if body else pick(("none", "none", "length"))
    name = usual(
        b"Content-Length",
        [
            b"content-length",
            b"CONTENT-LENGTH",
            b"Content-Length ",
            b"Content-Length\t",
            b"Content-length\0",
            b"Content\tLength",
            b" Content-Length",
        ],
    )
    if framing == "length" or chance.random() < odd / 2:
        said = _of_length(usual(b"N", _LENGTHS), len(body))
        lines.append(name + pick((b": ", b": ", b":", b":  ")) + said)
        if chance.random() < odd / 3:
            lines.append(b"Content-Length: %d" % pick((len(body), len(body) + 1, 0)))
    if framing == "chunked" or chance.random() < odd / 3:
        lines.append(b"Transfer-Encoding: " + usual(b"chunked", _CODINGS))
    if framing == "none":
        body = b"" if chance.random() > odd / 2 else body
    elif framing == "chunked":
        body = _in_chunks(body, chance, odd)
    chance.shuffle(lines)
    ends = [b"\n", b"\r", b"\r\r\n", b"\n\r\n", b"\r\n "]
    start = b"%b %b %b" % (
        method,
        usual(b"/x%d" % chance.randrange(1000), _TARGETS),
        usual(b"HTTP/1.1", _VERSIONS),
    )
    head = b"".join(one + (pick(ends) if chance.random() < odd / 8 else b"\r\n") for one in (start, *lines))
    return (
        usual(b"", [b"\r\n", b"\n", b" ", b"\r\n\r\n"])
        + head
        + usual(b"\r\n", [b"\n", b"\r\n", b"\r", b" \r\n"])
        + body
    )


def _of_length(said: bytes, length: int) -> bytes:
    for letter, value in ((b"N", length), (b"M", length + 1), (b"L", max(length - 1, 0))):
        said = said.replace(letter, b"%d" % value)
    return said.replace(b"H", b"%x" % length)


def _in_chunks(body: bytes, chance: Random, odd: float) -> bytes:
    found = b""
    while body:
        size = chance.randrange(1, len(body) + 1)
        said = _of_length(chance.choice(_SIZES) if chance.random() < odd / 2 else b"H", size)
        end = (
            chance.choice((b"\n", b"", b"\r", b"x\r\n", b"\r\n\r\n"))
            if chance.random() < odd / 4
            else b"\r\n"
        )
        found += said + b"\r\n" + body[:size] + end
        body = body[size:]
    last = chance.choice((b"00", b"0;x", b"0 ", b"", b"-0", b"0\n")) if chance.random() < odd / 3 else b"0"
    trailers = (
        chance.choice((b"X: y\r\n", b"Content-Length: 3\r\n", b"Host: b\r\n", b"X\r\n", b" \r\n"))
        if chance.random() < odd / 2
        else b""
    )
    return found + last + b"\r\n" + trailers + b"\r\n"


_SAID = re.compile(rb"(?<=ontent-Length: )[0-9]+(?=\r\n)")


def _stream(chance: Random, before: deque[bytes]) -> bytes:
    """A few requests, maybe damaged; some say what one before said, but for its length: no memory may take the one for the other."""
    odd = chance.choice((0.0, 0.0, 0.1, 0.3))
    data = b"".join(_made(chance, odd) for _ in range(chance.choice((1, 1, 2, 3))))
    if odd and chance.random() < 0.4:
        for _ in range(chance.randrange(1, 4)):
            at, size = chance.randrange(len(data) + 1), chance.choice((0, 0, 1, 2, 10))
            data = (
                data[:at] + chance.choice((*_EDITS, b"", bytes([chance.randrange(256)]))) + data[at + size :]
            )
    elif before and chance.random() < 0.4:
        head, end, _ = chance.choice(before).partition(b"\r\n\r\n")
        head = _SAID.sub(_of_length(chance.choice((b"", b"", b"", b"M", *_LENGTHS)), 3), head + end)
        data = chance.choice((head, head + data))
    before.append(data)
    return data


def _sent_in_parts(client: _Client, data: bytes, chance: Random) -> None:
    way = chance.random()
    if way < 0.4:
        client.send(data)
        return
    if way < 0.6:  # a head, then what follows it
        for piece in re.findall(rb".*?\r\n\r\n|.+", data, re.DOTALL):
            client.send(piece)
        return
    step = chance.choice((1, 3, 20, 100))
    while data:
        size = 1 if step == 1 else chance.randrange(1, step + 1)
        client.send(data[:size])
        data = data[size:]


# --- the laws ---


def _judge(world: World, client: _Client, took: list[Asked]) -> None:
    """Laws 2 to 4, of all that one client's connection carried."""
    asked, begun, _ = strict(client.sent)
    assert took == asked[: len(took)], "other requests came than were sent"
    answers, behind = _answers(bytes(client.pipe.written), [*(one.method for one in asked), begun])
    assert not behind
    good = [body for status, body in answers if status < 400]
    for number, body in enumerate(good):
        if number < len(asked):
            one = asked[number]
            of_it = (b"" if one.method == b"HEAD" else _mark(one), _early(one.method, one.target))
            assert body in of_it, (body, of_it)
        else:  # the body had not come, and whoever answered did not wait for it
            assert number == len(asked)
            assert not body or body.startswith(b"early ")
    assert len(took) <= len(good) <= len(took) + 1
    refused = [status for status, _ in answers if status >= 400]
    if len(good) > len(took) or refused:
        assert len(refused) <= 1
        assert client.pipe.ended, "it was refused, or not heard out, and the connection goes on"
    world.forwarded += len(took)
    world.refused += len(refused)


async def _run(streams: int, seed: int) -> World:
    chance = Random(seed)
    world = World(chance)
    other = world.client()
    warm: _Client | None = None
    earlier: list[Asked] = []
    before: deque[bytes] = deque(maxlen=20)
    for number in range(streams):
        client = warm or world.client()
        start = len(client.sent)
        data = _stream(chance, before)
        _sent_in_parts(client, data, chance)
        await world.settle()
        took = world.took()
        gone = not client.pipe.ended and chance.random() < 0.5
        if gone:
            client.downstream.eof_received()
            await world.settle()
            took += world.took()
        try:
            kept = [*earlier, *took]
            _judge(world, client, kept)
        except (AssertionError, _WrongError) as error:
            raise AssertionError(
                f"seed {seed}, stream {number}: {client.sent[start:]!r}\ngot {bytes(client.pipe.written)!r}\n{error!r}"
            ) from error
        # A connection that is between two requests goes on with the next stream.
        whole = not client.pipe.ended and not gone and strict(client.sent).whole
        warm, earlier = (client, kept) if whole and len(kept) < 10 else (None, [])
        if warm is None:
            client.downstream.connection_lost(None)
            await world.settle()
        world.rest()
        if number % 4 == 0:
            asked = Asked(b"GET", b"/other%d" % number, b"")
            if other.pipe.ended:
                other = world.client()
            written = len(other.pipe.written)
            other.send(b"GET /other%d HTTP/1.1\r\nHost: a\r\n\r\n" % number)
            await world.settle()
            assert world.took() == [asked], f"seed {seed}, stream {number}"
            got = bytes(other.pipe.written[written:])
            assert any(one in got for one in (_mark(asked), _early(b"GET", asked.target))), (
                f"seed {seed}, stream {number}"
            )
    return world


@pytest.mark.parametrize("seed", range(4))
def test_backends_read_what_clients_sent(seed: int) -> None:
    """See above: a quarter of the streams each."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as _Pipe.silent:
        world = uvloops.run(_run(STREAMS // 4, seed))
    assert world.forwarded > STREAMS // 8, "the check would say nothing"
    assert world.refused > STREAMS // 40


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"+3",
        b"-1",
        b"3 3",
        b"3,3",
        b"0x3",
        b"1_0",
        "٣".encode(),
        b"3\x0b",
        b"9" * 16,
        b"0" * 4300 + b"3",
    ],
)
def test_lengths_that_are_none(said: bytes) -> None:
    """Refused behind the parser, too, of requests and of answers: should one let them pass, they have no meaning here."""
    fields = [(b"Host", b"a"), (b"Content-Length", said)]
    with pytest.raises(HeadError) as refused:
        read_head(b"POST", b"/", "1.1", fields, keep_alive=True)
    assert (refused.value.status, refused.value.code) == (400, "content_length")
    with pytest.raises(ResponseError, match="Content-Length"):
        read_response_head(200, b"OK", fields)
