"""The history of health in Postgres: written, read together with what is heard, kept while the database is away, forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg
import pytest
from psycopg import sql

from gtm.control.lead.history import health as health_history
from gtm.control.lead.history.health import MOST_WAITING, HealthRecorder
from gtm.core.health.history import (
    KEPT,
    STEP,
    TOGETHER,
    History,
    HistorySeries,
    HistoryStep,
    Probed,
    VerdictChange,
)
from gtm.core.model.state import EndpointHealth, HealthStatus
from gtm.storage.errors import StorageUnavailable
from gtm.storage.history.audit import WantedEntries
from gtm.storage.history.health import WantedChanges
from gtm.storage.session import Database

UP, DOWN, UNKNOWN = HealthStatus.UP, HealthStatus.DOWN, HealthStatus.UNKNOWN
URL = "https://eu.example.com"
NOW = 1_800_000_000.0  # a step begins
DAYS = timedelta(days=7)
FRA = HistorySeries("eu", URL, "fra")
EVERY = WantedChanges()

pytestmark = pytest.mark.anyio


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A database with its tables, and the pool to it."""
    database = Database(database_url)
    yield database
    await database.dispose()


@contextmanager
def away(url: str, postgres_url: str) -> Iterator[None]:
    """The database lets nobody in."""
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    allow = "ALTER DATABASE {} ALLOW_CONNECTIONS {}"
    with psycopg.connect(postgres_url, autocommit=True) as session:
        session.execute(sql.SQL(allow).format(sql.Identifier(str(name)), sql.SQL("false")))
        session.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        try:
            yield
        finally:
            session.execute(sql.SQL(allow).format(sql.Identifier(str(name)), sql.SQL("true")))


def hear(history: History, now: float, status: HealthStatus, *outcomes: Probed, edge: str = "fra") -> None:
    """An edge reports, and all together say the same."""
    detail = "status 503, expected 200" if status is DOWN else ""
    health = {"eu": {URL: EndpointHealth(status, now - 1, detail, 5.0)}}
    history.heard(edge, edge, health, outcomes, now)
    history.judged(health, now)


def answered(ms: float) -> Probed:
    """A probe that ended well."""
    return Probed("eu", URL, ms, 200, "")


FAILED = Probed("eu", URL, None, 503, "status 503, expected 200 \0<script>\ud800")


async def test_alarms_are_written_into_the_audit_log(database: Database) -> None:
    """When one begins, spreads to more regions, and is over; nothing in between, and once each."""
    disputed: set[str] = set()
    recorder = HealthRecorder(
        database, History(), "one", DAYS, lambda: (frozenset(disputed), "alarm: look" if disputed else "")
    )
    for regions in ([], ["eu"], ["eu"], ["eu", "us"], ["us"], [], []):
        disputed.clear()
        disputed.update(regions)
        recorder.collect(NOW)
        await recorder.write(NOW)
    async with database.transaction() as transaction:
        found = await transaction.audit.list(WantedEntries(action="health"), oldest_first=True)
    assert [(one.action, one.target, one.detail) for one in found] == [
        ("health.alarm", "eu", "alarm: look"),
        ("health.alarm", "eu, us", "alarm: look"),
        ("health.alarm-over", "us", ""),
    ]
    assert {(one.who, one.via) for one in found} == {("gtm", "control")}


async def test_what_is_written_is_read(database: Database) -> None:
    """By another control too, with the evidence; what Postgres cannot hold of it is replaced."""
    history = History()
    recorder = HealthRecorder(database, history, "one", DAYS)
    await recorder.write(NOW)
    hear(history, NOW + 1, UP, answered(4.0), answered(8.0))
    hear(history, NOW + 2, DOWN, FAILED)
    recorder.collect(NOW + STEP)
    await recorder.write(NOW + STEP)
    for heard in (recorder, None):
        found, complete = await health_history.changes(database, heard, EVERY, None, 10)
        assert complete
        assert [(one.series, one.before, one.after) for one in found] == [
            (HistorySeries("eu", URL, TOGETHER), UP, DOWN),
            (FRA, UP, DOWN),
            (HistorySeries("eu", URL, TOGETHER), UNKNOWN, UP),
            (FRA, UNKNOWN, UP),
        ]
        assert (found[1].status, found[1].ms, found[1].edge_at) == (503, None, NOW + 1)
        assert found[1].at == NOW + 2
        steps = await health_history.steps(database, heard, "eu", NOW, NOW + 2 * STEP)
        (step,) = steps.series[FRA]
        assert (step.start, step.worst, step.probes, step.failed, step.changes) == (NOW, DOWN, 3, 1, 1)
        assert (step.p50_ms, step.p99_ms) == (4.0, 8.0)
    assert "\ufffd<script>" in step.detail
    assert list(steps.series) == [HistorySeries("eu", URL, TOGETHER), FRA]
    assert (await health_history.steps(database, None, "us", NOW, NOW + STEP)).series == {}


