"""Which clients a policy leaves without a region: by law, and once a region is drained.

Services that share their rules share the work: a fence is the same for all of them but for their members.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gtm.core.decision.fence import matches_place, matches_statement
from gtm.core.model.countries import COUNTRIES
from gtm.core.model.policy import OnUnknownLocation
from gtm.core.model.problems import Problem
from gtm.core.model.references import some
from gtm.core.model.requests import Location, location_facts
from gtm.core.model.services import HostName, Service
from gtm.core.policy.snapshot import CompiledRule, CompiledService, Snapshot

UNKNOWN = ""
"""Stands for the country of clients that nobody can locate."""
CLIENTS = (*sorted(COUNTRIES), UNKNOWN)
"""The countries of clients: all, and none."""
_NOWHERE = location_facts(Location())

_Fences = Mapping[str, int]
"""Country → the mask of all regions that may serve its clients, whatever the service."""


@dataclass(frozen=True, slots=True)
class _Barred:
    """The rules that bind a kind of request: that of a client whose country alone is known."""

    fences: _Fences
    acknowledged: tuple[CompiledRule, ...]


def coverage(snapshot: Snapshot, now: float) -> Iterator[Problem]:
    """What the rules in force leave without a region.

    A service with host names is asked over DNS, by requests that state what the host name does: where that is neither
    tenant nor data class, every rule scoped by them concerns them. Of other services the requests are looked at that no
    such rule concerns.

    Args:
        snapshot: the policy.
        now: POSIX seconds.

    Yields:
        `no_region`: a service and the countries whose clients no member may serve. `no_active_region`: the same, where
        those that may are drained or disabled. `drain_empties`: a region, and the services and countries that would
        be left with none if it were drained, though the service has others.
    """
    by_rules: dict[tuple[int, ...], _Barred] = {}
    alone: dict[int, dict[str, list[str]]] = {}
    for name, service, host in _asked(snapshot):
        binding = rules_binding(service, host, now)
        by = f" (asked by `{host.name}`)" if host is not None and host != HostName(host.name) else ""
        key = tuple(map(id, binding))
        barred = by_rules.get(key)
        if barred is None:
            acknowledged = tuple(rule for rule in binding if rule.rule.acknowledge_empty_fence)
            fences = client_fences(binding, len(snapshot.regions))
            barred = by_rules[key] = _Barred(fences, acknowledged)
        for mask, countries in _by_mask(service, barred).items():
            active = mask & snapshot.active
            if not mask:
                text = f"none of its regions may serve {client_words(countries)}{by}"
                yield Problem(f"services.{name}", "no_region", text)
            elif not active:
                text = f"every region that may serve {client_words(countries)}{by} is drained or disabled"
                yield Problem(f"services.{name}", "no_active_region", text)
            elif active.bit_count() == 1 and service.mask & snapshot.active != active:
                left = alone.setdefault(active.bit_length() - 1, {})
                known = left.setdefault(name, [])
                known.extend(country for country in countries if country not in known)
    for number, services in sorted(alone.items()):
        listed = [f"`{name}` ({client_words(countries)})" for name, countries in services.items()]
        text = f"if it is drained, no other region may serve {some(listed, 'services')}"
        yield Problem(f"regions.{snapshot.regions[number].name}", "drain_empties", text)


def _asked(snapshot: Snapshot) -> Iterator[tuple[str, CompiledService, HostName | None]]:
    """Each service with a host name for everything that its host names state; None for a service without any."""
    for name, service in snapshot.services.items():
        if not service.service.hostnames:
            yield name, service, None
        for host in statements(service.service):
            yield name, service, host


def statements(service: Service) -> Iterator[HostName]:
    """The first of a service's host names for everything that these state."""
    alike = {(host.tenant, host.data_class): host for host in reversed(service.names)}
    yield from reversed(alike.values())


def rules_binding(service: CompiledService, host: HostName | None, now: float) -> list[CompiledRule]:
    """The enforced rules that may bind those who ask by a host name; None: by none, and state nothing."""
    return [
        rule
        for rule in service.rules
        if rule.enforced
        and rule.starts <= now < rule.ends
        and (rule.tenants is rule.data_classes is None if host is None else may_concern(rule, host))
    ]


def may_concern(rule: CompiledRule, host: HostName) -> bool:
    """Whether a rule may concern those who ask DNS by a host name, by what that states."""
    return matches_statement(rule.tenants, host.tenant) and matches_statement(
        rule.data_classes, host.data_class
    )


def client_fences(rules: Iterable[CompiledRule], regions: int) -> _Fences:
    """The fence of a client in each country, and in none that is known, by enforced rules and for any service.

    As `gtm.core.decision.fence.fence` has it, for all at once.

    Args:
        rules: those that concern what the request states.
        regions: how many there are.
    """
    everywhere = (1 << regions) - 1
    fences = dict.fromkeys(CLIENTS, everywhere)
    # Rules name few different sets of countries: what those of one set allow together is worked out first.
    together: dict[tuple[int, OnUnknownLocation], tuple[CompiledRule, int]] = {}
    for rule in rules:
        key = (id(rule.countries), rule.rule.on_unknown_location)
        allowed = together[key][1] if key in together else everywhere
        together[key] = rule, allowed & rule.allowed
    for rule, allowed in together.values():
        for country in concerned(rule):
            fences[country] &= allowed
    return fences


def concerned(rule: CompiledRule) -> Iterable[str]:
    """The countries whose clients a rule concerns, that of unknown location among them."""
    if rule.countries is None:
        return CLIENTS
    nowhere = matches_place(rule.rule, rule.countries, _NOWHERE) is not None
    return (*rule.countries, UNKNOWN) if nowhere else rule.countries


def _by_mask(service: CompiledService, barred: _Barred) -> dict[int, list[str]]:
    """What the fence is → for clients of which countries; without those refused by a rule that says it is meant."""
    meant = {
        country
        for rule in barred.acknowledged
        if not rule.allowed & service.mask
        for country in concerned(rule)
    }
    found: dict[int, list[str]] = {}
    for country in CLIENTS:
        if country not in meant:
            found.setdefault(barred.fences[country] & service.mask, []).append(country)
    return found


def client_words(countries: Sequence[str]) -> str:
    """The clients of some countries, of unknown location among them, in words."""
    if len(countries) == len(CLIENTS):
        return "any client"
    known = [country for country in countries if country != UNKNOWN]
    unknown = "clients of unknown location"
    if not known:
        return unknown
    if len(known) == len(CLIENTS) - 1:
        return "any client of known location"
    return f"clients in {some(known, 'countries')}" + (
        f" and {unknown}" if len(known) < len(countries) else ""
    )
