"""The plan's history in Postgres, and what writes it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from math import isclose
from types import SimpleNamespace
from typing import cast

import pytest
from sqlalchemy import text

from gtm.control.lead.history.plans import PlanHistory
from gtm.control.lead.history.recording import MAX_WAITING
from gtm.control.lead.planner import Planned
from gtm.core.capacity.supply import Assessment, RegionCapacity
from gtm.core.model.regions import AdminState
from gtm.core.model.services import Priority
from gtm.core.model.state import ClassPlan, Plan
from gtm.core.plan.history import RegionMinute
from gtm.core.plan.problem import ClassDemand, PlanProblem, Solution
from gtm.storage import migrate
from gtm.storage.errors import StorageUnavailable
from gtm.storage.history.plans import RegionSteps
from gtm.storage.session import Database, Transaction
from tests.effort import examples
from tests.storage.plan_model import PlanModel, Told

MIDNIGHT = datetime(2026, 1, 31, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
FULL = RegionMinute(12, 10.0, 8.0, 1.0, 1.0, 0.9, 50.0, 1.0)
IDLE = RegionMinute(12, 0.0, 0.0, 0.0, 0.0, None, 0.0, 0.0)
CLASS = ClassDemand("one", "chat", Priority.REAL_TIME, ("a",), (1.0,), 10.0)
PLANNED = Planned(
    plan=Plan(made=1.0, classes={"one": ClassPlan({"a": 1.0})}),
    problem=PlanProblem((CLASS,), {}),
    solution=Solution(flow={}, shed={}, shed_tenants={}, prices={}, quota_rates={}, binding=("a",)),
    capacity=Assessment({"a": RegionCapacity("a", AdminState.ACTIVE, 1.0, 1.0, 0.0)}),
)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A database with its tables, and the pool to it."""
    database = Database(database_url)
    yield database
    await database.dispose()


def read(found: list[RegionSteps]) -> dict[str, tuple[Told, dict[float, Told]]]:
    """As the model tells it."""
    return {
        one.region: (
            dict(one.whole),
            {
                start: {name: column[place] for name, column in one.columns.items()}
                for place, start in enumerate(one.starts)
            },
        )
        for one in found
    }


def close(found: Told, expected: Told) -> bool:
    """Equal, but for the order of additions."""
    return found.keys() == expected.keys() and all(
        (value is None and other is None)
        or (value is not None and other is not None and isclose(value, other, rel_tol=1e-9, abs_tol=1e-9))
        for value, other in ((found[name], expected[name]) for name in found)
    )


def same(found: list[RegionSteps], expected: dict[str, tuple[Told, dict[float, Told]]]) -> None:
    """All regions with all their steps, and nothing else."""
    assert [one.region for one in found] == sorted(expected)
    for name, (whole, steps) in read(found).items():
        assert close(whole, expected[name][0]), (name, whole, expected[name][0])
        assert steps.keys() == expected[name][1].keys(), name
        for start, told in steps.items():
            assert close(told, expected[name][1][start]), (name, start, told)


@pytest.mark.anyio
async def test_minutes_are_joined_to_steps(database: Database) -> None:
    """By region and time, with means and the highest; a region alone, if it is asked for; and what is old goes."""
    async with database.transaction() as tx:
        await tx.plans.record(MIDNIGHT, {"b": IDLE, "a": FULL})
        await tx.plans.record(
            MIDNIGHT + MINUTE, {"a": replace(FULL, demand=20.0, use=0.5, price_ms=0.0, exhausted=0.0)}
        )
        await tx.plans.record(MIDNIGHT + 7 * MINUTE, {"a": IDLE})
        await tx.plans.record(MIDNIGHT + 8 * MINUTE, {})
        found = await tx.plans.steps(MIDNIGHT, MIDNIGHT + 8 * MINUTE, timedelta(minutes=5))
    a, b = found
    assert (a.region, sorted(a.starts), b.region, b.starts) == (
        "a",
        [MIDNIGHT.timestamp(), MIDNIGHT.timestamp() + 300],
        "b",
        [MIDNIGHT.timestamp()],
    )
    first = read(found)["a"][1][MIDNIGHT.timestamp()]
    assert (first["minutes"], a.whole["minutes"]) == (2, 3)
    assert (first["demand"], first["use"], first["most_use"]) == pytest.approx((15.0, 0.7, 0.9))
    assert (first["price_ms"], first["most_price_ms"], first["exhausted"]) == pytest.approx((25.0, 50.0, 0.5))
    assert b.whole["use"] is None
    async with database.transaction() as tx:
        one = await tx.plans.steps(MIDNIGHT, MIDNIGHT + MINUTE, MINUTE, "b", ["use"])
        assert [(part.region, part.columns) for part in one] == [("b", {"use": [None]})]
        await tx.plans.forget(MIDNIGHT + timedelta(minutes=59))
        assert len(await tx.plans.steps(MIDNIGHT, MIDNIGHT + 8 * MINUTE, MINUTE)) == 2, "its hour is not over"
        await tx.plans.forget(MIDNIGHT + timedelta(minutes=60))
        assert not await tx.plans.steps(MIDNIGHT, MIDNIGHT + 8 * MINUTE, MINUTE)


