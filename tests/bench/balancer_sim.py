"""How well a region's balancer chooses: `python tests/bench/balancer_sim.py [--quick] [--trace FILE] [--seed 1]`.

Theory first: 100 servers with exponential times at 90 %: the mean time in system is 10 by random choice (M/M/1), 2.61 by power of two
choices. If what is simulated is off, nothing else is. Then, with gtm's own functions (`balancer_world.py` says what a server is):

  tail     4 servers, one request at a time; 95 % take 0.2 s and 5 % 12 s
  slow     14 servers, and 2 that are 16 times slower, the same requests; `blind`: nobody has configured the weights
  stale    16 servers; figures scraped now and then, instead of own counts
  peers    16 servers, 4 balancers, which see each other or not
  trace    8 servers of 8 slots; a trace of TIMESTAMP, ContextTokens, GeneratedTokens (of Azure's form). A request takes context / 10,000
           + generated / 25 seconds; times are those to the first token. The second half is played; --half first is for tuning

ρ is the load. `cv`: standard deviation of servers' utilisation by their mean, in windows of 60 s. `slo_load`: the highest ρ (to 0.06; of `tail`, to 0.03) at
which p99 meets the objective: 24 s, twice the longest request; of the trace, 2 s to the first token. The last line is JSON:
scenario → policy → {"p50_s", "p99_s", "cv", "slo_load"}, and the quantiles of each class.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import isnan
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from gtm.core.balance.choosing.values import ChoosingSettings, Pick, Score
from gtm.core.balance.work import AskedWork
from tests.bench.balancer_world import Job, Machine, Played, Way, play

LOADS = (0.7, 0.8, 0.9)
OBJECTIVE_S = 24.0
FIRST_TOKEN_OBJECTIVE_S = 2.0
SHORT_S, LONG_S, LONG_PART = 0.2, 12.0, 0.05
LONG_ANSWER_S = 8.0
"""A request of the trace that holds a slot for longer counts as long."""
ROUND_ROBIN = Way(ChoosingSettings(pick=Pick.ROUND_ROBIN))
BY_REQUESTS = ChoosingSettings(pick=Pick.SCAN, score=Score.REQUESTS)
TWO_BY_REQUESTS = ChoosingSettings(score=Score.REQUESTS, scans=0)
WAYS: Mapping[str, Way] = {
    "round_robin": ROUND_ROBIN,
    "random": Way(ChoosingSettings(pick=Pick.RANDOM)),
    "least_requests": Way(BY_REQUESTS),
    "least_work": Way(ChoosingSettings(pick=Pick.SCAN), "learned"),
    "least_work_costs_known": Way(ChoosingSettings(pick=Pick.SCAN), "known"),
    "p2c_requests": Way(TWO_BY_REQUESTS),
    "p2c_work": Way(ChoosingSettings(scans=0), "learned"),
    "p2c_work_costs_known": Way(ChoosingSettings(scans=0), "known"),
    "p2c_work_peak_ewma": Way(ChoosingSettings(scans=0, latency=True), "learned"),
    "prequal": Way(ChoosingSettings(pick=Pick.PREQUAL), "learned"),
    "default": Way(ChoosingSettings(), "learned", slots=True),
    "default_costs_known": Way(ChoosingSettings(), "known", slots=True),
    "default_holding": Way(ChoosingSettings(), "learned", slots=True, holds=True),
}
"""`default` is what gtm ships: least learned work, slots configured (of these few servers, all are looked at). `default_holding`: requests wait in the balancer."""
SEEING = {
    f"{name}{suffix}": replace(way, balancers=count, sees=sees, scrape=scrape)
    for name, way in (
        ("least_requests", WAYS["least_requests"]),
        ("default", WAYS["default"]),
    )
    for suffix, count, sees, scrape in (
        (", one balancer", 1, False, None),
        (", 4 that see each other", 4, True, None),
        (", 4 with scrapes each 1 s", 4, False, 1.0),
        (", 4 alone", 4, False, None),
    )
}
STALE = {
    "round_robin": ROUND_ROBIN,
    **{
        f"{name}, {'own counts' if own else f'scraped each {scrape} s'}": Way(
            settings, own=own, scrape=scrape
        )
        for name, settings in (("scan", BY_REQUESTS), ("p2c", TWO_BY_REQUESTS))
        for own, scrape in ((True, None), (False, 0.1), (False, 0.5), (False, 1.0))
    },
}


_LEFT_OUT = {"random", "least_work_costs_known", "p2c_work_costs_known"}
"""Tried with four servers only, to save time."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Servers, the requests for a load, who is tried, and what is asked of them: p99 of all, or of times to the first token."""

    machines: Sequence[Machine]
    jobs: Callable[[float], Sequence[Job]]
    ways: Mapping[str, Way]
    loads: Sequence[float] = LOADS
    first_token: bool = False
    steps: int = 4

    @property
    def objective(self) -> float:
        """Seconds."""
        return FIRST_TOKEN_OBJECTIVE_S if self.first_token else OBJECTIVE_S

    def p99(self, played: Played) -> float:
        """What the objective is about."""
        return played.quantile(0.99, first_token=self.first_token)


