"""The edge's agent: follows control, probes, keeps the last good View, and runs the workers that answer.

Laws:
  1. Losing control costs freshness, never answers: the last View stays, with this edge's own probes for health.
  2. What control says is checked (checksum, compilation) before it is saved, and saved before it is used.
  3. Nothing listens before a View is loaded and the first round of probes is over.
  4. The sockets are the agent's. They outlive its workers, and pass to a successor without a gap.
  5. Who stops an edge means to: its workers end with it. An agent that dies leaves them to answer alone until the next
     (`gtm.runtime.edge.worker.worker`), and one that fails dies at once, for whatever it did to end well would end them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import assert_never

from gtm import __version__
from gtm.core.health.addresses import (
    NO_ADDRESSES,
    Addresses,
    address_of,
    followed_addresses,
    overruled_addresses,
    url_of,
)
from gtm.core.health.verdicts import HealthTable, followed, overruled
from gtm.core.latency.doubt import Witness
from gtm.core.latency.samples import Delta, Interval, RoundTripSample, SampleAggregator, SampleMethod
from gtm.core.model.requests import UNKNOWN_LOCATION
from gtm.core.model.state import PLAN_KEPT, EndpointHealth, HealthStatus, State, kept_plan
from gtm.core.policy.snapshot import Snapshot
from gtm.core.quota.leases import LeaseHolder
from gtm.dns.protocol.cookies import SECRET_SIZE
from gtm.feed.client import ControlUnreachable, FeedClient
from gtm.feed.current import CurrentView
from gtm.feed.reports import DnsLimits, EdgeReply, EdgeReport
from gtm.feed.sealing import SealingKey
from gtm.feed.wire import HandoffKeysMessage, KeysMessage, Message, RoomMessage, SnapshotMessage, StateMessage
from gtm.files import write_whole
from gtm.geoip.reader import Locator
from gtm.handoff.own_keys import OwnKeys
from gtm.lockfile import LockHeld
from gtm.prober import Prober
from gtm.prober.schedule import MOST_ADDRESSES
from gtm.runtime.edge import orphans
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
from gtm.runtime.following.following import Follower
from gtm.runtime.following.handover import HandoverError, Ownership
from gtm.runtime.following.tasks import die
from gtm.runtime.following.told import PartsMessage
from gtm.runtime.process import lifeline
from gtm.runtime.process.clocks import boot_time
from gtm.runtime.process.forkserver import Process
from gtm.runtime.process.listeners import Listener, Listeners, Use, open_listeners
from gtm.runtime.process.notify import notify_ready
from gtm.runtime.process.places import say_lacking
from gtm.runtime.process.privileges import conceal
from gtm.runtime.process.workers import PATIENCE, Workers
from gtm.secret import SecretError, SecretKind, read_file
from gtm.settings import EdgeSettings
from gtm.telemetry import EdgeMetrics, GaugeValue

# --- The workers of one edge: started, fed, counted, and started again when they die. ---


_HTTP_ALONE = (MetricsMessage, SilentMessage, PartsMessage, SigningMessage, HandoffKeysMessage)


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
        """End every worker once it has answered what it has begun, for `FINISH` seconds at most, and carried requests for `drain_time` more."""
        await self._finish(self._processes.values(), FINISH + self.settings.drain_time + PATIENCE)

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
        lent = (*(one.descriptor for one in told.lent), *(() if told.door is None else (told.door,)))
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
            return await self._live(worker, process, link, partial(self._take, worker))
        finally:
            del self._links[worker], self._processes[worker]
            self._answering.pop(worker, None)
            self._changed()
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
        uses = (Use.DNS_UDP, Use.DNS_TCP) if dns else (Use.HTTP,)
        return EdgeWorkerSettings(
            id=worker,
            edge=replace(self.settings, token=""),
            descriptor=-1,
            lent=tuple(one for use in uses for one in self.listeners.lent(use, worker.index)),
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


# --- What an edge owns on its machine: the data directory, its listening sockets, a user; free, or from a predecessor. ---


class EdgeOwnership(Ownership):
    """What one edge owns: its data directory, the sockets of its workers, a user; or what workers without an agent still have."""

    def __init__(self, settings: EdgeSettings) -> None:
        super().__init__("edge", settings.data_dir, settings)
        self._settings = settings
        self._orphans = False
        self._settled = False
        self.listeners = Listeners((), (), settings.workers)

    @property
    def covered(self) -> bool:
        """Whether another edge answers at the same addresses: the predecessor still, or a successor already."""
        return self.replaced or (self.inherited and not self._settled)

    def _claim(self) -> None:
        if self._replace and not lifeline.held():  # `gtm serve` replaces what is there, if anything
            logger.info("no edge to replace runs on `%s`", self.home)
        self._lock_data_dir()
        self._predecessors = orphans.find(self.home)
        self._orphans = bool(self._predecessors)
        for orphan in self._predecessors:
            logger.info("taking over the worker of process %d, whose agent is gone", orphan.process)

    def _open(self, inherited: Sequence[Listener]) -> None:
        self.listeners = open_listeners(self._settings, inherited)

    def settle(self) -> None:
        notify_ready()
        self._settled = True
        if self._predecessors:
            self.listeners.retire()
        super().settle()

    def abandon(self) -> None:
        """This edge was told to stop before its workers answered: workers that had lost their agent stop with it."""
        if self._orphans and not self._settled:
            for orphan in self._predecessors:
                with suppress(OSError):
                    orphan.stop()

    async def leave_to_successor(self, give_way: Callable[[], None], parent_gone: asyncio.Event) -> None:
        """Wait for a successor that takes over, if there may be one, and then call `give_way`.

        Args:
            give_way: called once it has.
            parent_gone: set once a `gtm serve` that started this edge is gone: while it lives, it would start it again.
        """
        if lifeline.held():
            await parent_gone.wait()
        await self.hand_over(self.listeners.settled, give_way, "stopping")

    async def relieved(self) -> None:
        """Wait until the predecessor has ended. Orphans that do not are killed: nobody else looks after them."""
        for orphan in self._predecessors if self._orphans else ():
            try:
                await asyncio.wait_for(orphan.ended(), orphans.ENDING)
            except TimeoutError:
                logger.error("the worker of process %d does not end; killing it", orphan.process)
                orphan.kill()
        await self._relieved("worker" if self._orphans else "edge")

    def release(self) -> None:
        self.listeners.close()
        super().release()

    def _lock_data_dir(self) -> None:
        """Two edges must not overwrite each other's last-good file; a disk that refuses keeps none from answering."""
        try:
            self._lock.acquire()
        except LockHeld as error:
            holder = f" (process {error.holder})" if error.holder else ""
            advice = "give another with --data-dir, or take its place with --replace"
            if self._replace:
                advice = "it cannot be replaced, because it does not answer yet or belongs to a `gtm serve`"
            raise OSError(
                errno.EBUSY,
                f"an edge is already running on the data directory `{self.home}`{holder}; {advice}",
            ) from error
        except OSError as error:
            logger.warning("cannot lock the data directory, going on without a lock: %s", error)
        else:
            for half in self.home.glob("edge*.tmp"):  # of edges that were killed while they wrote
                with suppress(OSError):
                    half.unlink()


