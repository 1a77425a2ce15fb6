"""How many of a region's slots each of its balancers may fill, by what they tell each other.

Theory. The slots are one pool, filled by several who know of each other what was so a tenth of a second ago. Each asks for what it
has running and waiting. Slots go round by max-min fairness: nobody gets more than it asks for before all have what they ask for,
or as much as any. What is left is room for what comes until the next word, and goes round in equal parts. Everybody works this
out from the same words by the same rule, so the parts come to the pool; what differs is who has heard which word already. So

  - a member asks for more only by what it told a moment ago (`LAG`): by then the others have made room. It asks for less at once;
  - nobody begins a request while those that run, as far as it knows, fill the pool.

Laws:
  1. Where all know the same, their parts come to the limit, and none is below 0.
  2. One alone has all. One that others ask nothing beside has all that these do not run, as soon as it asked for a moment.
  3. Who asks for no more than its equal part gets it.
  4. What is known to run counts, whatever part it was begun in: room is what the pool has beyond it. Where some run more than their part, room is
     less than the others' parts leave open; it goes round among these others as the pool does, so that not each of them takes all of it.
  5. Slots that end before others could hear of it are filled ahead: a limit of 16 whose requests last 0.8 s is one of 19 here, one whose
     requests last 10 s is one of 17. What this has too much waits at a backend for about as long as a word takes.
  6. A member that is silent is taken to run what it said last, and asks for nothing more, until it is forgotten.
  7. Nobody's word takes all: a balancer whose requests wait while it runs less than its floor may fill this after `PATIENCE`, whatever others say
     that they run, and until they leave it as much. The floor is half of an equal part among balancers, one at least; balancers of one token
     count for four at most, and what their processes call themselves for nothing. Where all are honest those who run more than
     their part make room meanwhile; what lasts longer is served beside it, at most half as many again as there are slots (a floor of
     one can be more).

Example: ten slots. Two ask for little and a third for much; then all for much.

>>> sorted(shares(10, {"a": SlotUse(1, 0), "b": SlotUse(0, 0), "c": SlotUse(4, 20)}).items())
[('a', 1), ('b', 0), ('c', 9)]
>>> sorted(shares(10, {"a": SlotUse(8, 2), "b": SlotUse(2, 9), "c": SlotUse(0, 5)}).items())
[('a', 3), ('b', 4), ('c', 3)]

Source: Bertsekas and Gallager, "Data Networks" (1992), §6.5.2, max-min fair rates by water filling.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from math import ceil, inf
from typing import NamedTuple

from gtm.core.balance.flights import PEERS_LAST_S

LAG = 0.1
"""Seconds between telling of more, and going by it."""
UNHEARD_S = 0.15
"""Seconds after which a slot that became free has been told, heard and filled by another, in the mean."""
AHEAD = 0.25
"""Part of the slots that are filled ahead at most: what lasts how long is learned, and the next requests may be longer."""
FORGOTTEN_S = 60.0
"""Seconds of silence after which a balancer is taken to be no more."""
LOOK_EVERY = 0.02
"""Seconds between looks at whether there is something to tell: never two words sooner after each other."""
OFTEN, SELDOM = 0.1, 0.3
"""Seconds between two words while something changes, and while nothing does: of three in a row two may be lost before it is silent."""
PATIENCE = 1.0
"""Seconds for which a balancer with less than its floor waits for others to make room."""
MOST_OF_A_TOKEN = 4
"""Balancers that those of one token count for: who has stolen one can give itself any number of names."""
_MUCH = 0.125
"""Part of what runs: a change by more is told at once."""


class SlotUse(NamedTuple):
    """What one member has of the region's slots: requests that run, and that wait for a slot."""

    running: int
    waiting: int

    @property
    def asked(self) -> int:
        """The slots that it could use now."""
        return self.running + self.waiting


def due(told: SlotUse | None, use: SlotUse, since: float) -> bool:
    """Whether a word is due.

    Args:
        told: what the last one said; None: there was none.
        use: what is so now.
        since: seconds since then.
    """
    if told is None or since >= SELDOM:
        return True
    if told == use:
        return False
    much = abs(use.running - told.running) > max(1.0, _MUCH * told.running)
    return since >= OFTEN or (told.waiting > 0) != (use.waiting > 0) or much


