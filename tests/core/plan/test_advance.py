"""From one plan to the next."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gtm.core.capacity.supply import Supply
from gtm.core.model.policy import SpilloverRule
from gtm.core.model.services import OnOverload, Priority
from gtm.core.model.state import NO_PLAN, ClassPlan, Plan
from gtm.core.plan.advance import advance, rounded
from gtm.core.plan.problem import ClassDemand, Knobs, PlanError, PlanProblem, Solution, plan_flow
from gtm.core.plan.solve import solve
from tests.core.plan.problems import REGIONS, demand, problems
from tests.core.plan.violations import BrokenPromise, plan_violations, violations
from tests.core.strategies import quick

KNOBS = Knobs(free_rate=0.0)
"""Steps as large classes take them."""


def tick(plan: Plan, problem: PlanProblem, now: float = 0.0, knobs: Knobs = KNOBS) -> Plan:
    """One turn of the planning loop."""
    return advance(plan, problem, solve(problem, plan, knobs=knobs), now, knobs=knobs)


def moved(before: ClassPlan, after: ClassPlan) -> float:
    """The share of a class that changed its region."""
    names = before.weights.keys() | after.weights.keys()
    return sum(abs(before.weights.get(name, 0.0) - after.weights.get(name, 0.0)) for name in names) / 2


NEAR_FAR = {"near": 10.0, "far": 50.0}
NEAR = Plan(classes={"a": ClassPlan({"near": 1.0})})


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Any plan, as old or wrong as may be."""
    classes = {}
    for number in range(draw(st.integers(0, 12))):
        shares = draw(st.dictionaries(st.sampled_from((*REGIONS, "gone")), st.integers(1, 20), min_size=1))
        weights = {name: share / sum(shares.values()) for name, share in shares.items()}
        tenants = draw(st.dictionaries(st.sampled_from(("", "clinic")), st.sampled_from((0.0, 0.9))))
        classes[f"class-{number}"] = ClassPlan(weights, draw(st.sampled_from((0.0, 0.0, 0.3, 1.0))), tenants)
    return Plan(0.0, classes)


@given(plans(), problems())
@quick(40)
def test_weights_sum_to_one_inside_the_class(plan: Plan, problem: PlanProblem) -> None:
    """Whatever the plan before, the next one names only the class's regions, and weights sum to 1."""
    after = tick(plan, problem)
    broken = {found.breach for found in plan_violations(problem, after, 1e-9)}
    assert not broken & {BrokenPromise.FENCE, BrokenPromise.DEMAND}
    assert all(0 <= one.shed <= 1 for one in after.classes.values())
    assert all(0 <= share <= 1 for one in after.classes.values() for share in one.tenants.values())
    assert {one.key for one in problem.classes if one.rate > 0 and one.regions} <= after.classes.keys()


@given(plans(), problems())
@quick(50)
def test_refusals_rise_at_once(plan: Plan, problem: PlanProblem) -> None:
    """A class sheds at least what the solution says, and at most one step less than before beyond that."""
    solution = solve(problem, plan)
    after = advance(plan, problem, solution, 0.0, knobs=KNOBS)
    for one in problem.classes:
        if one.rate > 0 and one.regions:
            wanted = solution.shed.get(one.key, 0.0) / one.rate
            before = plan.classes.get(one.key, ClassPlan({})).shed
            expected = max(wanted, before - KNOBS.release_step)
            assert after.classes[one.key].shed == pytest.approx(expected, abs=1e-9)


SCARCE = PlanProblem(
    (demand("a", 5.2, {"a": 10.0}, tenants={"": 2.3, "clinic": 2.9}),),
    {"a": Supply(0.1, service_time_s={"chat": 2.0})},
)
"""One request in a hundred can be served: tenants' shares of refusals differ by less than a thousandth, and that matters."""


@example(SCARCE)
@given(problems())
@quick(40)
def test_first_plans_are_the_solution(problem: PlanProblem) -> None:
    """Nothing is in force: classes start at their target, and keep every bound but for what is rounded away."""
    solution = solve(problem)
    after = advance(NO_PLAN, problem, solution, 5.0, knobs=KNOBS)
    assert after.made == 5.0
    assert after.prices == solution.prices
    for key, flow in plan_flow(problem, after).items():
        everything = sum(solution.flow.get(key, {}).values())
        for region in flow.keys() | solution.flow.get(key, {}).keys():
            expected = solution.flow.get(key, {}).get(region, 0.0)
            assert flow.get(region, 0.0) == pytest.approx(expected, abs=0.05 * everything + 1e-6)


