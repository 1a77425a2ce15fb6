"""The server on real sockets, asked by real clients."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import dns.edns
import dns.flags
import dns.message
import dns.query
import dns.rcode
import pytest

from gtm.dns.io.guard import Guard
from gtm.dns.io.tcp import TcpLimits
from gtm.telemetry import Counts
from tests.dns.serving import TIMEOUT, BoundServer, running
from tests.dns.world import addresses, answerer, query, subnet_of

ANSWERER = answerer()
Serve = Callable[..., BoundServer]


def respond(packet: bytes, client: str, tcp: bool) -> bytes | None:
    """The world's answers."""
    return ANSWERER.answer(packet, client, tcp=tcp, draw=0.5)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a server on 127.0.0.1."""
    with running(BoundServer([("127.0.0.1", 0)], respond)) as server:
        yield server.addresses[0][1]


def connect(port: int) -> socket.socket:
    """A TCP connection to the server."""
    return socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)


def framed(packet: bytes) -> bytes:
    """A message as TCP carries it (RFC 1035 §4.2.2)."""
    return struct.pack("!H", len(packet)) + packet


def receive(sock: socket.socket) -> dns.message.Message:
    """The next message of a TCP connection."""
    size = int.from_bytes(exactly(sock, 2), "big")
    return dns.message.from_wire(exactly(sock, size))


def exactly(sock: socket.socket, size: int) -> bytes:
    """So many bytes of a connection."""
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


@pytest.mark.rfc("7766", "5", "UDP and TCP give the same answers")
def test_udp_and_tcp_answer_dnspython(port: int) -> None:
    """Both transports answer, with the scope of the client's network."""
    asked = dns.message.make_query("chat.demo.test", "A", options=[dns.edns.ECSOption("10.1.2.0", 24)])
    for ask in (dns.query.udp, dns.query.tcp):
        reply = ask(asked, "127.0.0.1", TIMEOUT, port)
        assert addresses(reply) == ["192.0.2.1", "192.0.2.2"]
        assert subnet_of(reply) == ("10.1.2.0", 24, 16)


@pytest.mark.rfc("7766", "5", "a client that follows TC gets the whole answer over TCP")
def test_truncated_answers_are_whole_over_tcp(port: int) -> None:
    """A client that follows TC gets the whole answer (RFC 7766 §5)."""
    reply, by_tcp = dns.query.udp_with_fallback(
        dns.message.make_query("big.demo.test", "A"), "127.0.0.1", TIMEOUT, port
    )
    assert by_tcp
    assert len(addresses(reply)) == 200


def test_ipv6() -> None:
    """An IPv6 address is served like any other."""
    with running(BoundServer([("127.0.0.1", 0), ("::1", 0)], respond)) as server:
        for host, number in server.addresses:
            for ask in (dns.query.udp, dns.query.tcp):
                reply = ask(dns.message.make_query("v4.demo.test", "A"), host, TIMEOUT, number)
                assert addresses(reply) == ["192.0.2.4"]


@pytest.mark.rfc("2181", "4.1", "a reply comes from the address that was asked")
@pytest.mark.parametrize(("wildcard", "asked"), [("0.0.0.0", "127.0.0.9"), ("::", "::1")])
def test_replies_come_from_the_address_that_was_asked(wildcard: str, asked: str) -> None:
    """On a socket for all addresses, a reply's source is the query's destination (RFC 2181 §4.1)."""
    with running(BoundServer([(wildcard, 0)], respond)) as server:
        family = socket.AF_INET6 if ":" in asked else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.settimeout(TIMEOUT)
            sock.connect((asked, server.addresses[0][1]))  # the kernel drops what comes from elsewhere
            sock.send(query("v4.demo.test"))
            assert addresses(dns.message.from_wire(sock.recv(4096))) == ["192.0.2.4"]


def test_clients_that_vanish_do_not_stop_the_loop(port: int) -> None:
    """Replies to closed ports come back as ICMP errors, and empty datagrams as nothing: the others are still served."""
    for _ in range(20):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(query("chat.demo.test"), ("127.0.0.1", port))
            sock.sendto(b"", ("127.0.0.1", port))
    reply = dns.query.udp(dns.message.make_query("v4.demo.test", "A"), "127.0.0.1", TIMEOUT, port)
    assert addresses(reply) == ["192.0.2.4"]


@pytest.mark.rfc("7766", "6.2.1.1", "queries sent at once on one connection are all answered")
def test_tcp_pipelining(port: int) -> None:
    """Many queries sent at once on one connection are all answered (RFC 7766 §6.2.1.1)."""
    names = ["chat.demo.test", "nope.demo.test", "v4.demo.test", "example.com"] * 50
    packets = [query(name) for name in names]
    with connect(port) as sock:
        sock.sendall(b"".join(framed(packet) for packet in packets))
        replies = [receive(sock) for _ in packets]
    assert {reply.id: reply.question[0].name.to_text(omit_final_dot=True) for reply in replies} == {
        int.from_bytes(packet[:2], "big"): name for packet, name in zip(packets, names, strict=True)
    }


@pytest.mark.rfc("7766", "8", "a message may arrive in segments of any size")
def test_tcp_byte_by_byte(port: int) -> None:
    """A message may come in pieces of any size."""
    with connect(port) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in framed(query("v4.demo.test")):
            sock.sendall(bytes((byte,)))
        assert addresses(receive(sock)) == ["192.0.2.4"]


@pytest.mark.rfc("7766", "6.2.4", "a client that closes its half still gets its answers")
def test_tcp_half_close(port: int) -> None:
    """A client that has said all still gets all its answers."""
    with connect(port) as sock:
        sock.sendall(framed(query("v4.demo.test")) * 100)
        sock.shutdown(socket.SHUT_WR)
        assert [addresses(receive(sock)) for _ in range(100)] == [["192.0.2.4"]] * 100
        assert sock.recv(1) == b""


