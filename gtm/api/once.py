"""What answers rest on that is worked out of a policy once: before somebody asks, beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from gtm.control.live.present import Current
from gtm.core.policy.snapshot import Snapshot

G = TypeVar("G")
M = TypeVar("M")


class Once(Generic[G, M]):
    """Remembers what was made of the last thing asked about, which is known by its identity. For any thread.

    Args:
        make: makes it.
    """

    def __init__(self, make: Callable[[G], M]) -> None:
        self._make = make
        self._kept: tuple[G, M] | None = None

    def of(self, given: G) -> M:
        """Make the value of what is given, or return the one that was made of it before."""
        kept = self._kept
        if kept is None or kept[0] is not given:
            kept = self._kept = given, self._make(given)
        return kept[1]


async def prepare(current: Current, work: Callable[[Snapshot], object]) -> None:
    """Do the work for each policy as soon as it is in force, until cancelled: whoever is the first to look would wait for it."""
    last = None
    while True:
        changed, compiled = current.changed, current.now.compiled
        if compiled is not None and compiled is not last:
            last = compiled
            await asyncio.to_thread(work, compiled)
        await changed.wait()
