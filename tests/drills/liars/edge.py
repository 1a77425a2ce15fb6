"""What one stolen edge token can do to others' clients: a whole control process in memory, honest edges, and one that lies.

A world has honest edges whose clients ask, each for a region or two, and one edge whose token was stolen. `burst` is the
yardstick: the same edge says truly that it is asked eight times as much.
"""

from __future__ import annotations

import asyncio
import pickle
import random
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, TypeVar
from unittest.mock import patch

from gtm.control.lead.latency import Teachers
from gtm.control.lead.takeover import PlanSeal
from gtm.core.decision.router import Ranker, Router
from gtm.core.decision.view import Window, build_basis, build_view
from gtm.core.demand.belief import BURST, HOUR
from gtm.core.demand.rows import Row
from gtm.core.health.verdicts import followed
from gtm.core.latency.aggregates import Authors
from gtm.core.latency.estimator import Estimator
from gtm.core.latency.samples import Delta, Level
from gtm.core.model.geometry import square_key, square_of
from gtm.core.model.regions import Capacity
from gtm.core.model.requests import Location, Request
from gtm.core.model.state import ClassPlan, Plan, State
from gtm.core.plan.problem import Knobs, PlanProblem, Solution
from gtm.core.plan.solve import solve
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.snapshot import Snapshot
from gtm.feed.reports import EdgeReport
from gtm.feed.wire import SnapshotMessage
from gtm.storage.session import Database
from tests import worlds
from tests.drills.liars.arena import Arena, Damage
from tests.worlds import process

NOW = 1_700_000_000.0
REGIONS = ("de", "ie", "us", "jp", "fr")
EEA = frozenset({"de", "ie", "fr"})
CLIENTS = {
    "berlin": Location("DE", lat=52.5, lon=13.4, network="192.0.2.0/24"),
    "lyon": Location("FR", lat=45.8, lon=4.8, network="198.51.100.0/24"),
    "boston": Location("US", lat=42.4, lon=-71.1, network="203.0.113.0/24"),
    "osaka": Location("JP", lat=34.7, lon=135.5, network="192.88.99.0/24"),
    "sydney": Location("AU", lat=-33.9, lon=151.2, network="198.18.0.0/24"),
}
SECONDS = 25
"""How long a lie lasts. Plans step by a tenth a second, and tables are made every ten."""
DRAWS = [number / 40 for number in range(40)]
SEAL = PlanSeal(b"k" * 32)
T = TypeVar("T")
Answers = Mapping[tuple[str, str], Counter[str]]
"""By edge and client: how many of `DRAWS` get which region; empty: refused."""


@dataclass(frozen=True)
class Lie:
    """All that an edge's report can claim. What is left empty is said truly."""

    demand: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """By client and the region that it says served them: requests per second."""
    down: frozenset[str] = frozenset()
    up: frozenset[str] = frozenset()
    recovered: frozenset[str] = frozenset()
    """Regions that it says have just come back, each second anew."""
    latency: tuple[tuple[Level, str, str, float, int], ...] = ()
    """Level, key, region, ms beside geography (between two regions: ms), samples."""
    plan: bool = False
    """Offer a plan that sends everybody to one region, and refuses them."""


def _finer(rng: random.Random) -> tuple[tuple[Level, str, str, float, int], ...]:
    """Of half of the lies: the same of places, of networks, and of regions' round trips to each other."""
    if rng.random() < 0.5:
        return ()
    keys = [(Level.REGION, region) for region in REGIONS]
    for location in CLIENTS.values():
        place = square_key(square_of(location.lat or 0.0, location.lon or 0.0))
        keys += [(Level.PLACE, place), (Level.NETWORK, location.network or "")]
    return tuple(
        (level, key, region, rng.choice((0.5, 3000.0) if level is Level.REGION else (-2900.0, 2900.0)), 10**6)
        for level, key in keys
        for region in REGIONS
        if region != key and rng.random() < 0.7
    )


def draw_lie(rng: random.Random, kinds: str) -> Lie:
    """A lie with these kinds in it: d(emand), h(ealth), l(atency), p(lan)."""
    regions = [*REGIONS, ""]
    demand = {
        (rng.choice([*CLIENTS]), rng.choice(regions)): 10.0 ** rng.uniform(0, 12)
        for _ in range(rng.randint(1, 8))
    }
    latency = tuple(
        (
            Level.COUNTRY,
            location.country or "",
            region,
            rng.choice((-2900.0, -60.0, -25.0, 25.0, 60.0, 2900.0)),
            10**6,
        )
        for location in CLIENTS.values()
        for region in REGIONS
        if rng.random() < 0.7
    )
    latency += _finer(random.Random(str(latency)))
    down = frozenset(rng.sample(REGIONS, rng.randint(0, 5)))
    up = frozenset(REGIONS) - down if "h" in kinds else frozenset()
    return Lie(
        demand if "d" in kinds else {},
        down if "h" in kinds else frozenset(),
        up,
        up if up and rng.random() < 0.5 else frozenset(),
        latency if "l" in kinds else (),
        "p" in kinds,
    )


