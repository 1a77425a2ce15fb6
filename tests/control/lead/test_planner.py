"""The planning loop's tick: from reports to a plan that edges can follow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gtm.control.lead.planner import Inputs, Planner, over_http, same_plan
from gtm.core.capacity.load import Load
from gtm.core.decision.view import Window, view_of
from gtm.core.demand.rows import Row
from gtm.core.model.outcomes import Reason
from gtm.core.model.policy import SpilloverRule
from gtm.core.model.regions import Capacity
from gtm.core.model.requests import Request
from gtm.core.model.services import Steering
from gtm.core.model.state import NO_PLAN, Plan, State
from gtm.core.plan.problem import PlanError
from gtm.core.policy.compile import compile_policy
from tests import worlds
from tests.core.decision.test_choice import BERLIN, NOW, SERVICE, _choice, _ranking, _up
from tests.core.strategies import SHIPPED

REGIONS_OF_10 = worlds.regions("de ie us", capacity=Capacity(requests_per_second=10.0))


def _inputs(rate: float, via: str = "lookup", **changes: object) -> Inputs:
    spill = SpilloverRule("r", "de", ("ie",), max_requests_per_second=4.0)
    view = worlds.view(worlds.policy(*REGIONS_OF_10, SERVICE, spill), State(1, health=_up()), NOW)
    ranking = _ranking(view, Request("chat", BERLIN))
    row = Row("chat", "de", "served", via, ranking.group.key, ranking.cell)
    inputs = Inputs(view.snapshot, view.basis.estimator, view.state, NOW, {row: rate}, {})
    return replace(inputs, **changes)  # type: ignore[arg-type]


def _settled(planner: Planner, inputs: Inputs, ticks: int = 30) -> Plan:
    for second in range(ticks):
        planner.tick(replace(inputs, now=NOW + second, capacity=planner.latest.capacity))
    return planner.latest.plan


def test_a_full_region_spills_what_its_quota_allows() -> None:
    """Above the region's usable rate (10 less the reserve), demand goes next door up to the quota; the rest is shed."""
    inputs = _inputs(12.0)
    plan = _settled(Planner(), inputs)
    (found,) = plan.classes.values()
    assert found.weights == {"de": pytest.approx(9 / 12, abs=0.02), "ie": pytest.approx(3 / 12, abs=0.02)}
    assert found.shed == 0
    (found,) = _settled(Planner(), _inputs(20.0)).classes.values()
    assert found.shed == pytest.approx(7 / 20, abs=0.02)
    view = view_of(inputs.snapshot, State(2, health=_up(), plan=plan), Window(NOW, NOW))
    assert {option.reason for option in _choice(view).options} == {Reason.LOWEST_LATENCY, Reason.SPILLOVER}


def test_nothing_is_planned_away_without_need() -> None:
    """A region with room keeps its own."""
    (found,) = _settled(Planner(), _inputs(5.0)).classes.values()
    assert found.weights == {"de": 1.0}


def test_http_is_leased_what_dns_leaves() -> None:
    """A rate is leased but for what the plan sends by DNS: of 3/s spilled, half. A share is earned, and not leased at all."""
    planner = Planner()
    planner.tick(_inputs(12.0))
    assert planner.latest.leasable["r"] == pytest.approx(4.0)
    (row,) = _inputs(6.0).rates
    planner.tick(_inputs(0.0, rates={row: 6.0, replace(row, via="dns"): 6.0}))
    assert planner.latest.leasable["r"] == pytest.approx(2.5)


def test_what_was_pushed_counts_where_it_came_to() -> None:
    """A DNS answer led 10/s to `de`, which pushed 4 of them to `ie`: it stands for ten requests, and none of them is `ie`'s.

    What `de` says of that changes nothing of what `ie`'s answers stand for: only `ie` takes away from its own.
    """
    (row,) = _inputs(1.0).rates
    loads = {
        (region, "chat"): Load(region, "chat", NOW, 1, requests_per_second=rate)
        for region, rate in (("de", 6.0), ("ie", 4.0))
    }
    answers = {replace(row, region=region, via="dns"): 1.0 for region in ("de", "ie")}
    given = _inputs(0.0, rates=answers)
    found = []
    for beside in (
        {},
        {("chat", "de"): 4.0},
        {("chat", "de"): 4.0, ("chat", "ie"): -4.0},
        {("chat", "de"): 1e12},
    ):
        planner = Planner()
        for second in range(40):
            tick = replace(given, now=NOW + second, capacity=planner.latest.capacity, beside=beside)
            planner.tick(replace(tick, loads=_fresh(loads, NOW + second)))
        found.append([planner.latest.per_answer["chat", region] for region in ("de", "ie")])
    twice = 2 * 0.9 * 10.0
    wanted = ([6, 4], [10, 4], [10, 0], [twice, 4])
    assert found == [pytest.approx(one, rel=0.01, abs=0.02) for one in wanted]


def _fresh(loads: dict[tuple[str, str], Load], now: float) -> dict[tuple[str, str], Load]:
    return {key: replace(load, at=now) for key, load in loads.items()}


