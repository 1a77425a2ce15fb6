"""Signed answers, checked by dnspython's validator and by what a validator makes of the proofs."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from itertools import product

import dns.dnssec
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest
from dns.exception import ValidationFailure
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gtm.core.model.names import absolute
from gtm.core.model.policy import EdgeScope
from gtm.core.model.services import NameServer
from gtm.core.policy.edges import EdgePlace
from gtm.core.signing.keys import NO_KEYS, Keys
from gtm.dns.answer.answerer import Answerer
from gtm.dns.protocol import wire
from gtm.dns.zone.dnssec import PERIOD, Signatures, ZoneKey, ZoneSigner, nsec, successor
from gtm.dns.zone.zones import ZoneData, wire_name
from gtm.telemetry import Counts
from tests import worlds
from tests.dns.world import REGIONS, addresses, errors_of, locate, query, router
from tests.dns.zone.signing import (
    KEYS,
    NOW,
    SIGNED,
    SIGNED_ZONES,
    ask,
    keys,
    signing,
    trusted,
    types_of,
    validate,
    zone_keys,
)
from tests.effort import examples

ANCHORS = trusted()
NAMES = sorted(
    {host for service in SIGNED.services for host in service.hostnames}
    | {absolute(record.name, zone.name) for zone in SIGNED.zones for record in zone.records}
    | {"demo.test", "sub.demo.test", "ns1.demo.test", "deep.demo.test", "b.deep.demo.test", "nope.demo.test"}
    | {"a.nope.demo.test", "*.demo.test", "x.chat.demo.test", "x.sub.demo.test", "ns2.example.net"}
    | {"y.any.demo.test", "z.y.any.demo.test", "x.below.ent.any.demo.test", "y.alias-any.demo.test"}
    | {"w.wild.demo.test", "wild.demo.test", "any.demo.test", "x.lab.demo.test", "x.plain.cuts.demo.test"}
)
TYPES = [
    *("A", "AAAA", "TXT", "MX", "HTTPS", "CNAME", "NS", "SOA", "DS", "DNSKEY", "CDS", "CDNSKEY", "NSEC"),
    *("RRSIG", "NSEC3PARAM", "HINFO", "ANY", "TYPE65400", "CAA", "SRV"),
]
CLIENTS = ["10.1.0.1", "10.2.0.1", "10.8.0.1", "203.0.113.9"]
DOWN = [(), ("eu",), ("us",), ("eu", "ie"), tuple(region.name for region in REGIONS)]
SERVERS = {down: signing(*down) for down in DOWN}
UNSIGNED = signing(signer=ZoneSigner(NO_KEYS, lambda: NOW))


@pytest.mark.rfc("4035", "3.1.1", "each set of the answer and authority section comes with its signature")
@pytest.mark.rfc("4035", "3.1.3", "a negative answer comes with its proof")
@pytest.mark.rfc("6605", "4", "signatures are ECDSA P-256 with SHA-256, r and s")
@settings(max_examples=examples(300), deadline=None)
@given(
    st.sampled_from(NAMES),
    st.sampled_from(TYPES),
    st.tuples(st.sampled_from(CLIENTS), st.booleans()),
    st.sampled_from(DOWN),
    st.floats(0, 1, exclude_max=True),
)
def test_every_answer_validates(
    name: str, rdtype: str, asking: tuple[str, bool], down: tuple[str, ...], draw: float
) -> None:
    """Whatever is asked, by whomever, in whatever state: the answer is signed by the keys published, or proved absent."""
    client, compact_ok = asking
    message = ask(SERVERS[down], name, rdtype, client=client, compact_ok=compact_ok, draw=draw)
    found = validate(message, ANCHORS)
    assert message.ednsflags & wire.DO
    in_signed = name.endswith(SIGNED_ZONES) and (
        not name.endswith("sub.demo.test") or (name, rdtype) == ("sub.demo.test", "DS")
    )
    if in_signed and rdtype != "RRSIG" and message.rcode() in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
        assert found.secure


LABELS = st.lists(
    st.binary(min_size=1, max_size=63) | st.sampled_from([b"*", b"CHAT", b"wild", b"\0", b"\xff" * 63]),
    max_size=6,
)


@pytest.mark.rfc("4034", "6.1", "names are signed in lower case, whatever case they are asked in")
@settings(max_examples=examples(150), deadline=None)
@given(LABELS, st.sampled_from(["demo.test", "Chat.DEMO.test", "x.Wild.demo.test"]), st.sampled_from(TYPES))
def test_any_name_validates(labels: list[bytes], below: str, rdtype: str) -> None:
    """Any name below a signed zone's, of any octets, in any case and as long as names can be."""
    suffix = dns.name.from_text(below)
    while sum(len(label) + 1 for label in labels) + len(suffix.to_wire() or b"") > wire.MAX_NAME:
        labels.pop()
    packet = dns.message.make_query(
        dns.name.Name([*labels, *suffix.labels]), rdtype, use_edns=0, want_dnssec=True
    )
    reply = SERVERS[()].answer(packet.to_wire(), "10.2.0.1", tcp=True, draw=0.5)
    assert reply is not None
    message = dns.message.from_wire(reply)
    validate(message, ANCHORS)
    assert message.question[0].name.to_text() == packet.question[0].name.to_text()


