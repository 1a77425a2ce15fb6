"""Answers in place are those of ASGI, whatever is sent and however it is cut."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import uvicorn
from hypothesis import example, given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState

from gtm.http.problems import Response, response_of
from gtm.runtime.process.http import Direct, DirectProtocol, HandedConnection, PatientProtocol
from tests.effort import examples

CLOSE = (b"connection", b"close")


def told(
    method: str, target: bytes, lines: list[tuple[bytes, bytes]], peer: str | None, version: str
) -> Response:
    """An answer that says what was understood. Some end the connection, some have no body, some have a long one."""
    path, _, query = target.partition(b"?")
    target = path + (b"?" + query if query else b"")  # ASGI knows no empty query
    said = [
        method,
        target.decode(),
        sorted((name.decode(), value.decode("latin-1")) for name, value in lines),
    ]
    body = json.dumps([*said, peer, version]).encode()
    headers = ((b"x-a", b"b"), *((CLOSE,) if path == b"/close" else ()))
    if path == b"/empty":
        return response_of(307, (*headers, (b"location", b"/else")), b"")
    return response_of(200, headers, body * (2000 if path == b"/long" else 1))


def in_place(
    method: str, target: bytes, lines: list[tuple[bytes, bytes]], peer: str | None, version: str
) -> Response | None:
    """The same, but for what has to go through ASGI."""
    assert method in ("GET", "HEAD")
    assert not any(name in (b"content-length", b"transfer-encoding") for name, _ in lines)
    return None if target.startswith(b"/not") else told(method, target, lines, peer, version)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """The same through ASGI, which tells the length of bodies, too."""
    target = scope["raw_path"] + b"?" + scope["query_string"]
    lines = list(scope["headers"])
    length = 0
    if any(name in (b"content-length", b"transfer-encoding") for name, _ in lines):
        while (message := await receive())["type"] == "http.request":
            length += len(message["body"])
            if not message["more_body"]:
                break
        lines.append((b"body", b"%d" % length))
    response = told(scope["method"], target, lines, scope["client"][0], scope["http_version"])
    await send(response.start)
    await send({"type": "http.response.body", "body": response.body})


class Recorder(asyncio.Transport):
    """Keeps what is written. Where `slow`, its client takes nothing for a while after each write."""

    def __init__(self, *, slow: bool) -> None:
        super().__init__({"peername": ("192.0.2.1", 5000), "sockname": ("192.0.2.2", 80)})
        self.written = b""
        self.closing = False
        self.finished = False
        self.pauses = 0
        self._slow = slow
        self.protocol: PatientProtocol | None = None

    def write(self, data: bytes) -> None:  # type: ignore[override]
        """Keep it."""
        if not self.closing:
            self.written += data
            if self._slow and data and self.protocol is not None:
                self.pauses += 1
                self.protocol.pause_writing()
                asyncio.get_running_loop().call_soon(self._taken)

    def _taken(self) -> None:
        self.pauses -= 1
        if not self.pauses and self.protocol is not None:
            self.protocol.resume_writing()

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self.closing

    def close(self) -> None:
        """End it."""
        self.closing = True

    abort = close

    def can_write_eof(self) -> bool:
        """As a socket."""
        return True

    def write_eof(self) -> None:
        """Nothing follows; the protocol closes it when its client has had time to read."""
        self.finished = True

    def pause_reading(self) -> None:
        """As a socket, that is read no more: what this test sends has been read already."""

    resume_reading = pause_reading

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """As a socket, which is not read here."""


@dataclass(frozen=True)
class Heard:
    """What a client got, and whether its connection ended."""

    text: bytes
    ended: bool


def connected(
    make: Any, *, slow: bool = False, own: Sequence[tuple[bytes, bytes]] = ()
) -> tuple[PatientProtocol, Recorder]:
    """A connection on the running event loop, and what it writes to. `own`: the server's own headers."""
    config = uvicorn.Config(app, http=make, lifespan="off", log_config=None)
    config.load()
    state = ServerState()
    state.default_headers = list(own)
    protocol: PatientProtocol = config.http_protocol_class(  # type: ignore[assignment, call-arg]
        config=config, server_state=state, app_state={}, _loop=asyncio.get_running_loop()
    )
    transport = Recorder(slow=slow)
    transport.protocol = protocol
    protocol.connection_made(transport)
    return protocol, transport


def converse(
    make: Any, pieces: list[bytes], *, waits: bool, slow: bool, own: list[tuple[bytes, bytes]]
) -> Heard:
    """Send pieces to a connection; `waits`: each after the answer to the last. `own`: the server's own headers."""

    async def talk() -> Heard:
        protocol, transport = connected(make, slow=slow, own=own)
        for piece in pieces:
            if not transport.closing:
                protocol.data_received(piece)
            if waits:
                await settled()
        await settled()
        heard = Heard(transport.written, transport.closing or transport.finished)
        protocol.connection_lost(None)
        await settled()
        assert not protocol.tasks
        return heard

    return asyncio.run(talk())


