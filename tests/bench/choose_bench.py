"""What a choice costs: `python tests/bench/choose_bench.py [--backends 1000] [--choices 20000] [--quick]`.

`choice` and `begin` as the data plane calls them, each request's ticket ended a hundred requests later, for every pick; then by
session, by prompts of 32 blocks (997 of them, of which each eighth begins alike), with all servers full, with a server that was tried, and while conditions change (`updated` ten times a second, at a
thousand requests a second: the sets that are worked out anew are in the figures). Microseconds of processor time of a call: on a
machine that others use too, waiting for the processor is not the choice's. Exits with 1 if the
default's p99 is above the objective of 100 µs. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from gtm.core.balance.backends import Backend, Condition
from gtm.core.balance.choosing.chooser import BackendChoice, BackendPool, begin, choice, pool_of
from gtm.core.balance.choosing.prefixes import blocks
from gtm.core.balance.choosing.values import ChoosingSettings, Pick, Prefix, WantedBackend
from gtm.core.balance.flights import Flights, FlightTicket

OBJECTIVE_US = 100.0
FLYING = 100
REQUESTS_PER_CHANGE = 100


def pool(count: int, settings: ChoosingSettings | None = None, slots: int | None = 8) -> BackendPool:
    """Healthy servers of three weights."""
    backends = [Backend(f"http://backend-{number}", 1.0 + number % 3, slots) for number in range(count)]
    return pool_of(backends, {one.name: Condition(healthy=True) for one in backends}, Flights(), settings)


def measured(
    begun: BackendPool,
    choices: int,
    wanted: Callable[[int], WantedBackend],
    change: Callable[[BackendPool, int], BackendPool] | None = None,
) -> dict[str, float]:
    """Quantiles of the microseconds that one choice takes."""
    random = Random(1)
    flying: deque[FlightTicket] = deque()
    times = []
    for number in range(choices):
        if change is not None and number % REQUESTS_PER_CHANGE == 0:
            begun = change(begun, number)
        asked, draw = wanted(number), random.random()
        start = time.thread_time_ns()
        chosen = choice(begun, asked, draw)
        if isinstance(chosen, BackendChoice):
            flying.append(begin(begun, chosen.candidate, asked))
        times.append(time.thread_time_ns() - start)
        if len(flying) > FLYING:
            flying.popleft().end(1.0, number * 1e-3)
    times.sort()
    told = {"p50_us": 0.5, "p99_us": 0.99, "p999_us": 0.999}
    return {name: round(times[int(part * len(times))] / 1e3, 1) for name, part in told.items()}


def _flips(begun: BackendPool, number: int) -> BackendPool:
    """One server more, or one less, is healthy."""
    name = begun.candidates[number % len(begun.candidates)].backend.name
    return begun.updated({name: Condition(healthy=bool(number // REQUESTS_PER_CHANGE % 2))})


def full(count: int) -> BackendPool:
    """All slots taken: the search for a free one finds none."""
    found = pool(count, slots=1)
    for one in found.candidates:
        one.flight.begin(1.0)
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", type=int, default=1000)
    parser.add_argument("--choices", type=int, default=20_000)
    parser.add_argument("--quick", action="store_true", help="a tenth of the choices")
    given = parser.parse_args()
    count, choices = given.backends, given.choices // (10 if given.quick else 1)
    plain, tried = (
        WantedBackend("llama", cost=2.0),
        WantedBackend("llama", tried=frozenset({"http://backend-1"})),
    )
    session = [WantedBackend("llama", key=f"session {number}") for number in range(997)]
    result = {
        pick.value: measured(pool(count, ChoosingSettings(pick=pick)), choices, lambda _: plain)
        for pick in Pick
    }
    result["p2c, by session"] = measured(pool(count), choices, lambda number: session[number % 997])
    talks = [
        WantedBackend("llama", prefix=blocks(f"{number % 8:032} {number:031}".encode() * 16, 32))
        for number in range(997)
    ]
    for name, one in (("hash", Prefix.HASH), ("map", Prefix.MAP)):
        chosen = pool(count, ChoosingSettings(prefix=one))
        result[f"p2c, prompts by {name}"] = measured(chosen, choices, lambda number: talks[number % 997])
    result["p2c, all are full"] = measured(full(count), choices, lambda _: plain)
    result["p2c, one was tried"] = measured(pool(count), choices, lambda _: tried)
    result["p2c, health changes"] = measured(pool(count), choices, lambda _: plain, _flips)
    for name, told in result.items():
        print(f"{name:24}" + "  ".join(f"{key} {value:8.1f}" for key, value in told.items()))
    print(json.dumps({"backends": count, "objective_us": OBJECTIVE_US, **result}))
    return 0 if result[Pick.P2C.value]["p99_us"] <= OBJECTIVE_US else 1


if __name__ == "__main__":
    sys.exit(main())
