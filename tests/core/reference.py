"""The fence, and what is usable inside it, told slowly: names and sets, straight from the policy as written.

This is what `gtm.core` is tested against, written from docs/residency.md. It shares no code with it but the values. Time
passes here moment by moment: a rule is read at each moment of the window at which anything may be different. A subnet is
read address by address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from ipaddress import IPv4Address, IPv4Network
from math import inf

from gtm.core.decision.view import Window
from gtm.core.model.countries import COUNTRIES
from gtm.core.model.policy import (
    EdgeScope,
    Jurisdiction,
    OnAnonymous,
    OnDoubtfulLocation,
    OnUnknownLocation,
    Places,
    Policy,
    ResidencyRule,
    RuleMode,
    Term,
)
from gtm.core.model.regions import AdminState, Endpoint, Region
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Families, HttpAnswer, OnUnusable, Service
from gtm.core.model.state import HealthStatus, State
from gtm.core.policy.edges import EdgePlace

Parts = Sequence[Location]
"""Where the parts of a client's subnet are; none: they are too many to look at. A client with an address has one."""

LOOKED_AT = 256
"""Networks inside one subnet that are looked at."""
FIRST = datetime(1, 1, 1, tzinfo=UTC)


class Reference:
    """A policy in a state, at a time, with the jurisdictions it was written against."""

    def __init__(
        self, policy: Policy, shipped: tuple[Jurisdiction, ...], state: State, window: Window
    ) -> None:
        self.policy, self.state, self.window = policy, state, window
        self.jurisdictions = {item.name: item for item in (*shipped, *policy.jurisdictions)}
        self.rules = {rule.name: rule for rule in policy.residency_rules}
        self.regions = {region.name: region for region in policy.regions}
        terms = (term for item in self.jurisdictions.values() for term in item.terms)
        dated: tuple[ResidencyRule | Term, ...] = (*policy.residency_rules, *terms)
        self.changes = sorted(
            {at for item in dated for at in (item.effective_from, item.effective_until) if at}
        )
        """The moments at which a rule or a membership begins or ends."""
        # What follows depends on no window, and worlds are asked many times.
        self.covers = cache(self._covers)
        self._permitted = cache(self._permits)
        self._may_be = cache(self._may_be_in)

    def at(self, window: Window) -> Reference:
        """The same at another time."""
        found = copy(self)
        found.window = window
        return found

    def moments(self) -> list[datetime]:
        """The clock's reading now, and whatever changes between it and the highest it ever showed.

        A reading stands for the last change before it: nothing is different in between.
        """
        begin, end = (datetime.fromtimestamp(at, UTC) for at in (self.window.now, self.window.latest))
        changes = self.changes
        now = max((at for at in changes if at <= begin), default=FIRST)
        return [now, *(at for at in changes if begin < at <= end)]

    def holds(self, item: ResidencyRule | Term, at: datetime) -> bool:
        """Whether a rule or membership holds at a moment."""
        begun = item.effective_from is None or item.effective_from <= at
        return begun and (item.effective_until is None or at < item.effective_until)

    def _covers(self, place: str, country: str, at: datetime) -> bool:
        """Whether a country lies in a place: is it, or belongs to what is a member of it at the moment."""
        if place not in self.jurisdictions:
            return place == country
        jurisdiction = self.jurisdictions[place]
        for member in jurisdiction.members:
            terms = [term for term in jurisdiction.terms if term.member == member]
            belongs = not terms or any(self.holds(term, at) for term in terms)
            if belongs and self.covers(member, country, at):
                return True
        return False

    def stands_in(self, places: Places, region: Region, at: datetime) -> bool:
        """Whether a region is named, or stands in a place named."""
        return region.name in places.regions or any(
            self.covers(place, region.country, at) for place in places.jurisdictions
        )

    def run_from(self, places: Places, region: Region, at: datetime) -> bool:
        """Whether a region's operator is known, and in one of the jurisdictions named."""
        operator = region.operator_country
        return operator is not None and any(
            self.covers(place, operator, at) for place in places.operator_jurisdictions
        )

    def permits(self, rule: ResidencyRule, region: Region, at: datetime) -> bool:
        """Whether a rule lets a region serve those it concerns."""
        return self._permitted(rule.name, region.name, at)

    def _permits(self, of: str, name: str, at: datetime) -> bool:
        rule, region = self.rules[of], self.regions[name]
        allow, deny = rule.allow, rule.deny
        if (allow.regions or allow.jurisdictions) and not self.stands_in(allow, region, at):
            return False
        if allow.operator_jurisdictions and not self.run_from(allow, region, at):
            return False
        if self.stands_in(deny, region, at):
            return False
        return not deny.operator_jurisdictions or (
            region.operator_country is not None and not self.run_from(deny, region, at)
        )

    def may_be_in(self, rule: ResidencyRule, location: Location, at: datetime) -> bool:
        """Whether a client may be where a rule is about, as the rule reads what is known of its location."""
        sure = location.source == "override"
        return self._may_be(
            rule.name,
            location.country,
            sure,
            location.anonymous,
            location.doubtful,
            location.accuracy_km,
            at,
        )

    def _may_be_in(  # noqa: PLR0917 - all that is known of a location
        self,
        of: str,
        country: str | None,
        sure: bool,
        anonymous: bool,
        doubtful: bool,
        accuracy_km: float | None,
        at: datetime,
    ) -> bool:
        rule = self.rules[of]
        places = (*rule.match.client_countries, *rule.match.client_jurisdictions)
        if country in COUNTRIES and any(self.covers(place, country, at) for place in places):
            return True
        if anonymous and not sure and rule.on_anonymous is OnAnonymous.MATCH:
            return True
        known = country in COUNTRIES
        if doubtful and not sure and rule.on_doubtful_location is OnDoubtfulLocation.MATCH:
            known = False
        if rule.max_accuracy_km is not None and not sure:
            known = known and accuracy_km is not None and accuracy_km <= rule.max_accuracy_km
        return not known and rule.on_unknown_location is OnUnknownLocation.MATCH

    def may_be_of(self, rule: ResidencyRule, tenant: str | None, at: datetime) -> bool:
        """Whether a rule is about a tenant, or whoever it is that nobody named, or one that may be established there."""
        names, places = rule.match.tenants, rule.match.tenant_jurisdictions
        if tenant is None or not (names or places) or tenant in names:
            return True
        country = next(item.country for item in self.policy.tenants if item.name == tenant)
        return bool(places) and (country is None or any(self.covers(place, country, at) for place in places))

    def concerns(
        self, rule: ResidencyRule, request: Request, at: datetime, parts: Parts | None = None
    ) -> bool:
        """Whether a rule binds a request. What the request does not say is taken to be what the rule is about.

        It binds a subnet if it binds some part of it, or if nobody can look at all parts. `parts` None: the request has an
        address.
        """
        match = rule.match
        if not self.holds(rule, at):
            return False
        if match.services and request.service not in match.services:
            return False
        if not self.may_be_of(rule, request.tenant, at):
            return False
        stated = request.data_class is not None
        if match.data_classes and stated and request.data_class not in match.data_classes:
            return False
        scoped = bool(match.client_countries or match.client_jurisdictions)
        places = (request.location,) if parts is None else parts
        return not scoped or not places or any(self.may_be_in(rule, place, at) for place in places)

    def matched(self, request: Request, parts: Parts | None = None) -> list[ResidencyRule]:
        """The rules in force that are about a request, monitoring ones too."""
        moments = self.moments()
        return [
            rule
            for rule in self.policy.residency_rules
            if any(self.concerns(rule, request, at, parts) for at in moments)
        ]

    def service(self, request: Request) -> Service:
        """The service asked for."""
        return next(service for service in self.policy.services if service.name == request.service)

    def members(self, request: Request) -> list[Region]:
        """The regions of the service asked for."""
        names = {member.region for member in self.service(request).members}
        return [region for region in self.policy.regions if region.name in names]

    def fence(self, request: Request, parts: Parts | None = None) -> set[str]:
        """The regions that the law lets serve a request: those that no rule that binds, at any moment, takes out."""
        left = self.members(request)
        moments = self.moments()
        for rule in self.policy.residency_rules:
            if rule.mode is RuleMode.ENFORCE:
                for at in moments:
                    if self.concerns(rule, request, at, parts):
                        old = self.outdated(rule)
                        left = [region for region in left if not old and self.permits(rule, region, at)]
        return {region.name for region in left}

    def outdated(self, rule: ResidencyRule) -> bool:
        """Whether control was not heard for so long that the rule allows nothing."""
        return rule.max_policy_age is not None and self.window.age >= rule.max_policy_age

    def excludes(self, rule: ResidencyRule, region: Region, request: Request) -> bool:
        """Whether a rule keeps a region from serving a request."""
        return any(
            self.concerns(rule, request, at) and (self.outdated(rule) or not self.permits(rule, region, at))
            for at in self.moments()
        )

    def can_answer(self, endpoint: Endpoint, request: Request) -> bool:
        """Whether an endpoint has what is asked for: an address of the family, where each family has a pool of its own.

        A family that no member has is no pool, and is decided as if nobody asked for it.
        """
        if self.service(request).families is Families.TOGETHER or request.family is None:
            return True
        field = request.family.value
        pool = [one for region in self.members(request) for one in region.endpoints if getattr(one, field)]
        return not pool or bool(getattr(endpoint, field))

    def pooled(self, region: Region, request: Request) -> bool:
        """Whether some endpoint of a region, up or not, has what is asked for."""
        return any(self.can_answer(endpoint, request) for endpoint in region.endpoints)

    def willing(self, request: Request) -> set[str]:
        """The members that take new clients, have the models and the family asked for, healthy or not."""
        wanted = {self.service(request).model, request.model} - {None}
        return {
            region.name
            for region in self.members(request)
            if region.admin_state is AdminState.ACTIVE
            and wanted <= set(region.models)
            and self.pooled(region, request)
        }

    def healthy(self, region: str, request: Request) -> bool:
        """Whether some endpoint of a region is up that has what is asked for."""
        known = self.state.health.get(region, {})
        return any(
            endpoint.url in known
            and known[endpoint.url].status is HealthStatus.UP
            and self.can_answer(endpoint, request)
            for endpoint in self.regions[region].endpoints
        )

    def usable(self, request: Request) -> set[str]:
        """The members that could serve if there were no law."""
        return {region for region in self.willing(request) if self.healthy(region, request)}

    def eligible(self, request: Request, parts: Parts | None = None) -> set[str]:
        """The regions that may be named in answer to a request."""
        fence = self.fence(request, parts)
        usable = fence & self.usable(request)
        if not usable and self.service(request).on_unusable is OnUnusable.IGNORE_HEALTH:
            return fence & self.willing(request)
        return usable


