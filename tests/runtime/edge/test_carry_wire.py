"""What goes between a client and a region through an edge that carries: what is no HTTP never does; all else does, and is held within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gtm.core.handoff.claims import Claims
from gtm.core.handoff.keys import PublicKey, PublicKeys, key_text
from gtm.handoff.verifier import Verifier
from tests.balancer.world import Message, Peer, answering, run
from tests.patience import PATIENCE
from tests.runtime.edge.carrying import CENTRAL, KEY, OK, Carrying, carrying, get

_HEAD = b"POST /a HTTP/1.1\r\nHost: chat.demo.test\r\n"
_INNER = b"GET /inner HTTP/1.1\r\nHost: chat.demo.test\r\n\r\n"

SMUGGLED = {
    "two lengths": _HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    "one length twice": _HEAD + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
    "lengths in a list": _HEAD + b"Content-Length: 5, 5\r\n\r\nabcde",
    "signed length": _HEAD + b"Content-Length: +5\r\n\r\nabcde",
    "hexadecimal length": _HEAD + b"Content-Length: 0x5\r\n\r\nabcde",
    "length beside chunks": _HEAD
    + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
    "chunks beside a length": _HEAD
    + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
    "chunked twice": _HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "identity": _HEAD + b"Transfer-Encoding: identity\r\n\r\n" + _INNER,
    "unknown coding": _HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST /a HTTP/1.0\r\nHost: chat.demo.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "space before a colon": _HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "space before a name": _HEAD + b" Content-Length: 5\r\n\r\nabcde",
    "folded line": _HEAD + b"X-One: 1\r\n Content-Length: 5\r\n\r\nabcde",
    "folded framing": _HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "bare LF": _HEAD + b"X-One: 1\nContent-Length: 5\r\n\r\nabcde",
    "head ended by LF": _HEAD + b"\nGET /inner HTTP/1.1\r\n\r\n",
    "bare CR": _HEAD + b"X-One: 1\rContent-Length: 5\r\n\r\nabcde",
    "NUL in a value": _HEAD + b"X-One: \x00\r\n\r\n",
    "NUL in a name": _HEAD + b"X-\x00One: 1\r\n\r\n",
    "NUL in the target": b"GET /a\x00 HTTP/1.1\r\nHost: chat.demo.test\r\n\r\n",
    "space in the target": b"GET /a b HTTP/1.1\r\nHost: chat.demo.test\r\n\r\n",
    "fragment": b"GET /a#b HTTP/1.1\r\nHost: chat.demo.test\r\n\r\n",
    "two hosts": b"GET /a HTTP/1.1\r\nHost: chat.demo.test\r\nHost: chat.demo.test\r\n\r\n",
    "two hosts, the other first": b"GET /a HTTP/1.1\r\nHost: edge\r\nHost: chat.demo.test\r\nConnection: close\r\n\r\n",
    "no host": b"GET /r/chat/a HTTP/1.1\r\n\r\n",
    "no line end behind a chunk": _HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
    "no size of a chunk": _HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + _INNER,
    "size beyond what counts": _HEAD + b"Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\nabc",
    "LF behind a size": _HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\nb\r\n0\r\n\r\n",
    "upgrade with a body": _HEAD
    + b"Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 5\r\n\r\nabcde",
    "two gtm-timeout": _HEAD + b"gtm-timeout: 1\r\ngtm-timeout: 2\r\n\r\n",
}


@pytest.mark.parametrize("what", SMUGGLED)
def test_what_can_be_read_in_two_ways_is_refused(what: str) -> None:
    """At once and in single bytes: once, the connection ends with it, and no region sees a byte."""

    async def main() -> None:
        async with carrying() as (world, backends):
            for pieces in ([SMUGGLED[what]], [bytes((one,)) for one in SMUGGLED[what]]):
                client = await world.client()
                for piece in pieces:
                    if client.writer.transport.is_closing():
                        break
                    client.send(piece)
                    await asyncio.sleep(0)
                answer = await client.response()
                assert answer.status in ((400, 501) if "coding" in what or what == "identity" else (400,))
                assert answer.get("connection") == b"close"
                assert await client.end() == b""
            assert not any(one.connections for one in backends)

    run(main)


def test_an_encoding_that_is_not_chunked_is_answered_by_what_it_is() -> None:
    """501, as of a balancer (RFC 9112 §6.1)."""

    async def main() -> None:
        async with carrying() as (world, backends):
            answer = await world.ask(_HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n")
            assert answer.status == 501
            assert not backends[0].connections

    run(main)


# --- what regions see ---


def test_what_gtm_alone_says_is_said_by_it_alone() -> None:
    """Names of gtm's own, of forwarding and of one hop do not arrive as a client sent them, nor what servers may take for them. Keys, cookies and all else do."""
    sent = {
        **dict.fromkeys(
            ("gtm-handoff", "gtm-push", "gtm-anything", "x-gtm-affinity", "x-gtm-anything"), "mine"
        ),
        **dict.fromkeys(
            ("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port"), "9.9.9.9"
        ),
        **dict.fromkeys(
            ("forwarded", "x-real-ip", "gtm_handoff", "x.forwarded.for", "x_gtm_region"), "9.9.9.9"
        ),
        **dict.fromkeys(("te", "keep-alive", "proxy-connection", "proxy-authorization", "x-named"), "mine"),
        "connection": "x-named, authorization",
    }
    kept = {
        "authorization": "Bearer sk-1",
        "x-api-key": "k",
        "api-key": "z",
        "cookie": "a=b",
        "gtm-timeout": "30",
        "gtm-priority": "batch",
        "x-anything": "\u00e9",
        "accept-encoding": "br",
    }
    seen: list[Message] = []

    async def main() -> None:
        async with carrying(answering(OK, seen=seen)) as (world, _):
            lines = "".join(f"{name}: {value}\r\n" for name, value in (sent | kept).items())
            raw = f"GET /a HTTP/1.1\r\nHost: Chat.Demo.Test:80\r\n{lines}\r\n".encode("latin-1")
            assert (await world.ask(raw)).status == 200

    run(main)
    (request,) = seen
    got = {name.lower().decode(): value.decode("latin-1") for name, value in request.headers}
    assert len(got) == len(request.headers)
    token = got.pop("gtm-handoff")
    assert token != "mine"
    assert got == {
        "host": "Chat.Demo.Test:80",
        "via": "1.1 gtm",
        "x-forwarded-for": "127.0.0.1",
        "x-forwarded-proto": "http",
        "x-forwarded-host": "Chat.Demo.Test:80",
        "gtm-push": "1",
        **kept,
    }


