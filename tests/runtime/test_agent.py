"""What an edge's agent makes of losing control."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from gtm.core.state import NO_PLAN, PLAN_KEPT, ClassPlan, Plan, State, kept_plan
from gtm.feed.wire import StateMessage
from gtm.runtime.agent import Agent
from gtm.settings import EdgeSettings

PLAN = Plan(1.0, {"class": ClassPlan({"de": 1.0})}, {"de": 3.0})


def test_the_last_plan_is_followed_for_a_while() -> None:
    """Without control an edge keeps the plan for as long as demand is likely to look the same, and no longer."""
    assert kept_plan(PLAN, 0.0) is PLAN
    assert kept_plan(PLAN, PLAN_KEPT) is PLAN
    assert kept_plan(PLAN, PLAN_KEPT + 1) is NO_PLAN


class _Edge:
    """An agent whose feed is played by hand."""

    def __init__(self, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("gtm.runtime.agent.time.monotonic", lambda: self.now)
        self.agent = Agent(EdgeSettings(data_dir, "http://127.0.0.1:1", "token", "edge"))
        self.agent._connected = True

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self.agent._holder.state.plan

    def told(self, message: StateMessage) -> None:
        """Control sends a state."""
        self.agent._take(message)
        self.agent._publish()


def test_a_control_that_has_just_started_takes_no_plan_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan stays until control has one again, but no longer than without control."""
    edge = _Edge(tmp_path, monkeypatch)
    edge.told(StateMessage(State(5, plan=PLAN)))
    edge.agent._lost()
    assert edge.plan is PLAN
    edge.agent._connected = True
    edge.now += 2.0
    edge.told(StateMessage(State(6), keep_plan=True))
    assert (edge.plan, edge.agent._holder.state.epoch) == (PLAN, 6)
    edge.agent._lost()  # once more, before it planned anything
    edge.agent._connected = True
    edge.now += PLAN_KEPT - 2.0
    edge.told(StateMessage(State(7), keep_plan=True))
    assert edge.plan is PLAN
    edge.now += 1.0
    edge.told(StateMessage(State(8), keep_plan=True))
    assert edge.plan is NO_PLAN
    edge.told(StateMessage(State(9, plan=PLAN)))
    assert edge.plan is PLAN


def test_the_plan_is_reported_when_control_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is reported is the plan in force, and only to a control that wants it."""
    edge = _Edge(tmp_path, monkeypatch)
    edge.told(StateMessage(State(5, plan=PLAN)))
    edge.agent._crew = SimpleNamespace(revision=1)  # type: ignore[assignment]
    assert edge.agent._next_report().plan is None
    edge.agent._wants_plan = True
    assert edge.agent._next_report().plan is PLAN
