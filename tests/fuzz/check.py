"""What must hold for any packet, whoever finds it: the fuzzer, or the test that replays its corpus."""

from __future__ import annotations

import dns.message

from gtm.core.decision.router import Router
from gtm.dns.answer.answerer import Answerer
from gtm.dns.io.limiter import Limiter, RateLimits
from gtm.dns.protocol import wire
from gtm.dns.protocol.cookies import ServerCookies
from gtm.dns.protocol.options import NO_OPTIONS, ServerOptions
from gtm.dns.zone.dnssec import ZoneSigner
from gtm.telemetry import Counts
from tests.dns.world import locate, router
from tests.dns.zone.signing import KEYS, NOW, SIGNED

COOKIES = ServerCookies(bytes(16))
OPTIONS = ServerOptions(b"fra-1", b"gtm", 10.0, COOKIES)
DRAW = 0.3
_SIGNER = ZoneSigner(KEYS, lambda: NOW)
_UP, _DOWN = router("us", policy=SIGNED), router("eu", "us", "ie", policy=SIGNED)


def _server(view: Router, signer: ZoneSigner | None, options: ServerOptions) -> Answerer:
    return Answerer(view, locate, Counts(), signer=signer, options=options, draw=lambda: DRAW)


SERVERS = (
    _server(_UP, None, OPTIONS),
    _server(_UP, _SIGNER, OPTIONS),
    _server(_DOWN, None, NO_OPTIONS),
    _server(_DOWN, _SIGNER, NO_OPTIONS),
)
LIMITER = Limiter(RateLimits(replies=1, excess=0, slip=1, exempt=()), COOKIES, {})
CLIENTS = ("10.1.0.1", "10.2.0.1", "203.0.113.9", "2001:db8:1::1")


def check(data: bytes) -> None:
    """Answer a packet both ways. The first byte says over which transport, from where and by which server.

    Raises:
        AssertionError: the two ways differ, a reply is none to this packet, or it is too long.
        Exception: whatever answering raises.
    """
    if not data:
        return
    kind, packet = data[0], data[1:]
    tcp, server, client = bool(kind & 1), SERVERS[kind >> 1 & 3], CLIENTS[kind >> 3 & 3]
    reply = server.answer(packet, client, tcp=tcp, draw=DRAW)
    slow = server.answer_fully(packet, client, tcp=tcp, draw=DRAW)
    if not tcp:
        assert server.udp(packet, client) == server.udp(packet, client) == reply
    if reply is None or slow is None:
        assert reply is slow
        assert len(packet) < wire.HEADER_SIZE or packet[2] & 0x80
        return
    assert reply[:12] == slow[:12]
    assert reply[:2] == packet[:2]
    assert reply[2] & 0x80
    assert tcp or len(reply) <= wire.UDP_PAYLOAD
    message = dns.message.from_wire(reply)
    if (
        reply != slow
    ):  # compression differs, and with it perhaps the case of names in the data (RFC 4343 §4.1)
        assert message.to_text().lower() == dns.message.from_wire(slow).to_text().lower()
    limited = LIMITER.passes(client, packet, reply)
    if limited is not None and limited != reply:
        assert len(limited) <= len(packet) + 16
        dns.message.from_wire(limited)
