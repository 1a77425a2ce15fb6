"""Where the constants of `gtm.core.latency.geographic` come from: `python tests/bench/latency_fit.py --rtt FILE`.

They are fitted to the tuning half of the cities alone: those whose name's BLAKE2b digest of one byte is even. Whatever is
tuned looks at no other; `latency_regret.py` reports on the other half.

FILE holds average round-trip times between cities, with the columns client_city, client_country, client_lat,
client_lon, server_city, server_country, server_lat, server_lon, rtt_avg_ms.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

from gtm.core.latency.geographic import Parameters, Terminal, route_km, terminal_at
from gtm.core.model.geometry import FIBRE_MS_PER_KM, arc_km


@dataclass(frozen=True, slots=True)
class City:
    """A city of the file."""

    name: str
    country: str
    lat: float
    lon: float


@dataclass(frozen=True, slots=True)
class Measured:
    """Cities in the order of their names, and the round trips between them in ms by (client, server)."""

    cities: list[City]
    rtt: dict[tuple[int, int], float]


def load(path: Path) -> Measured:
    """Read a file of round trips."""
    cities: dict[str, City] = {}
    trips: dict[tuple[str, str], float] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            for end in ("client", "server"):
                name = row[f"{end}_city"]
                cities[name] = City(
                    name, row[f"{end}_country"], float(row[f"{end}_lat"]), float(row[f"{end}_lon"])
                )
            trips[row["client_city"], row["server_city"]] = float(row["rtt_avg_ms"])
    names = sorted(cities)
    numbers = {name: number for number, name in enumerate(names)}
    return Measured(
        [cities[name] for name in names],
        {(numbers[client], numbers[server]): ms for (client, server), ms in trips.items()},
    )


def tuning(city: City) -> bool:
    """Whether a city is of the half that constants may be tuned on; the other half is for reports."""
    return blake2b(city.name.encode(), digest_size=1).digest()[0] % 2 == 0


def fit(measured: Measured) -> Parameters:
    """The line through routed distance with the least absolute deviations, from pairs of the tuning half.

    Of the two directions of a pair the quicker counts. A pair quicker than light in fibre is left out: a city is not
    where the file says. Solved by reweighted least squares.
    """
    terminals = [terminal_at(city.lat, city.lon) for city in measured.cities]
    tuned = [tuning(city) for city in measured.cities]
    pairs = [(one, other) for one, other in measured.rtt if one < other and tuned[one] and tuned[other]]
    ms = np.array([min(measured.rtt[pair], measured.rtt.get(pair[::-1], 1e9)) for pair in pairs])
    direct, km = np.array([_lengths(terminals, pair) for pair in pairs]).T
    possible = ms >= FIBRE_MS_PER_KM * direct
    ms, km = ms[possible], km[possible]
    matrix = np.column_stack([np.ones(len(km)), km])
    weights = np.ones(len(km))
    solution = np.zeros(2)
    for _ in range(100):
        solution = np.linalg.lstsq(matrix * weights[:, None] ** 0.5, ms * weights**0.5, rcond=None)[0]
        weights = 1 / np.maximum(np.abs(ms - matrix @ solution), 1.0)
    return Parameters(float(solution[0]), float(solution[1]))


def _lengths(terminals: list[Terminal], pair: Iterable[int]) -> tuple[float, float]:
    """The great circle and the way along the network, in km."""
    one, other = (terminals[number] for number in pair)
    direct = arc_km(one.point.vector, other.point.vector)
    return direct, route_km(one.point, other, direct)


def main() -> None:
    """Print the constants from the tuning half of a file."""
    parser = argparse.ArgumentParser(description="Fit the geographic model of round-trip times.")
    parser.add_argument("--rtt", type=Path, required=True, help="a file of round trips between cities")
    parameters = fit(load(parser.parse_args().rtt))
    print(f"base_ms={parameters.base_ms:.1f}, ms_per_km={parameters.ms_per_km:.5f}")


if __name__ == "__main__":
    main()
