"""The sockets of an edge: new, inherited, spare."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gtm.dns.io.udp import release
from gtm.runtime.process.listeners import Listener, Listeners, Use, open_listeners
from gtm.runtime.process.sockets import PortInUseError
from gtm.settings import EdgeSettings

SETTINGS = EdgeSettings(
    Path(), control_url="http://127.0.0.1:9", token="token", name="edge", edge_port=0, dns_port=0
)
TIMEOUT = 10.0


@pytest.fixture
def three() -> Iterator[Listeners]:
    """The sockets of an edge with three workers."""
    with closing(open_listeners(replace(SETTINGS, workers=3))) as listeners:
        yield listeners


USES = (Use.HTTP, Use.DNS_UDP, Use.DNS_TCP)
"""Of an edge."""


def of(listeners: Listeners, use: Use) -> list[Listener]:
    """Those for one use."""
    return [one for one in listeners.settled if one.use is use]


def address(listeners: Listeners, use: Use) -> tuple[str, int]:
    """Where those for one use are."""
    ((host, port),) = {(one.host, one.port) for one in of(listeners, use)}
    return host, port


def copies(listeners: Listeners) -> list[Listener]:
    """As a successor receives them."""
    return [replace(one, socket=one.socket.dup()) for one in listeners.settled]


def test_each_worker_has_sockets_of_its_own(three: Listeners) -> None:
    """Every worker is lent one socket of each address, and none of another's."""
    for use in USES:
        lent = [three.lent(use, number) for number in range(3)]
        assert [len(some) for some in lent] == [1, 1, 1]
        assert {one.descriptor for (one,) in lent} == {one.socket.fileno() for one in of(three, use)}
    assert address(three, Use.DNS_UDP) == address(three, Use.DNS_TCP)


def test_nothing_listens_before_a_worker_does(three: Listeners) -> None:
    """Clients of sockets that nobody reads yet hear that nobody is there."""
    for use in (Use.HTTP, Use.DNS_TCP):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address(three, use), TIMEOUT)
    with socket.socket(type=socket.SOCK_DGRAM) as one:
        one.settimeout(TIMEOUT)
        one.connect(address(three, Use.DNS_UDP))
        one.send(b"anyone?")
        with pytest.raises(ConnectionRefusedError):
            one.recv(100)


def test_dns_has_addresses_of_its_own() -> None:
    """DNS listens on its addresses and ports, IPv4 and IPv6, and HTTP on others."""
    dns = (("127.0.0.2", 0), ("::1", 0))
    with closing(open_listeners(replace(SETTINGS, bind=("127.0.0.1",), dns_bind=dns))) as listeners:
        assert {one.host for one in of(listeners, Use.HTTP)} == {"127.0.0.1"}
        for use in (Use.DNS_UDP, Use.DNS_TCP):
            assert [one.host for one in of(listeners, use)] == ["127.0.0.2", "::1"]
            assert len({one.port for one in of(listeners, use)}) == 1


@pytest.mark.parametrize(
    ("use", "option", "changes"),
    [
        (Use.HTTP, "--edge-port", {"edge_port": 1}),
        (Use.DNS_UDP, "--dns-port", {"dns_port": 1}),
        (Use.DNS_TCP, "--dns-bind", {"dns_bind": (("127.0.0.1", 1),)}),
    ],
)
def test_a_taken_port_is_named(use: Use, option: str, changes: dict[str, object]) -> None:
    """Another process's port is named with the option that moves gtm, and nothing stays bound."""
    with socket.socket(type=use.kind) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        given = {
            name: port if value == 1 else tuple((host, port) for host, _ in value)  # type: ignore[attr-defined]
            for name, value in changes.items()
        }
        protocol = "UDP" if use is Use.DNS_UDP else "TCP"
        said = rf"{protocol} port {port} on 127\.0\.0\.1 is in use; choose another with {option}"
        with pytest.raises(PortInUseError, match=said):
            open_listeners(replace(SETTINGS, **given))


def test_dns_and_http_want_different_ports() -> None:
    """One TCP port cannot be both DNS's and HTTP's."""
    with closing(open_listeners(SETTINGS)) as free:
        _, port = address(free, Use.HTTP)
    with pytest.raises(PortInUseError, match=f"TCP port {port} on 127.0.0.1 is this edge's own"):
        open_listeners(replace(SETTINGS, edge_port=port, dns_port=port))


def test_a_successor_goes_on_with_the_same_sockets(three: Listeners) -> None:
    """With the same addresses and workers nothing is bound and nothing is spare; ports that were drawn stay."""
    received = copies(three)
    with closing(open_listeners(replace(SETTINGS, workers=3), received)) as successor:
        assert {one.socket for one in successor.settled} == {one.socket for one in received}
        for use in USES:
            assert address(successor, use) == address(three, use)


def test_more_workers_get_more_sockets(three: Listeners) -> None:
    """What is new beside a predecessor's sockets receives nothing until a worker reads it."""
    for one in of(three, Use.DNS_UDP):
        release(one.socket)
    with closing(open_listeners(replace(SETTINGS, workers=5), copies(three))) as successor:
        assert [len(successor.lent(use, 4)) for use in USES] == [1, 1, 1]
        ask_from_many_ports(address(three, Use.DNS_UDP), 64)
        assert sum(received(one) for one in of(successor, Use.DNS_UDP)[:3]) == 64
        with pytest.raises(BlockingIOError):
            of(successor, Use.DNS_UDP)[4].socket.recv(100, socket.MSG_DONTWAIT)


def test_fewer_workers_leave_nothing_unread(three: Listeners) -> None:
    """Sockets that a successor has no worker for get no more queries, and keep those they have; TCP's are all read."""
    udp, where = of(three, Use.DNS_UDP), address(three, Use.DNS_UDP)
    for one in udp:
        release(one.socket)
    ask_from_many_ports(where, 64)
    with closing(open_listeners(SETTINGS, copies(three))) as successor:
        assert [len(successor.lent(use, 0)) for use in USES] == [3, 1, 3]
        successor.retire()
        before = [received(one) for one in udp]
        assert sum(before) == 64
        ask_from_many_ports(where, 64)
        assert [received(one) for one in udp] == [64, 0, 0]


def test_an_address_beside_a_wildcard_can_be_inherited() -> None:
    """A successor may bind one address where its predecessor bound all, and gets its queries once a worker reads."""
    settings = replace(SETTINGS, bind=("0.0.0.0",))
    with closing(open_listeners(settings)) as old:
        (wildcard,) = of(old, Use.DNS_UDP)
        release(wildcard.socket)
        wanted = replace(settings, dns_bind=(("127.0.0.1", wildcard.port),))
        with closing(open_listeners(wanted, copies(old))) as successor:
            (own,) = of(successor, Use.DNS_UDP)
            ask_from_many_ports(("127.0.0.1", own.port), 1)
            assert received(wildcard) == 1
            release(own.socket)
            ask_from_many_ports(("127.0.0.1", own.port), 1)
            assert received(own) == 1


def ask_from_many_ports(where: tuple[str, int], count: int) -> None:
    """Send datagrams, each from another port, so that the kernel spreads them over the sockets there."""
    for _ in range(count):
        with socket.socket(type=socket.SOCK_DGRAM) as one:
            one.sendto(b"query", where)


def received(listener: Listener) -> int:
    """How many datagrams wait in a socket; they are taken out."""
    count = 0
    while True:
        try:
            listener.socket.recv(100, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return count
        count += 1