async def test_a_step_that_control_does_not_outlive_is_there_from_both(database: Database) -> None:
    """The one that is stopped writes what it heard of it, the next goes on: nothing is missing, nothing is there twice."""
    first, second = History(), History()
    before = HealthRecorder(database, first, "one", DAYS)
    await before.write(NOW)
    hear(first, NOW + 10, UP, answered(4.0), answered(8.0))
    hear(first, NOW + 11, DOWN, FAILED)
    asked = asyncio.Event()
    writing = asyncio.create_task(before.run(lambda: asked.set() or NOW + 12))
    await asked.wait()
    writing.cancel()
    await asyncio.wait([writing])
    after = HealthRecorder(database, second, "two", DAYS)
    await after.write(NOW + 20)
    hear(second, NOW + 20, UP, answered(6.0))
    for recorder in (after, None):
        if recorder is None:
            after.collect(NOW + STEP)
            await after.write(NOW + STEP)
        found = await health_history.steps(database, recorder, "eu", NOW, NOW + STEP)
        (step,) = found.series[FRA]
        assert (step.worst, step.probes, step.failed, step.changes) == (DOWN, 4, 1, 1)


async def test_changes_come_in_pages_and_by_what_is_wanted(database: Database) -> None:
    """Each once, the newest first, those that wait to be written among them."""
    history = History()
    recorder = HealthRecorder(database, history, "one", DAYS)
    await recorder.write(NOW)
    for number in range(9):
        hear(history, NOW + number * STEP, DOWN if number % 2 else UP)
        if number < 6:
            recorder.collect(NOW + number * STEP)
            await recorder.write(NOW + number * STEP)
    mine = WantedChanges("eu", URL, "fra", round(1e6 * (NOW + STEP)), round(1e6 * (NOW + 8 * STEP)))
    found, before = list[VerdictChange](), None
    while True:
        part, _ = await health_history.changes(database, recorder, mine, before, 2)
        if not part:
            break
        found += part
        before = part[-1].number
    assert [one.at for one in found] == [NOW + number * STEP for number in (7, 6, 5, 4, 3, 2, 1)]
    nobody, _ = await health_history.changes(database, recorder, WantedChanges(vantage="iad"), None, 10)
    assert nobody == []


async def test_another_control_goes_on_where_one_ended(database: Database) -> None:
    """What was written last is no first verdict again; a step that both heard parts of adds up."""
    first, second = History(), History()
    one = HealthRecorder(database, first, "one", DAYS)
    await one.write(NOW)
    hear(first, NOW + 1, UP, answered(4.0), answered(4.0), answered(4.0))
    one.collect(NOW + STEP)
    await one.write(NOW + STEP)
    two = HealthRecorder(database, second, "two", DAYS)
    hear(second, NOW + 10, UP, answered(9.0))  # before it knows what was written
    two.collect(NOW + 10)
    await two.write(NOW + 10)
    hear(second, NOW + 11, UP, edge="iad")
    hear(second, NOW + 12, DOWN, FAILED)
    two.collect(NOW + STEP)
    await two.write(NOW + STEP)
    found, _ = await health_history.changes(database, two, WantedChanges(vantage="fra"), None, 10)
    assert [(change.before, change.after) for change in found] == [(UP, DOWN), (UNKNOWN, UP)]
    found, _ = await health_history.changes(database, two, WantedChanges(vantage="iad"), None, 10)
    assert [(change.before, change.after) for change in found] == [(UNKNOWN, UP)]
    for heard in (two, None):
        steps = await health_history.steps(database, heard, "eu", NOW, NOW + STEP)
        (step,) = steps.series[FRA]
        assert (step.probes, step.failed, step.worst, step.changes, step.p50_ms) == (5, 1, DOWN, 1, 4.0)


