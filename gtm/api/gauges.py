"""What goes on this second, as Prometheus gauges: worked out from memory when they are scraped.

Labels only ever take values from the policy, from names of edges and tokens, or from closed sets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic, thread_time, time
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from gtm.control.lead.election import Standing
from gtm.control.lead.vantages import LiveEdge
from gtm.control.overview import Moment, moment_of, top_document
from gtm.control.replica import Replica
from gtm.core.health.addresses import families_of
from gtm.core.health.alarm import Alarm
from gtm.core.model.state import HealthStatus
from gtm.core.signing.keys import expiry
from gtm.storage.errors import UP

REST = 4.0
"""How many times what a look took (of a processor) it is shown: scrapers take at most a fifth of one."""
_OF_REGION: Mapping[str, tuple[str, str]] = {
    "gtm_region_outstanding": ("outstanding", "Requests in a region, as it reported last."),
    "gtm_region_queue": ("queue", "Requests that wait in a region, as it reported last."),
    "gtm_region_limit": ("limit", "Slots of a region: the lesser of declared and reported."),
    "gtm_region_usable_slots": ("usable", "Slots of a region that plans may use."),
    "gtm_region_load_report_age_seconds": ("report_age", "Age of a region's newest load report."),
    "gtm_region_service_time_seconds": ("service_time_ms", "How long a request occupies a region."),
    "gtm_region_demand": ("demand", "Requests per second whose home a region is."),
    "gtm_region_decided": ("decided", "Requests per second that edges send to a region."),
    "gtm_region_planned": ("planned", "Requests per second that the plan has for a region."),
    "gtm_region_price_ms": ("price_ms", "What one more request a second there would cost all others, in ms."),
    "gtm_region_exhausted": ("exhausted", "1 if the plan uses up a region's capacity."),
}
"""Gauge of a region → its key in `top_document`, and its help. Times there are in ms."""
_BY_LABELS: Mapping[tuple[str, ...], Mapping[str, str]] = {
    (): {
        "gtm_control_feed_subscribers": "Edges that follow the feed.",
        "gtm_control_feed_balancers": "Balancers that follow the feed.",
        "gtm_control_revision": "The policy revision published; 0: none.",
        "gtm_control_revisions_lost": "Revisions that edges or balancers hold and the database has lost; who holds one is sent no policy. 0 is well.",
        "gtm_control_policy_timestamp_seconds": "When the policy in force was written; 0: there is none.",
        "gtm_control_epoch": "The epoch of the state published.",
        "gtm_control_database_up": "1 if the database would have taken a change when last asked.",
        "gtm_control_dnssec_problem": "1 if DNSSEC keys cannot be made, rolled or read.",
        "gtm_control_dnssec_expiry_timestamp_seconds": "When the first signature over a zone's keys ends; 0: no zone is signed.",
        "gtm_control_doubtful_networks": "Networks whose claimed location measured round trips contradict.",
        "gtm_control_edges_live": "Edges heard of within the last 10 seconds.",
        "gtm_control_active": "1 if this control is the active one of those on its database.",
        "gtm_control_standbys": "Control processes that stand by for this one.",
        "gtm_control_health_disputed_regions": "Regions whose verdict is withdrawn because too many went down at once by votes alone.",
        "gtm_control_feed_refused": "Parts of the feed too large to be sent; edges keep the ones before.",
        "gtm_plan_timestamp_seconds": "When the plan in force was made; 0: there is none.",
        "gtm_plan_seconds": "What the last plan took to make.",
        "gtm_plan_failed": "1 if the last try to plan failed, so that the plan before stays.",
    },
    ("edge",): {
        "gtm_control_edge_report_timestamp_seconds": "When an edge last reported to this control.",
        "gtm_control_edge_revision": "The policy revision that an edge answers from.",
    },
    ("region", "status"): {
        "gtm_region_health": "1 for the status that the vantages agree on (up, down, unknown), 0 for the others.",
    },
    ("region", "family", "status"): {
        "gtm_region_family_health": "1 for a region's status in a family (ipv4, ipv6), by the addresses that DNS gives out (up, down, unknown), 0 for the others.",
    },
    ("region", "state"): {
        "gtm_region_admin_state": "1 for what the operator wants of a region (active, draining, disabled).",
    },
    ("region", "endpoint", "status"): {
        "gtm_endpoint_vantages": "Edges that see an endpoint as up, down or unknown.",
    },
    ("region", "endpoint"): {
        "gtm_endpoint_probe_seconds": "Time of the probes of an endpoint, the median of the vantages.",
    },
    ("from", "to"): {
        "gtm_spill": "Requests per second served elsewhere than at home, as edges decide.",
    },
    ("quota",): {
        "gtm_quota_allowed": "Requests per second that a spillover quota allows.",
        "gtm_quota_planned": "Requests per second that the plan spills under a quota.",
    },
    ("service", "outcome"): {
        "gtm_refused": "Requests per second refused, by outcome.",
    },
}
"""Label names → gauges with those, and their help."""
GAUGES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    **{name: (text, labels) for labels, gauges in _BY_LABELS.items() for name, text in gauges.items()},
    **{name: (text, ("region",)) for name, (_, text) in _OF_REGION.items()},
}
"""Name → help and label names."""


class ControlGauges(Collector):
    """What a control process knows, as of the last `look`; nothing before the first.

    A look at a large policy takes up to a second of a processor, and scrapers ask as often as they like. So looks are taken
    beside the event loop, one at a time, and each is shown for a while (`REST`).

    Args:
        replica: that process.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._seen: list[_Value] = []
        self._until = 0.0
        self._looking = asyncio.Lock()

    async def look(self) -> None:
        """Look at it, unless the last look was so lately that it has to do."""
        async with self._looking:
            if monotonic() < self._until:
                return
            asked = monotonic()
            active = self._replica.active
            moment = await moment_of(self._replica.now, active, time())
            waited, began = monotonic() - asked, thread_time()
            edges = active.reports.vantages.live() if active is not None else []
            ours = [*_of_control(self._replica, moment, edges)]
            spent = thread_time() - began
            theirs, more = await asyncio.to_thread(_of_world, moment, edges)
            self._seen = [*ours, *theirs]
            self._until = monotonic() + REST * (waited + spent + more)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Names alone, for the registry to find clashes by."""
        for name, (text, labels) in GAUGES.items():
            yield GaugeMetricFamily(name, text, labels=labels)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All of them, as they were seen."""
        families = {family.name: family for family in self.describe()}
        for name, labels, value in self._seen:
            if value is not None:
                families[name].add_metric(list(labels), float(value))
        yield from families.values()


