"""Handoffs as one balancer reads them: by the keys that control publishes, and a memory of those that were for one request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gtm.core.handoff.claims import Claims
from gtm.core.handoff.keys import NO_PUBLIC_KEYS, PublicKeys
from gtm.core.handoff.verdict import Flaw, Memory, Presented
from gtm.core.model.requests import UNKNOWN_LOCATION, Location
from gtm.feed.current import CurrentView
from gtm.geoip.networks import locate_client
from gtm.handoff.verifier import Nonces, Verifier


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

    def read(self, token: bytes) -> Presented | Flaw:
        """What a handoff says, or why it is not believed."""
        keys = self._current.handoff_keys
        if keys is not self._keys:
            self._keys, self._verifier = keys, Verifier(keys)
        claims = self._verifier.verify(token)
        if isinstance(claims, Flaw):
            return claims
        return Presented(claims, self._place(claims.client), self._place(claims.pushed or ""))

    def _place(self, network: str) -> Location:
        return locate_client(network, self._locate) if network else UNKNOWN_LOCATION

    def used(self, claims: Claims) -> Memory:
        """Note that one for one request is used."""
        return self._nonces.use(claims, self._current.window.now)