def test_what_is_refused_before_anything_is_decided_is_counted() -> None:
    """No balancer sees such a request, so that the edge's own metric has to tell of it."""

    async def main() -> None:
        async with carrying() as (world, _):
            for line, code in (
                ("gtm-priority: high", b"priority_unread"),
                ("gtm-timeout: 30s", b"timeout_unread"),
            ):
                answer = await world.ask(get("/a", "chat.demo.test", line))
                assert (answer.status, code in answer.body) == (400, True)
            assert world.counted("gtm_http_requests_total\tcarry\t400") == 2

    run(main)


def _claims(request: Message) -> Claims:
    token = request.get("gtm-handoff")
    assert token is not None
    found = Verifier(PublicKeys((PublicKey("fra-1", key_text(KEY.public)),), 1)).verify(token)
    assert isinstance(found, Claims), found
    return found


@pytest.mark.parametrize("trusted", [False, True])
def test_whom_proxies_speak_for_is_believed_of_the_operators_alone(trusted: bool) -> None:
    """Of others the client is who is connected: by that it was decided, and that is what the region is told."""
    seen: list[Message] = []

    async def main() -> None:
        other = answering(OK, seen=seen)
        async with carrying(other, other, other, trusted=trusted) as (world, _):
            line = "X-Forwarded-For: 9.9.9.9, 198.51.100.7"
            assert (await world.ask(get("/r/free/a", "edge", line))).status == 200

    run(main)
    (request,) = seen
    said = b"9.9.9.9, 198.51.100.7, 127.0.0.1" if trusted else b"127.0.0.1"
    assert request.get("x-forwarded-for") == said
    claims = _claims(request)
    assert claims.client == ("198.51.100.0/24" if trusted else "127.0.0.0/24")
    assert claims.region == ("us-east" if trusted else CENTRAL)


