"""The short way of answers for everyone: records of zones, denials and refusals, without dnspython.

Whoever floods a server with names that are not there makes it answer just these, and each only once, so nothing is
remembered. What is unusual in a packet, depends on the client or is long makes `StaticWay.answer` give None.
"""

from __future__ import annotations

from collections.abc import Callable

from gtm.dns.answer.clients import Clients
from gtm.dns.answer.questions import NO_EDNS
from gtm.dns.answer.ready import Sign, body
from gtm.dns.protocol import wire
from gtm.dns.zone.content import Content
from gtm.dns.zone.static import static_content
from gtm.dns.zone.zones import Names

Count = Callable[[bytes, int, Content, bool], None]
"""(name, type, content, over TCP): count an answer."""

_COUNTS = b"\0\1\0\0\0\0\0"
"""Bytes 4–10 of a query with one question and at most one additional record."""


class StaticWay:
    """The short way for the names of one policy.

    Args:
        names: of the policy.
        clients: what is known of OPT records.
        sign: what DNSSEC makes of an answer; None: nothing.
        count: counts what is answered.
    """

    __slots__ = ("_clients", "_count", "_names", "_sign")

    def __init__(self, names: Names, clients: Clients, sign: Sign | None, count: Count) -> None:
        self._names = names
        self._clients = clients
        self._sign = sign
        self._count = count

    def answer(self, packet: bytes, source: str, *, tcp: bool) -> bytes | None:
        """The reply to a packet, or None if it is not for this way."""
        end = packet.find(0, wire.HEADER_SIZE) + 5
        asked = packet[wire.HEADER_SIZE : end - 4]
        if packet[4:11] != _COUNTS or packet[2] > 1 or packet[3] & 0xF or not wire.is_name(asked):
            return None
        has_edns = packet[11] == 1
        edns = self._clients.edns(packet[end:]) if has_edns else NO_EDNS
        if edns is None or (has_edns and tcp and edns.keepalive) or len(packet) < end + 11 * has_edns:
            return None
        if packet[11] > 1 or (not has_edns and len(packet) != end) or packet[end - 2 : end] != b"\0\1":
            return None
        name, rdtype = asked.lower(), int.from_bytes(packet[end - 4 : end - 2])
        content = static_content(self._names, name, rdtype)
        if not isinstance(content, Content) or content.delegation is not None:
            return None
        if self._sign is not None:
            flags = int.from_bytes(packet[end + 7 : end + 9])
            content = self._sign(content, name, rdtype, edns.dnssec_ok, bool(flags & wire.CO))
        opt = edns.opt(
            b"" if content.error is None else content.error.option, source, tailored=content.tailored
        )
        head = packet[:2] + _head(content, packet[2], has_edns=has_edns)
        reply = head + packet[wire.HEADER_SIZE : end] + body(content, packet[wire.HEADER_SIZE : end]) + opt
        # The full way compresses, and so may still fit where this does not.
        if len(reply) > (wire.TCP_PAYLOAD if tcp else edns.limit):
            return None
        self._count(name, rdtype, content, tcp)
        return reply


def _head(content: Content, recursion: int, *, has_edns: bool) -> bytes:
    """Bytes 2–11 of the reply."""
    flags = wire.reply_flags(recursion << 8, authoritative=content.authoritative) | content.rcode
    return wire.HEADER.pack(
        flags, 1, len(content.records), len(content.authority), len(content.additional) + has_edns, 0
    )[:10]
