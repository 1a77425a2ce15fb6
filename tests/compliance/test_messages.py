"""Clauses about names, sets, negative answers and transports, beside what `tests/dns/` holds of them."""

from __future__ import annotations

import socket
import struct

import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdatatype
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.dns.io.test_server import TIMEOUT, connect, framed, receive
from tests.dns.protocol.test_protocol import header, opt, question, with_opt
from tests.dns.world import POLICY, RESOLVER, ZONES, addresses, answerer, both, query
from tests.effort import examples

SERVER = answerer()
HOSTS = [host for service in POLICY.services for host in service.hostnames]
EXISTING = [*HOSTS, *(zone.name for zone in ZONES), "ns1.demo.test", "b.deep.demo.test", "deep.demo.test"]


def raw(packet: bytes, *, tcp: bool = False) -> bytes:
    """The reply's bytes."""
    reply = SERVER.answer(packet, RESOLVER, tcp=tcp, draw=0.5)
    assert reply is not None
    return reply


# --- names -------------------------------------------------------------------------------------------------------


@pytest.mark.rfc("4343", "4.1", "the case of the question comes back exactly, whatever it is (0x20)")
@pytest.mark.rfc("1034", "3.1", "case tells no names apart")
@settings(max_examples=examples(100), deadline=None)
@given(
    st.sampled_from([*EXISTING, "nope.demo.test", "example.com"]), st.integers(0, 2**40), st.integers(1, 260)
)
def test_random_case_comes_back(name: str, flips: int, rdtype: int) -> None:
    """Resolvers that mix the case of questions, to make forging harder, see it again, and get the same answer."""
    cased = "".join(char.upper() if flips >> index & 1 else char for index, char in enumerate(name))
    packet = header(qd=1) + question(cased, rdtype)
    reply = raw(packet)
    if reply[3] & 0xF not in (dns.rcode.FORMERR, dns.rcode.NOTIMP):
        assert reply[12 : len(packet)] == packet[12:]
    plain = raw(header(qd=1) + question(name, rdtype))
    assert dns.message.from_wire(reply).to_text().lower() == dns.message.from_wire(plain).to_text().lower()


@pytest.mark.rfc("1035", "2.3.4", "names of 255 octets and labels of 63 are names; longer ones are FORMERR")
def test_sizes_of_names() -> None:
    """The longest name that there can be is denied; a longer one is no name."""
    labels = b"".join(bytes((63,)) + b"a" * 63 for _ in range(3))
    longest = labels + bytes((50,)) + b"b" * 50 + dns.name.from_text("demo.test").to_wire()  # type: ignore[operator]
    too_long = labels + bytes((63,)) + b"b" * 63 + dns.name.from_text("demo.test").to_wire()  # type: ignore[operator]
    assert len(longest) == 254
    for name, rcode in ((longest, dns.rcode.NXDOMAIN), (too_long, dns.rcode.FORMERR)):
        assert raw(header(qd=1) + name + struct.pack("!HH", 1, 1))[3] & 0xF == rcode


@pytest.mark.rfc("2181", "11", "any octet may stand in a label: names are not checked for being host names")
@pytest.mark.parametrize("label", [b"_dmarc", b"a b", b"\x00\x01", b"\xff\xfe", b"*", b"x.y", b"-"])
def test_labels_of_any_octets(label: bytes) -> None:
    """Strange names are denied like others, with the question as it was."""
    packet = header(qd=1) + bytes((len(label),)) + label + question("demo.test")
    reply = raw(packet)
    assert reply[3] & 0xF == dns.rcode.NXDOMAIN
    assert reply[12 : len(packet)] == packet[12:]


# --- sets and sections -------------------------------------------------------------------------------------------


@pytest.mark.rfc("2181", "5.2", "all records of a set have one TTL")
@pytest.mark.rfc("1035", "4.1.1", "the reply has the query's id and its one question")
@pytest.mark.rfc(
    "2181", "5.4.1", "only data of the zone is in an authoritative answer: nothing from other zones"
)
@pytest.mark.parametrize("rdtype", ["A", "AAAA", "NS", "SOA", "TXT", "ANY", "MX"])
def test_answers_are_well_formed(rdtype: str) -> None:
    """Of every name: one question, one owner and TTL for each set, and records of our zones only."""
    origins = [dns.name.from_text(zone.name) for zone in ZONES]
    for name in EXISTING:
        packet = query(name, rdtype)
        wire = raw(packet)
        assert wire[:2] == packet[:2]
        reply = dns.message.from_wire(wire, one_rr_per_rrset=True)
        assert [rrset.to_text() for rrset in reply.question] == [f"{name}. IN {rdtype}"]
        ttls: dict[tuple[dns.name.Name, int], set[int]] = {}
        for rrset in (*reply.answer, *reply.authority, *reply.additional):
            ttls.setdefault((rrset.name, rrset.rdtype), set()).add(rrset.ttl)
            assert any(rrset.name.is_subdomain(origin) for origin in origins)
        assert all(len(found) == 1 for found in ttls.values())


