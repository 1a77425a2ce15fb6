"""What happens beside a change of policy, and from where to where requests move."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.capacity.supply import Supply
from gtm.core.demand.traffic import TrafficSample
from gtm.core.model.regions import AdminState
from gtm.core.model.state import EndpointHealth, HealthStatus
from gtm.core.simulate.compare import Comparison, difference, simulate
from gtm.core.simulate.project import Projection
from gtm.core.simulate.scenario import NOTHING, Scenario, all_up
from tests.core.simulate.test_simulate import (
    BERLIN,
    BOSTON,
    CORK,
    COUNTS,
    NOW,
    POLICY,
    cell,
    drained,
    traffic,
    with_slots,
    world,
)


def made(after: object, scenario: Scenario = NOTHING, counts: dict[str, float] = COUNTS) -> Comparison:
    """The average of a simulation against the policy with all regions up."""
    return simulate(traffic(counts), world(POLICY), after, scenario).average  # type: ignore[arg-type]


def test_what_a_drain_moves_is_said_by_where_it_goes() -> None:
    """All of Frankfurt's goes to Dublin."""
    assert made(world(drained(POLICY, "de"))).moves == pytest.approx({("de", "ie"): 6.0})


def test_who_is_refused_moves_to_nowhere() -> None:
    """Both regions inside the fence are gone: the EEA's clients are refused, and served again the other way round."""
    gone = world(POLICY, down=("de", "ie"))
    assert made(gone).moves == pytest.approx({("de", ""): 6.0, ("ie", ""): 3.0})
    back = simulate(traffic(COUNTS), gone, world(POLICY)).average
    assert back.moves == pytest.approx({("", "de"): 6.0, ("", "ie"): 3.0})
    assert back.newly_served == pytest.approx(back.moved)


def test_demand_grows_after_and_not_before() -> None:
    """Overall, and of a service besides; what it grows by is no move."""
    web = cell("US", 42.4, -71.1, "web")
    policy = replace(POLICY, services=(*POLICY.services, replace(POLICY.services[0], name="web")))
    counts = {**COUNTS, web: 100.0}
    scenario = Scenario(demand=2.0, services={"web": 3.0})
    found = simulate(traffic(counts), world(policy), world(policy), scenario).average
    assert (found.before.rate, found.after.rate) == pytest.approx((11.0, 26.0))
    assert (found.moved, found.moves) == (0.0, {})
    assert scenario.grown({BERLIN: 1.0, web: 1.0}) == {BERLIN: 2.0, web: 6.0}
    assert not NOTHING.grows
    assert not Scenario(services={"web": 1.0}).grows


def test_more_demand_than_room_is_refused() -> None:
    """Twice the requests do not fit where once they did."""
    small = with_slots(POLICY, de=8, ie=8, us=8)
    before = world(small)
    assert simulate(traffic(COUNTS), before, before).average.after.short == 0
    found = simulate(traffic(COUNTS), before, before, Scenario(demand=2.0)).average
    assert found.after.short > 0.5
    assert set(found.after.binding) >= {"de", "ie"}
    assert found.before.short == 0


def test_a_scenario_changes_policy_health_and_supply() -> None:
    """What drains drains, what fails is down, what shrinks can take less; the rest stays, and what has no bound has none."""
    scenario = Scenario(frozenset({"de"}), frozenset({"ie"}), {"us": 0.5})
    states = {one.name: one.admin_state for one in scenario.policy(POLICY).regions}
    assert states == {"de": AdminState.ACTIVE, "ie": AdminState.DRAINING, "us": AdminState.ACTIVE}
    health = scenario.health(all_up(POLICY, NOW), POLICY, NOW)
    assert {name: {one.status for one in found.values()} for name, found in health.items()} == {
        "de": {HealthStatus.DOWN},
        "ie": {HealthStatus.UP},
        "us": {HealthStatus.UP},
    }
    bounded = Supply(
        10.0, 8.0, service_slots={"chat": 4.0}, service_rate={"chat": 2.0}, service_time_s={"chat": 1.0}
    )
    half = replace(bounded, slots=5.0, rate=4.0, service_slots={"chat": 2.0}, service_rate={"chat": 1.0})
    found = scenario.supply({"us": bounded, "de": bounded})
    assert found == {"us": half, "de": bounded}
    assert scenario.supply({"us": Supply()})["us"].slots is None
    disabled = replace(
        POLICY, regions=tuple(replace(one, admin_state=AdminState.DISABLED) for one in POLICY.regions)
    )
    assert scenario.policy(disabled) == disabled, "nobody switches on what is off"


