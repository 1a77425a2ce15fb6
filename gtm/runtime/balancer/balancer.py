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
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import KW_ONLY, InitVar, dataclass
from functools import partial
from heapq import nlargest
from http import HTTPStatus
from operator import itemgetter
from urllib.parse import quote
from uuid import uuid4

import msgspec

from gtm import __version__
from gtm.balancer.decide.gate import OwnHandoffs, no_region
from gtm.balancer.metrics import render_untold
from gtm.core.handoff.claims import Issuer
from gtm.core.handoff.keys import OwnKey
from gtm.core.model.addresses import host_port
from gtm.core.model.references import meant
from gtm.core.quota.leases import LeaseHolder
from gtm.feed.client import BalancerFeedClient
from gtm.feed.current import CurrentView
from gtm.feed.reports import MAX_PUSHES, BalancerReply, BalancerReport, TimesTold
from gtm.feed.wire import Message, PeersMessage, RoomMessage, SnapshotMessage, StateMessage
from gtm.geoip.near import own_names
from gtm.geoip.reader import Locator
from gtm.handoff.own_keys import OwnKeys
from gtm.nesting import shallow
from gtm.runtime.balancer.admin import Admin
from gtm.runtime.balancer.backends_file import BackendsFile
from gtm.runtime.balancer.carrier import Carrier, Carriers, Front, RequestCounts
from gtm.runtime.balancer.ownership import BalancerOwnership
from gtm.runtime.balancer.peers import PeerLine
from gtm.runtime.balancer.reporting import EVERY, Posting, RoomLine, report_load
from gtm.runtime.balancer.round_trips import MAX_SENT
from gtm.runtime.balancer.showing import Showing
from gtm.runtime.balancer.workers.pool import WorkerPool
from gtm.runtime.following.following import Follower, FollowerDisk
from gtm.runtime.following.told import ViewMessage
from gtm.runtime.process.clocks import boot_time
from gtm.runtime.process.connections import raise_descriptor_limit
from gtm.runtime.process.listeners import Use
from gtm.runtime.process.notify import notify_ready
from gtm.runtime.process.places import say_lacking
from gtm.runtime.process.privileges import conceal
from gtm.settings import BalancerSettings

# --- What pushes need of control: a published key to sign them with, and leases of the quotas that they count against. ---
#
# A report each second, or at once where others wait for what this balancer has given up. Without control leases end after
# their seconds, and what owes a quota is pushed no more; nor is anything else, for nothing is known of peers.


FILE = "balancer-handoff-keys"
"""Of a balancer's directory: its ring, as JSON."""
_ENCODER = msgspec.json.Encoder()