@settings(max_examples=examples(120), deadline=None)
@given(st.sampled_from(NAMES), st.sampled_from(TYPES), st.sampled_from(CLIENTS), st.sampled_from(DOWN))
def test_every_way_signs_alike(name: str, rdtype: str, client: str, down: tuple[str, ...]) -> None:
    """What is answered the short way, or remembered whole, is what is answered the full way."""
    server = SERVERS[down]
    packet = query(name, rdtype, edns=True, want_dnssec=True)
    replies = [
        server.answer_fully(packet, client, tcp=False, draw=0.0),
        server.answer(packet, client, tcp=False, draw=0.0),
        server.udp(packet, client),
        server.udp(packet, client),
    ]
    texts = {dns.message.from_wire(reply).to_text().lower() for reply in replies if reply is not None}
    assert None not in replies
    assert len(texts) == 1


@pytest.mark.parametrize("rdtype", ["A", "MX", "DNSKEY"])
def test_another_key_validates_nothing(rdtype: str) -> None:
    """The check can fail: what another key signed does not validate."""
    server = signing(signer=ZoneSigner(keys(number=2), lambda: NOW))
    message = ask(server, "demo.test" if rdtype == "DNSKEY" else "chat.demo.test", rdtype)
    with pytest.raises(ValidationFailure):
        validate(message, ANCHORS)


def test_changed_data_validates_nothing() -> None:
    """The check can fail: data that was changed on its way does not validate."""
    packet = query("chat.demo.test", edns=True, want_dnssec=True)
    reply = signing().answer(packet, "10.2.0.1", tcp=True, draw=0.5)
    assert reply is not None
    changed = dns.message.from_wire(reply.replace(bytes((192, 0, 2, 4)), bytes((192, 0, 2, 5))))
    assert addresses(changed)[0] == "192.0.2.5"
    with pytest.raises(ValidationFailure):
        validate(changed, ANCHORS)


@pytest.mark.rfc("4035", "3.1", "without DO there is nothing of DNSSEC unless the type asks for it")
@pytest.mark.rfc("3225", "3", "without DO there are no signatures")
@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(NAMES), st.sampled_from(TYPES), st.sampled_from(CLIENTS))
def test_nothing_is_signed_unasked(name: str, rdtype: str, client: str) -> None:
    """A client without DO gets what it would get without keys; the types of DNSSEC themselves have data then."""
    message = ask(SERVERS[()], name, rdtype, client=client, dnssec_ok=False)
    plain = ask(UNSIGNED, name, rdtype, client=client, dnssec_ok=False)
    if rdtype in ("DNSKEY", "CDS", "CDNSKEY", "NSEC", "RRSIG"):
        allowed = {dns.rdatatype.CNAME, dns.rdatatype.from_text(rdtype)}
        assert {rrset.rdtype for rrset in message.answer} <= allowed
    else:
        assert message.to_text().split("\n", 1)[1] == plain.to_text().split("\n", 1)[1]


