"""What is wrong now, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gtm.dashboard.pages.world.seen import Now
from gtm.storage.errors import UP, DatabaseUnfit, StorageBusy, StorageReadOnly, StorageUnavailable

if TYPE_CHECKING:
    from gtm.client import types


def wrong(seen: Now) -> list[tuple[str, str, str]]:
    """What is wrong now, the worst first: how bad, a sentence, and the region that it is about, if it is about one."""
    found = [*_of_control(seen), *(line for one in seen.top.regions for line in _of_region(one))]
    for one in seen.top.refusals:
        if one.requests_per_second >= 0.01:
            why = one.outcome.replace("_", " ")
            words = f"{one.requests_per_second:.3g} requests per second for {one.service} are refused: {why}."
            found.append((2, "bad", words, ""))
    found += [(6, "warn", words, "") for words in seen.status.warnings]
    return [(kind, words, region) for _, kind, words, region in sorted(found)]


def _of_control(seen: Now) -> Iterator[tuple[int, str, str, str]]:
    if seen.top.database != UP:
        why = {kind.state: kind.why for kind in (StorageReadOnly, StorageBusy, DatabaseUnfit)}.get(
            seen.top.database, StorageUnavailable.why
        )
        words = (
            f"The database {why}: nothing can be changed or recorded. Edges and this page go on from memory."
        )
        yield 0, "bad", words, ""
    if seen.top.plan.error:
        yield 2, "bad", f"The planner failed, so the plan before stays: {seen.top.plan.error}", ""
    sync = seen.status.sync
    if sync.state != "IN_SYNC":
        late = ", ".join([*sync.pending, *sync.lost, *sync.unreachable])
        words = f": {late}" if late else ", for no edge is heard of"
        yield 3, "warn", f"Revision {sync.revision} is not everywhere yet{words}.", ""


def _of_region(one: types.TopRegion) -> Iterator[tuple[int, str, str, str]]:
    name = one.region
    if one.health == "down" and one.admin_state != "disabled":
        yield 1, "bad", f"Region {name} is down: its clients are served elsewhere, inside their fences.", name
    elif one.admin_state != "active":
        yield 5, "warn", f"Region {name} is {one.admin_state}.", name
    elif one.health == "unknown":
        yield (
            3,
            "warn",
            f"Nobody has probed region {name} yet: it gets no clients that another may take.",
            name,
        )
    if one.exhausted:
        yield 4, "warn", f"Region {name} is full: what it cannot take goes elsewhere or is refused.", name
