"""The best plan for one tick: least latency and cost within every bound, and who is refused when all does not fit.

Laws:
  1. No flow leaves a class's regions; none exceeds a bound. What does not fit is refused or, where the service says
     so, queues at home.
  2. A tier is served before any lower one: as little of it as possible is refused, whatever that costs lower tiers.
  3. Inside a tier no tenant within its fair share is refused for one beyond it.
  4. Then latency and cost are least. A flow of the previous plan wins against others that are hardly better.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gtm.core.model import OnOverload, Priority
from gtm.core.plan.fairness import Tenants, fair_shares, groups, split
from gtm.core.plan.knobs import DEFAULT_KNOBS, Knobs
from gtm.core.plan.lp import Answer, Parts, Programme
from gtm.core.plan.model import Model, build
from gtm.core.plan.problem import Problem, Solution
from gtm.core.plan.report import binding, prices, quota_rates
from gtm.core.plan.rows import Flags, Floats, Ints
from gtm.core.state import Plan

_TIER = {Priority.REAL_TIME: 0, Priority.NEAR_REAL_TIME: 1, Priority.BATCH: 2}
_REFUSAL = (
    1e3  # of the largest difference between two regions: what refusing one request costs in the lowest tier
)
_TIER_RATIO = 4.0
_QUEUE_RATIO = (
    1.5  # refusing takes load off a region and queueing does not, so inside a tier queues come last
)
_FAIR_RATIO = 16.0
_WORK_RATIO = 64.0
_ROUNDS = 4
_AGREED = 1e-4
_ROUNDING = 1e-7


@dataclass(frozen=True, slots=True)
class _Placed:
    """An answer, what it leaves unserved by class, and each tenant's rate within its fair share, class by class."""

    answer: Answer
    unserved: Floats
    within: Floats


def solve(problem: Problem, previous: Plan | None = None, *, knobs: Knobs = DEFAULT_KNOBS) -> Solution:
    """Answer one tick's question.

    Args:
        problem: demand, supply and quotas.
        previous: the plan in force: among nearly equal answers, the one closest to it is taken.
        knobs: `keep_ms`, `shed_price_ms` and `time_limit_s` matter here.

    Raises:
        PlanError: the problem makes no sense, or the solver failed. The plan in force stays.
    """
    model = build(problem)
    nowhere = [one for one in problem.classes if one.rate > 0 and not one.regions]
    shed = {one.key: one.rate for one in nowhere}
    shed_tenants = {one.key: dict(one.tenants or {"": one.rate}) for one in nowhere}
    if not model.classes:
        none = dict.fromkeys(model.regions, 0.0)
        return Solution({}, shed, shed_tenants, none, {}, ())
    tenants = Tenants.of(model, problem.tenant_weights)
    placed = _place(Programme.of(model, _kept(model, previous), knobs), tenants)
    flow, served = _clean(model, placed)
    queued: dict[str, float] = {}
    for number in np.flatnonzero(placed.unserved).tolist():
        one, missing = model.classes[number], float(placed.unserved[number])
        if one.on_overload is OnOverload.QUEUE:
            queued[one.key] = missing
        else:
            shed[one.key] = missing
            shed_tenants[one.key] = split(tenants, placed.within, number, float(served[number]))
    return Solution(
        flow=_by_name(model, flow, queued),
        shed=shed,
        shed_tenants=shed_tenants,
        prices=prices(model, placed.answer, knobs.shed_price_ms),
        quota_rates=quota_rates(model, flow),
        binding=binding(model, flow),
        queued=queued,
    )


def _kept(model: Model, previous: Plan | None) -> Floats:
    """The rate of each column that the previous plan would send today."""
    kept = np.zeros(len(model.cost))
    if previous is not None:
        ends = np.append(model.offsets, len(kept))
        regions = model.columns.regions
        number = {name: index for index, name in enumerate(model.regions)}
        for index, one in enumerate(model.classes):
            plan = previous.classes.get(one.key)
            if plan is None:
                continue
            mine = regions[ends[index] : ends[index + 1]]
            for name, weight in plan.weights.items():
                kept[ends[index] + np.flatnonzero(mine == number.get(name, -1))] = weight * one.rate
    return kept


