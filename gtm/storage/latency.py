"""What was measured of round trips: sums by level, and votes on where networks are. No client is in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Table, delete, select, tuple_
from sqlalchemy.engine import RowMapping

from gtm.core.latency.aggregates import Sum
from gtm.core.latency.doubt import Vote
from gtm.core.latency.samples import Level
from gtm.storage import tables
from gtm.storage.repository import Repository, upsert

SumKey = tuple[Level, str, str, str]
"""Level, key, region and author."""
VoteKey = tuple[str, str, str, str, str]
"""Network, claim, region, reporter and edge."""

_CHUNK = 1000
"""Rows of a statement that deletes."""


class LatencyRepository(Repository):
    """Sums by level, key, region and author; votes by network, claim, region, reporter and edge."""

    async def load(self) -> list[Sum]:
        """Every sum."""
        found = await self._rows(select(tables.latency_sums))
        return [Sum(**{**_undated(row), "level": Level(row["level"])}) for row in found]

    async def save(self, changed: Iterable[Sum], gone: Iterable[SumKey]) -> None:
        """Store sums that changed, and delete those that are gone; one older than what is stored changes nothing."""
        rows = ({**_dated(kept._asdict()), "level": kept.level.value} for kept in sorted(changed))
        await self._save(tables.latency_sums, rows, sorted(gone))

    async def load_votes(self) -> list[Vote]:
        """Every vote."""
        return [Vote(**_undated(row)) for row in await self._rows(select(tables.latency_votes))]

    async def save_votes(self, changed: Iterable[Vote], gone: Iterable[VoteKey]) -> None:
        """Store votes that changed, and delete those that are gone; one older than what is stored changes nothing."""
        rows = (_dated(vote._asdict()) for vote in sorted(changed))
        await self._save(tables.latency_votes, rows, sorted(gone))

    async def _save(
        self, table: Table, rows: Iterable[Mapping[str, Any]], gone: list[SumKey] | list[VoteKey]
    ) -> None:
        # They come sorted, so that two control processes that write the same rows never wait for each other in a circle.
        await self._write(upsert(table, newer="updated_at"), list(rows))
        identity = tuple_(*table.primary_key)
        for start in range(0, len(gone), _CHUNK):
            await self._execute(delete(table).where(identity.in_(gone[start : start + _CHUNK])))


def _dated(row: dict[str, Any]) -> dict[str, Any]:
    updated_at = datetime.fromtimestamp(row.pop("updated"), UTC)
    return {**row, "updated_at": updated_at}


def _undated(row: RowMapping) -> dict[str, Any]:
    found = dict(row)
    updated = found.pop("updated_at").timestamp()
    return {**found, "updated": updated}
