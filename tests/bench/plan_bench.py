"""What a plan costs: `python tests/bench/plan_bench.py [--json] [--runs 5] [--sizes 500x50,...]`.

Plans random but plausible worlds (clients and regions on a globe, latency by distance, fences by continent, three
priority tiers, three services of different service times) in variants: `ample` capacity, `tight` (all fits, but not
everybody at home), `quotas` (tight, with spillover rules and bounds on spill-in), `shed` (a fifth too much) and `fair`
(the same, every class with several of twelve tenants). Each is solved by `solve()` from nothing and again with the plan
that follows in force, and beside it by a bare `linprog` (HiGHS) of the same programme: all columns at once, arrays
built beforehand, nothing extracted. Times are medians of CPU time (one thread) in milliseconds, because machines are
shared. With `--json` the last line is one JSON object.

In an overload that tenants share, 5,000 × 100 may take the solver longer than it is given, which ends the run with a
PlanError: `--variants ample,tight,quotas,shed` leaves that out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import linprog
from scipy.sparse import csc_array

from gtm.core.capacity.supply import Supply
from gtm.core.model.geometry import great_circle_km
from gtm.core.model.policy import SpilloverRule
from gtm.core.model.services import Priority
from gtm.core.model.state import NO_PLAN
from gtm.core.plan.advance import advance
from gtm.core.plan.model import build
from gtm.core.plan.problem import ClassDemand, PlanProblem
from gtm.core.plan.solve import solve
from tests.core.plan.violations import violations

_BASE_MS = 16.0
_MS_PER_KM = 0.0175
"""A straight line through measured round trips: the benchmark's own, whatever gtm estimates by."""
SIZES = ((100, 10), (500, 50), (2_000, 50), (5_000, 100))
VARIANTS = {"ample": 2.0, "tight": 1.15, "quotas": 1.15, "shed": 0.8, "fair": 0.8}
SERVICE_TIME_S = {"chat": 4.0, "embed": 0.05, "rank": 0.3}
CONTINENTS = ((48.0, 10.0), (39.0, -95.0), (20.0, 105.0), (-15.0, -55.0))
"""Centres of population, in degrees."""


