"""The plan's history in Postgres, and what writes it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gtm.control.lead.history.plans import MAX_WAITING, PlanHistory
from gtm.control.lead.planner import Planned
from gtm.core.capacity.supply import Assessment, RegionCapacity
from gtm.core.model.regions import AdminState
from gtm.core.model.services import Priority
from gtm.core.model.state import ClassPlan, Plan
from gtm.core.plan.history import RegionMinute
from gtm.core.plan.problem import ClassDemand, Problem, Solution
from gtm.storage.errors import StorageUnavailable
from gtm.storage.session import Database

MIDNIGHT = datetime(2026, 1, 31, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
FULL = RegionMinute(12, 10.0, 8.0, 1.0, 1.0, 0.9, 50.0, 1.0)
IDLE = RegionMinute(12, 0.0, 0.0, 0.0, 0.0, None, 0.0, 0.0)
CLASS = ClassDemand("one", "chat", Priority.REAL_TIME, ("a",), (1.0,), 10.0)
PLANNED = Planned(
    plan=Plan(made=1.0, classes={"one": ClassPlan({"a": 1.0})}),
    problem=Problem((CLASS,), {}),
    solution=Solution(flow={}, shed={}, shed_tenants={}, prices={}, quota_rates={}, binding=("a",)),
    capacity=Assessment({"a": RegionCapacity("a", AdminState.ACTIVE, 1.0, 1.0, 0.0)}),
)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A database with its tables, and the pool to it."""
    database = Database(database_url)
    yield database
    await database.dispose()


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
    assert [(one.region, one.start, one.minutes) for one in found] == [
        ("a", MIDNIGHT, 2),
        ("a", MIDNIGHT + 5 * MINUTE, 1),
        ("b", MIDNIGHT, 1),
    ]
    first = found[0]
    assert (first.demand, first.use, first.most_use) == pytest.approx((15.0, 0.7, 0.9))
    assert (first.price_ms, first.most_price_ms, first.exhausted) == pytest.approx((25.0, 50.0, 0.5))
    assert found[2].use is None
    async with database.transaction() as tx:
        assert len(await tx.plans.steps(MIDNIGHT, MIDNIGHT + MINUTE, MINUTE, "b")) == 1
        await tx.plans.forget(MIDNIGHT + MINUTE)
        left = await tx.plans.steps(MIDNIGHT, MIDNIGHT + 8 * MINUTE, MINUTE)
    assert [one.start for one in left] == [MIDNIGHT + MINUTE, MIDNIGHT + 7 * MINUTE]


@pytest.mark.anyio
async def test_two_controls_in_a_minute_are_joined(database: Database) -> None:
    """Where one took over from another in it: by their samples. The same said twice changes no mean."""
    async with database.transaction() as tx:
        await tx.plans.record(MIDNIGHT, {"a": replace(FULL, samples=3, demand=4.0, use=None)})
        await tx.plans.record(MIDNIGHT, {"a": replace(FULL, samples=9, demand=8.0)})
        await tx.plans.record(MIDNIGHT, {"b": FULL})
        await tx.plans.record(MIDNIGHT, {"b": FULL})
        found = await tx.plans.steps(MIDNIGHT, MIDNIGHT + MINUTE, MINUTE)
    assert [(one.demand, one.use, one.minutes) for one in found] == [
        (7.0, 0.9, 1),
        (10.0, pytest.approx(0.9), 1),
    ]


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
    assert [(one.start, one.region, one.demand, one.exhausted) for one in found] == [
        (MIDNIGHT, "a", 10.0, 1.0)
    ]


@pytest.mark.anyio
async def test_it_outlives_a_database_that_is_away(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """Minutes wait for it, an hour's at most; what is lost is said."""
    nowhere = Database("postgresql://127.0.0.1:1/none")
    history, now = PlanHistory(nowhere, timedelta(days=1)), MIDNIGHT.timestamp()
    for minute in range(MAX_WAITING + 3):
        history.sample(PLANNED, now + 60.0 * minute)
    with pytest.raises(StorageUnavailable):
        await history.write(now)
    assert "2 minutes is lost" in caplog.text or "1 minutes is lost" in caplog.text
    assert caplog.records[-1].levelno == logging.ERROR
    await nowhere.dispose()
    history._database = database
    await history.write(now)
    async with database.transaction() as tx:
        found = await tx.plans.steps(MIDNIGHT, MIDNIGHT + timedelta(hours=2), timedelta(hours=2))
    assert sum(one.minutes for one in found) == MAX_WAITING
