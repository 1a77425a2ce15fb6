"""What carries requests in one process: law, admission, choice, the health of backends, pushes, and the connections themselves.

A balancer that is one process has one; one of several workers has one in each (`gtm.runtime.balancer.worker`).
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from weakref import WeakKeyDictionary

from gtm.balancer.decide.gate import Handoffs, LawGate, OwnHandoffs
from gtm.balancer.decide.picking import PoolPicker
from gtm.balancer.decide.pushing import Pusher
from gtm.balancer.decide.queueing import QueueAdmission
from gtm.balancer.health.scraping import load_in_header
from gtm.balancer.plane.flow import HELD_BESIDE_QUEUE
from gtm.balancer.plane.proxy import Proxy
from gtm.balancer.plane.tracing import Tracer, TraceSettings
from gtm.core.balance.health import BackendHealth
from gtm.core.balance.sharing import Sharing, Use
from gtm.core.balance.spill.room import CAME, Slots
from gtm.core.handoff.keys import OwnKey
from gtm.core.quota.leases import Parts
from gtm.core.quota.names import QuotaText
from gtm.feed.current import CurrentView
from gtm.geoip.client import ClientFinder
from gtm.geoip.reader import Locator
from gtm.http.answers.quotas import QuotaGate
from gtm.http.samples.intake import Intake
from gtm.runtime.balancer.access_log import AccessLog
from gtm.runtime.balancer.admin import Page
from gtm.runtime.balancer.backends_file import BackendNames, BackendsFile
from gtm.runtime.balancer.front import Front
from gtm.runtime.balancer.health import HealthLoop, health_settings
from gtm.runtime.balancer.reporting import Figures, Report
from gtm.runtime.balancer.round_trips import RoundTrips
from gtm.runtime.balancer.words import Word
from gtm.runtime.following.tasks import Tasks
from gtm.runtime.process.clocks import boot_time
from gtm.runtime.process.connections import Connections, fitting
from gtm.runtime.process.listeners import Listener
from gtm.runtime.process.places import reload_places
from gtm.settings import BalancerSettings
from gtm.transport import tls_when_needed

logger = logging.getLogger(__name__)

LOOK_EVERY = 1.0
"""Seconds between looks at the file of backends, and at certificates."""
FIRST_ROUND = 10.0
"""Longest wait for the first look at every backend, in seconds."""
FIRST_NAMES = 5.0
"""Longest wait for backends' names to be looked up first, in seconds: later they come as they are found."""
_LOOKS = 100
"""At whether all connections are closed, after everything was ended at once."""


_ROOMS: WeakKeyDictionary[asyncio.AbstractEventLoop, Connections] = WeakKeyDictionary()


