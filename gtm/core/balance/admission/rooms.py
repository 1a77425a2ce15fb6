"""A group of servers as admission counts it (`gtm.core.balance.groups`): its slots, and who waits for them.

A request holds a slot of its own group and of each that contains it, and begins where all of these have room for its tier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gtm.core.balance.admission.fair import FairQueue
from gtm.core.balance.admission.settings import AdmissionSettings
from gtm.core.balance.admission.slots import Pace, TierSlots
from gtm.core.balance.admission.values import TIERS
from gtm.core.balance.groups import ONE_GROUP, ServerGroups


class GroupLimits(NamedTuple):
    """The groups of a region's servers, and of each how many slots requests may begin in here (None: unknown), and whether it has usable servers."""

    groups: ServerGroups = ONE_GROUP
    slots: tuple[int | None, ...] = (None,)
    usable: tuple[bool, ...] = (True,)


class GroupRoom:
    """One group. See above."""

    __slots__ = ("around", "closed", "pace", "queues", "room", "slots", "waiting")

    def __init__(self, settings: AdmissionSettings) -> None:
        self.slots = TierSlots(by_tier(settings.reserves))
        self.around: tuple[TierSlots, ...] = ()
        """The slots of the groups that contain it: its requests count there, too."""
        self.room = self.slots.room
        """Whether a request of a tier may begin."""
        length, held = settings.queue_length, settings.queue_bytes
        self.queues = tuple(FairQueue(length, held) for _ in TIERS)
        self.pace = Pace()
        self.waiting = 0
        self.closed = False
        """None of its servers is usable: who chooses refuses what comes, and says why."""

    def stands_in(self, others: Sequence[GroupRoom]) -> None:
        """Let its requests count in these groups, too, which contain it."""
        self.around = tuple(one.slots for one in others)
        self.room = self._room_in_all if others else self.slots.room

    def configure(self, settings: AdmissionSettings) -> None:
        """Go on under other settings."""
        self.slots.reserve(by_tier(settings.reserves))
        for queue in self.queues:
            queue.bound(settings.queue_length, settings.queue_bytes)

    def following(self) -> int | None:
        """The tier that its next slot goes to; None: none that waits may begin."""
        chosen: int | None = None
        for tier, queue in enumerate(self.queues):
            if queue.count and self.room(tier):
                if self.below_reserve(tier):
                    return tier
                if chosen is None:
                    chosen = tier
        return chosen

    def below_reserve(self, tier: int) -> bool:
        """Whether a tier runs less than it reserves."""
        return self.slots.running[tier] < self.slots.reserved[tier]

    def count(self, tier: int, more: int) -> None:
        """So many more requests of a tier run."""
        self.slots.running[tier] += more
        for slots in self.around:
            slots.running[tier] += more

    def _room_in_all(self, tier: int) -> bool:
        return self.slots.room(tier) and all(slots.room(tier) for slots in self.around)


def by_tier(values: Mapping[str, float]) -> tuple[float, float, float]:
    """What is said of each tier, in the order of tiers."""
    first, second, third = (values[tier] for tier in TIERS)
    return first, second, third
