"""What rules in monitor mode would have done to some requests, had they been enforced: each by itself, beside those that are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gtm.core.decision.fence import fence
from gtm.core.findings.coverage import UNKNOWN
from gtm.core.model.policy import ResidencyRule
from gtm.core.model.requests import LocationFacts, Request, location_facts
from gtm.core.policy.snapshot import CompiledRule, Snapshot


@dataclass(slots=True)
class Watched:
    """A rule in monitor mode.

    Of requests: `concerned` are those that it is about, `narrowed` those of them that it would have kept from regions that other rules
    leave them, and `refused` those that it would have left none; of the latter `countries` tells whose (empty: of unknown location).
    """

    rule: ResidencyRule
    concerned: float = 0.0
    narrowed: float = 0.0
    refused: float = 0.0
    countries: dict[str, float] = field(default_factory=dict)


_Alike = tuple[str, LocationFacts, str | None, str | None]


def monitored(snapshot: Snapshot, now: float, requests: Iterable[tuple[Request, float]]) -> list[Watched]:
    """The rules in monitor mode that are or will be in force, in the order written.

    Args:
        snapshot: the policy.
        now: POSIX seconds: requests are judged by what is in force then.
        requests: kinds of requests, and how many there were of each.
    """
    found = {
        rule.rule.name: Watched(rule.rule)
        for service in snapshot.services.values()
        for rule in service.rules
        if not rule.enforced and rule.ends > now
    }
    if not found:
        return []
    alike: dict[_Alike, tuple[Request, float]] = {}
    for request, count in requests:
        if request.service in snapshot.services:
            key = (request.service, location_facts(request.location), request.tenant, request.data_class)
            alike[key] = request, count + (alike[key][1] if key in alike else 0.0)
    rules = {name: _in_force(service.rules, now) for name, service in snapshot.services.items()}
    for request, count in alike.values():
        if any(not rule.enforced for rule in rules[request.service]):
            _count(found, snapshot.services[request.service].mask, rules[request.service], request, count)
    order = {rule.name: number for number, rule in enumerate(snapshot.policy.residency_rules)}
    return sorted(found.values(), key=lambda one: order[one.rule.name])


def watching(snapshot: Snapshot, now: float) -> list[str]:
    """The services that some rule in monitor mode watches at a POSIX time: no other's requests count."""
    return [
        name
        for name, service in snapshot.services.items()
        if any(not rule.enforced for rule in _in_force(service.rules, now))
    ]


def _in_force(rules: Iterable[CompiledRule], now: float) -> list[CompiledRule]:
    return [rule for rule in rules if rule.starts <= now < rule.ends]


def _count(
    found: Mapping[str, Watched],
    members: int,
    rules: Iterable[CompiledRule],
    request: Request,
    count: float,
) -> None:
    inside = fence(rules, members, request)
    for matched in inside.matched:
        rule = matched.compiled
        if rule.enforced:
            continue
        watched = found[rule.rule.name]
        watched.concerned += count
        left = inside.allowed & rule.allowed
        if left == inside.allowed:
            continue
        if left:
            watched.narrowed += count
            continue
        watched.refused += count
        country = request.location.country or UNKNOWN
        watched.countries[country] = watched.countries.get(country, 0.0) + count
