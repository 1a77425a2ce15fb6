"""Regions that fail what an edge carries to them: which other one is asked, and never one outside of the fence.

The fence of `chat` is Germany and Ireland: the first region's requests may go on to the second, and never to the third.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from gtm.core.model.policy import Policy, RuleMode
from gtm.core.policy.edges import EdgePlace
from gtm.runtime.edge.worker.carry import REPLAY, SHUNNED
from tests import worlds
from tests.balancer.world import Backend, Message, Peer, Script, answering, run
from tests.runtime.edge.carrying import CENTRAL, EAST, NAMES, OK, WEST, Carrying, carrying, get

CHAT = "/v1/chat/completions"
BODY = b'{"model":"m"}'


def answer(status: bytes, *lines: bytes, body: bytes = b"") -> bytes:
    """A region's answer."""
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n%b\r\n%b" % (
        status,
        len(body),
        b"".join(line + b"\r\n" for line in lines),
        body,
    )


async def resets_unread(peer: Peer) -> None:
    """It breaks off before it has read the request."""
    await peer.reader.readexactly(1)
    peer.abort()


async def ends_before_an_answer(peer: Peer) -> None:
    """It reads the request, and ends the connection."""
    await peer.request()


async def resets_before_an_answer(peer: Peer) -> None:
    """It reads the request, and breaks off."""
    await peer.request()
    peer.abort()


async def ends_in_a_head(peer: Peer) -> None:
    """It breaks off in its answer's head."""
    await peer.request()
    peer.send(b"HTTP/1.1 200 OK\r\nContent-")


async def no_http(peer: Peer) -> None:
    """It speaks something else."""
    await peer.request()
    peer.send(b"SSH-2.0-x\r\n\r\n")


async def says_to_continue_and_ends(peer: Peer) -> None:
    """It breaks off behind an answer before the answer."""
    await peer.request()
    peer.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
    await asyncio.sleep(0.01)


async def ends_in_a_body(peer: Peer) -> None:
    """It breaks off in its answer's body."""
    await peer.request()
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhel")


FULL = {
    "queue_full": answer(b"503 Service Unavailable", body=b'{"code":"queue_full"}'),
    "Retry-After": answer(b"503 Service Unavailable", b"Retry-After: 1", body=b"later"),
    "overloaded": answer(b"429 Too Many Requests", body=b'{"error_type":"overloaded"}'),
}
NOT_FULL = {
    "429": answer(b"429 Too Many Requests", b"Retry-After: 1", body=b"you are"),
    "503": answer(b"503 Service Unavailable", body=b"dead"),
    "502": answer(b"502 Bad Gateway", body=b"lost"),
    "500": answer(b"500 Internal Server Error", b"Retry-After: 1"),
    "long": answer(b"503 Service Unavailable", body=b"queue_full" * 1000),
    "421": answer(b"421 Misdirected Request", b"gtm-push: not-taken", body=b"elsewhere"),
}
COMPUTES = get(CHAT, method="POST", body=BODY)
ASKED = {
    "GET": get("/a"),
    "PUT": get("/a", method="PUT", body=b"x"),
    "inference": COMPUTES,
    "key": get("/a", "chat.demo.test", "Idempotency-Key: 1", method="POST", body=b"x"),
    "1 MiB": get(CHAT, method="POST", body=b'{"model":"m","x":"%b"}' % (b"x" * (REPLAY - 20))),
    "POST": get("/a", method="POST", body=b"x"),
    "tokens": get("/tokenize", method="POST", body=BODY),
    "responses": get("/v1/responses", method="POST", body=BODY),
    "more": get(CHAT, method="POST", body=bytes(REPLAY + 1)),
    "names one": get("/v1/responses/resp_1"),
}
TWICE = ("GET", "PUT", "inference", "key", "1 MiB")
"""What may be done twice."""