@dataclass(frozen=True)
class Setting:
    """A world before anybody lies: rates by edge and client (`liar` among the edges), regions that are down, a seed."""

    rates: Mapping[str, Mapping[str, float]]
    down: frozenset[str]

    @classmethod
    def drawn(cls, rng: random.Random) -> Setting:
        """A world of one to three honest edges and a liar; regions can serve 100 a second each."""
        edges = [f"edge-{number}" for number in range(rng.randint(1, 3))]
        rates: dict[str, dict[str, float]] = {edge: {} for edge in edges}
        for client in CLIENTS:
            rates[rng.choice(edges)][client] = rng.uniform(5, 70)
        rates["liar"] = {rng.choice([*CLIENTS]): rng.uniform(0, 8)}
        down = frozenset([rng.choice(REGIONS)] if rng.random() < 0.3 else [])
        return cls(rates, down)


@cache
def snapshot() -> Snapshot:
    """Five regions, one service, and the fence of the EEA."""
    return compile_policy(
        worlds.policy(
            *worlds.regions(" ".join(REGIONS), capacity=Capacity(requests_per_second=100.0)),
            worlds.service("chat", " ".join(REGIONS)),
            worlds.rule("gdpr", "EEA", services="chat", client_jurisdictions="EEA"),
        ),
        worlds.SHIPPED,
    )


class _InPlace(ThreadPoolExecutor):
    """Does what is submitted at once: to start a thread for each plan takes longer than the plan."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


@cache
def _runner() -> asyncio.Runner:
    """This process's, whose loop has no other thread."""
    runner = asyncio.Runner()
    runner.get_loop().set_default_executor(_InPlace())
    return runner


_SOLVED: dict[bytes, Solution] = {}


def _solve(problem: PlanProblem, previous: Plan, *, knobs: Knobs) -> Solution:
    """As `solve`, which is asked the same again where nothing changes from one second to the next."""
    asked = pickle.dumps((problem, {key: one.weights for key, one in previous.classes.items()}, knobs))
    if asked not in _SOLVED:
        if len(_SOLVED) >= 1000:
            _SOLVED.clear()
        _SOLVED[asked] = solve(problem, previous, knobs=knobs)
    return _SOLVED[asked]


def quick() -> AbstractContextManager[Any]:
    """While this is open, plans for the same question are made once."""
    return patch("gtm.core.plan.congestion.solve", _solve)


