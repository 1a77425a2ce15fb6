"""Round trips to a balancer's clients, from the kernel's TCP_INFO of their connections, summed up as edges sum up theirs.

Laws:
  1. A look each second, at a bounded number of connections, and at each at most once an interval: requests pay nothing for it.
  2. A round trip counts for the address at the other end of the same connection, and for no other: what a PROXY protocol or a header
     says of a client was not measured, and what was measured of a trusted proxy is no client's.
  3. No address outlives the interval (`gtm.core.latency.samples`).
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any

from gtm.balancer.plane.client.downstream import Downstream
from gtm.core.latency.samples import Interval, SampleMethod
from gtm.geoip.client import peer_address
from gtm.http.requests.callers import Reporter
from gtm.http.samples.intake import Intake, Posted
from gtm.settings import Network

LOOK_EVERY = 1.0
"""Seconds between looks."""
MOST = 64
"""Connections that one look reads."""
INTERVAL = 10.0
"""Seconds that are summed up, as edges do with what balancers post to them."""
MAX_SENT = 5_000
"""What was learned of round trips in one report, and of locations as much: more than connections are read in an interval."""
_MIN_RTT = 148
"""Where `tcpi_min_rtt` stands in `struct tcp_info` (linux/tcp.h), in microseconds. The least of the last five minutes
(`net.ipv4.tcp_min_rtt_wlen`): the smoothed one has the client's delayed acknowledgements in it."""
_UNKNOWN = 0xFFFF_FFFF
_REPORTER = Reporter("")
"""Whose token it is, control knows."""


@dataclass(eq=False, repr=False)
class ClientRoundTrips:
    """See above.

    Args:
        intake: where they are summed up.
        region: this balancer's.
        clients: the connections that there are.
        proxies: networks of trusted proxies.
        draw: of a list so many, by chance.
        now: seconds that never step back.
    """

    intake: Intake
    region: str
    clients: Callable[[], Iterable[Downstream]]
    proxies: Sequence[Network]
    _: KW_ONLY
    draw: Callable[[list[Downstream], int], list[Downstream]] = random.sample
    now: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._ends = self.now() + INTERVAL
        self._seen: set[int] = set()
        self.measured = 0
        """Round trips so far."""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            await self.look()

    async def look(self) -> None:
        """Read some connections that were not read in this interval."""
        fresh = [client for client in self.clients() if id(client) not in self._seen]
        found = []
        for client in fresh if len(fresh) <= MOST else self.draw(fresh, MOST):
            self._seen.add(id(client))
            posted = self._of(client)
            if posted is not None:
                found.append(posted)
        self.measured += len(found)
        await self.intake.take_in(found, None, SampleMethod.BALANCER, _REPORTER)

    def due(self) -> Interval:
        """The interval, if it is over; else nothing."""
        if self.now() < self._ends:
            return Interval([], [])
        self._ends = self.now() + INTERVAL
        return self.take()

    def take(self) -> Interval:
        """End the interval: what it said."""
        self._seen.clear()
        return self.intake.end_interval(SampleMethod.BALANCER)

    def _of(self, client: Downstream) -> Posted | None:
        transport = client.transport
        peer = transport.get_extra_info("peername")
        if not isinstance(peer, tuple) or peer[0] != client.peer:
            return None
        address = peer_address(peer[0])
        if address is None or address.is_loopback or any(address in network for network in self.proxies):
            return None
        ms = min_rtt_ms(transport.get_extra_info("socket"))
        return None if ms is None else Posted(address, self.region, ms)


def min_rtt_ms(sock: Any) -> float | None:
    """The least round trip that the kernel has lately seen on a connection; None: it has seen none, or does not say."""
    option = getattr(socket, "TCP_INFO", None)
    if sock is None or option is None:
        return None
    with suppress(OSError, struct.error):
        info = sock.getsockopt(socket.IPPROTO_TCP, option, _MIN_RTT + 4)
        found: int = struct.unpack_from("=I", info, _MIN_RTT)[0]
        return None if found in (0, _UNKNOWN) else found / 1000
    return None
