"""The best plan of one tick."""

from __future__ import annotations

import highspy
import numpy as np
import pytest
from hypothesis import given

from gtm.core.capacity.supply import Supply
from gtm.core.model.policy import SpilloverRule
from gtm.core.model.services import OnOverload, Priority
from gtm.core.model.state import ClassPlan, Plan
from gtm.core.plan import lp
from gtm.core.plan.lp import Optimum, Simplex
from gtm.core.plan.problem import Knobs, PlanError, PlanProblem, Solution
from gtm.core.plan.solve import solve
from tests.core.plan.problems import TIERS, demand, problems, reference
from tests.core.plan.violations import violations
from tests.core.strategies import quick


def unserved(solution: Solution) -> dict[str, float]:
    """What each class is not served, refused or queueing."""
    return solution.shed | solution.queued


NEAR_FAR = {"near": 10.0, "far": 50.0}


@given(problems())
@quick(40)
def test_solutions_keep_every_bound(problem: PlanProblem) -> None:
    """No flow leaves a fence, none exceeds a bound, and served and refused make the demand."""
    assert violations(problem, solve(problem)) == []


@given(problems(tenants=("",)))
@quick(50)
def test_each_tier_is_refused_as_little_as_possible(problem: PlanProblem) -> None:
    """With what higher tiers are refused given by class, no plan leaves less of a tier unserved.

    A request that queues counts for one and a half refused.
    """
    solution = solve(problem)
    left = unserved(solution)
    weight = {one.key: 1.5 if one.on_overload is OnOverload.QUEUE else 1.0 for one in problem.classes}
    limits: dict[str, float] = {}
    for tier in TIERS:
        members = [one for one in problem.classes if one.priority is tier and one.regions]
        cost = {one.key: weight[one.key] for one in members}
        least, _ = reference(problem, cost, limits, 0.0)
        mine = sum(cost[key] * left.get(key, 0.0) for key in cost)
        everything = sum(one.rate for one in problem.classes)
        assert mine == pytest.approx(least, abs=2e-4 * max(1.0, everything))
        limits |= {one.key: left.get(one.key, 0.0) + 1e-5 for one in members}


@given(problems())
@quick(50)
def test_latency_and_cost_are_least(problem: PlanProblem) -> None:
    """Among the plans that leave the same unserved, none is better by more than the gap that is documented."""
    solution = solve(problem)
    left = unserved(solution)
    refused = {one.key: left.get(one.key, 0.0) + 1e-6 for one in problem.classes}
    least, _ = reference(problem, {}, refused, 1.0)
    mine = 0.0
    for one in problem.classes:
        latency = dict(zip(one.regions, one.latency_ms, strict=True))
        flow = dict(solution.flow.get(one.key, {}))
        if one.key in solution.queued:
            flow[one.regions[0]] -= solution.queued[one.key]
        mine += sum(
            rate * (latency[region] + problem.supply.get(region, Supply()).cost_ms)
            for region, rate in flow.items()
        )
    everything = sum(one.rate for one in problem.classes)
    assert mine <= least + (lp.GAP_MS + 0.01) * everything + 0.05


@given(problems())
@quick(25)
def test_solutions_are_deterministic(problem: PlanProblem) -> None:
    """The same question has the same answer."""
    assert solve(problem) == solve(problem)


def test_without_demand_there_is_nothing_to_plan() -> None:
    """Regions are priced, and that is all."""
    found = solve(PlanProblem((demand("a", 0.0, NEAR_FAR),), {"near": Supply(rate=1.0)}))
    assert found == Solution({}, {}, {}, {"near": 0.0}, {}, ())


def test_a_class_without_regions_is_refused() -> None:
    """Its whole demand, by tenant."""
    found = solve(PlanProblem((demand("a", 4.0, {}), demand("b", 2.0, {}, tenants={"x": 2.0})), {}))
    assert found.flow == {}
    assert found.shed == {"a": 4.0, "b": 2.0}
    assert found.shed_tenants == {"a": {"": 4.0}, "b": {"x": 2.0}}