async def test_a_database_that_is_away_loses_nothing_for_an_hour(
    database: Database, database_url: str, postgres: object
) -> None:
    """Meanwhile the last hour is there, and said not to be all; then everything is written, once."""
    history = History()
    recorder = HealthRecorder(database, history, "one", DAYS)
    await recorder.write(NOW)
    hear(history, NOW + 1, UP, answered(4.0))
    with away(database_url, postgres.url):  # type: ignore[attr-defined]
        for number in range(1, 6):
            hear(history, NOW + number * STEP, DOWN if number % 2 else UP, answered(4.0))
            recorder.collect(NOW + number * STEP)
            with pytest.raises(StorageUnavailable):
                await recorder.write(NOW + number * STEP)
        found, complete = await health_history.changes(
            database, recorder, WantedChanges(vantage="fra"), None, 99
        )
        assert (len(found), complete) == (6, False)
        steps = await health_history.steps(database, recorder, "eu", NOW, NOW + 9 * STEP)
        assert (len(steps.series[FRA]), steps.complete) == (6, False)
        nothing = await health_history.steps(database, None, "eu", NOW, NOW + 9 * STEP)
        assert (nothing.series, nothing.complete) == ({}, False)
    await recorder.write(NOW + 6 * STEP)
    await recorder.write(NOW + 6 * STEP)
    found, complete = await health_history.changes(database, None, WantedChanges(vantage="fra"), None, 99)
    assert (len(found), complete) == (6, True)
    steps = await health_history.steps(database, None, "eu", NOW, NOW + 9 * STEP)
    assert [step.start for step in steps.series[FRA]] == [NOW + number * STEP for number in range(5)]


async def test_what_waits_is_bounded(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """Of more than an hour the oldest goes, and the log says so."""
    history = History()
    recorder = HealthRecorder(database, history, "one", DAYS)
    history.known({})
    for number in range(MOST_WAITING // 2 + 10):
        health = {"eu": {URL: EndpointHealth(DOWN if number % 2 else UP)}}
        history.heard("t", f"edge-{number % 150}", health, (), NOW + number * STEP / 150)
    recorder.collect(NOW + 200 * STEP)
    assert "the history of health of" in caplog.text
    await recorder.write(NOW + 200 * STEP)
    steps = await health_history.steps(database, None, "eu", NOW, NOW + 300 * STEP)
    starts = {step.start for one in steps.series.values() for step in one}
    assert len(starts) == round(KEPT / STEP)


async def test_what_is_old_is_forgotten(database: Database) -> None:
    """After as many days as are kept, and not before; with none, nothing is written."""
    history = History()
    recorder = HealthRecorder(database, history, "one", DAYS)
    await recorder.write(NOW)
    hear(history, NOW + 1, UP)
    recorder.collect(NOW + STEP)
    await recorder.write(NOW + STEP)
    async with database.transaction() as transaction:
        await transaction.health.record(
            "old", [(FRA, HistoryStep(NOW - 8 * 86_400, UP)), (FRA, HistoryStep(NOW - 6 * 86_400, UP))]
        )
    await recorder.write(NOW + 7200)
    steps = await health_history.steps(database, None, "eu", NOW - 9 * 86_400, NOW + STEP)
    assert [step.start for step in steps.series[FRA]] == [NOW - 6 * 86_400, NOW]
    await recorder.write(NOW + 9 * 86_400)
    assert await health_history.changes(database, None, EVERY, None, 10) == ([], True)
    other = History()
    nothing = HealthRecorder(database, other, "none", timedelta())
    hear(other, NOW + 1, UP)
    nothing.collect(NOW + STEP)
    await nothing.write(NOW + STEP)
    assert await health_history.changes(database, None, EVERY, None, 10) == ([], True)
    found, _ = await health_history.changes(database, nothing, EVERY, None, 10)
    assert len(found) == 2  # memory has it all the same
