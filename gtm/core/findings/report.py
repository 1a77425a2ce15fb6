"""What is legal to write in a policy, and yet probably not meant.

Every finding is a `Problem` with a path and a code, but none that keeps a policy from being put in force.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from gtm.core.findings.coverage import (
    client_fences,
    client_words,
    concerned,
    coverage,
    may_concern,
    rules_binding,
    statements,
)
from gtm.core.findings.matrix import naming, unruled
from gtm.core.findings.shadows import find_shadows
from gtm.core.model.cors import ANY
from gtm.core.model.policy import OnAnonymous, OnDoubtfulLocation, OnUnknownLocation, Policy, ResidencyRule
from gtm.core.model.problems import Problem
from gtm.core.model.references import some, utc
from gtm.core.model.regions import AddressFamily, Capacity, Probe, ProbeType, Region, SpillIn
from gtm.core.model.services import (
    PLANNED,
    Affinity,
    Families,
    HostName,
    HttpAnswer,
    Member,
    NameServer,
    OnOverload,
    Push,
    RefusalAddress,
    Service,
    Steering,
)
from gtm.core.policy.edges import binding_edges, inside, place_of, stands_inside
from gtm.core.policy.jurisdictions import Membership, countries_at
from gtm.core.policy.snapshot import CompiledRule, CompiledService, Snapshot, bits

ERRORS = frozenset({"empty_a"})
"""Findings that `gtm check` fails for: clients would lose a service by them. What is in force stays in force."""
SOON = 180 * 86_400.0
"""Seconds before the end of a membership from which on it is mentioned."""
SHORT_AGE = 10.0
"""Seconds within which an edge notices that its line to control is gone (5 s of silence), and has another."""


def findings(snapshot: Snapshot, now: float) -> tuple[Problem, ...]:
    """Everything about a policy that its authors may want to look at again.

    Args:
        snapshot: the policy; its size is bounded by `gtm.documents.schema`, and the time this takes by that (seconds).
        now: POSIX seconds.

    Returns:
        By code: `rule_over`, `matches_nobody`, `without_effect`, `short_policy_age`, `shadowed`, `not_compared`,
        `membership_ends`, `no_rule`, those of `gtm.core.findings.coverage` and `effect_findings`, and those that
        are said below. Those of zones are `gtm.dns.zone.findings`'s.
    """
    return (
        *_of_rules(snapshot, now),
        *_of_shadows(snapshot, now),
        *_of_memberships(snapshot, now),
        *_of_unruled(snapshot, now),
        *coverage(snapshot, now),
        *pinned(snapshot, now),
        *edge_findings(snapshot, now),
        *capacity_findings(snapshot.policy),
        *effect_findings(snapshot.policy),
        *redirect_findings(snapshot.policy),
        *carry_findings(snapshot, now),
        *family_findings(snapshot, now),
    )


def _of_rules(snapshot: Snapshot, now: float) -> Iterator[Problem]:
    membership = snapshot.jurisdictions
    for rule in snapshot.policy.residency_rules:
        path = f"residency_rules.{rule.name}"
        if rule.effective_until is not None and rule.effective_until.timestamp() <= now:
            text = "was in force until then, and is no more: it matches nothing now"
            yield Problem(f"{path}.effective_until", "rule_over", text)
        elif _covers_nobody(rule.match.client_countries, rule.match.client_jurisdictions, membership, now):
            text = "these jurisdictions cover no country: only clients of uncertain location match"
            yield Problem(f"{path}.match.client_jurisdictions", "matches_nobody", text)
        elif _covers_nobody(rule.match.tenants, rule.match.tenant_jurisdictions, membership, now):
            text = "these jurisdictions cover no country: only tenants of unknown establishment match"
            yield Problem(f"{path}.match.tenant_jurisdictions", "matches_nobody", text)
        yield from _of_establishment(path, rule, snapshot.policy)
        if rule.max_policy_age is not None and rule.max_policy_age < SHORT_AGE:
            text = (
                f"{rule.max_policy_age:g} s is less than the {SHORT_AGE:g} s within which an edge notices a lost line to "
                "control and has another: short losses will refuse what the rule concerns"
            )
            yield Problem(f"{path}.max_policy_age", "short_policy_age", text)
        yield from _without_effect(path, rule)


def _covers_nobody(
    named: tuple[str, ...], jurisdictions: tuple[str, ...], membership: Membership, now: float
) -> bool:
    """Whether jurisdictions that a rule names, and nothing beside, are nobody's, now and later."""
    if named or not jurisdictions:
        return False
    return not any(
        countries
        for name in jurisdictions
        for countries in (
            countries_at(membership[name], now),
            *(later for moment, later in membership[name] if moment > now),
        )
    )


