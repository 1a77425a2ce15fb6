"""An edge's part in handoffs: what it signs for clients that it sends to a region, and the keys that it publishes.

Law: a service that does not ask for handoffs costs nothing by them. What is prepared of answers holds no handoff; it is put in
where one is asked for, made for each answer.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable

from gtm.core.decision.decide import Routing
from gtm.core.decision.options import Option
from gtm.core.decision.view import Window
from gtm.core.handoff.claims import handed
from gtm.core.handoff.keys import OwnKey
from gtm.core.model.services import Handoff
from gtm.core.quota.earned import Worth
from gtm.handoff import jwks
from gtm.handoff.jwt import Signer
from gtm.http.problems import Headers, Response, response_of
from gtm.http.requests.incoming import Incoming, Page

_NONCE = 12
"""Random bytes of a nonce."""
_HEADERS: Headers = (
    (b"content-type", jwks.MEDIA_TYPE.encode()),
    (b"cache-control", b"public, max-age=%d" % jwks.KEPT),
)


class HandoffSigner:
    """Signs for one process of an edge.

    Args:
        window: the time it is.
        published: the public keys of all edges, as the feed has them.
    """

    def __init__(self, window: Callable[[], Window], published: Callable[[], Iterable[str]] = tuple) -> None:
        self._window = window
        self._published = published
        self._issuer = ""
        self._signer: Signer | None = None
        self.credit: Worth = ()
        """What the request that was picked for last has earned and this process could not save: it goes on in its handoff."""
        self._own: tuple[str, ...] = ()

    def use(self, issuer: str, key: OwnKey, public: tuple[str, ...]) -> None:
        """Sign by a key, as an issuer, from now on; `public` are all keys of this edge that are to be published."""
        self._issuer, self._own, self._signer = issuer, public, Signer(key)

    def signs(self, routing: Routing) -> bool:
        """Whether the service asks for it."""
        return routing.ranking.group.service.service.handoff is Handoff.SIGN

    def signed(self, routing: Routing, option: Option, *, once: bool) -> bytes | None:
        """The handoff of the request that was picked for last; None if there is nothing to hand over, or no key yet."""
        signer = self._signer
        if signer is None:
            return None
        nonce = urlsafe_b64encode(os.urandom(_NONCE)).decode()
        claims = handed(routing, option, self._issuer, self._window(), nonce, once=once, credit=self.credit)
        return None if claims is None else signer.sign(claims)

    @property
    def page(self) -> Page:
        """The JWK set."""
        return Page("jwks", self._jwks)

    def _jwks(self, _incoming: Incoming, _routes: object) -> Response:
        return response_of(200, _HEADERS, jwks.written([*self._published(), *self._own]))
