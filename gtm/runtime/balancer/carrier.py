"""What carries requests in one process: law, admission, choice, the health of backends, pushes, and the connections themselves.

A balancer that is one process has one; one of several workers has one in each (`gtm.runtime.balancer.workers`).
"""

from __future__ import annotations

import asyncio
import logging
import re
import resource
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple, Protocol, get_args
from weakref import WeakKeyDictionary

from gtm.balancer.config import BalancerDocument
from gtm.balancer.decide.gate import HandoffReader, LawGate, OwnHandoffs
from gtm.balancer.decide.picking import PoolPicker
from gtm.balancer.decide.pushing import PeerPusher
from gtm.balancer.decide.queueing import QueueAdmission
from gtm.balancer.health.check_settings import CheckSettings
from gtm.balancer.health.checks import Checks, load_in_header
from gtm.balancer.metrics import Family, collect, groups_shown, render
from gtm.balancer.plane.backend.backends import Route
from gtm.balancer.plane.client.proxy_protocol import ProxiedConnection
from gtm.balancer.plane.flow import HELD_BESIDE_QUEUE
from gtm.balancer.plane.proxy import Proxy
from gtm.balancer.plane.tracing import Tracer, TraceSettings
from gtm.balancer.wire.tls import BackendContext, ServerContext
from gtm.core.balance.admission.rooms import GroupLimits
from gtm.core.balance.choosing.values import By
from gtm.core.balance.flights import PeerLoad
from gtm.core.balance.groups import ONE_GROUP
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.settings import HealthSettings
from gtm.core.balance.serving import named
from gtm.core.balance.sharing import Sharing, SlotUse
from gtm.core.balance.spill.room import CAME, Slots
from gtm.core.capacity.durations import TookBy
from gtm.core.capacity.load import MAX_MODELS, MODEL_PATTERN
from gtm.core.handoff.keys import OwnKey
from gtm.core.latency.samples import Interval
from gtm.core.quota.leases import LeaseHolder, LeaseParts
from gtm.core.quota.names import QuotaText
from gtm.feed.current import CurrentView
from gtm.geoip.client import ClientFinder
from gtm.geoip.reader import Locator
from gtm.http.answers.quotas import QuotaGate
from gtm.http.samples.intake import Intake
from gtm.runtime.balancer.access_log import AccessLog
from gtm.runtime.balancer.admin import ShownBalancer
from gtm.runtime.balancer.backends_file import BackendNames, BackendsFile
from gtm.runtime.balancer.reporting import EVERY, Report
from gtm.runtime.balancer.round_trips import ClientRoundTrips
from gtm.runtime.following.tasks import Tasks
from gtm.runtime.following.told import ViewMessage
from gtm.runtime.process.clocks import boot_time
from gtm.runtime.process.connections import Connections, fitting
from gtm.runtime.process.listeners import Listener
from gtm.runtime.process.places import reload_places
from gtm.settings import BalancerSettings
from gtm.transport import tls_when_needed

# --- What balancers of a region tell each other: what each has of the region's slots, and what it has in flight at each backend. ---


@dataclass(frozen=True, slots=True)
class Word:
    """What one balancer, or one worker of it, said `age` seconds ago: all that it has, by member and by backend's name.

    `balancer`: the name that control published it by; empty: it is a worker of this balancer. `groups`: what each has of the slots of a group of
    servers (`gtm.core.balance.groups`), by the group's name; nothing where all servers are alike.
    """

    uses: dict[str, SlotUse] = field(default_factory=dict)
    loads: dict[str, PeerLoad] = field(default_factory=dict)
    age: float = 0.0
    balancer: str = ""
    groups: dict[str, dict[str, SlotUse]] = field(default_factory=dict)


def together(words: list[Word]) -> Word:
    """What several say, as one; as old as the oldest of it."""
    uses: dict[str, SlotUse] = {}
    loads: dict[str, PeerLoad] = {}
    groups: dict[str, dict[str, SlotUse]] = {}
    for word in words:
        uses |= word.uses
        for name, of_it in word.groups.items():
            groups.setdefault(name, {}).update(of_it)
        for name, load in word.loads.items():
            had = loads.get(name)
            loads[name] = (
                load if had is None else PeerLoad(had.requests + load.requests, had.work_us + load.work_us)
            )
    return Word(uses, loads, max((word.age for word in words), default=0.0), groups=groups)


