"""What a change of policy opens, told slowly from docs/residency.md and docs/simulate.md, and found by `gtm.core.change.openings`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from datetime import UTC, datetime
from functools import cache
from itertools import product
from math import inf
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from gtm.core.change import openings as subject
from gtm.core.change.openings import Opening, Openings, openings
from gtm.core.decision.view import Window
from gtm.core.model.policy import (
    DataClass,
    EdgeScope,
    Jurisdiction,
    Match,
    OnAnonymous,
    OnUnknownLocation,
    Places,
    Policy,
    ResidencyRule,
    RuleMode,
    Tenant,
    Term,
)
from gtm.core.model.problems import PolicyError
from gtm.core.model.regions import Endpoint, Region
from gtm.core.model.requests import Location, LocationFacts, Request
from gtm.core.model.services import HostName, Member
from gtm.core.model.state import State
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.edges import EdgePlace
from gtm.dns.zone.leads import leads_of
from tests import worlds
from tests.core.policy import test_compile as plain
from tests.core.policy.test_compile import CHAT, GOOD, RULE
from tests.core.reference import Reference, edge_inside
from tests.core.strategies import COUNTRIES, DATA_CLASSES, SHIPPED, TENANTS, policies, quick, rules

NOW = 150.0
TOO_WIDE = Location(source="mixed")
"""A client subnet of more parts than anybody looks at."""

EVERYWHERE = (*COUNTRIES, "IE", "AQ")
"""The countries that rules tell apart; `AQ` stands for all others."""
KINDS = (
    TOO_WIDE,
    *(
        Location(country, source="geoip", anonymous=anonymous, doubtful=doubtful, accuracy_km=accuracy)
        for country in (None, *EVERYWHERE)
        for anonymous in (False, True)
        for accuracy, doubtful in ((100.0, False), (None, False), (100.0, True))
    ),
)
"""A client of every kind."""
STAND = tuple(Region(f"in {code}", 0, 0, code, ()) for code in EVERYWHERE)
RUN = tuple(Region(f"by {code}", 0, 0, "XX", (), operator_country=code) for code in (None, *EVERYWHERE))
EDGES = ("edges in", "edges that are run from", "edges that run in", "edges that follow")
"""How edges are told of."""
Statement = tuple[str | None, str | None]
"""A tenant and a data class."""

# --- the model ---


def edge_words(edge: EdgePlace) -> str:
    """One edge among all that are looked at."""
    if edge.region is not None:
        return f"edges that run in {edge.region}, {edge.country}"
    return (
        f"edges in {edge.country}"
        if edge.country != "XX"
        else f"edges that are run from {edge.operator_country}"
    )


def told(place: str) -> str:
    """A place as far as it is compared: which edges they are is told in words that leave out most of many."""
    return next((words for words in EDGES if place.startswith(words)), place)


def stood(policy: Policy, edge: EdgePlace) -> EdgePlace:
    """Where an edge stands: what it does not say is as of the region it runs in."""
    home = next((region for region in policy.regions if region.name == edge.region), None)
    if home is None or edge.country is not None:
        return edge
    return EdgePlace(home.country, home.operator_country, home.name)


class Side:
    """What one policy's rules say at a moment: which concern a request, as bits, and the places that each keeps it from."""

    def __init__(self, model: Model, side: int, at: datetime) -> None:
        self.reference, self.at = model.sides[side], at
        policy = self.reference.policy
        self.binding = [rule for rule in policy.residency_rules if rule.mode is RuleMode.ENFORCE]
        self.kept = [frozenset(model.keeps(policy, rule.name, at)) for rule in self.binding]
        self.anywhere = [
            replace(
                rule, match=replace(rule.match, services=(), client_countries=(), client_jurisdictions=())
            )
            for rule in self.binding
        ]
        self.located = cache(self._located)
        self.stated = cache(self._stated)

    def _located(self, service: str, place: Location) -> int:
        """The rules that concern some request from there to a service."""
        parts = () if place is TOO_WIDE else None
        return self._bits(self.binding, Request(service, place), parts)

    def _stated(self, tenant: str | None, data_class: str | None) -> int:
        """The rules that concern some request that states this."""
        return self._bits(self.anywhere, Request("", tenant=tenant, data_class=data_class), None)

    def _bits(self, rules: list[ResidencyRule], asked: Request, parts: tuple[()] | None) -> int:
        concerns = (self.reference.concerns(rule, asked, self.at, parts) for rule in rules)
        return sum(bound << number for number, bound in enumerate(concerns))

    def keeping(self, mask: int) -> Iterator[tuple[str, frozenset[str]]]:
        """The rules of a mask, and what they keep."""
        for number, rule in enumerate(self.binding):
            if mask >> number & 1:
                yield rule.name, self.kept[number]


