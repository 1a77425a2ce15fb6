"""Servers that say that they are full: who is asked instead, what the client gets, and that nobody is ejected (docs/backend-health.md, "Full")."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gtm.balancer.decide.picking import PoolPicker
from gtm.balancer.decide.queueing import QueueAdmission
from gtm.balancer.plane.contracts import Limits
from gtm.balancer.plane.proxy import Proxy
from gtm.core.balance.admission import settings as limits
from gtm.core.balance.backends import Backend as Server
from gtm.core.balance.choosing.values import ChoosingSettings as Choosing
from gtm.core.balance.health import limit
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.settings import HealthSettings
from gtm.core.balance.health.values import BackendState, Check
from gtm.core.health.verdicts import ProbeResult
from gtm.runtime.balancer.carrier import HealthLoop
from gtm.runtime.process.connections import MAX_CONNECTIONS, Connections
from tests.balancer.world import (
    Backend,
    Gate,
    Message,
    Peer,
    answering,
    read_body,
    read_head,
    run,
    world,
)
from tests.patience import PATIENCE

QUEUE = b'{"error": {"message": "The request queue is full."}}'


def _answer(status: int, body: bytes, *lines: bytes, chunked: bool = False) -> bytes:
    more = b"".join(line + b"\r\n" for line in lines)
    if chunked:
        framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        return b"HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n%b\r\n%b" % (status, more, framed)
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n%b\r\n%b" % (status, len(body), more, body)


OK = _answer(200, b"ok")
FULL = _answer(503, QUEUE)


def _post(body: bytes = b"{}", *lines: bytes, method: bytes = b"POST") -> bytes:
    more = b"".join(line + b"\r\n" for line in lines)
    return b"%b /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%b\r\n%b" % (
        method,
        len(body),
        more,
        body,
    )


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(FULL, id="SGLang"),
        pytest.param(
            _answer(503, b'{"error":"Exceeds maximum queue size"}'), id="Triton (NVIDIA/NeMo-Retriever#1077)"
        ),
        pytest.param(_answer(429, b'{"error":"Model is overloaded","error_type":"overloaded"}'), id="TGI"),
        pytest.param(_answer(503, b"", b"retry-AFTER: 1"), id="a time"),
        pytest.param(_answer(503, b"{}", b"Retry-After: Wed, 21 Oct 2026 07:28:00 GMT"), id="a date"),
    ],
)
def test_another_server_is_asked(answer: bytes) -> None:
    """A node at its queue's bound answers a typed 503 "with a sibling sitting idle" (timtoole02/Camelid#667): the client sees nothing of it."""

    async def main() -> None:
        first, other = Backend(answering(answer)), Backend(answering(OK))
        seen: list[Message] = []
        other.script = answering(OK, seen=seen)
        async with world(await first.start(), await other.start()) as w:
            client = await w.client()
            for number in range(3):
                client.send(_post(b'{"n": %d}' % number))
                said = await client.response()
                assert (said.status, said.body) == (200, b"ok")
            assert [one.body for one in seen] == [b'{"n": %d}' % number for number in range(3)]
            assert w.picker.ends == ["full", "answered"] * 3
            assert w.proxy.stats.full.total() == 3
            assert first.connections == 1  # its answer was read to its end
            await w.nothing_left()

    run(main)


@pytest.mark.parametrize("cut", [1, 20, 60, 100])
def test_in_whatever_pieces_it_comes(cut: int) -> None:
    """Nothing of it is with the client before all of it is there."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            peer.send(FULL[:cut])
            await asyncio.sleep(0)
            peer.send(FULL[cut:])

    async def main() -> None:
        async with world(await Backend(script).start(), await Backend(answering(OK)).start()) as w:
            for _ in range(3):
                assert (await w.ask(_post())).body == b"ok"

    run(main)


DEAD = _answer(
    500,
    b'{"error":{"message":"EngineCore encountered an issue. See stack trace (above) for the root cause.","type":"InternalServerError","param":null,"code":500}}',
)


def test_another_server_is_asked_where_an_engine_has_died() -> None:
    """Seen: a vLLM whose engine was killed answered 500 until it had ended. It counts as failures of that server, and each request is asked of another once."""

    async def main() -> None:
        dying, other = await Backend(answering(DEAD)).start(), await Backend(answering(OK)).start()
        async with world(dying, other, limits=Limits(retries_free=100)) as w:
            w.proxy.repeats = True
            for _ in range(3):
                assert (await w.ask(_post())).body == b"ok"
            assert w.picker.ends == ["failed", "answered"] * 3
            await w.nothing_left()
        async with world(dying, await Backend(answering(DEAD)).start(), other) as w:
            w.proxy.repeats = True
            assert (await w.ask(_post())).status == 500
            await w.nothing_left()

    run(main)


@pytest.mark.parametrize(
    ("answer", "repeats"),
    [
        pytest.param(_answer(500, b'{"error":{"message":"CUDA out of memory"}}'), True, id="another 500"),
        pytest.param(DEAD, False, id="not done twice"),
    ],
)
def test_no_other_server_is_asked_for_another_500(answer: bytes, *, repeats: bool) -> None:
    """It may be the request's own doing; and what may not be done twice is not."""

    async def main() -> None:
        first, other = await Backend(answering(answer)).start(), await Backend(answering(OK)).start()
        async with world(first, other) as w:
            w.proxy.repeats = repeats
            assert (await w.ask(_post())).status == 500
            assert w.picker.ends == ["answered"]
            await w.nothing_left()

    run(main)


