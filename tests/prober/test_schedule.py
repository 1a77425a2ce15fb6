"""Which checks are made when, against real servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gtm.core.health.history import Probed
from gtm.core.model.policy import Policy
from gtm.core.model.regions import AdminState, Endpoint, Probe, Region
from gtm.core.model.state import EndpointHealth, HealthStatus
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.snapshot import Snapshot
from gtm.prober import Prober, schedule
from gtm.settings import LOOPBACK
from tests.descriptors import none_left
from tests.patience import PATIENCE
from tests.ports import free_port
from tests.prober.servers import Answer, Server, http, raw, raw_http, serve

pytestmark = pytest.mark.anyio

FAST = Probe(interval=0.05, timeout=1.0, up_threshold=2, down_threshold=3)
SLOW = replace(FAST, interval=3600.0)
UP, DOWN, UNKNOWN = HealthStatus.UP, HealthStatus.DOWN, HealthStatus.UNKNOWN


def region(name: str, *urls: str, probe: Probe = FAST, state: AdminState = AdminState.ACTIVE) -> Region:
    """A region with these endpoints."""
    endpoints = tuple(Endpoint(url, ("127.0.0.1",)) for url in urls)
    return Region(name, 50.0, 8.0, "DE", endpoints, probe=probe, admin_state=state)


def snapshot(*regions: Region) -> Snapshot:
    """A policy of regions only, with probes quicker than a policy may have them (timeouts above intervals)."""
    slow = tuple(replace(item, probe=Probe()) for item in regions)
    return replace(compile_policy(Policy(regions=slow), ()), regions=regions)


class Watcher:
    """Collects the verdicts at each report."""

    def __init__(self) -> None:
        self.seen: list[dict[str, dict[str, EndpointHealth]]] = []
        self.prober: Prober | None = None

    def __call__(self) -> None:
        assert self.prober is not None
        self.seen.append(self.prober.health())

    def statuses(self, name: str) -> list[HealthStatus]:
        """The region's first endpoint at each report."""
        return [next(iter(table[name].values())).status for table in self.seen if name in table]


@asynccontextmanager
async def probing(
    *regions: Region, clock: Callable[[], float] = time.time
) -> AsyncIterator[tuple[Prober, Watcher]]:
    """A prober at work."""
    watcher = Watcher()
    prober = watcher.prober = Prober(watcher, clock, allowed=LOOPBACK)
    prober.start()
    try:
        prober.update(snapshot(*regions))
        yield prober, watcher
    finally:
        await prober.stop()


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that must come; a test that waits in vain ends by the suite's own limit."""
    while not condition():  # noqa: ASYNC110 - conditions are of servers and probers alike, without events
        await asyncio.sleep(0.005)


