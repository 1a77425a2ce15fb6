"""Response rate limiting: what goes over UDP to one client prefix in a second, whoever forged its addresses.

A reply up to twice as long as its query is worth nothing to an attacker, so only what is beyond that counts as excess.
Each prefix has a budget of excess bytes and one of replies, anew in each window, which lasts from one `turn` to the
next. Past the first, replies that exceed twice their query are limited; past the second, all are. Of the limited
replies most are dropped, and each `slip`-th goes out without records, from which a real client learns to come again
over TCP (RFC 2181 §9) or with a cookie (RFC 7873 §5.2.3). A client that proved its address by a cookie is not limited.

Laws:
  1. What a prefix receives in a window is at most twice what was sent in its name, and its budget of excess.
  2. Memory is bounded: prefixes beyond `LIMIT` in one window share budgets.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from math import inf

from gtm.core.shares import PREFIX_BYTES, client_prefix
from gtm.dns.protocol import wire
from gtm.dns.protocol.cookies import SIZES, CookieVerdict, ServerCookies, packed_address

LIMIT = 1 << 14
"""Prefixes and addresses remembered in one window."""
_SHARED = 256
"""Budgets that further prefixes share."""
_TOP = 10
_COOKIE = wire.OPTION_COOKIE.to_bytes(2) + b"\0"
"""What a cookie option begins with: its code, and the first byte of its length."""

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Budgets of one client prefix, per second and process.

    The defaults leave a large resolver alone, which asks for one name thousands of times a second: an ordinary address
    answer has no excess at all, a signed one about 90 bytes. 256 KiB are 2 Mbit/s, with which nobody is flooded: as much
    as NSD's default of 200 replies, all as long as can be.
    """

    replies: int = 10_000
    excess: int = 256 * 1024
    """Bytes of replies beyond twice the queries'."""
    slip: int = 2
    """Each so-many-th limited reply is sent, without records: BIND's and NSD's default. 0: none is."""
    exempt: tuple[Network, ...] = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
    """Not limited. Nobody outside can forge a loopback address (RFC 1122 §3.2.1.3)."""


class _Bucket:
    """What one prefix received in this window. A window's number of limited replies tells which of them slip."""

    __slots__ = ("excess", "limited", "replies")

    def __init__(self, spent: float = 0) -> None:
        self.replies = spent
        self.excess = spent
        self.limited = 0


class Limiter:
    """Limits replies over UDP.

    Several threads may call `passes`, and another one `turn`: a count lost between them lets one reply more pass.

    Args:
        limits: the budgets.
        cookies: what tells clients that proved their address; None: nobody can.
        counts: where slipped and dropped replies are counted.
    """

    __slots__ = (
        "_by_prefix",
        "_by_source",
        "_cookies",
        "_counts",
        "_excess",
        "_exempt",
        "_replies",
        "_shared",
        "_slip",
    )

    def __init__(self, limits: RateLimits, cookies: ServerCookies | None, counts: dict[str, float]) -> None:
        self._replies = limits.replies
        self._excess = limits.excess
        self._slip = limits.slip
        self._exempt = [
            (len(item.network_address.packed), int(item.network_address), int(item.netmask))
            for item in limits.exempt
        ]
        self._cookies = cookies
        self._counts = counts
        self._by_source: dict[str, _Bucket] = {}
        self._by_prefix: dict[bytes, _Bucket] = {}
        self._shared: list[_Bucket] = []
        self.turn()

    def passes(self, source: str, query: bytes, reply: bytes) -> bytes | None:
        """What goes out over UDP instead of `reply`: itself, a reply without records, or nothing.

        Args:
            source: the client's address as text.
            query: as it came.
            reply: the whole answer to it.
        """
        bucket = self._by_source.get(source) or self._bucket(source)
        bucket.replies += 1
        excess = len(reply) - 2 * len(query)
        if excess > 0:
            bucket.excess += excess
            if bucket.excess > self._excess:
                return self._limited(bucket, source, query, reply)
        if bucket.replies > self._replies:
            return self._limited(bucket, source, query, reply)
        return reply

    def turn(self) -> list[tuple[str, int]]:
        """Begin the next window. The prefixes that received the most in the last one, and how many replies were due."""
        ended = self._by_prefix
        self._by_source, self._by_prefix = {}, {}
        self._shared = [_Bucket() for _ in range(_SHARED)]
        top = nlargest(_TOP, list(ended.items()), key=lambda item: item[1].replies)
        return [(_text(prefix), int(bucket.replies)) for prefix, bucket in top if bucket.replies > 0]

    def _bucket(self, source: str) -> _Bucket:
        """The budget of an address that is new in this window."""
        packed = packed_address(source)
        if self._is_exempt(packed):
            found = _Bucket(-inf)
        else:
            prefix = client_prefix(packed)
            known = self._by_prefix.get(prefix)
            if known is None:
                if len(self._by_prefix) >= LIMIT:
                    return self._shared[hash(prefix) % _SHARED]
                known = self._by_prefix[prefix] = _Bucket()
            found = known
        if len(self._by_source) < LIMIT:
            self._by_source[source] = found
        return found

    def _is_exempt(self, packed: bytes) -> bool:
        number = int.from_bytes(packed)
        return any(size == len(packed) and number & mask == network for size, network, mask in self._exempt)

    def _limited(self, bucket: _Bucket, source: str, query: bytes, reply: bytes) -> bytes | None:
        """What goes out past a budget."""
        cookie = self._cookie(query, source)
        if cookie is not None and cookie[0].proven:
            return reply
        bucket.limited += 1
        out = None
        if self._slip and bucket.limited % self._slip == 0:
            # An error is no longer than its query: a header and little more.
            out = reply if len(reply) <= len(query) else _without_records(query, cookie)
        key = f"gtm_dns_limited_total\t{'dropped' if out is None else 'slipped'}"
        self._counts[key] = self._counts.get(key, 0) + 1
        return out

    def _cookie(self, query: bytes, source: str) -> tuple[CookieVerdict, bytes] | None:
        """The verdict on a query's cookie and the option that answers it; None without one."""
        if self._cookies is None or _COOKIE not in query:
            return None
        try:
            opts = wire.outline(query).opts
        except wire.MalformedError:
            return None
        data = wire.first_option(opts[0].options, wire.OPTION_COOKIE) if len(opts) == 1 else None
        return None if data is None or len(data) not in SIZES else self._cookies.answer(data, source)


def _without_records(query: bytes, cookie: tuple[CookieVerdict, bytes] | None) -> bytes | None:
    """The reply that makes a client come again: BADCOOKIE with a good cookie, if it knows cookies, or else TC.

    Not longer than the query but for the cookie; None if the query cannot be read.
    """
    try:
        outline = wire.outline(query)
    except wire.MalformedError:
        return None
    flags = outline.opts[0].flags if outline.opts else None
    end = outline.question_end
    if cookie is None:
        return wire.bare_reply(query, wire.NOERROR, question_end=end, opt_flags=flags, truncated=True)
    return wire.bare_reply(query, wire.BADCOOKIE, question_end=end, opt_flags=flags, options=cookie[1])


def _text(prefix: bytes) -> str:
    """A prefix in CIDR notation, as metrics label it."""
    size = 4 if len(prefix) == PREFIX_BYTES[4] else 16
    return f"{ip_address(prefix.ljust(size, bytes(1)))}/{8 * len(prefix)}"
