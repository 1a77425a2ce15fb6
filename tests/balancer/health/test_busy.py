"""Completion checks of servers that are busy: one that says that it is full works, and one that waits behind live requests says nothing (law 7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count, repeat

import pytest

from gtm.balancer.health import checks as checks_module
from gtm.balancer.health.asking import AskingError, BackendAnswer, LateError, ask
from gtm.balancer.health.check_settings import CheckSettings, CompletionCheck, HealthCheck, MetricsScrape
from gtm.balancer.health.checks import Checks
from gtm.balancer.plane.backend.backends import Route
from gtm.core.balance.backends import Backend
from gtm.core.balance.flights import Flights, FlightTicket
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.settings import HealthSettings
from tests.balancer.health.world import run
from tests.patience import PATIENCE

NAME = "http://127.0.0.1:1"
SETTINGS = CheckSettings(
    health=None,
    models=None,
    completion=CompletionCheck(interval=0.001, timeout=10.0, model="m"),
    scrape=None,
)
GOOD = BackendAnswer(200, b'{"choices": [{"text": "a"}]}', 0.1)
LATE = LateError("no answer within 10 s")


class Here:
    """A server with so many slots, what it says to the next checks, and a clock. Each check takes all of its time where it is late."""

    def __init__(self, slots: int | None) -> None:
        self.backend = Backend(NAME, slots=slots)
        self.route = Route(NAME)
        self.now = 1000.0
        self.health = BackendHealth(HealthSettings(checks=SETTINGS.thresholds()), [self.backend], self.now)
        self.flights = Flights([self.backend])
        self.checks = Checks(SETTINGS, self.health, lambda: None, self.flights)
        self.checks._now = lambda: self.now  # noqa: SLF001 - no time passes but a check's own
        self.says: BackendAnswer | AskingError = GOOD
        self.tokens = False
        """Tokens of live answers come all the time."""
        self.engine: Iterator[str] | None = None
        """What the server's metrics say of its engine, each time that they are read: once in each check."""
        self.asked = 0

    async def ask(self, _: Route, path: str, **__: object) -> BackendAnswer:
        """Answer a check."""
        if self.engine is not None and path == "/metrics":
            return BackendAnswer(200, f"vllm:num_requests_running 1\n{next(self.engine)}\n".encode(), 0.1)
        self.asked += 1
        late = isinstance(self.says, LateError)
        self.now += 9.0 if late else 0.0
        if self.engine is not None:
            await self.checks._scrape(self.checks._watched[NAME], MetricsScrape())  # noqa: SLF001 - no loop's time decides
        self.now += 1.0 if late else 0.1
        if self.tokens:
            self.route.work.heard = self.now - 0.2
        if isinstance(self.says, Exception):
            raise self.says
        return self.says

    async def check(self, times: int) -> None:
        """Wait until so many more checks were made."""
        until = self.asked + times + 1  # the next begins when the one before has been judged
        async with asyncio.timeout(PATIENCE):
            while self.asked < until:  # noqa: ASYNC110 - it changes in checks
                await asyncio.sleep(0)

    def fill(self, count: int) -> list[FlightTicket]:
        """Live requests begin there."""
        return [self.flights.of(NAME).begin(1.0) for _ in range(count)]

    @property
    def up(self) -> bool:
        """Whether it is."""
        return self.health.condition(NAME, self.now).healthy


@asynccontextmanager
async def checked(
    monkeypatch: pytest.MonkeyPatch,
    slots: int | None = None,
    *,
    says: BackendAnswer = GOOD,
    there: int = 0,
) -> AsyncGenerator[Here]:
    """A server that is up, and its checks; what it says to the first, and how many requests are there."""
    here = Here(slots)
    here.says = says
    here.fill(there)
    monkeypatch.setattr(checks_module, "ask", here.ask)
    here.checks.update([(here.backend, here.route)])
    try:
        assert await here.checks.first_round(PATIENCE)
        assert here.up
        yield here
    finally:
        await here.checks.stop()