class ReportsDropped(Collector):
    """What was left out of reports, counted where they are read."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def collect(self) -> Iterator[CounterMetricFamily]:
        """The counter as it is now."""
        found = CounterMetricFamily(
            "gtm_control_report_dropped",
            "Items of edges' and balancers' reports that were left out: the policy does not name them, or they came too often.",
            labels=("part",),
        )
        active = self._replica.active
        for part in _PARTS:
            count = 0 if active is None else active.reports.dropped[part] + active.balancers.dropped[part]
            found.add_metric((part,), count)
        for part in _ROOM_PARTS:
            found.add_metric((part,), active.rooms.dropped[part] if active is not None else 0)
        yield found


_Value = tuple[str, tuple[str, ...], float | None]
_ROOM_PARTS = ("room_reports", "room_parts")
_PARTS = (
    "health",
    "demand",
    "corrections",
    "leases",
    "plan",
    "addresses",
    "dns",
    "probes",
    "certificates",
    "history",
)


def _of_world(moment: Moment, edges: Sequence[LiveEdge]) -> tuple[list[_Value], float]:
    """Of regions, endpoints, spillover, quotas and refusals; and what it took, in seconds of a processor.

    For any thread: what it reads is replaced when it changes, never changed in place.
    """
    began = thread_time()
    found = [*_of_endpoints(moment, edges)]
    top = top_document(moment, edges, database=UP)
    for region in top["regions"]:
        found += _of_region(region)
    for way in top["spill"]:
        found.append(("gtm_spill", (way["from"], way["to"]), way["requests_per_second"]))
    for quota in top["quotas"]:
        found.append(("gtm_quota_allowed", (quota["name"],), quota["allowed"]))
        found.append(("gtm_quota_planned", (quota["name"],), quota["planned"]))
    for refused in top["refusals"]:
        labels = refused["service"], refused["outcome"]
        found.append(("gtm_refused", labels, refused["requests_per_second"]))
    return found, thread_time() - began


def _of_control(replica: Replica, moment: Moment, edges: Sequence[LiveEdge]) -> Iterator[_Value]:
    present, active, planned = replica.now, replica.active, moment.planned
    disputed = active.latency.disputed if active is not None else ()
    alarm = active.reports.vantages.judgement.alarm if active is not None else Alarm()
    for name, value in (
        ("gtm_control_feed_subscribers", replica.subscribers.count),
        ("gtm_control_feed_balancers", replica.subscribers.balancers.total()),
        ("gtm_control_revision", moment.revision),
        ("gtm_control_revisions_lost", sum(fork.up_to - fork.after for fork in present.forks)),
        (
            "gtm_control_policy_timestamp_seconds",
            present.message.created if present.message is not None else 0,
        ),
        ("gtm_control_epoch", moment.epoch),
        ("gtm_control_database_up", present.database == UP),
        ("gtm_control_dnssec_problem", bool(replica.dnssec.problem)),
        ("gtm_control_doubtful_networks", sum(one.doubt.doubtful for one in disputed)),
        ("gtm_control_dnssec_expiry_timestamp_seconds", expiry(present.keys)),
        ("gtm_control_edges_live", len(edges)),
        ("gtm_control_active", replica.election.standing is Standing.ACTIVE),
        ("gtm_control_standbys", replica.election.standbys),
        ("gtm_control_health_disputed_regions", len(alarm.disputed)),
        ("gtm_control_feed_refused", len(replica.subscribers.refused)),
        ("gtm_plan_timestamp_seconds", planned.plan.made),
        ("gtm_plan_seconds", planned.seconds),
        ("gtm_plan_failed", bool(planned.error)),
    ):
        yield name, (), value
    if active is not None:
        judged = active.reports.vantages.judgement
        for region in present.policy.regions:
            known = families_of(region, judged.votes.get(region.name, {}), judged.address_votes)
            for family, found in known.items():
                for status in HealthStatus:
                    yield "gtm_region_family_health", (region.name, family, status.value), found is status
    for name, edge in {edge.name: edge for edge in replica.edges()}.items():
        yield "gtm_control_edge_report_timestamp_seconds", (name,), edge.seen_at.timestamp()
        yield "gtm_control_edge_revision", (name,), edge.report.revision


def _of_endpoints(moment: Moment, edges: Sequence[LiveEdge]) -> Iterator[_Value]:
    reports = [edge.report.health for edge in edges]
    for region in moment.regions:
        for endpoint in region.endpoints:
            agreed = moment.health.get(region.name, {}).get(endpoint.url)
            place = (region.name, endpoint.url)
            if agreed is not None and agreed.latency_ms is not None:
                yield "gtm_endpoint_probe_seconds", place, agreed.latency_ms / 1000
            seen = [
                table[region.name][endpoint.url].status
                for table in reports
                if endpoint.url in table.get(region.name, {})
            ]
            for status in HealthStatus:
                yield "gtm_endpoint_vantages", (*place, status.value), seen.count(status)


def _of_region(region: Mapping[str, Any]) -> Iterator[_Value]:
    name = region["region"]
    for status in HealthStatus:
        yield "gtm_region_health", (name, status.value), region["health"] is status
    yield "gtm_region_admin_state", (name, region["admin_state"].value), 1
    for metric, (key, _) in _OF_REGION.items():
        value = region[key]
        yield metric, (name,), value / 1000 if key == "service_time_ms" and value is not None else value
