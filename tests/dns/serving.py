"""DNS servers on addresses of their own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterable, Iterator

from gtm.dns.io.guard import Respond
from gtm.dns.io.limiter import Limiter
from gtm.dns.io.server import DnsServer
from gtm.dns.io.tcp import TcpLimits
from gtm.dns.io.udp import bind_udp
from gtm.runtime.process.sockets import bind_tcp
from gtm.telemetry import Counts

TIMEOUT = 10.0


class BoundServer(DnsServer):
    """Serves addresses that it binds for both transports. Port 0: any that is free."""

    def __init__(
        self,
        addresses: Iterable[tuple[str, int]],
        respond: Respond,
        *,
        counts: Counts | None = None,
        limits: TcpLimits | None = None,
        limiter: Limiter | None = None,
    ) -> None:
        bound = [(host, *_bound(host, port)) for host, port in addresses]
        self.addresses = tuple((host, udp.getsockname()[1]) for host, udp, _ in bound)
        super().__init__(
            [udp for _, udp, _ in bound],
            [tcp for _, _, tcp in bound],
            respond,
            counts=Counts() if counts is None else counts,
            limits=limits or TcpLimits(),
            limiter=limiter,
        )


def _bound(host: str, port: int) -> tuple[socket.socket, socket.socket]:
    while True:
        with bind_udp(
            host, port
        ) as drawn:  # what is bound as 0 has no address of its own once it is released
            udp = bind_udp(host, drawn.getsockname()[1])
        try:
            return udp, bind_tcp(host, udp.getsockname()[1], reuse_port=True)
        except OSError:
            udp.close()
            if port:
                raise


@contextlib.contextmanager
def running(server: BoundServer) -> Iterator[BoundServer]:
    """A server that serves meanwhile, and ends after."""
    with serving(server):
        yield server


@contextlib.contextmanager
def serving(server: DnsServer) -> Iterator[threading.Thread]:
    """The thread of a server that serves meanwhile, and ends after."""
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        server.stop()
        thread.join(TIMEOUT)
        assert not thread.is_alive()