def _room(loop: asyncio.AbstractEventLoop) -> Connections:
    """Room for the clients' connections of all balancers of a process, half of what it has: each request has one to a backend besides."""
    if loop not in _ROOMS:
        _ROOMS[loop] = Connections(fitting(resource.getrlimit(resource.RLIMIT_NOFILE)[0], each=2))
    return _ROOMS[loop]


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests that are served and that wait, and those at each backend by its URL."""

    running: int = 0
    waiting: int = 0
    backends: Mapping[str, int] = field(default_factory=dict)


class Carrier:
    """See above.

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
        parts: Parts,
    ) -> None:
        loop, document = asyncio.get_running_loop(), file.document
        self.settings = settings
        self.member = member
        self._file = file
        self._current = current
        self._loop = loop
        self._tasks = Tasks(lambda: None)
        self._asked = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._sharing = Sharing(member)
        self._gate = QuotaGate(parts, boot_time)
        self._spends = parts.sequence
        self._own = OwnHandoffs(current)
        finder = ClientFinder(settings.trusted_proxies)
        self._access = AccessLog(Path() if settings.file is None else settings.file.parent, finder.find)
        self._access.configure(document.access_log)
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
            Handoffs(current, locator.locate),
            says=document.says(settings.service),
            earn=self._gate.earn,
        )
        self._pusher = Pusher(
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
            queue_bytes=document.admission.settings().queue_bytes,
            loop=loop,
            region=settings.region,
            pusher=self._pusher,
            tracer=self._tracer(),
            log=self._access.lines,
            asks=document.checks.asks(),
            paths=document.carried(),
            body_rules=document.body_rules(),
            timeouts=document.timeouts.settings(),
            media=document.admission.media,
            most_read=document.read_mib << 20,
        )
        self._health = HealthLoop(
            watched,
            self._picker,
            self._admission,
            self._front.http2,
            share=self._share,
            not_made=self._not_made,
        )
        self._figures = Figures(
            settings=settings,
            proxy=self._proxy,
            picker=self._picker,
            admission=self._admission,
            health=self._health,
            part=self._part,
        )
        intake = Intake(
            lambda: current.snapshot,
            locator.locate,
            time.time,
            lambda: current.table.doubts,
        )
        self.round_trips = RoundTrips(
            intake, settings.region, lambda: self._proxy.clients, settings.trusted_proxies
        )
        self.page = Page(
            current=current,
            proxy=self._proxy,
            gate=law,
            picker=self._picker,
            admission=self._admission,
            health=self._health,
            settings=settings,
            pusher=self._pusher,
            access=self._access,
            file=file,
        )

    def _not_made(self) -> None:
        """Nothing could be asked of a backend, for want of room here."""
        self._proxy.stats.without_room["check"] += 1

    def _declares(self, model: str) -> bool:
        """Whether a model's name is one that the policy, the file or a backend declares."""
        snapshot = self._current.snapshot
        return (
            model in self._picker.names
            or model in self._file.document.admission.models
            or (snapshot is not None and model in snapshot.models)
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
        """Take requests."""
        self._proxy.start()
        self._picker.start()
        for one in listeners:
            self._servers.append(await self._front.listen(self._proxy, one.socket.dup()))
            logger.info("listening for requests on %s port %d%s", one.host, one.port, self._front.words)
        self._tasks.start(self._tick())
        self._tasks.start(self.round_trips.run())

    def drain(self) -> None:
        """Take no further connections; those that wait end, and others after their answer."""
        self._hang_up()
        self._proxy.drain()

    async def finish(self) -> None:
        """Drain, and wait until the last stream has ended, for the drain time at most."""
        self.drain()
        deadline = time.monotonic() + self.settings.drain_time
        proxy = self._proxy
        if proxy.connections:
            logger.info("finishing what goes on over %d connections", proxy.connections)
        while proxy.connections and time.monotonic() < deadline:  # noqa: ASYNC110 - looks are cheap
            await asyncio.sleep(0.05)
        if proxy.connections:
            logger.warning("%d connections did not finish within the drain time", proxy.connections)

    async def close(self) -> None:
        """End everything at once."""
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

    def sign(self, key: OwnKey) -> None:
        """Sign pushes with this key from now on."""
        self._own.use(key)

    def spend(self, parts: Parts) -> None:
        """Spend by these parts of the leases."""
        self._gate.update(parts)
        self._spends = parts.sequence

    def heard(self, words: Mapping[str, Word]) -> None:
        """This is what everybody else says now who shares the region's slots: nobody else does any more."""
        now = self._loop.time()
        for source in self._sharing.sources - words.keys():
            self._sharing.forget(source)
            self._picker.flights.forget(source)
        for source, word in words.items():
            self._sharing.heard(source, word.uses, now - word.age, word.balancer)
            self._picker.flights.told(source, word.loads, now - word.age)
        self._health.resize()

    # What it says

    @property
    def use(self) -> Use:
        """What it has of the region's slots."""
        admission = self._admission.admission
        return Use(admission.running, admission.waiting)

    def word(self) -> Word:
        """What it has now, as the others are being told."""
        use = self.use
        self._sharing.tell(use, self._loop.time())
        return Word({self.member: use}, self._picker.flights.tell())

    def report(self) -> Report:
        """Its load now, and since the last report."""
        return self._figures.report()

    def tiers(self) -> dict[str, tuple[int, int]]:
        """Requests that run and that wait, by tier."""
        tiers = self._admission.admission.snapshot().tiers
        return {str(name): (tier.running, tier.waiting) for name, tier in tiers.items()}

    def counts(self) -> Counts:
        """The requests that this process has now."""
        tiers = self._admission.admission.snapshot().tiers.values()
        return Counts(
            sum(tier.running for tier in tiers),
            sum(tier.waiting for tier in tiers),
            {one.backend.name: one.flight.requests for one in self._picker.pool.candidates},
        )

    def spent(self) -> tuple[int, dict[QuotaText, int], dict[QuotaText, int]]:
        """By which parts of the leases it spends, and requests used and denied by quota since it was last asked."""
        return self._spends, *self._gate.take_counts()

    def pushes(self) -> Mapping[str, int]:
        """Requests that found no slot (`Pusher.pushes`), and those that came for want of one elsewhere, since it began."""
        came = {f"{service}\t\t{CAME}": count for service, count in self._proxy.stats.came.items()}
        return {**self._pusher.pushes, **came}

    def free_slots(self) -> Slots | None:
        """How many requests could begin now; None: backends do not say how many they serve."""
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

    def _share(self, slots: int | None) -> int | None:
        """What of the region's slots this process may fill now."""
        if slots is None:
            return None
        return self._sharing.share(slots, self._loop.time(), self._picker.service_s())

    def _part(self, slots: int) -> int:
        """What of the region's slots it says that it has."""
        return self._sharing.part(slots, self._loop.time())

    # The file of backends

    def look_again(self) -> None:
        """Read the file again at once, changed or not, and look at the others."""
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
        admission = document.admission.settings()
        self._admission.admission.configure(admission, self._loop.time())
        self._proxy.held.bound(HELD_BESIDE_QUEUE + admission.queue_bytes)
        self._access.configure(document.access_log)
        self._proxy.log = self._access.lines
        self._proxy.paths = document.carried()
        self._proxy.body_rules = document.body_rules()
        self._proxy.timeouts = document.timeouts.settings()
        self._proxy.media = document.admission.media
        self._proxy.most_read = document.read_mib << 20
        self._proxy.asks = document.checks.asks()
        logger.info("took in the file of backends: %d of them", len(document.backends))
        waits = self._file.waits_for_start
        if waits:
            logger.warning(
                "of the file of backends, what %s says has changed and counts from the next start: restart the balancer (--replace loses no request)",
                ", ".join(f"`{name}`" for name in waits),
            )

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
