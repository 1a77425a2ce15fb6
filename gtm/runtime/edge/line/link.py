"""The line between an edge's agent and one of its workers: a socket pair carrying `gtm.runtime.edge.line.messages`.

Laws:
  1. The agent's end closing means that the agent is gone. Its worker then goes on alone, or stops (`gtm.runtime.edge.worker.alone`).
  2. Neither side waits for the other: an agent that hangs holds up nothing in its workers, nor they in it.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from gtm.runtime.edge.line.messages import TO_AGENT, TO_WORKER, PulseMessage, ReadyMessage, ToAgent, ToWorker
from gtm.runtime.process.line import LineEnd

_MAX_WAITING = 4 * 1024 * 1024
"""Bytes that may wait in a worker for its agent to read, before counts are dropped."""


class AgentEnd(LineEnd[ToWorker, ToAgent]):
    """The agent's end. Messages to a worker that does not read are bounded: only the newest of a kind waits."""

    says = TO_WORKER
    hears = TO_AGENT

    async def close(self) -> None:
        """Hang up, and let the worker stop."""
        self._writer.write(TO_WORKER.encode(PulseMessage(alone=False)))
        await super().close()


class WorkerEnd:
    """The worker's end: one thread reads and waits for it, any may write, and none waits for that."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._writing = threading.Lock()
        self._waiting = bytearray()
        self._file = end.makefile("rb")

    def get(self) -> ToWorker | None:
        """The agent's next message; None when the agent is gone.

        Raises:
            FeedError: the agent sent something else than a message.
        """
        while line := self._read():
            message = TO_WORKER.decode(line)
            if message is not None:
                return message
        return None

    def put(self, message: ToAgent) -> None:
        """Send a message, as soon as the agent reads.

        What only counts is dropped while too much waits for an agent that hangs.

        Raises:
            OSError: the agent is gone.
        """
        line = TO_AGENT.encode(message)
        with self._writing:
            if len(self._waiting) < _MAX_WAITING or isinstance(message, ReadyMessage):
                self._waiting += line
            self._send()

    def flush(self) -> None:
        """Send what waits, if the agent reads again.

        Raises:
            OSError: the agent is gone.
        """
        with self._writing:
            self._send()

    def _send(self) -> None:
        with suppress(BlockingIOError):
            while self._waiting:
                sent = self._socket.send(self._waiting, socket.MSG_DONTWAIT)
                del self._waiting[:sent]

    def _read(self) -> bytes:
        try:
            return self._file.readline()
        except OSError:
            return b""
