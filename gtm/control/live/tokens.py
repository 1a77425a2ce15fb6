"""Bearer tokens. Law: a token's text is shown once and kept nowhere; at rest there is its SHA-256.

The first one's text is kept until it has been shown (`gtm.runtime.control.prepare`).

A token's text is `gtm_<id>_<secret>` with 256 random bits in the secret, so that a plain hash is enough: there is
nothing to guess. The id tells people (and scanners for leaked secrets) which token it is.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from gtm.control.errors import Conflict, Invalid, NotFound
from gtm.core.model.access import OWNER_PATTERN, OWNER_WORDS, STARTED_IT, UNKNOWN_HANDS, Hands, Role, matches
from gtm.core.model.policy import Policy
from gtm.core.model.problems import Problem
from gtm.storage.history.audit import CONTROL, Actor, Via
from gtm.storage.session import Database, Transaction
from gtm.storage.tokens import Place, Token, TokenNameTaken

_PAGE = 1000
"""Tokens read at once."""
LONGEST_GRACE = timedelta(days=30)
"""How long a token's old text may work beside its new one."""
FIRST_ADMIN = "admin"
"""Name of the token made for a database that has none."""


EDGES_PATTERN = r"[A-Za-z0-9*]([A-Za-z0-9._*-]{0,251}[A-Za-z0-9*])?"
"""An edge's name, or a pattern of names."""
EDGES_WORDS = (
    "must be an edge's name, or a pattern of names such as `fra-*`: letters, digits, `.`, `_`, `-` and `*`"
)
REGIONS_PATTERN = r"[a-z0-9*]([a-z0-9*-]{0,61}[a-z0-9*])?"
"""A region's name, or a pattern of names."""
REGIONS_WORDS = "must be a region's name, or a pattern of names such as `eu-*`: lower-case letters, digits, `-` and `*` (at most 63)"
NAMES_PATTERN = r"[a-z0-9*]([a-z0-9.*_-]{0,251}[a-z0-9*])?"
"""A domain name, or a pattern of names."""
NAMES_WORDS = "must be a domain name in lower case, or a pattern of names such as `*.example.com`, which includes `example.com`"
_BOUND = (Role.BALANCER, Role.REPORTER)
"""Roles whose tokens can be bound to regions."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token just made, with its text: the only time it is seen. Of one whose text somebody else has drawn it is empty."""

    token: Token
    text: str


def digest(text: str) -> bytes:
    """What is stored of a token."""
    return sha256(text.encode()).digest()


def speaks_for(edges: str | None, edge: str) -> bool:
    """Whether a token for `edges` (a name, or a pattern in which `*` stands for anything) is one for this edge."""
    return edges is not None and matches(edges, edge)


def certifies(names: str, domain: str) -> bool:
    """Whether a token for `names` is one for the certificates of a domain. `*.example.com` is for `example.com`, too, as the certificate of that name is."""
    return matches(names, domain) or (names.startswith("*.") and names[2:] == domain)


async def create(
    database: Database,
    name: str,
    role: Role,
    *,
    by: Actor,
    now: datetime,
    expires_at: datetime | None = None,
    edges: str | None = None,
    regions: str | None = None,
    names: str | None = None,
    owner: str | None = None,
    drawn: bytes | None = None,
) -> NewToken:
    """Make a token.

    Args:
        database: where.
        name: the token's.
        role: what it may do.
        by: who makes it.
        now: the time of day.
        expires_at: when it ends; None: never.
        edges: of role `edge`: the edge that it speaks for, or a pattern of names; None: the edge of its own name.
        regions: of roles `balancer` and `reporter`: the region that it may speak of, or a pattern of names; None: of a
            reporter any, and not allowed of a balancer.
        names: of role `acme`: the name of whose certificates it may write the challenges, or a pattern of names.
        owner: the person or automation that stands behind it; None: that of what it is made with.
        drawn: the digest of a text that whoever asks has drawn; None: one is drawn here.

    Raises:
        Conflict: the name is in use, or the text.
        Invalid: it would have expired already, or is for edges, regions or names without being of a role that is, or the other way
            round, or its owner is none.
    """
    problem = _binding_problem(role, edges, regions) or _names_problem(role, names) or _owner_problem(owner)
    if problem is not None:
        raise Invalid(f"{problem}", (problem,))
    if expires_at is not None and expires_at <= now:
        problem = Problem("expires_at", "out_of_range", "must be in the future")
        raise Invalid(f"{problem}", (problem,))
    identity, text = (_new_identity(), "") if drawn else _new_text()
    try:
        async with database.transaction() as transaction:
            await _require_new(transaction, drawn)
            token = await transaction.tokens.add(
                name,
                role,
                drawn or digest(text),
                expires_at,
                token_id=identity,
                edges=edges,
                regions=regions,
                names=names,
                hands=_hands(by, owner),
            )
            await transaction.audit.add(by, "token.create", f"token {name}", detail=_detail(token))
    except TokenNameTaken as error:
        raise Conflict(
            f"there is a token named `{name}` already: choose another name, revoke it first, or replace it with "
            f"`gtm token rotate {name}`"
        ) from error
    return NewToken(token, text)


