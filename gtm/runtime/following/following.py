"""A process that follows control: its life, what it holds of control's feed, what of it lies on disk, and the line to control, whatever becomes of that.

Laws:
  1. What control says is checked (checksum, compilation) before it is saved, and saved before others are told of it.
  2. What cannot be used changes nothing: the last good policy stays.
  3. Nothing is answered before there is a policy, kept or heard; and however this ends, what it owns is given up last.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import ParamSpec, TypeVar

from gtm.core.decision.timekeeping import KEEP_EVERY, STEP, ClockTimes
from gtm.core.model.problems import PolicyError
from gtm.feed import clockfile, lastgood
from gtm.feed.client import BalancerFeedClient, ControlUnreachable, FeedClient, NameRefused, TokenRefused
from gtm.feed.current import CurrentView
from gtm.feed.wire import (
    AccessMessage,
    FeedError,
    HandoffKeysMessage,
    KeysMessage,
    Lasting,
    LatencyMessage,
    Message,
    SnapshotMessage,
    StateMessage,
)
from gtm.runtime.following.handover import Ownership
from gtm.runtime.following.tasks import Tasks, first_of
from gtm.runtime.following.told import TimesMessage, ViewMessage
from gtm.runtime.process import lifeline, signals
from gtm.runtime.process.clocks import boot_id
from gtm.runtime.process.privileges import conceal
from gtm.settings import FollowerSettings

# --- An edge's times on disk: read before its first View, written every few seconds and whenever a clock steps. ---


SPREAD = 60.0
"""Seconds between clocks from which on the log and `/readyz` speak of it: more than clocks that are set ever differ by."""


class ClockKeeper:
    """Keeps what a current View knows of the time in a data directory, from any thread: an older time never follows a newer one.

    Args:
        data_dir: the edge's.
        current: whose times these are.
        boot: what tells this start of the machine from others.
    """

    def __init__(self, data_dir: Path, current: CurrentView, boot: str) -> None:
        self._path = data_dir / clockfile.FILE
        self._current = current
        self._boot_id = boot
        self._keeping = threading.Lock()
        self._kept: ClockTimes | None = None
        self._kept_at = 0.0
        self._failing = False
        self._apart = False

    def load(self) -> None:
        """Take in what was kept. Without it the clocks here, control's and the policy's own date say what time it is."""
        try:
            kept = clockfile.load(self._path)
        except FileNotFoundError:
            logger.info("no times kept on disk yet")
        except (FeedError, OSError) as error:
            logger.error("cannot use the times kept on disk, going by the clocks alone: %s", error)
        else:
            self._current.resume(kept, self._boot_id)
        self._watch()

    def keep(self) -> None:
        """Write the times down, if some time has passed since or a clock has stepped."""
        with self._keeping:
            times, boot = self._current.times, self._current.boot()
            self._watch()
            last = self._kept
            raised = last is None or times.latest - last.latest >= STEP
            if not raised and boot - self._kept_at < KEEP_EVERY:
                return
            self._kept, self._kept_at = times, boot  # not again at once where the disk refuses
            try:
                clockfile.save(self._path, times.kept(boot, self._boot_id))
            except OSError as error:
                if not self._failing:
                    logger.error("cannot keep the time on disk, still trying: %s", error)
                self._failing = True
            else:
                if self._failing:
                    logger.info("kept the time on disk after all")
                self._failing = False

    def _watch(self) -> None:
        """Say when clocks are far apart, and when they are not any more."""
        spread = self._current.times.spread
        apart = spread >= SPREAD
        if apart and not self._apart:
            logger.warning(
                "some clock showed a time %.0f s beyond what is shown now, here or by control: until then rules that begin "
                "are in force early; if that reading was wrong, see `A clock that was far ahead` in docs/operations.md",
                spread,
            )
        elif self._apart and not apart:
            logger.info("the clocks agree again")
        self._apart = apart


# --- A process that follows control: what it holds of control's feed, what of it lies on disk, and the line to control, whatever becomes of that. ---


logger = logging.getLogger(__name__)

LAST_GOOD = "edge-last-good"
"""The file of what stays true without control, an edge's or a balancer's."""
_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")
_BACKOFF = (0.2, 0.5, 1.0, 2.0)
"""Seconds until the next try, by how many failed in a row."""
LOOK_EVERY = 1.0
"""Seconds between looks at the clock."""
_PATIENT_TRIES = 5
"""Tries to reach control before an edge that starts says so: the two may just have been started together."""


def _revision(messages: Iterable[Message]) -> int:
    return next((one.revision for one in messages if isinstance(one, SnapshotMessage)), 0)


class FollowerDisk:
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


class Follower(ABC):
    """A process that follows control, an edge's or a balancer's.

    Args:
        settings: as it was told; they name it.
        current: where the View is.
        owned: what it owns on its machine.
    """

    def __init__(self, settings: FollowerSettings, current: CurrentView, owned: Ownership) -> None:
        self.settings = settings
        self.current = current
        """The View in force, and all that it is made of."""
        self.owned = owned
        """What the process owns on its machine."""
        self.connected = False
        """Whether control is heard."""
        self.snapshot: SnapshotMessage | None = None
        """The policy in use, as control sent it."""
        self._told = TimesMessage(current.times)
        self._loaded = asyncio.Event()
        """Set once there is one."""
        self._kept = FollowerDisk(
            owned.home, ClockKeeper(owned.home, current, boot_id()), lambda: self.owned.replaced
        )
        self._stopping = asyncio.Event()
        self._tasks = Tasks(self.stop)

    def stop(self) -> None:
        """Ask the process to stop."""
        self._stopping.set()

    # From its start to its end

    @contextmanager
    def _owning(self) -> Iterator[None]:
        """Own what it needs on its machine for as long as this lasts."""
        try:
            self.owned.take()
            yield
        finally:
            self._kept.close()
            self.owned.release()

    def _mind(self, look: Callable[[], None], parent_gone: Callable[[], None]) -> None:
        """Once all is its own: be what signals and the end of its parent (`lifeline`) are for, and let nobody read its memory."""
        conceal()  # again: becoming another user may have undone it
        signals.heed(self.stop, look)
        lifeline.watch(parent_gone)

    async def _live(
        self,
        load: Callable[[], Awaitable[None]],
        serve: Callable[[], Awaitable[None]],
        end: Callable[[], Awaitable[None]],
    ) -> None:
        """Follow control until told to stop.

        Args:
            load: goes on from what was kept.
            serve: begins once there is a policy, and returns once told to stop.
            end: ends all tasks, and whatever answers, however far this came.
        """
        try:
            await load()
            self._tasks.start(self.follow())
            await first_of(self._loaded, self._stopping)
            if not self._stopping.is_set():
                await serve()
        finally:
            await end()
            await self._kept.keep_times()
        if self._tasks.failure is not None:
            raise self._tasks.failure  # with its traceback, and an exit code that makes a supervisor start it again

    async def _tick(self) -> None:
        """Each second: rules at their moment, the time kept and told, what the disk refused tried again."""
        for beats in count(1):
            await asyncio.sleep(LOOK_EVERY)
            self.current.tick()
            await self._tell_times()
            await self.retry()
            await self._beat(beats)

    @abstractmethod
    async def _beat(self, number: int) -> None:
        """Do whatever else is done each second; `number`: of the second, from 1 on."""

    # What follows from what control says

    @abstractmethod
    async def _client(self) -> FeedClient | BalancerFeedClient:
        """Make the client of the feed."""

    @abstractmethod
    def _heed(self, message: Message) -> None:
        """Do what else follows from a message, once it is used here, or has no use for the View."""

    @abstractmethod
    def _send(self, message: ViewMessage) -> None:
        """Tell those that answer: what stays true without control once it is saved, and what time it is."""

    def found(self) -> None:
        """Control is heard again, and has said what it knows."""
        self.connected = True

    def lost(self) -> None:
        """Control was heard, and is no more."""
        self.connected = False

    def renamed(self, name: str) -> bool:  # noqa: ARG002 - others take it
        """The token is for another name; whether this process takes it."""
        return False

    async def follow(self) -> None:
        """Follow control's feed for ever, reconnecting with growing pauses.

        Raises:
            TokenRefused: control refuses the token, there is no policy, and the process was told to end then.
        """
        failures = 0
        refused = False
        async with await self._client() as client:
            while True:
                client.name = self.settings.name
                try:
                    async for message in client.messages(self.snapshot):
                        # Not before its first state: what it last said of health may be from long ago.
                        if not self.connected and isinstance(message, StateMessage):
                            logger.info("following control at %s", client.url)
                            failures, refused = 0, False
                            self.found()
                        await self.receive(message)
                except ControlUnreachable as error:
                    if isinstance(error, NameRefused) and self.renamed(error.name):
                        continue
                    # Whoever has a policy goes on by it, whatever its token is worth: that is what it is kept for.
                    if (
                        self.settings.exit_when_refused
                        and self.snapshot is None
                        and isinstance(error, TokenRefused)
                    ):
                        raise
                    if self.connected:
                        logger.warning("lost control, going on with what is known: %s", error)
                    elif not refused and (isinstance(error, TokenRefused) or failures == _PATIENT_TRIES):
                        logger.warning("cannot follow control, still trying: %s", error)
                    refused = refused or isinstance(error, TokenRefused)
                    if self.connected:
                        self.lost()
                pause = _BACKOFF[min(failures, len(_BACKOFF) - 1)]
                failures += 1
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))

    # What it holds

    async def _tell_times(self) -> None:
        """Say what time it is. What was a step of control's clock is on disk before anything is answered by it."""
        await self._kept.keep_times()
        self._told = TimesMessage(self.current.times)
        self._send(self._told)

    def _view(self) -> list[ViewMessage]:
        """All that a new worker needs to begin: the time first, as its siblings know it, for its first View to stand for it."""
        return [self._told, *self.lasting(), StateMessage(self.current.state)]

    def lasting(self) -> list[Lasting]:
        """All that stays true without control: tokens, keys, policy, measured latency."""
        current = self.current
        messages: list[Lasting] = [AccessMessage(current.access)]
        if current.keys.version:
            messages.append(KeysMessage(current.keys))
        if current.handoff_keys.version:
            messages.append(HandoffKeysMessage(current.handoff_keys))
        if self.snapshot is not None:
            messages.append(self.snapshot)
        if current.table.version:
            messages.append(LatencyMessage(current.table))
        return messages

    async def _load(self) -> None:
        """Go on from what was kept, if that can be used."""
        try:
            for message in await self._kept.load():
                self.use(message)
            if self.snapshot is not None:
                logger.info("loaded revision %d from %s", self.snapshot.revision, self._kept.last_good)
        except FileNotFoundError:
            logger.info("no last-good file yet; waiting for control at %s", self.settings.control_url)
        except (FeedError, PolicyError, OSError) as error:
            logger.error("cannot use the last-good file, waiting for control instead: %s", error)

    async def receive(self, message: Message) -> bool:
        """Take in what control says: used here, saved, and passed on. Whether it could be used."""
        before = self.current.times
        self.current.hear(message)
        if self.current.times.stepped(before):
            await self._tell_times()
        try:
            taken = self.use(message)
        except (FeedError, PolicyError) as error:
            logger.error("ignored a snapshot from control: %s", error)
            return False
        if taken is not None:
            await self.save()
            self._send(taken)
        return True

    async def save(self) -> None:
        """Write what stays true without control. Where the disk refuses it, rules go by that, here and in all that answer."""
        await self._kept.save(self.lasting)
        if self.current.saving(refused=self._kept.unsaved):
            await self._tell_times()

    async def retry(self) -> None:
        """Write it if the disk refused it before. To be called each second."""
        if self._kept.unsaved:
            await self.save()

    def use(self, message: Message) -> Lasting | None:
        """Use a message here; it is returned if it stays true without control.

        Raises:
            FeedError: the snapshot is damaged.
            PolicyError: the snapshot does not compile here.
        """
        found: Lasting | None = None
        match message:
            case SnapshotMessage():
                self.current.apply(message)
                self.snapshot = message
                self._loaded.set()
                found = message
            case AccessMessage() | KeysMessage() | HandoffKeysMessage() | LatencyMessage():
                self.current.apply(message)
                found = message
            case _:
                pass
        self._heed(message)
        return found
