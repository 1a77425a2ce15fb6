"""The planning loop: once a second from demand, load and health to a plan, and to the rates that quotas allow.

Laws:
  1. Planning runs beside the feeds and never holds them up. A plan that cannot be made leaves the last one.
  2. What nobody reported is not idle: see `gtm.core.capacity.supply` and `gtm.control.lead.demand`.

`Planning` gathers what a plan is made from, once a second and beside the feeds; `Planner` makes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter

from gtm.control.lead.demand import (
    TIME_CONSTANT,
    PerAnswer,
    Place,
    Reported,
    requests_of,
    requests_per_answer,
)
from gtm.control.lead.election import Election, Standing
from gtm.control.lead.leases import Leases
from gtm.control.lead.loads import RegionLoads
from gtm.control.lead.reports import Reports, beside
from gtm.control.live.present import Current
from gtm.core.capacity.load import FRESH, Key, Load
from gtm.core.capacity.processing import SentRates
from gtm.core.capacity.supply import NO_ASSESSMENT, Assessment, RegionCapacity, arrivals, assess, turnover
from gtm.core.decision.router import Ranker
from gtm.core.decision.view import Basis, Window, build_basis, build_view
from gtm.core.demand.belief import PART
from gtm.core.demand.rows import Row
from gtm.core.latency.estimator import Estimator
from gtm.core.model.outcomes import Outcome
from gtm.core.model.services import PLANNED
from gtm.core.model.state import NO_PLAN, Plan, State
from gtm.core.plan.advance import advance
from gtm.core.plan.build import by_class, problem_of, ranking_of
from gtm.core.plan.congestion import Fill, solve_tick
from gtm.core.plan.problem import PlanError, PlanProblem, Solution
from gtm.core.policy.snapshot import Snapshot
from gtm.core.quota.names import QuotaName, QuotaText

logger = logging.getLogger(__name__)

TICK = 1.0
"""Seconds between plans."""
ROOM = 0.25
"""The part of what it can take that a region has free for a plan not to refuse what it would serve: one that sheds for
real fills its regions, but for moments."""
_UNMET = frozenset({Outcome.SERVED.value, Outcome.REFUSED_OVERLOAD.value})


@dataclass(frozen=True, slots=True)
class Inputs:
    """What one tick plans from. `now` in POSIX seconds; `rates` and `loads` as of now."""

    snapshot: Snapshot
    estimator: Estimator
    state: State
    now: float
    rates: Mapping[Row, float]
    loads: Mapping[Key, Load]
    capacity: Assessment = NO_ASSESSMENT
    """The last assessment of capacity, which the next goes on from."""
    beside: Mapping[Place, float] = field(default_factory=dict)
    """Requests per second that came to a region beside those that it served, by service and region (`reports.beside`)."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One tick's outcome. `seconds` is what it took."""

    plan: Plan = NO_PLAN
    problem: PlanProblem = field(default_factory=lambda: PlanProblem((), {}))
    solution: Solution | None = None
    capacity: Assessment = NO_ASSESSMENT
    seconds: float = 0.0
    error: str = ""
    leasable: dict[QuotaText, float] = field(default_factory=dict)
    """What edges may spend of each quota over HTTP, in requests per second: DNS answers take the rest of it."""
    per_answer: PerAnswer = field(default_factory=dict)
    """How many requests a DNS answer counted as, by service and region."""
    told: Plan = NO_PLAN
    """The plan as edges get it: HTTP refuses for DNS too."""
    per_decision: float = 1.0
    """How many requests one decision of an edge stood for, over all: what DNS answers stand for is in it."""