async def _require_new(transaction: Transaction, drawn: bytes | None) -> None:
    if drawn is not None and await transaction.tokens.find_by_hash(drawn) is not None:
        raise Conflict("this text is, or was, a token's already: draw another")


def _hands(by: Actor, owner: str | None, before: Hands | None = None) -> Hands:
    """In whose hands a text is that somebody makes: a new token's, or the next one of a token with the hands of `before`.

    Who works on the database is in none: they could write the policy itself. Control makes the first token for whoever started it.
    """
    beside = by.via in (Via.DIRECT, Via.CONTROL)
    theirs = by.hands or UNKNOWN_HANDS
    makers = () if beside else tuple(sorted(theirs.every))
    if owner is None:
        default = STARTED_IT if beside else theirs.owner
        owner = default if before is None else before.owner
    return Hands(owner, makers)


def _owner_problem(owner: str | None) -> Problem | None:
    if owner is not None and not re.fullmatch(OWNER_PATTERN, owner):
        return Problem("owner", "invalid_format", OWNER_WORDS)
    return None


def _binding_problem(role: Role, edges: str | None, regions: str | None) -> Problem | None:
    """What is wrong with what a new token is bound to."""
    if edges is not None and role is not Role.EDGE:
        words = f"only a token of role `edge` is for edges, not one of `{role.value}`"
        return Problem("edges", "not_allowed", words)
    if edges is not None and not re.fullmatch(EDGES_PATTERN, edges):
        return Problem("edges", "invalid_format", EDGES_WORDS)
    if regions is None and role is Role.BALANCER:
        words = (
            "a token of role `balancer` needs the region that it is for, or a pattern of names such as `eu-*`"
        )
        return Problem("regions", "missing", words)
    if regions is not None and role not in _BOUND:
        words = (
            f"only tokens of roles `balancer` and `reporter` are bound to regions, not one of `{role.value}`"
        )
        return Problem("regions", "not_allowed", words)
    if regions is not None and not re.fullmatch(REGIONS_PATTERN, regions):
        return Problem("regions", "invalid_format", REGIONS_WORDS)
    return None


def _names_problem(role: Role, names: str | None) -> Problem | None:
    """What is wrong with the names that a new token is bound to."""
    if names is None and role is Role.ACME:
        words = "a token of role `acme` needs the name whose certificates it is for, or a pattern of names such as `*.example.com`"
        return Problem("names", "missing", words)
    if names is not None and role is not Role.ACME:
        words = f"only a token of role `acme` is for names, not one of `{role.value}`"
        return Problem("names", "not_allowed", words)
    if names is not None and not re.fullmatch(NAMES_PATTERN, names):
        return Problem("names", "invalid_format", NAMES_WORDS)
    return None


async def install(
    database: Database,
    name: str,
    role: Role,
    text: str,
    *,
    edges: str | None = None,
    regions: str | None = None,
    names: str | None = None,
    owner: str | None = None,
) -> Token:
    """Make a text of the caller's a token, in place of any other of that name (for processes started together)."""
    async with database.transaction() as transaction:
        token = await transaction.tokens.replace(
            name, role, digest(text), edges=edges, regions=regions, names=names, hands=_hands(CONTROL, owner)
        )
        await transaction.audit.add(CONTROL, "token.install", f"token {name}", detail=_detail(token))
    return token


async def list_page(database: Database, after: Place | None, limit: int) -> list[Token]:
    """At most `limit` tokens by name, starting behind `after`; revoked and expired ones included."""
    async with database.transaction() as transaction:
        return await transaction.tokens.list(after, limit)


async def list_all(database: Database) -> list[Token]:
    """Every token, likewise, read page by page."""
    found: list[Token] = []
    while True:
        page = await list_page(database, place(found[-1]) if found else None, _PAGE)
        found += page
        if len(page) < _PAGE:
            return found


def place(token: Token) -> Place:
    """Where a token stands among all."""
    return token.name, token.created_at, token.id


