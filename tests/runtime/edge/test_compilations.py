"""A policy is compiled once by each process that takes it in: the command that reads its files, an agent, a worker."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gtm.cli.common.policy_folder import read_document
from gtm.core.latency.table import EMPTY_TABLE
from gtm.core.model.access import Access
from gtm.core.model.state import State
from gtm.core.policy import compile as compiling
from gtm.core.signing.keys import Keys
from gtm.demo.policy import demo_folder
from gtm.feed.wire import (
    AccessMessage,
    HeartbeatMessage,
    KeysMessage,
    LatencyMessage,
    Message,
    SnapshotMessage,
    StateMessage,
)
from gtm.runtime.edge.agent.agent import Agent
from gtm.runtime.edge.line import TO_WORKER, EdgeWorkerSettings, WorkerId, WorkerKind
from gtm.runtime.edge.worker.worker import EdgeWorker
from gtm.settings import EdgeSettings
from tests.core.strategies import SHIPPED
from tests.system.lone import policy

AFTERWARDS: tuple[Message, ...] = (
    StateMessage(State(1)),
    LatencyMessage(replace(EMPTY_TABLE, version=1)),
    KeysMessage(Keys(1)),
    AccessMessage(Access()),
    StateMessage(State(2)),
)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was compiled since."""
    made: list[object] = []
    original = compiling.compile_policy

    def counting(*given: Any, **more: Any) -> Any:
        made.append(given)
        return original(*given, **more)

    for module in ("gtm.feed.wire", "gtm.documents.folders"):
        monkeypatch.setattr(f"{module}.compile_policy", counting)
    return made


@pytest.fixture
def settings(tmp_path: Path) -> EdgeSettings:
    """An edge's."""
    return EdgeSettings(tmp_path, control_url="http://127.0.0.1:9", token="token", name="edge")


@pytest.mark.anyio
async def test_an_agent_compiles_a_revision_once(settings: EdgeSettings, compiled: list[object]) -> None:
    """Checked, saved, used and passed on, whatever comes after; and once more by the next one, from its disk."""
    first = Agent(settings)
    message = SnapshotMessage.of(1, 1.0, policy(1), SHIPPED)
    for each in (message, *AFTERWARDS, HeartbeatMessage(2.0)):
        await first.receive(each)
    first.current.tick()
    first.everything()
    assert len(compiled) == 1
    second = Agent(settings)
    await second.load()
    assert second.snapshot == message
    assert len(compiled) == 2


@pytest.mark.parametrize("kind", list(WorkerKind))
def test_a_worker_compiles_a_revision_once(
    kind: WorkerKind, settings: EdgeSettings, compiled: list[object]
) -> None:
    """Also when time, health or data make it another View."""
    ours, theirs = socket.socketpair()
    worker = EdgeWorker(EdgeWorkerSettings(WorkerId(kind, 1), settings, theirs.detach()))
    with ours:
        message = SnapshotMessage.of(1, 1.0, policy(1), SHIPPED)
        for each in (message, *AFTERWARDS):
            ours.sendall(TO_WORKER.encode(each))  # type: ignore[arg-type] # none is the feed's alone
        ours.shutdown(socket.SHUT_WR)
        worker.follow()
    worker.current.tick()
    worker.current.rebuild()
    assert worker.current.state == State(2)
    assert len(compiled) == 1


def test_a_command_compiles_a_folder_once(compiled: list[object]) -> None:
    """To name the file and line of what is wrong, before anything is sent."""
    assert read_document(demo_folder())["regions"]
    assert len(compiled) == 1
