"""Connections to backends: made, kept, used again, and not used again."""

from __future__ import annotations

import asyncio
import socket

from gtm.balancer.plane.backend.upstream import Upstream
from gtm.balancer.plane.contracts import Limits
from gtm.balancer.plane.timeouts import TimeoutRules, Timeouts
from tests.balancer.world import Backend, Peer, answering, run, world
from tests.patience import PATIENCE

_GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def _post(body: bytes, *more: bytes) -> bytes:
    lines = b"".join(line + b"\r\n" for line in more)
    return b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%b\r\n%b" % (len(body), lines, body)


def test_an_idle_connection_that_the_backend_closed() -> None:
    """It is not used again, though the event loop has not heard of its end: not even a POST fails by it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answers() -> socket.socket:
        connection, _ = listener.accept()
        connection.recv(65536)
        connection.sendall(_OK)
        return connection

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with world(f"http://127.0.0.1:{listener.getsockname()[1]}") as w:
            client = await w.client()
            for _ in range(2):
                answered = loop.run_in_executor(None, answers)
                client.send(_post(b"1"))
                assert (await client.response()).status == 200
                connection = await answered
                route = w.picker.routes()[0]
                assert (route.waiting, route.open) == (1, 1)
                connection.close()
                assert route.take(w.clock() + 1) is None  # the loop has not turned since
                await w.until(lambda route=route: route.open == 0)  # type: ignore[misc]

    run(main)
    listener.close()


def test_the_rest_of_a_body_behind_head() -> None:
    """A backend that sends a body to HEAD may send the rest of it later: to nobody."""

    async def script(peer: Peer) -> None:
        request = await peer.request()
        if request.start.startswith(b"HEAD"):
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 42\r\n\r\nHTTP/1.1 200 OK\r\n")
            await peer.request()
            peer.send(b"Content-Length: 4\r\n\r\nevil")
        peer.send(_OK)

    async def main() -> None:
        backend = Backend(script)
        async with world(await backend.start()) as w:
            assert (await w.ask(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD")).status == 200
            assert (await w.ask(_GET)).body == b"ok"
            assert backend.connections == 2

    run(main)


def test_an_answer_that_nobody_asked_for() -> None:
    """A connection on which something comes while it waits is not used again."""
    go, said = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(_OK)
        if not go.is_set():
            await go.wait()
            peer.send(_OK.replace(b"ok", b"no"))
            said.set()
        await peer.request()
        peer.send(_OK)

    async def main() -> None:
        backend = Backend(script)
        async with world(await backend.start()) as w:
            assert (await w.ask(_GET)).body == b"ok"
            go.set()
            await said.wait()
            await w.until(lambda: w.picker.routes()[0].open == 0)
            assert (await w.ask(_GET)).body == b"ok"
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


def test_connections_that_cannot_be_made() -> None:
    """Whatever keeps a connection from being made fails the try, and leaves no count."""

    async def main() -> None:
        for error in (
            ConnectionRefusedError("no"),
            ValueError("odd"),
            RuntimeError("odd"),
            UnicodeError("odd"),
        ):

            async def fails(*_: object, error: Exception = error) -> Upstream:
                raise error

            async with world("http://127.0.0.1:1", limits=Limits(tries=1)) as w:
                w.picker.routes()[0].connect = fails  # type: ignore[method-assign,assignment]
                assert (await w.ask(_GET)).status == 502
                assert w.picker.ends == ["failed"]

    run(main)


def test_cancel_while_connecting() -> None:
    """A client that goes leaves no attempt to connect behind."""
    began, ended = asyncio.Event(), asyncio.Event()

    async def hangs(*_: object) -> Upstream:
        began.set()
        try:
            await asyncio.sleep(1000)
        finally:
            ended.set()
        raise AssertionError

    async def main() -> None:
        async with world("http://127.0.0.1:1", timeouts=TimeoutRules(others=Timeouts(connect=1000))) as w:
            w.picker.routes()[0].connect = hangs  # type: ignore[method-assign,assignment]
            client = await w.client()
            client.send(_GET)
            await began.wait()
            assert w.picker.in_flight == 1
            client.abort()
            await asyncio.wait_for(ended.wait(), PATIENCE)
            assert w.picker.ends == ["cancelled"]

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


def test_a_connection_that_waits_is_read() -> None:
    """One that came back while its client was slow is read again: its end would not be noticed."""

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            await w.ask(_GET)
            route = w.picker.routes()[0]
            await w.until(lambda: route.waiting == 1)
            connection = route.take(w.clock())
            assert connection is not None
            connection.transport.pause_reading()
            route.put(connection, w.clock())
            assert connection.transport.is_reading()

    run(main)


def test_a_backend_that_is_taken_from_the_configuration() -> None:
    """What goes on there ends where it is; then its connection ends, which nobody would close or use again."""
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await go.wait()
        peer.send(_OK)
        assert await peer.reader.read() == b""

    async def main() -> None:
        backend = Backend(script)
        async with world(await backend.start()) as w:
            client = await w.client()
            client.send(_GET)
            await w.until(lambda: bool(w.picker.in_flight))
            (route,) = w.picker.routes()
            w.picker.configure(())
            route.close()
            go.set()
            assert (await client.response()).body == b"ok"
            await w.until(lambda: not route.open)
            client.send(_GET)
            assert (await client.response()).status == 503

    run(main)