# --- What looks after a region's backends, and tells picker and admission what it finds. ---


TELL_EVERY = 0.1
"""Seconds between looks at what time alone changes."""


def health_settings(document: BalancerDocument) -> HealthSettings:
    """The settings of backends' health by the file."""
    found = HealthSettings(checks=document.checks.thresholds())
    return found if document.ejection.latency else replace(found, latency_factor=None)


@dataclass(eq=False, repr=False)
class HealthLoop:
    """See above.

    Args:
        health: of the backends.
        picker: is told of conditions.
        admission: is told of slots.
        http2: what https backends must show to checks by gRPC.
        share: what of the region's slots may be filled here; or of a group's, by its name.
        not_made: called for each check that could not be made for want of room here.
    """

    health: BackendHealth
    picker: PoolPicker
    admission: QueueAdmission
    http2: Callable[[], ssl.SSLContext]
    _: KW_ONLY
    share: Callable[[int | None, str], int | None] = lambda slots, _: slots
    not_made: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._settings: CheckSettings | None = None
        self._checks: Checks | None = None
        self._slots: tuple[int | None, bool, GroupLimits | None] = (-1, False, None)
        self._drained: set[str] = set()

    async def configure(self, document: BalancerDocument) -> None:
        """Look after these backends; the picker knows them already."""
        settings = document.checks.model_copy(update={"orca": None})  # by which no check goes
        if self._checks is None or settings != self._settings:
            if self._checks is not None:
                await self._checks.stop()
            self._settings = settings
            picker = self.picker
            self._checks = Checks(
                settings,
                self.health,
                self._tell,
                picker.flights,
                self.http2,
                cached=picker.cached,
                not_made=self.not_made,
            )
        routes = {route.url: route for route in self.picker.routes()}
        self._checks.update(((one, routes[one.name]) for one in document.servers()), document.own_checks())
        now = asyncio.get_running_loop().time()
        drained = {one.url for one in document.backends if one.draining}
        for name in drained - self._drained:
            self.health.drain(name, now)
        for name in self._drained - drained:
            self.health.undrain(name)
        self._drained = drained
        self._tell()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(TELL_EVERY)
            self._tell()

    def _tell(self) -> None:
        found = self.health.tick(asyncio.get_running_loop().time())
        if found:
            self.picker.conditions(found)
        self.resize()

    def resize(self) -> None:
        """Look how many slots may be filled here."""
        slots, groups = self.picker.slots(), self.picker.groups()
        parts = None
        if groups is not ONE_GROUP:
            all_of_them = [self.picker.slots(names) for names in groups.servers]
            shares = map(self.share, all_of_them, groups.names)
            parts = GroupLimits(groups, tuple(shares), tuple(found != 0 for found in all_of_them))
        here = (self.share(slots, ""), slots != 0, parts)
        if here != self._slots:
            self._slots = here
            self.admission.resize(*here)

    async def first_round(self, patience: float) -> None:
        """Wait until every backend was looked at once, for so many seconds at most."""
        if self._checks is not None:
            await self._checks.first_round(patience)
        self._tell()

    async def close(self) -> None:
        """End."""
        if self._checks is not None:
            await self._checks.stop()

    def problems(self) -> dict[str, dict[str, str]]:
        """Backend → what was asked of it → what is wrong, in words."""
        return {} if self._checks is None else self._checks.problems()

    def signals(self) -> dict[str, Mapping[str, float]]:
        """Backend → what its metrics say of its load."""
        return {} if self._checks is None else self._checks.signals(HealthSettings().lasts)

    def memory(self) -> float | None:
        """The mean of the backends' used memory, 0 to 1; None: nobody says."""
        known = [
            one.condition.memory for one in self.picker.pool.candidates if one.condition.memory is not None
        ]
        return sum(known) / len(known) if known else None


# --- How clients come to a balancer, and it to its backends: plain or by TLS, behind a PROXY protocol or not. ---


_BACKLOG = 2048


