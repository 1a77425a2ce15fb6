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

from gtm.core.model.services import OnOverload, Priority
from gtm.core.model.state import Plan
from gtm.core.plan.fairness import Group, Tenants, fair_shares, groups, levels, split
from gtm.core.plan.lp import GAP_MS, Allocation, Programme, UnservedParts
from gtm.core.plan.model import BoundKind, Flags, Floats, Ints, Model, build, total
from gtm.core.plan.problem import DEFAULT_KNOBS, Knobs, PlanProblem, Solution
from gtm.core.quota.names import QuotaText

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
_AGREED = 0.01
_REFUSED_GAP = 1e-4  # of the demand: how much less of a tier could be refused while lower ones still wait
_ROUNDING = 1e-7


@dataclass(frozen=True, slots=True)
class _Placed:
    """An answer, and each tenant's rate within its fair share, class by class."""

    answer: Allocation
    within: Floats


def solve(problem: PlanProblem, previous: Plan | None = None, *, knobs: Knobs = DEFAULT_KNOBS) -> Solution:
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
    placed = _place(Programme(model, _kept(model, previous), knobs), tenants)
    flow, served = _clean(model, placed)
    queued: dict[str, float] = {}
    for number in np.flatnonzero(placed.answer.unserved).tolist():
        one, missing = model.classes[number], float(placed.answer.unserved[number])
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
    """Place tier by tier from the highest. Each goes on from the plan of those above it; the last run is for latency."""
    model = programme.model
    tier = np.array([_TIER[one.priority] for one in model.classes])
    cost = _refusal_costs(programme, tier)
    placed = _Placed(Allocation(np.zeros(len(model.cost)), model.rate, np.zeros(0)), tenants.rate)
    for level in np.unique(tier).tolist():
        demand = np.where(tier <= level, model.rate, 0.0)
        allowed = np.where(tier < level, placed.answer.unserved, demand)
        stage = _Stage(programme, tier == level, demand, allowed, cost)
        placed = _share(stage, tenants, replace(placed, answer=stage.solve()))
    return replace(placed, answer=programme.refine(placed.answer, gap_ms=GAP_MS))


@dataclass(frozen=True, slots=True)
class _Stage:
    """A tier's turn. Of higher tiers no more is refused than `allowed`, what their own turn found; lower ones wait.

    All is by class: `cost` is that of refusing a request, in ms. Refusing more than allowed is possible, because what
    one run of the solver finds the next may miss by a rounding error; it costs so much that no more is gained.
    """

    programme: Programme
    tier: Flags
    demand: Floats
    allowed: Floats
    cost: Floats

    def solve(self, fair: Floats | float = 0.0) -> Allocation:
        """Serve the demand. `fair` is by class what its tenants ask within their fair shares: that is refused last."""
        work = self.programme.model.work
        ratio = np.clip(work / work[self.tier & (work > 0)].min(initial=np.inf), 1.0, _WORK_RATIO)
        higher = np.where((self.demand > 0) & ~self.tier, np.inf, 0.0)
        most = (self.allowed - np.where(self.tier, fair, 0.0), np.where(self.tier, fair, higher))
        cost = (self.cost, self.cost * _FAIR_RATIO * np.where(self.tier, ratio, _WORK_RATIO))
        gap = max(GAP_MS, _REFUSED_GAP * float(self.cost.min()))
        return self.programme.solve(self.demand, UnservedParts(np.array(most), np.array(cost)), gap_ms=gap)


