"""Ways out of a fence without a decision that leaves it, one line each, and beside each something like it that opens nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

import pytest

from gtm.core.change.protections import led_out
from gtm.core.model.policy import Places, Policy, RuleMode, Tenant
from gtm.core.model.regions import Endpoint, Region
from gtm.core.model.services import (
    HostName,
    HttpsRecord,
    Member,
    NameServer,
    RecordSet,
    RefusalAddress,
    Service,
)
from gtm.core.policy.compile import compile_policy
from gtm.dns.zone.leads import leads_of
from tests import worlds
from tests.dns.change.answered import NOW
from tests.dns.change.gone import Control
from tests.dns.change.policies import own, zone

Step = Callable[[Policy], Policy]

DE, US, FR = (Region(name, 0.0, 0.0, name.upper(), (own(name),)) for name in ("de", "us", "fr"))
NOBODYS = RefusalAddress(("192.0.2.250",), ("2001:db8::250",))
V6_ALONE = replace(NOBODYS, ipv4=("0.0.0.0",))
"""Where the services of the fences and `trap` all refuse."""
FENCES = {
    "allow": worlds.rule("fence", "EU", services="chat"),
    "deny": worlds.rule("fence", deny="US", services="chat"),
    "deny by name": worlds.rule("fence", deny="us", services="chat"),
}


def service(name: str, members: str, *hosts: str, **changes: object) -> Service:
    """A service in demo.test."""
    made = Service(
        name, tuple(map(Member, members.split())), hostnames=hosts, zone="demo.test", refusal=NOBODYS
    )
    return replace(made, **changes)  # type: ignore[arg-type]


CHAT = service("chat", "de", "a.demo.test", "*.w.demo.test")
WEB = service("web", "us", "b.demo.test")
BASE = Policy(
    regions=(DE, US, FR),
    zones=(
        zone("demo.test", (RecordSet("docs", "CNAME", ("a",)), RecordSet("t.w", "TXT", ("x",)))),
        zone("free.test"),
    ),
    services=(CHAT, WEB),
)


def with_records(*records: tuple[str, str, str]) -> Step:
    """These records of demo.test, in place of those of the same names."""
    new = tuple(RecordSet(name, rdtype, (data,)) for name, rdtype, data in records)
    names = {each.name for each in new}

    def step(policy: Policy) -> Policy:
        first, *rest = policy.zones
        left = tuple(each for each in first.records if each.name not in names)
        return replace(policy, zones=(replace(first, records=(*left, *new)), *rest))

    return step


def without_record(name: str) -> Step:
    """No record of demo.test of this name."""

    def step(policy: Policy) -> Policy:
        first, *rest = policy.zones
        left = tuple(each for each in first.records if each.name != name)
        return replace(policy, zones=(replace(first, records=left), *rest))

    return step


def with_service(name: str, **changes: object) -> Step:
    """A service changed."""
    return lambda policy: worlds.changed(policy, "services", name, **changes)


def with_region(name: str, **endpoint: object) -> Step:
    """A region's one endpoint changed."""

    def step(policy: Policy) -> Policy:
        (region,) = (each for each in policy.regions if each.name == name)
        return worlds.changed(
            policy,
            "regions",
            name,
            endpoints=(replace(region.endpoints[0], **endpoint),),  # type: ignore[arg-type]
        )

    return step


def also(*parts: Service | Region) -> Step:
    """More services and regions."""

    def step(policy: Policy) -> Policy:
        services = tuple(each for each in parts if isinstance(each, Service))
        regions = tuple(each for each in parts if isinstance(each, Region))
        return replace(policy, services=(*policy.services, *services), regions=(*policy.regions, *regions))

    return step


def without_region(name: str) -> Step:
    """A region gone, with the services and rules that have it alone."""

    def step(policy: Policy) -> Policy:
        services = tuple(
            replace(each, members=left)
            for each in policy.services
            if (left := tuple(member for member in each.members if member.region != name))
        )
        rules = []
        for rule in policy.residency_rules:
            deny = replace(rule.deny, regions=tuple(each for each in rule.deny.regions if each != name))
            if deny != Places() or rule.allow != Places():
                rules.append(replace(rule, deny=deny))
        regions = tuple(each for each in policy.regions if each.name != name)
        return replace(policy, regions=regions, services=services, residency_rules=tuple(rules))

    return step


def without_service(name: str) -> Step:
    """A service gone, with the rules that name it alone."""

    def step(policy: Policy) -> Policy:
        rules = []
        for rule in policy.residency_rules:
            left = tuple(each for each in rule.match.services if each != name)
            if left or not rule.match.services:
                rules.append(replace(rule, match=replace(rule.match, services=left)))
        services = tuple(each for each in policy.services if each.name != name)
        return replace(policy, services=services, residency_rules=tuple(rules))

    return step


