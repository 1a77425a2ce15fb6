"""What requests took, in Postgres, and the recorder that writes it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import func, select

from gtm.control.lead.history.requests import MOST_ROWS, RequestHistory
from gtm.core.capacity.durations import OTHER, Counts, Took, TookBy, added
from gtm.feed.reports import BalancerReport, TimesTold
from gtm.storage import tables
from gtm.storage.history.requests import PushedStep, RequestMinute, TookStep
from gtm.storage.session import Database

MIDNIGHT = datetime(2026, 1, 31, tzinfo=UTC)
MINUTE, QUARTER, HOUR = timedelta(minutes=1), timedelta(minutes=15), timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A database with its tables, and the pool to it."""
    database = Database(database_url)
    yield database
    await database.dispose()


def minute(
    took: dict[str, TookBy] | None = None, pushed: dict[tuple[str, str, str], float] | None = None
) -> RequestMinute:
    """What was told in a minute."""
    return RequestMinute(took or {}, pushed or {})


@pytest.mark.anyio
async def test_minutes_add_up_over_sources_and_nothing_counts_twice(database: Database) -> None:
    """A source's second word replaces its first, as when nobody knows whether the first was written; models are told apart where they are asked for."""
    table: TookBy = {("chat", "m"): Took({3: 1}, {5: 2}), ("chat", ""): Took({}, {5: 1})}
    async with database.transaction() as tx:
        for _ in range(2):
            await tx.requests.record(MIDNIGHT, "a", minute({"fra": table}, {("fra", "chat", "dub"): 4.0}))
        await tx.requests.record(MIDNIGHT, "b", minute({"fra": {("chat", "m"): Took({3: 1}, {6: 1})}}))
        await tx.requests.record(MIDNIGHT + MINUTE, "b", minute({"dub": table}, {("fra", "chat", "dub"): -1}))
        until = MIDNIGHT + 5 * MINUTE
        assert await tx.requests.took(MIDNIGHT, until, MINUTE) == [
            TookStep(MIDNIGHT, "fra", "chat", "", Took({3: 2}, {5: 3, 6: 1})),
            TookStep(MIDNIGHT + MINUTE, "dub", "chat", "", Took({3: 1}, {5: 3})),
        ]
        found = await tx.requests.took(MIDNIGHT, until, 5 * MINUTE, region="fra", by_model=True)
        assert found == [
            TookStep(MIDNIGHT, "fra", "chat", "", Took({}, {5: 1})),
            TookStep(MIDNIGHT, "fra", "chat", "m", Took({3: 2}, {5: 2, 6: 1})),
        ]
        assert await tx.requests.took(MIDNIGHT, until, MINUTE, service="search") == []
        pushed = await tx.requests.pushed(MIDNIGHT, until, 5 * MINUTE, "chat")
        assert pushed == [PushedStep(MIDNIGHT, "chat", "fra", "dub", 3.0)]