class Model:
    """What the old rules and the new ones permit, one kind of request and one place at a time."""

    def __init__(self, before: Policy, after: Policy, now: float) -> None:
        then = {region.name: region for region in before.regions}
        old_tenants = {tenant.name: tenant for tenant in (*after.tenants, *before.tenants)}
        new_tenants = {tenant.name: tenant for tenant in (*before.tenants, *after.tenants)}
        self.statements = [
            (tenant, data) for tenant in (None, *old_tenants) for data in (None, *DATA_CLASSES)
        ]
        as_it_was = replace(
            before,
            regions=tuple(then.get(region.name, region) for region in after.regions),
            tenants=tuple(old_tenants.values()),
        )
        self.before, self.after, self.now = before, after, now
        self.ages = sorted(
            {age for one in (before, after) for rule in one.residency_rules if (age := rule.max_policy_age)}
        )
        self.sides = [
            Reference(one, SHIPPED, State(0), Window(now, now))
            for one in (as_it_was, replace(after, tenants=tuple(new_tenants.values())))
        ]

    def opened(self) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
        """The old rules that kept a service from a place (`""`: services to come) that nothing keeps it from now.

        Each with the service, and each with the place.
        """
        services, opened = set(), set()
        for at in self.moments():
            old, new = (Side(self, side, at) for side in (0, 1))
            for (before, after), stated in self.ways():
                # Requests that the same rules concern on both sides need to be looked at once only.
                places = {(old.located(before, place), new.located(after, place)) for place in KINDS}
                said = {(old.stated(*then), new.stated(*since)) for then, since in stated}
                for (old_place, new_place), (then, since) in product(places, said):
                    closed = frozenset[str]().union(*(kept for _, kept in new.keeping(new_place & since)))
                    for rule, kept in old.keeping(old_place & then):
                        if left := kept - closed:
                            services.add((rule, after))
                            opened |= {(rule, told(place)) for place in left}
        return services, opened

    def ways(self) -> Iterator[tuple[tuple[str, str], list[tuple[Statement, Statement]]]]:
        """To which service requests come before and after, and as whose they are read."""
        for pair in self.services():
            yield pair, [(one, one) for one in self.statements]
        for (before, was), (after, now) in self.by_name():
            meant = ((self.meant(was, said), self.meant(now, said)) for said in self.statements)
            # Refused before: nobody was kept from anything. Refused now: nobody is served.
            yield (before, after), [(then, since) for then, since in meant if then and since]

    @staticmethod
    def meant(host: HostName, said: Statement) -> Statement | None:
        """The tenant and data class of a request by a name; None: it contradicts the name."""
        pairs = list(zip((host.tenant, host.data_class), said, strict=True))
        if any(one and other and one != other for one, other in pairs):
            return None
        tenant, data_class = (one or other for one, other in pairs)
        return tenant, data_class

    def by_name(self) -> set[tuple[tuple[str, HostName], tuple[str, HostName]]]:
        """How requests by each name that was answered and is were meant, and are."""
        told = set()
        for name in ASKED:
            old, new = answering(self.before, name), answering(self.after, name)
            if old is not None and new is not None:
                told.add((old, new))
        return told

    def keeps(self, policy: Policy, name: str, at: datetime) -> Iterator[str]:
        """The places that a rule does not permit: regions; and those to come, by where they stand, and by who runs them.

        Regions to come are looked at with just what of the rule is about that. So are edges; and those in a region that say
        nothing of themselves, and those whose policy is older than some rule accepts.
        """
        whole, places, operators = self.readings(policy)
        named = {region.name for one in (self.before, self.after) for region in one.regions}
        for read, stand, edges in (
            (whole, policy.regions, [EdgePlace(region=region.name) for region in policy.regions]),
            (places, STAND, [EdgePlace(code) for code in (None, *EVERYWHERE)]),
            (operators, RUN, [EdgePlace("XX", code) for code in (None, *EVERYWHERE)]),
            (self.by_region(policy), (), [EdgePlace("XX", region=region) for region in named]),
        ):
            reference = Reference(read, SHIPPED, State(0), Window(self.now, self.now))
            rule = reference.rules[name]
            yield from (region.name for region in stand if not reference.permits(rule, region, at))
            if rule.edges is EdgeScope.IN_FENCE:
                yield from (
                    edge_words(edge)
                    for edge in edges
                    if not edge_inside(reference, rule, stood(read, edge), at)
                )
        most = rule.max_policy_age
        yield from (
            f"edges that follow a policy older than {age:g} s"
            for age in self.ages
            if most is not None and most <= age
        )

    def readings(self, policy: Policy) -> tuple[Policy, Policy, Policy]:
        """A policy; with what of its rules is about where regions stand; and with what is about who runs them."""
        places = tuple(
            replace(
                rule,
                allow=replace(rule.allow, operator_jurisdictions=()),
                deny=replace(rule.deny, operator_jurisdictions=()),
            )
            for rule in policy.residency_rules
        )
        operators = tuple(
            replace(
                rule,
                allow=Places(operator_jurisdictions=rule.allow.operator_jurisdictions),
                deny=Places(operator_jurisdictions=rule.deny.operator_jurisdictions),
            )
            for rule in policy.residency_rules
        )
        # Regions to come, beside those that rules name: an edge stands where one of these does.
        return (
            policy,
            replace(policy, regions=(*policy.regions, *STAND), residency_rules=places),
            replace(policy, regions=RUN, residency_rules=operators),
        )

    def by_region(self, policy: Policy) -> Policy:
        """With what of its rules is about the regions that edges run in, wherever they say they stand."""
        rules = tuple(
            replace(rule, allow=Places(), deny=Places(regions=rule.deny.regions))
            for rule in policy.residency_rules
        )
        return replace(policy, residency_rules=rules)

    def services(self) -> Iterator[tuple[str, str]]:
        """Names before and after, of services that there will be."""
        old, new = ({item.name: item for item in policy.services} for policy in (self.before, self.after))
        yield "", ""
        for name, service in new.items():
            yield name, name
            for other in old.values():
                shared = {item.region for item in other.members} & {item.region for item in service.members}
                if other.name not in new and name not in old and shared:
                    yield other.name, name

    def moments(self) -> list[datetime]:
        """Now, and every later moment at which something may change."""
        found = {datetime.fromtimestamp(self.now, UTC)}
        for reference in self.sides:
            terms = [term for item in reference.jurisdictions.values() for term in item.terms]
            for item in (*reference.policy.residency_rules, *terms):
                found |= {
                    at
                    for at in (item.effective_from, item.effective_until)
                    if at and at.timestamp() > self.now
                }
        return sorted(found)


