"""Headers, EDNS and client subnets, clause by clause."""

from __future__ import annotations

import struct
from ipaddress import ip_address, ip_network

import dns.edns
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import pytest

from gtm.core.model.requests import Location
from gtm.dns.answer.answerer import Answerer
from gtm.dns.protocol import wire
from gtm.dns.protocol.subnet import Subnet
from gtm.telemetry import Counts
from tests.dns.world import NETWORKS, RESOLVER, addresses, answerer, both, query, router, subnet_of

DE, US = "10.1.2.0/24", "10.2.3.0/24"


def header(**counts: int) -> bytes:
    """The header of a query, with the section counts given."""
    numbers = [counts.get(name, 0) for name in ("qd", "an", "ns", "ar")]
    return struct.pack("!6H", 0x1234, 0x0100, *numbers)


def question(name: str = "chat.demo.test", rdtype: int = 1, rdclass: int = 1) -> bytes:
    """A question in wire form."""
    return dns.name.from_text(name).to_wire() + struct.pack("!HH", rdtype, rdclass)  # type: ignore[operator]


def opt(
    options: bytes = b"", *, size: int = 1232, version: int = 0, flags: int = 0, owner: bytes = b"\0"
) -> bytes:
    """An OPT record."""
    return owner + struct.pack("!HHBBHH", 41, size, 0, version, flags, len(options)) + options


def ecs(family: int, source: int, scope: int, address: bytes) -> bytes:
    """A client subnet option, right or wrong."""
    return struct.pack("!HHHBB", 8, 4 + len(address), family, source, scope) + address


def with_opt(*records: bytes, name: str = "chat.demo.test") -> bytes:
    """A query with the additional records given."""
    return header(qd=1, ar=len(records)) + question(name) + b"".join(records)


def ask(packet: bytes, *, tcp: bool = False) -> dns.message.Message:
    """The reply, the same both ways."""
    return both(answerer(), packet, tcp=tcp)


# --- headers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(12))
def test_packets_without_a_header_are_dropped(size: int) -> None:
    """There is nobody to answer without an id (RFC 1035 §4.1.1)."""
    counts = Counts()
    assert answerer(counts=counts).answer(bytes(size), RESOLVER, tcp=False, draw=0.5) is None
    assert counts["gtm_dns_dropped_total\tshort"] == 1


@pytest.mark.rfc("1035", "4.1.1", "a packet that says it is a response is never answered")
def test_responses_are_dropped() -> None:
    """A packet with QR set is never answered, lest two servers talk for ever (RFC 8906 §3.1)."""
    counts = Counts()
    packet = bytearray(query("chat.demo.test"))
    packet[2] |= 0x80
    assert answerer(counts=counts).answer(bytes(packet), RESOLVER, tcp=False, draw=0.5) is None
    assert counts["gtm_dns_dropped_total\tresponse"] == 1


@pytest.mark.rfc("8906", "3.1.4", "unknown opcodes get NOTIMP, never silence")
@pytest.mark.rfc("6891", "6.1.1", "an OPT gets an OPT in every reply, also with NOTIMP")
@pytest.mark.rfc("2136", "2.2", "UPDATE is answered with NOTIMP")
@pytest.mark.rfc("1996", "3.1", "NOTIFY is answered with NOTIMP")
@pytest.mark.parametrize("opcode", [1, 2, 3, 4, 5, 6, 7, 15])
@pytest.mark.parametrize("edns", [False, True])
def test_other_opcodes_are_not_implemented(opcode: int, edns: bool) -> None:
    """Operations but QUERY get NOTIMP with their opcode (RFC 8906 §3.1.4), and an OPT for an OPT (RFC 6891 §6.1.1)."""
    packet = bytearray(query("chat.demo.test", edns=edns))
    packet[2] = opcode << 3
    reply = answerer().answer(bytes(packet), RESOLVER, tcp=False, draw=0.5)
    assert reply is not None
    assert reply[:4] == packet[:2] + bytes((0x80 | opcode << 3, 4))
    assert reply[10:12] == bytes((0, int(edns)))


