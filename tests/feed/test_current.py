"""A process's View: replaced whole, at the right moments, and never by something bad."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gtm.core.decision.router import Router
from gtm.core.model.access import Access, Role, TokenGrant
from gtm.core.model.policy import Policy
from gtm.core.model.problems import PolicyError
from gtm.core.model.state import ClassPlan, Plan, State
from gtm.core.signing.keys import NO_KEYS, Keys
from gtm.feed.current import CurrentView
from gtm.feed.wire import (
    AccessMessage,
    FeedError,
    HeartbeatMessage,
    KeysMessage,
    SnapshotMessage,
    StateMessage,
)
from tests import worlds
from tests.core.strategies import SHIPPED

BEGIN, END = (datetime.fromtimestamp(at, UTC) for at in (100, 200))
RULE = worlds.rule("eu", "EU", effective_from=BEGIN, effective_until=END)
POLICY = worlds.policy(worlds.region("de"), worlds.service("chat", "de"), RULE)
SNAPSHOT = SnapshotMessage.of(7, 1.5, POLICY, SHIPPED)
STATE = StateMessage(State(3, health=worlds.health(POLICY.regions)))


class Clock:
    """A clock that shows what it is told to."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def _router(current: CurrentView) -> Router:
    assert current.router is not None
    return current.router


def test_nothing_is_answered_before_a_snapshot() -> None:
    """A state alone makes no View; it is used as soon as the snapshot is there, in either order."""
    current = CurrentView(Clock())
    current.tick()
    current.rebuild()
    current.apply(STATE)
    assert current.router is None
    current.apply(SNAPSHOT)
    assert (_router(current).view.snapshot.revision, _router(current).view.state.epoch) == (7, 3)
    assert _router(current).view.up == 1
    current.apply(StateMessage(State(4)))
    assert (_router(current).view.state.epoch, _router(current).view.up) == (4, 0)


def test_a_state_may_leave_the_plan_as_it_is() -> None:
    """From a control that knows no plan yet, health is taken and the plan stays."""
    current = CurrentView(Clock())
    plan = Plan(1.0, {"class": ClassPlan({"de": 1.0})})
    current.apply(SNAPSHOT)
    current.apply(StateMessage(replace(STATE.state, plan=plan)))
    current.apply(StateMessage(State(4), keep_plan=True))
    assert (_router(current).view.state.plan, _router(current).view.up) == (plan, 0)


def test_changes_from_two_threads_do_not_undo_each_other() -> None:
    """A snapshot that arrives while another thread rebuilds for the time of day is in force afterwards."""
    building, arrived = threading.Event(), threading.Event()

    def swapped(router: Router) -> None:
        if router.view.snapshot.revision == 7 and threading.current_thread() is ticking:
            building.set()
            arrived.wait(0.5)

    clock = Clock()
    current = CurrentView(clock, swapped)
    ticking = threading.Thread(target=current.tick)
    current.apply(SNAPSHOT)
    clock.now = 150.0
    ticking.start()
    assert building.wait(10)
    current.apply(SnapshotMessage.of(8, 2.0, POLICY, SHIPPED))
    arrived.set()
    ticking.join()
    assert _router(current).view.snapshot.revision == 8
    assert current.snapshot is _router(current).view.snapshot


def test_a_snapshot_says_how_late_it_is_at_least() -> None:
    """An edge that starts with its clock behind applies the rules in force when its policy was published."""
    current = CurrentView(Clock(50.0))
    current.apply(SnapshotMessage.of(7, 60.0, POLICY, SHIPPED))
    assert not _router(current).view.rules["chat"]
    current.apply(SnapshotMessage.of(8, 150.0, POLICY, SHIPPED))
    assert [rule.rule.name for rule in _router(current).view.rules["chat"]] == ["eu"]