def answering(policy: Policy, name: str) -> tuple[str, HostName] | None:
    """The service that answers for a name, and what is stated of requests by it (docs/dns.md, wildcards).

    The host name as it is written is left out: two that state the same are alike.
    """
    hosts = {
        host.name: (service.name, replace(host, name=""))
        for service in policy.services
        for host in service.names
    }
    above = {name.split(".", count)[-1] for name in hosts for count in range(1, 9)}
    existing = {zone.name for zone in policy.zones} | hosts.keys() | above
    if name in existing:
        return hosts.get(name)
    while name not in existing:
        name = name.partition(".")[2]
    return hosts.get(f"*.{name}")


# --- random changes ---

HOSTS = ("a.demo.test", "b.demo.test", "*.demo.test", "*.a.demo.test", "c.a.demo.test")
ASKED = (*(name.replace("*", "any") for name in HOSTS), "d.c.a.demo.test", "demo.test", "x.y.demo.test")
"""One of every kind of name that may be asked for, so that wildcards and what they stand for are."""


@st.composite
def changed(draw: st.DrawFn, before: Policy) -> Policy:
    """A policy with a few of the things done to it that operators do."""
    after = before
    for _ in range(draw(st.integers(1, 3))):
        after = draw(st.sampled_from(_CHANGES))(draw, after)
    return after


_FIELDS = (
    "on_unknown_location",
    "on_anonymous",
    "on_doubtful_location",
    "max_accuracy_km",
    "effective_from",
    "effective_until",
    "edges",
    "max_policy_age",
)


def _rule(draw: Any, policy: Policy) -> Policy:
    """One rule becomes another, goes, or changes in a field; or there is one more."""
    known = policy.regions
    services = tuple(item.name for item in policy.services)
    listed = list(policy.residency_rules)
    other = draw(rules("new", known, services))
    if not listed:
        return replace(policy, residency_rules=(other,))
    number = draw(st.integers(0, len(listed) - 1))
    field = draw(st.sampled_from(["gone", "added", "name", "match", "places", "mode", *_FIELDS]))
    if field == "gone":
        del listed[number]
    elif field == "added":
        listed = [one for one in listed if one.name != "new"] + [other]
    elif field == "places":
        listed[number] = replace(listed[number], allow=other.allow, deny=other.deny)
    elif field == "name":
        listed[number] = replace(listed[number], name=f"{listed[number].name}-too")
    else:
        listed[number] = replace(listed[number], **{field: getattr(other, field)})
    return replace(policy, residency_rules=tuple(listed))