@pytest.mark.rfc("9619", "4", "a query with other than one question is FORMERR")
@pytest.mark.parametrize("questions", [0, 2, 3])
def test_one_question_only(questions: int) -> None:
    """A query with any other number of questions is FORMERR (RFC 9619 §4)."""
    reply = answerer().answer(header(qd=questions) + question() * questions, RESOLVER, tcp=False, draw=0.5)
    assert reply == bytes.fromhex("1234 8101 0000 0000 0000 0000")


@pytest.mark.rfc("1035", "4.1.1", "what cannot be read is FORMERR with the query's id")
@pytest.mark.parametrize(
    "packet",
    [
        header(qd=1),
        header(qd=1) + question()[:-1],
        header(qd=1) + b"\x04chat",
        header(qd=1) + b"\x40" + question(),
        header(qd=1) + question() + b"\0",
        header(qd=1, an=1) + question(),
        header(qd=1, ar=1) + question() + opt()[:-1],
        header(qd=1, ar=1) + question() + opt(b"\0\3\0"),
        header(qd=1, ar=65535) + question() + opt(),
        header(qd=1) + b"\xc0\x0c\0\1\0\1",
        header(qd=1) + b"\xc0\xff\0\1\0\1",
    ],
)
def test_malformed_packets_are_format_errors(packet: bytes) -> None:
    """What cannot be read is FORMERR with the query's id (RFC 1035 §4.1.1)."""
    reply = answerer().answer(packet, RESOLVER, tcp=False, draw=0.5)
    assert reply is not None
    assert reply[:4] == bytes.fromhex("12348101")


@pytest.mark.rfc("1035", "4.1.1", "RD is copied, RA is clear, AA is set")
@pytest.mark.rfc("4035", "3.1.6", "AD and CD are clear in authoritative answers")
@pytest.mark.rfc("8906", "3.1.3", "reserved header flags change nothing and are not echoed")
def test_flags() -> None:
    """RD is copied; RA is clear, for there is no recursion; AD and CD are clear (RFC 1035 §4.1.1, RFC 4035 §3.1.6)."""
    for name in ("chat.demo.test", "nope.demo.test"):
        for flags in (0, dns.flags.RD, dns.flags.RD | dns.flags.AD | dns.flags.CD | 0x40 | dns.flags.RA):
            packet = bytearray(query(name))
            packet[2:4] = int(flags).to_bytes(2, "big")
            reply = ask(bytes(packet))
            assert reply.flags & 0xFFF0 == dns.flags.QR | dns.flags.AA | flags & dns.flags.RD


@pytest.mark.rfc("4343", "3", "names match in any case")
@pytest.mark.rfc("4343", "4.1", "the question comes back in its own case (0x20)")
@pytest.mark.parametrize("name", ["ChAt.DeMo.TeSt", "NOPE.demo.TEST", "dEMO.tEST"])
@pytest.mark.parametrize("rdtype", ["A", "AAAA", "SOA", "TXT"])
def test_the_case_of_names_is_kept(name: str, rdtype: str) -> None:
    """Names match in any case, and the question comes back in its own (RFC 4343 §3, §4.1)."""
    packet = query(name, rdtype, edns=True)
    server = answerer()
    for reply in (
        server.answer(packet, RESOLVER, tcp=False, draw=0.5),
        server.answer_fully(packet, RESOLVER, tcp=False, draw=0.5),
    ):
        assert reply is not None
        end = packet.index(b"\0", 12) + 5
        assert reply[12:end] == packet[12:end]
    both(server, packet)


@pytest.mark.rfc("1035", "3.2.4", "classes other than IN have no data here: REFUSED")
@pytest.mark.parametrize("rdclass", [3, 4, 254, 255])
def test_other_classes_are_refused(rdclass: int) -> None:
    """There is data in class IN only (RFC 8906 §3.1.3 on what not to do instead)."""
    reply = ask(header(qd=1) + question(rdclass=rdclass))
    assert reply.rcode() == dns.rcode.REFUSED


