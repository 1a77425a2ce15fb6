"""A balancer's workers: started, fed, counted, and started again when they die.

They share the listening sockets: what arrives while one is gone, another takes. Each tells what it has in flight, and is told what the
others have, by lines through this process.

Laws:
  1. A worker that has died shares no slots: what it had is given up at once, and its successor begins with nothing.
  2. Nobody waits for a worker that hangs, and one that does so for `HANGS` seconds has died.
  3. A slot is reported once: reports of workers add up to the region's. What one that is silent had free others fill, and say so.
  4. What a worker has counted stays counted when it ends, as far as it had said so.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, cast

from gtm.balancer.metrics import Family, MergedMetrics, render
from gtm.core.balance.flights import PEERS_LAST_S
from gtm.core.balance.health.values import BackendState
from gtm.core.balance.sharing import FORGOTTEN_S, LOOK_EVERY, SlotUse, due
from gtm.core.balance.spill.room import Slots
from gtm.core.capacity.durations import TookBy, add
from gtm.core.handoff.keys import OwnKey
from gtm.core.latency.doubt import Witness
from gtm.core.latency.samples import Delta, Interval
from gtm.core.model.problems import PolicyError
from gtm.core.quota.leases import LeaseHolder
from gtm.core.quota.names import QuotaText
from gtm.feed.current import CurrentView
from gtm.feed.reports import TimesTold, table_of
from gtm.feed.wire import FeedError, Lines
from gtm.geoip.reader import Locator
from gtm.runtime.balancer.backends_file import BackendsFile
from gtm.runtime.balancer.carrier import Carrier, Carriers, RequestCounts, Spent, Word, together
from gtm.runtime.balancer.reporting import Report, merged_report
from gtm.runtime.balancer.round_trips import MAX_SENT
from gtm.runtime.following.tasks import Tasks, first_of
from gtm.runtime.following.told import TOLD, PartsMessage, TimesMessage, ViewMessage
from gtm.runtime.process import lifeline
from gtm.runtime.process.clocks import boot_time
from gtm.runtime.process.forkserver import Process
from gtm.runtime.process.listeners import Lent, Listener
from gtm.runtime.process.workers import PATIENCE, LineEnd, Workers
from gtm.settings import BalancerSettings

# --- One worker of a balancer: carries requests, by the View and the words that the balancer's first process tells it. ---
#
# Laws:
#   1. Nothing is carried before there is a View, and every backend was looked at once.
#   2. Whoever started it is gone, or tells it to end: it takes nothing new, lets streams finish within the drain time, and ends.


# --- What a balancer and one of its workers tell each other, on a line that is that worker's alone, and what a worker is handed at its start. ---


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
    that it spends by. `pushes` counts requests that found no slot (`gtm.balancer.decide.pushing.PeerPusher.pushes`).
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

    `tiers`: requests that run and that wait, by tier. `deltas` and `witnesses`: what it learned of round trips since the last. `times`: what
    requests took that ended since the last.
    """

    report: Report
    metrics: list[Family]
    tiers: dict[str, tuple[int, int]] = field(default_factory=dict)
    deltas: tuple[Delta, ...] = ()
    witnesses: tuple[Witness, ...] = ()
    times: tuple[TimesTold, ...] = ()

    def after(self, before: LoadMessage) -> LoadMessage:
        """The same with what another has that nobody heard: it takes that one's place."""
        times = table_of(before.times)
        add(times, table_of(self.times))
        return replace(
            self,
            deltas=(*before.deltas, *self.deltas)[-MAX_SENT:],
            witnesses=(*before.witnesses, *self.witnesses)[-MAX_SENT:],
            times=TimesTold.of(times),
        )


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


# --- One worker of a balancer: carries requests, by the View and the words that the balancer's first process tells it. ---


_EVERY = 1.0
"""Seconds between two loads, and looks at the clock."""


