"""What `gtm check` says of names in zones, records, host names and regions' aliases."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from gtm.core.model.policy import Policy
from gtm.core.model.problems import Problem
from gtm.core.model.regions import Endpoint
from gtm.core.model.services import NameServer, RecordSet, RefusalAddress, Zone
from gtm.core.policy.compile import compile_policy
from gtm.dns.zone.findings import blocked_names, region_loops, zone_findings
from gtm.dns.zone.leads import NameEnd, leads_of
from tests import worlds
from tests.core.strategies import SHIPPED, quick

DE = worlds.region("de")
_REFUSAL = RefusalAddress(("192.0.2.250",), ("2001:db8::250",))


def zone(*records: tuple[str, str, str], hosts: tuple[str, ...] = (), **fields: object) -> Policy:
    """A policy of the zone `x.test` with some records and host names of service `chat`."""
    written = tuple(RecordSet(name, rdtype, (data,)) for name, rdtype, data in records)
    made = replace(Zone("x.test", "ns.example.net", "h.example.net", records=written), **fields)  # type: ignore[arg-type]
    chats = (worlds.service("chat", "de", hostnames=hosts, zone="x.test"),) if hosts else ()
    return worlds.policy(DE, made, *chats)


def found(policy: Policy) -> list[Problem]:
    """All findings about its zones."""
    snapshot = compile_policy(policy, SHIPPED)
    return [*zone_findings(snapshot, leads_of(snapshot))]


def codes(policy: Policy) -> list[tuple[str, str]]:
    """The place and the code of each."""
    return [(one.path.removeprefix("zones.x.test."), one.code) for one in found(policy)]


@pytest.mark.parametrize(
    ("policy", "code", "words"),
    [
        (zone(hosts=("*.m.x.test", "a.b.m.x.test")), "wildcard_blocked", "`b.m.x.test`"),
        (zone(("lab", "NS", "ns.lab")), "no_glue", "`ns.lab.x.test`"),
        (zone(("lab", "NS", "ns1")), "dangling", "`ns1.x.test`"),
        (zone(("www", "CNAME", "www.example.net")), "dangling", "a dot at the end"),
        (zone(("www", "CNAME", "nope.x.test.")), "dangling", "`nope.x.test` does not exist"),
        (zone(("a", "CNAME", "b"), ("b", "CNAME", "a")), "alias_loop", "a loop"),
        (zone(("*.a", "CNAME", "x.a")), "alias_loop", "a loop"),
    ],
)
def test_zones_that_are_probably_not_meant(policy: Policy, code: str, words: str) -> None:
    """Wildcards blocked by empty names, delegations that nobody can follow, aliases that lead nowhere."""
    messages = [item.message for item in found(policy) if item.code == code]
    assert messages
    assert words in messages[0]


def test_zones_that_are_fine() -> None:
    """What exists, lies elsewhere, is covered by a wildcard or a delegation, or says that there is nothing, is no finding."""
    policy = zone(
        ("www", "CNAME", "chat"),
        ("away", "CNAME", "www.example.net."),
        ("any", "CNAME", "y.m"),
        ("lab", "NS", "ns.lab"),
        ("ns.lab", "A", "192.0.2.5"),
        ("far", "NS", "ns.example.net."),
        ("in-lab", "CNAME", "x.lab"),
        ("nobody", "MX", "0 ."),
        ("mail", "AAAA", "2001:db8::25"),
        ("@", "MX", "10 mail"),
        ("@", "MX", "20 MAIL.x.test."),
        ("_sip._tcp", "SRV", "0 0 0 ."),
        ("_sips._tcp", "SRV", "1 1 5061 chat"),
        ("own.m", "HTTPS", "1 . alpn=h2"),
        ("texts", "TXT", '"v=spf1 -all" " "'),
        ("texts", "TXT", "unquoted"),
        ("v", "CNAME", "texts"),
        hosts=("chat.x.test", "*.m.x.test", "own.m.x.test"),
    )
    assert found(policy) == []


def test_wildcards_beside_names_that_are_others() -> None:
    """An alias, a delegation and a zone of its own are meant to have nothing of the wildcard; a relative name may have a zone's name in it."""
    records = (
        ("*", "MX", "10 m.example.net."),
        ("*", "A", "192.0.2.1"),
        ("c", "CNAME", "c.example.net."),
        ("lab", "NS", "ns.lab"),
        ("ns.lab", "A", "192.0.2.5"),
        ("b.x.test", "CNAME", "b.example.net."),
        ("b", "CNAME", "b.x.test"),
    )
    child = Zone("eu.x.test", "ns.example.net", "h.example.net")
    policy = zone(*records)
    policy = replace(policy, zones=(*policy.zones, child))
    assert [one.message.split(", nor")[0] for one in found(policy) if one.code == "wildcard_blocked"] == [
        "`*.x.test` gives no MX and no addresses to `test.x.test`, `x.test.x.test`"
    ]


