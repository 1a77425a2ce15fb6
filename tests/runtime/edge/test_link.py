"""The line between an edge's agent and one of its workers."""

from __future__ import annotations

import asyncio
import socket
from typing import get_args

import pytest

from gtm.core.latency.samples import Delta, Level
from gtm.core.model.access import Access
from gtm.feed.wire import AccessMessage
from gtm.runtime.edge.line import (
    TO_AGENT,
    TO_WORKER,
    AgentEnd,
    CountsMessage,
    EdgeReadyMessage,
    EdgeWorkerEnd,
    MetricsMessage,
    PulseMessage,
    SamplesMessage,
    SilentMessage,
    ToAgent,
    ToWorker,
    WorkerKind,
)

OF_AGENTS: list[ToWorker] = [
    MetricsMessage('gtm_x{a="b"} 1\n'),
    SilentMessage((WorkerKind.DNS,)),
    PulseMessage(alone=True, plan_left=9.0, edge="fra-1"),
]
OF_WORKERS: list[ToAgent] = [
    EdgeReadyMessage(3),
    CountsMessage({"gtm_x\tb": 2.0}),
    SamplesMessage((Delta(Level.COUNTRY, "DE", "r", False, 3, 7 << 60, -1.5, 0.5, 9.5),)),
]


def test_every_message_of_a_line_has_a_name() -> None:
    """What one end may say the other can read."""
    assert {*TO_WORKER.types.values()} == {*get_args(ToWorker)}
    assert {*TO_AGENT.types.values()} == {*get_args(ToAgent)}


@pytest.mark.parametrize("message", OF_AGENTS, ids=lambda message: type(message).__name__)
def test_what_an_agent_says_arrives(message: ToWorker) -> None:
    """And is nothing that a worker says."""
    assert TO_WORKER.decode(TO_WORKER.encode(message)) == message
    assert TO_AGENT.decode(TO_WORKER.encode(message)) is None


@pytest.mark.parametrize("message", OF_WORKERS, ids=lambda message: type(message).__name__)
def test_what_a_worker_says_arrives(message: ToAgent) -> None:
    """And is nothing that an agent says."""
    assert TO_AGENT.decode(TO_AGENT.encode(message)) == message
    assert TO_WORKER.decode(TO_AGENT.encode(message)) is None


@pytest.mark.anyio
async def test_an_agent_that_hangs_up_says_so_first() -> None:
    """Whatever it said before, and whatever still waits: a worker that it leaves in order does not go on alone."""
    ours, theirs = socket.socketpair()
    link = await AgentEnd.over(ours)
    worker = EdgeWorkerEnd(theirs)
    link.put([PulseMessage(alone=True, plan_left=9.0)])
    assert await asyncio.to_thread(worker.get) == PulseMessage(alone=True, plan_left=9.0)
    link.put([AccessMessage(Access()), PulseMessage(alone=True)])
    await link.close()
    heard: list[ToWorker] = []
    while (message := await asyncio.to_thread(worker.get)) is not None:
        heard.append(message)
    assert heard[-1] == PulseMessage(alone=False)
    theirs.close()


def test_what_waits_for_an_agent_that_hangs_is_bounded() -> None:
    """Telling it anything never waits; what only counts is dropped once too much waits, and what a worker answers from is not."""
    agent, theirs = socket.socketpair()
    worker = EdgeWorkerEnd(theirs)
    counts = CountsMessage({f"key {number}": 1.0 for number in range(10_000)})
    for _ in range(100):
        worker.put(counts)
    worker.put(EdgeReadyMessage(9))
    agent.settimeout(20)
    heard = bytearray()
    while not heard.endswith(TO_AGENT.encode(EdgeReadyMessage(9))):
        worker.flush()
        heard += agent.recv(1 << 20)
    *counted, _ = heard.splitlines(keepends=True)
    assert 1 < len(counted) < 50
    assert all(TO_AGENT.decode(bytes(line)) == counts for line in counted)
    agent.close()
    theirs.close()
