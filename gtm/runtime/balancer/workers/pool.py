"""A balancer's workers: started, fed, counted, and started again when they die.

They share the listening sockets: what arrives while one is gone, another takes. Each tells what it has in flight, and is told what the
others have, by lines through this process.

Laws:
  1. A worker that has died shares no slots: what it had is given up at once, and its successor begins with nothing.
  2. A slot is reported once: reports of workers add up to the region's.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gtm.core.balance.sharing import Use
from gtm.core.balance.spill.room import Slots
from gtm.core.handoff.keys import OwnKey
from gtm.core.latency.samples import Interval
from gtm.core.quota.leases import LeaseHolder
from gtm.core.quota.names import QuotaText
from gtm.feed.wire import FeedError
from gtm.runtime.balancer.admin import Shown
from gtm.runtime.balancer.carrier import Counts
from gtm.runtime.balancer.carriers import Spent, ViewMessage
from gtm.runtime.balancer.round_trips import MAX_SENT
from gtm.runtime.balancer.words import Word, together
from gtm.runtime.balancer.workers.merging import MergedMetrics, merged_report, merged_state
from gtm.runtime.balancer.workers.messages import (
    AskMessage,
    FromWorker,
    KeyMessage,
    Lent,
    LoadMessage,
    PoolEnd,
    ReadyMessage,
    ShownMessage,
    WordMessage,
    WordsMessage,
    WorkerSettings,
)
from gtm.runtime.following.told import PartsMessage
from gtm.runtime.process.child import keep
from gtm.runtime.process.handed import document
from gtm.runtime.process.lifeline import Lifeline, terminate
from gtm.runtime.process.listeners import Listener
from gtm.settings import BalancerSettings

logger = logging.getLogger(__name__)

_PATIENCE = 5.0
"""Seconds that a worker may take to end, beyond the drain time."""
_GATHERED = 0.005
"""Seconds for which words are gathered before they are passed on."""
_ASKED = 2.0
"""Longest wait for what workers show of themselves."""


@dataclass(slots=True)
class _Worker:
    """A worker that runs: its line, its process, and what it said last."""

    number: int
    name: str
    line: PoolEnd
    process: asyncio.subprocess.Process
    ready: bool = False
    said: WordMessage | None = None
    said_at: float = 0.0
    report: Mapping[str, Any] | None = None
    metrics: str = ""
    tiers: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    used: Mapping[QuotaText, int] = field(default_factory=dict)
    denied: Mapping[QuotaText, int] = field(default_factory=dict)


class WorkerPool:
    """See above, and `gtm.runtime.balancer.carriers.Carriers`.

    Args:
        settings: of the balancer.
        instance: what tells this start of it from others.
        everything: all of the View that a new worker begins with, asked each time one starts.
        leases: of the quotas.
    """

    def __init__(
        self,
        settings: BalancerSettings,
        instance: str,
        everything: Callable[[], Iterable[ViewMessage]],
        leases: LeaseHolder,
    ) -> None:
        self._settings = settings
        self._everything = everything
        self._leases = leases
        self._instance = instance
        self._loop = asyncio.get_running_loop()
        self._lifeline = Lifeline()
        self._listeners: Sequence[Listener] = ()
        self._running: dict[int, _Worker] = {}
        self._learned = Interval([], [])
        self._tasks: list[asyncio.Task[None]] = []
        self._key: OwnKey | None = None
        self._peers: Mapping[str, Word] = {}
        self._peers_at = 0.0
        self._relaying: asyncio.TimerHandle | None = None
        self._finishing = asyncio.Event()
        self._ready = asyncio.Event()
        self._metrics = MergedMetrics()
        self._asking = asyncio.Lock()
        self._asked = 0
        self._shown: dict[int, ShownMessage] = {}
        self._answered = asyncio.Event()
        self.shown: Shown = _Pages(self)

    # --- their lives ---

    async def listen(self, listeners: Sequence[Listener]) -> None:
        """See `Carriers`."""
        self._listeners = listeners
        for number in range(1, self._settings.workers + 1):
            kept = keep(f"worker {number}", partial(self._run, number), self._finishing)
            self._tasks.append(asyncio.ensure_future(kept))
        await self._ready.wait()

    async def finish(self) -> None:
        """See `Carriers`."""
        self._finishing.set()
        for one in self._running.values():
            with suppress(ProcessLookupError):
                one.process.terminate()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._settings.drain_time + _PATIENCE)

    async def close(self) -> None:
        """See `Carriers`."""
        self._finishing.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._relaying is not None:
            self._relaying.cancel()
        self._lifeline.close()

    async def _run(self, number: int) -> int | None:
        ours, theirs = socket.socketpair()
        lent = tuple(Lent(one.host, one.port, one.socket.fileno()) for one in self._listeners)
        name = f"{self._instance}/{number}"
        told = WorkerSettings(number, name, replace(self._settings, token=""), theirs.fileno(), lent)
        try:
            process = await self._lifeline.spawn(
                ["gtm.runtime.balancer.workers"],
                document(told),
                pass_fds=(told.descriptor, *(one.descriptor for one in lent)),
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        worker = _Worker(number, name, await PoolEnd.over(ours), process)
        worker.line.put(self._everything())
        if self._key is not None:
            worker.line.put([KeyMessage(self._key)])
        worker.line.put([PartsMessage(self._leases.started(number - 1))])
        self._running[number] = worker
        self._relay_soon()
        if self._finishing.is_set():
            process.terminate()
        try:
            await self._listen(worker)
            return await process.wait()
        finally:
            del self._running[number]
            self._metrics.ended(worker.metrics)
            self._leases.ended(number - 1)
            self._relay_soon()
            await worker.line.close()
            await terminate(process, _PATIENCE)

    # --- what they are told ---

    def put(self, message: ViewMessage) -> None:
        """See `Carriers`."""
        for one in self._running.values():
            one.line.put([message])

    def sign(self, key: OwnKey) -> None:
        """See `Carriers`."""
        self._key = key
        for one in self._running.values():
            one.line.put([KeyMessage(key)])

    def lease(self, holder: LeaseHolder) -> None:
        """See `Carriers`."""
        parts = holder.parts()
        for number, one in self._running.items():
            one.line.put([PartsMessage(parts[number - 1])])

    def heard(self, words: Mapping[str, Word]) -> None:
        """See `Carriers`."""
        self._peers, self._peers_at = words, self._loop.time()
        self._relay_soon()

    def _relay_soon(self) -> None:
        if self._relaying is None:
            self._relaying = self._loop.call_later(_GATHERED, self._relay)

    def _relay(self) -> None:
        """Tell each what all others say."""
        self._relaying = None
        past = self._loop.time() - self._peers_at
        peers = {name: replace(word, age=word.age + past) for name, word in self._peers.items()}
        words = self.words()
        for one in self._running.values():
            others = {name: word for name, word in words.items() if name != one.name}
            one.line.put([WordsMessage({**peers, **others})])

    # --- what they say ---

    async def _listen(self, worker: _Worker) -> None:
        while True:
            try:
                message = await worker.line.get()
            except (FeedError, ValueError) as error:
                logger.error("ignored a message from worker %d: %s", worker.number, error)
                continue
            if message is None:
                return
            self._take(worker, message)

    def _take(self, worker: _Worker, message: FromWorker) -> None:
        match message:
            case WordMessage():
                worker.said, worker.said_at = message, self._loop.time()
                self._relay_soon()
            case LoadMessage():
                worker.report, worker.metrics = message.report, message.metrics
                worker.tiers = message.tiers
                self._learned.deltas.extend(message.deltas)
                self._learned.witnesses.extend(message.witnesses)
                del self._learned.deltas[:-MAX_SENT], self._learned.witnesses[:-MAX_SENT]
            case ShownMessage():
                worker.metrics = message.metrics  # what was shown must not be forgotten
                if message.number == self._asked:
                    self._shown[worker.number] = message
                    if self._shown.keys() >= {n for n, one in self._running.items() if one.ready}:
                        self._answered.set()
            case ReadyMessage():
                logger.info("worker %d serves by revision %d", worker.number, message.revision)
                worker.ready = True
                if sum(one.ready for one in self._running.values()) == self._settings.workers:
                    self._ready.set()

    def spent(self) -> Sequence[Spent]:
        """See `Carriers`."""
        found = []
        for number, one in self._running.items():
            if one.said is None:
                continue
            used, one.used = _since(one.used, one.said.used), one.said.used
            denied, one.denied = _since(one.denied, one.said.denied), one.said.denied
            found.append(Spent(number - 1, one.said.parts, used, denied))
        return found

    def pushes(self) -> Mapping[str, int]:
        """See `Carriers`."""
        found: Counter[str] = Counter()
        for one in self._running.values():
            if one.said is not None:
                found.update(one.said.pushes)
        return found

    def words(self) -> Mapping[str, Word]:
        """See `Carriers`. One that has not spoken yet has nothing."""
        now = self._loop.time()
        return {
            one.name: Word({one.name: Use(0, 0)})
            if one.said is None
            else replace(one.said.word, age=now - one.said_at)
            for one in self._running.values()
        }

    def use(self) -> Use:
        """See `Carriers`."""
        uses = [
            use
            for one in self._running.values()
            if one.said is not None
            for use in one.said.word.uses.values()
        ]
        return Use(sum(use.running for use in uses), sum(use.waiting for use in uses))

    def report(self) -> dict[str, Any]:
        """See `Carriers`."""
        found = merged_report([one.report for one in self._running.values() if one.report is not None])
        return {"outstanding": 0, "queue": 0, "requests_per_second": 0.0, **found} | {
            "region": self._settings.region,
            "source": self._settings.name,
        }

    def tiers(self) -> Mapping[str, tuple[int, int]]:
        """See `Carriers`."""
        found: dict[str, tuple[int, int]] = {}
        for one in self._running.values():
            for tier, (running, waiting) in one.tiers.items():
                had = found.get(tier, (0, 0))
                found[tier] = had[0] + running, had[1] + waiting
        return found

    def round_trips(self) -> Interval:
        """See `Carriers`."""
        learned, self._learned = self._learned, Interval([], [])
        return learned

    def free_slots(self) -> Slots | None:
        """See `Carriers`."""
        rooms = [one.said.room for one in self._running.values() if one.said is not None]
        known = [room for room in rooms if room is not None]
        if not known:
            return None
        return Slots(*(sum(getattr(room, name) for room in known) for name in ("free", "limit", "waiting")))

    def counts(self) -> Counts:
        """See `Carriers`."""
        loads = together(list(self.words().values())).loads
        return Counts(*self.use(), {name: int(load.requests) for name, load in loads.items()})

    # --- what is shown ---

    async def ask(self) -> tuple[ShownMessage, ...]:
        """What those that serve show of themselves now; without those that hang."""
        async with self._asking:
            self._asked += 1
            self._shown = {}
            self._answered.clear()
            for one in self._running.values():
                one.line.put([AskMessage(self._asked)])
            if any(one.ready for one in self._running.values()):
                with suppress(TimeoutError):
                    async with asyncio.timeout(_ASKED):
                        await self._answered.wait()
            return tuple(self._shown[number] for number in sorted(self._shown))

    def metrics(self, shown: Iterable[ShownMessage]) -> bytes:
        """All metrics, of those that are shown and of those that ended."""
        return self._metrics.text([one.metrics for one in shown])

    def processes(self) -> list[dict[str, Any]]:
        """The workers, for people."""
        return [
            {
                "worker": one.number,
                "process": one.process.pid,
                "ready": one.ready,
                "running": sum(use.running for use in one.said.word.uses.values()) if one.said else 0,
                "waiting": sum(use.waiting for use in one.said.word.uses.values()) if one.said else 0,
            }
            for _, one in sorted(self._running.items())
        ]


class _Pages:
    """The page of all workers."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    async def ready(self) -> bool:
        return any(one.ready for one in await self._pool.ask())

    async def metrics(self) -> bytes:
        return self._pool.metrics(await self._pool.ask())

    async def state(self) -> dict[str, Any]:
        shown = await self._pool.ask()
        state = merged_state([one.state for one in shown])
        return {**state, "process": os.getpid(), "workers": self._pool.processes()}


def _since(before: Mapping[QuotaText, int], now: Mapping[QuotaText, int]) -> dict[QuotaText, int]:
    return {quota: count - before.get(quota, 0) for quota, count in now.items()}
