"""Simulations and explanations of drafts, in the present as control knows it.

A scenario, as a document, is what may happen beside a change of policy.

A `Situation` is the present as simulations, explanations and safety rules take it: health, load, latency, demand, all of one moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from gtm.control.errors import Invalid, Unavailable
from gtm.control.lead.demand import PerAnswer, requests_of
from gtm.core.capacity.load import Key, Load
from gtm.core.capacity.supply import NO_ASSESSMENT, Assessment, assess
from gtm.core.decision.decide import Routing, routed
from gtm.core.decision.explain import answer, lines
from gtm.core.decision.options import Option
from gtm.core.decision.view import View, Window, view_of
from gtm.core.demand.rows import Row
from gtm.core.demand.traffic import Traffic
from gtm.core.latency.table import EMPTY_TABLE, LatencyTable
from gtm.core.model.outcomes import UnknownNameError
from gtm.core.model.policy import Policy
from gtm.core.model.problems import Problem
from gtm.core.model.references import meant
from gtm.core.model.requests import Request
from gtm.core.model.services import Priority
from gtm.core.model.state import NO_PLAN, HealthStatus, State
from gtm.core.plan.problem import PlanError
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.snapshot import Snapshot
from gtm.core.simulate.compare import simulate
from gtm.core.simulate.report import as_data
from gtm.core.simulate.scenario import NOTHING, Scenario, SimulatedWorld, presumed_up
from gtm.documents import fields as f
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.documents.parts import DraftDocument
from gtm.documents.resources import MAX_RESOURCES, Document
from gtm.geoip.address import parse_address

if TYPE_CHECKING:  # with them comes the database, which processes that look at drafts have no use for
    from gtm.control.lead.active import Active
    from gtm.control.live.present import Present


@dataclass(frozen=True, slots=True)
class Situation:
    """One moment: `now` in POSIX seconds, `demand` by demand cell in requests per second."""

    now: float
    state: State
    loads: Mapping[Key, Load] = field(default_factory=dict)
    capacity: Assessment = NO_ASSESSMENT
    table: LatencyTable = EMPTY_TABLE
    demand: Mapping[str, float] = field(default_factory=dict)

    def view(self, snapshot: Snapshot) -> View:
        """A policy in this moment, with the plan in force."""
        return view_of(snapshot, self.state, Window(self.now, self.now), self.table)

    def bare(self, snapshot: Snapshot) -> SimulatedWorld:
        """A policy in this moment, without a plan, and without what regions can take: where no demand is known, nobody asks for that."""
        return SimulatedWorld(
            replace(self, state=replace(self.state, vantage="", plan=NO_PLAN)).view(snapshot), {}
        )

    def world(
        self, snapshot: Snapshot, *, presume_up: bool = False, scenario: Scenario = NOTHING
    ) -> SimulatedWorld:
        """A policy in this moment, without a plan.

        Args:
            snapshot: the policy.
            presume_up: whether endpoints that nobody has probed yet count as up.
            scenario: what happens besides.
        """
        health = self.state.health
        if presume_up:
            health = presumed_up(snapshot.policy, health, self.now)
        if scenario.down:
            health = scenario.health(health, snapshot.policy, self.now)
        state = replace(self.state, vantage="", health=health, plan=NO_PLAN)
        found = assess(snapshot.policy, health, self.loads, self.now, self.capacity)
        day = self.now if scenario.at is None else scenario.at
        return SimulatedWorld(
            replace(self, state=state, now=day).view(snapshot), scenario.supply(found.supply)
        )


async def situation_of(present: Present, active: Active, now: float) -> Situation:
    """The present of the active control at a POSIX time; demand is added up beside the event loop."""
    reported, per_answer = active.reports.reported, active.planning.latest.per_answer
    found = Situation(
        now=now,
        state=replace(present.state, health=active.health),
        loads=active.loads.loads(present.policy),
        capacity=active.loads.assessment,
        table=present.table,
    )
    demand = await asyncio.to_thread(lambda: requests_by_cell(reported.rates(), per_answer))
    return replace(found, demand=demand)


def requests_by_cell(rates: Mapping[Row, float], per_answer: PerAnswer) -> dict[str, float]:
    """Requests per second by demand cell, whatever becomes of them.

    Args:
        rates: requests or DNS answers per second.
        per_answer: how many requests a DNS answer stands for.
    """
    found: dict[str, float] = {}
    for row, rate in rates.items():
        found[row.cell] = found.get(row.cell, 0.0) + requests_of(row, rate, per_answer)
    return found


MAX_FACTOR = 1000.0
_Names = Annotated[tuple[f.Name, ...], Field(max_length=MAX_RESOURCES)]
_Demand = Annotated[f.Number, Field(gt=0, le=MAX_FACTOR)]
_Capacity = Annotated[f.Number, Field(ge=0, le=MAX_FACTOR)]


class ScenarioDocument(Document):
    """What happens beside the draft; factors are multiples of what is now."""

    down: _Names = ()
    """Regions that fail: all their endpoints are down."""
    drain: _Names = ()
    """Regions that drain."""
    capacity: Annotated[dict[f.Name, _Capacity], Field(max_length=MAX_RESOURCES)] = Field(
        default_factory=dict
    )
    """Region → what it can take, 0 to 1000 times what it can take now, where a bound is known."""
    demand: _Demand = 1.0
    """All requests, up to 1000 times as many."""
    services: Annotated[dict[f.Name, _Demand], Field(max_length=MAX_RESOURCES)] = Field(default_factory=dict)
    """Service → its requests, besides."""
    at: f.Moment | None = None
    """By the law, and the policy's dates, of this moment to come; left out: of now."""

    @property
    def scenario(self) -> Scenario:
        """The scenario as a value of the core."""
        return Scenario(
            down=frozenset(self.down),
            drain=frozenset(self.drain),
            capacity=self.capacity,
            demand=self.demand,
            services=self.services,
            at=None if self.at is None else self.at.timestamp(),
        )


