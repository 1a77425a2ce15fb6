"""What a client sends on one connection to an edge that carries: in whatever pieces it comes, and whatever comes before and behind it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.balancer.world import Message, Peer, run
from tests.effort import examples
from tests.runtime.edge.carrying import Carrying, carrying, get

CARRIED = {
    "get": get("/a?b=c"),
    "host in the target": b"GET http://chat.demo.test/a HTTP/1.1\r\nHost: elsewhere\r\n\r\n",
    "below /r/": get("/r/chat/deep/a", "edge"),
    "head": get(method="HEAD"),
    "post": get("/v1/chat/completions", method="POST", body=b'{"model":"m"}'),
    "chunked": get("/b", "chat.demo.test", "Transfer-Encoding: chunked", "Trailer: X-Sum", method="PUT")
    + b"3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nX-Sum: 1\r\n\r\n",
    "expect": get("/e", "chat.demo.test", "Expect: 100-continue", method="POST", body=b"12345"),
    "blank lines": b"\r\n\r\n" + get("/lines"),
}
REFUSED = {
    "law": get("/r/nowhere/x", "edge"),
    "unknown tenant": get("/a", "chat.demo.test", "X-GTM-Tenant: nobody"),
    "patience": get("/a", "chat.demo.test", "gtm-timeout: 1;soon"),
    "priority": get("/a", "chat.demo.test", "gtm-priority: soon"),
}
OTHERS = {
    "look-up": get("/v1/route?service=web", "edge"),
    "redirect": get("/a?b", "web.demo.test"),
    "redirect of a post": get("/a", "web.demo.test", method="POST", body=b"12345"),
    "health": get("/healthz", "edge"),
    "batch": get(
        "/v1/route:batch",
        "edge",
        "Content-Type: application/json",
        method="POST",
        body=b'{"requests":[{"service":"web"}]}',
    ),
    "none": get("/no/such", "edge"),
}
MENU = CARRIED | REFUSED | OTHERS


class Echo:
    """A region that says what it got."""

    def __init__(self) -> None:
        self.got: list[str] = []

    async def __call__(self, peer: Peer) -> None:
        while True:
            request = await peer.request()
            said = told(request)
            self.got.append(said)
            body = said.encode()
            ends = b"" if request.start.startswith(b"HEAD") else body
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), ends))


def told(request: Message) -> str:
    """What a region got, but for its handoff, which changes, and `Expect`, which the edge meets itself where it waits for the body."""
    apart = (b"gtm-handoff", b"expect")
    headers = [(name.lower(), value) for name, value in request.headers if name.lower() not in apart]
    assert request.get("gtm-handoff")
    return repr((request.start, sorted(headers), request.body, request.trailers))


async def heard(client: Peer, method: str) -> Message:
    """The answer to one request: those before it (1xx) are left out."""
    while True:
        answer = await client.response(method)
        if answer.status >= 200:
            return answer


def method_of(request: bytes) -> str:
    """A request's method."""
    return request.lstrip().partition(b" ")[0].decode()


def cut(text: bytes, places: list[int]) -> list[bytes]:
    """A text in pieces."""
    edges = [0, *sorted({place % (len(text) + 1) for place in places}), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges) if start < end]


async def sent(client: Peer, pieces: list[bytes]) -> None:
    """Send pieces so that each is read by itself, as far as the kernel has it so."""
    for piece in pieces:
        if client.writer.transport.is_closing():
            return  # the edge has ended the connection
        client.send(piece)
        for _ in range(4):
            await asyncio.sleep(0)


async def alone(world: Carrying) -> dict[bytes, Message]:
    """What each request of the menu is answered with on a connection of its own."""
    answers = {}
    for request in MENU.values():
        client = await world.client()
        client.send(request)
        answers[request] = await heard(client, method_of(request))
        client.close()
    return answers


def same(one: Message, other: Message) -> bool:
    """Whether two answers are alike."""
    return (one.start, one.headers, one.body, one.whole) == (
        other.start,
        other.headers,
        other.body,
        other.whole,
    )


requests = st.lists(st.sampled_from(list(MENU.values())), min_size=1, max_size=6)


def test_each_request_of_a_connection_is_answered_as_alone() -> None:
    """All of the menu, one behind the other, in one connection, forwards and backwards."""

    async def main() -> None:
        echo = Echo()
        async with carrying(echo) as (world, _):
            answers = await alone(world)
            assert {answer.status for answer in answers.values()} == {200, 307, 400, 404, 422, 451}
            before = list(echo.got)
            assert len(before) == len(CARRIED)
            client = await world.client()
            for request in (*MENU.values(), *reversed(MENU.values())):
                client.send(request)
                assert same(await heard(client, method_of(request)), answers[request])
            assert echo.got == [*before, *before, *reversed(before)]

    run(main)


