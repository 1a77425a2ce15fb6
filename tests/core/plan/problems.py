"""Random questions to the planner, and a plain reference formulation to judge its answers by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gtm.core.capacity.supply import Supply
from gtm.core.model.policy import SpilloverRule
from gtm.core.model.services import OnOverload, Priority
from gtm.core.plan.problem import ClassDemand, PlanProblem

REGIONS = tuple("abcdefg")
SERVICES = {"chat": 2.0, "embed": 0.1, "rank": 0.5}
TENANTS = ("", "clinic", "bank", "shop")
TIERS = tuple(Priority)


def demand(key: str, rate: float, latency: dict[str, float], **changes: Any) -> ClassDemand:
    """A class of the service `chat`, real time unless said otherwise."""
    made = ClassDemand(key, "chat", Priority.REAL_TIME, tuple(latency), tuple(latency.values()), rate)
    return replace(made, **changes)


def _tenths(least: int, most: int) -> st.SearchStrategy[float]:
    return st.integers(least, most).map(lambda value: value / 10)


@st.composite
def class_demands(draw: st.DrawFn, number: int, tenants: tuple[str, ...]) -> ClassDemand:
    """One class: regions in any order, latencies in whole ms."""
    regions = tuple(draw(st.lists(st.sampled_from(REGIONS), max_size=len(REGIONS), unique=True)))
    parts = draw(st.dictionaries(st.sampled_from(tenants), _tenths(0, 300), max_size=len(tenants)))
    rate = sum(parts.values()) or draw(_tenths(0, 400))
    return ClassDemand(
        key=f"class-{number}",
        service=draw(st.sampled_from(sorted(SERVICES))),
        priority=draw(st.sampled_from(TIERS)),
        regions=regions,
        latency_ms=tuple(float(draw(st.integers(1, 300))) for _ in regions),
        rate=rate,
        tenants=parts if sum(parts.values()) else {},
        on_overload=draw(st.sampled_from((OnOverload.SHED, OnOverload.SHED, OnOverload.QUEUE))),
        fixed=len(regions) == 1 and draw(st.booleans()),
    )


@st.composite
def supplies(draw: st.DrawFn) -> Supply:
    """One region's supply; each bound may be absent."""
    bound = st.none() | _tenths(0, 600)
    by_service = st.dictionaries(st.sampled_from(sorted(SERVICES)), _tenths(0, 300), max_size=2)
    return Supply(
        slots=draw(bound),
        rate=draw(bound),
        service_slots=draw(by_service),
        service_rate=draw(by_service),
        service_time_s={
            name: round(time * draw(st.sampled_from((0.8, 1.0, 1.25))), 3)
            for name, time in SERVICES.items()
            if draw(st.integers(0, 9))
        },
        cost_ms=draw(st.sampled_from((0.0, 0.0, 10.0, 50.0))),
        spill_in_rate=draw(st.none() | st.none() | _tenths(0, 200)),
        spill_in_share=draw(st.none() | st.none() | st.sampled_from((0.0, 0.2, 0.5))),
    )


@st.composite
def quotas(draw: st.DrawFn) -> tuple[SpilloverRule, ...]:
    """A few rules; several may have the same home and regions."""
    rules = []
    for number in range(draw(st.integers(0, 4))):
        home = draw(st.sampled_from(REGIONS))
        to = draw(st.lists(st.sampled_from(REGIONS), min_size=1, max_size=4, unique=True))
        rules.append(
            SpilloverRule(
                f"rule-{number}",
                home,
                tuple(name for name in to if name != home),
                draw(st.none() | st.sampled_from((0.0, 0.1, 0.5, 1.0))),
                draw(st.none() | _tenths(0, 200)),
                draw(st.none() | st.sampled_from((0.0, 40.0, 150.0))),
            )
        )
    return tuple(rules)


@st.composite
def problems(draw: st.DrawFn, *, tenants: tuple[str, ...] = TENANTS, most: int = 12) -> PlanProblem:
    """A whole question."""
    classes = tuple(draw(class_demands(number, tenants)) for number in range(draw(st.integers(0, most))))
    supply = {name: draw(supplies()) for name in REGIONS if draw(st.integers(0, 7))}
    weights = draw(st.dictionaries(st.sampled_from(TENANTS), st.sampled_from((0.5, 1.0, 3.0)), max_size=3))
    return PlanProblem(classes, supply, draw(quotas()), weights)