def switch(plan: list[bool]) -> Answer:
    """A server that is well while `plan[0]`."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: bytes) -> None:
        writer.write(raw_http(200 if plan[0] else 503))

    return answer


def script(*statuses: int) -> Answer:
    """A server that gives these statuses, and then the last for ever."""
    left = list(statuses)

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: bytes) -> None:
        writer.write(raw_http(left.pop(0) if len(left) > 1 else left[0]))

    return answer


async def test_want_of_descriptors_takes_nobody_down(caplog: pytest.LogCaptureFixture) -> None:
    """Checks that cannot be made leave the verdict, are counted, and are said once; those after count as ever."""
    well = [True]
    async with serve(switch(well)) as server, probing(region("one", server.url)) as (prober, watcher):
        await until(lambda: watcher.statuses("one") == [UP])
        with none_left():
            await until(lambda: prober.results["one", "not_made"] >= 2 * FAST.down_threshold)
            assert prober.results["one", "failed"] == 0
        assert watcher.statuses("one") == [UP]
        said = [record for record in caplog.records if "cannot be probed" in record.getMessage()]
        assert len(said) == 1
        well[0] = False
        await until(lambda: watcher.statuses("one") == [UP, DOWN])


async def test_who_checks_no_more_votes_no_more() -> None:
    """After so many checks that could not be made, others are told nothing of an endpoint; this process goes on by what it saw. The next check that is made counts."""
    async with serve(switch([True])) as server, probing(region("one", server.url)) as (prober, watcher):
        await until(lambda: watcher.statuses("one") == [UP])
        told = len(watcher.seen)
        with none_left():
            await until(lambda: prober.results["one", "not_made"] >= schedule.MOST_MISSED)
            assert prober.votes()["one"][server.url].status is UNKNOWN
            assert prober.health()["one"][server.url].status is UP
            assert len(watcher.seen) == told + 1, "a vote that ends is told at once"
            assert prober.results["one", "failed"] == 0
        await until(lambda: prober.votes()["one"][server.url].status is UP)
        assert len(watcher.seen) == told + 2


async def test_the_first_round_says_who_is_up() -> None:
    """Unknown before, decided after the first check of each; every verdict is reported."""
    dead = f"http://127.0.0.1:{free_port()}"
    async with (
        serve(http()) as server,
        probing(region("good", server.url, probe=SLOW), region("bad", dead, probe=SLOW)) as (prober, watcher),
    ):
        assert prober.health()["good"][server.url].status is UNKNOWN
        assert await prober.first_round(20)
        table = prober.health()
        assert table["good"][server.url].status is UP
        assert table["good"][server.url].latency_ms is not None
        assert table["bad"][dead].status is DOWN
        assert table["bad"][dead].detail == "connection refused"
        assert len(watcher.seen) == 2
        assert prober.results == {("good", "ok"): 1, ("bad", "failed"): 1}


async def test_the_first_round_does_not_wait_for_ever() -> None:
    """Who has not answered by then is unknown."""
    async with serve(raw(b"", 60)) as server:
        slow = replace(SLOW, timeout=30.0)
        async with probing(region("slow", server.url, probe=slow)) as (prober, _):
            assert not await prober.first_round(0.1)
            assert prober.health()["slow"][server.url].status is UNKNOWN
    async with probing() as (prober, _):
        assert await prober.first_round(0)


async def test_thresholds_hold_against_flapping() -> None:
    """Two failures and a success change nothing; three failures in a row do, and two successes back."""
    plan = (200, 503, 503, 200, 503, 503, 503, 200, 503, 200, 200)
    async with serve(script(*plan)) as server, probing(region("flappy", server.url)) as (prober, watcher):
        await until(lambda: len(watcher.seen) == 3)
        assert watcher.statuses("flappy") == [UP, DOWN, UP]
        assert len(server.heads) >= len(plan)
        assert prober.results["flappy", "failed"] == 6


async def test_a_server_that_dies_and_comes_back() -> None:
    """Down once nobody listens, up again when somebody does."""
    port = free_port()
    async with probing(region("phoenix", f"http://127.0.0.1:{port}")) as (_, watcher):
        await until(lambda: watcher.statuses("phoenix") == [DOWN])
        async with serve(http(), port=port):
            await until(lambda: watcher.statuses("phoenix") == [DOWN, UP])
        await until(lambda: watcher.statuses("phoenix") == [DOWN, UP, DOWN])


async def test_a_slow_answer_is_a_failed_one() -> None:
    """Past the timeout the endpoint is down, in words."""
    async with serve(raw(b"", 60)) as server:
        probe = replace(FAST, timeout=0.1)
        async with probing(region("slow", server.url, probe=probe)) as (prober, watcher):
            await until(lambda: watcher.seen)
            assert prober.health()["slow"][server.url].detail == "no answer within 0.1 s"


def holding(pause: float) -> Answer:
    """A server that takes its time, long enough for a second check to overlap."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: bytes) -> None:
        await asyncio.sleep(pause)
        writer.write(raw_http())

    return answer


