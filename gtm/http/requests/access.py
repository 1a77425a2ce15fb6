"""Who may ask about other clients than themselves, send what balancers measured, and read the metrics.

Law: asking takes a token that may read (viewer, operator, admin), unless the operator opened look-ups to everybody;
sending takes one that may report (reporter, balancer, edge), of the regions that it is bound to.
"""

from __future__ import annotations

from enum import IntEnum
from hashlib import sha256
from typing import NamedTuple

from gtm.core.model.access import REPORTER_LENGTH, Access, Role, TokenGrant, permits
from gtm.geoip.client import ClientAddress
from gtm.http.problems import ProblemError

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


def _check(grant: Grant, weak: str, missing: str) -> None:
    """Raise the problem of a token that is not enough (`weak` says what would be), missing, or not believed here."""
    if grant is Grant.GRANTED:
        return
    if grant is Grant.WRONG_ROLE:
        challenge = b'Bearer error="insufficient_scope"'
        raise ProblemError("forbidden", weak, ((b"www-authenticate", challenge),))
    if grant is Grant.OUTDATED:
        raise _outdated()
    if grant is Grant.BAD_TOKEN:
        raise _unknown_token()
    raise ProblemError("unauthorized", missing, ((b"www-authenticate", b"Bearer"),))


def _unknown_token() -> ProblemError:
    return ProblemError(
        "unauthorized",
        "the token is unknown, expired or revoked",
        ((b"www-authenticate", b'Bearer error="invalid_token"'),),
    )


def _outdated() -> ProblemError:
    return ProblemError(
        "unauthorized",
        "this edge has not heard from control for longer than it believes tokens (GTM_TOKEN_MAX_AGE), so it accepts none: "
        "they may have been revoked since; ask another edge, or without a token about yourself",
        ((b"www-authenticate", b'Bearer error="invalid_token"'),),
    )
