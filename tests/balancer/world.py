"""A balancer between real sockets: clients and backends that say exactly what a test wants, byte by byte.

Everything runs in one event loop (uvloop, as in production), so that a test can look at the counts in between. The messages are read
by a small reader of its own, from RFC 9112 and not from the code. What raises in the loop, and what is left over, fails the test.
"""

# ruff: noqa: ARG002 - parts of a test keep contracts of which they need little

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from gtm.balancer.plane.access import AccessLines
from gtm.balancer.plane.backend.backends import Route
from gtm.balancer.plane.client.downstream import Downstream
from gtm.balancer.plane.contracts import Limits, Looks, SentRequest
from gtm.balancer.plane.exchange import TRANSITIONS, Exchange, ExchangePhase
from gtm.balancer.plane.proxy import Proxy
from gtm.balancer.plane.timeouts import TimeoutRules
from gtm.balancer.wire.endpoints import target_of
from gtm.balancer.wire.facts import RequestFacts
from gtm.balancer.wire.refusals import Refusal
from gtm.runtime.process.connections import MAX_CONNECTIONS, Connections
from tests import uvloops
from tests.patience import PATIENCE

_NARROW = 4096
"""Bytes for which a kernel is asked to hold."""


@dataclass
class Message:
    """A request or a response as it was on the wire: start line, header lines in order, body without its framing."""

    start: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""
    trailers: list[tuple[bytes, bytes]] = field(default_factory=list)
    whole: bool = True

    @property
    def status(self) -> int:
        return int(self.start.split(b" ")[1])

    def get(self, name: str) -> bytes | None:
        """The value of a field that is there once at most."""
        found = [value for key, value in self.headers if key.lower() == name.encode()]
        assert len(found) <= 1, (name, found)
        return found[0] if found else None

    @property
    def names(self) -> set[bytes]:
        return {name.lower() for name, _ in self.headers}


async def read_head(reader: asyncio.StreamReader) -> Message:
    """A message's head. Raises IncompleteReadError where the connection ends before."""
    raw = await reader.readuntil(b"\r\n\r\n")
    start, *lines = raw[:-4].split(b"\r\n")
    return Message(start, [_field(line) for line in lines])


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    assert colon, line
    assert name, line
    assert b" " not in name, line
    return name, value.strip(b" \t")


async def read_body(reader: asyncio.StreamReader, message: Message, *, until_end: bool = False) -> Message:
    """What follows a head (RFC 9112 §6.3). `whole` is False where it breaks off."""
    try:
        if message.get("transfer-encoding") is not None:
            assert message.get("transfer-encoding") == b"chunked"
            assert message.get("content-length") is None
            await _chunks(reader, message)
        elif (length := message.get("content-length")) is not None:
            message.body = await reader.readexactly(int(length))
        elif until_end:
            message.body = await reader.read()
    except asyncio.IncompleteReadError as error:
        message.body += error.partial
        message.whole = False
    except ConnectionError:
        message.whole = False
    return message


async def _chunks(reader: asyncio.StreamReader, message: Message) -> None:
    while True:
        size = int((await reader.readuntil(b"\r\n"))[:-2], 16)
        if not size:
            break
        message.body += await reader.readexactly(size)
        assert await reader.readexactly(2) == b"\r\n"
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        message.trailers.append(_field(line[:-2]))


def ended_exchange(**more: Any) -> Any:
    """What a picker looks at of an exchange: a chat that ends well, but for what a test says."""
    path = b"/v1/chat/completions"
    usual: dict[str, Any] = {
        "facts": RequestFacts("m", 100),
        "answer": SimpleNamespace(events=False),
        "target": target_of(b"POST", path),
        "client": SimpleNamespace(peer="192.0.2.1"),
        "status": 200,
        "first_byte": 1.0,
        "complete": True,
        **dict.fromkeys(("tunnelled", "full", "seeks"), False),
        **dict.fromkeys(("chosen", "asked", "verdict", "finds", "tokens", "meter")),
    }
    return SimpleNamespace(**{**usual, **more})