async def test_never_two_checks_in_flight_to_a_target() -> None:
    """Intervals shorter than the answer, several regions and probes, and new policies all the time: one at a time."""
    async with serve(holding(0.03)) as server:
        probe = replace(FAST, interval=0.02)
        async with probing(region("a", server.url, probe=probe)) as (prober, _):
            for number in range(60):
                path = f"/{number % 3}"
                other = replace(probe, path=path)
                prober.update(
                    snapshot(
                        *([region("a", server.url, probe=other)] if number % 4 else []),
                        region("b", server.url + "/prefix", probe=probe),
                        region("c", server.url, server.url + "/x", probe=other),
                    )
                )
                await asyncio.sleep(0.01)
            await until(lambda: len(server.heads) > 20)
    assert server.most_open == 1


async def test_regions_that_share_a_check_share_its_result() -> None:
    """One check speaks for all regions with the same URL and probe; each has its own verdict."""
    async with serve(http()) as server:
        regions = [region(name, server.url, probe=SLOW) for name in ("a", "b")]
        async with probing(*regions) as (prober, _):
            assert await prober.first_round(20)
            assert len(server.heads) == 1
            assert {prober.health()[name][server.url].status for name in ("a", "b")} == {UP}
            prober.update(snapshot(*regions, region("c", server.url, probe=SLOW)))
            assert prober.health()["c"][server.url].status is UNKNOWN
            assert await prober.first_round(20)
            assert prober.health()["c"][server.url].status is UP
            assert prober.results["a", "ok"] == 2


async def test_outcomes_are_handed_over_once() -> None:
    """Each probe of each region, in order, with HTTP's status, what it took or what was wrong."""
    async with serve(script(200, 503)) as server, probing(region("a", server.url)) as (prober, _):
        assert await prober.first_round(20)
        found: list[Probed] = []

        def taken() -> int:
            found.extend(prober.take_outcomes())
            return len(found)

        await until(lambda: taken() >= 3)
    taken()
    first, second, *_others = found
    assert (first.region, first.url, first.status, first.failure) == ("a", server.url, 200, "")
    assert first.ms is not None
    assert (second.status, second.ms, second.failure) == (503, None, "status 503, expected 200")
    assert len(found) == sum(prober.results.values())


async def test_an_unchanged_endpoint_keeps_its_verdict_and_rhythm() -> None:
    """Another policy with the same endpoint causes no check."""
    async with (
        serve(http()) as server,
        serve(http()) as other,
        probing(region("a", server.url, probe=SLOW)) as (prober, _),
    ):
        assert await prober.first_round(20)
        before = prober.health()["a"]
        draining = region("a", server.url, probe=SLOW, state=AdminState.DRAINING)
        prober.update(snapshot(draining, region("b", other.url, probe=SLOW)))
        assert await prober.first_round(20)
        assert prober.health()["a"] == before
        assert prober.health()["b"][other.url].status is UP
        assert len(server.heads) == 1


async def test_a_changed_probe_keeps_the_verdict_and_begins_a_new_streak() -> None:
    """Up stays up until the new probe has failed as often as its threshold says."""
    async with (
        serve(script(200, 503)) as server,
        probing(region("a", server.url, probe=SLOW)) as (prober, watcher),
    ):
        assert await prober.first_round(20)
        for number in range(4):
            prober.update(snapshot(region("a", server.url, probe=replace(SLOW, path=f"/{number}"))))
            assert await prober.first_round(20)
            assert prober.health()["a"][server.url].status is UP
            assert prober.health()["a"][server.url].detail == "status 503, expected 200"
        assert watcher.statuses("a") == [UP]
        prober.update(snapshot(region("a", server.url, probe=FAST)))
        await until(lambda: watcher.statuses("a") == [UP, DOWN])


