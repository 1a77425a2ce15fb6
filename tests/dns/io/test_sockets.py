"""Sockets that outlive the servers that read them: held, shared, and left without a loss."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from gtm.dns.io.guard import Respond
from gtm.dns.io.server import DnsServer
from gtm.dns.io.tcp import TcpLimits
from gtm.dns.io.udp import bind_udp, hold, release, serve_udp
from gtm.telemetry import Counts
from tests.dns.serving import serving

TIMEOUT = 10.0


def echo(packet: bytes, client: str, tcp: bool) -> bytes | None:
    """The packet itself."""
    return packet


def bound(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """A UDP socket on a port that was named, not drawn, when it was bound."""
    if not port:
        with bind_udp(host, 0) as probe:
            port = probe.getsockname()[1]
    return bind_udp(host, port)


@contextmanager
def client(host: str, port: int) -> Iterator[socket.socket]:
    """A UDP socket connected to an address."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(TIMEOUT)
        sock.connect((host, port))
        yield sock


@pytest.mark.parametrize(
    ("host", "asked"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.2"), ("::1", "::1"), ("::", "::1")]
)
def test_a_held_socket_is_as_good_as_closed_until_it_is_released(host: str, asked: str) -> None:
    """Clients of a held socket hear that nobody is there; once it is released, it has its old address and receives."""
    with bound(host) as sock:
        name = sock.getsockname()
        hold(sock)
        with client(asked, name[1]) as one:
            one.send(b"early")
            with pytest.raises(ConnectionRefusedError):
                one.recv(100)
            release(sock)
            assert sock.getsockname() == name
            one.send(b"late")
            assert sock.recv(100) == b"late"


def test_release_of_a_free_socket_changes_nothing() -> None:
    """What waits in a socket that was never held is still there."""
    with bound() as sock, client("127.0.0.1", sock.getsockname()[1]) as one:
        one.send(b"first")
        release(sock)
        one.send(b"second")
        assert [sock.recv(100), sock.recv(100)] == [b"first", b"second"]


def test_of_a_group_only_those_receive_that_are_not_held() -> None:
    """Holding one of several sockets of an address sends its clients to the others, and keeps what it has."""
    with bound() as kept:
        port = kept.getsockname()[1]
        with bound(port=port) as held:
            for _ in range(64):
                with client("127.0.0.1", port) as one:
                    one.send(b"before")
            hold(held)
            for _ in range(64):
                with client("127.0.0.1", port) as one:
                    one.send(b"after")
            waiting = [drained(kept), drained(held)]
    assert waiting[0].count(b"after") == 64
    assert sum(part.count(b"before") for part in waiting) == 64
    assert waiting[1].count(b"before") > 0  # a chance of 2⁻⁶⁴ that the kernel chose it never


def drained(sock: socket.socket) -> list[bytes]:
    """What waits in a socket."""
    found = []
    while True:
        try:
            found.append(sock.recv(100, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return found


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_what_has_arrived_is_answered_before_the_end(host: str) -> None:
    """A server that is told to stop leaves nothing unread, even in a socket that is held."""
    with bound(host) as sock, client("127.0.0.1", sock.getsockname()[1]) as one:
        for number in range(100):
            one.send(b"%d" % number)
        hold(sock)
        serve_udp(sock, echo, lambda: True)
        assert [one.recv(100) for _ in range(100)] == [b"%d" % number for number in range(100)]


def server(
    tcp: list[socket.socket], respond: Respond = echo, *, udp: Sequence[socket.socket] = ()
) -> DnsServer:
    """A server of sockets that it is lent."""
    return DnsServer(udp, tcp, respond, counts=Counts(), limits=TcpLimits(), limiter=None)


def listening() -> socket.socket:
    """A TCP socket on a free port."""
    return socket.create_server(("127.0.0.1", 0))


def received(sock: socket.socket, size: int) -> bytes:
    """So many bytes of a connection."""
    found = b""
    while len(found) < size and (more := sock.recv(100)):
        found += more
    return found


def ask(sock: socket.socket, packet: bytes) -> bytes:
    """One exchange over TCP."""
    sock.sendall(struct.pack("!H", len(packet)) + packet)
    reply = received(sock, 2 + len(packet))
    return reply[2:]


def test_two_servers_share_sockets_and_one_may_leave() -> None:
    """A server that ends takes its sockets from no other that reads them."""
    with bound() as udp, listening() as tcp:
        port, stream = udp.getsockname()[1], tcp.getsockname()
        first, second = (server([tcp.dup()], udp=[udp.dup()]) for _ in range(2))
        with serving(second):
            with serving(first):
                pass
            with client("127.0.0.1", port) as one, socket.create_connection(stream, TIMEOUT) as other:
                one.send(b"datagram")
                assert one.recv(100) == b"datagram"
                assert ask(other, b"stream") == b"stream"


def test_connections_may_end_by_themselves() -> None:
    """With grace, a connection that is open when the server stops is served on; new ones are not accepted."""
    with listening() as tcp:
        address = tcp.getsockname()
        lent = server([tcp])
        with serving(lent) as thread:
            with socket.create_connection(address, TIMEOUT) as one:
                assert ask(one, b"before") == b"before"
                one.sendall(b"\0\5af")  # a connection that falls silent is closed; this one is in a message
                lent.stop(60.0)
                while not refused(address):
                    time.sleep(0.01)  # many at once would push this client's oldest connection out
                one.sendall(b"ter")
                assert received(one, 7) == b"\0\5after"
            thread.join(TIMEOUT)
            assert not thread.is_alive()


def test_a_connection_of_the_last_moment_is_served() -> None:
    """What is accepted just when the server is told to stop, with grace, gets its answer."""
    busy, go_on = threading.Event(), threading.Event()

    def respond(packet: bytes, client: str, tcp: bool) -> bytes | None:
        if packet == b"wait":
            busy.set()
            go_on.wait(TIMEOUT)
        return packet

    with listening() as tcp:
        address = tcp.getsockname()
        lent = server([tcp], respond)
        with serving(lent), socket.create_connection(address, TIMEOUT) as first:
            first.sendall(b"\0\4wait")
            assert busy.wait(TIMEOUT)
            lent.stop(60.0)  # before the server comes to accept the next
            with socket.create_connection(address, TIMEOUT) as second:
                go_on.set()
                assert ask(second, b"late") == b"late"


def refused(address: tuple[str, int]) -> bool:
    """Whether nothing accepts there."""
    try:
        with socket.create_connection(address, TIMEOUT):
            return False
    except ConnectionError:
        return True


def test_grace_is_only_ever_shortened() -> None:
    """A server that lets its connections end is stopped at once by a second call."""
    with listening() as tcp:
        address = tcp.getsockname()
        lent = server([tcp])
        with serving(lent) as thread, socket.create_connection(address, TIMEOUT) as one:
            assert ask(one, b"before") == b"before"
            lent.stop(3600.0)
            lent.stop()
            lent.stop(3600.0)
            thread.join(TIMEOUT)
            assert not thread.is_alive()
