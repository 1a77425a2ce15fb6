"""DNS cookies (RFC 7873) in the form that all servers of one address can check: RFC 9018.

A client that returns the cookie it was given has shown that it receives what is sent to its address, so its address is
not forged. Servers that share an address, or a worker's siblings, share the secret.
"""

from __future__ import annotations

from enum import Enum
from hmac import compare_digest
from socket import AF_INET, AF_INET6, inet_pton
from struct import Struct

from gtm.dns.protocol import wire

CLIENT_SIZE = 8
SIZES = frozenset({CLIENT_SIZE, *range(16, 41)})
"""Bytes of the option's data (RFC 7873 §4): a client cookie, or that and a server cookie of 8 to 32 bytes. Any other
number is FORMERR (§5.2.2)."""
SECRET_SIZE = 16

LIMIT = 1 << 14
"""Cookies remembered; past it the memory starts anew."""
_MEMORY = 60
"""Seconds that a verdict is remembered: RFC 9018 §4.3 grants minutes either way."""

_VERSION = 1
_FUTURE, _PAST, _RENEW = 5 * 60, 60 * 60, 30 * 60
_MASK = (1 << 64) - 1
_HEAD = Struct("!B3xI")
_WORD = Struct("<Q")


class CookieVerdict(Enum):
    """What a cookie option says of its client. `GOOD` and `OLD` prove its address; an old cookie is due for renewal."""

    NONE = "none"
    BAD = "bad"
    GOOD = "good"
    OLD = "old"

    @property
    def proven(self) -> bool:
        """Whether the client receives what is sent to its address."""
        return self in (CookieVerdict.GOOD, CookieVerdict.OLD)


class ServerCookies:
    """Makes and checks server cookies of version 1: a timestamp, and a SipHash-2-4 over it, client cookie and address.

    Args:
        secret: 16 bytes; new cookies are made with it.
        previous: the secret before, whose cookies still count (RFC 9018 §5).

    Raises:
        ValueError: a secret is not 16 bytes long.
    """

    __slots__ = ("_known", "_now", "_previous", "_remembered_from", "_secret")

    def __init__(self, secret: bytes, previous: bytes | None = None) -> None:
        if {len(secret), len(secret if previous is None else previous)} != {SECRET_SIZE}:
            raise ValueError(f"a secret of DNS cookies has {SECRET_SIZE} bytes")
        self._secret = secret
        self._previous = previous
        self._known: dict[tuple[str, bytes], tuple[CookieVerdict, bytes]] = {}
        self._now = self._remembered_from = 0

    def make(self, client_cookie: bytes, client_ip: bytes, now: int) -> bytes:
        """A server cookie of 16 bytes (RFC 9018 §4).

        Args:
            client_cookie: 8 bytes.
            client_ip: packed, 4 or 16 bytes.
            now: POSIX seconds.
        """
        head = _HEAD.pack(_VERSION, now & 0xFFFFFFFF)
        return head + siphash24(self._secret, client_cookie + head + client_ip)

    def check(self, client_cookie: bytes, server_cookie: bytes, client_ip: bytes, now: int) -> CookieVerdict:
        """What a server cookie proves; the arguments are those of `make`, and an empty one is `CookieVerdict.NONE`."""
        if not server_cookie:
            return CookieVerdict.NONE
        if len(server_cookie) != 16 or server_cookie[0] != _VERSION:
            return CookieVerdict.BAD
        # Serial number arithmetic (RFC 1982): the age is right across the 32 bits' end. The reserved bytes may be
        # anything, for they are hashed as they came (RFC 9018 §4.2).
        age = (now - int.from_bytes(server_cookie[4:8]) + (1 << 31)) % (1 << 32) - (1 << 31)
        if not -_FUTURE <= age <= _PAST:
            return CookieVerdict.BAD
        hashed = client_cookie + server_cookie[:8] + client_ip
        if compare_digest(server_cookie[8:], siphash24(self._secret, hashed)):
            return CookieVerdict.OLD if age > _RENEW else CookieVerdict.GOOD
        if self._previous is not None and compare_digest(
            server_cookie[8:], siphash24(self._previous, hashed)
        ):
            return CookieVerdict.OLD
        return CookieVerdict.BAD

    def tick(self, now: int) -> None:
        """Set the clock of `answer`, to be called about once a second. `now` in POSIX seconds."""
        if not 0 <= now - self._remembered_from < _MEMORY:
            self._known, self._remembered_from = {}, now
        self._now = now

    def answer(self, data: bytes, source: str) -> tuple[CookieVerdict, bytes]:
        """The verdict on a cookie option, and the option of the reply in wire form, as of the last `tick`.

        Args:
            data: the option's, of a length in `SIZES`.
            source: the client's address as text.
        """
        found = self._known.get((source, data))
        if found is None:
            if len(self._known) >= LIMIT:
                self._known = {}
            found = self._known[source, data] = self._answer(data, source)
        return found

    def _answer(self, data: bytes, source: str) -> tuple[CookieVerdict, bytes]:
        client, server, now = data[:CLIENT_SIZE], data[CLIENT_SIZE:], self._now
        packed = packed_address(source)
        verdict = self.check(client, server, packed, now)
        if verdict is not CookieVerdict.GOOD:
            server = self.make(client, packed, now)
        return verdict, wire.option(wire.OPTION_COOKIE, client + server)


def packed_address(source: str) -> bytes:
    """An address as 4 or 16 bytes; a link-local one without its interface.

    Raises:
        OSError: no address.
    """
    return inet_pton(AF_INET6, source.partition("%")[0]) if ":" in source else inet_pton(AF_INET, source)


def siphash24(key: bytes, data: bytes) -> bytes:
    """SipHash-2-4 (Aumasson and Bernstein, 2012) with a key of 16 bytes: 8 bytes, in little-endian order."""
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    state = (
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    )
    last = data[len(data) & ~7 :].ljust(7, b"\0") + bytes((len(data) & 0xFF,))
    for (word,) in _WORD.iter_unpack(data[: len(data) & ~7] + last):
        v0, v1, v2, v3 = _rounds(state[0], state[1], state[2], state[3] ^ word, 2)
        state = v0 ^ word, v1, v2, v3
    v0, v1, v2, v3 = _rounds(state[0], state[1], state[2] ^ 0xFF, state[3], 4)
    return _WORD.pack(v0 ^ v1 ^ v2 ^ v3)


def _rounds(v0: int, v1: int, v2: int, v3: int, count: int) -> tuple[int, int, int, int]:
    """The state after `count` SipRounds (Aumasson and Bernstein, "SipHash", 2012, §2)."""
    for _ in range(count):
        v0 = (v0 + v1) & _MASK
        v1 = (v1 << 13 & _MASK | v1 >> 51) ^ v0
        v0 = v0 << 32 & _MASK | v0 >> 32
        v2 = (v2 + v3) & _MASK
        v3 = (v3 << 16 & _MASK | v3 >> 48) ^ v2
        v0 = (v0 + v3) & _MASK
        v3 = (v3 << 21 & _MASK | v3 >> 43) ^ v0
        v2 = (v2 + v1) & _MASK
        v1 = (v1 << 17 & _MASK | v1 >> 47) ^ v2
        v2 = v2 << 32 & _MASK | v2 >> 32
    return v0, v1, v2, v3