def poisson(rho: float, capacity: float, count: int, seed: int) -> list[Job]:
    """Requests of two classes that come at random; `capacity` is in servers of speed 1."""
    random = Random(seed)
    mean = SHORT_S * (1 - LONG_PART) + LONG_S * LONG_PART
    now, jobs = 0.0, []
    for _ in range(count):
        now += random.expovariate(rho * capacity / mean)
        long = random.random() < LONG_PART
        jobs.append(Job(now, LONG_S if long else SHORT_S, AskedWork("m"), "long" if long else "short"))
    return jobs


def traced(path: Path, half: str, places: int, most: int) -> Callable[[float], list[Job]]:
    """The requests of half a trace, for a load: the same in the same order, faster or slower.

    Raises:
        SystemExit: the file is not of the form.
    """
    try:
        with path.open(newline="") as file:
            rows = [
                (
                    datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp(),
                    row["ContextTokens"],
                    row["GeneratedTokens"],
                )
                for row in csv.DictReader(file)
            ]
        read = sorted((at, int(context), int(generated)) for at, context, generated in rows)
    except (KeyError, ValueError, OSError) as error:
        raise SystemExit(
            f"{path}: not a trace of TIMESTAMP, ContextTokens, GeneratedTokens: {error!r}"
        ) from error
    middle = len(read) // 2
    some = (read[:middle] if half == "first" else read[middle:])[:most]
    if len(some) < 100:
        raise SystemExit(f"{path}: half of it is {len(some)} requests; at least 100 are needed")
    begin = some[0][0]
    jobs = []
    for at, context, generated in some:
        prefill = context / 10_000
        seconds = prefill + generated / 25
        label = "long" if seconds > LONG_ANSWER_S else "short"
        jobs.append(Job(at - begin, seconds, AskedWork("conv", context), label, prefill))
    own = sum(job.seconds for job in jobs) / (jobs[-1].at * places)
    return lambda rho: [replace(job, at=job.at * own / rho) for job in jobs]


def theory(count: int, tolerance: float, seed: int) -> None:
    """100 M/M/1 servers at 90 %, beside what is known of them.

    Raises:
        SystemExit: what is simulated is off.
    """
    random = Random(seed)
    rho, servers = 0.9, 100
    now, jobs = 0.0, []
    for _ in range(count):
        now += random.expovariate(rho * servers)
        jobs.append(Job(now, random.expovariate(1.0)))
    for name, way, expected in (
        ("random", Way(ChoosingSettings(pick=Pick.RANDOM, score=Score.REQUESTS)), 1 / (1 - rho)),
        ("power of two", WAYS["p2c_requests"], sum(rho ** (2**i - 2) for i in range(1, 20))),
    ):
        seconds = play(jobs, [Machine()] * servers, way, seed).seconds
        mean = sum(seconds) / len(seconds)
        print(
            f"theory: M/M/1, 100 servers at 90 %, {name}: mean {mean:.2f}, theory {expected:.2f}", flush=True
        )
        if not abs(mean / expected - 1) < tolerance:
            raise SystemExit(
                f"the simulation is off theory by more than {tolerance:.0%}: believe nothing of it"
            )


