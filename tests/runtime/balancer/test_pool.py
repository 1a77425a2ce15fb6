"""What a pool makes of its workers' lives: how they begin, speak, hang, die. The test speaks for them, on their end of the line."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gtm.balancer.metrics import Family
from gtm.core.balance.sharing import SlotUse
from gtm.core.balance.spill.room import Slots
from gtm.core.capacity.durations import Took
from gtm.core.quota.leases import LeaseHolder
from gtm.core.quota.names import QuotaText
from gtm.feed.reports import TimesTold
from gtm.runtime.balancer.carrier import Word
from gtm.runtime.balancer.reporting import Report
from gtm.runtime.balancer.workers import pool as pools
from gtm.runtime.balancer.workers.pool import (
    HANGS,
    SILENT,
    AskMessage,
    LoadMessage,
    ReadyMessage,
    ShownMessage,
    WordMessage,
    WorkerEnd,
    WorkerPool,
)
from gtm.runtime.process.lifeline import Lifeline
from gtm.settings import BalancerSettings

QUOTA = QuotaText("q")


def _retries(*counts: tuple[str, float]) -> list[Family]:
    """A worker's metrics: so many requests sent again, by labels."""
    return [Family("gtm_balancer_retries_total", "counter", "Requests sent again.", list(counts))]


class _Life:
    """One worker as it would be: a process that does nothing, and its end of the line."""

    def __init__(self, number: int, line: WorkerEnd, process: asyncio.subprocess.Process) -> None:
        self.number = number
        self.line = line
        self.process = process

    async def die(self) -> None:
        """By kill -9."""
        self.process.kill()
        await self.process.wait()
        await self.line.close()

    def says(self, count: int) -> LoadMessage:
        """It has counted so many."""
        return LoadMessage(Report(outstanding=1), _retries(("", count)))

    async def asked(self) -> int:
        """The number of the next question that it is asked."""
        while True:
            message = await self.line.get()
            assert message is not None
            if isinstance(message, AskMessage):
                return message.number


class _World:
    """A pool, and its workers in the order of their births."""

    def __init__(self, pool: WorkerPool, leases: LeaseHolder) -> None:
        self.pool = pool
        self.leases = leases
        self.lives: list[_Life] = []

    async def until(self, so: Callable[[], Any]) -> None:
        """Wait until something is so; the test's time limit is what ends it if it never is."""
        while not so():  # noqa: ASYNC110 - nobody says so
            await asyncio.sleep(0.002)

    async def born(self, count: int) -> list[_Life]:
        """All that were begun, once these are so many and the pool hears them."""
        await self.until(lambda: len(self.lives) >= count)
        await self.until(
            lambda: (
                {one["process"] for one in self.pool.processes()}
                == {life.process.pid for life in self.lives if life.process.returncode is None}
            )
        )
        first = sorted(self.lives[: self.leases.workers], key=lambda life: life.number)
        return [*first, *self.lives[self.leases.workers :]]

    async def serve(self, count: int) -> list[_Life]:
        """The same, and all of them ready."""
        lives = await self.born(count)
        for life in lives[-count:]:
            life.line.put([life.says(10), ReadyMessage(1)])
        await self.until(lambda: all(one["ready"] for one in self.pool.processes()))
        return lives


def _in_a_pool(
    monkeypatch: pytest.MonkeyPatch, test: Callable[[_World], Awaitable[None]], workers: int = 2
) -> None:
    monkeypatch.setattr("gtm.runtime.process.workers.pause_after", lambda _: 0.01)
    monkeypatch.setattr(pools, "LOOK_EVERY", 3600.0)  # tests look themselves
    settings = BalancerSettings(
        Path(), control_url="http://127.0.0.1:9", token="token", name="b", region="fra", workers=workers
    )

    async def run() -> None:
        leases = LeaseHolder("b", workers)
        world = _World(WorkerPool(settings, "b.1", list, leases), leases)

        async def spawn(_: Lifeline, arguments: object, handed: bytes, pass_fds: object) -> Any:
            told = msgspec.json.decode(handed)
            line = await WorkerEnd.over(socket.socket(fileno=os.dup(told["descriptor"])))
            process = await asyncio.create_subprocess_exec("sleep", "1000")
            world.lives.append(_Life(told["number"], line, process))
            return process

        monkeypatch.setattr(Lifeline, "spawn", spawn)
        listening = asyncio.ensure_future(world.pool.listen([]))
        try:
            await asyncio.wait_for(test(world), 30)
        finally:
            listening.cancel()
            await world.pool.close()  # it ends its processes
            for life in world.lives:
                await life.line.close()

    asyncio.run(run())