class Front:
    """See above.

    Args:
        document: what the balancer's file says.

    Raises:
        TlsError: a file of a certificate cannot be used.
    """

    def __init__(self, document: BalancerDocument) -> None:
        self._listener = None if document.tls is None else ServerContext(document.tls)
        self._backends = BackendContext(document.backend_tls)
        self._trusted = document.proxy_protocol
        self._hosts = document.hosts()

    @property
    def words(self) -> str:
        """What the log says of it."""
        tls = " (TLS)" if self._listener is not None else ""
        return f"{tls} (PROXY protocol from {len(self._trusted)} networks)" if self._trusted else tls

    async def listen(self, proxy: Proxy, sock: socket.socket) -> asyncio.Server:
        """Take connections of clients."""
        trusted, listener = self._trusted, self._listener

        def connection() -> asyncio.Protocol:
            if listener is not None:  # by the context of now: it is another when files have been read again
                return ProxiedConnection(proxy, trusted, listener.context)
            return ProxiedConnection(proxy, trusted) if trusted else proxy.connection()

        # As many as wait are accepted in one go, before any is looked at.
        backlog = max(1, min(_BACKLOG, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8))
        return await proxy.loop.create_server(connection, sock=sock, backlog=backlog)

    def route(self, url: str) -> Route:
        """The way to a backend."""
        found = Route(url, lambda: self._backends.context, server_name=self._backends.server_name)
        found.host_field = self._hosts.get(url)
        return found

    def configure(self, document: BalancerDocument, routes: Iterable[Route]) -> None:
        """Say from now on in Host what the file says, also where the ways are known."""
        self._hosts = document.hosts()
        for route in routes:
            route.host_field = self._hosts.get(route.url)

    def http2(self) -> ssl.SSLContext:
        """What https backends must show to who speaks HTTP/2 with them."""
        return self._backends.http2

    def look(self) -> None:
        """Read certificates again whose files have changed."""
        for one in (self._listener, self._backends):
            problem = None if one is None else one.look()
            if problem is not None:
                logger.error("%s", problem)

    def renew(self, routes: Iterable[Route]) -> None:
        """Let the next connections to backends be made with what was read last."""
        for route in routes:
            if route.tls is not None:
                route.tls = self._backends.context


# --- What carries requests in one process: law, admission, choice, the health of backends, pushes, and the connections themselves. ---


logger = logging.getLogger(__name__)

LOOK_EVERY = 1.0
"""Seconds between looks at the file of backends, and at certificates."""
FIRST_ROUND = 10.0
"""Longest wait for the first look at every backend, in seconds."""
FIRST_NAMES = 5.0
"""Longest wait for backends' names to be looked up first, in seconds: later they come as they are found."""
_LOOKS = 100
"""At whether all connections are closed, after everything was ended at once."""
_WHOLE = 1_000_000
_Sum = Literal[
    "tokens_per_second", "input_tokens_per_second", "gpu_memory_used_bytes", "gpu_memory_total_bytes"
]
_SUMS: tuple[_Sum, ...] = get_args(_Sum)
"""Of what backends say of themselves, what adds up to the region's."""
_MODEL = re.compile(MODEL_PATTERN)


_ROOMS: WeakKeyDictionary[asyncio.AbstractEventLoop, Connections] = WeakKeyDictionary()


def _room(loop: asyncio.AbstractEventLoop) -> Connections:
    """Room for the clients' connections of all balancers of a process, half of what it has: each request has one to a backend besides."""
    if loop not in _ROOMS:
        _ROOMS[loop] = Connections(fitting(resource.getrlimit(resource.RLIMIT_NOFILE)[0], each=2))
    return _ROOMS[loop]


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """Requests that are served and that wait, and those at each backend by its URL."""

    running: int = 0
    waiting: int = 0
    backends: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Spent:
    """What one process did with the quotas' leases since it was last asked: by which parts, requests used and denied."""

    worker: int
    sequence: int
    used: Mapping[QuotaText, int] = field(default_factory=dict)
    denied: Mapping[QuotaText, int] = field(default_factory=dict)