@pytest.mark.rfc("5936", "2.2.1", "AXFR is refused")
@pytest.mark.rfc("1995", "2", "IXFR is refused")
@pytest.mark.parametrize("rdtype", [251, 252])
def test_transfers_are_refused(rdtype: int) -> None:
    """AXFR and IXFR are REFUSED (RFC 5936 §2.2.1)."""
    for tcp in (False, True):
        assert ask(header(qd=1) + question("demo.test", rdtype), tcp=tcp).rcode() == dns.rcode.REFUSED


@pytest.mark.rfc("6895", "3.1", "meta types that are no question are FORMERR, obsolete ones NOTIMP")
@pytest.mark.parametrize(("rdtype", "rcode"), [(41, 1), (249, 1), (250, 1), (253, 4), (254, 4)])
def test_types_that_are_no_data(rdtype: int, rcode: int) -> None:
    """OPT, TKEY and TSIG are not asked for; the mail types are obsolete (RFC 6895 §3.1)."""
    assert ask(header(qd=1) + question(rdtype=rdtype)).rcode() == rcode


@pytest.mark.rfc("8945", "5.2", "a server without keys answers unsigned")
def test_a_signature_without_keys_is_ignored() -> None:
    """A server without keys treats TSIG as one more record, and answers unsigned."""
    rdata = (
        dns.name.from_text("hmac-sha256").to_wire() + bytes(6) + struct.pack("!HH", 300, 16)  # type: ignore[operator]
    ) + bytes(16 + 6)
    tsig = b"\3key\0" + struct.pack("!HHIH", 250, 255, 0, len(rdata)) + rdata
    packet = header(qd=1, ar=1) + question() + tsig
    assert addresses(ask(packet)) == ["192.0.2.4"]


# --- EDNS (RFC 6891) -----------------------------------------------------------------------------------------------


@pytest.mark.rfc("6891", "6.1.1", "a query without OPT gets a reply without")
def test_no_opt_without_an_opt() -> None:
    """A client without EDNS gets none (RFC 6891 §6.1.1)."""
    assert ask(query("chat.demo.test")).edns == -1


@pytest.mark.rfc("6891", "6.1.1", "a query with OPT gets a reply with one")
@pytest.mark.rfc("6891", "6.2.4", "the OPT states our own payload size, and version 0")
@pytest.mark.parametrize("name", ["chat.demo.test", "nope.demo.test", "example.com", "demo.test"])
def test_an_opt_gets_ours(name: str) -> None:
    """An OPT is answered with our own: version 0, size 1232 (RFC 6891 §6.1.1, §6.2.4)."""
    reply = ask(with_opt(opt(size=4096), name=name))
    assert (reply.edns, reply.payload) == (0, 1232)


@pytest.mark.rfc("3225", "3", "DO comes back as it was")
@pytest.mark.rfc("9824", "5.1", "CO comes back as it was")
@pytest.mark.rfc("6891", "6.1.4", "unknown flags are ignored and not echoed")
@pytest.mark.parametrize("flags", [0, 0x8000, 0x4000, 0x0001, 0xFFFF])
def test_do_and_co_are_copied_and_other_flags_are_not(flags: int) -> None:
    """DO and CO come back as they were (RFC 3225 §3, RFC 9824 §5.1); unknown flags don't (RFC 6891 §6.1.4)."""
    for name in ("chat.demo.test", "nope.demo.test"):
        assert ask(with_opt(opt(flags=flags), name=name)).ednsflags & 0xFFFF == flags & 0xC000