def _of_establishment(path: str, rule: ResidencyRule, policy: Policy) -> Iterator[Problem]:
    """Tenants whom a rule by establishment concerns only because nobody wrote where they are established."""
    unknown = [tenant.name for tenant in policy.tenants if tenant.country is None]
    if rule.match.tenant_jurisdictions and unknown:
        text = f"concerns {some(unknown, 'tenants')} too, for want of their `country`"
        yield Problem(f"{path}.match.tenant_jurisdictions", "establishment_unknown", text)


def _without_effect(path: str, rule: ResidencyRule) -> Iterator[Problem]:
    unlocated = rule.on_unknown_location is OnUnknownLocation.IGNORE
    scoped = rule.match.client_countries or rule.match.client_jurisdictions
    for name, given in (
        ("on_unknown_location", unlocated),
        ("on_anonymous", rule.on_anonymous is OnAnonymous.TRUST),
        ("on_doubtful_location", rule.on_doubtful_location is OnDoubtfulLocation.TRUST),
        ("max_accuracy_km", rule.max_accuracy_km is not None),
    ):
        if given and not scoped:
            text = "has no effect on a rule that does not look at where clients are"
            yield Problem(f"{path}.{name}", "without_effect", text)
        elif given and unlocated and name in {"max_accuracy_km", "on_doubtful_location"}:
            text = "has no effect beside `on_unknown_location: ignore`"
            yield Problem(f"{path}.{name}", "without_effect", text)


def _of_shadows(snapshot: Snapshot, now: float) -> Iterator[Problem]:
    shadows = find_shadows(snapshot, now)
    for shadow in shadows.found:
        text = f"adds nothing: `{shadow.by}` concerns everyone whom it concerns, and excludes every region it excludes"
        yield Problem(f"residency_rules.{shadow.rule}", "shadowed", text)
    if shadows.unchecked:
        text = f"{shadows.unchecked} rules were not compared with the others: too many are alike in whom they concern"
        yield Problem("residency_rules", "not_compared", text)


def _of_memberships(snapshot: Snapshot, now: float) -> Iterator[Problem]:
    """Countries that have left, or soon leave, a jurisdiction that rules name."""
    for name, rules in sorted(naming(snapshot.policy.residency_rules).items()):
        periods = snapshot.jurisdictions[name]
        today = countries_at(periods, now)
        for (_, before), (moment, after) in pairwise(periods):
            lost = before - after - (today if moment <= now else frozenset())
            if not lost or moment > now + SOON:
                continue
            text = (
                f"does not cover {', '.join(sorted(lost))} from {utc(moment)} on; "
                f"it is named by {some(rules, 'rules')}"
            )
            yield Problem(f"jurisdictions.{name}", "membership_ends", text)


def _of_unruled(snapshot: Snapshot, now: float) -> Iterator[Problem]:
    """Services that no enforced rule concerns, now or later. A policy without rules has nothing to forget."""
    for name, watched in unruled(snapshot, now):
        monitored = "; those in monitor mode only watch it" if watched else ""
        text = f"no residency rule concerns it: its clients may be served in any of its regions{monitored}"
        yield Problem(f"services.{name}", "no_rule", text)


# --- Which services DNS keeps inside a fence that concerns some tenants or data classes only.
#
# DNS states neither, unless the host name does, and what is not said counts as a match: one customer's rule then holds for
# everyone who asks DNS.


@dataclass(slots=True)
class _Pin:
    """Rules that hold for the same clients of some host names, and what these names do not state."""

    rules: dict[str, int] = field(default_factory=dict)
    hosts: dict[str, None] = field(default_factory=dict)
    unstated: dict[str, None] = field(default_factory=dict)


def pinned(snapshot: Snapshot, now: float) -> Iterator[Problem]:
    """Services whose host names are answered, for everyone, as a rule for some tenants or data classes asks.

    Args:
        snapshot: the policy.
        now: POSIX seconds.

    Yields:
        `dns_pinned`: a service, the rules, the host names, which regions DNS can still answer with, and what to do. Of
        rules about clients in different countries, each such set is told by itself.
    """
    for name, service in snapshot.services.items():
        pins: dict[tuple[str, ...], _Pin] = {}
        for host in service.service.names:
            for rule, unstated in _pinning(service, host, now):
                pin = pins.setdefault(tuple(sorted(concerned(rule))), _Pin())
                pin.rules[rule.rule.name] = pin.rules.get(rule.rule.name, -1) & rule.allowed
                pin.hosts[host.name] = None
                pin.unstated.update(dict.fromkeys(unstated))
        for clients, pin in pins.items():
            text = _sentence(snapshot, service, clients, pin)
            yield Problem(f"services.{name}.hostnames", "dns_pinned", text)