def test_routes() -> None:
    """Longer than one answer follows, whether they end or not."""
    long = [(f"n{number}", "CNAME", f"n{number + 1}") for number in range(20)]
    leads = leads_of(compile_policy(zone(*long, ("n20", "A", "192.0.2.1")), SHIPPED))
    assert (leads.route("n0.x.test").end, len(leads.route("n0.x.test").aliases)) == (NameEnd.ADDRESS, 20)
    assert (
        leads_of(compile_policy(zone(*long, ("n20", "CNAME", "n0")), SHIPPED)).route("n0.x.test").end
        is NameEnd.LOOP
    )


_HOLLOW = (("e", "TXT", "x"),)
_ALIASED = (("c", "CNAME", "a"), ("a", "A", "192.0.2.1"))


@pytest.mark.parametrize(
    ("record", "others", "code", "words"),
    [
        (("@", "MX", "10 mail.x.test"), (), "dangling", "`mail.x.test.x.test` does not exist"),
        (("_s._tcp", "SRV", "1 1 1 mail.x.test"), (), "dangling", "`mail.x.test.`"),
        (("h", "HTTPS", '1 mail.x.test alpn="h2"'), (), "dangling", "`mail.x.test.`"),
        (("h", "SVCB", "0 mail.example.net"), (), "dangling", "`mail.example.net.`"),
        (("lab", "NS", "ns.example.net"), (), "dangling", "`ns.example.net.`"),
        (("p", "PTR", "host.example.net"), (), "dangling", "`host.example.net.`"),
        (("n", "NAPTR", '1 1 "s" "x" "" _sip._tcp.example.net'), (), "dangling", "`_sip._tcp.example.net.`"),
        (("@", "MX", "10 mx"), (), "dangling", "write its records"),
        (("@", "MX", "10 c"), (("c", "CNAME", "gone"),), "dangling", "`gone.x.test` does not exist"),
        (("@", "MX", "10 mx.x.test"), (("*", "A", "192.0.2.1"),), "relative", "a wildcard answers"),
        (("@", "MX", "10 mx.example.net"), (("*", "A", "192.0.2.1"),), "relative", "`mx.example.net.`"),
        (("@", "MX", "10 mx.x.test"), (("*.x.test", "A", "192.0.2.1"),), "relative", "`mx.x.test.`"),
        (("@", "MX", "10 mail."), (), "single_label", "`mail.`"),
        (("@", "MX", "10 e"), _HOLLOW, "no_address", "`e.x.test` has no address"),
        (("@", "MX", "10 @"), (), "no_address", "`x.test` has no address"),
        (("_s._tcp", "SRV", "1 1 1 e"), _HOLLOW, "no_address", "`e.x.test`"),
        (("h", "HTTPS", "1 e"), _HOLLOW, "no_address", "`e.x.test`"),
        (("lab", "NS", "e"), _HOLLOW, "no_address", "`e.x.test`"),
        (("@", "MX", "10 c"), _ALIASED, "alias_target", "name `a.x.test` itself"),
        (("lab", "NS", "c"), _ALIASED, "alias_target", "RFC 2181"),
        (("_s._tcp", "SRV", "1 1 1 c"), _ALIASED, "alias_target", "RFC 2782"),
        (("www.x.test", "A", "192.0.2.1"), (), "relative", "`www.x.test.x.test`"),
        (("X.TEST", "A", "192.0.2.1"), (), "relative", "write `@`"),
        (("@", "MX", "10 217.18.74.109."), (), "no_name", "`217.18.74.109` is an address"),
        (("@", "MX", "10 217.18.74.109"), (), "no_name", "`217.18.74.109` is an address"),
        (("w", "CNAME", "192.0.2.1."), (), "no_name", "is an address"),
        (("s", "CNAME", "elb21.freshdesk.com/."), (), "no_name", "has `/`"),
        (("s", "CNAME", "https://elb21.freshdesk.com."), (), "no_name", "has `:/`"),
        (("@", "MX", "10 a.example.net,b.example.net."), (), "no_name", "has `,`"),
    ],
)
def test_names_in_records(
    record: tuple[str, str, str], others: tuple[tuple[str, str, str], ...], code: str, words: str
) -> None:
    """Each type that names something: a dot that is missing, a name without address, an alias where none may be.

    Two reports of these: octodns/octodns#1146 (`control-plane-1….exxampled.com.exxampled.com.` of an SRV record without the dot)
    and PowerDNS/pdns#10085 (nothing said of an MX record that leads to a CNAME). Of data that are no name:
    internetstandards/Internet.nl#823 (an address in MX) and DNSControl/dnscontrol#37 (`elb21.freshdesk.com/.`, pasted); of a record's
    own name: DNSControl/dnscontrol#1476 (`rd-bounce.stackoverflow.com.stackoverflow.com`).
    """
    (one,) = [one for one in found(zone(record, *others)) if one.path == "zones.x.test.records[0]"]
    assert one.code == code
    assert words in one.message