def _counted(world: _World) -> float:
    return float(world.pool.text().decode().split()[-1])


def _word(life: _Life, **more: Any) -> WordMessage:
    return WordMessage(Word({f"b.1/{life.number}": SlotUse(3, 1)}), **more)


def test_what_one_that_dies_has_used_and_pushed_stays_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even what nobody has asked for yet; and of those who live nothing is lost beside it."""

    async def test(world: _World) -> None:
        one, two = await world.serve(2)
        one.line.put([_word(one, used={QUOTA: 5}, denied={QUOTA: 1}, pushes={"chat": 7})])
        two.line.put([_word(two, used={QUOTA: 2}, pushes={"chat": 1})])
        await world.until(lambda: world.pool.pushes() == {"chat": 8})
        await one.die()
        await world.born(3)
        assert world.pool.pushes() == {"chat": 8}
        for spent in world.pool.spent():
            world.leases.count(spent.used, spent.denied)
        use = world.leases.use(1.0)
        assert (use.used, use.denied) == ({QUOTA: 7}, {QUOTA: 1})

    _in_a_pool(monkeypatch, test)


def test_one_that_hangs_is_neither_waited_for_nor_uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others show themselves, counters have what it said last, and what it had free is free no more."""

    async def test(world: _World) -> None:
        one, two = await world.serve(2)
        room = Slots(2.0, 4.0, 1.0)
        one.line.put([_word(one, room=room)])
        two.line.put([_word(two, room=room)])
        await world.until(lambda: world.pool.free_slots() == Slots(4.0, 8.0, 2.0))
        while world.pool.free_slots() != Slots(2.0, 8.0, 1.0):
            two.line.put([_word(two, room=room)])  # the other says nothing for a second
            await asyncio.sleep(0.05)
        monkeypatch.setattr(pools, "ASKED", 3600.0)
        for _ in range(SILENT):
            world.pool.look()
        two.line.put([two.says(20)])
        await world.until(lambda: _counted(world) == 30)
        asking = asyncio.ensure_future(world.pool.ask())
        number = await two.asked()
        two.line.put([ShownMessage(number, "", _retries(("", 21)), {})])
        assert [shown.metrics for shown in await asking] == [_retries(("", 21))]
        assert _counted(world) == 31
        assert [shown["hangs"] for shown in world.pool.processes()] == [True, False]

    _in_a_pool(monkeypatch, test)


def test_one_that_hangs_for_long_is_killed_and_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its streams stand still, and its clients would wait for ever. One that says anything now and then is left alone."""

    async def test(world: _World) -> None:
        one, two = await world.serve(2)
        for look in range(HANGS):
            if look == SILENT:
                two.line.put([two.says(20)])
                await world.until(lambda: _counted(world) == 30)
            world.pool.look()
        await world.until(lambda: one.process.returncode is not None)
        await one.line.close()
        *_, three = await world.born(3)
        assert (three.number, two.process.returncode) == (one.number, None)

    _in_a_pool(monkeypatch, test)


def test_one_that_has_not_begun_yet_is_left_to_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is short of processors starts many of them slowly."""

    async def test(world: _World) -> None:
        one, two = await world.born(2)
        for _ in range(2 * HANGS):
            world.pool.look()
        await world.serve(2)
        assert (one.process.returncode, two.process.returncode) == (None, None)

    _in_a_pool(monkeypatch, test)


