"""What pushes need of control: a published key to sign them with, and leases of the quotas that they count against.

A report each second, or at once where others wait for what this balancer has given up. Without control leases end after
their seconds, and what owes a quota is pushed no more; nor is anything else, for nothing is known of peers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import KW_ONLY, InitVar, dataclass
from heapq import nlargest
from http import HTTPStatus
from operator import itemgetter
from urllib.parse import quote

import msgspec

from gtm import __version__
from gtm.balancer.decide.gate import OwnHandoffs
from gtm.core.handoff.claims import Issuer
from gtm.core.handoff.keys import OwnKey
from gtm.core.quota.leases import LeaseHolder
from gtm.feed.current import CurrentView
from gtm.feed.reports import MAX_PUSHES, BalancerReply, BalancerReport
from gtm.handoff.own_keys import OwnKeys
from gtm.nesting import shallow
from gtm.runtime.balancer.carrier import Carriers
from gtm.runtime.balancer.ownership import BalancerOwnership
from gtm.runtime.balancer.reporting import EVERY, Posting
from gtm.runtime.balancer.round_trips import MAX_SENT
from gtm.runtime.following.following import FollowerDisk
from gtm.runtime.process.clocks import boot_time
from gtm.settings import BalancerSettings

logger = logging.getLogger(__name__)

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
        self.own = OwnHandoffs(self.current)
        """The name that it is published by."""
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
