"""What is legal in a policy and probably not meant: each finding is true, and found."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.decision.fence import fence
from gtm.core.decision.view import Window, view_of
from gtm.core.findings import shadows
from gtm.core.findings.coverage import coverage
from gtm.core.findings.report import can_be_empty, findings
from gtm.core.findings.shadows import find_shadows
from gtm.core.model.countries import COUNTRIES
from gtm.core.model.policy import (
    DataClass,
    Jurisdiction,
    OnAnonymous,
    OnDoubtfulLocation,
    OnUnknownLocation,
    Policy,
    ResidencyRule,
    RuleMode,
    Tenant,
    Term,
)
from gtm.core.model.problems import Problem
from gtm.core.model.regions import AddressFamily, AdminState, Capacity, Endpoint
from gtm.core.model.requests import UNKNOWN_LOCATION, Location, Request
from gtm.core.model.services import Families, Member, RefusalAddress, Service, Steering, Zone
from gtm.core.model.state import State
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.snapshot import Snapshot
from tests import worlds
from tests.core.strategies import COUNTRIES as FEW
from tests.core.strategies import DATA_CLASSES, MOMENTS, SHIPPED, TENANTS, policies, quick

NOW = datetime(2027, 1, 1, tzinfo=UTC)
LOCATIONS = [
    UNKNOWN_LOCATION,
    Location(anonymous=True),
    *(
        Location(country, source="geoip", anonymous=anonymous, accuracy_km=accuracy)
        for country, anonymous, accuracy in product(FEW, (False, True), (None, 20.0, 500.0))
    ),
]


DE, FR, US = worlds.regions("de fr us")
CHAT, BATCH = worlds.service("chat", "de fr us"), worlds.service("batch", "us")
POLICY = worlds.policy(DE, FR, US, CHAT, BATCH, Tenant("clinic"), Tenant("bank"), DataClass("health"))


def _besides(found: tuple[Problem, ...]) -> list[Problem]:
    """Without those about services that no rule concerns, or that have no host name: most of the policies here have one."""
    return [item for item in found if item.code not in ("no_rule", "redirect_loses_keys")]


def _unruled(*rules: ResidencyRule) -> list[str]:
    snapshot = compile_policy(replace(POLICY, residency_rules=rules), SHIPPED)
    return [str(item) for item in findings(snapshot, NOW.timestamp()) if item.code == "no_rule"]


def _found(policy: Policy, *rules: ResidencyRule) -> list[tuple[str, str]]:
    snapshot = compile_policy(replace(policy, residency_rules=rules), SHIPPED)
    return [(item.path, item.code) for item in _besides(findings(snapshot, NOW.timestamp()))]


def _messages(policy: Policy, *rules: ResidencyRule) -> list[str]:
    snapshot = compile_policy(replace(policy, residency_rules=rules), SHIPPED)
    return [str(item) for item in _besides(findings(snapshot, NOW.timestamp()))]


def _rule(name: str = "r", services: str = "chat", allow: str = "EU", **changes: Any) -> ResidencyRule:
    return worlds.rule(name, allow, services=services, **changes)


def test_services_that_no_rule_concerns() -> None:
    """Are named, unless there is no rule at all; a rule that only watches, or is over, concerns nobody."""
    text = "no residency rule concerns it: its clients may be served in any of its regions"
    assert _unruled() == []
    assert _unruled(_rule()) == [f"services.batch: {text}"]
    assert _unruled(_rule(services="", allow="EU US")) == []
    watched = _unruled(_rule(services="", allow="EU US", mode=RuleMode.MONITOR))
    assert f"services.chat: {text}; those in monitor mode only watch it" in watched
    over = _rule(services="", allow="EU US", effective_until=NOW - timedelta(days=1))
    assert f"services.chat: {text}" in _unruled(over)
    assert _unruled(_rule(services="", allow="EU US", effective_from=NOW + timedelta(days=1))) == []


def test_a_sound_policy_has_no_findings() -> None:
    """A rule that leaves two regions is nothing to speak of."""
    assert _found(POLICY, _rule(client_jurisdictions="EU")) == []
    assert _found(POLICY) == []


@pytest.mark.parametrize(
    ("rule", "path", "code"),
    [
        (_rule(effective_until=NOW), "effective_until", "rule_over"),
        (_rule(client_jurisdictions="NOWHERE"), "match.client_jurisdictions", "matches_nobody"),
        (_rule(tenant_jurisdictions="NOWHERE"), "match.tenant_jurisdictions", "matches_nobody"),
        (_rule(on_anonymous=OnAnonymous.TRUST), "on_anonymous", "without_effect"),
        (_rule(max_accuracy_km=5.0), "max_accuracy_km", "without_effect"),
        (_rule(on_doubtful_location=OnDoubtfulLocation.TRUST), "on_doubtful_location", "without_effect"),
        (
            _rule(
                client_countries="DE",
                on_unknown_location=OnUnknownLocation.IGNORE,
                on_doubtful_location=OnDoubtfulLocation.TRUST,
            ),
            "on_doubtful_location",
            "without_effect",
        ),
        (
            _rule(
                client_countries="DE",
                on_unknown_location=OnUnknownLocation.IGNORE,
                max_accuracy_km=5.0,
            ),
            "max_accuracy_km",
            "without_effect",
        ),
    ],
)
def test_rules_that_do_not_do_what_they_say(rule: ResidencyRule, path: str, code: str) -> None:
    """A rule that is over, that is about nobody, or that has settings without effect."""
    assert _found(replace(POLICY, tenants=()), rule) == [(f"residency_rules.r.{path}", code)]


def test_tenants_of_unknown_establishment_are_said() -> None:
    """A rule by establishment concerns whoever has no country, which is worth knowing."""
    rule = _rule(tenant_jurisdictions="EU")
    known = replace(POLICY, tenants=(Tenant("bank", country="DE"), Tenant("clinic", country="US")))
    assert _found(known, rule) == []
    unknown = replace(known, tenants=(*known.tenants, Tenant("shop")))
    assert _messages(unknown, rule) == [
        "residency_rules.r.match.tenant_jurisdictions: concerns shop too, for want of their `country`"
    ]


def _terms(until: datetime) -> tuple[Jurisdiction, ...]:
    return (Jurisdiction("FRIENDS", members=("DE", "US"), terms=(Term("US", effective_until=until),)),)


@pytest.mark.parametrize(("days", "told"), [(-400, True), (30, True), (400, False)])
def test_a_membership_that_ends_is_told_in_time(days: int, told: bool) -> None:
    """For half a year before, and from then on, with the country, the day and the rules that name it."""
    end = NOW + timedelta(days=days)
    policy = replace(POLICY, jurisdictions=_terms(end))
    found = _messages(policy, _rule(allow="FRIENDS fr"))
    day = end.isoformat().replace("+00:00", "Z")
    text = f"jurisdictions.FRIENDS: does not cover US from {day} on; it is named by r"
    assert found == ([text] if told else [])


def test_a_membership_that_came_back_is_no_finding() -> None:
    """What ended once and holds again today is nobody's concern."""
    years = [datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2022)]
    terms = (Term("US", effective_until=years[0]), Term("US", years[1]))
    policy = replace(POLICY, jurisdictions=(Jurisdiction("FRIENDS", members=("DE", "US"), terms=terms),))
    assert _found(policy, _rule(allow="FRIENDS fr")) == []


