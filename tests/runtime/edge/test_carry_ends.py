"""However a carried request, its connection, its edge or the law it came under ends, nothing of it is left: no connection, count, timer or byte."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from gtm.core.model.policy import Policy
from gtm.core.model.services import HttpAnswer
from gtm.core.policy.edges import EdgePlace
from gtm.runtime.process.http import PatientServer
from tests import worlds
from tests.balancer.world import Peer, Script, run
from tests.patience import PATIENCE
from tests.runtime.edge.carrying import AWAY, CENTRAL, OK, WEST, Carrying, carrying, get
from tests.runtime.edge.test_carry_wire import SWITCH, UPGRADE

_STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Held:
    """A region that answers when it is told to: first a part, then the rest."""

    def __init__(self, first: bytes = b"", rest: bytes = OK) -> None:
        self.first, self.rest = first, rest
        self.got = asyncio.Event()
        self.go = asyncio.Event()
        self.requests = 0
        self.ended = 0

    async def __call__(self, peer: Peer) -> None:
        while True:
            await peer.request()
            self.requests += 1
            peer.send(self.first)
            self.got.set()
            end = asyncio.ensure_future(peer.reader.read(1))
            go = asyncio.ensure_future(self.go.wait())
            await asyncio.wait((end, go), return_when=asyncio.FIRST_COMPLETED)
            go.cancel()
            if end.done():
                self.ended += 1
                return
            end.cancel()
            await asyncio.wait((end,))
            peer.send(self.rest)


def _fence(allow: str) -> Callable[[Policy], Policy]:
    def change(before: Policy) -> Policy:
        rule = worlds.rule("gdpr", allow, services="chat", client_countries="DE")
        return replace(
            before,
            residency_rules=tuple(rule if one.name == "gdpr" else one for one in before.residency_rules),
        )

    return change


def _redirected(before: Policy) -> Policy:
    return worlds.changed(before, "services", "chat", answer=HttpAnswer.REDIRECT)


def _gone(before: Policy) -> Policy:
    return replace(
        before,
        services=tuple(one for one in before.services if one.name != "chat"),
        residency_rules=tuple(one for one in before.residency_rules if one.name != "gdpr"),
    )


# --- a law that changes ---


@pytest.mark.parametrize(
    "change", [_fence("IE"), _fence("US"), _redirected, _gone], ids=["region", "edge", "answer", "service"]
)
@pytest.mark.parametrize("what", ["body", "tunnel"])
def test_no_more_of_a_request_goes_where_the_law_no_longer_lets_it(
    change: Callable[[Policy], Policy], what: str
) -> None:
    """What is still being sent, or spoken in a tunnel, ends when somebody looks; a law that allows it ends nothing."""

    async def main() -> None:
        ended = asyncio.Event()
        got = asyncio.Event()

        async def script(peer: Peer) -> None:
            await peer.reader.readuntil(b"\r\n\r\n")
            if what == "tunnel":
                peer.send(SWITCH)
            got.set()
            await peer.end()
            ended.set()

        async with carrying(script) as (world, backends):
            client = await world.client()
            if what == "tunnel":
                client.send(UPGRADE)
                await client.reader.readuntil(b"\r\n\r\n")
            else:
                client.send(
                    get("/a", "chat.demo.test", "Content-Length: 200000", method="POST") + bytes(70_000)
                )
            await asyncio.wait_for(got.wait(), PATIENCE)
            world.load(_fence("DE"))
            world.pass_time(1)
            assert not ended.is_set()
            assert world.proxy.connections == 1
            world.load(change)
            world.pass_time(1)
            await asyncio.wait_for(ended.wait(), PATIENCE)
            if what == "body":
                answer = await client.response()
                assert (answer.status, b"law_changed" in answer.body) == (503, True)
            assert await client.end() == b""
            assert not backends[1].connections
            assert not backends[2].connections

    run(main)


def test_what_was_sent_whole_is_answered() -> None:
    """Whatever the law is by then."""

    async def main() -> None:
        held = Held()
        async with carrying(held) as (world, _):
            client = await world.client()
            client.send(get())
            await asyncio.wait_for(held.got.wait(), PATIENCE)
            world.load(_fence("US"))
            world.pass_time(1)
            held.go.set()
            assert (await client.response()).body == b"ok"
            client.send(get())
            assert (await client.response()).status == 307  # this edge stands outside now

    run(main)


@pytest.mark.parametrize("allow", ["DE", "DE US", "DE IE"])
def test_another_region_is_asked_under_the_law_of_now(allow: str) -> None:
    """Not one that was inside when the request came, nor one that only is now."""

    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.request()
            world.load(_fence(allow))

        async with carrying(script) as (world, backends):
            answer = await world.ask(get())
            assert answer.status == (200 if "IE" in allow else 503)
            assert ("IE" in allow) == bool(
                backends[1].connections and answer.get("x-gtm-region") == WEST.encode()
            )
            assert not backends[2].connections

    run(main)


def test_an_edge_that_comes_to_stand_outside_reads_no_further() -> None:
    """A region that it runs in may be said to be elsewhere; the next request is its client's to bring there."""

    async def main() -> None:
        place = EdgePlace(region=CENTRAL)
        async with carrying(place=place) as (world, _):
            assert (await world.ask(get())).status == 200
            world.load(lambda before: worlds.changed(before, "regions", CENTRAL, country="US"))
            assert (await world.ask(get())).status == 307

    run(main)


