"""Small policies with fences, and what operators may do to them: regions, names, records, refusals, rules, zones.

All is drawn by `Pick`, one of a few things at a time, so that hypothesis makes it smaller and a generator of random numbers
makes it fast. What a change makes may not compile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

from hypothesis import strategies as st

from gtm.core.model.policy import (
    DataClass,
    Match,
    OnAnonymous,
    OnUnknownLocation,
    Places,
    Policy,
    ResidencyRule,
    RuleMode,
    Tenant,
)
from gtm.core.model.regions import Endpoint, Region
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

T = TypeVar("T")
Pick = Callable[[Sequence[Any]], Any]

_places = cache(lambda count: st.integers(0, count - 1))


def picked_by(draw: st.DrawFn) -> Pick:
    """One of some, drawn by hypothesis: the first is the simplest."""
    return lambda some: some[draw(_places(len(some)))]


COUNTRIES = {"de": "DE", "us": "US", "jp": "JP", "fr": "FR"}
NUMBERS = {name: number for number, name in enumerate(COUNTRIES, 1)}
FRESH = ("new", "late")
"""Regions to come."""


def own(name: str) -> Endpoint:
    """What a region has that keeps to itself."""
    number = NUMBERS.get(name, 7 if name == "new" else 8)
    return Endpoint(f"https://{name}.test", (f"192.0.2.{number}",), (f"2001:db8::{number}",))


@cache
def endpoints(name: str) -> tuple[tuple[Endpoint, ...], ...]:
    """What a region may have: its own, nobody's, other regions', and what lies in the policy's zones."""
    mine = own(name)
    number = int(mine.ipv4[0].rpartition(".")[2])
    found = [
        mine,
        replace(mine, ipv6=()),
        replace(mine, ipv4=(), ipv6=(), cname=f"{name}.cloud.test"),
        replace(mine, url=f"https://{name}.free.test"),
        replace(mine, ipv4=(f"198.51.100.{number}",), ipv6=()),
        replace(mine, ipv4=(*mine.ipv4, "192.0.2.99")),
        replace(mine, ipv4=(), ipv6=(), cname="lb.demo.test"),
        replace(mine, ipv4=(), ipv6=(), cname="B.demo.test"),
        replace(mine, ipv4=(), ipv6=(), cname="f.free.test"),
        replace(mine, url="https://b.demo.test"),
        replace(mine, url="https://lb.demo.test"),
    ]
    for other in COUNTRIES:
        if other != name:
            theirs = own(other)
            found += [
                replace(mine, ipv4=theirs.ipv4),
                replace(mine, ipv4=(*mine.ipv4, *theirs.ipv4)),
                replace(mine, ipv6=(theirs.ipv6[0].upper(),)),
                replace(mine, ipv6=(f"::ffff:{theirs.ipv4[0]}",)),
                replace(mine, url=theirs.url),
                replace(mine, url=f"https://{theirs.ipv4[0]}"),
                replace(mine, ipv4=(), ipv6=(), cname=f"{other}.cloud.test"),
                replace(theirs, url=mine.url),
            ]
    return tuple((one,) for one in found) + tuple(
        (mine, replace(one, url=f"https://{name}-2.test")) for one in (found[4], found[7])
    )


def region(name: str, pick: Pick) -> Region:
    """A region, mostly with what is its own."""
    options = endpoints(name)
    has = pick((options[0],) * 2 + options[:5] + options)
    return Region(name, 0.0, 0.0, COUNTRIES.get(name) or pick(("DE", "US")), has)


HOSTS = (
    "a.demo.test",
    "b.demo.test",
    "*.demo.test",
    "c.a.demo.test",
    "*.a.demo.test",
    "demo.test",
    "x.demo.test",
    "h.sub.demo.test",
    "*.sub.demo.test",
    "lb.demo.test",
)
ZONES = ("demo.test", "sub.demo.test", "free.test")
UNIVERSE = (
    *ZONES,
    *(name for name in HOSTS if "*" not in name and name != "demo.test"),
    "any.demo.test",
    "any.a.demo.test",
    "z.any.a.demo.test",
    "z.c.a.demo.test",
    "z.x.demo.test",
    "any.sub.demo.test",
    "w.x.demo.test",
    "d.demo.test",
    "e.demo.test",
    "_8443._https.a.demo.test",
    "_https.a.demo.test",
    "ns1.demo.test",
    "f.free.test",
    "any.free.test",
    "us.free.test",
)
"""The names that are asked for: all that the worlds have, and below wildcards any."""