@pytest.mark.rfc("6891", "6.1.3", "a version above 0 is BADVERS, with an OPT of version 0 and no answer")
@pytest.mark.parametrize("version", [1, 7, 255])
def test_unknown_versions(version: int) -> None:
    """A version above 0 is BADVERS whatever its options hold, with an OPT of version 0 (RFC 6891 §6.1.3)."""
    for options in (b"", b"\0\x08\0\1x"):
        reply = ask(with_opt(opt(options, version=version)))
        assert reply.rcode() == dns.rcode.BADVERS
        assert reply.edns == 0
        assert not reply.answer
        assert not reply.flags & dns.flags.AA


@pytest.mark.parametrize("code", [3, 10, 11, 12, 4, 100, 65001])
def test_unknown_options_are_ignored(code: int) -> None:
    """Options that we don't serve are not errors and don't come back (RFC 6891 §6.1.2)."""
    data = bytes(8)
    for more in (b"", ecs(1, 24, 0, b"\x0a\1\2")):
        reply = ask(with_opt(opt(struct.pack("!HH", code, len(data)) + data + more)))
        assert reply.rcode() == dns.rcode.NOERROR
        assert [option.otype for option in reply.options] == ([8] if more else [])


@pytest.mark.rfc("6891", "6.1.1", "more than one OPT, or one that is broken, is FORMERR")
@pytest.mark.rfc("6891", "7", "FORMERR for an OPT carries an OPT")
@pytest.mark.parametrize(
    "records",
    [
        (opt(), opt()),
        (opt(b"\0\x08"),),
        (opt(b"\0\x08\0\xff\0"),),
        (opt(owner=b"\1x\0"),),
        (opt(b"\0\x0a\0\x04abcd"),),
    ],
    ids=["two", "cut short", "option too long", "owner not root", "cookie of 4 bytes"],
)
def test_a_wrong_opt_is_a_format_error_with_an_opt(records: tuple[bytes, ...]) -> None:
    """What is wrong with an OPT is FORMERR, with an OPT to show that EDNS itself is known (RFC 6891 §6.1.1, §7)."""
    reply = ask(with_opt(*records))
    assert reply.rcode() == dns.rcode.FORMERR
    assert reply.edns == 0


@pytest.mark.rfc("1035", "4.2.1", "UDP without EDNS carries 512 octets at most")
@pytest.mark.rfc("6891", "6.2.5", "no answer over UDP is longer than the client's size")
@pytest.mark.rfc("2181", "9", "a set is whole or not there: TC and no part of it")
@pytest.mark.rfc("9715", "3.1", "no answer over UDP is longer than 1232 octets")
@pytest.mark.parametrize(
    ("size", "truncated"), [(None, True), (0, True), (512, True), (1232, True), (4096, True)]
)
def test_long_answers_are_truncated_over_udp(size: int | None, truncated: bool) -> None:
    """Answers over UDP are at most 512 bytes, or what the OPT states up to 1232; past it TC, and no part of the set.

    RFC 1035 §4.2.1; RFC 6891 §6.2.3–5; RFC 2181 §9.
    """
    packet = header(qd=1) + question("big.demo.test")
    if size is not None:
        packet = with_opt(opt(ecs(1, 24, 0, b"\x0a\1\2"), size=size), name="big.demo.test")
    reply = ask(packet)
    assert bool(reply.flags & dns.flags.TC) is truncated
    assert not reply.answer
    assert subnet_of(reply) == (None if size is None else ("10.1.2.0", 24, 16))


@pytest.mark.rfc("7766", "8", "the payload size of an OPT does not limit TCP")
def test_long_answers_are_whole_over_tcp() -> None:
    """TCP takes all of it, whatever the OPT says of UDP (RFC 7766 §8)."""
    reply = ask(with_opt(opt(size=512), name="big.demo.test"), tcp=True)
    assert len(addresses(reply)) == 200
    assert not reply.flags & dns.flags.TC


