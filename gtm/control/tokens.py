"""Bearer tokens. Law: a token's text is shown once and kept nowhere; at rest there is its SHA-256.

A token's text is `gtm_<id>_<secret>` with 256 random bits in the secret, so that a plain hash is enough: there is
nothing to guess. The id tells people (and scanners for leaked secrets) which token it is.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from gtm.control.errors import Conflict, Invalid, NotFound
from gtm.core.access import Role
from gtm.core.model import Policy
from gtm.core.problems import Problem
from gtm.storage.session import Database
from gtm.storage.tokens import Token, TokenNameTaken

FIRST_ADMIN = "admin"
"""Name of the token made for a database that has none."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token just made, with its text: the only time it is seen."""

    token: Token
    text: str


def digest(text: str) -> bytes:
    """What is stored of a token."""
    return sha256(text.encode()).digest()


async def create(
    database: Database, name: str, role: Role, *, now: datetime, expires_at: datetime | None = None
) -> NewToken:
    """Make a token.

    Raises:
        Conflict: the name is in use.
        Invalid: it would have expired already.
    """
    if expires_at is not None and expires_at <= now:
        problem = Problem("expires_at", "out_of_range", "must be in the future")
        raise Invalid(f"{problem}", (problem,))
    identity, text = _new_text()
    try:
        async with database.transaction() as transaction:
            token = await transaction.tokens.add(name, role, digest(text), expires_at, token_id=identity)
    except TokenNameTaken as error:
        raise Conflict(
            f"there is a token named `{name}` already (revoked ones count): choose another name"
        ) from error
    return NewToken(token, text)


async def install(database: Database, name: str, role: Role, text: str) -> Token:
    """Make a text of the caller's a token, in place of any other of that name (for processes started together)."""
    async with database.transaction() as transaction:
        return await transaction.tokens.replace(name, role, digest(text))


async def list_all(database: Database) -> list[Token]:
    """Every token by name, revoked and expired ones included."""
    async with database.transaction() as transaction:
        return await transaction.tokens.list()


async def revoke(database: Database, identity: str) -> Token:
    """End a token for good, named by its id or its name.

    Raises:
        NotFound: there is none.
    """
    async with database.transaction() as transaction:
        named = next((t.name for t in await transaction.tokens.list() if identity in (t.id, t.name)), None)
        token = await transaction.tokens.revoke(named) if named is not None else None
    if token is None:
        raise NotFound(f"there is no token `{identity}`")
    return token


async def bootstrap(database: Database) -> NewToken | None:
    """Prepare a fresh database: its first admin token, and a first (empty) revision for edges to start from.

    Returns:
        The token, to be shown once; None if there is, or was, an admin token already.
    """
    made = None
    async with database.transaction() as transaction:
        await transaction.policy.lock()
        if not any(token.role is Role.ADMIN for token in await transaction.tokens.list()):
            identity, text = _new_text()
            token = await transaction.tokens.add(FIRST_ADMIN, Role.ADMIN, digest(text), token_id=identity)
            made = NewToken(token, text)
        if await transaction.revisions.latest() is None:
            await transaction.revisions.add(Policy(), author="gtm", comment="empty policy", summary={})
    return made


def _new_text() -> tuple[str, str]:
    identity = secrets.token_hex(5)
    return identity, f"gtm_{identity}_{secrets.token_urlsafe(32)}"
