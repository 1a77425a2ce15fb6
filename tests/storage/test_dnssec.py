from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gtm.core.signing.keys import SignedSet
from gtm.core.signing.rollover import Key, KeyRole, KeyState
from gtm.storage.dnssec import StoredKey, StoredZone
from gtm.storage.session import Database

pytestmark = pytest.mark.anyio

KSK = StoredKey(Key("a1", KeyRole.KSK, KeyState.PUBLISHED, 1.5, 2.5, urgent=True, dnskey=b"\0\1"), b"\xff")
ZSK = StoredKey(Key("b2", KeyRole.ZSK, KeyState.ACTIVE, 2.5, 2.5, urgent=False, dnskey=b"\0\2"), b"\0")
ZONE = StoredZone(
    "demo.test",
    (KSK, ZSK),
    (SignedSet(48, 3600, (b"\0", b"\xfe"), (b"", b"\1")),),
    1_800_000_000.25,
    3.5,
    True,
)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A database with its tables, and the pool to it."""
    database = Database(database_url)
    yield database
    await database.dispose()


async def save(database: Database, *zones: StoredZone) -> tuple[int, dict[str, StoredZone]]:
    """The version, and what is stored after a save."""
    async with database.transaction() as transaction:
        await transaction.dnssec.save(zones)
    async with database.transaction() as transaction:
        return await transaction.dnssec.version(), await transaction.dnssec.load()


async def test_zones_come_back_as_they_were(database: Database) -> None:
    """Every field of zones and keys is stored; each save is a later version, and none before the time of signing."""
    other = StoredZone("a.test", (replace(KSK, key=replace(KSK.key, id="c3")),))
    assert await save(database) == (0, {})
    first = int(ZONE.signed_at * 1000)
    assert await save(database, ZONE, other) == (first + 1, {"demo.test": ZONE, "a.test": other})
    assert await save(database, other) == (first + 2, {"demo.test": ZONE, "a.test": other})


async def test_keys_change_state_come_and_go(database: Database) -> None:
    """A saved zone has the keys it was saved with, in their new states; a key's own bytes never change."""
    await save(database, ZONE)
    ready = replace(KSK.key, state=KeyState.READY, since=9.0, urgent=False)
    fresh = replace(ZSK, key=replace(ZSK.key, id="d4", created=3.5))
    changed = replace(ZONE, keys=(replace(KSK, key=ready), fresh), paused_at=None, withdrawing=False)
    assert (await save(database, changed))[1] == {"demo.test": changed}
    tampered = replace(changed, keys=(replace(changed.keys[0], sealed=b"other"), fresh))
    assert (await save(database, tampered))[1] == {"demo.test": changed}


async def test_one_writer_at_a_time(database: Database) -> None:
    """Of two processes that take the lock, one waits until the other is done."""
    order: list[str] = []

    async def write(name: str) -> None:
        async with database.transaction() as transaction:
            await transaction.dnssec.lock()
            order.append(f"{name} in")
            await transaction.dnssec.save([replace(ZONE, name=name, keys=())])
            order.append(f"{name} out")

    await asyncio.gather(write("a.test"), write("b.test"))
    assert [entry[:6] for entry in order[::2]] == [entry[:6] for entry in order[1::2]]
