"""The DNS server: sockets of both transports on every address, and the threads that serve them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable
from math import inf
from typing import Protocol

from gtm.dns.io.guard import Guard, Respond
from gtm.dns.io.limiter import Limiter
from gtm.dns.io.tcp import TcpLimits, TcpServer, bind_tcp
from gtm.dns.io.udp import bind_udp, release, serve_udp
from gtm.telemetry import Counts

_PORT_TRIES = 16


class Bind(Protocol):
    """How a server gets a socket of one transport."""

    def __call__(self, host: str, port: int, *, reuse_port: bool) -> socket.socket:
        """Bind a socket; one of TCP does not listen yet.

        Raises:
            OSError: the address is taken, or is none of this machine's.
        """


class DnsServer:
    """Serves DNS on UDP and TCP, on addresses that it binds (`bind`) or on sockets that it is given (`take`).

    Args:
        addresses: IP addresses and ports to bind, for both transports. Port 0: any that is free.
        respond: what answers a packet: (packet, client's address, over TCP) → reply, or None to drop it.
        reuse_port: let other processes of the same user bind the same addresses and share the clients.
        counts: where internal errors are counted.
        limits: of TCP connections.
        limiter: what replies over UDP must pass.
    """

    def __init__(
        self,
        addresses: Iterable[tuple[str, int]],
        respond: Respond,
        reuse_port: bool = True,
        *,
        counts: Counts | None = None,
        limits: TcpLimits | None = None,
        limiter: Limiter | None = None,
    ) -> None:
        self.addresses = tuple(addresses)
        """The addresses and ports served; after `bind`, the actual ones."""
        self._guard = Guard(respond, counts, limiter)
        self._reuse_port = reuse_port
        self._limits = limits or TcpLimits()
        self._udp: list[socket.socket] = []
        self._tcp: list[socket.socket] = []
        self._tcp_server: TcpServer | None = None
        self._serving = False
        self._stopping = threading.Event()
        self._grace = inf
        self._threads: list[threading.Thread] = []

    @property
    def errors(self) -> int:
        """How many packets met an internal error, and were answered with SERVFAIL."""
        return self._guard.errors

    def bind(self) -> None:
        """Bind every address, or none.

        Raises:
            OSError: an address cannot be bound; says which one, and why.
        """
        try:
            self.addresses = tuple(self._bind(host, port) for host, port in self.addresses)
        except OSError:
            self._close()
            raise

    def take(self, udp: Iterable[socket.socket], tcp: Iterable[socket.socket]) -> None:
        """Serve sockets that others have bound, hold (`gtm.dns.io.udp.hold`) or serve too; from here on, they receive.

        Raises:
            OSError: a socket cannot be released, or does not listen.
        """
        for sock in udp:
            release(sock)
            self._udp.append(sock)
        for sock in tcp:
            sock.listen(socket.SOMAXCONN)
            self._tcp.append(sock)

    def serve(self) -> None:
        """Serve until `stop`. Blocks: one thread for each UDP socket, and one for TCP."""
        self._serving = True  # from here on, `stop` leaves closing to this
        if self._stopping.is_set():
            self._close()
            return
        self._tcp_server = TcpServer(self._tcp, self._guard, self._limits)
        self._threads = [
            threading.Thread(
                target=serve_udp,
                args=(sock, self._guard, self._stopping.is_set),
                name=f"dns-udp-{number}",
                daemon=True,
            )
            for number, sock in enumerate(self._udp)
        ]
        self._threads.append(threading.Thread(target=self._tcp_server.run, name="dns-tcp", daemon=True))
        for thread in self._threads:
            thread.start()
        if self._stopping.is_set():
            self._tcp_server.stop(self._grace)
        for thread in self._threads:
            thread.join()
        self._close()

    def stop(self, grace: float = 0.0) -> None:
        """Make `serve` return, from any thread or a signal handler. Without `serve`, give the addresses back.

        Nothing more is accepted, and queries that have arrived over UDP are answered.

        Args:
            grace: seconds that TCP connections may take to end by themselves.
        """
        self._grace = min(self._grace, grace)
        self._stopping.set()
        if not self._serving:
            self._close()
        elif self._tcp_server is not None:
            self._tcp_server.stop(self._grace)

    def _bind(self, host: str, port: int) -> tuple[str, int]:
        """Bind one address for both transports: the port that UDP gets must be free for TCP too."""
        tries_left = _PORT_TRIES if port == 0 else 1
        while True:
            tries_left -= 1
            udp = _bound("udp", bind_udp, host, port, self._reuse_port)
            actual: int = udp.getsockname()[1]
            try:
                tcp = _bound("tcp", bind_tcp, host, actual, self._reuse_port)
            except OSError:
                udp.close()
                if tries_left:
                    continue
                raise
            self._udp.append(udp)
            self._tcp.append(tcp)
            return host, actual

    def _close(self) -> None:
        for sock in (*self._udp, *self._tcp):
            sock.close()
        self._udp, self._tcp = [], []


def _bound(transport: str, bind: Bind, host: str, port: int, reuse_port: bool) -> socket.socket:
    """A bound socket.

    Raises:
        OSError: says what was to be bound.
    """
    try:
        return bind(host, port, reuse_port=reuse_port)
    except OSError as error:
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        why = error.strerror or str(error)
        raise OSError(error.errno, f"cannot serve dns over {transport} on {where}: {why.lower()}") from None
