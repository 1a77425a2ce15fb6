"""How many requests a server takes at once, learned from when it says that it is full: where nobody has said its slots.

Theory. A server that says "full" is alive, and says something of its capacity: with `met` requests there, one more was too many. One that ends
well says it, too: it was taken with `met` there, so the server takes met + 1. What is learned is between the two, and rises again by
trying, as a sender's window does (AIMD): the server may have been full of somebody else's requests, or may be another today.

    full, met there        limit := the least of limit and met, but no less than what was taken lately, nor than 1
    taken, met there       limit := met + 1, if that is more; where it is the limit, and this rests no more: limit + a tenth, 1 at least

A "full" of a server at which nothing was, and of which nothing was taken lately, says nothing of what it takes: 1 is where it begins, and no measure. Then the limit
doubles with each request that fills it and ends well, until the next "full" that follows one (TCP's slow start, RFC 5681 §3.1): twice what was taken is sent at most.

After a "full" and after a rise it rests for `_REST` seconds, twice as long with each "full" that followed a rise, up to `_LONGEST`; as soon as more is taken than the last "full"
left, for `_REST` again. After `FORGET` seconds without one it is forgotten.

A "full" is a claim about the server that a client may have caused: some request may make it say so that is not. So who asked counts as one witness, and
of what only one has had said within `FORGET`, everybody else is proof: each request of another's that ends well has the limit rise at once.

A server that says "full" while nothing is known to be there answers at once and looks idle, and would draw most requests for as long as it says so: a model that
is loading, a queue that is closed. So it *refuses*: others are asked first, for `_REST` seconds, twice as long each time that it says so again, up to `_LONGEST_REFUSAL`, or
`_LONGEST_ALONE` of what only one has had it say; until a request ends well there.

Laws:
  1. What a server took in the last `LATELY` seconds, while a limit was known, it has room for, whoever has it say "full" how often.
  2. No later than `FORGET` seconds after the last "full", nothing is limited.
  3. While requests fill the limit and end well, it rises within `_LONGEST` seconds, and within `_REST` as long as each rise is taken.
  4. What one has it say holds others up for no longer than until one of theirs has ended well.
  5. It refuses for no longer than `_LONGEST_REFUSAL` seconds on end, and what is answered for requests that were sent before that makes it no longer.

Sources: Chiu and Jain, "Analysis of the increase and decrease algorithms for congestion avoidance" (1989); Netflix's concurrency-limits.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf

LATELY = 10.0
"""Seconds; twice that at the most."""
FORGET = 60.0
_REST, _LONGEST = 1.0, 16.0
_LONGEST_REFUSAL, _LONGEST_ALONE = 30.0, 4.0


class LearnedLimit:
    """How many requests one server takes at once, as far as it has said so. Times may not decrease."""

    __slots__ = (
        "_at", "_before", "_began", "_by", "_doubles", "_most", "_next", "_other_at", "_refusal", "_refused", "_rest", "_rose", "limit", "refuses_until",
    )  # fmt: skip

    def __init__(self) -> None:
        self.limit: int | None = None
        """Requests at once; None: nothing is known."""
        self.refuses_until = -inf
        """Until then others are asked first."""
        self._refusal = 0.0
        """How long it refused last; 0: something has ended well since."""
        self._most = self._before = 0
        """What was taken at once, in this period and the one before."""
        self._began = -inf
        self._at = self._other_at = -inf
        """The last "full", and the last of another than `_by`, who had that said."""
        self._by: Hashable = None
        self._next = -inf
        """No earlier than this it rises."""
        self._rest = _REST
        self._refused = 0
        """The limit as the last "full" left it."""
        self._rose = False
        """Since then."""
        self._doubles = False
        """Nothing is known of what it takes but that it was more than the limit whenever this was filled."""

    def full(self, met: float, now: float, who: Hashable = None) -> None:
        """It had no room for one more beside so many, whose it was."""
        self.tick(now)
        if who != self._by:
            self._other_at, self._by = self._at, who
        most = max(self._most, self._before)
        # Those that were sent together are refused beside each other, and none of them was there.
        self._doubles = not most and (met < 1 or self._doubles)
        least = max(1, most)
        limit = int(met) if self.limit is None else min(int(met), self.limit)
        if self._rose:
            self._rest = min(2 * self._rest, _LONGEST)
        self._rose = False
        self.limit = self._refused = max(limit, least)
        self._at = now
        self._next = now + self._rest
        if met < 1 and now >= self.refuses_until:
            longest = _LONGEST_REFUSAL if now - self._other_at < FORGET else _LONGEST_ALONE
            self._refusal = min(2 * self._refusal or _REST, longest)
            self.refuses_until = now + self._refusal

    def taken(self, met: float, now: float, who: Hashable = None) -> bool:
        """It took one beside so many, whose it was, which ended well; whether that changed the limit.

        So many: the least of those that were there when it was sent, some of which may have been refused since, and when it ended.
        """
        limit = self.limit
        if limit is None:
            return False
        if self._refusal:
            self._refusal, self.refuses_until = 0.0, -inf
        count = int(met) + 1
        self._most = max(self._most, count)
        if who != self._by and now - self._other_at >= FORGET:
            self.limit = max(count, _more(limit))
            return True
        if count < limit:
            return False
        if count > self._refused and self._rest > _REST:
            self._rest, self._next = _REST, now
        if count == limit and self._doubles:
            count = 2 * limit
        elif count == limit:
            if now < self._next:
                return False
            count = _more(limit)
            self._next = now + self._rest
            self._rose = True
        self.limit = count
        return True

    def tick(self, now: float) -> None:
        """Let time do what it does."""
        if self._began == -inf:
            self._began = now
        elif now - self._began >= LATELY:
            self._before = self._most if now - self._began < 2 * LATELY else 0
            self._began, self._most = now, 0
        if self.limit is not None and now - self._at >= FORGET:
            self.limit = None
            self._most = self._before = 0
            self._rest, self._rose, self._refusal, self._doubles = _REST, False, 0.0, False


def _more(limit: int) -> int:
    return limit + max(1, limit // 10)
