"""DNSSEC keys of zones: public parts, private parts sealed, and what key-signing keys signed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import Text, all_, any_, delete, func, literal, select
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from gtm.core.signing.keys import SignedSet
from gtm.core.signing.rollover import Key, KeyRole, KeyState
from gtm.storage import locks, tables


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key, with its private part encrypted."""

    key: Key
    sealed: bytes


@dataclass(frozen=True, slots=True)
class StoredZone:
    """A zone's keys, oldest first, and what is published of them. Times are POSIX seconds.

    Args:
        name: as in the policy.
        keys: all that there are.
        sets: signed at `signed_at`.
        signed_at: when.
        paused_at: since when the policy has it unsigned; None: it is signed.
        withdrawing: the parent is asked to drop its DS records.
    """

    name: str
    keys: tuple[StoredKey, ...]
    sets: tuple[SignedSet, ...] = ()
    signed_at: float = 0.0
    paused_at: float | None = None
    withdrawing: bool = False


class DnssecRepository:
    """Zones with keys, by name. Writers hold `lock` first."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def lock(self) -> None:
        """Serialise writes until the end of the transaction, so that one of several control processes makes keys.

        Raises:
            StorageUnavailable: another transaction held it for 10 s (raised where the transaction ends).
        """
        await locks.take(self._connection, locks.Lock.DNSSEC)

    async def version(self) -> int:
        """The version of the last change; 0: there are no keys."""
        query = select(func.coalesce(func.max(tables.dnssec_zones.c.version), 0))
        found: int = (await self._connection.execute(query)).scalar_one()
        return found

    async def load(self) -> dict[str, StoredZone]:
        """Every zone that has keys: one statement, hence keys and what they signed as they belong together."""
        zones, keys = tables.dnssec_zones, tables.dnssec_keys
        query = select(zones, keys).join(keys, keys.c.zone == zones.c.name)
        found: dict[str, StoredZone] = {}
        rows = await self._connection.execute(query.order_by(zones.c.name, keys.c.created_at, keys.c.id))
        for row in rows.mappings():
            zone = found.get(row["name"]) or _zone(row)
            found[zone.name] = replace(zone, keys=(*zone.keys, _key(row)))
        return found

    async def save(self, zones: Sequence[StoredZone]) -> None:
        """Store zones as they are now, each under a version of its own."""
        if not zones:
            return
        # Ahead of the versions of a database that was lost, as epochs are.
        newest = max(zone.signed_at for zone in zones)
        first = max(await self.version() + 1, int(newest * 1000))
        query = insert(tables.dnssec_zones)
        update = {name: query.excluded[name] for name in _CHANGING}
        query = query.on_conflict_do_update(index_elements=["name"], set_=update)
        await self._connection.execute(
            query, [_zone_row(zone, first + number) for number, zone in enumerate(zones)]
        )
        await self._save_keys(zones)

    async def _save_keys(self, zones: Sequence[StoredZone]) -> None:
        keys = tables.dnssec_keys
        rows = [_key_row(zone.name, stored) for zone in zones for stored in zone.keys]
        names = literal([zone.name for zone in zones], ARRAY(Text))
        kept = literal([row["id"] for row in rows], ARRAY(Text))
        gone = delete(keys).where(keys.c.zone == any_(names), keys.c.id != all_(kept))
        await self._connection.execute(gone)
        query = insert(keys)
        update = {name: query.excluded[name] for name in ("state", "since", "urgent")}
        if rows:
            await self._connection.execute(
                query.on_conflict_do_update(index_elements=["id"], set_=update), rows
            )


_CHANGING = ("version", "signed_at", "paused_at", "withdrawing", "sets")


def _zone_row(zone: StoredZone, version: int) -> dict[str, Any]:
    return {
        "name": zone.name,
        "version": version,
        "signed_at": _moment(zone.signed_at),
        "paused_at": None if zone.paused_at is None else _moment(zone.paused_at),
        "withdrawing": zone.withdrawing,
        "sets": msgspec.to_builtins(zone.sets),
    }


def _key_row(zone: str, stored: StoredKey) -> dict[str, Any]:
    key = stored.key
    return {
        "id": key.id,
        "zone": zone,
        "role": key.role.value,
        "state": key.state.value,
        "created_at": _moment(key.created),
        "since": _moment(key.since),
        "urgent": key.urgent,
        "dnskey": key.dnskey,
        "sealed": stored.sealed,
    }


def _key(row: RowMapping) -> StoredKey:
    key = Key(
        id=row["id"],
        role=KeyRole(row["role"]),
        state=KeyState(row["state"]),
        created=row["created_at"].timestamp(),
        since=row["since"].timestamp(),
        urgent=row["urgent"],
        dnskey=row["dnskey"],
    )
    return StoredKey(key, row["sealed"])


def _zone(row: RowMapping) -> StoredZone:
    return StoredZone(
        name=row["name"],
        keys=(),
        sets=msgspec.convert(row["sets"], tuple[SignedSet, ...]),
        signed_at=row["signed_at"].timestamp(),
        paused_at=None if row["paused_at"] is None else row["paused_at"].timestamp(),
        withdrawing=row["withdrawing"],
    )


def _moment(posix: float) -> datetime:
    return datetime.fromtimestamp(posix, UTC)
