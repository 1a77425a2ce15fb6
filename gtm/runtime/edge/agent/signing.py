"""What an edge signs handoffs with: its keys on disk, told to its HTTP workers, and to control with its reports."""

from __future__ import annotations

from collections.abc import Callable

from gtm.feed.current import CurrentView
from gtm.handoff.own_keys import OwnKeys
from gtm.runtime.edge.line.messages import SigningMessage
from gtm.runtime.following.kept import Kept


class Signing:
    """The keys of one agent's edge.

    Args:
        keys: on disk.
        current: has the time, and what is published.
        kept: the way to the disk.
        name: the edge's.
    """

    def __init__(self, keys: OwnKeys, current: CurrentView, kept: Kept, name: Callable[[], str]) -> None:
        self._keys = keys
        self._current = current
        self._kept = kept
        self._name = name

    async def load(self) -> None:
        """Read the keys, or make the first."""
        await self._kept.on_disk(self._keys.load, self._current.window.now)

    async def roll(self) -> bool:
        """Take what step is due; whether one was, so that workers and control must be told."""
        now, published = self._current.window.now, self._current.handoff_keys.keys
        return await self._kept.on_disk(self._keys.roll, now, published, self._name())

    @property
    def told(self) -> list[SigningMessage]:
        """What workers are to be told."""
        ring = self._keys.ring
        return [] if ring is None else [SigningMessage(self._name(), ring.current, ring.public)]