@pytest.mark.rfc("6891", "6.2.5", "the limit is the whole message's, OPT included")
def test_one_byte_decides() -> None:
    """The limit is the whole message's, OPT included."""
    whole = answerer().answer(with_opt(opt(), name="half.demo.test"), RESOLVER, tcp=True, draw=0.5)
    assert whole is not None
    size = len(whole)
    assert 512 < size < 1232
    assert not ask(with_opt(opt(size=size), name="half.demo.test")).flags & dns.flags.TC
    assert ask(with_opt(opt(size=size - 1), name="half.demo.test")).flags & dns.flags.TC


@pytest.mark.rfc("6891", "6.2.3", "sizes below 512 count as 512")
@pytest.mark.parametrize(("stated", "limit"), [(0, 512), (511, 512), (700, 700), (65535, 1232)])
def test_udp_limits(stated: int, limit: int) -> None:
    """Sizes below 512 count as 512 (RFC 6891 §6.2.3), and ours is the most."""
    assert wire.udp_limit(stated) == limit


# --- client subnet (RFC 7871) ------------------------------------------------------------------------------------------


@pytest.mark.rfc("7871", "7.2.1", "a wrongly formatted option (an unknown family, 0 included) is FORMERR")
@pytest.mark.rfc("7871", "6", "too few or too many octets of address are FORMERR")
@pytest.mark.rfc("7871", "6", "bits set beyond the source prefix are FORMERR")
@pytest.mark.rfc("7871", "6", "a scope in a query, which must be 0, is FORMERR")
@pytest.mark.rfc("7871", "6", "a prefix longer than the family's addresses is FORMERR")
@pytest.mark.parametrize(
    "option",
    [
        ecs(0, 0, 0, b""),
        ecs(3, 0, 0, b""),
        ecs(3, 24, 0, b"\x0a\1\2"),
        ecs(65535, 8, 0, b"\x0a"),
        ecs(1, 33, 0, b"\x0a\1\2\3\0"),
        ecs(2, 129, 0, bytes(17)),
        ecs(1, 24, 24, b"\x0a\1\2"),
        ecs(1, 0, 1, b""),
        ecs(1, 24, 0, b"\x0a\1"),
        ecs(1, 24, 0, b"\x0a\1\2\0"),
        ecs(1, 0, 0, b"\0"),
        ecs(1, 24, 0, b""),
        ecs(2, 48, 0, bytes(5)),
        ecs(1, 20, 0, b"\x0a\1\x01"),
        ecs(1, 1, 0, b"\x40"),
        ecs(2, 47, 0, b"\x20\x01\x0d\xb8\0\1"),
        b"\0\x08\0\0",
        b"\0\x08\0\3\0\1\x18",
        ecs(1, 24, 0, b"\x0a\1\2") * 2,
    ],
)
def test_wrong_client_subnets_are_format_errors(option: bytes) -> None:
    """A client subnet that is wrong is FORMERR with an OPT, without a client subnet.

    An unknown family (RFC 7871 §7.2.1); a scope in a query, a prefix longer than the family's addresses, too few or too
    many octets, bits beyond the prefix (all §6); two options.
    """
    for name in ("chat.demo.test", "demo.test"):
        reply = ask(with_opt(opt(option), name=name))
        assert reply.rcode() == dns.rcode.FORMERR
        assert reply.edns == 0
        assert not reply.options


