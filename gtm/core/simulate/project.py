"""What one policy would make of one sample of traffic, once the plan has settled.

The plan is the planner's best for the sample's mean rates: steps, slow start and affinity, which only decide how one
gets there, are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gtm.core.capacity.supply import Supply
from gtm.core.decision.decide import Objections
from gtm.core.decision.ranking import Ranking, RankingClass
from gtm.core.decision.weights import canaries_of
from gtm.core.model.outcomes import Outcome, Reason
from gtm.core.model.services import PLANNED
from gtm.core.model.state import NO_PLAN, ClassPlan, Plan
from gtm.core.plan.build import problem_of
from gtm.core.plan.congestion import LEVELS, Fill, Tick, solve_tick
from gtm.core.plan.problem import ClassDemand, Knobs, PlanProblem, Solution
from gtm.core.policy.snapshot import bits
from gtm.core.simulate.scenario import Ranked

UNKNOWN_NAME = "unknown_name"
"""The reason of requests for what a policy does not know, beside those of `gtm.core.model.outcomes.Reason`."""
KNOBS = Knobs(time_limit_s=30.0)
"""Nobody waits a second for the next plan here."""
_TICKS = 2 * len(LEVELS)
"""In so many ticks a region can reach any level from any other, and come back."""
_SMALL = 1e-9

Floats = npt.NDArray[np.float64]
Shares = dict[str, float]
"""Region → the share of a cell's requests that it serves; what is missing to 1 is refused."""


@dataclass(frozen=True, slots=True)
class RegionRoom:
    """What of a region is used, in slots (requests at once) and requests/s. None: no bound is known, or no time."""

    used_slots: float | None
    usable_slots: float | None
    used_rate: float
    usable_rate: float | None

    @property
    def utilization(self) -> float | None:
        """The larger of both shares in use; None without any bound, infinite where nothing is usable but used."""
        pairs = ((self.used_slots, self.usable_slots), (self.used_rate, self.usable_rate))
        shares = [
            used / usable if usable > 0 else float("inf") if used > _SMALL else 0.0
            for used, usable in pairs
            if used is not None and usable is not None
        ]
        return max(shares, default=None)


@dataclass(frozen=True, slots=True)
class Latency:
    """Total latency (network, and the region's own processing) in ms of the requests served whose client is located.

    `quantiles` are those of 0 %, 1 %, … 100 %; none where there are no such requests.
    """

    mean: float
    quantiles: tuple[float, ...]

    def quantile(self, percent: int) -> float:
        """The latency that `percent` of the requests do not exceed."""
        return self.quantiles[percent]


@dataclass(frozen=True, slots=True)
class Projection:
    """The outcome. Rates are in requests per second, by region name unless said otherwise.

    `cells` maps a demand cell to where its requests go. `spill` holds what goes from its home region to another,
    `queued` what waits at its home because it fits nowhere. `refused` is by reason, `refused_by_rule` by the name of
    each residency rule that keeps a refused request from some region (one request counts for each of them). `plan` and
    `fill` are the planner's, `binding` names the regions and quotas that it has exhausted.
    """

    rate: float
    cells: Mapping[str, Shares]
    served: Mapping[str, float]
    latency: Latency | None
    spill: Mapping[tuple[str, str], float]
    queued: Mapping[str, float]
    refused: Mapping[str, float]
    refused_by_rule: Mapping[str, float]
    room: Mapping[str, RegionRoom]
    plan: Plan
    fill: Fill
    binding: tuple[str, ...] = ()

    @property
    def refused_rate(self) -> float:
        """Requests per second refused, for whatever reason."""
        return sum(self.refused.values())

    @property
    def short(self) -> float:
        """Requests per second for which capacity is missing: refused for want of it, or queued."""
        overload = self.refused.get(Reason.SHED.value, 0.0)
        return overload + sum(self.queued.values())


