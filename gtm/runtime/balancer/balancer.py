"""A region's balancer: follows control, keeps what must last, reports; it carries requests itself, or by workers.

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
from collections.abc import Callable
from contextlib import closing
from uuid import uuid4

from gtm.balancer.decide.gate import no_region
from gtm.balancer.metrics import render_untold
from gtm.core.model.references import meant
from gtm.core.quota.leases import LeaseHolder
from gtm.feed.client import BalancerFeedClient
from gtm.feed.current import CurrentView
from gtm.feed.wire import Message, PeersMessage, RoomMessage, SnapshotMessage, StateMessage
from gtm.geoip.near import own_names
from gtm.geoip.reader import Locator
from gtm.runtime.balancer.admin import Admin
from gtm.runtime.balancer.backends_file import BackendsFile
from gtm.runtime.balancer.carrier import Carrier, Carriers, Counts
from gtm.runtime.balancer.front import Front
from gtm.runtime.balancer.ownership import BalancerOwnership
from gtm.runtime.balancer.peers.line import PeerLine
from gtm.runtime.balancer.pushes import Pushes
from gtm.runtime.balancer.reporting import RoomLine, report_load
from gtm.runtime.balancer.workers.pool import WorkerPool
from gtm.runtime.following.following import Follower
from gtm.runtime.following.tasks import first_of
from gtm.runtime.following.told import ViewMessage
from gtm.runtime.process import lifeline, signals
from gtm.runtime.process.clocks import boot_time
from gtm.runtime.process.connections import raise_descriptor_limit
from gtm.runtime.process.listeners import Use
from gtm.runtime.process.notify import notify_ready
from gtm.runtime.process.places import say_lacking
from gtm.runtime.process.privileges import conceal
from gtm.settings import BalancerSettings

logger = logging.getLogger(__name__)

LOOK_EVERY = 1.0
"""Seconds between looks at the clock."""


class Balancer(Follower):
    """A region's balancer, from its start to its end."""

    settings: BalancerSettings
    owned: BalancerOwnership

    def __init__(self, settings: BalancerSettings) -> None:
        super().__init__(settings, CurrentView(time.time, boot=boot_time), BalancerOwnership(settings))
        self._file = BackendsFile(settings)
        if "paths" not in self._file.document.model_fields_set:
            logger.info(
                "carrying requests of inference APIs alone, since no `paths` are set: others are refused (404). For a service that is "
                "none, write `paths: any` in a --file (docs/balancer.md#paths)"
            )
        self._lost = False
        """The policy does not have its region."""
        self._carriers: Carriers | None = None
        self._instance = f"{settings.name}.{uuid4().hex[:8]}"
        self._peers: PeerLine | None = None
        self._admin: list[asyncio.Server] = []

    @property
    def listening(self) -> bool:
        """Whether it takes requests."""
        return bool(self._admin)

    async def run(self) -> None:
        """Serve as a process of its own, until SIGTERM or SIGINT.

        Raises:
            OSError: another balancer runs on the data directory, or an address cannot be listened on.
            GeoIPError: the GeoIP database or the overrides cannot be read.
            PolicyError: the file of backends is wrong.
        """
        conceal()
        raise_descriptor_limit()

        def taken() -> None:
            conceal()  # again: becoming another user may have undone it
            signals.heed(self.stop, self._look)
            lifeline.watch(self.stop)

        with closing(Locator(self.settings.geoip_db, self.settings.geoip_overrides)) as locator:
            say_lacking(locator)
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
            self.owned.take()
            taken()
            await self._serve(locator, ready)
        finally:
            self._kept.close()
            self.owned.release()

    def _look(self) -> None:
        """SIGHUP: what is looked at each second anyhow is read now, changed or not, so that the log says how it stands."""
        if self._carriers is not None:
            self._carriers.look_again()

    def counts(self) -> Counts:
        """What it has now; nothing before it listens."""
        return Counts() if self._carriers is None or not self.listening else self._carriers.counts()

    def admin_url(self) -> str:
        """Where its metrics and state are; empty before it has an address."""
        for one in self.owned.listeners(Use.ADMIN):
            return f"http://{f'[{one.host}]' if ':' in one.host else one.host}:{one.port}"
        return ""

    async def _serve(self, locator: Locator, ready: Callable[[], None]) -> None:
        settings, kept = self.settings, self._kept
        leases = LeaseHolder(uuid4().hex, settings.workers)
        carriers = self._carriers = self._made(locator, leases)
        pushes = Pushes(settings, self.current, self.owned, kept=kept, carriers=carriers, leases=leases)
        peers = self._peers = PeerLine(
            settings,
            self._instance,
            home=self.owned.home,
            kept=kept,
            listeners=self.owned.listeners(Use.PEERS),
            key=lambda: pushes.signing,
            carriers=carriers,
        )
        pushes.address = peers.address
        try:
            await kept.load_times()
            await self._load()
            await pushes.load()
            await peers.load()
            self._tasks.start(self.follow())
            await first_of(self._loaded, self._stopping)
            if not self._stopping.is_set():
                await self._listen(carriers, pushes, peers, ready)
        finally:
            for server in self._admin:
                server.close()
            self._admin = []
            peers.leave()  # before its sockets are closed: their numbers are soon another's
            await self._tasks.cancel()
            await carriers.close()
            await kept.keep_times()
        if self._tasks.failure is not None:
            raise self._tasks.failure

    def _made(self, locator: Locator, leases: LeaseHolder) -> Carriers:
        """Make what will carry requests: this process, or a pool of workers."""
        settings = self.settings
        if settings.workers > 1:
            Front(self._file.document)  # what is wrong with it is better said once
            return WorkerPool(settings, self._instance, self._view, leases)
        return Carrier(
            settings,
            self._instance,
            current=self.current,
            file=self._file,
            locator=locator,
            parts=leases.started(0),
        )

    async def _listen(
        self, carriers: Carriers, pushes: Pushes, peers: PeerLine, ready: Callable[[], None]
    ) -> None:
        settings, loop = self.settings, asyncio.get_running_loop()
        listening = asyncio.ensure_future(carriers.listen(self.owned.listeners(Use.REQUESTS)))
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((listening, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if not listening.done():
                listening.cancel()
        if not listening.done():
            return
        listening.result()
        admin = Admin(
            carriers,
            settings.metrics_allow,
            lambda: {"peers": peers.shown()},
            lambda: render_untold(pushes.untold),
            names=own_names(*settings.bind),
            snapshot=lambda: self.current.snapshot,
        )
        for one in self.owned.listeners(Use.ADMIN):
            self._admin.append(await loop.create_server(admin.connection, sock=one.socket.dup()))
            logger.info("listening for metrics and state on %s port %d", one.host, one.port)
        peers.listen()
        self._tasks.start(peers.run())
        self.owned.settle()
        ready()
        self._tasks.start(self.owned.leave_to_successor(self.stop))
        self._tasks.start(self._tick())
        self._tasks.start(report_load(settings, carriers.report))
        self._tasks.start(pushes.run())
        line = RoomLine(settings, carriers.free_slots)
        self._tasks.start(line.run())
        await self._stopping.wait()
        line.end()
        peers.leave()
        await carriers.finish()
        peers.end()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            self.current.tick()
            await self._tell_times()
            await self.retry()
            if self._peers is not None:
                await self._peers.keep()

    # What control says

    async def _client(self) -> BalancerFeedClient:
        settings = self.settings
        return BalancerFeedClient(
            settings.control_url,
            settings.token,
            settings.name,
            settings.ca_file,
            skipped=lambda why: logger.error("skipped a message of control's feed: %s", why),
        )

    def _heed(self, message: Message) -> None:
        if isinstance(message, StateMessage | RoomMessage):
            self.current.apply(message)
            self._send(message)
        elif isinstance(message, PeersMessage) and self._peers is not None:
            self._peers.learn(message)
        elif isinstance(message, SnapshotMessage):
            self._look_for_region(message)

    def _look_for_region(self, message: SnapshotMessage) -> None:
        """Say once if the policy does not have this balancer's region, and once when it has it again."""
        name, known = self.settings.region, {region.name for region in message.policy.regions}
        if (name in known) is not self._lost:
            return
        self._lost = name not in known
        if self._lost:
            logger.error(
                "%s in revision %d of the policy: nothing is served here, and `/healthz` and `/readyz` say 503, until there is one%s",
                no_region(name),
                message.revision,
                meant(name, known),
            )
        else:
            logger.info(
                "region `%s` is in revision %d of the policy: requests are served", name, message.revision
            )

    def _send(self, message: ViewMessage) -> None:
        if self._carriers is not None:
            self._carriers.put(message)