# --- What an edge keeps in its data directory for its next start: the name that its token is for, and the addresses that were up once. ---
#
# The name is that of an edge which nobody named: the host's, until control says which one its token is for. Kept, the edge has it from
# the start the next time, also without control. Those addresses alone can be found down after a restart.


NAME = "edge-name"
ADDRESSES = "addresses-up"
_MOST_BYTES = MOST_ADDRESSES * 2_200
"""More than so many addresses with their URLs take; what lies beyond is not read."""
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


def remembered(settings: EdgeSettings) -> EdgeSettings:
    """The settings, with the name of the last time if nobody gives one now."""
    if settings.named:
        return settings
    try:
        name = _path(settings).read_text(encoding="ascii")[:300].strip()
    except (OSError, ValueError):
        return settings
    return replace(settings, name=name) if _NAME.fullmatch(name) else settings


def remember(settings: EdgeSettings, name: str) -> EdgeSettings:
    """The settings with the name that the token is for, for the next time too."""
    if not _NAME.fullmatch(name):
        return settings
    logger.info("this edge is `%s`: its token is for that name, and --name gives no other", name)
    try:
        write_whole(_path(settings), f"{name}\n".encode())
    except OSError as error:
        logger.warning("cannot keep the edge's name for the next start: %s", error)
    return replace(settings, name=name)


