"""What passes beside and behind an answer: trailers, interim responses, events as they come, tunnels."""

from __future__ import annotations

import asyncio
import os

import pytest

from gtm.balancer.wire.heads import MAX_HEADERS
from gtm.balancer.wire.refusals import Refusal
from tests.balancer.world import Backend, Message, Peer, answering, read_head, run, world
from tests.patience import PATIENCE

_GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_MIB = 2**20


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


# --- trailers, interim responses ---


def test_trailers() -> None:
    """An answer's trailers come behind it."""

    async def main() -> None:
        said = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + _chunk(b"x")
        said += b"0\r\nX-Sum: 1\r\nX-Other: 2\r\n\r\n"
        async with world(await Backend(answering(said)).start()) as w:
            client = await w.client()
            for _ in range(2):
                client.send(_GET)
                answer = await client.response()
                assert answer.trailers == [(b"X-Sum", b"1"), (b"X-Other", b"2")]

    run(main)


@pytest.mark.parametrize("more", [0, 1])
def test_as_many_trailers_go_on_as_a_head_has_lines(more: int) -> None:
    """With more, the answer breaks off: who got some of them would take them for all."""

    async def main() -> None:
        lines = b"".join(b"X-%d: 1\r\n" % number for number in range(MAX_HEADERS + more))
        said = (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            + _chunk(b"x")
            + b"0\r\n"
            + lines
            + b"\r\n"
        )
        async with world(await Backend(answering(said)).start()) as w:
            answer = await w.ask(_GET)
            assert answer.whole is not bool(more)
            assert len(answer.trailers) == (0 if more else MAX_HEADERS)
            await w.until(lambda: bool(w.picker.failures) is bool(more))

    run(main)


def test_expect_where_the_choice_needs_no_body() -> None:
    """Gtm asks for the body itself: one that does not come holds no place at a backend."""

    async def main() -> None:
        seen: list[Message] = []
        async with world(await Backend(answering(_OK, seen=seen)).start()) as w:
            client = await w.client()
            client.send(b"POST /yes HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
            assert (await client.response()).status == 100
            assert not w.picker.in_flight
            client.send(b"abc")
            assert (await client.response()).status == 200
            assert (seen[0].body, seen[0].get("expect")) == (b"abc", None)

    run(main)


def test_expect_where_the_choice_needs_the_body() -> None:
    """It is asked by gtm itself, once; the backend is not asked again."""

    async def main() -> None:
        seen: list[Message] = []
        async with world(await Backend(answering(_OK, seen=seen)).start()) as w:
            client = await w.client()
            body = b'{"model": "m"}'
            client.send(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % len(body)
            )
            assert (await client.response()).status == 100
            client.send(body)
            assert (await client.response()).status == 200
            assert seen[0].body == body
            assert seen[0].get("expect") is None

    run(main)


def test_expect_is_not_answered_for_what_is_refused() -> None:
    """A request that the law refuses is refused before its body comes."""

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            w.gate.refusal = Refusal(451, "fence", "not here")
            client = await w.client()
            client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
            answer = await client.response()
            assert (answer.status, answer.get("connection")) == (451, b"close")
            assert await client.end() == b""

    run(main)


def test_a_flood_of_interim_responses() -> None:
    """1xx without end is a failure, not a stream."""

    async def main() -> None:
        said = b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000
        async with world(await Backend(answering(said)).start()) as w:
            assert (await w.ask(_GET)).status in (103, 502)

    run(main)


# --- events, upgrades ---


def test_events_as_they_come() -> None:
    """Each event reaches the client before the next is sent: in lock-step."""
    turn = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(_EVENTS)
        for number in range(50):
            peer.send(_chunk(b"data: %d\n\n" % number))
            await turn.wait()
            turn.clear()
        peer.send(b"0\r\n\r\n")

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            client.send(_GET)
            await read_head(client.reader)
            for number in range(50):
                await asyncio.wait_for(client.reader.readuntil(b"data: %d\n\n\r\n" % number), PATIENCE)
                turn.set()
            assert (await client.reader.readuntil(b"0\r\n\r\n")) == b"0\r\n\r\n"

    run(main)


_UPGRADE = b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: k\r\n\r\n"
_SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


def test_websocket() -> None:
    """Both sides leave HTTP: bytes go both ways as they are, also those that came early, and the end is told."""
    got = bytearray()

    async def script(peer: Peer) -> None:
        head = await read_head(peer.reader)
        assert head.get("upgrade") == b"websocket"
        await asyncio.sleep(0.01)
        peer.send(_SWITCH + b"\x81\x05hello")
        while data := await peer.reader.read(65536):
            got.extend(data)
            peer.send(data)

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            client.send(_UPGRADE + b"\x81\x85early")
            head = await client.response()
            assert (head.status, head.get("upgrade")) == (101, b"websocket")
            assert await client.reader.readexactly(7) == b"\x81\x05hello"
            assert await client.reader.readexactly(7) == b"\x81\x85early"
            blob = os.urandom(3 * _MIB) + b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
            client.send(blob)
            assert await asyncio.wait_for(client.reader.readexactly(len(blob)), PATIENCE) == blob
            client.send(b"last")
            client.close()
            await w.until(lambda: got.endswith(b"last"))
            assert bytes(got) == b"\x81\x85early" + blob + b"last"
            await w.nothing_left()
            assert w.picker.ends == ["answered"]

    run(main)


def test_the_end_of_a_tunnel_keeps_its_order() -> None:
    """What a client sent before it went reaches a backend that reads slowly."""
    got = 0
    ended = asyncio.Event()

    async def script(peer: Peer) -> None:
        nonlocal got
        await read_head(peer.reader)
        peer.send(_SWITCH)
        while data := await peer.reader.read(65536):
            got += len(data)
            await asyncio.sleep(0)
        ended.set()

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            client.send(_UPGRADE)
            assert (await client.response()).status == 101
            client.send(bytes(20 * _MIB))
            client.close()
            await ended.wait()
            assert got == 20 * _MIB

    run(main)


def test_much_that_is_said_before_a_tunnel_opens() -> None:
    """It is more than is kept, so reading stops; once the tunnel is there all of it arrives, and the client's end too."""
    early = bytes(range(256)) * 4096
    got = bytearray()

    async def script(peer: Peer) -> None:
        await read_head(peer.reader)
        await go.wait()
        peer.send(_SWITCH)
        while piece := await peer.reader.read(65536):
            got.extend(piece)

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            client.send(_UPGRADE + early)
            await w.until(lambda: bool(w.admission.inside))
            (exchange,) = w.admission.inside
            await w.until(lambda: exchange.client.paused)
            go.set()
            await w.until(lambda: len(got) == len(early))
            assert got == early
            client.close()
            await w.until(lambda: not w.admission.inside)

    go = asyncio.Event()
    run(main)


def test_a_tunnel_that_the_backend_ends() -> None:
    """What it sent before reaches the client."""

    async def script(peer: Peer) -> None:
        await read_head(peer.reader)
        peer.send(_SWITCH + b"bye")

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            client.send(_UPGRADE)
            assert (await client.response()).status == 101
            assert await client.end() == b"bye"

    run(main)
