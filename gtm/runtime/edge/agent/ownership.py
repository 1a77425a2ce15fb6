"""What an edge owns on its machine: the data directory, its listening sockets, a user; free, or from a predecessor."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from contextlib import suppress

from gtm.lockfile import LockFile, LockHeld
from gtm.runtime.edge import orphans
from gtm.runtime.following.handover import Handover, Predecessor
from gtm.runtime.process import lifeline, privileges
from gtm.runtime.process.listeners import Listeners, open_listeners
from gtm.runtime.process.notify import notify_ready
from gtm.settings import EdgeSettings

logger = logging.getLogger(__name__)


class Ownership:
    """What one edge owns, from its start to its end."""

    def __init__(self, settings: EdgeSettings) -> None:
        self._settings = settings
        self._lock = LockFile(settings.data_dir / orphans.LOCK)
        self._predecessors: list[Predecessor] = []
        self._orphans = False
        self._handover: Handover | None = None
        self._settled = False
        self.replaced = False
        """Whether a successor has taken over."""
        self.listeners = Listeners((), (), settings.workers)

    @property
    def inherited(self) -> bool:
        """Whether another edge had all this before, or its workers, which have lost their agent, still have."""
        return bool(self._predecessors)

    @property
    def covered(self) -> bool:
        """Whether another edge answers at the same addresses: the predecessor still, or a successor already."""
        return self.replaced or (self.inherited and not self._settled)

    def take(self) -> None:
        """Take everything, then be the user that was asked for.

        Raises:
            PortInUseError: an address is taken.
            HandoverError: the edge that runs cannot be replaced.
            UserError: this process cannot become the user.
            OSError: another edge runs on the data directory, or an address cannot be listened on.
        """
        settings = self._settings
        user = privileges.find_user(settings.user) if settings.user else None
        if user is not None:
            privileges.give(settings.data_dir, user)
        predecessor = Predecessor.find(settings.data_dir) if settings.replace else None
        if predecessor is not None:
            logger.info("replacing the edge of process %d", predecessor.process)
            self._predecessors = [predecessor]
        else:
            if settings.replace and not lifeline.held():  # `gtm serve` replaces what is there, if anything
                logger.info("no edge to replace runs on `%s`", settings.data_dir)
            with privileges.acting_as(user):
                self._lock_data_dir()
                self._predecessors = orphans.find(settings.data_dir)
            self._orphans = bool(self._predecessors)
            for orphan in self._predecessors:
                logger.info("taking over the worker of process %d, whose agent is gone", orphan.process)
        inherited = [one for predecessor in self._predecessors for one in predecessor.listeners]
        self.listeners = open_listeners(settings, inherited)
        if user is not None:
            privileges.become(user)

    def settle(self) -> None:
        """Once all workers answer: tell the predecessor to stop, and the service manager who serves now."""
        notify_ready()
        self._settled = True
        if self._predecessors:
            self.listeners.retire()
        for predecessor in self._predecessors:
            try:
                predecessor.stop()
            except OSError as error:
                logger.warning(
                    "process %d, which was to be replaced, is gone already: %s", predecessor.process, error
                )
            if predecessor.lock is not None:
                self._lock.adopt(predecessor.lock)
                predecessor.lock = None

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
        self._handover = Handover(self._settings.data_dir, self.listeners.settled, self._lock.descriptor)
        try:
            await self._handover.serve()
        except OSError as error:
            logger.warning("this edge cannot be replaced without a gap: %s", error)
        else:
            logger.info("a successor has taken over; stopping")
            self.replaced = True
            give_way()

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
        """Give everything up. A predecessor that was not told to stop goes on."""
        self.listeners.close()
        for predecessor in self._predecessors:
            predecessor.close()
        self._lock.release()
        if self._handover is not None:
            self._handover.close()

    def _lock_data_dir(self) -> None:
        """Two edges must not overwrite each other's last-good file; a disk that refuses keeps none from answering."""
        data_dir = self._settings.data_dir
        try:
            self._lock.acquire()
        except LockHeld as error:
            holder = f" (process {error.holder})" if error.holder else ""
            advice = "give another with --data-dir, or take its place with --replace"
            if self._settings.replace:
                advice = "it cannot be replaced, because it does not answer yet or belongs to a `gtm serve`"
            raise OSError(
                errno.EBUSY,
                f"an edge is already running on the data directory `{data_dir}`{holder}; {advice}",
            ) from error
        except OSError as error:
            logger.warning("cannot lock the data directory, going on without a lock: %s", error)
        else:
            for half in data_dir.glob("edge*.tmp"):  # of edges that were killed while they wrote
                with suppress(OSError):
                    half.unlink()
