"""What answers say: zones, services, refusals."""

from __future__ import annotations

import gc
from dataclasses import replace

import dns.flags
import dns.rcode
import dns.rdatatype
import pytest

from gtm.core.decision.router import Router
from gtm.core.model.policy import Places, Policy, Tenant
from gtm.core.model.services import RecordSet, RefusalAddress, Zone
from gtm.core.signing.keys import NO_KEYS
from gtm.dns.answer.answerer import Answerer
from gtm.dns.zone.dnssec import ZoneSigner
from gtm.telemetry import Counts, metric_key
from tests import worlds
from tests.dns.world import (
    POLICY,
    SERVICES,
    ZONES,
    addresses,
    answerer,
    both,
    errors_of,
    locate,
    query,
    router,
    service,
    subnet_of,
)

DE, US, JP, NOWHERE = "10.1.2.0/24", "10.2.3.0/24", "10.8.3.0/24", "203.0.113.0/24"


@pytest.mark.rfc("2181", "5", "each address of a set is there once")
@pytest.mark.rfc("3596", "2.1", "IPv6 addresses are AAAA records")
@pytest.mark.parametrize(
    ("name", "rdtype", "subnet", "expected"),
    [
        ("chat.demo.test", "A", DE, ["192.0.2.1", "192.0.2.2"]),
        ("chat.demo.test", "AAAA", DE, ["2001:db8::1"]),
        ("chat.demo.test", "A", US, ["192.0.2.4"]),
        ("chat.demo.test", "A", "2001:db8:1::/56", ["192.0.2.1", "192.0.2.2"]),
        ("chat.demo.test", "A", NOWHERE, ["192.0.2.1", "192.0.2.2"]),
        ("web.demo.test", "A", NOWHERE, ["192.0.2.1", "192.0.2.2"]),
        ("apex.test", "A", US, ["192.0.2.4"]),
        ("a.b.deep.demo.test", "A", JP, ["192.0.2.4"]),
    ],
)
def test_a_service_answers_with_its_region_s_addresses(
    name: str, rdtype: str, subnet: str, expected: list[str]
) -> None:
    """The addresses are those of the usable endpoints of the region decided on, each once (RFC 2181 §5)."""
    reply = both(answerer(), query(name, rdtype, subnet=subnet))
    assert addresses(reply) == expected
    assert reply.rcode() == dns.rcode.NOERROR
    assert reply.flags == dns.flags.QR | dns.flags.AA | dns.flags.RD


def test_only_usable_endpoints_are_given_out() -> None:
    """An endpoint that is down leaves the answer while its region stays in it."""
    assert addresses(both(answerer("http://eu-2"), query("chat.demo.test", subnet=DE))) == ["192.0.2.1"]
    assert addresses(both(answerer("http://eu-1"), query("chat.demo.test", subnet=DE))) == [
        "192.0.2.2",
        "192.0.2.1",
    ]


def test_answers_carry_the_service_s_ttl() -> None:
    """TTLs are the service's own."""
    reply = both(answerer(), query("web.demo.test", subnet=US))
    assert reply.answer[0].ttl == 300


def test_health_ignored_has_a_short_ttl() -> None:
    """A service that ignores health gives all endpoints of a region, but not for long."""
    reply = both(answerer("eu", "us"), query("stubborn.demo.test", subnet=DE))
    assert addresses(reply) == ["192.0.2.1", "192.0.2.2"]
    assert reply.answer[0].ttl == 30


@pytest.mark.rfc("1034", "3.6.2", "an alias answers every type")
@pytest.mark.rfc("7871", "7.2.1", "of an alias only the CNAME is given, with its own scope")
@pytest.mark.rfc("2181", "10.1", "a name has one CNAME at most")
@pytest.mark.parametrize("rdtype", ["A", "AAAA", "CNAME", "TXT", "MX", "HTTPS", "ANY", "NS"])
def test_an_alias_is_the_whole_answer(rdtype: str) -> None:
    """A region with only an alias answers with it for every type (RFC 1034 §3.6.2), ANY included (RFC 8482 §4.2)."""
    reply = both(answerer(), query("alias.demo.test", rdtype, subnet=DE))
    assert addresses(reply) == ["lb.example.net."]
    assert [rrset.rdtype.name for rrset in reply.answer] == ["CNAME"]
    assert not reply.authority
    assert subnet_of(reply) == ("10.1.2.0", 24, 16)


