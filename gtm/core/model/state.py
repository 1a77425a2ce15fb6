"""What changes by the second, as one value: health now, and the plan. Edges get it whole, by epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class HealthStatus(StrEnum):
    """What probes say of an endpoint. Unknown is never treated as healthy."""

    UP = "up"
    DOWN = "down"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class EndpointHealth:
    """An endpoint's health. `since` is a POSIX time in seconds, `detail` the last failure in words.

    `recovered`: it is up after having been down, so that slow start counts from `since`. `tied`: as many vantages say up
    as say down, so this is what they said together before; a vantage goes by its own probes there.
    """

    status: HealthStatus = HealthStatus.UNKNOWN
    since: float = 0.0
    """POSIX time of the last change, in seconds."""
    detail: str = ""
    latency_ms: float | None = None
    recovered: bool = False
    tied: bool = False


UNKNOWN_HEALTH = EndpointHealth()


@dataclass(frozen=True, slots=True)
class ClassPlan:
    """How the requests of one ranking class are spread.

    `weights` maps region names to shares of what is served (sum 1). `shed` is the share of the class's requests that
    is refused for want of capacity; `tenants` holds the tenants whose own share differs, because fairness inside a
    priority tier sheds those beyond their fair share first.
    """

    weights: dict[str, float]
    shed: float = 0.0
    tenants: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the planner wants, made at a POSIX time in seconds.

    `classes` maps a ranking class (`gtm.core.decision.ranking`) to its plan. `prices` says what one more request a second in a
    region would cost all others, in ms of latency: a class that the plan does not know goes where estimate plus price
    is least. `idle` says since when (POSIX time in seconds) a class has had no demand: it is dropped after a while.
    `moving` names the services with traffic on its way to where the plan wants it, and when it last was (POSIX time in
    seconds): some time after that they count as settled. `seal` is control's mark that it made this plan: edges carry it,
    and only control can tell.
    """

    made: float = 0.0
    classes: dict[str, ClassPlan] = field(default_factory=dict)
    prices: dict[str, float] = field(default_factory=dict)
    idle: dict[str, float] = field(default_factory=dict)
    moving: dict[str, float] = field(default_factory=dict)
    seal: str = ""


NO_PLAN = Plan()
PLAN_KEPT = 300.0
"""Seconds for which the last plan is followed once control is lost, or has started anew and plans nothing; after that,
the nearest usable region serves."""


def kept_plan(plan: Plan, lost_for: float) -> Plan:
    """What is left of the last plan so many seconds after control was lost: all of it for a while, then nothing."""
    return plan if lost_for <= PLAN_KEPT else NO_PLAN


@dataclass(frozen=True, slots=True)
class State:
    """The state of the world at one epoch, replaced whole.

    `health` maps a region's name to its endpoints' health, by URL. A region or endpoint that is missing is
    unknown, hence not usable. `addresses` has the same of the addresses that DNS gives out (`gtm.core.health.addresses`): family →
    region's name → address and URL; one that is missing is as its endpoint. `vantage` is empty where control published the state; otherwise it names the edge
    whose own probes it rests on, because that edge has lost control.
    """

    epoch: int = 0
    vantage: str = ""
    health: dict[str, dict[str, EndpointHealth]] = field(default_factory=dict)
    plan: Plan = NO_PLAN
    addresses: dict[str, dict[str, dict[str, EndpointHealth]]] = field(default_factory=dict)