def check(scenario: Scenario, policy: Policy, now: float) -> None:
    """See that a scenario can be: its regions and services are the policy's, and its day is to come.

    Raises:
        Invalid: it cannot; every problem is listed.
    """
    problems = [
        *_unknown("down", "region", scenario.down, [one.name for one in policy.regions]),
        *_unknown("drain", "region", scenario.drain, [one.name for one in policy.regions]),
        *_unknown("capacity", "region", scenario.capacity, [one.name for one in policy.regions]),
        *_unknown("services", "service", scenario.services, [one.name for one in policy.services]),
    ]
    if scenario.at is not None and scenario.at < now:
        said = (
            f"{datetime.fromtimestamp(scenario.at, UTC).isoformat()} is over: a simulation is of days to come"
        )
        problems.append(Problem("scenario.at", "out_of_range", said))
    if problems:
        raise Invalid("; ".join(one.message for one in problems[:10]), problems)


def _unknown(field: str, kind: str, names: Iterable[str], known: Collection[str]) -> list[Problem]:
    wrong = sorted(set(names) - set(known))[:10]
    return [
        Problem(f"scenario.{field}", "unknown_reference", f"there is no {kind} `{name}`{meant(name, known)}")
        for name in wrong
    ]


DRAW = 0.5
"""An explanation is of the middle draw: of several ways it shows one that is likely, the same each time."""


def compile_draft(draft: DraftDocument, running: Policy, scenario: Scenario = NOTHING) -> Snapshot:
    """Compile a draft, with what a scenario changes of it; regions without an admin state have that of the policy in force.

    Raises:
        PolicyError: it does not compile.
    """
    return compile_policy(scenario.policy(draft.within(running)), shipped_jurisdictions())


def compiled(policy: Policy, revision: int = 0) -> Snapshot:
    """A policy that was compiled before, compiled again.

    Raises:
        PolicyError: it does not compile any more.
    """
    return compile_policy(policy, shipped_jurisdictions(), revision=revision)