class Carriers(ShownBalancer, Protocol):
    """What carries a balancer's requests: this process (`Carrier`), or workers. The balancer asks both the same."""

    async def listen(self, listeners: Sequence[Listener]) -> None:
        """Look at every backend, then take requests; returns once all do."""

    def put(self, message: ViewMessage) -> None:
        """This is known now, and used in this process already."""

    def look_again(self) -> None:
        """Read the file of backends again, changed or not, and other files that have changed."""

    def sign(self, key: OwnKey) -> None:
        """Sign pushes with this key from now on."""

    def lease(self, holder: LeaseHolder) -> None:
        """Other leases are held now."""

    def spent(self) -> Sequence[Spent]:
        """What each of them did with its part of the leases since this was last asked."""

    def times(self) -> TookBy:
        """What requests took that have ended since this was last asked, by service and model."""

    def pushes(self) -> Mapping[str, int]:
        """Requests that found no slot, and that came for want of one elsewhere, by service, region and why, since this process began."""

    def words(self) -> Mapping[str, Word]:
        """What each of them says now, by its name."""

    def use(self) -> SlotUse:
        """What they have of the region's slots."""

    def heard(self, words: Mapping[str, Word]) -> None:
        """What the region's other balancers say now: all of them."""

    def report(self) -> Report:
        """Their load now, and since the last report."""

    def tiers(self) -> Mapping[str, tuple[int, int]]:
        """Requests that run and that wait, by tier."""

    def round_trips(self) -> Interval:
        """What was learned of round trips since the last call."""

    def free_slots(self) -> Slots | None:
        """How many requests could begin now; None: nobody knows."""

    def counts(self) -> RequestCounts:
        """The requests that all of them have now."""

    async def finish(self) -> None:
        """Take nothing new, and wait for what goes on, for the drain time at most."""

    async def close(self) -> None:
        """End at once."""


