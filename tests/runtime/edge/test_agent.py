"""What an edge's agent makes of losing control."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from gtm.core.decision.timekeeping import Kept
from gtm.core.model.access import Access
from gtm.core.model.state import NO_PLAN, PLAN_KEPT, ClassPlan, Plan, State, kept_plan
from gtm.feed import clockfile
from gtm.feed.wire import AccessMessage, HeartbeatMessage, StateMessage
from gtm.runtime.edge.agent.agent import Agent
from gtm.runtime.edge.line import PulseMessage, ToWorker
from gtm.runtime.following.told import TimesMessage
from gtm.runtime.process.clocks import boot_id, boot_time
from gtm.settings import EdgeSettings
from tests.patience import PATIENCE

PLAN = Plan(1.0, {"class": ClassPlan({"de": 1.0})}, {"de": 3.0})


def test_the_last_plan_is_followed_for_a_while() -> None:
    """Without control an edge keeps the plan for as long as demand is likely to look the same, and no longer."""
    assert kept_plan(PLAN, 0.0) is PLAN
    assert kept_plan(PLAN, PLAN_KEPT) is PLAN
    assert kept_plan(PLAN, PLAN_KEPT + 1) is NO_PLAN


def agent(data_dir: Path, monotonic: Callable[[], float] = time.monotonic) -> Agent:
    """An edge that reaches nobody."""
    settings = EdgeSettings(data_dir, control_url="http://127.0.0.1:1", token="token", name="edge")
    return Agent(settings, monotonic)


class _Edge:
    """An agent whose feed is played by hand."""

    def __init__(self, data_dir: Path) -> None:
        self.now = 1000.0
        self.agent = agent(data_dir, lambda: self.now)
        self.agent.found()

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self.agent.current.state.plan

    async def told(self, message: StateMessage) -> None:
        """Control sends a state."""
        await self.agent.receive(message)


@pytest.mark.anyio
async def test_a_control_that_has_just_started_takes_no_plan_away(tmp_path: Path) -> None:
    """The plan stays until control has one again, but no longer than without control."""
    edge = _Edge(tmp_path)
    await edge.told(StateMessage(State(5, plan=PLAN)))
    edge.agent.lost()
    assert edge.plan is PLAN
    edge.agent.found()
    edge.now += 2.0
    await edge.told(StateMessage(State(6), keep_plan=True))
    assert (edge.plan, edge.agent.current.state.epoch) == (PLAN, 6)
    edge.agent.lost()  # once more, before it planned anything
    edge.agent.found()
    edge.now += PLAN_KEPT - 2.0
    await edge.told(StateMessage(State(7), keep_plan=True))
    assert edge.plan is PLAN
    edge.now += 1.0
    await edge.told(StateMessage(State(8), keep_plan=True))
    assert edge.plan is NO_PLAN
    await edge.told(StateMessage(State(9, plan=PLAN)))
    assert edge.plan is PLAN


@pytest.mark.anyio
async def test_the_plan_is_reported_when_control_asks(tmp_path: Path) -> None:
    """What is reported is the plan in force, and only to a control that wants it."""
    edge = _Edge(tmp_path)
    await edge.told(StateMessage(State(5, plan=PLAN)))
    assert edge.agent.report(1).plan is None
    edge.agent.wants_plan = True
    assert edge.agent.report(1).plan is PLAN


def _ahead(data_dir: Path, seconds: float) -> float:
    """What an edge before this one kept: its clock, or control's, was so far ahead."""
    latest = time.time() + seconds
    clockfile.save(data_dir / clockfile.FILE, Kept(boot_id(), boot_time(), latest))
    return latest


@pytest.mark.anyio
async def test_times_on_disk_count_before_the_first_view(tmp_path: Path) -> None:
    """Workers that start are told of them first."""
    latest = _ahead(tmp_path, 5_000)
    edge = agent(tmp_path)
    await edge.load()
    assert edge.current.window.latest >= latest
    first = edge.everything()[0]
    assert isinstance(first, TimesMessage)
    assert first.times.window(boot_time()).latest >= latest


@pytest.mark.anyio
async def test_a_step_of_controls_clock_is_kept_and_told_before_what_follows(tmp_path: Path) -> None:
    """A heartbeat that is ahead is on disk and with the workers at once, not with the next second."""
    edge = agent(tmp_path)
    await edge.load()
    sent: list[ToWorker] = []
    edge.workers = SimpleNamespace(put=sent.extend)  # type: ignore[assignment]
    ahead = time.time() + 5_000
    await edge.receive(HeartbeatMessage(ahead))
    assert clockfile.load(tmp_path / clockfile.FILE).latest >= ahead
    (told,) = sent
    assert isinstance(told, TimesMessage)
    assert told.times.window(boot_time()).latest >= ahead


@pytest.mark.anyio
async def test_a_successor_settles_before_it_waits_for_a_disk(tmp_path: Path) -> None:
    """Workers may go on alone from the moment their predecessors end; then what the predecessor saw last counts."""
    edge = agent(tmp_path)
    pulses: list[tuple[PulseMessage, float]] = []
    written: list[float] = []
    ready = asyncio.Event()
    ready.set()

    async def nothing(*_: object) -> None:
        return

    edge.workers = SimpleNamespace(  # type: ignore[assignment]
        ready=ready, revision=1, beat=lambda: pulses.append((edge.pulse(), edge.current.window.latest))
    )
    edge.owned = SimpleNamespace(  # type: ignore[assignment]
        inherited=True,
        replaced=False,
        settle=lambda: written.append(_ahead(tmp_path, 5_000)),
        relieved=nothing,
        leave_to_successor=nothing,
    )
    assert not edge.pulse().alone
    await edge.settle()
    ((pulse, known),) = pulses
    assert pulse.alone
    assert known < written[0] <= edge.current.window.latest
    edge.stop()
    assert not edge.pulse().alone


@pytest.mark.anyio
async def test_names_that_do_not_resolve_hold_no_times_up(tmp_path: Path) -> None:
    """Probes resolve on threads that all share: while these are busy, times are kept and told, and so is what control says."""
    edge = agent(tmp_path)
    go_on = threading.Event()
    busy = [asyncio.ensure_future(asyncio.to_thread(go_on.wait, 20)) for _ in range(64)]
    try:
        await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE):
            await edge.receive(HeartbeatMessage(time.time() + 5_000))
            await edge.receive(AccessMessage(Access()))
        assert clockfile.load(tmp_path / clockfile.FILE).latest >= time.time() + 4_900
        assert not busy[-1].done()
    finally:
        go_on.set()
        await asyncio.gather(*busy)
