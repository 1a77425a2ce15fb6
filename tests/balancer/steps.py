"""What may happen to a balancer in a random world, a step each: by clients, backends, peers, admission, connections, time, changes.

Steps that stand together in a list happen in one turn of the event loop, as far as they can: races are made by it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from gtm.balancer.plane.access import AccessLines
from gtm.balancer.plane.backend.backends import Route
from gtm.balancer.plane.backend.upstream import Upstream
from gtm.balancer.plane.contracts import Limits, PushedRequest, SentRequest
from gtm.balancer.plane.timeouts import TimeoutRules, Timeouts
from gtm.balancer.wire.refusals import Refusal
from tests.balancer.world import Backend, Flight, Peer, Picker, World, world

_JSON = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
_CHAT = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    % len(_JSON)
)
_LARGE = b"x" * 300_000
_UPGRADE = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
_CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
REQUESTS = (
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
    b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n" + _LARGE,
    _CHUNKED + b"\r\n3\r\nabc\r\n0\r\n\r\n",
    _CHUNKED + b"Trailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\nHost: b\r\n\r\n",
    _CHUNKED + b"\r\n",
    _CHAT + b"\r\n" + _JSON,
    _CHAT + b"Expect: 100-continue\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n",
    _UPGRADE,
    b"BAD\r\n\r\n",
)
MORE = (b"abc", _JSON, b"3\r\nabc\r\n", b"493e0\r\n%b\r\n" % _LARGE, b"0\r\n\r\n", _LARGE, b"\x00")
"""What a client may send behind a head."""
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"
_SWITCHES = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhi"
ANSWERS = (
    _OK,
    _OK.replace(b"\r\n\r\n", b"\r\ngtm-push: taken\r\n\r\n"),
    b"HTTP/1.1 503 No\r\ngtm-push: not-taken\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nha",
    b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + _LARGE,
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    _EVENTS,
    b"9\r\ndata: 2\n\n\r\n",
    b"0\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    _SWITCHES,
    b"HTTP/1.1 500 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    b"\x00",
    _LARGE,
)
_MODES = ("as it is", "refuses", "hangs", "late", "raises")

_PROCESS = os.getpid() & 0x3FFF
_HOST = f"127.77.{_PROCESS >> 7}.{(_PROCESS & 0x7F) + 1}" if sys.platform == "linux" else "127.0.0.1"
"""An address of this process's own: no other test's probe of a server that is gone comes to a backend here, and looks like a leak."""

_CLIENT = st.integers(0, 4)
_WHICH = st.integers(0, 9)
_REQUEST = st.integers(0, len(REQUESTS) - 1)
_ANSWER = st.integers(0, len(ANSWERS) - 1)
STEP = st.one_of(
    st.tuples(st.just("ask"), _CLIENT, _REQUEST, st.just(0)),
    st.tuples(st.just("ask"), _CLIENT, _REQUEST, st.integers(0, 400)),
    st.tuples(st.just("ask twice"), _CLIENT, _REQUEST, _REQUEST),
    st.tuples(st.just("more"), _CLIENT, st.integers(0, len(MORE) - 1)),
    st.tuples(st.sampled_from(("client closes", "client resets", "client ends")), _CLIENT),
    st.tuples(st.sampled_from(("client stops reading", "client reads on")), _CLIENT),
    st.tuples(st.just("answer"), _WHICH, _ANSWER, st.just(0)),
    st.tuples(st.just("answer"), _WHICH, _ANSWER, st.integers(0, 60)),
    st.tuples(st.sampled_from(("answer and close", "answer and reset")), _WHICH, _ANSWER),
    st.tuples(st.sampled_from(("backend closes", "backend resets", "backend ends")), _WHICH),
    st.tuples(st.sampled_from(("backend stops reading", "backend reads on")), _WHICH),
    st.tuples(st.sampled_from(("exchange", "stream", "tunnel")), _CLIENT),
    st.tuples(st.just("holds"), st.booleans()),
    st.tuples(st.sampled_from(("admit", "refuse", "drain"))),
    st.tuples(st.just("connecting"), st.integers(0, 2), st.sampled_from(_MODES)),
    st.tuples(st.just("configuration"), st.integers(0, 3)),
    st.tuples(st.just("pushing"), st.booleans()),
    st.tuples(st.just("law"), st.booleans()),
    st.tuples(st.just("time"), st.sampled_from((0.3, 3.0, 11.0, 61.0, 601.0))),
    st.tuples(st.just("wait"), st.integers(0, 3)),
)
STEPS = st.lists(STEP, min_size=3, max_size=30)


class _Difficult(Route):
    """A route on which connecting goes as a step has said."""

    modes: dict[str, str]

    async def connect(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> Upstream:
        mode = self.modes.get(self.url, _MODES[0])
        if mode == "refuses":
            raise ConnectionRefusedError("no")
        if mode == "raises":
            raise ValueError("odd")
        if mode == "hangs":
            await asyncio.sleep(1000)
        made = await super().connect(loop, clock)
        if mode == "late":
            try:
                await asyncio.sleep(0.001)
            except asyncio.CancelledError:
                made.abort()  # as the event loop does with one that it cannot hand out
                raise
        return made


class _Peers:
    """A peer region, to which everything goes that may, while a step has said so."""

    def __init__(self, route: Route, picker: Picker) -> None:
        self.takes = False
        self._route = route
        self._picker = picker
        picker.counts[route.url] = 0

    def push(self, exchange: object, refusal: Refusal | None) -> SentRequest | None:  # noqa: ARG002 - the contract
        if not self.takes:
            return None
        return SentRequest(
            self._route,
            Flight(self._picker, self._route.url),
            PushedRequest("r2", b"peer", b"gtm-push: x\r\n"),
        )

    def answered(self, sent: SentRequest, said: bytes | None) -> bool:  # noqa: ARG002 - the contract
        return said == b"taken"

    def routes(self) -> tuple[Route, ...]:
        return (self._route,)


class Play:
    """One world's steps."""

    def __init__(self, w: World, backend: Backend, urls: tuple[str, ...]) -> None:
        self._w = w
        self._backend = backend
        self._urls = urls
        self._modes: dict[str, str] = {}
        self._clients: dict[int, Peer] = {}
        self._ended: set[Peer] = set()
        self._all = [self._made(url) for url in urls]
        self._routes = {route.url: route for route in self._all[:2]}
        self._peers = _Peers(self._all[2], w.picker)
        w.proxy.pusher = self._peers
        w.picker.configure(tuple(self._routes.values()))

    def _made(self, url: str) -> Route:
        made = _Difficult(url)
        made.modes = self._modes
        return made

    async def step(self, what: str, *args: Any) -> None:
        """Do it; what has to hold all the time holds then."""
        await getattr(self, "_" + what.replace(" ", "_"))(*args)
        picker, admission = self._w.picker, self._w.admission
        assert all(count >= 0 for count in picker.counts.values())
        assert not picker.wrong, picker.wrong
        assert not admission.wrong, admission.wrong
        assert picker.in_flight <= len(admission.inside)

    async def end(self) -> None:
        """Everybody goes; backends read what there is to its end."""
        for peer in self._backend.peers:
            _read(peer, on=True)
        await asyncio.sleep(0.001)
        # Of who waits, the end may stand behind a body that is read no further: the queue's time ends those.
        while self._w.admission.waiting:
            await self._refuse()
        for client in self._w.clients:
            client.abort()
        self._w.pass_time(1.1)
        await self._w.until(self._only_unheard)
        self._w.pass_time(61)

    def _only_unheard(self) -> bool:
        """Whether all are found gone, but for those whose end nothing tells: it stands behind what is not read, amid a silent answer."""
        self._w.proxy.look()
        return all(client.paused and client.answering for client in self._w.proxy.clients)

    def leaks(self) -> list[str]:
        """Connections to backends that are open although nobody needs them."""
        return [f"{route.url}: {route.open}" for route in self._all if route.open]

    # --- clients ---

    async def _client(self, client: int) -> Peer:
        return self._known(client) or await self._new(client)

    def _known(self, client: int) -> Peer | None:
        peer = self._clients.get(client)
        return None if peer is None or peer.writer.is_closing() or peer.reader.at_eof() else peer

    async def _new(self, client: int) -> Peer:
        peer = self._clients[client] = await self._w.client()
        return peer

    async def _ask(self, client: int, request: int, cut: int) -> None:
        raw = REQUESTS[request]
        (await self._client(client)).send(raw[:-cut] if cut else raw)

    async def _ask_twice(self, client: int, first: int, second: int) -> None:
        (await self._client(client)).send(REQUESTS[first] + REQUESTS[second])

    async def _more(self, client: int, more: int) -> None:
        if peer := self._known(client):
            peer.send(MORE[more])

    async def _client_closes(self, client: int) -> None:
        if peer := self._known(client):
            del self._clients[client]
            peer.close()

    async def _client_resets(self, client: int) -> None:
        if peer := self._known(client):
            del self._clients[client]
            peer.abort()

    async def _client_ends(self, client: int) -> None:
        if peer := self._known(client):
            del self._clients[client]
            peer.writer.write_eof()

    async def _client_stops_reading(self, client: int) -> None:
        if peer := self._known(client):
            _read(peer, on=False)

    async def _client_reads_on(self, client: int) -> None:
        if peer := self._known(client):
            _read(peer, on=True)

    # --- backends and peers ---

    def _found(self, which: int) -> Peer | None:
        found = [
            peer for peer in self._backend.peers if not peer.writer.is_closing() and peer not in self._ended
        ]
        return found[which % len(found)] if found else None

    async def _answer(self, which: int, answer: int, cut: int) -> None:
        raw = ANSWERS[answer]
        if peer := self._found(which):
            peer.send(raw[:-cut] if cut else raw)

    async def _answer_and_close(self, which: int, answer: int) -> None:
        if peer := self._found(which):
            peer.send(ANSWERS[answer])
            peer.close()

    async def _answer_and_reset(self, which: int, answer: int) -> None:
        if peer := self._found(which):
            peer.send(ANSWERS[answer])
            peer.abort()

    async def _backend_closes(self, which: int) -> None:
        if peer := self._found(which):
            peer.close()

    async def _backend_resets(self, which: int) -> None:
        if peer := self._found(which):
            peer.abort()

    async def _backend_ends(self, which: int) -> None:
        if peer := self._found(which):
            peer.writer.write_eof()
            self._ended.add(peer)

    async def _backend_stops_reading(self, which: int) -> None:
        if peer := self._found(which):
            _read(peer, on=False)

    async def _backend_reads_on(self, which: int) -> None:
        if peer := self._found(which):
            _read(peer, on=True)

    # --- both ---

    async def _both(self, client: int, request: bytes, answer: bytes) -> None:
        before = set(self._backend.peers)
        (await self._client(client)).send(request)
        await self._wait(3)
        new = [peer for peer in self._backend.peers if peer not in before] or self._backend.peers[-1:]
        for peer in new:
            if not peer.writer.is_closing() and peer not in self._ended:
                peer.send(answer)
        await self._wait(2)

    async def _exchange(self, client: int) -> None:
        await self._both(client, REQUESTS[0], _OK)

    async def _stream(self, client: int) -> None:
        await self._both(client, REQUESTS[0], _EVENTS)

    async def _tunnel(self, client: int) -> None:
        await self._both(client, _UPGRADE, _SWITCHES)

    # --- the balancer ---

    async def _holds(self, holds: bool) -> None:
        self._w.admission.holds = holds

    async def _admit(self) -> None:
        if self._w.admission.waiting:
            self._w.admission.waiting.pop(0).admitted()

    async def _refuse(self) -> None:
        if self._w.admission.waiting:
            self._w.admission.waiting[0].refuse(Refusal(503, "queue_timeout", "x"))

    async def _connecting(self, route: int, mode: str) -> None:
        self._modes[self._urls[route]] = mode

    async def _configuration(self, which: int) -> None:
        """The first, the second, both, or none of the backends, as `PoolPicker.configure` does it."""
        wanted = [url for number, url in enumerate(self._urls[:2]) if which >> number & 1]
        for url in [url for url in self._routes if url not in wanted]:
            self._routes.pop(url).close()
        for url in wanted:
            if url not in self._routes:
                self._routes[url] = self._made(url)
                self._all.append(self._routes[url])
        self._w.picker.configure(tuple(self._routes.values()))

    async def _pushing(self, takes: bool) -> None:
        self._peers.takes = takes

    async def _law(self, forbids: bool) -> None:
        """From now on nothing may be served here, or all again."""
        gate = self._w.gate
        gate.refusal = gate.renewed = Refusal(451, "refused_residency", "x") if forbids else None

    async def _time(self, seconds: float) -> None:
        self._w.pass_time(seconds)

    async def _wait(self, rounds: int) -> None:
        for _ in range(rounds):
            await asyncio.sleep(0.001)

    async def _drain(self) -> None:
        self._w.proxy.drain()


