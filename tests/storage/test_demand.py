"""Recorded demand in Postgres, and the recorder that writes it."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from gtm.control.lead.history import demand as demand_history
from gtm.control.lead.history.demand import SAMPLE, DemandTally, Recorder, storable
from gtm.control.lead.history.recording import MAX_WAITING
from gtm.control.policy.traffic import recorded, watched
from gtm.core.demand.rows import Row
from gtm.storage import tables
from gtm.storage.history.demand import AnsweredStep, DemandStep, WantedDemand
from gtm.storage.session import Database
from tests.effort import examples
from tests.patience import PATIENCE

MIDNIGHT = datetime(2026, 1, 31, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NOW = MIDNIGHT.timestamp()


def row(cell: str = "chat|DE||||||real_time||", via: str = "http", service: str = "chat") -> Row:
    """A row of that service and cell."""
    return Row(service, "eu-central", "served", via, "class", cell)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A database with its tables, and the pool to it."""
    database = Database(database_url)
    yield database
    await database.dispose()


@pytest.mark.anyio
async def test_minutes_add_up_over_sources(database: Database) -> None:
    """Totals, timeline and the busiest minute are those of all sources; a source's second word replaces its first."""
    async with database.transaction() as tx:
        await tx.demand.record(MIDNIGHT, "a", {row("x"): 10.0, row("y"): 1.0})
        await tx.demand.record(MIDNIGHT, "a", {row("x"): 2.0, row("y"): 1.0})
        await tx.demand.record(MIDNIGHT, "b", {row("x"): 3.0})
        await tx.demand.record(MIDNIGHT + 5 * MINUTE, "b", {row("z"): 4.5})
        await tx.demand.record(MIDNIGHT + 6 * MINUTE, "b", {})
    until = MIDNIGHT + 10 * MINUTE
    async with database.transaction() as tx:
        assert await tx.demand.cells(MIDNIGHT, until, None) == {"x": 5.0, "y": 1.0, "z": 4.5}
        assert await tx.demand.cells(MIDNIGHT, MIDNIGHT + MINUTE, None) == {"x": 5.0, "y": 1.0}
        assert await tx.demand.busiest(MIDNIGHT, until) == MIDNIGHT
        assert await tx.demand.busiest(until, until + MINUTE) is None
        assert await tx.demand.timeline(MIDNIGHT, until, 5 * MINUTE) == [
            DemandStep(MIDNIGHT, 1, 60.0, 6.0),
            DemandStep(MIDNIGHT + 5 * MINUTE, 2, 120.0, 4.5),
        ]


@pytest.mark.anyio
async def test_answers_are_told_step_by_step(database: Database) -> None:
    """By service, tier, region and outcome; in steps of hours, hours that are added up and minutes come to the same."""
    refused = Row("a%09b", "", "refused_overload", "dns", "class", "y")
    async with database.transaction() as tx:
        for hour in range(3):
            start = MIDNIGHT + timedelta(hours=hour)
            await tx.demand.record(start, "a", {row("x"): 2.0, row("y"): 1.0, refused: 4.0})
            await tx.demand.record(start + 7 * MINUTE, "b", {row("x", via="carry"): 8.0})
    until, hour, chat = MIDNIGHT + timedelta(hours=3), timedelta(hours=1), "chat"

    async def told(step: timedelta, service: str | None = None) -> list[AnsweredStep]:
        async with database.transaction() as tx:
            return sorted(await tx.demand.answered(MIDNIGHT, until, step, service), key=repr)

    first = [one for one in await told(5 * MINUTE) if one.start < MIDNIGHT + hour]
    assert first == [
        AnsweredStep(MIDNIGHT, "a%09b", "dns", "", "refused_overload", 4.0),
        AnsweredStep(MIDNIGHT, chat, "http", "eu-central", "served", 3.0),
        AnsweredStep(MIDNIGHT + 5 * MINUTE, chat, "carry", "eu-central", "served", 8.0),
    ]
    assert {one.service for one in await told(5 * MINUTE, chat)} == {chat}
    minutes = await told(hour)
    assert len(minutes) == 9
    async with database.transaction() as tx:
        while await tx.demand.sum_hour(until):
            pass
    assert await told(hour) == minutes


