"""Keys of handoffs as values: public ones with whom they speak for, and an edge's own with when they are rolled.

Theory. Whoever verifies has keys that are as old as its last look: followers of the feed a second, others as long as they keep
a JWK set. So a key signs only when everybody has had the time to learn it, and stays published for as long as something that it
signed is believed. An edge's `Ring` goes through

    current ──(30 days)──▶ current + next ──(an hour on the feed)──▶ old + current ──(two hours)──▶ current

by `rolled`, and nothing is waited for: while the next key has not come back on the feed, the current one signs on.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, replace
from hashlib import sha256

from gtm.core.handoff.claims import LONGEST, Issuer

SIZE = 32
"""Bytes of a key of Ed25519, private or public (RFC 8032 §5.1.5)."""
MOST = 3
"""Public keys of one edge: the one in use, the one before and the next."""
ROLL_EVERY = 30 * 86_400.0
"""Seconds for which a key signs."""
AHEAD = 3600.0
"""Seconds on the feed before a key signs."""
KEEP = 2.0 * LONGEST
"""Seconds after its last signature for which a key stays published."""


def key_text(public: bytes) -> str:
    """A public key as reports, the feed and JWK sets write it: base64url without padding (RFC 8037 §2)."""
    return urlsafe_b64encode(public).rstrip(b"=").decode()


def key_bytes(text: str) -> bytes:
    """A public key from its text.

    Raises:
        ValueError: it is none.
    """
    try:
        found = urlsafe_b64decode(text.encode("ascii") + b"=")
    except ValueError as error:
        raise ValueError("a public key of Ed25519 is 43 characters of base64url") from error
    if len(found) != SIZE or key_text(found) != text:
        raise ValueError("a public key of Ed25519 is 43 characters of base64url, without padding")
    return found


def thumbprint(text: str) -> str:
    """The `kid` of a public key (RFC 7638 §3, RFC 8037 §2)."""
    canonical = f'{{"crv":"Ed25519","kty":"OKP","x":"{text}"}}'
    return key_text(sha256(canonical.encode()).digest())


@dataclass(frozen=True, slots=True, order=True)
class PublicKey:
    """A published key: whose it is, and its text (`key_text`); of a balancer's token the regions that it speaks for (a name, or a pattern)."""

    issuer: str
    x: str
    kind: Issuer = Issuer.EDGE
    regions: str = ""


@dataclass(frozen=True, slots=True)
class PublicKeys:
    """Every key that counts, sorted. `version` is 0 before anything is known of them."""

    keys: tuple[PublicKey, ...] = ()
    version: int = 0


NO_PUBLIC_KEYS = PublicKeys()


@dataclass(frozen=True, slots=True)
class OwnKey:
    """A key pair of this edge's.

    `private` and `public` are 32 bytes each. `since` (POSIX seconds) is when it began to sign; of the next key, when it was
    first seen on the feed, None: it was not.
    """

    private: bytes
    public: bytes
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Ring:
    """An edge's keys. `retired` (POSIX seconds) is when `old` signed last."""

    current: OwnKey
    next: OwnKey | None = None
    old: OwnKey | None = None
    retired: float = 0.0

    @property
    def public(self) -> tuple[str, ...]:
        """The texts of the keys to be published."""
        return tuple(key_text(key.public) for key in (self.current, self.next, self.old) if key is not None)


def rolled(ring: Ring, now: float, published: frozenset[str], fresh: OwnKey) -> Ring:
    """The ring after one step, itself if nothing is due.

    Args:
        ring: the edge's.
        now: POSIX seconds.
        published: texts of the edge's keys that are on the feed.
        fresh: a key pair, used if one is needed.
    """
    if ring.old is not None and now - ring.retired > KEEP:
        ring = replace(ring, old=None)
    following = ring.next
    if following is None:
        due = now - (ring.current.since or 0.0) >= ROLL_EVERY
        return replace(ring, next=replace(fresh, since=None)) if due else ring
    if following.since is None:
        seen = key_text(following.public) in published
        return replace(ring, next=replace(following, since=now)) if seen else ring
    if now - following.since < AHEAD or ring.old is not None:
        return ring
    return Ring(replace(following, since=now), None, ring.current, now)