def test_tcp_messages_without_a_reply_keep_the_connection(port: int) -> None:
    """What is dropped is only that."""
    with connect(port) as sock:
        sock.sendall(framed(b"") + framed(b"short") + framed(query("v4.demo.test")))
        assert addresses(receive(sock)) == ["192.0.2.4"]


def send_for_ever(sock: socket.socket, data: bytes) -> None:
    """Send until the connection fails."""
    while True:
        sock.sendall(data)


def test_a_client_that_reads_nothing_holds_up_nobody() -> None:
    """Replies that are not taken stop the reading from that client, and nobody else's answers; then it is closed."""
    with running(BoundServer([("127.0.0.1", 0)], respond, limits=TcpLimits(idle=1.0))) as server:
        number = server.addresses[0][1]
        with connect(number) as greedy:
            greedy.setblocking(False)
            packets = framed(query("big.demo.test")) * 1000
            with contextlib.suppress(BlockingIOError):
                send_for_ever(greedy, packets)
            reply = dns.query.tcp(dns.message.make_query("v4.demo.test", "A"), "127.0.0.1", TIMEOUT, number)
            assert addresses(reply) == ["192.0.2.4"]
            greedy.settimeout(TIMEOUT)
            with pytest.raises(OSError, match=r"reset|Broken"):
                send_for_ever(greedy, packets)


@pytest.mark.rfc("7766", "6.2.3", "idle connections are closed by the server")
def test_tcp_idle_connections_are_closed() -> None:
    """A connection without a whole message is closed in time, even if bytes trickle in (RFC 7766 §6.2.3)."""
    with running(BoundServer([("127.0.0.1", 0)], respond, limits=TcpLimits(idle=0.3))) as server:
        number = server.addresses[0][1]
        with connect(number) as silent, connect(number) as trickling:
            stop = threading.Event()

            def trickle() -> None:
                with contextlib.suppress(OSError):
                    trickling.sendall(b"\xff\xff")
                    while not stop.wait(0.05):
                        trickling.sendall(b"x")

            thread = threading.Thread(target=trickle)
            thread.start()
            assert ended(silent)
            assert ended(trickling)
            stop.set()
            thread.join()


def ended(sock: socket.socket) -> bool:
    """Whether the other side closed the connection."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.rfc("9210", "4.2", "connections are limited; the one idle longest gives way")
def test_the_connection_idle_longest_gives_way() -> None:
    """At the limit a new connection closes the one idle longest (RFC 7766 §6.2.2)."""
    with running(BoundServer([("127.0.0.1", 0)], respond, limits=TcpLimits(connections=2))) as server:
        number = server.addresses[0][1]
        packet = framed(query("v4.demo.test"))
        with connect(number) as first, connect(number) as second:
            for sock in (first, second, first):
                sock.sendall(packet)
                receive(sock)
            with connect(number) as third:
                third.sendall(packet)
                receive(third)
                assert ended(second)
                first.sendall(packet)
                receive(first)


def test_internal_errors_are_servfail(caplog: pytest.LogCaptureFixture) -> None:
    """An error inside is SERVFAIL, counted each time and logged once per kind; the server goes on."""
    kinds: list[type[Exception]] = [KeyError, KeyError, ValueError, KeyError]

    def failing(packet: bytes, client: str, tcp: bool) -> bytes | None:
        if kinds:
            raise kinds.pop()
        return respond(packet, client, tcp)

    counts = Counts()
    with (
        running(BoundServer([("127.0.0.1", 0)], failing, counts=counts)) as server,
        caplog.at_level(logging.ERROR),
    ):
        number = server.addresses[0][1]
        asked = dns.message.make_query("v4.demo.test", "A")
        for _ in range(2):
            for ask in (dns.query.udp, dns.query.tcp):
                assert ask(asked, "127.0.0.1", TIMEOUT, number).rcode() == dns.rcode.SERVFAIL
        assert addresses(dns.query.udp(asked, "127.0.0.1", TIMEOUT, number)) == ["192.0.2.4"]
    assert counts == {
        "gtm_dns_queries_total\t\tother\tSERVFAIL\tudp": 2,
        "gtm_dns_queries_total\t\tother\tSERVFAIL\ttcp": 2,
    }
    assert len(caplog.records) == 2


def test_internal_errors_about_no_query_are_dropped() -> None:
    """What is no query gets no SERVFAIL either."""

    def failing(packet: bytes, client: str, tcp: bool) -> bytes | None:
        raise RuntimeError

    counts = Counts()
    guard = Guard(failing, counts, None)
    assert guard(b"short", "127.0.0.1", False) is None
    assert guard(b"\0\0\x80" + bytes(9), "127.0.0.1", False) is None
    assert not counts


def test_two_servers_share_an_address() -> None:
    """Workers share their addresses."""
    first = BoundServer([("127.0.0.1", 0)], respond)
    second = BoundServer(first.addresses, respond)
    first.stop()
    with running(second):
        reply = dns.query.udp(
            dns.message.make_query("v4.demo.test", "A"), "127.0.0.1", TIMEOUT, second.addresses[0][1]
        )
        assert addresses(reply) == ["192.0.2.4"]


def test_stop_before_serve() -> None:
    """A server that was stopped serves no more."""
    server = BoundServer([("127.0.0.1", 0)], respond)
    server.stop()
    server.serve()
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_INET, kind) as alone:
            alone.bind(server.addresses[0])  # nobody has the address any more