OWNERS = (
    "a",
    "b",
    "d",
    "e",
    "*",
    "*.a",
    "c.a",
    "A.demo.test.",
    "x",
    "w.x",
    "@",
    "lb",
    "_8443._https.a",
    "z.c.a",
    "sub",
    "h.sub",
    "*.sub",
    "ns1",
    "z.x",
)
DATA: dict[str, tuple[str, ...]] = {
    "A": ("192.0.2.1", "192.0.2.2", "203.0.113.9", "0.0.0.0", "\\# 4 c0000202"),
    "AAAA": (
        "2001:db8::2",
        "2001:DB8:0::1",
        "::ffff:192.0.2.2",
        "::",
        "\\# 16 20010db8000000000000000000000002",
    ),
    "CNAME": (
        "a",
        "b",
        "d",
        "lb",
        "c.a",
        "US.Cloud.test.",
        "evil.example.",
        "f.free.test.",
        "\\# 13 01620464656d6f047465737400",
    ),
    "HTTPS": (
        "1 . alpn=h2",
        "1 . ipv4hint=192.0.2.2",
        "1 . ipv6hint=2001:db8::2",
        "0 b",
        "1 us.cloud.test. alpn=h2",
        "0 evil.example.",
        "1 d port=8443",
        "\\# 11 0001 00 0004 0004 c0000202",
    ),
    "SVCB": ("1 a", "1 . ipv4hint=192.0.2.2", "0 evil.example.", "2 B.Demo.Test."),
    "SRV": ("0 0 443 us.cloud.test.", "0 0 443 b", "0 0 443 evil.example.", "0 0 0 ."),
    "NS": ("ns.evil.example.", "ns1"),
    "TXT": ("x",),
    "MX": ("10 evil.example.", "10 b"),
}
LEADING = tuple(
    RecordSet(name, rdtype, (data,)) for name in OWNERS for rdtype, every in DATA.items() for data in every
)
PLAIN = tuple(
    RecordSet(name, rdtype, (data,))
    for name in ("m", "a", "@", "m.x", "t")
    for rdtype, data in (("TXT", "x"), ("MX", "10 mx.example."), ("CAA", '0 issue "ca.example"'))
)
"""What leads nowhere."""
FREE = tuple(
    RecordSet(name, rdtype, (data,))
    for name in ("f", "*", "us", "g", "n.g")
    for rdtype in ("A", "AAAA", "CNAME", "HTTPS", "SVCB", "TXT")
    for data in DATA[rdtype]
)
REFUSALS = (
    RefusalAddress(("192.0.2.250",), ("2001:db8::250",)),
    RefusalAddress(("192.0.2.2",), ("2001:db8::250",)),
    RefusalAddress(("192.0.2.250",), ("2001:db8::2",)),
    RefusalAddress(("192.0.2.1",), ("2001:db8::1",)),
    RefusalAddress(("203.0.113.1",), ("2001:db8::250",)),
    RefusalAddress(("0.0.0.0",), ("::",)),
)


def zone(name: str, records: Sequence[RecordSet] = (), servers: tuple[NameServer, ...] = ()) -> Zone:
    """A zone of name servers outside, unless others are given."""
    servers = servers or (NameServer("ns.outer.test"),)
    return Zone(name, servers[0].name, "hostmaster.outer.test", servers, records=tuple(records))


def _moment(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)


