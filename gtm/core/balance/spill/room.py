"""What a region's balancers say of their free slots, for how long it counts, and how often to say it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import floor, inf

from gtm.core.decision.options import Afford
from gtm.core.model.affinity import fraction
from gtm.core.model.units import MOST_SLOTS, within

KNOWN_FOR = 2.0
"""Seconds for which a Room counts. Older is unknown, and unknown is no room."""
FASTEST = 0.1
"""Seconds between two reports of a balancer that is nearly full, or much changed: 10 Hz, never more."""
SLOWEST = 0.5
"""Seconds between two reports of an idle one: of three in a row two may be lost before a region is unknown."""
_NEARLY_FULL = 0.8
"""Utilisation from which a balancer reports as often as it may."""
_IDLE = 0.5
"""Utilisation up to which it reports as seldom as it may."""
_WINDOW = 60.0
"""Seconds over which the quickest message is looked for."""
_MUCH = 0.1
"""Part of the limit: a change of what is free by more is worth a report at once."""


@dataclass(frozen=True, slots=True)
class Slots:
    """How many requests could begin now (`free`), are served at once at the most (`limit`), and wait.

    Raises:
        ValueError: a number that is negative, not finite or more than slots can be (`MOST_SLOTS`), or more free than the limit.
    """

    free: float
    limit: float
    waiting: float = 0.0

    def __post_init__(self) -> None:
        for name in ("free", "limit", "waiting"):
            value = getattr(self, name)
            if not within(value, MOST_SLOTS):
                raise ValueError(
                    f"{name} of slots is {value}; it must be a number from 0 to {MOST_SLOTS:.0f}"
                )
        if self.free > self.limit:
            raise ValueError(f"{self.free} slots are free, more than the limit of {self.limit}")

    @classmethod
    def counted(cls, free: float, limit: float, waiting: float) -> Slots:
        """Of what somebody counted: what is beyond `MOST_SLOTS` is left out."""
        most = min(limit, MOST_SLOTS)
        return cls(min(free, most), most, min(waiting, MOST_SLOTS))

    @property
    def open(self) -> float:
        """Slots that a request which comes now could have: what waits takes what is free first."""
        return max(0.0, self.free - self.waiting)


@dataclass(frozen=True, slots=True)
class Room:
    """One balancer's report of its slots: all of them, and those of services or models that have fewer to themselves.

    `source` names the balancer; `started` is when it started (POSIX seconds, by its own clock) and `sequence` numbers its
    reports since, so that two reports of one source can be put in order. `at` is when it was measured, by the clock of
    whoever holds it: relays pass on an age, not a time, so that no clock is shared.
    """

    source: str
    started: float
    sequence: int
    at: float
    whole: Slots
    parts: Mapping[str, Slots] = field(default_factory=dict)

    def of(self, part: str) -> Slots:
        """What a service or model can have: its own slots, and no more than the whole has. The whole if it has none of its own."""
        own = self.parts.get(part)
        if own is None:
            return self.whole
        return Slots(min(own.free, self.whole.open), own.limit, own.waiting)

    def follows(self, other: Room) -> bool:
        """Whether it is newer than another report of the same source."""
        return (self.started, self.sequence) > (other.started, other.sequence)

    def known(self, now: float) -> bool:
        """Whether it still counts. One from the future does not: whose clock is wrong is not known."""
        return 0.0 <= now - self.at <= KNOWN_FOR


@dataclass(frozen=True, slots=True)
class OpenSlots:
    """What is known of a region: its balancers added up.

    `open` slots could be had by requests that come now, of `limit`; `waiting` requests wait. `at` is the oldest report's time;
    `sequence` differs between any two that follow each other.
    """

    open: float
    limit: float
    waiting: float
    at: float
    sequence: int

    def within(self, most: float | None) -> OpenSlots:
        """What of it counts where the policy says that the region has so many slots; None: it does not say."""
        if most is None:
            return self
        return replace(self, open=min(most, self.open), limit=min(most, self.limit))


def token_of(source: str) -> str:
    """The name of the token that a balancer reports with: its source is that name and its own, a stroke between. Without one its own."""
    return source.rpartition("/")[0] or source


def newest(rooms: Mapping[str, Room], heard: Room) -> Mapping[str, Room]:
    """The rooms by source with one more report; the same mapping if it is no newer than what its source said before."""
    before = rooms.get(heard.source)
    if before is not None and not heard.follows(before):
        return rooms
    return {**rooms, heard.source: heard}


def standing(rooms: Iterable[Room], part: str, now: float, most: float | None = None) -> OpenSlots | None:
    """What a region's balancers have together for a service or model; None: nothing is known, which is no room.

    Each slot must be reported by one balancer only, as in load reports. A balancer that is unknown adds nothing; one that
    has more requests waiting than slots free has nothing open, and takes nothing of what others have.

    Args:
        rooms: the newest of each of the region's balancers.
        part: the service or model.
        now: by the clock that `Room.at` is of.
        most: the slots that the policy says the region has; more are not open, whoever says so. None: it does not say.
    """
    found = [room for room in rooms if room.known(now)]
    if not found:
        return None
    slots = [room.of(part) for room in found]
    return OpenSlots(
        open=sum(one.open for one in slots),
        limit=sum(one.limit for one in slots),
        waiting=sum(one.waiting for one in slots),
        at=min(room.at for room in found),
        sequence=sum(room.sequence for room in found),
    ).within(most)


def next_report(told: Slots | None, now: Slots, since: float) -> float:
    """Seconds until a balancer should report again; 0: now.

    Args:
        told: what its newest report said; None: it has not reported yet.
        now: what it would say.
        since: seconds since that report was sent.
    """
    if told is None:
        return 0.0
    return max(0.0, _interval(told, now) - since)


def _interval(told: Slots, now: Slots) -> float:
    if _full(told) != _full(now) or abs(told.free - now.free) > _MUCH * now.limit or told.limit != now.limit:
        return FASTEST
    if now.limit <= 0:
        return SLOWEST
    utilisation = 1 - now.open / now.limit
    emptier = (_NEARLY_FULL - utilisation) / (_NEARLY_FULL - _IDLE)
    return FASTEST + (SLOWEST - FASTEST) * min(1.0, max(0.0, emptier))


def _full(slots: Slots) -> bool:
    return slots.open < 1


class Transit:
    """How much later a message came than the quickest of late.

    Two clocks that run evenly differ by a constant, which nobody knows; what arrived quickest shows it best. Only the last two
    `_WINDOW`s are looked at, since clocks drift apart by seconds a day. The first message of a sender counts as quick.
    """

    __slots__ = ("_before", "_began", "_least", "_sender")

    def __init__(self) -> None:
        self._sender = ""
        self._least = self._before = inf
        self._began = 0.0

    def late(self, sender: str, sent: float, now: float) -> float:
        """Seconds that a message was on the way beyond the usual.

        Args:
            sender: whose clock `sent` is of.
            sent: when it was sent, by that clock.
            now: when it came, by one's own.
        """
        if sender != self._sender:
            self._sender, self._least, self._before, self._began = sender, inf, inf, now
        if now - self._began >= _WINDOW:
            self._before, self._least, self._began = self._least, inf, now
        took = now - sent
        self._least = min(self._least, took)
        return took - min(self._least, self._before)


# --- What one sender (an edge's worker, a balancer) may send to a region beyond the plan until it hears of it again. ---


_GRAIN = 0.01
"""Requests sent closer together than this, in seconds, count as one entry, as sent with the last of them."""


def allotment(standing: OpenSlots, share: float, key: int) -> int:
    """How many requests a sender may send to a region by one report, beyond those of the plan.

    Args:
        standing: what is known of the region.
        share: this sender's among all that may send there, above 0 and up to 1.
        key: the hash of the sender's and the region's names (64 bits).
    """
    if standing.open < 1:
        return 0
    return floor(standing.open * share + fraction(key, standing.sequence))


def wanting(rooms: Iterable[Room], senders: int, now: float) -> int:
    """How many tokens there are whose edges or balancers may want to send now.

    A balancer that says that it has a slot open does not want to. A token all of whose balancers say so needs no part. It counts for one,
    whatever number of balancers it has or claims to have: those divide its part among themselves.

    Args:
        rooms: the newest of each balancer.
        senders: the tokens that edges and balancers go by reports with, all of them.
        now: by the clock of `Room.at`.
    """
    content: dict[str, bool] = {}
    for room in rooms:
        if room.known(now):
            token = token_of(room.source)
            content[token] = content.get(token, True) and room.whole.open >= 1
    return max(1, senders - sum(content.values()))


class SentBeyond:
    """What one sender has sent beyond the plan lately, by region's number. Times may not decrease."""

    __slots__ = ("_asked", "_entries")

    def __init__(self) -> None:
        self._entries: dict[
            int, deque[tuple[float, float, int]]
        ] = {}  # (first of them, last of them, how many)
        self._asked: dict[int, tuple[float, int]] = {}
        """What `since` was asked last, and its answer now: a report is gone by again and again."""

    def add(self, number: int, now: float) -> None:
        """One more to the region of this number."""
        entries = self._entries.get(number)
        if entries is None:
            entries = self._entries[number] = deque()
        while entries and entries[0][1] < now - 2 * KNOWN_FOR:
            entries.popleft()
        if entries and now < entries[-1][0] + _GRAIN:
            first, _, count = entries[-1]
            entries[-1] = (first, now, count + 1)
        else:
            entries.append((now, now, 1))
        asked = self._asked.get(number)
        if asked is not None and now >= asked[0]:
            self._asked[number] = asked[0], asked[1] + 1

    def since(self, number: int, at: float) -> int:
        """How many were sent to the region at a time or later, a grain more at the most; as far back as reports can reach."""
        asked = self._asked.get(number)
        if asked is not None and asked[0] == at:
            return asked[1]
        found = 0
        for _, last, count in reversed(self._entries.get(number, ())):
            if last < at:
                break
            found += count
        self._asked[number] = at, found
        return found


