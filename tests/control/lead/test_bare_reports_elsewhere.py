"""Bare reports in a world that nobody tuned anything by: bursts, short and long requests, late and lost reports.

`test_bare_reports.py` has the world that the constants of `gtm.core.capacity.processing` were chosen in. Here arrivals come in bursts
(a two-state process), service times are a mixture of short and long ones or have a heavy tail, the slots are others, some
reports are lost and all are late by some other time.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from gtm.control.lead.demand import DemandBook
from gtm.control.lead.planner import Inputs, Planner
from gtm.core.capacity.load import Load
from gtm.core.capacity.processing import TimeSource
from gtm.core.demand.rows import Row
from gtm.core.latency.estimator import Estimator
from gtm.core.model.requests import Request
from gtm.core.model.state import State
from tests import worlds
from tests.core.decision.test_choice import BERLIN, NOW, REGIONS, SERVICE, _ranking, _up

Draw = Callable[[random.Random], float]


def bimodal(draw: random.Random) -> float:
    """Four requests of five take 0.2 s, the fifth 6 s."""
    return 6.0 if draw.random() < 0.2 else 0.2


def heavy(draw: random.Random) -> float:
    """Lognormal with a sigma of 1.5: the mean is three times the median, one in a hundred takes 33 medians."""
    return min(draw.lognormvariate(0.0, 1.5), 60.0)


def even(draw: random.Random) -> float:
    """Nearly always the same."""
    return draw.uniform(0.45, 0.55)


@dataclass(frozen=True)
class World:
    """Slots at home, how long requests take, how demand bursts, and how reports come.

    `every` seconds a region means to report; each report is late by up to `late` of that, and `lost` of them never come.
    `load` is demand as a multiple of what the slots take.
    """

    slots: int
    times: Draw
    mean: float
    every: float = 1.0
    late: float = 0.5
    lost: float = 0.1
    bursts: float = 1.6
    load: float = 1.5

    @property
    def rate(self) -> float:
        return self.load * self.slots / self.mean

    @property
    def away(self) -> float:
        """What does not fit into the home region, whose reserve is a tenth."""
        return max(0.0, 1 - 0.9 / self.load)


WORLDS = {
    "short and long": World(24, bimodal, 0.2 * 6 + 0.8 * 0.2),
    "heavy tail": World(200, heavy, 2.96),
    "few slots": World(8, even, 0.5),
    "slow reports": World(64, bimodal, 0.2 * 6 + 0.8 * 0.2, every=2.0, lost=0.2),
    "twice and a half": World(40, heavy, 2.96, load=2.5),
}


@dataclass
class Region:
    """A first-come-first-served queue."""

    slots: int
    ends: list[float] = field(default_factory=list)
    waiting: deque[float] = field(default_factory=deque)
    served: int = 0

    def take(self, at: float, length: float) -> None:
        self.advance(at)
        if len(self.ends) < self.slots:
            heapq.heappush(self.ends, at + length)
        else:
            self.waiting.append(length)

    def advance(self, now: float) -> None:
        while self.ends and self.ends[0] <= now:
            end = heapq.heappop(self.ends)
            self.served += 1
            if self.waiting:
                heapq.heappush(self.ends, end + self.waiting.popleft())


@dataclass
class Played:
    """Second by second: the share of requests sent away from home, and what waits there."""

    away: list[float] = field(default_factory=list)
    queue: list[int] = field(default_factory=list)
    source: TimeSource = TimeSource.UNKNOWN

    def mean_away(self, first: int, last: int) -> float:
        return sum(self.away[first:last]) / (last - first)

    def began(self, share: float) -> int:
        """Seconds from the first request that waited until at least such a share left."""
        waits = next(second for second, queue in enumerate(self.queue) if queue)
        leaves = next(second for second, away in enumerate(self.away) if away >= share)
        return max(0, leaves - waits)


def arrivals(world: World, draw: random.Random, seconds: int) -> list[float]:
    """Times of requests: a Poisson process whose rate is `bursts` times the mean or as much less, for 2 s on average."""
    high, at, found, until = False, 0.0, [], 0.0
    while at < seconds:
        if at >= until:
            high, until = not high, at + draw.expovariate(1 / 2.0)
        rate = world.rate * (world.bursts if high else 2 - world.bursts)
        gap = draw.expovariate(rate)
        if at + gap > until:
            at = until
        else:
            at += gap
            found.append(at)
    return found


@dataclass
class Reporting:
    """Who reports when; `loads` are the newest reports that came."""

    world: World
    places: dict[str, Region]
    draw: random.Random
    full: bool
    loads: dict[tuple[str, str], Load] = field(default_factory=dict)
    due: dict[str, float] = field(default_factory=dict)
    told: dict[str, tuple[float, int]] = field(default_factory=dict)

    def pass_to(self, now: float) -> None:
        """Make the reports that are due, but the lost ones: they say what is there at this moment."""
        for name, region in self.places.items():
            if self.due.get(name, 0.0) <= now:
                region.advance(now)
                self.due[name] = now + self.world.every * (1 + self.draw.uniform(0, self.world.late))
                if self.draw.random() >= self.world.lost:
                    self.loads[name, "chat"] = self._load(name, region, now)

    def _load(self, name: str, region: Region, now: float) -> Load:
        inside, waiting = float(len(region.ends)), float(len(region.waiting))
        load = Load(name, "chat", NOW + now, 1, outstanding=inside, queue=waiting, limit=float(region.slots))
        if not self.full:
            return load
        before, served = self.told.get(name, (0.0, 0))
        self.told[name] = now, region.served
        done = (region.served - served) / max(now - before, 1e-3)
        return replace(load, service_time_ms=1000 * self.world.mean, requests_per_second=done)


def play(world: World, *, full: bool, seed: int, declared: float | None = None, seconds: int = 120) -> Played:
    """Clients of Berlin, for so many seconds. `full`: reports state service time and rate too."""
    draw, reporting = random.Random(seed), random.Random(seed + 1_000)
    policy = worlds.policy(*REGIONS, replace(SERVICE, service_time_ms=declared))
    view = worlds.view(policy, State(1, health=_up()), NOW)
    snapshot, state, ranking = view.snapshot, view.state, _ranking(view, Request("chat", BERLIN))
    home = snapshot.regions[ranking.group.order[0]].name
    places = {region.name: Region(world.slots if region.name == home else 100_000) for region in REGIONS}
    planner, book, played = Planner(), DemandBook(), Played()
    reports = Reporting(world, places, reporting, full)
    estimator = Estimator(snapshot.regions)
    coming = deque(arrivals(world, draw, seconds))
    for second in range(seconds):
        planned = planner.latest.plan.classes.get(ranking.group.key)
        weights = planned.weights if planned is not None else {home: 1.0}
        counts: dict[str, float] = {}
        now, away = second + 1.0, 0
        while coming and coming[0] < now:
            (name,) = draw.choices(list(weights), list(weights.values()))
            at = coming.popleft()
            reports.pass_to(at)
            places[name].take(at, world.times(draw))
            row = Row("chat", name, "served", "lookup", ranking.group.key, ranking.cell).text
            counts[row] = counts.get(row, 0.0) + 1
            away += name != home
        reports.pass_to(now)
        book.take("edge", counts, 1.0, NOW + now)
        given = Inputs(
            snapshot,
            estimator,
            state,
            NOW + now,
            book.reported(NOW + now).rates(),
            reports.loads,
            planner.latest.capacity,
        )
        made = planner.tick(given)
        played.away.append(away / max(sum(counts.values()), 1.0))
        places[home].advance(now)
        played.queue.append(len(places[home].waiting))
        played.source = made.capacity.regions[home].parts[1].service_time_source
    return played


@pytest.mark.parametrize("name", WORLDS)
def test_bare_reports_spill_as_full_ones_do_here_too(name: str) -> None:
    """Ten seconds after the slots were full half of those leave that must; in the end as many as under full reports."""
    world = WORLDS[name]
    full, bare = play(world, full=True, seed=2), play(world, full=False, seed=2)
    assert (full.source, bare.source) == (TimeSource.REPORTED, TimeSource.INFERRED)
    assert bare.began(world.away / 2) <= 10
    assert bare.mean_away(60, 120) == pytest.approx(full.mean_away(60, 120), abs=0.1)
    assert max(bare.queue[45:]) <= max(full.queue[45:]) + world.slots


@pytest.mark.parametrize("name", WORLDS)
def test_a_time_far_too_high_empties_no_region_for_good(name: str) -> None:
    """What is measured corrects what is declared also where so little is left that hardly a request is seen."""
    world = replace(WORLDS[name], load=0.6)
    assert play(world, full=False, seed=2, declared=8_000 * world.mean).mean_away(60, 120) < 0.05


if (
    __name__ == "__main__"
):  # the table in docs/capacity.md: python -m tests.control.lead.test_bare_reports_elsewhere
    for name, world in WORLDS.items():
        for full in (True, False):
            runs = [play(world, full=full, seed=seed) for seed in range(1, 11)]
            shown = [
                " to ".join(f"{number:.{digits}f}" for number in (min(found), max(found)))
                for digits, found in (
                    (0, [run.began(world.away / 2) for run in runs]),
                    (2, [run.mean_away(60, 120) for run in runs]),
                    (1, [max(run.queue[:45]) / world.slots for run in runs]),
                    (1, [max(run.queue[45:]) / world.slots for run in runs]),
                )
            ]
            print(f"| {name} | {'full' if full else 'bare'} | {world.away:.2f} | {' | '.join(shown)} |")
