"""The checks of ISC's EDNS compliance tester, by its public description and RFC 8906 §8.2, over real sockets."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Literal

import dns.edns
import dns.flags
import dns.message
import dns.query
import dns.rcode
import dns.rdatatype
import pytest

from tests.dns.io.test_server import TIMEOUT, connect, framed, receive
from tests.dns.protocol.test_protocol import ecs, header, opt, question

ZONE = "demo.test"
UNKNOWN_OPTION = struct.pack("!HH", 100, 0)
COOKIE = struct.pack("!HH", 10, 8) + bytes(range(8))
NSID = struct.pack("!HH", 3, 0)
EXPIRE = struct.pack("!HH", 9, 0)
DO, UNKNOWN_FLAG = 0x8000, 0x0080


@dataclass(frozen=True, slots=True)
class Query:
    """A query of the tester. `edns` is the version of its OPT; None: it has none."""

    edns: int | None = 0
    options: bytes = b""
    flags: int = 0
    size: int = 4096
    name: str = ZONE
    rdtype: int = dns.rdatatype.SOA

    def ask(self, port: int, transport: Literal["udp", "tcp"] = "udp") -> dns.message.Message:
        """The reply of the server, over a socket."""
        extra = (
            b""
            if self.edns is None
            else opt(self.options, size=self.size, version=self.edns, flags=self.flags)
        )
        packet = bytearray(
            header(qd=1, ar=int(self.edns is not None)) + question(self.name, self.rdtype) + extra
        )
        packet[2] = 0  # +norec
        if transport == "tcp":
            with connect(port) as connection:
                connection.sendall(framed(bytes(packet)))
                return receive(connection)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(TIMEOUT)
            sock.connect(("127.0.0.1", port))
            sock.send(packet)
            reply = sock.recv(65535)
        assert len(reply) <= (512 if self.edns is None else self.size)  # "toobig"
        return dns.message.from_wire(reply)


def soa(reply: dns.message.Message) -> bool:
    """Whether the answer section has the zone's SOA."""
    return any(rrset.rdtype == dns.rdatatype.SOA for rrset in reply.answer)


def options(reply: dns.message.Message) -> dict[int, bytes]:
    """The options of a reply."""
    return {int(option.otype): option.to_wire() or b"" for option in reply.options}


@pytest.mark.rfc("8906", "8.1.1", "plain DNS gets NOERROR, AA and the SOA, without an OPT")
def test_dns(port: int) -> None:
    """The tester's `dns`."""
    reply = Query(edns=None).ask(port)
    assert (reply.rcode(), soa(reply), reply.edns) == (dns.rcode.NOERROR, True, -1)
    assert reply.flags & dns.flags.AA


@pytest.mark.rfc("8906", "8.2.1", "plain EDNS gets NOERROR, the SOA and an OPT of version 0")
@pytest.mark.rfc("8906", "8.2.3", "unknown options are ignored and not echoed")
@pytest.mark.rfc("8906", "8.2.4", "unknown flags are ignored and not echoed")
@pytest.mark.rfc("8906", "8.2.8", "DO comes back")
@pytest.mark.parametrize(
    "query",
    [
        Query(),
        Query(size=512),
        Query(options=UNKNOWN_OPTION),
        Query(flags=UNKNOWN_FLAG),
        Query(flags=DO),
        Query(flags=DO | UNKNOWN_FLAG, options=UNKNOWN_OPTION),
    ],
    ids=["edns", "edns@512", "ednsopt", "ednsflags", "do", "all"],
)
@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_edns(port: int, query: Query, transport: Literal["udp", "tcp"]) -> None:
    """The tester's `edns`, `edns@512`, `ednsopt`, `ednsflags` and `do`, and all at once."""
    reply = query.ask(port, transport)
    assert (reply.rcode(), soa(reply), reply.edns) == (dns.rcode.NOERROR, True, 0)
    assert reply.ednsflags & 0xFFFF == query.flags & DO
    assert 100 not in options(reply)