def without_zone(name: str) -> Step:
    """A zone gone."""
    return lambda policy: replace(policy, zones=tuple(each for each in policy.zones if each.name != name))


def renamed(old: str, new: str) -> Step:
    """A service by another name, and no rule of it any more."""

    def step(policy: Policy) -> Policy:
        (service,) = (each for each in policy.services if each.name == old)
        return also(replace(service, name=new))(without_service(old)(policy))

    return step


def unhosted(*names: str) -> Step:
    """Services without these host names."""

    def step(policy: Policy) -> Policy:
        services = []
        for each in policy.services:
            left = tuple(one for one in each.hostnames if one not in names)
            services.append(replace(each, hostnames=left, zone=each.zone if left else None))
        return replace(policy, services=tuple(services))

    return step


def served_by(name: str, *hosts: str) -> Step:
    """A service that has these names, too."""

    def step(policy: Policy) -> Policy:
        (service,) = (each for each in policy.services if each.name == name)
        return with_service(name, hostnames=(*service.hostnames, *hosts), zone="demo.test")(policy)

    return step


def child(*records: RecordSet) -> Step:
    """A zone of its own, a.demo.test."""
    return lambda policy: replace(policy, zones=(*policy.zones, zone("a.demo.test", records)))


def handed(name: str, server: str, country: str | None = None) -> Step:
    """A zone of its own, of this name server."""
    made = zone(name, servers=(NameServer(server, country=country),))
    return lambda policy: replace(policy, zones=(*policy.zones, made))


def servers(name: str, *ipv4: str, country: str | None = None) -> Step:
    """The name server of demo.test."""
    return lambda policy: replace(
        policy,
        zones=tuple(
            replace(each, primary_ns=name, name_servers=(NameServer(name, ipv4, country=country),))
            if each.name == "demo.test"
            else each
            for each in policy.zones
        ),
    )


def nothing(policy: Policy) -> Policy:
    """Time goes by, and something else is changed."""
    return worlds.changed(policy, "services", policy.services[-1].name, ttl=policy.services[-1].ttl + 1)


def late(*endpoint: Endpoint, at: str = "DE") -> Region:
    """A region to come."""
    return Region("late", 0.0, 0.0, at, endpoint or (own("late"),))


def about(*services: str) -> Step:
    """The rules are about these services."""
    return lambda policy: replace(
        policy,
        residency_rules=tuple(
            replace(rule, match=replace(rule.match, services=services), acknowledge_empty_fence=True)
            for rule in policy.residency_rules
        ),
    )


def for_all(policy: Policy) -> Policy:
    """The rules are about every service."""
    return about()(policy)


def trap(policy: Policy) -> Policy:
    """A service of a region inside of the fence that refuses everybody, by an address outside."""
    made = also(service("trap", "de", "trap.demo.test", refusal=replace(NOBODYS, ipv4=("203.0.113.1",))))(
        policy
    )
    rule = replace(worlds.rule("trap", deny="EU", services="trap"), acknowledge_empty_fence=True)
    return replace(made, residency_rules=(*made.residency_rules, rule))


class Way(NamedTuple):
    """Steps that open something together, and steps like them that open nothing; both from what `given` makes of the policy."""

    steps: tuple[Step, ...]
    twin: tuple[Step, ...]
    given: tuple[Step, ...] = ()


OFF = unhosted("a.demo.test")


def off(*record: str) -> tuple[Step, ...]:
    """The host name is off its service, and has a record (of the given name, if there are three words)."""
    name, rdtype, data = record if len(record) == 3 else ("a", *record)
    return (lambda policy: with_records((name, rdtype, data))(OFF(policy)),)


def both(*steps: Step) -> Step:
    """In one change."""
    return lambda policy: reduce(lambda made, step: step(made), steps, policy)


