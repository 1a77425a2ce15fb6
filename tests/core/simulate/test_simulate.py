"""Simulations of traffic under two policies, and the builder of traffic."""

from __future__ import annotations

import json
from dataclasses import replace
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.capacity.supply import assess
from gtm.core.decision.choice import choice
from gtm.core.decision.ranking import classes_of, rank
from gtm.core.demand.cells import Cell, cell_of
from gtm.core.demand.traffic import MINUTE, Traffic, TrafficBuilder, TrafficSample
from gtm.core.model.policy import Policy
from gtm.core.model.regions import AdminState, Capacity
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Member, Priority, Steering
from gtm.core.model.state import State
from gtm.core.simulate.compare import simulate
from gtm.core.simulate.project import UNKNOWN_NAME
from gtm.core.simulate.report import as_data
from gtm.core.simulate.scenario import SimulatedWorld, all_up, presumed_up
from tests import worlds
from tests.core.strategies import policies, quick, requests, states

NOW = 1_000.0


CHAT = worlds.service("chat", "de ie us", service_time_ms=1000.0)
EEA = worlds.rule("eea-stays", "EEA", services="chat", client_jurisdictions="EEA")
POLICY = worlds.policy(*worlds.regions("de ie us", reserve=0.0), CHAT, EEA)


def world(policy: Policy, down: tuple[str, ...] = ()) -> SimulatedWorld:
    """A policy with all regions up but some."""
    health = {name: found for name, found in all_up(policy, NOW).items() if name not in down}
    return SimulatedWorld(
        worlds.view(policy, State(health=health), NOW), assess(policy, health, {}, NOW).supply
    )


def cell(country: str, lat: float, lon: float, service: str = "chat") -> str:
    """The cell of a request from there."""
    return cell_of(Request(service, Location(country, lat=lat, lon=lon)), Priority.REAL_TIME)


BERLIN, CORK, BOSTON = cell("DE", 52.5, 13.4), cell("IE", 51.9, -8.5), cell("US", 42.4, -71.1)
COUNTS = {BERLIN: 600.0, CORK: 300.0, BOSTON: 100.0}


def traffic(counts: dict[str, float], seconds: float = 100.0) -> Traffic:
    """Traffic without times."""
    sample = TrafficSample(counts, seconds)
    return Traffic(sample, sample)


def drained(policy: Policy, name: str) -> Policy:
    """The policy with a region draining."""
    return worlds.changed(policy, "regions", name, admin_state=AdminState.DRAINING)


def with_slots(policy: Policy, **slots: int) -> Policy:
    """The policy with capacities of some regions."""
    for name, count in slots.items():
        policy = worlds.changed(policy, "regions", name, capacity=Capacity(outstanding=count))
    return policy


def test_a_policy_against_itself_moves_nothing() -> None:
    """Everybody is served at the nearest region inside the fence, and nothing differs."""
    found = simulate(traffic(COUNTS), world(POLICY), world(POLICY))
    assert found.average.moved == found.average.newly_served == 0
    assert {name: round(rate, 6) for name, rate in found.average.after.served.items()} == {
        "de": 6.0,
        "ie": 3.0,
        "us": 1.0,
    }
    assert found.average.after.refused_rate == 0
    assert found.peak is found.average
    assert [(one.country, one.before, one.after) for one in found.countries] == [
        ("DE", "de", "de"),
        ("IE", "ie", "ie"),
        ("US", "us", "us"),
    ]


def test_a_drain_moves_what_the_region_served() -> None:
    """The share that moves is that of the drained region; its countries have another main region."""
    found = simulate(traffic(COUNTS), world(POLICY), world(drained(POLICY, "de")))
    assert found.average.moved == pytest.approx(0.6)
    assert found.average.displaced == pytest.approx(0.6)
    assert found.average.after.served["ie"] == pytest.approx(9)
    assert [(one.before, one.after) for one in found.countries if one.before != one.after] == [("de", "ie")]
    before, after = found.average.before.latency, found.average.after.latency
    assert before is not None
    assert after is not None
    assert after.mean > before.mean


