"""One run of the spillover simulation: a strategy, a workload, and what became of each request."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor, inf

import numpy as np

from gtm.core.model.policy import SpilloverRule
from tests.bench.sim_queue import SlotQueue
from tests.bench.sim_spill import Landed, Spilling, SpillSettings
from tests.bench.sim_strategies import (
    Nearest,
    Oracle,
    Planned,
    Planner,
    Report,
    Strategy,
    Waterfall,
    policy_of,
)
from tests.bench.sim_world import Area, Flags, Floats, Ints, Workload, between

WAIT_S = 0.5
"""A request that waits longer is late."""
FINISHED_S = 10
"""Regions report the mean service time of what they finished in so many seconds."""
WINDOW_S = 10.0
"""Quotas are measured over windows of this length."""


@dataclass(frozen=True)
class Settings:
    """How slow and coarse the feedback is, and how much DNS there is. Times in s, `noise` as a standard deviation.

    `reserve`: see `Region.reserve`; `full`: see `Waterfall`; `tolerance` is that of `slots_needed`.
    """

    seed: int = 1
    ttl: float = 30.0
    report_age: int = 1
    noise: float = 0.05
    reserve: float = 0.1
    full: float = 1.0
    tolerance: float = 0.02
    spill: SpillSettings = field(default_factory=SpillSettings)


@dataclass(frozen=True, slots=True)
class Scene:
    """One world to compare strategies in."""

    areas: tuple[Area, ...]
    day: Workload
    erlangs: Floats
    round_trip: Floats
    order: tuple[tuple[int, ...], ...]
    quotas: tuple[SpilloverRule, ...]
    fenced: bool
    settings: Settings
    planner: Planner


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of each request: the region (-1: refused by the plan) and the wait in s (infinite: refused).

    `movement` is that of the weights in the measured parts. `first` is the region that a request reached first: another, if it was
    pushed, and then the extra round trip is part of its wait. `counts` says how often spill-back did what.
    """

    region: Ints
    wait: Floats
    movement: float | None
    first: Ints
    counts: Mapping[str, int]


def strategy_of(name: str, scene: Scene, slots: tuple[int, ...], queues: Sequence[SlotQueue]) -> Strategy:
    """A fresh strategy for these slots."""
    if name == "nearest":
        return Nearest(scene.order)
    if name == "waterfall":
        return Waterfall(scene.order, slots, scene.settings.full)
    if name.startswith("gtm"):
        names = [area.region for area in scene.areas]
        policy = policy_of(names, slots, scene.settings.reserve)
        planned = Planned(names, scene.order, scene.round_trip.tolist(), policy, scene.quotas, scene.planner)
        if name == "gtm":
            return planned
        which = replace(scene.settings.spill, edge="+edge" in name, push="+push" in name)
        return Spilling(planned, which, queues, between(scene.areas).tolist(), scene.settings.seed)
    return Oracle(scene.order, scene.round_trip.tolist(), queues, budgets(scene), WINDOW_S)


def budgets(scene: Scene) -> list[list[tuple[frozenset[int], list[int]]]]:
    """Area → for each of its quotas the regions covered, and the requests allowed in each window."""
    numbers = {area.region: number for number, area in enumerate(scene.areas)}
    found: list[list[tuple[frozenset[int], list[int]]]] = [[] for _ in scene.areas]
    for quota in scene.quotas:
        home = numbers[quota.from_region]
        demand = windowed(scene.day, scene.day.area == home)
        allowed = [floor((quota.max_share or 0.0) * count) for count in demand]
        found[home].append((frozenset(numbers[name] for name in quota.to_regions), allowed))
    return found


