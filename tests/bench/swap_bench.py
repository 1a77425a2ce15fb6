"""What a new plan each second costs DNS answers: `python tests/bench/swap_bench.py [--networks 10000] [--json]`.

Answers queries with client subnets (Zipf over the networks) in this process, without sockets: with one state of the
world throughout, and with a new plan after every 100,000 queries, which is about a second's worth. Prints the cost of a
query in each case, the slowest thousand queries after a swap, and the ratio. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from dataclasses import replace
from pathlib import Path

import dns.edns
import dns.message

sys.path.insert(0, str(Path(__file__).parent))

from bench_view import current_view

from gtm.core.model.state import ClassPlan, Plan
from gtm.dns.answer.answerer import Answerer
from gtm.feed.wire import StateMessage
from gtm.geoip.reader import Locator
from gtm.telemetry import Counts

PER_SWAP = 100_000


def packets(networks: int, generator: random.Random) -> list[bytes]:
    """A query for each of so many /24 networks."""
    made = []
    while len(made) < networks:
        first = generator.randrange(1, 224)
        if first in (10, 127):
            continue
        address = f"{first}.{generator.randrange(256)}.{generator.randrange(256)}.0"
        query = dns.message.make_query(
            generator.choice(("chat.demo.test", "web.demo.test")),
            "A",
            use_edns=0,
            payload=1232,
            options=[dns.edns.ECSOption(address, 24)],
        )
        made.append(query.to_wire())
    return made


class World:
    """A current View, the Answerer that follows it, and plans for every class that was asked for."""

    def __init__(self) -> None:
        self.current = current_view()
        self.locator = Locator(None, None)
        assert self.current.router is not None
        self.counts = Counts()
        self.answerer = Answerer(self.current.router, self.locator.locate, self.counts)

    def swap(self, epoch: int) -> float:
        """Take in a state with a plan that differs from the last one; seconds it took."""
        begin = time.perf_counter()
        classes = {key.split("\t")[5] for key in self.counts if key.startswith("demand\t")}
        state = self.current.state
        plan = Plan(float(epoch), {key: self._plan(key, epoch) for key in classes})
        self.current.apply(StateMessage(replace(state, epoch=epoch, plan=plan)))
        assert self.current.router is not None
        self.answerer = Answerer(self.current.router, self.locator.locate, self.counts, self.answerer)
        return time.perf_counter() - begin

    def _plan(self, key: str, epoch: int) -> ClassPlan:
        first, *others = key.split("|")[2].split(">")
        share = 0.9 - 0.01 * (epoch % 5)
        return ClassPlan({first: share, others[0]: 1 - share} if others else {first: 1.0})


def run(world: World, queries: list[bytes], *, swaps: bool, epoch: int) -> tuple[float, float, float]:
    """Mean µs a query, µs a query in the first thousand after each swap, and seconds a swap."""
    total = first = swapping = 0.0
    rounds = len(queries) // PER_SWAP
    for number in range(rounds):
        if swaps:
            swapping += world.swap(epoch + number)
        answer = world.answerer.answer
        begin = time.perf_counter()
        for at, packet in enumerate(queries[number * PER_SWAP : (number + 1) * PER_SWAP]):
            if at == 1000:
                first += time.perf_counter() - begin
            answer(packet, "192.0.2.1", tcp=False, draw=0.5)
        total += time.perf_counter() - begin
    return 1e6 * total / len(queries), 1e6 * first / (1000 * rounds), swapping / max(1, rounds)


def main() -> None:
    """Print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=6, help="swaps, of 100,000 queries each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the last line only")
    options = parser.parse_args()
    generator = random.Random(options.seed)
    known = packets(options.networks, generator)
    weights = [1 / rank for rank in range(1, len(known) + 1)]
    queries = generator.choices(known, weights, k=options.seconds * PER_SWAP)
    world = World()
    for packet in known:
        world.answerer.answer(packet, "192.0.2.1", tcp=False, draw=0.5)
    world.swap(10)  # both runs split classes by a plan
    still = run(world, queries, swaps=False, epoch=0)
    moving = run(world, queries, swaps=True, epoch=11)
    classes = len(world.current.state.plan.classes)
    result = {
        "networks": options.networks,
        "classes": classes,
        "still_us": round(still[0], 2),
        "swapping_us": round(moving[0], 2),
        "ratio": round(moving[0] / still[0], 3),
        "after_swap_us": round(moving[1], 2),
        "swap_ms": round(1e3 * moving[2], 2),
    }
    if not options.json:
        print(f"{options.networks} networks in {classes} ranking classes")
        print(f"one state:              {result['still_us']:.2f} µs a query")
        print(f"a new plan each second: {result['swapping_us']:.2f} µs a query ({result['ratio']} ×)")
        print(
            f"first 1,000 after each: {result['after_swap_us']:.2f} µs a query; the swap: {result['swap_ms']} ms"
        )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