async def settled() -> None:
    """Let all that can go on."""
    for _ in range(60):
        await asyncio.sleep(0)


TARGETS = st.sampled_from(
    [
        "/",
        "/a?b=c",
        "/a?b=?&c",
        "/close",
        "/empty",
        "/long",
        "/not",
        "/%41%zz",
        "/a?",
        "//a/b",
        "/a#b",
        "*",
        "http://a/b?c",
    ]
)
LINES = st.lists(
    st.sampled_from(
        [
            "X-One: 1",
            "x-one: 2, 3",
            "X-Empty:",
            "Connection: close",
            "Connection: keep-alive",
            "Connection: Upgrade\r\nUpgrade: websocket",
            "Expect: 100-continue",
            "X-Latin: \xe9",
        ]
    ),
    max_size=4,
    unique=True,
)
BODIES = st.sampled_from(
    [
        "\r\n",
        "\r\n",
        "\r\n",
        "Content-Length: 0\r\n\r\n",
        "Content-Length: 5\r\n\r\nabcde",
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ]
)


@st.composite
def questions(draw: st.DrawFn) -> bytes:
    """A request that can be read."""
    method = draw(st.sampled_from(["GET", "GET", "GET", "HEAD", "POST", "OPTIONS"]))
    version = draw(st.sampled_from(["1.1", "1.1", "1.1", "1.0"]))
    lines = "".join(line + "\r\n" for line in ["Host: a", *draw(LINES)])
    return f"{method} {draw(TARGETS)} HTTP/{version}\r\n{lines}{draw(BODIES)}".encode("latin-1")


def cut(text: bytes, places: list[int]) -> list[bytes]:
    """A text in pieces."""
    edges = [0, *sorted({place % (len(text) + 1) for place in places}), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges) if start < end]


OWN = st.sampled_from([[], [(b"date", b"today")], [(b"date", b"today"), CLOSE]])
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nb"


@example([GET, POST, GET, GET], [], False, False, [])
@example([POST, GET], [], False, True, [])
@example([GET, GET[:-2] + b"Connection: close\r\n\r\n", GET], [], True, False, [])
@given(
    st.lists(questions(), min_size=1, max_size=6),
    st.lists(st.integers(0, 5000), max_size=6),
    st.booleans(),
    st.booleans(),
    OWN,
)
@settings(max_examples=examples(2000), deadline=None)
def test_what_can_be_read_is_answered_as_through_asgi(
    asked: list[bytes], places: list[int], waits: bool, slow: bool, own: list[tuple[bytes, bytes]]
) -> None:
    """Byte for byte, in order, in pieces or at once, for clients that take their answers and for those that do not."""
    pieces = cut(b"".join(asked), places)
    direct = converse(Direct(in_place), pieces, waits=waits, slow=slow, own=own)
    assert direct == converse(PatientProtocol, pieces, waits=waits, slow=slow, own=own)


@given(
    st.lists(questions(), min_size=1, max_size=4),
    st.integers(0, 400),
    st.binary(max_size=3) | st.sampled_from([b"\n", b"\r\n\r\n", b"\x00", b" ", b"X: y\r\n" * 101]),
    st.lists(st.integers(0, 5000), max_size=3),
)
@settings(max_examples=examples(1500), deadline=None)
def test_what_cannot_be_read_ends_in_the_same_way(
    asked: list[bytes], place: int, wrong: bytes, places: list[int]
) -> None:
    """Bytes put in anywhere: as long as each piece is answered before the next, nothing differs.

    But for what is wrong behind a good request that was read with it: in place that has been answered already, and stays
    without `connection: close`; through ASGI it is still waited for, or even lost.
    """
    text = b"".join(asked)
    place %= len(text) + 1
    pieces = cut(text[:place] + wrong + text[place:], places)
    direct = converse(Direct(in_place), pieces, waits=True, slow=False, own=[])
    asgi = converse(PatientProtocol, pieces, waits=True, slow=False, own=[])
    if direct != asgi:
        assert direct.ended == asgi.ended
        assert direct.text.replace(b"connection: close\r\n", b"").startswith(
            asgi.text.replace(b"connection: close\r\n", b"")
        )
        assert direct.text.count(b"HTTP/1.1 ") <= len(asked) + 1


def test_one_client_does_not_take_the_event_loop_for_long() -> None:
    """Of many requests that come at once one is answered in place; others get their turns between the rest."""
    seen: list[str] = []

    def noted(*asked: Any) -> Response | None:
        seen.append("in place")
        return in_place(*asked)

    heard = converse(Direct(noted), [GET * 50], waits=False, slow=False, own=[])
    assert (seen, heard.text.count(b"HTTP/1.1 200")) == (["in place"], 50)


