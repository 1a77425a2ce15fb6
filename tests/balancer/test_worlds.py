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

from gtm.balancer.plane.backends import Route
from gtm.balancer.plane.proxy import Limits
from gtm.balancer.plane.upstream import Upstream
from gtm.balancer.wire.refusals import Refusal
from tests.balancer.test_corpus import _cases
from tests.balancer.world import Backend, Message, Peer, World, read_body, read_head, run, world
from tests.effort import examples

_JSON = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
_REQUESTS = (
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
    b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000,
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
    % (len(_JSON), _JSON),
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"BAD\r\n\r\n",
)
_ANSWERS = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nha",
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n",
    b"9\r\ndata: 2\n\n\r\n",
    b"0\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhi",
    b"HTTP/1.1 500 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    b"\x00",
    b"x" * 300_000,
)
_MODES = ("as it is", "refuses", "hangs", "late", "raises")

_step = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, 4), st.integers(0, len(_REQUESTS) - 1), st.integers(0, 400)),
    st.tuples(st.just("ask"), st.integers(0, 4), st.integers(0, len(_REQUESTS) - 1), st.just(0)),
    st.tuples(st.just("client closes"), st.integers(0, 4)),
    st.tuples(st.just("client resets"), st.integers(0, 4)),
    st.tuples(st.just("answer"), st.integers(0, 9), st.integers(0, len(_ANSWERS) - 1)),
    st.tuples(st.just("answer"), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("backend closes"), st.integers(0, 9)),
    st.tuples(st.just("backend resets"), st.integers(0, 9)),
    st.tuples(st.just("holds"), st.booleans()),
    st.tuples(st.just("admit")),
    st.tuples(st.just("refuse")),
    st.tuples(st.just("connecting"), st.integers(0, 1), st.sampled_from(_MODES)),
    st.tuples(st.just("time"), st.sampled_from((0.3, 3.0, 11.0, 61.0, 601.0))),
    st.tuples(st.just("wait"), st.integers(0, 3)),
    st.tuples(st.just("drain")),
)


def _difficult(route: Route, modes: dict[str, str]) -> None:
    connect = route.connect

    async def wrapped(loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> Upstream:
        mode = modes.get(route.url, _MODES[0])
        if mode == "refuses":
            raise ConnectionRefusedError("no")
        if mode == "raises":
            raise ValueError("odd")
        if mode == "hangs":
            await asyncio.sleep(1000)
        made = await connect(loop, clock)
        if mode == "late":
            try:
                await asyncio.sleep(0.001)
            except asyncio.CancelledError:
                made.abort()  # as the event loop does with one that it cannot hand out
                raise
        return made

    route.connect = wrapped  # type: ignore[method-assign]


class _Play:
    """One world's steps."""

    def __init__(self, w: World, backend: Backend, modes: dict[str, str]) -> None:
        self._w = w
        self._backend = backend
        self._modes = modes
        self._clients: dict[int, Peer] = {}

    async def step(self, what: str, *args: Any) -> None:
        await getattr(self, "_" + what.replace(" ", "_"))(*args)
        picker = self._w.picker
        assert all(count >= 0 for count in picker.counts.values())
        assert not picker.wrong, picker.wrong
        assert not self._w.admission.wrong, self._w.admission.wrong
        assert picker.in_flight <= len(self._w.admission.inside)

    async def _ask(self, client: int, request: int, cut: int) -> None:
        peer = self._clients.get(client)
        if peer is None or peer.writer.is_closing() or peer.reader.at_eof():
            peer = self._clients[client] = await self._w.client()
        raw = _REQUESTS[request]
        peer.send(raw[:-cut] if cut else raw)

    async def _client_closes(self, client: int) -> None:
        if client in self._clients:
            self._clients.pop(client).close()

    async def _client_resets(self, client: int) -> None:
        if client in self._clients:
            self._clients.pop(client).abort()

    def _open(self) -> list[Peer]:
        return [peer for peer in self._backend.peers if not peer.writer.is_closing()]

    async def _answer(self, which: int, answer: int) -> None:
        if found := self._open():
            found[which % len(found)].send(_ANSWERS[answer])

    async def _backend_closes(self, which: int) -> None:
        if found := self._open():
            found[which % len(found)].close()

    async def _backend_resets(self, which: int) -> None:
        if found := self._open():
            found[which % len(found)].abort()

    async def _holds(self, holds: bool) -> None:
        self._w.admission.holds = holds

    async def _admit(self) -> None:
        if self._w.admission.waiting:
            self._w.admission.waiting.pop(0).admitted()

    async def _refuse(self) -> None:
        if self._w.admission.waiting:
            self._w.admission.waiting[0].refuse(Refusal(503, "queue_timeout", "x"))

    async def _connecting(self, route: int, mode: str) -> None:
        self._modes[self._w.picker.routes()[route].url] = mode

    async def _time(self, seconds: float) -> None:
        self._w.pass_time(seconds)

    async def _wait(self, rounds: int) -> None:
        for _ in range(rounds):
            await asyncio.sleep(0.001)

    async def _drain(self) -> None:
        self._w.proxy.drain()


async def _reads(peer: Peer) -> None:
    while await peer.reader.read(65536):
        pass


@settings(max_examples=examples(600, 60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_step, min_size=3, max_size=25))
def test_whatever_happens(steps: list[tuple[Any, ...]]) -> None:
    """In every world all counts are 0 in the end, and no task or connection is left."""

    async def main() -> None:
        backend, other = Backend(_reads), Backend(_reads)
        urls = await backend.start(), await other.start()
        other.peers = backend.peers
        modes: dict[str, str] = {}
        async with world(*urls, limits=Limits(connect_timeout=0.02, retries_free=1000)) as w:
            for route in w.picker.routes():
                _difficult(route, modes)
            play = _Play(w, backend, modes)
            for step in steps:
                await play.step(*step)
            await asyncio.sleep(0.001)
        await w.until(lambda: not any(peer for peer in backend.peers if not _ended(peer)))
        mine = {task for task in asyncio.all_tasks() if "Exchange" in repr(task.get_coro())}
        await w.until(lambda: all(task.done() for task in mine))

    run(main)


def _ended(peer: Peer) -> bool:
    return peer.reader.at_eof() or peer.writer.is_closing()


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
            await _reads(peer)

        async with world(await Backend(script).start()) as w:
            client = await w.client()
            most = 0
            for _ in range(count):
                client.send(raw())
                await asyncio.sleep(0)
                for held in w.proxy._clients:
                    kept = sum(len(name) + len(value) for name, value in held._headers)
                    most = max(most, len(held._unread) + kept + 200 * len(held._waiting))
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
