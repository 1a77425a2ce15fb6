"""What an edge owns on its machine: the data directory, its listening sockets, a user; free, or from a predecessor."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from gtm.lockfile import LockHeld
from gtm.runtime.edge import orphans
from gtm.runtime.following.handover import Ownership
from gtm.runtime.process import lifeline
from gtm.runtime.process.listeners import Listener, Listeners, open_listeners
from gtm.runtime.process.notify import notify_ready
from gtm.settings import EdgeSettings

logger = logging.getLogger(__name__)


class EdgeOwnership(Ownership):
    """What one edge owns: its data directory, the sockets of its workers, a user; or what workers without an agent still have."""

    def __init__(self, settings: EdgeSettings) -> None:
        super().__init__("edge", settings.data_dir, settings)
        self._settings = settings
        self._orphans = False
        self._settled = False
        self.listeners = Listeners((), (), settings.workers)

    @property
    def covered(self) -> bool:
        """Whether another edge answers at the same addresses: the predecessor still, or a successor already."""
        return self.replaced or (self.inherited and not self._settled)

    def _claim(self) -> None:
        if self._replace and not lifeline.held():  # `gtm serve` replaces what is there, if anything
            logger.info("no edge to replace runs on `%s`", self.home)
        self._lock_data_dir()
        self._predecessors = orphans.find(self.home)
        self._orphans = bool(self._predecessors)
        for orphan in self._predecessors:
            logger.info("taking over the worker of process %d, whose agent is gone", orphan.process)

    def _open(self, inherited: Sequence[Listener]) -> None:
        self.listeners = open_listeners(self._settings, inherited)

    def settle(self) -> None:
        notify_ready()
        self._settled = True
        if self._predecessors:
            self.listeners.retire()
        super().settle()

    def abandon(self) -> None:
        """This edge was told to stop before its workers answered: workers that had lost their agent stop with it."""
        if self._orphans and not self._settled:
            for orphan in self._predecessors:
                with suppress(OSError):
                    orphan.stop()

    async def leave_to_successor(self, give_way: Callable[[], None], parent_gone: asyncio.Event) -> None:
        """Wait for a successor that takes over, if there may be one, and then call `give_way`.

        Args:
            give_way: called once it has.
            parent_gone: set once a `gtm serve` that started this edge is gone: while it lives, it would start it again.
        """
        if lifeline.held():
            await parent_gone.wait()
        await self.hand_over(self.listeners.settled, give_way, "stopping")

    async def relieved(self) -> None:
        """Wait until the predecessor has ended. Orphans that do not are killed: nobody else looks after them."""
        what, patience = ("worker", orphans.ENDING) if self._orphans else ("edge", None)
        for predecessor in self._predecessors:
            try:
                await asyncio.wait_for(predecessor.ended(), patience)
            except TimeoutError:
                logger.error("the worker of process %d does not end; killing it", predecessor.process)
                predecessor.kill()
                await predecessor.ended()
            logger.info("the %s of process %d has ended", what, predecessor.process)

    def release(self) -> None:
        self.listeners.close()
        super().release()

    def _lock_data_dir(self) -> None:
        """Two edges must not overwrite each other's last-good file; a disk that refuses keeps none from answering."""
        try:
            self._lock.acquire()
        except LockHeld as error:
            holder = f" (process {error.holder})" if error.holder else ""
            advice = "give another with --data-dir, or take its place with --replace"
            if self._replace:
                advice = "it cannot be replaced, because it does not answer yet or belongs to a `gtm serve`"
            raise OSError(
                errno.EBUSY,
                f"an edge is already running on the data directory `{self.home}`{holder}; {advice}",
            ) from error
        except OSError as error:
            logger.warning("cannot lock the data directory, going on without a lock: %s", error)
        else:
            for half in self.home.glob("edge*.tmp"):  # of edges that were killed while they wrote
                with suppress(OSError):
                    half.unlink()