def test_access_and_heartbeats_leave_the_view() -> None:
    """A change of tokens is taken in beside the View; a heartbeat changes nothing."""
    current = CurrentView(Clock())
    current.apply(SNAPSHOT)
    before = current.router
    access = Access((TokenGrant("aa", Role.VIEWER),))
    current.apply(AccessMessage(access))
    current.apply(HeartbeatMessage(1.0))
    assert current.access == access
    assert current.router is before


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (replace(SNAPSHOT, revision=8, sha256="0" * 64), FeedError),
        (replace(SNAPSHOT, revision=8, policy=Policy()), FeedError),
        (SnapshotMessage.of(8, 2.5, replace(POLICY, regions=()), SHIPPED), PolicyError),
    ],
)
def test_a_bad_snapshot_keeps_the_view(bad: SnapshotMessage, error: type[Exception]) -> None:
    """A damaged snapshot, or one that does not compile, leaves everything as it was, and later states go on."""
    current = CurrentView(Clock())
    current.apply(SNAPSHOT)
    before, snapshot = current.router, current.snapshot
    with pytest.raises(error):
        current.apply(bad)
    assert current.router is before
    assert current.snapshot is snapshot
    current.apply(STATE)
    assert (_router(current).view.snapshot.revision, _router(current).view.state.epoch) == (7, 3)


def test_a_view_that_cannot_be_prepared_is_not_taken() -> None:
    """What is prepared for a View is ready before it is current; if that fails nothing has changed."""
    seen: list[tuple[Router, Router | None]] = []

    def prepare(router: Router) -> None:
        if router.view.snapshot.revision == 8:
            raise ValueError("cannot prepare")
        seen.append((router, current.router))

    current = CurrentView(Clock(), prepare)
    current.apply(SNAPSHOT)
    assert seen == [(current.router, None)]
    with pytest.raises(ValueError, match="cannot prepare"):
        current.apply(SnapshotMessage.of(8, 2.5, POLICY, SHIPPED))
    assert current.snapshot is _router(current).view.snapshot
    current.apply(STATE)
    assert _router(current).view.snapshot.revision == 7


def test_rules_come_into_and_out_of_force_by_the_clock() -> None:
    """A tick replaces the View at the boundaries of rules, at beginnings a second before; and where TTLs get shorter."""
    clock = Clock(50.0)
    current = CurrentView(clock)
    current.apply(SNAPSHOT)
    binding = []
    swaps = [current.router]
    for clock.now in (60.0, 98.9, 99.0, 150.0, 200.0, 300.0):
        current.tick()
        binding.append(len(_router(current).view.rules["chat"]))
        if current.router is not swaps[-1]:
            swaps.append(current.router)
    assert binding == [0, 0, 1, 1, 0, 0]
    ttls = [swap.view.ttl_of(swap.view.snapshot.services["chat"]) for swap in swaps if swap is not None]
    assert ttls == [30, 0, 30, 30]


def test_a_clock_that_steps_back_lifts_no_rule() -> None:
    """A rule in force stays so when the clock goes back to before it, and comes back if it had ended."""
    clock = Clock(150.0)
    current = CurrentView(clock)
    current.apply(SNAPSHOT)
    clock.now = 20.0
    current.tick()
    assert len(_router(current).view.rules["chat"]) == 1
    current.apply(STATE)
    assert len(_router(current).view.rules["chat"]) == 1
    clock.now = 250.0
    current.tick()
    assert not _router(current).view.rules["chat"]
    clock.now = 30.0
    current.tick()
    assert len(_router(current).view.rules["chat"]) == 1


def test_keys_are_there_when_answers_are_prepared_with_them() -> None:
    """New keys make a new Router, prepared with them; keys that it cannot be prepared with are not kept."""
    seen: list[int] = []

    def swapped(_: Router) -> None:
        if current.keys.version == 2:
            raise ValueError("unfit keys")
        seen.append(current.keys.version)

    current = CurrentView(Clock(), swapped)
    current.apply(KeysMessage(Keys(1)))
    assert (current.router, seen) == (None, [])
    current.apply(SNAPSHOT)
    with pytest.raises(ValueError, match="unfit"):
        current.apply(KeysMessage(Keys(2)))
    assert current.keys == Keys(1)
    current.apply(KeysMessage(NO_KEYS))
    assert seen == [1, 0]
