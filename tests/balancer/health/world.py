"""Simulated model servers, and the checks of a balancer against them, in one event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from gtm.balancer.health.check_settings import (
    CheckSettings,
    CompletionCheck,
    HealthCheck,
    MetricsScrape,
    ModelList,
)
from gtm.balancer.health.checks import Checks
from gtm.balancer.plane.backend.backends import Route
from gtm.core.balance.backends import Backend, Condition
from gtm.core.balance.flights import Flights
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.settings import HealthSettings
from gtm.demo.backend.faults import InjectedFault, Mode
from gtm.demo.backend.profile import Profile
from gtm.demo.backend.protocol import Connection, Request
from gtm.demo.backend.server import Backend as Server
from tests.patience import PATIENCE

QUICK = CheckSettings(
    health=HealthCheck(interval=0.05),
    models=ModelList(interval=0.05),
    scrape=MetricsScrape(interval=0.05),
)
COMPLETION = CompletionCheck(interval=0.05, timeout=0.3)


@dataclass
class World:
    """Servers, and what the balancer knows of them."""

    servers: list[Server]
    health: BackendHealth
    checks: Checks
    flights: Flights
    targets: list[tuple[Backend, Route]]
    asked: Counter[tuple[int, str]]
    """Requests that each server got, by path."""
    caches: dict[str, float]
    """Tokens that each server's cache holds, by what was told."""
    not_made: list[float]
    """When a check found no room here."""

    @property
    def name(self) -> str:
        """Of the first backend."""
        return self.targets[0][0].name

    def condition(self, index: int = 0) -> Condition:
        """What is known of a backend now."""
        now = asyncio.get_running_loop().time()
        self.health.tick(now)
        return self.health.condition(self.targets[index][0].name, now)

    def why(self, index: int = 0) -> str:
        """Why it is not usable."""
        return self.health.snapshot(asyncio.get_running_loop().time())[index].why

    async def fail(self, mode: Mode, index: int = 0, **more: float) -> None:
        """Let a server fail in a way, or go on."""
        await self.servers[index].switch(InjectedFault(mode, **more))  # type: ignore[arg-type]

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait for something to hold."""
        async with asyncio.timeout(PATIENCE):
            while not holds():  # noqa: ASYNC110 - it changes in many places
                await asyncio.sleep(0.01)


@asynccontextmanager
async def world(
    settings: CheckSettings = QUICK,
    *,
    count: int = 1,
    known: HealthSettings | None = None,
    models: frozenset[str] = frozenset(),
    paths: Mapping[int, str] | None = None,
) -> AsyncGenerator[World]:
    """Servers that are up, and their checks after the first round."""
    servers = [Server(Profile().faster(10), ["demo"]) for _ in range(count)]
    asked: Counter[tuple[int, str]] = Counter()
    for index, server in enumerate(servers):
        _count(server, index, asked)
        await server.start()
    targets = [
        (Backend(url, models=models), Route(url))
        for url in (server.url + (paths or {}).get(index, "") for index, server in enumerate(servers))
    ]
    known = replace(known or HealthSettings(), checks=settings.thresholds())
    now = asyncio.get_running_loop().time()
    health = BackendHealth(known, [backend for backend, _ in targets], now)
    flights = Flights()
    flights.keep([backend for backend, _ in targets])
    caches: dict[str, float] = {}
    not_made: list[float] = []
    checks = Checks(
        settings,
        health,
        lambda: None,
        flights,
        cached=caches.__setitem__,
        not_made=lambda: not_made.append(asyncio.get_running_loop().time()),
    )
    checks.update(targets)
    try:
        assert await checks.first_round(PATIENCE)
        yield World(servers, health, checks, flights, targets, asked, caches, not_made)
    finally:
        await checks.stop()
        for server in servers:
            server.stop()
        await asyncio.sleep(0)


def _count(server: Server, index: int, asked: Counter[tuple[int, str]]) -> None:
    """Count what a server is asked."""
    handle = server.handler

    def counted(connection: Connection, request: Request) -> None:
        asked[index, request.path] += 1
        handle(connection, request)

    server.handler = counted


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a test in an event loop of its own, and see that it leaves no task."""

    async def whole() -> None:
        await test()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            await asyncio.wait([task], timeout=PATIENCE)
        assert not [task for task in left if not task.done()]

    asyncio.run(whole())
