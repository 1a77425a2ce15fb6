"""The workers of one edge: started, fed, counted, and started again when they die."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from pathlib import Path
from typing import assert_never

from gtm.core.latency import Interval
from gtm.core.quota.leases import LeaseHolder
from gtm.feed.wire import HandoffKeysMessage, KeysMessage
from gtm.runtime.edge.line import (
    FINISH,
    AgentEnd,
    CountsMessage,
    EdgeReadyMessage,
    EdgeWorkerSettings,
    MetricsMessage,
    PulseMessage,
    SamplesMessage,
    SigningMessage,
    SilentMessage,
    ToAgent,
    ToWorker,
    WorkerId,
    WorkerKind,
)
from gtm.runtime.edge.orphans import make_door
from gtm.runtime.following.told import PartsMessage
from gtm.runtime.process.forkserver import Process
from gtm.runtime.process.lifeline import terminate
from gtm.runtime.process.listeners import Listeners, Use
from gtm.runtime.process.workers import Workers
from gtm.settings import EdgeSettings
from gtm.telemetry import EdgeMetrics

logger = logging.getLogger(__name__)

_HTTP_ALONE = (MetricsMessage, SilentMessage, PartsMessage, SigningMessage, HandoffKeysMessage)

_PATIENCE = 5.0
"""Seconds that a worker may take to stop."""


@dataclass(eq=False, repr=False)
class EdgeWorkers(Workers[AgentEnd]):
    """All workers of an edge.

    Args:
        settings: the edge's.
        listeners: the sockets that workers are lent.
        metrics: what workers' counts are added to.
        everything: all that a new worker needs to begin with, asked each time one starts.
        moved: called when control should hear soon: a worker says what it answers from, or gave up leases that others
            may wait for.
        leases: the quotas' leases that HTTP workers spend.
        learned: called with what HTTP workers learned of round trips.
        cookie_secrets: what DNS workers make cookies with, and the one before.
        covered: whether another edge answers at the same addresses now.
        pulse: what workers are told of their agent now.
    """

    settings: EdgeSettings
    listeners: Listeners
    metrics: EdgeMetrics
    _: KW_ONLY
    everything: Callable[[], Iterable[ToWorker]]
    moved: Callable[[], None]
    leases: LeaseHolder
    learned: Callable[[Interval], None]
    cookie_secrets: tuple[bytes, ...]
    covered: Callable[[], bool]
    pulse: Callable[[], PulseMessage]

    def __post_init__(self) -> None:
        super().__init__("gtm.runtime.edge.worker", AgentEnd, self.settings.geoip_db)
        self._doorless = False
        self._answering: dict[WorkerId, int] = {}
        self._links: dict[WorkerId, AgentEnd] = {}
        self._processes: dict[WorkerId, Process] = {}
        self.ready = asyncio.Event()
        """Set once every worker has begun to answer."""

    @property
    def revision(self) -> int:
        """The revision that every worker which listens answers from, or a later one; 0 while none listens."""
        return min(self._answering.values(), default=0)

    @property
    def answering(self) -> dict[WorkerId, int]:
        """The workers that listen, with the revision that they answer from."""
        return dict(self._answering)

    def start(self) -> None:
        """Start every worker."""
        for kind in WorkerKind:
            for number in range(1, self.settings.workers + 1):
                worker = WorkerId(kind, number)
                self._keep(worker, partial(self._run, worker))

    def put(self, messages: Sequence[ToWorker]) -> None:
        """Send to every worker what concerns it."""
        for worker, link in self._links.items():
            link.put([message for message in messages if concerns(worker.kind, message)])

    def put_parts(self) -> None:
        """Send every HTTP worker its parts of the leases held now."""
        parts = self.leases.parts()
        for worker, link in self._links.items():
            if worker.kind is WorkerKind.HTTP:
                link.put([PartsMessage(parts[worker.index])])

    def beat(self) -> None:
        """Tell every worker that its agent lives. To be called once a second."""
        self.put([self.pulse()])

    async def finish(self) -> None:
        """End every worker once it has answered what it has begun, for `FINISH` seconds at most."""
        await self._finish(self._processes.values(), FINISH + _PATIENCE)

    def _changed(self) -> None:
        """A worker began to listen, took another policy in, or ended."""
        self.put([self._silence()])
        self.moved()

    def _silence(self) -> SilentMessage:
        """Which kinds of worker nobody of listens now."""
        listening = set(WorkerKind) if self.covered() else {worker.kind for worker in self._answering}
        return SilentMessage(tuple(kind for kind in WorkerKind if kind not in listening))

    def rename(self, name: str) -> None:
        """Give workers that start from now on another name of the edge."""
        self.settings = replace(self.settings, name=name)

    async def _run(self, worker: WorkerId) -> int | None:
        path, door = self._door()
        told = self._told(worker, door)
        lent = (*told.udp, *told.tcp, *(() if told.door is None else (told.door,)))
        try:
            process, link = await self._begin(told, lent, str(worker))
        except BaseException:
            _unlink(path)
            raise
        finally:
            if door is not None:
                door.close()
        if (
            worker.kind is WorkerKind.HTTP
        ):  # before the View, with which it listens: `/readyz` must know by then
            link.put([self._silence(), PartsMessage(self.leases.started(worker.index))])
        link.put([message for message in self.everything() if concerns(worker.kind, message)])
        link.put([self.pulse()])
        self._links[worker] = link
        self._processes[worker] = process
        self._changed()
        try:
            await self._hear(worker, link, partial(self._take, worker))
            return await process.wait()
        finally:
            del self._links[worker], self._processes[worker]
            self._answering.pop(worker, None)
            self._changed()
            await link.close()
            await terminate(process, _PATIENCE)
            if worker.kind is WorkerKind.HTTP:
                self.leases.ended(worker.index)
            _unlink(path)

    def _door(self) -> tuple[Path | None, socket.socket | None]:
        """Where a next agent finds a worker; nowhere on a disk that refuses."""
        try:
            return make_door(self.settings.data_dir)
        except OSError as error:
            if not self._doorless:
                logger.warning("workers end with their agent, however that ends: %s", error)
            self._doorless = True
            return None, None

    def _told(self, worker: WorkerId, door: socket.socket | None) -> EdgeWorkerSettings:
        """What a worker is told at its start, with the sockets that are its own."""
        dns = worker.kind is WorkerKind.DNS
        return EdgeWorkerSettings(
            id=worker,
            edge=replace(self.settings, token=""),
            descriptor=-1,
            udp=self.listeners.lent(Use.DNS_UDP, worker.index) if dns else (),
            tcp=self.listeners.lent(Use.DNS_TCP if dns else Use.HTTP, worker.index),
            cookie_secrets=self.cookie_secrets if dns else (),
            door=None if door is None else door.fileno(),
        )

    def _take(self, worker: WorkerId, message: ToAgent) -> None:
        match message:
            case CountsMessage():
                self.metrics.add(message.counts)
                if worker.kind is WorkerKind.HTTP:
                    self.leases.count(message.used, message.denied)
                    self.leases.taken(worker.index, message.parts)
                    if self.leases.overdue:
                        self.moved()
            case SamplesMessage():
                self.learned(Interval(list(message.deltas), list(message.witnesses)))
            case EdgeReadyMessage():
                logger.info("worker %s answers from revision %d", worker, message.revision)
                self._answering[worker] = message.revision
                if len(self._answering) == len(WorkerKind) * self.settings.workers:
                    self.ready.set()
                self._changed()
            case _:
                assert_never(message)


def concerns(kind: WorkerKind, message: ToWorker) -> bool:
    """Whether workers have a use for a message: keys of zones are for DNS alone, and what only HTTP serves for HTTP."""
    if kind is WorkerKind.DNS:
        return not isinstance(message, _HTTP_ALONE)
    return not isinstance(message, KeysMessage)


def _unlink(door: Path | None) -> None:
    if door is not None:
        with suppress(OSError):
            door.unlink()