@given(problems(), problems())
@quick(25)
def test_a_problem_that_stands_still_is_reached_without_oscillation(
    first: PlanProblem, second: PlanProblem
) -> None:
    """From the plan of another problem the target is reached in at most 30 ticks, and then nothing moves any more."""
    plan = tick(NO_PLAN, first)
    for _ in range(30):
        plan = tick(plan, second)
    solution = solve(second, plan)
    after = advance(plan, second, solution, 0.0, knobs=KNOBS)
    for one in second.classes:
        if one.rate <= 0 or not one.regions:
            continue
        assert after.classes[one.key].weights == plan.classes[one.key].weights
        flow = solution.flow.get(one.key, {})
        if flow:
            target = ClassPlan({name: rate / sum(flow.values()) for name, rate in flow.items()})
            assert moved(after.classes[one.key], target) <= 0.05


def at_once(one: ClassDemand, before: ClassPlan | None, solution: Solution) -> dict[str, float]:
    """A class's weights before its step: what it has in regions that it lost is where it goes already."""
    known = {} if before is None else before.weights
    kept = {name: share for name, share in known.items() if name in one.regions}
    target = rounded(solution.flow.get(one.key, {}), {}, KNOBS.least_weight)
    target = target or rounded(kept, {}, 0.0) or {one.regions[0]: 1.0}
    lost = 1 - sum(kept.values())
    return {name: kept.get(name, 0.0) + lost * target.get(name, 0.0) for name in {*kept, *target}}


LOSING = (
    PlanProblem(
        (
            demand("class-0", 10.0, {"g": 1.0, "a": 10.0}),
            demand("class-1", 4.0, {"a": 1.0, "c": 10.0}, service="embed"),
        ),
        {"g": Supply(rate=5.0), "a": Supply(rate=7.0)},
    ),
    PlanProblem(
        (
            demand("class-0", 10.0, {"a": 1.0, "c": 9.0}),
            demand("class-1", 4.0, {"c": 1.0, "a": 90.0}, service="embed"),
        ),
        {"a": Supply(rate=8.0, service_rate={"chat": 6.0})},
    ),
)
"""A class loses `g`, with which `a` would have too much for a moment, so that the other class leaves it by a large step."""


@given(problems(), problems())
@example(*LOSING)
@quick(40)
def test_steps_are_bounded(first: PlanProblem, second: PlanProblem) -> None:
    """A class without failed regions moves at most the larger step; the small one where no bound is broken."""
    plan = tick(NO_PLAN, first)
    solution = solve(second, plan, knobs=KNOBS)
    after = advance(plan, second, solution, 0.0, knobs=KNOBS)
    # With what is refused from now on: a share refused that falls lets more through.
    admits = {
        key: replace(one, shed=now.shed, tenants=now.tenants)
        for key, one in plan.classes.items()
        if (now := after.classes.get(key)) is not None
    }
    # Classes that are new, or lost a region, begin where they go at once: with them a bound may be broken, too.
    begun = {
        one.key: replace(now, weights=at_once(one, plan.classes.get(one.key), solution))
        for one in second.classes
        if (now := after.classes.get(one.key)) is not None
        and (one.key not in plan.classes or not plan.classes[one.key].weights.keys() <= set(one.regions))
    }
    broken = any(
        found.breach is not BrokenPromise.FENCE
        for held in (plan, replace(plan, classes=plan.classes | admits | begun))
        for found in plan_violations(second, held, 1e-9)
    )
    most = KNOBS.overload_step if broken else KNOBS.max_step
    for one in second.classes:
        before = plan.classes.get(one.key)
        if before is None or one.rate <= 0 or not before.weights.keys() <= set(one.regions):
            continue
        rounding = KNOBS.least_weight * len(one.regions)
        assert moved(before, after.classes[one.key]) <= most + rounding


@given(problems(), problems())
@quick(40)
def test_no_step_makes_a_bound_worse_than_both_its_ends(first: PlanProblem, second: PlanProblem) -> None:
    """On the way from one plan to another, no bound is broken by more than before or at the target."""
    sheds = Knobs(release_step=1.0, least_weight=0.0, hysteresis=0.0, free_rate=0.0)
    open_classes = tuple(replace(one, on_overload=OnOverload.SHED) for one in second.classes)
    second = replace(second, classes=open_classes)
    plan = tick(NO_PLAN, first, knobs=sheds)
    known = {one.key: set(one.regions) for one in second.classes}
    if any(not one.weights.keys() <= known.get(key, set()) for key, one in plan.classes.items()):
        return
    after = tick(plan, second, knobs=sheds)
    before = Plan(
        0.0,
        {key: replace(one, weights=plan.classes.get(key, one).weights) for key, one in after.classes.items()},
    )
    allowed = sum(max(found.amount, 0.0) for found in plan_violations(second, before, 0.0))
    for found in plan_violations(second, after, 0.011):
        assert found.amount <= allowed + 0.011 * max(found.limit, 1.0)


