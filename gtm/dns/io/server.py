"""The DNS server: the threads that serve sockets of both transports."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from math import inf

from gtm.dns.io.guard import Guard, Respond
from gtm.dns.io.limiter import Limiter
from gtm.dns.io.tcp import TcpLimits, TcpServer
from gtm.dns.io.udp import release, serve_udp
from gtm.telemetry import Counts


class DnsServer:
    """Serves DNS on sockets that others have bound, hold (`gtm.dns.io.udp.hold`) or serve too; from here on, they receive.

    Args:
        udp: from `gtm.dns.io.udp.bind_udp`.
        tcp: which need not listen yet.
        respond: what answers a packet: (packet, client's address, over TCP) → reply, or None to drop it.
        counts: where internal errors are counted.
        limits: of TCP connections.
        limiter: what replies over UDP must pass.

    Raises:
        OSError: a socket cannot be released, or does not listen.
    """

    def __init__(
        self,
        udp: Sequence[socket.socket],
        tcp: Sequence[socket.socket],
        respond: Respond,
        *,
        counts: Counts,
        limits: TcpLimits,
        limiter: Limiter | None,
    ) -> None:
        for sock in udp:
            release(sock)
        for sock in tcp:
            sock.listen(socket.SOMAXCONN)
        self._udp, self._tcp = udp, tcp
        self._guard = Guard(respond, counts, limiter)
        self._limits = limits
        self._tcp_server: TcpServer | None = None
        self._serving = False
        self._stopping = threading.Event()
        self._grace = inf
        self._threads: list[threading.Thread] = []

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
        """Make `serve` return, from any thread or a signal handler. Without `serve`, close the sockets.

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

    def _close(self) -> None:
        for sock in (*self._udp, *self._tcp):
            sock.close()