@pytest.mark.rfc("8906", "8.2.2", "version 1 is BADVERS without the SOA, with an OPT of version 0")
@pytest.mark.rfc("8906", "8.2.5", "likewise with unknown flags, which are not echoed")
@pytest.mark.rfc("8906", "8.2.6", "likewise with unknown options, which are not echoed")
@pytest.mark.rfc("8906", "8.2.9", "likewise with DO, which comes back")
@pytest.mark.parametrize(
    "query",
    [
        Query(edns=1),
        Query(edns=100),
        Query(edns=1, options=UNKNOWN_OPTION),
        Query(edns=1, flags=UNKNOWN_FLAG),
        Query(edns=1, flags=DO),
    ],
    ids=["edns1", "edns100", "edns1opt", "edns1flags", "edns1do"],
)
@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_version_negotiation(port: int, query: Query, transport: Literal["udp", "tcp"]) -> None:
    """The tester's `edns1` and `edns1opt`, and its kin."""
    reply = query.ask(port, transport)
    assert (reply.rcode(), soa(reply), reply.edns) == (dns.rcode.BADVERS, False, 0)
    assert reply.ednsflags & 0xFFFF == query.flags & DO
    assert 100 not in options(reply)


@pytest.mark.rfc("8906", "8.2.7", "a truncated answer fits the size stated, and has TC and an OPT")
def test_truncated_responses(port: int) -> None:
    """What exceeds the size that the query states is cut, not sent and not without its OPT."""
    reply = Query(size=512, flags=DO, name="big.demo.test", rdtype=dns.rdatatype.A).ask(port)
    assert (reply.rcode(), reply.edns) == (dns.rcode.NOERROR, 0)
    assert reply.flags & dns.flags.TC


@pytest.mark.rfc(
    "8906",
    "8.2.7",
    "a key set asked for with DO fits the size stated or is truncated; without keys it is NODATA",
)
def test_dnskey(port: int) -> None:
    """The tester's `edns@512` as it is for zones that may be signed: keys are asked for, with DO and room for 512 octets."""
    reply = Query(size=512, flags=DO, rdtype=dns.rdatatype.DNSKEY).ask(port)
    assert (reply.rcode(), reply.edns) == (dns.rcode.NOERROR, 0)
    assert reply.ednsflags & DO
    whole = Query(size=512, flags=DO, rdtype=dns.rdatatype.DNSKEY).ask(port, "tcp")
    assert bool(whole.answer) is not bool(whole.authority)
    assert bool(reply.flags & dns.flags.TC) or reply.answer == whole.answer


@pytest.mark.rfc("8906", "3.2.6", "with DO a signed zone's answer has signatures, and any other has none")
def test_signatures_are_for_those_who_ask(port: int) -> None:
    """The tester's `signed`: RRSIG with DO where there are keys, never without DO."""
    signed = bool(Query(rdtype=dns.rdatatype.DNSKEY).ask(port).answer)
    for flags in (0, DO):
        types = {rrset.rdtype for rrset in Query(flags=flags).ask(port).answer}
        assert (dns.rdatatype.RRSIG in types) is (signed and bool(flags))


@pytest.mark.rfc("8906", "3.2.7", "EDNS works over TCP, whole answers whatever the size stated")
def test_edns512tcp(port: int) -> None:
    """The tester's `edns512tcp`."""
    reply = Query(size=512, flags=DO, name="big.demo.test", rdtype=dns.rdatatype.A).ask(port, "tcp")
    assert (reply.rcode(), reply.edns) == (dns.rcode.NOERROR, 0)
    assert not reply.flags & dns.flags.TC
    assert [len(rrset) for rrset in reply.answer if rrset.rdtype == dns.rdatatype.A] == [200]