def _pinning(
    service: CompiledService, host: HostName, now: float
) -> Iterator[tuple[CompiledRule, list[str]]]:
    """The rules in force that hold for all who ask by a name for want of a statement, and the statements wanted."""
    for rule in service.rules:
        if rule.tenants is rule.data_classes is None or not rule.enforced or not service.mask & ~rule.allowed:
            continue
        wanted = (("tenant", rule.tenants, host.tenant), ("data class", rule.data_classes, host.data_class))
        unstated = [what for what, about, said in wanted if about is not None and said is None]
        if unstated and rule.starts <= now < rule.ends and may_concern(rule, host):
            yield rule, unstated


def _sentence(snapshot: Snapshot, service: CompiledService, clients: tuple[str, ...], pin: _Pin) -> str:
    left = service.mask
    for allowed in pin.rules.values():
        left &= allowed
    names = [f"`{name}`" for name in pin.rules]
    cause = f"rule{'s' * (len(names) > 1)} {some(names, 'rules')}"
    regions = some(snapshot.names(left), "regions") if left else "no region"
    asked = some([f"`{host}`" for host in pin.hosts], "names")
    return (
        f"DNS states no {' and no '.join(sorted(pin.unstated, reverse=True))}: by residency {cause} it answers, for {asked}, "
        f"{client_words(clients)} with {regions} alone, of {service.mask.bit_count()} regions; give "
        "those who are meant host names of their own, and state under `hostnames` whose requests come by each"
    )


# --- Name servers that see what a residency rule keeps to edges inside. ---


def edge_findings(snapshot: Snapshot, now: float) -> Iterator[Problem]:
    """What keeps rules that bind edges from being kept in DNS.

    Args:
        snapshot: the policy.
        now: POSIX seconds.

    Yields:
        `name_server_outside`: a zone with host names that such a rule concerns, and those of its name servers that stand
        outside of it or in an unknown country.
    """
    if not binding_edges(snapshot.policy):
        return
    for zone in snapshot.policy.zones:
        rules = _binding(snapshot, zone.name, now)
        servers = zone.name_servers or (NameServer(zone.primary_ns),)
        outside = [server for server in servers if not all(inside(rule, place_of(server)) for rule in rules)]
        if not outside:
            continue
        names = [f"`{name}`" for name in dict.fromkeys(rule.rule.name for rule in rules)]
        listed = [f"{server.name} ({server.country or 'country not stated'})" for server in outside]
        text = (
            f"residency rule{'s' * (len(names) > 1)} {some(names, 'rules')} {'bind' if len(names) > 1 else 'binds'} edges, and name servers of this zone stand "
            f"outside: {some(listed, 'servers')}; they see who asks, and refuse; give the host names a zone of their own "
            "whose name servers stand inside, and say so by their `country`"
        )
        yield Problem(f"zones.{zone.name}.name_servers", "name_server_outside", text)


def _binding(snapshot: Snapshot, zone: str, now: float) -> list[CompiledRule]:
    """The rules in force that bind edges and concern services with host names in a zone."""
    rules = {
        id(rule): rule
        for service in snapshot.services.values()
        if service.service.zone == zone and service.service.hostnames
        for rule in service.rules
        if rule.enforced and rule.binds_edges and rule.starts <= now < rule.ends
    }
    return list(rules.values())


# --- Capacities that bound nothing: they are declared, and no plan can be kept by them. ---


def capacity_findings(policy: Policy) -> Iterator[Problem]:
    """Capacity of regions and members that no plan looks at, or only once reports say more: code `bounds_nothing`."""
    served: dict[str, list[Service]] = {region.name: [] for region in policy.regions}
    for service in policy.services:
        for index, member in enumerate(service.members):
            served[member.region].append(service)
            if member.capacity == Capacity():
                continue
            path = f"services.{service.name}.members[{index}].capacity"
            if service.steering not in PLANNED:
                text = f"bounds nothing: steering `{service.steering}` sends clients whatever room there is"
                yield Problem(path, "bounds_nothing", text)
            elif member.capacity.outstanding is not None and service.service_time_ms is None:
                yield Problem(f"{path}.outstanding", "bounds_nothing", _unless_reported([service]))
    for region in policy.regions:
        if served[region.name]:
            yield from _of_region(region, served[region.name])