async def _told(answer: bytes, request: bytes = _post(), **limits: float) -> tuple[Message, list[str], int]:
    """What a client gets of a server's answer while another is idle, the ends there, and the requests that the other got."""
    seen: list[Message] = []
    first, other = Backend(answering(answer)), Backend(answering(OK, seen=seen))
    more = Limits(**{"retries_free": 100, **limits})  # type: ignore[arg-type]
    async with world(await first.start(), await other.start(), limits=more) as w:
        method = request.split(b" ", 1)[0].decode()
        said = await w.ask(request, method)
        await w.nothing_left()
        return said, w.picker.ends, len(seen)


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        pytest.param(
            _answer(429, b'{"error":{"message":"Rate limit reached"}}', b"Retry-After: 7"),
            b"{}",
            id="the client's 429",
        ),
        pytest.param(_answer(503, b'{"error":"Loading model"}'), b"{}", id="a 503 without a word of it"),
        pytest.param(_answer(503, QUEUE + b" " * 5000), b"{}", id="a long answer"),
        pytest.param(
            _answer(503, QUEUE, b"Retry-After: 7", chunked=True), b"{}", id="an answer of unknown length"
        ),
        pytest.param(FULL, b" " * 70_000, id="a body that is not kept"),
    ],
)
def test_where_nobody_else_is_asked_the_client_gets_the_answer(answer: bytes, body: bytes) -> None:
    """As the server gave it, byte for byte."""

    async def main() -> None:
        said, ends, others = await _told(answer, _post(body))
        assert others == 0
        assert ends == ["answered"]
        assert answer.startswith(b"HTTP/1.1 %d " % said.status)
        assert said.body in answer
        assert (said.get("retry-after") == b"7") is (b"Retry-After" in answer)

    run(main)


def test_once_and_within_the_budget() -> None:
    """A second one that is full as well has the last word; where the budget is spent, the first has."""

    async def main() -> None:
        second = _answer(503, QUEUE, b"Retry-After: 3")
        urls = [await Backend(answering(one)).start() for one in (FULL, second, OK)]
        async with world(*urls) as w:
            said = await w.ask(_post())
            assert (said.status, said.body, said.get("retry-after")) == (503, QUEUE, b"3")
            assert w.picker.ends == ["full", "answered"]
            await w.nothing_left()
        async with world(*urls[::2], limits=Limits(retry_share=0, retries_free=0)) as w:
            for _ in range(12):
                said = await w.ask(_post())
            assert said.status == 503
            await w.nothing_left()

    run(main)


def test_a_head_alone_says_it_by_its_time() -> None:
    """An answer to HEAD has no body that could be looked at."""

    async def main() -> None:
        said, ends, _ = await _told(
            b"HTTP/1.1 503 X\r\nContent-Length: 52\r\nRetry-After: 1\r\n\r\n", _post(b"", method=b"HEAD")
        )
        assert (said.status, ends) == (503, ["answered"])

    run(main)


@pytest.mark.parametrize("leaves", ["client", "backend"])
def test_what_ends_while_an_answer_is_kept_back_ends_once(leaves: str) -> None:
    """The client goes, or the server: nothing is in flight, and nobody else is asked."""
    began = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(FULL[:-5])
        began.set()
        if leaves == "client":
            await peer.end()
        peer.abort()

    async def main() -> None:
        seen: list[Message] = []
        async with world(await Backend(script).start(), await Backend(answering(OK, seen=seen)).start()) as w:
            client = await w.client()
            client.send(_post())
            await began.wait()
            if leaves == "client":
                client.abort()
            else:
                assert (await client.response()).status == 502
            await w.nothing_left()
            assert not seen

    run(main)