async def revoke(database: Database, identity: str, *, by: Actor) -> Token:
    """End a token for good, named by its id; or all tokens of a name, those that end soon as well.

    Raises:
        NotFound: there is none.
    """
    async with database.transaction() as transaction:
        token = await transaction.tokens.revoke_one(identity) or await transaction.tokens.revoke(identity)
        if token is not None:
            await transaction.audit.add(by, "token.revoke", f"token {token.name}", detail=_detail(token))
    if token is None:
        raise NotFound(f"there is no token `{identity}`")
    return token


async def rotate(
    database: Database,
    name: str,
    *,
    by: Actor,
    now: datetime,
    grace: timedelta,
    owner: str | None = None,
    drawn: bytes | None = None,
) -> NewToken:
    """Make a new text for a token. Role, expiry and all else stay, but for the owner if one is given; the old text works for the grace yet.

    `drawn` is the digest of a text that whoever asks has drawn; None: one is drawn here.

    Raises:
        Conflict: that text is a token's already.
        NotFound: no token of that name works.
        Invalid: the grace is too long, or the owner is none.
    """
    problem = _owner_problem(owner)
    if problem is not None:
        raise Invalid(f"{problem}", (problem,))
    if not timedelta(0) <= grace <= LONGEST_GRACE:
        problem = Problem("grace_seconds", "out_of_range", f"must be from 0 to {LONGEST_GRACE.days} days")
        raise Invalid(f"{problem}", (problem,))
    identity, text = (_new_identity(), "") if drawn else _new_text()
    async with database.transaction() as transaction:
        await _require_new(transaction, drawn)
        held = await transaction.tokens.latest(name)
        works = await transaction.tokens.works(name, now)
        token = (
            await transaction.tokens.rotate(
                name,
                drawn or digest(text),
                now + grace,
                token_id=identity,
                hands=lambda before: _hands(by, owner, before),
            )
            if works
            else None
        )
        if token is not None:
            until = f"the text before works until {now + grace:%Y-%m-%d %H:%M:%S} UTC"
            detail = f"{_detail(token)}; {until}"
            await transaction.audit.add(by, "token.rotate", f"token {name}", detail=detail)
    if token is None:
        state = "works any more: make one with `gtm token create`" if held else "exists"
        raise NotFound(f"no token named `{name}` {state}")
    return NewToken(token, text)


async def counts(database: Database, text: str, now: datetime) -> bool:
    """Whether a text is that of a token which works."""
    async with database.transaction() as transaction:
        token = await transaction.tokens.find_by_hash(digest(text))
    return token is not None and token.works(now.timestamp())


async def bootstrap(database: Database, keep: Callable[[str], None] = lambda _: None) -> NewToken | None:
    """Prepare a fresh database: its first admin token, and a first (empty) revision for edges to start from.

    Args:
        database: the database.
        keep: is given the token's text before it counts; what this raises keeps it from counting.

    Returns:
        The token, to be shown once; None if there is, or was, an admin token already.
    """
    made = None
    async with database.change() as transaction:
        if not await transaction.tokens.any_of(Role.ADMIN):
            identity, text = _new_text()
            token = await transaction.tokens.add(
                FIRST_ADMIN, Role.ADMIN, digest(text), token_id=identity, hands=_hands(CONTROL, None)
            )
            made = NewToken(token, text)
            keep(text)
            await transaction.audit.add(
                CONTROL, "token.create", f"token {FIRST_ADMIN}", detail=_detail(token)
            )
        if await transaction.revisions.latest() is None:
            first = await transaction.revisions.add(
                Policy(), author=CONTROL.name, comment="empty policy", summary={}
            )
            await transaction.audit.add(
                CONTROL, "policy.apply", "", revision=first.number, detail=first.comment
            )
    return made


def _detail(token: Token) -> str:
    """What the audit log says of a token."""
    parts = [f"id {token.id}", f"role {token.role.value}", f"owner {token.owner or 'unknown'}"]
    if token.edges is not None:
        parts.append(f"for edges {token.edges}")
    if token.regions is not None:
        parts.append(f"for regions {token.regions}")
    if token.names is not None:
        parts.append(f"for names {token.names}")
    if token.expires_at is not None:
        parts.append(f"expires {token.expires_at:%Y-%m-%d %H:%M} UTC")
    return ", ".join(parts)


def _new_identity() -> str:
    return secrets.token_hex(5)


def _new_text() -> tuple[str, str]:
    identity = _new_identity()
    return identity, f"gtm_{identity}_{secrets.token_urlsafe(32)}"