@pytest.mark.rfc("4035", "3.1.6", "AD and CD are clear in answers from the zone's own server")
def test_flags_of_signed_answers() -> None:
    """What resolvers say to each other is not copied: AD and CD are clear."""
    packet = query(
        "chat.demo.test", edns=True, want_dnssec=True, flags=dns.flags.RD | dns.flags.AD | dns.flags.CD
    )
    reply = signing().answer(packet, "10.2.0.1", tcp=False, draw=0.5)
    assert reply is not None
    assert dns.message.from_wire(reply).flags == dns.flags.QR | dns.flags.AA | dns.flags.RD


# --- denial -------------------------------------------------------------------------------------------------------


@pytest.mark.rfc("9824", "3.1", "a name that is not there is NOERROR with NXNAME in the bitmap")
def test_absent_names() -> None:
    """NXDOMAIN becomes a proof at the name itself, which says that the name is not there."""
    message = ask(signing(), "nope.demo.test")
    (proof,) = validate(message, ANCHORS).proofs
    assert message.rcode() == dns.rcode.NOERROR
    assert proof.to_text() == "nope.demo.test. 60 IN NSEC \\000.nope.demo.test. RRSIG NSEC NXNAME"
    assert ask(signing(), "nope.demo.test", dnssec_ok=False).rcode() == dns.rcode.NXDOMAIN


@pytest.mark.rfc("9824", "5.1", "with CO a name that is not there is NXDOMAIN, and CO is in the reply")
def test_the_rcode_is_restored() -> None:
    """A client that says Compact Answers OK gets NXDOMAIN with the same proof; other answers don't change."""
    message = ask(signing(), "nope.demo.test", compact_ok=True)
    validate(message, ANCHORS)
    assert message.rcode() == dns.rcode.NXDOMAIN
    assert message.ednsflags & 0xFFFF == wire.DO | wire.CO
    assert ask(signing(), "chat.demo.test", "MX", compact_ok=True).rcode() == dns.rcode.NOERROR


@pytest.mark.rfc("9824", "3.2", "the proof at an empty non-terminal has RRSIG and NSEC only")
@pytest.mark.parametrize("name", ["deep.demo.test", "b.deep.demo.test"])
def test_empty_non_terminals(name: str) -> None:
    """A name that only has others below it has no types, and is there."""
    (proof,) = validate(ask(signing(), name), ANCHORS).proofs
    assert types_of(proof) == {"RRSIG", "NSEC"}


@pytest.mark.rfc("9824", "3.5", "NXNAME as a question is FORMERR, with the extended error for it")
@pytest.mark.parametrize("server", [SERVERS[()], UNSIGNED])
def test_questions_for_nxname(server: Answerer) -> None:
    """There is no data of type NXNAME to ask for, signed or not."""
    message = ask(server, "nope.demo.test", "TYPE128")
    assert message.rcode() == dns.rcode.FORMERR
    assert errors_of(message) == [30]
    assert not message.authority


@pytest.mark.rfc("8198", "5.3", "no proof denies a type that other clients have")
@pytest.mark.rfc("9824", "3.2", "the bitmap lists the types at the name")
@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(SIGNED_ZONES)])
def test_proofs_hold_for_everyone(name: str) -> None:
    """A resolver that answers from a proof which one client's question brought denies no other client what it has.

    Only the type asked is denied, for as long as its negative answer is kept; an alias shows by the types it leads to.
    """
    owner = dns.name.from_text(name)
    kinds = ["A", "AAAA", "TXT", "HTTPS", "MX", "NS", "SOA", "DNSKEY", "CDS"]
    messages = [
        (rdtype, ask(SERVERS[down], name, rdtype, client=client))
        for down, rdtype, client in product(((), ("eu",)), kinds, CLIENTS[:3])
    ]
    had = {rdtype for rdtype, message in messages if message.answer}
    aliased = any(rrset.rdtype == dns.rdatatype.CNAME for _, message in messages for rrset in message.answer)
    had &= {"A", "AAAA"} if aliased else had
    for rdtype, message in messages:
        for proof in message.authority:
            if proof.rdtype == dns.rdatatype.NSEC and proof.name == owner and not _parents(proof):
                assert had - {rdtype} <= types_of(proof)


