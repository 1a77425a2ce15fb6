"""What leased quotas admit and cost: `python tests/bench/quota_bench.py [--seeds 20] [--json]`.

Plays scenes with the real ledger, lease holders and buckets on a simulated network (`quota_world.py`): calm ones for
utilisation, storms (edges that join, die and are cut off; messages lost, doubled, late; clocks 0.1 % off; control that
loses its books) for the worst ten seconds. With --json only the last line, one JSON object, is printed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from gtm.core.quota.buckets import TokenBucket
from gtm.core.quota.leases import LeaseHolder
from gtm.core.quota.ledger import LeaseLedger
from tests.bench.quota_world import STORM, Scene, play

BEGIN = 10.0
"""Seconds from which utilisation counts."""
CALM = {
    "1000/s, 8 edges × 4 workers": Scene(1000, 8, 4, seconds=40),
    "1000/s, demand jumps every 20 s": Scene(1000, 8, 4, 2.0, seconds=60, shift=20.0, skew=4.0),
    "500/s, 4 edges × 2 workers": Scene(500, 4, 2, seconds=40),
    "100/s, 4 edges × 2 workers": Scene(100, 4, 2, seconds=60),
    "20/s, 3 edges × 2 workers": Scene(20, 3, 2, seconds=120),
    "5/s, 3 edges × 2 workers": Scene(5, 3, 2, 2.0, seconds=300),
}
STORMS = [
    Scene(quota, edges, workers, 3.0, 60.0, 4.0, STORM, skew=5.0)
    for quota, edges, workers in ((1, 3, 2), (10, 5, 4), (30, 1, 1), (100, 5, 2), (300, 8, 4))
]


def ns_per_take(rate: float, calls: int = 400_000) -> float:
    """What one `take` costs, in ns, when 100,000 a second ask."""
    bucket = TokenBucket()
    bucket.lease(0.0, rate, 1e9)
    times = [number * 1e-5 for number in range(calls)]
    take = bucket.take
    begin = time.perf_counter()
    for now in times:
        take(now)
    return (time.perf_counter() - begin) / calls * 1e9


def ms_per_second(edges: int, quotas: int, seconds: int = 5) -> float:
    """What a second costs control, in ms: one round of shares, and every edge's report."""
    ledger = LeaseLedger(-100.0)
    holders = [LeaseHolder(f"{number}", 4) for number in range(edges)]
    rates = {f"rule-{number}": 1000.0 for number in range(quotas)}
    begin = time.perf_counter()
    for second in range(seconds):
        ledger.apportion(rates, float(second))
        for number, holder in enumerate(holders):
            holder.count(dict.fromkeys(rates, 5 + (number + second) % 7), {})
            holder.take(ledger.answer(f"edge-{number}", holder.use(second + 0.5), second + 0.5))
    return (time.perf_counter() - begin) / seconds * 1e3


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    worst, utilisation = 0.0, {}
    for name, scene in CALM.items():
        played = [play(scene, seed) for seed in range(given.seeds)]
        used = [one.utilisation(scene.quota, BEGIN, scene.seconds) for one in played]
        utilisation[name] = round(sum(used) / len(used), 4)
        worst = max(worst, *(one.worst(scene.quota) for one in played))
    storms = [play(scene, seed).worst(scene.quota) for scene in STORMS for seed in range(given.seeds)]
    result = {
        "seeds": given.seeds,
        "worst_ten_seconds": round(max(worst, *storms), 5),
        "storms": len(storms),
        "utilisation": utilisation,
        "ns_per_take_admitted": round(ns_per_take(2e5)),
        "ns_per_take_denied": round(ns_per_take(1e3)),
        "ms_of_control_per_second_100_edges_20_quotas": round(ms_per_second(100, 20), 1),
    }
    if not given.json:
        for name, value in result.items():
            print(f"{name:44} {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