@pytest.mark.anyio
async def test_a_minute_that_was_watched_in_part_is_told_so(database: Database) -> None:
    """By all sources together, 60 s at most; and the busiest is that with most a second, of those of which enough was watched."""
    async with database.transaction() as tx:
        await tx.demand.record(MIDNIGHT, "a", {row(): 20.0}, 20.0)
        await tx.demand.record(MIDNIGHT, "b", {row(): 30.0}, 30.0)
        await tx.demand.record(MIDNIGHT + MINUTE, "a", {row(): 6.0}, 60.1)
        await tx.demand.record(MIDNIGHT + MINUTE, "b", {row(): 48.0}, 45.0)
        await tx.demand.record(MIDNIGHT + 2 * MINUTE, "b", {row(): 20.0}, 2.0)
        until = MIDNIGHT + 3 * MINUTE
        steps = await tx.demand.timeline(MIDNIGHT, until, MINUTE)
        assert [(step.seconds, step.requests) for step in steps] == [(50.0, 50.0), (60.0, 54.0), (2.0, 20.0)]
        assert (await tx.demand.minute(MIDNIGHT, WantedDemand(), 10)).seconds == 50.0
        assert (await tx.demand.minute(MIDNIGHT - MINUTE, WantedDemand(), 10)).seconds == 60.0
        assert await tx.demand.busiest(MIDNIGHT, until) == MIDNIGHT
    found = await recorded(database, MIDNIGHT, until)
    assert (found.whole.seconds, found.peak.seconds, found.peak.requests) == (112.0, 50.0, 50.0)
    _, seconds, requests = await watched(database, MIDNIGHT, until, [])
    assert (seconds, requests) == (112.0, 124.0)