def _parents(proof: dns.rrset.RRset) -> bool:
    """Whether a proof is of a zone cut, and so says nothing about the zone below it."""
    types = types_of(proof)
    return "NS" in types and "SOA" not in types


@pytest.mark.rfc("4034", "4.1", "NSEC is data that can be asked for")
def test_questions_for_proofs() -> None:
    """NSEC is answered by the record itself, for one that denies NSEC would contradict itself; RRSIG by one signature."""
    server = signing()
    for name in ("chat.demo.test", "nope.demo.test", "demo.test", "deep.demo.test"):
        message = ask(server, name, "NSEC")
        validate(message, ANCHORS)
        assert [rrset.rdtype for rrset in message.answer] == [dns.rdatatype.NSEC, dns.rdatatype.RRSIG]
        (signature,) = ask(server, name, "RRSIG").answer
        assert signature == message.answer[1]


@pytest.mark.rfc("9077", "3", "the TTL of NSEC is the lesser of the SOA's TTL and minimum")
def test_proofs_live_as_long_as_negative_answers() -> None:
    """A proof's TTL is that of the SOA beside it, for a record set's proof is no longer true than its absence."""
    message = ask(signing(), "chat.demo.test", "MX")
    assert {rrset.ttl for rrset in message.authority} == {30}, (
        "a service's name denies no longer than it answers"
    )
    message = ask(signing(), "ns1.demo.test", "MX")
    assert {rrset.ttl for rrset in message.authority} == {60}


LABEL = st.binary(min_size=1, max_size=63).map(bytes.lower)


@pytest.mark.rfc("4471", "3.1.1", "nothing lies between a name and its successor")
@settings(max_examples=examples(300), deadline=None)
@given(st.lists(LABEL, min_size=1, max_size=6), st.booleans())
@example([b"\xff" * 63] * 3 + [b"\xff" * 61], False)
@example([b"a" * 62 + b"@"] + [b"b" * 63] * 2 + [b"c" * 50], False)
@example([b"@" * 63], True)
@example([b"\xff" * 63], True)
def test_successors(labels: list[bytes], cut: bool) -> None:
    """The next name is that of dnspython's: below the name, or after all below it at a cut."""
    zone = ZoneData(wire_name("demo.test"), b"", (), 60, 60)
    while sum(len(label) + 1 for label in labels) + len(zone.name) > wire.MAX_NAME:
        labels.pop()
    name = b"".join(bytes((len(label),)) + label for label in labels) + zone.name
    origin = dns.name.from_text("demo.test")
    expected = dns.name.from_wire(name, 0)[0].successor(origin, not cut)
    data = nsec(name, zone, (), cut=cut) if cut else successor(name, zone)
    assert dns.name.from_wire(data, 0)[0] == expected


# --- what control signed, and delegations --------------------------------------------------------------------------


@pytest.mark.rfc("4035", "2.1", "the DNSKEY set is at the apex, and signed")
@pytest.mark.rfc("7344", "4", "CDS and CDNSKEY are at the apex, and signed by the key-signing key")
@pytest.mark.parametrize("rdtype", ["DNSKEY", "CDS", "CDNSKEY"])
def test_sets_signed_by_control(rdtype: str) -> None:
    """What the key-signing key signed is served as it is: at the apex, and nowhere else."""
    message = ask(signing(), "demo.test", rdtype)
    (ready,) = [item for item in KEYS.zones[0].sets if item.rdtype == dns.rdatatype.from_text(rdtype)]
    validate(message, ANCHORS)
    assert [rdata.to_wire() for rdata in message.answer[1]] == list(ready.signatures)
    assert message.answer[0].ttl == message.answer[1].ttl == ready.ttl
    assert not ask(signing(), "chat.demo.test", rdtype).answer
    assert not ask(signing(), "sub.demo.test", rdtype).answer


