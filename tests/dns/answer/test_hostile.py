"""What no client sends: never an exception, never silence where a reply is due, never memory that grows."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dns.message
import dns.rcode
import pytest

from gtm.core.model.requests import Location
from gtm.dns.answer import clients
from gtm.dns.answer.answerer import Answerer
from gtm.dns.answer.clients import Clients
from gtm.dns.io.limiter import Limiter, RateLimits
from gtm.dns.protocol import wire
from gtm.dns.protocol.cookies import ServerCookies
from gtm.dns.protocol.subnet import Subnet
from gtm.telemetry import Counts
from tests.dns.hostile import CRAFTED, OPTIONS, noise, seeds
from tests.dns.io.test_server import connect, framed, receive, respond
from tests.dns.serving import TIMEOUT, BoundServer, running
from tests.dns.world import RESOLVER, addresses, locate, query, router
from tests.tools import tool

SERVER = Answerer(router(), locate, Counts(), options=OPTIONS)
GOOD = query("v4.demo.test", subnet="10.2.0.0/24")
ROOT = Path(__file__).parents[3]


@pytest.mark.rfc("1035", "4.1.4", "compression pointers that loop or lead outside are format errors")
@pytest.mark.rfc("1035", "2.3.4", "names over 255 and labels over 63 octets are format errors")
@pytest.mark.parametrize("what", CRAFTED)
@pytest.mark.parametrize("tcp", [False, True])
def test_crafted_packets(what: str, tcp: bool) -> None:
    """Each is answered by a readable reply, the same both ways, with nothing of an answer that is not due."""
    packet = CRAFTED[what]
    reply = SERVER.answer(packet, RESOLVER, tcp=tcp, draw=0.5)
    slow = SERVER.answer_fully(packet, RESOLVER, tcp=tcp, draw=0.5)
    if packet[2] & 0x80:
        assert reply is slow is None
        return
    assert reply is not None
    assert slow is not None
    assert reply[:12] == slow[:12]
    message = dns.message.from_wire(reply)
    assert message.id == 0x1234
    assert tcp or len(reply) <= wire.UDP_PAYLOAD


@pytest.mark.parametrize(
    ("what", "rcode"),
    [
        ("a name of 255 octets", dns.rcode.REFUSED),
        ("a name of 256 octets", dns.rcode.FORMERR),
        ("127 labels", dns.rcode.REFUSED),
        ("128 labels", dns.rcode.FORMERR),
        ("a label of 63 octets", dns.rcode.REFUSED),
        ("a label of 64 octets", dns.rcode.FORMERR),
        ("zero bytes in labels", dns.rcode.NXDOMAIN),
        ("many options", dns.rcode.FORMERR),
        ("one long option", dns.rcode.NOERROR),
        ("thousands of OPTs", dns.rcode.FORMERR),
        ("many cookies", dns.rcode.NOERROR),
    ],
)
def test_limits(what: str, rcode: dns.rcode.Rcode) -> None:
    """What is within the limits of DNS is answered, and what is beyond is a format error."""
    reply = SERVER.answer(CRAFTED[what], RESOLVER, tcp=True, draw=0.5)
    assert reply is not None
    assert dns.message.from_wire(reply).rcode() == rcode


def test_crafted_packets_over_tcp(caplog: pytest.LogCaptureFixture) -> None:
    """A connection survives all of them, one after the other."""
    with running(BoundServer([("127.0.0.1", 0)], respond)) as server, connect(server.addresses[0][1]) as sock:
        for what, packet in CRAFTED.items():
            sock.sendall(framed(packet) + framed(GOOD))
            if not packet[2] & 0x80:
                assert receive(sock).id == 0x1234, what
            assert addresses(receive(sock)) == ["192.0.2.4"], what
    assert not caplog.records


def test_noise() -> None:
    """Random and mutated packets are answered or dropped, never raised about, and with a reply that can be read."""
    draw = random.Random(8906)
    kinds = seeds()
    for _ in range(3000):
        packet = noise(draw, kinds)
        reply = SERVER.answer(packet, RESOLVER, tcp=False, draw=0.5)
        if reply is None:
            assert len(packet) < wire.HEADER_SIZE or packet[2] & 0x80
        else:
            dns.message.from_wire(reply)


def test_a_flood_is_not_amplified() -> None:
    """On real sockets, a flood for a large answer receives at most twice what it sends, and its budget of excess."""
    limits = RateLimits(excess=20_000, exempt=())
    counts = Counts()
    limiter = Limiter(limits, None, counts)
    packet = query("half.demo.test", edns=True)
    sent = received = 0
    with (
        running(BoundServer([("127.0.0.1", 0)], respond, limiter=limiter)) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as flood,
    ):
        where = server.addresses[0]
        for _ in range(100):
            for _ in range(50):
                sent += flood.sendto(packet, where)
            assert ordinary(where) == ["192.0.2.4"]  # though it shares the prefix
            received += drain(flood)
    assert received <= 2 * sent + limits.excess
    assert received > limits.excess
    assert counts["gtm_dns_limited_total\tdropped"] > 1000


@pytest.mark.drill
@pytest.mark.rfc("7873", "5.3", "a client that is told BADCOOKIE comes again with the cookie it was given")
@pytest.mark.parametrize(("option", "transport"), [("+cookie", "(UDP)"), ("+nocookie", "(TCP)")])
def test_a_real_client_comes_through(option: str, transport: str) -> None:
    """Though its prefix may have no more bytes, dig gets its answer: by its cookie, or else over TCP."""
    cookies = ServerCookies(bytes(16))
    limiter = Limiter(RateLimits(excess=0, slip=1, exempt=()), cookies, {})
    with running(BoundServer([("127.0.0.1", 0)], respond, limiter=limiter)) as server:
        where = ["@127.0.0.1", "-p", str(server.addresses[0][1]), "+tries=1"]
        command = [tool("dig"), *where, option, "half.demo.test"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert "ANSWER: 40" in done.stdout
    assert transport in done.stdout


def drain(sock: socket.socket) -> int:
    """How many bytes have come by now."""
    size = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            size += len(sock.recv(4096, socket.MSG_DONTWAIT))
    return size


def ordinary(where: tuple[str, int], source: str = "127.0.0.1") -> list[str]:
    """The addresses that an ordinary query gets. It is sent once more, as clients do: a busy kernel drops datagrams, even on the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((source, 0))
        sock.settimeout(TIMEOUT / 2)
        sock.sendto(GOOD, where)
        try:
            answer = sock.recv(4096)
        except TimeoutError:
            sock.sendto(GOOD, where)
            answer = sock.recv(4096)
        return addresses(dns.message.from_wire(answer))