def _of_region(region: Region, services: list[Service]) -> Iterator[Problem]:
    path, capacity = f"regions.{region.name}.capacity", region.capacity
    planned = [service for service in services if service.steering in PLANNED]
    timeless = [service for service in planned if service.service_time_ms is None]
    if capacity != Capacity() and not planned:
        own = " or ".join(f"`{steering}`" for steering in Steering if steering not in PLANNED)
        text = f"bounds nothing: every service here has steering {own}, which sends clients whatever room there is"
        yield Problem(path, "bounds_nothing", text)
    elif capacity.outstanding is not None and timeless:
        yield Problem(f"{path}.outstanding", "bounds_nothing", _unless_reported(timeless))


def _unless_reported(services: list[Service]) -> str:
    names = some([f"`{service.name}`" for service in services], "services")
    return (
        f"bounds nothing for {names} unless the region reports its load (docs/operations.md#load-reports): how many requests "
        "a second fill it follows from how long one takes; declare `service_time_ms` of the service"
    )


# --- Which services lead their clients by redirects, on which HTTP clients leave their keys out.
#
# A redirect to another host is another party to the client: `fetch` (Fetch standard, "HTTP-redirect fetch", step 13), `curl`, and the HTTP
# libraries below the SDKs of model vendors send it no `Authorization`. DNS and look-ups keep keys: there the client asks the region itself.


_LOST = 'clients leave `Authorization` out where a redirect leads to another host (docs/api.md, "Redirects lose keys")'


_NULL = (
    'behind a redirect to another host browsers ask as the origin `null` (docs/api.md, "Pages of other origins"), which no list of origins '
    "holds, and credentials want a list"
)


def redirect_findings(policy: Policy) -> Iterator[Problem]:
    """Services whose clients may be redirected: codes `redirect_loses_keys` and `redirect_loses_origin`. Those without a host name are told of together."""
    services = [service for service in policy.services if service.answer is HttpAnswer.REDIRECT]
    nameless = [f"`{service.name}`" for service in services if not service.hostnames]
    if nameless:
        has = "has" if len(nameless) == 1 else "have"
        text = (
            f"{some(nameless, 'services')} {has} no host name, so that redirects and look-ups alone reach the servers, and {_LOST}: where "
            "servers want keys, let edges carry (`answer: carry`), give each service a host name, which DNS answers, or let clients look up"
        )
        yield Problem("services", "redirect_loses_keys", text)
    for service in policy.services:
        if service.push is Push.REDIRECT:
            text = f"{_LOST}: where servers want keys, use `push: carry`"
            yield Problem(f"services.{service.name}.push", "redirect_loses_keys", text)
        redirected = service.push is Push.REDIRECT or (service in services and not service.hostnames)
        if service.cors is not None and redirected and ANY not in service.cors.origins:
            ways = "let edges carry (`answer: carry`) or give the service a host name, and `push: carry`, or use the origin `*`"
            yield Problem(f"services.{service.name}.cors", "redirect_loses_origin", f"{_NULL}: {ways}")


# --- Services that edges carry: who reads their requests, and where.


def carry_findings(snapshot: Snapshot, now: float) -> Iterator[Problem]:
    """What keeps requests of carried services from being carried, or lets others read them.

    Args:
        snapshot: the policy.
        now: POSIX seconds.

    Yields:
        `carried_nowhere`: a carried service, and the rules in force that concern it and that no name server of the policy stands
        inside of, as far as the policy says where they stand.
        `carried_in_clear`: regions of carried services with endpoints that speak plain HTTP.
    """
    servers = [server for zone in snapshot.policy.zones for server in zone.name_servers]
    clear: dict[str, None] = {}
    for name, service in snapshot.services.items():
        if name not in snapshot.carried:
            continue
        for number in service.members:
            region = snapshot.regions[number]
            if any(endpoint.url.lower().startswith("http:") for endpoint in region.endpoints):
                clear[f"`{region.name}`"] = None
        rules = {
            f"`{rule.rule.name}`": None
            for rule in service.rules
            if rule.enforced
            and rule.starts <= now < rule.ends
            and not any(stands_inside(rule, place_of(server)) for server in servers)
        }
        if rules:
            text = (
                f"an edge reads what it carries, and the policy knows of none that stands inside {some(list(rules), 'rules')}: requests that such a rule concerns are "
                "redirected by edges outside, and lose their keys. Let an edge stand inside (`gtm edge --country`), and say so by the `country` of "
                "the name server that it is"
            )
            yield Problem(f"services.{name}.answer", "carried_nowhere", text)
    if clear:
        text = (
            f"edges carry requests there over plain HTTP, which whoever is on the way reads, keys included: {some(list(clear), 'regions')}. Use `https`, "
            "or keep to networks that are yours; what is not gtm's balancer gets requests only in networks of `gtm edge --carry-trust`"
        )
        yield Problem("regions", "carried_in_clear", text)


