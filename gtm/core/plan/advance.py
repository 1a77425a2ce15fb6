"""From the best plan to the next one: weights move by bounded steps, failures act at once.

Laws:
  1. A class's weights name only regions of its list, and sum to 1.
  2. A region that left a class's list loses its weight at once, to the others of the target.
  3. Otherwise a class moves at most one step a tick, larger where the weights in force break a bound at the present
     demand, or where the class is so small that nobody feels it. No step brings a bound further over its limit than the weights in force or the target do, but for the
     tolerance and for weights rounded away.
  4. Refusals rise at once and fall by steps.
  5. A service counts as moving from the tick that leaves a class of it on its way until some time after the last such.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gtm.core.model.state import ClassPlan, Plan
from gtm.core.plan.model import Flags, Floats, Ints, Model, build, total
from gtm.core.plan.problem import DEFAULT_KNOBS, ClassDemand, Knobs, PlanProblem, Solution, admitted

_TOLERANCE = 0.01
"""Bounds may be exceeded by this part before steps grow: hysteresis and rounding alone must not count as overload."""
_SAME_SHARE = 1e-3
"""Of what a class is served: a tenant's share of refusals that differs from its class's by less is not kept."""
_STILL = 1e-9
"""Less is rounding: the weights in force stay as they are, so that a plan that stands still is the same each tick."""


def advance(
    previous: Plan, problem: PlanProblem, solution: Solution, now: float, *, knobs: Knobs = DEFAULT_KNOBS
) -> Plan:
    """The next plan.

    Args:
        previous: the plan in force, `NO_PLAN` at first.
        problem: the question of this tick.
        solution: its best answer, by `solve`.
        now: POSIX time in seconds.
        knobs: all but `keep_ms`, `shed_price_ms` and `time_limit_s` matter here.

    Raises:
        PlanError: the problem makes no sense.
    """
    moves = []
    for one in problem.classes:
        if one.rate > 0 and one.regions:
            before = previous.classes.get(one.key)
            moves.append(_move(one, before, solution, knobs))
    weights = _step(problem, moves, knobs)
    classes = {
        move.demand.key: replace(move.plan, weights=each) for move, each in zip(moves, weights, strict=True)
    }
    idle, waiting = _idle(previous, problem, now, knobs)
    moving = _moving(previous, moves, weights, now, knobs)
    return Plan(now, classes | waiting, dict(solution.prices), idle, moving)


@dataclass(frozen=True, slots=True)
class _Move:
    """One class on its way: its weights so far (what failed is gone already), its target, and what it sheds now.

    `base` names every region of either, the class's home first. `weights` are those in force, empty if they cannot stay.
    """

    demand: ClassDemand
    base: dict[str, float]
    target: dict[str, float]
    plan: ClassPlan
    weights: dict[str, float]


def _move(demand: ClassDemand, before: ClassPlan | None, solution: Solution, knobs: Knobs) -> _Move:
    flow = solution.flow.get(demand.key, {})
    target = rounded(flow, {}, knobs.least_weight)
    kept = (
        {}
        if before is None
        else {name: share for name, share in before.weights.items() if name in demand.regions}
    )
    if not target:  # all is refused: whoever gets through goes where the class went so far
        target = rounded(kept, {}, 0.0) or {demand.regions[0]: 1.0}
    lost = 1.0 - sum(kept.values())
    names = dict.fromkeys((demand.regions[0], *kept, *target))
    base = {name: kept.get(name, 0.0) + lost * target.get(name, 0.0) for name in names}
    plan = _refusals(demand, before, solution, knobs.release_step)
    stays = before is not None and len(kept) == len(before.weights) and abs(lost) < _STILL
    return _Move(demand, base, target, plan, kept if stays else {})


def _refusals(demand: ClassDemand, before: ClassPlan | None, solution: Solution, release: float) -> ClassPlan:
    """The shed shares of this tick, without weights."""
    before = before or ClassPlan({})
    wanted = solution.shed.get(demand.key, 0.0) / demand.rate
    shed = max(wanted, before.shed - release)
    refused = solution.shed_tenants.get(demand.key, {})
    tenants = {}
    for name, rate in demand.tenants.items():
        own = refused.get(name, 0.0) / rate if rate > 0 else wanted
        share = min(max(own, before.tenants.get(name, before.shed) - release), 1.0)
        if abs(share - shed) > _SAME_SHARE * (1 - shed):
            tenants[name] = share
    return ClassPlan({}, min(shed, 1.0), tenants)


def _step(problem: PlanProblem, moves: list[_Move], knobs: Knobs) -> list[dict[str, float]]:
    """The new weights of each class."""
    if not moves:
        return []
    routes = _Routes.of(problem, moves)
    base, target = routes.base, routes.target
    distance = total(routes.classes, np.abs(target - base), len(moves)) / 2
    urgent = routes.urgent()
    bound = np.where(urgent, knobs.overload_step, knobs.max_step)
    bound = np.maximum(bound, knobs.free_rate / np.maximum(routes.admitted, 1e-9))
    part = np.minimum(1.0, bound / np.maximum(distance, 1e-12))
    moving = urgent | (distance >= knobs.hysteresis)
    stepped = base + (target - base) * (part * moving)[routes.classes]
    worst = np.maximum(np.maximum(routes.load(base), routes.load(target)), routes.model.rows.limits)
    if (routes.load(stepped) > worst * (1 + _TOLERANCE)).any():
        # Classes that step alone met in the same place. All on the way by the same part, every bound is kept that both
        # ends of the way keep, because bounds are linear.
        farthest = max(float(distance.max()), 1e-12)
        stepped = base + (target - base) * min(1.0, float(bound.max()) / farthest)
    ends = np.append(np.flatnonzero(np.diff(routes.classes, prepend=-1)), len(routes.classes)).tolist()
    shares = stepped.tolist()
    still = (total(routes.classes, np.abs(stepped - base), len(moves)) < _STILL).tolist()
    return [
        move.weights
        if move.weights and unmoved
        else rounded(dict(zip(move.base, shares[begin:end], strict=True)), move.target, knobs.least_weight)
        for move, unmoved, begin, end in zip(moves, still, ends, ends[1:], strict=False)
    ]


@dataclass(frozen=True, slots=True)
class _Routes:
    """The regions that classes leave or go to, as arrays: a class, its weight so far, and its target weight.

    `admitted` is what each class sends this tick, in requests/s. `model` holds the bounds over these routes.
    """

    model: Model
    classes: Ints
    base: Floats
    target: Floats
    admitted: Floats

    @classmethod
    def of(cls, problem: PlanProblem, moves: list[_Move]) -> _Routes:
        """Read the moves, and build the bounds over the few regions that they name."""
        demands = []
        for move in moves:
            latency = dict(zip(move.demand.regions, move.demand.latency_ms, strict=True))
            demands.append(
                replace(
                    move.demand,
                    regions=tuple(move.base),
                    latency_ms=tuple(latency[name] for name in move.base),
                )
            )
        base = [weight for move in moves for weight in move.base.values()]
        target = [move.target.get(name, 0.0) for move in moves for name in move.base]
        return cls(
            build(replace(problem, classes=tuple(demands))),
            np.repeat(np.arange(len(moves), dtype=np.intp), [len(move.base) for move in moves]),
            np.array(base),
            np.array(target),
            np.array([admitted(move.demand, move.plan) for move in moves]),
        )

    def load(self, weights: Floats) -> Floats:
        """How much of each bound some weights use."""
        used: Floats = self.model.rows.matrix.dot((weights * self.admitted[self.classes])[self.model.led])
        return used

    def urgent(self) -> Flags:
        """The classes with a part in a bound that the weights so far break, or where a rule forbids it."""
        broken = self.load(self.base) > self.model.rows.limits * (1 + _TOLERANCE)
        touched = ~self.model.led
        touched[self.model.led] = self.model.rows.matrix.transposed_dot(broken.astype(np.float64)) > 0
        classes = np.zeros(len(self.admitted), dtype=np.bool_)
        classes[self.classes[touched & (self.base > 0)]] = True
        return classes


def rounded(weights: Mapping[str, float], target: Mapping[str, float], least: float) -> dict[str, float]:
    """Weights that sum to 1, without those that are small and not on their way up. The largest always stays."""
    total = sum(weights.values())
    if total <= 0:
        return {}
    largest = max(weights.values())
    kept = {
        name: weight
        for name, weight in weights.items()
        if weight > 0 and (weight >= min(least * total, largest) or target.get(name, 0.0) >= least)
    }
    total = sum(kept.values())
    return {name: weight / total for name, weight in kept.items()}


def _moving(
    previous: Plan, moves: list[_Move], weights: list[dict[str, float]], now: float, knobs: Knobs
) -> dict[str, float]:
    """The services whose traffic is being moved, and when it last was: what is left to go is more than would wait."""
    found = {name: last for name, last in previous.moving.items() if 0 <= now - last < knobs.settle_s}
    for move, reached in zip(moves, weights, strict=True):
        names = move.target.keys() | reached.keys()
        left = sum(abs(move.target.get(name, 0.0) - reached.get(name, 0.0)) for name in names) / 2
        if left > knobs.hysteresis:
            found[move.demand.service] = now
    return found


def _idle(
    previous: Plan, problem: PlanProblem, now: float, knobs: Knobs
) -> tuple[dict[str, float], dict[str, ClassPlan]]:
    """Classes without demand: since when, and the plans they keep meanwhile."""
    present = {one.key: one for one in problem.classes}
    known = set(problem.supply).union(*(one.regions for one in problem.classes))
    idle, waiting = {}, {}
    for key, plan in previous.classes.items():
        one = present.get(key)
        since = previous.idle.get(key, now)
        if (one is not None and one.rate > 0 and one.regions) or now - since >= knobs.idle_s:
            continue
        regions = known if one is None else one.regions
        weights = rounded({name: share for name, share in plan.weights.items() if name in regions}, {}, 0.0)
        if weights:
            idle[key] = since
            shed = max(plan.shed - knobs.release_step, 0.0)
            waiting[key] = ClassPlan(weights, shed)
    return idle, waiting
