"""The present, as simulations, explanations and safety rules take it: health, load, latency, demand, all of one moment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gtm.control.lead.demand import PerAnswer, requests_of
from gtm.core.capacity.load import Key, Load
from gtm.core.capacity.supply import NO_ASSESSMENT, Assessment, assess
from gtm.core.decision.view import View, Window, view_of
from gtm.core.demand.rows import Row
from gtm.core.latency.table import EMPTY_TABLE, LatencyTable
from gtm.core.model.state import NO_PLAN, State
from gtm.core.policy.snapshot import Snapshot
from gtm.core.simulate.scenario import NOTHING, Scenario, SimulatedWorld, presumed_up

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
