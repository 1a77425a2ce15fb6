"""Who picks the region in the spillover simulation: nearest, waterfall, gtm's planner, and an oracle.

A strategy is told each second's measurements (`tick`) and asked for a region (`route`). Regions and client areas share
numbers: area n's clients live around region n.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import Protocol

from gtm.control.lead.demand import DemandBook, requests_of, requests_per_answer
from gtm.core.capacity.load import Load
from gtm.core.capacity.supply import NO_ASSESSMENT, Assessment, assess
from gtm.core.model.policy import Policy, SpilloverRule
from gtm.core.model.regions import Capacity
from gtm.core.model.services import Priority
from gtm.core.model.state import NO_PLAN, EndpointHealth, HealthStatus, Plan
from gtm.core.plan.congestion import Fill
from gtm.core.plan.problem import ClassDemand, PlanProblem
from gtm.core.quota.buckets import TokenBucket
from tests import worlds
from tests.bench.sim_queue import SlotQueue

REFUSED = -1

Planner = Callable[[Plan, PlanProblem, Fill, float], tuple[Plan, Mapping[str, float], Fill]]
"""One tick of a planner: the previous plan, the problem, how full regions are run, the time in s → the plan from now on,
the quotas' rates, and how full regions are run next."""


@dataclass(frozen=True, slots=True)
class Report:
    """What is known at `now` (s): all of it measured `age` s ago.

    By region: requests in service (`busy`), `waiting`, and taken per second (`served`), and the mean `service_time` in s.
    By area and region sent to: requests over HTTP and answers by DNS of one second.
    """

    now: float
    age: float
    busy: Sequence[float]
    waiting: Sequence[float]
    served: Sequence[float]
    http: Sequence[Sequence[float]]
    answers: Sequence[Sequence[float]]
    service_time: Sequence[float]


class Strategy(Protocol):
    """What the simulation asks of a strategy. `caches`: whether DNS clients keep its answers for the TTL."""

    caches: bool
    movement: float | None
    """The sum of all changes of weights, |Δw| over areas and regions; None: it has no weights."""

    def tick(self, report: Report) -> None:
        """Learn a second's report."""

    def route(self, area: int, draw: float, now: float, *, dns: bool) -> int:
        """The region for a request, or REFUSED."""


@dataclass(slots=True)
class Nearest:
    """Every client to its nearest region inside the fence."""

    order: Sequence[Sequence[int]]
    caches: bool = True
    movement: float | None = 0.0

    def tick(self, report: Report) -> None:
        """Nothing to learn."""

    def route(self, area: int, draw: float, now: float, *, dns: bool) -> int:  # noqa: ARG002 - the contract
        """The first by preference."""
        return self.order[area][0]


@dataclass(slots=True)
class Waterfall:
    """The nearest region that the latest report does not call full; the nearest if all are.

    Full is a region with `full` × its slots outstanding. It knows no quotas.
    """

    order: Sequence[Sequence[int]]
    slots: Sequence[int]
    full: float = 1.0
    caches: bool = True
    movement: float | None = 0.0
    targets: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.targets = [preferred[0] for preferred in self.order]

    def tick(self, report: Report) -> None:
        """Aim each area at its nearest region with a free slot."""
        loads = [busy + waiting for busy, waiting in zip(report.busy, report.waiting, strict=True)]
        free = [load < self.full * slots for load, slots in zip(loads, self.slots, strict=True)]
        targets = [
            next((region for region in preferred if free[region]), preferred[0]) for preferred in self.order
        ]
        changed = sum(new != old for new, old in zip(targets, self.targets, strict=True))
        self.movement = (self.movement or 0.0) + 2.0 * changed
        self.targets = targets

    def route(self, area: int, draw: float, now: float, *, dns: bool) -> int:  # noqa: ARG002 - the contract
        """The area's target of this second."""
        return self.targets[area]


def policy_of(names: Sequence[str], slots: Sequence[int], reserve: float) -> Policy:
    """The policy that gtm's capacity assessment reads. Places do not matter to it."""
    regions = (
        worlds.region(name, at="de", capacity=Capacity(outstanding=count), reserve=reserve)
        for name, count in zip(names, slots, strict=True)
    )
    return worlds.policy(*regions, worlds.service("chat", " ".join(names)))


