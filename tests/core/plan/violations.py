"""Whether a solution or a plan keeps every bound, worked out anew and plainly: it shares nothing with the planner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from gtm.core.capacity.supply import Supply
from gtm.core.model.policy import SpilloverRule
from gtm.core.model.state import ClassPlan, Plan
from gtm.core.plan.problem import ClassDemand, PlanProblem, Solution

Flow = Mapping[str, Mapping[str, float]]
"""Class → region → requests per second."""


class BrokenPromise(StrEnum):
    """A promise of the planner that a plan breaks."""

    FENCE = "fence"
    """A flow to a region that is none of the class's."""
    DEMAND = "demand"
    """Served and refused do not make the demand; or weights do not sum to 1."""
    CAPACITY = "capacity"
    SPILL_IN = "spill_in"
    QUOTA = "quota"


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing wrong: where (a class, region or rule), and by how much `limit` is exceeded, in `unit`."""

    breach: BrokenPromise
    where: str
    amount: float
    limit: float
    unit: str = "requests/s"

    def __str__(self) -> str:
        return f"{self.breach} of `{self.where}`: {self.amount:.6g} {self.unit} beyond {self.limit:.6g}"


def violations(problem: PlanProblem, solution: Solution, tolerance: float = 1e-6) -> list[Violation]:
    """What a solution breaks, by more than `tolerance` of the limit (at least of 1). What queues at home is let off."""
    found = list(_fence(problem, solution.flow))
    placed: dict[str, dict[str, float]] = {}
    for one in problem.classes:
        flow = dict(solution.flow.get(one.key, {}))
        served = sum(flow.values()) + solution.shed.get(one.key, 0.0)
        found.append(Violation(BrokenPromise.DEMAND, one.key, abs(served - one.rate), one.rate))
        refused = solution.shed_tenants.get(one.key, {})
        found.append(
            Violation(
                BrokenPromise.DEMAND,
                one.key,
                abs(sum(refused.values()) - solution.shed.get(one.key, 0.0)),
                one.rate,
            )
        )
        if one.key in solution.queued:
            flow[one.regions[0]] -= solution.queued[one.key]
        placed[one.key] = flow
    return _exceeding([*found, *_bounds(problem, placed)], tolerance)


def plan_violations(problem: PlanProblem, plan: Plan, tolerance: float = 1e-6) -> list[Violation]:
    """What a plan's weights break at the problem's demand. Classes that the plan does not know are left out."""
    flow = _plan_flow(problem, plan)
    found = list(_fence(problem, flow))
    found += [
        Violation(BrokenPromise.DEMAND, key, abs(sum(one.weights.values()) - 1), 1, "in weights")
        for key, one in plan.classes.items()
    ]
    return _exceeding([*found, *_bounds(problem, flow)], tolerance)


def _plan_flow(problem: PlanProblem, plan: Plan) -> dict[str, dict[str, float]]:
    """What each region would serve of each class by the plan's weights and shed shares."""
    known = ((one, plan.classes[one.key]) for one in problem.classes if one.key in plan.classes)
    return {
        one.key: {region: weight * _admitted(one, each) for region, weight in each.weights.items()}
        for one, each in known
    }


def _admitted(demand: ClassDemand, plan: ClassPlan) -> float:
    """The rate of a class that a plan does not refuse."""
    total = sum(demand.tenants.values())
    if not plan.tenants or total <= 0:
        return demand.rate * (1 - plan.shed)
    kept = sum(rate * (1 - plan.tenants.get(name, plan.shed)) for name, rate in demand.tenants.items())
    return demand.rate * kept / total


def _exceeding(found: Iterable[Violation], tolerance: float) -> list[Violation]:
    return [one for one in found if not one.amount <= tolerance * max(one.limit, 1.0)]


def _fence(problem: PlanProblem, flow: Flow) -> Iterator[Violation]:
    eligible = {one.key: one.regions for one in problem.classes}
    for key, served in flow.items():
        for region, rate in served.items():
            if region not in eligible.get(key, ()):
                yield Violation(BrokenPromise.FENCE, f"{key} → {region}", rate, 0.0)


def _bounds(problem: PlanProblem, flow: Flow) -> Iterator[Violation]:
    for region, supply in problem.supply.items():
        yield from _region(problem, flow, region, supply)
    for quota in problem.quotas:
        yield from _quota(problem, flow, quota)
    yield from _unled(problem, flow)


def _region(problem: PlanProblem, flow: Flow, region: str, supply: Supply) -> Iterator[Violation]:
    """A region's capacities, and the same times its spill-in share for others' demand."""
    total: dict[str, float] = {}
    away: dict[str, float] = {}
    for one in problem.classes:
        rate = flow.get(one.key, {}).get(region, 0.0)
        total[one.service] = total.get(one.service, 0.0) + rate
        if one.regions and one.regions[0] != region:
            away[one.service] = away.get(one.service, 0.0) + rate
    for breach, rates, share in (
        (BrokenPromise.CAPACITY, total, 1.0),
        (BrokenPromise.SPILL_IN, away, supply.spill_in_share),
    ):
        if share is None:
            continue
        slots = {service: rate * supply.service_time_s.get(service, 0.0) for service, rate in rates.items()}
        uses = [
            (sum(slots.values()), supply.slots, "slots"),
            (sum(rates.values()), supply.rate, "requests/s"),
        ]
        uses += [(slots.get(name, 0.0), bound, "slots") for name, bound in supply.service_slots.items()]
        uses += [(rates.get(name, 0.0), bound, "requests/s") for name, bound in supply.service_rate.items()]
        if share == 0:
            uses.append((sum(rates.values()), 0.0, "requests/s"))
        for used, bound, unit in uses:
            if bound is not None and isfinite(bound):
                yield Violation(breach, region, used - share * bound, share * bound, unit)
    if supply.spill_in_rate is not None:
        limit = supply.spill_in_rate
        yield Violation(BrokenPromise.SPILL_IN, region, sum(away.values()) - limit, limit)


def _quota(problem: PlanProblem, flow: Flow, quota: SpilloverRule) -> Iterator[Violation]:
    """The share, rate and added latency of one rule."""
    of_home = [one for one in problem.classes if one.regions and one.regions[0] == quota.from_region]
    spilt = 0.0
    for one in of_home:
        latency = dict(zip(one.regions, one.latency_ms, strict=True))
        for region, rate in flow.get(one.key, {}).items():
            if region == quota.from_region or region not in quota.to_regions or region not in latency:
                continue
            spilt += rate
            added = latency[region] - one.latency_ms[0]
            if quota.max_added_latency_ms is not None and added > quota.max_added_latency_ms:
                yield Violation(BrokenPromise.QUOTA, quota.name, rate, 0.0)
    demand = sum(one.rate for one in of_home if not one.fixed)
    for limit in (
        quota.max_requests_per_second,
        None if quota.max_share is None else quota.max_share * demand,
    ):
        if limit is not None:
            yield Violation(BrokenPromise.QUOTA, quota.name, spilt - limit, limit)


def _unled(problem: PlanProblem, flow: Flow) -> Iterator[Violation]:
    """Flows from a home with rules to where none of them leads."""
    led: dict[str, set[str]] = {}
    for quota in problem.quotas:
        led.setdefault(quota.from_region, {quota.from_region}).update(quota.to_regions)
    for one in problem.classes:
        home = one.regions[0] if one.regions else ""
        for region, rate in flow.get(one.key, {}).items():
            if home in led and region not in led[home]:
                yield Violation(BrokenPromise.QUOTA, f"{home} → {region}", rate, 0.0)