@contextlib.contextmanager
def live(*arguments: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A server in a process of its own, and its port; it must have met no internal error."""
    command = [sys.executable, "-m", "tests.dns.hostile", *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline()), process
            errors, _ = process.communicate(timeout=TIMEOUT)
            assert errors == "0\n"
        finally:
            process.kill()


def resident(pid: int) -> int:
    """The memory that a process occupies, in KiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0])


def flood(port: int, draw: random.Random, kinds: list[bytes], count: int) -> None:
    """Send so many hostile datagrams, with a good query after each hundred, which must be answered."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as hostile,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as good,
    ):
        good.settimeout(TIMEOUT)
        for sock in (hostile, good):
            sock.connect(("127.0.0.1", port))
        for number in range(count // 100):
            for _ in range(100):
                hostile.send(noise(draw, kinds))
            good.send(struct.pack("!H", number & 0xFFFF) + GOOD[2:])
            reply = good.recv(4096)
            assert reply[:2] == struct.pack("!H", number & 0xFFFF)
            assert reply[3] & 0xF == 0
            drain(hostile)


@pytest.mark.drill
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the system has no /proc to read memory from"
)
def test_a_flood_of_noise() -> None:
    """100,000 hostile datagrams: every good query between them is answered, and the process doesn't grow."""
    draw = random.Random(7873)
    kinds = seeds()
    with live() as (port, process):
        flood(port, draw, kinds, 20_000)
        before = resident(process.pid)
        flood(port, draw, kinds, 80_000)
        assert resident(process.pid) - before < 4 * 1024


def test_wide_subnets_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may have 256 parts: what is kept of all of them is bounded by those, not by the subnets alone."""
    monkeypatch.setattr(clients, "MAX_PARTS", 1000)

    def each_24(address: str | bytes) -> Location:
        assert isinstance(address, bytes)
        network = f"{address[0]}.{address[1]}.{address[2]}.0/24"
        return Location("DE", lat=50.0, lon=8.0, network=network, prefix_length=24, source="geoip")

    known = Clients(each_24)
    for number in range(40):
        subnet = Subnet(1, 18, bytes((10, number, 0)))
        edns = known.edns(wire.opt_record(0, subnet.option(0)))
        assert edns is not None
        assert edns.client is known.subnet(subnet)
        assert len(edns.client.location.parts) == 64
        kept = {id(one.client): one.client for one in known.records.values() if one.client is not None}
        kept |= {id(one): one for one in known.subnets.values()}
        assert sum(len(one.location.parts) for one in kept.values()) <= 1000