class Peer:
    """One end of a connection in a test's hands."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)

    async def request(self) -> Message:
        return await read_body(self.reader, await read_head(self.reader))

    async def response(self, method: str = "GET") -> Message:
        """The next response; of HEAD, and with 1xx, 204 and 304, its head."""
        message = await asyncio.wait_for(read_head(self.reader), PATIENCE)
        if method == "HEAD" or message.status < 200 or message.status in (204, 304):
            return message
        return await asyncio.wait_for(read_body(self.reader, message, until_end=True), PATIENCE)

    async def end(self) -> bytes:
        """All that comes until the other side ends."""
        try:
            return await asyncio.wait_for(self.reader.read(), PATIENCE)
        except ConnectionError:
            return b""

    def close(self) -> None:
        self.writer.close()

    def abort(self) -> None:
        self.writer.transport.abort()

    async def gone(self) -> None:
        """Abort it, and hear how it ended: what nobody hears the event loop reports, or not, as garbage happens to be collected."""
        self.abort()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


_running: list[Backend] = []

Script = Callable[[Peer], Awaitable[None]]


class Backend:
    """A server that follows a script on each connection; `connections` counts them, `ended` those whose other side has gone."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.connections = 0
        self.peers: list[Peer] = []
        self.requests: list[Message] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0, **more: Any) -> str:
        _running.append(self)
        self._server = await asyncio.start_server(self._serve, host, port, limit=2**20, **more)
        scheme = "https" if more.get("ssl") else "http"
        return f"{scheme}://{host}:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        peer = Peer(reader, writer)
        self.peers.append(peer)
        with contextlib.suppress(asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            await self.script(peer)
        peer.close()
        self._tasks.discard(task)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        for peer in self.peers:
            await peer.gone()


def answering(*answers: bytes, seen: list[Message] | None = None) -> Script:
    """A script that answers each request with the next of these, the last one for ever."""
    left = list(answers)

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            if seen is not None:
                seen.append(request)
            peer.send(left.pop(0) if len(left) > 1 else left[0])

    return script


class Gate:
    """Lets everything pass, but for what a test refuses."""

    def __init__(self) -> None:
        self.refusal: Refusal | None = None
        self.renewed: Refusal | None = None
        self.judged: list[Exchange] = []
        self.peers: list[str | None] = []
        """Whose requests went on."""

    def judge(self, exchange: Exchange, now: float) -> Refusal | None:
        self.judged.append(exchange)
        return self.refusal

    def unready(self) -> str:
        return ""

    def renew(self, exchange: Exchange) -> Refusal | None:
        return self.renewed

    def client(self, exchange: Exchange) -> bytes:
        return b"\xc0\0\2\1"

    def cors(self, exchange: Exchange) -> None:
        return None

    def more_headers(self, exchange: Exchange) -> bytes:
        self.peers.append(exchange.client.peer)
        return b"x-forwarded-for: 192.0.2.1\r\n"


class Admission:
    """Admits at once, or when a test says so; and holds that ends are told once, of those only that were offered."""

    def __init__(self) -> None:
        self.holds = False
        self.waiting: list[Exchange] = []
        self.inside: set[Exchange] = set()
        self.wrong: list[str] = []

    def offer(self, exchange: Exchange, now: float) -> Refusal | None:
        self.inside.add(exchange)
        if self.holds:
            self.waiting.append(exchange)
        else:
            exchange.admitted()
        return None

    def ended(self, exchange: Exchange, now: float) -> None:
        if exchange not in self.inside:
            self.wrong.append("ended without an offer, or twice")
        self.inside.discard(exchange)
        if exchange in self.waiting:
            self.waiting.remove(exchange)

    def withdraw(self, exchange: Exchange, now: float) -> None:
        if exchange in self.waiting:
            self.waiting.remove(exchange)

    def tick(self, now: float) -> None: ...

    @property
    def has_waiting(self) -> bool:
        return bool(self.waiting)


class Flight:
    def __init__(self, picker: Picker, url: str) -> None:
        self._picker = picker
        self._url = url
        self.ends = 0
        picker.counts[url] += 1

    def end(self, exchange: Exchange, how: str) -> None:
        self.ends += 1
        if self.ends > 1:
            self._picker.wrong.append(f"ended {self.ends} times")
        self._picker.counts[self._url] -= 1
        self._picker.ends.append(how)


class Picker:
    """The first backend that was not tried."""

    cut = None
    looks_at = Looks()

    def __init__(self, routes: list[Route]) -> None:
        self._routes = tuple(routes)
        self.counts = {route.url: 0 for route in routes}
        self.ends: list[str] = []
        self.failures: list[str] = []
        self.failing: dict[str, float] = {}
        """Backends whose checks fail, and since when."""
        self.silences: list[str] = []
        self.room = True
        self.wrong: list[str] = []

    def configure(self, routes: tuple[Route, ...]) -> None:
        """From now on these."""
        self._routes = routes

    def pick(self, exchange: Exchange, tried: tuple[str, ...], now: float) -> SentRequest | Refusal:
        for route in self._routes:
            if route.url not in tried:
                return SentRequest(route, Flight(self, route.url))
        return Refusal(503, "no_backend", "none is left")

    def second(self, exchange: Exchange, tried: tuple[str, ...], now: float) -> SentRequest | None:
        found = self.pick(exchange, tried, now) if self.room else None
        return found if isinstance(found, SentRequest) else None

    def failed(self, sent: SentRequest, detail: str, now: float) -> None:
        self.failures.append(detail)

    def failing_since(self, sent: SentRequest) -> float | None:
        return self.failing.get(sent.route.url)

    def is_down(self, sent: SentRequest) -> bool:
        return sent.route.url in self.failing

    def has_room(self, exchange: Exchange, tried: tuple[str, ...]) -> bool:
        return self.room

    def silent(self, sent: SentRequest, since: float, now: float) -> None:
        self.silences.append(sent.route.url)

    def usable(self) -> int:
        return len(self._routes)

    def routes(self) -> tuple[Route, ...]:
        return self._routes

    @property
    def in_flight(self) -> int:
        return sum(self.counts.values())


class Clock:
    """The loop's time, and what a test adds to it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.ahead = 0.0

    def __call__(self) -> float:
        return self._loop.time() + self.ahead


class World:
    """A proxy on a port, its parts, and its clients."""

    def __init__(self, proxy: Proxy, gate: Gate, admission: Admission, picker: Picker, clock: Clock) -> None:
        self.proxy = proxy
        self.gate = gate
        self.admission = admission
        self.picker = picker
        self.clock = clock
        self.address = ("", 0)
        self.clients: list[Peer] = []
        self.ends: Counter[Exchange] = Counter()
        """How often a request's end was told."""
        self.narrow = False
        """Kernels hold little between a client and the proxy: who does not read is felt soon."""

    async def client(self, **more: Any) -> Peer:
        if self.narrow:
            more["sock"] = socket.socket()
            more["sock"].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _NARROW)
            more["sock"].setblocking(False)
            await asyncio.get_running_loop().sock_connect(more["sock"], self.address)
        address = () if self.narrow else self.address
        reader, writer = await asyncio.open_connection(*address, **{"limit": 2**20, **more})
        peer = Peer(reader, writer)
        self.clients.append(peer)
        return peer

    async def ask(self, raw: bytes, method: str = "GET") -> Message:
        """One request on a connection of its own."""
        client = await self.client()
        client.send(raw)
        answer = await client.response(method)
        client.close()
        return answer

    def pass_time(self, seconds: float) -> None:
        """Let so much time have passed, and have the proxy look at its deadlines."""
        self.clock.ahead += seconds
        self.proxy.look()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds that will."""
        async with asyncio.timeout(PATIENCE):
            while not holds():  # noqa: ASYNC110 - what holds is many things
                await asyncio.sleep(0.001)

    async def nothing_left(self) -> None:
        """All ends were told, once; and nothing is in flight."""
        await self.until(lambda: not self.picker.in_flight and not self.admission.inside)
        assert not self.picker.wrong, self.picker.wrong
        assert not self.admission.wrong, self.admission.wrong
        assert all(count == 1 for count in self.ends.values()), self.ends
        assert all(self.ends[exchange] == 1 for exchange in self.gate.judged)


class _Ends:
    """Counts ends, and tells another log of them."""

    def __init__(self, ends: Counter[Exchange], log: AccessLines | None) -> None:
        self._ends = ends
        self._log = log

    def ended(self, exchange: Exchange, sent: SentRequest | None, how: str, now: float) -> None:
        self._ends.update((exchange,))
        if self._log is not None:
            self._log.ended(exchange, sent, how, now)

    def unread(self, client: Downstream, refusal: Refusal, target: bytes) -> None:
        if self._log is not None:
            self._log.unread(client, refusal, target)


class _Phases:
    """Stands for `Exchange.phase`, and takes down what followed a phase that may not follow it."""

    def __init__(self) -> None:
        self.slot = Exchange.__dict__["phase"]
        self.wrong: list[tuple[ExchangePhase, ExchangePhase]] = []

    def __get__(self, exchange: Exchange, owner: type[Exchange]) -> ExchangePhase:
        found: ExchangePhase = self.slot.__get__(exchange, owner)
        return found

    def __set__(self, exchange: Exchange, phase: ExchangePhase) -> None:
        try:
            before = self.slot.__get__(exchange, Exchange)
        except AttributeError:
            pass
        else:
            if phase not in TRANSITIONS[before]:
                self.wrong.append((before, phase))
        self.slot.__set__(exchange, phase)


@contextlib.contextmanager
def _held_to_its_table() -> Iterator[None]:
    """Each exchange goes from phase to phase as the plane's table says."""
    if isinstance(Exchange.__dict__["phase"], _Phases):  # a second world in the first
        yield
        return
    phases = _Phases()
    setattr(Exchange, "phase", phases)  # noqa: B010 - a slot is no attribute to mypy
    try:
        yield
        assert phases.wrong == []
    finally:
        setattr(Exchange, "phase", phases.slot)  # noqa: B010 - likewise


