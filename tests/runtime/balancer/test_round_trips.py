"""Round trips to a balancer's clients: whose count, how many are read, and what is kept of them."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gtm.core.latency.samples import Level
from gtm.core.model.requests import Location
from gtm.core.policy.compile import compile_policy
from gtm.http.samples.intake import Intake
from gtm.runtime.balancer.round_trips import INTERVAL, MOST, ClientRoundTrips, min_rtt_ms
from tests import uvloops, worlds
from tests.core.strategies import quick

PROXIES = (ip_network("203.0.113.0/24"), ip_network("2001:db8:ff::/48"))


class Socket:
    """A connection of which the kernel knows this much."""

    def __init__(self, micros: int | None, length: int = 240) -> None:
        self.micros, self.length = micros, length
        self.asked = 0

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option) == (socket.IPPROTO_TCP, socket.TCP_INFO)
        self.asked += 1
        if self.micros is None:
            raise OSError("it is closed")
        whole = b"\x01" * 148 + struct.pack("=I", self.micros) + b"\x02" * 200
        return whole[: min(size, self.length)]


class Connection:
    """A client's connection as the plane has it."""

    def __init__(self, peer: str | None, real: str | None, sock: Socket | None) -> None:
        self.peer = peer
        self.real, self.sock = real, sock
        self.transport: Any = self

    def get_extra_info(self, name: str) -> Any:
        if name == "peername":
            return None if self.real is None else (self.real, 443)
        return self.sock


def watching(clients: list[Connection]) -> tuple[ClientRoundTrips, Intake]:
    """What reads them, and where it goes: clients are in Berlin, the balancer is in Frankfurt."""
    snapshot = compile_policy(worlds.policy(worlds.region("fra")), ())

    def locate(packed: bytes) -> Location:
        prefix = ".".join(map(str, packed[:3])) + ".0/24" if len(packed) == 4 else "2a00:1450::/48"
        return Location(country="DE", lat=52.5, lon=13.4, network=prefix)

    intake = Intake(lambda: snapshot, locate, lambda: 1000.0)
    given: Any = clients
    return ClientRoundTrips(intake, "fra", lambda: given, PROXIES), intake


@contextmanager
def connected() -> Iterator[socket.socket]:
    """A real connection."""
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    taken, _ = server.accept()
    with server, client, taken:
        client.sendall(b"x")
        taken.recv(1)
        yield taken


def test_what_the_kernel_says() -> None:
    """Of a real connection something between nothing and a second; of others, nothing."""
    with connected() as sock:
        found = min_rtt_ms(sock)
    assert found is not None
    assert 0 < found < 1000
    assert min_rtt_ms(sock) is None, "it is closed"
    assert min_rtt_ms(Socket(12_500)) == 12.5
    assert min_rtt_ms(Socket(0)) is None
    assert min_rtt_ms(Socket(0xFFFF_FFFF)) is None
    assert min_rtt_ms(Socket(12_500, 104)) is None, "a kernel before 4.9"
    assert min_rtt_ms(Socket(None)) is None
    assert min_rtt_ms(None) is None


def test_whose_round_trips_count() -> None:
    """The address at the other end of the connection; not one that a proxy told, no proxy's, and none of this machine."""
    counted = [Connection("95.90.1.1", "95.90.1.1", Socket(20_000))]
    others = [
        Connection("95.90.2.1", "203.0.113.9", Socket(20_000)),  # told by the PROXY protocol
        Connection("203.0.113.9", "203.0.113.9", Socket(20_000)),
        Connection("2001:db8:ff::1", "2001:db8:ff::1", Socket(20_000)),
        Connection("127.0.0.1", "127.0.0.1", Socket(20_000)),
        Connection("::1", "::1", Socket(20_000)),
        Connection(None, "95.90.3.1", Socket(20_000)),
        Connection("95.90.4.1", None, Socket(20_000)),
        Connection("95.90.5.1", "95.90.5.1", Socket(None)),
        Connection("no address", "no address", Socket(20_000)),
        Connection("95.90.6.1", "95.90.6.1", None),
    ]
    trips, _ = watching([*others, *counted])
    asyncio.run(trips.look())
    assert trips.measured == 1
    deltas = trips.take().deltas
    assert {(delta.level, delta.key) for delta in deltas} >= {(Level.NETWORK, "95.90.1.0/24")}
    assert {delta.key for delta in deltas if delta.level is Level.NETWORK} == {"95.90.1.0/24"}
    assert all(delta.trusted and delta.region == "fra" and delta.samples == 1 for delta in deltas)
    assert not [key for delta in deltas for key in (delta.key,) if "95.90.1.1" in key], "no address"