@pytest.mark.anyio
async def test_sums_are_those_of_their_minutes(database: Database) -> None:
    """Whatever is added up already, and whatever is written late: every time reads as minute by minute."""
    draw = random.Random(7)
    expected: dict[datetime, Counts] = {}
    pushes = Counter[datetime]()

    async def write(at: datetime) -> None:
        counts = {draw.randrange(160): draw.randrange(1, 9) for _ in range(3)}
        added(expected.setdefault(at, {}), counts)
        pushes[at] += 2
        told = minute({"fra": {("chat", "m"): Took({}, counts)}}, {("fra", "chat", "dub"): 2.0})
        async with database.transaction() as tx:
            await tx.requests.record(at, f"source-{len(expected)}-{sum(pushes.values())}", told)

    async def check() -> None:
        async with database.transaction() as tx:
            for since, until, step in (
                (MIDNIGHT, MIDNIGHT + 3 * HOUR, HOUR),
                (MIDNIGHT + 7 * MINUTE, MIDNIGHT + 2 * HOUR + 20 * MINUTE, HOUR),
                (MIDNIGHT, MIDNIGHT + 3 * HOUR, QUARTER),
                (MIDNIGHT, MIDNIGHT + 3 * HOUR, MINUTE),
            ):
                whole: dict[datetime, Counts] = {}
                came = Counter[datetime]()
                for at, counts in expected.items():
                    if since <= at < until:
                        start = at - (at - MIDNIGHT) % step
                        added(whole.setdefault(start, {}), counts)
                        came[start] += pushes[at]
                found = await tx.requests.took(since, until, step)
                assert {one.start: one.took.ends for one in found} == whole
                told = await tx.requests.pushed(since, until, step, None)
                assert {one.start: one.requests for one in told} == came

    for _ in range(12):
        await write(MIDNIGHT + draw.randrange(180) * MINUTE)
    async with database.transaction() as tx:
        assert await tx.requests.sum_up(MIDNIGHT + 2 * HOUR + 20 * MINUTE)
    await check()
    async with database.transaction() as tx:
        while await tx.requests.sum_up(MIDNIGHT + 2 * HOUR + 20 * MINUTE):
            pass
        spans = await tx.connection.execute(
            select(tables.request_times.c.span, func.max(tables.request_times.c.start)).group_by(
                tables.request_times.c.span
            )
        )
        sums = {span: start for span, start in spans if span > 1}
    assert sums.keys() == {15, 60}
    assert all(start + span * MINUTE <= MIDNIGHT + 2 * HOUR + 20 * MINUTE for span, start in sums.items())
    await check()
    await write(MIDNIGHT + 5 * MINUTE)  # the database was away
    await check()
    async with database.transaction() as tx:
        while await tx.requests.sum_up(MIDNIGHT + DAY):
            pass
    await check()
    async with database.transaction() as tx:
        await tx.requests.forget(MIDNIGHT + HOUR)
    for at in [at for at in expected if at < MIDNIGHT + HOUR]:
        del expected[at], pushes[at]
    await check()


def report(number: int, *times: TimesTold, region: str = "fra", **pushes: float) -> BalancerReport:
    """A balancer's."""
    told = {
        f"chat\t{peer}\t{why}": count for key, count in pushes.items() for peer, why in (key.split("_", 1),)
    }
    return BalancerReport(region=region, times=times, pushes=told, run="r", number=number)


@pytest.mark.anyio
async def test_what_balancers_tell_is_written_when_its_minute_is_over(database: Database) -> None:
    """Several of a region add up, and what a peer failed to take comes off; the minute that is under way is written at the end."""
    now = [MIDNIGHT.timestamp() + 59.0]
    history = RequestHistory(database, "one", DAY, lambda: now[0])
    times = TimesTold("chat", "m", ((3, 1),), ((5, 2),))
    history.take(report(1, times, dub_moved=3.0, dub_failed=1.0, dub_redirected=2.0, _came=7.0, _no_room=5.0))
    history.take(report(1, times))
    history.take(report(1, times, region="dub"))
    history.look(now[0])
    await history.write(now[0])
    now[0] += 1.0
    history.take(report(2, times))
    history.look(now[0])
    await history.write(now[0])
    async with database.transaction() as tx:
        found = await tx.requests.took(MIDNIGHT, MIDNIGHT + HOUR, MINUTE)
        assert {(one.start, one.region): one.took for one in found} == {
            (MIDNIGHT, "fra"): Took({3: 2}, {5: 4}),
            (MIDNIGHT, "dub"): Took({3: 1}, {5: 2}),
        }
        pushed = await tx.requests.pushed(MIDNIGHT, MIDNIGHT + HOUR, MINUTE, None)
    assert pushed == [PushedStep(MIDNIGHT, "chat", "fra", "dub", 4.0)]
    history.end()
    await history.write(now[0])
    async with database.transaction() as tx:
        found = await tx.requests.took(MIDNIGHT + MINUTE, MIDNIGHT + HOUR, MINUTE)
    assert [one.took for one in found] == [Took({3: 1}, {5: 2})]


