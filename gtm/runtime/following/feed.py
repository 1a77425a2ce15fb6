"""The line to control: its feed, followed for ever, whatever becomes of the line."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

from gtm.feed.client import BalancerFeedClient, ControlUnreachable, FeedClient, NameRefused, TokenRefused
from gtm.feed.wire import Message, SnapshotMessage, StateMessage

logger = logging.getLogger(__name__)

_BACKOFF = (0.2, 0.5, 1.0, 2.0)
"""Seconds until the next try, by how many failed in a row."""
_PATIENT_TRIES = 5
"""Tries to reach control before an edge that starts says so: the two may just have been started together."""


class Follower(Protocol):
    """A process that follows control."""

    @property
    def name(self) -> str:
        """The name that the follower has now."""

    @property
    def connected(self) -> bool:
        """Whether control is heard."""

    @property
    def snapshot(self) -> SnapshotMessage | None:
        """The policy held, which control need not send again."""

    def found(self) -> None:
        """Control is heard again, and has said what it knows."""

    def lost(self) -> None:
        """Control was heard, and is no more."""

    def renamed(self, name: str) -> bool:
        """The token is for an edge of this name; whether this one takes it."""

    async def receive(self, message: Message) -> None:
        """Control said something."""


async def follow(
    follower: Follower,
    connect: Callable[[], Awaitable[FeedClient | BalancerFeedClient]],
) -> None:
    """Follow control's feed for ever, reconnecting with growing pauses.

    Args:
        follower: takes in what control says.
        connect: makes the client.
    """
    failures = 0
    refused = False
    async with await connect() as client:
        while True:
            client.name = follower.name
            try:
                async for message in client.messages(follower.snapshot):
                    # Not before its first state: what it last said of health may be from long ago.
                    if not follower.connected and isinstance(message, StateMessage):
                        logger.info("following control at %s", client.url)
                        failures, refused = 0, False
                        follower.found()
                    await follower.receive(message)
            except ControlUnreachable as error:
                if isinstance(error, NameRefused) and follower.renamed(error.name):
                    continue
                if follower.connected:
                    logger.warning("lost control, going on with what is known: %s", error)
                elif not refused and (isinstance(error, TokenRefused) or failures == _PATIENT_TRIES):
                    logger.warning("cannot follow control, still trying: %s", error)
                refused = refused or isinstance(error, TokenRefused)
                if follower.connected:
                    follower.lost()
            pause = _BACKOFF[min(failures, len(_BACKOFF) - 1)]
            failures += 1
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