@pytest.mark.rfc("4035", "2.4", "no DS record: the zone below is not signed, and the proof says so")
@pytest.mark.rfc("9824", "3.4", "the proof at a cut passes over the names below it")
def test_an_unsigned_zone_inside_a_signed_one() -> None:
    """That sub.demo.test is not signed is proved by its parent: a cut without DS."""
    (proof,) = validate(ask(signing(), "sub.demo.test", "DS"), ANCHORS).proofs
    assert proof.to_text() == "sub.demo.test. 60 IN NSEC sub\\000.demo.test. NS RRSIG NSEC"


@pytest.mark.rfc("4035", "3.1.4.1", "the DS set is the parent's, and signed by it")
@pytest.mark.rfc("7344", "6", "the parent's DS set is what the child's CDS set asks for")
def test_a_signed_zone_inside_a_signed_one() -> None:
    """Where both zones have keys, the parent has the DS records that the child wants: the chain needs no hand."""
    known = keys((*SIGNED_ZONES, "sub.demo.test"))
    server = signing(signer=ZoneSigner(known, lambda: NOW))
    message = ask(server, "sub.demo.test", "DS")
    validate(message, trusted(known))
    (child,) = [rdata for rdata in trusted(known)[dns.name.from_text("sub.demo.test")] if rdata.flags == 257]
    assert message.answer[0][0] == dns.dnssec.make_ds(dns.name.from_text("sub.demo.test"), child, "SHA256")
    validate(ask(server, "sub.demo.test", "SOA"), trusted(known))
    validate(ask(server, "nope.sub.demo.test", "A"), trusted(known))


@pytest.mark.rfc("4035", "3.1.4", "a referral to a signed zone has its DS set, whoever answers for that zone")
def test_a_signed_zone_that_other_edges_answer_for() -> None:
    """An edge that refers to a zone of the policy gives the DS records that the zone asks for: none would unsign it."""
    servers = (NameServer("ns.example.net", country="DE"),)
    inner = replace(SIGNED.services[0], name="inner", hostnames=("x.sub.demo.test",), zone="sub.demo.test")
    rule = worlds.rule("gdpr", "EEA", services="inner", edges=EdgeScope.IN_FENCE)
    policy = worlds.changed(SIGNED, "zones", "sub.demo.test", name_servers=servers)
    policy = replace(policy, services=(*SIGNED.services, inner), residency_rules=(rule,))
    known = keys((*SIGNED_ZONES, "sub.demo.test"))
    server = Answerer(
        router(policy=policy, edge=EdgePlace("US")), locate, Counts(), signer=ZoneSigner(known, lambda: NOW)
    )
    message = ask(server, "x.sub.demo.test", "A")
    assert not message.answer
    validate(message, trusted(known))
    types = {rrset.rdtype for rrset in message.authority}
    assert types == {dns.rdatatype.NS, dns.rdatatype.DS, dns.rdatatype.RRSIG}
    (given,) = [rrset for rrset in message.authority if rrset.rdtype == dns.rdatatype.DS]
    asked = ask(server, "sub.demo.test", "DS")
    assert given[0] == asked.answer[0][0]
    validate(asked, trusted(known))
    unsigned = Answerer(
        router(policy=policy, edge=EdgePlace("US")), locate, Counts(), signer=ZoneSigner(KEYS, lambda: NOW)
    )
    assert len(validate(ask(unsigned, "x.sub.demo.test", "A"), ANCHORS).proofs) == 1


@pytest.mark.rfc("8078", "4", "a CDS that asks for no DS is no DS")
def test_a_zone_that_wants_no_delegation_signer() -> None:
    """A child that asks its parent to delete the DS has none."""
    child = zone_keys("sub.demo.test")
    sets = tuple(
        replace(item, rdatas=(b"\0\0\0\0\0",)) if item.rdtype == dns.rdatatype.CDS else item
        for item in child.sets
    )
    known = Keys(1, (*KEYS.zones, replace(child, sets=sets)))
    message = ask(signing(signer=ZoneSigner(known, lambda: NOW)), "sub.demo.test", "DS")
    assert not message.answer
    assert len(validate(message, trusted(known)).proofs) == 1


