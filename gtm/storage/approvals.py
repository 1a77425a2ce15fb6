"""Approvals of changes that open a fence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from gtm.storage import tables

_KEPT = timedelta(days=90)
"""How long an approval is kept after its end, to be looked up."""


@dataclass(frozen=True, slots=True)
class Approval:
    """Somebody's consent to the change with a fingerprint (SHA-256 in hex), until it expires."""

    sha256: str
    approver: str
    reason: str
    created_at: datetime
    expires_at: datetime


class ApprovalRepository:
    """Approvals by change and approver."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def put(self, sha256: str, approver: str, reason: str, expires_at: datetime) -> Approval:
        """Store an approval in place of an earlier one of the same; long ended ones are forgotten."""
        table = tables.fence_approvals
        await self._connection.execute(delete(table).where(table.c.expires_at < func.now() - _KEPT))
        given = {"reason": reason, "expires_at": expires_at, "created_at": func.now()}
        query = (
            insert(table)
            .values(sha256=sha256, approver=approver, **given)
            .on_conflict_do_update(index_elements=["sha256", "approver"], set_=given)
            .returning(*table.columns)
        )
        return Approval(**(await self._connection.execute(query)).mappings().one())

    async def of(self, sha256: str) -> list[Approval]:
        """Every approval of a change, by approver; whether it has ended is for the caller's clock to say."""
        table = tables.fence_approvals
        query = select(table).where(table.c.sha256 == sha256).order_by(table.c.approver)
        return [Approval(**row) for row in (await self._connection.execute(query)).mappings()]

    async def list(self, limit: int = 1000) -> list[Approval]:
        """The latest, newest first."""
        table = tables.fence_approvals
        query = select(table).order_by(table.c.created_at.desc(), table.c.sha256).limit(limit)
        return [Approval(**row) for row in (await self._connection.execute(query)).mappings()]
