"""Numbered revisions of the policy, and those that a database has lost: it was restored from a backup, and those who follow it hold later ones."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Text, cast, func, literal, select, update
from sqlalchemy.dialects.postgresql import JSONB, insert

from gtm.core.model.policy import Policy
from gtm.storage import documents, tables
from gtm.storage.repository import Repository
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


class RevisionRepository(Repository):
    """Revisions: added, never changed. Numbers start at 1; those that a restored database has lost are left out."""

    async def latest(self) -> Revision | None:
        """The newest revision, if there is any."""
        found = await self.list(limit=1)
        return found[0] if found else None

    async def get(self, number: int) -> Revision | None:
        """The revision of this number, if there is one."""
        query = select(*_METADATA).where(tables.revisions.c.number == number)
        row = await self._row(query)
        return None if row is None else Revision(**row)

    async def policy(self, number: int) -> Policy | None:
        """The whole policy of that revision, if there is one."""
        query = select(cast(tables.revisions.c.document, Text)).where(tables.revisions.c.number == number)
        text = (await self._execute(query)).scalar_one_or_none()
        return None if text is None else documents.policy_of(text)

    async def list(self, before: int | None = None, limit: int = 100) -> list[Revision]:
        """At most `limit` revisions, newest first, starting below the number `before`."""
        query = select(*_METADATA).order_by(tables.revisions.c.number.desc()).limit(limit)
        if before is not None:
            query = query.where(tables.revisions.c.number < before)
        return [Revision(**row) for row in await self._rows(query)]

    async def before(self, number: int) -> int:
        """The number of the revision before another; 0: there is none."""
        made = tables.revisions.c
        query = select(func.coalesce(func.max(made.number), 0)).where(made.number < number)
        found: int = (await self._execute(query)).scalar_one()
        return found

    async def in_force(self, at: datetime) -> int | None:
        """The number of the newest revision of a moment; None if there was none yet."""
        made = tables.revisions.c
        query = select(made.number).where(made.created_at <= at).order_by(made.number.desc()).limit(1)
        found: int | None = (await self._execute(query)).scalar_one_or_none()
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
        revision = Revision(**(await self._execute(query)).mappings().one())
        notify = select(func.pg_notify(REVISION_CHANNEL, cast(revision.number, Text)))
        await self._execute(notify)
        return revision


@dataclass(frozen=True, slots=True)
class Fork:
    """Revisions after `after`, up to `up_to`, were published and are lost. `accepted_at`: somebody said that going back is meant."""

    after: int
    up_to: int
    noted_at: datetime
    accepted_at: datetime | None = None

    def has(self, revision: int) -> bool:
        """Whether a revision is one of those lost."""
        return self.after < revision <= self.up_to


class ForkRepository(Repository):
    """What was lost, by the revision after which it was."""

    async def open(self) -> list[Fork]:
        """Those of which nobody has said yet that going back is meant, the oldest first."""
        table = tables.forks
        query = select(table).where(table.c.accepted_at.is_(None)).order_by(table.c.after)
        return [Fork(**row) for row in await self._rows(query)]

    async def note(self, after: int, up_to: int) -> None:
        """Somebody holds a revision that is later than the latest, `after`."""
        table = tables.forks
        query = insert(table).values(after=after, up_to=up_to)
        await self._execute(
            query.on_conflict_do_update(
                index_elements=["after"],
                set_={"up_to": query.excluded.up_to, "accepted_at": None},
                where=table.c.up_to < query.excluded.up_to,
            )
        )

    async def accept(self) -> list[Fork]:
        """Going back is meant: all that are open are so no more, which every control is notified of."""
        found = await self.open()
        table = tables.forks
        await self._execute(update(table).where(table.c.accepted_at.is_(None)).values(accepted_at=func.now()))
        await self._execute(select(func.pg_notify(REVISION_CHANNEL, "")))
        return found