def _region(draw: Any, policy: Policy) -> Policy:
    """A region stands elsewhere, or another runs it; or there is one more, a member of all."""
    country = draw(st.sampled_from(COUNTRIES))
    first, *rest = policy.regions
    kind = draw(st.sampled_from(["country", "operator", "more"]))
    if kind == "country":
        return replace(policy, regions=(replace(first, country=country), *rest))
    if kind == "operator":
        return replace(policy, regions=(replace(first, operator_country=country), *rest))
    if any(region.name == "more" for region in policy.regions):
        return policy
    services = tuple(replace(item, members=(*item.members, Member("more"))) for item in policy.services)
    # An endpoint of its own: with that of another it would be taken for that one, too.
    more = replace(
        first, name="more", country=country, endpoints=(Endpoint("https://more.test", ("192.0.2.3",)),)
    )
    return replace(policy, regions=(*policy.regions, more), services=services)


def _jurisdiction(draw: Any, policy: Policy) -> Policy:
    """What an operator's jurisdiction covers changes."""
    members = tuple(draw(st.lists(st.sampled_from(["EU", "UK", *COUNTRIES]), unique=True, max_size=3)))
    terms = tuple(Term(name, datetime.fromtimestamp(350, UTC)) for name in members[:1] if draw(st.booleans()))
    one, *rest = policy.jurisdictions
    return replace(policy, jurisdictions=(replace(one, members=members, terms=terms), *rest))


def _service(draw: Any, policy: Policy) -> Policy:
    """A service gets another name, and no rule names it any more; or there is one more."""
    first, *rest = policy.services
    if draw(st.booleans()):
        if any(item.name == "third" for item in policy.services):
            return policy
        return replace(policy, services=(*policy.services, replace(first, name="third", hostnames=())))
    if any(item.name == "renamed" for item in policy.services):
        return policy
    listed = tuple(
        replace(rule, match=replace(rule.match, services=left))
        for rule in policy.residency_rules
        for left in (tuple(name for name in rule.match.services if name != first.name),)
        if left or not rule.match.services
    )
    return replace(policy, services=(replace(first, name="renamed"), *rest), residency_rules=listed)


def _tenant(draw: Any, policy: Policy) -> Policy:
    """A tenant goes, and no rule names it any more; or it is established elsewhere; or there is one more."""
    if draw(st.booleans()):
        return replace(
            policy, tenants=(*(one for one in policy.tenants if one.name != "third"), Tenant("third"))
        )
    if policy.tenants and draw(st.booleans()):
        country = draw(st.sampled_from([None, "DE", "US"]))
        first, *rest = policy.tenants
        return replace(policy, tenants=(replace(first, country=country), *rest))
    gone = draw(st.sampled_from(TENANTS))
    policy = _named(
        policy,
        [
            [replace(host, tenant=None) if host.tenant == gone else host for host in item.names]
            for item in policy.services
        ],
    )
    listed = tuple(
        replace(rule, match=replace(rule.match, tenants=left))
        for rule in policy.residency_rules
        for left in (tuple(name for name in rule.match.tenants if name != gone),)
        if left or not rule.match.tenants
    )
    return replace(
        policy, tenants=tuple(one for one in policy.tenants if one.name != gone), residency_rules=listed
    )


def _host(draw: Any, policy: Policy) -> Policy:
    """A host name states something else, moves, goes or comes."""
    name = draw(st.sampled_from(HOSTS))
    listed = [[host for host in item.names if host.name != name] for item in policy.services]
    if draw(st.integers(0, 4)):
        to = [at for at, item in enumerate(policy.services) if name in {host.name for host in item.names}]
        where = draw(st.sampled_from([*to * 3, *range(len(listed))]))
        listed[where].append(draw(_hosts(name, policy)))
    return _named(policy, listed)


def _hosts(name: str, policy: Policy) -> st.SearchStrategy[HostName]:
    """A host name that may state a tenant, a data class, or both, of those that there are."""
    tenants = [None, *(item.name for item in policy.tenants)]
    classes = [None, None, *(item.name for item in policy.data_classes)]
    return st.builds(HostName, st.just(name), st.sampled_from(tenants), st.sampled_from(classes))


def _named(policy: Policy, listed: list[list[HostName]]) -> Policy:
    """A policy whose services have the names listed for each."""
    services = tuple(
        replace(
            item,
            hostnames=tuple(names),
            zone="demo.test" if names else None,
            refusal=CHAT.refusal if names else item.refusal,
        )
        for item, names in zip(policy.services, listed, strict=True)
    )
    return replace(policy, services=services)


_CHANGES: list[Callable[[Any, Policy], Policy]] = [
    _rule,
    _rule,
    _rule,
    _region,
    _jurisdiction,
    _service,
    _tenant,
    _host,
    _host,
]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Policy, Policy]:
    """A policy and a change of it that compiles."""
    before = draw(policies())
    endpoint = Endpoint("https://all.test", ipv4=("192.0.2.1",))
    before = replace(
        before,
        regions=tuple(replace(region, endpoints=(endpoint,)) for region in before.regions),
        zones=GOOD.zones,
    )
    listed: list[list[HostName]] = [[] for _ in before.services]
    for name in draw(st.lists(st.sampled_from(HOSTS), unique=True)):
        listed[draw(st.integers(0, len(listed) - 1))].append(draw(_hosts(name, before)))
    before = _named(before, listed)
    return before, draw(changed(before))