@dataclass(frozen=True)
class Atlas:
    """All that is said of addresses: by a database of places, one of anonymising networks, and the operator.

    `places` has the country and the accuracy radius in km of networks that do not overlap, `hidden` are the anonymising
    ones, and `overrides` the operator's countries, of which the most specific network wins. `doubted` are networks no narrower
    than a /24 with the country that measured round trips contradict: all addresses inside that the database of places puts
    there are in doubt.
    """

    places: Mapping[IPv4Network, tuple[str, float | None]]
    hidden: tuple[IPv4Network, ...]
    overrides: Mapping[IPv4Network, str]
    doubted: Mapping[IPv4Network, str] = field(default_factory=dict)

    def at(self, address: IPv4Address) -> Location:
        """What is known of where an address is."""
        around = [network for network in self.overrides if address in network]
        if around:
            country = self.overrides[max(around, key=lambda network: network.prefixlen)]
            return Location(country, source="override")
        anonymous = any(address in network for network in self.hidden)
        for network, (country, accuracy) in self.places.items():
            if address in network:
                doubtful = any(address in where and of == country for where, of in self.doubted.items())
                return Location(
                    country, source="geoip", anonymous=anonymous, accuracy_km=accuracy, doubtful=doubtful
                )
        return Location(anonymous=anonymous)

    def parts(self, subnet: IPv4Network) -> Parts:
        """Where the parts of a subnet are; nothing if they are too many to look at.

        What is said of addresses changes only where some network begins or is over, so that these are all that need be
        asked for.
        """
        if self.networks(subnet) > LOOKED_AT:
            return ()
        every = [network for network in (*self._every(), *self.doubted) if network.overlaps(subnet)]
        edges = {
            subnet.network_address,
            *(network.network_address for network in every),
            *(network.broadcast_address + 1 for network in every),
        }
        return tuple({self.at(address) for address in edges if address in subnet})

    def networks(self, subnet: IPv4Network, said: Sequence[IPv4Network] | None = None) -> int:
        """How many networks a subnet is in: halves of halves, until nothing that is said begins or ends inside.

        Inside an override nothing counts but other overrides.
        """
        inside = [
            network
            for network in (self._every() if said is None else said)
            if network.prefixlen > subnet.prefixlen and network.network_address in subnet
        ]
        if any(
            network.prefixlen <= subnet.prefixlen and subnet.network_address in network
            for network in self.overrides
        ):
            inside = [network for network in inside if network in self.overrides]
        return sum(self.networks(half, inside) for half in subnet.subnets()) if inside else 1

    def _every(self) -> tuple[IPv4Network, ...]:
        return (*self.places, *self.hidden, *self.overrides)


