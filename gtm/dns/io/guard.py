"""The line between the sockets and what answers: nothing raised on one side ends the other."""

from __future__ import annotations

import logging
from collections.abc import Callable

from gtm.dns.io.limiter import Limiter
from gtm.dns.protocol import wire
from gtm.telemetry import Counts

Respond = Callable[[bytes, str, bool], bytes | None]
"""(packet, client's address, over TCP) → reply, or None to drop the packet."""

_log = logging.getLogger(__name__)


class Guard:
    """A `Respond` that never raises: an internal error becomes SERVFAIL, is counted, and is logged once per class of error.

    Args:
        respond: what answers.
        counts: where errors are counted, among the queries answered with SERVFAIL.
        limiter: what replies over UDP must pass; over TCP no address is forged.
    """

    def __init__(self, respond: Respond, counts: Counts, limiter: Limiter | None) -> None:
        self._respond = respond
        self._counts = counts
        self._limiter = limiter
        self._seen: set[str] = set()

    def __call__(self, packet: bytes, client: str, tcp: bool) -> bytes | None:
        """The reply to a packet; None: none is due."""
        try:
            reply = self._respond(packet, client, tcp)
            if tcp or reply is None or self._limiter is None:
                return reply
            return self._limiter.passes(client, packet, reply)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong with one query must not end the others
            name = type(error).__name__
            if name not in self._seen:
                self._seen.add(name)
                _log.exception(
                    "a dns query could not be answered; further errors of this class are only counted"
                )
            if len(packet) < wire.HEADER_SIZE or packet[2] & 0x80:
                return None
            transport = "tcp" if tcp else "udp"
            self._counts.add(f"gtm_dns_queries_total\t\tother\tSERVFAIL\t{transport}")
            return wire.bare_reply(packet, wire.SERVFAIL)
