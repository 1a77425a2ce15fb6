"""DNS over TCP, against clients that are slow, greedy or silent, on real connections."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count

import dns.message
import dns.query
import pytest

from gtm.dns.io.tcp import TcpLimits
from tests.descriptors import none_left
from tests.dns.io.test_server import connect, ended, framed, receive, respond
from tests.dns.serving import TIMEOUT, BoundServer, running
from tests.dns.world import addresses, query

PACKET = framed(query("v4.demo.test"))
LARGE = framed(query("big.demo.test"))


@contextlib.contextmanager
def serving(limits: TcpLimits) -> Iterator[int]:
    """The port of a server with these limits."""
    with running(BoundServer([("127.0.0.1", 0)], respond, limits=limits)) as server:
        yield server.addresses[0][1]


def asked(sock: socket.socket) -> list[str]:
    """The addresses that a query over a connection gets."""
    sock.sendall(PACKET)
    return addresses(receive(sock))


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether something comes to hold within a test's patience."""
    deadline = time.monotonic() + TIMEOUT
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.rfc("7766", "6.2.1.1", "pipelined queries are all answered")
@pytest.mark.rfc("7766", "7", "replies are matched by id; ours come in the order of the queries")
def test_pipelining() -> None:
    """Queries sent at once, however cut into segments, are answered in order, replies and all."""
    with serving(TcpLimits()) as port, connect(port) as sock:
        packets = [struct.pack("!H", number) + query("v4.demo.test")[2:] for number in range(500)]
        stream = b"".join(framed(packet) for packet in packets)

        def send() -> None:
            for at in range(0, len(stream), 777):
                sock.sendall(stream[at : at + 777])

        sender = threading.Thread(target=send)
        sender.start()
        assert [receive(sock).id for _ in packets] == list(range(500))
        sender.join()


@pytest.mark.rfc("7766", "8", "the length field and the message may come in any segments")
def test_byte_by_byte() -> None:
    """A query that comes byte by byte is answered, and other clients don't wait for it."""
    with serving(TcpLimits()) as port, connect(port) as slow, connect(port) as other:
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in PACKET[:-1]:
            slow.sendall(bytes((byte,)))
            assert asked(other) == ["192.0.2.4"]
        slow.sendall(PACKET[-1:])
        assert addresses(receive(slow)) == ["192.0.2.4"]


@pytest.mark.rfc("7766", "6.2.3", "idle connections are closed after seconds")
def test_times() -> None:
    """A connection has less time for its first query than for each further one."""
    with serving(TcpLimits(first=1.0)) as port, connect(port) as silent, connect(port) as heard:
        assert asked(heard) == ["192.0.2.4"]
        assert ended(silent)
        assert asked(heard) == ["192.0.2.4"]


def test_half_a_connection() -> None:
    """A client that ends its side gets the replies that are due, and then the end."""
    with serving(TcpLimits()) as port, connect(port) as sock:
        sock.sendall(PACKET * 40)
        sock.shutdown(socket.SHUT_WR)
        for _ in range(40):
            assert addresses(receive(sock)) == ["192.0.2.4"]
        assert ended(sock)


@pytest.mark.parametrize("noise", [b"\0\0", b"\0\1x", framed(b"\0\0\x80" + bytes(9))])
def test_what_is_no_query_keeps_no_connection(noise: bytes) -> None:
    """Empty messages, short ones and replies are dropped, and don't keep a connection from being idle."""
    with serving(TcpLimits(first=1.0)) as port, connect(port) as sock, connect(port) as heard:
        heard.sendall(noise + PACKET + noise)
        assert addresses(receive(heard)) == ["192.0.2.4"]

        def closed() -> bool:
            try:
                sock.sendall(noise)
            except OSError:
                return True
            return False

        assert eventually(closed)
        assert asked(heard) == ["192.0.2.4"]


@pytest.mark.rfc("7766", "6.2.2", "a server may limit the connections of one client")
def test_one_client_has_its_part() -> None:
    """A client prefix over its limit loses its idlest connection, and nobody else does."""
    with serving(TcpLimits(per_client=3)) as port, contextlib.ExitStack() as stack:
        other = stack.enter_context(
            socket.create_connection(("127.0.0.1", port), TIMEOUT, source_address=("127.0.1.1", 0))
        )
        assert asked(other) == ["192.0.2.4"]
        own = [stack.enter_context(connect(port)) for _ in range(3)]
        for sock in (own[1], own[0], own[2]):
            asked(sock)
        more = stack.enter_context(connect(port))
        assert asked(more) == ["192.0.2.4"]
        assert ended(own[1])
        assert [asked(sock) for sock in (own[0], own[2], more, other)] == [["192.0.2.4"]] * 4