@pytest.mark.parametrize(
    "full",
    [
        pytest.param(
            BackendAnswer(503, b'{"error": {"message": "The request queue is full."}}', 0.1), id="SGLang"
        ),
        pytest.param(BackendAnswer(503, b"", 0.1, retry_after=True), id="a time"),
        pytest.param(BackendAnswer(429, b'{"error_type": "overloaded"}', 0.1), id="TGI"),
    ],
)
def test_a_server_that_says_that_it_is_full_passes(
    monkeypatch: pytest.MonkeyPatch, full: BackendAnswer
) -> None:
    """Seen: twelve clients on the eight places of two servers had their checks refused, and both were down again and again."""

    async def test() -> None:
        async with checked(monkeypatch) as here:
            here.says, there = full, here.fill(1)
            await here.check(5)
            assert here.up
            assert here.checks.problems() == {NAME: {}}
            there[0].end()  # of nobody's requests: a proxy before a dead engine says so, too
            await here.check(2)
            assert not here.up
            here.fill(1)
            await here.check(5)
            assert here.up
            here.says = BackendAnswer(503, b"the engine is dead", 0.1)
            await here.check(2)
            assert not here.up

    run(test)


def test_a_check_that_was_refused_for_want_of_room_has_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of embeddings that was full when it was first asked for a completion: its 404 later says that the check is wrong."""

    async def test() -> None:
        async with checked(monkeypatch, says=BackendAnswer(503, b"", 0.1, retry_after=True), there=1) as here:
            here.says = BackendAnswer(404, b"", 0.1)
            await here.check(9)
            assert here.up
            assert "switched off" in here.checks.problems()[NAME]["completion"]

    run(test)


def test_what_waits_behind_live_answers_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: tokens of four streams came each 0.2 s, all slots were taken by them, and "no answer within 4 s" took the server down."""

    async def test() -> None:
        async with checked(monkeypatch) as here:
            here.says, here.tokens = LATE, True
            await here.check(20)
            assert here.up
            here.tokens = False  # the engine hangs: found by as many checks as ever
            await here.check(2)
            assert not here.up

    run(test)


@pytest.mark.parametrize("why", ["connection refused", "connection reset"])
def test_another_failure_counts_though_tokens_come(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """It says something: nobody takes connections any more."""

    async def test() -> None:
        async with checked(monkeypatch, slots=1) as here:
            here.fill(1)
            here.says, here.tokens = AskingError(why), True
            await here.check(2)
            assert not here.up

    run(test)


def test_one_long_answer_may_fill_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: of a server with one slot an answer of 90 s was cut at 76 s, since checks waited behind it. A hang is found all the same."""

    async def test() -> None:
        async with checked(monkeypatch, slots=1) as here:
            here.says = LATE
            began = here.now
            here.fill(1)
            while here.now < began + 250:
                await here.check(1)
            assert here.up
            while here.now < began + 380:
                await here.check(1)
            assert not here.up

    run(test)


@pytest.mark.parametrize(
    ("engine", "is_up"),
    [
        pytest.param((f"vllm:generation_tokens_total {many}" for many in count()), True, id="tokens"),
        pytest.param((f"vllm:prompt_tokens_total {many}" for many in count()), True, id="prompts"),
        pytest.param(
            (f"vllm:kv_cache_usage_perc 0.{many:04}\nvllm:generation_tokens_total 9" for many in count()),
            True,
            id="a long prompt",
        ),
        pytest.param(
            repeat("vllm:generation_tokens_total 9\nvllm:kv_cache_usage_perc 0.5"), False, id="stopped"
        ),
        pytest.param(repeat("vllm:num_requests_waiting 7"), True, id="unknown"),
        pytest.param(repeat("sglang:generation_tokens_total 9"), True, id="no metrics of each step"),
    ],
)
def test_a_full_server_whose_engine_stands_still_is_found(
    monkeypatch: pytest.MonkeyPatch, engine: Iterator[str], *, is_up: bool
) -> None:
    """Seen: a vLLM of eight slots whose engine was stopped had all of them full within a second, and was judged after 54 s; its metrics stood still.

    Where they move, or say nothing of each step, what waits behind eight answers is waited for as before.
    """

    async def test() -> None:
        async with checked(monkeypatch, slots=8) as here:
            here.engine = engine
            await here.check(2)
            here.fill(8)
            here.says = LATE
            await here.check(2)
            assert here.up is is_up

    run(test)


@pytest.mark.parametrize(("slots", "running"), [(64, 64), (1, 0), (4, 3), (None, 40)])
def test_a_hang_is_found_as_fast_as_ever(
    monkeypatch: pytest.MonkeyPatch, slots: int | None, running: int
) -> None:
    """Where a slot is free a check has nothing to wait for; and of 64 answers something comes often."""

    async def test() -> None:
        async with checked(monkeypatch, slots=slots) as here:
            here.fill(running)
            here.says = LATE
            await here.check(2)
            assert not here.up

    run(test)


def test_each_long_answer_that_ends_begins_the_time_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a server with one slot is full: what it works on follows one after the other."""

    async def test() -> None:
        async with checked(monkeypatch, slots=1) as here:
            here.says = LATE
            here.fill(1)
            for _ in range(4):
                await here.check(20)
                here.route.work.heard = here.now
            assert here.up

    run(test)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(
            b'HTTP/1.1 503 X\r\ncontent-length: 44\r\n\r\n{"status":"no slot available","slots_idle":0}',
            id="ggml-org/llama.cpp#5594",
        ),
        pytest.param(b"HTTP/1.1 503 X\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n", id="a time"),
    ],
)
def test_a_server_whose_health_says_that_it_is_full_stays_up(said: bytes) -> None:
    """Over real sockets: while requests are there it is full, and else who says so is down."""

    async def test() -> None:
        now = [_WELL]
        async with _asked(now) as (up, flights, url):
            there = flights.of(url).begin(1.0)
            now[0] = said
            await up(6)
            assert await up(1)
            there.end()
            assert not await up(3)
            flights.of(url).begin(1.0)
            assert await up(3)
            now[0] = b"HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n"
            assert not await up(3)

    run(test)