@pytest.mark.parametrize(
    ("target", "host", "start", "told"),
    [
        ("/a%20b?x=1&&y", "chat.demo.test", b"GET /a%20b?x=1&&y HTTP/1.1", b"chat.demo.test"),
        ("/a?gtm_handoff=f", "CHAT.demo.test.", b"GET /a HTTP/1.1", b"CHAT.demo.test."),
        ("/a?gtm_handoff=f&x&gtm_handoff", "chat.demo.test", b"GET /a?x HTTP/1.1", b"chat.demo.test"),
        ("/r/chat/a//b?x?y", "edge:8080", b"GET /a//b?x?y HTTP/1.1", None),
        ("/r/chat", "edge", b"GET / HTTP/1.1", None),
        ("/r/chat?x", "edge", b"GET /?x HTTP/1.1", None),
        ("/r/chat/r/free/", "edge", b"GET /r/free/ HTTP/1.1", None),
        ("/r/free/a", "chat.demo.test", b"GET /r/free/a HTTP/1.1", b"chat.demo.test"),
        ("http://chat.demo.test:80/a?b", "edge", b"GET /a?b HTTP/1.1", b"chat.demo.test:80"),
        ("http://edge/r/chat/a", "chat.demo.test", b"GET /a HTTP/1.1", None),
    ],
)
def test_what_is_asked_of_whom(target: str, host: str, start: bytes, told: bytes | None) -> None:
    """By a host name, the path and the name as they were sent; below `/r/`, the rest, and the endpoint's own name. A handoff in the query is taken out."""
    seen: list[Message] = []

    async def main() -> None:
        async with carrying(answering(OK, seen=seen)) as (world, _):
            assert (await world.ask(get(target, host))).status == 200
            (url,) = world.urls[CENTRAL]
            assert seen[0].start == start
            assert seen[0].get("host") == (told or url.removeprefix("http://").encode())
            assert seen[0].get("x-forwarded-host") == (
                told or (b"edge" if "://" in target else host.encode())
            )

    run(main)


def test_an_answer_of_a_region_says_who_served_and_nothing_else_of_gtms() -> None:
    """Names of gtm's own that a region says are for the edge, but for the region and the model that served; all else comes through, twice where it was said twice."""

    async def main() -> None:
        said = b"gtm-push: taken\r\nx-gtm-region: elsewhere\r\nx-gtm-reason: mine\r\nx-gtm-model: m\r\n"
        more = b"Set-Cookie: a\r\nSet-Cookie: b\r\nServer: s\r\nConnection: x-hop\r\nX-Hop: 1\r\n"
        answer = b"HTTP/1.1 201 Made It\r\n%b%bContent-Length: 0\r\n\r\n" % (said, more)
        async with carrying(answering(answer)) as (world, _):
            got = await world.ask(get())
            assert got.start == b"HTTP/1.1 201 Made It"
            assert sorted(got.headers) == [
                (b"Server", b"s"),
                (b"Set-Cookie", b"a"),
                (b"Set-Cookie", b"b"),
                (b"content-length", b"0"),
                (b"x-gtm-model", b"m"),
                (b"x-gtm-reason", b"lowest_latency"),
                (b"x-gtm-region", b"elsewhere"),
                (b"x-gtm-revision", b"8"),
            ]

    run(main)


# --- streams, tunnels, and who leaves ---


def test_streams_go_both_ways_as_they_come() -> None:
    """Each piece of a body arrives before the next is sent; trailers follow, both ways."""

    async def script(peer: Peer) -> None:
        assert (await peer.reader.readuntil(b"\r\n\r\n")).startswith(b"POST /a ")
        size = 0
        while size < 0x11000:
            piece = int(await peer.reader.readuntil(b"\r\n"), 16)
            await peer.reader.readexactly(piece + 2)
            size += piece
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n")
        for _ in range(3):
            piece = await peer.reader.readuntil(b"\r\n")
            data = await peer.reader.readexactly(int(piece, 16) + 2)
            peer.send(b"%b%b" % (piece, data.upper()))
        assert await peer.reader.readuntil(b"\r\n\r\n") == b"0\r\nX-Up: 1\r\n\r\n"
        peer.send(b"0\r\nX-Sum: 2\r\n\r\n")

    async def main() -> None:
        async with carrying(script) as (world, _):
            client = await world.client()
            client.send(
                get("/a", "chat.demo.test", "Transfer-Encoding: chunked", "TE: trailers", method="POST")
            )
            client.send(b"11000\r\n" + bytes(0x11000) + b"\r\n")
            head = await client.reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert b"connection: close\r\n" in head
            for piece in (b"1\r\na\r\n", b"2\r\nbc\r\n", b"3\r\ndef\r\n"):
                client.send(piece)
                assert await client.reader.readexactly(len(piece)) == piece.upper()
            client.send(b"0\r\nX-Up: 1\r\n\r\n")
            assert await client.reader.readexactly(15) == b"0\r\nX-Sum: 2\r\n\r\n"
            assert await client.end() == b""  # told so: the answer began before the end of its request

    run(main)