# --- with everything that decides ---


class Places:
    """A server of so many places that answers beyond them that it is full; `finish` ends one that runs."""

    def __init__(self, count: int, refusal: bytes = FULL) -> None:
        self.count, self.refusal = count, refusal
        self.running: list[asyncio.Event] = []
        self.full = self.served = 0

    async def __call__(self, peer: Peer) -> None:
        while True:
            await read_body(peer.reader, await read_head(peer.reader))
            if len(self.running) >= self.count:
                self.full += 1
                peer.send(self.refusal)
                continue
            done = asyncio.Event()
            self.running.append(done)
            await done.wait()
            self.served += 1
            peer.send(OK)

    def finish(self, count: int = 10_000) -> None:
        for done in self.running[:count]:
            done.set()
        del self.running[:count]


class Region:
    """A balancer as `gtm.runtime.balancer` puts it together, but for the law and the checks, of which a test says how they end."""

    def __init__(self, proxy: Proxy, picker: PoolPicker, queue: QueueAdmission, loop: HealthLoop) -> None:
        self.proxy, self.picker, self.queue, self.loop = proxy, picker, queue, loop
        self.health = loop.health
        self.address = ("", 0)
        self.got: Counter[int] = Counter()
        self.asking: set[asyncio.Task[None]] = set()

    def check(self, *, ok: bool) -> None:
        now = asyncio.get_running_loop().time()
        for one in self.health.snapshot(now):
            self.health.checked(one.name, Check.HEALTH, ProbeResult(ok, now, "" if ok else "no answer"), now)
        self.look()

    def look(self) -> None:
        """What runs ten times a second."""
        self.picker.conditions(self.health.tick(asyncio.get_running_loop().time()))
        self.loop.resize()

    async def ask(self, raw: bytes) -> Message:
        reader, writer = await asyncio.open_connection(*self.address)
        peer = Peer(reader, writer)
        peer.send(raw)
        said = await peer.response()
        peer.close()
        return said

    def send(self, count: int) -> None:
        """So many requests at once."""

        async def one() -> None:
            self.got[(await self.ask(_post())).status] += 1

        self.asking |= {asyncio.create_task(one()) for _ in range(count)}

    async def until(self, holds: object) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():  # type: ignore[operator]
                self.look()
                await asyncio.sleep(0.005)

    async def all_answered(self, *servers: Places) -> Counter[int]:
        async with asyncio.timeout(PATIENCE):
            while not all(one.done() for one in self.asking):
                for server in servers:
                    server.finish()
                self.look()
                await asyncio.sleep(0.005)
        self.asking.clear()
        got, self.got = self.got, Counter()
        return got

    @property
    def states(self) -> list[BackendState]:
        return [one.state for one in self.health.snapshot(asyncio.get_running_loop().time())]


@asynccontextmanager
async def region(*servers: Places, slots: int | None = None) -> AsyncIterator[Region]:
    """One before these servers, whose checks pass."""
    loop = asyncio.get_running_loop()
    urls = [await Backend(one).start() for one in servers]
    backends = [Server(url, slots=slots) for url in urls]
    health = BackendHealth(HealthSettings(), backends, loop.time())
    picker = PoolPicker(backends, Choosing(), health, loop=loop)
    queue = QueueAdmission(limits.AdmissionSettings(), loop=loop, cost=picker.cost)
    room = Connections(MAX_CONNECTIONS)
    proxy = Proxy(Gate(), queue, picker, room=room, loop=loop, region="here")
    made = Region(proxy, picker, queue, HealthLoop(health, picker, queue, lambda: None))  # type: ignore[arg-type, return-value]
    listening = await loop.create_server(proxy.connection, "127.0.0.1", 0)
    made.address = listening.sockets[0].getsockname()[:2]
    proxy.start()
    made.check(ok=True)
    made.check(ok=True)
    try:
        yield made
    finally:
        for one in servers:
            one.finish()
        proxy.close()
        listening.close()
        await asyncio.sleep(0)


