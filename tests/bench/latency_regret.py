"""What wrong estimates cost: `python tests/bench/latency_regret.py --rtt FILE [--regions 10] [--trials 30] [--seeds 1 2 3]`.

FILE is as for latency_fit.py, and so are its halves: clients are the cities of the reporting half, on which nothing in
gtm was ever tuned (`--half tuning` is for tuning). Each trial draws some cities of either half as regions. A client's
regret is the measured round trip to the region chosen less that to the best, over regions with a known one. Four ways
to choose:

  great_circle  the nearest
  model         the geographic model, its constants fitted to the tuning half, and the regions' round trips to each other
  neighbours    the same, and samples from the 8 other cities (of either half) nearest to the client
  own_samples   the model, and 20 samples of each region from the city itself

Samples go the whole way: noise, `SampleAggregator`, `Aggregates` and `Doubts`, `LatencyTable`, `Estimator`. A sample is
the measured average times exp(N(0, 0.1²)), of five sources in turn, reported by the region's own balancer; one in twenty
also waited another Exp(mean 300 ms). The first of each source's samples end an interval, so that edges know doubtful
locations when the others come.

With --json, the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from latency_fit import City, Measured, fit, load, tuning

from gtm.core.latency.aggregates import Aggregates
from gtm.core.latency.doubt import Doubts
from gtm.core.latency.estimator import Estimator
from gtm.core.latency.geographic import Parameters
from gtm.core.latency.samples import Interval, RoundTripSample, SampleAggregator, SampleMethod
from gtm.core.latency.table import EMPTY_TABLE, LatencyTable
from gtm.core.model.geometry import great_circle_km
from gtm.core.model.regions import Region
from gtm.core.model.requests import Location

NEAREST = 8
SAMPLES = 20
SOURCES = 5
INTERVAL = 10.0
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
        self._samples: dict[int, list[RoundTripSample]] = {}
        self._intervals: dict[tuple[int, Parameters], tuple[Interval, Interval]] = {}

    def samples(self, city: int) -> list[RoundTripSample]:
        """A city's samples of all regions it has round trips to."""
        if city not in self._samples:
            client = location(city, self.measured.cities[city])
            self._samples[city] = [
                RoundTripSample(
                    client,
                    region.name,
                    noisy(self._rng, ms),
                    0.0 if turn < SOURCES else INTERVAL,
                    f"{city}/{turn % SOURCES}",
                    SampleMethod.BALANCER,
                    f"balancer of {region.name}",
                )
                for region, number in zip(self.regions, self.numbers, strict=True)
                if (ms := self.measured.rtt.get((city, number))) is not None
                for turn in range(SAMPLES)
            ]
        return self._samples[city]

    def intervals(self, city: int, parameters: Parameters) -> tuple[Interval, Interval]:
        """What an edge sends of a city's samples in two intervals; in the second it knows what the first disputed."""
        if (city, parameters) not in self._intervals:
            early = [sample for sample in self.samples(city) if sample.at < INTERVAL]
            late = [sample for sample in self.samples(city) if sample.at >= INTERVAL]
            first = self._taken(early, parameters)
            known = Aggregates(), Doubts()
            merge(*known, first)
            second = self._taken(late, parameters, self.table(*known))
            self._intervals[city, parameters] = first, second
        return self._intervals[city, parameters]

    def probes(self, parameters: Parameters) -> Interval:
        """What the regions measure of each other."""
        samples = [
            RoundTripSample(Location(), region.name, ms, 0.0, other.name, SampleMethod.PROBE)
            for region, number in zip(self.regions, self.numbers, strict=True)
            for other, origin in zip(self.regions, self.numbers, strict=True)
            if (ms := self.measured.rtt.get((origin, number))) is not None
        ]
        return self._taken(samples, parameters)

    def estimator(self, parameters: Parameters, cities: Iterable[int] = ()) -> Estimator:
        """What edges estimate with, once some cities have been measured."""
        known = Aggregates(), Doubts()
        merge(*known, self.probes(parameters))
        for city in cities:
            for interval in self.intervals(city, parameters):
                merge(*known, interval)
        return Estimator(self.regions, self.table(*known), parameters)

    def table(self, aggregates: Aggregates, doubts: Doubts) -> LatencyTable:
        """The table that control makes."""
        names = {region.name for region in self.regions}
        disputed = doubts.disputed({}, INTERVAL, names, aggregates.measured())
        found = {one.network: one.doubt for one in disputed}
        return aggregates.table(EMPTY_TABLE, INTERVAL, names, doubts=found)

    def _taken(
        self, samples: Iterable[RoundTripSample], parameters: Parameters, table: LatencyTable = EMPTY_TABLE
    ) -> Interval:
        aggregator = SampleAggregator(self.regions, doubts=table.doubts, parameters=parameters)
        for sample in samples:
            aggregator.add(sample)
        return aggregator.take()