def test_regions_without_bounds_take_everything() -> None:
    """A region whose supply is not stated, or states nothing, is never full."""
    assert solve(PlanProblem((demand("a", 1e6, NEAR_FAR),), {})).flow == {"a": {"near": 1e6}}
    assert solve(PlanProblem((demand("a", 1e6, NEAR_FAR),), {"near": Supply()})).flow == {"a": {"near": 1e6}}


def test_littles_law_turns_slots_into_a_rate() -> None:
    """100 slots at 4 s a request serve 25 requests a second; the rest spills, at the price of the difference."""
    supply = {"near": Supply(slots=100, service_time_s={"chat": 4.0}), "far": Supply()}
    found = solve(PlanProblem((demand("a", 30.0, NEAR_FAR),), supply))
    assert found.flow["a"] == pytest.approx({"near": 25.0, "far": 5.0})
    assert found.prices == pytest.approx({"near": 40.0, "far": 0.0})
    assert found.binding == ("near",)


def test_a_service_may_be_bound_on_its_own() -> None:
    """Bounds of one service leave the others alone."""
    supply = {
        "near": Supply(
            service_slots={"chat": 10.0}, service_rate={"embed": 2.0}, service_time_s={"chat": 1.0}
        )
    }
    classes = (demand("a", 12.0, NEAR_FAR), demand("b", 3.0, NEAR_FAR, service="embed"))
    found = solve(PlanProblem(classes, supply))
    assert found.flow["a"] == pytest.approx({"near": 10.0, "far": 2.0})
    assert found.flow["b"] == pytest.approx({"near": 2.0, "far": 1.0})


def test_cost_counts_as_latency() -> None:
    """A region that costs more than the way to another saves is avoided."""
    supply = {"near": Supply(cost_ms=41.0), "far": Supply()}
    assert solve(PlanProblem((demand("a", 1.0, NEAR_FAR),), supply)).flow == {"a": {"far": 1.0}}


def test_batch_is_refused_first_and_real_time_last() -> None:
    """30 requests/s for 10 of capacity, 8 of each tier: all of real time is served, and 2 of near real time."""
    classes = tuple(demand(tier.value, 8.0, {"near": 10.0}, priority=tier) for tier in reversed(TIERS))
    found = solve(PlanProblem(classes, {"near": Supply(rate=10.0)}))
    assert found.shed == pytest.approx({"near_real_time": 6.0, "batch": 8.0})
    assert found.prices["near"] == Knobs().shed_price_ms


def test_a_tier_is_served_whatever_it_costs_lower_ones() -> None:
    """One request of 60 s in real time displaces 600 batch requests of 0.1 s."""
    supply = {"near": Supply(slots=60.0, service_time_s={"chat": 60.0, "embed": 0.1})}
    classes = (
        demand("long", 1.0, {"near": 10.0}),
        demand("short", 600.0, {"near": 10.0}, service="embed", priority=Priority.BATCH),
    )
    found = solve(PlanProblem(classes, supply))
    assert found.shed == pytest.approx({"short": 600.0})


def test_what_may_not_be_refused_queues_at_home() -> None:
    """A service that queues is never shed: what does not fit is part of its flow to its home, and reported."""
    queueing = demand("a", 8.0, {"near": 10.0}, on_overload=OnOverload.QUEUE)
    found = solve(PlanProblem((queueing, demand("b", 8.0, {"near": 10.0})), {"near": Supply(rate=6.0)}))
    assert found.flow == pytest.approx({"a": pytest.approx({"near": 8.0})})
    assert found.shed == pytest.approx({"b": 8.0})
    assert found.queued == pytest.approx({"a": 2.0})
    assert found.unplaced == pytest.approx(2.0)


def quota(**limits: float) -> SpilloverRule:
    """A rule from `near` to `far`."""
    return SpilloverRule("rule", "near", ("far",), **limits)


