"""What a policy had and has no more, which keeps its rules (docs/simulate.md, "What is gone")."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from gtm.storage import tables

_AT_ONCE = 1000
"""Rows of a statement; a statement has 65,535 parameters at the most."""


class GoneKind(StrEnum):
    """What is gone."""

    NAME = "name"
    """A name of DNS that a service decided."""
    SERVICE = "service"
    TARGET = "target"
    """An address or name of a region's endpoint."""


@dataclass(frozen=True, slots=True)
class Gone:
    """One of it: `revision` is the last policy that had it. Of targets, which region (empty otherwise), and where that stood."""

    kind: str
    name: str
    region: str
    revision: int
    country: str | None = None
    operator_country: str | None = None


class GoneRepository:
    """What is gone, by kind, name and region."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def list(self) -> list[Gone]:
        """All of it."""
        rows = (await self._connection.execute(select(tables.gone))).mappings()
        return [Gone(**row) for row in rows]

    async def put(self, gone: Iterable[Gone]) -> None:
        """Remember some, in place of what was known of them."""
        rows = [asdict(one) for one in gone]
        for first in range(0, len(rows), _AT_ONCE):
            query = insert(tables.gone).values(rows[first : first + _AT_ONCE])
            said = {name: query.excluded[name] for name in ("revision", "country", "operator_country")}
            await self._connection.execute(
                query.on_conflict_do_update(index_elements=["kind", "name", "region"], set_=said)
            )

    async def forget(self, kind: GoneKind, names: Collection[str]) -> None:
        """Forget what is there again."""
        table = tables.gone
        if names:
            await self._connection.execute(
                delete(table).where(table.c.kind == kind.value, table.c.name.in_(names))
            )