_ALLOWED = (
    Places(jurisdictions=("EU",)),
    Places(regions=("de",)),
    Places(jurisdictions=("EU",), regions=("jp",)),
    Places(jurisdictions=("ADEQUATE",)),
)
_DENIED = (Places(jurisdictions=("US",)), Places(regions=("us",)), Places(jurisdictions=("US", "JP")))
RULES = tuple(
    replace(rule, effective_from=_moment(since), effective_until=_moment(until), acknowledge_empty_fence=True)
    for since, until in ((None, None), (None, None), (200.0, None), (None, 200.0))
    for match in (
        Match(services=("chat",)),
        Match(),
        Match(services=("chat",), client_jurisdictions=("EU",)),
        Match(client_countries=("US",)),
        Match(services=("chat", "web"), tenants=("bank",)),
        Match(data_classes=("health",)),
    )
    for rule in (
        *(ResidencyRule("rule", match, allow=places) for places in _ALLOWED),
        *(ResidencyRule("rule", match, deny=places) for places in _DENIED),
        ResidencyRule("rule", match, allow=_ALLOWED[0], on_unknown_location=OnUnknownLocation.IGNORE),
        ResidencyRule("rule", match, allow=_ALLOWED[0], on_anonymous=OnAnonymous.TRUST),
        ResidencyRule("rule", match, deny=_DENIED[0], max_accuracy_km=100.0),
    )
)
STATED = ((None, None),) * 3 + (("bank", None), (None, "health"), ("other", None), ("bank", "health"))
MEMBERS = (("de", "us"), ("de", "us", "jp"), ("us",), ("de",), ("us", "jp"), ("de", "fr"))


def host(name: str, pick: Pick) -> HostName:
    """A host name that may state something."""
    return HostName(name, *pick(STATED))


def zone_of(name: str, zones: Sequence[Zone]) -> str:
    """The closest zone."""
    return max(
        (each.name for each in zones if f".{name}".endswith(f".{each.name}")), key=len, default="demo.test"
    )


def settled(policy: Policy) -> Policy:
    """With what refers to nothing taken out, and each service's zone as its names are: most then compiles."""
    known = {each.name for each in policy.regions}
    zones = {each.name for each in policy.zones}
    services, taken = [], set()
    for service in policy.services:
        members = tuple(member for member in service.members if member.region in known)
        if not members:
            continue
        names = [each for each in service.names if each.name not in taken]
        at = zone_of(names[0].name, policy.zones) if names else None
        names = [each for each in names if zone_of(each.name, policy.zones) == at]
        taken |= {each.name for each in names}
        services.append(
            replace(
                service,
                members=members,
                hostnames=tuple(names),
                zone=at if names else None,
                https_record=service.https_record if names else None,
                refusal=service.refusal if service.refusal.ipv4 else REFUSALS[0],
            )
        )
    offered = {each.name for each in services}
    rules = []
    for number, rule in enumerate(policy.residency_rules):
        named = tuple(name for name in rule.match.services if name in offered)
        allow = tuple(name for name in rule.allow.regions if name in known)
        deny = tuple(name for name in rule.deny.regions if name in known)
        if bool(named) != bool(rule.match.services):
            continue
        allow_, deny_ = replace(rule.allow, regions=allow), replace(rule.deny, regions=deny)
        if allow_ == Places() and deny_ == Places():
            continue
        if allow_ == Places() and rule.allow != Places():
            continue
        rules.append(
            replace(
                rule,
                name=f"rule{number}" if rule.name == "rule" else rule.name,
                match=replace(rule.match, services=named),
                allow=allow_,
                deny=deny_,
            )
        )
    hosted = {each.name: service for service in services for each in service.names}
    listed = tuple(
        replace(each, records=tuple(_standing(each, zones, hosted, policy))) for each in policy.zones
    )
    return replace(policy, services=tuple(services), residency_rules=tuple(rules), zones=listed)


def owner_of(record: RecordSet, at: str) -> str:
    """The absolute name of a record, in lower case."""
    name = record.name.lower()
    if name == "@":
        return at
    return name[:-1] if name.endswith(".") else f"{name}.{at}"


def _standing(at: Zone, zones: set[str], hosted: dict[str, Service], policy: Policy) -> Iterator[RecordSet]:
    """The records that can stand beside those before them and what services answer."""
    aliased = {
        each.name for each in policy.regions if any(endpoint.cname is not None for endpoint in each.endpoints)
    }
    sets: dict[str, set[str]] = {}
    written = set()
    cuts = {owner_of(record, at.name) for record in at.records if record.type == "NS"}
    for record in at.records:
        name = owner_of(record, at.name)
        if (name, record.type, record.data) in written:
            continue
        inside = [each for each in zones if name == each or name.endswith(f".{each}")]
        if not inside or max(inside, key=len) != at.name:
            continue
        here = sets.get(name, set())
        if here and ("CNAME" in here or record.type == "CNAME"):
            continue
        if (name == at.name and record.type in ("CNAME", "NS")) or (record.type == "NS" and "*" in name):
            continue
        cut = next((each for each in cuts if name == each or name.endswith(f".{each}")), None)
        if cut is not None and not (record.type == "NS" and name == cut):
            continue
        service = hosted.get(name)
        if service is not None:
            alias = name != service.zone and any(member.region in aliased for member in service.members)
            if (
                alias
                or record.type in ("A", "AAAA", "CNAME", "NS")
                or (record.type == "HTTPS" and service.https_record)
            ):
                continue
        if record.type == "NS" and any(each.endswith(f".{name}") for each in hosted):
            continue
        sets.setdefault(name, set()).add(record.type)
        written.add((name, record.type, record.data))
        yield record


