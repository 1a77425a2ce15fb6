"""A policy compiles completely or not at all, and then every problem is listed with its path."""

from __future__ import annotations

import operator
import random
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from gtm.core.model.kinds import KINDS
from gtm.core.model.policy import (
    DataClass,
    Jurisdiction,
    Match,
    Places,
    Policy,
    RuleMode,
    SpilloverRule,
    Tenant,
)
from gtm.core.model.problems import PolicyError, Problem
from gtm.core.model.regions import AdminState, Endpoint, Probe
from gtm.core.model.services import (
    HostName,
    HttpsRecord,
    Member,
    NameServer,
    RecordSet,
    RefusalAddress,
    Service,
    Zone,
)
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.jurisdictions import countries_at
from tests import worlds
from tests.core.strategies import SHIPPED, policies, quick

DE, US = worlds.region("de", models=("small",)), worlds.region("us")
CHAT = worlds.service("chat", "de us", hostnames=("chat.demo.test",))
RULE = worlds.rule("gdpr", "EU", services="chat", client_jurisdictions="EU")
GOOD = worlds.policy(
    *(DE, US, CHAT, RULE, Tenant("clinic"), DataClass("health")),
    Zone("demo.test", "ns.example.net", "hostmaster.demo.test"),
    SpilloverRule("spill", "de", ("us",), max_share=0.5),
    Jurisdiction("ATLANTIC", members=("EU", "US")),
)


def _problems(policy: Policy) -> list[Problem]:
    with pytest.raises(PolicyError) as caught:
        compile_policy(policy, SHIPPED)
    return list(caught.value.problems)


def _with(kind: str, **changes: Any) -> Policy:
    """GOOD with fields of the first resource of a kind changed."""
    first, *others = getattr(GOOD, kind)
    return replace(GOOD, **{kind: (replace(first, **changes), *others)})


def _match(**dimensions: tuple[str, ...]) -> Policy:
    return _with("residency_rules", match=Match(**dimensions))


def _endpoints(*endpoints: Endpoint) -> Policy:
    return _with("regions", endpoints=endpoints)


def test_a_good_policy_compiles() -> None:
    """Every reference is resolved, and there is nothing to warn of."""
    snapshot = compile_policy(GOOD, SHIPPED, revision=3)
    assert (snapshot.revision, snapshot.policy, snapshot.warnings) == (3, GOOD, ())
    assert dict(snapshot.region_numbers) == {"de": 0, "us": 1}
    assert dict(snapshot.hostnames) == {"chat.demo.test": "chat"}
    assert list(snapshot.zones) == ["demo.test"]
    assert snapshot.names(snapshot.services["chat"].rules[0].allowed) == ("de",)
    assert countries_at(snapshot.jurisdictions["ATLANTIC"], 0.0) == {"DE", "FR", "IE", "US"}
    assert (snapshot.tenants, snapshot.data_classes) == ({"clinic"}, {"health"})
    drained = compile_policy(_with("regions", admin_state=AdminState.DRAINING), SHIPPED)
    assert drained.names(drained.active) == ("us",)


SUB = Zone("sub.demo.test", "ns.example.net", "hostmaster.demo.test")


def _record(name: str, rdtype: str = "A", *data: str, ttl: int | None = None) -> RecordSet:
    return RecordSet(name, rdtype, data or ("ns.example.net.",), ttl)