class Planner:
    """The planner of one control process: remembers its last plan, and what rankings rest on."""

    def __init__(self) -> None:
        self.latest = Planned()
        self._basis: Basis | None = None
        self._ranker: Ranker | None = None
        self._per_answer: dict[Place, float] = {}
        self._fill: Fill = {}
        self._per_decision = 1.0
        self._latest_time = 0.0

    def resume(self, plan: Plan) -> None:
        """Go on from a plan that is in force already; one without classes changes nothing."""
        if plan.classes:
            self.latest = replace(self.latest, plan=replace(plan, idle={}))

    def tick(self, given: Inputs) -> Planned:
        """Make the next plan. Takes milliseconds to a tenth of a second; call it outside the event loop."""
        began = perf_counter()
        self._latest_time = max(self._latest_time, given.now)
        window = Window(given.now, self._latest_time)
        self._basis = build_basis(given.snapshot, given.estimator, window, self._basis)
        if self._ranker is None or self._ranker.basis is not self._basis:
            self._ranker = Ranker(self._basis)
        view = build_view(self._basis, given.state, window)
        demand, fixed, asked = self._demand(given)
        rankings = {cell: ranking_of(self._ranker, cell) for _, cell in demand}
        http = {key: sum(rate for _, rate in cells) for key, cells in by_class(asked, rankings.get).items()}
        capacity = assess(
            given.snapshot.policy,
            given.state.health,
            given.loads,
            given.now,
            given.capacity,
            sent=self._sent(given.rates),
        )
        problem = problem_of(view, rankings.get, demand, fixed, capacity.supply)
        solution, plan, failure = self.latest.solution, self.latest.plan, ""
        try:
            tick = solve_tick(problem, plan, self._fill)
            plan = advance(plan, problem, tick.solution, given.now)
            plan = unrefused(plan, problem, having_room(capacity, given.now))
            solution, self._fill = tick.solution, tick.fill
        except PlanError as error:
            failure = str(error)
            logger.error("no new plan, the last one stays: %s", error)
        leasable = {} if solution is None else _leasable(problem, solution, http)
        seconds = perf_counter() - began
        told = over_http(plan, problem, http)
        self.latest = Planned(
            plan,
            problem,
            solution,
            capacity,
            seconds,
            failure,
            leasable,
            self._per_answer,
            told,
            self._per_decision,
        )
        return self.latest

    def _demand(
        self, given: Inputs
    ) -> tuple[dict[tuple[str, str], float], dict[tuple[str, str], float], dict[tuple[str, str], float]]:
        """Requests per second by class and cell; by service and region where nothing is planned; over HTTP by class and cell."""
        # A request counts where it came to: it is served once, elsewhere, and no more DNS answers led there.
        # What a region says that arrives counts up to twice what it can serve: more changes nothing for honest ones.
        most = {region: 2 * turnover(supply) for region, supply in given.capacity.supply.items()}
        served = {
            (service, region): min(
                max(0.0, load.requests_per_second + given.beside.get((service, region), 0.0)),
                most.get(region, inf),
            )
            for (region, service), load in given.loads.items()
            if service and load.requests_per_second is not None and load.age(given.now) <= FRESH
        }
        self._per_answer = requests_per_answer(given.rates, served, self._per_answer)
        decisions = asked = 0.0
        demand: dict[tuple[str, str], float] = defaultdict(float)
        fixed: dict[tuple[str, str], float] = defaultdict(float)
        http: dict[tuple[str, str], float] = defaultdict(float)
        services = given.snapshot.services
        for row, rate in given.rates.items():
            compiled = services.get(row.service)
            if compiled is None or row.outcome not in _UNMET:
                continue
            requests = requests_of(row, rate, self._per_answer)
            decisions, asked = decisions + rate, asked + requests
            if row.region and given.snapshot.region_numbers.get(row.region) in compiled.canaries:
                fixed[row.service, row.region] += requests  # whatever is planned
            elif compiled.service.steering in PLANNED:
                demand[row.ranking_class, row.cell] += requests
                if row.via != "dns":
                    http[row.ranking_class, row.cell] += requests
            elif row.region:
                fixed[row.service, row.region] += requests
        self._per_decision = asked / decisions if asked > 0 and decisions > 0 else 1.0
        return demand, fixed, http

    def _sent(self, rates: Mapping[Row, float]) -> SentRates:
        """What edges count to send to each region, in the planner's requests."""
        found: dict[Key, float] = defaultdict(float)
        for row, rate in rates.items():
            if row.region:
                found[row.region, row.service] += requests_of(row, rate, self._per_answer)
        return SentRates(found, TIME_CONSTANT)