def merge(aggregates: Aggregates, doubts: Doubts, interval: Interval) -> None:
    """What control does with what an edge sends."""
    aggregates.merge(interval.deltas, INTERVAL)
    doubts.merge("edge", interval.witnesses, INTERVAL)


Estimates = dict[int, float]
"""Region's place in the trial → estimate in ms, or what else orders them."""


def methods(trial: Trial, parameters: Parameters) -> dict[str, Callable[[int], Estimates]]:
    """The four ways to estimate a client city's round trips."""
    cities = trial.measured.cities

    def paths(estimator: Estimator, client: int) -> Estimates:
        found = estimator.paths(location(client, cities[client]), trial.members)
        return {number: path.estimate_ms for number, path in found.items()}

    def great_circle(client: int) -> Estimates:
        here = cities[client]
        return {
            number: great_circle_km(here.lat, here.lon, region.lat, region.lon)
            for number, region in enumerate(trial.regions)
        }

    @cache
    def untrained() -> Estimator:
        return trial.estimator(parameters)

    def model(client: int) -> Estimates:
        return paths(untrained(), client)

    def neighbours(client: int) -> Estimates:
        here = cities[client]
        others = [other for other in range(len(cities)) if other != client]
        others.sort(
            key=lambda other: great_circle_km(here.lat, here.lon, cities[other].lat, cities[other].lon)
        )
        return paths(trial.estimator(parameters, others[:NEAREST]), client)

    def own_samples(client: int) -> Estimates:
        return paths(trial.estimator(parameters, [client]), client)

    return {
        "great_circle": great_circle,
        "model": model,
        "neighbours": neighbours,
        "own_samples": own_samples,
    }


def regrets(trial: Trial, clients: Iterable[int], estimate: Callable[[int], Estimates]) -> list[float]:
    """Each client's regret in ms."""
    found = []
    for client in clients:
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
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--half", choices=("reporting", "tuning"), default="reporting")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    arguments = parser.parse_args()

    measured = load(arguments.rtt)
    summaries = {}
    for seed in arguments.seeds:
        found = run(measured, arguments.half, arguments.regions, arguments.trials, seed)
        summaries[seed] = {name: summary(each) for name, each in found.items()}
        print(
            f"{len(measured.cities)} cities, clients in the {arguments.half} half, {arguments.trials} trials of "
            f"{arguments.regions} regions, seed {seed}"
        )
        for name, numbers in summaries[seed].items():
            ratio = numbers["mean_ms"] / summaries[seed]["great_circle"]["mean_ms"]
            print(
                f"{name:<14} mean {numbers['mean_ms']:6.2f} ms ({ratio:.2f} ×), p95 {numbers['p95_ms']:6.1f} ms, "
                f"exact {numbers['exact']:.3f}"
            )
    if arguments.json:
        print(json.dumps(summaries))


def run(measured: Measured, half: str, regions: int, trials: int, seed: int) -> dict[str, list[float]]:
    """The regrets of each way to choose, over all trials of a seed."""
    clients = [number for number, city in enumerate(measured.cities) if tuning(city) is (half == "tuning")]
    parameters = fit(measured)
    rng, noise = random.Random(seed), random.Random(seed)
    found: dict[str, list[float]] = {}
    for _ in range(trials):
        trial = Trial(measured, rng.sample(range(len(measured.cities)), regions), noise)
        for name, estimate in methods(trial, parameters).items():
            found.setdefault(name, []).extend(regrets(trial, clients, estimate))
    return found


if __name__ == "__main__":
    main()