WRONG: dict[str, tuple[Policy, str, str]] = {
    "country that is none": (
        replace(_with("regions", country="ZZ"), residency_rules=()),
        "regions.de.country",
        "unknown_reference",
    ),
    "jurisdiction for a country": (
        replace(_with("regions", country="EU"), residency_rules=()),
        "regions.de.country",
        "unknown_reference",
    ),
    "one URL twice": (
        _endpoints(DE.endpoints[0], DE.endpoints[0]),
        "regions.de.endpoints[1].url",
        "duplicate",
    ),
    "probe longer than its interval": (
        _with("regions", probe=Probe(interval=1.0, timeout=2.0)),
        "regions.de.probe.timeout",
        "out_of_range",
    ),
    "zone that is none": (
        _with("services", zone="other.test", hostnames=("chat.other.test",)),
        "services.chat.zone",
        "unknown_reference",
    ),
    "host name without a zone": (_with("services", zone=None), "services.chat.zone", "missing"),
    "host name twice": (
        _with("services", hostnames=("chat.demo.test", "chat.demo.test")),
        "services.chat.hostnames[1]",
        "duplicate",
    ),
    "host name twice, once with what it states": (
        _with("services", hostnames=("chat.demo.test", HostName("chat.demo.test", data_class="health"))),
        "services.chat.hostnames[1]",
        "duplicate",
    ),
    "host name outside its zone": (
        _with("services", hostnames=("chatdemo.test",)),
        "services.chat.hostnames[0]",
        "outside_zone",
    ),
    "member that is none": (
        _with("services", members=(Member("de"), Member("fr"))),
        "services.chat.members[1].region",
        "unknown_reference",
    ),
    "member twice": (
        _with("services", members=(Member("de"), Member("de"))),
        "services.chat.members[1].region",
        "duplicate",
    ),
    "no members": (
        _with("services", members=(), hostnames=(), zone=None),
        "services.chat.members",
        "missing",
    ),
    "model that no member has": (
        _with("services", model="large"),
        "services.chat.model",
        "unknown_reference",
    ),
    "refusal without an IPv6 address": (
        _endpoints(replace(DE.endpoints[0], ipv6=("2001:db8::1",))),
        "services.chat.refusal.ipv6",
        "missing",
    ),
    "no refusal address in a family that an alias may lead to": (
        replace(
            _with("services", members=(Member("de"),), refusal=RefusalAddress(ipv4=("192.0.2.9",))),
            regions=(replace(DE, endpoints=(Endpoint("https://de.test", cname="de.test"),)), US),
        ),
        "services.chat.refusal.ipv6",
        "missing",
    ),
    "alias at an apex": (
        replace(
            _with(
                "services",
                members=(Member("de"),),
                hostnames=("demo.test",),
                refusal=RefusalAddress(("192.0.2.9",), ("2001:db8::9",)),
            ),
            regions=(replace(DE, endpoints=(Endpoint("https://de.test", cname="de.test"),)), US),
        ),
        "services.chat.members[0].region",
        "missing",
    ),
    "nothing to answer DNS with": (
        replace(GOOD, regions=(replace(DE, endpoints=(Endpoint("https://de.test"),)), US)),
        "services.chat.members[0].region",
        "missing",
    ),
    "host name in a closer zone": (
        replace(GOOD, zones=(*GOOD.zones, Zone("chat.demo.test", "ns.example.net", "hostmaster.demo.test"))),
        "services.chat.hostnames[0]",
        "outside_zone",
    ),
    "name server without its addresses": (
        _with("zones", name_servers=(NameServer("ns1.demo.test"),)),
        "zones.demo.test.name_servers[0]",
        "missing",
    ),
    "name server's addresses outside every zone": (
        _with("zones", name_servers=(NameServer("ns1.example.net", ("192.0.2.53",)),)),
        "zones.demo.test.name_servers[0]",
        "outside_zone",
    ),
    "name server with a service's name": (
        _with("zones", name_servers=(NameServer("chat.demo.test", ("192.0.2.53",)),)),
        "zones.demo.test.name_servers[0]",
        "overlap",
    ),
    "rules that leave nothing together": (
        replace(GOOD, residency_rules=(worlds.rule("east", "de"), worlds.rule("west", "us"))),
        "services.chat",
        "empty_fence",
    ),
    **{
        what: (
            replace(GOOD, zones=(replace(GOOD.zones[0], records=records), *more)),
            f"zones.demo.test.records[{index}]{field}",
            code,
        )
        for what, records, index, field, code, more in (
            ("record outside its zone", (_record("www.example.net."),), 0, ".name", "outside_zone", ()),
            ("record with a long name", (_record("a" * 60 + ".b" * 100),), 0, ".name", "out_of_range", ()),
            ("record in another zone", (_record("www.sub"),), 0, ".name", "outside_zone", (SUB,)),
            ("NS of another zone", (_record("sub", "NS"),), 0, ".name", "outside_zone", (SUB,)),
            ("two TTLs", (_record("www"), _record("www", ttl=5)), 1, "", "overlap", ()),
            ("CNAME at the apex", (_record("@", "CNAME"),), 0, "", "overlap", ()),
            ("CNAME beside data", (_record("www"), _record("www", "CNAME")), 1, "", "overlap", ()),
            ("two CNAME", (_record("www", "CNAME", "a", "b"),), 0, "", "overlap", ()),
            ("NS at the apex", (_record("@", "NS"),), 0, "", "overlap", ()),
            ("NS at a wildcard", (_record("*.x", "NS"),), 0, "", "overlap", ()),
            ("DS without NS", (_record("lab", "DS"),), 0, "", "missing", ()),
            ("data at a cut", (_record("lab", "NS"), _record("lab", "TXT")), 1, "", "outside_zone", ()),
            ("data below a cut", (_record("lab", "NS"), _record("x.lab")), 1, "", "outside_zone", ()),
            ("cut below a cut", (_record("lab", "NS"), _record("x.lab", "NS")), 1, "", "outside_zone", ()),
            ("address of a service", (_record("chat"),), 0, "", "overlap", ()),
            ("alias of a service's name", (_record("chat", "CNAME"),), 0, "", "overlap", ()),
        )
    },
    "host name below a delegation": (
        replace(
            GOOD,
            zones=(replace(GOOD.zones[0], records=(_record("lab", "NS"),)),),
            services=(replace(CHAT, hostnames=("chat.lab.demo.test",)),),
        ),
        "services.chat.hostnames[0]",
        "outside_zone",
    ),
    "name server with addresses twice": (
        _with(
            "zones",
            name_servers=(NameServer("ns.demo.test", ("192.0.2.53",)),),
            records=(_record("ns"),),
        ),
        "zones.demo.test.name_servers[0]",
        "overlap",
    ),
    "name server that is an alias": (
        _with(
            "zones",
            name_servers=(NameServer("ns.demo.test", ("192.0.2.53",)),),
            records=(_record("ns", "CNAME"),),
        ),
        "zones.demo.test.records[0]",
        "overlap",
    ),
    "HTTPS records of a service beside its own": (
        replace(
            _with("zones", records=(_record("chat", "HTTPS"),)),
            services=(replace(CHAT, https_record=HttpsRecord()),),
        ),
        "zones.demo.test.records[0]",
        "overlap",
    ),
    "records beside an alias": (
        replace(
            _with("zones", records=(_record("chat", "TXT"),)),
            regions=(replace(DE, endpoints=(*DE.endpoints, Endpoint("https://c.test", cname="c.test"))), US),
            services=(replace(CHAT, refusal=RefusalAddress(("192.0.2.9",), ("2001:db8::9",))),),
        ),
        "zones.demo.test.records[0]",
        "overlap",
    ),
    "HTTPS records for http": (
        replace(
            GOOD,
            regions=(DE, replace(US, endpoints=(Endpoint("http://us.test", ipv4=("192.0.2.2",)),))),
            services=(replace(CHAT, https_record=HttpsRecord()),),
        ),
        "services.chat.members[1].region",
        "overlap",
    ),
    "HTTPS records for several ports": (
        replace(
            GOOD,
            regions=(DE, replace(US, endpoints=(Endpoint("https://us.test:8443", ipv4=("192.0.2.2",)),))),
            services=(replace(CHAT, https_record=HttpsRecord()),),
        ),
        "services.chat.members[1].region",
        "overlap",
    ),
    "HTTPS records without host names": (
        replace(GOOD, services=(Service("chat", CHAT.members, https_record=HttpsRecord()),)),
        "services.chat.https_record",
        "missing",
    ),
    "rule for no service": (
        _match(services=("mail",)),
        "residency_rules.gdpr.match.services[0]",
        "unknown_reference",
    ),
    "rule for no tenant": (
        _match(tenants=("clinic", "bank")),
        "residency_rules.gdpr.match.tenants[1]",
        "unknown_reference",
    ),
    "rule for no data class": (
        _match(data_classes=("payment",)),
        "residency_rules.gdpr.match.data_classes[0]",
        "unknown_reference",
    ),
    "rule for no jurisdiction": (
        _match(client_jurisdictions=("MERCOSUR",)),
        "residency_rules.gdpr.match.client_jurisdictions[0]",
        "unknown_reference",
    ),
    "rule for clients of a jurisdiction as a country": (
        _match(client_countries=("UK",)),
        "residency_rules.gdpr.match.client_countries[0]",
        "unknown_reference",
    ),
    "rule for one country twice": (
        _match(client_countries=("DE", "DE")),
        "residency_rules.gdpr.match.client_countries[1]",
        "duplicate",
    ),
    "rule that denies no region": (
        _with("residency_rules", deny=Places(regions=("fr",))),
        "residency_rules.gdpr.deny.regions[0]",
        "unknown_reference",
    ),
    "rule that allows no jurisdiction": (
        _with("residency_rules", allow=Places(jurisdictions=("EU", "MERCOSUR"))),
        "residency_rules.gdpr.allow.jurisdictions[1]",
        "unknown_reference",
    ),
    "rule that restricts nothing": (
        _with("residency_rules", allow=Places()),
        "residency_rules.gdpr",
        "missing",
    ),
    "place allowed and denied": (
        _with("residency_rules", deny=Places(jurisdictions=("EU",)), acknowledge_empty_fence=True),
        "residency_rules.gdpr.deny",
        "overlap",
    ),
    "region allowed and denied": (
        _with("residency_rules", allow=Places(("EU",), ("us",)), deny=Places(regions=("us",))),
        "residency_rules.gdpr.deny",
        "overlap",
    ),
    "rule that ends before it begins": (
        _with(
            "residency_rules",
            effective_from=datetime(2026, 1, 2, tzinfo=UTC),
            effective_until=datetime(2026, 1, 1, tzinfo=UTC),
        ),
        "residency_rules.gdpr.effective_until",
        "out_of_range",
    ),
    "time without an offset": (
        _with("residency_rules", effective_from=datetime(2026, 1, 1)),  # noqa: DTZ001 - the point of the case
        "residency_rules.gdpr.effective_from",
        "missing",
    ),
    "empty fence": (
        _with("residency_rules", allow=Places(jurisdictions=("NOWHERE",))),
        "residency_rules.gdpr",
        "empty_fence",
    ),
    "spillover from no region": (
        _with("spillover_rules", from_region="fr"),
        "spillover_rules.spill.from_region",
        "unknown_reference",
    ),
    "spillover to no region": (
        _with("spillover_rules", to_regions=("fr",)),
        "spillover_rules.spill.to_regions[0]",
        "unknown_reference",
    ),
    "spillover to itself": (
        _with("spillover_rules", to_regions=("us", "de")),
        "spillover_rules.spill.to_regions",
        "overlap",
    ),
    "spillover to nowhere": (
        _with("spillover_rules", to_regions=()),
        "spillover_rules.spill.to_regions",
        "missing",
    ),
    "jurisdiction of no country": (
        _with("jurisdictions", members=("EU", "ZZ")),
        "jurisdictions.ATLANTIC.members[1]",
        "unknown_reference",
    ),
    "jurisdiction redefined": (
        replace(GOOD, jurisdictions=(Jurisdiction("EU", members=("US",)),)),
        "jurisdictions.EU.name",
        "duplicate",
    ),
    "country redefined": (
        replace(GOOD, jurisdictions=(Jurisdiction("DE", members=("US",)),)),
        "jurisdictions.DE.name",
        "duplicate",
    ),
    "jurisdiction that contains itself": (
        _with("jurisdictions", members=("ATLANTIC",)),
        "jurisdictions.ATLANTIC.members[0]",
        "circular",
    ),
    "jurisdictions that contain each other": (
        replace(
            GOOD, jurisdictions=(Jurisdiction("A", members=("B",)), Jurisdiction("B", members=("A", "DE")))
        ),
        "jurisdictions.B.members[0]",
        "circular",
    ),
}


