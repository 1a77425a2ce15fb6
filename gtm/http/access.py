"""Who may ask about other clients than themselves, send what balancers measured, and read the metrics.

Law: asking takes a token that may read (viewer, operator, admin), unless the operator opened look-ups to everybody;
sending takes one that may report (reporter, edge).
"""

from __future__ import annotations

from enum import IntEnum
from hashlib import sha256

from gtm.core.model.access import Access, Role, permits
from gtm.geoip.client import Client
from gtm.http.problems import ProblemError

_MAX_TOKEN = 512
REPORTER_LENGTH = 16
"""How many hexadecimal digits of its token's SHA-256 name a reporter."""


class Grant(IntEnum):
    """What the token of a request, or its absence, amounts to."""

    NO_TOKEN = 0
    BAD_TOKEN = 1
    WRONG_ROLE = 2
    GRANTED = 3
    OUTDATED = 4
    """Nobody knows whether it was revoked since: control was not heard for too long."""


def grant_of(
    authorization: bytes | None,
    access: Access,
    now: float,
    needed: Role = Role.VIEWER,
    *,
    outdated: bool = False,
) -> Grant:
    """Judge an Authorization header (RFC 6750 §2.1).

    Args:
        authorization: its value, None if absent.
        access: the tokens known.
        now: POSIX seconds.
        needed: the role that grants it.
        outdated: control was not heard for longer than tokens are believed.
    """
    if authorization is None:
        return Grant.NO_TOKEN
    if outdated:
        return Grant.OUTDATED
    scheme, _, token = authorization.partition(b" ")
    token = token.strip()
    if scheme.lower() != b"bearer" or not token or len(token) > _MAX_TOKEN:
        return Grant.BAD_TOKEN
    role = access.role(sha256(token).hexdigest(), now)
    if role is None:
        return Grant.BAD_TOKEN
    return Grant.GRANTED if permits(role, needed) else Grant.WRONG_ROLE


def reporter_of(authorization: bytes | None) -> str:
    """A short name of the token in an Authorization header, the same at every edge; empty without one."""
    token = (authorization or b"").partition(b" ")[2].strip()
    return sha256(token).hexdigest()[:REPORTER_LENGTH] if token else ""


def check_subject(grant: Grant, asked: Client, caller: Client | None) -> None:
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


def check_reporter(grant: Grant) -> None:
    """Let a caller send what a balancer measured, or not.

    Raises:
        ProblemError: the token is missing, not known or not enough.
    """
    _check(
        grant,
        "sending samples takes a token of role reporter or edge",
        "sending samples takes a bearer token of role reporter or edge",
    )


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
