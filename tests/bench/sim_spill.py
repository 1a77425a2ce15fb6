"""Spill-back in the spillover simulation: gtm's plan, corrected by edges, by pushes between balancers, or by both.

Corrections, pushes, the pace of reports and what counts as room are those of `gtm.core.balance.spill`. Tokens are earned from the
requests that edges and balancers see (`gtm.core.quota.earned`) and spent through the gate of `gtm.http.answers.quotas`; or, to compare, leased by
the ledger of `gtm.core.quota` at the rates that the shares come to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import NamedTuple

from gtm.core.balance.spill.edge import REFUSED, Way, correct, owed
from gtm.core.balance.spill.push import PushPeer, expected_wait, push
from gtm.core.balance.spill.room import (
    KNOWN_FOR,
    OpenSlots,
    Room,
    Sender,
    SentBeyond,
    Slots,
    next_report,
    standing,
    wanting,
)
from gtm.core.model.affinity import key_hash
from gtm.core.quota.earned import Sight, Worth, earned
from gtm.core.quota.leases import LeaseHolder
from gtm.core.quota.ledger import LeaseLedger
from gtm.core.quota.names import QuotaName, QuotaText
from gtm.http.answers.quotas import QuotaGate
from tests.bench.sim_queue import SlotQueue
from tests.bench.sim_strategies import Planned, Report

STEP_S = 0.1
"""How often a balancer looks whether its report is due, in s."""
_LEDGER_AGE_S = 20.0
"""The ledger started so long before the first window, in s: it grants from the beginning."""
_NONE: tuple[QuotaText, ...] = ()


@dataclass(frozen=True)
class SpillSettings:
    """Which corrections are made, how old reports are when they arrive (s), and how many edges share the clients over HTTP.

    `earned`: tokens of shares are earned from what each holder sees, as they ship, instead of leased.
    """

    edge: bool = True
    push: bool = True
    state_age: float = 0.1
    edges: int = 8
    earned: bool = True


class Landed(NamedTuple):
    """A pushed request that has arrived: its number and region, its wait there and what the way added (s), when, and its hold (s)."""

    request: int
    region: int
    wait: float
    extra: float
    at: float
    hold: float


@dataclass
class Holder:
    """One edge or balancer: its tokens, and what it has sent beyond the plan."""

    name: str
    gate: QuotaGate
    leases: LeaseHolder
    sent: SentBeyond = field(default_factory=SentBeyond)

    def renew(self, ledger: LeaseLedger, now: float) -> None:
        """One report to control, and its reply."""
        self.leases.count(*self.gate.take_counts())
        if self.leases.take(ledger.answer(self.name, self.leases.use(now), now)):
            parts = self.leases.parts()[0]
            self.gate.update(parts)
            self.leases.taken(0, parts.sequence)


class Site:
    """What a region's balancer counts of its own requests, and what it has said."""

    def __init__(self, queue: SlotQueue) -> None:
        self.queue = queue
        self._ends: list[float] = []
        self._told: Slots | None = None
        self._told_at = 0.0
        self._sequence = 0

    def offer(self, now: float, hold: float) -> float:
        """Take a request, as `SlotQueue.offer`."""
        wait = self.queue.offer(now, hold)
        if wait < inf:
            heappush(self._ends, now + wait + hold)
        return wait

    def slots(self, now: float) -> Slots:
        """What it counts now."""
        while self._ends and self._ends[0] <= now:
            heappop(self._ends)
        limit, outstanding = self.queue.slots, len(self._ends)
        return Slots(float(max(0, limit - outstanding)), float(limit), float(max(0, outstanding - limit)))

    def report(self, now: float) -> Room | None:
        """The report that is due now, if one is."""
        slots = self.slots(now)
        if next_report(self._told, slots, now - self._told_at) > STEP_S / 2:
            return None
        self._told, self._told_at = slots, now
        self._sequence += 1
        return Room("balancer", 0.0, self._sequence, now, slots)