@pytest.mark.parametrize("chunked", [False, True])
def test_long_bodies_arrive_whole_both_ways(chunked: bool) -> None:
    """Five megabytes, and the connection goes on."""
    body = bytes(range(256)) * 20_000

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(request.body), request.body))

    async def main() -> None:
        async with carrying(script) as (world, _):
            client = await world.client()
            for _ in range(2):
                if chunked:
                    client.send(get("/a", "chat.demo.test", "Transfer-Encoding: chunked", method="PUT"))
                    for at in range(0, len(body), 100_000):
                        piece = body[at : at + 100_000]
                        client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
                    client.send(b"0\r\n\r\n")
                else:
                    client.send(get("/a", method="PUT", body=body))
                assert (await client.response()).body == body

    run(main)


UPGRADE = get("/v1/realtime", "chat.demo.test", "Connection: Upgrade", "Upgrade: websocket")
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


@pytest.mark.parametrize("early", [b"", b"early", UPGRADE, get("/healthz", "edge")])
@pytest.mark.parametrize("first", ["client", "region"])
def test_websockets_are_tunnels(early: bytes, first: str) -> None:
    """Whatever comes behind the switch is carried as it is, also what came before it; who ends it ends it for both."""

    async def main() -> None:
        ended = asyncio.Event()

        async def script(peer: Peer) -> None:
            head = await peer.reader.readuntil(b"\r\n\r\n")
            assert b"upgrade: websocket" in head.lower()
            peer.send(SWITCH + b"hello")
            assert await peer.reader.readexactly(len(early) + 3) == early + b"abc"
            peer.send(b"\x00\xff" * 1000)
            if first == "client":
                assert await peer.end() == b""
            ended.set()

        async with carrying(script) as (world, _):
            client = await world.client()
            client.send(UPGRADE + early)
            head = await client.reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 101 ")
            assert b"x-gtm-region: eu-central" in head
            assert await client.reader.readexactly(5) == b"hello"
            client.send(b"abc")
            assert await client.reader.readexactly(2000) == b"\x00\xff" * 1000
            if first == "client":
                client.close()
            await asyncio.wait_for(ended.wait(), PATIENCE)
            assert await client.end() == b""

    run(main)


def test_an_upgrade_that_a_region_does_not_take_is_an_answer() -> None:
    """The connection goes on in HTTP."""

    async def main() -> None:
        async with carrying() as (world, _):
            client = await world.client()
            for _ in range(2):
                client.send(UPGRADE)
                assert (await client.response()).body == b"ok"
            client.send(get("/healthz", "edge"))
            assert (await client.response()).status == 200

    run(main)


def _left(client: Peer) -> None:
    client.abort()


def _half_closed(client: Peer) -> None:
    client.writer.write_eof()


@pytest.mark.parametrize("leave", [_left, _half_closed, Peer.close])
@pytest.mark.parametrize("when", ["body", "wait", "stream"])
def test_a_client_that_leaves_leaves_its_region(leave: Callable[[Peer], None], when: str) -> None:
    """Whether it has sent all of its request or not, and whether something of an answer came. Who sends no more is taken for gone, as by a balancer."""

    async def main() -> None:
        begun = asyncio.Event()

        async def script(peer: Peer) -> None:
            await peer.reader.readuntil(b"\r\n\r\n")
            if when == "stream":
                peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
            begun.set()
            await peer.end()
            peer.requests_ended = True  # type: ignore[attr-defined]

        async with carrying(script) as (world, backends):
            client = await world.client()
            if when == "body":
                client.send(
                    get("/a", "chat.demo.test", "Content-Length: 100000", method="POST") + bytes(70_000)
                )
            else:
                client.send(get())
            await asyncio.wait_for(begun.wait(), PATIENCE)
            if when == "stream":
                await client.reader.readuntil(b"hello\r\n")
            leave(client)
            await world.until(lambda: hasattr(backends[0].peers[0], "requests_ended"))
            assert len(backends[0].peers) == 1
            assert not backends[1].connections
            assert not backends[2].connections

    run(main)


# --- bounds ---


def _left_to_send(world: Carrying) -> int:
    return sum(one.transport.get_write_buffer_size() for one in world.protocols)


async def _stands_still(value: Callable[[], int]) -> int:
    """What something is once it does not change any more."""
    while True:
        before = value()
        for _ in range(20):
            await asyncio.sleep(0.002)
        if value() == before:
            return before