@pytest.mark.rfc("7871", "7.2.1", "family, source prefix length and address come back as they were")
@pytest.mark.rfc(
    "7871",
    "7.2.1",
    "the scope is the network that the answer is for, wider or narrower than the one asked about",
)
@pytest.mark.parametrize(
    ("subnet", "scope", "region"),
    [
        ("10.1.2.0/24", 16, "eu"),
        ("10.1.0.0/16", 16, "eu"),
        ("10.1.2.3/32", 16, "eu"),
        ("10.2.0.0/24", 15, "us"),
        ("10.3.255.0/24", 15, "us"),
        ("10.4.7.0/24", 26, "ie"),
        ("10.4.7.0/28", 26, "ie"),
        ("10.1.0.0/9", 9, "unknown"),
        ("2001:db8:1:aa00::/56", 48, "eu"),
        ("2001:db8:3::/48", 47, "us"),
        ("2001:db8:1::/128", 48, "eu"),
    ],
)
def test_scopes(subnet: str, scope: int, region: str) -> None:
    """Family, source and address come back; the scope is the network for which the answer holds (RFC 7871 §7.2.1).

    It may be wider or narrower than the network asked about.
    """
    expected = {"eu": "192.0.2.1", "us": "192.0.2.4", "ie": "192.0.2.3", "unknown": "192.0.2.1"}[region]
    packet = query("chat.demo.test", subnet=subnet)
    reply = ask(packet)
    assert addresses(reply)[0] == expected
    asked = dns.message.from_wire(packet).options[0].to_wire()
    returned = reply.options[0].to_wire()
    assert asked is not None
    assert returned == asked[:3] + bytes((scope,)) + asked[4:]


@pytest.mark.rfc("7871", "7.2.1", "scopes don't overlap: no tailored answer lies inside another's scope")
def test_clients_of_one_scope_get_one_answer() -> None:
    """Whoever is inside the scope of an answer would have got the same answer (RFC 7871 §7.2.1)."""
    seen: dict[tuple[str, int], list[str]] = {}
    for second in range(10):
        for third in (0, 7, 8, 200):
            reply = ask(query("chat.demo.test", subnet=f"10.{second}.{third}.0/24"))
            returned = subnet_of(reply)
            assert returned is not None
            scope = returned[2]
            number = int.from_bytes(bytes((10, second, third, 0)), "big") >> 32 - scope << 32 - scope
            answer = addresses(reply)
            assert seen.setdefault((hex(number), scope), answer) == answer
    starts = [(int(start, 16), scope) for start, scope in seen]
    for start, scope in starts:
        inside = [item for item in starts if item[1] > scope and item[0] >> 32 - scope == start >> 32 - scope]
        assert not inside  # scopes never overlap (§7.2.1)


@pytest.mark.rfc(
    "7871", "7.2.1", "where the client cannot be located, the answer is for the network asked about alone"
)
@pytest.mark.parametrize(
    ("location", "scope"),
    [
        (Location(), 24),
        (Location("DE", network="10.0.0.0/8", prefix_length=8), 8),
        (Location("DE", network="10.1.2.128/25", prefix_length=25), 25),
        (Location("DE", network="10.1.2.0/99", prefix_length=99), 32),
        (Location("DE", network="2001:db8::/32", prefix_length=32), 24),
        (Location(network="0.0.0.0/0", prefix_length=0), 0),
    ],
)
def test_scope_of_odd_locations(location: Location, scope: int) -> None:
    """A location without a network of the client's family speaks for the network asked about and no other."""
    assert Subnet(1, 24, b"\x0a\1\2").scope(location) == scope


