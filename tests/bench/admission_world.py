"""A region in simulated time: requests come at random, hold a slot for as long as they take, and wait as admission says.

Exponential times between arrivals and of service (an M/M/n queue with priorities); seeds make it repeatable.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

from gtm.core.balance.admission.admission import Admission
from gtm.core.balance.admission.settings import AdmissionSettings
from gtm.core.balance.admission.values import AdmissionRefusal, Arrival, Ticket
from gtm.core.model.services import Priority


@dataclass(frozen=True)
class Stream:
    """Requests of one kind: so many a second, `times` as many in the burst, each holding a slot for `hold_s` on average."""

    priority: Priority
    rate: float
    hold_s: float
    tenant: str | None = None
    times: float = 1.0


@dataclass
class Outcome:
    """What became of them: waits in seconds of those that began, by tier and phase (before, burst, after); refusals by code."""

    waits: dict[tuple[Priority, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    refused: Counter[tuple[Priority, str]] = field(default_factory=Counter)
    offered: Counter[Priority] = field(default_factory=Counter)
    served_s: Counter[str | None] = field(default_factory=Counter)
    """Seconds of slots, by tenant, of those that began in the burst."""

    def quantile(self, priority: Priority, phase: str, part: float) -> float:
        waits = sorted(self.waits[priority, phase])
        return waits[min(int(part * len(waits)), len(waits) - 1)]


class Region:
    """Plays streams against one admission."""

    def __init__(self, settings: AdmissionSettings, slots: int, *, tiers: bool = True, seed: int = 1) -> None:
        self.admission = Admission(settings, slots)
        self.tiers = tiers
        self.random = Random(seed)
        self.outcome = Outcome()
        self._events: list[tuple[float, int, object]] = []
        self._count = 0

    def play(self, streams: Sequence[Stream], burst: tuple[float, float], end_s: float) -> Outcome:
        """Let requests come for `end_s` seconds, with the burst from its first to its last second.

        Without tiers all wait as one, first come, first served.
        """
        for stream in streams:
            self._later(0.0, stream)
        while self._events:
            now, _, what = heappop(self._events)
            if isinstance(what, Stream):
                if now < end_s:
                    self._arrive(what, now, burst)
            elif isinstance(what, Ticket):
                self.admission.release(what, now)
            for ticket in self.admission.due(now):
                if ticket.refusal is None:
                    self._began(ticket, now, burst)
                else:
                    self._refused(ticket.context, ticket.refusal)
            deadline = self.admission.next_deadline()
            if deadline is not None and not (self._events and self._events[0][0] <= deadline):
                self._later(deadline, None)
        return self.outcome

    def _later(self, at: float, what: object) -> None:
        self._count += 1
        heappush(self._events, (at, self._count, what))

    def _arrive(self, stream: Stream, now: float, burst: tuple[float, float]) -> None:
        hold = self.random.expovariate(1 / stream.hold_s)
        priority = stream.priority if self.tiers else Priority.REAL_TIME
        arrival = Arrival(priority, stream.tenant if self.tiers else None, stream.hold_s)
        result = self.admission.offer(arrival, now)
        self.outcome.offered[stream.priority] += 1
        kept = (stream, hold)
        if isinstance(result, AdmissionRefusal):
            self._refused(kept, result)
        else:
            result.context = kept
            if not result.waiting:
                self._began(result, now, burst)
        rate = stream.rate * (stream.times if burst[0] <= now < burst[1] else 1.0)
        self._later(now + self.random.expovariate(rate), stream)

    def _began(self, ticket: Ticket, now: float, burst: tuple[float, float]) -> None:
        kept = ticket.context
        assert isinstance(kept, tuple)
        stream, hold = kept
        phase = "before" if ticket.offered < burst[0] else "burst" if ticket.offered < burst[1] else "after"
        self.outcome.waits[stream.priority, phase].append(now - ticket.offered)
        if burst[0] <= now < burst[1]:
            self.outcome.served_s[stream.tenant] += hold
        self._later(now + hold, ticket)

    def _refused(self, kept: object, refusal: AdmissionRefusal) -> None:
        assert isinstance(kept, tuple)
        self.outcome.refused[kept[0].priority, refusal.code] += 1


def burst_of_batch(seed: int, *, real_time: float = 15.0, tiers: bool = True) -> Outcome:
    """100 slots; real-time work for `real_time` of them (1 s each), batch for 40 (4 s each), for a minute eight times as much."""
    settings = AdmissionSettings(queue_length=500)
    streams = [
        Stream(Priority.REAL_TIME, real_time, 1.0, "chat"),
        Stream(Priority.NEAR_REAL_TIME, 2.5, 2.0, "mail"),
        Stream(Priority.BATCH, 10.0, 4.0, "nightly", 8.0),
    ]
    return Region(settings, 100, tiers=tiers, seed=seed).play(streams, (60.0, 120.0), 180.0)