async def asked(world: Carrying, backends: list[Backend], request: bytes) -> tuple[Message, list[int]]:
    """The answer, and how often each region was connected to."""
    got = await world.ask(request)
    return got, [one.connections for one in backends]


_HELD: list[socket.socket] = []


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    """Ports are held as long as a test."""
    yield
    while _HELD:
        _HELD.pop().close()


def unused() -> str:
    """The URL of a port at which nobody listens, nor will: it is held."""
    one = socket.socket()
    one.bind(("127.0.0.1", 0))
    _HELD.append(one)
    return f"http://127.0.0.1:{one.getsockname()[1]}"


@pytest.mark.parametrize("what", ASKED)
def test_where_nobody_listens_another_region_inside_the_fence_is_asked(what: str) -> None:
    """Whatever is asked, for no server can have begun it; unless its body is not kept, or it goes on with what one region has."""

    async def main() -> None:
        async with carrying(regions={CENTRAL: (unused(),)}) as (world, backends):
            got, connections = await asked(world, backends, ASKED[what])
            if what == "names one":
                assert (got.status, connections) == (502, [0, 0, 0])
            else:
                # Its body is read no further than 256 KiB while a connection opens, and so is kept.
                assert (got.status, connections) == (200, [0, 1, 0])
                assert got.get("x-gtm-region") == WEST.encode()
                assert world.counted(f"gtm_edge_carried_elsewhere_total\t{CENTRAL}\t{WEST}") == 1

    run(main)


@pytest.mark.parametrize(
    "script",
    [
        resets_unread,
        ends_before_an_answer,
        resets_before_an_answer,
        ends_in_a_head,
        no_http,
    ],
)
@pytest.mark.parametrize("what", ASKED)
def test_what_a_region_may_have_begun_is_asked_of_another_if_it_may_be_done_twice(
    script: Script, what: str
) -> None:
    """By its method, its key, or because it only runs a model; and while all of its body is kept."""

    async def main() -> None:
        async with carrying(script) as (world, backends):
            got, connections = await asked(world, backends, ASKED[what])
            if what in TWICE:
                assert (got.status, connections) == (200, [1, 1, 0])
                assert got.get("x-gtm-region") == WEST.encode()
            else:
                assert (got.status, connections) == (502, [1, 0, 0])
                assert b"backend_failed" in got.body

    run(main)


@pytest.mark.parametrize("said", FULL)
@pytest.mark.parametrize("what", ASKED)
def test_a_region_that_says_that_it_is_full_has_not_begun_it(said: str, what: str) -> None:
    """So another is asked whatever it is, once: if that is full too, its answer is the client's."""

    async def main() -> None:
        full = answering(FULL[said])
        async with carrying(full) as (world, backends):
            got, connections = await asked(world, backends, ASKED[what])
            if what in ("more", "names one"):
                assert (got.status, connections) == (int(FULL[said].split()[1]), [1, 0, 0])
            else:
                assert (got.status, connections) == (200, [1, 1, 0])
                assert got.get("x-gtm-region") == WEST.encode()
        async with carrying(full, full) as (world, backends):
            got, connections = await asked(world, backends, ASKED["GET"])
            assert (got.status, connections) == (int(FULL[said].split()[1]), [1, 1, 0])
            assert got.body == FULL[said].partition(b"\r\n\r\n")[2]
            assert got.get("x-gtm-region") == WEST.encode()

    run(main)


def test_a_region_whose_servers_broke_off() -> None:
    """So its balancer says (502 `backend_failed`), and they may have begun it: another region is asked for what may be done twice, and for nothing else."""

    async def main() -> None:
        lost = b'{"code":"backend_failed"}'
        bad = answering(answer(b"502 Bad Gateway", body=lost))
        async with carrying(bad) as (world, backends):
            got, connections = await asked(world, backends, COMPUTES)
            assert (got.status, connections) == (200, [1, 1, 0])
        async with carrying(bad) as (world, backends):
            got, connections = await asked(world, backends, get("/a", method="POST", body=b"x"))
            assert (got.status, got.body, connections) == (502, lost, [1, 0, 0])

    run(main)