def _share(stage: _Stage, tenants: Tenants, placed: _Placed) -> _Placed:
    """Share what a tier is served among its tenants.

    What is within a tenant's fair share costs more to refuse than what is beyond, so capacity that some cannot use
    goes to others. That may split a group, and change the shares: then again, until shares and rates agree. What queues
    arrives anyway, so only the rest is shared.
    """
    model = stage.programme.model
    tier = stage.tier & ~_queues(model)
    competing: list[Group] = []
    for _ in range(_ROUNDS):
        served = model.rate - placed.answer.unserved
        standing = levels(model, tenants, competing, placed.within, served)
        competing = groups(model, placed.answer, placed.answer.unserved, tier, standing)
        if not any(len(np.unique(tenants.of_classes(group.members))) > 1 for group in competing):
            break
        base = np.where(tier[tenants.classes], tenants.rate, placed.within)
        placed = replace(placed, within=fair_shares(model, tenants, competing, served, base))
        fair = np.minimum(total(tenants.classes, placed.within, len(tier)), model.rate)
        if np.abs(fair - served)[tier].sum() <= _AGREED * served[tier].sum():
            break
        placed = replace(placed, answer=stage.solve(fair))
    return placed


def _refusal_costs(programme: Programme, tier: Ints) -> Floats:
    """What a request costs that is not served, in ms."""
    return (
        np.float64(_REFUSAL * programme.span)
        * _TIER_RATIO ** (2.0 - tier)
        * np.where(_queues(programme.model), _QUEUE_RATIO, 1.0)
    )


def _queues(model: Model) -> Flags:
    """The classes whose services queue rather than refuse."""
    return np.array([one.on_overload is OnOverload.QUEUE for one in model.classes], dtype=np.bool_)


def _clean(model: Model, placed: _Placed) -> tuple[Floats, Floats]:
    """Each column's rate without the solver's rounding, and what each class is served."""
    of_class = model.columns.classes
    served = model.rate - placed.answer.unserved
    flow = np.where(placed.answer.flow > _ROUNDING * model.rate[of_class], placed.answer.flow, 0.0)
    found = total(of_class, flow, len(served))
    scale = np.divide(served, found, out=np.zeros(len(served)), where=found > 0)
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


# --- What a solved programme says of regions and quotas: prices, rates allowed, and what is exhausted. ---


_FULL = 1e-6
_TRACE = 1e-9  # gives columns without flow a say where no column has any


def prices(model: Model, answer: Allocation, most: float) -> dict[str, float]:
    """What one more request a second in each region would cost all others, in ms, for the mix of requests served there.

    0 where there is capacity left. Where demand is refused the dual value is that of the refusal, a number without
    meaning: `most` caps it.
    """
    capacity = np.where(model.rows.bound <= BoundKind.SERVICE_RATE, answer.price, 0.0)
    each = model.rows.matrix.transposed_dot(capacity)
    region, weight = model.columns.regions, answer.flow + _TRACE
    count = len(model.regions)
    mean = total(region, weight * each, count) / np.maximum(total(region, weight, count), _TRACE)
    return dict(zip(model.regions, np.minimum(mean, most).tolist(), strict=True))


def quota_rates(model: Model, flow: Floats) -> dict[QuotaText, float]:
    """The rate in requests/s that each rule, and each region for others' demand (`spill_in:REGION`), allows.

    Slots are turned into a rate by the mix of requests that spills there; a region that bounds services only allows
    the sum of theirs.
    """
    away = (flow + _TRACE) * model.columns.foreign
    used = model.rows.matrix.dot(away)
    counted = total(model.rows.matrix.row, away[model.rows.matrix.column], len(used))
    found: dict[QuotaText, float] = {}
    by_service: dict[QuotaText, float] = {}
    for row in np.flatnonzero(model.rows.bound > BoundKind.SERVICE_RATE).tolist():
        name, bound = model.quota(row), model.rows.bound[row]
        rate = float(model.rows.limits[row] * counted[row] / used[row])
        if bound in (BoundKind.SPILL_IN_SERVICE_SLOTS, BoundKind.SPILL_IN_SERVICE_RATE):
            by_service[name] = by_service.get(name, 0.0) + rate
        else:
            found[name] = min(rate, found.get(name, rate))
    return by_service | found


def binding(model: Model, flow: Floats) -> tuple[str, ...]:
    """The quotas and regions that are exhausted, in the order of the problem's bounds."""
    full = model.rows.matrix.dot(flow) >= model.rows.limits * (1 - _FULL)
    return tuple(dict.fromkeys(model.label(row) for row in np.flatnonzero(full).tolist()))