@pytest.mark.anyio
async def test_what_a_recorder_watched_of_its_last_minute_is_written(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it is told to end, and for how long that was."""
    looked, times = asyncio.Event(), itertools.count()

    def clock() -> float:
        turn = next(times)
        if turn >= 6:  # it is asked twice a turn
            looked.set()
        return NOW + 55 + turn / 1000

    monkeypatch.setattr(demand_history, "SAMPLE", 0.01)
    reported: Any = SimpleNamespace(rates=lambda: {row(): 100.0})
    recorder = Recorder(database, "a", timedelta(days=1))
    task = asyncio.create_task(demand_history.run(recorder, lambda: reported, dict, clock))
    await asyncio.wait_for(looked.wait(), PATIENCE)
    task.cancel()
    await asyncio.wait([task])
    async with database.transaction() as tx:
        found = await tx.demand.minute(MIDNIGHT, WantedDemand(), 10)
    assert 0.005 < found.seconds < 1
    assert sum(found.sums.values()) == pytest.approx(100 * found.seconds)


@pytest.mark.anyio
async def test_cells_of_some_services_are_those_of_their_rows(database: Database) -> None:
    """The database adds up what `totals` tells row by row, whatever a row holds."""
    odd = ("x", "x%", "x%09y", "a\tb", "%2509")
    counts = {
        row(cell, via, service): 1.0 + number
        for number, (cell, via, service) in enumerate(
            itertools.product(odd, ("http", "dns"), ("chat", "chat2", "c%t"))
        )
    }
    async with database.transaction() as tx:
        await tx.demand.record(MIDNIGHT, "a", counts)
        half = dict(list(counts.items())[::2])
        await tx.demand.record(MIDNIGHT + MINUTE, "b", half)
    for until, services in itertools.product(
        (MIDNIGHT + MINUTE, MIDNIGHT + 2 * MINUTE), ((), ("chat",), ("chat", "chat2"))
    ):
        async with database.transaction() as tx:
            told = [counts] if until == MIDNIGHT + MINUTE else [counts, half]
            expected = by_cell(told, services)
            assert await tx.demand.cells(MIDNIGHT, until, services) == expected


def by_cell(counted: Iterable[Mapping[Row, float]], services: Collection[str] | None) -> dict[str, float]:
    """What the requests of some services add up to."""
    cells: dict[str, float] = {}
    for one, count in (pair for counts in counted for pair in counts.items()):
        if services is None or one.service in services:
            cells[one.cell] = cells.get(one.cell, 0.0) + count
    return cells


@pytest.mark.endurance
@pytest.mark.anyio
@pytest.mark.parametrize("seed", range(examples(4, 4)))
async def test_hours_that_are_added_up_say_what_minutes_say(database: Database, seed: int) -> None:
    """Whatever is recorded when, by whom, late or once more; added up in between; forgotten to any moment; and asked for of any time."""
    chance, minutes = random.Random(seed), dict[tuple[datetime, str], dict[Row, float]]()
    rows = [row(f"c{number}|DE||||||real_time||", service=service) for number in range(3) for service in "ab"]

    def moment() -> datetime:
        at = MIDNIGHT + chance.randint(0, 9) * timedelta(hours=1)
        return at + chance.choice((timedelta(), timedelta(microseconds=-1), chance.randint(0, 59) * MINUTE))

    for _ in range(10):
        async with database.transaction() as tx:
            for _ in range(chance.randint(0, 8)):
                minute, source = moment().replace(second=0, microsecond=0), chance.choice("ab")
                counts = {one: float(chance.randint(0, 99)) for one in rows if chance.random() < 0.5}
                await tx.demand.record(minute, source, counts)
                minutes[minute, source] = counts
            before = moment()
            for _ in range(chance.randint(0, 5)):
                await tx.demand.sum_hour(before)
            if chance.random() < 0.2:
                before = moment() - timedelta(hours=5)
                await tx.demand.forget(before)
                minutes = {key: counts for key, counts in minutes.items() if key[0] >= before}
        async with database.transaction() as tx:
            for _ in range(6):
                since, until = sorted((moment(), moment()))
                counted = [counts for (minute, _), counts in minutes.items() if since <= minute < until]
                for services in (None, "", "a", "ab"):
                    assert await tx.demand.cells(since, until, services) == by_cell(counted, services)


@pytest.mark.anyio
async def test_a_recorder_adds_up_hours_that_are_settled(database: Database) -> None:
    """The newest first, one each time that it writes; those whose minutes may still come it leaves."""
    async with database.transaction() as tx:
        for ago in (5, 3, 1):
            await tx.demand.record(MIDNIGHT - timedelta(hours=ago), "b", {row(): 1.0})
    recorder = Recorder(database, "a", timedelta(days=1))
    seen = []
    for _ in range(4):
        await recorder.write(NOW + 30)
        async with database.transaction() as tx:
            found = await tx.connection.execute(select(tables.demand_hours.c.hour))
            seen.append(sorted((MIDNIGHT - hour) / timedelta(hours=1) for (hour,) in found))
    assert seen == [[3], [3, 5], [3, 5], [3, 5]]
    await recorder.write(NOW + 3600 + 90)
    async with database.transaction() as tx:
        assert await tx.demand.sum_hour(MIDNIGHT + timedelta(days=1)) is False


@pytest.mark.anyio
async def test_what_is_recorded_while_its_hour_is_added_up_counts(database: Database) -> None:
    """Each in a transaction of its own, the second begun while the first is open."""
    async with database.transaction() as tx:
        await tx.demand.record(MIDNIGHT, "a", {row(): 1.0})
    async with database.transaction() as adding:
        assert await adding.demand.sum_hour(MIDNIGHT + timedelta(hours=2))

        async def late() -> None:
            async with database.transaction() as tx:
                await tx.demand.record(MIDNIGHT + MINUTE, "a", {row(): 2.0})

        task = asyncio.create_task(late())
        done, _ = await asyncio.wait([task], timeout=0.3)
        assert not done, "it waits"
    await task
    async with database.transaction() as tx:
        assert await tx.demand.cells(MIDNIGHT, MIDNIGHT + timedelta(hours=1), None) == {row().cell: 3.0}


@pytest.mark.anyio
async def test_old_minutes_are_forgotten(database: Database) -> None:
    """What is older than the retention goes, with the rows that only it had; rows that are still seen stay."""
    async with database.transaction() as tx:
        await tx.demand.record(MIDNIGHT, "a", {row("old"): 1.0, row("both"): 1.0})
        await tx.demand.record(MIDNIGHT + timedelta(hours=9), "a", {row("both"): 2.0})
        await tx.demand.forget(MIDNIGHT + timedelta(hours=8))
        assert await tx.demand.cells(MIDNIGHT, MIDNIGHT + timedelta(days=1), None) == {"both": 2.0}
        await tx.demand.record(MIDNIGHT + timedelta(hours=10), "a", {row("old"): 3.0})
        assert await tx.demand.cells(MIDNIGHT, MIDNIGHT + timedelta(days=1), None) == {
            "both": 2.0,
            "old": 3.0,
        }


@pytest.mark.anyio
async def test_a_recorder_writes_whole_minutes(database: Database) -> None:
    """Rates become counts of each minute that is over; a pause is not counted, nor is a clock that steps back."""
    recorder = Recorder(database, "a", timedelta(days=1))
    for step in range(25):
        recorder.sample({row(): 2.0}, {}, NOW + SAMPLE * step)
    recorder.sample({row(): 2.0}, {}, NOW + 3600)
    recorder.sample({row(): 2.0}, {}, NOW + 3000)
    await recorder.write(NOW + 3600)
    async with database.transaction() as tx:
        steps = await tx.demand.timeline(MIDNIGHT, MIDNIGHT + timedelta(hours=2), MINUTE)
        totals = await tx.demand.cells(MIDNIGHT, MIDNIGHT + timedelta(hours=2), None)
    assert [(step.start - MIDNIGHT, step.requests) for step in steps] == [
        (timedelta(0), 120.0),
        (MINUTE, 120.0),
    ]
    assert totals == {row().cell: 240.0}


@pytest.mark.anyio
async def test_minutes_wait_for_the_database(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """Until they can be written the latest hour is kept, and what is dropped is said."""
    recorder = Recorder(database, "a", timedelta(days=1))
    for step in range(12 * (MAX_WAITING + 3)):
        recorder.sample({row(): 2.0}, {}, NOW + SAMPLE * step)
    assert "is lost: no database" in caplog.text
    await recorder.write(NOW + SAMPLE * 12 * (MAX_WAITING + 3))
    async with database.transaction() as tx:
        steps = await tx.demand.timeline(MIDNIGHT, MIDNIGHT + timedelta(hours=2), MINUTE)
    assert len([one for one in steps if one.requests]) == MAX_WAITING


def test_dns_answers_count_as_requests() -> None:
    """A DNS answer counts as the requests it stands for, one where nobody knows."""
    tally = DemandTally()
    tally.add(
        {row(via="dns"): 1.0, row(service="web", via="dns"): 1.0},
        {("chat", "eu-central"): 5.0},
        NOW,
        NOW + 60,
    )
    (minute,) = tally.finished(NOW + 60)
    assert minute.seconds == 60.0
    assert list(minute.counts.values()) == [300.0, 60.0]
    assert tally.finished(NOW + 60) == []


def test_rows_that_cannot_be_stored_are_left_out() -> None:
    """Postgres holds no NUL, and indexes no row of several kilobytes."""
    assert not storable("a\0b")
    assert not storable("ä" * 1_500)
    tally = DemandTally()
    tally.add({row("\0"): 1.0}, {}, NOW, NOW + 60)
    assert tally.finished(NOW + 60)[0].counts == {}


@given(
    moments=st.lists(st.floats(0, 1e4), min_size=1, max_size=20),
    rate=st.floats(0, 1e3),
)
def test_minutes_hold_exactly_what_was_added(moments: list[float], rate: float) -> None:
    """However times fall on minutes, counts are rate times time, and no minute has more than 60 s of it."""
    moments.sort()
    tally = DemandTally()
    for began, ended in itertools.pairwise(moments):
        tally.add({row(): rate}, {}, began, ended)
    found = tally.finished(1e6)
    counted = sum(sum(minute.counts.values()) for minute in found)
    assert counted == pytest.approx(rate * (moments[-1] - moments[0]), rel=1e-6, abs=1e-6)
    assert all(minute.seconds <= 60 * (1 + 1e-6) for minute in found)
    assert all(
        sum(minute.counts.values()) == pytest.approx(rate * minute.seconds, rel=1e-6, abs=1e-6)
        for minute in found
    )


def test_rows_survive_as_text() -> None:
    """A row is read back as it was written."""
    assert Row.parse(row().text) == row()