def policy(pick: Pick) -> Policy:
    """A policy to change: two to four regions, one to three services, zones with records, rules."""
    names = tuple(COUNTRIES)[: pick((2, 3, 4))]
    hosts = list(HOSTS)
    services = []
    for name in ("chat", "web", "third")[: pick((2, 1, 3))]:
        mine = [
            hosts.pop(hosts.index(pick(hosts[: 1 + 2 * len(services)] + hosts)))
            for _ in range(pick((1, 2, 3)))
        ]
        services.append(
            Service(
                name,
                tuple(map(Member, pick(MEMBERS))),
                hostnames=tuple(host(each, pick) for each in mine),
                refusal=pick(REFUSALS[:1] * 4 + REFUSALS),
                https_record=pick((None, None, HttpsRecord())),
            )
        )
    records = tuple(pick(LEADING) for _ in range(pick((0, 1, 2, 3, 5))))
    zones = (
        zone("demo.test", records, pick(((),) * 4 + ((NameServer("ns1.demo.test", ("192.0.2.2",)),),))),
        zone("free.test", tuple(pick(FREE) for _ in range(pick((0, 1, 2))))),
    )
    if pick((False, False, True)):
        zones += (zone("sub.demo.test", pick(((), (RecordSet("h", "A", ("192.0.2.2",)),)))),)
    rules = tuple(replace(pick(RULES), name=f"rule{number}") for number in range(pick((1, 1, 2, 3, 0))))
    return settled(
        Policy(
            regions=tuple(region(name, pick) for name in names),
            zones=zones,
            services=tuple(services),
            residency_rules=rules,
            tenants=(Tenant("bank", country="DE"), Tenant("other", country="US")),
            data_classes=(DataClass("health"),),
        )
    )


# --- changes ---


def _put(some: tuple[T, ...], at: int, *new: T) -> tuple[T, ...]:
    return (*some[:at], *new, *some[at + 1 :])


def _zone_records(
    before: Policy, pick: Pick, change: Callable[[tuple[RecordSet, ...]], tuple[RecordSet, ...]]
) -> Policy:
    at = pick(range(len(before.zones)))
    each = before.zones[at]
    return replace(before, zones=_put(before.zones, at, replace(each, records=change(each.records))))


def _record_added(before: Policy, pick: Pick) -> Policy:
    # The first, so that it stands where others would have been.
    return _zone_records(before, pick, lambda known: (pick(LEADING), *known))


def _record_gone(before: Policy, pick: Pick) -> Policy:
    return _zone_records(before, pick, lambda known: _put(known, pick(range(len(known)))) if known else known)


def _record_changed(before: Policy, pick: Pick) -> Policy:
    def change(known: tuple[RecordSet, ...]) -> tuple[RecordSet, ...]:
        if not known:
            return (pick(LEADING),)
        at = pick(range(len(known)))
        return _put(known, at, replace(known[at], data=(pick(DATA.get(known[at].type, known[at].data)),)))

    return _zone_records(before, pick, change)


def _service(before: Policy, pick: Pick, change: Callable[[Service], Service]) -> Policy:
    if not before.services:
        return before
    at = pick(range(len(before.services)))
    return replace(before, services=_put(before.services, at, change(before.services[at])))


def _host_gone(before: Policy, pick: Pick) -> Policy:
    def change(each: Service) -> Service:
        names = each.names
        return replace(each, hostnames=_put(names, pick(range(len(names)))) if names else ())

    return _service(before, pick, change)


