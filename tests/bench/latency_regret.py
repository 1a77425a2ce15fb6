"""What wrong estimates cost: `python tests/bench/latency_regret.py --rtt FILE [--regions 10] [--trials 30] [--seed 1]`.

FILE is as for latency_fit.py. Each trial draws some cities as regions; all others are clients. A client's regret is the
measured round trip to the region chosen less that to the best, over regions with a known one. Four ways to choose:

  great_circle  the straight line through great-circle distance
  model         the geographic model, its constants fitted without the client's tenth of the cities, and the regions'
                round trips to each other
  neighbours    the same, and samples from the 8 other cities nearest to the client
  own_samples   the model, and 20 samples of each region from the city itself

Samples go the whole way: noise, `SampleAggregator`, `Aggregates`, `LatencyTable`, `Estimator`. A sample is the
measured average times exp(N(0, 0.1²)), of five sources in turn; one in twenty also waited another Exp(mean 300 ms).

With --json, the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from latency_fit import City, Measured, fit, load

from gtm.core.latency import (
    EMPTY_TABLE,
    Aggregates,
    Delta,
    Estimator,
    LatencyTable,
    Sample,
    SampleAggregator,
    SampleKind,
    great_circle_km,
)
from gtm.core.model import Location, Region
from gtm.core.rtt_model import Parameters

GREAT_CIRCLE = Parameters(base_ms=16.0, ms_per_km=0.0175)
"""Least absolute deviations over great circles."""
FOLDS = 10
NEAREST = 8
SAMPLES = 20
SOURCES = 5
JITTER = 0.1
OUTLIERS = 0.05
OUTLIER_MS = 300.0


def location(number: int, city: City) -> Location:
    """A city as a client: one network of one operator."""
    network = f"198.{18 + number // 256}.{number % 256}.0/24"
    return Location(city.country, None, None, city.lat, city.lon, 64_512 + number, network, 24, "geoip")


def noisy(rng: random.Random, ms: float) -> float:
    """One sample of a round trip."""
    late = rng.expovariate(1 / OUTLIER_MS) if rng.random() < OUTLIERS else 0.0
    return ms * rng.lognormvariate(0.0, JITTER) + late


class Trial:
    """One draw of regions, and what is measured in it.

    Args:
        measured: all round trips.
        regions: the numbers of the cities that are regions.
        rng: for the noise.
    """

    def __init__(self, measured: Measured, regions: list[int], rng: random.Random) -> None:
        self.measured = measured
        self.numbers = regions
        self.members = range(len(regions))
        self.regions = [
            Region(f"region-{number}", measured.cities[number].lat, measured.cities[number].lon, "", ())
            for number in regions
        ]
        self._rng = rng
        self._samples: dict[int, list[Sample]] = {}
        self._deltas: dict[tuple[int, Parameters], list[Delta]] = {}

    def samples(self, city: int) -> list[Sample]:
        """A city's samples of all regions it has round trips to."""
        if city not in self._samples:
            client = location(city, self.measured.cities[city])
            self._samples[city] = [
                Sample(
                    client,
                    region.name,
                    noisy(self._rng, ms),
                    0.0,
                    f"{city}/{turn % SOURCES}",
                    SampleKind.BALANCER,
                )
                for region, number in zip(self.regions, self.numbers, strict=True)
                if (ms := self.measured.rtt.get((city, number))) is not None
                for turn in range(SAMPLES)
            ]
        return self._samples[city]

    def deltas(self, city: int, parameters: Parameters) -> list[Delta]:
        """What an edge sends of a city's samples."""
        if (city, parameters) not in self._deltas:
            self._deltas[city, parameters] = self._taken(self.samples(city), parameters)
        return self._deltas[city, parameters]

    def probes(self, parameters: Parameters) -> list[Delta]:
        """What the regions measure of each other."""
        samples = [
            Sample(Location(), region.name, ms, 0.0, other.name, SampleKind.PROBE)
            for region, number in zip(self.regions, self.numbers, strict=True)
            for other, origin in zip(self.regions, self.numbers, strict=True)
            if (ms := self.measured.rtt.get((origin, number))) is not None
        ]
        return self._taken(samples, parameters)

    def estimator(self, parameters: Parameters, cities: Iterable[int] = ()) -> Estimator:
        """What edges estimate with, once some cities have been measured."""
        aggregates = Aggregates()
        aggregates.merge(self.probes(parameters), 0.0)
        for city in cities:
            aggregates.merge(self.deltas(city, parameters), 0.0)
        table: LatencyTable = aggregates.table(EMPTY_TABLE, 0.0, {region.name for region in self.regions})
        return Estimator(self.regions, table, parameters)

    def _taken(self, samples: Iterable[Sample], parameters: Parameters) -> list[Delta]:
        aggregator = SampleAggregator(self.regions, parameters=parameters)
        for sample in samples:
            aggregator.add(sample)
        return aggregator.take()