class Spilling:
    """gtm's plan with spill-back. `arrive` does for it what `SlotQueue.offer` does for the other strategies."""

    caches = True

    def __init__(
        self,
        planned: Planned,
        settings: SpillSettings,
        queues: Sequence[SlotQueue],
        between_ms: Sequence[Sequence[float]],
        seed: int,
    ) -> None:
        self.planned = planned
        self.settings = settings
        self.sites = [Site(queue) for queue in queues]
        self.service_time: Sequence[float] = [1.0] * len(queues)
        self.movement: float | None = 0.0
        self.counts: Counter[str] = Counter()
        self.landed: list[Landed] = []
        self._random = Random(seed)
        self._now = 0.0
        self._step = 0
        self._ledger = LeaseLedger(-_LEDGER_AGE_S)
        self._known: list[OpenSlots | None] = [None] * len(queues)
        self._reports: list[tuple[float, int, Room]] = []
        self._pushed: list[tuple[float, int, int, float, float]] = []
        self._paid: tuple[QuotaText, ...] = ()
        self._credit: Worth = ()
        self._moved = False
        names, numbers = planned.names, range(len(queues))
        self._rules: list[Worth] = [
            tuple(
                (self._text(one.name), one.max_share or 0.0)
                for one in planned.quotas
                if settings.earned and one.from_region == name
            )
            for name in names
        ]
        self._edges = [self._holder(f"edge-{number}") for number in range(settings.edges)]
        self._balancers = [self._holder(name) for name in names]
        self._rooms: dict[int, Room] = {}
        self._wanting = 0
        self._edge_senders: list[Sender] = []
        self._balancer_senders: list[Sender] = []
        self._share()
        self._ways = [[self._ways_of(area, edge) for edge in self._edges] for area in numbers]
        self._peers = [[self._peers_of(area, here, between_ms[here]) for here in numbers] for area in numbers]

    def _holder(self, name: str) -> Holder:
        leases = LeaseHolder(name, 1)
        gate = QuotaGate(leases.started(0), lambda: self._now)
        return Holder(name, gate, leases)

    def _text(self, rule: str) -> QuotaText:
        return QuotaName(rule, share=self.settings.earned).text

    def _share(self) -> None:
        """Divide what is open between those that may want to send."""
        edges = self.settings.edge * self.settings.edges
        balancers = (
            wanting(self._rooms.values(), len(self._balancers), self._now) if self.settings.push else 0
        )
        if edges + balancers != self._wanting:
            self._wanting = edges + balancers
            self._edge_senders = [self._sender(edge) for edge in self._edges]
            self._balancer_senders = [self._sender(balancer) for balancer in self._balancers]

    def _sender(self, holder: Holder) -> Sender:
        return Sender(self._standing, holder.sent, 1 / max(1, self._wanting), holder.gate.afford)

    def _quotas(self, area: int, region: int) -> tuple[QuotaText, ...]:
        """Those that an area's requests count against in a region."""
        if region in (self.planned.order[area][0], REFUSED):
            return _NONE
        return tuple(self._text(name) for covered, name, _ in self.planned.buckets[area] if region in covered)

    def _ways_of(self, area: int, edge: Holder) -> list[Way]:
        trips, names = self.planned.round_trip[area], self.planned.names
        return [
            Way(region, trips[region], self._quotas(area, region), key_hash(f"{edge.name}\n{names[region]}"))
            for region in self.planned.order[area]
        ]

    def _peers_of(self, area: int, here: int, trips_ms: Sequence[float]) -> list[PushPeer]:
        name, names = self._balancers[here].name, self.planned.names
        return [
            PushPeer(
                region,
                trips_ms[region] / 1e3,
                owed(self._quotas(area, region), frozenset(self._quotas(area, here))),
                key_hash(f"{name}\n{names[region]}"),
            )
            for region in self.planned.order[area]
            if region != here
        ]

    def _standing(self, number: int) -> OpenSlots | None:
        found = self._known[number]
        return found if found is not None and self._now - found.at <= KNOWN_FOR else None

    def tick(self, report: Report) -> None:
        """Plan, and lease."""
        self.planned.tick(report)
        self.movement = self.planned.movement
        self._ledger.apportion(
            {self._text(name): rate for name, rate in self.planned.leasable.items()}, report.now
        )
        for holder in (*self._edges, *(self._balancers if self.settings.push else ())):
            holder.renew(self._ledger, report.now)

    def advance(self, now: float) -> None:
        """Let time pass: balancers report, reports and pushed requests arrive."""
        while True:
            step = self._step * STEP_S
            report = self._reports[0][0] if self._reports else inf
            pushed = self._pushed[0][0] if self._pushed else inf
            self._now = min(step, report, pushed, now)
            if now < min(step, report, pushed):
                return
            if pushed <= min(step, report):
                at, index, region, hold, extra = heappop(self._pushed)
                wait = self.sites[region].offer(at, hold)
                self.counts["moved_and_waited"] += wait > 0
                self.landed.append(Landed(index, region, wait, extra, at, hold))
            elif report <= step:
                at, number, room = heappop(self._reports)
                self._known[number] = standing([room], "", at)
                self._rooms[number] = room
                self._share()
            else:
                for number, site in enumerate(self.sites):
                    said = site.report(step)
                    if said is not None:
                        heappush(self._reports, (step + self.settings.state_age, number, said))
                self._step += 1

    def route(self, area: int, draw: float, now: float, *, dns: bool) -> int:
        """The plan's choice, corrected over HTTP by the edge that the client happens to ask."""
        region = self.planned.drawn(area, draw, dns=dns)
        if dns:
            return region
        number = int(self._random.random() * len(self._edges))
        edge = self._edges[number]
        self._moved, self._credit = False, edge.gate.earn(self._rules[area])
        quotas = self._quotas(area, region)
        if quotas and not edge.gate.afford(quotas):
            region, quotas = self.planned.order[area][0], _NONE
        if not self.settings.edge:
            return region
        way, why = correct(region, self._ways[area][number], self._edge_senders[number], now, paid=quotas)
        self.counts[f"edge_{why}"] += 1
        if way is None:
            return region
        self._moved = True
        return way.number

    def arrive(
        self, index: int, area: int, region: int, now: float, hold: float, *, http: bool
    ) -> float | None:
        """The wait (s) of a request that reaches a region, infinite if it is refused; None: it is pushed, and lands later."""
        site, balancer = self.sites[region], self._balancers[region]
        if self.settings.push:
            if region == self.planned.order[area][0]:
                sight = Sight.HANDED if http else Sight.FIRST
                left = () if http else self._left_by_dns(area)
                balancer.gate.earn(earned(sight, self._rules[area], left, dict(self._credit)))
            if site.queue.delay(now) > 0:
                peer = self._push(area, region, now)
                if peer is not None:
                    heappush(self._pushed, (now + peer.extra_s / 2, index, peer.number, hold, peer.extra_s))
                    return None
        wait = site.offer(now, hold)
        self.counts["moved_and_waited"] += http and self._moved and wait > 0
        return wait

    def _push(self, area: int, region: int, now: float) -> PushPeer | None:
        slots = self.sites[region].slots(now)
        wait = inf if slots.waiting >= slots.limit else expected_wait(slots, self.service_time[region])
        peers = self._peers[area][region]
        draws = (self._random.random(), self._random.random())
        peer, why = push(wait, 0, peers, self._balancer_senders[region], now, draws=draws)
        self.counts[f"push_{why}"] += 1
        return peer

    def _left_by_dns(self, area: int) -> Worth:
        """Tokens that a request by DNS earns at home, as `gtm.core.decision.weights.left_at_home` has it."""
        cumulative, regions = self.planned.cumulative[area], self.planned.regions[area]
        weights = dict(zip(regions, map(float.__sub__, cumulative, [0.0, *cumulative]), strict=False))
        home = self.planned.order[area][0]
        stays = weights.get(home, 0.0)
        if stays <= 0:
            return ()
        found = []
        for quota, share in self._rules[area]:
            away = sum(
                weight
                for region, weight in weights.items()
                if region != home and quota in self._quotas(area, region)
            )
            worth = min(share, (share - away) / stays)
            if worth > 0:
                found.append((quota, worth))
        return tuple(found)