@pytest.mark.parametrize(
    ("rules", "spilt"),
    [
        ((), 14.0),
        ((quota(max_share=0.3),), 6.0),
        ((quota(max_requests_per_second=5.0),), 5.0),
        ((quota(max_share=0.3), quota(max_requests_per_second=5.0)), 5.0),
        ((quota(max_added_latency_ms=40.0),), 14.0),
        ((quota(max_added_latency_ms=39.0),), 0.0),
        ((quota(), quota(max_added_latency_ms=39.0)), 0.0),
        ((SpilloverRule("rule", "near", ("elsewhere",)),), 0.0),
        ((SpilloverRule("rule", "far", ("near",), 0.0),), 14.0),
        ((quota(max_share=0.0),), 0.0),
    ],
)
def test_quotas_bound_what_leaves_home(rules: tuple[SpilloverRule, ...], spilt: float) -> None:
    """Of 20 requests/s with capacity for 6 at home, what the rules allow spills, and the rest is refused."""
    found = solve(PlanProblem((demand("a", 20.0, NEAR_FAR),), {"near": Supply(rate=6.0)}, rules))
    assert found.flow["a"].get("far", 0.0) == pytest.approx(spilt)
    assert found.shed.get("a", 0.0) == pytest.approx(14.0 - spilt, abs=1e-6)


def test_quotas_are_reported_in_requests() -> None:
    """A share becomes a rate, by the home's demand; one that is used up is named."""
    rules = (quota(max_share=0.3),)
    found = solve(PlanProblem((demand("a", 20.0, NEAR_FAR),), {"near": Supply(rate=6.0)}, rules))
    assert found.quota_rates == pytest.approx({"rule": 6.0})
    assert set(found.binding) == {"near", "rule"}


def test_failover_needs_no_quota() -> None:
    """When the home is down, the class's first region left is its home."""
    found = solve(PlanProblem((demand("a", 20.0, {"far": 50.0}),), {}, (quota(max_share=0.0),)))
    assert found.flow == {"a": {"far": 20.0}}


@pytest.mark.parametrize(
    ("supply", "taken"),
    [
        (Supply(spill_in_rate=3.0), 3.0),
        (Supply(rate=10.0, spill_in_share=0.4), 4.0),
        (Supply(rate=10.0, spill_in_share=0.4, spill_in_rate=3.0), 3.0),
        (Supply(slots=10.0, service_time_s={"chat": 2.0}, spill_in_share=0.4), 2.0),
        (Supply(service_rate={"chat": 10.0}, spill_in_share=0.5), 5.0),
        (Supply(service_slots={"chat": 10.0}, service_time_s={"chat": 2.0}, spill_in_share=0.8), 4.0),
        (Supply(spill_in_share=0.4), 14.0),
        (Supply(spill_in_share=0.0), 0.0),
        (Supply(slots=0.0, service_time_s={"chat": 2.0}), 0.0),
    ],
)
def test_regions_bound_what_they_take_of_others(supply: Supply, taken: float) -> None:
    """Spill-in bounds foreign demand by rate and by the share of each bound; a region that states none has no share."""
    found = solve(PlanProblem((demand("a", 20.0, NEAR_FAR),), {"near": Supply(rate=6.0), "far": supply}))
    assert found.flow["a"].get("far", 0.0) == pytest.approx(taken)
    if taken and "spill_in:far" in found.binding:
        assert found.quota_rates["spill_in:far"] == pytest.approx(taken)


def test_nearly_equal_answers_do_not_flip() -> None:
    """What the plan in force does stays, unless another region is better by more than `keep_ms`."""
    plan = Plan(classes={"a": ClassPlan({"far": 1.0, "gone": 0.5}), "other": ClassPlan({"far": 1.0})})
    for better, region in ((2.0, "far"), (4.0, "near")):
        problem = PlanProblem(
            (demand("a", 5.0, {"near": 50.0 - better, "far": 50.0}), demand("b", 1.0, NEAR_FAR)), {}
        )
        assert solve(problem, plan).flow["a"] == {region: pytest.approx(5.0)}
    assert solve(problem, plan, knobs=Knobs(keep_ms=5.0)).flow["a"] == {"far": pytest.approx(5.0)}


