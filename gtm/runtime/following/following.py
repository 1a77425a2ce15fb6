"""What a process holds of control's feed: the View, the policy as it was sent, and what of it lies on disk.

Laws:
  1. What control says is checked (checksum, compilation) before it is saved, and saved before others are told of it.
  2. What cannot be used changes nothing: the last good policy stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from gtm.core.model.problems import PolicyError
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
)
from gtm.runtime.following.clock_keeper import ClockKeeper
from gtm.runtime.following.kept import Kept, lasting
from gtm.runtime.process.clocks import boot_id

logger = logging.getLogger(__name__)


async def _nothing() -> None:
    return


class Following:
    """See above.

    Args:
        current: where the View is.
        home: the directory of what is kept.
        control_url: for the log.
        replaced: whether a successor keeps the files now.
        heed: called with each message once it is used here, or has no use for the View.
        passed: called with what stays true without control, once it is saved.
        stepped: called when control's clock has shown that it is later than was known, before what it says is used.
    """

    def __init__(
        self,
        current: CurrentView,
        home: Path,
        control_url: str,
        replaced: Callable[[], bool],
        *,
        heed: Callable[[Message], None],
        passed: Callable[[Lasting], None] = lambda _: None,
        stepped: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        self.current = current
        self.kept = Kept(home, ClockKeeper(home, current, boot_id()), replaced)
        self.snapshot: SnapshotMessage | None = None
        """The policy in use, as control sent it."""
        self.loaded = asyncio.Event()
        """Set once there is one."""
        self._control_url = control_url
        self._heed = heed
        self._passed = passed
        self._stepped = stepped

    def lasting(self) -> list[Lasting]:
        """All that stays true without control."""
        return lasting(self.current, self.snapshot)

    async def load(self) -> None:
        """Go on from what was kept, if that can be used."""
        try:
            for message in await self.kept.load():
                self.use(message)
            if self.snapshot is not None:
                logger.info("loaded revision %d from %s", self.snapshot.revision, self.kept.last_good)
        except FileNotFoundError:
            logger.info("no last-good file yet; waiting for control at %s", self._control_url)
        except (FeedError, PolicyError, OSError) as error:
            logger.error("cannot use the last-good file, waiting for control instead: %s", error)

    async def receive(self, message: Message) -> bool:
        """Take in what control says: used here, saved, and passed on. Whether it could be used."""
        before = self.current.times
        self.current.hear(message)
        if self.current.times.stepped(before):
            await self._stepped()
        try:
            taken = self.use(message)
        except (FeedError, PolicyError) as error:
            logger.error("ignored a snapshot from control: %s", error)
            return False
        if taken is not None:
            await self.save()
            self._passed(taken)
        return True

    async def save(self) -> None:
        """Write what stays true without control. Where the disk refuses it, rules go by that, here and in all that answer."""
        await self.kept.save(self.lasting)
        if self.current.saving(refused=self.kept.unsaved):
            await self._stepped()

    async def retry(self) -> None:
        """Write it if the disk refused it before. To be called each second."""
        if self.kept.unsaved:
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
                self.loaded.set()
                found = message
            case AccessMessage() | KeysMessage() | HandoffKeysMessage() | LatencyMessage():
                self.current.apply(message)
                found = message
            case _:
                pass
        self._heed(message)
        return found