@pytest.mark.rfc("4035", "2.2", "neither the NS set of a delegation nor glue is signed")
@pytest.mark.rfc(
    "4035", "3.1.4", "a referral has the DS set and its signature, or the proof that there is none"
)
@pytest.mark.rfc("9824", "3.4", "the proof at a delegation has NS and no DS")
def test_referrals() -> None:
    """A referral is not signed, but what it says of the other zone's keys is."""
    unsigned = ask(signing(), "www.plain.cuts.demo.test")
    (proof,) = validate(unsigned, ANCHORS).proofs
    assert proof.to_text() == "plain.cuts.demo.test. 60 IN NSEC plain\\000.cuts.demo.test. NS RRSIG NSEC"
    secure = ask(signing(), "www.lab.demo.test")
    validate(secure, ANCHORS)
    for message, second in ((unsigned, dns.rdatatype.NSEC), (secure, dns.rdatatype.DS)):
        assert not message.flags & dns.flags.AA
        assert [rrset.rdtype for rrset in message.authority] == [
            dns.rdatatype.NS,
            second,
            dns.rdatatype.RRSIG,
        ]
        assert all(rrset.rdtype in (dns.rdatatype.A, dns.rdatatype.AAAA) for rrset in message.additional)


@pytest.mark.rfc("9824", "3.3", "what a wildcard answers is signed as if the name were there")
@pytest.mark.parametrize(
    ("name", "rdtype", "types"),
    [
        ("y.any", "TXT", {"TXT", "MX"}),
        ("z.y.any", "MX", {"TXT", "MX"}),
        ("w.wild", "A", {"A", "AAAA", "TXT"}),
    ],
)
def test_wildcards(name: str, rdtype: str, types: set[str]) -> None:
    """Answers by a wildcard need no proof that the name is not there; those without data list the wildcard's types."""
    message = ask(signing(), f"{name}.demo.test", rdtype)
    assert message.answer
    assert not validate(message, ANCHORS).proofs
    (proof,) = validate(ask(signing(), f"{name}.demo.test", "SRV"), ANCHORS).proofs
    assert types_of(proof) >= {*types, "RRSIG", "NSEC"}


@pytest.mark.rfc("4035", "3.1.1", "each link of a chain of aliases is signed by its zone")
@pytest.mark.parametrize(
    "name",
    ["to-www", "to-to-www", "one", "to-apex-test", "to-sub", "to-away", "to-lab", "y.alias-any", "to-wild"],
)
@pytest.mark.parametrize("rdtype", ["A", "MX", "DS"])
def test_aliases(name: str, rdtype: str) -> None:
    """A chain is signed link by link, and what it ends with is signed or proved by the zone where it ends."""
    message = ask(signing(), f"{name}.demo.test", rdtype)
    found = validate(message, ANCHORS)
    assert any(rrset.rdtype == dns.rdatatype.CNAME for rrset in found.secure)
    # In sub.demo.test, which is not signed, NXDOMAIN needs no proof to stand beside.
    assert message.rcode() == (dns.rcode.NXDOMAIN if name == "to-sub" else dns.rcode.NOERROR)


@pytest.mark.rfc("8198", "5.3", "no proof denies a type that is there")
@pytest.mark.parametrize(("name", "rdtype"), [("top", "DNSKEY"), ("top", "CDS"), ("child", "DS")])
@pytest.mark.parametrize("dnssec_ok", [False, True])
def test_aliases_of_names_with_keys(name: str, rdtype: str, dnssec_ok: bool) -> None:
    """What signing adds to a name is not denied at the end of a chain: the answer is the chain, to ask on from."""
    signer = ZoneSigner(keys((*SIGNED_ZONES, "sub.demo.test")), lambda: NOW)
    message = ask(signing(signer=signer), f"{name}.demo.test", rdtype, dnssec_ok=dnssec_ok)
    assert message.answer
    assert not message.authority
    assert message.rcode() == dns.rcode.NOERROR


