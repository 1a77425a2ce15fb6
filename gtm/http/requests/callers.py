"""Who asks, and what they may: by the socket's peer, what trusted proxies say of it, and the token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, InitVar, dataclass
from math import inf

from gtm.core.model.access import Role, TokenGrant
from gtm.feed.current import CurrentView
from gtm.geoip.address import Address
from gtm.geoip.client import Client, ClientFinder, peer_address
from gtm.geoip.near import foreign
from gtm.http.problems import ProblemError
from gtm.http.requests.access import Grant, Reporter, check_scraper, judged, reporter_of
from gtm.http.requests.incoming import LISTS, Incoming
from gtm.settings import Network

Forwarded = tuple[bytes | None, bytes | None]
"""The X-Forwarded-For and Forwarded headers."""


@dataclass(eq=False, repr=False)
class Callers:
    """Tells those who call apart.

    Args:
        current: has the tokens that count, and how old they are.
        trusted_proxies: the networks whose forwarding headers count.
        metrics_allow: clients there read the metrics without a token.
        near_lookups: this machine may ask about any client.
        names: what this machine is known by, for what is open only to it (`gtm.geoip.near`).
        token_max_age: seconds without control after which no token is accepted.
        open_lookups: anybody may ask about any client.
        clock: POSIX seconds, for the end of tokens.
    """

    current: InitVar[CurrentView]
    _: KW_ONLY
    trusted_proxies: InitVar[tuple[Network, ...]]
    metrics_allow: tuple[Network, ...]
    token_max_age: float
    open_lookups: bool
    near_lookups: bool
    names: frozenset[str]
    clock: Callable[[], float]

    def __post_init__(self, current: CurrentView, trusted_proxies: tuple[Network, ...]) -> None:
        self._current_view = current
        self._finder = ClientFinder(trusted_proxies)

    def grant(self, incoming: Incoming) -> Grant:
        """Whether the caller may ask about other clients.

        Raises:
            ProblemError: it may only because this machine may, and it asked for another.
        """
        if self.open_lookups:
            return Grant.GRANTED
        grant = self._judged(incoming, Role.VIEWER)[0]
        if self.near_lookups and grant is not Grant.GRANTED:
            self._check_host(incoming)
            return Grant.GRANTED
        return grant

    def reporter(self, incoming: Incoming) -> Reporter:
        """Which reporter of round trips calls.

        Raises:
            ProblemError: none, as its token says.
        """
        return reporter_of(*self._judged(incoming, Role.REPORTER))

    def check_scraper(self, incoming: Incoming) -> None:
        """Let the metrics be read from the networks for that, or with a token.

        Raises:
            ProblemError: neither is so, or it was asked from there for another machine.
        """
        grant = self._judged(incoming, Role.VIEWER)[0]
        if grant is Grant.GRANTED:
            return
        if not self._near(incoming):
            check_scraper(grant)
        self._check_host(incoming)

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
        current, most = self._current_view, self.token_max_age
        outdated = authorization is not None and most < inf and current.window.silence >= most
        return judged(authorization, current.access, self.clock(), needed, outdated=outdated)

    def _check_host(self, incoming: Incoming) -> None:
        """Let what is open only to this machine be asked by its own names.

        Raises:
            ProblemError: the request came over loopback, and names another.
        """
        host, snapshot = incoming.headers.get(b"host", b""), self._current_view.snapshot
        words = foreign(incoming.peer, host, self.names, snapshot)
        if words:
            raise ProblemError("foreign_host", words)

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
        return client is not None and any(client in network for network in self.metrics_allow)
