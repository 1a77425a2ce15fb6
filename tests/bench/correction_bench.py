"""What corrections by free slots cost a request over HTTP: `python tests/bench/correction_bench.py [--rounds 200000]`.

Prints CPU microseconds of `ResolvedRequest.pick` on the demo world, without corrections, and with them while no region says
anything, while the region that the plan chose has room, while all are full, and while requests are moved; reports come ten times a
second of the loop's own time. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from bench_view import current_view

from gtm.core.balance.spill.room import Room, Slots
from gtm.core.model.requests import Location
from gtm.feed.current import CurrentView
from gtm.geoip.client import ClientAddress
from gtm.http.answers.corrections import Corrections
from gtm.http.answers.routes import ResolvedRequest, Routes
from gtm.http.requests.lookup import Lookup
from gtm.telemetry import Counts

_BERLIN = Location("DE", None, "EU", 52.5, 13.4, 3320, "81.2.69.0/24", 24, "geoip")


def resolved(current: CurrentView, corrections: Corrections | None) -> ResolvedRequest:
    """A request for the demo's free service."""
    routes = Routes(current.router, lambda _: _BERLIN, corrections=corrections)
    return routes.resolve(Lookup("web"), ClientAddress.plain("81.2.69.142"), "/v1/route")


def microseconds(current: CurrentView, asked: ResolvedRequest, slots: dict[str, Slots], rounds: int) -> float:
    """CPU µs of one pick; what is said comes anew every 5,000 requests, some 0.1 s of a worker that does nothing else."""
    began = time.process_time()
    for number in range(rounds):
        if slots and number % 5_000 == 0:
            now = current.boot()
            current.rooms = {name: (Room("balancer", 0.0, number, now, one),) for name, one in slots.items()}
        asked.pick()
    return 1e6 * (time.process_time() - began) / rounds


def main() -> None:
    """All cases, five turns each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200_000)
    rounds = parser.parse_args().rounds
    current = current_view()
    assert current.router is not None
    regions = [region.name for region in current.router.view.snapshot.regions]
    drawn = resolved(current, None).pick().region
    assert drawn is not None
    full, free = Slots(0, 50, 3), Slots(1e9, 1e9)
    cases: dict[str, tuple[bool, dict[str, Slots]]] = {
        "without": (False, {}),
        "nothing_known": (True, {}),
        "room_here": (True, dict.fromkeys(regions, free)),
        "all_full": (True, dict.fromkeys(regions, full)),
        "moved": (True, {**dict.fromkeys(regions, free), drawn: full}),
    }
    turns: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(5):
        for name, (corrects, slots) in cases.items():
            current.rooms = {}
            corrections = Corrections(current, Counts(), name="bench") if corrects else None
            turns[name].append(microseconds(current, resolved(current, corrections), slots, rounds))
    found = {name: round(statistics.median(several), 3) for name, several in turns.items()}
    for name, cost in found.items():
        print(f"{name:14} {cost:6.3f} µs  (+{cost - found['without']:.3f})")
    print(json.dumps({"regions": len(regions), "us": found}))


if __name__ == "__main__":
    main()
