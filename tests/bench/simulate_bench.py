"""What a simulation costs: `python tests/bench/simulate_bench.py [--cells 8000 --regions 30 --requests 10000000 --services 3 --rules 1]`.

With more than three services the policy is that of `scale_bench.py`, with ten members a service and no bounds on regions.

Spreads requests (seeded) over demand cells of several services, tenants and places all over the world, and puts them
through a policy with rules, and through the same with a region drained. Times are of the processor, because machines are shared. The
last line is one JSON object (seconds).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from gtm.core.capacity.supply import assess
from gtm.core.change.safety import judge
from gtm.core.decision.view import Window, view_of
from gtm.core.demand.cells import cell_of
from gtm.core.demand.traffic import TrafficBuilder
from gtm.core.model.countries import COUNTRIES
from gtm.core.model.policy import Policy, Tenant
from gtm.core.model.regions import AdminState, Capacity, Endpoint, Region
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Priority
from gtm.core.model.state import State
from gtm.core.policy.compile import compile_policy
from gtm.core.simulate.compare import simulate
from gtm.core.simulate.report import as_data
from gtm.core.simulate.scenario import SimulatedWorld, all_up
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.geoip.centres import country_centres
from tests import worlds
from tests.bench.scale_bench import large_policy

NOW = 1_800_000_000.0
SECONDS = 86_400.0
SERVICES = ("chat", "web", "embed")
TENANTS = ("acme", "clinic", "northwind", "contoso")


def policy(regions: int, requests: float) -> Policy:
    """Regions near countries' centres, with room for half as much again as the mean traffic."""
    draw = random.Random(1)
    centres = country_centres()
    countries = draw.sample(sorted(COUNTRIES), regions)
    slots = int(1.5 * requests / SECONDS / regions / 0.9)
    room = Capacity(outstanding=slots)
    made = [
        Region(f"r{n}", *centres[country], country, (Endpoint(f"https://r{n}.example.com"),), capacity=room)
        for n, country in enumerate(countries)
    ]
    everywhere = " ".join(region.name for region in made)
    return worlds.policy(
        *made,
        *(worlds.service(name, everywhere, service_time_ms=1000.0) for name in SERVICES),
        worlds.rule("gdpr", "EEA", services="chat", client_jurisdictions="EEA", acknowledge_empty_fence=True),
        *map(Tenant, TENANTS),
    )


def traffic(cells: int, requests: float, services: Sequence[str], tenants: Sequence[str]) -> TrafficBuilder:
    """Requests spread over so many cells, a few of which have most of them (Zipf)."""
    draw = random.Random(2)
    found: dict[str, float] = {}
    while len(found) < cells:
        place = Location(
            draw.choice(sorted(COUNTRIES)), lat=draw.uniform(-50, 70), lon=draw.uniform(-180, 180)
        )
        request = Request(draw.choice(services), place, draw.choice((None, *tenants)))
        found[cell_of(request, Priority.REAL_TIME)] = 1 / (1 + len(found))
    builder, total = TrafficBuilder(SECONDS), sum(found.values())
    for cell, part in found.items():
        builder.add(cell, requests * part / total)
    return builder


def world(found: Policy) -> SimulatedWorld:
    """A policy with everything up."""
    health = all_up(found, NOW)
    snapshot = compile_policy(found, shipped_jurisdictions())
    return SimulatedWorld(
        view_of(snapshot, State(health=health), Window(NOW, NOW)), assess(found, health, {}, NOW).supply
    )


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=8000)
    parser.add_argument("--regions", type=int, default=30)
    parser.add_argument("--requests", type=float, default=1e7)
    parser.add_argument("--services", type=int, default=len(SERVICES))
    parser.add_argument("--rules", type=int, default=1)
    asked = parser.parse_args()
    running = policy(asked.regions, asked.requests)
    if asked.services > len(SERVICES):
        running = large_policy(asked.regions, asked.services, min(10, asked.regions), asked.rules)
    first, *others = running.regions
    draft = replace(running, regions=(replace(first, admin_state=AdminState.DRAINING), *others))
    names, tenants = ([item.name for item in items] for items in (running.services, running.tenants))
    recorded = traffic(asked.cells, asked.requests, names, tenants).traffic()
    before, after = world(running), world(draft)
    began = time.process_time()
    verdict = judge(before, after, recorded.whole.rates, max_moved=1.0)
    judged = time.process_time() - began
    began = time.process_time()
    found = simulate(recorded, before, after)
    simulated = time.process_time()
    size = len(json.dumps(as_data(found, before, after)))
    ended = time.process_time()
    print(
        f"{recorded.whole.requests:,.0f} requests in {len(recorded.whole.counts):,} cells, {asked.regions} regions"
    )
    print(f"simulated in {simulated - began:.2f} s, report of {size:,} bytes in {ended - simulated:.2f} s")
    print(f"safety rules in {judged:.2f} s: {len(verdict.breaches)} broken")
    print(f"moved {found.average.moved:.2%}, refused {found.average.after.refused_rate:.2f}/s")
    print(
        json.dumps(
            {
                "simulate_s": simulated - began,
                "report_s": ended - simulated,
                "judge_s": judged,
                "moved": found.average.moved,
                "load_average": os.getloadavg()[0],
            }
        )
    )


if __name__ == "__main__":
    main()
