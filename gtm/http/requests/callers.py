"""Who asks, and what they may: by the socket's peer, what trusted proxies say of it, and the token."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from gtm.core.model.access import Role, TokenGrant
from gtm.feed.current import CurrentView
from gtm.geoip.address import Address
from gtm.geoip.client import Client, ClientFinder, peer_address
from gtm.http.requests.access import Grant, Reporter, check_scraper, judged, reporter_of
from gtm.http.requests.incoming import LISTS, Incoming
from gtm.settings import Network

Forwarded = tuple[bytes | None, bytes | None]
"""The X-Forwarded-For and Forwarded headers."""


class Callers:
    """Tells those who call apart.

    Args:
        current: has the tokens that count, and how old they are.
        trusted_proxies: the networks whose forwarding headers count.
        metrics_allow: clients there read the metrics without a token.
        token_max_age: seconds without control after which no token is accepted.
        open_lookups: anybody may ask about any client.
        clock: POSIX seconds, for the end of tokens.
    """

    def __init__(
        self,
        current: CurrentView,
        *,
        trusted_proxies: tuple[Network, ...],
        metrics_allow: tuple[Network, ...],
        token_max_age: float,
        open_lookups: bool,
        clock: Callable[[], float],
    ) -> None:
        self._current_view = current
        self._finder = ClientFinder(trusted_proxies)
        self._metrics_allow = metrics_allow
        self._token_max_age = token_max_age
        self._open_lookups = open_lookups
        self._clock = clock

    def grant(self, incoming: Incoming) -> Grant:
        """Whether the caller may ask about other clients."""
        if self._open_lookups:
            return Grant.GRANTED
        return self._judged(incoming, Role.VIEWER)[0]

    def reporter(self, incoming: Incoming) -> Reporter:
        """Which reporter of round trips calls.

        Raises:
            ProblemError: none, as its token says.
        """
        return reporter_of(*self._judged(incoming, Role.REPORTER))

    def check_scraper(self, incoming: Incoming) -> None:
        """Let the metrics be read from the networks for that, or with a token.

        Raises:
            ProblemError: neither is so.
        """
        if not self._near(incoming):
            check_scraper(self._judged(incoming, Role.VIEWER)[0])

    def forwarded(self, incoming: Incoming) -> Forwarded:
        """What proxies say of the client, if they are trusted."""
        if LISTS.isdisjoint(incoming.headers) or not self._finder.trusts(incoming.peer):
            return None, None
        return incoming.headers.get(b"x-forwarded-for"), incoming.headers.get(b"forwarded")

    def address(self, peer: str | None, forwarded: Forwarded) -> Address | None:
        """The caller's address; None: unknown."""
        return self._finder.find(peer, *forwarded)

    def client(self, peer: str | None, forwarded: Forwarded) -> Client | None:
        """The caller as a client; None: unknown."""
        return Client.of(self._finder.find(peer, *forwarded))

    def _judged(self, incoming: Incoming, needed: Role) -> tuple[Grant, TokenGrant | None]:
        authorization = incoming.headers.get(b"authorization")
        current, most = self._current_view, self._token_max_age
        outdated = authorization is not None and most < inf and current.window.silence >= most
        return judged(authorization, current.access, self._clock(), needed, outdated=outdated)

    def _near(self, incoming: Incoming) -> bool:
        """Whether a request comes from where the metrics are read without a token.

        Through a proxy that nobody named it could be anybody's, although the proxy may stand near.
        """
        if LISTS.isdisjoint(incoming.headers):
            client = peer_address(incoming.peer)
        elif self._finder.trusts(incoming.peer):
            client = self.address(incoming.peer, self.forwarded(incoming))
        else:
            return False
        return client is not None and any(client in network for network in self._metrics_allow)