@st.composite
def namings(draw: st.DrawFn) -> tuple[Policy, Policy]:
    """A policy of rules about tenants and data classes, and what becomes of it when host names change."""
    before, _ = draw(cases())
    rules = tuple(
        replace(
            rule,
            match=replace(
                rule.match,
                tenants=draw(st.sampled_from([(), *((one,) for one in TENANTS)])),
                data_classes=draw(st.sampled_from([(), (), *((one,) for one in DATA_CLASSES)])),
                client_countries=(),
                client_jurisdictions=(),
            ),
            mode=RuleMode.ENFORCE,
            effective_from=None,
            effective_until=None,
        )
        for rule in before.residency_rules
    )
    before = after = replace(before, residency_rules=rules)
    for change in draw(st.lists(st.sampled_from([_host, _host, _host, _rule]), min_size=1, max_size=3)):
        after = change(draw, after)
    return before, after


@given(case=cases())
@quick(100)
def test_just_what_a_change_opens_is_found(case: tuple[Policy, Policy]) -> None:
    """The search finds the same rules and services as looking at each kind of request, place and moment."""
    compare(*case)


@given(case=namings())
@quick(40)
def test_just_what_host_names_open_is_found(case: tuple[Policy, Policy]) -> None:
    """So it does where what host names state, and where they lead, is most of what changes."""
    compare(*case)


def compare(before: Policy, after: Policy) -> None:
    """Look for what a change opens, slowly and as it is done."""
    try:
        compiled = [compile_policy(one, SHIPPED) for one in (before, after)]
    except PolicyError as error:
        event(f"does not compile: {error.problems[0].code}")
        return
    found = openings(*compiled, NOW, leads=leads_of)
    event("opens" if found.any else "opens nothing")
    event(f"by host names alone: {any(one.hosts for one in found.found)}")
    assert not found.unknown
    services = {(one.rule, service) for one in found.found for service in one.services}
    places = {(one.rule, place) for one in found.found for place in places_of(one)}
    assert (services, places) == Model(before, after, NOW).opened()


def places_of(one: Opening) -> Iterator[str]:
    """The places of an opening as the model has them: of edges, how they are told."""
    yield from one.regions
    yield from (f"in {code}" for code in one.stand if code in EVERYWHERE)
    yield from (
        f"by {None if len(code) > 2 else code}" for code in one.run if len(code) > 2 or code in EVERYWHERE
    )
    yield from map(told, one.edges)


# --- one by one ---

DE, US = (replace(region, operator_country="US") for region in (plain.DE, plain.US))
RECORDS = worlds.service("records", "de us")
BEFORE = replace(
    GOOD,
    regions=(DE, US),
    services=(CHAT, RECORDS),
    residency_rules=(
        RULE,
        worlds.rule("clinic", "DE", services="records", tenants="clinic"),
        worlds.rule(
            "established", "DE", services="records", client_countries="IE", tenant_jurisdictions="DE"
        ),
        ResidencyRule("all", Match(client_countries=("FR",)), deny=Places(operator_jurisdictions=("BR",))),
    ),
    tenants=(Tenant("clinic"), Tenant("bank", country="DE")),
    jurisdictions=(Jurisdiction("HOME", members=("DE", "FR")),),
)


def found(after: Policy, before: Policy = BEFORE) -> Openings:
    """What a change opens."""
    return openings(compile_policy(before, SHIPPED), compile_policy(after, SHIPPED), NOW, leads=leads_of)


def with_rule(number: int, **changes: Any) -> Policy:
    """One rule changed, of the policy or of its match."""
    rule = BEFORE.residency_rules[number]
    inner = {key: changes.pop(key) for key in tuple(changes) if hasattr(rule.match, key)}
    rule = replace(rule, match=replace(rule.match, **inner), **changes)
    listed = list(BEFORE.residency_rules)
    listed[number] = rule
    return replace(BEFORE, residency_rules=tuple(listed))


def at(second: float) -> datetime:
    """A moment."""
    return datetime.fromtimestamp(second, UTC)


