"""Writes the history of health down, for later starts and for the days before this one.

Laws:
  1. One writes: the active control. A step that two heard parts of, as when another becomes active or control starts anew, is there from each.
  2. Losing the database loses nothing for an hour; of more, the oldest goes, and the log says so.
  3. What was written before is known before anything counts as a first verdict.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from gtm.control.lead.history.recording import HistoryWriter
from gtm.core.health.history import KEPT, STEP, Change, History, Series, Step
from gtm.storage.session import Database, Transaction

logger = logging.getLogger(__name__)

EVERY = 2.0
"""Seconds between writings."""
MOST_WAITING = 20_000
"""Changes that wait for the database at most."""


class HealthRecorder(HistoryWriter):
    """Records for one control process.

    Args:
        database: where.
        history: what is heard.
        source: a name that no other control process has.
        retention: how long it is kept; nothing: it is not written down at all.
    """

    what = "the history of health"

    def __init__(self, database: Database, history: History, source: str, retention: timedelta) -> None:
        super().__init__(database, retention)
        self.source = source
        self.history = history
        self._known = not retention
        self._changes: list[Change] = []
        self._steps: dict[float, list[tuple[Series, Step]]] = {}
        if self._known:
            history.known({})

    async def run(self, clock: Callable[[], float]) -> None:
        """Record until cancelled; at the end, what was heard of the steps that are not over."""

        async def look() -> None:
            self.collect(clock())

        await self.run_every(EVERY, clock, look)

    def end(self, now: float) -> None:
        self.collect(now)
        if self._retention:
            for series, step in self.history.unfinished():
                self._steps.setdefault(step.start, []).append((series, step))

    def collect(self, now: float) -> None:
        """Take over what is ready to be written, within bounds."""
        finished, changes = self.history.finished(now), self.history.waiting()
        if not self._retention:
            return
        for series, step in finished:
            self._steps.setdefault(step.start, []).append((series, step))
        self._changes += changes
        late = len(self._changes) - MOST_WAITING
        if late > 0:
            del self._changes[:late]
            logger.error("%d changes of health are lost: no database", late)
        for start in sorted(self._steps)[: max(0, len(self._steps) - int(KEPT / STEP))]:
            del self._steps[start]
            logger.error(
                "the history of health of %s is lost: no database", datetime.fromtimestamp(start, UTC)
            )

    async def write(self, now: float) -> None:
        """Write what waits, and now and then forget what is old; nothing at all if nothing is kept.

        Raises:
            StorageUnavailable: it waits for the next time.
        """
        if self._retention:
            await super().write(now)

    async def _write(self, now: float) -> None:  # noqa: ARG002 - whatever the time
        if not self._known:
            async with self._database.transaction() as transaction:
                last = await transaction.health.last()
            self.history.known(last)
            self._known = True
        if self._changes:
            changes = list(self._changes)
            async with self._database.transaction() as transaction:
                await transaction.health.add(changes)
            del self._changes[: len(changes)]
        for start in sorted(self._steps):
            async with self._database.transaction() as transaction:
                await transaction.health.record(self.source, self._steps[start])
            del self._steps[start]

    async def _forget(self, transaction: Transaction, before: datetime) -> None:
        await transaction.health.forget(before)