def world(classes: int, regions: int, variant: str, seed: int = 1) -> PlanProblem:
    """A random problem."""
    draw = random.Random(seed)
    places = [_place(draw) for _ in range(regions)]
    names = [f"region-{number}" for number in range(regions)]
    demands = [_demand(draw, number, places, names, variant) for number in range(classes)]
    held = sum(one.rate * SERVICE_TIME_S[one.service] for one in demands)
    sizes = [draw.uniform(0.3, 1.7) for _ in names]
    supply = {
        name: Supply(
            slots=VARIANTS[variant] * held * size / sum(sizes),
            rate=draw.choice((None, None, 40.0 * classes)),
            service_slots={"chat": VARIANTS[variant] * held * size / sum(sizes) * 0.95},
            service_time_s={one: each * draw.uniform(0.8, 1.25) for one, each in SERVICE_TIME_S.items()},
            cost_ms=draw.choice((0.0, 0.0, 10.0, 20.0)),
            spill_in_share=0.8 if variant == "quotas" else None,
        )
        for name, size in zip(names, sizes, strict=True)
    }
    quotas = tuple(
        SpilloverRule(
            f"rule-{home}-{part}",
            home,
            tuple(draw.sample(names, regions // 2)),
            draw.uniform(0.2, 0.6),
            None,
            150.0,
        )
        for home in names[: regions // 2]
        for part in range(2)
    )
    return PlanProblem(tuple(demands), supply, quotas if variant == "quotas" else ())


def _place(draw: random.Random) -> tuple[int, float, float]:
    continent = draw.randrange(len(CONTINENTS))
    lat, lon = CONTINENTS[continent]
    return continent, lat + draw.gauss(0, 8), lon + draw.gauss(0, 15)


def _demand(
    draw: random.Random, number: int, places: list[tuple[int, float, float]], names: list[str], variant: str
) -> ClassDemand:
    continent, lat, lon = _place(draw)
    fenced = draw.random() < 0.3 and any(place[0] == continent for place in places)
    latency = sorted(
        (_BASE_MS + _MS_PER_KM * great_circle_km(lat, lon, place[1], place[2]), name)
        for place, name in zip(places, names, strict=True)
        if not fenced or place[0] == continent
    )
    rate = draw.paretovariate(1.3)
    tenants = {}
    if variant == "fair":
        parts = {f"tenant-{draw.randrange(12)}": draw.expovariate(1.0) + 0.01 for _ in range(3)}
        tenants = {name: rate * part / sum(parts.values()) for name, part in parts.items()}
    return ClassDemand(
        key=f"class-{number}",
        service=draw.choice(tuple(SERVICE_TIME_S)),
        priority=draw.choice(tuple(Priority)),
        regions=tuple(name for _, name in latency),
        latency_ms=tuple(each for each, _ in latency),
        rate=rate,
        tenants=tenants,
    )


def bare(problem: PlanProblem) -> Callable[[], object]:
    """One linprog of the same programme, everything prepared."""
    model = build(problem)
    columns, count = len(model.cost), len(model.classes)
    matrix = model.rows.matrix
    ends = np.concatenate((matrix.starts, np.full(count, matrix.starts[-1])))
    bounds = csc_array((matrix.value, matrix.row, ends), shape=(matrix.count, columns + count))
    of_class = np.concatenate((model.columns.classes, np.arange(count)))
    demand = csc_array((np.ones(columns + count), of_class, np.arange(columns + count + 1)))
    tier = np.array([tuple(Priority).index(one.priority) for one in model.classes])
    cost = np.concatenate((model.cost, 1e5 * 4.0 ** (2 - tier)))

    def run() -> object:
        return linprog(cost, bounds, model.rows.limits, demand, model.rate, method="highs").x

    return run


def milliseconds(call: Callable[[], object], runs: int) -> float:
    """Median CPU time of a call."""
    found = []
    for _ in range(runs):
        begin = time.process_time()
        call()
        found.append(1e3 * (time.process_time() - begin))
    return statistics.median(found)


def measure(classes: int, regions: int, variant: str, runs: int) -> dict[str, object]:
    """One line of the table."""
    problem = world(classes, regions, variant)
    solution = solve(problem)
    plan = advance(NO_PLAN, problem, solution, 0.0)
    moved = replace(
        problem,
        classes=tuple(
            replace(one, rate=one.rate * (0.97 + 0.06 * (n % 2))) for n, one in enumerate(problem.classes)
        ),
    )
    first = milliseconds(lambda: solve(problem), runs)
    alone = milliseconds(bare(problem), runs)
    following = solve(moved, plan)
    return {
        "classes": classes,
        "regions": regions,
        "variant": variant,
        "solve_ms": first,
        "follow_ms": milliseconds(lambda: solve(moved, plan), runs),
        "advance_ms": milliseconds(lambda: advance(plan, moved, following, 1.0), runs),
        "build_ms": milliseconds(lambda: build(problem), runs),
        "bare_linprog_ms": alone,
        "ratio": first / alone,
        "refused": sum(solution.shed.values()) / sum(one.rate for one in problem.classes),
        "violations": len(violations(problem, solution)),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--runs", type=int, default=5, help="runs of each, of which the median counts")
    parser.add_argument("--sizes", default=",".join(f"{c}x{r}" for c, r in SIZES), help="classes x regions")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="which of them")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"load average {load:.2f}, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
    table = Table(title="One plan: milliseconds of CPU time, median")
    for column in (
        "classes × regions",
        "variant",
        "solve",
        "next tick",
        "advance",
        "of it build",
        "bare linprog",
        "× bare",
        "refused",
    ):
        table.add_column(column, justify="right")
    lines = []
    for size in arguments.sizes.split(","):
        classes, regions = map(int, size.split("x"))
        for variant in arguments.variants.split(","):
            line = measure(classes, regions, variant, arguments.runs)
            lines.append(line)
            shown = [
                f"{line[key]:.1f}"
                for key in ("solve_ms", "follow_ms", "advance_ms", "build_ms", "bare_linprog_ms")
            ]
            table.add_row(
                f"{classes:,} × {regions}", variant, *shown, f"{line['ratio']:.2f}", f"{line['refused']:.1%}"
            )
    Console(width=120).print(table)
    if arguments.json:
        print(json.dumps({"load_average": load, "runs": arguments.runs, "plans": lines}))


if __name__ == "__main__":
    main()
