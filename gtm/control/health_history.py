"""The history of health as people ask for it: what is written down, and what the active control has heard since.

Law: without the database it is what the active control remembers of the last hour, and says that it is not all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from gtm.control.lead.history.health import HealthRecorder
from gtm.core.health.history import HistorySeries, HistoryStep, VerdictChange
from gtm.core.model.state import HealthStatus
from gtm.storage.errors import StorageUnavailable
from gtm.storage.history.health import WantedChanges
from gtm.storage.session import Database


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
