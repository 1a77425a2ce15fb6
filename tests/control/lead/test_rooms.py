"""What balancers say of their slots, and what their silence says."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.control.errors import BadRequest, Conflict
from gtm.control.lead.rooms import BEAT, MISSED, MOST_LINES, MOST_OF_A_TOKEN, MOST_PARTS, SUSPECTED, Rooms
from gtm.control.live.present import Current, Present
from gtm.core.balance.spill.room import KNOWN_FOR, Slots
from gtm.core.model.regions import Endpoint
from gtm.core.model.services import Member, Service
from gtm.core.model.state import State
from gtm.core.policy.compile import compile_policy
from gtm.feed.wire import RoomMessage, RoomReport
from tests import worlds
from tests.effort import examples


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def rooms_at(clock: Clock, senders: int = 3) -> Rooms:
    """Nobody is on the line yet."""
    return Rooms(Current(Present(State())), lambda: senders, clock)


def report(sequence: int, free: float, *, source: str = "t/fra-1", started: float = 1.0) -> RoomReport:
    """So many of ten slots are free."""
    return RoomReport(source, started, sequence, 0.0, Slots(free, 10.0))


def test_what_is_said_is_told_with_its_age() -> None:
    """The newest of each balancer, until it is too old to count."""
    clock = Clock()
    rooms = rooms_at(clock)
    nothing = rooms.message()
    assert nothing == RoomMessage({}, 3, (), 100.0, nothing.sender)
    rooms.opened("fra", "t/fra-1")
    rooms.heard("fra", report(1, 4))
    rooms.heard("fra", report(2, 3))
    rooms.heard("fra", report(1, 9))  # late: changes nothing
    rooms.heard("fra", report(7, 1, source="t/fra-2"))
    clock.now += 0.5
    found = rooms.message().rooms["fra"]
    assert [(one.source, one.whole.free, one.age) for one in found] == [
        ("t/fra-1", 3, 0.5),
        ("t/fra-2", 1, 0.5),
    ]
    clock.now += KNOWN_FOR
    assert rooms.message().rooms == {}


def test_what_is_too_old_is_taken_back() -> None:
    """Whoever begins to follow would take it for new."""

    async def main() -> None:
        clock, current = Clock(), Current(Present(State()))
        rooms = Rooms(current, lambda: 1, clock)
        watching = asyncio.create_task(rooms.run())
        rooms.heard("fra", report(1, 4))
        while "fra" not in current.now.rooms.rooms:
            await current.changed.wait()
        clock.now += KNOWN_FOR + 0.1
        while "fra" in current.now.rooms.rooms:
            await current.changed.wait()
        watching.cancel()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_an_age_that_is_claimed_counts_for_nothing() -> None:
    """When control heard it counts: no clock but its own."""
    clock = Clock()
    rooms = rooms_at(clock)
    rooms.heard("fra", replace(report(1, 4), age=-1e9))
    assert rooms.message().rooms["fra"][0].age == 0.0


@pytest.mark.parametrize(("said", "suspects"), [(True, ()), (False, ("fra",))])
def test_the_end_of_a_line(said: bool, suspects: tuple[str, ...]) -> None:
    """One that said goodbye is no suspect; one that broke off is, for a moment."""
    clock = Clock()
    rooms = rooms_at(clock)
    rooms.opened("fra", "t/fra-1")
    rooms.closed("fra", "t/fra-1", said=said)
    assert rooms.message().suspects == suspects
    clock.now += SUSPECTED + 0.01
    rooms.look()
    assert rooms.message().suspects == ()


def test_a_line_that_comes_back_ends_the_suspicion() -> None:
    """It was a network's hiccup."""
    rooms = rooms_at(Clock())
    rooms.opened("fra", "t/fra-1")
    rooms.closed("fra", "t/fra-1", said=False)
    rooms.opened("fra", "t/fra-1")
    assert rooms.message().suspects == ()


def test_lines_are_bounded() -> None:
    """Of one region; another has room."""
    rooms = rooms_at(Clock())
    for number in range(MOST_LINES):
        rooms.opened("fra", f"t{number // MOST_OF_A_TOKEN}/{number}")
    with pytest.raises(Conflict, match="as many as are heard"):
        rooms.opened("fra", "other/one-more")
    rooms.opened("iad", "other/one-more")


def test_a_token_crowds_out_no_other() -> None:
    """Its lines are bounded, whatever it calls them; when one ends it may open another."""
    rooms = rooms_at(Clock())
    for number in range(MOST_OF_A_TOKEN):
        rooms.opened("fra", f"t/{number % 3}")
    with pytest.raises(Conflict, match="token of their own"):
        rooms.opened("fra", "t/one-more")
    rooms.opened("fra", "other/1")
    rooms.closed("fra", "t/0", said=True)
    rooms.opened("fra", "t/one-more")


