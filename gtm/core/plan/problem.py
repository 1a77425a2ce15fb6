"""What the planner is asked: demand by ranking class, what regions can take, and the quotas between them.

Units: rates in requests per second, times in ms unless named otherwise. Regions are named, not numbered: a plan
outlives the revision that numbered them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gtm.core.capacity.supply import Supply
from gtm.core.model.policy import SpilloverRule
from gtm.core.model.services import OnOverload, Priority
from gtm.core.model.state import ClassPlan, Plan
from gtm.core.quota.names import QuotaText


@dataclass(frozen=True, slots=True)
class ClassDemand:
    """What one ranking class asks for.

    `regions` are the eligible ones (inside the fence, willing, usable), in the class's order of preference: the first
    is its home. `latency_ms` is the total latency of each: network, queue wait and service time. `rate` is the demand
    in requests per second, `tenants` its parts by tenant (`""`: not stated), which sum to it. `fixed`: it is where it is whatever
    is planned (canaries, steering that is the operator's own word), so that it earns no rule's share.
    """

    key: str
    service: str
    priority: Priority
    regions: tuple[str, ...]
    latency_ms: tuple[float, ...]
    rate: float
    tenants: dict[str, float] = field(default_factory=dict)
    on_overload: OnOverload = OnOverload.SHED
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class PlanProblem:
    """One tick's question.

    A quota says how much of the demand whose home is its region may go to its others together; `max_share` is of what is not fixed.
    A home without quotas spills freely inside the fence; one with quotas only where a quota leads. A flow to a region
    that several quotas name must satisfy each: it stays within every added latency (the difference of `latency_ms`
    between there and home), and counts against every share and rate. `tenant_weights` are of tenants inside a tier, 1 where absent.
    """

    classes: tuple[ClassDemand, ...]
    supply: dict[str, Supply]
    quotas: tuple[SpilloverRule, ...] = ()
    tenant_weights: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Solution:
    """The best answer to a Problem, before steps are bounded.

    `flow` maps a class to the rate each region serves of it (only rates above 0), `shed` to the rate refused (only
    classes that shed), `shed_tenants` to the rates refused by tenant. `prices` are the dual values of the regions'
    capacity, in ms of latency per request; `quota_rates` the rate that each quota (a rule's name, or
    `spill_in:REGION`) allows this tick; `binding` names the quotas and regions that are exhausted. `queued` maps a
    class whose service does not shed to the rate that did not fit: it is part of its flow to its home.
    """

    flow: dict[str, dict[str, float]]
    shed: dict[str, float]
    shed_tenants: dict[str, dict[str, float]]
    prices: dict[str, float]
    quota_rates: dict[QuotaText, float]
    binding: tuple[str, ...]
    queued: dict[str, float] = field(default_factory=dict)

    @property
    def unplaced(self) -> float:
        """The rate that queues at home, all classes together."""
        return sum(self.queued.values())


class PlanError(Exception):
    """A problem that makes no sense, or that the solver could not solve. The caller keeps the last plan."""


def plan_flow(problem: PlanProblem, plan: Plan) -> dict[str, dict[str, float]]:
    """What each region would serve of each class by the plan's weights and shed shares."""
    known = ((one, plan.classes[one.key]) for one in problem.classes if one.key in plan.classes)
    return {
        one.key: {region: weight * admitted(one, each) for region, weight in each.weights.items()}
        for one, each in known
    }


def admitted(demand: ClassDemand, plan: ClassPlan) -> float:
    """The rate of a class that a plan does not refuse."""
    total = sum(demand.tenants.values())
    if not plan.tenants or total <= 0:
        return demand.rate * (1 - plan.shed)
    kept = sum(rate * (1 - plan.tenants.get(name, plan.shed)) for name, rate in demand.tenants.items())
    return demand.rate * kept / total


# --- What tunes the planner. The defaults suit a tick of one second. ---


@dataclass(frozen=True, slots=True)
class Knobs:
    """How the planner weighs and steps. Shares are 0–1, all but `keep_ms` and the solver's own are per tick.

    `keep_ms` is the advantage, in ms, of a flow that the previous plan has: a better one must be better by more.
    `max_step` is the share of a class that may move, `overload_step` that of a class with a share in an overloaded
    region or an exceeded quota; `free_rate` requests/s of any class may move whatever share of it they are. Smaller
    moves than `hysteresis` wait. `release_step` bounds how fast a shed share falls. Weights below `least_weight` are
    rounded away. A class keeps its plan for `idle_s` seconds without demand, and a service counts as moving until `settle_s`
    seconds after the last tick that left a class of it on its way.
    `shed_price_ms` is the highest price, that of a region where demand is refused. `time_limit_s` bounds what the
    solver takes for one plan.
    """

    keep_ms: float = 3.0
    max_step: float = 0.1
    overload_step: float = 0.5
    hysteresis: float = 0.02
    release_step: float = 0.1
    least_weight: float = 0.005
    free_rate: float = 1.0
    idle_s: float = 30.0
    settle_s: float = 10.0
    shed_price_ms: float = 10_000.0
    time_limit_s: float = 10.0


DEFAULT_KNOBS = Knobs()
