"""UDP sockets: one blocking loop per socket, which is the fastest that Python can do.

A socket may be read by several processes, one after another or at once: nothing here changes it for the others.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from gtm.dns.io.guard import Respond

MAX_DATAGRAM = 4096
"""Bytes read of a query. Longer ones are cut, and then malformed: far more than the 1232 that our OPT invites."""

WAKE_INTERVAL = 0.25
"""How long, in seconds, a blocked receive or send takes at most to notice that the server stops."""

LAST_READS = 1.0
"""How long, in seconds, what has arrived is still answered once the server stops, if there is no end to it."""

_BUFFER = 4 * 1024 * 1024
_IP_PKTINFO = 8  # linux/in.h; the socket module has no name for it before Python 3.14
_ANCILLARY = 128
_LINK_LOCAL = b"\xfe\x80"
_DISCARD = 9
_MAX_SOURCES = 1024
"""Addresses of the machine remembered, with the interfaces that packets for them came by."""
_UNSPECIFIED = bytes(16)  # a sockaddr of AF_UNSPEC

_libc = ctypes.CDLL(None, use_errno=True)

_QUIET = frozenset({errno.EAGAIN, errno.EINTR, errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH})
"""What may come of a receive without anything being wrong here: timeouts, and ICMP errors about earlier replies."""

_log = logging.getLogger(__name__)


def is_wildcard(host: str) -> bool:
    """Whether an address stands for all of the machine's."""
    return host in ("0.0.0.0", "::")


def bind_udp(host: str, port: int) -> socket.socket:
    """A bound socket, ready for `serve_udp`, which others of the same user may share.

    Raises:
        OSError: as bind(2) says.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        if family == socket.AF_INET6:
            # Each family has its own socket, so that clients' addresses never arrive as IPv4-mapped ones.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        interval = struct.pack("@ll", 0, int(WAKE_INTERVAL * 1_000_000))
        # The kernel's timeouts cost nothing per packet; settimeout() would add a poll(2) to each.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, interval)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, interval)
        if is_wildcard(host) and sys.platform == "linux":
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
            else:
                sock.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def hold(sock: socket.socket) -> None:
    """Let nothing more arrive at a bound socket; what waits in it stays.

    The kernel gives a connected socket only what its peer sends, and leaves it out when it chooses among sockets that
    share an address (Linux ≥ 5.4; elsewhere nothing is done). Where there is no other, clients are told that nobody is
    there.

    Raises:
        OSError: as connect(2) says.
    """
    if sys.platform != "linux":
        return
    host, _, *rest = sock.getsockname()
    if is_wildcard(host):
        host = "::1" if sock.family == socket.AF_INET6 else "127.0.0.1"
    sock.connect((host, _DISCARD, *rest))


def release(sock: socket.socket) -> None:
    """Let everything arrive again; without `hold` before, nothing changes. The port must not have been bound as 0.

    Raises:
        OSError: as connect(2) says.
    """
    if sys.platform != "linux":
        return
    # connect(2) with AF_UNSPEC dissolves the association; the socket module cannot say that.
    if _libc.connect(sock.fileno(), _UNSPECIFIED, len(_UNSPECIFIED)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def serve_udp(sock: socket.socket, respond: Respond, stopping: Callable[[], bool]) -> None:
    """Answer until `stopping`, and then what has already arrived. Blocks; the socket stays open.

    Args:
        sock: from `bind_udp`.
        respond: what answers; must not raise.
        stopping: asked before each receive, and so after each `WAKE_INTERVAL` of silence.
    """
    loop = (
        _serve_wildcard if is_wildcard(sock.getsockname()[0]) and sys.platform == "linux" else _serve_address
    )
    while not stopping():
        try:
            loop(sock, respond, stopping, 0)
        except OSError as error:
            if error.errno not in _QUIET:
                _log.warning("receiving dns queries failed, trying again: %s", error)
                time.sleep(WAKE_INTERVAL)
    deadline = time.monotonic() + LAST_READS
    with suppress(OSError):  # it is empty
        loop(sock, respond, lambda: time.monotonic() > deadline, socket.MSG_DONTWAIT)


def _serve_address(
    sock: socket.socket, respond: Respond, stopping: Callable[[], bool], flags: socket.MsgFlag | int
) -> None:
    """The loop of a socket bound to one address, from which all its replies come."""
    receive, send = sock.recvfrom, sock.sendto
    while not stopping():
        packet, peer = receive(MAX_DATAGRAM, flags)
        reply = respond(packet, peer[0], False)
        if reply is not None:
            try:
                send(reply, peer)
            except OSError:
                continue  # the peer's port is 0 or its network is unreachable: its loss


def _serve_wildcard(
    sock: socket.socket, respond: Respond, stopping: Callable[[], bool], flags: socket.MsgFlag | int
) -> None:
    """The loop of a socket bound to all addresses: a reply must come from the address that was asked."""
    sources: dict[bytes, list[tuple[int, int, bytes]]] = {}
    while not stopping():
        packet, ancillary, _, peer = sock.recvmsg(MAX_DATAGRAM, _ANCILLARY, flags)
        reply = respond(packet, peer[0], False)
        if reply is not None:
            arrival = ancillary[0][2] if ancillary else b""
            source = sources.get(arrival)
            if source is None:
                if len(sources) >= _MAX_SOURCES:
                    sources.clear()
                source = sources[arrival] = [_source(*item) for item in ancillary]
            try:
                sock.sendmsg([reply], source, 0, peer)
            except OSError:
                continue


def _source(level: int, cmsg_type: int, data: bytes) -> tuple[int, int, bytes]:
    """The control message that sends a reply from where the query arrived, by any route.

    A link-local address needs its interface; with any other, naming the interface would break asymmetric routing.
    """
    if level == socket.IPPROTO_IP:  # struct in_pktinfo: interface, local address, address in the header
        return level, cmsg_type, bytes(4) + data[4:8] + bytes(4)
    if data[:2] == _LINK_LOCAL:
        return level, socket.IPV6_PKTINFO, data
    return level, socket.IPV6_PKTINFO, data[:16] + bytes(4)