Estimates = dict[int, float]
"""Region's place in the trial → estimate in ms."""


def methods(trial: Trial, folds: dict[int, Parameters]) -> dict[str, Callable[[int], Estimates]]:
    """The four ways to estimate a client city's round trips."""
    cities = trial.measured.cities

    def paths(estimator: Estimator, client: int) -> Estimates:
        found = estimator.paths(location(client, cities[client]), trial.members)
        return {number: path.estimate_ms for number, path in found.items()}

    def great_circle(client: int) -> Estimates:
        here = cities[client]
        return {
            number: GREAT_CIRCLE.base_ms
            + GREAT_CIRCLE.ms_per_km * great_circle_km(here.lat, here.lon, region.lat, region.lon)
            for number, region in enumerate(trial.regions)
        }

    @cache
    def untrained(parameters: Parameters) -> Estimator:
        return trial.estimator(parameters)

    def model(client: int) -> Estimates:
        return paths(untrained(folds[client]), client)

    def neighbours(client: int) -> Estimates:
        here = cities[client]
        others = [other for other in range(len(cities)) if other != client]
        others.sort(
            key=lambda other: great_circle_km(here.lat, here.lon, cities[other].lat, cities[other].lon)
        )
        return paths(trial.estimator(folds[client], others[:NEAREST]), client)

    def own_samples(client: int) -> Estimates:
        return paths(trial.estimator(folds[client], [client]), client)

    return {
        "great_circle": great_circle,
        "model": model,
        "neighbours": neighbours,
        "own_samples": own_samples,
    }


def regrets(trial: Trial, estimate: Callable[[int], Estimates]) -> list[float]:
    """Each client's regret in ms."""
    found = []
    for client in range(len(trial.measured.cities)):
        if client in trial.numbers:
            continue
        known = {
            member: ms
            for member, number in enumerate(trial.numbers)
            if (ms := trial.measured.rtt.get((client, number))) is not None
        }
        if known:
            estimates = estimate(client)
            found.append(known[min(known, key=estimates.__getitem__)] - min(known.values()))
    return found


def summary(found: list[float]) -> dict[str, float]:
    """Mean and 95th percentile (linear between ranks) in ms, and the share of exact choices."""
    ordered = sorted(found)
    rank = 0.95 * (len(ordered) - 1)
    low = int(rank)
    high = ordered[min(low + 1, len(ordered) - 1)]
    return {
        "mean_ms": round(sum(found) / len(found), 2),
        "p95_ms": round(ordered[low] + (rank - low) * (high - ordered[low]), 1),
        "exact": round(found.count(0.0) / len(found), 3),
    }


def main() -> None:
    """Run the trials and print the table."""
    parser = argparse.ArgumentParser(description="What wrong estimates of round trips cost.")
    parser.add_argument("--rtt", type=Path, required=True, help="a file of round trips between cities")
    parser.add_argument("--regions", type=int, default=10)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    arguments = parser.parse_args()

    measured = load(arguments.rtt)
    count = len(measured.cities)
    shuffled = random.Random(arguments.seed).sample(range(count), count)
    folds: dict[int, Parameters] = {}
    for fold in range(FOLDS):
        left_out = shuffled[fold::FOLDS]
        parameters = fit(measured, left_out)
        folds.update(dict.fromkeys(left_out, parameters))

    rng = random.Random(arguments.seed)
    noise = random.Random(arguments.seed)
    found: dict[str, list[float]] = {}
    for _ in range(arguments.trials):
        trial = Trial(measured, rng.sample(range(count), arguments.regions), noise)
        for name, estimate in methods(trial, folds).items():
            found.setdefault(name, []).extend(regrets(trial, estimate))

    summaries = {name: summary(each) for name, each in found.items()}
    print(f"{count} cities, {arguments.trials} trials of {arguments.regions} regions, seed {arguments.seed}")
    for name, numbers in summaries.items():
        ratio = numbers["mean_ms"] / summaries["great_circle"]["mean_ms"]
        print(
            f"{name:<14} mean {numbers['mean_ms']:6.2f} ms ({ratio:.2f} ×), p95 {numbers['p95_ms']:6.1f} ms, "
            f"exact {numbers['exact']:.3f}"
        )
    if arguments.json:
        print(json.dumps(summaries))


if __name__ == "__main__":
    main()
