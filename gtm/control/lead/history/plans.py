"""Recording what the planner decided, minute by minute, for the Plan page and `GET /v1/plan/history`.

Law: minutes without a plan, and of a control that stands by, are not recorded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from math import inf

from gtm.control.lead.history.recording import MinuteWriter
from gtm.control.lead.planner import Planned
from gtm.core.capacity.load import Freshness
from gtm.core.capacity.supply import RegionCapacity
from gtm.core.plan.history import Minutes, RegionMinute, seen
from gtm.storage.session import Database, Transaction

SAMPLE = 5.0
"""Seconds between looks at the plan."""


def utilisation(found: RegionCapacity | None) -> float | None:
    """Which share of its limit a region reports outstanding; None: it never said, or has no limit."""
    part = found.parts[0] if found is not None and found.parts else None
    if part is None or part.freshness is Freshness.NEVER or part.load is None:
        return None
    limit = min((one for one in (part.slots.declared, part.slots.reported) if one is not None), default=None)
    outstanding = part.load.outstanding
    return outstanding / limit if outstanding is not None and limit else None


class PlanHistory(MinuteWriter[tuple[float, Mapping[str, RegionMinute]]]):
    """Records for one control process.

    Args:
        database: where.
        retention: how long minutes are kept.
    """

    what = "the plan's history"

    def __init__(self, database: Database, retention: timedelta) -> None:
        super().__init__(database, retention)
        self._minutes = Minutes()
        self._summed = False

    def sample(self, planned: Planned, now: float) -> None:
        """Take in the plan as it is."""
        if planned.solution is None:
            return
        use = {name: utilisation(one) for name, one in planned.capacity.regions.items()}
        done = self._minutes.add(seen(planned.problem, planned.plan, planned.solution.binding, use), now)
        self._add(() if done is None else (done,))

    def end(self, now: float = inf) -> None:  # noqa: ARG002 - the minute ends, whatever the time
        done = self._minutes.end()
        self._add(() if done is None else (done,))

    async def _write(self, now: float) -> None:
        if not self._summed:
            async with self._database.transaction() as transaction:
                await transaction.plans.sum_up(datetime.fromtimestamp(now, UTC))
            self._summed = True
        await super()._write(now)

    async def _record(
        self, transaction: Transaction, minute: tuple[float, Mapping[str, RegionMinute]]
    ) -> None:
        await transaction.plans.record(datetime.fromtimestamp(minute[0], UTC), minute[1])

    async def _forget(self, transaction: Transaction, before: datetime) -> None:
        await transaction.plans.forget(before)


async def run(
    history: PlanHistory, latest: Callable[[], Planned], clock: Callable[[], float] = time.time
) -> None:
    """Record until cancelled; at the end, what was seen of the last minute.

    Args:
        history: of this process.
        latest: the last plan.
        clock: POSIX seconds.
    """
    await history.run_every(SAMPLE, clock, lambda: asyncio.to_thread(history.sample, latest(), clock()))