def _host_came(before: Policy, pick: Pick) -> Policy:
    name = pick(HOSTS)
    without = replace(
        before,
        services=tuple(
            replace(each, hostnames=tuple(one for one in each.names if one.name != name))
            for each in before.services
        ),
    )
    return _service(without, pick, lambda each: replace(each, hostnames=(*each.names, host(name, pick))))


def _host_to_record(before: Policy, pick: Pick) -> Policy:
    """A host name becomes a record, by itself or below a wildcard."""
    named = [(at, each) for at, service in enumerate(before.services) for each in service.names]
    if not named:
        return before
    at, gone = pick(named)
    service = before.services[at]
    left = tuple(each for each in service.names if each != gone)
    after = replace(before, services=_put(before.services, at, replace(service, hostnames=left)))
    rdtype = pick(("A", "CNAME", "HTTPS", "AAAA", "SVCB", "NS"))
    new = RecordSet(f"{gone.name}.", rdtype, (pick(DATA[rdtype]),))
    where = zone_of(gone.name, after.zones)
    return replace(
        after,
        zones=tuple(
            replace(each, records=(new, *each.records)) if each.name == where else each
            for each in after.zones
        ),
    )


def _refusal(before: Policy, pick: Pick) -> Policy:
    return _service(before, pick, lambda each: replace(each, refusal=pick(REFUSALS)))


def _members(before: Policy, pick: Pick) -> Policy:
    names = [each.name for each in before.regions]
    return _service(
        before,
        pick,
        lambda each: replace(each, members=tuple(map(Member, pick((*MEMBERS, names, names[::-1]))))),
    )


def _https(before: Policy, pick: Pick) -> Policy:
    return _service(
        before, pick, lambda each: replace(each, https_record=None if each.https_record else HttpsRecord())
    )


def _stated(before: Policy, pick: Pick) -> Policy:
    return _service(
        before, pick, lambda each: replace(each, hostnames=tuple(host(one.name, pick) for one in each.names))
    )


def _endpoints(before: Policy, pick: Pick) -> Policy:
    at = pick(range(len(before.regions)))
    each = before.regions[at]
    return replace(
        before, regions=_put(before.regions, at, replace(each, endpoints=pick(endpoints(each.name))))
    )


def _region_gone(before: Policy, pick: Pick) -> Policy:
    if len(before.regions) < 2:
        return before
    return replace(before, regions=_put(before.regions, pick(range(len(before.regions)))))


def _region_came(before: Policy, pick: Pick) -> Policy:
    missing = [name for name in (*COUNTRIES, *FRESH) if name not in {each.name for each in before.regions}]
    if not missing:
        return before
    new = region(pick(missing), pick)
    new = pick((new, replace(new, endpoints=(own(pick(tuple(COUNTRIES))),))))
    join = pick((False, True))
    services = tuple(
        replace(each, members=(*each.members, Member(new.name))) if join else each for each in before.services
    )
    return replace(before, regions=(*before.regions, new), services=services)


def _region_renamed(before: Policy, pick: Pick) -> Policy:
    """A region gets another name, and may be said to stand elsewhere."""
    at = pick(range(len(before.regions)))
    each, name = before.regions[at], pick(FRESH)
    if name in {one.name for one in before.regions}:
        return before
    new = replace(each, name=name, country=pick((each.country, "DE")))

    def renamed(places: Places) -> Places:
        return replace(places, regions=tuple(name if one == each.name else one for one in places.regions))

    return replace(
        before,
        regions=_put(before.regions, at, new),
        services=tuple(
            replace(
                one,
                members=tuple(replace(m, region=name) if m.region == each.name else m for m in one.members),
            )
            for one in before.services
        ),
        residency_rules=tuple(
            replace(rule, allow=renamed(rule.allow), deny=renamed(rule.deny))
            for rule in before.residency_rules
        ),
    )


def _region_moved(before: Policy, pick: Pick) -> Policy:
    at = pick(range(len(before.regions)))
    return replace(
        before,
        regions=_put(before.regions, at, replace(before.regions[at], country=pick(("DE", "US", "GB")))),
    )


