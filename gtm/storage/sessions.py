"""Sessions of people at the dashboard."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gtm.core.model.access import Role
from gtm.storage import tables


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who is signed in.

    `id` names it in lists; `sha256` is that of the secret in the cookie. `token` is the SHA-256 in hex of the token that it was
    opened with, and ends with; empty: an identity provider said who it is. `agent` is what the browser calls itself.
    """

    id: str
    sha256: bytes
    name: str
    role: Role
    token: str
    agent: str
    """The name that the browser gives itself (`User-Agent`)."""
    created_at: datetime
    seen_at: datetime
    """When it was used last, to a minute."""
    expires_at: datetime


class SessionRepository:
    """Sessions, those that have ended forgotten."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, session: Session) -> None:
        """Store one, and forget those that have expired."""
        table = tables.sessions
        await self._connection.execute(delete(table).where(table.c.expires_at <= func.now()))
        given = {name: getattr(session, name) for name in table.columns.keys()}  # noqa: SIM118 - a ColumnCollection
        await self._connection.execute(insert(table).values(given))

    async def find_by_hash(self, sha256: bytes) -> Session | None:
        """The session whose cookie has a secret with this hash."""
        table = tables.sessions
        row = (
            (await self._connection.execute(select(table).where(table.c.sha256 == sha256))).mappings().first()
        )
        return None if row is None else _session(row)

    async def seen(self, ids: dict[str, datetime]) -> None:
        """They were used at these times."""
        table = tables.sessions
        for one, at in ids.items():
            await self._connection.execute(update(table).where(table.c.id == one).values(seen_at=at))

    async def live(self, limit: int = 100_000) -> list[Session]:
        """Those that have not expired, the latest used first."""
        table = tables.sessions
        query = (
            select(table)
            .where(table.c.expires_at > func.now())
            .order_by(table.c.seen_at.desc(), table.c.id)
            .limit(limit)
        )
        return [_session(row) for row in (await self._connection.execute(query)).mappings()]

    async def end_oldest(self, name: str, kept: int) -> list[Session]:
        """End all of a person's but those that were used last; which were."""
        table = tables.sessions
        newest = (
            select(table.c.id)
            .where(table.c.name == name)
            .order_by(table.c.seen_at.desc(), table.c.created_at.desc(), table.c.id)
            .limit(kept)
        )
        query = delete(table).where(table.c.name == name, table.c.id.not_in(newest)).returning(*table.columns)
        return [_session(row) for row in (await self._connection.execute(query)).mappings()]

    async def end(self, *, id_: str | None = None, name: str | None = None) -> list[Session]:
        """End one by its id, or all of a person's by the name, or both; which were."""
        table = tables.sessions
        query = delete(table).where(or_(table.c.id == id_, table.c.name == name)).returning(*table.columns)
        return [_session(row) for row in (await self._connection.execute(query)).mappings()]


def _session(row: object) -> Session:
    values = dict(row)  # type: ignore[call-overload]
    return Session(**{**values, "role": Role(values["role"])})
