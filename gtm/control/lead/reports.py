"""Edges' reports, taken in: what they see to the vantages, what they count to demand, what they measure to round trips.

`Verdicts` tells what the vantages say together: it is a new state as soon as it differs.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import NamedTuple

from gtm.control.lead.demand import DemandBook, Place, RateBook, Reported
from gtm.control.lead.intake import ReportIntake
from gtm.control.lead.latency import LatencyBook, successors
from gtm.control.lead.leases import Leases
from gtm.control.lead.takeover import Takeover
from gtm.control.lead.vantages import LiveEdge, Vantages
from gtm.control.live.present import Current
from gtm.control.live.subscribers import HEARTBEAT
from gtm.core.balance.spill.room import CAME, FAILED
from gtm.core.demand import belief
from gtm.core.health.addresses import FAMILIES
from gtm.core.health.history import History
from gtm.core.health.verdicts import HealthTable
from gtm.feed.reports import EdgeReply, EdgeReport


class PushedWay(NamedTuple):
    """Requests of a service that found no slot in a region: the peer that took them (empty: none), and why.

    `CAME` in place of why: those that the region served because another had no slot.
    """

    home: str
    service: str
    region: str
    why: str


class Reports:
    """What the edges of one control process reported.

    Args:
        current: the policy that reports are read by.
        latency: takes what was learned of round trips.
        leases: answers what edges ask of quotas.
        clock: POSIX seconds.
        monotonic: seconds that never step back.
    """

    def __init__(
        self,
        current: Current,
        latency: LatencyBook,
        leases: Leases,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self.vantages = Vantages(clock, monotonic)
        self.demand = DemandBook()
        self.peaks = belief.PeakBook()
        """How much the edges of each token asked for in the last day."""
        self.elsewhere = 0.0, inf
        """What regions report to arrive, and what any token may ask for, in requests per second."""
        self.corrections = RateBook()
        self.dns = RateBook()
        """What DNS does at each edge (`gtm.telemetry.dns_part`)."""
        self.history = History()
        self.pushes = RateBook()
        """What balancers found no slot for, by their region and \"service, region, why\"."""
        self.takeover = Takeover()
        self.dropped: Counter[str] = Counter()
        """Items that were left out of reports, by part of the report."""
        self.heard = asyncio.Event()
        """Set by each report; whoever looks at them clears it."""
        self._current = current
        self._latency = latency
        self._leases = leases
        self._clock = clock
        self._monotonic = monotonic
        self._intake = ReportIntake(None, self.dropped)
        self._tokens: object = None
        self.successors: Mapping[str, str] = {}
        """The tokens that count, by id, and which a rotation put in another's place; empty: not known yet."""

    def take(
        self, edge: str, address: str, report: EdgeReport, token: str = "", token_id: str = ""
    ) -> EdgeReply:
        """Take in what an edge sees and was asked; the reply leases it its part of the quotas.

        Args:
            edge: its name.
            address: where the report came from.
            report: what was read of it, within bounds (`gtm.api.routes.edges`).
            token: the token's name; all edges of one token have one vote. Empty: each has its own.
            token_id: the token's id.

        Raises:
            Conflict: one token reports under too many names.
        """
        self.follow()
        compiled = self._current.now.compiled
        if self._intake.snapshot is not compiled:
            self._intake = ReportIntake(compiled, self.dropped)
        if report.plan is not None and not self.takeover.wants(report.plan):
            self.dropped["plan"] += 1
            report = replace(report, plan=None)
        report, now = self._intake.read(report, self._clock()), self._monotonic()
        known = self.vantages.take(token, edge, address, report, token_id)
        whose = self._whose(known)
        counted = self.demand.take(
            known.source, report.demand, report.seconds, now, self._intake.wanted, token=whose
        )
        self.peaks.count(whose, counted)
        self.corrections.take(known.source, report.corrections, report.seconds, now)
        self.dns.take(known.source, report.dns or {}, report.seconds, now)
        self.history.heard(token or edge, edge, report.health, report.probed, self._clock())
        self.dropped["history"] = self.history.left_out
        self._latency.take(report.latency, whose, report.witnesses)
        wants_plan = self.takeover.take(known.source, report.plan, now)
        self.heard.set()
        reply = EdgeReply(None, wants_plan, self.vantages.notice(known))
        # Two that share a name are told apart by their tokens: neither takes the other's place.
        holder = f"{token}/{edge}" if token else edge
        return replace(reply, leases=self._leases.answer(holder, report.leases, now, owner=token))

    def follow(self) -> None:
        """Forget at once what the edges of tokens say that count no more; a rotated token's are its successor's."""
        tokens = self._current.now.tokens
        if tokens is self._tokens:
            return
        self._tokens, self.successors = tokens, successors(tokens.values(), self._clock())
        if self.successors:
            self.peaks.retain(self.successors)
            for edge in self.vantages.retain(self.successors):
                self.demand.forget(edge.source)
                self.corrections.forget(edge.source)
                self.dns.forget(edge.source)

    def clients(self) -> dict[str, float]:
        """How much was asked of the edges of each token in its busiest minute of the last day, by its name."""
        peaks = self.peaks.busiest(self._clock())
        return {edge.token or edge.name: peaks.get(self._whose(edge), 0.0) for edge in self.vantages.live()}

    def _whose(self, edge: LiveEdge) -> str:
        """Who answers for an edge: the id of its token, or of that which a rotation put in its place."""
        return self.successors.get(edge.token_id, edge.token_id) or edge.token or edge.name

    def dns_rates(self, source: str) -> dict[str, float]:
        """What DNS does at an edge now, per second, by the edge's source."""
        return self.dns.of(source, self._monotonic())

    @property
    def corrected(self) -> dict[tuple[str, str], float]:
        """What all edges move by free slots now, in requests per second, by the region that the plan chose and the one that takes them."""
        return self.corrections.rates(self._monotonic())

    @property
    def pushed(self) -> dict[PushedWay, float]:
        """What balancers found no slot for, and what came to them for that, in requests per second."""
        found = {}
        for (home, told), rate in self.pushes.rates(self._monotonic()).items():
            service, region, why = told.split("\t")
            found[PushedWay(home, service, region, why)] = rate
        return found

    @property
    def reported(self) -> Reported:
        """The rates of all edges now, to be added up."""
        evidence = self.peaks.evidence(self._clock(), *self.elsewhere)
        return self.demand.reported(self._monotonic(), evidence)