def columns(problem: PlanProblem) -> list[tuple[ClassDemand, str]]:
    """Every class with every region that no spillover rule forbids."""
    found = []
    for one in problem.classes:
        for region, latency in zip(one.regions, one.latency_ms, strict=True):
            home = one.regions[0]
            rules = [rule for rule in problem.quotas if rule.from_region == home]
            leading = [rule for rule in rules if region in rule.to_regions]
            added = [rule.max_added_latency_ms for rule in leading if rule.max_added_latency_ms is not None]
            if (
                region == home
                or not rules
                or (leading and latency - one.latency_ms[0] <= min(added, default=1e9))
            ):
                found.append((one, region))
    return found


def bounds(
    problem: PlanProblem, pairs: list[tuple[ClassDemand, str]]
) -> tuple[list[list[float]], list[float]]:
    """Every bound as a dense row over the columns, written out one by one."""
    rows: list[list[float]] = []
    limits: list[float] = []

    def add(uses: list[float], limit: float | None) -> None:
        if limit is not None:
            rows.append(uses)
            limits.append(limit)

    for name, supply in problem.supply.items():
        here = [float(region == name) for _, region in pairs]
        away = [float(region == name != one.regions[0]) for one, region in pairs]
        time = [supply.service_time_s.get(one.service, 0.0) for one, _ in pairs]
        add(away, supply.spill_in_rate)
        if supply.spill_in_share == 0:
            add(away, 0.0)
        for mask, share in ((here, 1.0), (away, supply.spill_in_share)):
            if share is None:
                continue
            held = [m * t for m, t in zip(mask, time, strict=True)]
            add(held, None if supply.slots is None else share * supply.slots)
            add(mask, None if supply.rate is None else share * supply.rate)
            for service, limit in supply.service_slots.items():
                add(
                    [h * (one.service == service) for h, (one, _) in zip(held, pairs, strict=True)],
                    share * limit,
                )
            for service, limit in supply.service_rate.items():
                add(
                    [m * (one.service == service) for m, (one, _) in zip(mask, pairs, strict=True)],
                    share * limit,
                )
    for rule in problem.quotas:
        uses = [
            float(one.regions[0] == rule.from_region != region and region in rule.to_regions)
            for one, region in pairs
        ]
        demand = sum(
            one.rate for one in problem.classes if one.regions[:1] == (rule.from_region,) and not one.fixed
        )
        add(uses, rule.max_requests_per_second)
        add(uses, None if rule.max_share is None else rule.max_share * demand)
    return rows, limits


def reference(
    problem: PlanProblem, cost: Mapping[str, float], refused: Mapping[str, float], latency: float
) -> tuple[float, dict[str, float]]:
    """Least cost, all columns at once, and what stays unserved.

    Args:
        problem: the question.
        cost: of leaving a request of a class unserved, 0 where not named.
        refused: how much of a class may stay unserved; all of it where not named.
        latency: what a ms of latency or cost costs.
    """
    from scipy.optimize import linprog  # half a second that collecting tests is spared

    classes = [one for one in problem.classes if one.regions]
    pairs = columns(problem)
    if not classes:
        return 0.0, {}
    rows, limits = bounds(problem, pairs)
    costs = [
        latency * (one.latency_ms[one.regions.index(region)] + problem.supply.get(region, Supply()).cost_ms)
        for one, region in pairs
    ]
    demand = np.array(
        [
            [float(one is each) for each, _ in pairs] + [float(one is each) for each in classes]
            for one in classes
        ]
    )
    found = linprog(
        costs + [cost.get(one.key, 0.0) for one in classes],
        np.array([row + [0.0] * len(classes) for row in rows]) if rows else None,
        limits or None,
        demand,
        [one.rate for one in classes],
        [(0, None)] * len(pairs) + [(0, refused.get(one.key, one.rate)) for one in classes],
        method="highs",
    )
    assert found.status == 0, found.message
    return found.fun, {one.key: left for one, left in zip(classes, found.x[len(pairs) :], strict=True)}
