"""Who is refused inside a priority tier."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.capacity.supply import Supply
from gtm.core.model.services import OnOverload, Priority
from gtm.core.plan.fairness import water_fill
from gtm.core.plan.problem import ClassDemand, PlanProblem, Solution
from gtm.core.plan.solve import solve
from tests.core.plan.violations import violations
from tests.core.strategies import quick


def fill_slowly(demand: dict[str, float], weights: dict[str, float], amount: float) -> dict[str, float]:
    """Max-min fairness as it is defined: raise everybody's level together, stop whoever has enough."""
    given = dict.fromkeys(demand, 0.0)
    asking = {name for name, rate in demand.items() if rate > 0}
    while asking and amount > 1e-12:
        together = sum(weights.get(name, 1.0) for name in asking)
        level = min((demand[name] - given[name]) / weights.get(name, 1.0) for name in asking)
        level = min(level, amount / together)
        for name in asking:
            given[name] += level * weights.get(name, 1.0)
        amount -= level * together
        asking = {name for name in asking if demand[name] - given[name] > 1e-12}
    return given


RATES = st.integers(0, 500).map(lambda value: value / 10)
BY_TENANT = st.dictionaries(st.sampled_from("pqrstu"), RATES, min_size=1)
WEIGHTS = st.dictionaries(st.sampled_from("pqrstu"), st.sampled_from((0.25, 1.0, 2.0, 10.0)))


@given(BY_TENANT, WEIGHTS, st.integers(0, 2000).map(lambda value: value / 10))
@quick(100)
def test_water_filling_is_max_min_fair(
    demand: dict[str, float], weights: dict[str, float], amount: float
) -> None:
    """The closed form agrees with raising everybody's level step by step."""
    asked = np.array(list(demand.values()))
    parts = water_fill(asked, np.array([weights.get(name, 1.0) for name in demand]), amount)
    assert parts.tolist() == pytest.approx(list(fill_slowly(demand, weights, amount).values()), abs=1e-6)


def demand(key: str, tenants: dict[str, float], regions: str = "x", **changes: Any) -> ClassDemand:
    """A class by tenant; regions in order of preference."""
    latency = tuple(10.0 + 20.0 * place for place in range(len(regions)))
    made = ClassDemand(
        key, "chat", Priority.REAL_TIME, tuple(regions), latency, sum(tenants.values()), tenants
    )
    return replace(made, **changes)


def admitted(problem: PlanProblem, solution: Solution) -> dict[str, float]:
    """What each tenant is served, all classes together."""
    found: dict[str, float] = {}
    for one in problem.classes:
        for name, rate in one.tenants.items():
            refused = solution.shed_tenants.get(one.key, {}).get(name, 0.0)
            assert -1e-6 <= refused <= rate + 1e-6
            found[name] = found.get(name, 0.0) + rate - refused
    return found


@given(st.lists(BY_TENANT, min_size=1, max_size=5), WEIGHTS, st.integers(1, 100), st.booleans())
@quick(50)
def test_one_full_region_is_shared_fairly(
    parts: list[dict[str, float]], weights: dict[str, float], capacity: int, slots: bool
) -> None:
    """Whatever the classes, what one region can serve is shared among tenants as max-min fairness says."""
    supply = (
        Supply(slots=capacity * 0.5, service_time_s={"chat": 0.5}) if slots else Supply(rate=float(capacity))
    )
    classes = tuple(demand(f"c{number}", tenants) for number, tenants in enumerate(parts))
    problem = PlanProblem(classes, {"x": supply}, tenant_weights=weights)
    solution = solve(problem)
    assert violations(problem, solution) == []
    asked: dict[str, float] = {}
    for tenants in parts:
        for name, rate in tenants.items():
            asked[name] = asked.get(name, 0.0) + rate
    fair = fill_slowly(asked, weights, float(capacity))
    assert admitted(problem, solution) == pytest.approx(
        fair, abs=0.02 * sum(asked.values()) / len(asked) + 1e-6
    )


def test_shares_are_of_slots_where_slots_are_short() -> None:
    """Of 12 slots, a tenant with requests of 3 s gets 6, and so 2 requests/s; one with 0.5 s gets 12 requests/s."""
    classes = (demand("a", {"long": 20.0}), demand("b", {"short": 100.0}, service="embed"))
    supply = Supply(slots=12.0, service_time_s={"chat": 3.0, "embed": 0.5})
    problem = PlanProblem(classes, {"x": supply})
    assert admitted(problem, solve(problem)) == pytest.approx({"long": 2.0, "short": 12.0}, rel=1e-3)


def test_services_without_a_service_time_count_as_the_others() -> None:
    """A service that holds no slots, as far as is known, is not refused for want of them."""
    classes = (demand("a", {"p": 20.0, "q": 1.0}), demand("b", {"r": 5.0}, service="unknown"))
    problem = PlanProblem(classes, {"x": Supply(slots=12.0, service_time_s={"chat": 1.0})})
    assert admitted(problem, solve(problem)) == pytest.approx({"p": 11.0, "q": 1.0, "r": 5.0}, rel=1e-3)


