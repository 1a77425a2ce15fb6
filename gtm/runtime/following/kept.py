"""What a process that follows control keeps in its data directory: its last good policy, the times, all written beside the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from gtm.feed import lastgood
from gtm.feed.current import CurrentView
from gtm.feed.wire import (
    AccessMessage,
    HandoffKeysMessage,
    KeysMessage,
    Lasting,
    LatencyMessage,
    Message,
    SnapshotMessage,
)
from gtm.runtime.following.clock_keeper import ClockKeeper

logger = logging.getLogger(__name__)

LAST_GOOD = "edge-last-good"
"""The file of what stays true without control, an edge's or a balancer's."""
_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")


def lasting(current: CurrentView, snapshot: SnapshotMessage | None) -> list[Lasting]:
    """What stays true without control: tokens, keys, policy, measured latency.

    Args:
        current: what the edge answers from.
        snapshot: its policy as control sent it; None: there is none yet.
    """
    messages: list[Lasting] = [AccessMessage(current.access)]
    if current.keys.version:
        messages.append(KeysMessage(current.keys))
    if current.handoff_keys.version:
        messages.append(HandoffKeysMessage(current.handoff_keys))
    if snapshot is not None:
        messages.append(snapshot)
    if current.table.version:
        messages.append(LatencyMessage(current.table))
    return messages


def _revision(messages: Iterable[Message]) -> int:
    return next((one.revision for one in messages if isinstance(one, SnapshotMessage)), 0)


class Kept:
    """The way to a disk, which may be slow, full or gone: answers go on, and writing is tried again.

    Args:
        data_dir: the edge's.
        clock: keeps the times there.
        replaced: whether a successor keeps the files now, which are then left alone.
    """

    def __init__(self, data_dir: Path, clock: ClockKeeper, replaced: Callable[[], bool]) -> None:
        self.last_good = data_dir / LAST_GOOD
        self.unsaved = False
        """The last-good file is older than what is known, for the disk refused it."""
        self.revision = 0
        """Of the policy in that file; 0: there is none."""
        self._clock = clock
        self._replaced = replaced
        self._saving = asyncio.Lock()
        # A thread of its own: those that all share may be busy with names that do not resolve, for half a minute each.
        self._thread = ThreadPoolExecutor(1, "disk")

    async def on_disk(
        self, work: Callable[_Args, _Result], *args: _Args.args, **kwargs: _Args.kwargs
    ) -> _Result:
        """Do what may wait for a disk, beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(work, *args, **kwargs))

    async def load(self) -> list[Message]:
        """What the last-good file holds.

        Raises:
            FileNotFoundError: there is none yet.
            OSError: it cannot be read.
            FeedError: it is damaged.
        """
        found = await self.on_disk(lastgood.load, self.last_good)
        self.revision = _revision(found)
        return found

    async def save(self, messages: Callable[[], Iterable[Message]]) -> None:
        """Write the last-good file, of the messages there are when its turn comes."""
        if self._replaced():
            return
        async with self._saving:
            lasting = list(messages())
            try:
                await self.on_disk(lastgood.save, self.last_good, lasting)
            except OSError as error:
                if not self.unsaved:
                    logger.error(
                        "cannot save the last-good file, still trying; a restart without control would answer by revision %d: %s",
                        self.revision,
                        error,
                    )
                self.unsaved = True
            else:
                if self.unsaved:
                    logger.info("saved the last-good file after all")
                self.unsaved = False
                self.revision = _revision(lasting)

    async def load_times(self) -> None:
        """Take in the times that were kept."""
        await self.on_disk(self._clock.load)

    async def keep_times(self) -> None:
        """Keep the times, if it is time to."""
        if not self._replaced():
            await self.on_disk(self._clock.keep)

    def close(self) -> None:
        """Begin nothing more; what is being written is not waited for."""
        self._thread.shutdown(wait=False)