WAYS = {
    # Records at a name that was fenced.
    "A": Way(off("A", "192.0.2.2"), off("A", "192.0.2.1")),
    "A outside": Way(off("A", "203.0.113.1"), off("A", "0.0.0.0")),
    "AAAA": Way(off("AAAA", "2001:db8::2"), off("AAAA", "2001:db8::1")),
    "AAAA that is IPv4": Way(off("AAAA", "::ffff:192.0.2.2"), off("AAAA", "::ffff:192.0.2.1")),
    "A by RFC 3597": Way(off("A", "\\# 4 c0000202"), off("A", "\\# 4 c0000201")),
    "CNAME": Way(off("CNAME", "b"), off("CNAME", "x.w")),
    "CNAME outside": Way(off("CNAME", "evil.example."), off("CNAME", "DE.test.")),
    "CNAME of another region": Way(off("CNAME", "us.test."), off("CNAME", "fr.test.")),
    "CNAME by RFC 3597": Way(
        off("CNAME", "\\# 9 0275730474657374 00"), off("CNAME", "\\# 9 0264650474657374 00")
    ),
    "HTTPS to a target": Way(off("HTTPS", "1 us.test. alpn=h2"), off("HTTPS", "1 de.test. alpn=h2")),
    "HTTPS alias": Way(off("HTTPS", "0 b"), off("HTTPS", "0 docs.demo.test.")),
    "HTTPS hint": Way(off("HTTPS", "1 . ipv4hint=192.0.2.2"), off("HTTPS", "1 . ipv4hint=192.0.2.1")),
    "HTTPS hint of IPv6": Way(
        off("HTTPS", "1 . ipv6hint=2001:db8::2"), off("HTTPS", "1 . ipv6hint=2001:db8::1")
    ),
    "HTTPS hint beside the host name": Way(
        (with_records(("a", "HTTPS", "1 . ipv4hint=192.0.2.2")),),
        (with_records(("a", "HTTPS", "1 . alpn=h2")),),
    ),
    "HTTPS by RFC 3597": Way(
        off("HTTPS", "\\# 11 0001 00 0004 0004 c0000202"), off("HTTPS", "\\# 11 0001 00 0004 0004 c0000201")
    ),
    "SVCB": Way(off("SVCB", "1 us.test."), off("SVCB", "1 de.test.")),
    "SVCB below": Way(
        (with_records(("_dns.a", "SVCB", "1 us.test.")),), (with_records(("_dns.a", "SVCB", "1 de.test.")),)
    ),
    "HTTPS of a port": Way(
        (with_records(("_8443._https.a", "HTTPS", "1 us.test.")),),
        (with_records(("_8443._https.b", "HTTPS", "1 evil.example.")),),
    ),
    "SRV below": Way(
        (with_records(("_grpclb._tcp.a", "SRV", "0 0 443 us.test.")),),
        (with_records(("_grpclb._tcp.a", "SRV", "0 0 0 ."), ("_x._tcp.a", "SRV", "0 0 443 DE.test.")),),
    ),
    "SRV to another service": Way(
        (with_records(("_grpclb._tcp.a", "SRV", "0 0 443 b")),),
        (with_records(("_grpclb._tcp.a", "SRV", "0 0 443 a")),),
    ),
    "A below": Way((with_records(("x.a", "A", "192.0.2.2")),), (with_records(("x.b", "A", "192.0.2.2")),)),
    "NS at the name": Way(off("NS", "ns.evil.example."), off("MX", "10 evil.example.")),
    "NS below": Way(
        (with_records(("x.a", "NS", "ns.evil.example.")),), (with_records(("x.b", "NS", "ns.evil.example.")),)
    ),
    "NS above": Way(
        (
            both(
                unhosted("*.w.demo.test"),
                without_record("t.w"),
                with_records(("w", "NS", "ns.evil.example.")),
            ),
        ),
        (with_records(("v", "NS", "ns.evil.example.")),),
    ),
    "zone of its own": Way(
        (both(OFF, child(RecordSet("@", "A", ("203.0.113.1",)))),),
        (both(OFF, child(RecordSet("@", "TXT", ("x",)))),),
    ),
    "name server in a name's place": Way(
        (both(OFF, servers("a.demo.test", "203.0.113.1", country="DE")),),
        (both(OFF, servers("n.demo.test", "203.0.113.1", country="DE")),),
    ),
    "name server": Way((servers("ns.evil.example"),), (servers("ns.evil.example", country="DE"),)),
    "name server's address": Way(
        (servers("ns1.demo.test", "203.0.113.1", "203.0.113.2"),),
        (servers("ns1.demo.test", "203.0.113.1"),),
        given=(servers("ns1.demo.test", "203.0.113.1"),),
    ),
    "name server at a region's address": Way(
        (servers("ns1.demo.test", "192.0.2.2", country="DE"),), (servers("ns1.demo.test", "192.0.2.1"),)
    ),
    "name server of a zone of the name": Way(
        (both(OFF, handed("a.demo.test", "ns.evil.example")),),
        (both(unhosted("b.demo.test"), handed("b.demo.test", "ns.evil.example")),),
    ),
    "name server of a zone below": Way(
        (handed("x.a.demo.test", "ns.evil.example"),), (handed("x.a.demo.test", "ns.outer.test"),)
    ),
    "name server of a zone above a wildcard": Way(
        (both(unhosted("*.w.demo.test"), without_record("t.w"), handed("w.demo.test", "ns.evil.example")),),
        (
            both(
                unhosted("*.w.demo.test"),
                without_record("t.w"),
                handed("w.demo.test", "ns.evil.example", "DE"),
            ),
        ),
    ),
    "name server of the zone around one that goes": Way(
        (without_zone("x.a.demo.test"),),
        (without_zone("x.n.demo.test"),),
        given=(
            servers("ns.evil.example"),
            handed("x.a.demo.test", "ns.outer.test"),
            handed("x.n.demo.test", "ns.outer.test"),
        ),
    ),
    "name server after the name is gone": Way(
        (OFF, nothing, unhosted("*.w.demo.test"), without_record("docs"), servers("ns.evil.example")),
        (
            OFF,
            nothing,
            unhosted("*.w.demo.test"),
            without_record("docs"),
            handed("v.demo.test", "ns.evil.example"),
        ),
    ),
    "name server of a zone below a name that is gone": Way(
        (OFF, nothing, handed("x.a.demo.test", "ns.evil.example")),
        (OFF, nothing, handed("x.n.demo.test", "ns.evil.example")),
    ),
    "wildcard that covers it": Way(off("*", "A", "192.0.2.2"), off("*.v", "A", "192.0.2.2")),
    "wildcard in a wildcard's place": Way(
        (both(unhosted("*.w.demo.test"), with_records(("*.w", "A", "192.0.2.2"))),),
        (both(unhosted("*.w.demo.test"), with_records(("*.w", "A", "192.0.2.1"))),),
    ),
    "record below a wildcard": Way(
        (with_records(("x.w", "A", "192.0.2.2")),), (with_records(("x.w", "A", "192.0.2.1")),)
    ),
    "what blocked a wildcard goes": Way(
        (both(OFF, without_record("a")),),
        (both(OFF, without_record("t.w")),),
        given=(with_records(("*", "A", "192.0.2.2"), ("a", "TXT", "x")),),
    ),
    "what blocked a wildcard below a host name goes": Way(
        (without_record("_https.a"),),
        (without_record("_https.b"),),
        given=(
            with_records(
                ("*.a", "HTTPS", "1 us.test."),
                ("_https.a", "TXT", "x"),
                ("*.b", "HTTPS", "1 evil.example."),
                ("_https.b", "TXT", "x"),
            ),
        ),
    ),
    "what blocked a wildcard below a host name goes, an empty non-terminal": Way(
        (without_record("x.y.a"),),
        (without_record("x.v.a"),),
        given=(
            with_records(
                ("*.a", "A", "192.0.2.2"), ("x.y.a", "TXT", "x"), ("x.v.a", "TXT", "x"), ("v.a", "TXT", "x")
            ),
        ),
    ),
    "what blocked a wildcard below what led there goes": Way(
        (without_record("y.a"),),
        (without_record("y.b"),),
        given=(
            with_records(
                ("*.a", "A", "192.0.2.2"),
                ("y.a", "A", "192.0.2.2"),
                ("*.b", "A", "192.0.2.2"),
                ("y.b", "A", "192.0.2.2"),
            ),
        ),
    ),
    "what blocked a wildcard below a name that is gone goes": Way(
        (with_records(("a", "TXT", "x")), OFF, nothing, without_record("_https.a")),
        (with_records(("a", "TXT", "x")), OFF, nothing, without_record("_https.b")),
        given=(
            with_records(("*.a", "HTTPS", "1 us.test."), ("_https.a", "TXT", "x"), ("_https.b", "TXT", "x")),
        ),
    ),
    "what blocked a wildcard of a service where browsers ask of a port goes": Way(
        (without_record("_https.a"),),
        (without_record("_https.b"),),
        given=(
            both(
                also(service("net", "us", "*.a.demo.test", https_record=HttpsRecord())),
                with_records(("_https.a", "TXT", "x"), ("_https.b", "TXT", "x")),
            ),
        ),
    ),
    "zone that blocked a wildcard goes": Way(
        (lambda policy: replace(policy, zones=policy.zones[:-1]),),
        (with_records(("c", "TXT", "x")),),
        given=(
            with_records(("*.a", "A", "192.0.2.2")),
            lambda policy: replace(policy, zones=(*policy.zones, zone("x.a.demo.test"))),
        ),
    ),
    "alias re-pointed": Way(
        (with_records(("docs", "CNAME", "b")),), (with_records(("docs", "CNAME", "x.w")),)
    ),
    "alias of an alias": Way(
        (both(OFF, with_records(("a", "CNAME", "to"), ("to", "CNAME", "too"), ("too", "CNAME", "b"))),),
        (both(OFF, with_records(("a", "CNAME", "to"), ("to", "CNAME", "too"), ("too", "CNAME", "x.w"))),),
    ),
    "alias of an alias re-pointed": Way(
        (with_records(("docs", "CNAME", "b")),),
        (with_records(("docs", "CNAME", "a")),),
        given=(with_records(("papers", "CNAME", "docs")),),
    ),
    "alias becomes an address": Way(
        (with_records(("docs", "A", "192.0.2.2")),), (with_records(("docs", "A", "192.0.2.1")),)
    ),
    "alias in upper case": Way(off("CNAME", "B.DEMO.TEST."), off("CNAME", "X.W.DEMO.TEST.")),
    # Refusals.
    "refusal": Way(
        (with_service("chat", refusal=replace(NOBODYS, ipv4=("192.0.2.2",))),),
        (with_service("chat", refusal=replace(NOBODYS, ipv4=("192.0.2.1",))),),
    ),
    "refusal of IPv6": Way(
        (with_service("chat", refusal=replace(NOBODYS, ipv6=("2001:db8::2",))),),
        (with_service("chat", refusal=replace(NOBODYS, ipv6=("2001:db8::1",))),),
    ),
    "refusal outside": Way(
        (with_service("chat", refusal=replace(NOBODYS, ipv4=("203.0.113.1",))),),
        (with_service("web", refusal=replace(NOBODYS, ipv4=("203.0.113.1",))),),
    ),
    "refusal of where a name moves": Way(
        (both(OFF, served_by("other", "a.demo.test")),),
        (both(OFF, served_by("other", "n.demo.test")),),
        given=(
            lambda policy: replace(
                also(service("other", "de", refusal=replace(NOBODYS, ipv4=("192.0.2.2",))))(policy)
            ),
        ),
    ),
    # Endpoints.
    "refusal behind an alias": Way(
        (with_records(("docs", "CNAME", "trap")),), (with_records(("docs", "CNAME", "x.w")),), given=(trap,)
    ),
    "refusal behind a region's cname": Way(
        (with_region("de", ipv4=(), ipv6=(), cname="trap.demo.test"),),
        (with_region("de", ipv4=(), ipv6=(), cname="usual.demo.test"),),
        given=(trap, also(service("usual", "de", "usual.demo.test", refusal=V6_ALONE))),
    ),
    "refusal behind a region's host": Way(
        (with_region("de", url="https://trap.demo.test"),),
        (with_region("de", url="https://usual.demo.test"),),
        given=(trap, also(service("usual", "de", "usual.demo.test", refusal=V6_ALONE))),
    ),
    "refusal behind what a region's host leads to": Way(
        (with_service("gate", refusal=replace(NOBODYS, ipv4=("203.0.113.1",))),),
        (with_service("gate", refusal=replace(NOBODYS, ipv4=("0.0.0.0",))),),
        given=(
            both(
                also(service("gate", "de", "gate.demo.test")), with_region("de", url="https://gate.demo.test")
            ),
        ),
    ),
    "host of a service that refuses elsewhere, with a rule of all": Way(
        (with_region("de", url="https://gate.demo.test"),),
        (with_region("de", url="https://usual.demo.test"),),
        given=(
            also(
                service("gate", "de", "gate.demo.test", refusal=replace(NOBODYS, ipv4=("203.0.113.1",))),
                service("usual", "de", "usual.demo.test", refusal=V6_ALONE),
            ),
            for_all,
        ),
    ),
    "another's, where all are refused": Way(
        (with_region("de", ipv4=("192.0.2.2",)),),
        (with_region("de", ipv4=("198.51.100.8",)),),
        given=(with_service("chat", refusal=replace(NOBODYS, ipv4=("192.0.2.2",))),),
    ),
    "member of a service behind a region's host": Way(
        (with_service("gate", members=(Member("de"), Member("us"))),),
        (with_service("gate", members=(Member("de"), Member("fr"))),),
        given=(
            also(service("gate", "de", "gate.demo.test")),
            with_region("de", url="https://gate.demo.test"),
        ),
    ),
    "member of a service behind a region's host, by another tenant's name": Way(
        (with_service("gate", members=(Member("de"), Member("us"))),),
        (with_service("gate", members=(Member("de"), Member("fr"))),),
        given=(
            also(
                service("gate", "de", hostnames=(HostName("gate.demo.test", tenant="other"),)),
            ),
            with_region("de", url="https://gate.demo.test"),
            about("chat", "gate"),
            lambda policy: replace(
                policy,
                tenants=(Tenant("bank"), Tenant("other")),
                residency_rules=tuple(
                    replace(rule, match=replace(rule.match, tenants=("bank",)))
                    for rule in policy.residency_rules
                ),
            ),
        ),
    ),
    "host of another service, after one that the same rule keeps in": Way(
        (with_region("de", url="https://b.demo.test"),),
        (with_service("gate", members=(Member("de"), Member("us"), Member("fr"))),),
        given=(
            also(service("gate", "de us", "gate.demo.test")),
            with_region("de", url="https://gate.demo.test"),
            about("chat", "gate"),
        ),
    ),
    "host of another service, where the rule keeps one in": Way(
        (with_region("de", url="https://b.demo.test"),),
        (with_region("de", url="https://gate.demo.test"), with_service("gate", members=(Member("us"),))),
        given=(also(service("gate", "de", "gate.demo.test")), about("chat", "gate")),
    ),
    "another's host, where a service led before": Way(
        (with_region("de", url="https://us.test"),),
        (with_service("web", members=(Member("us"), Member("fr"))),),
        given=(with_region("de", url="https://b.demo.test"),),
    ),
    "host of a service that refuses elsewhere": Way(
        (with_region("de", url="https://gate.demo.test"),),
        (with_region("de", url="https://usual.demo.test"),),
        given=(
            also(
                service("gate", "de", "gate.demo.test", refusal=replace(NOBODYS, ipv4=("203.0.113.1",))),
                service("usual", "de", "usual.demo.test"),
            ),
        ),
    ),
    "another's IPv4": Way(
        (with_region("de", ipv4=("192.0.2.2",)),), (with_region("de", ipv4=("198.51.100.1",)),)
    ),
    "another's IPv6": Way(
        (with_region("de", ipv6=("2001:DB8:0::2",)),), (with_region("de", ipv6=("2001:db8::77",)),)
    ),
    "another's IPv4 as IPv6": Way(
        (with_region("de", ipv6=("::ffff:192.0.2.2",)),), (with_region("de", ipv6=("::ffff:192.0.2.1",)),)
    ),
    "another's host": Way(
        (with_region("de", url="https://US.test:8443"),), (with_region("de", url="https://de.test:8443"),)
    ),
    "another's address as host": Way(
        (with_region("de", url="https://192.0.2.2"),), (with_region("de", url="https://192.0.2.1"),)
    ),
    "another's cname": Way(
        (with_region("de", cname="us.cloud.test"),),
        (with_region("de", cname="de.cloud.test"),),
        given=(with_region("us", cname="us.cloud.test"),),
    ),
    "another's host as cname": Way(
        (with_region("de", cname="us.test"),), (with_region("de", cname="de.test"),)
    ),
    "another's, which goes": Way(
        (both(without_region("us"), with_region("de", ipv4=("192.0.2.2",))),), (without_region("us"),)
    ),
    "another's, which moves away": Way(
        (both(with_region("us", ipv4=("198.51.100.9",)), with_region("de", ipv4=("192.0.2.2",))),),
        (both(with_region("us", ipv4=("198.51.100.9",)), with_region("de", ipv4=("198.51.100.8",))),),
    ),
    "another's, by a new name": Way(
        (both(without_region("us"), also(late(own("us"))), with_service("chat", members=(Member("late"),))),),
        (both(without_region("us"), also(late()), with_service("chat", members=(Member("late"),))),),
    ),
    "another's, two changes after": Way(
        (with_region("us", ipv4=("198.51.100.9",)), nothing, with_region("de", ipv4=("192.0.2.2",))),
        (with_region("us", ipv4=("198.51.100.9",)), nothing, with_region("de", ipv4=("198.51.100.8",))),
    ),
    "another's, two changes after it went": Way(
        (without_region("us"), nothing, with_region("de", ipv4=("192.0.2.2",))),
        (without_region("us"), nothing, with_region("de", ipv4=("198.51.100.8",))),
    ),
    "another's, as record, two changes after it went": Way(
        (without_region("us"), nothing, *off("A", "192.0.2.2")),
        (without_region("us"), nothing, *off("A", "192.0.2.1")),
    ),
    "outside, after the region that was denied went": Way(
        (both(without_region("us"), *off("A", "203.0.113.1")),),
        (both(without_region("us"), *off("A", "192.0.2.1")),),
    ),
    "cname in the policy's zone": Way(
        (with_region("de", ipv4=(), ipv6=(), cname="b.demo.test"),),
        (with_region("de", ipv4=(), ipv6=(), cname="de.demo.test"),),
        given=(with_records(("de", "A", "192.0.2.1")),),
    ),
    "host in the policy's zone": Way(
        (with_region("de", url="https://b.demo.test"),),
        (with_region("de", url="https://de.demo.test"),),
        given=(with_records(("de", "A", "192.0.2.1")),),
    ),
    "host in the policy's zone that leads out": Way(
        (with_region("de", url="https://lb.demo.test"),),
        (with_region("us", url="https://lb.demo.test"),),
        given=(with_records(("lb", "A", "203.0.113.1")),),
    ),
    "another's host in the policy's zone, which goes": Way(
        (with_region("de", url="https://h.free.test"), without_zone("free.test")),
        (with_region("de", url="https://own.free.test"), without_zone("free.test")),
        given=(with_region("us", url="https://h.free.test"),),
    ),
    "what a region's cname leads to": Way(
        (with_records(("lb", "A", "192.0.2.2")),),
        (with_records(("other", "A", "192.0.2.2")),),
        given=(
            both(
                with_records(("lb", "A", "192.0.2.1")),
                with_region("de", ipv4=(), ipv6=(), cname="lb.demo.test"),
            ),
        ),
    ),
    "what a region's host leads to": Way(
        (with_records(("lb", "A", "192.0.2.2")),),
        (with_records(("other", "A", "192.0.2.2")),),
        given=(both(with_records(("lb", "A", "192.0.2.1")), with_region("de", url="https://lb.demo.test")),),
    ),
    "a member that shares": Way(
        (with_region("fr", ipv4=("192.0.2.2",)), with_service("chat", members=(Member("de"), Member("fr")))),
        (with_service("chat", members=(Member("de"), Member("fr"))),),
    ),
    "a region to come that shares": Way(
        (also(late(own("us"))), with_service("chat", members=(Member("de"), Member("late")))),
        (also(late()), with_service("chat", members=(Member("de"), Member("late")))),
    ),
    # Services and names that go and come.
    "service renamed": Way(
        (both(with_service("chat", members=(Member("de"), Member("us"))), renamed("chat", "talk")),),
        (both(renamed("web", "net")),),
    ),
    "service made again without its rules": Way(
        (without_service("chat"), nothing, also(replace(CHAT, members=(Member("us"),)))),
        (without_service("web"), nothing, also(WEB)),
    ),
    "service made again without names": Way(
        (
            without_service("chat"),
            nothing,
            also(replace(CHAT, members=(Member("us"),), hostnames=(), zone=None)),
        ),
        (without_service("chat"), nothing, also(replace(CHAT, name="more", hostnames=(), zone=None))),
    ),
    "name made again by another service": Way(
        (OFF, nothing, served_by("web", "a.demo.test")), (OFF, nothing, served_by("chat", "a.demo.test"))
    ),
    "name made again by a record": Way(
        (OFF, nothing, with_records(("a", "A", "192.0.2.2"))),
        (OFF, nothing, with_records(("a", "A", "192.0.2.1"))),
    ),
    "name made again by a wildcard": Way(
        (OFF, nothing, served_by("web", "*.demo.test")), (OFF, nothing, served_by("web", "*.v.demo.test"))
    ),
    "name made again by a wildcard of records": Way(
        (OFF, nothing, with_records(("*", "CNAME", "evil.example."))),
        (OFF, nothing, with_records(("*.v", "CNAME", "evil.example."))),
    ),
    "record below a name that is gone": Way(
        (OFF, nothing, with_records(("_8443._https.a", "HTTPS", "1 us.test."))),
        (OFF, nothing, with_records(("_8443._https.a", "HTTPS", "1 de.test."))),
    ),
    "name below a wildcard that is gone": Way(
        (unhosted("*.w.demo.test"), nothing, with_records(("x.w", "A", "192.0.2.2"))),
        (unhosted("*.w.demo.test"), nothing, with_records(("x.w", "A", "192.0.2.1"))),
    ),
    "name below a wildcard that is gone, by a service": Way(
        (unhosted("*.w.demo.test"), nothing, served_by("web", "x.w.demo.test")),
        (unhosted("*.w.demo.test"), nothing, served_by("chat", "x.w.demo.test")),
    ),
    "alias made again": Way(
        (without_record("docs"), nothing, with_records(("docs", "CNAME", "b"))),
        (without_record("docs"), nothing, with_records(("docs", "CNAME", "a"))),
    ),
    "alias moved away and back": Way(
        (with_records(("docs", "TXT", "x")), nothing, with_records(("docs", "A", "192.0.2.2"))),
        (with_records(("docs", "TXT", "x")), nothing, with_records(("docs", "TXT", "y"))),
    ),
    "name deleted with the service, and an alias of it": Way(
        (without_service("chat"), nothing, with_records(("a", "CNAME", "b"))),
        (without_service("chat"), nothing, with_records(("n", "CNAME", "b"))),
    ),
    "region made again with its address": Way(
        (without_region("us"), nothing, also(replace(US, country="DE"))),
        (without_region("us"), nothing, also(late())),
    ),
    "region gone with the rule of it, and its address": Way(
        (without_region("us"), nothing, with_region("de", ipv4=("192.0.2.2",))),
        (without_region("us"), nothing, with_region("de", ipv4=("198.51.100.8",))),
    ),
    "wildcard of another service where browsers ask of a port": Way(
        (served_by("net", "*.a.demo.test"),),
        (served_by("net", "*.b.demo.test"),),
        given=(also(service("net", "us", "net.demo.test", https_record=HttpsRecord())),),
    ),
}