class Gate:
    """Answers as the world does, keeps the order in which clients' networks were answered, and waits at the first of 127.10.0."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.clients: list[str] = []
        self.held = threading.Event()
        self.open = threading.Event()

    def __call__(self, packet: bytes, client: str, tcp: bool) -> bytes | None:
        """The world's answer."""
        network = client.rpartition(".")[0]
        if network == "127.10.0" and not self.open.is_set():
            self.held.set()
            assert self.open.wait(TIMEOUT)
        self.order.append(network)
        self.clients.append(client)
        return respond(packet, client, tcp)


def from_address(port: int, source: str) -> socket.socket:
    """A TCP connection from a loopback address."""
    return socket.create_connection(("127.0.0.1", port), TIMEOUT, source_address=(source, 0))


@pytest.mark.rfc("7766", "6.2.2", "a client's many connections get no more than their part of the work")
@pytest.mark.parametrize("each", [400, 1])
def test_clients_are_answered_in_turn(each: int) -> None:
    """What others wait for does not grow with the connections of one prefix, nor with what is sent over each."""
    gate = Gate()
    with (
        running(BoundServer([("127.0.0.1", 0)], gate)) as server,
        contextlib.ExitStack() as stack,
    ):
        port = server.addresses[0][1]
        others = [stack.enter_context(from_address(port, f"127.9.{number}.1")) for number in range(4)]
        for sock in others:
            asked(sock)
        crowd = [stack.enter_context(from_address(port, f"127.10.0.{number + 1}")) for number in range(100)]
        gate.order.clear()
        crowd[0].sendall(PACKET * each)
        assert gate.held.wait(TIMEOUT)
        for sock in crowd[1:]:
            sock.sendall(PACKET * each)
        for sock in others:
            sock.sendall(PACKET)
        gate.open.set()
        for sock in others:
            assert addresses(receive(sock)) == ["192.0.2.4"]
        last = max(gate.order.index(f"127.9.{number}") for number in range(4))
        assert gate.order[:last].count("127.10.0") <= 48  # three turns


def test_each_of_many_clients_is_answered_soon() -> None:
    """Among many prefixes that each ask for much, one waits for a message or two of each, not for a turn."""
    gate = Gate()
    with running(BoundServer([("127.0.0.1", 0)], gate)) as server, contextlib.ExitStack() as stack:
        port = server.addresses[0][1]
        other = stack.enter_context(from_address(port, "127.9.9.9"))
        asked(other)
        first = stack.enter_context(from_address(port, "127.10.0.1"))
        crowd = [stack.enter_context(from_address(port, f"127.11.{number}.1")) for number in range(100)]
        for sock in crowd:
            asked(sock)
        gate.order.clear()
        first.sendall(PACKET)
        assert gate.held.wait(TIMEOUT)
        for sock in (*crowd, other):
            sock.sendall(PACKET * 100)
        gate.open.set()
        assert addresses(receive(other)) == ["192.0.2.4"]
        assert gate.order.index("127.9.9") < 300


def test_connections_of_one_client_are_answered_in_turn() -> None:
    """Of one prefix, a connection with little to ask waits for no other's backlog."""
    gate = Gate()
    with running(BoundServer([("127.0.0.1", 0)], gate)) as server, contextlib.ExitStack() as stack:
        port = server.addresses[0][1]
        first, much, little = (
            stack.enter_context(from_address(port, f"127.10.0.{number}")) for number in (1, 2, 3)
        )
        first.sendall(PACKET)
        assert gate.held.wait(TIMEOUT)
        much.sendall(PACKET * 400)
        little.sendall(PACKET)
        gate.open.set()
        assert addresses(receive(little)) == ["192.0.2.4"]
        assert gate.clients.index("127.10.0.3") < 100


def test_connections_are_accepted_while_others_ask() -> None:
    """A client that comes new is accepted and answered while a crowd's questions wait."""
    gate = Gate()
    with running(BoundServer([("127.0.0.1", 0)], gate)) as server, contextlib.ExitStack() as stack:
        port = server.addresses[0][1]
        crowd = [stack.enter_context(from_address(port, f"127.10.0.{number + 1}")) for number in range(50)]
        crowd[0].sendall(PACKET)
        assert gate.held.wait(TIMEOUT)
        for sock in crowd:
            sock.sendall(PACKET * 400)
        new = stack.enter_context(from_address(port, "127.9.9.9"))
        new.sendall(PACKET)
        gate.open.set()
        assert addresses(receive(new)) == ["192.0.2.4"]
        assert gate.order.index("127.9.9") < 200


