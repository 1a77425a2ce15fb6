"""What a worker of an edge keeps in order to correct: what it heard and sent, and the ways of a View's classes.

    rooms (10 Hz) ──▶ SendingWorker ──known, share, sent──┐
    View ──ways──▶ Corrector ──────────────────────────▶ correct ──▶ Correction ──▶ Option (`choice.by_free_slots`)

Laws:
  1. What is remembered is ways, and sums of what was said. Whether a request is corrected is decided for each.
  2. A report counts only if it was measured after this worker began to note what it sends: of an older one it does not know what
     it has used. Notes are by a region's number, so that they are of no use from before a policy numbered the regions otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gtm.core.balance.spill.edge import Correction, Way, correct, ways
from gtm.core.balance.spill.room import (
    KNOWN_FOR,
    OpenSlots,
    Room,
    Sender,
    SentBeyond,
    allotment,
    standing,
    wanting,
)
from gtm.core.decision.choice import by_free_slots
from gtm.core.decision.options import Afford, Option
from gtm.core.decision.ranking import RankingClass
from gtm.core.decision.view import View
from gtm.core.model.outcomes import Reason
from gtm.core.model.regions import Region

CORRECTED = frozenset(
    {
        Reason.LOWEST_LATENCY,
        Reason.NEAREST,
        Reason.SPILLOVER,
        Reason.EXPLORATION,
        Reason.QUOTA_EXHAUSTED,
        Reason.SHED,
    }
)
"""Reasons of the plan's choices that are corrected: where steering or plan decided, and no session, share or fault did."""

Parts = tuple[str | None, ...]
"""The service and the models of a request, of which each may have slots of its own."""

_UNASKED = OpenSlots(0.0, 0.0, 0.0, 0.0, 0)
_NOTHING: Mapping[str, Sequence[Room]] = {}


def parts_of(group: RankingClass, model: str | None) -> Parts:
    """Whose slots a request takes, by its class and the model that it asks for."""
    service = group.service.service
    return service.name, service.model, model


def tightest(rooms: Sequence[Room], parts: Parts, now: float, most: float | None = None) -> OpenSlots | None:
    """What a region has for a request: of its service's and models' own slots the least open. None: nothing is known.

    Args:
        rooms: the newest of each of the region's balancers.
        parts: of the request.
        now: by the clock of `Room.at`.
        most: see `standing`.
    """
    named = {part for part in parts if part is not None and any(part in room.parts for room in rooms)}
    if not named:
        return standing(rooms, "", now, most)
    found = [standing(rooms, part, now, most) for part in named]
    return min((one for one in found if one is not None), key=lambda one: one.open, default=None)


class SendingWorker:
    """One HTTP process of an edge, as long as it lives. Used by its answering thread alone.

    Args:
        name: which no other sender has.
        siblings: how many such processes its edge has, this one included.
        afford: takes one token of each quota named, or none and says no.
        now: by the clock of `Room.at`.
    """

    def __init__(self, name: str, siblings: int, afford: Afford, now: float) -> None:
        self.name = name
        self.rooms = _NOTHING
        """The rooms that corrections go by."""
        self.sender = Sender(self._known, SentBeyond(), 1.0, afford)
        self._siblings = siblings
        self._senders = 0
        self._found: dict[Parts, dict[int, OpenSlots | None]] = {}
        self._asked: dict[int, OpenSlots | None] = {}
        self._named: frozenset[str | None] = frozenset()
        self._regions: tuple[str, ...] = ()
        self._most: tuple[float | None, ...] = ()
        """What slots each of them has, as the policy says."""
        self._since = now
        self._now = now
        self._parts: Parts = ()

    def number(self, regions: Sequence[Region], now: float) -> None:
        """Go by a policy's regions, in its order, from now on."""
        names, most = tuple(one.name for one in regions), tuple(one.capacity.outstanding for one in regions)
        if most != self._most:
            self._most, self._found = most, {}
        if self._regions and names != self._regions:
            self._since = now
            self.rooms, self._found = _NOTHING, {}  # what was heard before is heard anew
        self._regions = names

    def hear(self, rooms: Mapping[str, Sequence[Room]], senders: int, now: float, beside: int = 1) -> None:
        """Go by what was said last: by region the newest of each balancer, how many tokens go by it, and how many edges by this one's."""
        senders = wanting((room for several in rooms.values() for room in several), senders, now) * beside
        self.rooms, self._found = rooms, {}
        self._named = frozenset(part for several in rooms.values() for room in several for part in room.parts)
        if senders != self._senders:
            self._senders = senders
            share = 1 / (senders * self._siblings)
            self.sender = Sender(self._known, self.sender.sent, share, self.sender.afford)

    def ask(self, parts: Parts, now: float) -> Sender:
        """The sender, as `correct` takes it, for a request with these parts."""
        named = self._named  # what requests differ in where nobody has slots of its own makes no difference
        self._parts = parts = tuple([part for part in parts if part in named]) if named else ()
        self._now = now
        asked = self._found.get(parts)
        if asked is None:
            asked = self._found[parts] = {}
        self._asked = asked
        return self.sender

    def _known(self, number: int) -> OpenSlots | None:
        found = self._asked.get(number, _UNASKED)
        # Added up anew where the oldest of its reports counts no more. What is unknown stays so until more is heard.
        if found is not None and (found is _UNASKED or self._now - found.at > KNOWN_FOR):
            rooms = [room for room in self.rooms.get(self._regions[number], ()) if room.at >= self._since]
            found = self._asked[number] = tightest(rooms, self._parts, self._now, self._most[number])
        return found