@pytest.mark.rfc("1034", "4.2.1", "a zone has the addresses of its name servers inside it")
def test_name_servers_inside_a_zone_have_their_addresses() -> None:
    """What an NS record names inside the zone, the zone can say where it is (RFC 1034 §4.2.1), to everyone alike."""
    for rdtype, address in (("A", "192.0.2.53"), ("AAAA", "2001:db8::53")):
        reply = both(answerer(), query("NS1.demo.test", rdtype, subnet=DE))
        assert addresses(reply) == [address]
        assert subnet_of(reply) == ("10.1.2.0", 24, 0)
    assert both(answerer(), query("ns1.demo.test", "ANY")).answer[0].rdtype.name == "HINFO"


@pytest.mark.rfc("1034", "3.6.2", "no alias stands beside other records")
def test_no_alias_at_an_apex() -> None:
    """An alias cannot stand beside SOA and NS (RFC 1034 §3.6.2): addresses are SERVFAIL, never an empty answer."""
    for rdtype in ("A", "AAAA"):
        reply = both(answerer(), query("alias.test", rdtype, edns=True))
        assert reply.rcode() == dns.rcode.SERVFAIL
        assert errors_of(reply) == [0]
    assert addresses(both(answerer(), query("alias.test", "NS"))) == ["ns.example.net."]
    assert addresses(both(answerer(), query("alias.test", "CNAME"))) == []


def test_a_region_without_addresses_is_a_failure() -> None:
    """A region that DNS cannot name is SERVFAIL, which is not kept for long, and not NODATA, which would be."""
    reply = both(answerer(), query("url-only.demo.test", edns=True))
    assert reply.rcode() == dns.rcode.SERVFAIL
    assert not reply.flags & dns.flags.AA


def test_txt_explains() -> None:
    """TXT at a service's name tells the decision in words."""
    said = addresses(both(answerer(), query("chat.demo.test", "TXT", subnet=DE)))[0]
    for part in (
        '"region=eu"',
        '"outcome=served"',
        '"country=DE"',
        '"revision=7"',
        '"epoch=3"',
        '"rule=gdpr',
    ):
        assert part in said
    refused = addresses(both(answerer("eu", "ie"), query("chat.demo.test", "TXT", subnet=DE)))[0]
    assert '"outcome=refused_residency"' in refused


def test_txt_says_what_one_tenants_rule_does_to_everybody() -> None:
    """DNS states no tenant: where that takes regions from all who ask, TXT says which rule it is, and what is left."""
    rule = worlds.rule("bank", "eu ie", services="chat", tenants="bank")
    policy = replace(POLICY, residency_rules=(rule,), tenants=(Tenant("bank"),))
    said = addresses(both(answerer(policy=policy), query("chat.demo.test", "TXT", subnet=US)))[0]
    assert '"dns_pinned=bank: tenant not stated, so it leaves every such client ie, eu"' in said
    wide = replace(rule, allow=Places(jurisdictions=("EEA", "US")))
    server = answerer(policy=replace(policy, residency_rules=(wide,)))
    said = addresses(both(server, query("chat.demo.test", "TXT", subnet=US)))[0]
    assert "dns_pinned" not in said