def windowed(day: Workload, chosen: Flags) -> Ints:
    """How many of the chosen requests fall into each of the quotas' windows."""
    return np.bincount(
        (day.at[chosen] // WINDOW_S).astype(int), minlength=ceil(day.windows.total / WINDOW_S) + 1
    )


class Reports:
    """What strategies are told each second: as old and as noisy as the settings say."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.generator = np.random.default_rng([settings.seed, 2])
        self.measured: deque[tuple[Floats, ...]] = deque(maxlen=settings.report_age + 1)

    def at(self, second: int, *measured: Floats) -> Report:
        """The report at the start of a second, given what is measured right now."""
        self.measured.append(measured)
        noisy = [self._noisy(values) for values in self.measured[0]]
        return Report(float(second), float(self.settings.report_age), *(values.tolist() for values in noisy))

    def _noisy(self, exact: Floats) -> Floats:
        return np.maximum(0.0, exact * self.generator.normal(1.0, self.settings.noise, exact.shape))


class Finished:
    """The mean service time, in s, of what each region finished in the last `FINISHED_S` seconds; 1 at first."""

    def __init__(self, regions: int, seconds: int) -> None:
        self.count = np.zeros((regions, seconds))
        self.held = np.zeros((regions, seconds))

    def add(self, region: int, at: float, hold: float) -> None:
        """A request that will be done at a time (s)."""
        second = int(at)
        if second < self.count.shape[1]:
            self.count[region, second] += 1
            self.held[region, second] += hold

    def service_time(self, now: int) -> Floats:
        """By region, at the start of a second."""
        span = slice(max(0, now - FINISHED_S), now)
        count, held = self.count[:, span].sum(axis=1), self.held[:, span].sum(axis=1)
        return np.asarray(np.where(count > 0, held / np.maximum(count, 1), 1.0))


def counters(size: int) -> tuple[list[int], list[list[int]], list[list[int]]]:
    """Zeros: by region, and twice by area and region."""
    return [0] * size, [[0] * size for _ in range(size)], [[0] * size for _ in range(size)]


class Tally:
    """What becomes of each request: its region, the first that it reached, and its wait; and how many were late."""

    def __init__(self, measured: Sequence[bool], finished: Finished) -> None:
        self.region: list[int] = []
        self.first: list[int] = []
        self.wait: list[float] = []
        self.late = 0
        self._measured = measured
        self._finished = finished

    def begun(self, region: int, wait: float | None, at: float, hold: float) -> None:
        """The next request, at its first region; without a wait it goes on to another."""
        self.region.append(region)
        self.first.append(region)
        self.wait.append(inf if wait is None else wait)
        if wait is not None:
            self._ended(len(self.wait) - 1, wait, at, hold)

    def landed(self, one: Landed) -> None:
        """A request has reached the region that it was pushed to. What the way added counts as waiting."""
        self.region[one.request], self.wait[one.request] = one.region, one.extra + one.wait
        self._ended(one.request, one.wait, one.at, one.hold)

    def _ended(self, index: int, wait: float, at: float, hold: float) -> None:
        self.late += self.wait[index] > WAIT_S and self._measured[index]
        if wait < inf:
            self._finished.add(self.region[index], at + wait + hold, hold)


def simulate(name: str, scene: Scene, slots: tuple[int, ...], most_late: float = inf) -> Outcome | None:
    """Run one strategy through the day. None as soon as more than `most_late` measured requests were late."""
    day, settings = scene.day, scene.settings
    queues = [SlotQueue(count, waiting=count) for count in slots]
    strategy = strategy_of(name, scene, slots, queues)
    spilling = strategy if isinstance(strategy, Spilling) else None
    reports = Reports(settings)
    finished = Finished(len(slots), day.windows.total + 1)
    tally = Tally(day.measured.tolist(), finished)
    needs_reports = name not in {"nearest", "oracle"}
    counted = day.windows.measured(np.arange(day.windows.total + 1.0)).tolist()
    # At first every cache has the nearest region's address, and the rest of its TTL is random.
    answers = [preferred[0] for preferred in scene.order for _ in range(day.caches // len(slots))]
    expires = np.random.default_rng([settings.seed, 3]).uniform(0, settings.ttl, day.caches).tolist()
    movement, second = 0.0, 0
    served, http, answered = counters(len(slots))
    columns = (day.at, day.area, day.hold, day.cache, day.draw)
    for index, (at, area, hold, cache, draw) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        while second <= at:
            if needs_reports:
                service_time = finished.service_time(second)
                advance(spilling, second, tally)
                if spilling is not None:
                    spilling.service_time = service_time.tolist()
                loads = np.array([queue.load(second) for queue in queues], dtype=float)
                counts = (np.array(count, dtype=float) for count in (served, http, answered))
                before = strategy.movement or 0.0
                strategy.tick(reports.at(second, loads[:, 0], loads[:, 1], *counts, service_time))
                movement += counted[second] * ((strategy.movement or 0.0) - before)
                served, http, answered = counters(len(slots))
            second += 1
        advance(spilling, at, tally)
        by_dns = cache >= 0 and strategy.caches
        if by_dns:
            if expires[cache] <= at:
                answers[cache] = strategy.route(area, draw, at, dns=True)
                expires[cache] = at + settings.ttl
                answered[area][answers[cache]] += 1
            region = answers[cache]
        else:
            region = strategy.route(area, draw, at, dns=False)
            http[area][region] += region >= 0
        wait: float | None = inf
        if region >= 0:
            served[region] += 1
            if spilling is None:
                wait = queues[region].offer(at, hold)
            else:
                wait = spilling.arrive(index, area, region, at, hold, http=not by_dns)
        tally.begun(region, wait, at, hold)
        if tally.late > most_late:
            return None
    advance(spilling, day.windows.total + 1.0, tally)
    return Outcome(
        np.array(tally.region),
        np.array(tally.wait),
        None if strategy.movement is None else movement,
        np.array(tally.first),
        {} if spilling is None else dict(spilling.counts),
    )


def advance(spilling: Spilling | None, now: float, tally: Tally) -> None:
    """Let time pass for reports and pushed requests, if there are such."""
    if spilling is None:
        return
    spilling.advance(now)
    for one in spilling.landed:
        tally.landed(one)
    spilling.landed.clear()
