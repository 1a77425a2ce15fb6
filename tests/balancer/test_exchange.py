"""What a request meets on its way: pressure, cancellation, lost backends, retries, streams, upgrades, draining."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from gtm.balancer.proxy import Limits
from gtm.balancer.refusals import Refusal
from tests.balancer.world import Backend, Message, Peer, World, answering, read_body, read_head, run, world

_GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_MIB = 2**20


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _post(body: bytes, *more: bytes) -> bytes:
    lines = b"".join(line + b"\r\n" for line in more)
    return b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%b\r\n%b" % (len(body), lines, body)


def _resident() -> int:
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- pressure ---


def test_slow_reader() -> None:
    """A client that does not read holds the backend back, and little memory; then it gets all, unharmed."""
    size = 200 * _MIB
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        block = bytes(_MIB)
        for _ in range(size // _MIB):
            peer.send(block)
            await peer.writer.drain()
            sent += _MIB

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            before = _resident()
            client.send(_GET)
            await read_head(client.reader)
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            last = -1
            while sent != last:  # until the backend cannot go on
                last = sent
                await asyncio.sleep(0.05)
            assert sent < 40 * _MIB
            assert _resident() - before < 40 * _MIB
            client.writer.transport.resume_reading()  # type: ignore[attr-defined]
            left = size
            while left:
                left -= len(await client.reader.read(_MIB))
            assert _resident() - before < 60 * _MIB

    run(main)


def test_slow_backend() -> None:
    """A backend that does not read holds the client back, and little memory; then it gets all."""
    size = 200 * _MIB
    go = asyncio.Event()
    sent = got = 0

    async def script(peer: Peer) -> None:
        nonlocal got
        await read_head(peer.reader)
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await go.wait()
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        while got < size:
            got += len(await peer.reader.read(_MIB))
        peer.send(_OK)

    async def upload(client: Peer) -> None:
        nonlocal sent
        client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size)
        block = bytes(_MIB)
        for _ in range(size // _MIB):
            client.send(block)
            await client.writer.drain()
            sent += _MIB

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            before = _resident()
            task = asyncio.create_task(upload(client))
            last = -1
            while sent != last:
                last = sent
                await asyncio.sleep(0.05)
            assert sent < 40 * _MIB
            assert _resident() - before < 40 * _MIB
            go.set()
            await task
            assert (await client.response()).status == 200
            assert got == size

    run(main)


def test_upload_waits_in_the_queue() -> None:
    """What waits for admission is not read without end."""

    async def main() -> None:
        seen: list[Message] = []
        async with world(await Backend(answering(_OK, seen=seen)).start()) as w:
            w.admission.holds = True
            client = await w.client()
            body = os.urandom(8 * _MIB)
            client.send(_post(body))
            await w.until(lambda: bool(w.admission.waiting))
            exchange = w.admission.waiting[0]
            await w.until(lambda: exchange.client.paused)
            assert exchange.received < _MIB
            exchange.admitted()
            assert (await client.response()).status == 200
            assert seen[0].body == body

    run(main)


# --- cancellation ---


async def _gone(peer: Peer) -> None:
    assert await peer.end() == b""


def test_cancel_reaches_the_backend() -> None:
    """A client that goes takes its request with it, whatever it waits for: the backend sees the end, and nothing is in flight."""
    began, seen = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        began.set()
        await _gone(peer)
        seen.set()

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            for leave in (Peer.close, Peer.abort):
                began.clear()
                seen.clear()
                client = await w.client()
                client.send(_GET)
                await began.wait()
                assert w.picker.in_flight == 1
                leave(client)
                await seen.wait()
                assert w.picker.in_flight == 0
            assert w.picker.ends == ["cancelled"] * 2

    run(main)


def test_cancel_in_the_middle_of_a_stream() -> None:
    """A stream that nobody reads any more ends at the backend."""
    seen = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(_EVENTS + _chunk(b"data: 1\n\n"))
        await _gone(peer)
        seen.set()

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            client.send(_GET)
            await client.reader.readuntil(b"data: 1\n\n")
            client.close()
            await seen.wait()
            assert w.picker.in_flight == 0

    run(main)


def test_a_half_closed_client_is_gone() -> None:
    """A client that says that it sends no more is taken for gone."""
    began = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        began.set()
        await _gone(peer)

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            client.send(_GET)
            await began.wait()
            client.writer.write_eof()
            assert await client.end() == b""
            assert w.picker.ends == ["cancelled"]

    run(main)


# --- lost backends, retries ---


def test_a_stream_that_breaks_off() -> None:
    """A stream of events that breaks off ends with an event that says so, and never with the last chunk."""

    async def script(peer: Peer) -> None:
        request = await peer.request()
        peer.send(_EVENTS + _chunk(b"data: 1\n\n"))
        if b"/middle" in request.start:
            peer.send(_chunk(b"data: half"))
        await asyncio.sleep(0.01)
        peer.abort()

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            answer = await w.ask(_GET)
            assert not answer.whole
            assert answer.body.startswith(b"data: 1\n\ndata: {")
            assert b'"backend_lost"' in answer.body
            assert answer.body.endswith(b"\n\n")
            middle = await w.ask(_GET.replace(b"/", b"/middle", 1))
            assert (middle.body, middle.whole) == (b"data: 1\n\ndata: half", False)
            assert w.picker.ends == ["failed"] * 2
            assert len(w.picker.failures) == 2

    run(main)


def test_an_answer_without_a_length_that_breaks_off() -> None:
    """To HTTP/1.0, where the connection's end is the answer's, it must not look like one."""

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + _chunk(b"half"))
        await asyncio.sleep(0.01)
        peer.abort()

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            client.send(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n")
            await read_head(client.reader)
            reset = False
            try:
                await asyncio.wait_for(client.reader.read(), 3)
            except ConnectionResetError:
                reset = True
            assert reset

    run(main)


def test_retries() -> None:
    """Another backend is asked where none can have begun, or the method or a key allows it; else the failure is told."""

    async def dies(peer: Peer) -> None:
        await peer.request()
        peer.abort()

    async def main() -> None:
        good = await Backend(answering(_OK)).start()
        dead = await Backend(dies).start()
        for raw, status in (
            (_GET, 200),
            (_post(b"x"), 502),
            (_post(b"x", b"Idempotency-Key: 1"), 200),
            (_post(b"x").replace(b"POST", b"PUT"), 200),
            (_post(b"x" * 100_000).replace(b"POST", b"PUT"), 502),  # no longer kept
        ):
            async with world(dead, good) as w:
                assert (await w.ask(raw)).status == status, raw[:30]
                assert len(w.picker.failures) == 1
        async with world("http://127.0.0.1:1", good) as w:  # nobody listens: nothing was sent
            assert (await w.ask(_post(b"x"))).status == 200
        async with world(dead, good, limits=Limits(retries_free=0, retry_share=0)) as w:
            assert (await w.ask(_GET)).status == 502  # the budget

    run(main)


def test_no_retry_once_an_answer_began() -> None:
    """A backend that has said 103 has begun."""

    async def dies(peer: Peer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        await asyncio.sleep(0.01)
        peer.abort()

    async def main() -> None:
        good = Backend(answering(_OK))
        async with world(await Backend(dies).start(), await good.start()) as w:
            client = await w.client()
            client.send(_GET)
            assert (await client.response()).status == 103
            assert (await client.response()).status == 502
            assert not good.connections

    run(main)


def test_an_idle_connection_that_the_backend_closed() -> None:
    """It is not used again, though the event loop has not heard of its end: not even a POST fails by it."""

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(_OK)

    async def main() -> None:
        backend = Backend(script)
        async with world(await backend.start()) as w:
            client = await w.client()
            client.send(_post(b"1"))
            await client.response()
            route = w.picker.routes()[0]
            w.clock.ahead += 1
            kept = route.take(w.clock())
            assert kept is None or not kept.silent
            await w.until(lambda: route.open == 0)
            client.send(_post(b"2"))
            assert (await client.response()).status == 200
            assert backend.connections == 2

    run(main)


def test_a_backend_that_hangs_up_at_once() -> None:
    """One that takes connections and closes them before anything was sent is not waited for."""

    async def script(peer: Peer) -> None:
        peer.abort()

    async def main() -> None:
        good = await Backend(answering(_OK)).start()
        async with world(await Backend(script).start(), good) as w:
            for _ in range(20):
                assert (await w.ask(_GET)).status == 200

    run(main)


def test_connections_are_kept() -> None:
    """One connection carries request after request."""

    async def main() -> None:
        backend = Backend(answering(_OK))
        async with world(await backend.start()) as w:
            client = await w.client()
            for _ in range(50):
                client.send(_GET, _post(b"abc"))
                assert (await client.response()).status == 200
                assert (await client.response()).status == 200
            assert backend.connections == 1
            w.pass_time(5)
            await w.until(lambda: w.picker.routes()[0].open == 0)

    run(main)


def test_an_answer_before_the_body() -> None:
    """An early answer goes to the client while it still sends; then the connection ends, and the backend's too."""

    async def script(peer: Peer) -> None:
        await read_head(peer.reader)
        peer.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno")
        await _gone_after_bytes(peer)

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nabc")
            answer = await client.response()
            assert (answer.status, answer.body, answer.get("connection")) == (413, b"no", b"close")
            client.send(b"x" * 100_000)  # taken, and read by nobody: a reset would take the answer away
            assert await client.end() == b""

    run(main)


