"""Live requests through the data plane to simulated servers that fail: who is ejected, and who comes back."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import ClassVar

import httpx
import pytest

from gtm.balancer.health.check_settings import CheckSettings, HealthCheck
from gtm.balancer.plane.backend.backends import Route
from gtm.balancer.plane.contracts import Limits, SentRequest
from gtm.balancer.plane.exchange import Exchange
from gtm.balancer.plane.proxy import Proxy
from gtm.balancer.plane.timeouts import TimeoutRules, Timeouts
from gtm.balancer.wire.refusals import Refusal
from gtm.core.balance.choosing.chooser import begin, pool_of
from gtm.core.balance.choosing.values import WantedBackend
from gtm.core.balance.flights import FlightTicket
from gtm.core.balance.health.settings import HealthSettings
from gtm.core.balance.health.values import BackendState, Check, Failure, Sending
from gtm.demo.backend.faults import Mode
from gtm.runtime.process.connections import MAX_CONNECTIONS, Connections
from tests.balancer.health.world import World, run, world
from tests.core.balance.choosing.worlds import choose
from tests.patience import PATIENCE

CHECKS = CheckSettings(health=HealthCheck(interval=0.05), models=None, scrape=None)
LIMITS = Limits(tries=1)
TIMES = Timeouts(first_byte=0.5, between=0.5)


class Gate:
    """Everybody may."""

    def judge(self, exchange: Exchange, now: float) -> Refusal | None:  # noqa: ARG002 - the protocol's
        return None

    def unready(self) -> str:
        return ""

    def renew(self, exchange: Exchange) -> Refusal | None:  # noqa: ARG002 - likewise
        return None

    def cors(self, exchange: Exchange) -> None:  # noqa: ARG002 - likewise
        return None

    def more_headers(self, exchange: Exchange) -> bytes:  # noqa: ARG002 - likewise
        return b""


class Admission:
    """At once."""

    def offer(self, exchange: Exchange, now: float) -> Refusal | None:  # noqa: ARG002 - likewise
        exchange.admitted()
        return None

    def ended(self, exchange: Exchange, now: float) -> None:
        """Nothing to count."""

    def withdraw(self, exchange: Exchange, now: float) -> None:
        """Nothing is pushed."""

    def tick(self, now: float) -> None:
        """Nothing waits."""


@dataclass
class Picker:
    """Chooses among healthy backends, and tells health how requests end."""

    here: World
    picked: Counter[str] = field(default_factory=Counter)
    why: str = ""
    """Of the first backend's first ejection."""
    cut: ClassVar[None] = None

    def __post_init__(self) -> None:
        backends = [backend for backend, _ in self.here.targets]
        now = asyncio.get_running_loop().time()
        self.pool = pool_of(backends, self.here.health.tick(now), self.here.flights)
        self.ways = {backend.name: route for backend, route in self.here.targets}

    def pick(self, exchange: Exchange, tried: tuple[str, ...], now: float) -> SentRequest | Refusal:  # noqa: ARG002 - likewise
        self.pool = self.pool.updated(self.here.health.changes(now))
        chosen = choose(self.pool, WantedBackend(tried=frozenset(tried)), random.random())
        if isinstance(chosen, str):
            return Refusal(503, chosen, "none")
        name = chosen.backend.name
        self.picked[name] += 1
        ticket = begin(self.pool, chosen, WantedBackend())
        return SentRequest(self.ways[name], Flight(self, self.here.health.begun(name, now), ticket))

    def failed(self, sent: SentRequest, detail: str, now: float) -> None:
        kinds = {
            "cannot connect": Failure.CONNECT,
            "did not answer": Failure.TIMEOUT,
            "sent nothing": Failure.STALL,
            "cannot be read": Failure.MALFORMED,
        }
        kind = next((kind for words, kind in kinds.items() if words in detail), Failure.RESET)
        assert isinstance(sent.flight, Flight)
        if kind is Failure.STALL:
            self.here.health.stalled(sent.flight.sending, now)
        else:
            self.here.health.failed(sent.flight.sending, kind, now)

        self.ended(now)

    def ended(self, now: float) -> None:
        """Note why the first backend was ejected."""
        self.why = self.why or self.here.health.snapshot(now)[0].why

    def failing_since(self, sent: SentRequest) -> float | None:  # noqa: ARG002 - the protocol's
        return None

    def is_down(self, sent: SentRequest) -> bool:  # noqa: ARG002 - the protocol's
        return False

    def has_room(self, exchange: Exchange, tried: tuple[str, ...]) -> bool:  # noqa: ARG002 - the protocol's
        return True

    def silent(self, sent: SentRequest, since: float, now: float) -> None:
        """Nobody waits so long."""

    def usable(self) -> int:
        return len(self.ways)

    def routes(self) -> tuple[Route, ...]:
        return tuple(self.ways.values())

    def tick(self, now: float) -> None:
        self.pool = self.pool.updated(self.here.health.tick(now))


@dataclass
class Flight:
    """A request's place in the counts, and in its backend's health."""

    picker: Picker
    sending: Sending
    ticket: FlightTicket

    def end(self, exchange: Exchange, how: str) -> None:
        now = asyncio.get_running_loop().time()
        self.ticket.end()
        health = self.picker.here.health
        if how == "answered":
            health.answered(self.sending, exchange.status, exchange.first_byte - self.sending.at, now)
            if exchange.status >= 500:
                self.picker.ended(now)
        elif how != "failed":
            health.cancelled(self.sending)


