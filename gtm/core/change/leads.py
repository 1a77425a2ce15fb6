"""What clients are led to without a decision: by records, refusal addresses, and endpoints that are those of other regions.

A name of DNS *leads* to the services that decide its answer, and to targets: addresses, and names outside of the policy's
zones. A target is the place that has it: the regions that have, had before a change, or had last, an endpoint of that address
or name. A target that no region has is outside of the policy. It leads to the name servers of its zone, too: whoever runs one
answers for the name. A name server is the place where the policy says that it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from gtm.core.model.addresses import led_to
from gtm.core.model.names import WILDCARD, ancestors, closest
from gtm.core.model.policy import Policy, ResidencyRule, RuleMode
from gtm.core.model.regions import Endpoint, Region
from gtm.core.model.services import NameServer, RefusalAddress, Zone
from gtm.core.policy.snapshot import Snapshot

NOWHERE = frozenset({"0.0.0.0", "::"})
"""Addresses that no connection is made to (RFC 1122 §3.2.1.3, RFC 4291 §2.5.2)."""

OUTSIDE = "*"
"""The place of what no region has; no region's name."""


class Decider(NamedTuple):
    """A service that decides the answer at a name, and what the host name states of all who ask by it."""

    service: str
    tenant: str | None = None
    data_class: str | None = None


@dataclass(frozen=True, slots=True)
class Led:
    """What a name leads to: `services` that decide, `targets` that are the same for everyone, and the `servers` of its zone."""

    services: frozenset[Decider] = frozenset()
    targets: frozenset[str] = frozenset()
    servers: frozenset[NameServer] = frozenset()


class Leads(Protocol):
    """What the names of a policy lead to, as its name servers answer."""

    @property
    def names(self) -> Collection[str]:
        """The names that have records that lead somewhere, or are delegated: lower case, wildcards as they are written."""

    def at(self, name: str) -> Led:
        """What a name leads to, itself or by a wildcard."""


LeadsOf = Callable[[Snapshot], Leads]


@dataclass(frozen=True, slots=True)
class Former:
    """What is gone, and keeps its rules (docs/simulate.md, "What is gone").

    Attributes:
        revisions: policies that were in force, each with the names, the services and the targets that it was the last to have.
        targets: addresses and names of endpoints that no region has any more → the regions that had them last.
        untold: why it cannot be told what some of it keeps, in sentences.
    """

    revisions: tuple[tuple[Snapshot, frozenset[str], frozenset[str], frozenset[str]], ...] = ()
    targets: Mapping[str, tuple[Region, ...]] = field(default_factory=dict)
    untold: tuple[str, ...] = ()


NOTHING_FORMER = Former()


def leading(snapshot: Snapshot) -> object:
    """All that decides what names and endpoints lead to: two policies that have the same in common lead to the same."""
    services = {
        name: (item.service.refusal, frozenset(member.region for member in item.service.members))
        for name, item in snapshot.services.items()
    }
    endpoints = {region.name: region.endpoints for region in snapshot.regions}
    return services, endpoints, snapshot.hostnames, snapshot.stated, snapshot.policy.zones


def targets_of(region: Region) -> frozenset[str]:
    """The addresses and names of a region's endpoints, and the IPv4 addresses that its IPv6 addresses stand for."""
    return frozenset(target for endpoint in region.endpoints for target in _of_endpoint(endpoint))


def _of_endpoint(endpoint: Endpoint) -> Iterator[str]:
    host = urlsplit(endpoint.url).hostname
    for text in (*endpoint.ipv4, *endpoint.ipv6, endpoint.cname, host):
        if text:
            yield from spelled(text)


def spelled(text: str) -> tuple[str, ...]:
    """An address or a name as it is compared, then the IPv4 addresses that it stands for."""
    try:
        address = ip_address(text)
    except ValueError:
        return (text.lower().removesuffix("."),)
    return (str(address), *map(str, led_to(address)))


def refusals_of(refusal: RefusalAddress) -> frozenset[str]:
    """The targets of those who are refused."""
    given = {str(ip_address(text)) for text in (*refusal.ipv4, *refusal.ipv6)}
    return frozenset(given - NOWHERE)


def servers_of(zones: Mapping[str, Zone], name: str) -> frozenset[NameServer]:
    """The name servers of the closest of some zones (by name) above a name or at it."""
    zone = closest(zones, name)
    if zone is None:
        return frozenset()
    return frozenset(zones[zone].name_servers or (NameServer(zones[zone].primary_ns),))


def _reached(server: NameServer) -> frozenset[str]:
    """The name and the addresses by which resolvers reach a name server."""
    return frozenset((server.name, *server.ipv4, *server.ipv6))