def test_a_failed_region_of_unknown_health_is_down_all_the_same() -> None:
    """Also where nobody has probed it."""
    found = Scenario(down=frozenset({"us"})).health({}, POLICY, NOW)
    assert found == {
        "us": {"https://us.test": EndpointHealth(HealthStatus.DOWN, since=NOW, detail="simulated")}
    }


# --- what moves, by a model of its own: each cell's losses are spread over its gains in proportion ---

_REGIONS = ("a", "b", "c")


@st.composite
def _shares(draw: st.DrawFn) -> dict[str, float]:
    parts = draw(st.lists(st.integers(0, 4), min_size=4, max_size=4).filter(sum))
    found = {name: part / sum(parts) for name, part in zip(_REGIONS, parts[:3], strict=True)}
    return {name: share for name, share in found.items() if share}


def _model(
    rates: dict[str, float], before: dict[str, dict[str, float]], after: dict[str, dict[str, float]]
) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for one, rate in rates.items():
        old = {**before[one], "": 1 - sum(before[one].values())}
        new = {**after[one], "": 1 - sum(after[one].values())}
        names = old.keys() | new.keys()
        lost = {name: max(0.0, old.get(name, 0.0) - new.get(name, 0.0)) for name in names}
        gained = {name: max(0.0, new.get(name, 0.0) - old.get(name, 0.0)) for name in names}
        for start, out in lost.items():
            for end, came in gained.items():
                if out > 1e-9 and came > 1e-9:
                    way = start, end
                    found[way] = found.get(way, 0.0) + rate * out * came / sum(lost.values())
    return {way: rate for way, rate in found.items() if rate > 1e-9 * sum(rates.values())}


def _projection(cells: dict[str, dict[str, float]]) -> Projection:
    empty = Projection.__new__(Projection)
    object.__setattr__(empty, "cells", cells)
    return empty


@given(
    worlds=st.lists(st.tuples(st.floats(0.01, 100), _shares(), _shares()), min_size=1, max_size=6),
)
def test_moves_add_up(worlds: list[tuple[float, dict[str, float], dict[str, float]]]) -> None:
    """They are what the model says, their sum is the share that moves, and each region's net is what it gains."""
    rates = {f"c{n}": rate for n, (rate, _, _) in enumerate(worlds)}
    before = {f"c{n}": old for n, (_, old, _) in enumerate(worlds)}
    after = {f"c{n}": new for n, (_, _, new) in enumerate(worlds)}
    moved, newly, moves = difference(rates, _projection(before), _projection(after))
    assert moves == pytest.approx(_model(rates, before, after), rel=1e-6, abs=1e-6)
    total = sum(rates.values())
    assert sum(moves.values()) == pytest.approx(moved * total, abs=1e-6)
    assert sum(rate for (start, _), rate in moves.items() if not start) == pytest.approx(
        newly * total, abs=1e-6
    )
    for name in _REGIONS:
        gain = sum(rate * (after[one].get(name, 0) - before[one].get(name, 0)) for one, rate in rates.items())
        net = sum(rate * ((end == name) - (start == name)) for (start, end), rate in moves.items())
        assert net == pytest.approx(gain, abs=1e-6)


def test_nobody_asks() -> None:
    """Nothing moves, and nothing is divided by nothing."""
    found = simulate(traffic({CORK: 0.0, BOSTON: 0.0}), world(POLICY), world(POLICY), Scenario(demand=5.0))
    assert (found.average.moved, found.average.moves) == (0.0, {})
    assert TrafficSample({}, 1.0).rates == {}