@dataclass
class Clock:
    """What an edge's clock has shown, whatever it did since, restarts and all: nothing that was in force is lifted.

    `heard` is what the latest was when control was heard; None: it never was.
    """

    now: float
    latest: float
    heard: float | None = None

    def shows(self, reading: float) -> None:
        """The clock is read."""
        self.now, self.latest = reading, max(self.latest, reading)

    @property
    def window(self) -> Window:
        """The time that rules are read at, and how old the policy is."""
        return Window(self.now, self.latest, inf if self.heard is None else self.latest - self.heard)


def edge_inside(world: Reference, rule: ResidencyRule, edge: EdgePlace, at: datetime) -> bool:
    """Whether an edge stands inside a rule that binds edges, at a moment, as docs/residency.md has it line by line."""

    def within(country: str | None, names: tuple[str, ...]) -> bool:
        return country is not None and any(world.covers(name, country, at) for name in names)

    allow, deny, operator = rule.allow, rule.deny, edge.operator_country
    standing = {region.country for region in world.policy.regions if region.name in allow.regions}
    conditions = [edge.country is not None]
    if allow.jurisdictions or allow.regions:
        conditions.append(within(edge.country, allow.jurisdictions) or edge.country in standing)
    conditions.append(not within(edge.country, deny.jurisdictions))
    conditions.append(edge.region not in deny.regions)
    if allow.operator_jurisdictions:
        conditions.append(within(operator, allow.operator_jurisdictions))
    if deny.operator_jurisdictions:
        conditions.append(operator is not None and not within(operator, deny.operator_jurisdictions))
    return all(conditions)