@pytest.mark.anyio
async def test_two_controls_in_a_minute_are_joined(database: Database) -> None:
    """Where one took over from another in it: by their samples. The same said twice changes no mean."""
    async with database.transaction() as tx:
        await tx.plans.record(MIDNIGHT, {"a": replace(FULL, samples=3, demand=4.0, use=None)})
        await tx.plans.record(MIDNIGHT, {"a": replace(FULL, samples=9, demand=8.0)})
        await tx.plans.record(MIDNIGHT, {"b": FULL})
        await tx.plans.record(MIDNIGHT, {"b": FULL})
        for step in (MINUTE, timedelta(hours=1)):
            found = await tx.plans.steps(MIDNIGHT, MIDNIGHT + step, step)
            told = [(one.whole["demand"], one.whole["use"], one.whole["minutes"]) for one in found]
            assert told == [(7.0, 0.9, 1), (10.0, pytest.approx(0.9), 1)]


STEPS = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 15, 60, 360, 1440, 10_080))


def drawn(chance: random.Random) -> RegionMinute:
    """A minute of a region."""
    use = None if chance.random() < 0.3 else chance.random()
    numbers = [chance.choice((0.0, 100 * chance.random())) for _ in range(5)]
    return RegionMinute(chance.randint(1, 12), *numbers[:4], use, numbers[4], chance.random())


def around(chance: random.Random) -> datetime:
    """A moment of some days: often on a boundary, or beside one."""
    at = (
        MIDNIGHT + chance.randint(-30, 30) * timedelta(hours=1) + chance.randint(0, 3) * timedelta(minutes=15)
    )
    return at + chance.choice((timedelta(), timedelta(microseconds=-1), chance.randint(0, 59) * MINUTE))


@pytest.mark.endurance
@pytest.mark.anyio
@pytest.mark.parametrize("seed", range(examples(6, 6)))
async def test_what_is_read_from_sums_is_what_minutes_say(database: Database, seed: int) -> None:
    """Of random minutes, written in any order and in parts, forgotten, and asked for by any step from any moment to any other."""
    chance, model = random.Random(seed), PlanModel()
    for _ in range(12):
        async with database.transaction() as tx:
            for _ in range(chance.randint(0, 12)):
                minute = around(chance).replace(second=0, microsecond=0)
                regions = {name: drawn(chance) for name in "abc" if chance.random() < 0.6}
                await tx.plans.record(minute, regions)
                model.record(minute, regions)
            if chance.random() < 0.2:
                before = around(chance) - timedelta(hours=20)
                await tx.plans.forget(before)
                model.forget(before)
        async with database.transaction() as tx:
            for step in STEPS:
                since, until = sorted((around(chance), around(chance)))
                region = chance.choice((None, None, "b"))
                found = await tx.plans.steps(since, until, step, region)
                same(found, model.steps(since, until, step, region))


async def _write(database: Database, minute: datetime, entered: asyncio.Event | None = None) -> None:
    async with database.transaction() as tx:
        await tx.plans.record(minute, {"a": FULL})
        if entered is not None:
            entered.set()
            await asyncio.sleep(0.2)  # so long the other waits, if it waits


@pytest.mark.anyio
async def test_controls_that_write_at_once_sum_up_both_minutes(database: Database) -> None:
    """Each in a transaction of its own, begun while the other's is open."""
    entered = asyncio.Event()
    first = asyncio.create_task(_write(database, MIDNIGHT, entered))
    await entered.wait()
    await asyncio.gather(first, _write(database, MIDNIGHT + MINUTE))
    async with database.transaction() as tx:
        hour = await tx.plans.steps(MIDNIGHT, MIDNIGHT + timedelta(hours=1), timedelta(hours=1))
    assert [one.whole["minutes"] for one in hour] == [2]


async def _without_sums(tx: Transaction) -> None:
    await tx.connection.execute(text("DELETE FROM plan_sums"))


