"""Listening addresses: is the port free, and which one did we get?"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from contextlib import ExitStack, suppress

_TRIES = 20
"""Ports tried before giving up where any would do."""


class PortInUseError(OSError):
    """Another process listens there; the message names the address and the option that moves gtm."""


def reserve(hosts: Sequence[str], port: int, kinds: Sequence[socket.SocketKind], option: str) -> int:
    """The port to use on all hosts: `port` itself, or a free one for 0.

    The addresses are bound exclusively for a moment: workers share theirs (SO_REUSEPORT), and so would silently share
    with a second gtm.

    Args:
        hosts: literal addresses.
        port: 0 to 65535.
        kinds: SOCK_STREAM, SOCK_DGRAM or both.
        option: how the operator would change the port, for the message.

    Raises:
        PortInUseError: an address is taken.
        OSError: an address is not this machine's, or may not be bound.
    """
    for _ in range(_TRIES if port == 0 else 0):
        with suppress(PortInUseError):  # free for one address or protocol, taken for another
            return _reserve(hosts, port, kinds, option)
    return _reserve(hosts, port, kinds, option)


def _reserve(hosts: Sequence[str], port: int, kinds: Sequence[socket.SocketKind], option: str) -> int:
    with ExitStack() as held:
        for host in hosts:
            for kind in kinds:
                bound = held.enter_context(_bind(host, port, kind, option))
                port = bound.getsockname()[1]
    return port


def _bind(host: str, port: int, kind: socket.SocketKind, option: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, kind)
    try:
        if kind == socket.SOCK_STREAM:
            # A listener that ended a moment ago leaves connections in TIME_WAIT: those do not hold the port.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((host, port))
        if kind == socket.SOCK_STREAM:
            bound.listen(1)
    except OSError as error:
        bound.close()
        protocol = "TCP" if kind == socket.SOCK_STREAM else "UDP"
        where = f"{protocol} port {port} on {host}"
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(
                errno.EADDRINUSE, f"{where} is in use; choose another with {option}"
            ) from error
        reason = error.strerror or str(error)
        raise OSError(
            error.errno, f"cannot listen on {where}: {reason}; choose another with {option}"
        ) from error
    return bound


def listener(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """A listening TCP socket.

    Raises:
        OSError: the address is taken or not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuse_port:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        bound.bind((host, port))
        bound.listen(2048)
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)
    return bound
