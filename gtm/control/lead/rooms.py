"""What regions' balancers say of their free slots, ten times a second, and what their silence says.

A balancer holds a line open: reports when its slots change, beats in between, ten a second together. The line's end, or three beats
missed, makes its region a *suspect* for a moment: every edge probes it at once. Suspicion decides nothing; probes do.

Laws:
  1. Silence is no room, and no verdict: a region that falls silent is asked, by everybody, and is down if it does not answer.
  2. A balancer that says goodbye is no suspect.
  3. What is told is told with its age, so that no two clocks are compared; what is older than it counts for is left out.
  4. What one token says costs others what one token may cost: its lines, its reports a second and their parts are bounded, and of parts
     only those are told that the policy names.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from uuid import uuid4

from gtm.control.errors import BadRequest, Conflict
from gtm.control.live.present import Current
from gtm.core.balance.spill.room import FASTEST, KNOWN_FOR, OpenSlots, Room, Slots, newest, standing, token_of
from gtm.core.policy.snapshot import Snapshot
from gtm.feed.wire import RoomMessage, RoomReport

BEAT = 0.1
"""Seconds between two beats of a balancer."""
MISSED = 3
"""Beats missed, and its region is a suspect."""
SUSPECTED = 1.0
"""Seconds for which a region is one: long enough for every vantage's probes to tell."""
MOST_LINES = 64
"""Lines of one region that are heard at once."""
MOST_OF_A_TOKEN = 16
"""Of these, those that one token opened: who has stolen it must not crowd out the others."""
MOST_PARTS = 64
"""Services and models that have slots of their own, of one balancer."""
_A_SECOND = MOST_OF_A_TOKEN * 2 / FASTEST
"""Reports of one token that are read a second: twice as many as its balancers send."""
EVERY = 0.1
"""Seconds between two messages at least."""


@dataclass(slots=True)
class _Line:
    """An open line: whose, and when it was last heard (monotonic seconds)."""

    region: str
    heard: float