def shares(limit: int, uses: Mapping[str, SlotUse]) -> dict[str, int]:
    """Each member's part of so many slots; they come to the limit."""
    parts: dict[str, int] = {}
    left = limit
    for number, name in enumerate(sorted(uses, key=lambda one: (uses[one].asked, one))):
        parts[name] = min(uses[name].asked, left // (len(uses) - number))
        left -= parts[name]
    if left:
        part, odd = divmod(left, len(uses))
        for number, name in enumerate(sorted(uses)):
            parts[name] += part + (number < odd)
    return parts


class _Heard(NamedTuple):
    at: float
    uses: Mapping[str, SlotUse]
    balancer: str


class Sharing:
    """What one member knows of the others, and what it may fill.

    Args:
        member: its name, which no other has.
    """

    def __init__(self, member: str) -> None:
        self.member = member
        self._told: deque[tuple[float, int]] = deque()
        self._use = SlotUse(0, 0)
        self._heard: dict[str, _Heard] = {}
        self._short_since = inf

    def tell(self, use: SlotUse, now: float) -> None:
        """The others are being told this of us."""
        self._told.append((now, use.asked))
        self._use = use

    def heard(self, source: str, uses: Mapping[str, SlotUse], at: float, balancer: str = "") -> None:
        """Somebody told what its members have: all of them.

        Args:
            source: who, as `forget` has it.
            uses: by member.
            at: seconds of the clock of `share`.
            balancer: the name that it is published by, its token's before a stroke; empty: it is a process of this balancer.
        """
        self._heard[source] = _Heard(at, dict(uses), balancer)

    def forget(self, source: str) -> None:
        """Somebody is no more."""
        self._heard.pop(source, None)

    @property
    def sources(self) -> frozenset[str]:
        """Those heard of."""
        return frozenset(self._heard)

    def others(self, now: float) -> dict[str, SlotUse]:
        """The other members by name, and what they are taken to have."""
        found: dict[str, SlotUse] = {}
        for source in [source for source, one in self._heard.items() if now - one.at > FORGOTTEN_S]:
            del self._heard[source]
        for one in sorted(
            self._heard.values(), key=lambda one: not one.balancer
        ):  # its own processes have the last word
            silent = now - one.at > PEERS_LAST_S
            for name, use in one.uses.items():
                if name != self.member:
                    found[name] = SlotUse(use.running, 0) if silent else use
        return found

    def share(self, limit: int, now: float, service_s: float = inf) -> int:
        """The slots that this member may fill now.

        Args:
            limit: those of the region.
            now: seconds of the clock of `tell` and `heard`.
            service_s: for how long a request holds one, in the mean. Those that will be free before anybody else could hear of it count
                as slots too: short requests would find many idle otherwise. Infinite: none.
        """
        others = self.others(now)
        if not others:
            return limit
        floor = self._floor(limit)
        ahead = min(AHEAD, UNHEARD_S / service_s) if service_s > 0 else AHEAD
        limit += ceil(limit * ahead)
        parts = shares(limit, {**others, self.member: SlotUse(self._asked(now), 0)})
        running = {self.member: self._use.running} | {name: use.running for name, use in others.items()}
        share = parts[self.member]
        if share > running[self.member]:
            room = limit - sum(running.values())
            open_parts = {name: SlotUse(max(0, parts[name] - runs), 0) for name, runs in running.items()}
            if room <= 0:
                share = max(0, running[self.member] + room)
            elif room < sum(use.asked for use in open_parts.values()):
                share = running[self.member] + shares(room, open_parts)[self.member]
        return max(share, floor) if self._short(share, floor, now) else share

    def _floor(self, limit: int) -> int:
        """What this member may fill of its balancer's floor."""
        names = {one.balancer for one in self._heard.values() if one.balancer}
        if not names:
            return 0  # those whom it shares with are processes of its own
        tokens = Counter(name.partition("/")[0] for name in names)
        balancers = 1 + sum(min(count, MOST_OF_A_TOKEN) for count in tokens.values())
        floor = max(1, limit // (2 * balancers))
        own = {
            name: use for one in self._heard.values() if not one.balancer for name, use in one.uses.items()
        }
        return shares(floor, {**own, self.member: self._use})[self.member]

    def _short(self, share: int, floor: int, now: float) -> bool:
        """Whether it has had to do with less than its floor for too long."""
        if share >= floor:
            self._short_since = inf
        elif self._use.waiting and self._use.running < floor:
            self._short_since = min(self._short_since, now)
        return now - self._short_since >= PATIENCE

    def part(self, limit: int, now: float) -> int:
        """Its equal part: what it says that it has, so that all that is said comes to the limit."""
        return shares(limit, dict.fromkeys([*self.others(now), self.member], SlotUse(0, 0)))[self.member]

    def _asked(self, now: float) -> int:
        """What it asks for: the least of what it told since `LAG` ago, and of what held then."""
        told = self._told
        while len(told) > 1 and told[1][0] <= now - LAG:
            told.popleft()
        if not told or told[0][0] > now - LAG:
            return 0  # nobody can have heard it yet
        return min(asked for _, asked in told)