def test_names_that_look_strange_and_are_meant() -> None:
    """Aliases to challenges, which come and go by themselves (cert-manager/cert-manager#1778), and names of classless delegations (RFC 2317)."""
    policy = zone(
        ("_acme-challenge.www", "CNAME", "_acme-challenge.certs"),
        ("5", "CNAME", "5.0/25.2.0.192.in-addr.arpa."),
        ("a/b", "A", "192.0.2.1"),
        ("c", "CNAME", "a/b"),
        ("1.2.3.4", "A", "192.0.2.1"),
        ("d", "CNAME", "1.2.3.4"),
        ("p", "PTR", "An\\032instance._http._tcp.example.net."),
        ("example.org", "TXT", "x"),
        ("x.test.", "TXT", "y"),
    )
    assert found(policy) == []


def test_mail_to_a_service_that_may_answer_by_an_alias() -> None:
    """The alias is a region's, and stands in no record."""
    policy = zone(("@", "MX", "10 chat"), hosts=("chat.x.test",))
    assert codes(policy) == []
    policy = worlds.changed(policy, "services", "chat", refusal=_REFUSAL)
    alias = (Endpoint("https://a.example", cname="lb.example.net"),)
    assert codes(worlds.changed(policy, "regions", "de", endpoints=alias)) == [("records[0]", "alias_target")]


@pytest.mark.parametrize(
    ("fields", "path", "code", "words"),
    [
        ({"primary_ns": "ns1"}, "primary_ns", "single_label", "write the whole name"),
        ({"primary_ns": "e"}, "primary_ns", "single_label", "`e.x.test`"),
        ({"primary_ns": "e.sub"}, "primary_ns", "relative", "`e.sub.x.test`"),
        ({"hostmaster": "admin"}, "hostmaster", "single_label", "`admin.`"),
        ({"primary_ns": "192.0.2.53"}, "primary_ns", "no_name", "is an address"),
        ({"name_servers": (NameServer("ns1"),)}, "name_servers[0].name", "single_label", "`ns1.`"),
        (
            {"primary_ns": "ns9.x.test", "name_servers": (NameServer("ns.example.net"),)},
            "primary_ns",
            "dangling",
            "`ns9.x.test` does not exist",
        ),
    ],
)
def test_names_in_fields(fields: dict[str, object], path: str, code: str, words: str) -> None:
    """They are absolute, so that a name written as in a zone file is one in the root."""
    (one,) = found(zone(("e", "TXT", "x"), ("e.sub", "TXT", "x"), **fields))  # type: ignore[arg-type]
    assert (one.path, one.code) == (f"zones.x.test.{path}", code)
    assert words in one.message