def test_what_was_said_on_lines_that_ended_is_bounded() -> None:
    """A line that is opened for one report leaves it behind for two seconds: of a token no more are told than it may have lines."""
    clock = Clock()
    rooms = rooms_at(clock)
    rooms.heard("fra", report(1, 1, source="other/1"))
    for number in range(10 * MOST_OF_A_TOKEN):
        clock.now += 0.001
        rooms.opened("fra", f"t/{number}")
        rooms.heard("fra", report(1, 1, source=f"t/{number}"))
        rooms.closed("fra", f"t/{number}", said=True)
    told = [one.source for one in rooms.message().rooms["fra"]]
    assert len(told) == MOST_OF_A_TOKEN + 1
    assert {"other/1", f"t/{number}"} <= set(told)


def test_a_token_is_read_as_often_as_its_balancers_speak() -> None:
    """Ten times a second each, with as much to spare, over however many lines; what is left out is counted."""
    clock = Clock()
    rooms = rooms_at(clock)
    read = 0
    for step in range(10_000):
        clock.now += 0.0001
        source = f"t/{step % 50}"
        rooms.opened("fra", source)
        read += rooms.reads("fra", source)
        rooms.closed("fra", source, said=True)
    assert read == pytest.approx(2 * 20 * MOST_OF_A_TOKEN, abs=1)  # what was saved, and a second's
    assert rooms.dropped["room_reports"] == 10_000 - read
    assert rooms.reads("fra", "other/1")
    clock.now += 2.0
    for _ in range(100):
        clock.now += 0.1
        assert all(rooms.reads("fra", f"t/{number}") for number in range(MOST_OF_A_TOKEN))


def test_parts_are_those_that_the_policy_names() -> None:
    """Services, and models of services and regions; what else somebody says is told to nobody, and counted. Of those named too many are refused."""
    models = tuple(f"m{number}" for number in range(80))
    region = replace(worlds.region("fra", Endpoint("http://fra.test")), models=models)
    compiled = compile_policy(
        worlds.policy(region, Service("chat", members=(Member("fra"),), model="m1")), ()
    )
    rooms = Rooms(Current(Present(State(), compiled=compiled)), lambda: 1, Clock())
    slots = Slots(1, 2)
    rooms.heard("fra", replace(report(1, 1), parts={"chat": slots, "m1": slots, "web": slots, "": slots}))
    assert set(rooms.message().rooms["fra"][0].parts) == {"chat", "m1"}
    assert rooms.dropped["room_parts"] == 2
    many = {f"m{number}": slots for number in range(MOST_PARTS + 1)}
    with pytest.raises(BadRequest, match="65 services and models"):
        rooms.heard("fra", replace(report(2, 1), parts=many))


_Event = st.tuples(
    st.sampled_from(("wait", "beat", "report", "break", "bye", "open", "look")), st.integers(0, 12)
)


@settings(max_examples=examples(1000), deadline=None)
@given(st.lists(_Event, max_size=40))
def test_silence_is_told_from_life(events: list[tuple[str, int]]) -> None:
    """By the page alone: who is a suspect.

    Whoever's line broke off, or was silent for more than three beats, less than a second ago, and who has opened none since. One
    line, looked at each 0.05 s.
    """
    clock = Clock()
    rooms = rooms_at(clock)
    open_, heard, silent, until, sequence = False, 0.0, False, 0.0, 0
    for what, number in events:
        if what == "wait":
            for _ in range(number):
                clock.now += 0.05
                rooms.look()
                if open_ and not silent and clock.now - heard > (MISSED + 0.5) * BEAT:
                    silent, until = True, clock.now + SUSPECTED
        elif what == "open":
            if not open_:
                open_, heard, silent, until = True, clock.now, False, 0.0
                rooms.opened("fra", "x")
        elif what in ("beat", "report") and open_:
            heard, silent = clock.now, False
            rooms.beat("fra", "x")
            if what == "report":
                sequence += 1
                rooms.heard("fra", report(sequence, float(number % 10), source="x"))
        elif what in ("break", "bye") and open_:
            open_ = False
            rooms.closed("fra", "x", said=what == "bye")
            if what == "break":
                until = clock.now + SUSPECTED
        rooms.look()
        assert rooms.message().suspects == (("fra",) if clock.now < until else ())


def test_followers_are_told() -> None:
    """What changes is told within a moment; cancelling ends it at once, whatever goes on."""

    async def main() -> None:
        current = Current(Present(State()))
        rooms = Rooms(current, lambda: 2, asyncio.get_running_loop().time)
        watching = asyncio.create_task(rooms.run())
        rooms.opened("fra", "t/fra-1")
        rooms.heard("fra", report(1, 4))
        while "fra" not in current.now.rooms.rooms:
            await current.changed.wait()
        assert current.now.rooms.senders == 2
        rooms.closed("fra", "t/fra-1", said=False)
        while not current.now.rooms.suspects:
            await current.changed.wait()
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching

    asyncio.run(asyncio.wait_for(main(), 30))
