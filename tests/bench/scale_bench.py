"""What a large policy costs: `python tests/bench/scale_bench.py [--regions 1000 --services 1000 --rules 10000]`.

Compiles a generated policy (seeded), looks for what is probably not meant in it, joins a State, and decides cold and
remembered. The last line is one JSON object
(seconds).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable
from typing import TypeVar

from gtm.core.decision.router import Router
from gtm.core.decision.view import Window, view_of
from gtm.core.findings.report import findings
from gtm.core.model.countries import COUNTRIES
from gtm.core.model.policy import Match, Places, Policy, ResidencyRule
from gtm.core.model.regions import Endpoint, Region
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Member, Service
from gtm.core.model.state import EndpointHealth, HealthStatus, State
from gtm.core.policy.compile import compile_policy
from gtm.documents.jurisdictions import shipped_jurisdictions

T = TypeVar("T")


def large_policy(regions: int, services: int, members: int, rules: int) -> Policy:
    """Regions all over the world, services over some of them, rules about some clients of one service each."""
    generator = random.Random(1)
    countries = sorted(COUNTRIES)
    names = [f"r{number}" for number in range(regions)]
    return Policy(
        regions=tuple(
            Region(
                name,
                generator.uniform(-60, 70),
                generator.uniform(-180, 180),
                generator.choice(countries),
                (Endpoint(f"https://{name}.example.com"),),
            )
            for name in names
        ),
        services=tuple(
            Service(
                f"s{number}", tuple(Member(name) for name in generator.sample(names, min(members, regions)))
            )
            for number in range(services)
        ),
        residency_rules=tuple(
            ResidencyRule(
                f"rule{number}",
                Match(services=(f"s{number % services}",), client_countries=(generator.choice(countries),)),
                deny=Places(regions=(generator.choice(names),)),
            )
            for number in range(rules)
        ),
    )


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """A result, and the seconds it took."""
    begin = time.perf_counter()
    return work(), time.perf_counter() - begin


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("regions", 1000), ("services", 1000), ("members", 50), ("rules", 10_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    policy = large_policy(given.regions, given.services, given.members, given.rules)
    snapshot, compiling = timed(lambda: compile_policy(policy, shipped_jurisdictions(), revision=1))
    _, finding = timed(lambda: findings(snapshot, 0.0))
    health = {
        region.name: {endpoint.url: EndpointHealth(HealthStatus.UP) for endpoint in region.endpoints}
        for region in policy.regions
    }
    view, joining = timed(lambda: view_of(snapshot, State(1, "", health), Window(0, 0)))
    router = Router(view)
    request = Request("s0", Location("DE", lat=50.0, lon=8.0))
    _, cold = timed(lambda: router.decide(request, 0.5))
    _, warm = timed(lambda: [router.decide(request, 0.5) for _ in range(10_000)])
    result = {
        "compile": compiling,
        "findings": finding,
        "view_of": joining,
        "cold": cold,
        "cached": warm / 10_000,
    }
    for name, seconds in result.items():
        print(f"{name:12} {1e3 * seconds:12.4f} ms")
    print(json.dumps({"load_average": os.getloadavg()[0], **vars(given), **result}))


if __name__ == "__main__":
    main()
