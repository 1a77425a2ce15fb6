"""What plans came to, joined to minutes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.model.services import Priority
from gtm.core.model.state import ClassPlan, Plan
from gtm.core.plan.history import Minutes, RegionMinute, joined, seen
from gtm.core.plan.problem import ClassDemand, PlanProblem

ONE = ClassDemand("one", "chat", Priority.REAL_TIME, ("a", "b"), (1.0, 2.0), 10.0)
NEW = ClassDemand("new", "chat", Priority.REAL_TIME, ("b",), (1.0,), 5.0)
USE = {"a": 0.9, "b": None, "c": 0.0}


def look(samples: int = 1, demand: float = 0.0, use: float | None = None) -> RegionMinute:
    """A part of a minute."""
    return RegionMinute(samples, demand, 0.0, 0.0, 0.0, use, 0.0, 0.0)


def test_a_look_says_what_each_region_is_given_and_gives_away() -> None:
    """Of 10 requests/s at home in a, two are refused and two go to b; what has no plan yet is demand, and nothing else."""
    plan = Plan(classes={"one": ClassPlan({"a": 0.75, "b": 0.25}, shed=0.2)}, prices={"a": 12.5})
    found = seen(PlanProblem((ONE, NEW), {}), plan, ("a", "some-quota"), USE)
    assert found == {
        "a": RegionMinute(1, 10.0, 6.0, 2.0, 2.0, 0.9, 12.5, 1.0),
        "b": RegionMinute(1, 5.0, 2.0, 0.0, 0.0, None, 0.0, 0.0),
        "c": RegionMinute(1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    }
    assert seen(PlanProblem((), {}), Plan(), (), {}) == {}


def test_minutes_are_given_out_once_they_are_over() -> None:
    """Each once, with the means of its looks; a clock that steps back begins another."""
    minutes = Minutes()
    assert minutes.add({"a": look(demand=1.0)}, 61.0) is None
    assert minutes.add({"a": look(demand=3.0), "b": look()}, 119.9) is None
    start, regions = minutes.add({"a": look(demand=9.0)}, 120.0) or (0.0, {})
    assert (start, regions["a"].samples, regions["a"].demand) == (60.0, 2, 2.0)
    assert regions["b"].samples == 1
    assert minutes.add({"a": look(demand=5.0)}, 30.0) == (120.0, {"a": look(demand=9.0)})


_LOOKS = st.builds(
    RegionMinute,
    samples=st.integers(1, 1000),
    demand=st.floats(0, 1e6),
    planned=st.floats(0, 1e6),
    away=st.floats(0, 1e6),
    refused=st.floats(0, 1e6),
    use=st.none() | st.floats(0, 2),
    price_ms=st.floats(0, 1e4),
    exhausted=st.floats(0, 1),
)


@given(_LOOKS, _LOOKS)
def test_joining_is_by_samples(one: RegionMinute, other: RegionMinute) -> None:
    """As if all looks had been taken together, in whatever order; joining a part with itself changes no mean."""
    both = joined(one, other)
    assert both.samples == one.samples + other.samples
    assert both.demand * both.samples == pytest.approx(
        one.demand * one.samples + other.demand * other.samples
    )
    assert joined(other, one).planned == pytest.approx(both.planned)
    assert (
        min(one.price_ms, other.price_ms) - 1e-6 <= both.price_ms <= max(one.price_ms, other.price_ms) + 1e-6
    )
    twice = joined(one, one)
    assert (twice.demand, twice.exhausted) == pytest.approx((one.demand, one.exhausted))
    assert (both.use is None) == (one.use is None and other.use is None)
    if one.use is None:
        assert both.use == (None if other.use is None else pytest.approx(other.use))