def test_a_server_that_says_no_more_than_that_it_is_unwell_is_up_while_its_answers_come() -> None:
    """Text Generation Inference says the same when its queue is full and when it is dead (huggingface/text-generation-inference#3241)."""

    async def test() -> None:
        now = [_WELL]
        async with _asked(now) as (up, flights, url):
            flights.of(url).begin(1.0)
            now[0] = (
                b'HTTP/1.1 503 X\r\ncontent-length: 48\r\n\r\n{"error":"unhealthy","error_type":"healthcheck"}'
            )
            assert await up(6, works=True)
            assert not await up(4)
            assert await up(4, works=True)

    run(test)


_WELL = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
Up = Callable[..., Awaitable[bool]]


@asynccontextmanager
async def _asked(says: list[bytes]) -> AsyncGenerator[tuple[Up, Flights, str]]:
    """A server that says this of its health; whether it is up after so many more checks, with tokens of live answers or without; its counts and its URL."""
    count = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        await reader.readuntil(b"\r\n\r\n")
        count += 1
        writer.write(says[0])
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    backend, route = Backend(url), Route(url)
    settings = CheckSettings(health=HealthCheck(interval=0.01, up=1, down=2), models=None, scrape=None)
    loop = asyncio.get_running_loop()
    health = BackendHealth(HealthSettings(checks=settings.thresholds()), [backend], loop.time())
    flights = Flights([backend])
    checks = Checks(settings, health, lambda: None, flights)
    checks.update([(backend, route)])

    async def up(times: int, *, works: bool = False) -> bool:
        until = count + times + 1
        async with asyncio.timeout(PATIENCE):
            while count < until:
                if works:
                    route.work.heard = loop.time()
                await asyncio.sleep(0)
        return health.condition(url, loop.time()).healthy

    try:
        assert await checks.first_round(PATIENCE)
        assert await up(1)
        yield up, flights, url
    finally:
        await checks.stop()
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(("line", "said"), [(b"retry-AFTER: 1\r\n", True), (b"", False)])
def test_an_answer_says_whether_it_has_a_time(line: bytes, *, said: bool) -> None:
    """Of a refusal it is what says that the server will be well again."""

    async def test() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 503 X\r\n%bcontent-length: 0\r\n\r\n" % line)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        route = Route(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        answer = await ask(route, "/", timeout=PATIENCE, most=100)
        assert (answer.status, answer.retry_after) == (503, said)
        server.close()
        await server.wait_closed()

    run(test)