@pytest.mark.parametrize("place", [AWAY, EdgePlace(), EdgePlace("GB")])
def test_an_edge_outside_carries_nothing_that_a_rule_concerns(place: EdgePlace) -> None:
    """It sends its client on, whatever is asked; what no rule concerns it carries."""

    async def main() -> None:
        async with carrying(place=place) as (world, backends):
            client = await world.client()
            for request in (get(), get("/r/chat/a", "edge"), get("/a", method="PUT"), UPGRADE):
                client.send(request)
                answer = await client.response()
                assert answer.status == 307
                assert answer.get("location").startswith(world.urls[CENTRAL][0].encode())  # type: ignore[union-attr]
            assert not any(one.connections for one in backends)
            client.send(get("/r/free/a", "edge"))
            assert (await client.response()).status == 200

    run(main)


def test_ways_to_endpoints_that_are_gone_are_closed() -> None:
    """Those that wait; nothing is remembered of the endpoint."""

    async def main() -> None:
        async with carrying() as (world, backends):
            assert (await world.ask(get())).status == 200
            world.urls[CENTRAL] = world.urls[WEST]
            world.load()
            assert (await world.ask(get())).status == 200
            (route,) = world.proxy.picker.routes()
            assert (route.url,) == world.urls[WEST]
            assert await asyncio.wait_for(backends[0].peers[0].reader.read(), PATIENCE) == b""

    run(main)


# --- a server that ends ---


@contextlib.asynccontextmanager
async def served(
    *scripts: Script, grace: float = 3.0
) -> AsyncIterator[tuple[Carrying, PatientServer, asyncio.Task[None]]]:
    """An edge behind a server, as a worker runs it."""
    async with carrying(*scripts) as (world, _):
        world.config.timeout_graceful_shutdown = grace  # type: ignore[assignment]
        begun = asyncio.Event()
        server = PatientServer(world.config, begun.set)
        listener = socket.create_server(("127.0.0.1", 0))
        task = asyncio.get_running_loop().create_task(server.serve([listener]))
        await begun.wait()
        world.address = listener.getsockname()
        yield world, server, task
        server.finish(0.0)
        await asyncio.wait_for(task, 20)
        assert not server.server_state.connections
        listener.close()


def test_a_server_that_ends_lets_what_it_carries_be_answered() -> None:
    """Each answer says that its connection ends, what comes meanwhile is answered likewise, and those that wait are closed."""

    async def main() -> None:
        held = Held()
        async with served(held) as (world, server, task):
            busy, idle, back = [await world.client() for _ in range(3)]
            back.send(get("/r/free/a", "edge", method="HEAD"))
            await asyncio.wait_for(held.got.wait(), PATIENCE)
            held.go.set()
            assert (await back.response("HEAD")).get("connection") is None
            held.go.clear()
            held.got.clear()
            busy.send(get())
            await asyncio.wait_for(held.got.wait(), PATIENCE)
            server.finish(10)
            await world.until(lambda: world.proxy.draining)
            back.send(get("/healthz", "edge"))
            assert (await back.response()).get("connection") == b"close"
            held.go.set()
            idle.send(get())
            for client in (busy, idle):
                answer = await client.response()
                assert (answer.body, answer.get("connection")) == (b"ok", b"close")
            for client in (busy, idle, back):
                assert await client.end() == b""
            await asyncio.wait_for(task, PATIENCE)

    run(main)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_what_a_server_cannot_wait_for_breaks_off(version: str) -> None:
    """By a reset: of HTTP/1.0 an end of the connection would make it look whole."""

    async def main() -> None:
        held = Held(_STREAM + b"5\r\nhello\r\n")
        async with served(held, grace=0.05) as (world, server, task):
            client = await world.client()
            client.send(get().replace(b"HTTP/1.1", b"HTTP/" + version.encode()))
            await client.reader.readuntil(b"hello")
            server.finish(0.0)
            await asyncio.wait_for(task, PATIENCE)
            with pytest.raises(ConnectionResetError):
                await client.reader.read()
            await world.until(lambda: held.ended == 1)

    run(main)


# --- connections that make room, wait, and are left ---


