"""Connections beyond those there is room for, and a process without descriptors."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing
from ipaddress import ip_network

import pytest

from gtm.balancer.plane.client.proxy_protocol import ProxiedConnection
from gtm.runtime.balancer.admin import Admin
from gtm.runtime.process.connections import Connections
from tests.balancer.world import Backend, Peer, World, answering, read_head, run, world
from tests.descriptors import none_left

_GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"


async def _from(w: World, host: str) -> Peer:
    """A client at an address of its own."""
    return await w.client(local_addr=(host, 0))


def test_a_stranger_that_connects_closes_its_own() -> None:
    """Of a full balancer its oldest silent connection goes, and nobody else's: neither one that rests, nor one in an answer."""

    async def script(peer: Peer) -> None:
        while b"stream" not in (await peer.request()).start:
            peer.send(_OK)
        peer.send(_STREAM)
        await peer.reader.read()

    async def main() -> None:
        async with world(await Backend(script).start(), room=Connections(8)) as w:
            resting, streaming = await _from(w, "127.1.0.1"), await _from(w, "127.2.0.1")
            resting.send(_GET)
            assert (await resting.response()).status == 200
            streaming.send(_GET.replace(b"/ ", b"/stream ", 1))
            await read_head(streaming.reader)
            strange = [await _from(w, "127.3.0.1") for _ in range(6)]
            await w.until(lambda: w.proxy.connections == 8)
            for number in range(20):
                strange.append(await _from(w, "127.3.0.1"))
                await w.until(lambda number=number: w.proxy.room.evicted == number + 1)  # type: ignore[misc]
                assert not await strange[number].end()
            new = await _from(w, "127.4.0.1")
            new.send(_GET)
            assert (await new.response()).status == 200
            resting.send(_GET)
            assert (await resting.response()).status == 200
            assert not streaming.reader.at_eof()
            assert w.proxy.connections <= 8

    run(main)


def test_a_trusted_proxy_is_no_client() -> None:
    """The connections of one that many clients stand behind do not count as one client's: the stranger's go first."""

    async def main() -> None:
        backend = await Backend(answering(_OK)).start()
        async with world(backend, room=Connections(8), trusts=lambda peer: peer == "127.1.0.1") as w:
            behind = [await _from(w, "127.1.0.1") for _ in range(6)]
            for one in behind:
                one.send(_GET)
                assert (await one.response()).status == 200
            strange = [await _from(w, "127.3.0.1") for _ in range(2)]
            await w.until(lambda: w.proxy.connections == 8)
            strange.append(await _from(w, "127.3.0.1"))
            assert not await strange[0].end()
            for one in behind:
                one.send(_GET)
                assert (await one.response()).status == 200

    run(main)


def test_an_answer_that_is_cut_for_another_looks_cut() -> None:
    """Where all are in answers, one goes by a reset: what came of its answer is not taken for the whole."""

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbegun")
        await peer.reader.read()

    async def main() -> None:
        async with world(await Backend(script).start(), room=Connections(2)) as w:
            held = [await w.client() for _ in range(2)]
            for one in held:
                one.send(_GET)
                await read_head(one.reader)
            new = await w.client()
            with pytest.raises(ConnectionResetError):
                await held[0].reader.readexactly(100)
            new.send(_GET)
            await read_head(new.reader)

    run(main)


def test_connections_that_have_not_said_whose_they_are_count() -> None:
    """Behind a proxy's header that does not come, as before TLS, nobody holds more than there is room for."""

    async def main() -> None:
        backend = await Backend(answering(_OK)).start()
        async with world(backend, room=Connections(4)) as w:
            trusted = (ip_network("127.0.0.0/8"),)
            loop = asyncio.get_running_loop()
            server = await loop.create_server(
                lambda: ProxiedConnection(w.proxy, trusted), sock=socket.create_server(("127.0.0.1", 0))
            )
            w.address = server.sockets[0].getsockname()
            silent = [await w.client() for _ in range(4)]
            for number in range(6):
                silent.append(await w.client())
                assert not await silent[number].end()
            assert w.proxy.room.evicted == 6
            silent[-1].send(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n" + _GET)
            assert (await silent[-1].response()).status == 200
            for one in silent:
                one.abort()
            await w.until(lambda: len(w.proxy.room) == 0)  # type: ignore[arg-type]
            server.close()

    run(main)


def test_want_of_descriptors_is_no_failure_of_a_backend() -> None:
    """The request is refused, and may be asked again; the backend is not said to have failed. With room, all is as before."""

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            client = await w.client()
            client.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (await client.response()).status == 200
            with none_left():
                client.send(_GET)
                refused = await client.response()
            assert (refused.status, refused.get("retry-after")) == (503, b"1")
            assert b'"no_room"' in refused.body
            assert (w.picker.failures, w.picker.ends) == ([], ["refused"])
            assert w.proxy.stats.without_room == {"request": 1}
            assert not w.proxy.stats.failures
            client.send(_GET)
            assert (await client.response()).status == 200

    run(main)


def test_connections_that_wait_give_their_descriptors() -> None:
    """Where there is none left, those to backends that nobody uses are closed: the next request finds one."""

    async def main() -> None:
        backends = [await Backend(answering(_OK)).start() for _ in range(2)]
        async with world(*backends) as w:
            client = await w.client()
            client.send(_GET)
            assert (await client.response()).status == 200
            first, second = w.picker.routes()
            assert first.waiting == 1
            w.picker.configure((second,))
            with none_left():
                w.proxy.picker = w.picker
                w.picker.configure((second, first))
                client.send(_GET)
                assert (await client.response()).status == 503
                await w.until(lambda: first.open == 0)
                client.send(_GET)
                assert (await client.response()).status == 200

    run(main)


def test_a_page_that_nobody_asks_for() -> None:
    """Connections to a balancer's own page that ask nothing go for others."""

    async def main() -> None:
        admin = Admin(None, (ip_network("127.0.0.0/8"),))  # type: ignore[arg-type]  # nothing is shown
        admin.room = Connections(2)
        server = await asyncio.get_running_loop().create_server(admin.connection, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        silent = [await asyncio.open_connection(*address) for _ in range(6)]
        for reader, _ in silent[:4]:
            assert not await reader.read()
        for _, writer in silent:
            writer.close()
        with closing(server):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b" 404 " in await reader.readline()
            writer.close()

    run(main)
