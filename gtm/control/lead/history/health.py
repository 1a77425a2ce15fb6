"""Writes the history of health down, for later starts and for the days before this one, and reads it.

Laws:
  1. One writes: the active control. A step that two heard parts of, as when another becomes active or control starts anew, is there from each.
  2. Losing the database loses nothing for an hour; of more, the oldest goes, and the log says so.
  3. What was written before is known before anything counts as a first verdict.
  4. Without the database, what people are told is what the active control remembers of the last hour, and it says that this is not all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from gtm.control.lead.history.recording import HistoryWriter
from gtm.core.health.history import KEPT, STEP, History, HistorySeries, HistoryStep, VerdictChange
from gtm.core.model.state import HealthStatus
from gtm.storage.errors import StorageUnavailable
from gtm.storage.history.audit import CONTROL
from gtm.storage.history.health import WantedChanges
from gtm.storage.session import Database, Transaction

logger = logging.getLogger(__name__)

EVERY = 2.0
"""Seconds between writings."""
MOST_WAITING = 20_000
"""Changes that wait for the database at most."""
MOST_ALARMS = 100
"""Alarms, and ends of alarms, that do."""


class HealthRecorder(HistoryWriter):
    """Records for one control process.

    Args:
        database: where.
        history: what is heard.
        source: a name that no other control process has.
        retention: how long it is kept; nothing: it is not written down at all.
        alarm: the regions that the alarm over health is about, none while there is none, and what is said of it.
    """

    what = "the history of health"

    def __init__(
        self,
        database: Database,
        history: History,
        source: str,
        retention: timedelta,
        alarm: Callable[[], tuple[frozenset[str], str]] = lambda: (frozenset(), ""),
    ) -> None:
        super().__init__(database, retention)
        self.source = source
        self.history = history
        self._known = not retention
        self._changes: list[VerdictChange] = []
        self._steps: dict[float, list[tuple[HistorySeries, HistoryStep]]] = {}
        if self._known:
            history.known({})
        self._alarm = alarm
        self._disputed: frozenset[str] = frozenset()
        self._alarms: list[tuple[str, str, str]] = []
        """Alarms that began and that are over, to be written: action, target, detail."""

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
        disputed, words = self._alarm()
        if disputed - self._disputed:
            self._alarms.append(("health.alarm", ", ".join(sorted(disputed)), words))
        elif self._disputed and not disputed:
            self._alarms.append(("health.alarm-over", ", ".join(sorted(self._disputed)), ""))
        self._disputed = disputed
        del self._alarms[:-MOST_ALARMS]
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
        if self._alarms:
            alarms = list(self._alarms)
            async with self._database.transaction() as transaction:
                for action, target, detail in alarms:
                    await transaction.audit.add(CONTROL, action, target, detail=detail)
            del self._alarms[: len(alarms)]
        for start in sorted(self._steps):
            async with self._database.transaction() as transaction:
                await transaction.health.record(self.source, self._steps[start])
            del self._steps[start]

    async def _forget(self, transaction: Transaction, before: datetime) -> None:
        await transaction.health.forget(before)


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of each series, the oldest first. `complete`: nothing is missing that was written down."""

    series: Mapping[HistorySeries, list[HistoryStep]]
    complete: bool


async def changes(
    database: Database, recorder: HealthRecorder | None, wanted: WantedChanges, before: int | None, limit: int
) -> tuple[list[VerdictChange], bool]:
    """At most `limit` changes, the newest first, older than the number `before`; and whether that is all there is.

    Args:
        database: where they are written down.
        recorder: the active control's, with what it has heard; None: this one stands by.
        wanted: which.
        before: a change's number; None: from the newest on.
        limit: how many.
    """
    found, complete = dict[tuple[int, HistorySeries], VerdictChange](), True
    try:
        async with database.transaction() as transaction:
            stored = await transaction.health.changes(wanted, before, limit)
    except StorageUnavailable:
        stored, complete = [], False
    heard = () if recorder is None else recorder.history.recent
    for one in (*stored, *heard):
        if (before is None or one.number < before) and wanted.holds(one):
            found[one.number, one.series] = one
    return sorted(found.values(), key=lambda one: (one.number, one.series), reverse=True)[:limit], complete


async def steps(
    database: Database, recorder: HealthRecorder | None, region: str, since: float, until: float
) -> Steps:
    """The steps of a region that begin from `since` to before `until`, both POSIX seconds; see `changes`."""
    history = None if recorder is None else recorder.history
    found: dict[HistorySeries, dict[float, HistoryStep]] = {}
    own = "" if recorder is None else recorder.source
    for series, heard in () if history is None else history.steps(region):
        found[series] = {step.start: step for step in heard if since <= step.start < until}
    if history is not None and history.covers(since):
        return Steps(_sorted(found), complete=True)
    try:
        async with database.transaction() as transaction:
            stored = await transaction.health.steps(
                region, datetime.fromtimestamp(since, UTC), datetime.fromtimestamp(until, UTC)
            )
    except StorageUnavailable:
        return Steps(_sorted(found), complete=False)
    own_starts = {(series, start) for series, of in found.items() for start in of}
    for source, series, step in stored:
        if source == own and (series, step.start) in own_starts:
            continue
        of = found.setdefault(series, {})
        of[step.start] = step if step.start not in of else joined(of[step.start], step)
    return Steps(_sorted(found), complete=True)


def joined(one: HistoryStep, other: HistoryStep) -> HistoryStep:
    """A step of which two control processes heard parts: counts add up, percentiles are of the larger part."""
    more, less = (one, other) if (one.probes or 0) >= (other.probes or 0) else (other, one)
    told = [step.probes for step in (one, other) if step.probes is not None]
    return replace(
        more,
        worst=HealthStatus.DOWN if HealthStatus.DOWN in (one.worst, other.worst) else more.worst,
        probes=sum(told) if told else None,
        failed=one.failed + other.failed,
        changes=one.changes + other.changes,
        detail=more.detail or less.detail,
    )


def _sorted(
    found: Mapping[HistorySeries, Mapping[float, HistoryStep]],
) -> dict[HistorySeries, list[HistoryStep]]:
    """By endpoint, all together first; each series' steps the oldest first, series without any left out."""
    named: Iterable[HistorySeries] = sorted(found, key=lambda one: (one.url, one.vantage))
    return {
        series: [found[series][start] for start in sorted(found[series])] for series in named if found[series]
    }
