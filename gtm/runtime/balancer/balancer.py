"""The process of one region's balancer: follows control, keeps what must last, checks its backends, carries requests, reports.

Laws:
  1. Nothing listens before a policy is loaded and every backend was looked at once.
  2. Losing control costs freshness, never the fence: the last good policy stays, and is over when the law says so.
  3. What it says of its load is what it has itself: nothing is reported that was not counted.
  4. An end breaks no stream off: connections that wait end, answers are finished within the drain time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from random import Random
from typing import assert_never

from gtm.balancer.decide.gate import LawGate
from gtm.balancer.decide.handoffs import Handoffs
from gtm.balancer.decide.picking import PoolPicker
from gtm.balancer.decide.queueing import QueueAdmission
from gtm.balancer.plane.proxy import Proxy
from gtm.balancer.plane.tracing import Tracer, TraceSettings
from gtm.core.balance.health import BackendHealth
from gtm.core.balance.spill.room import Slots
from gtm.core.balance.work import Asked
from gtm.core.model.problems import PolicyError
from gtm.feed.client import BalancerFeedClient
from gtm.feed.current import CurrentView
from gtm.feed.wire import (
    AccessMessage,
    FeedError,
    HandoffKeysMessage,
    HeartbeatMessage,
    KeysMessage,
    Lasting,
    LatencyMessage,
    Message,
    RoomMessage,
    SealedKeysMessage,
    SnapshotMessage,
    StateMessage,
)
from gtm.geoip.client import ClientFinder
from gtm.geoip.reader import Locator
from gtm.runtime.balancer.admin import Admin
from gtm.runtime.balancer.backends_file import BackendsFile
from gtm.runtime.balancer.front import Front
from gtm.runtime.balancer.health import HealthLoop, health_settings
from gtm.runtime.balancer.ownership import Ownership
from gtm.runtime.balancer.pushes import Pushes
from gtm.runtime.balancer.reporting import Reporter
from gtm.runtime.balancer.room_line import RoomLine
from gtm.runtime.following.clock_keeper import ClockKeeper
from gtm.runtime.following.feed import follow
from gtm.runtime.following.kept import Kept, lasting
from gtm.runtime.following.tasks import Tasks, first_of
from gtm.runtime.process import lifeline
from gtm.runtime.process.clocks import boot_id, boot_time
from gtm.runtime.process.connections import raise_descriptor_limit
from gtm.runtime.process.listeners import Use
from gtm.runtime.process.notify import notify_ready
from gtm.runtime.process.privileges import conceal
from gtm.settings import BalancerSettings

logger = logging.getLogger(__name__)

LOOK_EVERY = 1.0
"""Seconds between looks at the file of backends, and at the clock."""
FIRST_ROUND = 10.0
"""Longest wait for the first look at every backend, in seconds."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests that are served and that wait, and those at each backend by its URL."""

    running: int = 0
    waiting: int = 0
    backends: Mapping[str, int] = field(default_factory=dict)