def test_who_makes_room_for_others_is_let_go_on_both_sides() -> None:
    """A connection that is carried goes like any other, and its region's with it."""

    async def main() -> None:
        held = Held(_STREAM + b"5\r\nhello\r\n")
        async with carrying(held, limit=2) as (world, _):
            first = await world.client()
            first.send(get())
            await first.reader.readuntil(b"hello")
            idle = await world.client()
            idle.send(get("/healthz", "edge"))
            await idle.response()
            third = await world.client()
            assert await idle.end() == b""
            third.send(get())
            await third.reader.readuntil(b"hello")
            fourth = await world.client()  # both are being answered: the first takes its answer for longest
            await world.until(lambda: held.ended == 1)
            with pytest.raises(ConnectionResetError):
                await first.reader.read()
            fourth.send(get("/healthz", "edge"))
            assert (await fourth.response()).status == 200
            assert world.room.evicted == 2
            assert len(world.room) == 2

    run(main)


@pytest.mark.parametrize("when", ["head", "back", "refused"])
def test_a_connection_makes_room_whoever_has_it(when: str) -> None:
    """Before it is handed over, and once it is back."""

    async def main() -> None:
        async with carrying(limit=1) as (world, _):
            first = await world.client()
            (protocol,) = await world.until_connected(1)
            if when == "head":
                first.send(get()[:20])
                await world.until(lambda: protocol.arriving)
            else:
                first.send(get() if when == "back" else get("/r/nowhere/a", "edge"))
                await first.response()
            second = await world.client()
            assert await first.end() == b""
            second.send(get())
            assert (await second.response()).status == 200

    run(main)


def test_a_connection_that_is_back_waits_as_any_other() -> None:
    """For as long as between other requests, and then it ends; while it is carried that time is no matter."""

    async def main() -> None:
        held = Held()
        async with carrying(held, keeps_alive=0.2) as (world, _):
            client = await world.client()
            client.send(get("/healthz", "edge") + get("/healthz", "edge"))
            (protocol,) = await world.until_connected(1)
            await client.response()
            await client.response()
            client.send(get())
            await asyncio.wait_for(held.got.wait(), PATIENCE)
            protocol._rested()  # noqa: SLF001 - as its timer does
            assert not protocol.transport.is_closing()
            held.go.set()
            assert (await client.response()).body == b"ok"
            assert await client.end() == b""

    run(main)


def test_a_client_of_half_a_head_is_not_waited_for() -> None:
    """Whether it is the first of a connection or comes behind a carried one. Those that are answered meanwhile are no reason to wait longer."""

    async def main() -> None:
        async with carrying() as (world, _):
            first = await world.client()
            first.send(get() + get()[:20])
            assert (await first.response()).status == 200
            world.pass_time(11)
            assert (await first.response()).status == 408
            assert await first.end() == b""
            second = await world.client()
            second.send(get())
            await second.response()
            second.send(get()[:20])
            (_, protocol) = await world.until_connected(2)
            await world.until(lambda: protocol.arriving)
            protocol._late()  # noqa: SLF001 - as its timer does
            assert (await second.response()).status == 408
            assert await second.end() == b""

    run(main)


def test_connections_that_come_and_go_leave_nothing() -> None:
    """Hundreds that ask for anything, and leave at any time: `carrying` looks at what is kept."""
    draw = random.Random(45)
    asked = [
        get(),
        get("/v1/chat/completions", method="POST", body=b'{"model":"m"}'),
        get("/a", "chat.demo.test", "Content-Length: 9", method="POST") + b"1234",
        get("/r/nowhere/a", "edge"),
        get("/healthz", "edge"),
        get("/a", "web.demo.test", method="POST", body=b"x"),
        UPGRADE,
        b"\x16\x03",
    ]

    async def at_times(peer: Peer) -> None:
        while True:
            await peer.reader.readuntil(b"\r\n\r\n")
            kind = draw.random()
            if kind < 0.3:
                peer.abort()
            elif kind < 0.5:
                peer.send(_STREAM + b"1\r\na\r\n")
                await asyncio.sleep(draw.random() / 100)
            elif kind < 0.6:
                peer.send(SWITCH)
                await asyncio.sleep(draw.random() / 100)
            else:
                peer.send(OK)

    async def one(world: Carrying) -> None:
        client = await world.client()
        for _ in range(draw.randrange(1, 4)):
            if client.writer.transport.is_closing():
                break
            text = draw.choice(asked)
            client.send(text[: draw.choice((len(text), len(text), 10))])
            if draw.random() < 0.7:
                with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError):
                    await asyncio.wait_for(client.reader.read(1000), 0.05)
        draw.choice((client.abort, client.close))()

    async def main() -> None:
        async with carrying(*[at_times] * 3, limit=30) as (world, _):
            await asyncio.gather(*(one(world) for _ in range(150)))
            await world.until(lambda: not len(world.room))

    run(main)