# --- Answers without addresses, which another region would have had.
#
# A and AAAA of a service are one decision (`families: together`): both are what the region chosen has. Where it has none of a
# family, the answer is empty, and resolvers keep that for everyone behind them (RFC 2308 §5, RFC 7871 §7.4).


CODES = {AddressFamily.IPV4: "empty_a", AddressFamily.IPV6: "empty_aaaa"}
"""What is found of each family. Without A a name is gone for most clients, without AAAA it is slower for some."""


def family_findings(snapshot: Snapshot, now: float) -> Iterator[Problem]:
    """Members of services in DNS that can be chosen and then answer A, or AAAA, with nothing.

    Args:
        snapshot: the policy.
        now: POSIX seconds.

    Yields:
        `empty_a` and `empty_aaaa`: a service, its members of which a usable endpoint can lack such an address, and others that
        have some and may serve the same clients.
    """
    for name, service in snapshot.services.items():
        if not service.service.hostnames or service.service.families is Families.SEPARATE:
            continue
        for family in AddressFamily:
            empty, instead = _pair(snapshot, service, family, now)
            if not empty:
                continue
            other = "IPv6" if family is AddressFamily.IPV4 else "IPv4"
            text = (
                f"{family.rrtype} is empty where the region chosen is {some(snapshot.names(empty), 'regions')}, while "
                f"{some(snapshot.names(instead), 'regions')} could answer it: one decision stands for both families. Give each of "
                f"its endpoints with {other} addresses `{family}` addresses too, or let A and AAAA be decided by themselves "
                "(`families: separate`)"
            )
            yield Problem(f"services.{name}.members", CODES[family], text)


def _pair(snapshot: Snapshot, service: CompiledService, family: AddressFamily, now: float) -> tuple[int, int]:
    """The members that can answer a family with nothing, and those that could in the place of some; 0 where there is none."""
    model = service.service.model
    able = [number for number in service.members if model is None or model in snapshot.regions[number].models]
    lacking = sum(1 << number for number in able if can_be_empty(snapshot.regions[number], family))
    having = sum(
        1 << number
        for number in able
        if any(endpoint.addresses(family) for endpoint in snapshot.regions[number].endpoints)
    )
    if not lacking or not having:
        return 0, 0
    empty = instead = 0
    for host in statements(service.service):
        fences = client_fences(rules_binding(service, host, now), len(snapshot.regions))
        for fence in set(fences.values()):
            for number in bits(fence & lacking):
                others = fence & having & ~(1 << number)
                if others:
                    empty |= 1 << number
                    instead |= others
    return empty, instead


def can_be_empty(region: Region, family: AddressFamily) -> bool:
    """Whether some usable endpoints of a region, alone, have addresses and none of a family: any of them may be the last one up."""
    return any(
        (endpoint.ipv4 or endpoint.ipv6) and not endpoint.addresses(family) for endpoint in region.endpoints
    )


# --- Settings that are legal where they stand and decide nothing there: said when they are written, not found out in an incident.
#
# Each check names what would have to be otherwise for the setting to count. A setting at its default is nobody's statement,
# and never found.


_PROBE = Probe()
_HTTP_ONLY = ("path", "host", "expected_status", "body_regex", "json_field", "json_value")


def effect_findings(policy: Policy) -> Iterator[Problem]:
    """Every setting of regions, services and spillover rules that has no effect: code `without_effect`."""
    sticky = any(service.affinity is not Affinity.NONE for service in policy.services)
    bounded = _bounded(policy)
    for service in policy.services:
        for name, text in _of_service(service):
            yield Problem(f"services.{service.name}.{name}", "without_effect", text)
    for region in policy.regions:
        for name, text in (
            *_region_effects(region, bounded=region.name in bounded, sticky=sticky),
            *_of_probe(region),
        ):
            yield Problem(f"regions.{region.name}.{name}", "without_effect", text)
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


def _region_effects(region: Region, *, bounded: bool, sticky: bool) -> Iterator[tuple[str, str]]:
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
