"""A region's servers and balancers, simulated request by request, with gtm's own choosing and counting.

A server is a queue, first in, first out, before `slots` places of `speed`: a request of s seconds holds a place for s / speed. Balancers
know what the data plane would know: when a request was sent, when its server began it (its first token), and when it ended. What is
left of running requests is revised before a choice, at most four times a second: each token could.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from math import inf
from operator import itemgetter
from pathlib import Path
from random import Random

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from gtm.core.balance.backends import Backend, Condition, Scraped
from gtm.core.balance.choosing.chooser import BackendChoice, begin, choice, pool_of
from gtm.core.balance.choosing.values import ChoosingSettings, Pick, Score, WantedBackend
from gtm.core.balance.flights import Flights, FlightTicket
from gtm.core.balance.work import AskedWork, Costs

WINDOW_S = 60.0
TELL_S = 0.1
REVISE_S = 0.25
"""What is left of running requests is worked out anew no more often."""
ANY, DEFAULT = AskedWork(), ChoosingSettings()
WARM_UP = 0.1
"""The part of the requests that is not measured: queues begin empty."""


@dataclass(frozen=True, slots=True)
class Job:
    """A request: when it comes, the seconds it takes at speed 1, what can be known of it, and its class."""

    at: float
    seconds: float
    asked: AskedWork = ANY
    label: str = ""
    prefill: float = 0.0


@dataclass(frozen=True, slots=True)
class Machine:
    """A server: places, and their speed."""

    slots: int = 1
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class Way:
    """How requests are spread. `costs`: one (all alike), learned or known. `weights`, `slots`: whether these are configured.

    `balancers` share the requests at random; `sees`: whether they tell each other, ten times a second. `scrape`: seconds between
    scrapes of servers; `own`: whether balancers count their own requests (else scraped figures are all they know). `holds`: whether
    a balancer queues what finds no free slot, as admission does, and not the server.
    """

    settings: ChoosingSettings = DEFAULT
    costs: str = "one"
    weights: bool = True
    slots: bool = False
    balancers: int = 1
    sees: bool = False
    scrape: float | None = None
    own: bool = True
    holds: bool = False


@dataclass(slots=True)
class Played:
    """What came out: seconds in the system and until the first token, classes, and each server's busy time by window."""

    seconds: list[float] = field(default_factory=list)
    first_token: list[float] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    busy: list[tuple[int, float, float]] = field(default_factory=list)
    span: tuple[float, float] = (0.0, 0.0)

    def quantile(self, part: float, label: str | None = None, *, first_token: bool = False) -> float:
        """A quantile of the times of a class, or of all."""
        times = self.first_token if first_token else self.seconds
        some = [time for time, one in zip(times, self.labels, strict=True) if label in (None, one)]
        return float(np.quantile(some, part)) if some else float("nan")

    def cv(self, machines: Sequence[Machine]) -> float:
        """Mean over windows of 60 s of: standard deviation of servers' utilisation, divided by its mean."""
        low, high = self.span
        count = int((high - low) / WINDOW_S)
        if count < 1:
            return float("nan")
        used = np.zeros((count, len(machines)))
        for number, start, end in self.busy:
            first = int((start - low) // WINDOW_S)
            for window in range(max(first, 0), min(int((end - low) // WINDOW_S), count - 1) + 1):
                left = low + window * WINDOW_S
                used[window, number] += max(0.0, min(end, left + WINDOW_S) - max(start, left))
        used /= np.array([machine.slots for machine in machines])
        mean = used.mean(axis=1)
        return float((used.std(axis=1)[mean > 0] / mean[mean > 0]).mean())


class _Running:
    """A request in a server."""

    __slots__ = ("job", "start", "ticket")

    def __init__(self, job: Job, start: float, ticket: FlightTicket | None) -> None:
        self.job, self.start, self.ticket = job, start, ticket


class _Balancer:
    """One balancer: its counts, its pool, what it has learned."""

    def __init__(self, machines: Sequence[Machine], way: Way) -> None:
        self.way = way
        backends = [
            Backend(f"{n}", machine.speed if way.weights else 1.0, machine.slots if way.slots else None)
            for n, machine in enumerate(machines)
        ]
        self.flights = Flights(backends)
        healthy = {one.name: Condition(healthy=True) for one in backends}
        self.pool = pool_of(backends, healthy, self.flights, way.settings)
        self.costs = Costs()
        self.queue: deque[Job] = deque()
        self.revised = -inf
        self.revises = way.settings.score is Score.WORK and way.settings.pick in (Pick.P2C, Pick.SCAN)

    def cost(self, job: Job, age: float) -> float:
        """What is left of a request after `age` seconds of service, as this balancer expects it."""
        if self.way.costs == "known":
            return max(0.0, job.seconds - age)
        return self.costs.left(job.asked, age) if self.way.costs == "learned" else 1.0

    def choose(self, job: Job, draw: float) -> tuple[int, FlightTicket | None] | None:
        """The server for a request, and its ticket; None: it is held."""
        wanted = WantedBackend(cost=self.cost(job, 0.0))
        found = choice(self.pool, wanted, draw)
        assert isinstance(found, BackendChoice)
        chosen = found.candidate
        if self.way.holds and chosen.full:
            return None
        return chosen.number, begin(self.pool, chosen, wanted) if self.way.own else None


class _World:
    """The servers, and the time."""

    def __init__(self, machines: Sequence[Machine], way: Way, seed: int, since: float) -> None:
        self.machines, self.way, self.since = machines, way, since
        self.played = Played()
        self.random = Random(seed)
        self.balancers = [_Balancer(machines, way) for _ in range(way.balancers)]
        self.free = [[0.0] * machine.slots for machine in machines]
        self.inside: list[set[_Running]] = [set() for _ in machines]
        self.ends: list[tuple[float, int, int, _Running, _Balancer]] = []
        self.count = 0

    def finish_until(self, now: float) -> None:
        """Let all requests end that do by now."""
        ends = self.ends
        while ends and ends[0][0] <= now:
            end, _, number, running, balancer = heappop(ends)
            self.inside[number].discard(running)
            served = (end - running.start) * (self.machines[number].speed if self.way.weights else 1.0)
            if self.way.costs == "learned":
                balancer.costs.learn(running.job.asked, served)
            if running.ticket is not None:
                running.ticket.end(end - running.job.at, end)
            self.ended(balancer)
            while balancer.queue and self.send(balancer, balancer.queue[0], end):
                balancer.queue.popleft()

    def ended(self, balancer: _Balancer) -> None:
        """A request of this balancer's has ended."""

    def revise(self, balancer: _Balancer, now: float) -> None:
        """Correct what is left of what runs."""
        if not balancer.revises or self.way.costs == "one" or now < balancer.revised + REVISE_S:
            return
        balancer.revised = now
        for number, inside in enumerate(self.inside):
            speed = self.machines[number].speed if self.way.weights else 1.0
            for running in inside:
                if running.start < now and running.ticket is not None:
                    running.ticket.revise(balancer.cost(running.job, (now - running.start) * speed))

    def tell(self, now: float) -> None:
        """Balancers tell each other what they have in flight, and settle."""
        if self.way.sees:
            told = [balancer.flights.tell() for balancer in self.balancers]
            for at, balancer in enumerate(self.balancers):
                for peer, loads in enumerate(told):
                    if peer != at:
                        balancer.flights.told(f"{peer}", loads, now)
        for balancer in self.balancers:
            balancer.flights.settle(now)

    def scrape(self, now: float) -> None:
        """All balancers ask all servers."""
        for balancer in self.balancers:
            for number, inside in enumerate(self.inside):
                balancer.flights.asking(f"{number}")
                balancer.flights.scraped(f"{number}", Scraped(len(inside), 0, now))
            balancer.flights.settle(now)

    def arrive(self, job: Job) -> None:
        """One request comes to one of the balancers."""
        balancer = self.balancers[0] if self.way.balancers == 1 else self.random.choice(self.balancers)
        if balancer.queue or not self.send(balancer, job, job.at):
            balancer.queue.append(job)

    def send(self, balancer: _Balancer, job: Job, now: float) -> bool:
        """Send a request to the server that is chosen for it; False: it is held."""
        self.revise(balancer, now)
        chosen = balancer.choose(job, self.random.random())
        if chosen is None:
            return False
        number, ticket = chosen
        free = self.free[number]
        start = max(now, free[0])
        end = start + job.seconds / self.machines[number].speed
        heapreplace(free, end)
        running = _Running(job, start, ticket)
        self.inside[number].add(running)
        self.count += 1
        heappush(self.ends, (end, self.count, number, running, balancer))
        self.played.busy.append((number, start, end))
        if job.at >= self.since:
            self.played.seconds.append(end - job.at)
            self.played.first_token.append(start - job.at + job.prefill / self.machines[number].speed)
            self.played.labels.append(job.label)
        return True


def play(jobs: Sequence[Job], machines: Sequence[Machine], way: Way, seed: int = 1) -> Played:
    """Serve the jobs (in the order of time). Times are measured of all but the first tenth."""
    since = jobs[int(WARM_UP * len(jobs))].at
    world = _World(machines, way, seed, since)
    settles = way.sees or way.settings.latency or way.settings.pick is Pick.PREQUAL
    told = scraped = 0
    for job in jobs:
        due = []
        if settles and (tell := int(job.at / TELL_S)) > told:
            told = tell
            due.append((tell * TELL_S, world.tell))
        if way.scrape is not None and (scrape := int(job.at / way.scrape) + 1) > scraped:
            scraped = scrape
            due.append(((scrape - 1) * way.scrape, world.scrape))
        for at, happens in sorted(
            due, key=itemgetter(0)
        ):  # the last of each kind: nobody looks at those before
            world.finish_until(at)
            happens(at)
        world.finish_until(job.at)
        world.arrive(job)
    world.finish_until(inf)
    world.played.span = (since, jobs[-1].at)
    return world.played
