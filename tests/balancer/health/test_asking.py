"""The reader of backends' answers, held to whatever bytes may come."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from httptools import HttpParserError
from hypothesis import given
from hypothesis import strategies as st

from gtm.balancer.health.asking import Asking, AskingError, ask, authority, head_of
from gtm.balancer.plane.backend.backends import Route
from gtm.balancer.wire.heads import MAX_HEAD
from tests.balancer.health.world import run
from tests.core.strategies import quick
from tests.patience import PATIENCE
from tests.paused import PausedLoop, prompt_server

MOST = 100
_PARTS = (
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 503 No\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"content-length: 5\r\n",
    b"content-length: 99999999999999999999\r\n",
    b"transfer-encoding: chunked\r\n",
    b"connection: upgrade\r\nupgrade: x\r\n",
    b"\r\n",
    b"5\r\nhello\r\n",
    b"0\r\n\r\n",
    b"hello",
    b"x" * 60,
)


@quick(500)
@given(st.lists(st.sampled_from(_PARTS) | st.binary(max_size=8), max_size=12), st.booleans())
def test_whatever_comes_ends_in_an_answer_or_an_error(pieces: list[bytes], broken: bool) -> None:
    """Nothing else is raised, and no body is longer than is read."""

    async def feed() -> None:
        protocol = Asking(asyncio.get_running_loop().create_future(), MOST)
        for piece in pieces:
            protocol.data_received(piece)
        protocol.connection_lost(ConnectionResetError() if broken else None)
        assert protocol.done.done()
        error = protocol.done.exception()
        if error is None:
            status, body = protocol.done.result()
            assert 200 <= status <= 999
            assert len(body) <= MOST
        else:
            assert isinstance(error, OSError | HttpParserError)
        protocol.close()

    asyncio.run(feed())


_ANSWERS = {
    "nothing": b"",
    "no http": b"SSH-2.0-OpenSSH_9.2\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "half a body": b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc",
    "half a chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
    "a bad chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nab\r\n",
    "a long body": b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 20_000,
    "a long head": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000,
    "a bad status": b"HTTP/1.1 abc OK\r\n\r\n",
    "a switch": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nabc",
}


@pytest.mark.parametrize("answer", _ANSWERS.values(), ids=_ANSWERS.keys())
def test_whatever_is_answered_is_an_error_in_words(answer: bytes) -> None:
    """Or an answer; nothing else is raised, and nothing of the answer is repeated."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        with suppress(ConnectionError):
            await writer.drain()
        writer.close()

    async def test() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        route = Route(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(AskingError) as caught:
            await ask(route, "/health", timeout=PATIENCE, most=10_000)
        assert "no answer within" not in str(caught.value)
        assert "OpenSSH" not in str(caught.value)
        server.close()
        await server.wait_closed()

    run(test)


def test_an_answer_that_came_while_this_process_stood_still_is_one() -> None:
    """It is read when the time for it has gone, for which the backend cannot be blamed: such a process judged all of its backends down at once."""

    async def main() -> int:
        route = Route(f"http://127.0.0.1:{server.port}")
        check = asyncio.create_task(ask(route, "/health", timeout=60, most=MOST))
        await server.stand_still(90)
        return (await check).status

    with (
        prompt_server(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n") as server,
        asyncio.Runner(loop_factory=PausedLoop) as runner,
    ):
        assert runner.run(main()) == 200


@pytest.mark.parametrize(
    "before",
    [
        b"HTTP/1.1 200 OK\r\nx: ",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nx: ",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx: ",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;x=",
    ],
)
def test_nothing_without_end_is_kept(before: bytes) -> None:
    """Neither a head nor trailers, which the parser keeps whole, and joins anew with each piece."""

    async def feed() -> None:
        protocol = Asking(asyncio.get_running_loop().create_future(), 10_000_000)
        protocol.data_received(before)
        pieces = 0
        while not protocol.done.done():
            protocol.data_received(b"y" * 1000)
            pieces += 1
            assert pieces <= MAX_HEAD // 1000 + 1
        assert isinstance(protocol.done.exception(), HttpParserError)

    asyncio.run(feed())


def test_a_long_body_is_no_long_head() -> None:
    """In pieces as small as servers send lines, with trailers."""

    async def feed() -> None:
        protocol = Asking(asyncio.get_running_loop().create_future(), 100_000)
        protocol.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(2_000):
            protocol.data_received(b"20\r\n%b\r\n" % (b"y" * 32))
        protocol.data_received(b"0\r\nx: %b\r\n\r\n" % (b"y" * 10_000))
        assert protocol.done.result() == (200, b"y" * 64_000)

    asyncio.run(feed())


def test_an_answer_in_single_bytes_is_none() -> None:
    """Each costs the loop what a whole page does, and a server that is down may send them for as long as it is asked."""

    async def feed() -> None:
        protocol = Asking(asyncio.get_running_loop().create_future(), 8_000_000)
        protocol.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        pieces = 0
        while not protocol.done.done():
            protocol.data_received(b"1\r\ny\r\n" * 100)
            pieces += 100
        assert pieces <= 400
        assert isinstance(protocol.done.exception(), HttpParserError)

    asyncio.run(feed())


@pytest.mark.parametrize(
    "before",
    [
        b"HTTP/1.1 200 OK\r\nx: ",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx: ",
    ],
)
def test_an_answer_that_comes_byte_by_byte_is_none(before: bytes) -> None:
    """Each time that the network brings one costs, whatever it is a byte of."""

    async def feed() -> None:
        protocol = Asking(asyncio.get_running_loop().create_future(), 8_000_000)
        protocol.data_received(before)
        reads = 0
        while not protocol.done.done():
            protocol.data_received(b"y")
            reads += 1
            assert reads <= 300
        assert isinstance(protocol.done.exception(), HttpParserError)

    asyncio.run(feed())


def test_an_answer_of_framing_is_none() -> None:
    """Extensions of chunks may be as long as a head, each: a few bytes of a body came with gigabytes of them."""

    async def feed() -> None:
        protocol = Asking(asyncio.get_running_loop().create_future(), 8_000_000)
        protocol.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        came = 0
        while not protocol.done.done():
            chunk = b"20;x=%b\r\n%b\r\n" % (b"y" * 30_000, b"y" * 32)
            protocol.data_received(chunk)
            came += len(chunk)
            assert came <= 100_000
        assert isinstance(protocol.done.exception(), HttpParserError)

    asyncio.run(feed())


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 200, b"ok"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n", 200, b"ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n", 503, b""),
        (b"HTTP/1.0 200 OK\r\n\r\nok", 200, b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n", 302, b""),
    ],
)
@pytest.mark.parametrize("piece", [1, 1000])
def test_answers_in_every_framing(answer: bytes, status: int, body: bytes, piece: int) -> None:
    """However they are cut."""
    seen = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        for start in range(0, len(answer), piece):
            writer.write(answer[start : start + piece])
            await asyncio.sleep(0)
        await writer.drain()
        writer.close()

    async def test() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        found = await ask(Route(f"http://127.0.0.1:{port}/base"), "/x?y=1", timeout=PATIENCE, most=10_000)
        assert (found.status, found.body) == (status, body)
        assert seen[0].startswith(b"GET /base/x?y=1 HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n" % port)
        server.close()
        await server.wait_closed()

    run(test)


@pytest.mark.parametrize(
    ("url", "said", "asked"),
    [
        ("http://10.0.0.5:8000", b"llama.models.example.com", b"llama.models.example.com"),
        ("http://10.0.0.5:8000", None, b"10.0.0.5:9000"),
        ("http://[2001:db8::1]:8000", None, b"[2001:db8::1]:9000"),
        ("http://[2001:db8::1]:8000", b"llama:80", b"llama:80"),
    ],
)
def test_checks_call_a_backend_as_requests_do(url: str, said: bytes | None, asked: bytes) -> None:
    """By the host that the file says, as KServe's ingress knows it (kserve/kserve#1665); else by the one that is asked."""
    route = Route(url)
    route.host_field = said
    assert authority(route, 9000) == asked
    assert dict(head_of(route, 9000, 1.0))[":authority"] == asked.decode()
