"""Records of zones: what they answer, what wildcards and aliases make of them, and where zones end."""

from __future__ import annotations

from dataclasses import replace

import dns.flags
import dns.rcode
import dns.rdatatype
import pytest

from gtm.core.model.policy import Policy
from gtm.core.model.services import RecordSet, Zone
from gtm.core.policy.compile import compile_policy
from gtm.dns.answer.answerer import Answerer
from gtm.dns.zone.zones import build_names
from gtm.telemetry import Counts
from tests.dns.world import (
    POLICY,
    RECORDS,
    ZONES,
    addresses,
    answerer,
    both,
    errors_of,
    locate,
    query,
    router,
    subnet_of,
)

DE, US = "10.1.2.0/24", "10.2.3.0/24"


def _texts(name: str, rdtype: str, **fields: object) -> list[str]:
    return addresses(both(answerer(), query(f"{name}.demo.test", rdtype, **fields)))  # type: ignore[arg-type]


@pytest.mark.rfc("1034", "3.6", "a name has records of any type, the same for everyone")
@pytest.mark.parametrize(
    ("name", "rdtype", "expected"),
    [
        ("www", "A", ["192.0.2.101", "192.0.2.102"]),
        ("www", "AAAA", ["2001:db8::101"]),
        ("mail", "MX", ["10 mx1.demo.test.", "20 mx2.example.net."]),
        ("txt", "TXT", ['"a b" "c;d"']),
        ("_dns._udp", "SRV", ["0 5 53 ns1.demo.test."]),
        ("4", "PTR", ["www.demo.test."]),
        ("_443._tcp.www", "TLSA", ["3 1 1 " + "ab" * 32]),
        ("svc", "SVCB", ['1 www.demo.test. alpn="dot" port="853"']),
    ],
)
def test_records_are_answered(name: str, rdtype: str, expected: list[str]) -> None:
    """Records are given as written, with names relative to the zone, and scope 0."""
    reply = both(answerer(), query(f"{name}.demo.test", rdtype, subnet=DE))
    assert addresses(reply) == expected
    assert reply.flags & dns.flags.AA
    assert subnet_of(reply) == ("10.1.2.0", 24, 0)


@pytest.mark.rfc("3597", "3", "records of unknown types are served as they are")
def test_unknown_types_are_served() -> None:
    """A type that nobody knows is answered with the octets given."""
    reply = both(answerer(), query("new.demo.test", "TYPE65280"))
    assert reply.answer[0][0].to_wire() == b"\1\2\3"


@pytest.mark.rfc("2181", "5.2", "the records of a set have one TTL")
def test_ttls() -> None:
    """A set has its own TTL, or the zone's."""
    assert both(answerer(), query("www.demo.test")).answer[0].ttl == 120
    assert both(answerer(), query("www.demo.test", "AAAA")).answer[0].ttl == 3600


@pytest.mark.rfc("8020", "2", "what has names below it exists")
@pytest.mark.parametrize(
    ("name", "rcode"), [("ent", 0), ("x.ent", 3), ("cuts", 0), ("_tcp.www", 0), ("x.www", 3)]
)
def test_empty_non_terminals(name: str, rcode: int) -> None:
    """A name that only has names below it is NODATA; one that has none does not exist."""
    reply = both(answerer(), query(f"{name}.demo.test"))
    assert reply.rcode() == rcode
    assert not reply.answer
    assert reply.authority[0].rdtype == dns.rdatatype.SOA


@pytest.mark.rfc("8482", "4.2", "ANY gets one record")
def test_any() -> None:
    """ANY is answered minimally at names with records too, and with the alias where there is one."""
    assert _texts("www", "ANY") == ['"RFC8482" ""']
    assert _texts("x.any", "ANY") == ['"RFC8482" ""']
    assert _texts("to-www", "ANY") == ["www.demo.test."]


# --- wildcards ---


@pytest.mark.rfc("4592", "3.3.1", "a wildcard answers for names below the closest encloser that do not exist")
@pytest.mark.parametrize("name", ["x.any", "x.y.any", "_sip._tcp.any"])
def test_wildcards_answer_for_names_that_do_not_exist(name: str) -> None:
    """Names at any depth below a wildcard's have its records, under the name asked."""
    reply = both(answerer(), query(f"{name}.demo.test", "TXT"))
    assert addresses(reply) == ['"any"']
    assert reply.answer[0].name.to_text() == f"{name}.demo.test."
    assert not both(answerer(), query(f"{name}.demo.test", "A")).answer
    assert both(answerer(), query(f"{name}.demo.test", "A")).rcode() == dns.rcode.NOERROR


