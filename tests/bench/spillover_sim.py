"""What spillover saves and costs: `python tests/bench/spillover_sim.py --trace FILE [--seed 1] [--quick]`.

Simulates regions of inference servers with limited slots over a day whose demand peaks at different hours by time zone,
compressed into an hour. The regions are filled by four strategies: `nearest`, `waterfall` (nearest first, the next when
the latest report calls it full), `gtm` (the planner of `gtm.core.plan`, once a second) and `oracle` (knows all at once,
routes each request by least actual time). See docs/benchmarks.md for the model and its limits.

`slots_needed` is the least number of slots at which 99% of all requests wait 0.5 s at most; refused ones count as having
waited longer. Slots stand in proportion to each region's own peak demand, or
(`--equal`) in equal parts.
With the fence, its regions are sized first, by the fenced clients alone, and then the others, each pool in proportion.
Latencies are compared at the slots that gtm needs, and once more where all is tight: at those that the oracle needs.

The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, inf
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from gtm.core.plan.advance import advance
from gtm.core.plan.congestion import Fill, solve_tick
from gtm.core.plan.problem import Problem, SpillQuota
from gtm.core.state import Plan
from tests.bench.sim_queue import SlotQueue
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
from tests.bench.sim_world import (
    AREAS,
    Area,
    Floats,
    Ints,
    Rates,
    Workload,
    make_day,
    peak_erlangs,
    read_trace,
    round_trips,
)

STRATEGIES = ("nearest", "waterfall", "gtm", "oracle")
WAIT_S = 0.5
LATE_SHARE = 0.01
"""At most this share of requests waits longer than WAIT_S."""
Multiples = tuple[float, float]
"""Slots as multiples of peak load: of the regions in the fence, and of the others."""
WINDOW_S = 10.0
"""Quotas are measured over windows of this length."""


@dataclass(frozen=True)
class Settings:
    """How slow and coarse the feedback is, and how much DNS there is. Times in s, `noise` as a standard deviation.

    `reserve`: see `Region.reserve`; `full`: see `Waterfall`; `tolerance` is that of `slots_needed`, see `bisect`.
    """

    seed: int = 1
    ttl: float = 30.0
    report_age: int = 1
    noise: float = 0.05
    reserve: float = 0.1
    full: float = 1.0
    tolerance: float = 0.01


@dataclass(frozen=True, slots=True)
class Scene:
    """One world to compare strategies in."""

    areas: tuple[Area, ...]
    day: Workload
    erlangs: Floats
    round_trip: Floats
    order: tuple[tuple[int, ...], ...]
    quotas: tuple[SpillQuota, ...]
    fenced: bool
    settings: Settings
    planner: Planner


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of each request: the region (-1: refused by the plan) and the wait in s (infinite: refused)."""

    region: Ints
    wait: Floats
    movement: float | None


def preference(areas: tuple[Area, ...], round_trip: Floats, *, fenced: bool) -> tuple[tuple[int, ...], ...]:
    """The eligible regions of each area, nearest first."""
    return tuple(
        tuple(
            int(region)
            for region in np.argsort(round_trip[number], kind="stable")
            if not (fenced and area.fenced) or areas[region].fenced
        )
        for number, area in enumerate(areas)
    )


def spill_quotas(areas: tuple[Area, ...]) -> tuple[SpillQuota, ...]:
    """Two spillover rules, so far as their regions take part."""
    names = {area.region for area in areas}
    wanted = (
        SpillQuota("us-east-abroad", "us-east", tuple(sorted(names - {"us-east"})), max_share=0.5),
        SpillQuota(
            "ap-northeast-abroad", "ap-northeast", tuple(sorted(names - {"ap-northeast"})), max_share=0.5
        ),
    )
    return tuple(quota for quota in wanted if quota.home in names and quota.to)


