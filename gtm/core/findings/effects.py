"""Settings that are legal where they stand and decide nothing there: said when they are written, not found out in an incident.

Each check names what would have to be otherwise for the setting to count. A setting at its default is nobody's statement,
and never found.
"""

from __future__ import annotations

from collections.abc import Iterator

from gtm.core.model.policy import Policy
from gtm.core.model.problems import Problem
from gtm.core.model.regions import Capacity, Probe, ProbeType, Region, SpillIn
from gtm.core.model.services import (
    PLANNED,
    Affinity,
    Families,
    Member,
    OnOverload,
    RefusalAddress,
    Service,
    Steering,
)

_PROBE = Probe()
_HTTP_ONLY = ("path", "host", "expected_status", "body_regex", "json_field", "json_value")


def effect_findings(policy: Policy) -> Iterator[Problem]:
    """Every setting of regions, services and spillover rules that has no effect: code `without_effect`."""
    sticky = any(service.affinity is not Affinity.NONE for service in policy.services)
    bounded = _bounded(policy)
    for service in policy.services:
        for field, text in _of_service(service):
            yield Problem(f"services.{service.name}.{field}", "without_effect", text)
    for region in policy.regions:
        for field, text in (
            *_of_region(region, bounded=region.name in bounded, sticky=sticky),
            *_of_probe(region),
        ):
            yield Problem(f"regions.{region.name}.{field}", "without_effect", text)
    planned = {
        member.region
        for service in policy.services
        if service.steering in PLANNED
        for member in service.members
    }
    for rule in policy.spillover_rules:
        if rule.from_region not in planned:
            text = "no service whose steering is `latency` or `geo` has this region, and others never spill"
            yield Problem(f"spillover_rules.{rule.name}.from_region", "without_effect", text)


def _bounded(policy: Policy) -> set[str]:
    """Regions of which some capacity is declared, for themselves or for a service."""
    found = {region.name for region in policy.regions if region.capacity != Capacity()}
    return found | {
        member.region
        for service in policy.services
        for member in service.members
        if member.capacity != Capacity()
    }


def _of_service(service: Service) -> Iterator[tuple[str, str]]:
    yield from _of_steering(service)
    given = {
        "zone": service.zone is not None,
        "refusal": service.refusal != RefusalAddress(),
        "families": service.families is not Families.TOGETHER,
        "max_answers": service.max_answers is not None,
    }
    if not service.hostnames:
        yield from ((field, "a service without host names is not in DNS") for field in given if given[field])
    if service.min_ttl != Service("", ()).min_ttl and service.min_ttl >= service.ttl:
        yield "min_ttl", f"`ttl` is {service.ttl} s already"
    given = {"affinity": service.affinity is not Affinity.NONE, "exploration": service.exploration > 0}
    if len(service.members) == 1:
        yield from ((field, "the service has one member only") for field in given if given[field])


def _of_steering(service: Service) -> Iterator[tuple[str, str]]:
    steering = service.steering
    if steering is not Steering.WEIGHTED:
        text = (
            f"steering `{steering}` does not look at weights but for 0: use `steering: weighted`, or `share` for a fixed "
            "share of clients"
        )
        for index, member in enumerate(service.members):
            if member.weight not in (0.0, Member("").weight):
                yield f"members[{index}].weight", text
    if steering not in PLANNED:
        text = f"steering `{steering}` is not planned by capacity"
        if service.service_time_ms is not None:
            yield "service_time_ms", text
        if service.on_overload is not OnOverload.SHED:
            yield "on_overload", f"{text}: nothing is ever shed"


def _of_region(region: Region, *, bounded: bool, sticky: bool) -> Iterator[tuple[str, str]]:
    usual = Region("", 0.0, 0.0, "", ())
    unbounded = "it is a share of a capacity, and none is declared; reports of a `limit` would be one"
    if region.reserve != usual.reserve and not bounded:
        yield "reserve", unbounded
    if region.spill_in == SpillIn(max_share=region.spill_in.max_share) != SpillIn() and not bounded:
        yield "spill_in.max_share", unbounded
    if region.drain_deadline != usual.drain_deadline and not sticky:
        yield "drain_deadline", "no service has `affinity`: all clients leave a draining region at once"


def _of_probe(region: Region) -> Iterator[tuple[str, str]]:
    probe = region.probe
    if not probe.addresses and not any(endpoint.ipv4 or endpoint.ipv6 for endpoint in region.endpoints):
        yield "probe.addresses", "no endpoint of the region has an address that could be probed"
    if probe.type is ProbeType.TCP:
        for field in _HTTP_ONLY:
            if getattr(probe, field) != getattr(_PROBE, field):
                yield f"probe.{field}", "a probe of type `tcp` only connects"
    if probe.type is not ProbeType.HTTPS and not probe.verify_tls:
        yield "probe.verify_tls", f"a probe of type `{probe.type}` has no certificate to look at"