OPEN: dict[str, tuple[Policy, str, str]] = {
    "deleted": (replace(BEFORE, residency_rules=BEFORE.residency_rules[1:]), "gdpr", "deleted"),
    "monitored": (with_rule(0, mode=RuleMode.MONITOR), "gdpr", "changed"),
    "fewer clients": (
        with_rule(0, client_jurisdictions=(), client_countries=("DE", "FR")),
        "gdpr",
        "changed",
    ),
    "unknown ignored": (with_rule(0, on_unknown_location=OnUnknownLocation.IGNORE), "gdpr", "changed"),
    "anonymous trusted": (with_rule(0, on_anonymous=OnAnonymous.TRUST), "gdpr", "changed"),
    "begins later": (with_rule(0, effective_from=at(300)), "gdpr", "changed"),
    "ends": (with_rule(0, effective_until=at(300)), "gdpr", "changed"),
    "allows more": (with_rule(0, allow=Places(("EEA",))), "gdpr", "changed"),
    "denies less": (with_rule(3, deny=Places(operator_jurisdictions=("SG",))), "all", "changed"),
    "one service alone": (with_rule(3, services=("records", "chat")), "all", "changed"),
    "another tenant": (with_rule(1, tenants=("bank",)), "clinic", "changed"),
    "tenant gone": (
        replace(
            BEFORE,
            tenants=(Tenant("bank", country="DE"),),
            residency_rules=(BEFORE.residency_rules[0], *BEFORE.residency_rules[2:]),
        ),
        "clinic",
        "deleted",
    ),
    "tenant declared elsewhere": (
        replace(BEFORE, tenants=(Tenant("clinic"), Tenant("bank", country="US"))),
        "established",
        "kept",
    ),
    "region declared elsewhere": (
        replace(BEFORE, regions=(DE, replace(US, country="DE"))),
        "clinic",
        "kept",
    ),
    "renamed": (
        replace(
            BEFORE,
            services=(CHAT, replace(RECORDS, name="files")),
            residency_rules=BEFORE.residency_rules[::3],
        ),
        "clinic",
        "deleted",
    ),
    "host name moved": (
        replace(
            BEFORE,
            services=(
                replace(CHAT, hostnames=(), zone=None),
                replace(CHAT, name="open"),
                RECORDS,
            ),
        ),
        "gdpr",
        "kept",
    ),
}


@pytest.mark.parametrize("case", OPEN)
def test_what_opens_a_fence(case: str) -> None:
    """Each way in which a rule keeps less than it did is found, and the rule is named."""
    after, rule, fate = OPEN[case]
    assert (rule, fate) in {(one.rule, one.fate) for one in found(after).found}


SHUT = {
    "nothing": BEFORE,
    "a lawful region": replace(BEFORE, regions=(DE, US, replace(DE, name="fr", country="FR"))),
    "an unlawful region": replace(
        BEFORE,
        regions=(DE, US, replace(US, name="br", country="BR", operator_country="BR")),
        services=(replace(CHAT, members=(*CHAT.members, Member("br"))), RECORDS),
    ),
    "another service": replace(BEFORE, services=(CHAT, RECORDS, replace(RECORDS, name="third"))),
    "a service gone": replace(BEFORE, services=(CHAT,), residency_rules=BEFORE.residency_rules[::3]),
    "another rule": replace(BEFORE, residency_rules=(*BEFORE.residency_rules, worlds.rule("new", "DE US"))),
    "another name": with_rule(0, name="eu", legal_basis="GDPR"),
    "allows less": with_rule(0, allow=Places(("DE",))),
    "more clients": with_rule(0, client_jurisdictions=("EEA",)),
    "all clients": with_rule(0, client_jurisdictions=()),
    "all tenants": with_rule(1, tenants=()),
    "rougher locations": with_rule(0, max_accuracy_km=50.0),
    "a tenant that no rule names": replace(BEFORE, tenants=(*BEFORE.tenants, Tenant("third"))),
    "a jurisdiction that no rule names": replace(
        BEFORE, jurisdictions=(Jurisdiction("HOME", members=("DE", "FR", "US")),)
    ),
    "split in two": replace(
        BEFORE,
        residency_rules=(
            replace(RULE, name="a", match=Match(("chat",), ("DE", "FR"))),
            replace(RULE, name="b", match=Match(("chat",), ("IE",))),
            *BEFORE.residency_rules[1:],
        ),
    ),
}


@pytest.mark.parametrize("case", SHUT)
def test_what_opens_nothing(case: str) -> None:
    """What adds to a policy, tightens a rule or says the same in other words is no opening."""
    assert not found(SHUT[case]).any


def hosted(**names: dict[str, str]) -> Policy:
    """BEFORE with `records` asked for by names below `demo.test` (`all`: `*`), and what they state."""
    hosts = tuple(
        HostName(f"{'*' if name == 'all' else name}.demo.test", **said) for name, said in names.items()
    )
    records = replace(RECORDS, hostnames=hosts, zone="demo.test", refusal=CHAT.refusal)
    return replace(
        BEFORE,
        services=(CHAT, records),
        data_classes=(*BEFORE.data_classes, DataClass("payment")),
        residency_rules=(
            *BEFORE.residency_rules,
            worlds.rule("pay", "DE", services="records", data_classes="payment"),
        ),
    )