def provision(scene: Scene, multiples: Multiples) -> tuple[int, ...]:
    """Slots by region: a multiple of its own peak load, one for the fence's regions and one for the others."""
    return tuple(
        max(1, ceil(multiples[0 if area.fenced else 1] * peak))
        for area, peak in zip(scene.areas, scene.erlangs, strict=True)
    )


def strategy_of(name: str, scene: Scene, slots: tuple[int, ...], queues: Sequence[SlotQueue]) -> Strategy:
    """A fresh strategy for these slots."""
    if name == "nearest":
        return Nearest(scene.order)
    if name == "waterfall":
        return Waterfall(scene.order, slots, scene.settings.full)
    if name == "gtm":
        names = [area.region for area in scene.areas]
        policy = policy_of(names, slots, scene.settings.reserve)
        return Planned(names, scene.order, scene.round_trip.tolist(), policy, scene.quotas, scene.planner)
    return Oracle(scene.order, scene.round_trip.tolist(), queues, budgets(scene), WINDOW_S)


def budgets(scene: Scene) -> list[list[tuple[frozenset[int], list[int]]]]:
    """Area → for each of its quotas the regions covered, and the requests allowed in each window."""
    numbers = {area.region: number for number, area in enumerate(scene.areas)}
    found: list[list[tuple[frozenset[int], list[int]]]] = [[] for _ in scene.areas]
    for quota in scene.quotas:
        home = numbers[quota.home]
        demand = windowed(scene.day, scene.day.area == home)
        allowed = [floor((quota.max_share or 0.0) * count) for count in demand]
        found[home].append((frozenset(numbers[name] for name in quota.to), allowed))
    return found


