"""What an estimate costs: `python tests/bench/latency_speed.py`.

Regions, places and clients are spread evenly over the Earth, which is the worst case for what is remembered by place:
real clients share few places. Times are of this process's CPU. The last line is one JSON object.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable

from gtm.core.latency.estimator import Estimator
from gtm.core.latency.table import LatencyTable
from gtm.core.model.regions import Region
from gtm.core.model.requests import Location

CLIENTS = 2_000
MEMBERS = range(7)


def regions(rng: random.Random, count: int) -> list[Region]:
    """Regions anywhere between 50° S and 60° N."""
    return [
        Region(f"region-{number}", rng.uniform(-50, 60), rng.uniform(-180, 180), "DE", ())
        for number in range(count)
    ]


def table(rng: random.Random, every: list[Region], rows: int) -> LatencyTable:
    """Round trips between all regions, and rows for networks, places and operators of up to five regions each."""
    names = [region.name for region in every]

    def row() -> dict[str, tuple[float, float]]:
        return {name: (rng.gauss(0, 20), 30.0) for name in rng.sample(names, min(5, len(names)))}

    return LatencyTable(
        version=1,
        mutual={one: {other: rng.uniform(20, 300) for other in names if other != one} for one in names},
        networks={f"10.{number // 256}.{number % 256}.0/24": row() for number in range(rows // 2)},
        asns={f"{number}|DE": row() for number in range(1, rows // 10)},
        countries={"DE": row()} if rows else {},
        places={f"{rng.randrange(-50, 65)},{rng.randrange(-180, 180)}": row() for _ in range(rows // 3)},
    )


def clients(rng: random.Random, rows: int) -> list[Location]:
    """Clients of networks that the table has, if it has any."""
    found = []
    for _ in range(CLIENTS):
        number = rng.randrange(max(1, rows // 2))
        network = f"10.{number // 256}.{number % 256}.0/24"
        lat, lon = round(rng.uniform(-50, 60), 4), round(rng.uniform(-180, 180), 4)
        found.append(Location("DE", None, None, lat, lon, 1 + number % max(1, rows // 10), network))
    return found


def microseconds(call: Callable[[Location], object], over: list[Location]) -> float:
    """CPU time of one call, on average."""
    begin = time.process_time()
    for location in over:
        call(location)
    return (time.process_time() - begin) / len(over) * 1e6


def measure(count: int, rows: int) -> dict[str, float]:
    """The costs with so many regions and rows, each the least of five runs."""
    rng = random.Random(1)
    every = regions(rng, count)
    known = table(rng, every, rows)
    asking = clients(rng, rows)
    runs: list[tuple[float, float, float, float]] = []
    alive: list[Estimator] = []
    for _ in range(5):
        begin = time.process_time()
        estimator = Estimator(every, known)
        built = (time.process_time() - begin) * 1e3
        alive.append(estimator)  # or the next build would pay for the end of this one
        runs.append(
            (
                built,
                microseconds(lambda location, using=estimator: using.paths(location, MEMBERS), asking),
                microseconds(lambda location, using=estimator: using.paths(location, MEMBERS), asking),
                microseconds(estimator.seen, asking),
            )
        )
    build, new, seen, key = (round(min(each), 2) for each in zip(*runs, strict=True))
    return {"build_ms": build, "new_place_us": new, "place_seen_us": seen, "key_us": key}


def main() -> None:
    """Measure and print."""
    found = {
        f"{count} regions, {rows} rows": measure(count, rows)
        for count, rows in ((7, 0), (7, 3_000), (100, 5_000))
    }
    for name, costs in found.items():
        print(name, *(f"{what} {cost}" for what, cost in costs.items()), sep="  ")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