@pytest.mark.rfc("2308", "2.2", "NODATA carries the zone's SOA")
@pytest.mark.rfc("7871", "7.4", "negative answers have scope 0")
@pytest.mark.rfc("8020", "2", "empty non-terminals exist: NODATA, not NXDOMAIN")
@pytest.mark.rfc("4074", "3", "a name without AAAA is NODATA for AAAA, never an error")
@pytest.mark.parametrize(
    ("name", "rdtype"),
    [
        ("v4.demo.test", "AAAA"),
        ("chat.demo.test", "MX"),
        ("chat.demo.test", "HTTPS"),
        ("chat.demo.test", "TYPE65280"),
        ("chat.demo.test", "SOA"),
        ("chat.demo.test", "NS"),
        ("chat.demo.test", "DS"),
        ("chat.demo.test", "CNAME"),
        ("demo.test", "A"),
        ("demo.test", "DS"),
        ("deep.demo.test", "A"),
        ("b.deep.demo.test", "TXT"),
        ("b.deep.demo.test", "ANY"),
        ("ns1.demo.test", "MX"),
    ],
)
def test_nodata(name: str, rdtype: str) -> None:
    """A name without the type is NODATA with the SOA, for everyone.

    RFC 2308 §2.2; RFC 8020 §2 on empty non-terminals; RFC 7871 §7.4 on scope; RFC 4074 §4.1 on AAAA.
    """
    reply = both(answerer(), query(name, rdtype, subnet=US))
    assert reply.rcode() == dns.rcode.NOERROR
    assert not reply.answer
    assert [rrset.name.to_text() for rrset in reply.authority] == ["demo.test."]
    # A service's names deny nothing for longer than they answer; its TTL is 30 s.
    service = {"v4.demo.test", "chat.demo.test"}
    assert reply.authority[0].ttl == (30 if name in service else 60)
    assert reply.flags & dns.flags.AA
    assert subnet_of(reply) == ("10.2.3.0", 24, 0)


@pytest.mark.rfc("2308", "2.1", "NXDOMAIN carries the zone's SOA")
@pytest.mark.rfc("7871", "7.4", "negative answers have scope 0")
@pytest.mark.parametrize(
    "name", ["nope.demo.test", "x.chat.demo.test", "x.b.deep.demo.test", "ns2.demo.test"]
)
def test_nxdomain(name: str) -> None:
    """A name inside a zone that does not exist is NXDOMAIN with the SOA (RFC 2308 §2.1), scope 0 (RFC 7871 §7.4)."""
    reply = both(answerer(), query(name, subnet=US))
    assert reply.rcode() == dns.rcode.NXDOMAIN
    assert [rrset.name.to_text() for rrset in reply.authority] == ["demo.test."]
    assert reply.flags & dns.flags.AA
    assert subnet_of(reply) == ("10.2.3.0", 24, 0)


@pytest.mark.rfc("2308", "5", "the SOA of a negative answer lives for the lesser of its TTL and its minimum")
def test_the_soa_of_a_negative_answer_lives_no_longer_than_its_minimum() -> None:
    """The TTL is the lesser of the SOA's own and its minimum (RFC 2308 §5), either way round."""
    assert both(answerer(), query("x.demo.test")).authority[0].ttl == 60
    assert both(answerer(), query("x.sub.demo.test")).authority[0].ttl == 600


@pytest.mark.rfc("1034", "4.2.1", "the apex has SOA and NS")
@pytest.mark.rfc("1912", "2.2", "the serial follows the policy's revision")
def test_soa_and_ns() -> None:
    """A zone's apex has its SOA, with the policy's revision as serial, and its name servers (RFC 1034 §4.2.1)."""
    reply = both(answerer(), query("demo.test", "SOA", subnet=DE))
    assert addresses(reply) == [
        "ns1.demo.test. hostmaster.demo.test. 7 7200 900 1209600 60",
    ]
    assert subnet_of(reply) == ("10.1.2.0", 24, 0)
    reply = both(answerer(), query("demo.test", "NS"))
    assert sorted(addresses(reply)) == ["ns1.demo.test.", "ns2.example.net."]
    assert reply.answer[0].ttl == 3600
    assert addresses(both(answerer(), query("sub.demo.test", "NS"))) == ["ns.example.net."]


