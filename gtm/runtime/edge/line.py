"""Between an edge's agent and its workers: who they are, what they are handed at their start, and what they tell each other.

Each worker has a line of its own, a socket pair. Both ends are the same version of gtm: an agent starts its own workers, and takes
over those of others without a word on their lines (`gtm.runtime.edge.orphans`).

Laws:
  1. The agent's end closing means that the agent is gone. Its worker then goes on alone, or stops (`gtm.runtime.edge.worker.worker`).
  2. Neither side waits for the other: an agent that hangs holds up nothing in its workers, nor they in it.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

from gtm.core.handoff.keys import OwnKey
from gtm.core.latency.doubt import Witness
from gtm.core.latency.samples import Delta
from gtm.core.quota.names import QuotaText
from gtm.feed.wire import Lines
from gtm.runtime.following.told import TOLD, PartsMessage, ViewMessage
from gtm.runtime.process.listeners import Lent
from gtm.runtime.process.workers import LineEnd
from gtm.settings import EdgeSettings

FINISH = 5.0
"""Seconds for which a worker that gets SIGTERM lets its TCP connections end by themselves."""
_MAX_WAITING = 4 * 1024 * 1024
"""Bytes that may wait in a worker for its agent to read, before counts are dropped."""


class WorkerKind(StrEnum):
    """The protocol in which a worker answers."""

    HTTP = "http"
    DNS = "dns"


@dataclass(frozen=True, slots=True)
class WorkerId:
    """One worker of an edge: its kind, and its number among those of its kind, from 1. It keeps both when it is restarted."""

    kind: WorkerKind
    number: int

    def __str__(self) -> str:
        """As people read it: in the log, in metrics, in the list of processes."""
        return f"{self.kind}-{self.number}"

    @property
    def index(self) -> int:
        """Its number from 0: which of the sockets and which parts of leases are its own."""
        return self.number - 1


@dataclass(frozen=True, slots=True)
class EdgeWorkerSettings:
    """One worker's.

    `edge` is what its edge was told, but for the token. `descriptor` is the worker's end of the link, `lent` are
    bound sockets that the agent lends it. `cookie_secrets` are what DNS cookies are made with, and what they were made
    with before; only workers of DNS have them. `door` is a bound Unix socket at which a next agent finds this worker,
    should its own be gone; None: it ends with its own.
    """

    id: WorkerId
    edge: EdgeSettings
    descriptor: int
    lent: tuple[Lent, ...] = ()
    cookie_secrets: tuple[bytes, ...] = ()
    door: int | None = None


@dataclass(frozen=True, slots=True)
class MetricsMessage:
    """The whole edge's metrics as Prometheus text: agent → HTTP workers, which any scrape may hit."""

    text: str


@dataclass(frozen=True, slots=True)
class SilentMessage:
    """Which kinds of worker (`dns`, `http`) nobody of listens now: agent → HTTP workers, whose `/readyz` says so."""

    kinds: tuple[WorkerKind, ...]


@dataclass(frozen=True, slots=True)
class PulseMessage:
    """Agent → worker, once a second: still here.

    `alone`: should the agent be gone, the worker is to go on alone, and then follow the last plan for `plan_left` seconds.
    `edge` is the edge's name.
    """

    alone: bool
    plan_left: float = 0.0
    edge: str = ""


@dataclass(frozen=True, slots=True)
class EdgeReadyMessage:
    """Worker → agent: listening, and answering from this revision."""

    revision: int


@dataclass(frozen=True, slots=True)
class SigningMessage:
    """Agent → HTTP workers: what handoffs are signed with from now on, as which edge, and the edge's keys to be published.

    It holds a private key: no log may have it.
    """

    issuer: str
    key: OwnKey
    public: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CountsMessage:
    """Worker → agent: what was counted since the last such message.

    `counts` maps a metric's name and label values, joined by tabs in the order the metric declares them, to an
    increment. `parts` is the sequence number of the parts of leases in use, `used` and `denied` count requests by quota.
    """

    counts: dict[str, float]
    parts: int = 0
    used: dict[QuotaText, int] = field(default_factory=dict)
    denied: dict[QuotaText, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SamplesMessage:
    """HTTP worker → agent: what was learned of round trips since the last such message."""

    deltas: tuple[Delta, ...]
    witnesses: tuple[Witness, ...] = ()


ToWorker = ViewMessage | MetricsMessage | SilentMessage | PulseMessage | PartsMessage | SigningMessage
"""What an agent tells a worker."""

ToAgent = EdgeReadyMessage | CountsMessage | SamplesMessage
"""What a worker tells its agent."""

TO_WORKER = Lines[ToWorker](
    {
        **TOLD,
        "metrics": MetricsMessage,
        "silent": SilentMessage,
        "pulse": PulseMessage,
        "signing": SigningMessage,
    }
)
TO_AGENT = Lines[ToAgent]({"ready": EdgeReadyMessage, "counts": CountsMessage, "samples": SamplesMessage})


class AgentEnd(LineEnd[ToWorker, ToAgent]):
    """The agent's end. Messages to a worker that does not read are bounded: only the newest of a kind waits."""

    says = TO_WORKER
    hears = TO_AGENT

    async def close(self) -> None:
        """Hang up, and let the worker stop."""
        self._writer.write(TO_WORKER.encode(PulseMessage(alone=False)))
        await super().close()


class EdgeWorkerEnd:
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
            if len(self._waiting) < _MAX_WAITING or isinstance(message, EdgeReadyMessage):
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
