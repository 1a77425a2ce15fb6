"""What balancers of a region tell each other: what each has of the region's slots, and what it has in flight at each backend."""

from __future__ import annotations

from dataclasses import dataclass, field

from gtm.core.balance.flights import PeerLoad
from gtm.core.balance.sharing import SlotUse


@dataclass(frozen=True, slots=True)
class Word:
    """What one balancer, or one worker of it, said `age` seconds ago: all that it has, by member and by backend's name.

    `balancer`: the name that control published it by; empty: it is a worker of this balancer. `groups`: what each has of the slots of a group of
    servers (`gtm.core.balance.groups`), by the group's name; nothing where all servers are alike.
    """

    uses: dict[str, SlotUse] = field(default_factory=dict)
    loads: dict[str, PeerLoad] = field(default_factory=dict)
    age: float = 0.0
    balancer: str = ""
    groups: dict[str, dict[str, SlotUse]] = field(default_factory=dict)


def together(words: list[Word]) -> Word:
    """What several say, as one; as old as the oldest of it."""
    uses: dict[str, SlotUse] = {}
    loads: dict[str, PeerLoad] = {}
    groups: dict[str, dict[str, SlotUse]] = {}
    for word in words:
        uses |= word.uses
        for name, of_it in word.groups.items():
            groups.setdefault(name, {}).update(of_it)
        for name, load in word.loads.items():
            had = loads.get(name)
            loads[name] = (
                load if had is None else PeerLoad(had.requests + load.requests, had.work_us + load.work_us)
            )
    return Word(uses, loads, max((word.age for word in words), default=0.0), groups=groups)
