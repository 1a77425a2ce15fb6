from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gtm.core.latency.aggregates import Sum
from gtm.core.latency.doubt import Vote
from gtm.core.latency.samples import Level
from gtm.storage.session import Database

pytestmark = pytest.mark.anyio

SUM = Sum(
    Level.NETWORK, "203.0.113.0/24", "eu-central", "token-1", 20.0, -3.25, 1.5, 1_800_000_000.5, (1 << 62) + 1
)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A database with its tables, and the pool to it."""
    database = Database(database_url)
    yield database
    await database.dispose()


VOTE = Vote("203.0.113.0/24", "US|40,-74", "eu-central", "0f" * 8, "edge-1", 12.5, 0.25, 3.0, 1_800_000_000.5)


async def save(database: Database, changed: list[Sum], gone: list[tuple[Level, str, str, str]]) -> list[Sum]:
    """What is stored after a save."""
    async with database.transaction() as transaction:
        await transaction.latency.save(changed, gone)
        return sorted(await transaction.latency.load())


async def test_sums_come_back_as_they_were(database: Database) -> None:
    """Every field of a sum is stored, all 63 bits of its sources too."""
    other = SUM._replace(level=Level.COUNTRY, key="DE")
    assert await save(database, [SUM, other], []) == sorted([SUM, other])


async def test_newer_replaces_and_older_does_not(database: Database) -> None:
    """Of two processes that store a sum, the one with the newer samples is believed."""
    await save(database, [SUM], [])
    newer = SUM._replace(mean=7.0, updated=SUM.updated + 1)
    assert await save(database, [newer], []) == [newer]
    assert await save(database, [SUM], []) == [newer]


async def test_what_is_gone_is_deleted(database: Database) -> None:
    """A sum that was forgotten is stored no more, and nothing else goes with it; many at once are no matter."""
    many = [SUM._replace(key=f"203.0.113.{number}/32") for number in range(2500)]
    await save(database, [SUM, *many], [])
    assert await save(database, [], [(kept.level, kept.key, kept.region, kept.author) for kept in many]) == [
        SUM
    ]


async def test_votes_come_back_and_go(database: Database) -> None:
    """Votes are kept as sums are: every field, the newer of two, and none that is gone."""
    async with database.transaction() as transaction:
        other = VOTE._replace(edge="edge-2")
        await transaction.latency.save_votes([VOTE, other], [])
        assert sorted(await transaction.latency.load_votes()) == sorted([VOTE, other])
        newer = VOTE._replace(against=1.0, updated=VOTE.updated + 1)
        await transaction.latency.save_votes([newer], [])
        await transaction.latency.save_votes([VOTE], [other[:5]])
        assert await transaction.latency.load_votes() == [newer]
