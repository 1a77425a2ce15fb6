"""Handoffs as one balancer reads them, by the keys that control publishes and a memory of those that were for one request; and signs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gtm.core.handoff.claims import Claims, Issuer
from gtm.core.handoff.keys import NO_PUBLIC_KEYS, OwnKey, PublicKeys, key_text
from gtm.core.handoff.verdict import Flaw, Presented, Reuse
from gtm.core.model.requests import UNKNOWN_LOCATION, Location
from gtm.feed.current import CurrentView
from gtm.geoip.networks import locate_client
from gtm.handoff.jwt import Signer
from gtm.handoff.proof import proof
from gtm.handoff.verifier import Disbelief, Nonces, Verifier


class Handoffs:
    """See above.

    Args:
        current: has the keys that are published, and the time.
        locate: where an address is, given in any way.
    """

    def __init__(self, current: CurrentView, locate: Callable[[Any], Any]) -> None:
        self._current = current
        self._locate = locate
        self._keys: PublicKeys = NO_PUBLIC_KEYS
        self._verifier = Verifier()
        self._nonces = Nonces()
        self._looked_up = Nonces()
        self._disbelief = Disbelief()

    def read(self, token: bytes, client: bytes | None, now: float) -> Presented | Flaw:
        """What a handoff says, or why it is not believed.

        Args:
            token: the handoff.
            client: the prefix of addresses that it comes from; None: it was believed before.
            now: monotonic seconds.
        """
        if client is not None and not self._disbelief.looks(client, now):
            return Flaw.UNVERIFIED
        keys = self._current.handoff_keys
        if keys is not self._keys:
            self._keys, self._verifier = keys, Verifier(keys)
        claims = self._verifier.verify(token)
        if isinstance(claims, Flaw):
            return claims
        return Presented(claims, self._place(claims.client), self._place(claims.pushed or ""))

    def _place(self, network: str) -> Location:
        return locate_client(network, self._locate) if network else UNKNOWN_LOCATION

    def disbelieved(self, client: bytes, now: float) -> None:
        """A handoff from there was not believed, for whatever reason."""
        self._disbelief.failed(client, now)

    def used(self, claims: Claims) -> Reuse:
        """Note that one for one request is used."""
        return self._nonces.use(claims, self._current.window.now)

    def came(self, claims: Claims) -> Reuse:
        """Note that one of a look-up came, and say whether it did before."""
        return self._looked_up.use(claims, self._current.window.now)


class OwnHandoffs:
    """Those that this balancer signs: once its key is published, by the name that it is published under (its token's).

    Args:
        current: has the keys that are published.
    """

    def __init__(self, current: CurrentView) -> None:
        self._current = current
        self._keys: PublicKeys | None = None
        self._text = ""
        self._key: OwnKey | None = None
        self._signer: Signer | None = None
        self._issuer = ""

    def use(self, key: OwnKey) -> None:
        """Sign by this key from now on."""
        self._key, self._text, self._signer, self._keys = key, key_text(key.public), Signer(key), None

    @property
    def issuer(self) -> str:
        """The name that it signs by; empty: it is not published."""
        keys = self._current.handoff_keys
        if keys is not self._keys:
            self._keys = keys
            names = (key.issuer for key in keys.keys if key.kind is Issuer.BALANCER and key.x == self._text)
            self._issuer = next(names, "")
        return self._issuer

    @property
    def signs(self) -> bool:
        """Whether others would believe it."""
        return self._signer is not None and bool(self.issuer)

    def proof(self, asked: bytes, region: str) -> bytes | None:
        """What proves to a peer that this is a balancer of a region (`gtm.handoff.proof`); None if it would not believe it."""
        return None if self._key is None or not self.signs else proof(asked, region, self._key)

    def sign(self, claims: Claims) -> bytes | None:
        """The handoff; None if nobody would believe it."""
        return self._signer.sign(claims) if self._signer is not None and self.signs else None