@pytest.mark.parametrize(
    ("cname", "codes_"),
    [
        ("lb.example.net", []),
        ("a.x.test", []),
        ("y.w.x.test", []),
        ("in.lab.x.test", []),
        ("lb-eu", ["single_label"]),
        ("192.0.2.7", ["no_name"]),
        ("a", ["single_label"]),
        ("b.sub", ["relative"]),
        ("gone.x.test", ["dangling"]),
        ("to-gone.x.test", ["dangling"]),
        ("e.x.test", ["no_address"]),
        ("l.x.test", ["alias_loop"]),
    ],
)
def test_aliases_of_regions(cname: str, codes_: list[str]) -> None:
    """A region's `cname`, which is absolute, is looked up in turn."""
    policy = zone(
        ("a", "AAAA", "2001:db8::1"),
        ("b.sub", "A", "192.0.2.1"),
        ("*.w", "A", "192.0.2.1"),
        ("lab", "NS", "ns.example.net."),
        ("to-gone", "CNAME", "gone.example.net."),
        ("e", "TXT", "x"),
        ("l", "CNAME", "l"),
    )
    gone = replace(policy.zones[0].records[4], data=("gone",))
    records = (*policy.zones[0].records[:4], gone, *policy.zones[0].records[5:])
    policy = replace(policy, zones=(replace(policy.zones[0], records=records),))
    policy = worlds.changed(policy, "regions", "de", endpoints=(Endpoint("https://a.example", cname=cname),))
    assert [one.code for one in found(policy) if one.path == "regions.de.endpoints[0].cname"] == codes_


# Wildcards: what they would answer, by RFC 4592 alone.

_LABELS = st.sampled_from(["a", "b", "*", "_c"])
_NAMES = st.lists(_LABELS, min_size=1, max_size=3).map(tuple)
_WORLDS = st.dictionaries(
    _NAMES, st.sampled_from(["A", "TXT", "MX", "CNAME", "service", "A MX"]), max_size=6
).map(
    # No host name has an underscore, or a wildcard but at its beginning.
    lambda world: {
        owner: "A" if types == "service" and {"*", "_c"} & {*owner[1:], owner[0].strip("*")} else types
        for owner, types in world.items()
    }
)
Labels = tuple[str, ...]


def synthesised(written: dict[Labels, str], name: Labels) -> Labels | None:
    """The wildcard that answers for a name (labels below the apex, the last next to it): right below the closest encloser (RFC 4592 §3.3.1)."""
    exist = {owner[at:] for owner in written for at in range(len(owner))} | {()}
    if name in exist:
        return None
    encloser = next(name[at:] for at in range(len(name) + 1) if name[at:] in exist)
    source = ("*", *encloser)
    return source if source in exist else None


def gives(types: str) -> set[str]:
    """What questions a set of records answers, addresses as one."""
    return {"addresses" if one in ("A", "CNAME", "service") else one for one in types.split()}


@given(_WORLDS)
@quick(200)
def test_wildcards_give_what_the_model_says(written: dict[Labels, str]) -> None:
    """A name loses what a wildcard would answer for it if nothing stood there or below, and it does not give itself."""
    expected = set()
    for name in {owner[at:] for owner in written for at in range(len(owner))}:
        without = {owner: types for owner, types in written.items() if owner[-len(name) :] != name}
        source = synthesised(without, name)
        if source is None or source not in without:
            continue
        below = name[: len(name) - len(source) + 1]
        if any(label[0] in "*_" for label in below) or written.get(name) == "CNAME":
            continue
        lost = gives(without[source]) - gives(written.get(name, ""))
        if lost:
            expected.add((name, source, tuple(sorted(lost))))
    event(f"{len(expected)} lost")
    data = {"A": "192.0.2.1", "TXT": "x", "MX": "10 m.example.net.", "CNAME": "c.example.net."}
    records = [
        (".".join(owner), kind, data[kind])
        for owner, types in written.items()
        if types != "service"
        for kind in types.split()
    ]
    hosts = tuple(".".join((*owner, "x.test")) for owner, types in written.items() if types == "service")
    snapshot = compile_policy(zone(*records, hosts=hosts), SHIPPED)
    told = list(blocked_names(snapshot))
    assert {tuple(map(_below, one[:2])) + one[2:] for one in told} == expected
    for name, _, lost in told:
        assert "addresses" not in lost or leads_of(snapshot).route(name).end is NameEnd.EMPTY


def _below(name: str) -> Labels:
    return tuple(name.split(".")[:-2])


