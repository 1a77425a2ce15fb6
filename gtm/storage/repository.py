"""What all repositories have: the connection of a transaction, and how rows are read and written over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Executable, Table
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

_CHUNK = 1000
"""Rows of a statement; a statement has 65,535 parameters at the most."""


class Repository:
    """Tables of one subject, read and written in one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._execute = connection.execute

    async def _rows(self, query: Executable) -> Sequence[RowMapping]:
        """Every row that a query finds, by column."""
        return (await self._execute(query)).mappings().all()

    async def _row(self, query: Executable) -> RowMapping | None:
        """The only row that a query finds, if it finds one."""
        return (await self._execute(query)).mappings().one_or_none()

    async def _write(self, query: Insert, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows, however many."""
        for start in range(0, len(rows), _CHUNK):
            await self._execute(query, rows[start : start + _CHUNK])


def upsert(table: Table, *columns: str, newer: str | None = None, **others: Any) -> Insert:
    """An insert that changes the row that is there already.

    Args:
        table: the table. Rows are the same if their primary keys are.
        columns: what changes; none: all that is no part of the primary key.
        newer: a column that must not be less than before, or the row stays as it is.
        others: columns that get another value than the row inserted has.
    """
    query = insert(table)
    new, keys = query.excluded, [column.name for column in table.primary_key]
    changing = columns or [column.name for column in table.columns if column.name not in keys]
    return query.on_conflict_do_update(
        index_elements=keys,
        set_={**{name: new[name] for name in changing}, **others},
        where=None if newer is None else table.c[newer] <= new[newer],
    )
