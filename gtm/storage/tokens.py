"""Bearer tokens: only their SHA-256 is stored.

A name has one token that works for good, and any number of others: those that have ended, and those that end soon, whose
`revoked_at` lies in the future.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict, Unpack

from sqlalchemy import ColumnElement, Executable, and_, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert

from gtm.core.model.access import UNKNOWN_HANDS, Hands, Role
from gtm.storage import tables
from gtm.storage.repository import Repository

_ID_BYTES = 5


class TokenNameTaken(Exception):  # noqa: N818 - it names what is so, as the API's 409 does
    """A token of that name works."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token, never its secret. Whether it has expired, or is revoked yet, is for the caller's clock to say."""

    id: str
    name: str
    role: Role
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    """When it was revoked; in the future, when it will be, as another one has replaced it."""
    edges: str | None = None
    """Of role `edge`: the edge that it speaks for, or a pattern of names."""
    regions: str | None = None
    """Of roles `balancer` and `reporter`: the region that it may report on, or a pattern of names; null of a reporter: any."""
    names: str | None = None
    """Of role `acme`: the name at which it may write challenges, or a pattern of names."""
    owner: str | None = None
    """The person or automation that stands behind it; null: it is from before that was written down."""
    makers: tuple[str, ...] = ()
    """In whose hands that was which it was made with: they count as one with it. `*`: that was not written down."""

    @property
    def hands(self) -> Hands:
        """In whose hands its text is."""
        return Hands(self.owner, self.makers)

    def works(self, now: float) -> bool:
        """Whether it has not ended at a POSIX time."""
        return self.ends_at is None or self.ends_at.timestamp() > now

    @property
    def ends_at(self) -> datetime | None:
        """When it stops working, or has stopped; None: it does not."""
        return min((at for at in (self.expires_at, self.revoked_at) if at is not None), default=None)


Place = tuple[str, datetime, str]
"""Where a token stands among all: its name, when it was made, its id."""


class NewTokenFacts(TypedDict, total=False):
    """What a new token has beside its name, role and secret; see `Token`."""

    token_id: str | None
    edges: str | None
    regions: str | None
    names: str | None
    hands: Hands


_COLUMNS = [c for c in tables.tokens.columns if c.name != "sha256"]


