"""What control tells its edges: the current policy, state of health and tokens, held in memory and pushed at once.

Laws:
  1. Losing the database costs changes, never the feed: what is in memory goes on being served, tokens included.
  2. A policy that does not compile here is not published; the one before it stays.
  3. An epoch never goes back: it starts from the clock, so that a restarted control is ahead of what it said before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from gtm.control.dnssec.keys import KeyBook
from gtm.control.errors import Unavailable
from gtm.control.lead.demand import DemandBook, Row
from gtm.control.lead.election import FENCE, Lead, Standing
from gtm.control.lead.intake import Intake
from gtm.control.lead.latency import LatencyBook
from gtm.control.lead.loads import Loads
from gtm.control.lead.planner import TICK, Inputs, Planner, same_plan
from gtm.control.lead.takeover import Takeover
from gtm.control.lead.vantages import Health, LiveEdge, Vantages
from gtm.control.live.subscribers import HEARTBEAT, Followers, News
from gtm.core.capacity.supply import Assessment
from gtm.core.latency import EMPTY_TABLE, Estimator, LatencyTable
from gtm.core.model.access import Access, TokenGrant
from gtm.core.model.problems import PolicyError
from gtm.core.model.state import Plan, State
from gtm.core.model.values import Policy
from gtm.core.policy.snapshot import Snapshot
from gtm.core.quota.ledger import LeaseLedger
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.feed.wire import EdgeReply, EdgeReport, SnapshotMessage
from gtm.settings import DEFAULT_HALF_LIFE, DnssecSettings
from gtm.storage.edges import EdgeSighting
from gtm.storage.errors import StorageUnavailable
from gtm.storage.revisions import REVISION_CHANNEL
from gtm.storage.session import Database
from gtm.storage.tokens import Token

logger = logging.getLogger(__name__)

POLL = 2.0
"""Seconds between looks at the database, should a notification have been missed."""
COALESCE = 0.1
"""Longest time, in seconds, that a new verdict waits for others to travel with it."""


class FeedHub:
    """The current snapshot, state and access of one control process; `followers` are told of each change.

    Args:
        database: where policy and tokens are.
        clock: POSIX seconds.
        monotonic: seconds that never step back.
        half_life: seconds after which a measured round trip counts half.
        dnssec: how keys of signed zones are kept; None: this process has no key file.
        lead: this process's part among several on one database; None: it is the only one.
    """

    def __init__(
        self,
        database: Database,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        half_life: float = DEFAULT_HALF_LIFE,
        dnssec: DnssecSettings | None = None,
        *,
        lead: Lead | None = None,
    ) -> None:
        self.snapshot: SnapshotMessage | None = None
        self.compiled: Snapshot | None = None
        self.state = State(epoch=int(clock() * 1000))
        self.access = Access()
        self.dnssec = KeyBook(database, clock, dnssec)
        self.dropped: Counter[str] = Counter()
        self.demand = DemandBook()
        self.ledger = LeaseLedger(monotonic(), int(clock() * 1000))
        self.planner = Planner()
        self.takeover = Takeover()
        self.table = EMPTY_TABLE
        self.latency = LatencyBook(database, clock, half_life)
        self.loads = Loads(clock)
        self.lead = lead
        self._half_life = half_life
        self._term = 0
        self.followers = Followers(self._news, clock, monotonic)
        self.database_up = False
        self._tokens: dict[str, Token] = {}
        self._database = database
        self._clock = clock
        self._monotonic = monotonic
        self.vantages = Vantages(clock, monotonic)
        self._intake = Intake(None, self.dropped)
        self._wake = asyncio.Event()
        self._reported = asyncio.Event()
        self._refreshing = asyncio.Lock()
        self._planned = False
        self._estimator: Estimator | None = None
        self._estimated: Snapshot | None = None

    # --- the database ---

    async def run(self) -> None:
        """Follow the database and the edges' reports until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._poll())
            group.create_task(self._listen())
            group.create_task(self.dnssec.run(self.followers.announce))
            if self.lead is not None:
                group.create_task(self.lead.run())
                await self.lead.taken.wait()
                self._begin()
            group.create_task(self._judge())
            group.create_task(self._record())
            group.create_task(self._plan())
            group.create_task(self.latency.run(self._measured, self._publish_table))

    def _renew(self) -> None:
        """Begin the books anew whenever the lock was taken: another may have leased before that."""
        if self.lead is not None and self.lead.terms != self._term:
            self._term = self.lead.terms
            self.ledger = LeaseLedger(self._monotonic() + FENCE, int(self._clock() * 1000))

    @property
    def standing(self) -> Standing:
        """Whether this process is the active one."""
        return self.lead.standing if self.lead is not None else Standing.ACTIVE

    def must_be_active(self) -> None:
        """What only the active control can do stops here, at the others.

        Raises:
            Unavailable: this process stands by.
        """
        if self.standing is not Standing.STANDBY:
            return
        active = self.lead.active if self.lead is not None else ""
        where = f"the one at `{active}` is active" if active else "none is active yet"
        raise Unavailable(
            f"this control stands by, {where}: ask that one, or try again", headers={"Retry-After": "1"}
        )

    def _begin(self) -> None:
        """Become the active one: what counts from a process's start counts from here."""
        now = self._clock()
        self.state = replace(self.state, epoch=max(self.state.epoch + 1, int(now * 1000)))
        self.takeover = Takeover()
        self.vantages = Vantages(self._clock, self._monotonic)
        self.latency = LatencyBook(self._database, self._clock, self._half_life)

    async def refresh(self) -> None:
        """Take in what the database holds now, and tell the followers.

        Raises:
            StorageUnavailable: the database cannot be reached; everything stays.
        """
        async with self._refreshing:
            try:
                async with self._database.transaction() as transaction:
                    live = await transaction.tokens.live()
                    latest = await transaction.revisions.latest()
                    held = (self.snapshot.revision, self.snapshot.created) if self.snapshot else None
                    policy = None
                    if latest is not None and (latest.number, latest.created_at.timestamp()) != held:
                        policy = await transaction.revisions.policy(latest.number)
                    await self.dnssec.refresh(transaction)
            except StorageUnavailable:
                self.database_up = False
                raise
            self.database_up = True
            if latest is not None and policy is not None and not self._emptied(latest.number, policy):
                # A large policy takes seconds to compile: the feeds' heartbeats must not wait for it.
                created = latest.created_at.timestamp()
                message = await asyncio.to_thread(
                    SnapshotMessage.of, latest.number, created, policy, shipped_jurisdictions()
                )
                try:
                    self.compiled = await asyncio.to_thread(message.compiled)
                except PolicyError as error:
                    logger.error(
                        "revision %d does not compile here and is not published: %s", latest.number, error
                    )
                else:
                    await self._prepare_keys(policy)
                    self.snapshot = message
            self._tokens = {digest.hex(): token for digest, token in live.items()}
            self.access = Access(
                tuple(
                    TokenGrant(
                        sha256,
                        token.role,
                        token.ends_at.timestamp() if token.ends_at else None,
                    )
                    for sha256, token in sorted(self._tokens.items())
                )
            )
            self.followers.announce()

    async def _prepare_keys(self, policy: Policy) -> None:
        """Have the keys of just those zones that a policy has signed, before anybody is told of it."""
        signed = {zone.name for zone in policy.zones if zone.dnssec}
        if signed != {keys.zone for keys in self.dnssec.keys.zones}:
            with contextlib.suppress(StorageUnavailable):  # made as soon as the database answers
                await self.dnssec.settle()

    def _emptied(self, number: int, policy: Policy) -> bool:
        """Whether the database lost the policy that is in force here: that must not take the world down."""
        held = self.snapshot.revision if self.snapshot else 0
        lost = number < held and not policy.services and not policy.regions
        if lost:
            logger.error(
                "the database has an empty policy of revision %d while revision %d is in force: not published",
                number,
                held,
            )
        return lost

    async def ping(self) -> bool:
        """Whether the database answers right now."""
        try:
            await self._database.ping()
        except StorageUnavailable:
            self.database_up = False
        else:
            self.database_up = True
        return self.database_up

    async def _poll(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), POLL if self.snapshot else 0.2)
            self._wake.clear()
            was_up = self.database_up
            try:
                await self.refresh()
            except StorageUnavailable as error:
                if was_up:
                    logger.warning("lost the database, going on from memory: %s", error)

    async def _listen(self) -> None:
        while True:
            try:
                async for _ in self._database.listen(REVISION_CHANNEL):
                    self._wake.set()
            except StorageUnavailable:
                await asyncio.sleep(POLL)

    # --- tokens ---

    def holder(self, sha256: str) -> Token | None:
        """The token behind a hash, from memory; None if it is unknown or has expired."""
        token = self._tokens.get(sha256)
        if token is None:
            return None
        if token.ends_at is not None and token.ends_at.timestamp() <= self._clock():
            return None
        return token

    def unbound_tokens(self) -> list[str]:
        """The names of tokens that speak for edges of any name."""
        return sorted(token.name for token in self._tokens.values() if token.edges == "*")

    # --- health ---

    def report(self, edge: str, address: str, report: EdgeReport, token: str = "") -> EdgeReply:
        """Take in what an edge sees and was asked; the reply leases it its part of the quotas.

        Args:
            edge: its name.
            address: where the report came from.
            report: what was read of it, within bounds (`gtm.api.routes.edges`).
            token: the token's name; all edges of one token have one vote. Empty: each has its own.

        Raises:
            Conflict: one token reports under too many names.
        """
        if self._intake.snapshot is not self.compiled:
            self._intake = Intake(self.compiled, self.dropped)
        report, now = self._intake.read(report, self._clock()), self._monotonic()
        known = self.vantages.take(token, edge, address, report)
        self.demand.take(known.source, report.demand, report.seconds, now, self._intake.wanted)
        self.latency.take(report.latency, token or edge, report.witnesses)
        wants_plan = self.takeover.take(known.source, report.plan, now)
        self._reported.set()
        reply = EdgeReply(None, wants_plan, self.vantages.notice(known))
        if report.leases is None or self.standing is not Standing.ACTIVE:
            return reply
        self._renew()
        return replace(reply, leases=self.ledger.answer(edge, report.leases, now))

    @property
    def health(self) -> Health:
        """What plans are made for: what the vantages say together, and of regions in dispute those who see them up."""
        return self.vantages.judgement.presumed

    def edges(self) -> list[LiveEdge]:
        """The edges heard of within `MAX_AGE`, by name."""
        return self.vantages.live()

    def heard(self) -> dict[str, LiveEdge]:
        """The edges heard of within a day, by name: also those that have fallen silent."""
        return {edge.name: edge for edge in self.vantages.all()}

    async def _judge(self) -> None:
        """Combine reports soon after they arrive, and once a second for those that grow stale."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._reported.wait(), HEARTBEAT)
                await asyncio.sleep(COALESCE / 2)
            self._reported.clear()
            self.judge()

    def judge(self) -> None:
        """Combine what the vantages say now; a verdict that differs makes a new state."""
        told = self.vantages.judge(self.compiled).told
        if _verdicts(told) != _verdicts(self.state.health):
            self._publish_state(told, self.state.plan)

    def _publish_state(self, health: Health, plan: Plan) -> None:
        epoch = max(self.state.epoch + 1, int(self._clock() * 1000))
        self.state = State(epoch, health=health, plan=plan)
        self.followers.announce()

    # --- the plan ---

    async def _plan(self) -> None:
        """Plan once a second, beside the feeds."""
        while True:
            await asyncio.sleep(TICK)
            await self.plan()

    async def plan(self) -> None:
        """Make the next plan, and publish it unless it is too early. A tick that fails leaves the last plan."""
        if self.compiled is None or self.standing is not Standing.ACTIVE:
            return
        self._renew()
        if not self.takeover.over and self.takeover.end(self._monotonic()):
            self.planner.resume(self.takeover.plan)
        try:
            planned = await asyncio.to_thread(self.planner.tick, self._inputs(self.compiled))
        except Exception:
            logger.exception("the planner failed; the last plan stays")
            return
        self.loads.assessment = planned.capacity
        self.ledger.apportion(planned.leasable, self._monotonic())
        if self.takeover.over and not (self._planned and same_plan(planned.told, self.state.plan)):
            self._planned = True
            self._publish_state(self.state.health, planned.told)

    def moment(self) -> tuple[float, dict[Row, float]]:
        """The time of day in POSIX seconds, and the rates that the edges count now."""
        return self._clock(), self.demand.rates(self._monotonic())

    def _inputs(self, snapshot: Snapshot) -> Inputs:
        """All that one plan is made from, as of now."""
        if (
            self._estimator is None
            or self._estimated is not snapshot
            or self._estimator.table is not self.table
        ):
            self._estimator, self._estimated = Estimator(snapshot.regions, self.table), snapshot
        return Inputs(
            snapshot=snapshot,
            estimator=self._estimator,
            state=replace(self.state, health=self.health),
            now=self._clock(),
            rates=self.demand.rates(self._monotonic()),
            loads=self.loads.loads(snapshot.policy),
            capacity=self.loads.assessment,
        )

    async def _record(self) -> None:
        """Write the edges down now and then, for the other control replicas and for the next start."""
        written: dict[str, datetime] = {}
        while True:
            await asyncio.sleep(POLL)
            known = {edge.name: edge for edge in sorted(self.vantages.all(), key=lambda edge: edge.seen_at)}
            fresh = [edge for edge in known.values() if written.get(edge.name) != edge.seen_at]
            try:
                async with self._database.transaction() as transaction:
                    await transaction.edges.record(_sighting(edge) for edge in fresh)
            except StorageUnavailable:
                continue
            written = {edge.name: edge.seen_at for edge in fresh} | {
                name: seen for name, seen in written.items() if name in known
            }

    # --- round trips ---

    def _measured(self) -> tuple[Policy, Assessment] | None:
        """What latency tables are made for; None before the first policy."""
        return None if self.snapshot is None else (self.snapshot.policy, self.planner.latest.capacity)

    def _publish_table(self, table: LatencyTable) -> None:
        self.table = table
        self.followers.announce()

    def _news(self) -> News:
        """What edges should know now."""
        return News(
            self.snapshot,
            self.access,
            self.dnssec.keys,
            self.table,
            self.state,
            keep_plan=not self._planned,
        )


def _verdicts(health: Health) -> dict[tuple[str, str], tuple[str, str]]:
    """What of health matters to edges: a changed latency alone is no news."""
    return {
        (region, url): (item.status.value, item.detail)
        for region, endpoints in health.items()
        for url, item in endpoints.items()
    }


def _sighting(edge: LiveEdge) -> EdgeSighting:
    return EdgeSighting(
        name=edge.name,
        version=edge.report.version,
        address=edge.address,
        revision_applied=edge.report.revision,
        epoch_applied=edge.report.epoch,
        country=edge.report.place.country,
        operator_country=edge.report.place.operator_country,
        seen_at=edge.seen_at,
    )