@dataclass(eq=False, repr=False)
class Pushes:
    """See above.

    Args:
        settings: whose they are.
        current: the View, and what is published.
        owned: has the directory.
        kept: the way to the disk.
        carriers: push, and are told of keys and quotas.
        leases: of the quotas, which they spend.
    """

    settings: BalancerSettings
    current: CurrentView
    owned: InitVar[BalancerOwnership]
    _: KW_ONLY
    kept: FollowerDisk
    carriers: Carriers
    leases: LeaseHolder

    def __post_init__(self, owned: BalancerOwnership) -> None:
        self.keys = OwnKeys(owned.home, FILE, Issuer.BALANCER)
        self.signing: OwnKey | None = None
        """What pushes are signed with; None before `load`."""
        self.own = OwnHandoffs(self.current, self.settings.region)
        """The name that it is published by."""
        self.showing = Showing(self.carriers.state)
        self.address = ""
        """Where other balancers of the region reach this one."""
        self._pushed: dict[str, int] = {}
        """Those that reports have told of."""
        self._seen: Mapping[str, int] = {}
        """Those that there were at the last report."""
        self.untold = 0
        """Requests that the report of their second left out."""
        self._leaves_out = False
        self._told_at = boot_time()
        self._run = uuid4().hex
        self._number = 0
        """The last report had this number."""
        self._notice = ""

    async def load(self) -> None:
        """Read the keys, or make the first."""
        ring = await self.kept.on_disk(self.keys.load, self.current.window.now)
        self._use(ring.current)

    async def run(self) -> None:
        """Report until cancelled. While control is away reports are lost: the next is a second later."""
        settings = self.settings
        path = f"/v1/balancers/{quote(settings.name, safe='')}/report"
        refused = "control does not take keys and quotas, nothing new is leased: %s"
        async with Posting(settings, path, refused, HTTPStatus.OK) as posting:
            while True:
                await posting.post(self._take, content=_ENCODER.encode(self._report()))
                await self._roll()
                if posting.failing or not self.leases.overdue:
                    await asyncio.sleep(EVERY)

    def _report(self) -> BalancerReport:
        self._count()
        self._number += 1
        now, counts = boot_time(), dict(self.carriers.pushes())
        more = {key: counts[key] - self._pushed.get(key, 0) for key in counts}
        more = {key: count for key, count in more.items() if count > 0}
        told = self._largest(more)
        self.untold += sum(counts[key] - self._seen.get(key, 0) for key in more if key not in told)
        self._seen = counts
        self._pushed |= {key: counts[key] for key in told}
        seconds, self._told_at = now - self._told_at, now
        learned = self.carriers.round_trips()
        return BalancerReport(
            self.leases.use(now),
            self.keys.public,
            self.settings.region,
            __version__,
            dict(self.carriers.tiers()),
            tuple(learned.deltas[:MAX_SENT]),
            tuple(learned.witnesses[:MAX_SENT]),
            self.address,
            {key: float(count) for key, count in told.items()},
            min(seconds, 3600.0),
            self.showing.take(),
            TimesTold.of(self.carriers.times()),
            self._run,
            self._number,
        )

    def _largest(self, more: dict[str, int]) -> dict[str, int]:
        """Those that one report may tell of: what is left out is added to, and told of later."""
        left_out = len(more) - MAX_PUSHES
        if left_out > 0 and not self._leaves_out:
            logger.warning(
                "requests found no slot in %d more ways (service, region, why) than the %d that a report tells control of: the smallest are told of later",
                left_out,
                MAX_PUSHES,
            )
        self._leaves_out = left_out > 0
        return dict(nlargest(MAX_PUSHES, more.items(), key=itemgetter(1))) if left_out > 0 else more

    def _take(self, answer: bytes) -> None:
        reply = msgspec.json.decode(shallow(answer), type=BalancerReply)
        if reply.notice and not self._notice:
            logger.error("control says: %s", reply.notice[:1000])
        self._notice = reply.notice
        if reply.leases is not None and self.leases.take(reply.leases):
            self.carriers.lease(self.leases)
            self._count()

    def _count(self) -> None:
        for one in self.carriers.spent():
            self.leases.count(one.used, one.denied)
            self.leases.taken(one.worker, one.sequence)

    async def _roll(self) -> None:
        """Take what step is due with the keys."""
        now, published = self.current.window.now, self.current.handoff_keys.keys
        if not self.own.issuer:
            return
        await self.kept.on_disk(self.keys.roll, now, published, self.own.issuer)
        ring = self.keys.ring
        if ring is not None and ring.current is not self.signing:
            self._use(ring.current)

    def _use(self, key: OwnKey) -> None:
        self.signing = key
        self.own.use(key)
        self.carriers.sign(key)


# --- A region's balancer: follows control, keeps what must last, reports; it carries requests itself, or by workers. ---


logger = logging.getLogger(__name__)


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

        with closing(Locator(self.settings.geoip_db, self.settings.geoip_overrides)) as locator:
            say_lacking(locator)
            await self.serve(locator, taken=partial(self._mind, self._look, self.stop), ready=notify_ready)

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
        with self._owning():
            taken()
            await self._serve(locator, ready)

    def _look(self) -> None:
        """SIGHUP: what is looked at each second anyhow is read now, changed or not, so that the log says how it stands."""
        if self._carriers is not None:
            self._carriers.look_again()

    def counts(self) -> RequestCounts:
        """What it has now; nothing before it listens."""
        return RequestCounts() if self._carriers is None or not self.listening else self._carriers.counts()

    def admin_url(self) -> str:
        """Where its metrics and state are; empty before it has an address."""
        for one in self.owned.listeners(Use.ADMIN):
            return f"http://{host_port(one.host, one.port)}"
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

        async def load() -> None:
            await kept.load_times()
            await self._load()
            await pushes.load()
            await peers.load()

        async def end() -> None:
            for server in self._admin:
                server.close()
            self._admin = []
            peers.leave()  # before its sockets are closed: their numbers are soon another's
            await self._tasks.cancel()
            await carriers.close()

        await self._live(load, partial(self._listen, carriers, pushes, peers, ready), end)

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
        self._tasks.start(pushes.showing.run())
        self._tasks.start(pushes.run())
        line = RoomLine(settings, carriers.free_slots)
        self._tasks.start(line.run())
        await self._stopping.wait()
        line.end()
        peers.leave()
        await carriers.finish()
        peers.end()

    async def _beat(self, number: int) -> None:  # noqa: ARG002 - the contract
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
