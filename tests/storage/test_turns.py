"""Who has a turn, and who is told that none comes."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.storage.turns import CALLER, Busy, TurnLimits, Turns, own_work

pytestmark = pytest.mark.anyio

ONE = TurnLimits(1, 1)


async def ready() -> None:
    """Let everything that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


class Work:
    """Callers that take turns, and end them when told to."""

    def __init__(self, bounds: TurnLimits) -> None:
        self.turns = Turns(bounds, "these wait")
        self.order: list[str] = []
        self.running: list[asyncio.Event] = []
        self.refused: Counter[str] = Counter()
        self.tasks: list[asyncio.Task[None]] = []

    async def ask(self, *callers: str) -> None:
        """Each asks for a turn."""
        for caller in callers:
            self.tasks.append(asyncio.create_task(self.one(caller)))
            await asyncio.sleep(0)
        await ready()

    async def end(self) -> None:
        """The turn that has lasted longest ends."""
        self.running[0].set()
        await ready()

    async def finish(self) -> None:
        """All end, and all that wait have had their turn."""
        while self.running:
            await self.end()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def one(self, caller: str) -> None:
        """A caller has a turn, or is told that none comes."""
        over = asyncio.Event()
        try:
            async with self.turns.turn(caller):
                self.order.append(caller)
                self.running.append(over)
                try:
                    await over.wait()
                finally:
                    self.running.remove(over)
        except Busy as busy:
            self.refused[f"{caller}{' by itself' if busy.own else ''}"] += 1


async def test_callers_take_turns() -> None:
    """Who asks for one thing waits for one of each other's, however many these have asked for before."""
    work = Work(ONE)
    await work.ask(*["crowd"] * 50, "one", "two")
    await work.finish()
    assert work.order[:5] == ["crowd", "crowd", "one", "two", "crowd"]
    assert len(work.order) == 52


async def test_nobody_has_all_places() -> None:
    """Of several places one caller leaves some to others, and takes no more when they are free."""
    work = Work(TurnLimits(4, 2))
    await work.ask(*["crowd"] * 10)
    assert work.order == ["crowd"] * 2
    await work.ask("one", "two")
    assert work.order[2:] == ["one", "two"]
    await work.finish()


async def test_too_many_of_one_callers_are_told_so() -> None:
    """A caller may have so many wait; another's are none of its."""
    work = Work(TurnLimits(1, 1, waiting_each=3))
    await work.ask(*["crowd"] * 10, "one")
    assert work.refused == {"crowd by itself": 6}
    await work.finish()
    assert sorted(work.order) == ["crowd"] * 4 + ["one"]


async def test_the_longest_line_makes_room() -> None:
    """Where nobody more may wait, a newcomer waits in place of the newest of who has most."""
    work = Work(TurnLimits(1, 1, waiting=4))
    await work.ask(*["crowd"] * 5, "one", "two", "three", "four", "five")
    assert work.refused == {"crowd by itself": 3, "four": 1, "five": 1}
    assert work.turns.waiting == 4
    await work.finish()
    assert work.order == ["crowd", "crowd", "one", "two", "three"]


async def test_patience_ends() -> None:
    """Who has waited for too long is told that others were before it, and leaves nothing behind."""
    work = Work(TurnLimits(1, 1, patience=0.05))
    await work.ask("one", "two")
    while not work.refused:  # noqa: ASYNC110 - by a timer of its own
        await asyncio.sleep(0.01)
    assert work.refused == {"two": 1}
    assert work.turns.waiting == 0
    await work.finish()
    await work.ask("two")
    await work.finish()
    assert work.order == ["one", "two"]


@given(
    steps=st.lists(st.tuples(st.sampled_from(["ask", "end", "cancel"]), st.integers(0, 5)), max_size=40),
    bounds=st.builds(
        TurnLimits, st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 6), st.just(600.0)
    ),
)
def test_no_turn_is_lost(steps: list[tuple[str, int]], bounds: TurnLimits) -> None:
    """Whatever happens: no bound is passed, nobody waits beside a place that it may have, and at the end all are free."""

    async def run() -> None:
        work = Work(bounds)
        for step, number in steps:
            if step == "ask":
                await work.ask("abc"[number % 3])
            elif step == "end" and work.running:
                await work.end()
            elif step == "cancel" and number < len(work.tasks):
                work.tasks[number].cancel()
                await ready()
            held = dict(work.turns._held)  # noqa: SLF001 - how many turns each caller has
            assert sum(held.values()) <= bounds.places
            assert max(held.values(), default=0) <= bounds.each
            assert work.turns.waiting <= bounds.waiting
            waiting = work.turns._lines  # noqa: SLF001
            assert not any(map(work.turns._is_free_for, waiting)), "somebody waits who may have a turn"  # noqa: SLF001
        for task in reversed(work.tasks) if len(steps) % 2 else work.tasks:
            task.cancel()
        await asyncio.gather(*work.tasks, return_exceptions=True)
        assert not work.turns._held  # noqa: SLF001
        assert work.turns.waiting == 0

    asyncio.run(run())


async def test_who_is_sent_away_and_gives_up_at_once() -> None:
    """One whose place another gets, and who gives up in the same moment, leaves nothing behind."""
    work = Work(TurnLimits(1, 1, waiting=2))
    await work.ask(*["crowd"] * 3)
    newcomer = asyncio.create_task(work.one("one"))
    asyncio.get_running_loop().call_soon(work.tasks[-1].cancel)
    await ready()
    assert work.turns.waiting == 2
    work.tasks.append(newcomer)
    await work.finish()
    assert work.order == ["crowd", "crowd", "one"]


async def test_own_work_is_nobodys() -> None:
    """What is done within counts for no caller, and what is done after does again."""
    CALLER.set("one")
    with own_work():
        assert CALLER.get() == ""
    assert CALLER.get() == "one"
