"""Edges, a control and a bad network between them, in simulated time: what quotas admit when everything goes wrong.

The real ledger, lease holders and buckets run; only messages, clocks and clients are simulated. Every process has a clock
of its own, of any offset, up to `drift` too fast or too slow.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from gtm.core.quota.buckets import WINDOW, TokenBucket
from gtm.core.quota.leases import LeaseGrant, LeaseHolder, LeaseParts, LeaseUse
from gtm.core.quota.ledger import LeaseLedger

Q = "spill"


@dataclass(frozen=True)
class Weather:
    """How bad the network and the machines are; probabilities by message or by second and edge."""

    drift: float = 0.001
    delay: float = 0.02
    lost: float = 0.0
    twice: float = 0.0
    slow: float = 0.0  # messages that take seconds
    cut: float = 0.0  # an edge is cut off, for 1 to 10 s
    die: float = 0.0  # an edge's agent dies; its workers may live on
    stuck: float = 0.0  # a worker gets its parts seconds late
    worker: float = 0.0  # a worker's process is replaced
    restart: float = 0.0  # control loses its books (by second)


CALM = Weather()
STORM = Weather(0.001, 0.05, 0.1, 0.1, 0.05, 0.03, 0.02, 0.02, 0.02, 0.004)


@dataclass(frozen=True)
class Scene:
    """What is played: `load` is the demand as a multiple of the quota, `shift` the seconds between its upheavals."""

    quota: float
    edges: int = 4
    workers: int = 2
    load: float = 1.5
    seconds: float = 60.0
    shift: float | None = None
    weather: Weather = CALM
    skew: float = 1.0  # the edges' demands are drawn as random() ** skew
    upheaval: float | None = None  # when there is one more


class _Clock:
    """A process's own clock."""

    def __init__(self, rng: random.Random, drift: float) -> None:
        self._rate = 1 + rng.uniform(-drift, drift)
        self._offset = rng.uniform(0, 1e6)

    def read(self, true: float) -> float:
        return self._offset + true * self._rate


class _Worker:
    """The buckets of one process."""

    def __init__(self, parts: LeaseParts, now: float) -> None:
        self.bucket = TokenBucket.successor(now, parts.rates.get(Q, 0.0), parts.until)
        self.sequence = parts.sequence
        self.used = self.denied = 0

    def update(self, parts: LeaseParts, now: float) -> None:
        self.bucket.lease(now, parts.rates.get(Q, 0.0), parts.until)
        self.sequence = parts.sequence

    def ask(self, now: float) -> bool:
        admitted = self.bucket.take(now)
        self.used += admitted
        self.denied += not admitted
        return admitted


@dataclass
class _Edge:
    name: str
    clock: _Clock
    holder: LeaseHolder
    workers: list[_Worker]
    cut_until: float = 0.0
    alive: bool = True  # the agent
    serving: bool = True  # the workers


@dataclass
class Played:
    """What came of it."""

    admitted: list[float] = field(default_factory=list)
    asked: list[float] = field(default_factory=list)

    def worst(self, quota: float) -> float:
        """The most admitted in any window of 10 s, as a multiple of the quota."""
        most = first = 0
        for last, at in enumerate(self.admitted):
            while self.admitted[first] <= at - WINDOW:
                first += 1
            most = max(most, last - first + 1)
        return most / (quota * WINDOW)

    def utilisation(self, quota: float, begin: float, end: float) -> float:
        """What was admitted between two times, of what could have been."""
        asked = sum(begin <= at < end for at in self.asked)
        return sum(begin <= at < end for at in self.admitted) / min(asked, quota * (end - begin))