@quick(100)
@given(st.integers(0, 200), st.integers(1, 5))
def test_looks_are_bounded_and_ask_nobody_twice(count: int, looks: int) -> None:
    """Model: each look reads as many as it may of those that were not read in this interval; the next interval begins anew."""
    clients = [
        Connection(
            f"95.{number // 200}.{number % 200}.1", f"95.{number // 200}.{number % 200}.1", Socket(9_000)
        )
        for number in range(count)
    ]
    trips, _ = watching(clients)
    sockets = [client.sock for client in clients if client.sock is not None]
    for look in range(1, looks + 1):
        asyncio.run(trips.look())
        assert sum(sock.asked for sock in sockets) == min(count, look * MOST)
        assert max((sock.asked for sock in sockets), default=0) <= 1
    found = trips.take()
    samples = sum(delta.samples for delta in found.deltas if delta.level is Level.COUNTRY)
    assert samples == min(count, looks * MOST)
    assert not trips.take().deltas
    asyncio.run(trips.look())
    assert sum(sock.asked for sock in sockets) == min(count, looks * MOST) + min(count, MOST)


def test_one_client_with_many_connections_has_one_say() -> None:
    """The caps of samples hold here as they do at edges: eight of one /24 in an interval, and one vote."""
    clients = [Connection("95.90.1.1", "95.90.1.1", Socket(1_000_000)) for _ in range(50)]
    clients += [Connection(f"95.91.{n}.1", f"95.91.{n}.1", Socket(9_000)) for n in range(3)]
    trips, _ = watching(clients)
    asyncio.run(trips.look())
    (country,) = [delta for delta in trips.take().deltas if delta.level is Level.COUNTRY]
    assert country.samples == 8 + 3
    assert country.centre < 10


def test_the_planes_own_connections_can_be_read() -> None:
    """In uvloop, as balancers run: its sockets are asked as others are."""

    async def test() -> float | None:
        found: list[float | None] = []

        class Plain(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                found.append(min_rtt_ms(transport.get_extra_info("socket")))

        loop = asyncio.get_running_loop()
        server = await loop.create_server(Plain, "127.0.0.1", 0)
        transport, _ = await loop.create_connection(asyncio.Protocol, *server.sockets[0].getsockname()[:2])
        async with asyncio.timeout(20):
            while not found:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        transport.close()
        server.close()
        return found[0]

    found = uvloops.run(test())
    assert found is not None
    assert 0 < found < 1000


def test_an_interval_ends_when_it_is_over() -> None:
    """Before, nothing is told."""
    times = [0.0]
    clients: Any = [Connection("95.90.1.1", "95.90.1.1", Socket(9_000))]
    _, intake = watching([])
    trips = ClientRoundTrips(intake, "fra", lambda: clients, PROXIES, now=lambda: times[0])
    asyncio.run(trips.look())
    times[0] = INTERVAL - 0.1
    assert not trips.due().deltas
    times[0] = INTERVAL
    assert trips.due().deltas
    asyncio.run(trips.look())
    assert not trips.due().deltas
    times[0] = 2 * INTERVAL
    assert trips.due().deltas