async def test_true_and_1_are_different_expectations() -> None:
    """A probe that changes from 1 to true is another probe."""
    async with serve(http(200, b'{"ok":true}')) as server:
        probe = replace(SLOW, json_field="ok", json_value=1)
        async with probing(region("a", server.url, probe=probe)) as (prober, _):
            assert await prober.first_round(20)
            prober.update(snapshot(region("a", server.url, probe=replace(probe, json_value=True))))
            assert await prober.first_round(20)
            assert len(server.heads) == 2


async def test_disabled_and_removed_regions_are_left_alone_and_forgotten() -> None:
    """They are not probed; when they come back, they are unknown."""
    async with serve(http()) as server:
        good = region("a", server.url)
        async with probing(good) as (prober, _):
            assert await prober.first_round(20)
            for gone in (snapshot(replace(good, admin_state=AdminState.DISABLED)), snapshot()):
                prober.update(gone)
                assert prober.health() == {}
                await until(lambda: server.open == 0)
                checks = len(server.heads)
                await asyncio.sleep(0.2)
                assert len(server.heads) == checks
                prober.update(snapshot(good))
                assert prober.health()["a"][server.url].status is UNKNOWN
                assert await prober.first_round(20)
                assert prober.health()["a"][server.url].status is UP


async def test_a_late_result_of_an_old_probe_does_not_count() -> None:
    """What was in flight when the policy changed says nothing about the new one."""
    release = asyncio.Event()

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        if b" /old " in head:
            await release.wait()
        writer.write(raw_http(503 if b" /old " in head else 200))

    async with serve(answer) as server:
        old = replace(SLOW, path="/old", timeout=30.0)
        async with probing(region("a", server.url, probe=old)) as (prober, watcher):
            await until(lambda: server.heads)
            prober.update(snapshot(region("a", server.url, probe=replace(SLOW, path="/new"))))
            release.set()
            assert await prober.first_round(20)
            assert watcher.statuses("a") == [UP]
            assert prober.results == {("a", "ok"): 1}


async def test_a_report_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Probing goes on, and the failure is logged."""
    plan = [True]
    async with serve(switch(plan)) as server:

        def report() -> None:
            raise OSError("no")

        prober = Prober(report, time.time, allowed=LOOPBACK)
        prober.start()
        prober.update(snapshot(region("a", server.url)))
        await until(lambda: prober.health()["a"][server.url].status is UP)
        plan[0] = False
        await until(lambda: prober.health()["a"][server.url].status is DOWN)
        await prober.stop()
    assert "could not report a changed verdict" in caplog.text


async def test_stopping_ends_checks_in_flight_quietly(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is left open, nothing is logged as an error, the verdicts stay readable, and twice does no harm."""
    async with serve(raw(b"", 60)) as server:
        probe = replace(SLOW, timeout=60.0)
        async with probing(region("a", server.url, probe=probe)) as (prober, _):
            await until(lambda: server.open == 1)
            await prober.stop()
            assert prober.health()["a"][server.url].status is UNKNOWN
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    await Prober(lambda: None, time.time).stop()


async def test_many_endpoints_share_the_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more checks in flight at once than there are slots, over all targets."""
    monkeypatch.setattr(schedule, "CONCURRENCY", 3)
    servers: list[Server] = []
    most = 0

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: bytes) -> None:
        nonlocal most
        most = max(most, sum(server.open for server in servers))
        await asyncio.sleep(0.05)
        writer.write(raw_http())

    async with AsyncExitStack() as stack:
        servers += [await stack.enter_async_context(serve(answer)) for _ in range(12)]
        regions = [region(f"r{n}", server.url, probe=SLOW) for n, server in enumerate(servers)]
        async with probing(*regions) as (prober, _):
            assert await prober.first_round(20)
    assert most == 3


async def test_a_clock_that_is_set_back_delays_nothing() -> None:
    """After a step of the system's clock every check is planned anew."""
    step = [0.0]
    probe = replace(SLOW, interval=10.0)
    async with serve(http()) as server:
        regions = [region("a", *(f"{server.url}/{number}" for number in range(30)), probe=probe)]
        async with probing(*regions, clock=lambda: time.time() + step[0]) as (prober, _):
            assert await prober.first_round(20)
            assert len(server.heads) == 30
            step[0] = -3600.0
            async with asyncio.timeout(PATIENCE):  # of thirty that are spread over 10 s
                await until(lambda: len(server.heads) > 33)