@pytest.mark.rfc("4035", "2.5", "NSEC stands beside CNAME")
def test_proofs_of_aliases() -> None:
    """An alias has an NSEC record of its own, even where what it leads to is not there."""
    for name in ("to-www.demo.test", "one.demo.test"):
        answer = ask(signing(), name, "NSEC").answer
        assert types_of(answer[0]) == {"CNAME", "RRSIG", "NSEC"}


# --- signatures ---------------------------------------------------------------------------------------------------


@pytest.mark.rfc("4034", "3.1.5", "signatures have begun, and last longer than resolvers keep what they sign")
@settings(max_examples=examples(20), deadline=None)
@given(st.floats(1.7e9, 4.2e9))
def test_times_of_signatures(now: float) -> None:
    """A signature has begun an hour ago at least, and has two days or more left; all of a period have the same times."""
    server = signing(signer=ZoneSigner(KEYS, lambda: now))
    message = ask(server, "chat.demo.test")
    (signature,) = message.answer[1]
    assert signature.inception <= now - 3600
    assert now + 2 * 86400 <= signature.expiration <= now + 3 * 86400
    start = int(now) // PERIOD * PERIOD
    again = ask(signing(signer=ZoneSigner(KEYS, lambda: start)), "chat.demo.test")
    assert again.answer == message.answer


def test_every_edge_says_the_same() -> None:
    """Edges that share nothing but the keys make the same bytes, so resolvers may mix their answers."""
    assert ask(signing(), "chat.demo.test").answer == ask(signing(), "chat.demo.test").answer


@pytest.mark.rfc("6979", "Appendix A.2.5", "a message has one signature, that of the example")
def test_signatures_are_deterministic() -> None:
    """The example of RFC 6979 comes out, whatever library signs: so edges of any version agree."""
    private = bytes.fromhex("C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721")
    key = ZoneKey(replace(KEYS.zones[0], private=private), Signatures())
    assert key.sign(sha256(b"sample").digest()) == bytes.fromhex(
        "EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716"
        "F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8"
    )


def test_signatures_outlive_views_and_are_made_anew_for_new_keys() -> None:
    """A ZoneSigner takes over what its predecessor made; a new key or period makes new signatures, which validate."""
    now = [NOW]
    first = ZoneSigner(KEYS, lambda: now[0])
    ask(signing(signer=first), "chat.demo.test")
    assert len(first.made) == 1
    same = ZoneSigner(replace(KEYS, version=2), lambda: now[0], first)
    validate(ask(signing("eu", signer=same), "chat.demo.test"), ANCHORS)
    assert len(same.made) == 1
    assert same.zones[wire_name("demo.test")] is first.zones[wire_name("demo.test")]
    daily = Keys(3, tuple(replace(item, sets=item.sets[:1]) for item in KEYS.zones))
    validate(ask(signing(signer=ZoneSigner(daily, lambda: now[0], same)), "chat.demo.test"), ANCHORS)
    assert len(same.made) == 1
    rolled = ZoneSigner(Keys(4, (zone_keys("demo.test", number=2),)), lambda: now[0], same)
    validate(ask(signing(signer=rolled), "chat.demo.test"), trusted(rolled.keys))
    assert len(rolled.made) == 2
    period = same.period()
    now[0] += PERIOD
    assert same.period() == period + 1
    validate(ask(signing(signer=same), "chat.demo.test"), ANCHORS, now=now[0])
    assert len(same.made) == 3