class World:
    """One run of a setting."""

    def __init__(self, setting: Setting, law: Snapshot | None = None) -> None:
        self.setting = setting
        self.now = 1_000.0
        self.snapshot = law or snapshot()
        nowhere = Database("postgresql://nobody@127.0.0.1:1/none")
        self.replica = process.replica(nowhere, process.SETTINGS, lambda: NOW + self.now, lambda: self.now)
        message = SnapshotMessage.of(1, NOW, self.snapshot.policy, worlds.SHIPPED)
        self.replica.current.become(replace(self.replica.now, message=message, compiled=self.snapshot))
        assert self.replica.active is not None
        self.active = self.replica.active
        self.active.reports.takeover.seal = SEAL
        self.active.latency.start()
        hour = int((NOW + self.now) // HOUR) - 1
        sums = {edge: sum(rates.values()) for edge, rates in setting.rates.items()}
        self.active.reports.peaks.add(
            {(edge, hour): rate for edge, rate in sums.items()} | {("", hour): sum(sums.values())}
        )
        self.truth = worlds.health(self.snapshot.regions, setting.down)
        self._rankers: dict[int, Ranker] = {}

    def router(self) -> Router:
        """What an edge that sees the truth answers by."""
        now = self.replica.now
        told = now.state
        window = Window(NOW + self.now, NOW + self.now)
        ranker = self._rankers.get(now.table.version)
        if ranker is None:
            basis = build_basis(self.snapshot, Estimator(self.snapshot.regions, now.table), window, None)
            ranker = self._rankers[now.table.version] = Ranker(basis)
        state = State(max(told.epoch, 1), "", followed(told.health, self.truth, self.truth), told.plan)
        return Router(build_view(ranker.basis, state, window), ranker)

    def row(self, router: Router, client: str, region: str | None = None) -> str:
        """The row by which an edge counts a client's requests."""
        ranking = router.ranker.ranking(Request("chat", CLIENTS[client]))
        served = (
            router.decide(Request("chat", CLIENTS[client]), 0.5).region or "" if region is None else region
        )
        outcome = "served" if served else "refused_overload"
        return Row("chat", served, outcome, "lookup", ranking.group.key, ranking.cell).text

    def second(self, lie: Lie | None) -> None:
        """Everybody reports, and control judges, plans and learns."""
        self.now += 1.0
        router = self.router()
        for edge, rates in self.setting.rates.items():
            demand = {self.row(router, client): rate for client, rate in rates.items()}
            report = EdgeReport("1", 1, 1, self.truth, demand, 1.0)
            if edge == "liar" and lie is not None:
                report = self.lying(lie, report, router)
            self.active.reports.take(edge, "192.0.2.1", report, edge)
        self.decide({})

    def decide(self, bound: Mapping[str, str]) -> None:
        """Control judges, plans, and every ten seconds learns; `bound`: the tokens that are for regions."""
        self.active.verdicts.judge()
        _runner().run(self.active.planning.tick())
        if round(self.now) % 10 == 0:
            tokens = {token: token for token in (*self.setting.rates, *bound)}
            teachers = Teachers(tokens, Authors(bound, frozenset(self.setting.rates)))
            capacity = self.active.planning.latest.capacity
            table = self.active.latency.turn(self.snapshot.policy, capacity, teachers)
            if table is not None:
                self.replica.current.become(replace(self.replica.now, table=table))

    def lying(self, lie: Lie, report: EdgeReport, router: Router) -> EdgeReport:
        """A report with the lie in it."""
        if lie.demand:
            said = {self.row(router, client, region): rate for (client, region), rate in lie.demand.items()}
            report = replace(report, demand=said)
        if lie.down or lie.up:
            told = worlds.health(
                self.snapshot.regions, lie.down, lie.recovered, since=NOW + self.now if lie.recovered else 0.0
            )
            report = replace(report, health=told)
        if lie.latency:
            deltas = [
                Delta(level, key, region, True, samples, (1 << 62) - 1, ms, 1.0, NOW + self.now)
                for level, key, region, ms, samples in lie.latency
            ]
            report = replace(report, latency=tuple(deltas))
        if lie.plan:
            classes = {
                router.ranker.ranking(Request("chat", location)).group.key: ClassPlan({"jp": 1.0}, 1.0)
                for location in CLIENTS.values()
            }
            report = replace(report, plan=Plan(NOW + self.now + 50, classes))
        return report

    def answers(self) -> Answers:
        """What honest edges' clients get."""
        router = self.router()
        return {
            (edge, client): Counter(
                router.decide(Request("chat", CLIENTS[client]), draw).region or "" for draw in DRAWS
            )
            for edge, rates in self.setting.rates.items()
            if edge != "liar"
            for client in rates
        }


def run(setting: Setting, lie: Lie | None) -> Answers:
    """What honest edges answer after a while of lies, from the first second on."""
    world = World(setting)
    with quick():
        for _ in range(SECONDS):
            world.second(lie)
    return world.answers()


def damage(setting: Setting, honest: Answers, lied: Answers) -> Damage:
    """Between two runs of a setting, weighted by what clients ask for."""
    changed = refused = whole = 0.0
    outside = 0
    for (edge, client), before in honest.items():
        after, rate = lied[edge, client], setting.rates[edge][client]
        moved = sum((before - after).values()) / len(DRAWS)
        whole += rate
        changed += rate * moved
        refused += rate * max(0, after[""] - before[""]) / len(DRAWS)
        if CLIENTS[client].country in ("DE", "FR"):
            outside += sum(after[region] for region in after if region and region not in EEA)
    return Damage(outside, refused / whole, changed=changed / whole)


def _nearest(client: str) -> str:
    return {"berlin": "de", "lyon": "fr", "boston": "us", "osaka": "jp", "sydney": "jp"}[client]


class EdgeArena(Arena[Setting, Lie, Answers]):
    """One stolen edge token against honest edges."""

    principal = "edge's token"
    kinds: ClassVar[Mapping[str, str]] = {"d": "demand", "h": "health", "l": "round trips", "p": "the plan"}

    def setting(self, rng: random.Random) -> Setting:
        """A world."""
        return Setting.drawn(rng)

    def lie(self, rng: random.Random, setting: Setting, kinds: str) -> Lie:  # noqa: ARG002 - the contract
        """A lie with these kinds in it."""
        return draw_lie(rng, kinds)

    def run(self, setting: Setting, lie: Lie | None) -> Answers:
        """What honest edges answer."""
        return run(setting, lie)

    def damage(self, setting: Setting, honest: Answers, lied: Answers) -> Damage:
        """What became different for honest edges' clients."""
        return damage(setting, honest, lied)


class BurstArena(EdgeArena):
    """The yardstick: the same edge's own clients ask eight times as often."""

    kinds: ClassVar[Mapping[str, str]] = {"d": f"nothing: its clients ask {BURST:g} times as often"}

    def lie(self, rng: random.Random, setting: Setting, kinds: str) -> Lie:  # noqa: ARG002 - the contract
        """What is true then; each try is the same."""
        return Lie(
            {(client, _nearest(client)): BURST * rate for client, rate in setting.rates["liar"].items()}
        )
