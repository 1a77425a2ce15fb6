"""What balancers of one region gain from telling each other: `python tests/bench/siblings_sim.py [--trace FILE] [--half second] [--seed 1]`.

2, 4 and 8 balancers share a region's requests at random, with gtm's own choosing, counting and sharing of slots; what finds no slot waits in
the balancer (`balancer_world.py` says what a server is):

  alone     each knows its own requests, and takes all slots for its own
  scraped   so, and asks servers each second how many requests they have: what is known without words
  told      each tells the others as `gtm.core.balance.sharing` has it, and is heard 20 ms later
  one       one balancer for all: who knows everything at once

  tail      16 servers, one request at a time; 95 % take 0.2 s and 5 % 12 s
  trace     8 servers of 8 slots, half a trace of TIMESTAMP, ContextTokens, GeneratedTokens; times are those to the first token

`cv` is as in `balancer_sim.py`; `beyond`: requests that were at a server beyond its slots, in parts of all. The last line is JSON: scenario → policy → {"p50_s",
"p99_s", "cv", "beyond"}.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from gtm.core.balance.sharing import LOOK_EVERY, Sharing, SlotUse, due
from tests.bench.balancer_sim import poisson, traced
from tests.bench.balancer_world import WARM_UP, Job, Machine, Way, _Balancer, _World

SETTLE_TICKS = 5
SCRAPE_S = 1.0
COUNTS = (2, 4, 8)
LOADS = (0.8,)


@dataclass(frozen=True, slots=True)
class Scene:
    """Servers, requests for a load, what is asked of them."""

    machines: Sequence[Machine]
    jobs: Callable[[float], Sequence[Job]]
    first_token: bool


class _Member:
    """What one balancer knows of slots."""

    def __init__(self, name: str) -> None:
        self.sharing = Sharing(name)
        self.running = 0
        self.told: SlotUse | None = None
        self.told_at = -inf


class Region(_World):
    """The servers, the balancers and what these tell each other."""

    def __init__(self, machines: Sequence[Machine], way: Way, seed: int, since: float) -> None:
        super().__init__(machines, way, seed, since)
        self.limit = sum(machine.slots for machine in machines)
        self.members = {id(one): _Member(f"{number}") for number, one in enumerate(self.balancers)}
        self.ticks = 0
        self.sent = 0
        self.beyond = 0

    def tick(self, now: float) -> None:
        """Words that were told at the last look arrive; then those that are due are told, and who waits looks again."""
        self.ticks += 1
        if self.way.sees:
            for balancer in self.balancers:
                member = self.members[id(balancer)]
                use = SlotUse(member.running, len(balancer.queue))
                if due(member.told, use, now - member.told_at):
                    member.told, member.told_at = use, now
                    member.sharing.tell(use, now)
                    loads = balancer.flights.tell()
                    for other in self.balancers:
                        if other is not balancer:
                            self.members[id(other)].sharing.heard(
                                member.sharing.member,
                                {member.sharing.member: use},
                                now,
                                f"{member.sharing.member}/balancer",
                            )
                            other.flights.told(member.sharing.member, loads, now)
        if self.ticks % SETTLE_TICKS == 0:
            for balancer in self.balancers:
                balancer.flights.settle(now)
        for balancer in self.balancers:
            self.serve(balancer, now)

    def serve(self, balancer: _Balancer, now: float) -> None:
        """Send what waits, as far as there is room."""
        while balancer.queue and self.send(balancer, balancer.queue[0], now):
            balancer.queue.popleft()

    def ended(self, balancer: _Balancer) -> None:
        """See there: it has room again."""
        self.members[id(balancer)].running -= 1

    def send(self, balancer: _Balancer, job: Job, now: float) -> bool:
        """See there; within this balancer's share of the slots."""
        member = self.members[id(balancer)]
        if member.running >= member.sharing.share(self.limit, now, balancer.costs.mean):
            return False
        if not super().send(balancer, job, now):
            return False
        member.running += 1
        self.sent += 1
        number = self.played.busy[-1][0]
        self.beyond += len(self.inside[number]) > self.machines[number].slots
        return True


def play(jobs: Sequence[Job], machines: Sequence[Machine], way: Way, seed: int) -> dict[str, float]:
    """Serve the jobs. Times are measured of all but the first tenth."""
    since = jobs[int(WARM_UP * len(jobs))].at
    region = Region(machines, way, seed, since)
    ticks = scraped = 0
    end = jobs[-1].at

    def until(now: float) -> None:
        nonlocal ticks, scraped
        while (ticks + 1) * LOOK_EVERY <= now:
            ticks += 1
            at = ticks * LOOK_EVERY
            region.finish_until(at)
            region.tick(at)
            if way.scrape is not None and at >= (scraped + 1) * way.scrape:
                scraped += 1
                region.scrape(at)

    for job in jobs:
        until(job.at)
        region.finish_until(job.at)
        region.arrive(job)
    while any(balancer.queue for balancer in region.balancers):
        end += 1.0
        until(end)
    region.finish_until(inf)
    region.played.span = (since, jobs[-1].at)
    return {"played": region.played, "beyond": region.beyond / region.sent}  # type: ignore[dict-item]


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", type=Path, help="a trace of TIMESTAMP, ContextTokens, GeneratedTokens")
    parser.add_argument("--half", choices=("first", "second"), default="second")
    parser.add_argument("--requests", type=int, default=4_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    scenes = {
        "tail": Scene(
            [Machine()] * 16, lambda rho: poisson(rho, 16, given.requests, given.seed), first_token=False
        )
    }
    if given.trace is not None:
        jobs = traced(given.trace, given.half, 64, given.requests)
        scenes["trace"] = Scene([Machine(slots=8)] * 8, jobs, first_token=True)
    base = Way(costs="learned", slots=True, holds=True)
    ways = {"one": base}
    for count in COUNTS:
        ways[f"told, {count}"] = replace(base, balancers=count, sees=True)
        ways[f"scraped, {count}"] = replace(base, balancers=count, scrape=SCRAPE_S)
        ways[f"alone, {count}"] = replace(base, balancers=count)
    result: dict[str, dict[str, dict[str, float]]] = {}
    for name, scene in scenes.items():
        for rho in LOADS:
            print(f"\n{name}, ρ={rho}")
            for policy, way in ways.items():
                found = play(scene.jobs(rho), scene.machines, way, given.seed)
                played = found["played"]
                told = {
                    "p50_s": played.quantile(0.5, first_token=scene.first_token),  # type: ignore[attr-defined]
                    "p99_s": played.quantile(0.99, first_token=scene.first_token),  # type: ignore[attr-defined]
                    "cv": played.cv(scene.machines),  # type: ignore[attr-defined]
                    "beyond": found["beyond"],
                }
                told = {key: round(value, 3) for key, value in told.items()}
                result.setdefault(f"{name}, ρ={rho}", {})[policy] = told
                print(f"  {policy:12} " + "  ".join(f"{key} {value:7.3f}" for key, value in told.items()))
                sys.stdout.flush()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