CLIENTS = {"client_jurisdictions": "EU"}
GERMANS = {"client_countries": "DE"}


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (_rule("b"), _rule("a")),
        (_rule("b", **GERMANS), _rule("a", **CLIENTS)),
        (_rule("b", **GERMANS), _rule("a", "", "", deny="us")),
        (_rule("b", **CLIENTS, tenants="clinic", data_classes="health"), _rule("a", **CLIENTS)),
        (_rule("b", **GERMANS, on_anonymous=OnAnonymous.TRUST), _rule("a", **CLIENTS)),
        (_rule("b", **GERMANS, max_accuracy_km=50.0), _rule("a", **CLIENTS, max_accuracy_km=50.0)),
        (_rule("b", effective_from=NOW + timedelta(days=1)), _rule("a", effective_until=None)),
    ],
)
def test_a_rule_in_the_shadow_of_another(narrow: ResidencyRule, wide: ResidencyRule) -> None:
    """It concerns no one else, excludes nothing more, and holds no longer; in either order of the two."""
    policy = replace(POLICY, services=(CHAT,))
    assert _found(policy, wide, narrow) == [("residency_rules.b", "shadowed")]
    alike = replace(narrow, name="") == replace(wide, name="")
    assert _found(policy, narrow, wide) == [(f"residency_rules.{'a' if alike else 'b'}", "shadowed")]


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (_rule("b", allow="de"), _rule("a")),
        (_rule("b", **CLIENTS), _rule("a", **GERMANS)),
        (_rule("b", **CLIENTS), _rule("a", **CLIENTS, tenants="clinic")),
        (_rule("b", **CLIENTS), _rule("a", **CLIENTS, on_anonymous=OnAnonymous.TRUST)),
        (_rule("b", **CLIENTS), _rule("a", **CLIENTS, on_doubtful_location=OnDoubtfulLocation.TRUST)),
        (_rule("b", **CLIENTS), _rule("a", **CLIENTS, on_unknown_location=OnUnknownLocation.IGNORE)),
        (_rule("b", **CLIENTS, max_accuracy_km=5.0), _rule("a", **CLIENTS, max_accuracy_km=50.0)),
        (_rule("b", **CLIENTS, max_accuracy_km=5.0), _rule("a", **CLIENTS)),
        (_rule("b", "", tenants="bank"), _rule("a")),
        (_rule("b"), _rule("a", effective_until=NOW + timedelta(days=1))),
        (_rule("b"), _rule("a", mode=RuleMode.MONITOR)),
        (_rule("b", mode=RuleMode.MONITOR), _rule("a")),
        (_rule("b", allow="de fr us"), _rule("a")),
    ],
)
def test_rules_that_are_not_shadowed(narrow: ResidencyRule, wide: ResidencyRule) -> None:
    """More people, more regions, more time, or no effect on either side: both rules have a reason to be."""
    acknowledged = [replace(rule, acknowledge_empty_fence=True) for rule in (wide, narrow)]
    found = _found(POLICY, *acknowledged)
    assert ("residency_rules.b", "shadowed") not in found


