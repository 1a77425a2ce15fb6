"""Processes that are kept running, on a machine that has no room for them now and then."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from gtm.core.quota.leases import LeaseHolder
from gtm.runtime.edge.agent.agent import EdgeWorkers
from gtm.runtime.edge.line import PulseMessage
from gtm.runtime.process.lifeline import Lifeline
from gtm.runtime.process.listeners import Listeners
from gtm.runtime.process.workers import Child
from gtm.settings import EdgeSettings
from gtm.telemetry import EdgeMetrics


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """How often a process was to be started: there is memory for none."""
    made: list[object] = []

    async def spawn(*arguments: object, **_: object) -> None:
        made.append(arguments)
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(Lifeline, "spawn", spawn)
    monkeypatch.setattr("gtm.runtime.process.workers.pause_after", lambda _: 0.01)
    return made


async def _reached(tries: list[object], number: int) -> None:
    while len(tries) < number:  # noqa: ASYNC110 - nobody says so
        await asyncio.sleep(0.01)


def test_a_child_that_cannot_be_started_is_tried_again(
    tries: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    """Where fork(2) fails once, nothing is given up."""

    async def run() -> None:
        one = Child("edge", ["nothing"], bytes, Lifeline())
        await one.start()
        await _reached(tries, 3)
        await one.stop()

    asyncio.run(asyncio.wait_for(run(), 20))
    assert (
        "edge ended (it cannot be started: Cannot allocate memory); starting it again in 0.0 s" in caplog.text
    )


def test_a_worker_that_cannot_be_started_is_tried_again(
    tries: list[object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An edge is not short of a worker for ever, and no try leaves a descriptor or a door behind."""
    settings = EdgeSettings(
        tmp_path,
        control_url="http://127.0.0.1:9",
        token="token",
        name="edge",
        edge_port=0,
        dns_port=0,
        workers=1,
    )

    async def run() -> None:
        workers = EdgeWorkers(
            settings,
            Listeners((), (), 1),
            EdgeMetrics(),
            everything=list,
            moved=lambda: None,
            leases=LeaseHolder("edge", 1),
            learned=lambda _: None,
            cookie_secrets=(),
            covered=lambda: False,
            pulse=lambda: PulseMessage(alone=False),
        )
        open_before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - descriptors
        workers.start()
        await _reached(tries, 20)
        assert len(os.listdir("/proc/self/fd")) <= open_before + 8  # noqa: PTH208 - tries under way
        await workers.stop()

    asyncio.run(asyncio.wait_for(run(), 20))
    assert list(tmp_path.iterdir()) == []
    for name in ("dns-1", "http-1"):
        assert f"worker {name} ended (it cannot be started: Cannot allocate memory)" in caplog.text