def test_one_that_dies_while_it_is_asked_is_not_waited_for_and_counts_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither when it had answered before nor when it had not."""

    async def test(world: _World) -> None:
        monkeypatch.setattr(pools, "ASKED", 3600.0)
        one, two = await world.serve(2)
        asking = asyncio.ensure_future(world.pool.ask())
        one.line.put([ShownMessage(await one.asked(), "", _retries(("", 11)), {})])
        await two.asked()
        await world.until(lambda: _counted(world) == 21)
        await one.die()
        await two.die()
        assert await asking == ()
        assert _counted(world) == 21

    _in_a_pool(monkeypatch, test)


def test_one_that_hangs_up_and_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits for a disk holds up a process that carries nothing any more: another takes its place."""

    async def test(world: _World) -> None:
        monkeypatch.setattr("gtm.runtime.process.workers.PATIENCE", 0.01)
        one, _ = await world.serve(2)
        await one.line.close()
        *_, three = await world.born(3)
        assert three.number == one.number
        assert one.process.returncode is not None

    _in_a_pool(monkeypatch, test)


def test_what_requests_took_adds_up_and_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over workers, one that has died among them: what it said is not lost with it, and nobody is told of it again."""

    async def test(world: _World) -> None:
        one, two = await world.serve(2)
        times = TimesTold("chat", "m", ((3, 1),), ((5, 2),))
        one.line.put([LoadMessage(Report(outstanding=10), [], times=(times,))])
        for number in (20, 30):  # the pool is busy: the second one goes in the first one's place
            said = LoadMessage(Report(outstanding=number), [], times=(times,))
            before = two.line.unsent(LoadMessage)
            two.line.put([said if before is None else said.after(before)])
        assert two.line.unsent(ReadyMessage) is None
        await world.until(lambda: world.pool.report().get("outstanding") == 40)
        await one.die()
        await world.born(3)
        assert world.pool.times() == {("chat", "m"): Took({3: 3}, {5: 6})}
        assert world.pool.times() == {}

    _in_a_pool(monkeypatch, test)


def test_names_of_models_break_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients make them up, of any characters: metrics are shown, and a worker that dies with one is begun anew."""

    async def test(world: _World) -> None:
        one, _ = await world.serve(2)
        named = _retries(("", 10), ('{model="a\u2028b\x85c\rd"}', 4))
        one.line.put([LoadMessage(Report(), named)])
        await world.until(lambda: b"\xe2\x80\xa8" in world.pool.text())
        await one.die()
        await world.born(3)
        assert 'model="a\u2028b\x85c\rd"} 4\n' in world.pool.text().decode()

    _in_a_pool(monkeypatch, test)


def test_what_is_no_load_report_is_ignored(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What would be no number (JSON has no NaN) stops neither the pool nor the reports."""

    async def test(world: _World) -> None:
        one, _ = await world.serve(2)
        one.line.put([LoadMessage(Report(outstanding=2, service_time_ms=float("nan")), [])])
        await world.until(lambda: "ignored a message from worker" in caplog.text)
        assert world.pool.report().get("outstanding") == 2

    _in_a_pool(monkeypatch, test)


def test_an_end_waits_for_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was to be begun anew a while later is not begun, and nobody waits until then."""

    async def test(world: _World) -> None:
        one, two = await world.serve(2)
        monkeypatch.setattr("gtm.runtime.process.workers.pause_after", lambda _: 3600.0)
        await one.die()
        await world.until(lambda: len(world.pool.processes()) == 1)
        finishing = asyncio.ensure_future(world.pool.finish())
        await world.until(lambda: two.process.returncode is not None)
        await two.line.close()
        await finishing
        assert len(world.lives) == 2

    _in_a_pool(monkeypatch, test)


def test_a_start_that_is_broken_off_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the balancer ends while a worker is being begun."""

    async def run() -> None:
        settings = BalancerSettings(Path(), control_url="", token="", name="b", region="fra", workers=2)
        pool, begun = WorkerPool(settings, "b.1", list, LeaseHolder("b", 2)), asyncio.Event()

        async def spawn(*_: object, **__: object) -> None:
            begun.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(Lifeline, "spawn", spawn)
        made: list[socket.socket] = []
        pair = socket.socketpair

        def remembered() -> tuple[socket.socket, socket.socket]:
            made.extend(pair())
            return made[-2], made[-1]

        monkeypatch.setattr(socket, "socketpair", remembered)
        listening = asyncio.ensure_future(pool.listen([]))
        await begun.wait()
        await pool.close()
        listening.cancel()
        assert [one.fileno() for one in made] == [-1] * 4

    asyncio.run(asyncio.wait_for(run(), 20))
