"""The fence against its readable reference, and what it says of itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from itertools import product
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.decision.decide import decide
from gtm.core.decision.fence import Fence, fence
from gtm.core.decision.router import Router
from gtm.core.decision.view import View, Window, view_of
from gtm.core.demand.cells import Cell, cell_of
from gtm.core.latency.doubt import Doubt
from gtm.core.latency.table import LatencyTable
from gtm.core.model.countries import COUNTRIES as KNOWN
from gtm.core.model.policy import (
    Jurisdiction,
    Match,
    OnAnonymous,
    OnDoubtfulLocation,
    OnUnknownLocation,
    Places,
    Policy,
    ResidencyRule,
    RuleMode,
    Tenant,
    Term,
)
from gtm.core.model.problems import PolicyError
from gtm.core.model.requests import ANYWHERE, UNKNOWN_LOCATION, Location, Request, location_facts
from gtm.core.model.services import Priority
from gtm.core.model.state import State
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.jurisdictions import MAX_PERIODS, countries_at, resolve
from gtm.core.policy.snapshot import Snapshot
from gtm.geoip.networks import locate_network
from tests import worlds as usual
from tests.core.reference import Reference
from tests.core.strategies import (
    COUNTRIES,
    DATA_CLASSES,
    MOMENTS,
    SHIPPED,
    TENANTS,
    World,
    locations,
    policies,
    quick,
    windows,
    worlds,
)

WORLDS = 120
LOCATIONS = [
    UNKNOWN_LOCATION,
    Location(anonymous=True),
    Location(doubtful=True),
    Location("EU", anonymous=True, accuracy_km=20.0),
    *(
        Location(country, source=source, anonymous=anonymous, accuracy_km=accuracy, doubtful=doubtful)
        for country, source, (anonymous, doubtful), accuracy in product(
            (*COUNTRIES, "JP"),
            ("geoip", "override"),
            ((False, False), (True, False), (False, True)),
            (None, 20.0, 500.0),
        )
    ),
]


def _fence(view: View, request: Request) -> Fence:
    return fence(view.rules[request.service], view.snapshot.services[request.service].mask, request)


@quick(WORLDS)
@given(policies(), windows(), st.data())
def test_the_fence_is_that_of_the_reference(policy: Policy, window: Window, data: st.DataObject) -> None:
    """Whatever the policy and the time, the fence and the rules that match are the reference's.

    Each of the 120 policies is asked for one of its services by every kind of client, of every tenant and class of
    data: 1,332 requests, more than 150,000 together.
    """
    view = usual.view(policy, State(), window.now, window.latest)
    reference = Reference(policy, SHIPPED, State(), window)
    service = data.draw(st.sampled_from(policy.services)).name
    for location, tenant, data_class in product(LOCATIONS, (None, *TENANTS), (None, *DATA_CLASSES)):
        request = Request(service, location, tenant, data_class)
        found = _fence(view, request)
        assert set(view.snapshot.names(found.allowed)) == reference.fence(request)
        assert [match.compiled.rule for match in found.matched] == reference.matched(request)
        assert all(match.because for match in found.matched)


@quick(100)
@given(worlds(), locations(), locations())
def test_locations_of_equal_facts_have_equal_fences(world: World, one: Location, other: Location) -> None:
    """The facts hold all of a location that the fence looks at, so that fences may be remembered by them."""
    alike = other._replace(
        country=one.country,
        anonymous=one.anonymous,
        accuracy_km=one.accuracy_km,
        source=one.source,
        doubtful=one.doubtful,
    )
    assert location_facts(alike) == location_facts(one)
    for service in world.policy.services:
        fences = [_fence(world.view, Request(service.name, location)) for location in (one, alike, other)]
        assert fences[0] == fences[1]
        if location_facts(one) == location_facts(other):
            assert fences[0] == fences[2]


def test_facts_of_overrides_are_certain() -> None:
    """An override is neither anonymous nor inaccurate, and codes that are no country are unknown."""
    assert location_facts(Location("DE", anonymous=True, accuracy_km=9.0))[:3] == (("DE",), True, 9.0)
    assert location_facts(Location("DE", source="override", anonymous=True))[:3] == (("DE",), False, 0.0)
    assert location_facts(Location("EU"))[:3] == ((None,), False, inf)


@quick(100)
@given(worlds(), locations())
def test_doubt_only_ever_restricts(world: World, location: Location) -> None:
    """Whatever the rules, a client whose location is in doubt may go nowhere that it could not go before."""
    sure, doubted = location._replace(doubtful=False), location._replace(doubtful=True)
    for service in world.policy.services:
        before = _fence(world.view, Request(service.name, sure))
        after = _fence(world.view, Request(service.name, doubted))
        assert after.allowed & ~before.allowed == 0
        cell = Cell.parse(cell_of(Request(service.name, doubted), Priority.REAL_TIME)).request
        assert cell.location.doubtful is (location.source != "override")
        assert _fence(world.view, cell).allowed & ~after.allowed == 0


GERMAN_RULE_NETWORK = "192.0.2.0/24"
CLAIMED = Location("US", lat=40.71, lon=-74.0, network=GERMAN_RULE_NETWORK, prefix_length=24, source="geoip")


@pytest.mark.parametrize(
    ("location", "doubt", "settings", "because"),
    [
        (CLAIMED, Doubt("US|40,-74", True, {"de": 3.0}), {}, "client country US in doubt"),
        (CLAIMED, Doubt("US|40,-74", False, {"de": 3.0}), {}, None),
        (CLAIMED, Doubt("US|41,-74", True, {"de": 3.0}), {}, None),
        (CLAIMED._replace(source="override"), Doubt("US|40,-74", True, {"de": 3.0}), {}, None),
        (
            CLAIMED,
            Doubt("US|40,-74", True, {"de": 3.0}),
            {"on_doubtful_location": OnDoubtfulLocation.TRUST},
            None,
        ),
        (
            CLAIMED,
            Doubt("US|40,-74", True, {"de": 3.0}),
            {"on_unknown_location": OnUnknownLocation.IGNORE},
            None,
        ),
    ],
)
def test_what_edges_decide_follows_the_doubts_of_their_table(
    location: Location, doubt: Doubt, settings: dict[str, Any], because: str | None
) -> None:
    """A decision, and a router that has answered others before, read a doubtful network as the table has it."""
    rule = ResidencyRule("r", CLIENTS, HOME, **settings)
    snapshot = compile_policy(replace(POLICY, residency_rules=(rule,)), SHIPPED)
    for doubts in ({}, {GERMAN_RULE_NETWORK: doubt}):
        view = view_of(snapshot, State(), Window(0.0, 0.0), LatencyTable(doubts=doubts))
        router = Router(view)
        router.decide(Request("chat", location._replace(network="192.0.3.0/24")), 0.5)
        found = router.decide(Request("chat", location), 0.5)
        assert found == decide(view, Request("chat", location), 0.5)
        expected = [(because,)] if because is not None and doubts else []
        assert [trace.because for trace in found.rules] == expected


def test_a_subnet_with_a_doubtful_network_inside_is_read_with_it() -> None:
    """Resolvers keep the answer for all parts; an override's part stays believed."""
    halves = {
        0: CLAIMED,
        1: CLAIMED._replace(network="192.0.3.0/24", lat=41.9, lon=-87.6),
    }
    rule = ResidencyRule("r", CLIENTS, HOME)
    snapshot = compile_policy(replace(POLICY, residency_rules=(rule,)), SHIPPED)
    for source, believed in (("geoip", False), ("override", True)):
        halves[1] = halves[1]._replace(source=source)
        subnet = locate_network(SUBNET, 23, lambda address: halves[ip_address(address).packed[2] & 1])
        doubts = {"192.0.3.0/24": Doubt("US|41,-88", True, {"de": 3.0})}
        view = view_of(snapshot, State(), Window(0.0, 0.0), LatencyTable(doubts=doubts))
        assert view.basis.estimator.placed(subnet).doubtful is not believed
        found = decide(view, Request("chat", subnet), 0.5)
        assert bool(found.rules) is not believed