class BalancerWorker:
    """One worker: what it was told, what it hears of the balancer's first process, and what carries requests in it."""

    def __init__(self, told: WorkerSettings) -> None:
        self._told = told
        self._settings = told.balancer
        self._current = CurrentView(time.time, boot=boot_time)
        self._begin = asyncio.Event()
        self._stopping = asyncio.Event()
        self._tasks = Tasks(self.stop)
        self._early: dict[type[ToWorker], ToWorker] = {}
        """The last message of each kind for what carries, from before that was made."""
        self._carrier: Carrier | None = None
        self._used: Counter[QuotaText] = Counter()
        self._denied: Counter[QuotaText] = Counter()

    def stop(self) -> None:
        """Ask it to end."""
        self._stopping.set()

    async def run(self) -> None:
        """Carry until told to end.

        Raises:
            GeoIPError: the GeoIP database or the overrides cannot be read.
            PolicyError: the file of backends is wrong.
        """
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stop)
        lifeline.watch(self.stop)
        self._line = await WorkerEnd.over(socket.socket(fileno=self._told.descriptor))
        self._tasks.start(self._listen())
        try:
            await first_of(self._begin, self._stopping)
            if not self._stopping.is_set():
                with closing(Locator(self._settings.geoip_db, self._settings.geoip_overrides)) as locator:
                    await self._carry(locator)
        finally:
            await self._tasks.cancel()
            await self._line.close()
        if self._tasks.failure is not None:
            raise self._tasks.failure

    async def _carry(self, locator: Locator) -> None:
        parts = self._early.pop(PartsMessage)
        assert isinstance(parts, PartsMessage)  # noqa: S101 - it was waited for
        carrier = Carrier(
            self._settings,
            self._told.member,
            current=self._current,
            file=BackendsFile(self._settings),
            locator=locator,
            parts=parts.parts,
        )
        try:
            for message in self._early.values():
                await self._pass(carrier, message)
            self._carrier = carrier
            await carrier.start()
            if self._stopping.is_set():
                return
            await carrier.open([one.taken() for one in self._told.lent])
            self._tasks.start(self._tell(carrier))
            self._tasks.start(self._tick(carrier))
            snapshot = self._current.snapshot
            # Its load first: the balancer reports as soon as all are ready, and silence is not zero.
            self._line.put([self._load(carrier), ReadyMessage(0 if snapshot is None else snapshot.revision)])
            await self._stopping.wait()
            await carrier.finish()
            self._line.put([self._load(carrier)])
        finally:
            await carrier.close()

    # What it says

    async def _tell(self, carrier: Carrier) -> None:
        """Say what it has, as often as is due."""
        loop = asyncio.get_running_loop()
        told: SlotUse | None = None
        told_at = 0.0
        while True:
            now = loop.time()
            if due(told, carrier.use(), now - told_at):
                (word,) = carrier.words().values()
                told, told_at = word.uses[carrier.member], now
                (since,) = carrier.spent()
                self._used.update(since.used)
                self._denied.update(since.denied)
                room = carrier.free_slots()
                spent = since.sequence, dict(self._used), dict(self._denied)
                self._line.put([WordMessage(word, room, *spent, dict(carrier.pushes()))])
            await asyncio.sleep(LOOK_EVERY)

    async def _tick(self, carrier: Carrier) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            self._current.tick()
            self._line.put([self._load(carrier)])

    def _load(self, carrier: Carrier) -> LoadMessage:
        learned = carrier.round_trips()
        found = LoadMessage(
            carrier.report(),
            carrier.families(),
            carrier.tiers(),
            tuple(learned.deltas),
            tuple(learned.witnesses),
            TimesTold.of(carrier.times()),
        )
        before = self._line.unsent(LoadMessage)
        return found if before is None else found.after(before)

    # What it hears

    async def _listen(self) -> None:
        while True:
            try:
                message = await self._line.get()
                if message is None:
                    return  # `lifeline` says what follows
                await self._take(message)
            except (FeedError, PolicyError, ValueError) as error:  # ValueError: a line that is too long
                logger.error("ignored a message: %s", error)

    async def _take(self, message: ToWorker) -> None:
        match message:
            case TimesMessage():
                self._current.follow(message.times)
            case PartsMessage() | KeyMessage() | WordsMessage() if self._carrier is None:
                self._early[type(message)] = message
            case PartsMessage() | KeyMessage() | WordsMessage() | AskMessage() | LookMessage():
                if self._carrier is not None:
                    await self._pass(self._carrier, message)
            case _:
                self._current.apply(message)
        if self._current.router is not None and PartsMessage in self._early:
            self._begin.set()

    async def _pass(self, carrier: Carrier, message: ToWorker) -> None:
        """Tell what carries what it has a use for."""
        match message:
            case PartsMessage():
                carrier.spend(message.parts)
            case KeyMessage():
                carrier.sign(message.key)
            case WordsMessage():
                carrier.heard(message.words)
            case LookMessage():
                carrier.look_again()
            case AskMessage():
                shown = await carrier.unready(), carrier.families(), await carrier.state()
                self._line.put([ShownMessage(message.number, *shown)])
            case _:
                pass