def _path(settings: EdgeSettings) -> Path:
    return settings.data_dir / NAME


def addresses_up(data_dir: Path) -> frozenset[str]:
    """Those of the last time (`gtm.core.health.addresses.address_key`); none where the file is missing or cannot be read."""
    try:
        with (data_dir / ADDRESSES).open("rb") as file:
            text = file.read(_MOST_BYTES).decode()
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError) as error:
        logger.warning("cannot read which addresses were up, so each counts once it is up again: %s", error)
        return frozenset()
    return frozenset(line for line in text.split("\n") if " " in line)


def keep_addresses_up(data_dir: Path, keys: Iterable[str]) -> None:
    """Keep them for the next start."""
    try:
        write_whole(data_dir / ADDRESSES, "".join(f"{key}\n" for key in sorted(keys)).encode())
    except OSError as error:
        logger.warning("cannot keep which addresses were up for the next start: %s", error)


# --- The secrets of DNS cookies: an edge's own, or those that it shares with the other edges of its address. ---


_DIGITS = rf"[0-9A-Fa-f]{{{2 * SECRET_SIZE}}}"
_SECRETS = SecretKind(
    "cookie secret",
    re.compile(rf"{_DIGITS}(?:\s+{_DIGITS})?"),
    f"one or two lines of {2 * SECRET_SIZE} hexadecimal digits, the secret in use first; make one with `openssl rand -hex 16`",
    exact=True,
)


def cookie_secrets(path: Path | None) -> tuple[bytes, ...]:
    """The secret in use and perhaps the one before, one a line in hexadecimal; without a file a random one.

    Raises:
        OSError: the file cannot be read, or holds something else.
    """
    if path is None:
        return (secrets.token_bytes(SECRET_SIZE),)
    try:
        text = read_file(path, "--dns-cookie-secret-file", _SECRETS)
    except SecretError as error:
        raise OSError(errno.EINVAL, str(error)) from None
    return tuple(map(bytes.fromhex, text.split()))


# --- What one edge learned of round trips, held by its agent until control is told. ---
#
# Law: what waits is bounded. While control is away the newest is kept.


MAX_WAITING = 20_000
"""Deltas kept for control, and as many witnesses."""
MAX_SENT = 4_000
"""Deltas in one report, and as many witnesses: some 400 kB each."""


class EdgeRoundTrips:
    """Deltas of the HTTP workers, and of the way from this edge's own region to the others.

    Args:
        region: the region that the edge runs in; None: its probes say nothing of round trips between regions.
        clock: POSIX seconds.
    """

    def __init__(self, region: str | None, clock: Callable[[], float]) -> None:
        self._region = region
        self._clock = clock
        self._aggregator = SampleAggregator(())
        self._deltas: deque[Delta] = deque(maxlen=MAX_WAITING)
        self._witnesses: deque[Witness] = deque(maxlen=MAX_WAITING)

    def update(self, snapshot: Snapshot) -> None:
        """Follow another policy."""
        self.end_interval()
        self._aggregator = SampleAggregator(snapshot.regions)
        if self._region is not None and self._region not in snapshot.region_numbers:
            logger.warning(
                "this edge is said to run in region `%s`, which is not in the policy", self._region
            )

    def probed(self, region: str, connect_ms: float) -> None:
        """A check of an endpoint of a region took this long to connect."""
        if self._region is not None:
            self._aggregator.add(
                RoundTripSample(
                    UNKNOWN_LOCATION, region, connect_ms, self._clock(), self._region, SampleMethod.PROBE
                )
            )

    def end_interval(self) -> None:
        """Sum up the probes since the last call."""
        self.learned(self._aggregator.take())

    def learned(self, interval: Interval) -> None:
        """Keep for control what was summed up elsewhere."""
        self._deltas.extend(interval.deltas)
        self._witnesses.extend(interval.witnesses)

    def take(self) -> tuple[tuple[Delta, ...], tuple[Witness, ...]]:
        """The oldest that wait, as many as go into a report."""
        return (
            tuple(self._deltas.popleft() for _ in range(min(MAX_SENT, len(self._deltas)))),
            tuple(self._witnesses.popleft() for _ in range(min(MAX_SENT, len(self._witnesses)))),
        )