NETS = ("192.0.2.0/25", "192.0.2.128/26", "192.0.2.192/28", "192.0.2.208/28", "192.0.2.224/27")
SUBNET = bytes((192, 0, 2, 0))


@st.composite
def subnets(draw: st.DrawFn) -> tuple[Location, list[Location]]:
    """A /24 as the code locates it, and the locations of the five networks in it, of which neighbours may be alike."""
    few = draw(st.lists(locations(), min_size=1, max_size=3))
    parts = [draw(st.sampled_from(few))._replace(network=text, prefix_length=int(text[-2:])) for text in NETS]

    def locate(address: str | bytes) -> Location:
        return next(
            part for part, text in zip(parts, NETS, strict=True) if ip_address(address) in ip_network(text)
        )

    return locate_network(SUBNET, 24, locate), parts


@quick(40)
@given(policies(), windows(), st.lists(subnets(), min_size=12, max_size=12), st.data())
def test_the_fence_of_a_subnet_is_that_of_all_its_parts(
    policy: Policy, window: Window, clients: list[tuple[Location, list[Location]]], data: st.DataObject
) -> None:
    """What a resolver keeps for a subnet holds for each address in it, and rules that concern some part are named."""
    view = usual.view(policy, State(), window.now, window.latest)
    reference = Reference(policy, SHIPPED, State(), window)
    service = data.draw(st.sampled_from(policy.services)).name
    for location, parts in clients:
        for tenant, data_class in product((None, TENANTS[0]), (None, DATA_CLASSES[0])):
            request = Request(service, location, tenant, data_class)
            found = _fence(view, request)
            names = set(view.snapshot.names(found.allowed))
            assert names == reference.fence(request, parts)
            assert names == set.intersection(
                *(reference.fence(request._replace(location=part)) for part in parts)
            )
            assert [match.compiled.rule for match in found.matched] == reference.matched(request, parts)
            cell = Cell.parse(cell_of(request, Priority.REAL_TIME)).request
            assert (
                found.allowed | _fence(view, cell).allowed == found.allowed
            )  # never out of the request's fence


