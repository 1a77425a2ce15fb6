"""Advisory locks, which have one name space per database: of a transaction, and the seat of the active control."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, LiteralString

import psycopg
from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from gtm.storage.connecting import IS_READ_ONLY, LOCK_TIMEOUT, read_only

TIMEOUT = "10s"


class Lock(IntEnum):
    """What is written under a lock: "gtm" and a number."""

    POLICY = 0x67746D_01
    DNSSEC = 0x67746D_02
    ACTIVE = 0x67746D_03
    STANDBY = 0x67746D_04
    PLAN_HISTORY = 0x67746D_05
    DEMAND_HISTORY = 0x67746D_06
    REQUEST_HISTORY = 0x67746D_07


async def take(connection: AsyncConnection, lock: Lock) -> None:
    """Wait for a lock; taking it twice is harmless.

    Raises:
        StorageUnavailable: another transaction held it for 10 s (raised where the transaction ends).
    """
    await connection.execute(text(f"SET LOCAL lock_timeout = '{TIMEOUT}'"))
    await connection.execute(select(func.pg_advisory_xact_lock(int(lock))))
    # Not DEFAULT, which is what the server or the role says.
    await connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}s'"))


class Seat:
    """A control's right to be the active one, for as long as its connection lasts: Postgres frees it with that.

    Args:
        connection: of its own, in autocommit mode, used for nothing else.
    """

    def __init__(self, connection: psycopg.AsyncConnection[tuple[Any, ...]]) -> None:
        self._connection = connection
        self._waits = False
        self.held = False

    async def take(self) -> bool:
        """Take the seat if it is free; else stand in line for it, where the one who has it sees that.

        Raises:
            StorageReadOnly: there is no seat: the server takes no writes, and another may have taken its place.
        """
        await self._require_writes()
        self.held = bool(await self._one("SELECT pg_try_advisory_lock(%s)", int(Lock.ACTIVE)))
        if self.held and self._waits:
            await self._one("SELECT pg_advisory_unlock_shared(%s)", int(Lock.STANDBY))
        elif not self.held and not self._waits:
            await self._one("SELECT pg_advisory_lock_shared(%s)", int(Lock.STANDBY))
        self._waits = not self.held
        return self.held

    async def waiting(self) -> int:
        """How many stand in line. That it answers proves that the seat is held still.

        Raises:
            StorageReadOnly: as `take`.
        """
        await self._require_writes()
        return int(await self._one(f"SELECT count(*) {_HOLDERS}", int(Lock.STANDBY)))

    async def holder(self) -> str:
        """What the holder of the seat calls itself; empty if it is free just now."""
        return str(
            await self._one(f"SELECT coalesce(max(a.application_name), '') {_HOLDERS}", int(Lock.ACTIVE))
        )

    async def _require_writes(self) -> None:
        row = await (await self._connection.execute(IS_READ_ONLY)).fetchone()
        if row is None or row[0]:
            raise read_only()

    async def _one(self, query: LiteralString, key: int) -> Any:
        row = await (await self._connection.execute(query, (key,))).fetchone()
        return row[0] if row else None


_HOLDERS: LiteralString = """FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 0 AND l.objid = %s AND l.objsubid = 1
AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
