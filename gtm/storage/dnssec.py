"""DNSSEC keys of zones: public parts, private parts sealed, and what key-signing keys signed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import Text, all_, any_, delete, func, literal, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.engine import RowMapping

from gtm.core.signing.keys import SignedSet
from gtm.core.signing.rollover import Key, KeyRole, KeyState
from gtm.storage import locks, tables
from gtm.storage.repository import Repository, upsert


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


class DnssecRepository(Repository):
    """Zones with keys, by name. Writers hold `lock` first."""

    async def lock(self) -> None:
        """Serialise writes until the end of the transaction, so that one of several control processes makes keys.

        Raises:
            StorageUnavailable: another transaction held it for 10 s (raised where the transaction ends).
        """
        await locks.take(self._connection, locks.Lock.DNSSEC)

    async def version(self) -> int:
        """The version of the last change; 0: there are no keys."""
        query = select(func.coalesce(func.max(tables.dnssec_zones.c.version), 0))
        found: int = (await self._execute(query)).scalar_one()
        return found

    async def load(self) -> dict[str, StoredZone]:
        """Every zone that has keys: one statement, hence keys and what they signed as they belong together."""
        zones, keys = tables.dnssec_zones, tables.dnssec_keys
        query = select(zones, keys).join(keys, keys.c.zone == zones.c.name)
        found: dict[str, StoredZone] = {}
        rows = await self._execute(query.order_by(zones.c.name, keys.c.created_at, keys.c.id))
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
        rows = [_zone_row(zone, first + number) for number, zone in enumerate(zones)]
        await self._write(upsert(tables.dnssec_zones), rows)
        await self._save_keys(zones)

    async def _save_keys(self, zones: Sequence[StoredZone]) -> None:
        keys = tables.dnssec_keys
        rows = [_key_row(zone.name, stored) for zone in zones for stored in zone.keys]
        names = literal([zone.name for zone in zones], ARRAY(Text))
        kept = literal([row["id"] for row in rows], ARRAY(Text))
        gone = delete(keys).where(keys.c.zone == any_(names), keys.c.id != all_(kept))
        await self._execute(gone)
        await self._write(upsert(keys, "state", "since", "urgent"), rows)


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
    row = asdict(stored.key)
    times = {"created_at": _moment(row.pop("created")), "since": _moment(row.pop("since"))}
    words = {name: row.pop(name).value for name in ("role", "state")}
    return {"zone": zone, "sealed": stored.sealed, **row, **words, **times}


def _key(row: RowMapping) -> StoredKey:
    created, since = row["created_at"].timestamp(), row["since"].timestamp()
    role, state = KeyRole(row["role"]), KeyState(row["state"])
    return StoredKey(Key(row["id"], role, state, created, since, row["urgent"], row["dnskey"]), row["sealed"])


def _zone(row: RowMapping) -> StoredZone:
    sets = msgspec.convert(row["sets"], tuple[SignedSet, ...])
    signed_at, paused_at = row["signed_at"].timestamp(), row["paused_at"]
    paused = None if paused_at is None else paused_at.timestamp()
    return StoredZone(row["name"], (), sets, signed_at, paused, row["withdrawing"])


def _moment(posix: float) -> datetime:
    return datetime.fromtimestamp(posix, UTC)