@pytest.mark.parametrize("digest", ["", "of a policy of before"])
def test_http_refuses_for_dns(digest: str) -> None:
    """DNS refuses nobody, so of HTTP's requests so many more are refused that the sum is what the plan wants."""
    (row,) = _inputs(10.0).rates
    row = replace(row, ranking_class=row.ranking_class + digest)
    planner = Planner()
    _settled(planner, _inputs(0.0, rates={row: 10.0, replace(row, via="dns"): 10.0}))
    ((key, planned),) = planner.latest.plan.classes.items()
    assert planned.shed == pytest.approx(7 / 20, abs=0.02)
    assert planner.latest.told.classes[key].shed == pytest.approx(14 / 20, abs=0.05)
    assert planner.latest.told.classes[key].weights == planned.weights
    tenants = Plan(classes={key: replace(planned, shed=0.9, tenants={"small": 0.25})})
    told = over_http(tenants, planner.latest.problem, {key: planner.latest.problem.classes[0].rate / 2})
    assert (told.classes[key].shed, told.classes[key].tenants) == (1.0, {"small": 0.5})
    assert over_http(tenants, planner.latest.problem, {}) == tenants


def test_answers_in_dns_are_scaled_by_what_regions_serve() -> None:
    """One answer a second stands for all the requests that a region says it serves."""
    planner = Planner()
    loads = {("de", "chat"): Load("de", "chat", NOW, 1, requests_per_second=12.0)}
    for _ in range(60):
        planner.tick(_inputs(1.0, via="dns", loads=loads))
    assert planner.latest.problem.classes[0].rate == pytest.approx(12.0, rel=0.05)


def test_services_of_fixed_steering_only_take_up_room() -> None:
    """A service with weights is not planned, but what it serves is missing to others."""
    inputs = _inputs(5.0)
    policy = replace(inputs.snapshot.policy, services=(replace(SERVICE, steering=Steering.WEIGHTED),))
    planner = Planner()
    planner.tick(replace(inputs, snapshot=compile_policy(policy, SHIPPED)))
    (pinned,) = planner.latest.problem.classes
    assert (pinned.regions, pinned.rate) == (("de",), 5.0)


def test_a_failing_solver_leaves_the_last_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever keeps a plan from being made, the one before stays, and the tick says what happened."""
    planner = Planner()
    before = _settled(planner, _inputs(12.0))

    def fails(*_: object, **__: object) -> object:
        raise PlanError("the solver gave up")

    monkeypatch.setattr("gtm.control.lead.planner.solve_tick", fails)
    planned = planner.tick(_inputs(12.0))
    assert planned.plan is before
    assert planned.error == "the solver gave up"


def test_plans_that_steer_alike_are_the_same() -> None:
    """When a plan was made and prices that hardly moved are no news; weights and prices that moved are."""
    plan = Plan(1.0, {}, {"de": 100.0})
    assert same_plan(plan, replace(plan, made=2.0, prices={"de": 103.0}))
    assert not same_plan(plan, replace(plan, prices={"de": 120.0}))
    assert not same_plan(plan, replace(plan, prices={}))
    assert not same_plan(plan, NO_PLAN)
    moving = replace(plan, moving={"chat": 1.0})
    assert not same_plan(plan, moving)
    assert same_plan(replace(plan, moving={"chat": 2.0}), moving)


def _loaded(de: float, ie: float, queue: float = 0.0, at: float = NOW) -> dict[tuple[str, str], Load]:
    """What `de` and `ie` report to be outstanding, of ten slots each."""
    return {
        (region, ""): Load(region, "", at, 1, outstanding=busy, limit=10.0, queue=queue)
        for region, busy in (("de", de), ("ie", ie))
    }


@pytest.mark.parametrize(
    ("loads", "refuses"),
    [
        ({}, True),
        (_loaded(2.0, 9.0), False),
        (_loaded(9.0, 2.0), True),  # a quota keeps them from `ie`
        (_loaded(9.0, 9.0), True),
        (_loaded(2.0, 2.0, queue=3.0), True),
        (_loaded(2.0, 2.0, at=NOW - 10.0), True),
    ],
)
def test_nobody_is_refused_whom_a_free_region_would_serve(
    loads: dict[tuple[str, str], Load], *, refuses: bool
) -> None:
    """Whatever edges say is asked of them: a region that reports free slots, and that no quota bounds, serves."""
    planner = Planner()
    given = replace(_inputs(20_000.0), loads=loads)
    for _ in range(10):
        planner.tick(replace(given, capacity=planner.latest.capacity))
    (found,) = planner.latest.plan.classes.values()
    assert bool(found.shed) is refuses


def test_what_a_region_says_that_arrives_counts_for_twice_what_it_can_serve() -> None:
    """A billion requests a second, which one region's reporter makes up, do not become a billion of DNS's clients."""
    (row,) = _inputs(1.0).rates
    given = _inputs(0.0, rates={replace(row, region="de", via="dns"): 1.0})
    loads = {("de", "chat"): Load("de", "chat", NOW, 1, requests_per_second=1e9)}
    planner = Planner()
    for second in range(40):  # the first tick knows no capacity yet, and answers are smoothed
        planner.tick(
            replace(
                given, now=NOW + second, loads=_fresh(loads, NOW + second), capacity=planner.latest.capacity
            )
        )
    assert sum(one.rate for one in planner.latest.problem.classes) <= 2 * 10.0


def test_dns_answers_stand_for_their_requests() -> None:
    """Where one answer stands for a hundred requests, what regions see arrive explains no hundred times as many answers."""
    (row,) = _inputs(1.0).rates
    given = _inputs(0.0, rates={replace(row, region="de", via="dns"): 0.1})
    loads = {("de", "chat"): Load("de", "chat", NOW, 1, requests_per_second=8.0)}
    planner = Planner()
    for second in range(20):
        planner.tick(replace(given, now=NOW + second, loads=_fresh(loads, NOW + second)))
    assert planner.latest.per_decision == pytest.approx(80.0, rel=0.05)
    assert Planner().tick(_inputs(5.0)).per_decision == 1.0
