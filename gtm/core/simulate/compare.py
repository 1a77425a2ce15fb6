"""Two policies under the same traffic: what moves, and for whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from gtm.core.demand.cells import Cell
from gtm.core.demand.traffic import Traffic, TrafficSample
from gtm.core.simulate.project import Floats, Projection, project
from gtm.core.simulate.scenario import NOTHING, Ranked, Scenario, SimulatedWorld

_Key = TypeVar("_Key")

_SMALL = 1e-9
REFUSED = ""
"""Stands for the region of requests that are refused."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a sample of traffic comes to before and after; where demand grows there is more of it after.

    `moved` is the share of it whose region (or refusal) differs: the mean over cells of the total variation distance
    between where their requests go before and after. `newly_served` is the part of that which was refused before and
    no longer is; the rest leaves a region that serves it. `moves` has the same by where it goes: (from, to) → requests
    per second of the demand after, `""` for those that are refused. What a cell's requests leave is spread over where they
    go in proportion, since nobody says which request goes where.
    """

    sample: TrafficSample
    before: Projection
    after: Projection
    moved: float
    newly_served: float
    moves: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @property
    def displaced(self) -> float:
        """The share of the traffic that leaves the region that serves it."""
        return self.moved - self.newly_served


@dataclass(frozen=True, slots=True)
class MainRegion:
    """Where most of a country's requests of one service go; `""`: refused. `share` of all traffic is that country's.

    `country` None: clients that nobody can locate.
    """

    service: str
    country: str | None
    share: float
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class MainPlace:
    """A cell's centre in degrees (None: unknown), its share of all traffic, and where most of it goes."""

    lat: float | None
    lon: float | None
    share: float
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Simulation:
    """The result. `unknown` are requests by cell that neither policy knows: they are in nothing else."""

    average: Comparison
    peak: Comparison
    countries: tuple[MainRegion, ...]
    places: tuple[MainPlace, ...]
    unknown: Mapping[str, float]


def simulate(
    traffic: Traffic, before: SimulatedWorld, after: SimulatedWorld, scenario: Scenario = NOTHING
) -> Simulation:
    """Put traffic through two policies.

    Args:
        traffic: what was asked.
        before: the policy in force.
        after: the draft, in the world that the scenario makes.
        scenario: how demand grows.

    Raises:
        PlanError: the planner could not solve it.
        ValueError: the traffic lasts no time.
    """
    if not (traffic.whole.seconds > 0 and traffic.peak.seconds > 0):
        raise ValueError("traffic needs to last more than 0 seconds")
    cells = {**traffic.whole.counts, **traffic.peak.counts}
    old = Ranked(before, cells)
    new = Ranked(after, cells, old)
    known = old.rankings.keys() | new.rankings.keys()
    unknown = {cell: count for cell, count in traffic.whole.counts.items() if cell not in known}
    whole = _known(traffic.whole, unknown)
    peak = _known(traffic.peak, unknown)
    average = compare(old, new, whole, scenario)
    read = {cell: Cell.parse(cell) for cell in average.before.cells}
    return Simulation(
        average=average,
        peak=average if traffic.peak is traffic.whole else compare(old, new, peak, scenario),
        countries=_countries(average, read),
        places=_places(average, read),
        unknown=unknown,
    )


def compare(old: Ranked, new: Ranked, sample: TrafficSample, scenario: Scenario = NOTHING) -> Comparison:
    """Put one sample through both policies.

    Raises:
        PlanError: the planner could not solve it.
    """
    rates = sample.rates
    grown = scenario.grown(rates) if scenario.grows else rates
    before = project(old, rates)
    after = project(new, grown, before)
    return Comparison(sample, before, after, *difference(grown, before, after))


def _known(sample: TrafficSample, unknown: Mapping[str, float]) -> TrafficSample:
    return TrafficSample(
        {cell: count for cell, count in sample.counts.items() if cell not in unknown},
        sample.seconds,
        sample.start,
    )


