"""What one sender (an edge's worker, a balancer) may send to a region beyond the plan until it hears of it again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import floor

from gtm.core.balance.spill.room import KNOWN_FOR, Room, Standing, token_of
from gtm.core.decision.options import Afford
from gtm.core.model.affinity import fraction

_GRAIN = 0.01
"""Requests sent closer together than this, in seconds, count as one entry, as sent with the last of them."""


def allotment(standing: Standing, share: float, key: int) -> int:
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


class Sent:
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

    known: Callable[[int], Standing | None]
    sent: Sent
    share: float
    afford: Afford

    def room_at(self, number: int, key: int, travel: float = 0.0) -> Standing | None:
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