def test_moves_take_several_ticks() -> None:
    """A better region gets a tenth more of the class each tick."""
    problem = PlanProblem((demand("a", 5.0, {"far": 10.0, "near": 50.0}),), {})
    plan, shares = NEAR, []
    for _ in range(11):
        plan = tick(plan, problem)
        shares.append(plan.classes["a"].weights.get("far", 0.0))
    assert shares == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0])


def test_small_changes_wait() -> None:
    """Moves below the hysteresis are not made, unless a bound is broken."""
    problem = PlanProblem((demand("a", 100.0, NEAR_FAR),), {"near": Supply(rate=99.5)})
    assert tick(NEAR, problem).classes == NEAR.classes
    problem = PlanProblem((demand("a", 100.0, NEAR_FAR),), {"near": Supply(rate=98.5)})
    assert tick(NEAR, problem).classes["a"].weights == pytest.approx({"near": 0.985, "far": 0.015})


def test_a_failed_region_loses_all_at_once() -> None:
    """What it had goes to the target's regions; the others keep theirs, and step as always."""
    plan = Plan(classes={"a": ClassPlan({"dead": 0.7, "far": 0.3})})
    after = tick(plan, PlanProblem((demand("a", 5.0, NEAR_FAR),), {}))
    assert after.classes["a"].weights == pytest.approx({"near": 0.8, "far": 0.2})


def test_overload_is_left_in_larger_steps() -> None:
    """A region that lost capacity is relieved by half of a class each tick, and meanwhile nobody else slows it."""
    problem = PlanProblem((demand("a", 10.0, NEAR_FAR),), {"near": Supply(rate=1.0)})
    plan = tick(NEAR, problem)
    assert plan.classes["a"].weights == pytest.approx({"near": 0.5, "far": 0.5})
    assert tick(plan, problem).classes["a"].weights == pytest.approx({"near": 0.1, "far": 0.9})


def test_a_new_rule_takes_effect_in_larger_steps() -> None:
    """Weights where a rule forbids them, or beyond its share, count as overload."""
    plan = Plan(classes={"a": ClassPlan({"far": 1.0})})
    for rule in (
        SpilloverRule("r", "near", ("far",), max_share=0.0),
        SpilloverRule("r", "near", ("elsewhere",)),
    ):
        after = tick(plan, PlanProblem((demand("a", 5.0, NEAR_FAR),), {}, (rule,)))
        assert after.classes["a"].weights == pytest.approx({"near": 0.5, "far": 0.5})


def test_classes_that_meet_in_one_place_step_together() -> None:
    """The room of one is what another leaves: alone, the first would be there before the other is gone."""
    supply = {"near": Supply(rate=10.0), "mid": Supply(rate=10.0)}
    classes = (
        demand("leaves", 10.0, {"far": 5.0, "near": 100.0}),
        demand("comes", 100.0, {"near": 10.0, "other": 50.0}),
    )
    plan = Plan(classes={"leaves": ClassPlan({"near": 1.0}), "comes": ClassPlan({"other": 1.0})})
    problem = PlanProblem(classes, supply)
    for _ in range(12):
        plan = tick(plan, problem)
        assert plan_violations(problem, plan, 0.011) == []
    assert plan.classes["leaves"].weights == {"far": 1.0}
    assert plan.classes["comes"].weights == pytest.approx({"near": 0.1, "other": 0.9}, abs=0.02)


def test_refusals_fall_by_steps() -> None:
    """When there is capacity again, a tenth of the class comes back each tick; its tenants likewise."""
    shedding = Plan(classes={"a": ClassPlan({"near": 1.0}, 0.25, {"p": 0.5})})
    problem = PlanProblem((demand("a", 10.0, NEAR_FAR, tenants={"p": 4.0, "q": 6.0, "r": 0.0}),), {})
    shares = []
    for _ in range(5):
        shedding = tick(shedding, problem)
        one = shedding.classes["a"]
        shares.append((round(one.shed, 6), {name: round(share, 6) for name, share in one.tenants.items()}))
    assert shares == [
        (0.15, {"p": 0.4}),
        (0.05, {"p": 0.3}),
        (0.0, {"p": 0.2}),
        (0.0, {"p": 0.1}),
        (0.0, {}),
    ]