def difference(
    rates: Mapping[str, float], before: Projection, after: Projection
) -> tuple[float, float, dict[tuple[str, str], float]]:
    """The share that moves, the share that is served instead of refused, and what goes from where to where."""
    total = sum(rates.values())
    if total <= 0:
        return 0.0, 0.0, {}
    numbers: dict[str, int] = {REFUSED: 0}
    weights = np.array(list(rates.values()), dtype=np.float64)
    ends = [
        [
            (row, numbers.setdefault(name, len(numbers)), share)
            for row, cell in enumerate(rates)
            for name, share in found.cells[cell].items()
        ]
        for found in (before, after)
    ]
    old, new = (_dense(entries, len(rates), len(numbers)) for entries in ends)
    left, came = np.maximum(old - new, 0.0), np.maximum(new - old, 0.0)
    gone, served = left.sum(axis=1), came.sum(axis=1)
    # Both sum to 1 with the refusals; what comes beyond what leaves comes from them, and what leaves beyond that goes there.
    moved, newly = np.maximum(gone, served), np.maximum(served - gone, 0.0)
    left[:, 0], came[:, 0] = newly, np.maximum(gone - served, 0.0)
    part = np.divide(weights, moved, out=np.zeros_like(weights), where=moved > _SMALL)
    ways = left.T @ (came * part[:, None])
    names = list(numbers)
    moves = {
        (names[start], names[end]): float(ways[start, end])
        for start, end in zip(*np.nonzero(ways > _SMALL * total), strict=True)
    }
    return _cleaned(float(moved @ weights) / total), _cleaned(float(newly @ weights) / total), moves


def _cleaned(share: float) -> float:
    """Without the rounding errors of a sum."""
    return share if share > _SMALL else 0.0


def _dense(entries: list[tuple[int, int, float]], rows: int, columns: int) -> Floats:
    table = np.zeros((rows, columns))
    for row, column, share in entries:
        table[row, column] += share
    return table


def _mains(found: Projection, rates: Mapping[str, float], group: Mapping[str, _Key]) -> dict[_Key, str]:
    """Where most of each group's requests go. Refusals count as a region; of equals the first by name."""
    totals: dict[_Key, dict[str, float]] = {}
    for cell, rate in rates.items():
        sums = totals.setdefault(group[cell], defaultdict(float))
        served = 0.0
        for name, share in found.cells[cell].items():
            sums[name] += rate * share
            served += share
        sums[REFUSED] += rate * max(0.0, 1 - served)
    return {key: min(sums, key=lambda name: (-sums[name], name)) for key, sums in totals.items()}


def _countries(made: Comparison, read: Mapping[str, Cell]) -> tuple[MainRegion, ...]:
    """Every service and country, those with most traffic first."""
    rates = made.sample.rates
    group = {cell: (read[cell].service, read[cell].country) for cell in rates}
    before, after = _mains(made.before, rates, group), _mains(made.after, rates, group)
    shares = _shares(rates, group)
    found = [MainRegion(*key, share, before[key], after[key]) for key, share in shares.items()]
    return tuple(sorted(found, key=lambda one: (-one.share, one.service, one.country or "")))


def _places(made: Comparison, read: Mapping[str, Cell]) -> tuple[MainPlace, ...]:
    rates = made.sample.rates
    group = {cell: (read[cell].lat, read[cell].lon) for cell in rates}
    before, after = _mains(made.before, rates, group), _mains(made.after, rates, group)
    shares = _shares(rates, group)
    found = [MainPlace(*key, share, before[key], after[key]) for key, share in shares.items()]
    return tuple(sorted(found, key=lambda one: -one.share))


def _shares(rates: Mapping[str, float], group: Mapping[str, _Key]) -> dict[_Key, float]:
    total = sum(rates.values()) or 1.0  # rates may be so small that they are none
    sums: dict[_Key, float] = {}
    for cell, rate in rates.items():
        sums[group[cell]] = sums.get(group[cell], 0.0) + rate / total
    return sums
