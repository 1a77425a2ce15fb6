"""Advisory locks, each held until the end of a transaction. They have one name space per database."""

from __future__ import annotations

from enum import IntEnum

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

_TIMEOUT = "10s"


class Lock(IntEnum):
    """What is written under a lock: "gtm" and a number."""

    POLICY = 0x67746D_01
    DNSSEC = 0x67746D_02


async def take(connection: AsyncConnection, lock: Lock) -> None:
    """Wait for a lock; taking it twice is harmless.

    Raises:
        StorageUnavailable: another transaction held it for 10 s (raised where the transaction ends).
    """
    await connection.execute(text(f"SET LOCAL lock_timeout = '{_TIMEOUT}'"))
    await connection.execute(select(func.pg_advisory_xact_lock(int(lock))))
    await connection.execute(text("SET LOCAL lock_timeout = DEFAULT"))