@pytest.mark.rfc("4592", "2.2.1", "what exists, or lies below it, is not matched")
@pytest.mark.parametrize(
    ("name", "rcode"), [("here.any", 0), ("x.here.any", 3), ("ent.any", 0), ("x.ent.any", 3), ("any", 0)]
)
def test_wildcards_do_not_cover_what_exists(name: str, rcode: int) -> None:
    """Names that exist block the wildcard, also empty ones, and for all that lies below them."""
    reply = both(answerer(), query(f"{name}.demo.test", "TXT"))
    assert (reply.rcode(), reply.answer) == (rcode, [])


@pytest.mark.rfc("4592", "2.3", "a wildcard asked for by its own name is a name like any other")
def test_a_wildcard_asked_literally() -> None:
    """`*` can be asked for, and below it nothing is synthesized but by another wildcard."""
    assert _texts("*.any", "TXT") == ['"any"']
    below = both(answerer(), query("x.*.any.demo.test", "TXT"))
    assert (below.rcode(), below.answer) == (dns.rcode.NXDOMAIN, [])


@pytest.mark.rfc("4592", "3.3.3", "a wildcard alias is one for every name below")
def test_wildcard_aliases() -> None:
    """An alias at a wildcard is followed, whatever name it stands for."""
    reply = both(answerer(), query("x.y.alias-any.demo.test"))
    assert [rrset.name.to_text() for rrset in reply.answer] == [
        "x.y.alias-any.demo.test.",
        "www.demo.test.",
    ]
    assert addresses(reply) == ["www.demo.test.", "192.0.2.101", "192.0.2.102"]


def test_wildcard_host_names_are_steered() -> None:
    """Every name below a service's wildcard is answered as the service is, with the client's scope."""
    for name, client, expected in (
        ("x.wild", DE, ["192.0.2.1", "192.0.2.2"]),
        ("a.b.wild", US, ["192.0.2.4"]),
        ("*.wild", US, ["192.0.2.4"]),
        ("own.wild", US, ["192.0.2.4"]),
    ):
        reply = both(answerer(), query(f"{name}.demo.test", subnet=client), draw=0.0)
        assert addresses(reply) == expected
        assert subnet_of(reply) in (("10.1.2.0", 24, 16), ("10.2.3.0", 24, 15))
    assert both(answerer(), query("x.own.wild.demo.test")).rcode() == dns.rcode.NXDOMAIN
    assert both(answerer(), query("wild.demo.test")).rcode() == dns.rcode.NOERROR
    assert not both(answerer(), query("wild.demo.test")).answer


# --- delegations ---


@pytest.mark.rfc("1034", "4.3.2", "what lies beyond a cut is a referral")
@pytest.mark.rfc("9471", "3.1", "a referral has all glue for the servers inside the zone delegated")
@pytest.mark.parametrize(
    ("name", "rdtype"),
    [("lab", "A"), ("lab", "NS"), ("x.y.lab", "TXT"), ("ns1.lab", "A"), ("x.lab", "DS"), ("lab", "ANY")],
)
def test_delegations_are_referrals(name: str, rdtype: str) -> None:
    """At and below a delegation the answer is where to ask, with the addresses known, without AA, for everyone."""
    reply = both(answerer(), query(f"{name}.demo.test", rdtype, subnet=DE))
    assert (reply.rcode(), reply.answer) == (dns.rcode.NOERROR, [])
    assert not reply.flags & dns.flags.AA
    (servers,) = reply.authority
    assert (servers.name.to_text(), servers.rdtype, servers.ttl) == ("lab.demo.test.", dns.rdatatype.NS, 600)
    assert sorted(rdata.to_text() for rdata in servers) == [
        "ns.example.net.",
        "ns.www2.demo.test.",
        "ns1.lab.demo.test.",
    ]
    glue = {(rrset.name.to_text(), rdata.to_text()) for rrset in reply.additional for rdata in rrset}
    assert glue == {
        ("ns1.lab.demo.test.", "192.0.2.106"),
        ("ns1.lab.demo.test.", "2001:db8::106"),
        ("ns.www2.demo.test.", "192.0.2.107"),
    }
    assert subnet_of(reply) == ("10.1.2.0", 24, 0)


