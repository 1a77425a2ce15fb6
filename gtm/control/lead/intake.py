"""What is kept of an edge's report: what the policy names, within bounds.

Law: what an edge says is published to all others and planned with, so nothing of it that the policy does not name goes any
further, however much of it there is. The rest of the report counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from math import isfinite

from gtm.control.lead.takeover import MAX_AHEAD, MAX_CLASSES
from gtm.core.demand.rows import Row
from gtm.core.health.addresses import FAMILIES, Addresses, address_key, judged_addresses
from gtm.core.health.history import Probed
from gtm.core.health.verdicts import HealthTable
from gtm.core.model.certificates import MAX_NAMES, MAX_TEXT, Certificate, ShownCertificate
from gtm.core.model.state import EndpointHealth, Plan
from gtm.core.policy.snapshot import Snapshot
from gtm.core.quota.leases import LeaseUse
from gtm.core.quota.names import QuotaName, QuotaText
from gtm.feed.reports import EdgeReport

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