def project(
    ranked: Ranked, rates: Mapping[str, float], previous: Projection | None = None, *, knobs: Knobs = KNOBS
) -> Projection:
    """Work out what a policy makes of some rates.

    Args:
        ranked: the policy, with every cell ranked.
        rates: demand cell → requests per second.
        previous: what to stay close to wherever something else is hardly better, as the planner itself will.
        knobs: the planner's.

    Raises:
        PlanError: the planner could not solve it.
    """
    problem = _problem(ranked, rates)
    tick = _settled(problem, previous, knobs)
    solution = tick.solution
    splits = _Splits(ranked, problem, solution)
    found = _Sums()
    cells: dict[str, Shares] = {}
    for cell, rate in rates.items():
        ranking = ranked.rankings.get(cell)
        if ranking is None:
            cells[cell] = {}
            found.refused[UNKNOWN_NAME] += rate
            continue
        split = splits.of(ranking.group)
        cells[cell] = split.shares
        found.add(ranked, ranking, split, rate)
    names = [region.name for region in ranked.world.view.snapshot.regions]
    return Projection(
        rate=sum(rates.values()),
        cells=cells,
        served={name: found.served.get(name, 0.0) for name in names},
        latency=_latency(found.latencies, found.weights),
        spill=dict(found.spill),
        queued=splits.queued,
        refused=dict(found.refused),
        refused_by_rule=dict(found.refused_by_rule),
        room={
            name: _room(ranked.world.supply.get(name, Supply()), found.by_service.get(name, {}))
            for name in names
        },
        plan=_plan(problem, solution),
        fill=tick.fill,
        binding=tuple(solution.binding),
    )


def _problem(ranked: Ranked, rates: Mapping[str, float]) -> PlanProblem:
    """The planner's question; services that are not planned take up capacity where their steering sends them."""
    demand: dict[tuple[str, str], float] = {}
    pinned: dict[tuple[str, str], float] = defaultdict(float)
    for cell, rate in rates.items():
        ranking = ranked.rankings.get(cell)
        if ranking is None:
            continue
        group = ranking.group
        service = group.service.service
        if service.steering in PLANNED:
            canaries = canaries_of(ranked.world.view, group)
            for number, share in canaries.items():
                pinned[service.name, ranked.world.view.snapshot.regions[number].name] += rate * share
            demand[group.key, cell] = rate * (1 - sum(canaries.values()))
            continue
        chosen = ranked.choices[group]
        for option, weight in zip(chosen.options, chosen.weights, strict=True):
            if option.region is not None:
                pinned[service.name, option.region] += rate * weight / sum(chosen.weights)
    return problem_of(ranked.world.view, ranked.rankings.get, demand, pinned, dict(ranked.world.supply))


def _settled(problem: PlanProblem, previous: Projection | None, knobs: Knobs) -> Tick:
    """What the planner comes to after some ticks: how full it runs each region follows from the tick before.

    Where it goes round in a circle it is always the same tick of it, wherever one comes from.
    """
    plan, fill = (NO_PLAN, {}) if previous is None else (previous.plan, previous.fill)
    ticks: list[Tick] = []
    fills: list[Fill] = []
    for _ in range(_TICKS):
        tick = solve_tick(problem, plan, fill, knobs=knobs)
        if tick.fill in fills:
            circle = [*ticks[fills.index(tick.fill) + 1 :], tick]
            return max(circle, key=lambda one: sorted(one.fill.items()))
        ticks.append(tick)
        fills.append(tick.fill)
        plan, fill = _plan(problem, tick.solution), tick.fill
    return ticks[-1]


def _plan(problem: PlanProblem, solution: Solution) -> Plan:
    """The weights that the solution amounts to, for the next to stay close to."""
    classes = {}
    for one in problem.classes:
        flow = solution.flow.get(one.key, {})
        total = sum(flow.values())
        if total > 0:
            classes[one.key] = ClassPlan({name: rate / total for name, rate in flow.items()})
    return Plan(classes=classes, prices=dict(solution.prices))


@dataclass(frozen=True, slots=True)
class _Split:
    """Where a class's requests go. `home` None: there is none, since its steering is not planned."""

    shares: Shares
    numbers: tuple[tuple[int, str, float], ...]
    refused: tuple[tuple[Reason, Outcome, float], ...]
    home: str | None = None


