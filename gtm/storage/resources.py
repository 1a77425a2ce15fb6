"""Policy documents: one repository for every kind of resource, and the policy as a whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar

from sqlalchemy import Table, Text, cast, delete, func, literal, select, text, union_all, update
from sqlalchemy.dialects.postgresql import JSONB, Insert
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from gtm.core.model.kinds import KINDS
from gtm.core.model.policy import DataClass, Jurisdiction, Policy, ResidencyRule, SpilloverRule, Tenant
from gtm.core.model.regions import Region
from gtm.core.model.services import Service, Zone
from gtm.storage import documents, locks, tables
from gtm.storage.repository import Repository, upsert

T = TypeVar("T", Region, Zone, Service, ResidencyRule, SpilloverRule, Jurisdiction, Tenant, DataClass)

_TABLES = {value: tables.metadata.tables[kind] for kind, value in KINDS.items()}
_COMMON = frozenset(
    {"name", "version", "spec", "created_at", "updated_at", "manager", "managed_since", "revision"}
)
Key = tuple[str, str]
"""Kind and name of a resource."""


class PutOutcome(StrEnum):
    """The outcome of a PUT."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Managed:
    """Which tool manages a resource (`terraform/prod-network`), and since when."""

    manager: str
    """The tool, and what of it owns the resource: `terraform/prod-network`."""
    since: datetime


@dataclass(frozen=True, slots=True)
class Stored(Generic[T]):
    """A resource with what the database knows of it. `version` is its entity tag and never repeats.

    `managed` is None where no tool manages it, `revision` the one that wrote it last (None: not kept).
    """

    value: T
    version: int
    created_at: datetime
    updated_at: datetime
    managed: Managed | None = None
    revision: int | None = None


def _own_columns(table: Table) -> tuple[str, ...]:
    """The fields that a kind keeps outside `spec`."""
    return tuple(str(c.name) for c in table.columns if c.name not in _COMMON)


class ResourceRepository(Repository, Generic[T]):
    """The resources of one kind. Writers hold `PolicyRepository.lock` first."""

    def __init__(self, connection: AsyncConnection, kind: type[T]) -> None:
        super().__init__(connection)
        self._kind: type[T] = kind
        self._table = _TABLES[kind]
        self._own = _own_columns(self._table)

    async def get(self, name: str) -> Stored[T] | None:
        """The resource of this name, if there is one."""
        query = select(self._table).where(self._table.c.name == name)
        row = (await self._execute(query)).one_or_none()
        return None if row is None else self._stored(row)

    async def named(self, names: Collection[str]) -> dict[str, Stored[T]]:
        """Those of these names that there are."""
        query = select(self._table).where(self._table.c.name.in_(names))
        return {row.name: self._stored(row) for row in await self._execute(query)}

    async def list(
        self, after_name: str | None = None, limit: int = 100, *, manager: str | None = None
    ) -> list[Stored[T]]:
        """At most `limit` resources by name (code point order), starting behind `after_name`; of one manager, or of all."""
        query = select(self._table).order_by(self._table.c.name).limit(limit)
        if manager is not None:
            query = query.where(self._table.c.manager == manager)
        if after_name is not None:
            query = query.where(self._table.c.name > after_name)
        return [self._stored(row) for row in await self._execute(query)]

    async def all(self) -> Sequence[Stored[T]]:
        """Every resource by name (code point order)."""
        query = select(self._table).order_by(self._table.c.name)
        return [self._stored(row) for row in await self._execute(query)]

    async def put(self, value: T) -> tuple[PutOutcome, Stored[T]]:
        """Create or replace the resource of that name; an equal one keeps its version and times."""
        document = documents.to_document(value)
        before = await self.get(value.name)
        if before is not None and documents.dumps(documents.to_document(before.value)) == documents.dumps(
            document
        ):
            return PutOutcome.UNCHANGED, before
        query = self._upsert().values(self._columns(document)).returning(*self._table.columns)
        row = (await self._execute(query)).one()
        outcome = PutOutcome.CREATED if before is None else PutOutcome.UPDATED
        return outcome, self._stored(row)

    async def put_all(self, values: Iterable[T]) -> None:
        """Create or replace resources, of names that differ, in one go: ten thousand one by one take half a minute."""
        rows = [self._columns(documents.to_document(value)) for value in values]
        if rows:
            await self._execute(self._upsert(), rows)

    def _columns(self, document: dict[str, Any]) -> dict[str, Any]:
        return {name: document.pop(name) for name in ("name", *self._own)} | {"spec": document}

    def _upsert(self) -> Insert:
        columns = (*self._own, "spec", "version")
        query = upsert(self._table, *columns, updated_at=func.clock_timestamp())
        return query.values(version=tables.resource_versions.next_value())

    async def delete(self, name: str) -> bool:
        """Delete the resource of this name; False if there is none."""
        result = await self._execute(delete(self._table).where(self._table.c.name == name))
        return result.rowcount > 0

    async def manage(self, names: Collection[str], manager: str | None) -> None:
        """Say which tool manages resources from now on; None: none does. The rest of them stays as it is."""
        values = {"manager": manager, "managed_since": None if manager is None else func.now()}
        await self._execute(update(self._table).where(self._table.c.name.in_(names)).values(values))

    async def written(self, names: Collection[str], revision: int) -> None:
        """Say which revision has written resources."""
        await self._execute(
            update(self._table).where(self._table.c.name.in_(names)).values(revision=revision)
        )

    def _stored(self, row: Row[Any]) -> Stored[T]:
        own = {name: getattr(row, name) for name in self._own}
        value = documents.from_document({"name": row.name, **row.spec, **own}, self._kind)
        managed = None if row.manager is None else Managed(row.manager, row.managed_since)
        return Stored(value, row.version, row.created_at, row.updated_at, managed, row.revision)


class PolicyRepository(Repository):
    """The policy as a whole."""

    async def lock(self) -> None:
        """Serialise policy writes until the end of the transaction. Reads go on; taking it twice is harmless.

        Raises:
            StorageUnavailable: another transaction held it for 10 s (raised where the transaction ends).
        """
        await locks.take(self._connection, locks.Lock.POLICY)

    async def load(self) -> Policy:
        """All resources, each kind sorted by name: one statement and one text, hence one consistent state."""
        parts: list[Any] = []
        for kind, value in KINDS.items():
            table = _TABLES[value]
            own = [
                part for name in ("name", *_own_columns(table)) for part in (cast(name, Text), table.c[name])
            ]
            document = table.c.spec.concat(func.jsonb_build_object(*own, type_=JSONB))
            every = func.coalesce(func.json_agg(document), text("'[]'::json"))
            parts += [cast(kind, Text), select(every).scalar_subquery()]
        query = select(cast(func.json_build_object(*parts), Text))
        return sort_policy(documents.policy_of((await self._execute(query)).scalar_one()))

    async def managed(self) -> dict[Key, Managed]:
        """Every resource that a tool manages: one statement, hence one consistent state."""
        parts = []
        for kind, value in KINDS.items():
            c = _TABLES[value].c
            query = select(literal(kind).label("kind"), c.name, c.manager, c.managed_since)
            parts.append(query.where(c.manager.is_not(None)))
        rows = await self._execute(union_all(*parts))
        return {(row.kind, row.name): Managed(row.manager, row.managed_since) for row in rows}


def sort_policy(policy: Policy) -> Policy:
    """The same policy with each kind sorted by name: the order has no meaning, and diffs need one."""
    return replace(
        policy, **{kind: tuple(sorted(getattr(policy, kind), key=lambda r: r.name)) for kind in KINDS}
    )
