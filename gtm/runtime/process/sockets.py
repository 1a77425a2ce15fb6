"""Listening addresses: is the port free, and which one did we get?"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import SystemRandom

from gtm.settings import Address

TRIES = 20
"""Ports tried before giving up where any would do."""

GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""First and last port that Linux gives to clients, and to servers that ask for any."""
_LEAST, _ENOUGH = 10_000, 1_000
"""Below are services' well-known ports; with fewer to choose from than that, those given by the kernel do."""
_random = SystemRandom()  # the usual one may be seeded alike in several processes


class PortInUseError(OSError):
    """Another process listens there; the message names the address and the option that moves gtm. `port` is 0 if it is not known."""

    port = 0


def reserve(hosts: Sequence[str], port: int, kinds: Sequence[socket.SocketKind], option: str) -> int:
    """The port to use on all hosts: `port` itself, or a free one for 0.

    The addresses are bound exclusively for a moment: the sockets of workers share theirs (SO_REUSEPORT), and so would
    silently share with a second gtm. Whoever listens does so seconds later: a port that the kernel gives to clients
    (`ip_local_port_range`) could be one's by then, and where any will do, one from below those is taken.

    Args:
        hosts: literal addresses.
        port: 0 to 65535.
        kinds: SOCK_STREAM, SOCK_DGRAM or both.
        option: how the operator would change the port, for the message.

    Raises:
        PortInUseError: an address is taken.
        OSError: an address is not this machine's, or may not be bound.
    """
    for _ in range(TRIES if port == 0 else 0):
        with suppress(PortInUseError):  # taken, or free for one address or protocol and taken for another
            return _reserve(hosts, drawn(), kinds, option)
    return _reserve(hosts, port, kinds, option)


def drawn() -> int:
    """Any port that the kernel gives to nobody by itself; 0 where it gives nearly all."""
    first = 32_768  # Linux's own default
    with suppress(OSError, ValueError, IndexError):
        first = int(GIVEN.read_text().split()[0])
    return _random.randrange(_LEAST, first) if first - _LEAST >= _ENOUGH else 0


def reserve_each(
    addresses: Sequence[Address], kinds: Sequence[socket.SocketKind], option: str
) -> tuple[Address, ...]:
    """The addresses with the ports to use, each with its own (`reserve`); all of port 0 get the same one."""
    ports = {
        port: reserve([host for host, wanted in addresses if wanted == port], port, kinds, option)
        for _, port in addresses
    }
    return tuple((host, ports[port]) for host, port in addresses)


def _reserve(hosts: Iterable[str], port: int, kinds: Sequence[socket.SocketKind], option: str) -> int:
    with ExitStack() as held:
        for host in hosts:
            for kind in kinds:
                with explained(host, port, kind, option):
                    bound = held.enter_context(_exclusive(host, port, kind))
                port = bound.getsockname()[1]
    return port


@contextmanager
def explained(host: str, port: int, kind: socket.SocketKind, option: str) -> Iterator[None]:
    """Say which address could not be bound, and what to do.

    Raises:
        PortInUseError: it is taken.
        OSError: it is not this machine's, or may not be bound.
    """
    try:
        yield
    except OSError as error:
        protocol = "TCP" if kind == socket.SOCK_STREAM else "UDP"
        where = f"{protocol} port {port} on {host}"
        if error.errno == errno.EADDRINUSE:
            taken = PortInUseError(errno.EADDRINUSE, f"{where} is in use; choose another with {option}")
            taken.port = port
            raise taken from error
        raise OSError(
            error.errno, f"cannot listen on {where}: {_advice(error, host, port, option)}"
        ) from error


TAKES_NOTHING_MS = 60_000
"""Milliseconds after which a connection ends whose peer takes nothing (`listener`): as long as a request's body may take."""


def _advice(error: OSError, host: str, port: int, option: str) -> str:
    """Why an address cannot be bound, and what to do about just that."""
    reason = error.strerror or str(error)
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is no address of this machine; `ip address` lists those that are (--bind, --dns-bind)"
    if error.errno == errno.EACCES and 0 < port < 1024:
        return (
            f"{reason}: ports below 1024 need CAP_NET_BIND_SERVICE (systemd: AmbientCapabilities=CAP_NET_BIND_SERVICE), "
            f"a start by root with --user, or a higher port with {option}"
        )
    return f"{reason}; choose another with {option}"


def _exclusive(host: str, port: int, kind: socket.SocketKind) -> socket.socket:
    if kind == socket.SOCK_STREAM:
        bound = bind_tcp(host, port)
        bound.listen(1)
        return bound
    return bind_datagrams(host, port)


def bind_tcp(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """A bound TCP socket that does not listen yet: until it does, the kernel refuses connections.

    Raises:
        OSError: the address is taken or not this machine's.
    """
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    # A listener that ended a moment ago leaves connections in TIME_WAIT: those do not hold the port.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections have it from their listener. asyncio sets it only on sockets made with IPPROTO_TCP, and without it the body of an
    # answer, written after the head, waits for the client's delayed acknowledgement: 40 ms.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if reuse_port:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return _bind(bound, host, port)


def bind_datagrams(host: str, port: int) -> socket.socket:
    """A bound UDP socket.

    Raises:
        OSError: the address is taken or not this machine's.
    """
    return _bind(
        socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM), host, port
    )


def _bind(sock: socket.socket, host: str, port: int) -> socket.socket:
    try:
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def listener(host: str, port: int) -> socket.socket:
    """A listening TCP socket. Its connections end when the client takes nothing of what is sent for `TAKES_NOTHING_MS` (RFC 5482).

    Without that a client that never reads keeps megabytes in the kernel, and whatever feeds them, for as long as it likes.

    Raises:
        OSError: the address is taken or not this machine's.
    """
    bound = bind_tcp(host, port)
    try:
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, TAKES_NOTHING_MS)
        bound.listen(2048)
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)
    return bound