@dataclass(slots=True)
class Planned:
    """gtm: demand, capacity and plan each second as control makes them, and answers as edges pick them.

    Demand is counted by area (one ranking class each) as edges count it: requests over HTTP and answers by DNS. Answers
    are drawn by the plan's weights; over HTTP a spillover rule's tokens must suffice, else the request stays at home.
    """

    names: Sequence[str]
    order: Sequence[Sequence[int]]
    round_trip: Sequence[Sequence[float]]
    policy: Policy
    quotas: tuple[SpilloverRule, ...]
    planner: Planner
    caches: bool = True
    movement: float | None = 0.0
    plan: Plan = NO_PLAN
    fill: Fill = field(default_factory=dict)
    capacity: Assessment = NO_ASSESSMENT
    per_answer: dict[tuple[str, str], float] = field(default_factory=dict)
    demand: DemandBook = field(default_factory=DemandBook)
    regions: list[list[int]] = field(init=False)
    cumulative: list[list[float]] = field(init=False)
    shed: list[float] = field(init=False)
    leasable: dict[str, float] = field(default_factory=dict)
    buckets: list[list[tuple[frozenset[int], str, TokenBucket]]] = field(init=False)

    def __post_init__(self) -> None:
        self.regions = [[preferred[0]] for preferred in self.order]
        self.cumulative = [[1.0] for _ in self.order]
        self.shed = [0.0] * len(self.order)
        numbers = {name: number for number, name in enumerate(self.names)}
        self.buckets = [
            [
                (frozenset(numbers[other] for other in quota.to_regions), quota.name, TokenBucket())
                for quota in self.quotas
                if quota.from_region == name
            ]
            for name in self.names
        ]

    def tick(self, report: Report) -> None:
        """Plan for the second."""
        http, dns = self._demand(report)
        self.capacity = assess(self.policy, self._health(), self._loads(report), report.now, self.capacity)
        before = self.plan
        problem = self._problem([sum(both) for both in zip(http, dns, strict=True)])
        self.plan, quota_rates, self.fill = self.planner(before, problem, self.fill, report.now)
        numbers = {name: number for number, name in enumerate(self.names)}
        for area, name in enumerate(self.names):
            planned = self.plan.classes.get(name)
            if planned is None:
                continue
            self.movement = (self.movement or 0.0) + moved(before, planned.weights, name)
            self.regions[area] = [numbers[region] for region in planned.weights]
            self.cumulative[area] = list(accumulate(planned.weights.values()))
            self.shed[area] = planned.shed
            share = http[area] / (http[area] + dns[area]) if http[area] else 1.0
            for _, quota, bucket in self.buckets[area]:
                self.leasable[quota] = share * quota_rates.get(quota, 0.0)
                bucket.lease(report.now, self.leasable[quota], report.now + 3.0)

    def _demand(self, report: Report) -> tuple[list[float], list[float]]:
        """Requests per second by area: over HTTP, and by DNS as far as answers tell."""
        counts = {}
        for via, seen in (("http", report.http), ("dns", report.answers)):
            for area, sent in zip(self.names, seen, strict=True):
                for region, count in zip(self.names, sent, strict=True):
                    if count:
                        counts[f"chat\t{region}\tserved\t{via}\t{area}\t"] = count
        self.demand.take("edge", counts, 1.0, report.now)
        rates = self.demand.reported(report.now).rates()
        served = {("chat", name): rate for name, rate in zip(self.names, report.served, strict=True)}
        self.per_answer = requests_per_answer(rates, served, self.per_answer)
        found = {"http": dict.fromkeys(self.names, 0.0), "dns": dict.fromkeys(self.names, 0.0)}
        for row, rate in rates.items():
            found[row.via][row.ranking_class] += requests_of(row, rate, self.per_answer)
        return list(found["http"].values()), list(found["dns"].values())

    def _health(self) -> dict[str, dict[str, EndpointHealth]]:
        return {
            region.name: {region.endpoints[0].url: EndpointHealth(HealthStatus.UP)}
            for region in self.policy.regions
        }

    def _loads(self, report: Report) -> dict[tuple[str, str], Load]:
        return {
            (name, "chat"): Load(
                name,
                "chat",
                report.now - report.age,
                1,
                outstanding=report.busy[number],
                queue=report.waiting[number],
                service_time_ms=1e3 * report.service_time[number],
                requests_per_second=report.served[number],
            )
            for number, name in enumerate(self.names)
        }

    def _problem(self, demand: Sequence[float]) -> PlanProblem:
        """The planner's question. Latencies are network and processing, and never less than a nearer region's."""
        processing = [self.capacity.processing_ms(name, "chat") for name in self.names]
        return PlanProblem(
            classes=tuple(
                ClassDemand(
                    key=name,
                    service="chat",
                    priority=Priority.REAL_TIME,
                    regions=tuple(self.names[region] for region in self.order[area]),
                    latency_ms=tuple(
                        accumulate(
                            (
                                self.round_trip[area][region] + processing[region]
                                for region in self.order[area]
                            ),
                            max,
                        )
                    ),
                    rate=demand[area],
                    tenants={"": demand[area]},
                )
                for area, name in enumerate(self.names)
            ),
            supply=self.capacity.supply,
            quotas=self.quotas,
        )

    def route(self, area: int, draw: float, now: float, *, dns: bool) -> int:
        """Drawn by the plan's weights; over HTTP the plan's share is shed first, and rules' tokens are taken."""
        region = self.drawn(area, draw, dns=dns)
        if region == REFUSED or region == self.order[area][0] or dns:
            return region
        covering = [bucket for covered, _, bucket in self.buckets[area] if region in covered]
        if not all(bucket.ready(now) for bucket in covering):
            return self.order[area][0]
        for bucket in covering:
            bucket.spend()
        return region

    def drawn(self, area: int, draw: float, *, dns: bool) -> int:
        """Drawn by the plan's weights; over HTTP the plan's share is shed first."""
        shed = self.shed[area]
        if shed > 0 and not dns:
            if draw < shed:
                return REFUSED
            draw = (draw - shed) / (1 - shed)
        regions = self.regions[area]
        return regions[min(bisect_right(self.cumulative[area], draw), len(regions) - 1)]