class World:
    """One simulation."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene, self.rng = scene, random.Random(seed)
        self.played = Played()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.now = 0.0
        self._control_clock = _Clock(self.rng, scene.weather.drift)
        self._ledgers = 1
        # The first ledger knows that there was none before it.
        self._ledger = LeaseLedger(self._control_clock.read(0.0) - 100.0)
        self._edges: list[_Edge] = []
        self._demand: dict[str, float] = {}
        self._epochs: dict[str, int] = {}

    def run(self) -> Played:
        """Play the scene."""
        names = [f"edge-{number}" for number in range(self.scene.edges)]
        for name in names:
            self._at(self.rng.random(), lambda name=name: self._join(name))
        self._upheaval()
        if self.scene.upheaval is not None:
            self._at(self.scene.upheaval, self._upheaval)
        self._every(1.0, self._control_tick)
        while self._events and self._events[0][0] < self.scene.seconds:
            self.now, _, event = heapq.heappop(self._events)
            event()
        return self.played

    def _at(self, delay: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + delay, self._count, event))

    def _every(self, period: float, event: Callable[[], None]) -> None:
        def again() -> None:
            event()
            self._at(period, again)

        again()

    # Clients

    def _upheaval(self) -> None:
        """Draw every edge's demand anew."""
        names = [f"edge-{number}" for number in range(self.scene.edges)]
        weights = [self.rng.random() ** self.scene.skew + 1e-3 for _ in names]
        for name, weight in zip(names, weights, strict=True):
            self._demand[name] = self.scene.quota * self.scene.load * weight / sum(weights)
            self._epochs[name] = self._epochs.get(name, 0) + 1
            self._arrive(name, self._epochs[name])
        if self.scene.shift is not None:
            self._at(self.rng.expovariate(1 / self.scene.shift), self._upheaval)

    def _arrive(self, name: str, epoch: int) -> None:
        def client() -> None:
            if self._epochs[name] != epoch:
                return
            self._arrive(name, epoch)
            serving = [edge for edge in self._edges if edge.name == name and edge.serving]
            if not serving:
                return
            edge = self.rng.choice(serving)
            self.played.asked.append(self.now)
            if self.rng.choice(edge.workers).ask(edge.clock.read(self.now)):
                self.played.admitted.append(self.now)

        self._at(self.rng.expovariate(self._demand[name]), client)

    # Edges

    def _join(self, name: str) -> None:
        workers = self.scene.workers
        clock = _Clock(self.rng, self.scene.weather.drift)
        holder = LeaseHolder(f"{self.rng.getrandbits(64):x}", workers)
        started = [_Worker(holder.started(number), clock.read(self.now)) for number in range(workers)]
        edge = _Edge(name, clock, holder, started)
        self._edges.append(edge)

        def beat() -> None:
            if edge.alive:
                self._report(edge)
                self._misfortune(edge)
                self._at(1.0, beat)

        beat()

    def _report(self, edge: _Edge) -> None:
        self._note_taken(edge)
        use = edge.holder.use(edge.clock.read(self.now))
        self._carry(edge, lambda: self._control(edge, use))

    def _note_taken(self, edge: _Edge) -> None:
        for number, worker in enumerate(edge.workers):
            edge.holder.count({Q: worker.used}, {Q: worker.denied})
            worker.used = worker.denied = 0
            edge.holder.taken(number, worker.sequence)

    def _carry(self, edge: _Edge, deliver: Callable[[], None]) -> None:
        """Carry a message over the network."""
        weather = self.scene.weather
        for _ in range(2 if self.rng.random() < weather.twice else 1):
            if self.now >= edge.cut_until and self.rng.random() >= weather.lost:
                delay = self.rng.expovariate(1 / weather.delay)
                if self.rng.random() < weather.slow:
                    delay += self.rng.uniform(0.5, 6.0)
                self._at(delay, deliver)

    def _receive(self, edge: _Edge, grant: LeaseGrant) -> None:
        if not edge.alive or not edge.holder.take(grant):
            return
        for worker, parts in zip(edge.workers, edge.holder.parts(), strict=True):
            late = self.rng.random() < self.scene.weather.stuck
            delay = self.rng.uniform(1.0, 2.5) if late else self.rng.uniform(0.0, 0.01)

            def update(worker: _Worker = worker, parts: LeaseParts = parts) -> None:
                if parts.sequence > worker.sequence:
                    worker.update(parts, edge.clock.read(self.now))
                self._note_taken(edge)
                if edge.alive and edge.holder.overdue:
                    self._report(edge)

            self._at(delay, update)

    def _misfortune(self, edge: _Edge) -> None:
        weather, rng = self.scene.weather, self.rng
        if rng.random() < weather.cut:
            edge.cut_until = self.now + rng.uniform(1.0, 10.0)
        if rng.random() < weather.worker:
            number = rng.randrange(len(edge.workers))
            edge.holder.ended(number)
            edge.workers[number] = _Worker(edge.holder.started(number), edge.clock.read(self.now))
        if rng.random() < weather.die:
            edge.alive = False
            if rng.random() < 0.5:
                edge.serving = False
            else:
                self._at(rng.uniform(0.5, 8.0), lambda: setattr(edge, "serving", False))
            self._at(rng.uniform(0.0, 5.0), lambda: self._join(edge.name))

    # Control

    def _control(self, edge: _Edge, use: LeaseUse) -> None:
        grant = self._ledger.answer(edge.name, use, self._control_clock.read(self.now))
        self._carry(edge, lambda: self._receive(edge, grant))

    def _control_tick(self) -> None:
        now = self._control_clock.read(self.now)
        if self.rng.random() < self.scene.weather.restart:
            self._ledgers += 1
            self._ledger = LeaseLedger(now, first_sequence=self._ledgers * 10**9)
        self._ledger.apportion({Q: self.scene.quota}, now)


def play(scene: Scene, seed: int, **changes: float) -> Played:
    """Play a scene, with some of its fields changed."""
    return World(replace(scene, **changes), seed).run()