@quick(60)
@given(policies(), windows(), st.booleans())
def test_a_subnet_of_too_many_networks_concerns_every_rule_about_places(
    policy: Policy, window: Window, anonymous: bool
) -> None:
    """Neither `ignore` nor `trust` lets a subnet go of which nobody knows where it is."""
    here = Location("JP", source="override", anonymous=anonymous)
    location = locate_network(
        SUBNET, 16, lambda address: here._replace(network=f"{ip_address(address)}/32", prefix_length=32)
    )
    assert location.spans == ANYWHERE
    view = usual.view(policy, State(), window.now, window.latest)
    reference = Reference(policy, SHIPPED, State(), window)
    for service in policy.services:
        request = Request(service.name, location)
        found = _fence(view, request)
        assert set(view.snapshot.names(found.allowed)) == reference.fence(request, ())
        assert [match.compiled.rule for match in found.matched] == reference.matched(request, ())
        cell = Cell.parse(cell_of(request, Priority.REAL_TIME))
        assert _fence(view, cell.request) == found


DE, US = usual.region("de", operator_country="DE"), usual.region("us")
GB = usual.region("gb", operator_country="US")
POLICY = usual.policy(DE, GB, US, usual.service("chat", "de gb us"))


def _view(*rules: ResidencyRule, now: float = 0.0, latest: float | None = None) -> View:
    return usual.view(replace(POLICY, residency_rules=rules), State(), now, latest)


def _seen(view: View, location: Location = UNKNOWN_LOCATION) -> tuple[set[str], list[tuple[str, ...]]]:
    found = _fence(view, Request("chat", location))
    return set(view.snapshot.names(found.allowed)), [match.because for match in found.matched]


CLIENTS = Match(client_countries=("DE",))
HOME = Places(regions=("de",))


@pytest.mark.parametrize(
    ("rule", "location", "because"),
    [
        ({}, Location("DE", anonymous=True), "client country DE"),
        ({}, Location("US", anonymous=True), "client country US by an anonymising network"),
        ({}, Location(anonymous=True), "client country unknown by an anonymising network"),
        ({}, Location(), "client country unknown"),
        ({}, Location("US", doubtful=True), "client country US in doubt"),
        ({}, Location("DE", doubtful=True), "client country DE"),
        ({}, Location(doubtful=True), "client country unknown"),
        ({"max_accuracy_km": 50.0}, Location("US"), "client country US with unknown accuracy"),
        (
            {"max_accuracy_km": 50.0},
            Location("US", accuracy_km=200.0),
            "client country US to within 200 km only",
        ),
    ],
)
def test_a_match_says_what_of_the_location_it_was(
    rule: dict[str, float], location: Location, because: str
) -> None:
    """The reason names the country, and what makes it uncertain where that is why the rule applies."""
    made = ResidencyRule("r", CLIENTS, HOME, max_accuracy_km=rule.get("max_accuracy_km"))
    assert _seen(_view(made), location) == ({"de"}, [(because,)])