class Balancer:
    """See above."""

    def __init__(self, settings: BalancerSettings) -> None:
        self.settings = settings
        self.snapshot: SnapshotMessage | None = None
        self.connected = False
        self._current = CurrentView(time.time, boot=boot_time)
        self._owned = Ownership(settings)
        home = self._owned.home
        self._kept = Kept(home, ClockKeeper(home, self._current, boot_id()), lambda: self._owned.replaced)
        self._file = BackendsFile(settings)
        self._loaded = asyncio.Event()
        self._stopping = asyncio.Event()
        self._tasks = Tasks(self.stop)
        self._servers: list[asyncio.Server] = []

    @property
    def name(self) -> str:
        """This balancer's."""
        return self.settings.name

    @property
    def listening(self) -> bool:
        """Whether it takes requests."""
        return bool(self._servers)

    async def run(self) -> None:
        """Serve as a process of its own, until SIGTERM, SIGINT or SIGHUP.

        Raises:
            OSError: another balancer runs on the data directory, or an address cannot be listened on.
            GeoIPError: the GeoIP database or the overrides cannot be read.
            PolicyError: the file of backends is wrong.
        """
        conceal()
        raise_descriptor_limit()

        def taken() -> None:
            conceal()  # again: becoming another user may have undone it
            for number in lifeline.ending_signals():
                asyncio.get_running_loop().add_signal_handler(number, self.stop)
            lifeline.watch(self.stop)

        with closing(Locator(self.settings.geoip_db, self.settings.geoip_overrides)) as locator:
            await self.serve(locator, taken=taken, ready=notify_ready)

    async def serve(
        self,
        locator: Locator,
        *,
        taken: Callable[[], None] = lambda: None,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve until `stop` is called; several may do so in one event loop.

        Cancelled, it dies: streams break off, and control hears no goodbye.

        Args:
            locator: knows where addresses are.
            taken: called once its directory, addresses and user are its own.
            ready: called once it listens.

        Raises:
            OSError: another balancer runs on the data directory, or an address cannot be listened on.
        """
        try:
            self._owned.take()
            taken()
            await self._serve(locator, ready)
        finally:
            self._kept.close()
            self._owned.release()

    def stop(self) -> None:
        """Ask it to stop."""
        self._stopping.set()

    def counts(self) -> Counts:
        """What it has now; nothing before it listens."""
        if not self.listening:
            return Counts()
        tiers = self._admission.admission.snapshot().tiers.values()
        return Counts(
            sum(tier.running for tier in tiers),
            sum(tier.waiting for tier in tiers),
            {one.backend.name: one.flight.requests for one in self._picker.pool.candidates},
        )

    def admin_url(self) -> str:
        """Where its metrics and state are; empty before it has an address."""
        for one in self._owned.listeners(Use.ADMIN):
            return f"http://{f'[{one.host}]' if ':' in one.host else one.host}:{one.port}"
        return ""

    async def _serve(self, locator: Locator, ready: Callable[[], None]) -> None:
        settings, loop = self.settings, asyncio.get_running_loop()
        backends = self._file.document.servers()
        watched = BackendHealth(health_settings(self._file.document.checks.settings()), backends, loop.time())
        self._front = Front(self._file.document, settings.file)
        self._picker = PoolPicker(
            backends,
            self._file.document.choice(),
            watched,
            loop=loop,
            route=self._front.route,
            affinity=self._file.document.choosing.sessions,
        )
        self._admission = QueueAdmission(
            self._file.document.admission.settings(),
            loop=loop,
            cost=lambda exchange: self._picker.costs.expected(
                Asked(exchange.facts.model or "", exchange.facts.input_tokens, exchange.facts.max_tokens)
            ),
        )
        gate = LawGate(
            self._current,
            settings.region,
            locator.locate,
            ClientFinder(settings.trusted_proxies),
            Handoffs(self._current, locator.locate),
            service=self._file.document.service or settings.service,
            keys=self._file.document.keys(),
        )
        tracing = self._file.document.tracing
        tracer = None
        if tracing is not None:
            told = TraceSettings(tracing.endpoint, tracing.sample, tracing.follow)
            tracer = Tracer(told, settings.region, wall=time.time, now=loop.time, random=Random())
            self._tasks.start(tracer.run())
        pushes = Pushes(
            settings,
            self._current,
            self._owned,
            kept=self._kept,
            picker=self._picker,
            slots=self._slots_beside,
        )
        proxy = Proxy(
            gate,
            self._admission,
            self._picker,
            loop=loop,
            region=settings.region,
            pusher=pushes.pusher,
            tracer=tracer,
        )
        health = HealthLoop(watched, self._picker, self._admission)
        await health.configure(self._file.document)
        try:
            await self._load_last_good()
            await pushes.load()
            self._tasks.start(self._follow())
            self._tasks.start(health.run())
            await first_of(self._loaded, self._stopping)
            if not self._stopping.is_set():
                await health.first_round(FIRST_ROUND)
                await self._listen(proxy, gate, health, pushes, ready)
        finally:
            for server in self._servers:
                server.close()
            self._servers = []
            await self._tasks.cancel()
            self._picker.stop()
            proxy.close()
            await health.close()
            await self._kept.keep_times()
        if self._tasks.failure is not None:
            raise self._tasks.failure

    async def _listen(
        self, proxy: Proxy, gate: LawGate, health: HealthLoop, pushes: Pushes, ready: Callable[[], None]
    ) -> None:
        settings, loop = self.settings, asyncio.get_running_loop()
        admin = Admin(
            current=self._current,
            proxy=proxy,
            gate=gate,
            picker=self._picker,
            admission=self._admission,
            health=health,
            settings=settings,
            pusher=pushes.pusher,
        )
        reporter = Reporter(
            settings=settings,
            proxy=proxy,
            picker=self._picker,
            admission=self._admission,
            document=lambda: self._file.document,
            health=health,
        )
        proxy.start()
        self._picker.start()
        for one in self._owned.listeners(Use.REQUESTS):
            self._servers.append(await self._front.listen(proxy, one.socket.dup()))
            logger.info("listening for requests on %s port %d%s", one.host, one.port, self._front.words)
        requests = len(self._servers)
        for one in self._owned.listeners(Use.ADMIN):
            self._servers.append(await loop.create_server(admin.connection, sock=one.socket.dup()))
            logger.info("listening for metrics and state on %s port %d", one.host, one.port)
        self._owned.settle()
        ready()
        self._tasks.start(self._owned.leave_to_successor(self.stop))
        self._tasks.start(self._tick(health))
        self._tasks.start(reporter.run())
        self._tasks.start(pushes.run())
        line = RoomLine(settings, self._free_slots)
        self._tasks.start(line.run())
        await self._stopping.wait()
        for server in self._servers[:requests]:  # not yet the page about what goes on
            server.close()
        line.end()
        proxy.drain()
        await self._finished(proxy)

    async def _finished(self, proxy: Proxy) -> None:
        """Wait until the last stream has ended, for the drain time at most."""
        deadline = time.monotonic() + self.settings.drain_time
        if proxy.connections:
            logger.info("finishing what goes on over %d connections", proxy.connections)
        while proxy.connections and time.monotonic() < deadline:  # noqa: ASYNC110 - looks are cheap
            await asyncio.sleep(0.05)
        if proxy.connections:
            logger.warning("%d connections did not finish within the drain time", proxy.connections)

    def _free_slots(self) -> Slots | None:
        """How many requests could begin now; None: backends do not say how many they serve."""
        limit = self._picker.slots()
        if limit is None or not limit:
            return None
        taken = sum(one.flight.outstanding for one in self._picker.pool.candidates)
        waiting = sum(tier.waiting for tier in self._admission.admission.snapshot().tiers.values())
        return Slots(max(0.0, limit - taken), float(limit), float(waiting))

    def _slots_beside(self) -> Slots | None:
        """The same for a request that waits already: without itself."""
        found = self._free_slots()
        return None if found is None else replace(found, waiting=max(0.0, found.waiting - 1))

    # The file of backends

    async def _reread(self, health: HealthLoop) -> None:
        """Take the file in again if it has changed."""
        if not self._file.changed():
            return
        document = self._file.document
        health.health.update(health_settings(document.checks.settings()), document.servers())
        self._picker.configure(document.servers(), document.choice())
        self._admission.admission.configure(document.admission.settings(), asyncio.get_running_loop().time())
        await health.configure(document)
        logger.info("took in the file of backends: %d of them", len(document.backends))

    async def _tick(self, health: HealthLoop) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            self._current.tick()
            await self._reread(health)
            await asyncio.to_thread(self._front.look)
            self._front.renew(self._picker.routes())
            await self._kept.keep_times()
            if self._kept.unsaved:
                await self._kept.save(self._lasting)

    # What control says

    async def _load_last_good(self) -> None:
        await self._kept.load_times()
        try:
            for message in await self._kept.load():
                self._take(message)
            if self.snapshot is not None:
                logger.info("loaded revision %d from %s", self.snapshot.revision, self._kept.last_good)
        except FileNotFoundError:
            logger.info("no last-good file yet; waiting for control at %s", self.settings.control_url)
        except (FeedError, PolicyError, OSError) as error:
            logger.error("cannot use the last-good file, waiting for control instead: %s", error)

    async def _follow(self) -> None:
        await follow(self, self._client)

    async def _client(self) -> BalancerFeedClient:
        settings = self.settings
        return BalancerFeedClient(
            settings.control_url,
            settings.token,
            settings.name,
            settings.ca_file,
            skipped=lambda why: logger.error("skipped a message of control's feed: %s", why),
        )

    def renamed(self, name: str) -> bool:
        """See `Follower`: a balancer has the name that it was given."""
        del name
        return False

    def found(self) -> None:
        """Control is heard again."""
        self.connected = True

    def lost(self) -> None:
        """Go on without it."""
        self.connected = False

    async def receive(self, message: Message) -> None:
        """Take in what control says: used, and saved if it stays true without control."""
        self._current.hear(message)
        try:
            taken = self._take(message)
        except (FeedError, PolicyError) as error:
            logger.error("ignored a snapshot from control: %s", error)
            return
        if taken is not None:
            await self._kept.save(self._lasting)

    def _take(self, message: Message) -> Lasting | None:
        match message:
            case SnapshotMessage():
                self._current.apply(message)
                self.snapshot = message
                self._loaded.set()
                return message
            case AccessMessage() | LatencyMessage() | HandoffKeysMessage():
                self._current.apply(message)
                return message
            case StateMessage() | RoomMessage():
                self._current.apply(message)
                return None
            case KeysMessage() | HeartbeatMessage() | SealedKeysMessage():
                return None
            case _:
                assert_never(message)

    def _lasting(self) -> list[Lasting]:
        return lasting(self._current, self.snapshot)