@pytest.mark.parametrize(
    ("policy", "path", "words"),
    [
        (
            zone(("shop.m", "TXT", "x"), hosts=("*.m.x.test",)),
            "services.chat.hostnames",
            "`*.m.x.test` gives no addresses to `shop.m.x.test`",
        ),
        (
            zone(("*", "MX", "1 m.example.net."), ("host", "A", "192.0.2.1")),
            "zones.x.test.records[0]",
            "`*.x.test` gives no MX to `host.x.test`",
        ),
        (
            zone(("*.m", "A", "192.0.2.1"), ("_acme-challenge.shop.m", "TXT", "x")),
            "zones.x.test.records[0]",
            "`*.m.x.test` gives no addresses to `shop.m.x.test`",
        ),
        (
            zone(("*.m", "CNAME", "c.example.net."), hosts=("a.b.m.x.test",)),
            "zones.x.test.records[0]",
            "`*.m.x.test` gives no addresses to `b.m.x.test`",
        ),
    ],
)
def test_what_blocks_a_wildcard(policy: Policy, path: str, words: str) -> None:
    """A record of another type, of a service's wildcard and of records'; a name that is there only because others lie below it.

    PowerDNS/pdns#514 (MX of a wildcard beside a name's own address) and Shopify/record_store#174 (an empty name under a wildcard alias).
    """
    (one,) = [one for one in found(policy) if one.code == "wildcard_blocked"]
    assert one.path == path
    assert words in one.message


# Regions whose alias is a host name of the policy's.


def aliased(**led: tuple[str, ...]) -> Policy:
    """Services, each of one region of its name, which are answered by aliases for others' names, or by an address (`""`)."""
    regions = [
        replace(
            DE,
            name=name,
            endpoints=tuple(
                Endpoint(f"https://{at}.example", cname=f"{one}.x.test")
                if one
                else Endpoint(f"https://{at}.example", ipv4=("192.0.2.1",))
                for at, one in enumerate(targets)
            ),
        )
        for name, targets in led.items()
    ]
    services = [
        replace(worlds.service(name, name, hostnames=(f"{name}.x.test",), zone="x.test"), refusal=_REFUSAL)
        for name in led
    ]
    return worlds.policy(*regions, *services, Zone("x.test", "ns.example.net", "h.example.net"))


def loops(policy: Policy) -> set[str]:
    """The regions of the loops that are told."""
    snapshot = compile_policy(policy, SHIPPED)
    return {one.path.split(".")[1] for one in region_loops(snapshot, leads_of(snapshot))}


def test_aliases_that_lead_back() -> None:
    """To the service itself, or over others; what only leads into such a loop is not in it, nor is what has addresses."""
    assert loops(aliased(a=("a",))) == {"a"}
    assert loops(aliased(a=("b",), b=("c",), c=("a",), d=("a",))) == {"a", "b", "c"}
    assert loops(aliased(a=("a",), d=("a",), e=("d",))) == {"a"}
    assert loops(aliased(a=("b",), b=("",))) == set()
    apex = worlds.changed(aliased(a=("", "a")), "services", "a", hostnames=("x.test",))
    ends = apex.regions[0].endpoints
    apex = worlds.changed(apex, "regions", "a", endpoints=(ends[0], replace(ends[1], cname="x.test")))
    assert loops(apex) == set(), "no alias is answered there"
    assert loops(aliased(a=("", "a"))) == {"a"}, "while the endpoint with an address is down"
    both = aliased(a=("a",))
    (alias,) = both.regions[0].endpoints
    assert (
        loops(worlds.changed(both, "regions", "a", endpoints=(replace(alias, ipv4=("192.0.2.1",)),))) == set()
    )


_GRAPHS = st.dictionaries(
    st.sampled_from("abcd"),
    st.lists(st.sampled_from(["a", "b", "c", "d", ""]), min_size=1, max_size=3, unique=True),
).map(
    lambda graph: {
        node: tuple(one for one in ones if not one or one in graph) or ("",) for node, ones in graph.items()
    }
)


@given(_GRAPHS)
@quick(100)
def test_loops_are_those_of_the_model(graph: dict[str, tuple[str, ...]]) -> None:
    """Aliases on a way from a service to itself are told, and others only between two such."""

    def reached(node: str) -> set[str]:
        seen: set[str] = set()
        ahead = deque(graph[node])
        while ahead:
            if (one := ahead.popleft()) and one not in seen:
                seen.add(one)
                ahead.extend(graph[one])
        return seen

    told = loops(aliased(**graph))
    circles = {node for node in graph if node in reached(node)}
    assert circles <= told
    assert all(reached(node) & circles and any(node in reached(one) for one in circles) for node in told)
    assert bool(told) == bool(circles)