@pytest.mark.rfc("9471", "3.1", "glue that does not fit truncates the referral")
def test_referrals_that_do_not_fit_are_truncated() -> None:
    """A referral whose glue is too long for UDP comes empty and truncated, and whole over TCP."""
    servers = tuple(f"ns{number}.big" for number in range(20))
    glue = (RecordSet(server, "AAAA", (f"2001:db8::{number}",)) for number, server in enumerate(servers))
    zone = replace(ZONES[0], records=(RecordSet("big", "NS", servers), *glue))
    server = Answerer(router(policy=Policy(zones=(zone,))), locate, Counts())
    short = both(server, query("x.big.demo.test"))
    assert short.flags & dns.flags.TC
    assert not short.authority
    assert not short.additional
    whole = both(server, query("x.big.demo.test"), tcp=True)
    assert not whole.flags & dns.flags.TC
    assert (len(whole.authority[0]), len(whole.additional)) == (20, 20)


@pytest.mark.rfc("4035", "3.1.4", "a referral has the DS records, for those who ask for DNSSEC")
def test_referrals_of_signed_zones() -> None:
    """DS records come with the referral where the DO flag is set."""
    reply = both(answerer(), query("x.lab.demo.test", want_dnssec=True))
    assert [rrset.rdtype.name for rrset in reply.authority] == ["NS", "DS"]
    reply = both(answerer(), query("x.plain.cuts.demo.test", want_dnssec=True))
    assert [rrset.rdtype.name for rrset in reply.authority] == ["NS"]


@pytest.mark.rfc("4035", "3.1.4.1", "a DS is answered by the zone above the cut")
def test_ds_at_a_cut() -> None:
    """The parent's side answers for DS with authority: the records, or that there are none."""
    reply = both(answerer(), query("lab.demo.test", "DS"))
    assert addresses(reply) == ["1 13 2 " + "cd" * 32]
    assert reply.flags & dns.flags.AA
    none = both(answerer(), query("plain.cuts.demo.test", "DS"))
    assert (none.rcode(), none.answer) == (dns.rcode.NOERROR, [])
    assert none.flags & dns.flags.AA
    assert none.authority[0].name.to_text() == "demo.test."


def test_ds_of_a_zone_of_ours() -> None:
    """The DS records of a zone inside another stand in the one around it."""
    digest = "2 13 2 " + "ef" * 32
    zones = (replace(ZONES[0], records=(*RECORDS, RecordSet("sub", "DS", (digest,)))), *ZONES[1:])
    server = Answerer(router(policy=replace(POLICY, zones=zones)), locate, Counts())
    assert addresses(both(server, query("sub.demo.test", "DS"))) == [digest]
    assert both(server, query("sub.demo.test", "MX")).authority[0].name.to_text() == "sub.demo.test."


# --- aliases ---


@pytest.mark.rfc("1034", "4.3.2", "aliases inside our zones are followed, across them too")
@pytest.mark.parametrize(
    ("name", "rdtype", "expected"),
    [
        ("to-www", "A", ["www.demo.test.", "192.0.2.101", "192.0.2.102"]),
        ("to-to-www", "AAAA", ["To-WWW.demo.test.", "www.demo.test.", "2001:db8::101"]),
        ("to-www", "CNAME", ["www.demo.test."]),
        ("to-www", "MX", ["www.demo.test."]),
        ("to-away", "A", ["www.example.net."]),
        ("to-lab", "A", ["x.lab.demo.test."]),
    ],
)
def test_aliases_are_followed(name: str, rdtype: str, expected: list[str]) -> None:
    """An alias comes with what its name answers, as far as that is ours to say."""
    reply = both(answerer(), query(f"{name}.demo.test", rdtype))
    assert addresses(reply) == expected
    assert reply.flags & dns.flags.AA
    assert reply.rcode() == dns.rcode.NOERROR
    soa = [rrset.rdtype.name for rrset in reply.authority]
    assert soa == (["SOA"] if rdtype == "MX" else [])


def test_aliases_lead_to_services() -> None:
    """An alias of a service's host name is answered for the client, with its scope and the service's TTL."""
    server = answerer()
    reply = both(server, query("to-drawn.demo.test", subnet=DE), draw=0.9)
    assert addresses(reply) == ["drawn.demo.test.", "192.0.2.4"]
    assert [rrset.ttl for rrset in reply.answer] == [3600, 30]
    assert subnet_of(reply) == ("10.1.2.0", 24, 16)
    assert addresses(both(server, query("to-drawn.demo.test", subnet=DE), draw=0.0))[1] == "192.0.2.1"
    assert addresses(both(server, query("to-chat.apex.test", subnet=US)))[1:] == ["192.0.2.4"]
    assert addresses(both(server, query("to-wild.demo.test", subnet=US)))[1:] == ["192.0.2.4"]
    assert addresses(both(server, query("to-alias.demo.test"))) == ["alias.demo.test.", "lb.example.net."]
    refused = both(answerer("eu", "ie"), query("to-chat.apex.test", subnet=DE))
    assert addresses(refused)[1:] == ["192.0.2.250"]
    assert errors_of(refused) == [18]