BANK, CLINIC, HEALTH = {"tenant": "bank"}, {"tenant": "clinic"}, {"data_class": "health"}


def test_what_a_host_name_states_is_part_of_a_fence() -> None:
    """Stating a tenant or data class of requests by a name lets them out of the rules about others, and is an opening."""

    def opens(before: Policy, after: Policy) -> dict[str, tuple[str, ...]]:
        return {one.rule: one.hosts for one in found(after, before).found}

    x = ("x.demo.test",)
    plain = hosted(x={}, y={})
    assert opens(plain, plain) == {}
    assert opens(plain, hosted(x=BANK, y={})) == {"clinic": x}
    assert opens(plain, hosted(x=HEALTH, y={})) == {"pay": x}
    assert opens(plain, hosted(x=CLINIC, y={})) == {}, "which may be established in Germany, for all we know"
    assert opens(plain, hosted(x=BANK | HEALTH, y=BANK)) == {"clinic": (*x, "y.demo.test"), "pay": x}
    assert opens(plain, hosted(x=BANK, y=BANK)) == {"clinic": (*x, "y.demo.test")}
    named = hosted(x=BANK, y={})
    gone = tuple(rule for rule in named.residency_rules if rule.name != "clinic")
    assert opens(plain, replace(named, residency_rules=gone)) == {"clinic": ()}, "by any name"
    assert opens(hosted(x=CLINIC), hosted(x=BANK)) == {"clinic": x}
    assert opens(hosted(x=BANK), hosted(x={})) == {}, "stating less opens nothing"
    assert opens(plain, hosted(x={}, y={}, z=BANK)) == {}, "nothing answered `z` before"
    assert opens(plain, hosted(x={}, y={}, all=BANK)) == {}, "nor what is below `demo.test`"
    wild = hosted(all={})
    assert opens(wild, hosted(all={}, x=BANK)) == {"clinic": x}, "the wildcard answered it"
    assert opens(wild, hosted(all=BANK)) == {"clinic": ("*.demo.test",)}
    assert opens(hosted(all=BANK), hosted(all=BANK, x=BANK)) == {}
    assert opens(hosted(all=BANK, x={}), hosted(all=BANK)) == {"clinic": x}, "the wildcard answers it now"
    assert opens(hosted(x=BANK), hosted()) == {}
    (one,) = found(hosted(x=BANK, y={}), plain).found
    assert (one.tenants, one.fate, one.services) == ((None,), "kept", ("records",)), (
        "who states the bank itself was out before"
    )


def test_a_host_name_that_moves_takes_along_just_the_rules_about_its_requests() -> None:
    """A name of one tenant is judged for that tenant; another may go where it likes."""
    files = replace(RECORDS, name="files")

    def moved(said: dict[str, str], to: dict[str, str]) -> set[str]:
        before = hosted(x=said)
        other = replace(hosted(x=to).services[1], name="files")
        before = replace(before, services=(*before.services, files))
        return {one.rule for one in found(replace(before, services=(CHAT, RECORDS, other)), before).found}

    assert moved({}, {}) == {"clinic", "established", "pay"}
    assert moved(BANK | HEALTH, BANK | HEALTH) == {"established"}
    assert moved(CLINIC | HEALTH, {}) == {"clinic", "established"}


def test_edges_are_part_of_a_fence() -> None:
    """Letting edges elsewhere handle requests, or ones that follow an older policy, is an opening; the reverse is none."""
    bound = with_rule(0, edges=EdgeScope.IN_FENCE, max_policy_age=600.0)
    assert not found(bound).any
    (one,) = found(with_rule(0, edges=EdgeScope.IN_FENCE), bound).found
    assert one.edges == ("edges that follow a policy older than 600 s",)
    (one,) = found(with_rule(0, max_policy_age=600.0), bound).found
    assert one.edges[0].startswith("edges in an unknown country, AD, ")
    (one,) = found(with_rule(0, edges=EdgeScope.IN_FENCE, max_policy_age=900.0), bound).found
    assert (one.regions, one.edges) == ((), ("edges that follow a policy older than 600 s",))
    assert not found(with_rule(0, edges=EdgeScope.IN_FENCE, max_policy_age=60.0), bound).any
    narrow = with_rule(
        0, edges=EdgeScope.IN_FENCE, max_policy_age=600.0, client_countries=("DE",), client_jurisdictions=()
    )
    both = replace(narrow, residency_rules=(*narrow.residency_rules, replace(RULE, name="regions")))
    (one,) = found(both, bound).found
    assert (one.regions, one.stand) == ((), ()), "regions are kept by the other rule"
    run = with_rule(3, edges=EdgeScope.IN_FENCE)
    (one,) = found(BEFORE, run).found
    assert one.edges == ("edges in an unknown country", "edges that are run from an unknown country, BR")