@pytest.mark.rfc("1034", "4.3.2", "the closest enclosing zone answers")
@pytest.mark.rfc("4035", "3.1.4.1", "a DS is asked for above the zone cut")
def test_the_closest_zone_answers() -> None:
    """Of nested zones the closest is authoritative (RFC 1034 §4.3.2), but a DS belongs above the cut (RFC 4035 §3.1.4.1)."""
    soa = both(answerer(), query("x.sub.demo.test")).authority[0]
    assert soa.name.to_text() == "sub.demo.test."
    ds = both(answerer(), query("sub.demo.test", "DS"))
    assert ds.rcode() == dns.rcode.NOERROR
    assert ds.authority[0].name.to_text() == "demo.test."
    assert both(answerer(), query("sub.demo.test", "MX")).authority[0].name.to_text() == "sub.demo.test."


@pytest.mark.rfc("8914", "4.21", "names outside the zones are REFUSED with extended error 20")
@pytest.mark.rfc("8906", "3.1.1", "what a server is not authoritative for is REFUSED, never silence")
@pytest.mark.parametrize("name", ["example.com", ".", "test", "notdemo.test", "demo.test.example"])
def test_names_outside_the_zones_are_refused(name: str) -> None:
    """What is in no zone is REFUSED, not authoritative, with extended error 20 (RFC 8914 §4.21)."""
    reply = both(answerer(), query(name, subnet=DE))
    assert reply.rcode() == dns.rcode.REFUSED
    assert not reply.flags & dns.flags.AA
    assert errors_of(reply) == [20]
    assert subnet_of(reply) == ("10.1.2.0", 24, 0)
    assert not errors_of(both(answerer(), query(name)))


@pytest.mark.rfc("8482", "4.2", "ANY gets one synthesized HINFO")
@pytest.mark.parametrize("name", ["chat.demo.test", "demo.test", "apex.test"])
def test_any_is_minimal(name: str) -> None:
    """ANY gets one synthesized HINFO (RFC 8482 §4.2)."""
    reply = both(answerer(), query(name, "ANY"))
    assert addresses(reply) == ['"RFC8482" ""']
    assert both(answerer(), query("nope.demo.test", "ANY")).rcode() == dns.rcode.NXDOMAIN


@pytest.mark.rfc("8914", "4.19", "a residency refusal is extended error 18 (prohibited)")
def test_residency_refusal() -> None:
    """A client that may be served nowhere gets the refusal address with extended error 18, briefly (RFC 8914 §4.19)."""
    server = answerer("eu", "ie")
    for rdtype, expected in (("A", "192.0.2.250"), ("AAAA", "2001:db8::250")):
        reply = both(server, query("chat.demo.test", rdtype, subnet=DE))
        assert reply.rcode() == dns.rcode.NOERROR
        assert addresses(reply) == [expected]
        assert reply.answer[0].ttl == 30
        assert errors_of(reply) == [18]
        assert subnet_of(reply) == ("10.1.2.0", 24, 16)
    assert addresses(both(server, query("chat.demo.test", subnet=US))) == ["192.0.2.4"]


@pytest.mark.rfc("6891", "7", "a client without EDNS gets the same answer without options")
def test_residency_refusal_without_edns() -> None:
    """Without EDNS there is no place for the reason, and the address is the same (RFC 6891 §7)."""
    reply = both(answerer("eu", "ie"), query("chat.demo.test"), client="10.1.0.53")
    assert addresses(reply) == ["192.0.2.250"]
    assert reply.edns == -1


@pytest.mark.rfc("8914", "4.1", "a refusal for want of a usable region is extended error 0, with words")
def test_unavailable_refusal() -> None:
    """With nothing usable anywhere the refusal address comes with extended error 0 and words (RFC 8914 §4.1)."""
    reply = both(answerer("eu", "us", "jp"), query("web.demo.test", subnet=US))
    assert addresses(reply) == ["192.0.2.250"]
    assert errors_of(reply) == [0]
    assert reply.answer[0].ttl == 30


def test_a_family_that_nobody_is_answered_in_is_nodata() -> None:
    """A refusal does not change what holds for everyone: a service over IPv4 alone has no AAAA."""
    nodata = both(answerer("us"), query("v4.demo.test", "AAAA", subnet=DE))
    assert nodata.rcode() == dns.rcode.NOERROR
    assert nodata.authority
    assert addresses(both(answerer("us"), query("v4.demo.test", subnet=DE))) == ["192.0.2.250"]