class TokenRepository(Repository):
    """Tokens by name. `sha256` is always the 32-byte digest of the secret.

    `edges` is of tokens of role `edge` alone: without it they speak for the edge of their own name. `regions` is of those of
    roles `balancer`, which must have it, and `reporter`, `names` of those of role `acme`, which must have it. `hands` are those in which the text is.
    """

    async def add(
        self,
        name: str,
        role: Role,
        sha256: bytes,
        expires_at: datetime | None = None,
        **given: Unpack[NewTokenFacts],
    ) -> Token:
        """Store a new token. One of that name that has expired counts as revoked since.

        Raises:
            TokenNameTaken: the name is in use; `replace` would overwrite it.
        """
        expired = (
            update(tables.tokens)
            .where(
                tables.tokens.c.name == name,
                tables.tokens.c.revoked_at.is_(None),
                tables.tokens.c.expires_at <= func.now(),
            )
            .values(revoked_at=tables.tokens.c.expires_at)
        )
        await self._execute(expired)
        query = (
            insert(tables.tokens)
            .values(_values(name, role, sha256, expires_at, **given))
            .on_conflict_do_nothing(index_elements=["name"], index_where=tables.tokens.c.revoked_at.is_(None))
            .returning(*_COLUMNS)
        )
        row = await self._row(query)
        if row is None:
            raise TokenNameTaken(f"a token named `{name}` exists")
        return _token(row)

    async def replace(
        self,
        name: str,
        role: Role,
        sha256: bytes,
        expires_at: datetime | None = None,
        **given: Unpack[NewTokenFacts],
    ) -> Token:
        """Store a token in place of any other of that name, whose secret stops working at the commit."""
        await self._execute(tables.tokens.delete().where(tables.tokens.c.name == name))
        query = (
            insert(tables.tokens)
            .values(_values(name, role, sha256, expires_at, **given))
            .returning(*_COLUMNS)
        )
        return _token((await self._execute(query)).mappings().one())

    async def find_by_hash(self, sha256: bytes) -> Token | None:
        """The token with this digest, also when it is revoked or expired."""
        query = select(*_COLUMNS).where(tables.tokens.c.sha256 == sha256)
        return await self._token(query)

    async def list(self, after: Place | None = None, limit: int = 100) -> list[Token]:
        """At most `limit` tokens by name, starting behind `after`; revoked ones included, the latest of a name first."""
        name, created, identity = tables.tokens.c.name, tables.tokens.c.created_at, tables.tokens.c.id
        query = select(*_COLUMNS).order_by(name, created.desc(), identity).limit(limit)
        if after is not None:
            later = or_(created < after[1], and_(created == after[1], identity > after[2]))
            query = query.where(or_(name > after[0], and_(name == after[0], later)))
        return [_token(row) for row in await self._rows(query)]

    async def latest(self, name: str) -> Token | None:
        """The latest token of a name, whether it works or not."""
        query = select(*_COLUMNS).where(tables.tokens.c.name == name)
        query = query.order_by(tables.tokens.c.created_at.desc(), tables.tokens.c.id).limit(1)
        return await self._token(query)

    async def works(self, name: str, now: datetime) -> bool:
        """Whether a token of a name works at a time."""
        ends = func.least(
            tables.tokens.c.expires_at, tables.tokens.c.revoked_at
        )  # of the one that there is, if one
        query = select(tables.tokens.c.id).where(
            tables.tokens.c.name == name, or_(ends.is_(None), ends > now)
        )
        return (await self._execute(query.limit(1))).first() is not None

    async def any_of(self, role: Role) -> bool:
        """Whether there is, or was, a token of a role."""
        query = select(tables.tokens.c.id).where(tables.tokens.c.role == role.value).limit(1)
        return (await self._execute(query)).first() is not None

    async def live(self) -> dict[bytes, Token]:
        """Digest → token, of all that are not revoked yet. Whether they have expired is for the caller's clock to say."""
        query = select(*_COLUMNS, tables.tokens.c.sha256).where(_working())
        found: dict[bytes, Token] = {}
        for row in await self._rows(query):
            found[row["sha256"]] = _token({key: value for key, value in row.items() if key != "sha256"})
        return found

    async def revoke(self, name: str) -> Token | None:
        """Revoke every token of this name for good; None if there is none.

        Returns:
            The latest. If none works any more, as it was: the first revocation's time stays.
        """
        await self._hold(name)
        query = (
            update(tables.tokens)
            .where(tables.tokens.c.name == name, _working())
            .values(revoked_at=func.now())
        )
        await self._execute(query)
        return await self.latest(name)

    async def revoke_one(self, token_id: str) -> Token | None:
        """Revoke the token of this id for good; None if there is none."""
        mine = tables.tokens.c.id == token_id
        query = update(tables.tokens).where(mine, _working()).values(revoked_at=func.now())
        await self._execute(query)
        return await self._token(select(*_COLUMNS).where(mine))

    async def rotate(
        self, name: str, sha256: bytes, ends_at: datetime, *, token_id: str, hands: Callable[[Hands], Hands]
    ) -> Token | None:
        """Put a new token in place of the one of this name that works, with all that it has but the secret, and other hands.

        `hands` says those of the new one by those of the old. The old one stops working at `ends_at`, and so do those that were replaced before it. None: there is none.
        """
        await self._hold(name)
        held = select(tables.tokens).where(tables.tokens.c.name == name, tables.tokens.c.revoked_at.is_(None))
        old = await self._row(held)
        if old is None:
            return None
        ending = (
            update(tables.tokens)
            .where(tables.tokens.c.name == name, _working())
            .values(revoked_at=func.least(tables.tokens.c.revoked_at, ends_at))
        )
        await self._execute(ending)
        new = hands(Hands(old["owner"], tuple(old["makers"])))
        kept = {key: value for key, value in old.items() if key not in ("created_at", "revoked_at")}
        kept |= {"id": token_id, "sha256": sha256, "owner": new.owner, "makers": list(new.makers)}
        query = insert(tables.tokens).values(kept).returning(*_COLUMNS)
        return _token((await self._execute(query)).mappings().one())

    async def _token(self, query: Executable) -> Token | None:
        row = await self._row(query)
        return None if row is None else _token(row)

    async def _hold(self, name: str) -> None:
        """Wait for whoever else changes the tokens of a name: a rotation and another, or a revocation, see each other."""
        rows = select(tables.tokens.c.id).where(tables.tokens.c.name == name)
        await self._execute(rows.order_by(tables.tokens.c.id).with_for_update())


def _working() -> ColumnElement[bool]:
    """Not revoked, or not yet."""
    revoked = tables.tokens.c.revoked_at
    return or_(revoked.is_(None), revoked > func.now())


def _values(
    name: str, role: Role, sha256: bytes, expires_at: datetime | None, **given: Unpack[NewTokenFacts]
) -> dict[str, Any]:
    hands = given.get("hands", UNKNOWN_HANDS)
    return {
        "id": given.get("token_id") or secrets.token_hex(_ID_BYTES),
        "name": name,
        "role": role.value,
        "sha256": sha256,
        "expires_at": expires_at,
        "edges": (given.get("edges") or name) if role is Role.EDGE else None,
        "regions": given.get("regions"),
        "names": given.get("names"),
        "owner": hands.owner,
        "makers": list(hands.makers),
    }


def _token(row: Mapping[Any, Any]) -> Token:
    return Token(**{**row, "role": Role(row["role"]), "makers": tuple(row["makers"])})
