"""Verifying handoffs, and remembering those for one request.

Memory is bounded, whatever arrives. Only what a published key signed is remembered, so that nobody else can fill it.
"""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from gtm.core.handoff.claims import Claims, Issuer
from gtm.core.handoff.keys import NO_PUBLIC_KEYS, PublicKeys, key_bytes, thumbprint
from gtm.core.handoff.verdict import Flaw, Reuse
from gtm.handoff.jwt import MalformedTokenError, parsed

REMEMBERED = 4096
"""Verified handoffs kept in each of two generations: some 10 MB."""
IN_VAIN = 50
"""Handoffs of one client that are looked at in a second and not believed: a hundredth of a processor's time at the most."""
NONCES = 262_144
"""Nonces of handoffs for one request that are remembered at once: some 50 MB, and 8,700 such requests a second at a TTL of 30 s."""


@dataclass(slots=True)
class _Key:
    """A published key, and for whom it speaks: as an edge, as a balancer. It is made once it is asked for: thousands may be told, each second others."""

    text: str
    speaks: set[tuple[str, Issuer]]
    made: Ed25519PublicKey | None = None

    @property
    def public(self) -> Ed25519PublicKey:
        if self.made is None:
            self.made = Ed25519PublicKey.from_public_bytes(key_bytes(self.text))
        return self.made


class Verifier:
    """Verifies by the keys that are published.

    Args:
        keys: all of them.
        room: how many verified handoffs each of two generations keeps.
    """

    def __init__(self, keys: PublicKeys = NO_PUBLIC_KEYS, room: int = REMEMBERED) -> None:
        self._room = room
        self._young: dict[bytes, Claims] = {}
        self._old: dict[bytes, Claims] = {}
        self._keys: dict[str, _Key] = {}
        for key in keys.keys:
            known = self._keys.setdefault(thumbprint(key.x), _Key(key.x, set()))
            # Two names may have told one key; who has not its private part signs nothing by it.
            known.speaks.add((key.issuer, key.kind))

    def verify(self, token: bytes) -> Claims | Flaw:
        """What a handoff says, or why it cannot be believed. Its audience and times are not looked at (`judge`)."""
        known = self.remembered(token)
        if known is not None:
            return known
        try:
            found = parsed(token)
        except MalformedTokenError:
            return Flaw.MALFORMED
        key = self._keys.get(found.kid)
        if key is None:
            return Flaw.UNKNOWN_KEY
        claims = found.claims
        # First what costs nothing: a signature takes as long as three requests.
        if (claims.issuer, Issuer.BALANCER if claims.hop else Issuer.EDGE) not in key.speaks:
            return Flaw.WRONG_ISSUER
        try:
            key.public.verify(found.signature, found.signed)
        except InvalidSignature:
            return Flaw.BAD_SIGNATURE
        if not claims.once:  # one for one request comes once
            self._remember(token, claims)
        return claims

    def remembered(self, token: bytes) -> Claims | None:
        """What a handoff for any number of requests says that was verified a short time ago; None: it has to be verified."""
        return self._young.get(token) or self._old.get(token)

    def _remember(self, token: bytes, claims: Claims) -> None:
        if len(self._young) >= self._room:
            self._old, self._young = self._young, {}
        self._young[token] = claims


class Disbelief:
    """How many handoffs of each client were not believed this second: whoever sends such ones soon has none verified, and nobody else fewer.

    A client is a prefix of addresses (`gtm.core.shares.client_prefix`). Whose are believed may send as many as they like.

    Args:
        most: handoffs of one client that are looked at in vain in a second.
        clients: of whom that is remembered. Of others all are looked at: to get there takes longer than the second.
    """

    def __init__(self, most: int = IN_VAIN, clients: int = REMEMBERED) -> None:
        self._most, self._clients = most, clients
        self._second = 0
        self._failed: dict[bytes, int] = {}

    def looks(self, client: bytes, now: float) -> bool:
        """Whether a handoff that this client sends is to be looked at.

        Args:
            client: its prefix.
            now: seconds of any clock that does not stand.
        """
        return int(now) != self._second or self._failed.get(client, 0) < self._most

    def failed(self, client: bytes, now: float) -> None:
        """Note that one was not believed."""
        if int(now) != self._second:
            self._second, self._failed = int(now), {}
        count = self._failed.get(client, 0)
        if count or len(self._failed) < self._clients:
            self._failed[client] = count + 1


class Nonces:
    """The handoffs for one request that were used, until they end. One process's: others don't see it.

    Args:
        most: how many are remembered.
    """

    def __init__(self, most: int = NONCES) -> None:
        self._most = most
        self._ends: dict[tuple[str, str], int] = {}
        self._sweep_at = 0.0

    def use(self, claims: Claims, now: float) -> Reuse:
        """Note that a handoff is used, unless it was before or there is no room.

        Args:
            claims: of a handoff that is believed otherwise.
            now: POSIX seconds, the earliest that it may be: what ended later than that is remembered still.
        """
        key = claims.issuer, claims.nonce
        if key in self._ends:
            return Reuse.USED
        if len(self._ends) >= self._most and now >= self._sweep_at:
            self._ends = {nonce: end for nonce, end in self._ends.items() if end > now}
            self._sweep_at = now + 1  # a full memory is looked through once a second
        if len(self._ends) >= self._most:
            return Reuse.FULL
        self._ends[key] = claims.expires
        return Reuse.NEW

    def __len__(self) -> int:
        return len(self._ends)