def test_edges_in_regions_are_part_of_a_fence() -> None:
    """What a rule says of a region holds for the edges in it, even where another rule goes on keeping the region itself."""
    denied = worlds.rule("edges", deny="us", edges=EdgeScope.IN_FENCE)
    regions = worlds.rule("regions", deny="US us")
    before = replace(BEFORE, residency_rules=(denied, regions))
    elsewhere = replace(denied, deny=Places(("SG",)))
    (one,) = found(replace(before, residency_rules=(elsewhere, regions)), before).found
    assert (one.rule, one.regions, one.edges) == ("edges", (), ("edges that run in `us`",))
    bound = replace(denied, deny=Places(("US",)))
    moved = replace(BEFORE, regions=(DE, replace(US, country="DE")), residency_rules=(bound, regions))
    told = {
        one.rule: (one.regions, one.edges) for one in found(moved, replace(moved, regions=(DE, US))).found
    }
    assert told == {"edges": ((), ("edges that run in `us`",))}, "its edges stand where it does"


def test_a_rule_that_is_over_may_go() -> None:
    """What held in the past only keeps nothing any more; what begins later does."""
    over = with_rule(0, effective_until=at(100))
    gone = replace(BEFORE, residency_rules=BEFORE.residency_rules[1:])
    assert not found(gone, over).any
    (one,) = found(gone, with_rule(0, effective_from=at(500))).found
    assert (one.starts, one.later) == (500.0, True)


def test_what_is_opened_is_told() -> None:
    """An opening says whose requests it is about, and where they may go."""
    (one,) = found(OPEN["deleted"][0]).found
    assert one == Opening(
        rule="gdpr",
        fate="deleted",
        services=("chat",),
        hosts=(),
        regions=("us",),
        stand=one.stand,
        run=(),
        edges=(),
        outside=False,
        led=False,
        shared=(),
        countries=one.countries,
        certain=True,
        tenants=(None, "bank", "clinic"),
        classes=(None, "health"),
        starts=NOW,
        ends=inf,
        later=False,
    )
    assert set(one.countries) >= {"DE", "FR", "IE"}
    assert "US" in one.stand
    assert "DE" not in one.stand
    (one,) = found(OPEN["unknown ignored"][0]).found
    assert one.countries == (None,)
    (one,) = found(OPEN["anonymous trusted"][0]).found
    assert not one.certain
    (one,) = found(OPEN["denies less"][0]).found
    assert one.run == ("BR", "an unknown country")[:1]


def test_all_of_a_rule_that_changes_often_is_told() -> None:
    """Members come and go for years: each place of each time is told, whichever comes first."""
    terms = tuple(
        Term(("FR", "IE")[number % 2], at(start), at(start + 100))
        for number, start in enumerate(range(200, 200 + 98 * 100, 100))
    )
    home = Jurisdiction("HOME", members=("DE", "FR", "IE"), terms=terms)
    changing = ResidencyRule("changing", deny=Places(("HOME",), (), ("HOME",)))
    before = replace(BEFORE, jurisdictions=(home,), residency_rules=(changing,))
    (one,) = found(replace(before, residency_rules=()), before).found
    assert (one.regions, one.stand) == (("de",), ("DE", "FR", "IE"))
    assert one.run == ("an unknown country", "DE", "FR", "IE")
    assert (one.starts, one.ends) == (NOW, inf)


def test_what_is_not_understood_counts_as_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field that this comparison does not know, rules that differ too much: nobody can tell, and that is said."""
    known = {kind: names - {"max_accuracy_km", "tenants"} for kind, names in subject.KNOWN_FIELDS.items()}
    monkeypatch.setattr(subject, "KNOWN_FIELDS", known)
    assert not found(BEFORE).unknown
    unknown = found(with_rule(0, max_accuracy_km=50.0)).unknown or {}
    assert "`max_accuracy_km`" in unknown["gdpr"]
    assert "`match.tenants`" in (found(with_rule(1, tenants=())).unknown or {})["clinic"]
    monkeypatch.undo()
    compiled = [compile_policy(one, SHIPPED) for one in (BEFORE, OPEN["fewer clients"][0])]
    assert set(openings(*compiled, NOW, leads=leads_of, steps=1).unknown or {}) >= {"gdpr"}
    monkeypatch.setattr("gtm.core.change.ground.MOST_FACTS", 1)
    changed = OPEN["fewer clients"][0]
    assert set(found(changed).unknown or {}) == {"gdpr", "clinic", "established", "all"}


def test_all_that_rules_say_is_compared() -> None:
    """A field that rules get has to be compared, or else be listed as one that opens nothing."""
    for kind, names in subject.KNOWN_FIELDS.items():
        assert {field.name for field in fields(kind)} == names
    assert LocationFacts._fields == ("countries", "anonymous", "accuracy_km", "mixed", "anywhere", "doubtful")
