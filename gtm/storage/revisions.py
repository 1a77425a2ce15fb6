"""Numbered revisions of the policy."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Text, cast, func, insert, literal, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from gtm.core.model.policy import Policy
from gtm.storage import documents, tables
from gtm.storage.resources import PolicyRepository, sort_policy

REVISION_CHANNEL = "gtm_revision"
"""Where a commit notifies each new revision; the payload is its number in decimal."""


@dataclass(frozen=True, slots=True)
class Revision:
    """What is known of a revision beside its document. `summary` counts its changes, as its writer did."""

    number: int
    created_at: datetime
    author: str
    comment: str
    sha256: str
    summary: dict[str, dict[str, int]]
    """Kind → created, updated, deleted → how many."""


_METADATA = [c for c in tables.revisions.columns if c.name != "document"]


class RevisionRepository:
    """Revisions: added, never changed. Numbers start at 1; those that a restored database has lost are left out."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def latest(self) -> Revision | None:
        """The newest revision, if there is any."""
        found = await self.list(limit=1)
        return found[0] if found else None

    async def get(self, number: int) -> Revision | None:
        """The revision of this number, if there is one."""
        query = select(*_METADATA).where(tables.revisions.c.number == number)
        row = (await self._connection.execute(query)).mappings().one_or_none()
        return None if row is None else _revision(row)

    async def policy(self, number: int) -> Policy | None:
        """The whole policy of that revision, if there is one."""
        query = select(cast(tables.revisions.c.document, Text)).where(tables.revisions.c.number == number)
        text = (await self._connection.execute(query)).scalar_one_or_none()
        return None if text is None else documents.policy_of(text)

    async def list(self, before: int | None = None, limit: int = 100) -> list[Revision]:
        """At most `limit` revisions, newest first, starting below the number `before`."""
        query = select(*_METADATA).order_by(tables.revisions.c.number.desc()).limit(limit)
        if before is not None:
            query = query.where(tables.revisions.c.number < before)
        return [_revision(row) for row in (await self._connection.execute(query)).mappings()]

    async def before(self, number: int) -> int:
        """The number of the revision before another; 0: there is none."""
        made = tables.revisions.c
        query = select(func.coalesce(func.max(made.number), 0)).where(made.number < number)
        found: int = (await self._connection.execute(query)).scalar_one()
        return found

    async def in_force(self, at: datetime) -> int | None:
        """The number of the newest revision of a moment; None if there was none yet."""
        made = tables.revisions.c
        query = select(made.number).where(made.created_at <= at).order_by(made.number.desc()).limit(1)
        found: int | None = (await self._connection.execute(query)).scalar_one_or_none()
        return found

    async def add(
        self, policy: Policy, *, author: str, comment: str, summary: dict[str, dict[str, int]]
    ) -> Revision:
        """Store a revision under the policy lock, and notify `REVISION_CHANNEL` when the transaction commits."""
        await PolicyRepository(self._connection).lock()
        text = documents.dumps(documents.to_document(sort_policy(policy)))
        lost = select(func.coalesce(func.max(tables.forks.c.up_to), 0)).scalar_subquery()
        latest = select(func.coalesce(func.max(tables.revisions.c.number), 0)).scalar_subquery()
        number = select(func.greatest(latest, lost) + 1).scalar_subquery()
        query = (
            insert(tables.revisions)
            .values(
                number=number,
                author=author,
                comment=comment,
                document=cast(literal(text, Text), JSONB),
                sha256=documents.text_sha256(text),
                summary=summary,
            )
            .returning(*_METADATA)
        )
        revision = _revision((await self._connection.execute(query)).mappings().one())
        notify = select(func.pg_notify(REVISION_CHANNEL, cast(revision.number, Text)))
        await self._connection.execute(notify)
        return revision


def _revision(row: RowMapping) -> Revision:
    return Revision(**row)