@pytest.mark.parametrize(
    ("parts", "settings", "because"),
    [
        ("DE US", {}, "client subnet spans DE and US"),
        ("US DE ?", {}, "client subnet spans DE, US and unknown places"),
        ("US ?", {}, "client subnet spans US and unknown places"),
        ("US US!", {}, "client subnet in US, in part by an anonymising network"),
        ("US US%", {}, "client subnet in US, in part in doubt"),
        ("US US%", {"on_doubtful_location": OnDoubtfulLocation.TRUST}, None),
        ("FR US!", {}, "client subnet spans FR and US, in part by an anonymising network"),
        ("US US~", {"max_accuracy_km": 50.0}, "client subnet in US, in part to within 200 km only"),
        (
            "AT BE CH DE ES FR US",
            {"on_unknown_location": OnUnknownLocation.IGNORE},
            "client subnet spans AT, BE, CH, DE, ES and 2 more",
        ),
        ("US", {}, None),
        ("US FR", {}, None),
        ("US US!", {"on_anonymous": OnAnonymous.TRUST}, None),
        ("FR ?", {"on_unknown_location": OnUnknownLocation.IGNORE}, None),
        ("FR US DE", {"on_unknown_location": OnUnknownLocation.IGNORE}, "client subnet spans DE, FR and US"),
    ],
)
def test_a_match_says_what_of_the_subnet_it_was(
    parts: str, settings: dict[str, Any], because: str | None
) -> None:
    """The reason names what is in the subnet: `!` a part that is anonymous, `%` one in doubt, `~` one known to within 200 km."""
    found = {
        ip: Location(
            None if code[0] == "?" else code[:2],
            source="geoip",
            network=f"192.0.2.{32 * ip}/27",
            prefix_length=27,
            anonymous="!" in code,
            doubtful="%" in code,
            accuracy_km=200.0 if "~" in code else 20.0,
        )
        for ip, code in enumerate(f"{parts} {' '.join([parts.rsplit(maxsplit=1)[-1]] * 8)}".split()[:8])
    }
    location = locate_network(SUBNET, 24, lambda address: found[ip_address(address).packed[3] // 32])
    rule = ResidencyRule("r", CLIENTS, HOME, **settings)
    seen = _seen(_view(rule), location)
    assert seen == (({"de", "gb", "us"}, []) if because is None else ({"de"}, [(because,)]))


def test_a_rule_can_believe_and_ignore() -> None:
    """Only rules that say so let go of clients who hide, or whom nobody can locate."""
    trusting = ResidencyRule("r", CLIENTS, HOME, on_anonymous=OnAnonymous.TRUST)
    known = ResidencyRule("r", CLIENTS, HOME, on_unknown_location=OnUnknownLocation.IGNORE)
    everywhere = {"de", "gb", "us"}
    assert _seen(_view(trusting), Location("US", anonymous=True)) == (everywhere, [])
    assert _seen(_view(trusting))[0] == {"de"}
    assert _seen(_view(known)) == (everywhere, [])
    assert _seen(_view(known), Location("US", anonymous=True))[0] == {"de"}
    assert _seen(_view(known), Location("DE"))[0] == {"de"}


def test_an_unknown_operator_is_in_no_allow_and_every_deny() -> None:
    """Who runs a region must be known to be allowed, and denying anyone denies whoever is not known."""
    allowed = ResidencyRule("r", allow=Places(operator_jurisdictions=("EU", "US")))
    denied = ResidencyRule("r", deny=Places(operator_jurisdictions=("BR",)))
    both = ResidencyRule("r", allow=Places(jurisdictions=("GB", "US"), operator_jurisdictions=("US",)))
    either = ResidencyRule("r", deny=Places(jurisdictions=("GB",), operator_jurisdictions=("FR",)))
    assert [_seen(_view(rule))[0] for rule in (allowed, denied, both, either)] == [
        {"de", "gb"},
        {"de", "gb"},
        {"gb"},
        {"de"},
    ]


ADEQUATE = ResidencyRule("r", allow=Places(jurisdictions=("ADEQUATE",)))


def _boundaries(snapshot: Snapshot) -> list[float]:
    """The moments at which some rule comes into or out of force."""
    return sorted({*snapshot.beginnings, *snapshot.endings})


def test_a_membership_that_lapses_takes_its_regions_along() -> None:
    """The fence narrows at the moment of the lapse, which is a boundary of the policy; other rules have none."""
    assert _seen(_view(ADEQUATE, now=299.0))[0] == {"de", "gb"}
    assert _seen(_view(ADEQUATE, now=300.0))[0] == {"de"}
    snapshot = _view(ADEQUATE).snapshot
    assert _boundaries(snapshot) == [300.0]
    assert snapshot.warnings == ()
    assert _boundaries(_view(ResidencyRule("r", allow=Places(jurisdictions=("EEA",)))).snapshot) == []


def test_a_clock_that_steps_back_over_a_lapse_binds_by_both_periods() -> None:
    """The rule is named once, and leaves what it left before and after."""
    no_us = usual.rule("no-us", deny="us", client_jurisdictions="ADEQUATE")
    view = _view(no_us, ADEQUATE, now=250.0, latest=450.0)
    assert _seen(view) == ({"de"}, [("client country unknown",), ("every request",)])
    assert _seen(view, Location("GB")) == ({"de"}, [("client country GB",), ("every request",)])


def test_a_fence_that_will_be_empty_is_a_warning_with_its_time() -> None:
    """A rule that leaves a service nothing only for a time is accepted, and the warning says for what time."""
    only = replace(POLICY, services=(usual.service("chat", "gb"),), residency_rules=(ADEQUATE,))
    (warning,) = compile_policy(only, SHIPPED).warnings
    assert "(gb) is allowed from 1970-01-01T00:05:00Z on: every matching request" in warning
    meant = replace(ADEQUATE, acknowledge_empty_fence=True)
    (warning,) = compile_policy(replace(only, residency_rules=(meant,)), SHIPPED).warnings
    assert warning.endswith("on; acknowledged")
    monitor = replace(ADEQUATE, mode=RuleMode.MONITOR)
    assert compile_policy(replace(only, residency_rules=(monitor,)), SHIPPED).warnings == ()
    over = replace(ADEQUATE, effective_until=datetime.fromtimestamp(300, UTC))
    assert compile_policy(replace(only, residency_rules=(over,)), SHIPPED).warnings == ()


def _term(member: str, since: float | None = None, until: float | None = None) -> Term:
    return Term(member, *(None if at is None else datetime.fromtimestamp(at, UTC) for at in (since, until)))


def test_terms_of_members_of_members_meet() -> None:
    """A country is covered while every membership on some way to it holds."""
    inner = Jurisdiction("INNER", members=("DE", "FR"), terms=(_term("DE", 100, 300),))
    outer = Jurisdiction(
        "OUTER", members=("INNER", "US"), terms=(_term("INNER", 200), _term("US", None, 100))
    )
    membership, problems = resolve((inner,), (outer,))
    assert problems == []
    assert [sorted(countries_at(membership["OUTER"], at)) for at in (-1e9, 150, 200, 300, 1e12)] == [
        ["US"],
        [],
        ["DE", "FR"],
        ["FR"],
        ["FR"],
    ]


@pytest.mark.parametrize(
    ("terms", "path", "code"),
    [
        ((_term("US", 1),), "terms[0].member", "unknown_reference"),
        ((_term("DE", 5, 5),), "terms[0].effective_until", "out_of_range"),
        ((Term("DE", datetime(2027, 1, 1)),), "terms[0].effective_from", "missing"),  # noqa: DTZ001 - the point
        (tuple(_term("DE", at, at + 1) for at in range(0, 2 * MAX_PERIODS, 2)), "terms", "out_of_range"),
    ],
)
def test_wrong_terms_are_problems(terms: tuple[Term, ...], path: str, code: str) -> None:
    """A term of no member, of no time, of no time zone, and more of them than are compiled."""
    _, problems = resolve((), (Jurisdiction("MINE", members=("DE",), terms=terms),))
    assert [(problem.path, problem.code) for problem in problems] == [(f"jurisdictions.MINE.{path}", code)]


def test_a_rule_of_too_many_periods_is_a_problem() -> None:
    """Jurisdictions that are within bounds each may change too often together."""
    own = tuple(
        Jurisdiction(
            f"J{n}", members=("DE",), terms=tuple(_term("DE", at + n, at + n + 1) for at in range(0, 470, 10))
        )
        for n in (0, 5)
    )
    rule = ResidencyRule("r", allow=Places(regions=("us",), jurisdictions=("J0", "J5")))
    assert _boundaries(compile_policy(replace(POLICY, jurisdictions=own), SHIPPED)) == []
    with pytest.raises(PolicyError, match="the most accepted is 99"):
        compile_policy(replace(POLICY, jurisdictions=own, residency_rules=(rule,)), SHIPPED)


@pytest.mark.parametrize(
    ("written", "meant"), [("eea", "EEA"), ("ADEQUAT", "ADEQUATE"), ("Uk", "UK"), ("XYZZY", None)]
)
def test_misspelt_jurisdictions_are_told_from_those_they_resemble(written: str, meant: str | None) -> None:
    """An unknown jurisdiction comes with the one that was probably meant."""
    rule = ResidencyRule("r", deny=Places(operator_jurisdictions=(written,)))
    with pytest.raises(PolicyError) as caught:
        _view(rule)
    (problem,) = caught.value.problems
    assert problem.path == "residency_rules.r.deny.operator_jurisdictions[0]"
    assert problem.message.endswith("`" if meant is None else f"; did you mean `{meant}`?")


def test_an_operators_country_is_one() -> None:
    """A region's operator is in a country that exists."""
    wrong = replace(POLICY, regions=(DE, GB, replace(US, operator_country="ZZ")))
    with pytest.raises(PolicyError, match=r"regions.us.operator_country: `ZZ` is not a country code"):
        compile_policy(wrong, SHIPPED)


@quick(60)
@given(policies(), st.sampled_from(MOMENTS), st.sampled_from(MOMENTS))
def test_nothing_changes_between_boundaries(policy: Policy, one: float, other: float) -> None:
    """Two moments without a boundary of the snapshot between them have the same rules in force."""
    snapshot = compile_policy(policy, SHIPPED)
    if any(min(one, other) < boundary <= max(one, other) for boundary in _boundaries(snapshot)):
        return
    assert (
        view_of(snapshot, State(), Window(one, one)).rules
        == view_of(snapshot, State(), Window(other, other)).rules
    )


@pytest.mark.parametrize("country", ["DE+", "+", "DE+US+ZZ", "DE+*", "+".join(sorted(KNOWN)[:9])])
def test_cells_of_subnets_are_read_whole_or_not_at_all(country: str) -> None:
    """A cell names up to eight countries or parts without one; what else it says of a subnet is refused."""
    text = "chat|{}||||||real_time||"
    assert Cell.parse(text.format("?+?")).spans == ("?", "?")
    assert Cell.parse(text.format("*")).spans == ANYWHERE
    with pytest.raises(ValueError, match="countries"):
        Cell.parse(text.format(country))


def test_a_subnet_in_more_countries_than_a_cell_names_may_be_anywhere() -> None:
    """A cell is never surer of a place than its requests."""
    nine = Location(spans=tuple(sorted(KNOWN)[:9]), source="mixed", accuracy_km=1.0)
    cell = Cell.parse(cell_of(Request("chat", nine), Priority.REAL_TIME))
    assert cell.spans == ANYWHERE
    eight = nine._replace(spans=nine.spans[:8])
    assert Cell.parse(cell_of(Request("chat", eight), Priority.REAL_TIME)).spans == eight.spans


def test_tenants_match_by_where_they_are_established() -> None:
    """At each moment by the law of then, and the reason says by what: a name, an establishment, or nobody's knowing."""
    places = {"bank": "GB", "clinic": "DE", "shop": None, "us": "US"}
    tenants = tuple(Tenant(name, country=country) for name, country in places.items())
    rule = usual.rule("r", "de", tenants="us", tenant_jurisdictions="ADEQUATE")
    snapshot = compile_policy(replace(POLICY, tenants=tenants, residency_rules=(rule,)), SHIPPED)
    assert _boundaries(snapshot) == [300.0]

    def because(now: float, tenant: str | None) -> tuple[str, ...] | None:
        view = view_of(snapshot, State(), Window(now, now))
        matched = _fence(view, Request("chat", Location("US"), tenant)).matched
        return matched[0].because if matched else None

    assert because(299.0, "bank") == ("tenant bank established in GB",)
    assert because(300.0, "bank") is None
    assert because(300.0, "clinic") == ("tenant clinic established in DE",)
    assert because(300.0, "shop") == ("tenant shop of unknown establishment",)
    assert because(300.0, "us") == ("tenant us",)
    assert because(300.0, None) == ("tenant not stated",)


def test_a_tenants_country_is_one() -> None:
    """A tenant is established in a country that exists."""
    with pytest.raises(PolicyError, match=r"tenants.x.country: `ZZ` is not a country code"):
        compile_policy(replace(POLICY, tenants=(Tenant("x", country="ZZ"),)), SHIPPED)
