"""Who asks, and what they may: by the socket's peer, what trusted proxies say of it, and the token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, InitVar, dataclass
from enum import IntEnum
from hashlib import sha256
from math import inf
from typing import NamedTuple

from gtm.core.model.access import REPORTER_LENGTH, Access, Role, TokenGrant, permits
from gtm.feed.current import CurrentView
from gtm.geoip.address import Address
from gtm.geoip.client import ClientAddress, ClientFinder, peer_address
from gtm.geoip.near import foreign
from gtm.http.problems import ProblemError
from gtm.http.requests.incoming import LISTS, Incoming
from gtm.settings import Network

# --- Who may ask about other clients than themselves, send what balancers measured, and read the metrics. ---
#
# Law: asking takes a token that may read (viewer, operator, admin), unless the operator opened look-ups to everybody;
# sending takes one that may report (reporter, balancer, edge), of the regions that it is bound to.


_MAX_TOKEN = 512


class Reporter(NamedTuple):
    """Who sends what a balancer measured: its token's name for that, and what the token is bound to.

    `regions` is the region that it may speak of, or a pattern of names; None: any.
    """

    name: str
    regions: str | None = None


class Grant(IntEnum):
    """What the token of a request, or its absence, amounts to."""

    NO_TOKEN = 0
    BAD_TOKEN = 1
    WRONG_ROLE = 2
    GRANTED = 3
    OUTDATED = 4
    """Nobody knows whether it was revoked since: control was not heard for too long."""


def judged(
    authorization: bytes | None, access: Access, now: float, needed: Role, *, outdated: bool
) -> tuple[Grant, TokenGrant | None]:
    """Judge an Authorization header (RFC 6750 §2.1).

    Args:
        authorization: its value, None if absent.
        access: the tokens known.
        now: POSIX seconds.
        needed: the role that grants it.
        outdated: control was not heard for longer than tokens are believed.

    Returns:
        What it amounts to, and the token if it is enough.
    """
    if authorization is None:
        return Grant.NO_TOKEN, None
    if outdated:
        return Grant.OUTDATED, None
    scheme, _, token = authorization.partition(b" ")
    token = token.strip()
    if scheme.lower() != b"bearer" or not token or len(token) > _MAX_TOKEN:
        return Grant.BAD_TOKEN, None
    held = access.grant(sha256(token).hexdigest(), now)
    if held is None:
        return Grant.BAD_TOKEN, None
    return (Grant.GRANTED, held) if permits(held.role, needed) else (Grant.WRONG_ROLE, None)


def check_subject(grant: Grant, asked: ClientAddress, caller: ClientAddress | None) -> None:
    """Let a caller ask about a client, or not.

    Raises:
        ProblemError: it is another client than the caller, and the token is missing, not known or not enough.
    """
    if asked != caller:
        _check(
            grant,
            "looking up other clients takes a token of role viewer, operator or admin",
            "looking up other clients than yourself takes a bearer token; without `client_ip` the answer is about you",
        )


def reporter_of(grant: Grant, held: TokenGrant | None) -> Reporter:
    """Who sends what a balancer measured, if its token is enough.

    Its name is short, and the same at every edge.

    Raises:
        ProblemError: the token is missing, not known or not enough.
    """
    _check(
        grant,
        "sending samples takes a token of role reporter or balancer",
        "sending samples takes a bearer token of role reporter or balancer",
    )
    assert held is not None  # noqa: S101 - a token that is enough is known
    return Reporter(held.sha256[:REPORTER_LENGTH], held.regions)


def check_scraper(grant: Grant) -> None:
    """Let a caller from elsewhere read the metrics, or not.

    Raises:
        ProblemError: the token is missing, not known or not enough.
    """
    _check(
        grant,
        "reading the metrics takes a token of role viewer, operator or admin",
        "reading the metrics from here takes a token of role viewer; "
        "networks that need none are named with GTM_METRICS_ALLOW",
    )


_INVALID_TOKEN = ((b"www-authenticate", b'Bearer error="invalid_token"'),)


def _check(grant: Grant, weak: str, missing: str) -> None:
    """Raise the problem of a token that is not enough (`weak` says what would be), missing, or not believed here."""
    if grant is Grant.GRANTED:
        return
    if grant is Grant.WRONG_ROLE:
        challenge = b'Bearer error="insufficient_scope"'
        raise ProblemError("forbidden", weak, ((b"www-authenticate", challenge),))
    if grant is Grant.OUTDATED:
        raise ProblemError(
            "unauthorized",
            "this edge has not heard from control for longer than it believes tokens (GTM_TOKEN_MAX_AGE), so it accepts none: "
            "they may have been revoked since; ask another edge, or without a token about yourself",
            _INVALID_TOKEN,
        )
    if grant is Grant.BAD_TOKEN:
        raise ProblemError("unauthorized", "the token is unknown, expired or revoked", _INVALID_TOKEN)
    raise ProblemError("unauthorized", missing, ((b"www-authenticate", b"Bearer"),))


# --- Who asks, and what they may: by the socket's peer, what trusted proxies say of it, and the token. ---


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
        self.trusts = self._finder.trusts
        """Whether a peer is a proxy of the operator's."""

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
        if LISTS.isdisjoint(incoming.headers) or not self.trusts(incoming.peer):
            return None, None
        return incoming.headers.get(b"x-forwarded-for"), incoming.headers.get(b"forwarded")

    def address(self, peer: str | None, forwarded: Forwarded) -> Address | None:
        """The caller's address; None: unknown."""
        return self._finder.find(peer, *forwarded)

    def client(self, peer: str | None, forwarded: Forwarded) -> ClientAddress | None:
        """The caller as a client; None: unknown."""
        return ClientAddress.of(self._finder.find(peer, *forwarded))

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
        elif self.trusts(incoming.peer):
            client = self.address(incoming.peer, self.forwarded(incoming))
        else:
            return False
        return client is not None and any(client in network for network in self.metrics_allow)