class Rooms:
    """See above.

    Args:
        current: what followers are told; its `rooms` are this object's.
        senders: how many tokens are followed by.
        monotonic: seconds that never step back.
    """

    def __init__(self, current: Current, senders: Callable[[], int], monotonic: Callable[[], float]) -> None:
        self._current = current
        self._senders = senders
        self._monotonic = monotonic
        self._rooms: dict[str, Mapping[str, Room]] = {}
        self._lines: dict[tuple[str, str], _Line] = {}
        self._open: Counter[tuple[str, str]] = Counter()
        """Connections, by region and token."""
        self.dropped: Counter[str] = Counter()
        """What was left out of what balancers said: `room_reports` that came too often, `room_parts` that the policy does not name."""
        self._budgets: dict[tuple[str, str], tuple[float, float]] = {}
        """Reports that may be read, and when that was so, likewise."""
        self._known: tuple[Snapshot | None, frozenset[str]] = None, frozenset()
        self._suspects: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._name = uuid4().hex

    # --- lines ---

    def opened(self, region: str, source: str) -> None:
        """A balancer's line is open.

        Raises:
            Conflict: there are as many of the region, or of the token, as are kept.
        """
        token = token_of(source)
        if self._open[region, token] >= MOST_OF_A_TOKEN:
            raise Conflict(
                f"the token `{token}` has {MOST_OF_A_TOKEN} lines open for region `{region}`, as many as are heard of one: make other "
                f"balancers a token of their own (gtm token create NAME --role balancer --regions {region})"
            )
        if sum(count for (one, _), count in self._open.items() if one == region) >= MOST_LINES:
            raise Conflict(f"region `{region}` has {MOST_LINES} balancers on the line, as many as are heard")
        self._open[region, token] += 1
        self._lines[region, source] = _Line(region, self._monotonic())
        self._suspects.pop(region, None)

    def beat(self, region: str, source: str) -> None:
        """It said that it is there."""
        line = self._lines.get((region, source))
        if line is not None:
            line.heard = self._monotonic()

    def reads(self, region: str, source: str) -> bool:
        """Whether a report of its may be read: no more than `_A_SECOND` of its token are. Those left out are counted."""
        now, whose = self._monotonic(), (region, token_of(source))
        left, at = self._budgets.get(whose, (_A_SECOND, now))
        left = min(_A_SECOND, left + (now - at) * _A_SECOND)
        reads = left >= 1.0
        self._budgets[whose] = left - reads, now
        self.dropped["room_reports"] += not reads
        return reads

    def heard(self, region: str, report: RoomReport) -> None:
        """It reported.

        Raises:
            BadRequest: it has more parts than are told.
        """
        now = self._monotonic()
        rooms = self._rooms.get(region, {})
        after = newest(rooms, replace(report, age=0.0, parts=self._named(report.parts)).held(now))
        if after is not rooms:
            self._rooms[region] = _bounded(after, token_of(report.source))
            self._changed.set()

    def _named(self, parts: dict[str, Slots]) -> dict[str, Slots]:
        """Those that requests can ask for: services, and models that the policy names."""
        if not parts:
            return parts
        compiled = self._current.now.compiled
        if self._known[0] is not compiled:
            self._known = compiled, frozenset() if compiled is None else _names(compiled)
        found = {name: slots for name, slots in parts.items() if name in self._known[1]}
        if len(found) > MOST_PARTS:
            raise BadRequest(
                f"a report has slots for {len(found)} services and models, of which {MOST_PARTS} are told: report those that have "
                "fewer than the whole"
            )
        self.dropped["room_parts"] += len(parts) - len(found)
        return found

    def closed(self, region: str, source: str, *, said: bool) -> None:
        """Its line has ended; `said`: as it had told."""
        self._open -= Counter(((region, token_of(source)),))
        if self._lines.pop((region, source), None) is not None and not said:
            self._suspects[region] = self._monotonic() + SUSPECTED
            self._changed.set()

    # --- what is told ---

    async def run(self) -> None:
        """Watch lines, and tell followers, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(BEAT):
                    await self._changed.wait()
            except TimeoutError:
                self.look()
                if not self._changed.is_set():
                    continue
            self._changed.clear()
            self.look()
            self._current.become(replace(self._current.now, rooms=self.message()))
            await asyncio.sleep(EVERY)

    def look(self) -> None:
        """Find who fell silent, and whom nobody suspects any more."""
        now = self._monotonic()
        for line in self._lines.values():
            if now - line.heard > (MISSED + 0.5) * BEAT:
                # Known from now on as silent: it is suspected once, until it is heard again.
                line.heard = float("inf")
                self._suspects[line.region] = now + SUSPECTED
                self._changed.set()
        if any(now - room.at > KNOWN_FOR for rooms in self._rooms.values() for room in rooms.values()):
            self._changed.set()  # who begins to follow now must not take it for new
        for region in [region for region, until in self._suspects.items() if now >= until]:
            del self._suspects[region]
            self._changed.set()

    @property
    def standings(self) -> dict[str, OpenSlots]:
        """What is known of each region as a whole, the present at 0 seconds."""
        now = self._monotonic()
        found = {region: standing(rooms.values(), "", now) for region, rooms in self._rooms.items()}
        return {region: replace(one, at=one.at - now) for region, one in found.items() if one is not None}

    def message(self) -> RoomMessage:
        """The message with all free slots that are known now."""
        now = self._monotonic()
        found: dict[str, tuple[RoomReport, ...]] = {}
        for region, rooms in list(self._rooms.items()):
            known = {source: room for source, room in rooms.items() if now - room.at <= KNOWN_FOR}
            if not known:
                del self._rooms[region]
                continue
            self._rooms[region] = known
            found[region] = tuple(
                RoomReport(
                    room.source, room.started, room.sequence, now - room.at, room.whole, dict(room.parts)
                )
                for _, room in sorted(known.items())
            )
        return RoomMessage(found, max(1, self._senders()), tuple(sorted(self._suspects)), now, self._name)


def _names(compiled: Snapshot) -> frozenset[str]:
    """What may have slots of its own (`gtm.core.balance.spill.corrector.parts_of`)."""
    models = (one.service.model for one in compiled.services.values() if one.service.model is not None)
    return compiled.models.union(compiled.services, models)


def _bounded(rooms: Mapping[str, Room], token: str) -> Mapping[str, Room]:
    """Without the oldest of a token that has more than its lines: what was said outlasts the line that it was said on."""
    own = sorted((room.at, source) for source, room in rooms.items() if token_of(source) == token)
    left_out = {source for _, source in own[:-MOST_OF_A_TOKEN]}
    return {source: room for source, room in rooms.items() if source not in left_out} if left_out else rooms