def test_the_search_for_shadows_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past so many comparisons the rest is not compared, and a finding says how much that is."""
    monkeypatch.setattr(shadows, "MOST_COMPARISONS", 3)
    rules = [_rule(f"r{n}", tenants="clinic") for n in range(6)]
    policy = replace(POLICY, services=(CHAT,))
    messages = _messages(policy, *rules)
    assert any("rules were not compared with the others" in message for message in messages)


def _after(snapshot: Snapshot, now: float) -> list[float]:
    return [now, *sorted({at for at in (*snapshot.beginnings, *snapshot.endings) if at > now})]


def test_of_rules_alike_that_pause_one_stays() -> None:
    """A membership that begins and ends cuts both rules into periods, of which one excludes nothing."""
    term = Term("ADEQUATE", datetime.fromtimestamp(100, UTC), datetime.fromtimestamp(400, UTC))
    allies = Jurisdiction("ALLIES", members=("ADEQUATE", "SG"), terms=(term,))
    adequate = Jurisdiction("ADEQUATE", members=("DE",))
    rules = (worlds.rule(name, "ALLIES", acknowledge_empty_fence=True) for name in ("one", "other"))
    policy = worlds.policy(DE, worlds.service("s0", "de"), *rules, adequate, allies)
    found = find_shadows(compile_policy(policy, ()), 0.0).found
    assert [(shadow.rule, shadow.by) for shadow in found] == [("other", "one")]


@quick(120)
@given(policies(), st.sampled_from(MOMENTS))
def test_rules_in_the_shadow_can_go(policy: Policy, now: float) -> None:
    """Without all the rules found, every fence is what it was with them, now and at every later moment."""
    snapshot = compile_policy(policy, SHIPPED)
    found = {shadow.rule for shadow in find_shadows(snapshot, now).found}
    if not found:
        return
    rest = tuple(rule for rule in policy.residency_rules if rule.name not in found)
    without = compile_policy(replace(policy, residency_rules=rest), SHIPPED)
    for moment in _after(snapshot, now):
        one, other = (view_of(each, State(), Window(moment, moment)) for each in (snapshot, without))
        for service, compiled in snapshot.services.items():
            for location, tenant, data in product(LOCATIONS, (None, *TENANTS), (None, *DATA_CLASSES)):
                request = Request(service, location, tenant, data)
                whole = fence(one.rules[service], compiled.mask, request).allowed
                assert fence(other.rules[service], compiled.mask, request).allowed == whole


@quick(150)
@given(policies(), st.sampled_from(MOMENTS), st.booleans())
def test_coverage_is_that_of_the_fence(policy: Policy, now: float, dns: bool) -> None:
    """A service or region is mentioned if, and only if, the fence leaves the clients of some country none but that."""
    services = tuple(replace(item, hostnames=("h.test",) if dns else ()) for item in policy.services)
    rules = tuple(replace(rule, acknowledge_empty_fence=False) for rule in policy.residency_rules)
    snapshot = compile_policy(policy, SHIPPED)
    view = view_of(snapshot, State(), Window(now, now))
    altered = replace(
        snapshot,
        services={
            item.name: replace(
                snapshot.services[item.name],
                service=item,
                rules=tuple(
                    replace(rule, rule=rules[policy.residency_rules.index(rule.rule)])
                    for rule in snapshot.services[item.name].rules
                ),
            )
            for item in services
        },
    )
    expected = set()
    for name, compiled in snapshot.services.items():
        binding = [
            rule
            for rule in view.rules[name]
            if rule.enforced and (dns or rule.tenants is rule.data_classes is None)
        ]
        for country in (None, *COUNTRIES, "IE", "JP"):  # IE only in the EU's name, JP in none
            where = Location(country, accuracy_km=0.0)  # located for sure: every rule knows whom it concerns
            mask = fence(binding, compiled.mask, Request(name, where)).allowed
            active = mask & snapshot.active
            if not mask:
                expected.add((f"services.{name}", "no_region"))
            elif not active:
                expected.add((f"services.{name}", "no_active_region"))
            elif active.bit_count() == 1 and compiled.mask & snapshot.active != active:
                expected.add((f"regions.{snapshot.names(active)[0]}", "drain_empties"))
    assert {(item.path, item.code) for item in coverage(altered, now)} == expected


def test_countries_without_a_region_are_named() -> None:
    """A handful of countries is listed, more are counted, all are anybody; what a rule acknowledges is not told."""
    stranded = _rule("a", "batch", "de", client_countries="DE FR")
    policy = replace(POLICY, services=(worlds.service("batch", "us fr"),))
    acknowledged = replace(stranded, acknowledge_empty_fence=True)
    assert _messages(policy, acknowledged) == []
    two = (
        _rule("a", "", "us", client_countries="DE FR"),
        _rule("b", "", "fr", **CLIENTS),
    )
    assert _messages(policy, *two) == [
        "services.batch: none of its regions may serve clients in DE, FR and clients of unknown location",
        "regions.fr: if it is drained, no other region may serve `batch` (clients in IE)",
    ]
    wide = _rule("c", "batch", "fr", tenants="clinic")
    host = replace(policy.services[0], hostnames=("batch.test",), zone="test")
    seen = compile_policy(replace(policy, residency_rules=(wide,)), SHIPPED)
    assert list(coverage(seen, 0.0)) == []
    asked = replace(seen, services={"batch": replace(seen.services["batch"], service=host)})
    (finding,) = coverage(asked, 0.0)
    assert str(finding) == "regions.fr: if it is drained, no other region may serve `batch` (any client)"


BANKS = _rule("bank", allow="de", tenants="bank")


def _asked_by_name(*names: str) -> Policy:
    chat = worlds.service("chat", "de fr us", hostnames=names or ("chat.test",), zone="test")
    zone = Zone("test", "ns.example", "hostmaster.example")
    return replace(POLICY, services=(chat, BATCH), zones=(zone,))


def _pinned(policy: Policy, *rules: ResidencyRule) -> list[str]:
    snapshot = compile_policy(replace(policy, residency_rules=rules), SHIPPED)
    found = findings(snapshot, NOW.timestamp())
    return [item.message for item in found if item.code == "dns_pinned"]


def test_one_tenants_rule_that_holds_for_all_of_dns() -> None:
    """DNS states no tenant: a rule for one of them pins every client, and that is said with all that is needed."""
    (message,) = _pinned(_asked_by_name(), BANKS)
    assert message == (
        "DNS states no tenant: by residency rule `bank` it answers, for `chat.test`, any client with de alone, of 3 "
        "regions; give those who are meant host names of their own, and state under `hostnames` whose requests come by each"
    )
    both = _rule("records", allow="us", data_classes="health")
    (message,) = _pinned(_asked_by_name(), BANKS, both)
    assert (
        "no tenant and no data class: by residency rules `bank`, `records` it answers, for `chat.test`, any client with no region"
        in message
    )
    local = _rule("bank", allow="de", tenants="bank", client_countries="FR")
    (message,) = _pinned(_asked_by_name(), local)
    assert "clients in FR and clients of unknown location with de alone" in message
    assert len(_pinned(_asked_by_name(), local, replace(BANKS, name="all"))) == 2


@pytest.mark.parametrize(
    "rule",
    [
        replace(BANKS, mode=RuleMode.MONITOR),
        replace(BANKS, effective_from=NOW + timedelta(days=1)),
        replace(BANKS, effective_until=NOW),
        replace(BANKS, allow=worlds.places("de fr us")),
        replace(BANKS, match=_rule().match),
        _rule("bank", "batch", "us", tenants="bank"),
    ],
)
def test_what_pins_nobody(rule: ResidencyRule) -> None:
    """Rules that bind nobody now, take nothing away, concern all anyway, or another service."""
    assert _pinned(_asked_by_name(), rule) == []
    assert _pinned(POLICY, BANKS) == []  # no host name, so DNS is not asked


def test_regions_that_are_out_already() -> None:
    """Where all that may serve are drained or disabled, that is said of the service."""
    drained = worlds.changed(POLICY, "regions", "de", admin_state=AdminState.DRAINING)
    drained = replace(drained, services=(CHAT,))
    assert _messages(drained, _rule("a", allow="de", **GERMANS)) == [
        "services.chat: every region that may serve clients in DE and clients of unknown location is drained or disabled"
    ]


def test_no_finding_is_longer_than_its_reader_has_time_for() -> None:
    """Of thousands of services, countries or rules the first few are named."""
    many = tuple(replace(CHAT, name=f"s{n:03}") for n in range(300))
    (message,) = _messages(replace(POLICY, services=many), _rule("a", "", "de"))
    assert message.endswith("`s009` (any client) and 290 more services")
    assert len(message) < 400


def test_capacity_that_bounds_nothing() -> None:
    """Slots without a service time, and any capacity where steering moves nobody; a time or a rate makes it bound."""

    def found(service: Service, **region: Any) -> list[tuple[str, str]]:
        return _found(replace(POLICY, regions=(replace(DE, **region), FR, US), services=(service,)))

    slots, rate = Capacity(outstanding=64), Capacity(requests_per_second=10.0)
    timed = replace(CHAT, service_time_ms=900.0)
    assert found(CHAT, capacity=slots) == [("regions.de.capacity.outstanding", "bounds_nothing")]
    assert found(timed, capacity=slots) == found(CHAT, capacity=rate) == found(CHAT) == []
    weighted = replace(CHAT, steering=Steering.WEIGHTED)
    assert found(weighted, capacity=rate) == [("regions.de.capacity", "bounds_nothing")]
    member = (Member("de", capacity=slots), Member("us", capacity=rate))
    assert found(replace(CHAT, members=member)) == [
        ("services.chat.members[0].capacity.outstanding", "bounds_nothing")
    ]
    assert found(replace(weighted, members=member)) == [
        ("services.chat.members[0].capacity", "bounds_nothing"),
        ("services.chat.members[1].capacity", "bounds_nothing"),
    ]


V4, V6, DUAL = (("192.0.2.1",), ()), ((), ("2001:db8::1",)), (("192.0.2.2",), ("2001:db8::2",))


def _empty(*members: tuple[Any, ...], rules: tuple[ResidencyRule, ...] = (), **changes: Any) -> list[str]:
    """The codes found of a service in DNS whose members have these addresses: one in Germany, one in the US."""
    regions = [
        worlds.region(name, Endpoint(f"https://{name}.test", *addresses))
        for name, addresses in zip(("de", "us"), members, strict=True)
    ]
    regions[0] = replace(regions[0], models=("big",))
    usual = {"hostnames": ("chat.x.test",), "refusal": RefusalAddress(("192.0.2.9",), ("2001:db8::9",))}
    service = worlds.service("chat", "de us", **{**usual, **changes})
    zone = Zone("x.test", "ns.example.net", "h.example.net")
    snapshot = compile_policy(worlds.policy(*regions, service, zone, *rules), SHIPPED)
    return [item.code for item in findings(snapshot, NOW.timestamp()) if item.code.startswith("empty_")]


@pytest.mark.parametrize(
    ("members", "changes", "codes"),
    [
        ((V4, V4), {}, []),
        ((DUAL, DUAL), {}, []),
        ((V6, V6), {}, []),
        ((V4, DUAL), {}, ["empty_aaaa"]),
        ((V6, DUAL), {}, ["empty_a"]),
        ((V4, V6), {}, ["empty_a", "empty_aaaa"]),
        ((V4, V6), {"families": Families.SEPARATE}, []),
        ((V4, V6), {"hostnames": (), "zone": None, "refusal": RefusalAddress()}, []),
    ],
)
def test_families_that_another_region_would_have(
    members: tuple[Any, ...], changes: dict[str, Any], codes: list[str]
) -> None:
    """A region chosen that has no address of a family is found where another could have answered."""
    assert _empty(*members, **changes) == codes


def test_only_what_could_stand_in_counts() -> None:
    """A region outside the fence, or without the model, cannot answer in the place of another."""
    assert _empty(V6, V4) == ["empty_a", "empty_aaaa"]
    assert _empty(V6, V4, rules=(worlds.rule("r", "EU"),)) == []
    assert _empty(V6, V4, rules=(worlds.rule("r", "EU", client_countries="DE"),)) == ["empty_a", "empty_aaaa"]
    assert _empty(V6, V4, model="big") == []


def test_the_last_endpoint_up_counts() -> None:
    """A region whose endpoints have a family each can lose one of them."""
    region = worlds.region("de", Endpoint("https://a.test", *V4), Endpoint("https://b.test", *V6))
    assert can_be_empty(region, AddressFamily.IPV4)
    assert can_be_empty(region, AddressFamily.IPV6)
    assert not can_be_empty(worlds.region("de", Endpoint("https://a.test", *DUAL)), AddressFamily.IPV6)
