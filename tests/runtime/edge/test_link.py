"""The line between an edge's agent and one of its workers."""

from __future__ import annotations

import asyncio
import socket

import pytest

from gtm.feed.wire import HeartbeatMessage, Message, PulseMessage
from gtm.runtime.edge.link import AgentEnd, WorkerEnd


@pytest.mark.anyio
async def test_an_agent_that_hangs_up_says_so_first() -> None:
    """Whatever it said before, and whatever still waits: a worker that it leaves in order does not go on alone."""
    ours, theirs = socket.socketpair()
    link = await AgentEnd.over(ours)
    worker = WorkerEnd(theirs)
    link.put([PulseMessage(alone=True, plan_left=9.0)])
    assert await asyncio.to_thread(worker.get) == PulseMessage(alone=True, plan_left=9.0)
    link.put([HeartbeatMessage(1.0), PulseMessage(alone=True)])
    await link.close()
    heard: list[Message] = []
    while (message := await asyncio.to_thread(worker.get)) is not None:
        heard.append(message)
    assert heard[-1] == PulseMessage(alone=False)
    theirs.close()
