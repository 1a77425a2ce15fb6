"""What policies have no more (docs/simulate.md, "What is gone"), and deletions that wait until nothing keeps them (docs/api.md, "Deletions that wait")."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import delete, select, tuple_

from gtm.storage import tables
from gtm.storage.repository import Repository, upsert
from gtm.storage.resources import Key


class GoneKind(StrEnum):
    """The kinds of what a policy had and has no more."""

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


class GoneRepository(Repository):
    """What is gone, by kind, name and region."""

    async def list(self) -> list[Gone]:
        """All of it."""
        return [Gone(**row) for row in await self._rows(select(tables.gone))]

    async def put(self, gone: Iterable[Gone]) -> None:
        """Remember some, in place of what was known of them."""
        await self._write(upsert(tables.gone), [asdict(one) for one in gone])

    async def forget(self, kind: GoneKind, names: Collection[str]) -> None:
        """Forget what is there again."""
        table = tables.gone
        if names:
            await self._execute(delete(table).where(table.c.kind == kind.value, table.c.name.in_(names)))


@dataclass(frozen=True, slots=True)
class Deferred:
    """A resource that is to be deleted: for which tool, who asked for it and when, and what keeps it."""

    kind: str
    name: str
    manager: str | None
    """For which tool; null: for a person."""
    asked_by: str
    asked_at: datetime
    why: str
    """What keeps the resource, in a sentence."""
    refused: bool
    """Whether the safety rules keep it, and not a resource that names it."""

    @property
    def key(self) -> Key:
        """The resource's kind and name."""
        return self.kind, self.name


class DeferredRepository(Repository):
    """Deletions that wait, by kind and name."""

    async def list(self) -> list[Deferred]:
        """All of them, the oldest first."""
        table = tables.deferred_deletions
        query = select(table).order_by(table.c.asked_at, table.c.kind, table.c.name)
        return [Deferred(**row) for row in await self._rows(query)]

    async def put(self, deferred: Iterable[Deferred]) -> None:
        """Keep some; of one that waits already, what keeps it now."""
        query = upsert(tables.deferred_deletions, "why", "refused")
        await self._write(query, [asdict(one) for one in deferred])

    async def forget(self, keys: Collection[Key]) -> None:
        """Have the deletions of some resources wait no more."""
        table = tables.deferred_deletions
        if keys:
            await self._execute(delete(table).where(tuple_(table.c.kind, table.c.name).in_(sorted(keys))))