def _leasable(problem: PlanProblem, solution: Solution, http: Mapping[str, float]) -> dict[QuotaText, float]:
    """What may be leased of each quota that is a rate: all that the plan does not send by DNS already, which nobody counts.

    A rule's share is no rate: it is earned, where requests are seen (`gtm.core.quota.earned`).
    """
    rates = {name: rate for name, rate in solution.quota_rates.items() if QuotaName.parse(name).into}
    rates |= {
        QuotaName(quota.name).text: quota.max_requests_per_second
        for quota in problem.quotas
        if quota.max_requests_per_second is not None
    }
    by_dns: dict[QuotaText, float] = defaultdict(float)
    for one in problem.classes:
        part = max(0.0, 1 - http.get(one.key, 0.0) / one.rate) if one.rate > 0 else 0.0
        for region, rate in solution.flow.get(one.key, {}).items():
            if region == one.regions[0]:
                continue
            names = [
                QuotaName(quota.name).text
                for quota in problem.quotas
                if quota.from_region == one.regions[0] and region in quota.to_regions
            ]
            for name in (*names, QuotaName(region, into=True).text):
                by_dns[name] += rate * part
    return {name: max(0.0, rate - by_dns[name]) for name, rate in rates.items() if rate < inf}


def having_room(capacity: Assessment, now: float) -> frozenset[str]:
    """The regions that report free slots now: some part of what they can take is free, and nobody waits.

    Args:
        capacity: what each region can take, with what it reported.
        now: POSIX seconds.
    """
    return frozenset(name for name, region in capacity.regions.items() if _has_room(region, now))


def _has_room(region: RegionCapacity, now: float) -> bool:
    whole, *services = region.parts
    loads = [part.load for part in ([whole] if whole.load is not None else services) if part.load is not None]
    fresh = all(load.age(now) <= FRESH and load.outstanding is not None for load in loads)
    if not loads or not fresh or whole.slots.usable is None or any(load.queue for load in loads):
        return False
    return sum(load.outstanding or 0.0 for load in loads) <= (1 - ROOM) * whole.slots.usable


def unrefused(plan: Plan, problem: PlanProblem, free: frozenset[str]) -> Plan:
    """A plan that refuses nobody whom a region would serve that has free slots, and that no quota keeps from it.

    Demand is what edges say, free slots are what regions see: where they contradict each other, a region's own balancer
    refuses what is really too much, and a plan that refused before would do so for a forged number.

    Args:
        plan: with shed shares.
        problem: what it answers.
        free: the regions that report free slots.
    """
    if not free or not any(one.shed or one.tenants for one in plan.classes.values()):
        return plan
    bounded = {(quota.from_region, region) for quota in problem.quotas for region in quota.to_regions}
    guests = {
        name
        for name, one in problem.supply.items()
        if (one.spill_in_rate, one.spill_in_share) == (None, None)
    }
    regions = {one.key: one.regions for one in problem.classes}
    classes = dict(plan.classes)
    for key, one in plan.classes.items():
        order = regions.get(key, ())
        if (one.shed or one.tenants) and any(
            region in free
            and one.weights.get(region, 0.0) > 0
            and (region == order[0] or (region in guests and (order[0], region) not in bounded))
            for region in order
        ):
            classes[key] = replace(one, shed=0.0, tenants={})
    return replace(plan, classes=classes)


def over_http(plan: Plan, problem: PlanProblem, http: Mapping[str, float]) -> Plan:
    """A plan whose shed shares are of HTTP's requests: DNS cannot refuse a part of its answers.

    Where HTTP is too little to make up for it, all of it is refused, and what is too much stays with the region.

    Args:
        plan: with shed shares of all requests.
        problem: what it answers.
        http: the rate of each class over HTTP.
    """
    rates = {one.key: one.rate for one in problem.classes}
    classes = {}
    for key, one in plan.classes.items():
        rate, part = rates.get(key, 0.0), http.get(key, 0.0)
        if not (one.shed or one.tenants) or not 0 < part < rate:
            classes[key] = one
            continue
        shares = {name: min(1.0, share * rate / part) for name, share in one.tenants.items()}
        # In hundredths: the part of HTTP is never quite the same, and each change makes a new state.
        classes[key] = replace(
            one,
            shed=round(min(1.0, one.shed * rate / part), 2),
            tenants={name: round(share, 2) for name, share in shares.items()},
        )
    return replace(plan, classes=classes)