def cases(names: Iterable[str]) -> list[tuple[str, str]]:
    """Each with each fence."""
    return [(name, fence) for name in names for fence in FENCES]


def opened_by(steps: tuple[Step, ...], start: Policy) -> list[bool]:
    """Which of some changes, one after the other, opens something; those that do are not made."""
    control = Control(compile_policy(start, worlds.SHIPPED))
    policy, found = start, []
    for step in steps:
        changed = step(policy)
        after = compile_policy(changed, worlds.SHIPPED)
        found.append(control.judged(after).any)
        if found[-1]:
            break
        control.takes(after)
        policy = changed
    return found


def fenced(fence: str, given: tuple[Step, ...]) -> Policy:
    """What the ways begin at."""
    return both(*given)(replace(BASE, residency_rules=(FENCES[fence],)))


BEGUN = {
    "HTTPS to another service": with_records(("a", "HTTPS", "1 b")),
    "SVCB to another service": with_records(("a", "SVCB", "1 b")),
    "SVCB to another service that refuses elsewhere": both(
        with_records(("a", "SVCB", "1 b")),
        with_service("web", refusal=replace(NOBODYS, ipv4=("203.0.113.1",))),
    ),
    "SVCB of a wildcard to another service that refuses elsewhere": both(
        with_records(("*.w", "SVCB", "1 b")),
        with_service("web", refusal=replace(NOBODYS, ipv4=("203.0.113.1",))),
    ),
    "SVCB to a service of the same rules that refuses elsewhere": both(
        also(service("twin", "de", "twin.demo.test", refusal=replace(NOBODYS, ipv4=("203.0.113.1",)))),
        with_records(("a", "SVCB", "1 twin")),
        for_all,
    ),
    "HTTPS to a service of the same rules that refuses elsewhere": both(
        also(service("twin", "de", "twin.demo.test", refusal=replace(NOBODYS, ipv4=("203.0.113.1",)))),
        with_records(("a", "HTTPS", "1 twin")),
        for_all,
    ),
    "A of another region below": with_records(("x.a", "A", "192.0.2.2")),
    "NS below": with_records(("x.a", "NS", "ns.evil.example.")),
    "an address of two regions": with_region("de", ipv4=("192.0.2.1", "192.0.2.2")),
    "a host of two regions": with_region("de", url="https://us.test"),
    "a cname in the policy's zone": with_region("de", ipv4=(), ipv6=(), cname="b.demo.test"),
    "a refusal of another region": with_service("chat", refusal=replace(NOBODYS, ipv4=("192.0.2.2",))),
}
"""What leads out of the fence already."""


