"""What an edge's agent and one of its workers tell each other, on a line that is that worker's alone.

Both ends are the same version of gtm: an agent starts its own workers, and takes over those of others without a word on
their lines (`gtm.runtime.edge.orphans`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gtm.core.handoff.keys import OwnKey
from gtm.core.latency import Delta, Witness
from gtm.core.quota.names import QuotaText
from gtm.feed.wire import Lines
from gtm.runtime.edge.line.worker_id import WorkerKind
from gtm.runtime.following.told import TOLD, PartsMessage, ViewMessage


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
class ReadyMessage:
    """Worker → agent: listening, and answering from this revision and epoch."""

    revision: int
    epoch: int


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

ToAgent = ReadyMessage | CountsMessage | SamplesMessage
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
TO_AGENT = Lines[ToAgent]({"ready": ReadyMessage, "counts": CountsMessage, "samples": SamplesMessage})