@pytest.mark.anyio
async def test_who_begins_to_record_sums_up_what_others_left(database: Database) -> None:
    """A control of a version without sums wrote minutes: those of the last day, and all since the last sum."""
    async with database.transaction() as tx:
        for ago in (50, 30, 3, 1):
            await tx.plans.record(MIDNIGHT - timedelta(hours=ago), {"a": FULL})
        await _without_sums(tx)
        await tx.plans.sum_up(MIDNIGHT)
        day = await tx.plans.steps(MIDNIGHT - timedelta(hours=60), MIDNIGHT, timedelta(hours=1))
        assert [one.whole["minutes"] for one in day] == [2]
        await _without_sums(tx)
        await tx.plans.record(MIDNIGHT - timedelta(hours=50) + MINUTE, {"a": FULL})
        await tx.plans.sum_up(MIDNIGHT)
        whole = await tx.plans.steps(MIDNIGHT - timedelta(hours=60), MIDNIGHT, timedelta(hours=1))
    assert [one.whole["minutes"] for one in whole] == [5]


@pytest.mark.anyio
async def test_the_migration_sums_up_what_there_is(empty_database_url: str) -> None:
    """As the code does, for steps of every length."""
    migrate.upgrade(empty_database_url)
    migrate.downgrade(empty_database_url, "0016")
    model, chance = PlanModel(), random.Random(1)
    insert = """
        INSERT INTO plan_minutes (minute, region, samples, demand, planned, away, refused, use, price_ms, exhausted)
        VALUES (:minute, :region, :samples, :demand, :planned, :away, :refused, :use, :price_ms, :exhausted)
    """
    database = Database(empty_database_url)
    async with database.transaction() as tx:
        for number in range(200):
            minute, one = MIDNIGHT + 7 * number * MINUTE, drawn(chance)
            model.record(minute, {"a": one})
            await tx.connection.execute(text(insert), {"minute": minute, "region": "a", **asdict(one)})
    migrate.upgrade(empty_database_url)
    async with database.transaction() as tx:
        for step in STEPS:
            whole = MIDNIGHT - timedelta(days=1), MIDNIGHT + timedelta(days=3), step
            same(await tx.plans.steps(*whole), model.steps(*whole))
    await database.dispose()


@pytest.mark.anyio
async def test_a_minute_is_written_once_it_is_over(database: Database) -> None:
    """And old ones are forgotten; without a plan there is nothing to write."""
    history, now = PlanHistory(database, timedelta(days=1)), MIDNIGHT.timestamp()
    async with database.transaction() as tx:
        await tx.plans.record(MIDNIGHT - timedelta(days=2), {"a": FULL})
    history.sample(Planned(), now)
    for at in (0.0, 5.0, 61.0):
        history.sample(PLANNED, now + at)
    await history.write(now + 61.0)
    async with database.transaction() as tx:
        found = await tx.plans.steps(MIDNIGHT - timedelta(days=3), MIDNIGHT + 5 * MINUTE, MINUTE)
    assert [(one.starts, one.region, one.whole["demand"], one.whole["exhausted"]) for one in found] == [
        ([MIDNIGHT.timestamp()], "a", 10.0, 1.0)
    ]


@pytest.mark.anyio
async def test_what_was_seen_of_the_last_minute_is_written_at_the_end(database: Database) -> None:
    """And joined to what the next control sees of it."""
    now = MIDNIGHT.timestamp()
    for demand, at in ((10.0, (0.0, 5.0)), (40.0, (10.0,))):
        history, problem = PlanHistory(database, timedelta(days=1)), replace(CLASS, rate=demand)
        for second in at:
            history.sample(replace(PLANNED, problem=PlanProblem((problem,), {})), now + second)
        history.end()
        history.end()
        await history.write(now + 11.0)
    async with database.transaction() as tx:
        found = await tx.plans.steps(MIDNIGHT, MIDNIGHT + MINUTE, MINUTE)
    assert [one.whole["demand"] for one in found] == [20.0]


@pytest.mark.anyio
async def test_it_outlives_a_database_that_is_away(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """Minutes wait for it, an hour's at most; what is lost is said."""
    nowhere = Database("postgresql://127.0.0.1:1/none")
    there: list[Database] = [nowhere]
    away = SimpleNamespace(transaction=lambda: there[0].transaction())  # noqa: PLW0108 - another is there later
    history, now = PlanHistory(cast("Database", away), timedelta(days=1)), MIDNIGHT.timestamp()
    for minute in range(MAX_WAITING + 3):
        history.sample(PLANNED, now + 60.0 * minute)
    with pytest.raises(StorageUnavailable):
        await history.write(now)
    assert "2 minutes is lost" in caplog.text or "1 minutes is lost" in caplog.text
    assert caplog.records[-1].levelno == logging.ERROR
    await nowhere.dispose()
    there[0] = database
    await history.write(now)
    async with database.transaction() as tx:
        found = await tx.plans.steps(MIDNIGHT, MIDNIGHT + timedelta(hours=2), timedelta(hours=2))
    assert [one.whole["minutes"] for one in found] == [MAX_WAITING]