class Owners:
    """Who has a target: by name, regions of the old policy, of the new one, or of neither any more.

    Args:
        before: the old policy.
        after: the new one.
        former: what is gone.
    """

    def __init__(self, before: Snapshot, after: Snapshot, former: Former) -> None:
        self.before = before
        self._regions: dict[str, set[str]] = {}
        known = {region.name: region for region in (*after.regions, *before.regions)}
        for region in before.regions:
            self._own(region.name, targets_of(region))
        gone = former.targets.keys() - self._regions.keys()
        for region in after.regions:
            self._own(region.name, targets_of(region))
        for target, regions in former.targets.items():
            if target in gone:
                for region in regions:
                    now = known.setdefault(region.name, region)
                    # One of that name that stands elsewhere is another one.
                    self._own(region.name if _place(now) == _place(region) else OUTSIDE, (target,))
        present = after.region_numbers.keys()
        self.others: dict[str, Region] = {
            name: region for name, region in known.items() if name not in present
        }
        """Places that are no regions of the new policy, by name: its regions of before, and where name servers stand."""

    def standing(self, servers: Iterable[NameServer], before: Iterable[NameServer]) -> frozenset[str]:
        """Where name servers stand that were not there before, or not by that name or address.

        That is the regions that have such an address, else where the policy says that the server stands (from then on one of
        `others`), else `OUTSIDE`.
        """
        known = {target for server in before for target in _reached(server)}
        found: set[str] = set()
        for server in servers:
            new = _reached(server) - known
            if not new:
                continue
            having = self.places(new) - {OUTSIDE}
            if not having and server.country is not None:
                run = "" if server.operator_country is None else f", run from {server.operator_country}"
                place = f"{server.name} in {server.country}{run}"
                self.others[place] = Region(
                    place, 0.0, 0.0, server.country, (), operator_country=server.operator_country
                )
                having = frozenset((place,))
            found.update(having or (OUTSIDE,))
        return frozenset(found)

    def _own(self, name: str, targets: Iterable[str]) -> None:
        for target in targets:
            self._regions.setdefault(target, set()).add(name)

    def places(self, targets: Iterable[str]) -> frozenset[str]:
        """The regions that have some targets, and `OUTSIDE` if none has one of them."""
        found: set[str] = set()
        for target in targets:
            having = [
                name for spelling in spelled(target) for name in self._regions.get(spelling, frozenset())
            ]
            found.update(having or (OUTSIDE,))
        return frozenset(found)


def _place(region: Region) -> tuple[str, str | None]:
    return region.country, region.operator_country


class Endpoints:
    """What the endpoints of one policy's regions lead to.

    Args:
        snapshot: the policy.
        leads: what its names lead to.
        anyway: where whoever is refused goes anyway.
    """

    def __init__(self, snapshot: Snapshot, leads: Leads, anyway: frozenset[str]) -> None:
        self._snapshot = snapshot
        self._leads = leads
        self._anyway = anyway

    def of(self, region: Region) -> Led:
        """What a region's endpoints lead to."""
        targets: set[str] = set()
        services: set[Decider] = set()
        for target in targets_of(region):
            if closest(self._snapshot.zones, target) is None:
                targets.add(target)
                continue
            led = self._leads.at(target)
            targets |= led.targets
            services |= led.services
            for asked in led.services:
                targets |= refusals_of(self._snapshot.services[asked.service].service.refusal) - self._anyway
        return Led(frozenset(services), frozenset(targets))

    def passed(self, services: Iterable[Decider]) -> frozenset[tuple[Decider, str]]:
        """The regions that some services may lead to, each with the service as it is asked."""
        known = self._snapshot.services
        return frozenset(
            (asked, member.region) for asked in services for member in known[asked.service].service.members
        )


def _led_on(rule: ResidencyRule, passed: Iterable[tuple[Decider, str]]) -> frozenset[str]:
    """The regions that services may lead those to whom an old rule concerns.

    Requests of a service that it concerns, too, it keeps from the same regions: where it does so no more, that is an opening of its own.
    """
    named = rule.match.services
    return frozenset(
        region
        for asked, region in passed
        if asked != Decider(asked.service) or (named and asked.service not in named)
    )


def binding(snapshot: Snapshot) -> list[ResidencyRule]:
    """A policy's enforced rules."""
    return [rule for rule in snapshot.policy.residency_rules if rule.mode is RuleMode.ENFORCE]


def refused_anyway(snapshot: Snapshot) -> frozenset[str]:
    """Where each service that an enforced rule may concern sends those whom it refuses: they lead nobody anywhere else."""
    named = {name for rule in binding(snapshot) for name in rule.match.services or snapshot.services}
    refusals = [refusals_of(snapshot.services[name].service.refusal) for name in sorted(named)]
    return refusals[0].intersection(*refusals) if refusals else frozenset()


Shared = Mapping[str, Mapping[str, frozenset[str]]]
"""Old rules → regions of a new policy → other places that their endpoints lead those to whom the rule concerns."""