def test_refusals_are_told_by_reason_and_rule() -> None:
    """With both regions of the EEA gone, its clients are refused by the rule; that moves, and is no longer served."""
    found = simulate(traffic(COUNTS), world(POLICY), world(POLICY, down=("de", "ie")))
    assert found.average.after.refused == pytest.approx({"fence_unusable": 9.0})
    assert found.average.after.refused_by_rule == pytest.approx({"eea-stays": 9.0})
    assert found.average.displaced == pytest.approx(0.9)
    back = simulate(traffic(COUNTS), world(POLICY, down=("de", "ie")), world(POLICY))
    assert back.average.newly_served == pytest.approx(0.9)
    assert back.average.displaced == 0
    assert {one.before for one in back.countries} == {"", "us"}


def test_what_does_not_fit_spills_and_then_is_shed() -> None:
    """A full region's demand goes to the next inside the fence; what fits nowhere is refused for want of capacity."""
    small = with_slots(POLICY, de=2, ie=5)
    found = simulate(traffic(COUNTS), world(POLICY), world(small)).average.after
    assert found.served == pytest.approx({"de": 2.0, "ie": 5.0, "us": 1.0})
    assert found.spill == pytest.approx({("de", "ie"): 2.0}) or sum(found.spill.values()) >= 2
    assert found.refused == pytest.approx({"shed": 2.0})
    assert found.short == pytest.approx(2.0)
    assert found.room["de"].utilization == pytest.approx(1.0)
    assert found.room["us"].utilization is None
    assert found.refused_by_rule == {}


@given(slots=st.lists(st.integers(1, 12), min_size=3, max_size=3), rate=st.floats(1.0, 20.0))
@quick(60)
def test_a_full_policy_against_itself_moves_next_to_nothing(slots: list[int], rate: float) -> None:
    """However full regions are, what the planner does in both worlds is the same but for one step of its levels."""
    policy = with_slots(POLICY, de=slots[0], ie=slots[1], us=slots[2])
    asked = traffic({name: count * rate for name, count in COUNTS.items()}, 600.0)
    found = simulate(asked, world(policy), world(policy))
    assert found.average.moved <= 0.05


def test_the_peak_is_planned_apart() -> None:
    """What fits on average may not at the peak."""
    builder = TrafficBuilder(1.0)
    for minute in range(10):
        builder.add(BERLIN, 1200 if minute == 3 else 60, 60.0 * minute)
    made = builder.traffic()
    found = simulate(made, world(POLICY), world(with_slots(POLICY, de=5, ie=5)))
    assert (made.whole.seconds, made.peak.seconds, made.peak.start) == (600, 60, 180)
    assert found.average.after.refused_rate == 0
    assert found.peak.after.refused_rate == pytest.approx(10)


def test_steering_that_is_not_planned_is_followed() -> None:
    """By weight, a cell goes to each region in proportion, and takes up its capacity."""
    members = (Member("de", 3.0), Member("us", 1.0))
    policy = replace(
        POLICY, services=(replace(CHAT, steering=Steering.WEIGHTED, members=members),), residency_rules=()
    )
    found = simulate(traffic(COUNTS), world(policy), world(policy)).average.after
    assert found.served == pytest.approx({"de": 7.5, "ie": 0.0, "us": 2.5})
    assert found.spill == {}


def test_names_that_a_policy_lacks() -> None:
    """A service that only one policy has is refused by the other; one that none has is left out, and named."""
    other, none = cell("DE", 52.5, 13.4, "web"), cell("DE", 52.5, 13.4, "typo")
    both = replace(POLICY, services=(CHAT, replace(CHAT, name="web")))
    asked = traffic({BERLIN: 100.0, other: 100.0, none: 50.0})
    found = simulate(asked, world(both), world(POLICY))
    assert found.average.after.refused == pytest.approx({UNKNOWN_NAME: 1.0})
    assert found.average.displaced == pytest.approx(0.5)
    assert found.unknown == {none: 50.0}
    data = as_data(found, world(both), world(POLICY))
    assert data["traffic"]["requests"] == 200
    (warning,) = data["warnings"]
    assert warning.startswith("50 requests for `typo` are left out: neither policy knows the service")


def test_traffic_of_no_time_is_refused() -> None:
    """Rates need a time; no traffic at all is none, not an error."""
    with pytest.raises(ValueError, match="more than 0 seconds"):
        simulate(traffic(COUNTS, 0.0), world(POLICY), world(POLICY))
    found = simulate(traffic({}), world(POLICY), world(POLICY))
    assert (found.average.moved, found.countries, found.average.before.latency) == (0, (), None)