def test_aliases_are_demand() -> None:
    """A client that comes by an alias counts as one of the service."""
    counts = Counts()
    answerer(counts=counts).answer(query("to-drawn.demo.test", subnet=DE), "10.3.0.1", tcp=False, draw=0.1)
    assert any(key.startswith("demand\t") for key in counts.take())


@pytest.mark.rfc("6604", "3", "the rcode after aliases is that of the last name")
@pytest.mark.rfc("2308", "2.1", "NXDOMAIN of an alias's name comes with the alias and the SOA")
def test_the_end_of_an_alias_may_be_missing() -> None:
    """NXDOMAIN and NODATA are those of the alias's name; what fails there fails as a whole."""
    reply = both(answerer(), query("to-nowhere.demo.test"))
    assert (reply.rcode(), addresses(reply)) == (dns.rcode.NXDOMAIN, ["nope.demo.test."])
    assert reply.authority[0].rdtype == dns.rdatatype.SOA
    reply = both(answerer(), query("to-ent.demo.test"))
    assert (reply.rcode(), addresses(reply)) == (dns.rcode.NOERROR, ["ent.demo.test."])
    assert reply.authority[0].rdtype == dns.rdatatype.SOA
    reply = both(answerer(), query("to-failing.demo.test", edns=True))
    assert (reply.rcode(), addresses(reply)) == (dns.rcode.SERVFAIL, [])


@pytest.mark.rfc("1034", "3.6.2", "a loop of aliases is an error")
def test_loops_of_aliases_fail() -> None:
    """Aliases that lead to each other are SERVFAIL; a chain that is only long ends early, for resolvers to go on."""
    for name in ("loop-1", "loop-2"):
        reply = both(answerer(), query(f"{name}.demo.test", edns=True))
        assert reply.rcode() == dns.rcode.SERVFAIL
        assert errors_of(reply) == [0]
    assert _texts("far-0", "A") == [f"far-{number}.demo.test." for number in range(1, 9)]
    assert _texts("far-1", "A")[-1] == "192.0.2.105"


# --- beside services ---


@pytest.mark.rfc("1034", "3.6.2", "an apex has addresses beside its other records")
def test_a_service_at_the_apex_stands_beside_records() -> None:
    """At an apex the service answers with addresses, and records of other types with themselves."""
    server = answerer()
    assert addresses(both(server, query("apex.test", subnet=US))) == ["192.0.2.4"]
    assert addresses(both(server, query("apex.test", "MX", subnet=US))) == ["10 mail.apex.test."]
    assert addresses(both(server, query("apex.test", "TXT", subnet=US))) == ['"v=spf1 -all"']
    assert addresses(both(server, query("apex.test", "CAA", subnet=US))) == ['0 issue "ca.example.net"']
    assert addresses(both(server, query("apex.test", "HTTPS", subnet=US))) == ['1 . alpn="h2"']
    assert addresses(both(server, query("apex.test", "NS"))) == ["ns.example.net."]
    assert addresses(both(server, query("apex.test", "ANY"))) == ['"RFC8482" ""']
    assert both(server, query("apex.test", "SRV")).authority


def test_records_that_cannot_be_read_fail() -> None:
    """Data that this gtm does not understand, from a newer control say, is SERVFAIL and never NXDOMAIN."""
    records = (
        RecordSet("odd", "A", ("not an address",)),
        RecordSet("lab", "NS", ("ns.example.net.", "..")),
        RecordSet("signed", "NS", ("ns.example.net.",)),
        RecordSet("signed", "DS", ("1 13 2 zz",)),
    )
    zone = replace(ZONES[0], records=records)
    policy = Policy(zones=(zone, Zone("other.test", "ns.example.net", "h.example.net")))
    server = Answerer(router(policy=policy), locate, Counts())
    reply = both(server, query("odd.demo.test", edns=True))
    assert reply.rcode() == dns.rcode.SERVFAIL
    assert errors_of(reply) == [0]
    for name in ("x.lab", "x.signed"):
        assert both(server, query(f"{name}.demo.test")).rcode() == dns.rcode.SERVFAIL
    assert both(server, query("odd.demo.test", "MX")).rcode() == dns.rcode.NOERROR


def test_names_are_made_once_for_many_records() -> None:
    """A zone may have ten thousand records."""
    records = tuple(RecordSet(f"host-{number}", "A", ("192.0.2.1",)) for number in range(10_000))
    zone = Zone("many.test", "ns.example.net", "h.example.net", records=records)
    names = build_names(compile_policy(Policy(zones=(zone,)), ()))
    assert len(names.records) == 10_001