def _read(peer: Peer, *, on: bool) -> None:
    transport: Any = peer.writer.transport
    if transport.is_closing() or peer.reader.at_eof():
        return
    if on:
        transport.resume_reading()
    else:
        transport.pause_reading()


async def _reads(peer: Peer) -> None:
    while await peer.reader.read(65536):
        pass


async def play(steps: list[tuple[Any, ...]], log: AccessLines | None = None) -> World:
    """A world of these steps, to its end: then every request has had one end, and nothing is left."""
    backend, other, far = Backend(_reads), Backend(_reads), Backend(_reads)
    urls = await backend.start(_HOST), await other.start(_HOST), await far.start(_HOST)
    other.peers = far.peers = backend.peers
    times = Timeouts(connect=0.02, between=60)
    rules = TimeoutRules(times, replace(times, first_byte=60))
    async with world(*urls[:2], limits=Limits(retries_free=1000), timeouts=rules, narrow=True, log=log) as w:
        played = Play(w, backend, urls)
        for step in steps:
            await played.step(*step)
        await asyncio.sleep(0.001)
        await played.end()
    await w.until(lambda: not any(peer for peer in backend.peers if not _ended(peer)))
    await w.until(lambda: not played.leaks())
    mine = {task for task in asyncio.all_tasks() if "Exchange" in repr(task.get_coro())}
    await w.until(lambda: all(task.done() for task in mine))
    return w


def _ended(peer: Peer) -> bool:
    return peer.reader.at_eof() or peer.writer.is_closing()