@pytest.mark.anyio
async def test_what_is_kept_of_a_region_is_bounded(database: Database) -> None:
    """Whatever names its balancers tell: the others share one, and no other region has fewer for it."""
    now = [MIDNIGHT.timestamp()]
    history = RequestHistory(database, "one", DAY, lambda: now[0])
    for batch in range(4):
        names = (f"m-{batch}-{number}" for number in range(MOST_ROWS))
        history.take(report(batch + 1, *(TimesTold("chat", name, (), ((1, 1),)) for name in names)))
    history.take(report(1, TimesTold("chat", "own", (), ((1, 1),)), region="dub"))
    history.end()
    await history.write(now[0])
    async with database.transaction() as tx:
        found = await tx.requests.took(MIDNIGHT, MIDNIGHT + HOUR, MINUTE, by_model=True)
    fra = {one.model: one.took.ends[1] for one in found if one.region == "fra"}
    assert len(fra) == MOST_ROWS + 1
    assert fra[OTHER] == 3 * MOST_ROWS
    assert [one.model for one in found if one.region == "dub"] == ["own"]


@pytest.mark.anyio
async def test_what_was_told_lately_is_there_for_two_minutes(database: Database) -> None:
    """Without a look, without a writing, by region and over all services and models; what is older is gone, and a clock that goes back finds nothing of later."""
    now = [MIDNIGHT.timestamp() + 10.0]
    history = RequestHistory(database, "one", DAY, lambda: now[0])
    history.take(report(1, TimesTold("chat", "m", ((3, 1),), ((5, 2),)), TimesTold("web", "", (), ((6, 1),))))
    history.take(report(1, TimesTold("chat", "m", ((4, 1),), ((5, 1),)), region="dub"))
    assert history.lately() == {"fra": Took({3: 1}, {5: 2, 6: 1}), "dub": Took({4: 1}, {5: 1})}
    now[0] += 60.0
    history.take(report(2, TimesTold("chat", "m", ((3, 1),), ((5, 1),))))
    history.take(report(3))
    assert history.lately() == {"fra": Took({3: 2}, {5: 3, 6: 1}), "dub": Took({4: 1}, {5: 1})}
    now[0] += 60.0
    assert history.lately() == {"fra": Took({3: 1}, {5: 1})}
    history.take(report(4, TimesTold("chat", "m", (), ((9, 1),))))
    assert history.lately() == {"fra": Took({3: 1}, {5: 1, 9: 1})}
    now[0] += 120.0
    assert history.lately() == {}
    now[0] -= 3600.0
    assert history.lately() == {}
    history.take(report(5, TimesTold("chat", "m", (), ((1, 1),))))
    assert history.lately() == {"fra": Took({}, {1: 1})}


@pytest.mark.anyio
async def test_what_was_told_lately_is_there_where_nothing_is_recorded(database: Database) -> None:
    """`GTM_DEMAND_DAYS=0` records nothing, keeps nothing for it, and `gtm top` shows what was measured all the same."""
    history = RequestHistory(database, "one", timedelta(0), MIDNIGHT.timestamp)
    times = TimesTold("chat", "m", ((3, 1),), ((5, 2),))
    history.take(report(1, times, dub_moved=3.0))
    assert history.lately() == {"fra": Took({3: 1}, {5: 2})}
    history.end()
    await history.write(MIDNIGHT.timestamp())
    async with database.transaction() as tx:
        assert not [*await tx.requests.took(MIDNIGHT, MIDNIGHT + HOUR, MINUTE)]
        assert not await tx.requests.pushed(MIDNIGHT, MIDNIGHT + HOUR, MINUTE, None)


@given(
    st.lists(
        st.tuples(st.floats(0, 150), st.sampled_from(["fra", "dub"]), st.integers(0, 9), st.integers(1, 5)),
        max_size=30,
    )
)
def test_lately_is_this_minute_and_the_one_before(told: list[tuple[float, str, int, int]]) -> None:
    """As docs/cli.md says it of `gtm top`, whatever comes when, of however many services: each request once, and none that is older."""
    now = [MIDNIGHT.timestamp()]
    history = RequestHistory(cast("Database", None), "one", DAY, lambda: now[0])
    all_of_them: list[tuple[float, str, int, int]] = []
    for number, (pause, region, bucket, count) in enumerate(told):
        now[0] += pause
        all_of_them.append((now[0] // 60, region, bucket, count))
        times = TimesTold(f"service-{number % 3}", "m", (), ((bucket, count),))
        history.take(report(number, times, region=region))
        expected: dict[str, Counter[int]] = {}
        for minute, name, which, many in all_of_them:
            if minute >= now[0] // 60 - 1:
                expected.setdefault(name, Counter())[which] += many
        assert {name: took.ends for name, took in history.lately().items()} == expected
