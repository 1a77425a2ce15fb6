"""The history of how much is asked of edges, kept in Postgres: a control that starts knows what is usual."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from gtm.control.lead.reports import Reports
from gtm.core.demand.belief import Peaks
from gtm.storage.errors import StorageUnavailable
from gtm.storage.session import Database

logger = logging.getLogger(__name__)

EVERY = 60.0
"""Seconds between writings."""
_RETRY = 1.0


class PeakKeeper:
    """Keeps `Reports.peaks` for one control process.

    Args:
        database: where.
        reports: whose.
        clock: POSIX seconds.
    """

    def __init__(self, database: Database, reports: Reports, clock: Callable[[], float]) -> None:
        self._database = database
        self._reports = reports
        self._clock = clock
        self._saved: Peaks = {}

    async def run(self) -> None:
        """Load, and write now and then until cancelled; what cannot be written waits for the next time."""
        await self.load()
        while True:
            await asyncio.sleep(EVERY)
            await self.save()

    async def load(self) -> None:
        """Read what was kept; waits for as long as the database is away."""
        while True:
            try:
                async with self._database.transaction() as transaction:
                    kept = await transaction.peaks.load()
                    recorded = {} if kept else await transaction.peaks.recorded(self._clock())
            except StorageUnavailable:
                await asyncio.sleep(_RETRY)
            else:
                self._saved = kept
                self._reports.peaks.add(kept or recorded)
                return

    async def save(self) -> None:
        """Write what grew."""
        peaks = self._reports.peaks.peaks()
        changed = {key: rate for key, rate in peaks.items() if self._saved.get(key) != rate}
        try:
            async with self._database.transaction() as transaction:
                await transaction.peaks.save(changed, self._clock(), self._reports.successors)
        except StorageUnavailable as error:
            logger.debug("the history of demand waits for the database: %s", error)
        else:
            self._saved = peaks