@pytest.mark.rfc("2181", "8", "TTLs are positive and below 2^31")
@pytest.mark.rfc("1982", "3", "a zone's serial is a number of serial arithmetic, and not 0")
def test_numbers_are_in_range() -> None:
    """SOA, NS and service answers have TTLs that every resolver accepts."""
    for name in EXISTING:
        for rdtype in ("A", "SOA", "NS"):
            for rrset in both(SERVER, query(name, rdtype)).answer:
                assert 0 < rrset.ttl < 2**31
                if rrset.rdtype == dns.rdatatype.SOA:
                    assert 0 < rrset[0].serial < 2**32


@pytest.mark.rfc("2181", "10.3", "a name server's name is no alias")
def test_name_servers_are_no_aliases() -> None:
    """What NS records of ours name inside our zones has addresses, or none, but no CNAME."""
    for rdtype in ("A", "AAAA", "CNAME"):
        reply = both(SERVER, query("ns1.demo.test", rdtype))
        assert all(rrset.rdtype != dns.rdatatype.CNAME for rrset in reply.answer)


@pytest.mark.rfc("2181", "6.1", "AA is set on answers and denials, and on nothing that is not of a zone here")
def test_authority_is_claimed_for_our_zones_only() -> None:
    """AA goes with data and with denials; refusals and errors are without."""
    for name, authoritative in (("chat.demo.test", True), ("nope.demo.test", True), ("example.com", False)):
        assert bool(both(SERVER, query(name)).flags & dns.flags.AA) is authoritative


# --- negative answers --------------------------------------------------------------------------------------------


@pytest.mark.rfc("8020", "2", "below a name that is denied there is nothing; above one that exists all exist")
@pytest.mark.rfc("2308", "2", "every denial has exactly one SOA, of the zone, in the authority section")
@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "deep", "chat", "nope", "ns1", "*"]), min_size=1, max_size=4))
def test_denials_agree_along_a_name(labels: list[str]) -> None:
    """NXDOMAIN for a name means NXDOMAIN for all below it (resolvers cut there)."""
    denied = False
    for count in range(1, len(labels) + 1):
        reply = both(SERVER, query(".".join((*labels[-count:], "demo.test"))))
        assert not (denied and reply.rcode() != dns.rcode.NXDOMAIN)
        denied = reply.rcode() == dns.rcode.NXDOMAIN
        if not reply.answer:
            assert [(rrset.name.to_text(), rrset.rdtype) for rrset in reply.authority] == [
                ("demo.test.", dns.rdatatype.SOA)
            ]


@pytest.mark.rfc("2308", "2.1", "NXDOMAIN is about the name: it does not depend on the type asked for")
@pytest.mark.rfc("4074", "4.2", "a name with A never gets a name error for AAAA, nor for any other type")
@pytest.mark.rfc("4074", "4.3", "AAAA of a name with A gets no NOTIMP, FORMERR or other error")
@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from([*EXISTING, "nope.demo.test"]), st.integers(1, 65535))
def test_the_type_does_not_decide_whether_a_name_exists(name: str, rdtype: int) -> None:
    """One name is there for every type or for none."""
    if rdtype in (41, 128, 249, 250, 251, 252, 253, 254) or name in ("url-only.demo.test", "alias.test"):
        return  # no questions about data; and names whose regions DNS cannot name
    rcode = both(SERVER, header(qd=1) + question(name, rdtype)).rcode()
    assert rcode == (dns.rcode.NXDOMAIN if name.startswith("nope.") else dns.rcode.NOERROR)


