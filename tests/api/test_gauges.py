"""What a scrape of a large world costs the control process: not its event loop, and not more than a part of a processor."""

from __future__ import annotations

import asyncio
from time import monotonic, thread_time
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from gtm.api import gauges
from gtm.storage.session import Database
from tests.worlds import process

pytestmark = pytest.mark.anyio

COST = 0.3
"""Seconds of a processor that a look at a large world takes."""


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When each look at the world began; each is as expensive as one at 1,000 services in 50 regions."""
    found: list[float] = []
    real = gauges.top_document

    def slow(*given: Any, **more: Any) -> Any:
        found.append(monotonic())
        end = thread_time() + COST
        while thread_time() < end:
            pass
        return real(*given, **more)

    monkeypatch.setattr(gauges, "top_document", slow)
    return found


async def test_scrapes_hold_nobody_up(looks: list[float]) -> None:
    """Feeds go on while a scrape looks, and scrapers who ask again and again are shown the same look for a while."""
    database = Database("postgresql://nobody@127.0.0.1:1/none")
    shown = gauges.ControlGauges(process.replica(database))
    registry = CollectorRegistry()
    registry.register(shown)
    assert "\ngtm_control_epoch " not in generate_latest(registry).decode(), "nothing before the first look"

    async def longest_wait() -> float:
        worst, before = 0.0, monotonic()
        while len(looks) < 2:
            await asyncio.sleep(0.005)
            worst, before = max(worst, monotonic() - before), monotonic()
        return worst

    waiting = asyncio.create_task(longest_wait())
    await asyncio.gather(*(shown.look() for _ in range(10)))
    assert len(looks) == 1, "one look serves all who ask at once"
    assert "\ngtm_control_epoch " in generate_latest(registry).decode()
    while len(looks) < 2:
        await shown.look()
        await asyncio.sleep(0)
    assert looks[1] - looks[0] >= (1 + gauges.REST) * COST
    assert await waiting < COST, "the event loop goes on meanwhile"
    await database.dispose()
