"""The workers of one edge: started, fed, counted, and started again when they die."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from gtm.core.latency import Interval
from gtm.core.quota.leases import LeaseHolder
from gtm.feed.wire import (
    CountsMessage,
    FeedError,
    KeysMessage,
    Message,
    MetricsMessage,
    PartsMessage,
    PulseMessage,
    ReadyMessage,
    SamplesMessage,
    SilentMessage,
)
from gtm.runtime.edge.link import AgentEnd
from gtm.runtime.edge.orphans import make_door
from gtm.runtime.edge.worker_settings import FINISH, WorkerSettings
from gtm.runtime.process.child import Deaths, ending
from gtm.runtime.process.handed import document
from gtm.runtime.process.lifeline import Lifeline, terminate
from gtm.runtime.process.listeners import Listeners, Use
from gtm.settings import EdgeSettings
from gtm.telemetry import EdgeMetrics

logger = logging.getLogger(__name__)

_PATIENCE = 5.0
"""Seconds that a worker may take to stop."""
_KINDS = ("http", "dns")


class Crew:
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

    def __init__(
        self,
        settings: EdgeSettings,
        listeners: Listeners,
        metrics: EdgeMetrics,
        *,
        everything: Callable[[], Iterable[Message]],
        moved: Callable[[], None],
        leases: LeaseHolder,
        learned: Callable[[Interval], None],
        cookie_secrets: tuple[bytes, ...],
        covered: Callable[[], bool],
        pulse: Callable[[], PulseMessage],
    ) -> None:
        self._settings = settings
        self._listeners = listeners
        self._metrics = metrics
        self._everything = everything
        self._moved = moved
        self._leases = leases
        self._learned = learned
        self._cookie_secrets = cookie_secrets
        self._covered = covered
        self._pulse = pulse
        self._doorless = False
        self._answering: dict[str, int] = {}
        self._lifeline = Lifeline()
        self._links: dict[str, AgentEnd] = {}
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._finishing = asyncio.Event()
        self.ready = asyncio.Event()
        """Set once every worker has begun to answer."""

    @property
    def revision(self) -> int:
        """The revision that every worker which listens answers from, or a later one; 0 while none listens."""
        return min(self._answering.values(), default=0)

    @property
    def answering(self) -> dict[str, int]:
        """The workers that listen, by name, with the revision that they answer from."""
        return dict(self._answering)

    def start(self) -> None:
        """Start every worker."""
        for kind in _KINDS:
            for number in range(1, self._settings.workers + 1):
                self._tasks.append(asyncio.ensure_future(self._keep(kind, f"{kind}-{number}")))

    def put(self, messages: Sequence[Message]) -> None:
        """Send to every worker what concerns it."""
        for name, link in self._links.items():
            link.put([message for message in messages if concerns(name, message)])

    def put_parts(self) -> None:
        """Send every HTTP worker its parts of the leases held now."""
        parts = self._leases.parts()
        for name, link in self._links.items():
            number = _http_number(name)
            if number is not None:
                link.put([PartsMessage(parts[number])])

    def beat(self) -> None:
        """Tell every worker that its agent lives. To be called once a second."""
        self.put([self._pulse()])

    async def finish(self) -> None:
        """End every worker once it has answered what it has begun, for `FINISH` seconds at most."""
        self._finishing.set()
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.terminate()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=FINISH + _PATIENCE)

    async def stop(self) -> None:
        """Stop every worker, and wait for them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._lifeline.close()

    def _changed(self) -> None:
        """A worker began to listen, took another policy in, or ended."""
        listening = set(_KINDS) if self._covered() else {name.partition("-")[0] for name in self._answering}
        self.put([SilentMessage(tuple(kind for kind in _KINDS if kind not in listening))])
        self._moved()

    def rename(self, name: str) -> None:
        """Give workers that start from now on another name of the edge."""
        self._settings = replace(self._settings, name=name)

    async def _keep(self, kind: str, name: str) -> None:
        """Run a worker, and run it again whenever it ends."""
        deaths = Deaths()
        while not self._finishing.is_set():
            deaths.started()
            try:
                how = ending(await self._run(kind, name))
            except OSError as error:  # no memory, processes or descriptors: others may give some back
                how = f"it cannot be started: {error.strerror or error}"
            if self._finishing.is_set():
                return
            pause = deaths.pause()
            logger.error("worker %s ended (%s); starting it again in %.1f s", name, how, pause)
            await asyncio.sleep(pause)

    async def _run(self, kind: str, name: str) -> int | None:
        ours, theirs = socket.socketpair()
        path, door = self._door()
        told = self._told(kind, name, theirs, door)
        descriptors = (told.descriptor, *told.udp, *told.tcp, *(() if told.door is None else (told.door,)))
        try:
            process = await self._lifeline.spawn(
                ["gtm.runtime.edge.worker", name], document(told), pass_fds=descriptors
            )
        except OSError:
            ours.close()
            _unlink(path)
            raise
        finally:
            theirs.close()
            if door is not None:
                door.close()
        link = await AgentEnd.over(ours)
        number = _http_number(name)
        if number is not None:
            link.put([PartsMessage(self._leases.started(number))])
        link.put([message for message in self._everything() if concerns(name, message)])
        link.put([self._pulse()])
        self._links[name] = link
        self._processes[name] = process
        self._changed()
        try:
            await self._listen(link)
            return await process.wait()
        finally:
            del self._links[name], self._processes[name]
            self._answering.pop(name, None)
            self._changed()
            await link.close()
            await terminate(process, _PATIENCE)
            if number is not None:
                self._leases.ended(number)
            _unlink(path)

    def _door(self) -> tuple[Path | None, socket.socket | None]:
        """Where a next agent finds a worker; nowhere on a disk that refuses."""
        try:
            return make_door(self._settings.data_dir)
        except OSError as error:
            if not self._doorless:
                logger.warning("workers end with their agent, however that ends: %s", error)
            self._doorless = True
            return None, None

    def _told(
        self, kind: str, name: str, descriptor: socket.socket, door: socket.socket | None
    ) -> WorkerSettings:
        """What a worker is told at its start, with the sockets that are its own."""
        number = int(name.rpartition("-")[2]) - 1
        return WorkerSettings(
            kind=kind,
            name=name,
            edge=replace(self._settings, token=""),
            descriptor=descriptor.fileno(),
            udp=self._listeners.lent(Use.DNS_UDP, number) if kind == "dns" else (),
            tcp=self._listeners.lent(Use.DNS_TCP if kind == "dns" else Use.HTTP, number),
            cookie_secrets=self._cookie_secrets if kind == "dns" else (),
            door=None if door is None else door.fileno(),
        )

    async def _listen(self, link: AgentEnd) -> None:
        """Take a worker's messages until it is gone."""
        while True:
            try:
                message = await link.get()
            except (FeedError, ValueError) as error:
                logger.error("ignored a message from a worker: %s", error)
                continue
            if message is None:
                return
            if isinstance(message, CountsMessage):
                self._metrics.add(message.counts)
                number = _http_number(message.worker)
                if number is not None:
                    self._leases.count(message.used, message.denied)
                    self._leases.taken(number, message.parts)
                    if self._leases.overdue:
                        self._moved()
            elif isinstance(message, SamplesMessage):
                self._learned(Interval(list(message.deltas), list(message.witnesses)))
            elif isinstance(message, ReadyMessage):
                logger.info("worker %s answers from revision %d", message.worker, message.revision)
                self._answering[message.worker] = message.revision
                if len(self._answering) == len(_KINDS) * self._settings.workers:
                    self.ready.set()
                self._changed()


def concerns(worker: str, message: Message) -> bool:
    """Whether a worker has a use for a message: private keys are for DNS alone, and what only HTTP serves for HTTP."""
    if _http_number(worker) is None:
        return not isinstance(message, MetricsMessage | SilentMessage)
    return not isinstance(message, KeysMessage)


def _unlink(door: Path | None) -> None:
    if door is not None:
        with suppress(OSError):
            door.unlink()


def _http_number(name: str) -> int | None:
    """The number of an HTTP worker, from 0; None of any other."""
    kind, _, number = name.partition("-")
    return int(number) - 1 if kind == "http" else None
