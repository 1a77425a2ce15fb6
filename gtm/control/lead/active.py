"""All that the one active control process keeps in memory, from when it becomes that.

Law: what counts from a process's start (who has reported, what was in force before) counts from when it became active: a
standby hears nobody, and what it would keep were old by then.

A standby has no `Active`: whatever only the active one can do goes through one, and so cannot be done elsewhere by
oversight (`gtm.control.replica.Replica.leading`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

from gtm.control.lead.balancers import Balancers
from gtm.control.lead.demand import PerAnswer
from gtm.control.lead.edges import Sightings
from gtm.control.lead.election import Election
from gtm.control.lead.history import demand as demand_history
from gtm.control.lead.history import plans as plan_history
from gtm.control.lead.history.health import HealthRecorder
from gtm.control.lead.history.recording import AuditRetention
from gtm.control.lead.history.requests import RequestHistory
from gtm.control.lead.latency import LatencyBook, Teachers
from gtm.control.lead.leases import Leases
from gtm.control.lead.loads import RegionLoads
from gtm.control.lead.peaks import PeakKeeper
from gtm.control.lead.planner import Planning
from gtm.control.lead.reports import Reports, Verdicts
from gtm.control.lead.rooms import Rooms
from gtm.control.lead.takeover import load_seal
from gtm.control.live.present import Current, Health
from gtm.core.capacity.supply import Assessment
from gtm.core.latency.table import LatencyTable
from gtm.core.model.policy import Policy
from gtm.settings import ControlSettings
from gtm.storage.session import Database


class Active:
    """The parts of one active control process, each with one duty.

    Args:
        database: where edges, round trips and demand are written down.
        settings: what the process was told: with 0 `demand_days`, neither demand nor the plan's history nor what requests took is recorded.
        current: what edges are told; its state begins a later epoch here.
        election: this process's part among several on the database.
        clock: POSIX seconds.
        monotonic: seconds that never step back.
        senders: how many edges and balancers follow.
    """

    def __init__(
        self,
        database: Database,
        settings: ControlSettings,
        current: Current,
        election: Election,
        clock: Callable[[], float],
        *,
        monotonic: Callable[[], float],
        senders: Callable[[], int] = lambda: 1,
    ) -> None:
        current.become(current.now.with_state(clock()))
        self.loads = RegionLoads(clock)
        self.rooms = Rooms(current, senders, monotonic)
        self.latency = LatencyBook(database, clock, settings.latency_half_life)
        self.leases = Leases(election, clock, monotonic)
        self.reports = Reports(current, self.latency, self.leases, clock, monotonic)
        kept = timedelta(days=settings.demand_days)
        self.requests = RequestHistory(database, uuid4().hex, kept, clock)
        self.balancers = Balancers(
            self.leases,
            self.latency,
            monotonic,
            self.reports.pushes,
            lambda: current.now.policy,
            self.requests.take,
        )
        self.verdicts = Verdicts(current, self.reports, clock)
        self.planning = Planning(
            current, election, self.reports, self.loads, leases=self.leases, clock=clock, monotonic=monotonic
        )
        self._database = database
        self._peaks = PeakKeeper(database, self.reports, clock)
        self._sightings = Sightings(database, self.reports.vantages)
        self._current = current
        self._audit = AuditRetention(database, timedelta(days=settings.audit_days))
        vantages = self.reports.vantages
        self.health_recorder = HealthRecorder(
            database,
            self.reports.history,
            uuid4().hex,
            timedelta(days=settings.probe_days),
            lambda: (frozenset(vantages.judgement.alarm.disputed), vantages.alarm_words()),
        )
        self._clock = clock
        self._recorder = demand_history.Recorder(database, uuid4().hex, kept) if kept else None
        self._history = plan_history.PlanHistory(database, kept) if kept else None

    @property
    def health(self) -> Health:
        """What plans are made for: what the vantages say together, and of regions in dispute those who see them up."""
        return self.reports.vantages.judgement.presumed

    async def run(self) -> None:
        """Judge, plan, learn and record until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._load_seal())
            group.create_task(self._peaks.run())
            group.create_task(self.verdicts.run())
            group.create_task(self.planning.run())
            group.create_task(self.rooms.run())
            group.create_task(self.latency.run(self._measured, self._publish_table))
            group.create_task(self._sightings.run())
            group.create_task(self._audit.run_every(60.0, self._clock))
            group.create_task(self.health_recorder.run(self._clock))
            if self._recorder is not None:
                group.create_task(
                    demand_history.run(self._recorder, lambda: self.reports.reported, self._per_answer)
                )
                group.create_task(self.requests.run())
            if self._history is not None:
                group.create_task(plan_history.run(self._history, lambda: self.planning.latest))

    async def _load_seal(self) -> None:
        self.reports.takeover.seal = await load_seal(self._database)

    def _per_answer(self) -> PerAnswer:
        return self.planning.latest.per_answer

    def _measured(self) -> tuple[Policy, Assessment, Teachers] | None:
        """What latency tables are made for; None before the first policy."""
        now = self._current.now
        if now.message is None:
            return None
        edges = (edge.token_id for edge in self.reports.vantages.all())
        teachers = Teachers.of(now.tokens.values(), edges, self._clock())
        return now.message.policy, self.planning.latest.capacity, teachers

    def _publish_table(self, table: LatencyTable) -> None:
        self._current.become(replace(self._current.now, table=table))
