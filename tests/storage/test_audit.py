"""The audit log in Postgres: found by what is asked for, and never changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from gtm.core.model.access import Role
from gtm.storage.history.audit import CONTROL, Actor, AuditRepository, Via, Wanted
from gtm.storage.session import Database

pytestmark = pytest.mark.anyio
ANN = Actor("ann", Role.OPERATOR, Via.API)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A fresh one."""
    found = Database(database_url)
    yield found
    await found.dispose()


async def _fill(audit: AuditRepository) -> None:
    await audit.add(ANN, "region.drain", "region eu-central", revision=7, reason="smoke", forced=True)
    await audit.add(CONTROL, "token.create", "token 100%_ci", detail="role viewer")
    await audit.add(Actor("Bob_1", None, Via.DIRECT), "region-like.put", "x" * 10_000, count=3)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Wanted(), [3, 2, 1]),
        (Wanted(who="ANN"), [1]),
        (Wanted(who="_"), [3]),
        (Wanted(action="region"), [1]),
        (Wanted(action="region.drain"), [1]),
        (Wanted(action="region.dra"), []),
        (Wanted(target="100%_"), [2]),
        (Wanted(target="%"), [2]),
        (Wanted(forced=True), [1]),
        (Wanted(forced=False), [3, 2]),
        (Wanted(hidden=("token",)), [3, 1]),
        (Wanted(since=datetime(2000, 1, 1, tzinfo=UTC)), [3, 2, 1]),
        (Wanted(until=datetime(2000, 1, 1, tzinfo=UTC)), []),
    ],
)
async def test_entries_are_found(database: Database, wanted: Wanted, found: list[int]) -> None:
    """By part of who and what in any case, nothing in them a pattern; by action or family; by time."""
    async with database.transaction() as transaction:
        await _fill(transaction.audit)
        assert [one.id for one in await transaction.audit.list(wanted)] == found


async def test_entries_are_whole_and_bounded(database: Database) -> None:
    """What was written is read; a text that is too long is cut."""
    async with database.transaction() as transaction:
        await _fill(transaction.audit)
        third, second, first = await transaction.audit.list(Wanted())
        assert (first.who, first.role, first.via) == ("ann", Role.OPERATOR, Via.API)
        assert (first.revision, first.reason, first.forced, first.count) == (7, "smoke", True, 1)
        assert (second.role, second.via, second.revision) == (None, Via.CONTROL, None)
        assert len(third.target) == 4000
        assert (await transaction.audit.list(Wanted(), 3, 1))[0].id == 2
        assert [one.id for one in await transaction.audit.list(Wanted(), 1, oldest_first=True)] == [2, 3]
        await transaction.audit.add(ANN, "region.drain", "a\0b\ud800")
        assert (await transaction.audit.list(Wanted(), limit=1))[0].target == "ab?"


async def test_nothing_changes_an_entry(database: Database, database_url: str) -> None:
    """The database refuses to change entries, and to delete young ones; old ones are forgotten."""
    async with database.transaction() as transaction:
        await _fill(transaction.audit)
    with psycopg.connect(database_url, autocommit=True) as session:
        for statement in ("UPDATE audit SET who = 'eve'", "DELETE FROM audit", "TRUNCATE audit"):
            with pytest.raises(psycopg.errors.RaiseException, match="never changed"):
                session.execute(statement)
        session.execute(
            "INSERT INTO audit (at, who, via, action, target, reason, detail, forced, count) "
            "VALUES (now() - interval '10 days', 'ann', 'api', 'a.b', '', '', '', false, 1)"
        )
    async with database.transaction() as transaction:
        assert await transaction.audit.forget(datetime.now(UTC) - timedelta(days=9)) == 1
        assert len(await transaction.audit.list(Wanted())) == 3