def test_a_process_without_descriptors_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """Where nothing can be accepted, idle connections give way; it is said in one line, and not for each that waits."""
    with serving(TcpLimits()) as port, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connect(port)) for _ in range(4)]
        for sock in idle:
            asked(sock)
        new = [stack.enter_context(socket.socket()) for _ in range(3)]
        with none_left():
            for sock in new:
                sock.settimeout(TIMEOUT)
                sock.connect(("127.0.0.1", port))
            for sock in new:
                assert asked(sock) == ["192.0.2.4"]
        assert [ended(sock) for sock in idle[:3]] == [True] * 3
        assert asked(idle[3]) == ["192.0.2.4"]
        assert asked(stack.enter_context(connect(port))) == ["192.0.2.4"]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert "no dns connection can be accepted (too many open files)" in said[0]
    assert not any(record.exc_info for record in caplog.records)


def test_limits_fit_into_a_small_process() -> None:
    """A process with few descriptors keeps fewer connections, and of each prefix as small a part."""
    assert TcpLimits().fitting(128) == TcpLimits(connections=128, per_client=32)
    assert TcpLimits().fitting(8192) == TcpLimits()
    assert TcpLimits().fitting(0) == TcpLimits(connections=1, per_client=1)


def test_silent_connections_give_way_first() -> None:
    """At the limit, connections that have asked nothing are closed before those that have, however long ago."""
    with serving(TcpLimits(connections=3, first=60.0, idle=60.0)) as port, contextlib.ExitStack() as stack:
        first = stack.enter_context(connect(port))
        asked(first)
        silent = [stack.enter_context(connect(port)) for _ in range(20)]
        assert asked(first) == ["192.0.2.4"]
        assert all(ended(sock) for sock in silent[:18])
        last = stack.enter_context(connect(port))
        assert asked(last) == ["192.0.2.4"]
        assert asked(first) == ["192.0.2.4"]


def test_a_client_that_does_not_read() -> None:
    """Who asks for much and reads nothing is read from no more, and closed in time, while others are answered."""
    with serving(TcpLimits(idle=1.0)) as port, connect(port) as greedy, connect(port) as other:
        greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        greedy.setblocking(False)
        sent = 0

        def stuck() -> bool:
            nonlocal sent
            with contextlib.suppress(BlockingIOError):
                while sent < 50_000_000:
                    sent += greedy.send(LARGE * 200)
            return asked(other) == ["192.0.2.4"] and before == sent

        for _ in count():
            before = sent
            if stuck():
                break
        assert sent < 50_000_000

        def closed() -> bool:
            assert asked(other) == ["192.0.2.4"]
            try:
                greedy.send(b"x")
            except BlockingIOError:
                return False
            except OSError:
                return True
            return False

        assert eventually(closed)


def test_clients_that_vanish() -> None:
    """Connections reset at any moment leave nothing behind."""
    reset = struct.pack("ii", 1, 0)
    with serving(TcpLimits(connections=8)) as port:
        for number in range(200):
            sock = connect(port)
            sock.sendall((LARGE * 30)[: 17 * number])
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            sock.close()
        with connect(port) as sock:
            assert asked(sock) == ["192.0.2.4"]


def test_memory_is_bounded() -> None:
    """Clients that each hold back the end of the longest message cost no more than those messages."""
    limits = TcpLimits(connections=64, per_client=64)
    with serving(limits) as port, contextlib.ExitStack() as stack:
        with connect(port) as sock:
            asked(sock)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(200):
            sock = stack.enter_context(connect(port))
            with contextlib.suppress(OSError):
                sock.sendall(b"\xff\xff" + bytes(65_534))
        with connect(port) as sock:
            assert asked(sock) == ["192.0.2.4"]
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 64 * 2 * 65  # KiB: a message and a buffer twice its size at most, each


def test_dnspython_reuses_connections() -> None:
    """A client library's connection serves many queries."""
    with serving(TcpLimits()) as port, connect(port) as sock:
        for _ in range(3):
            asked_for = dns.message.make_query("big.demo.test", "A")
            assert len(addresses(dns.query.tcp(asked_for, "127.0.0.1", TIMEOUT, port, sock=sock))) == 200