async def _endless(peer: Peer) -> None:
    """Answers with as much as is taken."""
    await peer.request()
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
    while True:
        peer.send(bytes(100_000))
        await peer.writer.drain()


def test_an_answer_waits_where_it_is_made() -> None:
    """Of one that its client does not take, a process keeps no more than a read."""

    async def main() -> None:
        async with carrying(_endless, narrow=True) as (world, _):
            client = await world.client()
            client.writer.transport.pause_reading()
            client.send(get())
            await world.until(lambda: _left_to_send(world) > 0)
            assert await _stands_still(lambda: _left_to_send(world)) < 1_000_000

    run(main)


def test_a_body_waits_where_it_is_sent() -> None:
    """Of one that its region does not take, a process keeps what is kept for another try and a read."""

    async def main() -> None:
        hold = asyncio.Event()

        async def script(peer: Peer) -> None:
            peer.writer.transport.pause_reading()
            await hold.wait()

        async with carrying(script) as (world, _):
            client = await world.client()
            client.send(
                get("/a", "chat.demo.test", "Content-Length: 100000000", method="PUT") + bytes(50_000_000)
            )

            def kept() -> int:
                proxy = world.carrier.proxy
                return 0 if proxy is None else proxy.held.total

            await world.until(lambda: kept() > 0)
            await _stands_still(client.writer.transport.get_write_buffer_size)
            assert client.writer.transport.get_write_buffer_size() > 30_000_000
            assert kept() < 3_000_000
            hold.set()

    run(main)


@pytest.mark.parametrize("what", ["carried", "refused", "mixed"])
def test_who_takes_no_answer_gets_no_more_of_them(what: str) -> None:
    """However many requests it sends, and of whatever kind: those that are answered here, those that are carried, and both in turns."""
    body = bytes(60_000)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    kinds = {
        "carried": [get()],
        "refused": [get("/r/nowhere/a", "edge")],
        "mixed": [get("/r/free/a", "edge"), get("/v1/route?service=web&explain=true", "edge")],
    }[what]

    async def main() -> None:
        async with carrying(answering(answer), narrow=True) as (world, _):
            client = await world.client()
            client.writer.transport.pause_reading()
            await _flood(client, kinds)
            assert await _stands_still(lambda: _left_to_send(world)) < 1_000_000
            client.writer.transport.resume_reading()
            await client.response()

    async def _flood(client: Peer, kinds: list[bytes]) -> None:
        for n in range(3000):
            client.send(kinds[n % len(kinds)])
            for _ in range(3):
                await asyncio.sleep(0)

    run(main)


def test_a_head_that_is_refused_keeps_nothing_of_what_follows() -> None:
    """What is thrown away while the client has time to read its answer is not kept to be carried either."""

    async def main() -> None:
        async with carrying() as (world, _):
            client = await world.client()
            client.send(b"GET /a HTTP/1.1\r\nHost: chat.demo.test\r\nX: ")
            for _ in range(100):
                client.send(bytes([65]) * 10_000)
                await asyncio.sleep(0.001)
            (protocol,) = world.protocols
            assert protocol._raw is None  # noqa: SLF001 - it is what could grow
            assert (await client.response()).status == 431

    run(main)


@pytest.mark.parametrize(
    ("second", "status"),
    [
        (get("/again"), 200),
        (get("/healthz", "edge"), 200),
        (get("/a", "web.demo.test", method="POST", body=b"x"), 307),
        (get("/r/nowhere/a", "edge"), 451),
    ],
)
def test_a_client_whose_first_answer_waits_gets_the_others_as_well(second: bytes, status: int) -> None:
    """A connection that changes hands while its client takes nothing goes on when it does."""
    body = bytes(10_000)

    async def main() -> None:
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        async with carrying(answering(answer), narrow=True) as (world, _):
            client = await world.client()
            client.writer.transport.pause_reading()
            (protocol,) = await world.until_connected(1)
            asked = 0
            while not protocol.flow.write_paused:
                client.send(get())
                asked += 1
                await world.until(lambda: world.counted("gtm_edge_carried_total") == asked)  # noqa: B023 - in its round
            client.send(second)
            for _ in range(20):
                await asyncio.sleep(0)
            client.writer.transport.resume_reading()
            for _ in range(asked):
                assert (await client.response()).body == body
            assert (await client.response()).status == status
            client.send(get())
            assert (await client.response()).body == body
            client.send(get("/healthz", "edge"))
            assert (await client.response()).status == 200

    run(main)