@pytest.mark.rfc("4074", "4.4", "AAAA is never answered with an IPv4 address or a record of another family")
def test_families_are_not_mixed() -> None:
    """A has addresses of 4 octets and AAAA of 16."""
    for name in HOSTS:
        for rdtype, size in (("A", 4), ("AAAA", 16)):
            for rrset in both(SERVER, query(name, rdtype)).answer:
                if rrset.rdtype != dns.rdatatype.CNAME:
                    assert rrset.rdtype == dns.rdatatype.from_text(rdtype)
                    assert all(len(rdata.to_wire() or b"") == size for rdata in rrset)


@pytest.mark.rfc("8482", "4.2", "ANY is as short over TCP as over UDP, and smaller than twice its query")
def test_any_amplifies_nothing() -> None:
    """ANY is no means to send much to somebody else."""
    for name in ("chat.demo.test", "big.demo.test", "demo.test"):
        packet = query(name, "ANY")
        for tcp in (False, True):
            assert len(raw(packet, tcp=tcp)) < 2 * len(packet)


@pytest.mark.rfc(
    "8914", "2", "extended errors are only in replies with an OPT, their text is UTF-8 without a NUL"
)
def test_extended_errors_need_an_opt() -> None:
    """A client without EDNS gets no extended error."""
    for name, rdtype in (("example.com", "A"), ("demo.test", "AXFR"), ("url-only.demo.test", "A")):
        assert both(SERVER, query(name, rdtype)).options == ()
        (error,) = both(SERVER, query(name, rdtype, edns=True)).options
        data = error.to_wire() or b""
        assert error.otype == 15
        assert data[2:].decode()
        assert b"\0" not in data[2:]


@pytest.mark.rfc(
    "6891", "6.1.2", "an option of unknown code or odd length is skipped, the others still count"
)
@settings(max_examples=examples(60), deadline=None)
@example(15, b"\0")
@example(18, b"")
@example(22, b"x")
@example(24, b"\xff")
@given(st.integers(12, 65535), st.binary(max_size=64))
def test_unknown_options_hide_no_others(code: int, data: bytes) -> None:
    """An unknown option before or behind a client subnet leaves it in force."""
    subnet = struct.pack("!HHHBB", 8, 7, 1, 24, 0) + b"\x0a\1\2"
    unknown = struct.pack("!HH", code, len(data)) + data
    for options in (unknown + subnet, subnet + unknown):
        assert addresses(both(SERVER, with_opt(opt(options)))) == ["192.0.2.1", "192.0.2.2"]


# --- transports --------------------------------------------------------------------------------------------------


@pytest.mark.rfc(
    "7766", "6.2.1", "a connection serves one query after another, and stays open after an answer"
)
def test_connections_are_reused(port: int) -> None:
    """Errors don't end a connection either."""
    with connect(port) as connection:
        for name in ("chat.demo.test", "example.com", "nope.demo.test", "big.demo.test") * 3:
            connection.sendall(framed(query(name)))
            assert receive(connection).question[0].name.to_text(omit_final_dot=True) == name
        connection.sendall(framed(header(qd=2) + question() * 2))
        assert receive(connection).rcode() == dns.rcode.FORMERR
        connection.sendall(framed(query("v4.demo.test")))
        assert addresses(receive(connection)) == ["192.0.2.4"]


@pytest.mark.rfc("7766", "8", "the two octets of a message's length are sent with the message")
def test_length_and_message_are_one_segment(port: int) -> None:
    """A client that reads once sees all of a short reply."""
    with connect(port) as connection:
        connection.sendall(framed(query("v4.demo.test")))
        data = connection.recv(65535)
    assert len(data) == 2 + int.from_bytes(data[:2], "big")


@pytest.mark.rfc(
    "9210", "3", "TCP is served on the same address and port as UDP, also to clients that never tried UDP"
)
@pytest.mark.rfc("7766", "6.1", "many connections are served at the same time, idle ones among them")
def test_tcp_first_and_in_parallel(port: int) -> None:
    """Idle connections hold up nobody."""
    connections = [connect(port) for _ in range(20)]
    try:
        for connection in reversed(connections):
            connection.sendall(framed(query("v4.demo.test")))
            assert addresses(receive(connection)) == ["192.0.2.4"]
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.rfc("5452", "10", "a reply goes to the port that asked, whichever it is")
def test_replies_go_where_the_query_came_from(port: int) -> None:
    """Clients that draw a port for each query get each reply there."""
    for _ in range(10):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(TIMEOUT)
            sock.connect(("127.0.0.1", port))
            sock.send(query("v4.demo.test"))
            assert addresses(dns.message.from_wire(sock.recv(4096))) == ["192.0.2.4"]
