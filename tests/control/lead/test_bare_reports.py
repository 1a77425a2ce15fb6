"""An overloaded region that reports no more than its limit, how many it serves and how many wait.

The regions are queues that serve one request after the other, told nothing of gtm's formulas: slots, service times drawn
anew for each request, a queue that may be bounded. Edges send where the plan says and count what they send; regions
report once a second.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
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

SLOTS = 64
SERVICE_TIME = 3.2
CAPACITY = SLOTS / SERVICE_TIME  # requests a second


@dataclass
class Region:
    """A balancer with slots and a queue. Ends of service are POSIX seconds."""

    draw: random.Random
    most_waiting: float = float("inf")
    ends: list[float] = field(default_factory=list)
    waiting: deque[float] = field(default_factory=deque)
    refused: int = 0
    served: int = 0

    def take(self, at: float) -> None:
        self.advance(at)
        if len(self.ends) < SLOTS:
            self._begin(at)
        elif len(self.waiting) < self.most_waiting:
            self.waiting.append(at)
        else:
            self.refused += 1

    def advance(self, now: float) -> None:
        while self.ends and self.ends[0] <= now:
            end = heapq.heappop(self.ends)
            self.served += 1
            if self.waiting:
                self.waiting.popleft()
                self._begin(end)

    def _begin(self, at: float) -> None:
        heapq.heappush(self.ends, at + self.draw.expovariate(1 / SERVICE_TIME))


@dataclass
class Played:
    """Second by second: the share of requests sent away from home, and the home's queue."""

    away: list[float] = field(default_factory=list)
    queue: list[int] = field(default_factory=list)
    source: TimeSource = TimeSource.UNKNOWN
    refused: int = 0

    def settled(self) -> float:
        return sum(self.away[-30:]) / 30


def play(
    *,
    full: bool = False,
    declared: float | None = None,
    rate: float = 30.0,
    most_waiting: float = float("inf"),
    seconds: int = 90,
    stands_for: float = 1.0,
    seed: int = 1,
) -> Played:
    """Send clients of Berlin to a home of 20 requests a second, and what does not fit next door.

    Args:
        full: reports say service time and rate as well.
        declared: the service's time in the policy, in ms.
        rate: requests per second.
        most_waiting: bound of the regions' queues.
        seconds: how long.
        stands_for: requests that one counted decision stands for (a DNS answer behind a resolver).
        seed: of arrivals and service times.
    """
    draw = random.Random(seed)
    policy = worlds.policy(*REGIONS, replace(SERVICE, service_time_ms=declared))
    view = worlds.view(policy, State(1, health=_up()), NOW)
    snapshot, state, ranking = view.snapshot, view.state, _ranking(view, Request("chat", BERLIN))
    home = snapshot.regions[ranking.group.order[0]].name
    world = {region.name: Region(draw, most_waiting) for region in REGIONS}
    planner, book, played = Planner(), DemandBook(), Played()
    loads: dict[tuple[str, str], Load] = {}
    estimator = Estimator(snapshot.regions)
    for second in range(seconds):
        planned = planner.latest.plan.classes.get(ranking.group.key)
        weights = planned.weights if planned is not None else {home: 1.0}
        shed = planned.shed if planned is not None else 0.0
        counts: dict[str, float] = {}
        at, before = NOW + second, {name: region.served for name, region in world.items()}
        while (at := at + draw.expovariate(rate)) < NOW + second + 1:
            outcome = "refused_overload" if draw.random() < shed else "served"
            (name,) = draw.choices(list(weights), list(weights.values()))
            name = name if outcome == "served" else ""
            if name:
                world[name].take(at)
            row = Row("chat", name, outcome, "lookup", ranking.group.key, ranking.cell).text
            counts[row] = counts.get(row, 0.0) + 1 / stands_for
        now = NOW + second + 1.0
        book.take("edge", counts, 1.0, now)
        for name, region in world.items():
            region.advance(now)
            running, waiting = float(len(region.ends)), float(len(region.waiting))
            known = Load(name, "chat", now, 1, outstanding=running, queue=waiting, limit=float(SLOTS))
            if full:
                done = float(region.served - before[name])
                known = replace(known, service_time_ms=1000 * SERVICE_TIME, requests_per_second=done)
            loads[name, "chat"] = known
        made = planner.tick(
            Inputs(
                snapshot, estimator, state, now, book.reported(now).rates(), loads, planner.latest.capacity
            )
        )
        sent_away = sum(count for row, count in counts.items() if f"\t{home}\t" not in row)
        played.away.append(sent_away / max(sum(counts.values()), 1e-9))
        played.queue.append(len(world[home].waiting))
        played.source = made.capacity.regions[home].parts[1].service_time_source
    played.refused = world[home].refused
    return played


AWAY = 1 - CAPACITY * 0.9 / 30.0
"""The share that does not fit into the home region, whose reserve is a tenth."""


@pytest.mark.parametrize(
    "told",
    [
        pytest.param({}, id="nothing but limit, outstanding and queue"),
        pytest.param({"declared": 100.0}, id="a declared time that is too low"),
        pytest.param({"declared": 20_000.0}, id="a declared time that is too high"),
        pytest.param({"stands_for": 50.0}, id="decisions that stand for fifty requests each"),
    ],
)
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.drill) for seed in (2, 3))])
def test_bare_reports_spill_as_full_ones_do(told: dict[str, float], seed: int) -> None:
    """Ten seconds into an overload as much leaves as must, half a minute later no queue is left, and not too much is away."""
    full = play(full=True, seed=seed)
    bare = play(seed=seed, **told)
    assert (full.source, bare.source) == (TimeSource.REPORTED, TimeSource.INFERRED)
    assert sum(bare.away[9:14]) / 5 > AWAY / 2
    assert max(bare.queue[45:]) <= max(full.queue) + SLOTS / 2
    assert bare.settled() == pytest.approx(full.settled(), abs=0.15)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_fits_stays_whatever_was_declared(seed: int) -> None:
    """A region with room keeps its own, also where a time was declared that would leave it none."""
    assert play(rate=12.0, seed=seed).settled() == 0.0
    assert play(rate=12.0, declared=20_000.0, seed=seed).settled() < 0.05


@pytest.mark.parametrize("seed", [1, 2])
def test_a_short_queue_that_turns_requests_away_is_full(seed: int) -> None:
    """Where requests beyond a queue are refused, more was sent than was served; the standing queue says so."""
    bare = play(most_waiting=20, seconds=120, seed=seed)
    lost = play(most_waiting=20, seconds=60, seed=seed).refused
    assert bare.settled() > 0.6 * AWAY
    assert bare.refused - lost < 0.03 * 30 * 60


def test_the_same_full_report_for_ever_moves_demand_away() -> None:
    """A region that says 64 of 64 and 500 waiting each second loses demand within ten seconds, and is never cut off."""
    view = worlds.view(worlds.policy(*REGIONS, SERVICE), State(1, health=_up()), NOW)
    snapshot, state, ranking = view.snapshot, view.state, _ranking(view, Request("chat", BERLIN))
    row = Row("chat", "de", "served", "lookup", ranking.group.key, ranking.cell)
    planner, estimator = Planner(), Estimator(snapshot.regions)
    for second in range(10):
        loads = {
            ("de", "chat"): Load("de", "chat", NOW + second, 1, outstanding=64.0, queue=500.0, limit=64.0)
        }
        planner.tick(
            Inputs(snapshot, estimator, state, NOW + second, {row: 10.0}, loads, planner.latest.capacity)
        )
    (found,) = planner.latest.plan.classes.values()
    assert 0 < found.weights["de"] < 0.6