STANDING = BEGUN | {
    "a wildcard that something blocks": with_records(
        ("*.a", "HTTPS", "1 us.test."), ("_https.a", "TXT", "x")
    ),
    "a refusal of nobody behind a region's host": both(
        also(service("gate", "de", "gate.demo.test", refusal=replace(NOBODYS, ipv4=("203.0.113.1",)))),
        with_region("de", url="https://gate.demo.test"),
    ),
}


@pytest.mark.parametrize(("standing", "fence"), cases(STANDING))
def test_what_leads_out_already_is_a_finding(standing: str, fence: str) -> None:
    """So who upgrades knows which changes may be refused."""
    snapshot = compile_policy(fenced(fence, (STANDING[standing],)), worlds.SHIPPED)
    assert {one.code for one in led_out(snapshot, NOW, leads_of)} == {"led_out"}


@pytest.mark.parametrize("fence", FENCES)
def test_nothing_leads_out_of_the_first_policy(fence: str) -> None:
    """What is usual is no finding."""
    assert not [*led_out(compile_policy(fenced(fence, ()), worlds.SHIPPED), NOW, leads_of)]


def turned(policy: Policy) -> Policy:
    """A region lies elsewhere within its country."""
    first, *rest = policy.regions
    return replace(policy, regions=(replace(first, lat=first.lat + 1), *rest))


