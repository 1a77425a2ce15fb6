"""What was measured of round trips: sums by level, and votes on where networks are. No client is in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Table, delete, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from gtm.core.latency.aggregates import Sum
from gtm.core.latency.doubt import Vote
from gtm.core.latency.samples import Level
from gtm.storage import tables

SumKey = tuple[Level, str, str, str]
"""Level, key, region and author."""
VoteKey = tuple[str, str, str, str, str]
"""Network, claim, region, reporter and edge."""

_CHUNK = 1000


class LatencyRepository:
    """Sums by level, key, region and author; votes by network, claim, region, reporter and edge."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def load(self) -> list[Sum]:
        """Every sum."""
        found = await self._connection.execute(select(tables.latency_sums))
        return [
            Sum(
                Level(row.level),
                row.key,
                row.region,
                row.author,
                row.weight,
                row.mean,
                row.spread,
                row.updated_at.timestamp(),
                row.sources,
            )
            for row in found
        ]

    async def save(self, changed: Iterable[Sum], gone: Iterable[SumKey]) -> None:
        """Store sums that changed, and delete those that are gone; one older than what is stored changes nothing."""
        await self._save(tables.latency_sums, map(_sum_row, sorted(changed)), sorted(gone))

    async def load_votes(self) -> list[Vote]:
        """Every vote."""
        found = await self._connection.execute(select(tables.latency_votes))
        return [
            Vote(
                row.network,
                row.claim,
                row.region,
                row.reporter,
                row.edge,
                row.against,
                row.fits,
                row.ms,
                row.updated_at.timestamp(),
            )
            for row in found
        ]

    async def save_votes(self, changed: Iterable[Vote], gone: Iterable[VoteKey]) -> None:
        """As `save`, for votes."""
        await self._save(tables.latency_votes, map(_vote_row, sorted(changed)), sorted(gone))

    async def _save(
        self, table: Table, rows: Iterable[Mapping[str, Any]], gone: list[SumKey] | list[VoteKey]
    ) -> None:
        # They come sorted, so that two control processes that write the same rows never wait for each other in a circle.
        keys = [column.name for column in table.primary_key]
        query = insert(table)
        new = query.excluded
        query = query.on_conflict_do_update(
            index_elements=keys,
            set_={column.name: new[column.name] for column in table.c if column.name not in keys},
            where=table.c.updated_at <= new.updated_at,
        )
        changed = list(rows)
        for start in range(0, len(changed), _CHUNK):
            await self._connection.execute(query, changed[start : start + _CHUNK])
        identity = tuple_(*(table.c[name] for name in keys))
        for start in range(0, len(gone), _CHUNK):
            await self._connection.execute(delete(table).where(identity.in_(gone[start : start + _CHUNK])))


def _sum_row(kept: Sum) -> dict[str, Any]:
    return {**_dated(kept._asdict()), "level": kept.level.value}


def _vote_row(vote: Vote) -> dict[str, Any]:
    return _dated(vote._asdict())


def _dated(row: dict[str, Any]) -> dict[str, Any]:
    updated_at = datetime.fromtimestamp(row.pop("updated"), UTC)
    return {**row, "updated_at": updated_at}