class Carrier(Carriers):
    """What carries requests in one process.

    Args:
        settings: of the balancer.
        member: the name that tells this process from all others that share the region's slots.
        current: has the View.
        file: says which backends there are.
        locator: knows where addresses are.
        parts: of the quotas' leases, to begin with.
    """

    def __init__(
        self,
        settings: BalancerSettings,
        member: str,
        *,
        current: CurrentView,
        file: BackendsFile,
        locator: Locator,
        parts: LeaseParts,
    ) -> None:
        loop, document = asyncio.get_running_loop(), file.document
        self.settings = settings
        self.member = member
        self._file = file
        self._current = current
        self._loop = loop
        self._began = self._loop.time()
        self._tasks = Tasks(lambda: None)
        self._asked = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._sharing = Sharing(member)
        self._sharings: dict[str, Sharing] = {}
        """The same of each group of servers, by its name; nothing where all are alike."""
        self._heard: tuple[Mapping[str, Word], float] = {}, 0.0
        """What others said last, and when it came."""
        self._gate = QuotaGate(parts, boot_time)
        self._spends = parts.sequence
        self._own = OwnHandoffs(current, settings.region)
        finder = ClientFinder(settings.trusted_proxies)
        self._access = AccessLog(Path() if settings.file is None else settings.file.parent, finder.find)
        self._names = BackendNames()
        backends = document.servers()
        watched = BackendHealth(health_settings(document), backends, loop.time())
        self._front = Front(document)
        self._picker = PoolPicker(
            backends,
            document.choice(),
            watched,
            loop=loop,
            route=self._front.route,
            affinity=document.choosing.sessions,
            cut=document.cut(),
            read_load=load_in_header,
            corrects=document.checks.scrape is None,
        )
        self._admission = QueueAdmission(
            document.admission.settings(),
            loop=loop,
            cost=self._picker.cost,
            declared=self._declares,
        )
        self._locator, self._loads = locator, locator.loads
        self._law = law = LawGate(
            current,
            settings.region,
            locator.locate,
            finder,
            HandoffReader(current, locator.locate),
            says=document.says(settings.service),
            earn=self._gate.earn,
        )
        self._pusher = PeerPusher(
            current,
            settings.region,
            settings.name,
            self._own,
            slots=self._slots_beside,
            service_s=self._picker.service_s,
            afford=self._gate.afford,
            now=loop.time,
            allowed=settings.probe_allow,
            tls=tls_when_needed(settings.ca_file),
            siblings=settings.workers,
        )
        self._proxy = Proxy(
            law,
            self._admission,
            self._picker,
            room=_room(loop),
            trusts=finder.trusts,
            loop=loop,
            region=settings.region,
            pusher=self._pusher,
            tracer=self._tracer(),
            keeps_heads=True,
        )
        self._proxy.stats.declared = self._declares
        self._picker.lost = self._proxy.take_from
        self._carry_by(document)
        self._health = HealthLoop(
            watched,
            self._picker,
            self._admission,
            self._front.http2,
            share=self._share,
            not_made=self._not_made,
        )
        self._reported = (0, 0.0, 0.0)
        """Requests, their seconds, and those in the queue, at the last report."""
        intake = Intake(
            lambda: current.snapshot,
            locator.locate,
            time.time,
            lambda: current.table.doubts,
        )
        self._round_trips = ClientRoundTrips(
            intake, settings.region, lambda: self._proxy.clients, settings.trusted_proxies
        )

    def _not_made(self) -> None:
        """Nothing could be asked of a backend, for want of room here."""
        self._proxy.stats.without_room["check"] += 1

    def _declares(self, model: str) -> bool:
        """Whether a model's name is one that the policy, the file or a backend declares."""
        snapshot = self._current.snapshot
        return (
            named(model, self._picker.names)
            or named(model, self._file.document.admission.models)
            or (snapshot is not None and named(model, snapshot.models))
        )

    def _tracer(self) -> Tracer | None:
        tracing = self._file.document.tracing
        if tracing is None:
            return None
        told = TraceSettings(tracing.endpoint, tracing.sample, tracing.follow)
        tracer = Tracer(told, self.settings.region, wall=time.time, now=self._loop.time, random=Random())
        self._tasks.start(tracer.run())
        return tracer

    # Its life

    async def start(self) -> None:
        """Look at every backend, and go on looking after them."""
        await self._names.look(self._file.document, FIRST_NAMES)
        await self._look_after()
        self._tasks.start(self._health.run())
        await self._health.first_round(FIRST_ROUND)

    async def listen(self, listeners: Sequence[Listener]) -> None:
        await self.start()
        await self.open(listeners)

    async def open(self, listeners: Sequence[Listener]) -> None:
        """Take requests."""
        self._proxy.start()
        self._picker.start()
        for one in listeners:
            self._servers.append(await self._front.listen(self._proxy, one.socket.dup()))
            logger.info("listening for requests on %s port %d%s", one.host, one.port, self._front.words)
        self._tasks.start(self._tick())
        self._tasks.start(self._round_trips.run())

    async def finish(self) -> None:
        self._hang_up()
        self._proxy.drain()
        deadline = time.monotonic() + self.settings.drain_time
        proxy = self._proxy
        if proxy.connections:
            logger.info("finishing what goes on over %d connections", proxy.connections)
        while proxy.connections and time.monotonic() < deadline:  # noqa: ASYNC110 - looks are cheap
            await asyncio.sleep(0.05)
        if proxy.connections:
            logger.warning("%d connections did not finish within the drain time", proxy.connections)

    async def close(self) -> None:
        self._hang_up()
        await self._tasks.cancel()
        self._picker.stop()
        self._proxy.close()
        await self._health.close()
        await self._names.close()
        for _ in range(_LOOKS):  # the ends of what was cut off just now are told by the event loop
            if not self._proxy.connections:
                break
            await asyncio.sleep(0.01)
        await self._access.close()

    def _hang_up(self) -> None:
        for server in self._servers:
            server.close()
        self._servers = []

    # What it is told

    def put(self, message: ViewMessage) -> None:
        """Do nothing: this process uses the View already."""

    def sign(self, key: OwnKey) -> None:
        self._own.use(key)

    def lease(self, holder: LeaseHolder) -> None:
        (parts,) = holder.parts()
        self.spend(parts)

    def spend(self, parts: LeaseParts) -> None:
        """Spend by these parts of the leases."""
        self._gate.update(parts)
        self._spends = parts.sequence

    def heard(self, words: Mapping[str, Word]) -> None:
        now = self._loop.time()
        for source in self._sharing.sources - words.keys():
            self._sharing.forget(source)
            self._picker.flights.forget(source)
        for source, word in words.items():
            self._sharing.heard(source, word.uses, now - word.age, word.balancer)
            self._picker.flights.told(source, word.loads, now - word.age)
        self._heard = words, now
        self._hear_of_groups()
        self._health.resize()

    def _hear_of_groups(self) -> None:
        """Take in what others said of each group. Of one that does not tell these groups apart, what it has at a group's servers is known, and that is all."""
        groups, (words, at) = self._picker.groups(), self._heard
        if groups is ONE_GROUP:
            self._sharings = {}
            return
        self._sharings = {name: self._sharings.get(name) or Sharing(self.member) for name in groups.names}
        for name, servers in zip(groups.names, groups.servers, strict=True):
            sharing = self._sharings[name]
            for source in sharing.sources - words.keys():
                sharing.forget(source)
            for source, word in words.items():
                uses = word.groups.get(name)
                if uses is None:
                    runs = sum(load.requests for server, load in word.loads.items() if server in servers)
                    uses = {source: SlotUse(int(runs), 0)}
                sharing.heard(source, uses, at - word.age, word.balancer)

    # What it says

    def use(self) -> SlotUse:
        admission = self._admission.admission
        return SlotUse(admission.running, admission.waiting)

    def words(self) -> Mapping[str, Word]:
        use, now = self.use(), self._loop.time()
        self._sharing.tell(use, now)
        groups = {name: SlotUse(*use) for name, use in self._admission.admission.uses.items()}
        for name, of_it in groups.items():
            if name in self._sharings:
                self._sharings[name].tell(of_it, now)
        told = {name: {self.member: of_it} for name, of_it in groups.items()}
        return {self.member: Word({self.member: use}, self._picker.flights.tell(), groups=told)}

    def report(self) -> Report:
        snapshot = self._admission.admission.snapshot()
        before, self._reported = self._reported, self._proxy.stats.served()
        count, seconds, waited = (now - then for now, then in zip(self._reported, before, strict=True))
        slots = self._picker.slots()
        models = self._models()
        found: Report = {
            "region": self.settings.region,
            "source": self.settings.name,
            "outstanding": sum(tier.running for tier in snapshot.tiers.values()),
            "queue": sum(tier.waiting for tier in snapshot.tiers.values()),
            "requests_per_second": count / EVERY,
        }
        if slots is not None:
            found["limit"] = self._part(slots)
        if count:
            # Apart: what waits takes no slot, and a region that counted it as service would look slower the fuller it is.
            found["service_time_ms"] = max(0.0, seconds) / count * 1000
            found["queue_wait_ms"] = max(0.0, waited) / count * 1000
        self._say(found, self._part(_WHOLE) / _WHOLE)
        memory = self._health.memory()
        if memory is not None:
            found["kv_cache_usage"] = memory
        if models:
            found["models"] = models
        return found

    def _say(self, report: Report, part: float) -> None:
        """What the backends say of tokens and memory, in sums: this process's part of it, as it has of the slots, for others report theirs."""
        said = self._health.signals().values()
        for name in _SUMS:
            values = [one[name] for one in said if name in one]
            if values:
                report[name] = part * sum(values)

    def _models(self) -> list[str]:
        """The models that are loaded: as backends say, as the file says of those that do not. Names that reports cannot carry are left out."""
        loaded: set[str] = set()
        for one in self._picker.pool.candidates:
            condition = one.condition
            says = (
                condition.models if condition.healthy else None
            )  # what it said last stands while it is down
            loaded |= one.backend.models if says is None else says
            loaded |= (condition.healthy and condition.adapters) or frozenset()
        return sorted(name for name in loaded if _MODEL.fullmatch(name))[:MAX_MODELS]

    def tiers(self) -> dict[str, tuple[int, int]]:
        tiers = self._admission.admission.snapshot().tiers
        return {str(name): (tier.running, tier.waiting) for name, tier in tiers.items()}

    def round_trips(self) -> Interval:
        return self._round_trips.due()

    def counts(self) -> RequestCounts:
        tiers = self._admission.admission.snapshot().tiers.values()
        return RequestCounts(
            sum(tier.running for tier in tiers),
            sum(tier.waiting for tier in tiers),
            {one.backend.name: one.flight.requests for one in self._picker.pool.candidates},
        )

    def spent(self) -> tuple[Spent]:
        return (Spent(0, self._spends, *self._gate.take_counts()),)

    def times(self) -> TookBy:
        return self._proxy.stats.take_times()

    def pushes(self) -> Mapping[str, int]:
        came = {f"{service}\t\t{CAME}": count for service, count in self._proxy.stats.came.items()}
        return {**self._pusher.pushes, **came}

    def free_slots(self) -> Slots | None:
        limit = self._picker.slots()
        if limit is None or not limit:
            return None
        now, admission = self._loop.time(), self._admission.admission
        mine = self._sharing.share(limit, now)
        free = max(0.0, min(self._picker.free_slots(), mine - admission.running))
        whole = max(free, float(self._sharing.part(limit, now)))
        return Slots.counted(free, whole, float(admission.waiting))

    def _slots_beside(self) -> Slots | None:
        """The same for a request that waits already: without itself."""
        found = self.free_slots()
        return None if found is None else replace(found, waiting=max(0.0, found.waiting - 1))

    def _share(self, slots: int | None, group: str) -> int | None:
        """What of the slots of a group of servers this process may fill now; of the region's, where no group is named."""
        if slots is None:
            return None
        if group and group not in self._sharings:
            self._hear_of_groups()
        sharing = self._sharings[group] if group else self._sharing
        return sharing.share(slots, self._loop.time(), self._picker.service_s())

    def _part(self, slots: int) -> int:
        """What of the region's slots it says that it has."""
        return self._sharing.part(slots, self._loop.time())

    # What it shows of itself

    async def unready(self) -> str:
        return self._proxy.unready()

    async def metrics(self) -> bytes:
        return render(self.families())

    def families(self) -> list[Family]:
        """All of its metrics, as values."""
        access = self._access
        found = collect(
            self._proxy,
            self._picker,
            self._admission,
            self._law,
            self._pusher,
            said=self._health.signals(),
            access={"written": access.written, "dropped": access.dropped} if access.used else {},
            silence=min(self._current.window.silence, self._loop.time() - self._began),
        )
        return list(found)

    async def state(self) -> dict[str, Any]:
        snapshot = self._admission.admission.snapshot()
        compiled = self._current.snapshot
        now = asyncio.get_running_loop().time()
        standing = {one.name: one for one in self._health.health.snapshot(now)}
        problems = self._health.problems()
        usable = {one.number for one in self._picker.pool.usable}
        return {
            "region": self.settings.region,
            "name": self.settings.name,
            "revision": None if compiled is None else compiled.revision,
            "epoch": self._current.state.epoch,
            "handoff_keys": len(self._current.handoff_keys.keys),
            "draining": self._proxy.draining,
            "waits_for_start": list(self._file.waits_for_start),
            "connections": self._proxy.connections,
            "limit": self._picker.slots(),
            "share": snapshot.limit,
            "backends": [
                {
                    "url": one.backend.name,
                    "state": standing[one.backend.name].state.value,
                    "why": standing[one.backend.name].why,
                    "ejections": standing[one.backend.name].ejections,
                    "usable": one.number in usable,
                    "problems": problems.get(one.backend.name, {}),
                    "in_flight": one.flight.requests,
                    "outstanding": one.flight.outstanding,
                    "work_s": one.flight.work_us / 1e6,
                    "slots": one.slots or None,
                    "slots_learned": one.backend.slots is None and bool(one.slots),
                    "weight": one.weight,
                    "version": one.backend.version,
                    "memory": one.condition.memory,
                    "models": None if one.condition.models is None else sorted(one.condition.models),
                    "adapters": None if one.condition.adapters is None else sorted(one.condition.adapters),
                }
                for one in self._picker.pool.candidates
            ],
            "choices": {
                by.value: {
                    "requests": self._picker.choices[by, False] + self._picker.choices[by, True],
                    "moved": self._picker.choices[by, True],
                }
                for by in By
            },
            "tiers": {
                tier.value: {
                    "running": counts.running,
                    "waiting": counts.waiting,
                    "refused": dict(counts.refused),
                }
                for tier, counts in snapshot.tiers.items()
            },
            "groups": {
                name: one._asdict() for name, one in groups_shown(self._picker, self._admission).items()
            },
            "pushes": [
                {"region": region, "why": why, "requests": count}
                for (region, why), count in sorted(self._pusher.counts.items())
            ],
            "hedges": self._hedges(),
            "rooms": {
                region: [
                    {
                        "balancer": room.source,
                        "open": room.whole.open,
                        "limit": room.whole.limit,
                        "at": room.at,
                    }
                    for room in rooms
                ]
                for region, rooms in self._current.rooms.items()
            },
            "senders": self._current.senders,
            "beside": self._current.beside,
            "at_peers": {region: count for region, count in self._pusher.in_flight.items() if count},
            "tenants": {name or "": one for name, one in self._admission.by_tenant().items()},
        }

    def _hedges(self) -> dict[str, Any]:
        """What became of requests that were late, and of each service its requests and hedges of the last minute; nothing where the file has no `hedge`."""
        hedging = self._proxy.hedging
        if hedging is None:
            return {}
        return {
            "racing": len(hedging.racing),
            "outcomes": dict(self._proxy.stats.hedges),
            "services": {
                name: {"requests": one.requests, "hedges": one.hedges}
                for name, one in hedging.services().items()
            },
        }

    # The file of backends

    def look_again(self) -> None:
        self._file.forget()
        self._asked.set()

    async def _tick(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), LOOK_EVERY)
            self._asked.clear()
            await self._reread()
            if await self._names.look(self._file.document):
                await self._look_after()
            servers = {one.backend.name for one in self._picker.pool.candidates}
            self._admission.forget(self._proxy.stats.keep(servers, self._loop.time()))
            await asyncio.to_thread(self._front.look)
            self._front.renew(self._picker.routes())
            await asyncio.to_thread(reload_places, self._locator)
            if self._locator.loads != self._loads:  # several balancers of one process have one locator
                self._loads = self._locator.loads
                self._law.forget()

    async def _reread(self) -> None:
        """Take the file in again if it has changed."""
        if not self._file.changed():
            return
        document = self._file.document
        self._law.configure(document.says(self.settings.service))
        await self._names.look(document, FIRST_NAMES)
        await self._look_after()
        self._admission.admission.configure(document.admission.settings(), self._loop.time())
        self._carry_by(document)
        logger.info("took in the file of backends: %d of them", len(document.backends))
        waits = self._file.waits_for_start
        if waits:
            logger.warning(
                "of the file of backends, what %s says has changed and counts from the next start: restart the balancer (--replace loses no request)",
                ", ".join(f"`{name}`" for name in waits),
            )

    def _carry_by(self, document: BalancerDocument) -> None:
        """Let what the file says of requests count from the next one on."""
        proxy = self._proxy
        proxy.held.bound(HELD_BESIDE_QUEUE + document.admission.settings().queue_bytes)
        self._access.configure(document.access_log)
        proxy.log = self._access.lines
        proxy.paths = document.carried()
        proxy.body_rules = document.body_rules()
        proxy.timeouts = document.timeouts.settings()
        proxy.media = document.admission.media
        proxy.most_read = document.read_mib << 20
        proxy.repeats = document.repeats
        proxy.hedge(None if document.hedge is None else document.hedge.percent / 100)
        proxy.asks = document.checks.asks()

    async def _look_after(self) -> None:
        """Choose among the servers that the file and its names say now, and look after them."""
        up = {one.backend.name for one in self._picker.pool.candidates if one.condition.healthy}
        document = self._names.applied(self._file.document, up)
        self._front.configure(document, self._picker.routes())
        self._health.health.update(health_settings(document), document.servers())
        self._picker.configure(
            document.servers(),
            document.choice(),
            affinity=document.choosing.sessions,
            cut=document.cut(),
            corrects=document.checks.scrape is None,
        )
        await self._health.configure(document)