def test_nobody_is_held_back_for_those_who_cannot_use_the_rest() -> None:
    """Tenants bound to a small region share that alone; those of the large one share the large one."""
    classes = (
        demand("small-1", {"p": 40.0}, "x"),
        demand("small-2", {"q": 4.0, "r": 60.0}, "x"),
        demand("both", {"s": 1.0}, "yx"),
        demand("large", {"t": 150.0, "u": 20.0}, "y"),
    )
    problem = PlanProblem(classes, {"x": Supply(rate=10.0), "y": Supply(rate=100.0)})
    fair = {"p": 3.0, "q": 4.0, "r": 3.0, "s": 1.0, "t": 79.0, "u": 20.0}
    fair["p"] = fair["r"] = 10 / 3
    fair["q"] = 10 / 3
    assert admitted(problem, solve(problem)) == pytest.approx(fair, rel=0.02)


def test_a_tenant_within_its_share_is_not_refused_for_its_latency() -> None:
    """Without fairness the far client would be refused: it costs the most."""
    near, far = demand("near", {"big": 100.0}), demand("far", {"little": 5.0}, latency_ms=(250.0,))
    problem = PlanProblem((near, far), {"x": Supply(rate=50.0)})
    solution = solve(problem)
    assert admitted(problem, solution) == pytest.approx({"big": 45.0, "little": 5.0})
    assert solution.shed == pytest.approx({"near": 55.0})


def test_what_queues_is_not_shared() -> None:
    """It arrives whether planned or not, so the tenants of services that shed share what it leaves."""
    pinned = demand("pinned", {"": 70.0}, on_overload=OnOverload.QUEUE)
    problem = PlanProblem((pinned, demand("a", {"p": 40.0, "q": 40.0})), {"x": Supply(rate=100.0)})
    solution = solve(problem)
    assert solution.queued == {}
    assert solution.shed_tenants == {"a": pytest.approx({"p": 25.0, "q": 25.0})}


def test_tiers_come_before_tenants() -> None:
    """A tenant's fair share counts inside a tier only; a lower tier has what higher ones leave."""
    classes = (
        demand("now", {"big": 30.0, "little": 2.0}),
        demand("later", {"little": 8.0, "other": 50.0}, priority=Priority.BATCH),
    )
    problem = PlanProblem(classes, {"x": Supply(rate=40.0)})
    solution = solve(problem)
    assert solution.shed == pytest.approx({"later": 50.0})
    assert solution.shed_tenants["later"] == pytest.approx({"little": 4.0, "other": 46.0})


def test_a_higher_tier_keeps_its_shares_when_lower_ones_are_refused_too() -> None:
    """Both tiers are short; each is shared by its own tenants."""
    classes = (
        demand("now", {"big": 60.0, "little": 20.0}),
        demand("then", {"big": 10.0, "little": 10.0}, "y", priority=Priority.BATCH),
    )
    problem = PlanProblem(classes, {"x": Supply(rate=50.0), "y": Supply(rate=4.0)})
    solution = solve(problem)
    assert solution.shed_tenants["now"] == pytest.approx({"big": 30.0, "little": 0.0}, abs=1e-5)
    assert solution.shed_tenants["then"] == pytest.approx({"big": 8.0, "little": 8.0})


def _envied(classes: tuple[ClassDemand, ...], solution: Solution, tolerance: float) -> bool:
    """Whether a class is refused while one served where it could be has more."""
    served = {one.key: sum(solution.flow.get(one.key, {}).values()) for one in classes}
    return any(
        solution.shed.get(refused.key, 0.0) > tolerance
        and served[other.key] > served[refused.key] + tolerance
        and any(
            rate > tolerance and name in refused.regions
            for name, rate in solution.flow.get(other.key, {}).items()
        )
        for refused in classes
        for other in classes
    )


def test_no_tenant_within_its_share_is_refused_for_one_beyond() -> None:
    """Where a tenant is refused, none served by a region that it may use has more than it has.

    With one class for each tenant this is what max-min fairness means for direct exchanges. Groups are found by trial,
    so it is asked of 99 in 100 random problems, within 2% of the capacity; in all, every bound holds.
    """
    envied = 0
    for seed in range(200):
        draw = random.Random(seed)
        size = draw.choice((2.0, 5.0, 20.0))
        classes = tuple(
            demand(
                f"c{number}",
                {f"t{number}": draw.uniform(0.1, size)},
                "".join(draw.sample("xyz", draw.randint(1, 3))),
            )
            for number in range(draw.randint(2, 8))
        )
        supply = {name: Supply(rate=draw.uniform(1.0, size)) for name in "xyz"}
        problem = PlanProblem(classes, supply)
        solution = solve(problem)
        assert violations(problem, solution) == []
        envied += _envied(classes, solution, 0.02 * sum(one.rate or 0.0 for one in supply.values()))
    assert envied <= 2