def test_tenants_beyond_their_share_are_named() -> None:
    """Those whose share differs from the class's."""
    problem = PlanProblem(
        (demand("a", 20.0, {"near": 1.0}, tenants={"p": 16.0, "q": 4.0}),), {"near": Supply(rate=10.0)}
    )
    one = tick(NO_PLAN, problem).classes["a"]
    assert one.shed == pytest.approx(0.5)
    assert one.tenants == pytest.approx({"p": 10 / 16, "q": 0.0}, abs=1e-6)


def test_a_class_that_is_refused_whole_keeps_its_weights() -> None:
    """Whoever gets through all the same goes where the class went; a new class, to its home."""
    problem = PlanProblem((demand("a", 5.0, NEAR_FAR),), {"near": Supply(rate=0.0), "far": Supply(rate=0.0)})
    assert tick(NO_PLAN, problem).classes["a"] == ClassPlan({"near": 1.0}, 1.0)
    far = Plan(classes={"a": ClassPlan({"far": 0.75, "gone": 0.25})})
    assert tick(far, problem).classes["a"] == ClassPlan({"far": 1.0}, 1.0)


def test_classes_without_demand_keep_their_plan_for_a_while() -> None:
    """Half a minute, without regions that are gone; then they are dropped."""
    plan = Plan(
        classes={
            "silent": ClassPlan({"near": 0.5, "gone": 0.5}, 0.25),
            "zero": ClassPlan({"near": 0.5, "far": 0.5}),
            "lost": ClassPlan({"gone": 1.0}),
        }
    )
    problem = PlanProblem((demand("zero", 0.0, {"far": 5.0}),), {"near": Supply()})
    plan = tick(plan, problem, 100.0)
    assert plan.classes == {"silent": ClassPlan({"near": 1.0}, 0.15), "zero": ClassPlan({"far": 1.0})}
    assert plan.idle == {"silent": 100.0, "zero": 100.0}
    plan = tick(plan, problem, 129.0)
    assert plan.idle == {"silent": 100.0, "zero": 100.0}
    back = PlanProblem((demand("zero", 1.0, {"far": 5.0}),), {"near": Supply()})
    assert tick(plan, back, 129.0).idle == {"silent": 100.0}
    assert tick(plan, problem, 130.0).classes == {}


def test_small_weights_are_rounded_away_unless_they_grow() -> None:
    """Below half a percent nothing stays; what is on its way up may begin small."""
    solution = Solution({"a": {"near": 99.6, "far": 0.4}}, {}, {}, {}, {}, ())
    problem = PlanProblem((demand("a", 100.0, NEAR_FAR),), {})
    assert advance(NO_PLAN, problem, solution, 0.0, knobs=KNOBS).classes["a"].weights == {"near": 1.0}
    growing = Solution({"a": {"near": 80.0, "far": 20.0}}, {}, {}, {}, {}, ())
    slow = Knobs(max_step=0.002, free_rate=0.0)
    assert advance(NEAR, problem, growing, 0.0, knobs=slow).classes["a"].weights == pytest.approx(
        {"near": 0.998, "far": 0.002}
    )


def test_a_problem_without_sense_is_refused() -> None:
    """As by `solve`."""
    with pytest.raises(PlanError, match="a rate"):
        advance(
            NO_PLAN,
            PlanProblem((demand("a", float("inf"), NEAR_FAR),), {}),
            Solution({}, {}, {}, {}, {}, ()),
            0.0,
        )


