"""Names that clients make up cost what they are long, in replies too (RFC 1035 §4.1.4)."""

from __future__ import annotations

from unittest.mock import patch

import dns.message
import dns.name
import pytest

from gtm.dns.protocol import wire
from tests.dns.world import answerer

_ZONE = b"\4demo\4test\0"


def _query(name: bytes, rdtype: int = wire.A) -> bytes:
    return bytes.fromhex("123401000001000000000000") + name + rdtype.to_bytes(2) + b"\0\1"


@pytest.mark.parametrize("label", [b"\1\0", b"\2\0\0", b"\1a", b"\1*", b"\1\xff"])
def test_a_name_is_compared_and_hashed_a_few_times(label: bytes) -> None:
    """All that begin with labels of zero bytes have one hash in dnspython, which compared 10,000 pairs of 220 bytes' ends."""
    server = answerer()
    name = label * (220 // len(label)) + b"\4chat" + _ZONE
    compared = hashed = 0
    compare, hash_of = dns.name.Name.fullcompare, dns.name.Name.__hash__

    def comparing(self: dns.name.Name, other: dns.name.Name) -> object:
        nonlocal compared
        compared += 1
        return compare(self, other)

    def hashing(self: dns.name.Name) -> int:
        nonlocal hashed
        hashed += 1
        return hash_of(self)

    with (
        patch.object(dns.name.Name, "fullcompare", comparing),
        patch.object(dns.name.Name, "__hash__", hashing),
    ):
        reply = server.answer_fully(_query(name), "127.0.0.1", tcp=False, draw=0.5)
    assert reply is not None
    assert reply[12 : 12 + len(name)] == name
    assert dns.message.from_wire(reply).rcode() == wire.NXDOMAIN
    assert compared < 200, compared
    assert hashed < 100, hashed


@pytest.mark.parametrize("labels", [1, 3, 15, 16, 17, 40, 100])
def test_names_of_any_depth_are_read_as_they_were_meant(labels: int) -> None:
    """By dnspython and by the short way: the question in its own spelling, owners and all, wherever pointers lead."""
    server = answerer()
    name = b"\1Q" * labels + b"\3any" + _ZONE
    for rdtype in (wire.TXT, wire.MX, wire.A):
        query = _query(name, rdtype)
        reply = server.answer_fully(query, "127.0.0.1", tcp=True, draw=0.5)
        short = server.answer(query, "127.0.0.1", tcp=True, draw=0.5)
        assert reply is not None
        assert short is not None
        assert dns.message.from_wire(reply) == dns.message.from_wire(short)
        assert reply[12 : 12 + len(name)] == name
        assert b"\xc0\x0c" in reply[12 + len(name) :] or rdtype == wire.A, "the owner points to the question"