@pytest.mark.parametrize(
    ("name", "refusal", "rdtype"),
    [
        ("alias-first", RefusalAddress(("192.0.2.250",)), "AAAA"),
        ("chat", RefusalAddress(ipv6=("2001:db8::250",)), "A"),
        ("url-only", RefusalAddress(), "A"),
    ],
)
def test_a_refusal_is_never_an_empty_answer_that_others_would_see(
    name: str, refusal: RefusalAddress, rdtype: str
) -> None:
    """Without a refusal address in a family that others are answered in, the answer is SERVFAIL, whatever compiled."""
    down = router(*(region.name for region in POLICY.regions))
    snapshot = down.view.snapshot
    compiled = snapshot.services[name]
    changed = replace(compiled, service=replace(compiled.service, refusal=refusal))
    altered = replace(snapshot, services={**snapshot.services, name: changed})
    view = replace(down.view, basis=replace(down.view.basis, snapshot=altered))
    reply = both(Answerer(Router(view), locate, Counts()), query(f"{name}.demo.test", rdtype, subnet=DE))
    assert reply.rcode() == dns.rcode.SERVFAIL
    assert len(errors_of(reply)) == 1


def test_affinity_keeps_a_network_on_its_region() -> None:
    """With affinity every draw gives a client network the same region, and networks differ."""
    server = answerer()
    for packet in (query("sticky.demo.test", subnet=DE), query("sticky.demo.test", subnet="10.4.7.0/26")):
        answers = {frozenset(addresses(both(server, packet, draw=draw))) for draw in (0.0, 0.3, 0.6, 0.99)}
        assert len(answers) == 1


def test_the_draw_splits_clients() -> None:
    """Without affinity the draw picks among weighted regions."""
    server = answerer()
    packet = query("drawn.demo.test", subnet=DE)
    assert set(addresses(both(server, packet, draw=0.1))) == {"192.0.2.1", "192.0.2.2"}
    assert addresses(both(server, packet, draw=0.9)) == ["192.0.2.4"]


def test_every_answer_and_drop_is_counted() -> None:
    """Counters name type, rcode, transport and decision, the same both ways."""
    for packet in (
        query("chat.demo.test", subnet=DE),
        query("chat.demo.test", "AAAA", subnet=US),
        query("chat.demo.test", "AAAA"),
        query("alias.test"),
        query("web.demo.test", subnet=JP),
    ):
        for down in ((), ("eu", "ie")):
            fast, full = Counts(), Counts()
            answerer(*down, counts=fast).answer(packet, "10.3.0.1", tcp=True, draw=0.5)
            answerer(*down, counts=full).answer_fully(packet, "10.3.0.1", tcp=True, draw=0.5)
            counted = fast.take()
            counted.pop("gtm_dns_full_way_total\ttcp", None)
            assert counted == full.take()
            assert sum(counted.values()) == 2
    counts = Counts()
    server = answerer(counts=counts)
    server.answer(b"short", "10.3.0.1", tcp=False, draw=0.5)
    server.answer(query("example.com", "TYPE999"), "10.3.0.1", tcp=False, draw=0.5)
    assert counts == {
        "gtm_dns_full_way_total\tudp": 1,
        "gtm_dns_dropped_total\tshort": 1,
        "gtm_dns_queries_total\t\tother\tREFUSED\tudp": 1,
    }