def _service_renamed(before: Policy, pick: Pick) -> Policy:
    name = pick(("renamed", "chat", "web"))
    if name in {each.name for each in before.services} or not before.services:
        return before
    at = pick(range(len(before.services)))
    old = before.services[at].name
    follow = pick((False, True))
    rules = tuple(
        replace(
            rule,
            match=replace(
                rule.match,
                services=tuple(name if follow and one == old else one for one in rule.match.services),
            ),
        )
        for rule in before.residency_rules
    )
    services = _put(before.services, at, replace(before.services[at], name=name))
    return replace(before, services=services, residency_rules=rules)


def _service_gone(before: Policy, pick: Pick) -> Policy:
    """A service goes, with the rules that name it alone."""
    if not before.services:
        return before
    return replace(before, services=_put(before.services, pick(range(len(before.services)))))


def _service_came(before: Policy, pick: Pick) -> Policy:
    missing = [
        name for name in ("chat", "web", "third") if name not in {each.name for each in before.services}
    ]
    if not missing:
        return before
    taken = {one.name for each in before.services for one in each.names}
    names = [name for name in HOSTS if name not in taken]
    new = Service(
        pick(missing),
        tuple(map(Member, pick(MEMBERS))),
        hostnames=(host(pick(names), pick),) if names else (),
        refusal=pick(REFUSALS),
    )
    return replace(before, services=(*before.services, new))


def _rule_gone(before: Policy, pick: Pick) -> Policy:
    rules = before.residency_rules
    return replace(before, residency_rules=_put(rules, pick(range(len(rules)))) if rules else ())


def _rule_changed(before: Policy, pick: Pick) -> Policy:
    rules = before.residency_rules
    if not rules:
        return before
    at = pick(range(len(rules)))
    new = pick((replace(pick(RULES), name=rules[at].name), replace(rules[at], mode=RuleMode.MONITOR)))
    return replace(before, residency_rules=_put(rules, at, new))


def rule_came(before: Policy, pick: Pick) -> Policy:
    """One more rule."""
    name = pick(("more", "another"))
    if name in {each.name for each in before.residency_rules}:
        return before
    return replace(before, residency_rules=(*before.residency_rules, replace(pick(RULES), name=name)))


def _zone_gone(before: Policy, pick: Pick) -> Policy:
    return replace(before, zones=tuple(each for each in before.zones if each.name != "sub.demo.test"))


def _zone_came(before: Policy, pick: Pick) -> Policy:
    if any(each.name == "sub.demo.test" for each in before.zones):
        return before
    records = pick(
        (
            (),
            (RecordSet("h", "A", ("192.0.2.2",)),),
            (RecordSet("@", "A", ("203.0.113.9",)),),
            (RecordSet("*", "CNAME", ("b.demo.test.",)),),
        )
    )
    return replace(before, zones=(*before.zones, zone("sub.demo.test", records)))


def _servers(before: Policy, pick: Pick) -> Policy:
    first, *rest = before.zones
    servers = pick(
        (
            (NameServer("ns.outer.test"),),
            (NameServer("ns1.demo.test", ("192.0.2.2",)),),
            (NameServer("x.demo.test", ("203.0.113.9",)),),
            (NameServer("x.demo.test", ("203.0.113.9",), country="DE"),),
        )
    )
    return replace(before, zones=(replace(first, name_servers=servers, primary_ns=servers[0].name), *rest))


def plain_record(before: Policy, pick: Pick) -> Policy:
    """A record that leads nowhere."""
    first, *rest = before.zones
    return replace(before, zones=(replace(first, records=(*first.records, pick(PLAIN))), *rest))


CHANGES: tuple[Callable[[Policy, Pick], Policy], ...] = (
    _record_added,
    _record_added,
    _record_gone,
    _record_changed,
    _host_gone,
    _host_came,
    _host_came,
    _host_to_record,
    _host_to_record,
    _refusal,
    _members,
    _https,
    _stated,
    _endpoints,
    _endpoints,
    _region_gone,
    _region_came,
    _region_renamed,
    _region_moved,
    _service_renamed,
    _service_gone,
    _service_came,
    _rule_gone,
    _rule_changed,
    rule_came,
    _zone_gone,
    _zone_came,
    _servers,
    plain_record,
)


def change(before: Policy, pick: Pick) -> Policy:
    """The policy with one to three things done to it."""
    after = before
    for _ in range(pick((1, 1, 1, 2, 2, 3))):
        after = pick(CHANGES)(after, pick)
    return settled(after)