@contextlib.asynccontextmanager
async def world(
    *urls: str,
    limits: Limits | None = None,
    timeouts: TimeoutRules | None = None,
    narrow: bool = False,
    log: AccessLines | None = None,
    room: Connections | None = None,
    trusts: Callable[[str | None], bool] = lambda _: False,
    **more: Any,
) -> AsyncIterator[World]:
    """A proxy before these backends."""
    loop = asyncio.get_running_loop()
    clock = Clock(loop)
    gate, admission = Gate(), Admission()
    picker = Picker([Route(url, **more) for url in urls])
    ends: Counter[Exchange] = Counter()
    proxy = Proxy(
        gate,
        admission,
        picker,
        loop=loop,
        room=Connections(MAX_CONNECTIONS) if room is None else room,
        trusts=trusts,
        region="r1",
        limits=limits or Limits(retries_free=100),
        timeouts=timeouts or TimeoutRules(),
        log=_Ends(ends, log),
    )
    proxy.now = clock
    proxy.start()
    listener = socket.create_server(("127.0.0.1", 0))
    if narrow:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _NARROW)
    server = await loop.create_server(proxy.connection, sock=listener)
    made = World(proxy, gate, admission, picker, clock)
    made.ends, made.narrow = ends, narrow
    made.address = server.sockets[0].getsockname()
    try:
        with _held_to_its_table():
            yield made
        for client in made.clients:
            await client.gone()
        await made.until(lambda: not proxy.connections)
        await made.nothing_left()
        proxy.close()
        await made.until(lambda: all(route.open == 0 for route in picker.routes()))
    finally:
        proxy.close()
        server.close()


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test in a loop of its own: nothing may raise in it unheard."""
    heard: list[dict[str, Any]] = []

    async def guarded() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
        try:
            await asyncio.wait_for(main(), 4 * PATIENCE)
        finally:
            while _running:
                await _running.pop().stop()
            await asyncio.sleep(0.05 if heard or sys.exc_info()[0] else 0.001)  # for ends to be told

    gc.freeze()  # whatever was there before cannot be what the test leaves: not to look at it spares 100 ms a test
    uvloops.run(guarded())
    gc.collect()
    assert not heard, heard