def _place(programme: Programme, tenants: Tenants) -> _Placed:
    """Place everything if it fits; if not, tier by tier from the highest one that does not fit."""
    model = programme.model
    tier = np.array([_TIER[one.priority] for one in model.classes])
    everyone = np.arange(len(tier))
    cost = _refusal_costs(programme, tier)
    placed = _solved(programme, model.rate, Parts(everyone, model.rate, cost), tenants.rate)
    short = placed.unserved > 0
    if not short.any():
        return placed
    top, last = int(tier[short].min()), int(tier.max())
    allowed = np.where(tier < top, _slack(model), model.rate)
    for level in sorted({*tier[tier >= top].tolist()}):
        demand = np.where(tier <= level, model.rate, 0.0)
        parts = Parts(everyone, np.minimum(allowed, demand), cost)
        if not level == top == last:
            placed = _solved(programme, demand, parts, placed.within)
        placed = _share(programme, tenants, placed, tier == level, parts)
        allowed = np.where(tier == level, placed.unserved + _slack(model), allowed)
    return placed


def _share(programme: Programme, tenants: Tenants, placed: _Placed, tier: Flags, parts: Parts) -> _Placed:
    """Share what a tier is served among its tenants.

    What is within a tenant's fair share costs more to refuse than what is beyond, so capacity that some cannot use
    goes to others. That may split a group, and change the shares: then again, until shares and rates agree.
    """
    model = programme.model
    demand = np.where(parts.most > 0, model.rate, 0.0)
    for _ in range(_ROUNDS):
        competing = groups(model, placed.answer, placed.unserved, tier)
        if not any(len(np.unique(tenants.of_classes(group.members))) > 1 for group in competing):
            return placed
        served = model.rate - placed.unserved
        base = np.where(tier[tenants.classes], tenants.rate, placed.within)
        placed = replace(placed, within=fair_shares(model, tenants, competing, served, base))
        fair = np.minimum(np.bincount(tenants.classes, placed.within, minlength=len(tier)), model.rate)
        if (np.abs(fair - served)[tier] <= _AGREED * model.rate[tier]).all():
            return placed
        mine = np.flatnonzero(tier)
        work = model.work[mine]
        shortest = work[work > 0].min(initial=np.inf)
        dear = parts.cost[mine] * _FAIR_RATIO * np.clip(work / shortest, 1.0, _WORK_RATIO)
        both = Parts(
            np.concatenate((parts.classes, mine)),
            np.concatenate((np.where(tier, model.rate - fair, parts.most), fair[mine])),
            np.concatenate((parts.cost, dear)),
        )
        placed = _solved(programme, demand, both, placed.within)
    return placed


def _solved(programme: Programme, demand: Floats, parts: Parts, within: Floats) -> _Placed:
    """One run of the linear programme, without the solver's rounding in what is unserved."""
    answer = programme.solve(demand, parts)
    unserved = np.bincount(parts.classes, answer.unserved, minlength=len(demand))
    return _Placed(answer, np.where(unserved > _ROUNDING * np.maximum(demand, 1.0), unserved, 0.0), within)


def _refusal_costs(programme: Programme, tier: Ints) -> Floats:
    """What a request costs that is not served, in ms."""
    queues = np.array([one.on_overload is OnOverload.QUEUE for one in programme.model.classes])
    return _REFUSAL * programme.span * _TIER_RATIO ** (2.0 - tier) * np.where(queues, _QUEUE_RATIO, 1.0)


def _slack(model: Model) -> Floats:
    """How much more than found may stay unserved later, so that no bound is narrower than the solver's rounding."""
    return _ROUNDING / 100 * np.maximum(model.rate, 1.0)


def _clean(model: Model, placed: _Placed) -> tuple[Floats, Floats]:
    """Each column's rate without the solver's rounding, and what each class is served."""
    of_class = model.columns.classes
    served = model.rate - placed.unserved
    flow = np.where(placed.answer.flow > _ROUNDING * model.rate[of_class], placed.answer.flow, 0.0)
    total = np.bincount(of_class, flow, minlength=len(served))
    scale = np.divide(served, total, out=np.zeros(len(served)), where=total > 0)
    return flow * scale[of_class], served


def _by_name(model: Model, flow: Floats, queued: dict[str, float]) -> dict[str, dict[str, float]]:
    """The flows above 0 by class and region. What queues does so at home."""
    found: dict[str, dict[str, float]] = {}
    used = np.flatnonzero(flow)
    of_class = model.columns.classes[used].tolist()
    regions = model.columns.regions[used].tolist()
    for number, region, rate in zip(of_class, regions, flow[used].tolist(), strict=True):
        found.setdefault(model.classes[number].key, {})[model.regions[region]] = rate
    homes = {one.key: one.regions[0] for one in model.classes}
    for key, rate in queued.items():
        served = found.setdefault(key, {})
        served[homes[key]] = served.get(homes[key], 0.0) + rate
    return found