@dataclass(frozen=True, slots=True)
class Sender:
    """An edge's worker or a balancer, as spill-back sees it.

    `known` says what is known now of the region of a number, for the request's service or model (None: nothing). `sent` is what
    it has sent, `share` its part among all senders (above 0, up to 1). `afford` takes one token of each quota named, or none and
    says no.
    """

    known: Callable[[int], OpenSlots | None]
    sent: SentBeyond
    share: float
    afford: Afford

    def room_at(self, number: int, key: int, travel: float = 0.0) -> OpenSlots | None:
        """What is known of a region, if this sender may send one more request there; None: it may not.

        Args:
            number: the region's.
            key: as for `allotment`.
            travel: seconds that a request takes there: what was sent so long before the report is not in it.
        """
        standing = self.known(number)
        if standing is None:
            return None
        left = allotment(standing, self.share, key) - self.sent.since(number, standing.at - travel)
        return standing if left >= 1 else None


# --- Why a correction or a push was made, or was not: codes that counters, explanations and logs share. ---


FAILED = "failed"
"""Stands beside these codes, too: a peer did not answer, or did not take the request."""
CAME = "came"
"""Stands beside these codes for requests that were served here, and that a balancer of another region had first."""


class SpillReason(StrEnum):
    """The reason for a correction or a push, or for none."""

    MOVED = "moved"
    """Another region has room, and the request goes there."""
    ROOM_HERE = "room_here"
    """There is room where the request was sent."""
    UNKNOWN_HERE = "unknown_here"
    """Nothing is known of the region that the plan drew: the plan stands."""
    NO_ROOM = "no_room"
    """No other region is known to have room for this sender."""
    NO_QUOTA = "no_quota"
    """Others have room, but the tokens of a spillover quota are used up."""
    NOTHING_GAINED = "nothing_gained"
    """The request starts here before it could elsewhere."""
    ONE_HOP = "one_hop"
    """It came by a push already."""