# --- What several workers show of themselves, as one balancer's. ---


STANDINGS = (
    *(BackendState.DRAINING, BackendState.DOWN, BackendState.HELD, BackendState.EJECTED),
    *(BackendState.UNKNOWN, BackendState.TRIAL, BackendState.WARMING, BackendState.UP),
)
"""From what is most against a backend to what is nothing against it. Of what one worker has not asked yet another knows more."""


def _part(shares: Sequence[int | None]) -> int | None:
    """Of what each may fill; None: nobody knows how much there is."""
    return None if None in shares else sum(share or 0 for share in shares)


def _pushes(tables: Sequence[Iterable[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    pushes: Counter[tuple[str, str]] = Counter()
    for one in (one for table in tables for one in table):
        pushes[one["region"], one["why"]] += one["requests"]
    return [
        {"region": region, "why": why, "requests": count} for (region, why), count in sorted(pushes.items())
    ]


def _backend(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One backend: what each worker has there, and how the one stands to it that has most against it."""
    worst = min(rows, key=lambda row: STANDINGS.index(row["state"]))
    return {
        **worst,
        "in_flight": sum(row["in_flight"] for row in rows),
        "work_s": sum(row["work_s"] for row in rows),
        "outstanding": max(row["outstanding"] for row in rows),
        "ejections": max(row["ejections"] for row in rows),
    }


def _backends(tables: Sequence[Iterable[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for row in (row for table in tables for row in table):
        rows.setdefault(row["url"], []).append(row)
    return [_backend(one) for one in rows.values()]


def _summed(values: Iterable[Any]) -> Any:
    """Numbers added up, through mappings of mappings."""
    all_of_them = [value for value in values if value is not None]
    if all_of_them and isinstance(all_of_them[0], Mapping):
        names = dict.fromkeys(name for value in all_of_them for name in value)
        return {name: _summed(value.get(name) for value in all_of_them) for name in names}
    return sum(all_of_them)


def _tenants(tables: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Counts added up; a weight is the same in all."""
    weights = {name: one["weight"] for table in tables for name, one in table.items()}
    return {name: {**one, "weight": weights[name]} for name, one in _summed(tables).items()}


def _groups(tables: Iterable[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, row in (item for table in tables for item in table.items()):
        before = found.setdefault(name, {**row, "running": 0, "waiting": 0})
        before["running"] += row["running"]
        before["waiting"] += row["waiting"]
    return found


_MERGED: Mapping[str, Callable[[Sequence[Any]], Any]] = MappingProxyType(
    {
        "draining": all,
        # A worker that was started since has what others wait for.
        "waits_for_start": lambda lists: sorted({one for waits in lists for one in waits}),
        "connections": sum,
        "share": _part,
        "backends": _backends,
        "tiers": _summed,
        "groups": _groups,
        "hedges": _summed,
        "choices": _summed,
        "tenants": _tenants,
        "at_peers": _summed,
        "pushes": _pushes,
    }
)
"""Counts are added up, what is known of backends is the least hopeful worker's, all else is the first's."""


def merged_state(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The state of all."""
    if not states:
        return {"backends": [], "tiers": {}, "workers": []}
    merged = {
        name: merge([state[name] for state in states]) for name, merge in _MERGED.items() if name in states[0]
    }
    return {**states[0], **merged}


# --- A balancer's workers: started, fed, counted, and started again when they die. ---


logger = logging.getLogger(__name__)

SILENT = 3
"""Looks, a second apart, at a worker that said nothing between them, from which nobody waits for it. It has to say something three times a second."""
_GATHERED = 0.005
"""Seconds for which words are gathered before they are passed on."""
ASKED = 2.0
"""Longest wait for what workers show of themselves."""
WATCH_EVERY = 1.0
"""Seconds between looks at whether workers hang."""
HANGS = int(FORGOTTEN_S / WATCH_EVERY)
"""Looks at a worker that said nothing between them, from which it is taken to be no more, as those who share its slots take it: it is killed."""


@dataclass(slots=True)
class RunningWorker:
    """A worker that runs: its line, its process, and what it said last."""

    number: int
    name: str
    line: PoolEnd
    process: Process
    ready: bool = False
    unheard: int = 0
    """Looks at it since it said anything. No seconds: whoever looks may have stood still itself."""
    said: WordMessage | None = None
    said_at: float = 0.0
    report: Report | None = None
    metrics: Sequence[Family] = ()
    tiers: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    used: Mapping[QuotaText, int] = field(default_factory=dict)
    denied: Mapping[QuotaText, int] = field(default_factory=dict)

    @property
    def hangs(self) -> bool:
        """Whether it has been silent for so long that nobody waits for it."""
        return self.unheard >= SILENT

    def spent(self) -> Spent | None:
        """What it did with the leases since this was last asked; None: it has not said."""
        said = self.said
        if said is None:
            return None
        used, self.used = _since(self.used, said.used), said.used
        denied, self.denied = _since(self.denied, said.denied), said.denied
        return Spent(self.number - 1, said.parts, used, denied)

    def shown(self) -> dict[str, Any]:
        """The same for people."""
        uses = [] if self.said is None else self.said.word.uses.values()
        return {
            "worker": self.number,
            "process": self.process.pid,
            "ready": self.ready,
            "hangs": self.hangs,
            "running": sum(use.running for use in uses),
            "waiting": sum(use.waiting for use in uses),
        }


class WorkerPool(Workers[PoolEnd], Carriers):
    """A balancer's workers, asked as `gtm.runtime.balancer.carrier.Carriers`: what they said last, added up.

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
        super().__init__("gtm.runtime.balancer.workers", PoolEnd, settings.geoip_db)
        self._settings = settings
        self._leases = leases
        self._loop = asyncio.get_running_loop()
        self._running: dict[int, RunningWorker] = {}
        self._learned = Interval([], [])
        self._pushed: Counter[str] = Counter()
        self._times: TookBy = {}
        self._everything = everything
        self._instance = instance
        self._listeners: Sequence[Listener] = ()
        self._key: OwnKey | None = None
        self._peers: Mapping[str, Word] = {}
        self._peers_at = 0.0
        self._watching: asyncio.Task[None] | None = None
        self._relaying: asyncio.TimerHandle | None = None
        self._ready = asyncio.Event()
        self._metrics = MergedMetrics()
        self._asking = asyncio.Lock()
        self._asked = 0
        self._shown: dict[int, ShownMessage] = {}
        self._answered = asyncio.Event()

    # --- what they said last, added up: what the first process reports, and passes on ---

    def _load(self, worker: RunningWorker, message: LoadMessage) -> None:
        worker.report, worker.metrics, worker.tiers = message.report, message.metrics, message.tiers
        self._learned.deltas.extend(message.deltas)
        self._learned.witnesses.extend(message.witnesses)
        del self._learned.deltas[:-MAX_SENT], self._learned.witnesses[:-MAX_SENT]
        add(self._times, table_of(message.times))

    def _ended(self, worker: RunningWorker) -> None:
        """It says nothing more: what it said last, and nobody asked for yet, counts."""
        del self._running[worker.number]
        rest = worker.spent()
        if rest is not None:
            self._leases.count(rest.used, rest.denied)
        if worker.said is not None:
            self._pushed.update(worker.said.pushes)

    def spent(self) -> Sequence[Spent]:
        return [rest for one in self._running.values() if (rest := one.spent()) is not None]

    def pushes(self) -> Mapping[str, int]:
        found = Counter(self._pushed)
        for one in self._running.values():
            if one.said is not None:
                found.update(one.said.pushes)
        return found

    def times(self) -> TookBy:
        found, self._times = self._times, {}
        return found

    def words(self) -> Mapping[str, Word]:
        """What each worker has. One that has not spoken yet has nothing."""
        now = self._loop.time()
        return {
            one.name: Word({one.name: SlotUse(0, 0)})
            if one.said is None
            else replace(one.said.word, age=now - one.said_at)
            for one in self._running.values()
        }

    def use(self) -> SlotUse:
        uses = [
            use
            for one in self._running.values()
            if one.said is not None
            for use in one.said.word.uses.values()
        ]
        return SlotUse(sum(use.running for use in uses), sum(use.waiting for use in uses))

    def report(self) -> Report:
        found = merged_report([one.report for one in self._running.values() if one.report is not None])
        return cast(
            "Report",
            {"outstanding": 0, "queue": 0, "requests_per_second": 0.0, **found}
            | {"region": self._settings.region, "source": self._settings.name},
        )

    def tiers(self) -> Mapping[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for one in self._running.values():
            for tier, (running, waiting) in one.tiers.items():
                had = found.get(tier, (0, 0))
                found[tier] = had[0] + running, had[1] + waiting
        return found

    def round_trips(self) -> Interval:
        learned, self._learned = self._learned, Interval([], [])
        return learned

    def free_slots(self) -> Slots | None:
        now = self._loop.time()
        known: list[Slots] = []
        for one in self._running.values():
            if one.said is not None and one.said.room is not None:
                silent = (
                    now - one.said_at > PEERS_LAST_S
                )  # as the others take it (`gtm.core.balance.sharing`, law 6)
                known.append(replace(one.said.room, free=0.0, waiting=0.0) if silent else one.said.room)
        if not known:
            return None
        return Slots.counted(
            *(sum(getattr(room, name) for room in known) for name in ("free", "limit", "waiting"))
        )

    def counts(self) -> RequestCounts:
        loads = together(list(self.words().values())).loads
        return RequestCounts(*self.use(), {name: int(load.requests) for name, load in loads.items()})

    def processes(self) -> list[dict[str, Any]]:
        """The workers, for people."""
        return [one.shown() for _, one in sorted(self._running.items())]

    # --- their lives ---

    async def listen(self, listeners: Sequence[Listener]) -> None:
        self._listeners = listeners
        for number in range(1, self._settings.workers + 1):
            self._keep(number, partial(self._run, number))
        self._watching = asyncio.ensure_future(self._watch())
        await self._ready.wait()

    async def finish(self) -> None:
        processes = [one.process for one in self._running.values()]
        await self._finish(processes, self._settings.drain_time + PATIENCE)

    async def close(self) -> None:
        await self.stop()
        for waiting in (self._watching, self._relaying):
            if waiting is not None:
                waiting.cancel()

    async def _run(self, number: int) -> int | None:
        lent = tuple(map(Lent.of, self._listeners))
        name = f"{self._instance}/{number}"
        told = WorkerSettings(number, name, replace(self._settings, token=""), -1, lent)
        process, line = await self._begin(told, [one.descriptor for one in lent])
        worker = RunningWorker(number, name, line, process)
        line.put(self._everything())
        if self._key is not None:
            line.put([KeyMessage(self._key)])
        line.put([PartsMessage(self._leases.started(number - 1))])
        self._running[number] = worker
        self._relay_soon()
        try:
            return await self._live(number, process, line, partial(self._take, worker))
        finally:
            self._ended(worker)
            self._metrics.ended(worker.metrics)
            self._shown.pop(number, None)
            self._look_for_answers()
            self._relay_soon()
            self._leases.ended(number - 1)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_EVERY)
            self.look()

    def look(self) -> None:
        """Look whether workers hang; each second."""
        for one in self._running.values():
            one.unheard += 1
            if one.ready and one.unheard == SILENT:
                logger.warning("worker %d is silent", one.number)
            if one.ready and one.unheard == HANGS:
                logger.error("worker %d has been silent for %d s: it is killed", one.number, HANGS)
                with suppress(ProcessLookupError):
                    one.process.kill()

    # --- what they are told ---

    def put(self, message: ToWorker) -> None:
        for one in self._running.values():
            one.line.put([message])

    def look_again(self) -> None:
        """Let each worker read its files again."""
        self.put(LookMessage())

    def sign(self, key: OwnKey) -> None:
        self._key = key
        self.put(KeyMessage(key))

    def lease(self, holder: LeaseHolder) -> None:
        parts = holder.parts()
        for number, one in self._running.items():
            one.line.put([PartsMessage(parts[number - 1])])

    def heard(self, words: Mapping[str, Word]) -> None:
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

    def _take(self, worker: RunningWorker, message: FromWorker) -> None:
        worker.unheard = 0
        match message:
            case WordMessage():
                worker.said, worker.said_at = message, self._loop.time()
                self._relay_soon()
            case LoadMessage():
                self._load(worker, message)
            case ShownMessage():
                worker.metrics = message.metrics  # what was shown must not be forgotten
                if message.number == self._asked:
                    self._shown[worker.number] = message
                    self._look_for_answers()
            case ReadyMessage():
                logger.info("worker %d serves by revision %d", worker.number, message.revision)
                worker.ready = True
                if sum(one.ready for one in self._running.values()) == self._settings.workers:
                    self._ready.set()

    # --- what is shown ---

    async def ask(self) -> tuple[ShownMessage, ...]:
        """What those that serve show of themselves now; without those that hang."""
        async with self._asking:
            self._asked += 1
            self._shown = {}
            self._answered.clear()
            self.put(AskMessage(self._asked))
            if any(one.ready for one in self._running.values()):
                self._look_for_answers()
                with suppress(TimeoutError):
                    async with asyncio.timeout(ASKED):
                        await self._answered.wait()
            return tuple(self._shown[number] for number in sorted(self._shown))

    def _look_for_answers(self) -> None:
        """Note it if all workers have answered that are waited for; those that die or hang meanwhile are not."""
        if all(n in self._shown for n, one in self._running.items() if one.ready and not one.hangs):
            self._answered.set()

    def text(self) -> bytes:
        """All metrics: of those that run as they said last, for a counter must not fall because one hangs, and of those that ended."""
        return render(self._metrics.merged([one.metrics for _, one in sorted(self._running.items())]))

    async def unready(self) -> str:
        said = [one.unready for one in await self.ask()]
        return "" if "" in said else next(iter(said), "no worker answers")

    async def metrics(self) -> bytes:
        await self.ask()
        return self.text()

    async def state(self) -> dict[str, Any]:
        state = merged_state([one.state for one in await self.ask()])
        return {**state, "process": os.getpid(), "workers": self.processes()}


def _since(before: Mapping[QuotaText, int], now: Mapping[QuotaText, int]) -> dict[QuotaText, int]:
    return {quota: count - before.get(quota, 0) for quota, count in now.items()}
