"""The audit log in Postgres: found by what is asked for, and never changed."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.dialects import postgresql

from gtm.core.model.access import Role
from gtm.storage import tables
from gtm.storage.history import audit as storage
from gtm.storage.history.audit import CONTROL, Actor, AuditRepository, Entry, Via, WantedEntries
from gtm.storage.session import Database
from tests.effort import examples

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
        (WantedEntries(), [3, 2, 1]),
        (WantedEntries(who="ANN"), [1]),
        (WantedEntries(who="_"), [3]),
        (WantedEntries(action="region"), [1]),
        (WantedEntries(action="region.drain"), [1]),
        (WantedEntries(action="region.dra"), []),
        (WantedEntries(target="100%_"), [2]),
        (WantedEntries(target="%"), [2]),
        (WantedEntries(forced=True), [1]),
        (WantedEntries(forced=False), [3, 2]),
        (WantedEntries(hidden=("token",)), [3, 1]),
        (WantedEntries(since=datetime(2000, 1, 1, tzinfo=UTC)), [3, 2, 1]),
        (WantedEntries(until=datetime(2000, 1, 1, tzinfo=UTC)), []),
    ],
)
async def test_entries_are_found(database: Database, wanted: WantedEntries, found: list[int]) -> None:
    """By part of who and what in any case, nothing in them a pattern; by action or family; by time."""
    async with database.transaction() as transaction:
        await _fill(transaction.audit)
        assert [one.id for one in await transaction.audit.list(wanted)] == found


WORDS = (
    "ci",
    "ann@example.com",
    "ÄRGER",
    "İstanbul",
    "straße",
    "a%b_c",
    "region/eu-west",
    "x" * 40,
    "",
    "\\",
    "aaaa",
    "日本語",
)


def _holds(wanted: WantedEntries, one: Entry) -> bool:
    return (wanted.who is None or wanted.who.lower() in one.who.lower()) and (
        wanted.target is None or wanted.target.lower() in one.target.lower()
    )


@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(examples(8, 8)))
async def test_parts_of_names_are_found_whether_near_or_far(
    database: Database, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is looked through and whatever the index finds: all that holds the part, in order, each once, page by page."""
    chance = random.Random(seed)
    monkeypatch.setattr(storage, "NEAR", chance.choice((1, 7, 1000)))
    # In the C locale, as here, Postgres knows of no other letters that some are large.
    words = [word for word in WORDS if word.isascii() or word == word.lower()]
    async with database.transaction() as transaction:
        audit, kept = transaction.audit, []
        for _ in range(60):
            who, target = ("".join(chance.choices(words, k=chance.randint(0, 3))) for _ in range(2))
            await audit.add(Actor(who, None, Via.API), "region.drain", target)
        kept = await audit.list(WantedEntries(), limit=100)
        for _ in range(40):
            text = "".join(chance.choices(words, k=2))
            begin = chance.randint(0, len(text))
            part = text[begin : begin + chance.randint(0, 8)]
            wanted = chance.choice(
                (WantedEntries(who=part), WantedEntries(target=part.upper() if part.isascii() else part))
            )
            oldest, limit = chance.random() < 0.5, chance.randint(1, 5)
            expected = [one for one in (kept[::-1] if oldest else kept) if _holds(wanted, one)]
            found: list[Entry] = []
            while piece := await audit.list(
                wanted, found[-1].id if found else None, limit, oldest_first=oldest
            ):
                assert len(piece) == limit or len(found) + len(piece) == len(expected)
                found += piece
            assert found == expected


@pytest.mark.drill
async def test_a_rare_name_is_found_by_an_index(database: Database) -> None:
    """Not by looking through the log: Postgres has it in its plan, of a log that is long."""
    async with database.transaction() as transaction:
        fill = """
            INSERT INTO audit (who, via, action, target, reason, detail, forced, count)
            SELECT 'team-' || n % 50, 'api', 'region.drain', 'region/r' || n, '', '', false, 1 FROM generate_series(1, 20000) AS n
        """
        await transaction.connection.execute(text(fill))
        await transaction.connection.execute(text("ANALYZE audit"))
        for wanted in (WantedEntries(who="rare"), WantedEntries(target="r19999")):
            query = (
                storage.selected(wanted).where(*storage.pieces_of(wanted)).order_by(tables.audit.c.id.desc())
            )
            written = query.limit(50).compile(
                dialect=postgresql.dialect(), compile_kwargs={"literal_binds": True}
            )
            plan = await transaction.connection.exec_driver_sql(f"EXPLAIN {written}")
            assert "_pieces" in "".join(row[0] for row in plan)
        assert storage.pieces_of(WantedEntries(who="ra")) == []


async def test_entries_are_whole_and_bounded(database: Database) -> None:
    """What was written is read; a text that is too long is cut."""
    async with database.transaction() as transaction:
        await _fill(transaction.audit)
        third, second, first = await transaction.audit.list(WantedEntries())
        assert (first.who, first.role, first.via) == ("ann", Role.OPERATOR, Via.API)
        assert (first.revision, first.reason, first.forced, first.count) == (7, "smoke", True, 1)
        assert (second.role, second.via, second.revision) == (None, Via.CONTROL, None)
        assert len(third.target) == 4000
        assert (await transaction.audit.list(WantedEntries(), 3, 1))[0].id == 2
        assert [one.id for one in await transaction.audit.list(WantedEntries(), 1, oldest_first=True)] == [
            2,
            3,
        ]
        await transaction.audit.add(ANN, "region.drain", "a\0b\ud800")
        assert (await transaction.audit.list(WantedEntries(), limit=1))[0].target == "ab?"


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
        assert len(await transaction.audit.list(WantedEntries())) == 3