def beside(pushed: Mapping[PushedWay, float]) -> dict[Place, float]:
    """How many requests a second came to each region beside those that it served: what peers took, less what came of peers'.

    Each region speaks of itself alone: what it says that others took adds to its own, and takes nothing from theirs.
    """
    found: dict[Place, float] = defaultdict(float)
    for one, rate in pushed.items():
        if one.why == CAME or (one.region and one.why == FAILED):
            found[one.service, one.home] -= rate
        elif one.region:
            found[one.service, one.home] += rate
    return dict(found)


COALESCE = 0.1
"""Longest time, in seconds, that a new verdict waits for others to travel with it."""


class Verdicts:
    """Judges for one control process.

    Args:
        current: whose state has the verdicts.
        reports: what the vantages said.
        clock: POSIX seconds.
    """

    def __init__(self, current: Current, reports: Reports, clock: Callable[[], float]) -> None:
        self._current = current
        self._reports = reports
        self._clock = clock

    async def run(self) -> None:
        """Combine reports soon after they arrive, and once a second for those that grow stale, until cancelled."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._reports.heard.wait(), HEARTBEAT)
                await asyncio.sleep(COALESCE / 2)
            self._reports.heard.clear()
            self.judge()

    def judge(self) -> None:
        """Combine what the vantages say now; a verdict that differs makes a new state."""
        now = self._current.now
        self._reports.follow()
        judgement = self._reports.vantages.judge(now.compiled, self._reports.clients)
        if not self._reports.vantages.gathering:
            self._reports.history.judged(judgement.votes, self._clock())
        told = judgement.told
        addresses = judgement.addresses
        if _verdicts(told) != _verdicts(now.state.health) or any(
            _verdicts(addresses.get(family, {})) != _verdicts(now.state.addresses.get(family, {}))
            for family in FAMILIES
        ):
            self._current.become(now.with_state(self._clock(), health=told, addresses=addresses))


def _verdicts(health: HealthTable) -> dict[tuple[str, str], tuple[str, str]]:
    """What of health matters to edges: a changed latency alone is no news."""
    return {
        (region, url): (item.status.value, item.detail)
        for region, endpoints in health.items()
        for url, item in endpoints.items()
    }
