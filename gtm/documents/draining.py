"""When a region began to drain: from then on clients with affinity leave it, step by step."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from gtm.core.model.regions import AdminState, Region


def with_drain_start(region: Region, before: Region | None, now: datetime | None) -> Region:
    """The region with `draining_since` as its admin state wants it.

    A drain keeps its beginning for as long as it lasts; one that begins later has a beginning of its own.

    Args:
        region: as wanted.
        before: the region of this name in force, None if it is new.
        now: the beginning of a drain that begins; None: not known, and left out.
    """
    if region.admin_state is not AdminState.DRAINING:
        return replace(region, draining_since=None)
    if region.draining_since is not None:
        return region
    went_on = before is not None and before.admin_state is AdminState.DRAINING
    since = before.draining_since if before is not None and went_on else None
    beginning = now.replace(microsecond=0) if now is not None else None
    return replace(region, draining_since=since or beginning)