@example([*MENU.values()], [*range(3000)])
@given(requests, st.lists(st.integers(0, 3000), max_size=40))
@settings(max_examples=examples(300), deadline=None)
def test_pieces_make_no_difference(asked: list[bytes], places: list[int]) -> None:
    """Each request is sent once the one before it is answered, cut anywhere, into single bytes even."""

    async def main() -> None:
        echo = Echo()
        async with carrying(echo) as (world, _):
            answers = await alone(world)
            echo.got.clear()
            client = await world.client()
            for request in asked:
                await sent(client, cut(request, places))
                assert same(await heard(client, method_of(request)), answers[request])
            assert len(echo.got) == sum(request in CARRIED.values() for request in asked)

    run(main)


async def all_answers(client: Peer, methods: list[str]) -> list[Message]:
    """Those that come to requests of these methods before the connection ends."""
    answers = []
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        for method in methods:
            answers.append(await heard(client, method))  # noqa: PERF401 - those before an end count
    return answers


@example([MENU["law"], MENU["look-up"]], [])
@example([MENU["law"], MENU["law"], MENU["get"]], [])
@example([MENU["look-up"], MENU["get"], MENU["look-up"]], [100])
@example([MENU["batch"], MENU["get"]], [])
@example([MENU["get"]] * 300, [])
@given(requests, st.lists(st.integers(0, 3000), max_size=6))
@settings(max_examples=examples(600), deadline=None)
def test_what_is_sent_ahead_is_answered_in_order_or_not_at_all(asked: list[bytes], places: list[int]) -> None:
    """Of many requests at once the first ones are answered as alone; a region gets each once, and no other; where the connection ends, the others are for their client to send again."""

    async def main() -> None:
        echo = Echo()
        async with carrying(echo) as (world, _):
            answers = await alone(world)
            known = dict(zip(CARRIED.values(), echo.got, strict=True))
            echo.got.clear()
            client = await world.client()
            await sent(client, cut(b"".join(asked), places))
            got = await all_answers(client, [method_of(request) for request in asked])
            assert got
            for request, answer in zip(asked, got, strict=False):
                assert answer.start == answers[request].start
                assert answer.body == answers[request].body
                assert [line for line in answer.headers if line != (b"connection", b"close")] == (
                    answers[request].headers
                )
            if len(got) < len(asked):
                assert await client.end() == b""
            expected = [known[request] for request in asked if request in known]
            assert echo.got == expected[: len(echo.got)]
            assert len(echo.got) >= sum(request in known for request in asked[: len(got)])

    run(main)


def parted(text: bytes) -> list[tuple[int, bytes]]:
    """The answers that were received, each with status and body; the last may not be whole."""
    answers = []
    while text:
        head, end, rest = text.partition(b"\r\n\r\n")
        if not end:
            break
        start, *lines = head.split(b"\r\n")
        assert start.startswith(b"HTTP/1.1 "), text[:100]
        fields = dict(line.lower().split(b": ", 1) for line in lines)
        length = int(fields.get(b"content-length", b"0"))
        answers.append((int(start[9:12]), rest[:length]))
        text = rest[length:]
    return answers


WRONG = st.binary(max_size=3) | st.sampled_from(
    [b"\r\n", b"\n", b"\r\n\r\n", b"\x00", b" ", b"0\r\n\r\n", b"Content-Length: 3\r\n", b"X: y\r\n" * 101]
)


@given(
    st.lists(
        st.sampled_from([MENU[name] for name in MENU if name not in ("head", "batch")]),
        min_size=1,
        max_size=5,
    ),
    st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 3), WRONG), max_size=3),
    st.lists(st.integers(0, 1500), max_size=4),
)
@settings(max_examples=examples(600), deadline=None)
def test_whatever_comes_each_answer_is_its_requests(
    asked: list[bytes], changes: list[tuple[int, int, bytes]], places: list[int]
) -> None:
    """With bytes left out and put in anywhere: what a region has answered reaches the client in that order and once, and nothing is left of any of it."""
    text = b"".join(asked)
    for place, without, put in changes:
        at = place % (len(text) + 1)
        text = text[:at] + put + text[at + without :]

    async def main() -> None:
        echo = Echo()
        async with carrying(echo) as (world, _):
            client = await world.client()
            await sent(client, cut(text, places))
            received = b""
            with contextlib.suppress(ConnectionError, TimeoutError):
                while more := await asyncio.wait_for(client.reader.read(100_000), 0.02):
                    received += more
            got = [body.decode() for status, body in parted(received) if status == 200 and body[:2] == b"(b"]
            assert got == echo.got[: len(got)]

    run(main)