def test_many_regions_need_few_columns() -> None:
    """Where the nearest regions are full, farther ones are found until the answer is optimal."""
    names = [f"r{number:02}" for number in range(30)]
    classes = tuple(
        demand(f"c{n}", 10.0, {name: 10.0 + place for place, name in enumerate(names)}) for n in range(20)
    )
    found = solve(PlanProblem(classes, {name: Supply(rate=10.0) for name in names}))
    served: dict[str, float] = {}
    for flow in found.flow.values():
        for region, rate in flow.items():
            served[region] = served.get(region, 0.0) + rate
    assert served == pytest.approx(dict.fromkeys(names[:20], 10.0))


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (PlanProblem((demand("a", -1.0, NEAR_FAR),), {}), "class `a`: a rate"),
        (PlanProblem((demand("a", float("nan"), NEAR_FAR),), {}), "class `a`: a rate"),
        (PlanProblem((demand("a", 1.0, NEAR_FAR, tenants={"x": -1.0}),), {}), "class `a`: a rate"),
        (PlanProblem((demand("a", 1.0, {"near": float("inf")}),), {}), "class `a`: a latency"),
        (
            PlanProblem((demand("a", 1.0, NEAR_FAR, latency_ms=(1.0,)),), {}),
            "class `a`: 2 regions but 1 latencies",
        ),
        (
            PlanProblem((demand("a", 1.0, NEAR_FAR), demand("a", 2.0, NEAR_FAR)), {}),
            "class `a` is there twice",
        ),
        (PlanProblem((), {"near": Supply(slots=-1.0)}), "region `near`"),
        (PlanProblem((), {"near": Supply(cost_ms=float("nan"))}), "region `near`"),
        (PlanProblem((), {"near": Supply(service_time_s={"chat": float("inf")})}), "region `near`"),
    ],
)
def test_a_problem_without_sense_is_refused(problem: PlanProblem, message: str) -> None:
    """The error says which class or region."""
    with pytest.raises(PlanError, match=message):
        solve(problem)


SHORT = PlanProblem((demand("a", 20.0, NEAR_FAR),), {"near": Supply(rate=6.0), "far": Supply(rate=6.0)})


def test_a_solver_that_is_late_gives_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was stopped is an error, never a plan."""
    monkeypatch.setattr(highspy.Highs, "getModelStatus", lambda _: highspy.HighsModelStatus.kTimeLimit)
    with pytest.raises(PlanError, match="Time limit reached"):
        solve(SHORT)


def test_a_solver_that_is_wrong_gives_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer is checked against the bounds."""
    honest = Simplex.run

    def wrong(self: Simplex, *, primal: bool) -> Optimum:
        found = honest(self, primal=primal)
        return Optimum(np.full_like(found.rate, 1e3), found.dual)

    monkeypatch.setattr(Simplex, "run", wrong)
    with pytest.raises(PlanError, match="numerical trouble"):
        solve(SHORT)


def test_a_spoilt_basis_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ends in numerical trouble is made once more from nothing."""
    honest, told = highspy.Highs.getModelStatus, []

    def first_unknown(self: highspy.Highs) -> highspy.HighsModelStatus:
        told.append(1)
        return highspy.HighsModelStatus.kUnknown if len(told) == 1 else honest(self)

    expected = solve(SHORT)
    monkeypatch.setattr(highspy.Highs, "getModelStatus", first_unknown)
    found = solve(SHORT)
    assert len(told) == 2
    assert found.shed == pytest.approx(expected.shed)


def test_the_example_of_the_documentation() -> None:
    """Frankfurt in docs/planning.md: 25 at home, 12 to Dublin, 2 to Paris, none to Stockholm, and 1 refused."""
    latency = {"frankfurt": 10.0, "paris": 25.0, "dublin": 30.0, "stockholm": 35.0}
    rules = (
        SpilloverRule("to-dublin", "frankfurt", ("dublin",), 0.3, None, 40.0),
        SpilloverRule("to-paris", "frankfurt", ("paris",), None, 2.0),
    )
    supply = {"frankfurt": Supply(slots=100.0, service_time_s={"chat": 4.0})}
    found = solve(PlanProblem((demand("a", 40.0, latency),), supply, rules))
    assert found.flow["a"] == pytest.approx({"frankfurt": 25.0, "dublin": 12.0, "paris": 2.0})
    assert found.shed == pytest.approx({"a": 1.0})
    assert found.quota_rates == pytest.approx({"to-dublin": 12.0, "to-paris": 2.0})