def edge_rules(world: Reference, edge: EdgePlace, *, carrying: bool = False) -> set[str]:
    """The rules in force that an edge stands outside of: those that bind edges; of one that carries, and so reads, all."""
    home = next((region for region in world.policy.regions if region.name == edge.region), None)
    if home is not None:
        country, operator = edge.country or home.country, edge.operator_country or home.operator_country
        edge = EdgePlace(country, operator, home.name)
    return {
        rule.name
        for rule in world.policy.residency_rules
        if (carrying or rule.edges is EdgeScope.IN_FENCE) and rule.mode is RuleMode.ENFORCE
        if any(world.holds(rule, at) and not edge_inside(world, rule, edge, at) for at in world.moments())
    }


@dataclass(frozen=True)
class EdgeAnswer:
    """How a request over HTTP ends at an edge: `carried`, `redirected`, or the status of a refusal; and the regions that it may go to."""

    how: str
    regions: frozenset[str] = frozenset()


class EdgeReference:
    """An edge that stands somewhere, in a world: what docs/residency.md lets it do with requests."""

    def __init__(self, world: Reference, edge: EdgePlace) -> None:
        self.world = world
        self.against, self.unread = edge_rules(world, edge), edge_rules(world, edge, carrying=True)

    def may_answer(self, request: Request, parts: Parts | None = None) -> bool:
        """Whether it stands inside every rule that concerns a request and binds edges."""
        return self.against.isdisjoint(rule.name for rule in self.world.matched(request, parts))

    def may_carry(self, request: Request, parts: Parts | None = None) -> bool:
        """Whether it is asked to, and stands inside every enforced rule that concerns a request, whatever that says of edges."""
        asked = self.world.service(request).answer is HttpAnswer.CARRY
        return asked and self.unread.isdisjoint(rule.name for rule in self.world.matched(request, parts))

    def answer(self, request: Request, parts: Parts | None = None) -> EdgeAnswer:
        """How a request ends, where nobody is shed and no quota is short."""
        if not self.may_answer(request, parts):
            return EdgeAnswer("421")
        regions = frozenset(self.world.eligible(request, parts))
        if not regions:
            forbidden = not self.world.fence(request, parts) or self.world.usable(request)
            return EdgeAnswer("451" if forbidden else "503")
        return EdgeAnswer("carried" if self.may_carry(request, parts) else "redirected", regions)