# --- What control last said of the world, and how far that still holds: health while it is heard, its plan for a while after. ---
#
# Where votes would empty it, an edge goes by its own word against the common verdict, and says so.


UNSAID = 3.0
"""Seconds for which it goes on before the log says so: when many regions recover, control is told a moment later."""
_Table = dict[str, dict[str, EndpointHealth]]


class Veto:
    """Where one edge overrules the common verdict now.

    Args:
        metrics: the edge's, which say for how many regions.
        monotonic: seconds that never step back.
    """

    def __init__(self, metrics: EdgeMetrics, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.regions: frozenset[str] = frozenset()
        self._metrics = metrics
        self._monotonic = monotonic
        self._since = 0.0
        self._said = False

    def health(
        self,
        agreed: HealthTable,
        own: HealthTable,
        recent: HealthTable,
        *,
        also: frozenset[str] = frozenset(),
    ) -> dict[str, dict[str, EndpointHealth]]:
        """What the edge goes by (`gtm.core.health.verdicts.followed`).

        `also`: regions for whose addresses it goes by its own probes, to be told with the others.
        """
        self._set(overruled(agreed, recent) | also)
        return followed(agreed, own, recent)

    def alone(self) -> None:
        """There is no common verdict: control is gone."""
        self._set(frozenset())

    def tick(self) -> None:
        """Say so, if it lasts."""
        if self.regions and not self._said and self._monotonic() - self._since >= UNSAID:
            self._said = True
            logger.error(
                "going by this edge's own probes, which see %s up: most edges say that they are down",
                ", ".join(sorted(self.regions)),
            )

    def _set(self, regions: frozenset[str]) -> None:
        if regions and not self.regions:
            self._since = self._monotonic()
        if not regions and self._said:
            self._said = False
            logger.warning("going by the common verdict again")
        self.regions = regions
        self._metrics.overruled(len(regions))


class Agreed:
    """The agreed state of the world, as one edge goes by it.

    Args:
        veto: where this edge goes by its own probes all the same.
        monotonic: seconds that never step back.
    """

    def __init__(self, veto: Veto, monotonic: Callable[[], float]) -> None:
        self.connected = False
        """Whether control is heard, and has said what it knows."""
        self._veto = veto
        self._monotonic = monotonic
        self._state = State()
        self._keeps_plan = False
        self._lost_at = -inf

    @property
    def plan_runs_out(self) -> bool:
        """Whether the plan is one that nobody keeps up to date: control is gone, or has just started and has none yet."""
        return not self.connected or self._keeps_plan

    @property
    def plan_left(self) -> float:
        """Seconds for which the plan is followed yet, should control say nothing more."""
        if self.plan_runs_out:
            return PLAN_KEPT - min(self._monotonic() - self._lost_at, PLAN_KEPT)
        return PLAN_KEPT

    def heard(self, message: StateMessage) -> None:
        """Control said how the world is."""
        self._state = message.after(self._state)
        self._keeps_plan = message.keep_plan

    def lost(self) -> None:
        """Control is gone."""
        self.connected = False
        if not self._keeps_plan:  # else the plan's time runs already
            self._lost_at = self._monotonic()

    def state(
        self,
        own: _Table,
        recent: _Table,
        edge: str,
        *,
        addresses: dict[str, _Table] | None = None,
        recent_addresses: Addresses = NO_ADDRESSES,
    ) -> State:
        """What this edge goes by now.

        Args:
            own: what its own probes say, or said last.
            recent: what they have said lately, which alone overrules what others see.
            edge: its name.
            addresses: as `own`, of addresses; None: it probes none.
            recent_addresses: as `recent`, of addresses.
        """
        addresses = addresses or {}
        # Epoch 0 is the state before any: a worker that has only that must not listen.
        epoch = max(self._state.epoch, 1)
        plan = self._state.plan
        if self.plan_runs_out:
            plan = kept_plan(plan, self._monotonic() - self._lost_at)
        if self.connected:
            health = self._veto.health(
                self._state.health,
                own,
                recent,
                also=overruled_addresses(self._state.addresses, recent_addresses),
            )
            followed = followed_addresses(self._state.addresses, addresses, recent_addresses)
            return State(epoch, "", health, plan, followed)
        self._veto.alone()
        return State(epoch, edge, own, plan, addresses)


# --- The edge's agent: follows control, probes, keeps the last good View, and runs the workers that answer. ---


logger = logging.getLogger(__name__)


LEARN_EVERY = 10
"""Seconds in an interval of probes' round trips."""
FIRST_ROUND = 10.0
"""Longest wait for the first round of probes, in seconds; what has not answered by then is unknown."""
REPORT_EVERY = 1.0
"""Seconds between reports to control when nothing changes."""
CERTIFICATES_EVERY = 15.0
"""Seconds between reports that have certificates: they change with the seasons, and are much text."""
TAKE_OVER = 60.0
"""Seconds within which an edge that is to replace another must answer; it gives up after."""


def _look() -> None:
    """Say what SIGHUP comes to."""
    logger.info(
        "SIGHUP: files of places are read again within 10 s of their change, unasked; options count from the next start (--replace loses no query)"
    )


class Agent(Follower):
    """One edge. `run` returns when it has been told to stop.

    Args:
        settings: the edge's.
        monotonic: seconds that never step back.
    """

    settings: EdgeSettings
    owned: EdgeOwnership

    def __init__(self, settings: EdgeSettings, monotonic: Callable[[], float] = time.monotonic) -> None:
        settings = remembered(settings)
        current = CurrentView(time.time, edge=settings.place, boot=boot_time)
        super().__init__(settings, current, EdgeOwnership(settings))
        self.metrics = EdgeMetrics(self._gauges)
        self._veto = Veto(self.metrics)
        self._round_trips = EdgeRoundTrips(settings.region, time.time)
        self._prober = Prober(
            self._verdict_changed,
            time.time,
            self._round_trips.probed,
            allowed=settings.probe_allow,
            ca_file=settings.ca_file,
            ever_up=addresses_up(settings.data_dir),
        )
        self._kept_up = self._prober.ever_up
        self._agreed = Agreed(self._veto, monotonic)
        self._geoip_built = 0.0
        self._parent_gone = asyncio.Event()
        self._cookie_secrets = cookie_secrets(settings.dns_cookie_secret_file)  # while still root, if ever
        self.workers: EdgeWorkers | None = None
        """Those who answer; None before `run` has made them."""
        self._own_keys = OwnKeys(settings.data_dir)
        """The edge's own keys, with which it signs handoffs."""
        self._leases = LeaseHolder(secrets.token_hex(8), settings.workers)
        self.due = asyncio.Event()
        """Set where control should hear soon."""
        self.wants_plan = False
        """Control has just started, and asks which plan is followed."""
        self._told_certificates = -CERTIFICATES_EVERY
        self._reported_at = time.monotonic()
        self._notice = ""
        self._reporting: asyncio.Task[None] | None = None
        self._settled = False

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. A `gtm serve` that dies leaves its edge to answer alone.

        Raises:
            OSError: another edge runs on the data directory, an address cannot be listened on, or `user` or
                `replace` is not possible.
            GeoIPError: the GeoIP database or the overrides cannot be read.
        """
        conceal()
        with self._owning():
            await self._run()

    async def _run(self) -> None:
        settings = self.settings
        self._mind(_look, self._lost_parent)
        locator = Locator(settings.geoip_db, settings.geoip_overrides, anonymous=settings.geoip_anonymous_db)
        self._geoip_built = float(locator.build_epoch)
        say_lacking(locator)
        locator.close()
        self.workers = EdgeWorkers(
            settings,
            self.owned.listeners,
            self.metrics,
            everything=self.everything,
            moved=self.due.set,
            leases=self._leases,
            learned=self._round_trips.learned,
            cookie_secrets=self._cookie_secrets,
            covered=lambda: self.owned.covered,
            pulse=self.pulse,
        )
        self._prober.start()
        self._tasks.start(self.settle())
        await self._live(self.load, self._answer, self._end)

    async def _end(self) -> None:
        assert self.workers is not None  # noqa: S101 - set by run()
        failure = self._tasks.failure
        if failure is not None and self._settled:
            die(failure)
        if failure is None:
            self.owned.abandon()
        if self.owned.covered:
            await self.workers.finish()
        await self._tasks.cancel()
        await self.workers.stop()
        await self._prober.stop()

    async def _answer(self) -> None:
        """From the first View on: probe, start workers, report, until told to stop."""
        assert self.workers is not None  # noqa: S101 - set by run()
        await self._prober.first_round(FIRST_ROUND)
        self._publish()
        self.workers.start()
        if not self.owned.inherited:
            self._reporting = self._tasks.start(self._report())
        self._tasks.start(self._tick())
        await self._stopping.wait()

    async def settle(self) -> None:
        """Take the place of the predecessor once every worker answers, and leave it to a successor some day."""
        assert self.workers is not None  # noqa: S101 - set by run()
        try:
            await asyncio.wait_for(self.workers.ready.wait(), TAKE_OVER if self.owned.inherited else None)
        except TimeoutError:
            raise HandoverError(
                errno.ETIMEDOUT, f"not ready to answer after {TAKE_OVER:.0f} s; the edge that runs goes on"
            ) from None
        self.owned.settle()
        self._settled = True  # and workers know before a slow disk is waited for
        self.workers.beat()
        await self._kept.load_times()  # what the predecessor saw last
        if self.owned.inherited:  # until now the predecessor reported
            self._reporting = self._tasks.start(self._report())
        self._tasks.start(self.owned.relieved())
        await self.owned.leave_to_successor(self._give_way, self._parent_gone)

    def _give_way(self) -> None:
        """A successor answers now, reports, and keeps the last-good file."""
        self._settled = False
        if self._reporting is not None:
            self._reporting.cancel()
        self.stop()

    def _lost_parent(self) -> None:
        """The `gtm serve` that started this edge has died. Edges answer when everything else is down."""
        self._parent_gone.set()
        if not self._settled:
            self.stop()
            return
        logger.error(
            "`gtm serve` is gone; answering alone until the next one on this data directory, or `gtm edge --stop`"
        )

    def pulse(self) -> PulseMessage:
        """What workers are told, should they be left alone: the plan's time, which runs already without control."""
        alone = self._settled and not self._stopping.is_set()
        return PulseMessage(alone, self._agreed.plan_left, self.settings.name)

    # What arrives

    async def load(self) -> None:
        """Go on from what the data directory holds."""
        await self._kept.load_times()  # before the first View
        await self._tell_times()
        await self._kept.on_disk(self._own_keys.load, self.current.window.now)
        await self._load()

    async def _client(self) -> FeedClient:
        return self._made(await self._kept.on_disk(SealingKey.kept, self.settings.data_dir))

    def _made(self, key: SealingKey | None = None) -> FeedClient:
        settings = self.settings
        return FeedClient(
            settings.control_url,
            settings.token,
            settings.name,
            settings.ca_file,
            key=key,
            skipped=self._skipped,
        )

    def _skipped(self, why: str) -> None:
        logger.error("skipped a message of control's feed: %s", why)
        self.metrics.skipped()

    def renamed(self, name: str) -> bool:
        # The name that the token is for, where nobody gave the edge another.
        if self.settings.named or not name or name == self.settings.name:
            return False
        self.settings = remember(self.settings, name)
        if self.workers is not None:
            self.workers.rename(name)
            self.workers.put(self._signing())
        return True

    def found(self) -> None:
        super().found()
        self._agreed.connected = True
        self.due.set()  # control wants to know how this edge stands

    def lost(self) -> None:
        super().lost()
        self._agreed.lost()
        self._publish()

    async def receive(self, message: Message) -> bool:
        taken = await super().receive(message)
        if taken and isinstance(message, SnapshotMessage | StateMessage):
            self._publish()
        return taken

    def _heed(self, message: Message) -> None:
        match message:
            case StateMessage():
                self._agreed.heard(message)
            case SnapshotMessage():
                assert self.current.snapshot is not None  # noqa: S101 - it was compiled
                self._prober.update(self.current.snapshot)
                self._round_trips.update(self.current.snapshot)
                self.due.set()
            case RoomMessage():
                self._prober.suspect(message.suspects)
                self._send(message)
            case _:  # heartbeats are heard, and sealed keys opened by the client, already
                pass

    # What goes out

    def _publish(self) -> None:
        """Tell the workers the state of the world as it is known now."""
        state = self._agreed.state(
            self._prober.health(),
            self._prober.votes(),
            self.settings.name,
            addresses=self._prober.addresses(),
            recent_addresses=self._prober.address_votes(),
        )
        if state == self.current.state:
            return
        self.current.apply(StateMessage(state))
        self._send(StateMessage(state))

    def _send(self, message: ToWorker) -> None:
        if self.workers is not None:
            self.workers.put([message])

    def everything(self) -> list[ToWorker]:
        """All that a new worker needs to begin."""
        first, *others = self._view()
        return [first, *self._signing(), *others]

    def _verdict_changed(self) -> None:
        self.due.set()
        self._publish()

    async def _report(self) -> None:
        assert self.workers is not None  # noqa: S101 - set by run()
        async with self._made() as client:
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.due.wait(), REPORT_EVERY)
                self.due.clear()
                client.name = self.settings.name
                with suppress(ControlUnreachable):  # the feed's own loop says so
                    self._answered(await client.report(self.report(self.workers.revision)), self.workers)

    def _answered(self, reply: EdgeReply, workers: EdgeWorkers) -> None:
        """What control answers goes to whom it concerns: leases to the workers, notices into the log."""
        self.wants_plan = reply.wants_plan
        if reply.notice and not self._notice:
            logger.error("control says: %s", reply.notice[:1000])
        self._notice = reply.notice
        if reply.leases is not None and self._leases.take(reply.leases):
            workers.put_parts()

    def report(self, revision: int) -> EdgeReport:
        """What control is told now. Demand that a lost report held stays in the metrics alone.

        Args:
            revision: which every worker that listens answers from.
        """
        now, dns = time.monotonic(), self.settings.dns
        seconds, self._reported_at = now - self._reported_at, now
        deltas, witnesses = self._round_trips.take() if self.connected else ((), ())
        certificates = None
        if now - self._told_certificates >= CERTIFICATES_EVERY:
            self._told_certificates, certificates = now, self._prober.certificates()
        return EdgeReport(
            version=__version__,
            place=self.current.place,
            revision=revision,
            kept=self._kept.revision,
            epoch=self.current.state.epoch,
            health=self._prober.votes(),
            addresses=self._prober.address_votes(),
            demand=self.metrics.take_demand(),
            seconds=seconds,
            leases=self._leases.use(boot_time()),
            latency=deltas,
            witnesses=witnesses,
            plan=self.current.state.plan if self.wants_plan else None,
            overruled=tuple(sorted(self._veto.regions)),
            handoff_keys=self._own_keys.public,
            corrections=self.metrics.take_corrections(),
            dns=self.metrics.take_dns(),
            dns_limits=DnsLimits(
                dns.rate_limit, dns.rate_limit_excess, dns.rate_limit_slip, len(dns.rate_limit_exempt)
            ),
            probed=self._prober.take_outcomes(),
            certificates=certificates,
        )

    def _signing(self) -> list[SigningMessage]:
        """What workers are told of handoffs' keys."""
        ring = self._own_keys.ring
        return [] if ring is None else [SigningMessage(self.settings.name, ring.current, ring.public)]

    async def _roll_keys(self) -> bool:
        """Take what step is due; whether one was, so that workers and control must be told."""
        now, published = self.current.window.now, self.current.handoff_keys.keys
        return await self._kept.on_disk(self._own_keys.roll, now, published, self.settings.name)

    async def _keep_addresses(self) -> None:
        """Keep which addresses were up once, for the next start; a successor keeps them itself."""
        found = self._prober.ever_up
        if found != self._kept_up and not self.owned.replaced:
            self._kept_up = found
            await self._kept.on_disk(keep_addresses_up, self.settings.data_dir, found)

    def _gauges(self) -> Iterator[GaugeValue]:
        """How the edge stands now: the values of `gtm.telemetry.EDGE_GAUGES`."""
        snapshot, times = self.snapshot, self.current.times
        for name, value in (
            ("gtm_edge_control_connected", self.connected),
            ("gtm_edge_control_heard_timestamp_seconds", times.heard or 0.0),
            ("gtm_edge_clock_spread_seconds", times.spread),
            ("gtm_edge_revision", snapshot.revision if snapshot is not None else 0),
            ("gtm_edge_policy_timestamp_seconds", snapshot.created if snapshot is not None else 0),
            ("gtm_edge_plan_timestamp_seconds", self.current.state.plan.made),
            ("gtm_edge_geoip_timestamp_seconds", self._geoip_built),
            (
                "gtm_edge_policy_unsaved_seconds",
                self.current.window.age if times.unsaved is not None else 0.0,
            ),
            ("gtm_edge_alone_seconds", 0),
        ):
            yield name, (), float(value)
        answering = self.workers.answering if self.workers is not None else {}
        for kind in WorkerKind:
            listening = sum(worker.kind is kind for worker in answering)
            yield "gtm_edge_workers", (kind.value,), float(listening)
        for region, endpoints in self._prober.health().items():
            for url, health in endpoints.items():
                for status in HealthStatus:
                    yield (
                        "gtm_edge_endpoint_health",
                        (region, url, status.value),
                        float(health.status is status),
                    )
        for table in self._prober.addresses().values():
            for region, known in table.items():
                for key, one in known.items():
                    labels = (region, url_of(key), address_of(key))
                    for status in HealthStatus:
                        yield "gtm_edge_address_health", (*labels, status.value), float(one.status is status)
        for place, result in self._prober.latest.items():
            yield "gtm_edge_probe_timestamp_seconds", place, result.at
            if result.latency_ms is not None:
                yield "gtm_edge_probe_seconds", place, result.latency_ms / 1000
            if result.certificate is not None:
                yield "gtm_edge_certificate_expiry_timestamp_seconds", place, result.certificate.not_after

    async def _beat(self, number: int) -> None:
        assert self.workers is not None  # noqa: S101 - set by run()
        self._veto.tick()
        if number % LEARN_EVERY == 0:
            self._round_trips.end_interval()
            # Not while a predecessor or successor does.
            if self._settled and await self._roll_keys():
                self.due.set()
                self.workers.put(self._signing())
        await self._keep_addresses()
        if self._agreed.plan_runs_out:
            self._publish()  # the last plan ends some time
        self.workers.put([MetricsMessage(self.metrics.text())])
        self.workers.beat()