_LOST = answering(answer(b"502 Bad Gateway", body=b'{"code":"backend_failed"}'))
_BREAKS: dict[str, Script] = {"region": resets_before_an_answer, "server": _LOST}


@pytest.mark.parametrize("second", _BREAKS)
@pytest.mark.parametrize("first", _BREAKS)
def test_what_breaks_two_regions_comes_to_no_third(first: str, second: str) -> None:
    """It may be the request itself that does it: whether regions break or their servers, a third one inside the fence goes on serving others."""

    async def main() -> None:
        async with carrying(_BREAKS[first], _BREAKS[second]) as (world, backends):
            world.load(_wide)
            got, connections = await asked(world, backends, COMPUTES)
            assert (got.status, connections) == (502, [1, 1, 0])

    run(main)


@pytest.mark.parametrize("breaks", _BREAKS)
@pytest.mark.parametrize("second", [0, 1])
def test_regions_that_take_nothing_are_asked_beside_one_that_breaks(second: int, breaks: str) -> None:
    """One that is full, or listens to nobody, has begun nothing: the third region is asked, whichever of them came first."""

    async def main() -> None:
        scripts = [_BREAKS[breaks], answering(FULL["queue_full"])]
        async with carrying(scripts[second], scripts[not second]) as (world, backends):
            world.load(_wide)
            got, connections = await asked(world, backends, COMPUTES)
            assert (got.status, got.get("x-gtm-region"), connections) == (200, EAST.encode(), [1, 1, 1])
        gone = {NAMES[not second]: (unused(),)}
        async with carrying(scripts[0], scripts[0], regions=gone) as (world, backends):
            world.load(_wide)
            got, connections = await asked(world, backends, COMPUTES)
            assert (got.status, got.get("x-gtm-region"), sum(connections)) == (200, EAST.encode(), 2)

    run(main)


def _wide(before: Policy) -> Policy:
    """All three regions are inside the fence."""
    return _fenced(before, "DE IE US")


def _fenced(before: Policy, fence: str) -> Policy:
    rule = worlds.rule("gdpr", fence, services="chat", client_countries="DE")
    rules = tuple(rule if one.name == "gdpr" else one for one in before.residency_rules)
    return replace(before, residency_rules=rules)


@pytest.mark.parametrize("said", NOT_FULL)
def test_other_answers_are_the_clients(said: str) -> None:
    """Of whatever status: a limit is the client's own, and nobody knows what was begun."""

    async def main() -> None:
        async with carrying(answering(NOT_FULL[said])) as (world, backends):
            got, connections = await asked(world, backends, COMPUTES)
            assert connections == [1, 0, 0]
            assert got.status == int(NOT_FULL[said].split()[1])
            assert got.body == NOT_FULL[said].partition(b"\r\n\r\n")[2]

    run(main)


def test_a_begun_answer_is_never_asked_for_again() -> None:
    """It breaks off, and is never made to look whole; an answer before the answer (1xx) counts, too."""

    async def main() -> None:
        for script, status in ((ends_in_a_body, 200), (says_to_continue_and_ends, 502)):
            async with carrying(script) as (world, backends):
                client = await world.client()
                client.send(get("/a"))
                got = await client.response()
                if got.status == 103:
                    got = await client.response()
                assert got.status == status
                assert got.whole == (status != 200)
                assert [one.connections for one in backends] == [1, 0, 0]

    run(main)


async def _breaks(peer: Peer) -> None:
    await peer.request()
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    peer.send(b"9\r\ndata: 1\n\n\r\n")