def test_the_check_finds_what_is_wrong() -> None:
    """Each kind of breach, with its amount."""
    problem = PlanProblem(
        (demand("a", 10.0, NEAR_FAR), demand("b", 10.0, {"far": 1.0}), demand("none", 1.0, {})),
        {"near": Supply(rate=2.0, slots=1.0, service_time_s={"chat": 1.0}), "far": Supply(spill_in_rate=1.0)},
        (SpilloverRule("r", "near", ("far",), 0.2, None, 30.0), SpilloverRule("s", "far", ("near",))),
    )
    flow = {"a": {"near": 4.0, "far": 5.0}, "b": {"far": 9.0, "elsewhere": 1.0}}
    found = violations(problem, Solution(flow, {"none": 1.0}, {"none": {"": 0.5}}, {}, {}, ()))
    assert [(one.breach, one.where, one.amount) for one in found] == [
        (BrokenPromise.FENCE, "b → elsewhere", 1.0),
        (BrokenPromise.DEMAND, "a", 1.0),
        (BrokenPromise.DEMAND, "none", 0.5),
        (BrokenPromise.CAPACITY, "near", 3.0),
        (BrokenPromise.CAPACITY, "near", 2.0),
        (BrokenPromise.SPILL_IN, "far", 4.0),
        (BrokenPromise.QUOTA, "r", 5.0),
        (BrokenPromise.QUOTA, "r", 3.0),
        (BrokenPromise.QUOTA, "far → elsewhere", 1.0),
    ]
    assert str(found[3]) == "capacity of `near`: 3 slots beyond 1"
    plan = Plan(classes={"a": ClassPlan({"near": 0.5}, 0.5, {"p": 0.0}), "gone": ClassPlan({"near": 1.0})})
    broken = plan_violations(replace(problem, quotas=()), plan)
    assert [(one.breach, one.amount) for one in broken] == [
        (BrokenPromise.DEMAND, 0.5),
        (BrokenPromise.CAPACITY, 1.5),
        (BrokenPromise.CAPACITY, 0.5),
    ]


def test_the_check_counts_tenants_own_shares() -> None:
    """A plan that refuses one tenant more than the others lets that much less through."""
    problem = PlanProblem((demand("a", 10.0, NEAR_FAR, tenants={"p": 5.0, "q": 5.0}),), {})
    plan = Plan(classes={"a": ClassPlan({"near": 1.0}, 0.2, {"p": 1.0})})
    assert plan_flow(problem, plan) == {"a": {"near": pytest.approx(4.0)}}


def test_a_class_of_hardly_any_requests_goes_at_once() -> None:
    """Nobody feels a single request a second that moves: small classes follow the target, large ones by steps."""
    for rate, share in ((0.5, 1.0), (4.0, 0.25), (100.0, 0.1)):
        demand = ClassDemand("a", "chat", Priority.REAL_TIME, ("near", "far"), (10.0, 20.0), rate, {"": rate})
        problem = PlanProblem((demand,), {"near": Supply(), "far": Supply()})
        before = Plan(0.0, {"a": ClassPlan({"far": 1.0})})
        after = advance(before, problem, solve(problem), 1.0)
        assert after.classes["a"].weights["near"] == pytest.approx(share)


def test_a_service_moves_until_its_traffic_has_settled() -> None:
    """From the first tick that leaves a class on its way, a service is moving; some seconds after the last, it is not."""
    calm = PlanProblem((demand("a", 100.0, NEAR_FAR),), {"near": Supply(rate=200.0), "far": Supply()})
    short = replace(calm, supply={**calm.supply, "near": Supply(rate=60.0, cost_ms=100.0)})
    plan, now, seen = tick(NEAR, calm), 0.0, []
    assert plan.moving == {}
    for _ in range(40):
        now += 1.0
        plan = tick(plan, short, now)
        seen.append("chat" in plan.moving)
    settled = seen.index(False)
    assert seen == [True] * settled + [False] * (40 - settled)
    assert KNOBS.settle_s < settled < KNOBS.settle_s + 15
    assert plan.classes["a"].weights == {"far": 1.0}


def test_what_moves_in_one_step_is_not_moving() -> None:
    """A change that is done within its tick leaves nothing on its way: noise makes no service move."""
    calm = PlanProblem((demand("a", 100.0, NEAR_FAR),), {"near": Supply(rate=200.0), "far": Supply()})
    tight = replace(calm, supply={**calm.supply, "near": Supply(rate=94.0)})
    after = tick(NEAR, tight, 1.0)
    assert after.classes["a"].weights["far"] == pytest.approx(0.06)
    assert after.moving == {}


def test_a_clock_that_steps_back_leaves_nothing_moving_for_ever() -> None:
    """What moved at a time that has not come yet is settled."""
    calm = PlanProblem((demand("a", 100.0, NEAR_FAR),), {"near": Supply(rate=200.0), "far": Supply()})
    assert tick(replace(NEAR, moving={"chat": 100.0}), calm, 50.0).moving == {}
    assert tick(replace(NEAR, moving={"chat": 45.0}), calm, 50.0).moving == {"chat": 45.0}


@given(problems(), problems())
@quick(12)
def test_nothing_moves_for_ever(first: PlanProblem, second: PlanProblem) -> None:
    """Once a problem stands still its services settle, whatever the plan before."""
    knobs = replace(KNOBS, settle_s=2.0)
    plan = tick(NO_PLAN, first)
    for second_number in range(34):
        plan = tick(plan, second, float(second_number), knobs)
    assert plan.moving == {}
