"""The listening sockets of an edge. Its agent owns them and lends them to workers.

Laws:
  1. A socket outlives every worker that reads it: what arrives while none does waits in the kernel.
  2. Nothing arrives before a worker reads: until then UDP sockets are held, and TCP sockets do not listen.
  3. A UDP socket that was in use is closed only when it is empty, and a TCP socket as long as its address is wanted
     never: closing one resets the connections that wait in it.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address

from gtm.dns.io.udp import bind_udp, hold
from gtm.runtime.process.sockets import TRIES, PortInUseError, bind_tcp, explained, reserve_each
from gtm.settings import Address, EdgeSettings

logger = logging.getLogger(__name__)


class Use(StrEnum):
    """The use of a socket."""

    HTTP = "http"
    REQUESTS = "requests"
    """Of a balancer: what it carries to backends."""
    ADMIN = "admin"
    """Of a balancer: its metrics and state."""
    PEERS = "peers"
    """Of a balancer: what others of its region say."""
    DNS_UDP = "dns-udp"
    DNS_TCP = "dns-tcp"

    @property
    def kind(self) -> socket.SocketKind:
        """The type of such sockets."""
        return socket.SOCK_DGRAM if self in (Use.DNS_UDP, Use.PEERS) else socket.SOCK_STREAM


Place = tuple[Use, str, int]
"""What sockets are for, and their address: all of one place share its clients."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A bound socket, what it is for, and where. A held socket cannot tell its address by itself."""

    use: Use
    host: str
    port: int
    socket: socket.socket

    @property
    def place(self) -> Place:
        """The listener's use and address."""
        return self.use, self.host, self.port


@dataclass(frozen=True, slots=True)
class Lent:
    """A listener as a worker is handed it: its owner keeps the socket."""

    use: Use
    host: str
    port: int
    descriptor: int

    @classmethod
    def of(cls, one: Listener) -> Lent:
        """Lend one."""
        return cls(*one.place, one.socket.fileno())

    def taken(self) -> Listener:
        """In the worker: the socket that it was lent."""
        return Listener(self.use, self.host, self.port, socket.socket(fileno=self.descriptor))


class Listeners:
    """The sockets of an edge with so many DNS workers and as many HTTP workers.

    Args:
        settled: those in use.
        spare: those of another edge for which this one has no use.
        workers: their number.
    """

    def __init__(self, settled: Sequence[Listener], spare: Sequence[Listener], workers: int) -> None:
        self.settled = tuple(settled)
        self._spare = tuple(spare)
        self._workers = workers

    def lent(self, use: Use, number: int) -> tuple[Lent, ...]:
        """What a worker (0 to `workers` - 1) reads: of each place one, or several of TCP."""
        places: dict[Place, list[Lent]] = {}
        for one in self.settled:
            if one.use is use:
                places.setdefault(one.place, []).append(Lent.of(one))
        return tuple(one for lent in places.values() for one in lent[number :: self._workers])

    def retire(self) -> None:
        """Let nothing more arrive at spare sockets, and leave the rest to the workers that still read them."""
        for one in self._spare:
            if one.use is Use.DNS_UDP:
                try:
                    hold(one.socket)
                except OSError as error:
                    logger.warning("queries to %s port %d may be lost: %s", one.host, one.port, error)
        _close(self._spare)
        self._spare = ()

    def close(self) -> None:
        """Give every socket up."""
        _close((*self.settled, *self._spare))


def _close(listeners: Iterable[Listener]) -> None:
    for one in listeners:
        one.socket.close()


def open_listeners(settings: EdgeSettings, inherited: Sequence[Listener] = ()) -> Listeners:
    """The sockets that an edge needs: those of its predecessor where it has them, new ones where it has not.

    A port of 0 is the predecessor's on that address, or any that is free.

    Raises:
        PortInUseError: an address is taken.
        OSError: an address is not this machine's, or may not be bound.
    """
    drawn = 0 in (settings.edge_port, *(port for _, port in settings.dns_addresses))
    for _ in range(TRIES if drawn else 0):
        with suppress(PortInUseError):  # free when it was drawn, and taken since
            return _open(settings, inherited)
    return _open(settings, inherited)


def _open(settings: EdgeSettings, inherited: Sequence[Listener]) -> Listeners:
    http = [(host, settings.edge_port) for host in settings.bind]
    dns_option = "--dns-bind" if settings.dns_bind else "--dns-port"
    dns_uses = (Use.DNS_UDP, Use.DNS_TCP)
    workers = settings.workers
    settled: list[Listener] = []
    with ExitStack() as undo:
        for host, port in settle(http, (Use.HTTP,), "--edge-port", inherited):
            settled += _of_place((Use.HTTP, host, port), "--edge-port", workers, inherited, undo)
        for host, port in settle(settings.dns_addresses, dns_uses, dns_option, inherited):
            if any(one.place == (Use.HTTP, host, port) for one in settled):
                message = (
                    f"TCP port {port} on {host} is this edge's own for HTTP; choose another with {dns_option}"
                )
                raise PortInUseError(errno.EADDRINUSE, message)
            for use in dns_uses:
                settled += _of_place((use, host, port), dns_option, workers, inherited, undo)
        undo.pop_all()
    kept = {one.socket for one in settled}
    return Listeners(settled, [one for one in inherited if one.socket not in kept], workers)


def _of_place(
    place: Place, option: str, workers: int, inherited: Sequence[Listener], undo: ExitStack
) -> list[Listener]:
    """The sockets of one place, one for each worker at least."""
    found = [one for one in inherited if one.place == place]
    if place[0] is Use.DNS_UDP:
        del found[workers:]
    while len(found) < workers:
        found.append(_fresh(*place, option))
        undo.callback(found[-1].socket.close)
    return found


def _fresh(use: Use, host: str, port: int, option: str) -> Listener:
    with explained(host, port, use.kind, option):
        if use is not Use.DNS_UDP:
            return Listener(use, host, port, bind_tcp(host, port, reuse_port=True))
        bound = bind_udp(host, port)
        try:
            hold(bound)
        except OSError:
            bound.close()
            raise
        return Listener(use, host, port, bound)


def settle(
    wanted: Sequence[Address], uses: Sequence[Use], option: str, inherited: Sequence[Listener]
) -> list[Address]:
    """The wanted addresses, each once and with its actual port; those that nobody had are seen to be free.

    Raises:
        PortInUseError: an address is taken.
        OSError: an address is not this machine's, or may not be bound.
    """
    theirs = [one for one in inherited if one.use is uses[0]]
    ports = {one.host: one.port for one in theirs}
    kinds = [use.kind for use in uses]
    # An address beside the predecessor's wildcard is not free, but may be shared with it.
    shared = {one.port for one in theirs}
    named = [(str(ip_address(host)), port) for host, port in wanted]
    known = [(host, port or ports.get(host, 0)) for host, port in named]
    fresh = [(host, port) for host, port in dict.fromkeys(known) if port not in shared]
    actual = dict(zip(fresh, reserve_each(fresh, kinds, option), strict=True))
    return list(dict.fromkeys(actual.get(address, address) for address in known))