async def _gone_after_bytes(peer: Peer) -> None:
    try:
        while await peer.reader.read(65536):
            pass
    except ConnectionError:
        pass


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


def test_expect_where_the_choice_needs_no_body() -> None:
    """The backend says whether the body shall come."""

    async def script(peer: Peer) -> None:
        while True:
            head = await read_head(peer.reader)
            assert head.get("expect") == b"100-continue"
            if b"/no" in head.start:
                peer.send(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
                return
            peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            await read_body(peer.reader, head)
            peer.send(_OK)

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            client.send(b"POST /yes HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
            assert (await client.response()).status == 100
            client.send(b"abc")
            assert (await client.response()).status == 200
            client.send(b"POST /no HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
            answer = await client.response()
            assert (answer.status, answer.get("connection")) == (401, b"close")

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
                await asyncio.wait_for(client.reader.readuntil(b"data: %d\n\n\r\n" % number), 3)
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
            assert await asyncio.wait_for(client.reader.readexactly(len(blob)), 5) == blob
            client.send(b"last")
            client.close()
            await w.until(lambda: got.endswith(b"last"))
            assert bytes(got) == b"\x81\x85early" + blob + b"last"
            await w.nothing_left()
            assert w.picker.ends == ["answered"]

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


# --- times, by a clock in the test's hands ---


async def _silent(peer: Peer) -> None:
    await peer.request()
    await _gone_after_bytes(peer)


def test_backends_that_are_late() -> None:
    """No head in time: 504. Nothing more of an answer in time: it breaks off."""

    async def stalls(peer: Peer) -> None:
        await peer.request()
        peer.send(_EVENTS + _chunk(b"data: 1\n\n"))
        await _gone_after_bytes(peer)

    async def main() -> None:
        async with world(await Backend(_silent).start()) as w:
            client = await w.client()
            client.send(_GET)
            await w.until(lambda: w.picker.in_flight == 1)
            await w.until(lambda: w.picker.routes()[0].open == 1)
            w.pass_time(599)
            assert w.picker.in_flight == 1
            w.pass_time(2)
            assert (await client.response()).status == 504
            assert w.picker.ends == ["failed"]
        async with world(await Backend(stalls).start()) as w:
            client = await w.client()
            client.send(_GET)
            await client.reader.readuntil(b"data: 1\n\n\r\n")
            w.pass_time(61)
            assert b"backend_lost" in await client.end()

    run(main)


def test_clients_that_are_late() -> None:
    """A head, a body, a next request, and the taking of an answer: each has its time."""

    async def long(peer: Peer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        for _ in range(100):
            peer.send(bytes(_MIB))
            await peer.writer.drain()

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            silent, slow, body, idle = [await w.client() for _ in range(4)]
            slow.send(b"GET / HT")
            body.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na")
            idle.send(_GET)
            await idle.response()
            await w.until(lambda: w.picker.in_flight == 1)
            w.pass_time(11)
            assert await silent.end() == b""
            assert (await slow.response()).status == 408
            w.pass_time(50)
            assert (await body.response()).status == 408
            w.pass_time(15)
            assert await idle.end() == b""
            assert w.picker.in_flight == 0
        async with world(await Backend(long).start()) as w:
            client = await w.client()
            client.send(_GET)
            await read_head(client.reader)
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            exchange = next(iter(w.proxy._clients))
            await w.until(lambda: not exchange.writable)
            await asyncio.sleep(0.05)
            w.pass_time(1)
            w.pass_time(61)
            await w.until(lambda: w.picker.in_flight == 0)

    run(main)


# --- draining ---


def test_draining() -> None:
    """Streams finish, waiting connections end, and what is still asked is answered with `connection: close`."""
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            if b"stream" in request.start:
                peer.send(_EVENTS + _chunk(b"data: 1\n\n"))
                await go.wait()
                peer.send(_chunk(b"data: 2\n\n") + b"0\r\n\r\n")
            else:
                peer.send(_OK)

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            idle, stream, begun = [await w.client() for _ in range(3)]
            idle.send(_GET)
            await idle.response()
            stream.send(_GET.replace(b"/", b"/stream", 1))
            await stream.reader.readuntil(b"data: 1\n\n\r\n")
            begun.send(_GET[:10])
            await w.until(lambda: any(client._in_head for client in w.proxy._clients))
            w.proxy.drain()
            assert await idle.end() == b""
            begun.send(_GET[10:])
            answer = await begun.response()
            assert (answer.status, answer.get("connection")) == (200, b"close")
            new = await w.client()
            new.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            answer = await new.response()
            assert (answer.status, answer.get("connection")) == (503, b"close")
            go.set()
            assert await stream.end() == _chunk(b"data: 2\n\n") + b"0\r\n\r\n"
            await w.until(lambda: not w.proxy.connections)

    run(main)


# --- errors of gtm's own ---


def test_what_raises_inside_ends_one_request_only() -> None:
    """A gate, admission or picker that raises costs its request a 500, and no count."""

    class WrongError(Exception): ...

    def raises(*_: object) -> None:
        raise WrongError

    async def main() -> None:
        for part, name in (
            ("gate", "judge"),
            ("gate", "more_headers"),
            ("admission", "offer"),
            ("picker", "pick"),
        ):
            async with world(await Backend(answering(_OK)).start()) as w:
                owner = getattr(w, part)
                old = getattr(owner, name)
                setattr(owner, name, raises)
                client = await w.client()
                client.send(_GET)
                assert (await client.response()).status == 500, name
                setattr(owner, name, old)
                await w.until(lambda w=w: not w.picker.in_flight)  # type: ignore[misc]
                assert (await w.ask(_GET)).status == 200
                w.admission.wrong.clear()  # it never heard of what it raised for

    run(main)


def test_many_refused_at_once() -> None:
    """A queue that empties into refusals, each making room for the next, needs no stack."""

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            await _chain(w)

    run(main)


async def _chain(w: World) -> None:
    admission = w.admission
    admission.holds = True
    clients = [await w.client() for _ in range(300)]
    for client in clients:
        client.send(_GET)
    await w.until(lambda: len(admission.waiting) == len(clients))
    w.picker.pick = lambda *_: Refusal(503, "no_backend", "x")  # type: ignore[method-assign]
    ended = admission.ended

    def next_please(exchange: object, now: float) -> None:
        ended(exchange, now)  # type: ignore[arg-type]
        if admission.waiting:
            admission.waiting[0].admitted()

    admission.ended = next_please  # type: ignore[method-assign]
    admission.waiting[0].admitted()
    for client in clients:
        assert (await client.response()).status == 503