def given_back(before: Snapshot, after: Snapshot, owners: Owners, targets: frozenset[str]) -> Shared:
    """Regions that have some targets which are gone, and had none of them before: they lead to the other places that had these.

    A region that has its own again leads nowhere else, and is judged all the same: rules about it may be gone.
    """
    earlier = {region.name: targets_of(region) for region in before.regions}
    found = {}
    for region in after.regions:
        back = targets & targets_of(region) - earlier.get(region.name, frozenset())
        if back:
            found[region.name] = owners.places(back) - {region.name}
    return {rule.name: found for rule in binding(owners.before)} if found else {}


def taken_over(before: Snapshot, after: Snapshot, owners: Owners, old: Leads, new: Leads) -> Shared:
    """Where endpoints lead, and did not before."""
    rules = binding(before)
    found: dict[str, dict[str, frozenset[str]]] = {}
    anyway = refused_anyway(before)
    endpoints = Endpoints(before, old, anyway), Endpoints(after, new, anyway)
    known = {region.name: region for region in before.regions}
    zones = before.zones.keys() | after.zones.keys()
    for region in after.regions:
        earlier = known.get(region.name)
        unchanged = earlier is not None and earlier.endpoints == region.endpoints
        if unchanged and not any(closest(zones, target) for target in targets_of(region)):
            continue
        led = endpoints[1].of(region)
        was = endpoints[0].of(earlier) if earlier is not None else Led()
        # What is its own, and nobody else's, is its own word; what a name of the policy leads to is not.
        places = owners.places(led.targets - was.targets)
        passed, before_it = endpoints[1].passed(led.services), endpoints[0].passed(was.services)
        for rule in rules if places or passed - before_it else ():
            reached = (places | (_led_on(rule, passed) - _led_on(rule, before_it))) - {region.name}
            if reached:
                found.setdefault(rule.name, {})[region.name] = reached
    return found


# --- What a change takes away and brings back, of that which keeps its rules (docs/simulate.md, "What is gone"). ---


@dataclass(frozen=True, slots=True)
class Moves:
    """What goes and comes.

    Attributes:
        names: host names, and aliases that lead to some, that a service decided and none decides any more.
        services: that are deleted.
        targets: addresses and names of endpoints that no region has any more, each with a region that had it.
        names_back: names that a service decides again or, where that is released, that lead anywhere.
        services_back: services that are there again.
        targets_back: targets that some region has again.
    """

    names: frozenset[str] = frozenset()
    services: frozenset[str] = frozenset()
    targets: tuple[tuple[str, Region], ...] = ()
    names_back: frozenset[str] = frozenset()
    services_back: frozenset[str] = frozenset()
    targets_back: frozenset[str] = frozenset()


def moves(
    before: Snapshot, after: Snapshot, leads: LeadsOf, remembered: frozenset[str], *, released: bool
) -> Moves:
    """What a change takes away and brings back.

    Args:
        before: the old policy.
        after: the new one.
        leads: tells what a policy's names lead to.
        remembered: names that are gone before the change already.
        released: somebody who may has let out what the change opens.
    """
    if leading(before) == leading(after):
        return Moves()
    old, new = leads(before), leads(after)
    bound = any(rule.mode is RuleMode.ENFORCE for rule in before.policy.residency_rules)
    names, services = set[str](), set[str]()
    if bound:
        for name in {*before.hostnames, *old.names}:
            led = new.at(name)
            if old.at(name).services and not led.services and not (released and led.targets):
                names.add(name)
        services = set(before.services.keys() - after.services.keys())
    back = set()
    for name in remembered:
        led = new.at(name)
        if led.services or (released and led.targets):
            back.add(name)
    kept = {target for region in after.regions for target in targets_of(region)}
    return Moves(
        names=frozenset(names),
        services=frozenset(services),
        targets=tuple(
            (target, region)
            for region in before.regions
            for target in sorted(targets_of(region))
            if target not in kept
        ),
        names_back=frozenset(back),
        services_back=frozenset(after.services),
        targets_back=frozenset(kept),
    )


def targets_led_to(snapshot: Snapshot, leads: Leads) -> frozenset[str]:
    """All targets that a policy's regions, names and refusals lead to."""
    found = {target for region in snapshot.regions for target in targets_of(region)}
    for name in leads.names:
        found |= leads.at(name).targets
    for item in snapshot.services.values():
        found |= refusals_of(item.service.refusal)
    return frozenset(found)


def may_be_back(name: str, before: Policy, after: Snapshot) -> bool:
    """Whether a change leaves anything at a name that is gone, or below it, or a wildcard above it, or gives its zone to others."""
    own = name.removeprefix(WILDCARD)
    existing = after.existing
    if own in existing or any(f"{WILDCARD}{above}" in existing for above in ancestors(own)):
        return True
    zones = {zone.name: zone for zone in before.zones}
    return servers_of(zones, own) != servers_of(after.zones, own)