def test_what_is_answered_when_a_server_ends_is_sent() -> None:
    """Even if the server closes its connections before the answers of this round of the event loop are written."""

    async def talk() -> None:
        protocol, transport = connected(Direct(in_place))
        protocol.data_received(GET)
        protocol.shutdown()
        await settled()
        assert transport.written.startswith(b"HTTP/1.1 200")
        assert transport.closing
        protocol.connection_lost(None)

    asyncio.run(talk())


def test_a_client_that_takes_nothing_gets_no_more_answers_made() -> None:
    """While its transport asks to write no more, further requests wait: memory is bounded by what was read."""

    async def talk() -> None:
        protocol, transport = connected(Direct(in_place))
        protocol.pause_writing()
        for _ in range(3):
            protocol.data_received(GET)
            await settled()
        assert transport.written == b""
        protocol.resume_writing()
        await settled()
        assert transport.written.count(b"HTTP/1.1 200") == 3
        protocol.connection_lost(None)

    asyncio.run(talk())


class _Carrier:
    """Takes what begins with `/carried`, and keeps what it is given to read."""

    def __init__(self) -> None:
        self.read: list[bytes] = []

    def wants(self, target: bytes, lines: Sequence[tuple[bytes, bytes]]) -> bool:  # noqa: ARG002 - the contract
        """Whether it takes a request."""
        return target.startswith(b"/carried")

    def take(self, connection: DirectProtocol) -> HandedConnection:  # noqa: ARG002 - the contract
        """What reads a connection from now on."""
        return _Handed(self)

    def drain(self) -> None: ...

    def close(self) -> None: ...


class _Handed(HandedConnection):
    def __init__(self, carrier: _Carrier) -> None:
        self.carrier = carrier

    def data_received(self, data: bytes) -> None:
        """Keep it."""
        self.carrier.read.append(data)

    def drain(self) -> None: ...


def handed(pieces: list[bytes]) -> tuple[DirectProtocol, Recorder, _Carrier]:
    """A connection that these were sent on."""
    carrier = _Carrier()
    protocol, transport = connected(Direct(in_place, carrier=carrier))
    assert isinstance(protocol, DirectProtocol)
    for piece in pieces:
        protocol.data_received(piece)
    return protocol, transport, carrier


CARRIED = b"GET /carried HTTP/1.1\r\nHost: a\r\n\r\n"


def test_a_carrier_gets_a_request_from_its_first_byte() -> None:
    """In whatever pieces it came, blank lines before it, and all that came with it; nothing of what was answered before."""

    async def talk() -> None:
        for answered, pieces in (
            (0, [CARRIED + b"more"]),
            (0, [CARRIED[:5], CARRIED[5:6], CARRIED[6:]]),
            (0, [b"\r", b"\n\r\n", CARRIED]),
            (1, [GET, CARRIED]),
            (1, [GET + b"\r\n", b"\r\n", CARRIED]),
            (1, [GET[:7], GET[7:], CARRIED[:9], CARRIED[9:]]),
        ):
            _, transport, carrier = handed(pieces)
            await settled()
            sent = b"".join(pieces)[len(GET) * answered :]
            assert b"".join(carrier.read).lstrip() == sent.lstrip()
            assert transport.written.count(b"HTTP/1.1 200") == answered
            assert not transport.closing

    asyncio.run(talk())


def test_a_carrier_gets_nothing_of_what_came_behind_another_request() -> None:
    """Where a request began in what was read with another, its bytes are not known apart: the connection ends, with all answered that came before."""

    async def talk() -> None:
        for pieces in ([GET + CARRIED], [GET + CARRIED[:9], CARRIED[9:]], [GET[:9], GET[9:] + CARRIED]):
            _, transport, carrier = handed(pieces)
            await settled()
            assert not carrier.read
            assert transport.written.count(b"HTTP/1.1 200") == 1
            assert transport.finished

    asyncio.run(talk())


def test_what_a_carrier_has_read_ahead_comes_before_what_is_read_next() -> None:
    """Even if that is there before the event loop comes to it."""

    async def talk() -> None:
        protocol, transport, _ = handed([CARRIED])
        protocol.take_back(GET[:20], writable=True)
        protocol.data_received(GET[20:])
        await settled()
        assert transport.written.startswith(b"HTTP/1.1 200")
        assert transport.written.count(b"HTTP/1.1 ") == 1
        protocol.take_back(GET + GET[:20], writable=True)
        await settled()
        protocol.data_received(GET[20:])
        await settled()
        assert transport.written.count(b"HTTP/1.1 200") == 3
        protocol.connection_lost(None)

    asyncio.run(talk())