@pytest.mark.parametrize(("policy", "path", "code"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_policy_is_rejected_at_the_place(policy: Policy, path: str, code: str) -> None:
    """The one thing wrong is the one problem listed, with its path and code, in words that name it."""
    problems = _problems(policy)
    assert [(problem.path, problem.code) for problem in problems] == [(path, code)]
    assert str(problems[0]) == f"{path}: {problems[0].message}"


@pytest.mark.parametrize(
    "first", ["chat.demo.test", HostName("chat.demo.test", data_class="health")], ids=["plain", "stating"]
)
def test_a_host_name_of_two_services_is_told_at_both(first: str | HostName) -> None:
    """Which of them came later is not known here, so each names the other, whatever the name states."""
    chat = replace(CHAT, hostnames=(first,))
    problems = _problems(replace(GOOD, services=(chat, replace(CHAT, name="web"))))
    assert [(problem.path, problem.code) for problem in problems] == [
        ("services.chat.hostnames[0]", "duplicate"),
        ("services.web.hostnames[0]", "duplicate"),
    ]
    assert ["`web`" in problems[0].message, "`chat`" in problems[1].message] == [True, True]


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_is_used_once_in_its_kind(kind: str) -> None:
    """Two resources of a kind under one name are a problem at that name."""
    (first, *_) = getattr(GOOD, kind)
    problems = _problems(replace(GOOD, **{kind: (*getattr(GOOD, kind), first)}))
    assert (f"{kind}.{first.name}", "duplicate") in {(problem.path, problem.code) for problem in problems}


def test_all_problems_are_listed_at_once() -> None:
    """A policy that is wrong in many places names every one of them."""
    policy = worlds.policy(
        *(replace(DE, country="ZZ"), replace(US, probe=Probe(interval=1, timeout=2))),
        replace(CHAT, model="large"),
        worlds.rule("gdpr", tenants="bank"),
        SpilloverRule("spill", "de", ()),
        Jurisdiction("ATLANTIC", members=("ZZ",)),
    )
    assert {problem.path for problem in _problems(policy)} == {
        "regions.de.country",
        "regions.us.probe.timeout",
        "services.chat.zone",
        "services.chat.model",
        "residency_rules.gdpr.match.tenants[0]",
        "residency_rules.gdpr",
        "spillover_rules.spill.to_regions",
        "jurisdictions.ATLANTIC.members[0]",
    }


def test_an_empty_fence_may_be_meant() -> None:
    """Acknowledged, a fence without regions is a warning; monitoring or for another service it is nothing."""
    nowhere = Places(jurisdictions=("NOWHERE",))
    meant = compile_policy(_with("residency_rules", allow=nowhere, acknowledge_empty_fence=True), SHIPPED)
    assert len(meant.warnings) == 1
    assert "acknowledged" in meant.warnings[0]
    assert not compile_policy(
        _with("residency_rules", allow=nowhere, mode=RuleMode.MONITOR), SHIPPED
    ).warnings
    web = worlds.service("web", "us")
    assert not compile_policy(replace(GOOD, services=(CHAT, web)), SHIPPED).warnings


def test_more_addresses_than_resolvers_keep_are_warned_of() -> None:
    """Some resolvers answer SERVFAIL instead of a set of more than 100 records; `max_answers` keeps below that."""
    policy = _endpoints(replace(DE.endpoints[0], ipv4=tuple(f"198.51.100.{host}" for host in range(101))))
    (warning,) = compile_policy(policy, SHIPPED).warnings
    assert "101 ipv4 addresses" in warning
    few = replace(policy, services=tuple(replace(item, max_answers=100) for item in policy.services))
    assert compile_policy(few, SHIPPED).warnings == ()


def test_allow_and_deny_combine() -> None:
    """What is denied inside an allowed place is out; a rule that only denies allows everywhere else."""

    def allowed(allow: str = "", deny: str = "") -> tuple[str, ...]:
        service = worlds.service("chat", "us fr de")
        policy = worlds.policy(*worlds.regions("de us fr"), service, worlds.rule("rule", allow, deny=deny))
        snapshot = compile_policy(policy, SHIPPED)
        return snapshot.names(snapshot.services["chat"].rules[0].allowed)

    assert allowed("EU") == ("de", "fr")
    assert allowed("EU", deny="FR") == ("de",)
    assert allowed("EU us", deny="de") == ("us", "fr")
    assert allowed(deny="EEA") == ("us",)


def _mutate(value: Any, rng: random.Random) -> Any:
    """A value with something in it replaced by something else of its type."""
    if is_dataclass(value) and not isinstance(value, type):
        name = rng.choice([field.name for field in fields(value)])
        return replace(value, **{name: _mutate(getattr(value, name), rng)})
    if isinstance(value, tuple):
        return _mutate_tuple(value, rng)
    if isinstance(value, str):
        return (
            type(value)(value)
            if type(value) is not str
            else rng.choice(["", "r0", "s0", "EU", "ZZ", "ATLANTIC", "é"])
        )
    if isinstance(value, datetime):
        return rng.choice([datetime.min, datetime.max, datetime.min.replace(tzinfo=UTC)])  # noqa: DTZ901
    if isinstance(value, float):
        return rng.choice([-1.0, 0.0, float("nan"), float("inf")])
    return value


def _mutate_tuple(value: tuple[Any, ...], rng: random.Random) -> tuple[Any, ...]:
    items = list(value)
    action = rng.choice([operator.delitem, operator.getitem, None])
    if not items:
        return value
    index = rng.randrange(len(items))
    if action is operator.delitem:
        del items[index]
    elif action is operator.getitem:
        items.insert(rng.randrange(len(items) + 1), items[index])
    else:
        items[index] = _mutate(items[index], rng)
    return tuple(items)


def _found(policy: Policy) -> tuple[Problem, ...]:
    try:
        compile_policy(policy, SHIPPED)
    except PolicyError as error:
        return error.problems
    return ()


@quick(250)
@given(policies(), st.integers(0, 2**32))
def test_nothing_but_a_policy_error_comes_of_a_broken_policy(policy: Policy, seed: int) -> None:
    """However a policy is damaged, it compiles or says what is wrong, with a path and a message for each problem."""
    rng = random.Random(seed)
    for _ in range(6):
        policy = _mutate(policy, rng)
        problems = _found(policy)
        event("rejected" if problems else "compiled")
        assert all(problem.path and problem.code and problem.message for problem in problems)


def test_a_primary_that_nobody_can_find_is_warned_of() -> None:
    """Without NS records of its own a zone's primary stands for them; inside the zone it would have no address."""
    policy = replace(GOOD, zones=(Zone("demo.test", "ns1.demo.test", "hostmaster.demo.test"),))
    (warning,) = compile_policy(policy, SHIPPED).warnings
    assert "ns1.demo.test" in warning


def test_records_that_may_stand() -> None:
    """Delegations with their glue, DS of a zone around another, and other types beside a service's host name."""
    records = (
        _record("lab", "NS", "ns.lab", "lab"),
        _record("lab", "DS"),
        _record("ns.lab"),
        _record("lab"),
        _record("sub", "DS"),
        _record("chat", "TXT"),
        _record("chat", "HTTPS"),
        _record("*"),
        _record("www"),
        _record("WWW"),
    )
    snapshot = compile_policy(replace(GOOD, zones=(replace(GOOD.zones[0], records=records), SUB)), SHIPPED)
    assert snapshot.warnings == ()
    assert compile_policy(replace(GOOD, services=(replace(CHAT, https_record=HttpsRecord()),)), SHIPPED)