class ClassWays:
    """The ways of one class's requests for one model: all of them, and when gone through those where this worker may send.

    Where it may not when a report is first gone by, it is not looked again until the next: what may be sent only shrinks.
    """

    __slots__ = ("_able", "_rooms", "_worker", "every", "parts")

    def __init__(self, every: tuple[Way, ...], parts: Parts, worker: SendingWorker) -> None:
        self.every = every
        self.parts = parts
        self._worker = worker
        self._able: tuple[Way, ...] = ()
        self._rooms: object = None

    def __iter__(self) -> Iterator[Way]:
        """Those that are able, after `SendingWorker.ask` with these parts."""
        if self._rooms is not self._worker.rooms:
            sender = self._worker.sender
            self._rooms = self._worker.rooms
            self._able = tuple(
                way
                for way in self.every
                if (found := sender.known(way.number)) is not None
                and allotment(found, sender.share, way.key) >= 1
            )
        return iter(self._able)


class Corrector:
    """Corrects the choices of one View for one worker.

    Args:
        view: whose regions `worker` goes by.
        worker: see above.
        limit: how many classes' ways are remembered; past it the memory starts anew.
    """

    def __init__(self, view: View, worker: SendingWorker, limit: int = 65_536) -> None:
        self._view = view
        self._worker = worker
        self._limit = limit
        self._ways: dict[tuple[RankingClass, str | None], ClassWays] = {}
        self._options: dict[tuple[RankingClass, int], Option] = {}

    def ask(self, group: RankingClass, model: str | None, option: Option, now: float) -> Correction | None:
        """Correct one request; None: such a choice is not corrected.

        Args:
            group: its class, in the View.
            model: that it asks for.
            option: the plan's choice, its quotas paid.
            now: by the clock of `Room.at`.
        """
        if option.reason not in CORRECTED:
            return None
        found = self._ways.get((group, model)) or self._found(group, model)
        if not found.every:
            return None
        sender = self._worker.ask(found.parts, now)
        return correct(option.number, found, sender, now, paid=option.quotas)

    def option(self, group: RankingClass, way: Way) -> Option:
        """How a request ends that takes a way; the same each time, for answers are remembered by it."""
        key = group, way.number
        found = self._options.get(key)
        if found is None:
            found = self._options[key] = by_free_slots(self._view, group, way.number, way.quotas)
        return found

    def _found(self, group: RankingClass, model: str | None) -> ClassWays:
        if len(self._ways) >= self._limit:
            self._ways, self._options = {}, {}
        every = ways(self._view, group, self._worker.name)
        found = self._ways[group, model] = ClassWays(every, parts_of(group, model), self._worker)
        return found