@pytest.mark.rfc(
    "7871",
    "7.3.1",
    "an answer may be given to all of the source prefix, so it keeps every client in it inside its fence",
)
@pytest.mark.parametrize(
    ("subnet", "expected"),
    [
        ("10.2.0.0/15", "192.0.2.4"),  # all of it in the US
        ("10.8.0.0/16", "192.0.2.4"),  # all of it in Japan
        ("10.8.0.0/13", "192.0.2.1"),  # Japan and the unknown
        ("10.32.0.0/16", "192.0.2.4"),  # 256 networks of the US
        ("10.32.0.0/15", "192.0.2.1"),  # more than are looked at
        ("10.40.0.0/24", "192.0.2.4"),  # two networks of the US
        ("10.40.0.0/23", "192.0.2.1"),  # the US and Ireland
        ("2001:db8:2::/47", "192.0.2.4"),
        ("2001:db8:4::/46", "192.0.2.4"),  # the US in two networks
        ("2001:db8:8::/45", "192.0.2.1"),  # the US and the unknown
        ("::ffff:10.2.0.0/111", "192.0.2.4"),
        ("::ffff:10.8.0.0/109", "192.0.2.1"),
    ],
)
def test_an_answer_is_lawful_for_all_of_the_network_asked_about(subnet: str, expected: str) -> None:
    """Resolvers keep an answer for the whole source prefix (RFC 7871 §7.3.1)."""
    table = {
        **{network: country for network, (country, _, _) in NETWORKS.items()},
        **{f"10.{second}.{third}.0/24": "US" for second in (32, 33) for third in range(256)},
        "10.40.0.0/25": "US",
        "10.40.0.128/25": "US",
        "10.40.1.0/24": "IE",
        **{f"2001:db8:{block}::/47": "US" for block in (4, 6, 8)},
    }

    def where(address: str | bytes) -> Location:
        host = ip_address(address)
        host = getattr(host, "ipv4_mapped", None) or host
        for text, country in table.items():
            if host in ip_network(text):
                length = ip_network(text).prefixlen
                return Location(country, lat=39.0, lon=-77.5, network=text, prefix_length=length)
        return Location(network=str(ip_network((host, 24), strict=False)), prefix_length=24)

    reply = both(Answerer(router("ie"), where, Counts()), query("chat.demo.test", subnet=subnet))
    assert addresses(reply)[0] == expected


@pytest.mark.rfc(
    "7871", "7.1.2", "a source prefix length of 0 hides the client: the resolver's own address decides"
)
@pytest.mark.rfc("7871", "7.2.1", "the scope of an answer to source 0 is 0")
@pytest.mark.parametrize("family", [1, 2])
def test_a_source_of_zero_keeps_the_client_out_of_it(family: int) -> None:
    """With SOURCE PREFIX-LENGTH 0 the resolver's own address decides, and the scope is 0 (RFC 7871 §7.1.2, §7.2.1)."""
    packet = with_opt(opt(ecs(family, 0, 0, b"")))
    for client, expected in (("10.1.0.53", "192.0.2.1"), ("10.3.0.53", "192.0.2.4")):
        reply = both(answerer(), packet, client=client)
        assert addresses(reply)[0] == expected
        assert subnet_of(reply) == ("0.0.0.0" if family == 1 else "::", 0, 0)


@pytest.mark.rfc(
    "7871",
    "7.2.1",
    "no option without one in the query, though the answer is tailored by the resolver's address",
)
@pytest.mark.rfc("7871", "11.1", "without the option the source of the query may tailor the answer")
def test_without_a_client_subnet_the_resolver_is_the_client() -> None:
    """A query without the option gets an answer without it, for where the query came from (RFC 7871 §7.2.1)."""
    for edns in (False, True):
        for client, expected in (("10.1.0.53", "192.0.2.1"), ("2001:db8:2::53", "192.0.2.4")):
            reply = both(answerer(), query("chat.demo.test", edns=edns), client=client)
            assert addresses(reply)[0] == expected
            assert subnet_of(reply) is None


def test_the_client_subnet_counts_and_not_the_resolver() -> None:
    """The option is about the client, wherever its resolver is."""
    reply = both(answerer(), query("chat.demo.test", subnet=DE), client="10.3.0.53")
    assert addresses(reply)[0] == "192.0.2.1"


def test_usual_queries_take_the_short_way() -> None:
    """Addresses of services with the options that resolvers send don't go through the full way."""
    counts = Counts()
    server = answerer(counts=counts)
    cookie = struct.pack("!HH", 10, 8) + bytes(8)
    for packet in (
        query("chat.demo.test"),
        query("CHAT.demo.test", "AAAA"),
        query("web.demo.test", subnet=US),
        with_opt(opt(cookie + ecs(2, 56, 0, bytes(7)))),
        with_opt(opt(struct.pack("!HH", 12, 3) + bytes(3), flags=0x8000)),
    ):
        assert server.answer(packet, RESOLVER, tcp=False, draw=0.5) is not None
    assert not [key for key in counts if key.startswith("gtm_dns_full_way_total")]