def same_plan(one: Plan, other: Plan) -> bool:
    """Whether two plans steer alike: when they were made, and prices that hardly moved, do not matter.

    What is moving is known by its names: since when does not matter either.
    """
    if one.classes != other.classes or one.moving.keys() != other.moving.keys():
        return False
    if one.prices.keys() != other.prices.keys():
        return False
    return all(
        abs(price - other.prices[name]) <= max(1.0, 0.05 * price) for name, price in one.prices.items()
    )


@dataclass(slots=True, eq=False)
class Planning:
    """Plans for one control process.

    Args:
        current: the policy that is planned for, and whose state has the plan.
        election: this process's part among several: only the active one plans.
        reports: demand and health, and what the control before this one planned.
        loads: what regions can take.
        leases: told what edges may spend of each quota.
        clock: POSIX seconds.
        monotonic: seconds that never step back.
    """

    current: Current
    election: Election
    reports: Reports
    loads: RegionLoads
    leases: Leases
    clock: Callable[[], float]
    monotonic: Callable[[], float]
    planner: Planner = field(init=False, default_factory=Planner)
    """Makes the plans, and has the last."""
    excess: Mapping[str, tuple[float, float]] = field(init=False, default_factory=dict)
    """The tokens whose edges say more than they are believed, by id: what they say, and what of that counts."""
    _estimator: Estimator | None = field(init=False, default=None)
    _estimated: Snapshot | None = field(init=False, default=None)

    @property
    def latest(self) -> Planned:
        """The last tick's outcome."""
        return self.planner.latest

    async def run(self) -> None:
        """Plan until cancelled."""
        while True:
            await asyncio.sleep(TICK)
            await self.tick()

    async def tick(self) -> None:
        """Make the next plan, and publish it unless it is too early. A tick that fails leaves the last plan."""
        snapshot, takeover = self.current.now.compiled, self.reports.takeover
        if snapshot is None or self.election.standing is not Standing.ACTIVE:
            return
        if not takeover.over and takeover.end(self.monotonic()):
            self.planner.resume(takeover.plan)
        inputs = self._inputs(snapshot)
        try:
            planned = await asyncio.to_thread(self._plan, inputs, self.reports.reported)
        except Exception:
            logger.exception("the planner failed; the last plan stays")
            return
        self.loads.assessment = planned.capacity
        self.reports.elsewhere = (
            arrivals(inputs.loads, inputs.now) / planned.per_decision,
            PART * sum(map(turnover, planned.capacity.supply.values())),
        )
        self.leases.apportion(planned.leasable)
        now = self.current.now
        if takeover.over and (now.keep_plan or not same_plan(planned.told, now.state.plan)):
            plan = await asyncio.to_thread(takeover.sealed, planned.told)
            told = self.current.now.with_state(self.clock(), plan=plan)
            self.current.become(replace(told, keep_plan=False))

    def _plan(self, inputs: Inputs, reported: Reported) -> Planned:
        """One plan, beside the event loop."""
        self.excess = reported.excess()
        return self.planner.tick(replace(inputs, rates=reported.rates(self.excess)))

    def _inputs(self, snapshot: Snapshot) -> Inputs:
        """All that one plan is made from, as of now, but for the rates."""
        now = self.current.now
        if (
            self._estimator is None
            or self._estimated is not snapshot
            or self._estimator.table is not now.table
        ):
            self._estimator, self._estimated = Estimator(snapshot.regions, now.table), snapshot
        return Inputs(
            snapshot=snapshot,
            estimator=self._estimator,
            state=replace(now.state, health=self.reports.vantages.judgement.presumed),
            now=self.clock(),
            rates={},
            loads=self.loads.loads(snapshot.policy),
            capacity=self.loads.assessment,
            beside=beside(self.reports.pushed),
        )