def test_a_successor_keeps_clients_and_follows_the_policy() -> None:
    """An Answerer that takes over remembers clients, and answers from its own Router."""
    located: list[str | bytes] = []

    def counting(address: str | bytes) -> object:
        located.append(address)
        return locate(address)

    packet = query("chat.demo.test", subnet=DE)
    first = Answerer(router(), counting, Counts())  # type: ignore[arg-type]
    first.answer(packet, "10.3.0.1", tcp=False, draw=0.5)
    second = Answerer(router("eu"), counting, Counts(), first)  # type: ignore[arg-type]
    assert addresses(both(second, packet)) == ["192.0.2.3"]
    assert located == [b"\x0a\x01\x02\x00"]  # both ways, once
    more = replace(
        POLICY,
        zones=(*ZONES, Zone("new.test", "ns.new.test", "h@new.test")),
        services=(*SERVICES, service("new", "us", hostnames=("new.test",), zone="new.test")),
    )
    third = Answerer(router(policy=more), counting, Counts(), second)  # type: ignore[arg-type]
    assert addresses(both(third, query("new.test", subnet=DE))) == ["192.0.2.4"]
    assert third.answer(query("new.test"), "10.3.0.1", tcp=False, draw=0.5) is not None


def test_only_addresses_are_demand() -> None:
    """Every decision is a metric; the planner hears of those that bring a client to a region."""
    counts = Counts()
    server = Answerer(router(), locate, counts)
    for rdtype in ("A", "AAAA", "TXT", "MX", "HTTPS"):
        server.answer(query("chat.demo.test", rdtype, subnet=DE), "10.3.0.1", tcp=False, draw=0.5)
    told = counts.take()
    demand = sum(count for key, count in told.items() if key.startswith("demand\t"))
    decisions = sum(
        count for key, count in told.items() if metric_key(key).startswith("gtm_decisions_total\t")
    )
    assert (demand, decisions) == (2, 5)


def test_replaced_answerers_are_gone_at_once() -> None:
    """A View that another replaces leaves no cycle behind: workers keep what they remember out of collections."""
    signer = ZoneSigner(NO_KEYS, lambda: 0.0)
    gc.collect()
    gc.disable()
    try:
        before = sum(isinstance(item, Answerer) for item in gc.get_objects())
        server = None
        for down in ((), ("eu",), ("us",), ()):
            server = Answerer(router(*down), locate, Counts(), server, signer)
            for name in ("chat", "drawn", "sticky", "nope"):
                server.udp(query(f"{name}.demo.test", subnet=DE), "10.1.0.1")
        assert sum(isinstance(item, Answerer) for item in gc.get_objects()) == before + 1
    finally:
        gc.enable()


def test_challenges_and_names_of_programs() -> None:
    """A challenge is answered as written, at services' names too; what programs ask of names with an underscore is no explanation, nor is anything where the zone says so."""
    challenge = RecordSet("_acme-challenge.chat", "TXT", ('"first"', '"second"'), ttl=30)
    caa = RecordSet("chat", "CAA", ('0 issue "ca.example.net"',))
    zones = {zone.name: zone for zone in POLICY.zones}
    demo = zones["demo.test"]

    def policy(zone: Zone) -> Policy:
        return replace(POLICY, zones=(zone, *(one for one in POLICY.zones if one is not demo)))

    server = answerer(policy=policy(replace(demo, records=(*demo.records, caa), challenges=(challenge,))))
    reply = both(server, query("_Acme-Challenge.chat.demo.test", "TXT"))
    assert sorted(addresses(reply)) == ['"first"', '"second"']
    assert reply.answer[0].ttl == 30
    assert addresses(both(server, query("chat.demo.test", "CAA"))) == ['0 issue "ca.example.net"']
    for name in ("_acme-challenge.wild.demo.test", "_dmarc.x.wild.demo.test", "x._tcp.wild.demo.test"):
        denied = both(server, query(name, "TXT", subnet=DE))
        assert (denied.rcode(), denied.answer) == (dns.rcode.NOERROR, [])
        assert denied.authority[0].rdtype == dns.rdatatype.SOA
        assert both(server, query(name, "A", subnet=DE)).answer
    assert "service=wild" in str(addresses(both(server, query("x.wild.demo.test", "TXT", subnet=DE))))
    silent = answerer(policy=policy(replace(demo, explanations=False)))
    for name in ("chat.demo.test", "x.wild.demo.test"):
        denied = both(silent, query(name, "TXT", subnet=DE))
        assert (denied.rcode(), denied.answer) == (dns.rcode.NOERROR, [])
        assert both(silent, query(name, "A", subnet=DE)).answer
