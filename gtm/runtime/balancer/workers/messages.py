"""What a balancer and one of its workers tell each other, on a line that is that worker's alone, and what a worker is handed at its start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gtm.balancer.metrics import Family
from gtm.core.balance.spill.room import Slots
from gtm.core.handoff.keys import OwnKey
from gtm.core.latency import Delta, Witness
from gtm.core.quota.names import QuotaText
from gtm.feed.wire import Lines
from gtm.runtime.balancer.reporting import Report
from gtm.runtime.balancer.words import Word
from gtm.runtime.following.told import TOLD, PartsMessage, ViewMessage
from gtm.runtime.process.workers import LineEnd
from gtm.settings import BalancerSettings


@dataclass(frozen=True, slots=True)
class Lent:
    """A bound socket that a worker is lent: where, and its descriptor."""

    host: str
    port: int
    descriptor: int


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """One worker's: its number from 1, its name among all that share the region's slots, what its balancer was told but for the token, its
    end of the line, the sockets lent to it."""  # noqa: D205, D209

    number: int
    member: str
    balancer: BalancerSettings
    descriptor: int
    lent: tuple[Lent, ...]


@dataclass(frozen=True, slots=True)
class KeyMessage:
    """To workers: what pushes are signed with from now on. It holds a private key: no log may have it."""

    key: OwnKey


@dataclass(frozen=True, slots=True)
class WordsMessage:
    """To one worker: what everybody else says now who shares the region's slots, all of them, by name."""

    words: dict[str, Word]


@dataclass(frozen=True, slots=True)
class AskMessage:
    """To workers: show what you know of yourself."""

    number: int


@dataclass(frozen=True, slots=True)
class LookMessage:
    """To workers: read the files again."""


@dataclass(frozen=True, slots=True)
class ReadyMessage:
    """From a worker: it takes requests."""

    revision: int


@dataclass(frozen=True, slots=True)
class WordMessage:
    """From a worker, up to ten times a second: what it has now.

    `room`: how many requests could begin there. `used` and `denied` count requests by quota since it began, `parts` is of the leases
    that it spends by. `pushes` counts requests that found no slot (`gtm.balancer.decide.pushing.Pusher.pushes`).
    """

    word: Word
    room: Slots | None = None
    parts: int = 0
    used: dict[QuotaText, int] = field(default_factory=dict)
    denied: dict[QuotaText, int] = field(default_factory=dict)
    pushes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadMessage:
    """From a worker, each second: its load since the last, as load reports have it, and its metrics.

    `tiers`: requests that run and that wait, by tier. `deltas` and `witnesses`: what it learned of round trips since the last.
    """

    report: Report
    metrics: list[Family]
    tiers: dict[str, tuple[int, int]] = field(default_factory=dict)
    deltas: tuple[Delta, ...] = ()
    witnesses: tuple[Witness, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """From a worker: what it was asked to show (`AskMessage`). `unready` says why it serves no requests; empty: it does."""

    number: int
    unready: str
    metrics: list[Family]
    state: dict[str, Any]


ToWorker = ViewMessage | PartsMessage | KeyMessage | WordsMessage | AskMessage | LookMessage
"""A message to a worker."""

FromWorker = ReadyMessage | WordMessage | LoadMessage | ShownMessage
"""A message from a worker."""

TO_WORKER = Lines[ToWorker](
    {**TOLD, "key": KeyMessage, "words": WordsMessage, "ask": AskMessage, "look": LookMessage}
)
FROM_WORKER = Lines[FromWorker](
    {"ready": ReadyMessage, "word": WordMessage, "load": LoadMessage, "shown": ShownMessage}
)


class PoolEnd(LineEnd[ToWorker, FromWorker]):
    """The end of whoever started a worker."""

    says = TO_WORKER
    hears = FROM_WORKER


class WorkerEnd(LineEnd[FromWorker, ToWorker]):
    """The worker's end."""

    says = FROM_WORKER
    hears = TO_WORKER
