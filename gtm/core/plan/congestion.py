"""How full a region should be run: until waiting there costs more than the way to the next one.

A region that is planned to its last slot makes requests wait, because arrivals come in bunches and what control knows is
a second old. How much follows from queueing theory: with `c` slots at utilisation u, requests of service time s wait
about s · u^(√(2(c+1)) − 1) / (c · (1 − u)) on average (Sakasegawa, "An approximation formula L_q ≃ α·ρ^β/(1 − ρ)",
1977, for M/M/c), times (ca² + cs²) / 2 where arrivals and service times vary otherwise (Allen, "Probability, Statistics,
and Queueing Theory", 1990, after Cunneen). So large regions may be run fuller than small ones, and long requests ask for more room than short
ones.

The planner's linear programme knows bounds only. So each region's slots are bounded by a level, and the price of that
bound (what one more request there would save all others, in ms) is compared with what it would cost in waiting: a level
rises while the price is higher, and falls while its region has room. When all does not fit below the levels, the
emptiest regions rise first and as little as it takes, all of them to the last slot before anything is refused: all a
little fuller, they make requests wait far less than some filled up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, sqrt

from gtm.core.capacity.supply import Supply
from gtm.core.model.state import Plan
from gtm.core.plan.problem import DEFAULT_KNOBS, Knobs, PlanProblem, Solution
from gtm.core.plan.solve import solve

LEVELS = (0.6, 0.65, 0.7, 0.75, 0.8, 0.84, 0.87, 0.9, 0.92, 0.94, 0.96, 0.98, 1.0)
"""Shares of a region's usable slots that it may be planned to: closer where waiting grows faster."""
VARIABILITY = 2.0
"""(ca² + cs²) / 2, the mean of the squared coefficients of variation of arrivals and of service times.

1 would be a Poisson process with exponential service times. Requests come in bunches: over 10 s, counts of the Azure LLM
inference trace of 2023 vary 3.9 times as much as a Poisson process, and service times by its lengths have cs² = 0.6.
"""
_TOP = len(LEVELS) - 1
_SHED = 1e-6

Fill = Mapping[str, int]
"""Region → its place in `LEVELS`."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick's solution, and how full each region is to be planned in the next."""

    solution: Solution
    fill: Fill


def solve_tick(problem: PlanProblem, previous: Plan, fill: Fill, *, knobs: Knobs = DEFAULT_KNOBS) -> Tick:
    """Answer one tick's question with every region no fuller than it should be.

    Args:
        problem: demand, supply and quotas.
        previous: the plan in force.
        fill: of the last tick; empty at first.
        knobs: the planner's.

    Raises:
        PlanError: as `solve`.
    """
    levels = {name: _level(supply, fill.get(name)) for name, supply in problem.supply.items()}
    solution = solve(_bounded(problem, levels), previous, knobs=knobs)
    if _refuses(solution) and any(level < _TOP for level in levels.values()):
        levels, solution = _raised(problem, previous, levels, knobs)
    fill = {name: _next(problem, solution, name, level) for name, level in levels.items()}
    # A region at its level is not exhausted: it has slots left.
    binding = tuple(name for name in solution.binding if levels.get(name, _TOP) == _TOP)
    return Tick(replace(solution, binding=binding), fill)


def _raised(
    problem: PlanProblem, previous: Plan, levels: Mapping[str, int], knobs: Knobs
) -> tuple[dict[str, int], Solution]:
    """The levels above the least common floor with which nothing is refused, and the answer with them.

    Where something is refused in any case, every region is planned in full.
    """
    low, high = min(levels.values()), _TOP
    found = dict.fromkeys(levels, _TOP), solve(problem, previous, knobs=knobs)
    if _refuses(found[1]):
        return found
    while high - low > 1:
        floor = (low + high) // 2
        raised = {name: max(level, floor) for name, level in levels.items()}
        solution = solve(_bounded(problem, raised), previous, knobs=knobs)
        if _refuses(solution):
            low = floor
        else:
            high, found = floor, (raised, solution)
    return found


def marginal_wait_ms(
    slots: float, service_time_s: float, utilisation: float, variability: float = VARIABILITY
) -> float:
    """What one more request a second costs all requests of a region in waiting, per request, in ms.

    The derivative of (rate × mean wait) by the rate, by Sakasegawa's approximation and Allen and Cunneen's factor.

    Args:
        slots: of the region.
        service_time_s: mean, in seconds.
        utilisation: 0 to 1; at 1 the queue grows without end.
        variability: (ca² + cs²) / 2.
    """
    if utilisation >= 1:
        return inf
    if slots <= 0 or utilisation <= 0:
        return 0.0
    power = sqrt(2 * (slots + 1))
    # rate × wait = u^p / (1 − u) requests waiting on average; the rate is u · slots / s.
    slope = utilisation ** (power - 1) * (power - (power - 1) * utilisation) / (1 - utilisation) ** 2
    return float(1e3 * variability * slope * service_time_s / slots)


def _level(supply: Supply, known: int | None) -> int:
    """A region's level; without slots there is nothing to hold back."""
    if supply.slots is None:
        return _TOP
    return LEVELS.index(0.8) if known is None else min(known, _TOP)


def _bounded(problem: PlanProblem, levels: Fill) -> PlanProblem:
    return replace(
        problem,
        supply={name: _scaled(supply, LEVELS[levels[name]]) for name, supply in problem.supply.items()},
    )


def _scaled(supply: Supply, level: float) -> Supply:
    if level >= 1 or supply.slots is None:
        return supply
    return replace(supply, slots=supply.slots * level)


def _refuses(solution: Solution) -> bool:
    return sum(solution.shed.values()) + solution.unplaced > _SHED


def _next(problem: PlanProblem, solution: Solution, name: str, level: int) -> int:
    """One level up while a fuller region would save more than it costs, one down while it has room to spare."""
    supply = problem.supply[name]
    price = solution.prices.get(name, 0.0)
    if supply.slots is None or not supply.slots:
        return level
    time, slots = _service_time(problem, solution, name), supply.slots
    if price > marginal_wait_ms(slots, time, LEVELS[level]):
        return min(level + 1, _TOP)
    # Hysteresis: the level below must be worth it by a margin, or a price between two levels would swing.
    if level and price < 0.8 * marginal_wait_ms(slots, time, LEVELS[level - 1]):
        return level - 1
    return level


def _service_time(problem: PlanProblem, solution: Solution, name: str) -> float:
    """The mean service time of what a region is to serve, in s; that of all its services if it serves nothing."""
    times = problem.supply[name].service_time_s
    held = rate = 0.0
    for one in problem.classes:
        flow = solution.flow.get(one.key, {}).get(name, 0.0)
        if flow > 0 and one.service in times:
            held += flow * times[one.service]
            rate += flow
    if rate > 0:
        return held / rate
    return sum(times.values()) / len(times) if times else 0.0
