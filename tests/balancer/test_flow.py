"""Who waits for whom: pressure in both directions, times by a clock in the test's hands, draining."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from gtm.balancer.plane.client.downstream import Downstream
from gtm.balancer.plane.exchange import Exchange
from tests.balancer.world import Backend, Message, Peer, answering, read_head, run, world

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


async def _gone_after_bytes(peer: Peer) -> None:
    try:
        while await peer.reader.read(65536):
            pass
    except ConnectionError:
        pass


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


@pytest.mark.parametrize(
    ("first", "queued"), [(_GET, False), (_GET, True), (b"GET / HTTP/1.0\r\n\r\n", False)]
)
def test_a_client_whose_end_stands_behind_what_it_has_sent(first: bytes, queued: bool) -> None:
    """It is found gone at once: also where more than kernels hold stands behind its request, and reading has stopped."""

    async def main() -> None:
        backend = Backend(_gone_after_bytes)
        async with world(await backend.start()) as w:
            w.admission.holds = queued
            client = await w.client()
            client.send(first + _post(bytes(32 * _MIB)))
            await w.until(lambda: bool(w.admission.waiting or backend.peers))
            exchange = next(iter(w.admission.inside))
            if exchange.head.keep_alive:  # else nobody will hear what follows, and it may be read to its end
                await w.until(lambda: exchange.client.paused)
            client.abort()
            w.pass_time(1.1)
            await w.until(lambda: not w.admission.inside)
            assert w.picker.ends == ([] if queued else ["cancelled"])
            await w.until(lambda: all(peer.reader.at_eof() for peer in backend.peers))

    run(main)


def test_a_client_that_is_asked_whether_it_is_there() -> None:
    """One that is gets interim responses, then all answers; one of HTTP/1.0, which knows none, gets none."""
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        while (await peer.request()).whole:
            await go.wait()
            peer.send(_OK)

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client, old = await w.client(), await w.client()
            client.send(_GET + _post(bytes(_MIB)))
            old.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + _post(bytes(_MIB)))
            await w.until(lambda: len(w.admission.inside) == 2)
            await w.until(lambda: all(one.client.paused for one in w.admission.inside))
            for _ in range(3):
                w.pass_time(1.1)
            go.set()
            statuses = [(await client.response()).status for _ in range(5)]
            assert statuses == [100, 100, 100, 200, 200]
            assert [(await old.response()).status for _ in range(2)] == [200, 200]

    run(main)


def test_more_framing_than_body() -> None:
    """Sizes, extensions and trailers without end are refused, and are a backend's failure."""
    ask = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def main() -> None:
        for flood in (
            b"1;" + b"x" * 200_000,
            b"0\r\nX: " + b"x" * 200_000,
            (b"1;" + b"x" * 9000 + b"\r\nx\r\n") * 20,
        ):

            async def script(peer: Peer, flood: bytes = flood) -> None:
                await peer.request()
                peer.send(answer + flood)
                await _gone_after_bytes(peer)

            async with world(await Backend(script).start()) as w:
                refused = await w.ask(ask + flood)
                assert (refused.status, b'"code":"chunks"' in refused.body) == (400, True)
                assert not (await w.ask(_GET)).whole
                assert len(w.picker.failures) == 1

    run(main)


# --- order ---


def test_bytes_are_read_in_order() -> None:
    """What came while a request was answered is read before what comes then, also of a body, and when both come at once."""
    seen: list[Message] = []
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        while True:
            seen.append(await peer.request())
            await go.wait()
            peer.send(_OK)

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            client.send(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n")
            await w.until(lambda: len(seen) == 1)
            held = next(iter(w.proxy.clients))
            body = bytes(range(256)) * 1000
            held.data_received(
                b"POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 256000\r\n\r\n" + body[:100_000]
            )
            held.data_received(body[100_000:])
            held.data_received(b"GET /3 HTTP/1.1\r\nHo")
            finished = Downstream.finished
            late = [b"", b"st: a\r\n\r\nGET /4 HTTP/1.1\r\n", b"Host: a\r\n\r\n", b""]

            def and_more(self: Downstream, *args: Any, **more: Any) -> None:
                """The event loop has read more in the same turn."""
                finished(self, *args, **more)
                self.data_received(late.pop(0))

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Downstream, "finished", and_more)
                go.set()
                for _ in range(4):
                    assert (await client.response()).status == 200
            assert [message.start[-11:-9] for message in seen] == [b"/1", b"/2", b"/3", b"/4"]
            assert seen[1].body == body

    run(main)