@pytest.mark.parametrize(("begun", "fence"), cases(BEGUN))
def test_what_led_out_before_is_no_opening(begun: str, fence: str) -> None:
    """What a name led to before the change opens nothing new: what a service says of its answers may be changed."""
    assert opened_by((nothing,), fenced(fence, (BEGUN[begun],))) == [False]


@pytest.mark.parametrize(("begun", "fence"), cases(BEGUN))
def test_what_led_out_before_is_no_opening_where_rules_are_compared(begun: str, fence: str) -> None:
    """What a name led to before the change opens nothing new: regions may be changed."""
    assert opened_by((turned,), fenced(fence, (BEGUN[begun],))) == [False]


@pytest.mark.parametrize(("way", "fence"), cases(WAYS))
def test_a_way_out_of_a_fence_is_an_opening(way: str, fence: str) -> None:
    """Whatever leads clients of a fenced name out opens something, at some change of those that it takes."""
    assert opened_by(WAYS[way].steps, fenced(fence, WAYS[way].given))[-1]


@pytest.mark.parametrize(("way", "fence"), cases(WAYS))
def test_what_is_like_it_opens_nothing(way: str, fence: str) -> None:
    """The same to where the law lets clients go, or at names of nobody, is no opening."""
    assert not any(opened_by(WAYS[way].twin, fenced(fence, WAYS[way].given)))


@pytest.mark.parametrize("way", WAYS)
def test_without_a_rule_that_binds_there_is_no_way_out(way: str) -> None:
    """What leads out of a fence leads out of nothing where the rule is watched alone."""
    start = both(*WAYS[way].given)(
        replace(BASE, residency_rules=(replace(FENCES["allow"], mode=RuleMode.MONITOR),))
    )
    assert not any(opened_by(WAYS[way].steps, start))