def moved(before: Plan, weights: Mapping[str, float], name: str) -> float:
    """How far a class's weights are from those of before, |Δw| over its regions; 0 at first."""
    if name not in before.classes:
        return 0.0
    old = before.classes[name].weights
    return sum(abs(weights.get(region, 0.0) - old.get(region, 0.0)) for region in {*weights, *old})


@dataclass(slots=True)
class Oracle:
    """Each request, by DNS or HTTP, to the region with the least actual round trip + wait, known at once and exactly.

    It keeps the quotas exactly, because it knows each window's demand: `budgets[area]` lists, by quota, the regions
    it covers and the requests that it allows in each window of `window` s. Greedy, hence no bound on what an offline
    optimum could do.
    """

    order: Sequence[Sequence[int]]
    round_trip: Sequence[Sequence[float]]
    queues: Sequence[SlotQueue]
    budgets: Sequence[Sequence[tuple[frozenset[int], list[int]]]]
    window: float
    caches: bool = False
    movement: float | None = None

    def tick(self, report: Report) -> None:
        """Nothing to learn: it knows."""

    def route(self, area: int, draw: float, now: float, *, dns: bool) -> int:  # noqa: ARG002 - the contract
        """The best region within the quotas, now."""
        preferred = self.order[area]
        best, least = preferred[0], self.queues[preferred[0]].delay(now)
        if least == 0.0:
            return best
        slot = int(now // self.window)
        rules = self.budgets[area]
        home_trip = self.round_trip[area][best]
        least = least * 1e3 + home_trip
        for region in preferred[1:]:
            trip = self.round_trip[area][region]
            if trip >= least:
                break
            if rules and not _allowed(rules, region, slot):
                continue
            total = trip + self.queues[region].delay(now) * 1e3
            if total < least:
                best, least = region, total
        if best != preferred[0]:
            for covered, left in rules:
                if best in covered:
                    left[slot] -= 1
        return REFUSED if least == inf else best


def _allowed(rules: Sequence[tuple[frozenset[int], list[int]]], region: int, slot: int) -> bool:
    """Whether some rule leads there and none that covers it is used up."""
    covering = [left[slot] for covered, left in rules if region in covered]
    return bool(covering) and min(covering) >= 1