@dataclass
class Live:
    """A balancer with clients."""

    here: World
    picker: Picker
    url: str
    client: httpx.AsyncClient

    async def stream(self) -> bool:
        """One request; whether its stream came in full."""
        body = {"model": "demo", "prompt": "x", "max_tokens": 10, "stream": True, "ignore_eos": True}
        try:
            async with self.client.stream("POST", f"{self.url}/v1/completions", json=body) as response:
                read = (await response.aread()).decode()
        except httpx.HTTPError:
            return False
        return response.status_code == 200 and read.endswith("data: [DONE]\n\n")

    async def until(self, state: BackendState, index: int = 0) -> None:
        """Send requests until a backend is in a state."""
        async with asyncio.timeout(PATIENCE):
            while self.state(index) is not state:
                await asyncio.gather(*(self.stream() for _ in range(6)))

    def state(self, index: int = 0) -> BackendState:
        """How a backend stands."""
        now = asyncio.get_running_loop().time()
        self.picker.tick(now)
        return self.here.health.snapshot(now)[index].state


@asynccontextmanager
async def live(known: HealthSettings, count: int = 3) -> AsyncGenerator[Live]:
    """A balancer before servers that are up."""
    async with world(CHECKS, count=count, known=known) as here, httpx.AsyncClient(timeout=PATIENCE) as client:
        loop = asyncio.get_running_loop()
        picker = Picker(here)
        proxy = Proxy(
            Gate(),
            Admission(),
            picker,
            room=Connections(MAX_CONNECTIONS),
            loop=loop,
            region="here",
            limits=LIMITS,
            timeouts=TimeoutRules(TIMES, TIMES),
        )
        server = await loop.create_server(proxy.connection, "127.0.0.1", 0)
        proxy.start()
        try:
            yield Live(here, picker, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", client)
        finally:
            await client.aclose()
            proxy.close()
            server.close()
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        (Mode.ERROR, "5 requests failed in a row, the last by status, 500"),
        (Mode.RESET, "5 requests failed in a row, the last by reset"),
        (Mode.STALL, "2 streams stalled, and nothing ended well between"),
        (Mode.DEAD, "2 streams stalled, and nothing ended well between"),
    ],
)
def test_who_fails_live_requests_is_ejected_and_tried_again(mode: Mode, why: str) -> None:
    """Health says 200 all the while. While it is out, nobody meets it; when it serves again, three requests find out."""

    async def test() -> None:
        async with live(HealthSettings(base=1.0, slow_start=0.5, trial_timeout=5.0)) as balancer:
            assert await balancer.stream()
            await balancer.here.fail(mode)
            await balancer.until(BackendState.EJECTED)
            assert balancer.picker.why == why
            assert balancer.here.health.snapshot(0.0)[0].checks[Check.HEALTH].status == "up"
            picked = balancer.picker.picked[balancer.here.name]
            served = await asyncio.gather(*(balancer.stream() for _ in range(6)))
            if balancer.state() is BackendState.EJECTED:  # a second is soon over
                assert all(served)
                assert balancer.picker.picked[balancer.here.name] == picked
            await balancer.here.fail(Mode.OK)
            await balancer.until(BackendState.UP)
            assert await balancer.stream()
            assert balancer.here.health.snapshot(0.0)[0].ended["good"] >= 3

    run(test)


def test_clients_that_leave_say_nothing() -> None:
    """However many: the backend is as good as before."""

    async def test() -> None:
        async with live(HealthSettings(consecutive=1, stalls=1), count=2) as balancer:
            for _ in range(10):
                body = {
                    "model": "demo",
                    "prompt": "x",
                    "max_tokens": 4000,
                    "stream": True,
                    "ignore_eos": True,
                }
                async with balancer.client.stream(
                    "POST", f"{balancer.url}/v1/completions", json=body
                ) as response:
                    async for _ in response.aiter_bytes():
                        break
            await balancer.here.until(
                lambda: (
                    not any(balancer.here.flights.of(one.name).requests for one, _ in balancer.here.targets)
                )
            )
            assert [balancer.state(index) for index in range(2)] == [BackendState.UP, BackendState.UP]
            assert not any(one.ended for one in balancer.here.health.snapshot(0.0))

    run(test)


def test_a_slow_server_is_an_outlier() -> None:
    """Fifty times as slow as the others: ejected when a window ends."""

    async def test() -> None:
        known = HealthSettings(window=1.0, requests=5, latency_factor=3.0, latency_margin=0.02, base=60.0)
        async with live(known) as balancer:
            await balancer.here.fail(Mode.SLOW, factor=50.0)
            body = {"model": "demo", "prompt": "x", "max_tokens": 2, "ignore_eos": True}
            async with asyncio.timeout(PATIENCE):
                while balancer.state() is not BackendState.EJECTED:
                    posts = [
                        balancer.client.post(f"{balancer.url}/v1/completions", json=body) for _ in range(9)
                    ]
                    await asyncio.gather(*posts)
            assert balancer.here.health.snapshot(0.0)[0].why.startswith("its median latency is")
            assert [balancer.state(index) for index in (1, 2)] == [BackendState.UP, BackendState.UP]

    run(test)
