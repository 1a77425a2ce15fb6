"""Recording what the planner decided, minute by minute, for the Plan page and `GET /v1/plan/history`.

Laws:
  1. Losing the database loses no minute for an hour; what is older is dropped, and the log says so.
  2. Minutes without a plan, and of a control that stands by, are not recorded.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from gtm.control.lead.history import ending
from gtm.control.lead.planner import Planned
from gtm.core.capacity.load import Freshness
from gtm.core.capacity.supply import RegionCapacity
from gtm.core.plan.history import Minutes, RegionMinute, seen
from gtm.storage.errors import StorageUnavailable
from gtm.storage.session import Database

logger = logging.getLogger(__name__)

SAMPLE = 5.0
"""Seconds between looks at the plan."""
MAX_WAITING = 60
"""Minutes that wait for the database at most."""
_SWEEP = 3600.0


def utilisation(found: RegionCapacity | None) -> float | None:
    """Which share of its limit a region reports outstanding; None: it never said, or has no limit."""
    part = found.parts[0] if found is not None and found.parts else None
    if part is None or part.freshness is Freshness.NEVER or part.load is None:
        return None
    limit = min((one for one in (part.slots.declared, part.slots.reported) if one is not None), default=None)
    outstanding = part.load.outstanding
    return outstanding / limit if outstanding is not None and limit else None


class PlanHistory:
    """Records for one control process.

    Args:
        database: where.
        retention: how long minutes are kept.
    """

    def __init__(self, database: Database, retention: timedelta) -> None:
        self._database = database
        self._retention = retention
        self._minutes = Minutes()
        self._waiting: list[tuple[float, Mapping[str, RegionMinute]]] = []
        self._swept = 0.0
        self._summed = False

    def sample(self, planned: Planned, now: float) -> None:
        """Take in the plan as it is."""
        if planned.solution is None:
            return
        use = {name: utilisation(one) for name, one in planned.capacity.regions.items()}
        done = self._minutes.add(seen(planned.problem, planned.plan, planned.solution.binding, use), now)
        if done is not None:
            self._waiting.append(done)
        if len(self._waiting) > MAX_WAITING:
            logger.error(
                "the plan's history of %d minutes is lost: no database", len(self._waiting) - MAX_WAITING
            )
            del self._waiting[:-MAX_WAITING]

    def end(self) -> None:
        """Take the minute that is not over for what it is."""
        done = self._minutes.end()
        if done is not None:
            self._waiting.append(done)

    async def write(self, now: float) -> None:
        """Write the minutes that are over, and now and then forget old ones.

        Raises:
            StorageUnavailable: they wait for the next time.
        """
        if not self._summed:
            async with self._database.transaction() as transaction:
                await transaction.plans.sum_up(datetime.fromtimestamp(now, UTC))
            self._summed = True
        while self._waiting:
            minute = self._waiting[0]
            async with self._database.transaction() as transaction:
                await transaction.plans.record(datetime.fromtimestamp(minute[0], UTC), minute[1])
            self._waiting.remove(minute)
        if now - self._swept >= _SWEEP:
            async with self._database.transaction() as transaction:
                await transaction.plans.forget(datetime.fromtimestamp(now, UTC) - self._retention)
            self._swept = now


async def run(
    history: PlanHistory, latest: Callable[[], Planned], clock: Callable[[], float] = time.time
) -> None:
    """Record until cancelled; at the end, what was seen of the last minute.

    Args:
        history: of this process.
        latest: the last plan.
        clock: POSIX seconds.
    """
    try:
        while True:
            await asyncio.to_thread(history.sample, latest(), clock())
            try:
                await history.write(clock())
            except StorageUnavailable as error:
                logger.debug("the plan's history waits for the database: %s", error)
            await asyncio.sleep(SAMPLE)
    finally:
        history.end()
        await ending.last("the plan's history", history.write(clock()))
