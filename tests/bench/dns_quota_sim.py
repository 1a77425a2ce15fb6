"""How well a planned share holds behind caching resolvers: `python tests/bench/dns_quota_sim.py [--seed 1]`.

A service with two regions and weights is asked by clients behind resolvers that keep each answer for its TTL. gtm's own
`choice` and `pick` answer, by independent draws or, with affinity by client network, by rendezvous hashing. Measured is
the share of the clients' requests that reaches the first region, over windows of 10 s and 60 s: mean, standard
deviation, 95th percentile of the error, and how long a change of weights takes to arrive. See docs/benchmarks.md.

The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from itertools import product
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from gtm.core.decision.choice import Choice, choice, pick
from gtm.core.decision.router import Ranker
from gtm.core.model.regions import Endpoint, Region
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Affinity, Member, Service, Steering
from gtm.documents.jurisdictions import shipped_jurisdictions
from tests import worlds
from tests.bench.sim_world import Flags, Floats, zipf

TTLS = (5, 30, 60, 300)
WEIGHTS = ((90, 10), (70, 30), (50, 50))
WINDOWS = (10, 60)
PLACES = ((50.11, 8.68, "DE"), (53.35, -6.26, "IE"))
CONVERGED = 0.95
"""A change has arrived when this part of it has."""


@dataclass(frozen=True, slots=True)
class Population:
    """Caches that ask gtm. `share` of all requests comes from each; `stretch` is the least TTL that it keeps, in s.

    `networks` is the client network that gtm sees: the client subnet where the resolver sends one, else its own. A cache
    that is none (`cached` false) asks anew for each request.
    """

    share: Floats
    stretch: Floats
    networks: tuple[str, ...]
    cached: bool = True


def populations(
    generator: np.random.Generator, resolvers: int, public: float, networks: int, stretched: float
) -> dict[str, Population]:
    """Four kinds of clients.

    `isp`: resolvers whose clients follow Zipf's law, a `stretched` share of which keep answers for 60 s at least. `public`:
    the share `public` of the clients uses one of four public resolvers instead, each a single cache (no client subnet).
    `public_ecs`: those send the client subnet, so that each client network has its own cache. `http`: no caches.
    """
    isp = zipf(resolvers)
    stretch = np.where(generator.random(resolvers) < stretched, 60.0, 0.0)
    giants, subnets = zipf(4) * public, zipf(networks, 0.5) * public
    rest = isp * (1 - public)

    def population(share: Floats, stretch: Floats, *, cached: bool = True) -> Population:
        names = tuple(f"{IPv4Address(0x0A00_0000 + 256 * number)}/24" for number in range(len(share)))
        return Population(share, stretch, names, cached)

    return {
        "isp": population(isp, stretch),
        "public": population(np.concatenate((rest, giants)), np.concatenate((stretch, np.zeros(4)))),
        "public_ecs": population(
            np.concatenate((rest, subnets)), np.concatenate((stretch, np.zeros(networks)))
        ),
        "http": population(isp, np.zeros(resolvers), cached=False),
    }


def choice_of(weights: Sequence[float], affinity: Affinity) -> Choice:
    """What gtm chooses from for these weights, by the whole way from policy to choice."""
    regions = tuple(
        Region(f"region-{number}", lat, lon, country, (Endpoint(f"https://region-{number}.example.com"),))
        for number, (lat, lon, country) in enumerate(PLACES)
    )
    members = tuple(Member(region.name, weight) for region, weight in zip(regions, weights, strict=True))
    service = Service("chat", members, steering=Steering.WEIGHTED, affinity=affinity)
    view = worlds.view(worlds.policy(*regions, service), shipped=shipped_jurisdictions())
    return choice(view, Ranker(view.basis).ranking(Request("chat")).group)


@dataclass(frozen=True, slots=True)
class Reached:
    """Requests: when each is made (s), whether it reaches the first region, and how old the answer it uses is (s)."""

    at: Floats
    first: Flags
    age: Floats


def ask(
    population: Population,
    chosen: Choice,
    *,
    ttl: float,
    rate: float,
    seconds: float,
    generator: np.random.Generator,
) -> Reached:
    """Requests of a population that come as a Poisson process of `rate` per s, and the answers that they use."""
    count = generator.poisson(rate * seconds)
    at = np.sort(generator.uniform(0, seconds, count))
    caches = generator.choice(len(population.share), count, p=population.share)
    keep = np.maximum(ttl, population.stretch) if population.cached else np.zeros(len(population.share))
    requests = [Request("chat", Location(network=network)) for network in population.networks]

    def answer(cache: int, draw: float) -> bool:
        return pick(chosen, requests[cache], draw).number == 0

    # The day has begun before: caches hold answers of any age.
    asked = (-generator.random(len(keep)) * keep).tolist()
    answers = [answer(cache, draw) for cache, draw in enumerate(generator.random(len(keep)).tolist())]
    first, since = [], []
    lifetime = keep.tolist()
    draws = generator.random(count).tolist()
    for now, cache, draw in zip(at.tolist(), caches.tolist(), draws, strict=True):
        if asked[cache] + lifetime[cache] <= now:
            answers[cache] = answer(cache, draw)
            asked[cache] = now
        first.append(answers[cache])
        since.append(asked[cache])
    return Reached(at, np.array(first), at - np.array(since))


def shares(reached: Reached, window: float, seconds: float) -> Floats:
    """The share of the first region in each whole window."""
    whole = int(seconds // window)
    number = (reached.at // window).astype(int)
    total = np.bincount(number, minlength=whole)[:whole]
    return np.asarray(np.bincount(number, reached.first, minlength=whole)[:whole] / np.maximum(total, 1))


def judge(reached: Reached, target: float, seconds: float) -> dict[str, float]:
    """How well the share held, and how long a change would take.

    Until `s` seconds after a change of weights, exactly those requests follow the new ones whose answer is younger than
    `s`: the change has reached 95% of them at the 95th percentile of the answers' ages.
    """
    found = {"mean": round(float(reached.first.mean()), 4)}
    for window in WINDOWS:
        each = shares(reached, window, seconds)
        found[f"sd_{window}s"] = round(float(each.std()), 4)
        found[f"p95_error_{window}s"] = round(float(np.percentile(np.abs(each - target), 95)), 4)
    found["converge_s"] = round(float(np.percentile(reached.age, 100 * CONVERGED)), 1)
    return found


def rows(given: argparse.Namespace) -> Iterator[dict[str, float | int | str]]:
    """One row per population, TTL, weights and affinity."""
    generator = np.random.default_rng(given.seed)
    everyone = populations(generator, given.resolvers, given.public, given.networks, given.stretched)
    for name, population in everyone.items():
        for ttl, weights, affinity in product(TTLS, WEIGHTS, (Affinity.NONE, Affinity.CLIENT_NETWORK)):
            if not population.cached and ttl != TTLS[0]:
                continue
            reached = ask(
                population,
                choice_of(weights, affinity),
                ttl=ttl,
                rate=given.rate,
                seconds=given.seconds,
                generator=generator,
            )
            target = weights[0] / sum(weights)
            yield {
                "population": name,
                "ttl": ttl if population.cached else 0,
                "weights": f"{weights[0]}/{weights[1]}",
                "affinity": affinity.value,
                **judge(reached, target, given.seconds),
            }


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the last line only")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the time")
    parser.add_argument("--seconds", type=float, help="of each run (3600)")
    parser.add_argument("--rate", type=float, default=100.0, help="requests per second of all clients")
    parser.add_argument("--resolvers", type=int, default=2000, help="their clients by Zipf's law")
    parser.add_argument("--public", type=float, default=0.3, help="share of clients behind public resolvers")
    parser.add_argument("--networks", type=int, default=3000, help="client networks behind public resolvers")
    parser.add_argument(
        "--stretched", type=float, default=0.1, help="share of resolvers that keep 60 s at least"
    )
    found = parser.parse_args(given)
    if found.seconds is None:
        found.seconds = 180.0 if found.quick else 3600.0
    return found


def main(given: Sequence[str] | None = None) -> None:
    """Simulate and print."""
    options = arguments(given)
    begin = time.perf_counter()
    found = []
    for row in rows(options):
        found.append(row)
        if not options.json:
            print("  ".join(f"{key} {value}" for key, value in row.items()))
    result = {
        "seed": options.seed,
        "seconds": round(time.perf_counter() - begin, 1),
        "load_average": os.getloadavg()[0],
        "rows": found,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
