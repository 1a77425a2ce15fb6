"""How full regions are run."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.capacity.supply import Supply
from gtm.core.model.services import OnOverload, Priority
from gtm.core.model.state import NO_PLAN
from gtm.core.plan.congestion import LEVELS, Tick, marginal_wait_ms, solve_tick
from gtm.core.plan.problem import ClassDemand, PlanProblem
from tests.core.plan.violations import violations

SECONDS = 2.0


def _problem(
    rate: float, slots: float, away_ms: float, on_overload: OnOverload = OnOverload.SHED
) -> PlanProblem:
    """Demand at home, with another region of ten times the size some way off."""
    supply = {
        name: Supply(slots=size, service_time_s={"chat": SECONDS})
        for name, size in (("home", slots), ("away", 10 * slots))
    }
    demand = ClassDemand(
        "class",
        "chat",
        Priority.REAL_TIME,
        ("home", "away"),
        (10.0, 10.0 + away_ms),
        rate,
        {"": rate},
        on_overload,
    )
    return PlanProblem((demand,), supply)


def _settled(problem: PlanProblem, ticks: int = 30) -> Tick:
    tick = solve_tick(problem, NO_PLAN, {})
    for _ in range(ticks):
        tick = solve_tick(problem, NO_PLAN, tick.fill)
    return tick


def _used(tick: Tick, slots: float) -> float:
    return tick.solution.flow["class"]["home"] * SECONDS / slots


def test_a_region_spills_when_waiting_costs_more() -> None:
    """Near another region a region is run less full than far from any, and a large one fuller than a small one."""
    near, far = (_used(_settled(_problem(200.0, 100.0, ms)), 100.0) for ms in (5.0, 300.0))
    assert LEVELS[0] <= near < far <= 1
    small, large = (_used(_settled(_problem(2 * slots, slots, 50.0)), slots) for slots in (20.0, 2_000.0))
    assert small < large


def test_the_level_balances_waiting_and_distance() -> None:
    """At the level where it settles, a fuller region would cost more in waiting than the way to the next one."""
    slots, away = 100.0, 40.0
    level = _used(_settled(_problem(200.0, slots, away)), slots)
    assert marginal_wait_ms(slots, SECONDS, level) >= away - 1e-6
    below = max(one for one in LEVELS if one < level - 1e-9)
    assert marginal_wait_ms(slots, SECONDS, below) < away


def test_nothing_is_refused_while_there_are_slots() -> None:
    """When demand fits only in full regions, they are filled at once, whatever waiting costs."""
    for rate, shed in ((540.0, 0.0), (560.0, 10.0)):
        tick = solve_tick(_problem(rate, 100.0, 50.0), NO_PLAN, {"home": 0, "away": 0})
        assert sum(tick.solution.shed.values()) == pytest.approx(shed, abs=1e-3)
    queued = solve_tick(_problem(560.0, 100.0, 50.0, OnOverload.QUEUE), NO_PLAN, {})
    assert queued.solution.unplaced == pytest.approx(10.0, abs=1e-3)


def test_regions_rise_together() -> None:
    """Demand that exceeds the levels fills all regions a little further, none to its last slot while there is room."""
    tick = solve_tick(_problem(480.0, 100.0, 50.0), NO_PLAN, {"home": 8, "away": 0})
    flow = tick.solution.flow["class"]
    used = {
        name: rate * SECONDS / slots for (name, rate), slots in zip(flow.items(), (100, 1_000), strict=True)
    }
    assert sum(flow.values()) == pytest.approx(480.0)
    assert max(used.values()) == pytest.approx(0.92, abs=0.03)
    assert tick.solution.binding == ()


def test_a_region_at_its_level_is_not_exhausted() -> None:
    """Only a region that is planned to its last slot is said to be exhausted."""
    assert _settled(_problem(60.0, 100.0, 20.0)).solution.binding == ()
    assert "away" in _settled(_problem(600.0, 100.0, 20.0)).solution.binding


def test_a_region_with_room_comes_down_again() -> None:
    """After a rush the levels fall back step by step, and stay put once they have."""
    tick = _settled(_problem(540.0, 100.0, 50.0))
    assert min(tick.fill.values()) >= len(LEVELS) - 2
    quiet = _problem(10.0, 100.0, 50.0)
    for _ in range(20):
        tick = solve_tick(quiet, NO_PLAN, tick.fill)
    assert tick.solution.flow["class"] == {"home": pytest.approx(10.0)}
    assert solve_tick(quiet, NO_PLAN, tick.fill).fill == tick.fill


def test_regions_without_slots_are_left_alone() -> None:
    """Where only rates bound a region, or nothing does, or it is down, there is no level to set."""
    supply = {"home": Supply(rate=10.0), "away": Supply(), "down": Supply(slots=0.0)}
    demand = ClassDemand(
        "class", "chat", Priority.REAL_TIME, ("home", "away", "down"), (1.0, 2.0, 3.0), 15.0, {"": 15.0}
    )
    tick = _settled(PlanProblem((demand,), supply), 3)
    assert tick.solution.flow["class"] == {"home": pytest.approx(10.0), "away": pytest.approx(5.0)}


@given(st.floats(1, 5_000), st.floats(0.01, 100), st.floats(0.05, 0.99), st.floats(1e-3, 0.5))
def test_waiting_grows_without_bound(slots: float, seconds: float, utilisation: float, more: float) -> None:
    """One more request costs more the fuller a region is, and at the last slot more than anything."""
    fuller = min(utilisation + more, 0.999)
    here, there = (marginal_wait_ms(slots, seconds, level) for level in (utilisation, fuller))
    assert 0 <= here <= there < inf
    assert marginal_wait_ms(slots, seconds, 1.0) == inf
    assert marginal_wait_ms(slots, seconds, 0.0) == 0
    assert marginal_wait_ms(0.0, seconds, utilisation) == 0


@pytest.mark.parametrize("slots", [1, 4, 40, 400])
@pytest.mark.parametrize("utilisation", [0.6, 0.8, 0.9, 0.95])
def test_the_formula_is_the_derivative_it_says(slots: int, utilisation: float) -> None:
    """The marginal wait equals the growth of (rate × mean wait) by the approximation it is made from."""

    def waiting(level: float) -> float:
        power = (2 * (slots + 1)) ** 0.5
        return level**power / (1 - level)

    step = 1e-6
    rate_step = step * slots / SECONDS
    slope = (waiting(utilisation + step) - waiting(utilisation - step)) / (2 * rate_step)
    assert marginal_wait_ms(slots, SECONDS, utilisation, 1.0) == pytest.approx(1e3 * slope, rel=1e-3)
    assert marginal_wait_ms(slots, SECONDS, utilisation, 3.0) == pytest.approx(3e3 * slope, rel=1e-3)


def test_levels_break_no_bound() -> None:
    """The solution holds every bound of the problem itself."""
    for rate in (50.0, 300.0, 540.0, 600.0):
        problem = _problem(rate, 100.0, 50.0)
        assert violations(problem, _settled(problem, 5).solution) == []