def test_a_burst_on_full_servers_ejects_none_and_is_learned_from() -> None:
    """24 on two servers of four places each: 8 are served, none is ejected, and what comes then finds 8 slots and waits for them.

    A saturated engine's 503 opened a breaker, which went on to shed with the engine idle (sgl-project/sglang#39464).
    """

    async def main() -> None:
        busy = _answer(503, QUEUE, b"Retry-After: 1")
        first, second = Places(4, busy), Places(4, busy)
        async with region(first, second) as here:
            assert here.picker.slots() is None
            here.send(24)
            await here.until(lambda: here.got.total() + here.queue.admission.waiting == 16)
            assert len(first.running) + len(second.running) == 8
            assert here.states == [BackendState.UP, BackendState.UP]
            got = await here.all_answered(first, second)
            assert got[200] >= 8  # those that came when slots were known have waited for one
            assert got[200] + got[503] == 24, got
            assert here.picker.slots() == 8
            assert here.queue.admission.snapshot().limit == 8
            first.full = second.full = 0
            served = 0
            for _ in range(12):  # as many as there is room for, and as many as wait for it
                here.send(8)
                served += (await here.all_answered(first, second))[200]
            here.send(20)
            served += (await here.all_answered(first, second))[200]
            assert served >= 112  # of 116, as limits are tried
            assert here.states == [BackendState.UP, BackendState.UP]

    run(main)


def test_the_last_word_of_a_full_server_is_no_failure_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that cannot be kept back, since nobody knows how long they are, go to the client: while its peer serves all that it gets, it is not ejected."""
    monkeypatch.setattr(limit, "_LONGEST_ALONE", 0.0)  # as if it were asked again each time that it may be

    async def main() -> None:
        never = Places(0, _answer(503, QUEUE, b"Retry-After: 1", chunked=True))
        always = Places(100)
        async with region(never, always) as here:
            for _ in range(30):
                here.send(3)
                await here.all_answered(always)
            assert never.full >= 10
            assert here.states == [BackendState.UP, BackendState.UP]
            assert here.picker.pool.usable[0].slots == 1
            assert here.proxy.stats.full.total() == never.full

    run(main)


def test_who_says_full_to_everything_is_left_alone() -> None:
    """A model that is loading answers at once and looks idle: after its first word the other gets all, and the region's slots are the other's."""

    async def main() -> None:
        never, always = Places(0, _answer(503, b"loading", b"Retry-After: 20")), Places(100)
        async with region(never, always, slots=64) as here:
            served = 0
            for _ in range(10):
                here.send(3)
                served += (await here.all_answered(always))[200]
            assert served >= 27  # the first come at once, with little budget for retries
            assert 1 <= never.full <= 12
            assert here.states == [BackendState.UP, BackendState.UP]
            assert (here.picker.slots(), here.picker.usable()) == (64, 2)

    run(main)


def test_who_is_full_is_passed_by_while_another_is_idle() -> None:
    """One of a single place, the other of many: the first who find it full are sent on as far as the budget of retries goes, and then nobody finds it so.

    A queue of one beside an idle node: eight of sixteen were refused (timtoole02/Camelid#667).
    """

    async def main() -> None:
        narrow, wide = Places(1), Places(100)
        async with region(narrow, wide) as here:
            here.send(8)
            await here.until(lambda: len(narrow.running) == 1 and narrow.full)
            assert (await here.all_answered(narrow, wide))[200] >= 5
            narrow.full = 0
            served = 0
            for _ in range(3):
                here.send(8)
                await here.until(lambda: len(narrow.running) + len(wide.running) + here.got[503] == 8)
                served += (await here.all_answered(narrow, wide))[200]
            assert served >= 22  # as its limit is tried, once a second
            assert narrow.full <= 3
            assert here.states == [BackendState.UP, BackendState.UP]

    run(main)


def test_a_region_whose_servers_fell_too_often_serves_and_says_that_it_is_up() -> None:
    """Until no server passes its checks: then it says so, and has nothing free (vllm-project/vllm#24910, ray-project/ray#54070)."""

    async def main() -> None:
        first, second = Places(32), Places(32)
        async with region(first, second, slots=32) as here:
            for ok in (False, False, True, True) * 3:
                here.check(ok=ok)
            assert here.states == [BackendState.HELD, BackendState.HELD]
            assert here.picker.slots() == 64
            assert here.picker.free_slots() == 64
            said = await here.ask(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (said.status, b'"usable_backends":2' in said.body) == (200, True)
            here.send(10)
            assert await here.all_answered(first, second) == {200: 10}
            assert first.served + second.served == 10
            for ok in (False, False):
                here.check(ok=ok)
            assert here.states == [BackendState.DOWN, BackendState.DOWN]
            assert (here.picker.slots(), here.picker.free_slots()) == (0, 0)
            assert (await here.ask(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")).status == 503
            refused = await here.ask(_post())
            assert (refused.status, b"no_backend" in refused.body) == (503, True)

    run(main)