def test_the_memory_of_signatures_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that nobody asks for twice are forgotten; those asked for all along are not signed again."""
    monkeypatch.setattr("gtm.dns.zone.dnssec.LIMIT", 10)
    signed: list[bytes] = []
    sign = ZoneKey.sign

    def counted(key: ZoneKey, digest: bytes) -> bytes:
        signed.append(digest)
        return sign(key, digest)

    monkeypatch.setattr(ZoneKey, "sign", counted)
    made = Signatures()
    key = ZoneKey(KEYS.zones[0], made)
    for number in range(200):
        key.rrsig(wire_name(f"n{number}.demo.test"), wire.A, 60, [bytes(4)], 1)
        key.rrsig(wire_name("hot.demo.test"), wire.A, 60, [bytes(4)], 1)
        assert len(made) <= 20
    assert len(signed) == 201


NAME = st.lists(st.text("abcXYZ-019", min_size=1, max_size=8), min_size=1, max_size=3).map(".".join)
NUMBER = st.integers(0, 65535)
RDATA = (
    st.tuples(st.just("MX"), st.builds("{} {}.".format, NUMBER, NAME))
    | st.tuples(st.sampled_from(["CNAME", "NS", "PTR"]), st.builds("{}.".format, NAME))
    | st.tuples(st.just("SRV"), st.builds("{} {} {} {}.".format, NUMBER, NUMBER, NUMBER, NAME))
    | st.tuples(st.just("SOA"), st.builds("{}. {}. {} 2 3 4 5".format, NAME, NAME, NUMBER))
    | st.tuples(st.just("TXT"), st.builds('"{}"'.format, NAME))
    | st.tuples(st.just("HTTPS"), st.builds("{} {}. alpn=h2".format, NUMBER.map(lambda n: n or 1), NAME))
    | st.tuples(st.just("NAPTR"), st.builds('{} {} "S" "SIP" "" {}.'.format, NUMBER, NUMBER, NAME))
    | st.tuples(st.just("A"), st.builds("192.0.{}.{}".format, st.integers(0, 255), st.integers(0, 255)))
)


@pytest.mark.rfc("4034", "6.2", "names in data are signed in lower case, in the types listed")
@pytest.mark.rfc("6840", "5.1", "but not in those that came after")
@pytest.mark.rfc("4034", "6.3", "records are signed in the order of their data, each once")
@pytest.mark.rfc("4034", "3.1.3", "a leading asterisk is no label")
@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(RDATA, min_size=1, max_size=4),
    st.sampled_from(["demo.test.", "www.demo.test.", "*.demo.test.", "a.*.demo.test.", "*.a.b.demo.test."]),
    st.integers(0, 2**31 - 1),
)
def test_the_canonical_form(records: list[tuple[str, str]], owner: str, ttl: int) -> None:
    """Any set of records, written in any case and order, is signed as dnspython validates it."""
    rdtype = records[0][0]
    rrset = dns.rrset.from_text(owner, ttl, "IN", rdtype, *[text for kind, text in records if kind == rdtype])
    rdatas = [rdata.to_wire() or b"" for rdata in rrset]
    key = ZoneKey(KEYS.zones[0], Signatures())
    data = key.rrsig(wire_name(owner), int(rrset.rdtype), ttl, [*rdatas, *rdatas], int(NOW) // PERIOD)
    record = dns.rdata.from_wire("IN", "RRSIG", data, 0, len(data))
    signature = dns.rrset.from_rdata(owner, ttl, record)
    dns.dnssec.validate(rrset, signature, ANCHORS, now=NOW)  # type: ignore[arg-type]


@pytest.mark.rfc("4035", "3.1", "a signed answer that does not fit is truncated")
def test_signed_answers_that_do_not_fit_are_truncated() -> None:
    """Over UDP, an answer that its signature makes too long is none, with TC; over TCP it is whole."""
    packet = query("half.demo.test", edns=True, want_dnssec=True, payload=700)
    plain = query("half.demo.test", edns=True, payload=700)
    server = signing()
    for asked, truncated in ((packet, True), (plain, False)):
        reply = server.answer(asked, "10.2.0.1", tcp=False, draw=0.5)
        assert reply is not None
        message = dns.message.from_wire(reply)
        assert bool(message.flags & dns.flags.TC) is truncated
        assert bool(message.answer) is not truncated
    assert len(addresses(ask(server, "half.demo.test"))) == 41