def figures(scene: Scene, way: Way, rho: float, seed: int) -> dict[str, float]:
    """What one way comes to at one load."""
    played = play(scene.jobs(rho), scene.machines, way, seed)
    told = {
        "p50_s": played.quantile(0.5, first_token=scene.first_token),
        "p99_s": scene.p99(played),
        "cv": played.cv(scene.machines),
    }
    for label in ("short", "long"):
        told[f"p50_{label}_s"] = played.quantile(0.5, label, first_token=scene.first_token)
        told[f"p99_{label}_s"] = played.quantile(0.99, label, first_token=scene.first_token)
    return {name: round(value, 3) for name, value in told.items() if not isnan(value)}


def slo_load(scene: Scene, way: Way, seed: int, steps: int) -> float:
    """The highest load at which p99 meets the objective, by bisection between 0.1 and 1."""
    low, high = 0.1, 1.0
    for _ in range(steps):
        rho = (low + high) / 2
        met = scene.p99(play(scene.jobs(rho), scene.machines, way, seed)) <= scene.objective
        low, high = (rho, high) if met else (low, rho)
    return round(low, 3)


def scenes(count: int, seed: int, trace: Path | None, half: str) -> dict[str, Scene]:
    """All scenarios, by name. `count`: requests of those with four servers, and of the trace at most; others take half."""
    some = count // 2
    few = {name: way for name, way in WAYS.items() if name not in _LEFT_OUT}
    slow = [*[Machine()] * 14, *[Machine(speed=1 / 16)] * 2]
    blind = {name: replace(way, weights=False) for name, way in few.items()}
    sixteen = [Machine()] * 16
    found = {
        "tail": Scene([Machine()] * 4, lambda rho: poisson(rho, 4, count, seed), WAYS, steps=5),
        "slow": Scene(slow, lambda rho: poisson(rho, 14.125, some, seed), few, (0.8,)),
        "slow, blind": Scene(slow, lambda rho: poisson(rho, 14.125, some, seed), blind, (0.8,)),
        "stale": Scene(sixteen, lambda rho: poisson(rho, 16, some, seed), STALE, (0.8,)),
        "peers": Scene(sixteen, lambda rho: poisson(rho, 16, some, seed), SEEING, (0.8,)),
    }
    if trace is not None:
        jobs = traced(trace, half, 64, count)
        found["trace"] = Scene([Machine(slots=8)] * 8, jobs, few, LOADS, first_token=True)
    return found


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer requests: coarse figures within 30 s")
    parser.add_argument("--trace", type=Path, help="a trace of TIMESTAMP, ContextTokens, GeneratedTokens")
    parser.add_argument("--half", choices=("first", "second"), default="second")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    theory(80_000 if given.quick else 300_000, 0.1 if given.quick else 0.05, given.seed)
    count, steps = (2_500, 2) if given.quick else (20_000, 5)
    result: dict[str, dict[str, dict[str, float]]] = {}
    for name, scene in scenes(count, given.seed, given.trace, given.half).items():
        for policy, way in scene.ways.items():
            highest = slo_load(scene, way, given.seed, min(steps, scene.steps))
            for rho in scene.loads:
                told = {**figures(scene, way, rho, given.seed), "slo_load": highest}
                result.setdefault(f"{name}, ρ={rho}", {})[policy] = told
        for scenario, policies in result.items():
            if scenario.rpartition(",")[0] == name:
                print(f"\n{scenario}")
                for policy, told in policies.items():
                    print(f"  {policy:42} " + "  ".join(f"{key} {value:7.3f}" for key, value in told.items()))
        sys.stdout.flush()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
