"""How an edge stands, as Prometheus gauges: its line to control, its policy, its own probes, its workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gtm.core.health.addresses import Addresses, address_of, url_of
from gtm.core.health.verdicts import HealthTable, ProbeResult
from gtm.core.model.state import HealthStatus
from gtm.feed.wire import SnapshotMessage
from gtm.runtime.edge.line.worker_id import WorkerId, WorkerKind
from gtm.telemetry import GaugeValue


@dataclass(frozen=True, slots=True)
class EdgeFacts:
    """What an edge knows of itself. Times in POSIX seconds; `heard` is when control was last heard, 0: never.

    `clock_spread` is as `gtm.core.decision.timekeeping.Times` has it, in seconds.
    `unsaved` is for how many seconds the disk has refused the policy; 0: it is there. `answering` maps its workers that listen to the revision they answer from.
    """

    connected: bool
    heard: float
    clock_spread: float
    unsaved: float
    snapshot: SnapshotMessage | None
    plan_made: float
    health: HealthTable
    probed: Mapping[tuple[str, str], ProbeResult]
    addresses: Addresses
    answering: Mapping[WorkerId, int]
    geoip_built: float


def edge_gauges(facts: EdgeFacts) -> Iterator[GaugeValue]:
    """The values of `gtm.telemetry.EDGE_GAUGES`."""
    snapshot = facts.snapshot
    for name, value in (
        ("gtm_edge_control_connected", facts.connected),
        ("gtm_edge_control_heard_timestamp_seconds", facts.heard),
        ("gtm_edge_clock_spread_seconds", facts.clock_spread),
        ("gtm_edge_revision", snapshot.revision if snapshot is not None else 0),
        ("gtm_edge_policy_timestamp_seconds", snapshot.created if snapshot is not None else 0),
        ("gtm_edge_plan_timestamp_seconds", facts.plan_made),
        ("gtm_edge_geoip_timestamp_seconds", facts.geoip_built),
        ("gtm_edge_policy_unsaved_seconds", facts.unsaved),
        ("gtm_edge_alone_seconds", 0),
    ):
        yield name, (), float(value)
    for kind in WorkerKind:
        listening = sum(worker.kind is kind for worker in facts.answering)
        yield "gtm_edge_workers", (kind.value,), float(listening)
    for region, endpoints in facts.health.items():
        for url, health in endpoints.items():
            for status in HealthStatus:
                yield "gtm_edge_endpoint_health", (region, url, status.value), float(health.status is status)
    for table in facts.addresses.values():
        for region, known in table.items():
            for key, one in known.items():
                labels = (region, url_of(key), address_of(key))
                for status in HealthStatus:
                    yield "gtm_edge_address_health", (*labels, status.value), float(one.status is status)
    for place, result in facts.probed.items():
        yield "gtm_edge_probe_timestamp_seconds", place, result.at
        if result.latency_ms is not None:
            yield "gtm_edge_probe_seconds", place, result.latency_ms / 1000
        if result.certificate is not None:
            yield "gtm_edge_certificate_expiry_timestamp_seconds", place, result.certificate.not_after
