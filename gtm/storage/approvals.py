"""Approvals of changes that open a fence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, func, select
from sqlalchemy.engine import RowMapping

from gtm.core.model.access import UNKNOWN_HANDS, Hands
from gtm.storage import tables
from gtm.storage.history.audit import Actor
from gtm.storage.repository import Repository, upsert

_KEPT = timedelta(days=90)
"""How long an approval is kept after its end, to be looked up."""


@dataclass(frozen=True, slots=True)
class Approval:
    """Somebody's consent to the change with a fingerprint (SHA-256 in hex), until it expires.

    `credential` is what it was given with (`token ID` or `session ID`; empty: nobody knows), `hands` in whose that was.
    """

    sha256: str
    approver: str
    reason: str
    credential: str
    hands: Hands
    created_at: datetime
    expires_at: datetime


class ApprovalRepository(Repository):
    """Approvals by change and approver."""

    async def put(self, sha256: str, by: Actor, reason: str, expires_at: datetime) -> Approval:
        """Store an approval in place of an earlier one by the same name; long ended ones are forgotten."""
        table = tables.fence_approvals
        await self._execute(delete(table).where(table.c.expires_at < func.now() - _KEPT))
        hands = by.hands or UNKNOWN_HANDS
        query = upsert(table).values(
            sha256=sha256,
            approver=by.name,
            reason=reason,
            credential=by.credential,
            owner=hands.owner,
            makers=list(hands.makers),
            expires_at=expires_at,
            created_at=func.now(),
        )
        return _approval((await self._execute(query.returning(*table.columns))).mappings().one())

    async def of(self, sha256: str) -> list[Approval]:
        """Every approval of a change, by approver; whether it has ended is for the caller's clock to say."""
        table = tables.fence_approvals
        query = select(table).where(table.c.sha256 == sha256).order_by(table.c.approver)
        return [_approval(row) for row in await self._rows(query)]

    async def list(self, limit: int = 1000) -> list[Approval]:
        """The latest, newest first."""
        table = tables.fence_approvals
        query = select(table).order_by(table.c.created_at.desc(), table.c.sha256).limit(limit)
        return [_approval(row) for row in await self._rows(query)]


def _approval(row: RowMapping) -> Approval:
    columns = dict(row)
    hands = Hands(columns.pop("owner"), tuple(columns.pop("makers")))
    return Approval(**columns, hands=hands)
