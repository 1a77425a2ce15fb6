"""What holds for every packet."""

from __future__ import annotations

import struct
from ipaddress import ip_address, ip_network
from itertools import combinations
from operator import attrgetter

import dns.flags
import dns.message
import dns.name
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gtm.core.decision.router import Router
from gtm.core.decision.view import Window, view_of
from gtm.core.model.names import absolute
from gtm.core.model.requests import Location
from gtm.core.model.services import Service
from gtm.core.model.state import EndpointHealth, HealthStatus, State
from gtm.core.policy.compile import compile_policy
from gtm.dns.answer.answerer import Answerer
from gtm.telemetry import Counts
from tests.dns.world import (
    EU,
    IE,
    NETWORKS,
    POLICY,
    RECORDS,
    REGIONS,
    addresses,
    answerer,
    both,
    locate,
    query,
    router,
    subnet_of,
)
from tests.effort import examples

SERVERS = [answerer(), answerer("eu", "ie"), answerer("us", "jp"), answerer("eu", "ie", "us", "jp", "big")]

BELOW = [
    *(
        "x.any",
        "x.y.any",
        "*.any",
        "x.here.any",
        "ent.any",
        "x.ent.any",
        "any",
        "x.alias-any",
        "x.wild",
        "a.b.wild",
    ),
    *(
        "x.own.wild",
        "_8443._https.x.wild",
        "x.lab",
        "ns1.lab",
        "a.ns1.lab",
        "x.plain.cuts",
        "cuts",
        "ent",
        "x.www",
    ),
]
"""Names that wildcards, delegations and empty non-terminals of demo.test answer for, or do not."""
NAMES = st.one_of(
    st.sampled_from([host for service in POLICY.services for host in service.hostnames]),
    st.sampled_from([zone.name for zone in POLICY.zones]),
    st.sampled_from(
        ["nope.demo.test", "b.deep.demo.test", "ns1.demo.test", "example.com", ".", "x.sub.demo.test"]
    ),
    st.sampled_from(sorted({f"{absolute(record.name, 'demo.test')}" for record in RECORDS})),
    st.sampled_from([f"{name}.demo.test" for name in BELOW]),
)
TYPES = st.one_of(st.sampled_from([1, 28, 5, 16, 6, 2, 255, 252, 43, 65]), st.integers(0, 65535))