# --- Each check of each backend made once, without a balancer: what `gtm balancer --check-backends` shows before one is started. ---


PATIENCE = 30.0
"""Seconds for all checks of all backends, beyond which what is missing is not known."""
_NAMES = 10.0
"""Seconds for names to be looked up."""


class TriedBackend(NamedTuple):
    """What one round has found of a backend: whether requests would be sent there, what is wrong by check, and the models that it lists."""

    url: str
    healthy: bool
    problems: Mapping[str, str]
    models: tuple[str, ...]


async def tried(file: BalancerDocument) -> list[TriedBackend]:
    """Make each check of each backend once.

    Args:
        file: what a balancer's file says.

    Raises:
        TlsError: a file of a certificate cannot be used.
    """
    now = asyncio.get_running_loop().time
    names = BackendNames()
    await names.look(file, _NAMES)
    document = names.applied(file, ())
    await names.close()
    front, backends = Front(document), document.servers()
    health = BackendHealth(health_settings(document), backends, now())
    checks = Checks(document.checks, health, lambda: None, http2=front.http2)
    checks.update(((one, front.route(one.name)) for one in backends), document.own_checks())
    try:
        await checks.first_round(PATIENCE)
        health.tick(now())
        problems = checks.problems()
        found = ((one.name, health.condition(one.name, now())) for one in backends)
        return [
            TriedBackend(name, known.healthy, problems[name], tuple(sorted(known.models or ())))
            for name, known in found
        ]
    finally:
        await checks.stop()