def windowed(day: Workload, chosen: np.ndarray) -> Ints:
    """How many of the chosen requests fall into each window."""
    return np.bincount((day.at[chosen] // WINDOW_S).astype(int), minlength=ceil(day.seconds / WINDOW_S) + 1)


class Reports:
    """What strategies are told each second: as old and as noisy as the settings say."""

    def __init__(self, day: Workload, settings: Settings) -> None:
        self.settings = settings
        self.generator = np.random.default_rng([settings.seed, 2])
        second = day.at.astype(int)
        self.count = np.cumsum(np.bincount(second, minlength=day.seconds + 1))
        self.held = np.cumsum(np.bincount(second, day.hold, minlength=day.seconds + 1))
        self.measured: deque[tuple[Floats, ...]] = deque(maxlen=settings.report_age + 1)

    def at(self, second: int, *measured: Floats) -> Report:
        """The report at the start of a second, given what is measured right now."""
        self.measured.append(measured)
        busy, waiting, served, http, answers = (self._noisy(values) for values in self.measured[0])
        end = second - self.settings.report_age
        return Report(
            float(second),
            float(self.settings.report_age),
            busy.tolist(),
            waiting.tolist(),
            served.tolist(),
            http.tolist(),
            answers.tolist(),
            self._service_time(end),
        )

    def _noisy(self, exact: Floats) -> Floats:
        return np.maximum(0.0, exact * self.generator.normal(1.0, self.settings.noise, exact.shape))

    def _service_time(self, end: int) -> float:
        """The mean over requests that arrived 45 to 75 s before: they are done, but for a day's first minute."""
        last, first = max(1, end - 45), max(0, end - 75)
        count = self.count[last] - self.count[first]
        return float((self.held[last] - self.held[first]) / count) if count else 1.0


def counters(size: int) -> tuple[list[int], list[list[int]], list[list[int]]]:
    """Zeros: by region, and twice by area and region."""
    return [0] * size, [[0] * size for _ in range(size)], [[0] * size for _ in range(size)]


def simulate(
    name: str, scene: Scene, slots: tuple[int, ...], give_up: Callable[[int, int], bool] | None = None
) -> Outcome | None:
    """Run one strategy through the day. None if `give_up(late, late_in_fence)` said so on the way."""
    day, settings = scene.day, scene.settings
    queues = [SlotQueue(count, waiting=count) for count in slots]
    strategy = strategy_of(name, scene, slots, queues)
    reports = Reports(day, settings)
    needs_reports = name in {"waterfall", "gtm"}
    answers, expires = [0] * day.caches, [-1.0] * day.caches
    in_fence = [area.fenced for area in scene.areas]
    late = late_in_fence = 0
    regions: list[int] = []
    waits: list[float] = []
    second = 0
    served, http, answered = counters(len(slots))
    columns = (day.at, day.area, day.hold, day.cache, day.draw)
    for at, area, hold, cache, draw in zip(*(column.tolist() for column in columns), strict=True):
        while second <= at:
            if needs_reports:
                loads = np.array([queue.load(second) for queue in queues], dtype=float)
                counts = (np.array(count, dtype=float) for count in (served, http, answered))
                strategy.tick(reports.at(second, loads[:, 0], loads[:, 1], *counts))
                served, http, answered = counters(len(slots))
            if give_up is not None and give_up(late, late_in_fence):
                return None
            second += 1
        if cache >= 0 and strategy.caches:
            if expires[cache] <= at:
                answers[cache] = strategy.route(area, draw, at, dns=True)
                expires[cache] = at + settings.ttl
                answered[area][answers[cache]] += 1
            region = answers[cache]
        else:
            region = strategy.route(area, draw, at, dns=False)
            http[area][region] += region >= 0
        wait = inf
        if region >= 0:
            wait = queues[region].offer(at, hold)
            served[region] += 1
        if wait > WAIT_S:
            late += 1
            late_in_fence += in_fence[area]
        regions.append(region)
        waits.append(wait)
    return Outcome(np.array(regions), np.array(waits), strategy.movement)


def holds(name: str, scene: Scene, slots: tuple[int, ...], *, fence_only: bool = False) -> bool:
    """Whether enough requests start in time: of all, or of the fenced clients alone."""
    fenced = np.array([area.fenced for area in scene.areas])[scene.day.area]
    counted = fenced if fence_only else np.ones(len(fenced), dtype=bool)
    most = LATE_SHARE * counted.sum()
    outcome = simulate(name, scene, slots, lambda late, inside: (inside if fence_only else late) > most)
    return outcome is not None and bool((outcome.wait[counted] > WAIT_S).sum() <= most)


def bisect(test: Callable[[float], bool], low: float, high: float, tolerance: float) -> float:
    """The least multiple that passes, within a tolerance; `low` is taken to fail."""
    while not test(high):
        low, high = high, 1.3 * high
        if high > 50:
            raise SystemExit("no number of slots is enough: is the trace one long burst?")
    while high - low > tolerance:
        middle = (low + high) / 2
        if test(middle):
            high = middle
        else:
            low = middle
    return high


def needed(name: str, scene: Scene, low: Multiples = (0.5, 0.2), high: Multiples = (1.2, 1.2)) -> Multiples:
    """The multiples of peak load that a strategy needs: in the fence, and elsewhere.

    `low` and `high` are where to look; what needs more than `high` is found all the same.
    """
    tolerance = scene.settings.tolerance
    if not scene.fenced:
        both = bisect(lambda k: holds(name, scene, provision(scene, (k, k))), low[1], high[1], tolerance)
        return both, both

    def alone(inside: float) -> bool:
        return holds(name, scene, provision(scene, (inside, 2.0)), fence_only=True)

    inside = bisect(alone, low[0], high[0], tolerance)
    elsewhere = bisect(
        lambda k: holds(name, scene, provision(scene, (inside, k))), low[1], high[1], tolerance
    )
    return inside, elsewhere


def judge(scene: Scene, outcome: Outcome, slots: int) -> dict[str, float | int | None]:
    """The figures of one run."""
    served = np.isfinite(outcome.wait)
    area, region = scene.day.area, outcome.region
    first_token = (
        1e3 * (outcome.wait + scene.day.prefill)[served] + scene.round_trip[area[served], region[served]]
    )
    over, beyond, windows = quota_windows(scene, outcome)
    fenced = np.array([one.fenced for one in scene.areas])
    wait = np.where(served, outcome.wait, np.inf)
    return {
        "mean_ttft_ms": round(float(first_token.mean()), 1),
        "p99_ttft_ms": round(float(np.percentile(first_token, 99)), 1),
        "rejected": int((~served).sum()),
        "slots_needed": slots,
        "quota_violations": beyond,
        "weight_movement": None if outcome.movement is None else round(outcome.movement, 1),
        "outside_fence": int((fenced[area[served]] & ~fenced[region[served]]).sum()),
        "quota_windows": windows,
        "quota_windows_above": over,
        "late_share": round(float((wait > WAIT_S).mean()), 5),
        "spilled_share": round(float((region != area)[served].mean()), 4),
    }


def quota_windows(scene: Scene, outcome: Outcome) -> tuple[int, int, int]:
    """Windows above a quota, windows above it by more than sampling explains, and all windows.

    A share that is drawn at random deviates: by more than 3 standard deviations of the binomial distribution counts.
    """
    numbers = {area.region: number for number, area in enumerate(scene.areas)}
    over = beyond = windows = 0
    for quota in scene.quotas:
        home = scene.day.area == numbers[quota.home]
        demand = windowed(scene.day, home)
        spilled = windowed(scene.day, home & np.isin(outcome.region, [numbers[name] for name in quota.to]))
        share = quota.max_share or 0.0
        allowed = share * demand
        over += int((spilled > allowed).sum())
        beyond += int((spilled > allowed + 3 * np.sqrt(allowed * (1 - share))).sum())
        windows += int((demand > 0).sum())
    return over, beyond, windows


def compare(scene: Scene, say: Callable[[str], None]) -> dict[str, object]:
    """All strategies: what each needs, and how each does with what gtm needs."""
    tolerance = scene.settings.tolerance
    sizes: dict[str, tuple[int, ...]] = {}
    found_at: dict[str, Multiples] = {}
    for name in ("oracle", "nearest", "waterfall", "gtm"):
        begin = time.perf_counter()
        if name in ("oracle", "nearest"):
            found_at[name] = needed(name, scene)
        else:  # between the two, as a rule
            best, worst = found_at["oracle"], found_at["nearest"]
            low = (best[0] - tolerance, best[1] - tolerance)
            found_at[name] = needed(name, scene, low, worst)
        sizes[name] = provision(scene, found_at[name])
        say(f"  {name}: {sum(sizes[name])} slots {sizes[name]}, {time.perf_counter() - begin:.0f} s")
    found: dict[str, object] = {}
    for name in STRATEGIES:
        needs = sum(sizes[name])
        figures: dict[str, object] = dict(judged(name, scene, sizes["gtm"], needs))
        figures["at_oracle_slots"] = judged(name, scene, sizes["oracle"], needs)
        found[name] = figures
    return found


def judged(name: str, scene: Scene, slots: tuple[int, ...], needs: int) -> dict[str, float | int | None]:
    """The figures of one strategy with these slots."""
    outcome = simulate(name, scene, slots)
    assert outcome is not None
    return judge(scene, outcome, needs)


def shipped(
    previous: Plan, problem: Problem, fill: Fill, now: float
) -> tuple[Plan, Mapping[str, float], Fill]:
    """One tick of gtm's planner."""
    tick = solve_tick(problem, previous, fill)
    return advance(previous, problem, tick.solution, now), tick.solution.quota_rates, tick.fill


def run(given: argparse.Namespace, planner: Planner, say: Callable[[str], None]) -> dict[str, object]:
    """The whole comparison, with and without the fence."""
    areas = tuple(
        replace(area, copies=max(1, round(area.copies * given.scale))) for area in AREAS[: given.regions]
    )
    rates = Rates(given.prefill, given.decode)
    trace = read_trace(given.trace)
    day = make_day(
        areas,
        trace,
        rates,
        seconds=given.day,
        peak_to_trough=given.peak_to_trough,
        dns_share=given.dns_share,
        caches=given.resolvers,
        generator=np.random.default_rng([given.seed, 1]),
    )
    settings = Settings(
        seed=given.seed,
        ttl=given.ttl,
        report_age=given.report_age,
        noise=given.noise,
        reserve=given.reserve,
        full=given.full,
        tolerance=given.tolerance,
    )
    erlangs = peak_erlangs(areas, trace, rates)
    if given.equal:
        erlangs = np.full(len(areas), erlangs.mean())
    round_trip = round_trips(areas)
    say(f"{len(day.at)} requests in {day.seconds} s; peak load {erlangs.sum():.0f} slots {np.round(erlangs)}")
    found: dict[str, dict[str, object]] = {}
    for fenced in (True, False):
        say("with the fence" if fenced else "without the fence")
        scene = Scene(
            areas,
            day,
            erlangs,
            round_trip,
            preference(areas, round_trip, fenced=fenced),
            spill_quotas(areas),
            fenced,
            settings,
            planner,
        )
        found["fence" if fenced else "open"] = compare(scene, say)
        show(found["fence" if fenced else "open"], say)
    return {
        **found["fence"],
        "without_fence": found["open"],
        "seed": given.seed,
        "regions": given.regions,
        "requests": len(day.at),
        "load_average": os.getloadavg()[0],
    }


def show(results: dict[str, object], say: Callable[[str], None]) -> None:
    """One line per strategy."""
    for name, figures in results.items():
        say(f"  {name:10} " + "  ".join(f"{key} {value}" for key, value in dict(figures).items()))  # type: ignore[call-overload]


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--trace", type=Path, required=True, help="CSV: TIMESTAMP,ContextTokens,GeneratedTokens"
    )
    parser.add_argument("--regions", type=int, default=len(AREAS), choices=range(3, len(AREAS) + 1))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the last line only")
    parser.add_argument(
        "--quick", action="store_true", help="a quarter of the demand over ten minutes, coarse"
    )
    parser.add_argument("--day", type=int, help="seconds that the day is compressed into (3600)")
    parser.add_argument("--scale", type=float, help="multiplies all demand (1)")
    parser.add_argument("--tolerance", type=float, help="of slots_needed, as a share of the peak load (0.01)")
    parser.add_argument(
        "--peak-to-trough", type=float, default=10.0, help="of each area's demand over its day"
    )
    parser.add_argument("--prefill", type=float, default=Rates.prefill, help="context tokens per second")
    parser.add_argument("--decode", type=float, default=Rates.decode, help="generated tokens per second")
    parser.add_argument(
        "--dns-share", type=float, default=0.5, help="clients steered by DNS, the rest by HTTP"
    )
    parser.add_argument(
        "--resolvers", type=int, default=400, help="caches by area, their clients by Zipf's law"
    )
    parser.add_argument("--ttl", type=float, default=Settings.ttl, help="of DNS answers, in seconds")
    parser.add_argument("--report-age", type=int, default=Settings.report_age, help="seconds")
    parser.add_argument("--noise", type=float, default=Settings.noise, help="standard deviation, relative")
    parser.add_argument("--equal", action="store_true", help="as many slots in each region of a pool")
    parser.add_argument("--reserve", type=float, default=Settings.reserve, help="slots that no plan uses")
    parser.add_argument("--full", type=float, default=Settings.full, help="waterfall: load that is full")
    found = parser.parse_args(given)
    usual = (600, 0.25, 0.05) if found.quick else (3600, 1.0, 0.01)
    for name, value in zip(("day", "scale", "tolerance"), usual, strict=True):
        if getattr(found, name) is None:
            setattr(found, name, value)
    return found


def main(given: Sequence[str] | None = None) -> None:
    """Simulate and print."""
    options = arguments(given)
    say: Callable[[str], None] = (lambda _: None) if options.json else print
    print(json.dumps(run(options, shipped, say)))


if __name__ == "__main__":
    main()