@st.composite
def subnets(draw: st.DrawFn) -> bytes:
    """A client subnet option, mostly right."""
    family = draw(st.sampled_from([1, 1, 1, 2, 2, 0, 3]))
    size = 16 if family == 2 else 4
    network = draw(st.sampled_from(list(NETWORKS))).split("/")[0]
    base = bytes(int(part) for part in network.split(".")) if "." in network else b"\x20\x01\x0d\xb8\0\1"
    source = draw(st.integers(0, size * 8 + 2))
    octets = draw(st.sampled_from([(source + 7) // 8] * 6 + [size]))
    address = bytearray((base + draw(st.binary(max_size=16)) + bytes(20))[:octets])
    if address and source % 8 and draw(st.integers(0, 9)):
        address[-1] &= 0xFF00 >> source % 8 & 0xFF
    scope = draw(st.sampled_from([0] * 9 + [24]))
    return struct.pack("!HHHBB", 8, 4 + len(address), family, source, scope) + bytes(address)


OPTIONS = st.one_of(
    subnets(),
    st.tuples(st.sampled_from([3, 10, 11, 12, 15, 18, 65001]), st.binary(max_size=24)).map(
        lambda item: struct.pack("!HH", item[0], len(item[1])) + item[1]
    ),
    st.binary(max_size=5),
)


@st.composite
def packets(draw: st.DrawFn) -> bytes:
    """A query built to pass, in most of its parts."""
    name = dns.name.from_text(draw(NAMES)).to_wire()
    assert name is not None
    flips = draw(st.integers(0, 2**16))
    cased = bytes(
        byte ^ 0x20 if chr(byte).isalpha() and flips >> index % 16 & 1 else byte
        for index, byte in enumerate(name)
    )
    flags = draw(st.sampled_from([0x0000, 0x0100, 0x0110, 0x0120, 0x01F0, 0x0700, 0x0103, 0x2100]))
    opts = draw(st.sampled_from([0, 1, 1, 1, 1, 2]))
    records = b""
    for _ in range(opts):
        options = b"".join(draw(st.lists(OPTIONS, max_size=3)))
        size = draw(st.sampled_from([0, 512, 600, 1232, 4096, 65535]))
        version = draw(st.sampled_from([0] * 9 + [1]))
        edns_flags = draw(st.sampled_from([0, 0x8000, 0x4000]))
        records += struct.pack("!BHHBBHH", 0, 41, size, 0, version, edns_flags, len(options)) + options
    rdclass = draw(st.sampled_from([1] * 9 + [3]))
    body = cased + struct.pack("!HH", draw(TYPES), rdclass)
    return struct.pack("!6H", draw(st.integers(0, 65535)), flags, 1, 0, 0, opts) + body + records


CLIENTS = st.sampled_from(
    ["10.1.0.1", "10.2.0.1", "10.4.7.9", "203.0.113.9", "2001:db8:1::1", "2001:db8:ffff::1"]
)
UNIT = st.floats(0, 1, exclude_max=True)


@settings(max_examples=examples(600), deadline=None)
@given(packets(), CLIENTS, st.booleans(), UNIT, st.sampled_from(SERVERS))
def test_both_ways_agree(packet: bytes, client: str, tcp: bool, draw: float, server: Answerer) -> None:
    """The short way, where it answers, says what the full way says."""
    reply = server.answer(packet, client, tcp=tcp, draw=draw)
    slow = server.answer_fully(packet, client, tcp=tcp, draw=draw)
    if reply is None or slow is None:
        assert reply is slow
        return
    assert reply[:12] == slow[:12]
    if reply != slow:  # only compression differs, and with it perhaps the case of names in the data
        assert dns.message.from_wire(reply).to_text().lower() == dns.message.from_wire(slow).to_text().lower()


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(packets(), min_size=1, max_size=3), CLIENTS, UNIT, st.data())
def test_remembered_replies_are_those_of_the_first_time(
    asked: list[bytes], client: str, drawn: float, data: st.DataObject
) -> None:
    """A query that comes again, with another id or from another client, gets what it would have got at first."""
    source = data.draw(st.sampled_from(SERVERS))
    counts = Counts()
    server = Answerer(source.router, locate, counts, draw=lambda: drawn)
    for packet in data.draw(st.lists(st.sampled_from(asked), min_size=2, max_size=6)):
        again = data.draw(st.binary(min_size=2, max_size=2)) + packet[2:]
        sender = data.draw(st.sampled_from([client, "10.1.0.1"]))
        assert server.udp(again, sender) == server.answer(again, sender, tcp=False, draw=drawn)
    taken = counts.take()
    assert all(count % 2 == 0 for count in taken.values())


def check_reply(packet: bytes, reply: bytes | None) -> None:
    """A reply is one: to this packet, readable, and not longer than its transport."""
    if reply is None:
        assert len(packet) < 12 or packet[2] & 0x80
        return
    assert len(packet) >= 12
    assert reply[:2] == packet[:2]
    assert reply[2] & 0x80
    assert reply[2] & 0x78 == packet[2] & 0x78
    assert reply[2] & 1 == (0 if packet[2] & 0x78 else packet[2] & 1)  # RD means something in queries alone
    assert not reply[3] & 0xF0
    assert len(reply) <= 1232
    dns.message.from_wire(reply)


@settings(max_examples=examples(400), deadline=None)
@given(st.binary(max_size=200), CLIENTS)
@example(bytes(12), "10.1.0.1")
@example(b"\0\0\0\0\0\1\0\0\0\0\0\0" + b"\xc0\x0c\0\1\0\1", "10.1.0.1")
@example(b"\0\0\0\0\0\1\0\0\0\0\0\1" + b"\0\0\1\0\1" + b"\xc0\x11" + bytes(10), "10.1.0.1")
def test_random_bytes_are_answered_or_dropped(packet: bytes, client: str) -> None:
    """Nothing that comes in raises."""
    check_reply(packet, SERVERS[0].answer(packet, client, tcp=False, draw=0.5))


@settings(max_examples=examples(800), deadline=None)
@given(
    packets(),
    st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=3)), max_size=4),
    st.data(),
)
def test_mutated_queries_are_answered_or_dropped(
    packet: bytes, changes: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    """Queries with bytes overwritten, cut off or put in never raise."""
    mutated = bytearray(packet)
    for at, patch in changes:
        start = at % len(mutated)
        end = start + data.draw(st.sampled_from([0, len(patch), len(patch)]))
        mutated[start:end] = patch
    cut = data.draw(st.integers(0, len(mutated)) | st.just(len(mutated)))
    mutated = mutated[:cut]
    for server in SERVERS[:2]:
        check_reply(bytes(mutated), server.answer(bytes(mutated), "10.1.0.1", tcp=False, draw=0.5))


FENCED = {address for region in (EU, IE) for end in region.endpoints for address in (*end.ipv4, *end.ipv6)}
ALLOWED = FENCED | {"192.0.2.250", "2001:db8::250"}
SNAPSHOT = compile_policy(POLICY, ())
URLS = [(region.name, endpoint.url) for region in REGIONS for endpoint in region.endpoints]


@settings(max_examples=examples(400), deadline=None)
@given(
    st.lists(st.sampled_from(HealthStatus), min_size=len(URLS), max_size=len(URLS)),
    st.sampled_from(["10.1.2.0/24", "10.4.7.0/24", "203.0.113.0/24", "2001:db8:1::/56", "10.1.0.0/0", None]),
    st.sampled_from(["A", "AAAA"]),
    st.sampled_from(["10.1.0.53", "10.4.7.1", "203.0.113.53", "2001:db8:1::53"]),
    UNIT,
)
def test_the_fence_holds_in_packets(
    statuses: list[HealthStatus], subnet: str | None, rdtype: str, client: str, draw: float
) -> None:
    """A client in the EEA, or from nowhere known, never receives an address outside it, whatever is up or down."""
    health: dict[str, dict[str, EndpointHealth]] = {}
    for (region, url), status in zip(URLS, statuses, strict=True):
        health.setdefault(region, {})[url] = EndpointHealth(status)
    router = Router(view_of(SNAPSHOT, State(health=health), Window(0.0, 0.0)))
    server = Answerer(router, locate, Counts())
    packet = query("chat.demo.test", rdtype, subnet=subnet)
    for reply in (
        server.answer(packet, client, tcp=False, draw=draw),
        server.answer_fully(packet, client, tcp=False, draw=draw),
    ):
        assert reply is not None
        message = dns.message.from_wire(reply)
        assert set(addresses(message)) <= ALLOWED


@pytest.mark.parametrize("service", POLICY.services, ids=attrgetter("name"))
def test_a_name_that_exists_is_never_refused_by_an_empty_answer(service: Service) -> None:
    """Whatever is down, A is addresses or SERVFAIL, and never NXDOMAIN or NODATA."""
    names = [member.region for member in service.members]
    for count in range(len(names) + 1):
        for down in combinations(names, count):
            server = answerer(*down)
            for client in ("10.1.0.1", "10.2.0.1"):
                packet = query(service.hostnames[0])
                reply = server.answer(packet, client, tcp=True, draw=0.5)
                assert reply is not None
                message = dns.message.from_wire(reply)
                assert message.rcode() == 2 or message.answer


@pytest.mark.parametrize("order", ["10.2.0.0/24 10.3.0.0/24", "10.3.0.0/24 10.2.0.0/24"])
def test_clients_who_hide_are_told_from_their_neighbours(order: str) -> None:
    """Of two networks in one place, that of a VPN stays inside the fence, whichever asks first, with its own scope."""

    def hiding(address: str | bytes) -> Location:
        found = locate(address)
        if ip_address(address) not in ip_network("10.3.0.0/16"):
            return found._replace(network="10.2.0.0/16", prefix_length=16)
        return found._replace(network="10.3.0.0/16", prefix_length=16, anonymous=True)

    server = Answerer(router(), hiding, Counts())
    for subnet in order.split() * 2:
        message = both(server, query("chat.demo.test", subnet=subnet))
        hidden = subnet.startswith("10.3.")
        assert (set(addresses(message)) <= FENCED) is hidden
        assert subnet_of(message) == (subnet.split("/")[0], 24, 16)


def test_answers_outlive_what_is_remembered() -> None:
    """The short way's answers stay right past the limit of its memory, and those it met last stay remembered."""
    server = answerer()
    server.questions.limit = 2
    asked = [
        (query(f"{name}.demo.test"), client) for name in ("chat", "v4") for client in ("10.1.0.1", "10.2.0.1")
    ]
    for _ in range(3):
        for packet, client in asked:
            reply = server.udp(packet, client)
            assert reply is not None
            assert reply == server.answer_fully(packet, client, tcp=False, draw=0.0)
    assert sum(len(question.audiences) for question in server.questions.by_wire.values()) <= 2
