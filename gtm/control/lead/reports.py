"""Edges' reports, taken in: what they see to the vantages, what they count to demand, what they measure to round trips.

`Verdicts` tells what the vantages say together: it is a new state as soon as it differs.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from math import inf, isfinite
from typing import NamedTuple

from gtm.control.lead.demand import DemandBook, Place, RateBook, Reported
from gtm.control.lead.latency import LatencyBook, successors
from gtm.control.lead.leases import Leases
from gtm.control.lead.takeover import MAX_AHEAD, MAX_CLASSES, Takeover
from gtm.control.lead.vantages import LiveEdge, Vantages
from gtm.control.live.present import Current
from gtm.control.live.subscribers import HEARTBEAT
from gtm.core.balance.spill.room import CAME, FAILED
from gtm.core.demand import belief
from gtm.core.demand.rows import Row
from gtm.core.health.addresses import FAMILIES, Addresses, address_key, judged_addresses
from gtm.core.health.history import History, Probed
from gtm.core.health.verdicts import HealthTable
from gtm.core.model.certificates import MAX_NAMES, MAX_TEXT, Certificate, ShownCertificate
from gtm.core.model.state import EndpointHealth, Plan
from gtm.core.policy.snapshot import Snapshot
from gtm.core.quota.leases import LeaseUse
from gtm.core.quota.names import QuotaName, QuotaText
from gtm.feed.reports import EdgeReply, EdgeReport

# What is kept of an edge's report: what the policy names, within bounds.
#
# Law: what an edge says is published to all others and planned with, so nothing of it that the policy does not name goes any
# further, however much of it there is. The rest of the report counts.

MAX_DETAIL = 200
"""Characters kept of what an edge says of an endpoint."""
MAX_LEASES = 10_000
"""Quotas kept of a report while no policy is loaded to tell which there are."""
_MAX_LATENCY = 1e7
_DNS_PART = re.compile(
    r"answered\t[A-Za-z0-9]{1,12}\t[A-Z]{1,12}\t[a-z]{1,12}|(limited|dropped)\t[a-z_]{1,40}", re.ASCII
)


class ReportIntake:
    """Reads reports against one policy. `dropped` counts what was left out of them, by part of the report.

    Args:
        snapshot: the policy in force; None: none is loaded yet.
    """

    def __init__(self, snapshot: Snapshot | None, dropped: Counter[str]) -> None:
        self.snapshot = snapshot
        self.dropped = dropped
        policy = snapshot.policy if snapshot is not None else None
        self._endpoints = (
            {region.name: frozenset(one.url for one in region.endpoints) for region in policy.regions}
            if policy
            else {}
        )
        judged: dict[tuple[str, str], set[str]] = {}
        for region in policy.regions if policy else ():
            for family, endpoint, address in judged_addresses(region):
                judged.setdefault((family, region.name), set()).add(address_key(endpoint.url, address))
        self._judged: Mapping[tuple[str, str], Collection[str]] = judged
        self._services = frozenset(snapshot.services) if snapshot is not None else frozenset()
        self._quotas = frozenset(
            [
                *(QuotaName(rule.name).text for rule in policy.spillover_rules),
                *(QuotaName(name, into=True).text for name in self._endpoints),
            ]
            if policy
            else ()
        )

    def read(self, report: EdgeReport, now: float) -> EdgeReport:
        """What of a report counts at a POSIX time. Rows of demand are left to `wanted`, when they are first seen."""
        return replace(
            report,
            health=self._health(report.health, now),
            leases=None if report.leases is None else self._leases(report.leases),
            plan=None if report.plan is None else self._plan(report.plan, now),
            addresses=None if report.addresses is None else self._addresses(report.addresses, now),
            overruled=tuple(name for name in report.overruled if name in self._endpoints),
            corrections=self._corrections(report.corrections),
            dns=None if report.dns is None else self._dns(report.dns),
            probed=None if report.probed is None else self._probed(report.probed),
            certificates=None if report.certificates is None else self._certificates(report.certificates),
        )

    def wanted(self, row: Row) -> bool:
        """Whether demand of a row counts."""
        known = row.service in self._services and (not row.region or row.region in self._endpoints)
        if not known:
            self.dropped["demand"] += 1
        return known

    def _health(self, health: HealthTable, now: float) -> dict[str, dict[str, EndpointHealth]]:
        found = {}
        for region, endpoints in health.items():
            known = self._endpoints.get(region, frozenset())
            kept = {url: _bounded(one, now) for url, one in endpoints.items() if url in known}
            self.dropped["health"] += len(endpoints) - len(kept)
            if kept:
                found[region] = kept
        return found

    def _addresses(self, addresses: Addresses, now: float) -> dict[str, dict[str, dict[str, EndpointHealth]]]:
        """Those that the policy has, each in its family, and where it has them probed."""
        found: dict[str, dict[str, dict[str, EndpointHealth]]] = {family: {} for family in FAMILIES}
        left_out = sum(len(known) for table in addresses.values() for known in table.values())
        for family in FAMILIES:
            for region, told in addresses.get(family, {}).items():
                wanted = self._judged.get((family, region), frozenset())
                kept = {key: _bounded(one, now) for key, one in told.items() if key in wanted}
                left_out -= len(kept)
                if kept:
                    found[family][region] = kept
        self.dropped["addresses"] += left_out
        return found

    def _corrections(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Those between two regions; what the plan refused comes from none."""
        found = {}
        for pair, count in counts.items():
            drawn, _, taken = pair.partition("\t")
            if taken in self._endpoints and (not drawn or drawn in self._endpoints):
                found[pair] = count
        self.dropped["corrections"] += len(counts) - len(found)
        return found

    def _dns(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Those whose words could be a type's, a response code's and the like."""
        found = {part: count for part, count in counts.items() if _DNS_PART.fullmatch(part)}
        self.dropped["dns"] += len(counts) - len(found)
        return found

    def _probed(self, told: tuple[Probed, ...]) -> tuple[Probed, ...]:
        found = tuple(
            one._replace(
                ms=one.ms if one.ms is not None and 0 <= one.ms <= _MAX_LATENCY else None,
                status=one.status if one.status is not None and 0 <= one.status <= 999 else None,
                failure=_interned(one.failure[:MAX_DETAIL]),
            )
            for one in told
            if one.url in self._endpoints.get(one.region, ())
        )
        self.dropped["probes"] += len(told) - len(found)
        return found

    def _certificates(self, told: tuple[ShownCertificate, ...]) -> tuple[ShownCertificate, ...]:
        """One of each endpoint."""
        found = {
            (one.region, one.url): replace(one, certificate=_shared(_cut(one.certificate)))
            for one in told
            if one.url in self._endpoints.get(one.region, ())
        }
        self.dropped["certificates"] += len(told) - len(found)
        return tuple(found.values())

    def _leases(self, use: LeaseUse) -> LeaseUse:
        def known(names: Iterable[QuotaText]) -> frozenset[QuotaText]:
            if self.snapshot is None:
                return frozenset(sorted(names)[:MAX_LEASES])
            return self._quotas.intersection(names)

        used, denied = known(use.used), known(use.denied)
        held = known(lease.quota for lease in use.held)
        # One lease of a quota: an edge holds no two.
        leases = {lease.quota: lease for lease in use.held if lease.quota in held}
        self.dropped["leases"] += (
            len(use.used) + len(use.denied) + len(use.held) - len(used) - len(denied) - len(leases)
        )
        return replace(
            use,
            used={name: use.used[name] for name in used},
            denied={name: use.denied[name] for name in denied},
            held=tuple(leases.values()),
        )

    def _plan(self, plan: Plan, now: float) -> Plan | None:
        """The plan as far as the policy names what is in it; None if it cannot have been made."""
        if plan.made > now + MAX_AHEAD or len(plan.classes) > MAX_CLASSES:
            self.dropped["plan"] += 1
            return None
        snapshot = self.snapshot
        if snapshot is None:
            return plan
        most = len(snapshot.tenants) + 1  # requests that state none are one as well
        classes = {
            key: one
            for key, one in plan.classes.items()
            if one.weights.keys() <= self._endpoints.keys() and len(one.tenants) <= most
        }
        self.dropped["plan"] += len(plan.classes) - len(classes)
        return Plan(
            plan.made,
            classes,
            {
                region: price
                for region, price in plan.prices.items()
                if region in self._endpoints and isfinite(price)
            },
            {},
            {service: at for service, at in plan.moving.items() if service in self._services},
        )


def _bounded(one: EndpointHealth, now: float) -> EndpointHealth:
    """A verdict whose numbers make sense: nothing is since the future, or answers in less than no time."""
    latency = one.latency_ms
    return replace(
        one,
        tied=False,  # it is control that says so
        since=min(max(one.since, 0.0), now) if isfinite(one.since) else now,
        detail=_interned(one.detail[:MAX_DETAIL]),
        latency_ms=latency if latency is not None and 0 <= latency <= _MAX_LATENCY else None,
    )


def _cut(one: Certificate) -> Certificate:
    """A certificate with no more of its texts than a probe keeps: those that many edges tell are remembered for long."""
    return replace(
        one,
        subject=one.subject[:MAX_TEXT],
        issuer=one.issuer[:MAX_TEXT],
        names=tuple(name[:MAX_TEXT] for name in one.names[:MAX_NAMES]),
    )


@lru_cache(4096)
def _shared(one: Certificate) -> Certificate:
    """One copy of a certificate that many edges see."""
    return one


@lru_cache(4096)
def _interned(text: str) -> str:
    """One copy of a text that many edges send."""
    return text


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