def test_a_stream_that_breaks_says_so() -> None:
    """By an event, and by its end."""

    async def main() -> None:
        async with carrying(_breaks) as (world, backends):
            client = await world.client()
            client.send(COMPUTES)
            said = await client.end()
            assert b"data: 1\n\n" in said
            assert b"backend_lost" in said
            assert not said.endswith(b"0\r\n\r\n")
            assert [one.connections for one in backends] == [1, 0, 0]

    run(main)


@pytest.mark.parametrize("down", [(), (WEST,), (CENTRAL, WEST)])
def test_where_all_inside_fail_nobody_else_is_asked(down: tuple[str, ...]) -> None:
    """The third region would take it, and is outside; for a service without a fence it does."""

    async def main() -> None:
        nowhere = {CENTRAL: (unused(),), WEST: (unused(),)}
        async with carrying(regions=nowhere) as (world, backends):
            world.up(*({*NAMES} - {*down}))
            got, connections = await asked(world, backends, get())
            assert (got.status, connections) == (451 if len(down) == 2 else 502, [0, 0, 0])
            got, connections = await asked(world, backends, get("/r/free/a", "edge"))
            assert (got.status, connections) == (200, [0, 0, 1])
            assert got.get("x-gtm-region") == EAST.encode()

    run(main)


@pytest.mark.parametrize("fence", ["DE IE", "DE", "US"])
def test_what_fails_is_asked_of_those_inside_only(fence: str) -> None:
    """Whichever regions are inside: all of them are tried, and no other."""

    async def main() -> None:
        failing = ends_before_an_answer
        async with carrying(failing, failing, failing, place=EdgePlace(fence[:2])) as (world, backends):
            world.load(partial(_fenced, fence=fence))
            got, connections = await asked(world, backends, get())
            inside = [name for name in NAMES if worlds.PLACES[name][2] in fence.split()]
            assert got.status == 502
            assert connections == [int(name in inside) for name in NAMES]

    run(main)


def test_a_region_is_left_where_all_its_endpoints_fail() -> None:
    """Its other endpoint comes first."""

    async def main() -> None:
        second = Backend(answering(OK))
        two = (unused(), await second.start())
        async with carrying(regions={CENTRAL: two}) as (world, backends):
            for _ in range(8):
                got, connections = await asked(world, backends, get())
                assert (got.status, got.get("x-gtm-region"), connections) == (
                    200,
                    CENTRAL.encode(),
                    [0, 0, 0],
                )
            assert not world.counted("gtm_edge_carried_elsewhere_total")

    run(main)


def test_an_endpoint_that_took_no_connection_is_asked_last_for_a_while() -> None:
    """What comes meanwhile goes to another region at once, and back when it is over; where there is no other, it is tried nevertheless."""

    async def main() -> None:
        first = Backend(answering(OK))
        url = unused()
        async with carrying(regions={CENTRAL: (url,)}) as (world, _):
            assert (await world.ask(get())).get("x-gtm-region") == WEST.encode()
            _HELD.pop().close()
            await first.start(port=int(url.rpartition(":")[2]))
            assert (await world.ask(get())).get("x-gtm-region") == WEST.encode()
            assert not first.connections
            world.up(CENTRAL)
            assert (await world.ask(get())).get("x-gtm-region") == CENTRAL.encode()
            world.up(*NAMES)
            world.clock.ahead += SHUNNED + 1
            assert (await world.ask(get())).get("x-gtm-region") == CENTRAL.encode()

    run(main)


def test_rules_that_only_watch_bind_nobody() -> None:
    """Neither the edge nor where it goes."""

    def change(before: Policy) -> Policy:
        return worlds.changed(before, "residency_rules", "gdpr", mode=RuleMode.MONITOR)

    async def main() -> None:
        nowhere = {CENTRAL: (unused(),), WEST: (unused(),)}
        async with carrying(regions=nowhere, place=EdgePlace("US")) as (world, backends):
            world.load(change)
            got, connections = await asked(world, backends, get())
            assert (got.status, connections) == (200, [0, 0, 1])

    run(main)