def test_unprobed_endpoints_are_presumed_up() -> None:
    """Known health stays as it is; what only a draft has counts as up."""
    known = {"de": {"https://de.test": all_up(POLICY, 5.0)["de"]["https://de.test"]}, "gone": {}}
    made = presumed_up(POLICY, known, NOW)
    assert made["de"]["https://de.test"].since == 5.0
    assert made["us"]["https://us.test"].since == NOW
    assert set(made) == {"de", "ie", "us"}


@st.composite
def cases(draw: st.DrawFn) -> tuple[SimulatedWorld, SimulatedWorld, dict[str, float]]:
    """Two random policies of the same names, each in a state of its own, and requests to them."""
    found = []
    first = draw(policies())
    for policy in (first, draw(st.one_of(st.just(first), policies()))):
        state = draw(states(policy))
        found.append(
            SimulatedWorld(worlds.view(policy, state, 300), assess(policy, state.health, {}, 300).supply)
        )
    asked = draw(st.lists(requests(first), min_size=1, max_size=8))
    counts = {cell_of(one, Priority.REAL_TIME): draw(st.floats(0, 1e4)) for one in asked}
    return found[0], found[1], counts


@given(case=cases())
@quick(80)
def test_simulations_add_up_and_keep_the_fence(
    case: tuple[SimulatedWorld, SimulatedWorld, dict[str, float]],
) -> None:
    """All is served or refused, only where the fence and health allow; what moves is a share; the report is JSON."""
    before, after, counts = case
    found = simulate(traffic(counts), before, after)
    for side, made in ((before, found.average.before), (after, found.average.after)):
        assert isclose(sum(made.served.values()) + made.refused_rate, made.rate, rel_tol=1e-6, abs_tol=1e-6)
        for text, shares in made.cells.items():
            assert all(0 <= share <= 1 + 1e-6 for share in shares.values())
            if shares:
                group = rank(
                    side.view.basis, Cell.parse(text).request, classes_of(side.view.basis.snapshot)
                ).group
                eligible = choice(side.view, group).eligible
                assert set(shares) <= set(side.view.snapshot.names(group.allowed & eligible))
    made_compare = found.average
    assert 0 <= made_compare.newly_served <= made_compare.moved <= 1 + 1e-9
    back = simulate(traffic(counts), after, after)
    assert back.average.moved == 0
    json.dumps(as_data(found, before, after), allow_nan=False)


@given(
    rows=st.lists(
        st.tuples(st.sampled_from("abc"), st.floats(0, 1e6), st.one_of(st.none(), st.floats(0, 1e5)))
    ),
    most=st.integers(1, 20),
)
@quick(200)
def test_builders_lose_nothing(rows: list[tuple[str, float, float | None]], most: int) -> None:
    """Whatever the bound on memory, every request is counted, and no interval has more than the whole."""
    builder = TrafficBuilder(7.0, most)
    for name, count, at in rows:
        builder.add(name, count, at)
    made = builder.traffic()
    assert made.whole.requests == pytest.approx(sum(count for _, count, _ in rows))
    assert made.peak.requests <= made.whole.requests * (1 + 1e-9)
    assert made.peak.seconds <= made.whole.seconds
    if any(at is not None for _, _, at in rows):
        assert made.peak.seconds % MINUTE == 0
        rate = made.whole.requests / made.whole.seconds
        assert made.peak.requests / made.peak.seconds >= rate * (1 - 1e-9)
    else:
        assert made.whole.seconds == 7.0


def test_full_hours_are_hours() -> None:
    """Times that are all those of full hours stand for hours, so that the peak is not that of a minute."""
    builder = TrafficBuilder(1.0)
    for hour, count in ((7, 10.0), (8, 30.0), (10, 20.0)):
        builder.add("a", count, 3600.0 * hour)
    made = builder.traffic()
    assert (made.whole.seconds, made.whole.start) == (4 * 3600, 7 * 3600)
    assert made.peak == TrafficSample({"a": 30.0}, 3600.0, 8 * 3600)
    builder.add("a", 1.0, 3600.0 * 11 + 1)
    assert builder.traffic().whole.seconds == 5 * 3600, "what was joined stays so"


@pytest.mark.parametrize(("count", "at"), [(-1.0, None), (float("nan"), None), (1.0, float("inf"))])
def test_builders_refuse_what_is_no_number(count: float, at: float | None) -> None:
    """Counts and times have to be finite, counts not negative."""
    with pytest.raises(ValueError, match="requests at"):
        TrafficBuilder(1.0).add("a", count, at)
