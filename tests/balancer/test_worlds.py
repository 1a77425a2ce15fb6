"""Random worlds: whatever clients, backends, admission, connections and time do, what began ends once, and nothing is left.

The model is the books of the test's own admission and picker (`tests.balancer.world`): an exchange that was offered is inside until
its end is told, a flight counts until it ends; an end too many, too few, or of something that never began is wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.balancer.steps import STEPS, play
from tests.balancer.test_corpus import _cases
from tests.balancer.world import Backend, Message, Peer, read_body, read_head, run, world
from tests.effort import examples


@settings(max_examples=examples(600, 60), deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_whatever_happens(steps: list[tuple[Any, ...]]) -> None:
    """In every world each request has one end, all counts are 0 in the end, and no task or connection is left."""

    async def main() -> None:
        await play(steps)

    run(main)


# --- cuts ---

_GOOD = st.sampled_from([case.sent for case in _cases("requests.txt") if set(case.answers) == {"200"}])
_BAD = st.sampled_from([case.sent for case in _cases("requests.txt") if case.answers[-1][0] in "45"])
_CLOSING = (b"HTTP/1.0", b"Connection: close")


async def _replies(streams: list[list[bytes]]) -> list[tuple[bytes, list[tuple[bytes, list[Any], bytes]]]]:
    """What each stream of pieces gets, and what the backend gets of it."""
    seen: list[tuple[bytes, list[Any], bytes]] = []

    async def script(peer: Peer) -> None:
        while True:
            request = await read_body(peer.reader, await read_head(peer.reader))
            if request.whole:
                seen.append((request.start, request.headers, request.body))
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    results = []
    async with world(await Backend(script).start()) as w:
        for pieces in streams:
            seen.clear()
            client = await w.client()
            for piece in pieces:
                client.send(piece)
                await asyncio.sleep(0)
            client.send(b"GET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            got = await client.end()
            results.append((got, list(seen)))
    return results


@settings(max_examples=examples(200, 40), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_GOOD, max_size=4), st.none() | _BAD, st.lists(st.integers(0, 2000), max_size=12))
def test_cuts_change_nothing(good: list[bytes], bad: bytes | None, cuts: list[int]) -> None:
    """However a stream of bytes is cut, the same requests go on, and the same answers come."""
    stream = b"".join(good) + (bad or b"")
    places = sorted({cut % (len(stream) + 1) for cut in cuts} | {0, len(stream)})
    pieces = [stream[a:b] for a, b in pairwise(places)]

    async def main() -> None:
        whole, cut = await _replies([[stream], pieces])
        assert whole == cut

    run(main)


# --- garbage ---

_FRAGMENTS = st.sampled_from(
    [
        *(b"GET ", b"POST ", b"/", b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b"Host: a\r\n", b"\r\n", b"\n", b"\r"),
        *(b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n", b"0\r\n\r\n", b"abc"),
        *(
            b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
            b"Connection: close\r\n",
            b"Expect: 100-continue\r\n",
        ),
        *(
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 101 S\r\n",
            b"HTTP/1.1 100 C\r\n\r\n",
            b"HTTP/1.1 204 N\r\n\r\n",
        ),
        *(b"A" * 9000 + b": ", b"x" * 40_000, b": ", b";", b"\x00", b"\xff"),
    ]
)
_garbage = st.lists(_FRAGMENTS | st.binary(max_size=20), max_size=20).map(b"".join)


@settings(max_examples=examples(400, 50), deadline=None, suppress_health_check=list(HealthCheck))
@given(_garbage, _garbage | st.none(), _GOOD)
def test_garbage(sent: bytes, answered: bytes | None, before: bytes) -> None:
    """Whatever bytes either side says, nothing raises in the loop, nothing is left, and what goes on is well-formed."""

    async def main() -> None:
        seen: list[Message] = []

        async def script(peer: Peer) -> None:
            while True:
                seen.append(await read_head(peer.reader))
                await read_body(peer.reader, seen[-1])
                peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" if answered is None else answered)

        async with world(await Backend(script).start()) as w:
            for raw in (sent, before + sent):
                client = await w.client()
                client.send(raw)
                await asyncio.sleep(0.002)
                client.writer.write_eof()
                await client.end()
        for message in seen:
            assert message.get("host") is not None
            assert message.get("x-forwarded-for") == b"192.0.2.1"
            assert message.start.endswith(b" HTTP/1.1")

    run(main)


def _bounded(raw: Callable[[], bytes], count: int) -> Callable[[], Coroutine[Any, Any, None]]:
    async def main() -> None:
        async def script(peer: Peer) -> None:
            while await peer.reader.read(65536):
                pass

        async with world(await Backend(script).start()) as w:
            client = await w.client()
            most = 0
            for _ in range(count):
                client.send(raw())
                await asyncio.sleep(0)
                for held in w.proxy.clients:
                    most = max(most, held.kept + 200 * held.waiting)
                if client.reader.at_eof() or client.writer.transport.get_write_buffer_size() > 2**20:
                    break
            assert most < 2**20
            client.abort()
            # A client's end stands behind what it has sent, which is not read: until its request's time is up.
            w.pass_time(601)
            w.pass_time(61)

    return main


def test_floods_are_bounded() -> None:
    """Pipelined requests, header lines, a header, empty lines, chunks' extensions, trailers: without end, each ends."""
    get = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    chunked = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    for first, more in (
        (b"", get * 400),
        (get[:-2], b"X: y\r\n" * 2000),
        (get[:-2] + b"X: ", b"y" * 20_000),
        (b"GET /", b"y" * 20_000),
        (b"", b"\r\n" * 5000),
        (chunked, b"1;" + b"x" * 9000 + b"\r\nx\r\n"),
        (chunked + b"1;", b"x" * 20_000),
        (chunked + b"0\r\n", b"X: y\r\n" * 2000),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n", get * 9000),
    ):
        said = iter([first])
        run(_bounded(lambda said=said, more=more: next(said, more), 100))  # type: ignore[misc]