class _Splits:
    """The splits of all classes: by the plan where it has the class, else by steering."""

    def __init__(self, ranked: Ranked, problem: PlanProblem, solution: Solution) -> None:
        self._ranked = ranked
        self._planned = {one.key: one for one in problem.classes}
        self._solution = solution
        self._known: dict[RankingClass, _Split] = {}
        self.queued: dict[str, float] = defaultdict(float)
        for key, rate in solution.queued.items():
            self.queued[self._planned[key].regions[0]] += rate

    def of(self, group: RankingClass) -> _Split:
        """The split of a class."""
        found = self._known.get(group)
        if found is None:
            one = self._planned.get(group.key)
            found = self._known[group] = self._steered(group) if one is None else self._by_plan(one, group)
        return found

    def _by_plan(self, one: ClassDemand, group: RankingClass) -> _Split:
        view = self._ranked.world.view
        numbers = view.snapshot.region_numbers
        flow = self._solution.flow.get(one.key, {})
        canaries = canaries_of(view, group)
        kept = 1 - sum(canaries.values())
        shares = {name: rate / one.rate * kept for name, rate in flow.items()}
        for number, share in canaries.items():
            name = view.snapshot.regions[number].name
            shares[name] = shares.get(name, 0.0) + share
        shed = self._solution.shed.get(one.key, 0.0) / one.rate * kept
        refused = ((Reason.SHED, Outcome.REFUSED_OVERLOAD, shed),) if shed > _SMALL else ()
        placed = tuple((numbers[name], name, share) for name, share in shares.items())
        return _Split(shares, placed, refused, one.regions[0])

    def _steered(self, group: RankingClass) -> _Split:
        chosen = self._ranked.choices[group]
        total = sum(chosen.weights)
        placed, refused = [], []
        for option, weight in zip(chosen.options, chosen.weights, strict=True):
            if option.region is None:
                refused.append((option.reason, option.outcome, weight / total))
            else:
                placed.append((option.number, option.region, weight / total))
        return _Split({name: share for _, name, share in placed}, tuple(placed), tuple(refused))


@dataclass(slots=True)
class _Sums:
    """What adds up over the cells. `latencies` and `weights` are of each cell's way to each of its regions."""

    served: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    by_service: dict[str, dict[str, float]] = field(default_factory=dict)
    spill: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    refused: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    refused_by_rule: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    latencies: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    def add(self, ranked: Ranked, ranking: Ranking, split: _Split, rate: float) -> None:
        """Add what becomes of a cell that asks `rate` times a second."""
        service = ranking.group.service.service.name
        processing = ranked.world.view.basis.processing.get(service, {})
        for number, name, share in split.numbers:
            part = rate * share
            self.served[name] += part
            rates = self.by_service.setdefault(name, {})
            rates[service] = rates.get(service, 0.0) + part
            if split.home is not None and name != split.home:
                self.spill[split.home, name] += part
            path = ranking.paths.get(number)
            if path is not None:
                self.latencies.append(path.estimate_ms + processing.get(number, 0.0))
                self.weights.append(part)
        for reason, outcome, share in split.refused:
            self.refused[reason.value] += rate * share
            if outcome is Outcome.REFUSED_RESIDENCY:
                for name in _rules_against(ranking):
                    self.refused_by_rule[name] += rate * share


def _rules_against(ranking: Ranking) -> set[str]:
    """The enforced rules that keep a request from some member of its service."""
    objections = Objections(ranking.within)
    outside = ranking.group.service.mask & ~ranking.group.allowed
    return {name for number in bits(outside) for name in objections.to(number)[0]}


def _latency(values: list[float], rates: list[float]) -> Latency | None:
    weights = np.array(rates, dtype=np.float64)
    total = float(weights.sum())
    if total <= 0:
        return None
    latencies = np.array(values, dtype=np.float64)
    order = np.argsort(latencies, kind="stable")
    latencies, weights = latencies[order], weights[order]
    reached = np.cumsum(weights) / total
    # The least latency that at least so many requests do not exceed.
    wanted = np.arange(101) / 100 - _SMALL
    places = np.minimum(np.searchsorted(reached, wanted), len(latencies) - 1)
    return Latency(float(latencies @ weights) / total, tuple(latencies[places].tolist()))


def _room(supply: Supply, rates: Mapping[str, float]) -> RegionRoom:
    timed = {name: rate for name, rate in rates.items() if name in supply.service_time_s}
    known = len(timed) == len(rates)
    used = sum(rate * supply.service_time_s[name] for name, rate in timed.items())
    return RegionRoom(used if known else None, supply.slots, sum(rates.values()), supply.rate)