async def pauses(
    answer: Answer, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[float, bool, float | None]]:
    """What the first checks took, whether they failed, and how soon the next was to come; the first is answered at once. The next one came each time."""
    began: list[float] = []
    said: list[tuple[float, bool, float | None]] = []
    really = schedule.pause_after

    def noted(probe: Probe, took: float, *, failed: bool, suspect: bool) -> float | None:
        pause = really(probe, took, failed=failed, suspect=suspect)
        said.append((took, failed, pause))
        return pause

    async def noting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        began.append(time.monotonic())
        await (http() if len(began) == 1 else answer)(reader, writer, head)

    monkeypatch.setattr(schedule, "pause_after", noted)
    async with serve(noting) as server, probing(region("a", server.url, probe=probe)):
        await until(lambda: len(began) >= 3)
    return said


async def test_a_timeout_brings_the_next_check_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a check that ran into its timeout the next one comes sooner, by twice the time that the check took."""
    probe = replace(SLOW, interval=2.0, timeout=0.8)
    _, (took, failed, pause), *_ = await pauses(raw(b"", 60), probe, monkeypatch)
    assert (failed, took >= 0.8) == (True, True)
    assert pause is not None
    assert pause <= max(0.1, 2.0 - 2 * took)


async def test_a_check_that_outlasts_its_interval_is_followed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slow but good answers do not stretch the rhythm to every other interval."""

    async def slowly(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: bytes) -> None:
        await asyncio.sleep(2.1)
        writer.write(raw_http())

    probe = replace(SLOW, interval=2.0, timeout=60.0)
    _, (took, failed, pause), *_ = await pauses(slowly, probe, monkeypatch)
    assert (failed, took > 2.0) == (False, True)
    assert pause is not None
    assert pause < 0.1


def test_how_soon_the_next_check_comes() -> None:
    """After a failure that counts, the time from begin to begin and the time it took are an interval less jitter; else the rhythm says it."""
    probe = replace(SLOW, interval=2.0, timeout=0.8)
    pauses = [schedule.pause_after(probe, 0.8, failed=True, suspect=False) for _ in range(500)]
    assert all(pause is not None and 0.2 - 1e-9 <= pause <= 0.4 + 1e-9 for pause in pauses)
    assert schedule.pause_after(probe, 0.1, failed=False, suspect=False) is None
    assert schedule.pause_after(probe, 1.7, failed=False, suspect=True) is None
    at_once = schedule.pause_after(probe, 2.1, failed=False, suspect=False)
    assert at_once is not None
    assert 0 < at_once < 0.1
    assert schedule.pause_after(probe, 60.0, failed=True, suspect=False) == at_once
    hurried = schedule.pause_after(probe, 0.0, failed=True, suspect=True)
    assert hurried is not None
    assert at_once <= hurried < 1.8
    assert schedule.pause_after(replace(probe, interval=0.05), 0.0, failed=True, suspect=True) == 0.05


def test_jitter_parts_edges_and_makes_no_failure_known_later() -> None:
    """Checks follow each other at 90–100% of the interval, by what is drawn: neither in step nor ever after it."""
    probe = replace(SLOW, interval=10.0)
    now = datetime.now(UTC)
    pauses = [(schedule.rhythm(probe).get_next_fire_time(now, now) - now).total_seconds() for _ in range(500)]
    pauses += [schedule.pause_of(probe) for _ in range(500)]
    for half in (pauses[:500], pauses[500:]):
        assert 9.0 <= min(half) < 9.1
        assert 9.9 < max(half) <= 10.0
