"""Planning, once a second, beside the feeds. What a plan is made from is gathered here; `planner` makes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from gtm.control.lead.demand import Reported
from gtm.control.lead.election import Election, Sole, Standing
from gtm.control.lead.leases import Leases
from gtm.control.lead.loads import Loads
from gtm.control.lead.planner import TICK, Inputs, Planned, Planner, same_plan
from gtm.control.lead.reports import Reports, beside
from gtm.control.live.present import Current
from gtm.core.capacity.supply import arrivals, turnover
from gtm.core.demand.belief import PART
from gtm.core.latency.estimator import Estimator
from gtm.core.policy.snapshot import Snapshot

logger = logging.getLogger(__name__)


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

    def __init__(
        self,
        current: Current,
        election: Election | Sole,
        reports: Reports,
        loads: Loads,
        *,
        leases: Leases,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._current = current
        self._election = election
        self._reports = reports
        self._loads = loads
        self._leases = leases
        self._clock = clock
        self._monotonic = monotonic
        self.planner = Planner()
        """Makes the plans, and has the last."""
        self.excess: Mapping[str, tuple[float, float]] = {}
        """The tokens whose edges say more than they are believed, by id: what they say, and what of that counts."""
        self._estimator: Estimator | None = None
        self._estimated: Snapshot | None = None

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
        snapshot, takeover = self._current.now.compiled, self._reports.takeover
        if snapshot is None or self._election.standing is not Standing.ACTIVE:
            return
        if not takeover.over and takeover.end(self._monotonic()):
            self.planner.resume(takeover.plan)
        inputs = self._inputs(snapshot)
        try:
            planned = await asyncio.to_thread(self._plan, inputs, self._reports.reported)
        except Exception:
            logger.exception("the planner failed; the last plan stays")
            return
        self._loads.assessment = planned.capacity
        self._reports.elsewhere = (
            arrivals(inputs.loads, inputs.now) / planned.per_decision,
            PART * sum(map(turnover, planned.capacity.supply.values())),
        )
        self._leases.apportion(planned.leasable)
        now = self._current.now
        if takeover.over and (now.keep_plan or not same_plan(planned.told, now.state.plan)):
            plan = await asyncio.to_thread(takeover.sealed, planned.told)
            told = self._current.now.with_state(self._clock(), plan=plan)
            self._current.become(replace(told, keep_plan=False))

    def _plan(self, inputs: Inputs, reported: Reported) -> Planned:
        """One plan, beside the event loop."""
        self.excess = reported.excess()
        return self.planner.tick(replace(inputs, rates=reported.rates(self.excess)))

    def _inputs(self, snapshot: Snapshot) -> Inputs:
        """All that one plan is made from, as of now, but for the rates."""
        now = self._current.now
        if (
            self._estimator is None
            or self._estimated is not snapshot
            or self._estimator.table is not now.table
        ):
            self._estimator, self._estimated = Estimator(snapshot.regions, now.table), snapshot
        return Inputs(
            snapshot=snapshot,
            estimator=self._estimator,
            state=replace(now.state, health=self._reports.vantages.judgement.presumed),
            now=self._clock(),
            rates={},
            loads=self._loads.loads(snapshot.policy),
            capacity=self._loads.assessment,
            beside=beside(self._reports.pushed),
        )