def simulated(
    situation: Situation, traffic: Traffic, running: Snapshot, draft: Snapshot, scenario: Scenario = NOTHING
) -> dict[str, Any]:
    """What the draft would make of some traffic, in a scenario, beside what the policy in force makes of it now.

    Raises:
        Invalid: the scenario names what the draft does not have, or a day that is over.
        Unavailable: the planner could not solve it.
    """
    found = _simulated(situation, traffic, running, draft, scenario)
    found["warnings"] += presumptions(situation, draft.policy)
    return found


def simulated_offline(
    before: Policy, after: Policy, traffic: Traffic, now: float, scenario: Scenario = NOTHING
) -> dict[str, Any]:
    """The same where no server is at hand: every endpoint counts as up, and capacities are those declared.

    Raises:
        PolicyError: one of them does not compile.
        Invalid: the scenario names what the draft does not have, or a day that is over.
        Unavailable: the planner could not solve it.
    """
    shipped = shipped_jurisdictions()
    situation = Situation(now, State())
    running, draft = compile_policy(before, shipped), compile_policy(scenario.policy(after), shipped)
    return _simulated(situation, traffic, running, draft, scenario)


def _simulated(
    situation: Situation, traffic: Traffic, running: Snapshot, draft: Snapshot, scenario: Scenario
) -> dict[str, Any]:
    check(scenario, draft.policy, situation.now)
    before = situation.world(running, presume_up=True)
    after = situation.world(draft, presume_up=True, scenario=scenario)
    try:
        return as_data(simulate(traffic, before, after, scenario), before, after)
    except PlanError as error:
        raise Unavailable(f"the planner could not plan for this traffic: {error}") from error


def presumptions(situation: Situation, policy: Policy) -> list[str]:
    """What a simulation takes for granted of health."""
    health = situation.state.health
    names = [
        region.name
        for region in policy.regions
        if any(
            endpoint.url not in health.get(region.name, {})
            or health[region.name][endpoint.url].status is HealthStatus.UNKNOWN
            for endpoint in region.endpoints
        )
    ]
    if not names:
        return []
    return [f"no edge has probed every endpoint of {', '.join(names)}: these count as up"]


def priorities(*policies: Policy) -> dict[str, Priority]:
    """Service → its priority; the last policy that has the service says it."""
    return {service.name: service.priority for policy in policies for service in policy.services}


def _packed(client: str | None) -> bytes:
    """A client's address in network order, of a subnet its first; empty where it is unknown."""
    return b"" if client is None else parse_address(client.partition("/")[0]).packed


def _known(snapshot: Snapshot, kind: str) -> Collection[str]:
    """The names of a kind that requests may name."""
    names: Mapping[str, Collection[str]] = {
        "service": snapshot.services,
        "tenant": snapshot.tenants,
        "data class": snapshot.data_classes,
        "model": snapshot.models,
    }
    return names[kind]


def explanation(
    situation: Situation,
    snapshot: Snapshot,
    request: Request,
    client: str | None,
    *,
    sheds: bool = True,
    answers: Callable[[Routing, Option], Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """The whole trace of one decision in the present, with the sentences that tell it (`lines`).

    Args:
        situation: the present.
        snapshot: the policy.
        request: what is asked.
        client: an address or a subnet, None if it is unknown.
        sheds: whether it may be refused for want of capacity, as DNS never does.
        answers: adds what an edge would send.

    Raises:
        Invalid: the policy does not know a name in the request.
    """
    view = situation.view(snapshot)
    view = view if sheds else view.in_dns
    try:
        routing = routed(view, request, _packed(client))
    except UnknownNameError as error:
        text = f"{error}{meant(error.name, _known(snapshot, error.kind))}"
        raise Invalid(text, [Problem(error.kind.replace(" ", "_"), "unknown_reference", text)]) from error
    option = routing.pick(DRAW, sheds=sheds)
    decision = routing.explained(option)
    trace = answer(view, request, decision, client=client, endpoint=routing.endpoint(option), full=True)
    sent = {} if answers is None else answers(routing, option)
    return {**trace, "lines": lines(view, request, decision), **sent}