@pytest.mark.rfc("8906", "8.2.10", "several known options at once: NOERROR, the SOA, an OPT")
@pytest.mark.parametrize(
    ("query", "allowed"),
    [
        (Query(flags=DO, options=COOKIE), {10}),
        (Query(flags=DO, options=NSID + EXPIRE + COOKIE), {3, 10}),
        (Query(options=NSID + EXPIRE + COOKIE + ecs(1, 24, 0, b"\x0a\1\2")), {3, 8, 10}),
        (
            Query(options=NSID + UNKNOWN_OPTION + COOKIE + ecs(2, 56, 0, bytes(7)) + UNKNOWN_OPTION),
            {3, 8, 10},
        ),
    ],
    ids=["docookie", "optlist", "optlist with subnet", "optlist with unknown"],
)
def test_option_lists(port: int, query: Query, allowed: set[int]) -> None:
    """The tester's `docookie` and `optlist`: what comes back was asked for, and a cookie begins with the client's."""
    reply = query.ask(port)
    assert (reply.rcode(), soa(reply), reply.edns) == (dns.rcode.NOERROR, True, 0)
    assert reply.ednsflags & 0xFFFF == query.flags & DO
    returned = options(reply)
    assert set(returned) <= allowed
    assert returned.get(10, bytes(range(8)) + bytes(8)).startswith(bytes(range(8)))
    assert len(returned.get(10, bytes(16))) in range(16, 41)
    assert returned.get(8, b"\0\1")[3:4] in (b"", b"\0")


@pytest.mark.rfc("8906", "8.1.3", "CD, AD and the reserved bit don't come back, and change nothing")
@pytest.mark.parametrize("flags", [0x0010, 0x0020, 0x0040], ids=["cdflag", "adflag", "zflag"])
def test_header_bits(port: int, flags: int) -> None:
    """The tester's `cdflag`, `adflag` and `zflag`."""
    packet = bytearray(header(qd=1) + question(ZONE, dns.rdatatype.SOA))
    packet[2:4] = flags.to_bytes(2, "big")
    with connect(port) as connection:
        connection.sendall(framed(bytes(packet)))
        reply = receive(connection)
    assert (reply.rcode(), soa(reply)) == (dns.rcode.NOERROR, True)
    assert not reply.flags & 0x0070


@pytest.mark.rfc("8906", "8.1.3", "RD comes back, RA doesn't")
def test_recursive_queries(port: int) -> None:
    """The tester's `rd`."""
    reply = dns.query.udp(dns.message.make_query(ZONE, "SOA"), "127.0.0.1", TIMEOUT, port)
    assert reply.flags & dns.flags.RD
    assert not reply.flags & dns.flags.RA


@pytest.mark.rfc("8906", "8.1.2", "a type that nobody knows is NODATA")
@pytest.mark.rfc("3597", "3", "unknown types are questions like others: NODATA or NXDOMAIN, never an error")
@pytest.mark.parametrize("rdtype", [666, 1000, 65279, 65534])
def test_unknown_types(port: int, rdtype: int) -> None:
    """The tester's `type666` and `type1000`."""
    reply = Query(name=ZONE, rdtype=rdtype).ask(port)
    assert (reply.rcode(), reply.answer) == (dns.rcode.NOERROR, [])
    assert [rrset.rdtype for rrset in reply.authority] == [dns.rdatatype.SOA]
    assert Query(name=f"nope.{ZONE}", rdtype=rdtype).ask(port).rcode() == dns.rcode.NXDOMAIN


@pytest.mark.rfc("8906", "8.1.4", "an unknown opcode is NOTIMP, without records or any flag but QR")
@pytest.mark.parametrize("recurse", [0, 1])
@pytest.mark.parametrize("opcode", [3, 7, 15])
def test_unknown_opcodes(port: int, opcode: int, recurse: int) -> None:
    """The tester's `opcode` and `opcodeflg`, with nothing behind the header, as it sends them."""
    packet = bytearray(header())
    packet[2] = opcode << 3 | recurse
    with connect(port) as connection:
        connection.sendall(framed(bytes(packet)))
        reply = receive(connection)
    assert (reply.rcode(), reply.opcode()) == (dns.rcode.NOTIMP, opcode)
    assert dns.flags.to_text(reply.flags) == "QR"
    assert [*reply.question, *reply.answer, *reply.authority] == []


@pytest.mark.rfc("8906", "8.1.5", "TCP answers as UDP does")
def test_tcp(port: int) -> None:
    """The tester's `tcp`."""
    by_udp, by_tcp = (Query().ask(port, transport) for transport in ("udp", "tcp"))
    assert by_udp.to_text() == by_tcp.to_text()