def test_the_body_of_a_request_that_waited() -> None:
    """A request whose head came together with the one before, and its body while that was answered."""
    seen: list[Message] = []
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        while True:
            seen.append(await peer.request())
            await go.wait()
            peer.send(_OK)

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            body = os.urandom(200_000)
            client.send(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n" + _post(body)[:100])
            await w.until(lambda: len(seen) == 1)
            held = next(iter(w.proxy.clients))
            client.send(_post(body)[100:])
            await w.until(lambda: held.kept > 1000)
            go.set()
            for _ in range(2):
                assert (await client.response()).status == 200
            assert seen[1].body == body

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
            w.pass_time(599)
            assert w.picker.in_flight == 1
            w.pass_time(2)
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
            await w.until(lambda: len(w.gate.judged) == 2)
            w.proxy.look()
            w.pass_time(11)
            assert await silent.end() == b""
            assert (await slow.response()).status == 408
            assert (await body.response()).status == 408
            w.pass_time(65)
            assert await idle.end() == b""
            assert w.picker.in_flight == 0
        async with world(await Backend(long).start()) as w:
            client = await w.client()
            client.send(_GET)
            await read_head(client.reader)
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            exchange = next(iter(w.proxy.clients))
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
            idle, stream, begun, fresh, silent = [await w.client() for _ in range(5)]
            idle.send(_GET)
            await idle.response()
            stream.send(_GET.replace(b"/", b"/stream", 1))
            await stream.reader.readuntil(b"data: 1\n\n\r\n")
            begun.send(_GET[:10])
            await w.until(lambda: any(client.in_head for client in w.proxy.clients))
            await w.until(lambda: w.proxy.connections == 5)
            w.proxy.drain()
            fresh.send(_GET)  # it could not know
            answer = await fresh.response()
            assert (answer.status, answer.get("connection")) == (200, b"close")
            w.pass_time(w.proxy.limits.first_request + 0.1)
            assert await silent.end() == b""
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


def test_a_body_in_bytes_leaves_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of a MB at once in chunks of one byte: others come in between, often, and all of it arrives, in chunks that are larger."""
    body = b"x" * 40_000
    chunked = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    turns, pieces, inside = [0], 0, Exchange.body

    def counted(exchange: Exchange, piece: bytes) -> None:
        nonlocal pieces
        turns[-1] += len(piece)
        pieces += 1
        inside(exchange, piece)

    monkeypatch.setattr(Exchange, "body", counted)

    async def main() -> None:
        seen: list[Message] = []
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        async with world(await Backend(answering(answer, seen=seen)).start()) as w:
            loop = asyncio.get_running_loop()

            def others() -> None:
                turns.append(0)
                loop.call_soon(others)

            loop.call_soon(others)
            head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            assert (await w.ask(head + chunked)).status == 200
        assert [one.body for one in seen] == [body]

    run(main)
    assert sum(turns) == len(body)
    assert max(turns) < 2000
    assert pieces < 100


def test_an_error_of_gtms_own_in_a_body_ends_its_request_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the client told; others go on."""

    def fails(exchange: Exchange, piece: bytes) -> None:
        raise RuntimeError(f"{len(piece)} bytes of {exchange.head.target!r}")

    async def main() -> None:
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        async with world(await Backend(answering(answer)).start()) as w:
            with monkeypatch.context() as patch:
                patch.setattr(Exchange, "body", fails)
                for raw in (
                    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc",
                    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
                ):
                    refused = await w.ask(raw)
                    assert (refused.status, refused.get("connection")) == (500, b"close")
            assert (await w.ask(_GET)).status == 200

    run(main)
    assert caplog.text.count("3 bytes of") == 2
