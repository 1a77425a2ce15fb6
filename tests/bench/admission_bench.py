"""What admission costs, and what it does in a burst: `python tests/bench/admission_bench.py [--json]`.

Cost: an offer and a release where a slot is free, with nothing limited and with every limit of a tenant set; and an offer that waits,
and a release that lets another begin, with 1,000 and 10,000 waiting of 1,000 tenants; and with a full queue, where one of them
gives way. Burst: batch work comes eight times as much for a minute; beside it, the same requests without tiers. The last line is
one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[2]))

from gtm.core.balance.admission.admission import Admission
from gtm.core.balance.admission.settings import AdmissionSettings, TenantLimits
from gtm.core.balance.admission.values import Arrival, Ticket, Used
from gtm.core.model.services import Priority
from tests.bench.admission_world import burst_of_batch

ROUNDS = 7
TENANTS = 1000
LIMITED = TenantLimits(1.0, 1e9, None, 10**9, 1e12, 1e12)


def _timed(count: int, work: object) -> float:
    """Microseconds of CPU of one of `count` calls, the least of some rounds: what else the machine does counts little."""
    assert callable(work)
    costs = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        work(count)
        costs.append((time.process_time() - begin) / count * 1e6)
    return min(costs)


def fast(limits: TenantLimits) -> float:
    """Offer and release, where there is room."""
    admission = Admission(AdmissionSettings(default_tenant=limits), 10**6)
    arrivals = [
        Arrival(Priority.REAL_TIME, f"t{number}", 1.0, None, 0, 10.0, 10.0) for number in range(TENANTS)
    ]
    used = Used(10.0, 5.0) if limits is LIMITED else None
    now = 0.0

    def work(count: int) -> None:
        nonlocal now
        for number in range(count):
            now += 1e-6
            ticket = admission.offer(arrivals[number % TENANTS], now)
            assert isinstance(ticket, Ticket)
            admission.release(ticket, now, used)
            admission.due(now)

    return _timed(50_000, work)


def queued(waiting: int, length: int) -> float:
    """Offer one that waits, and release one so that another begins."""
    admission = Admission(AdmissionSettings(queue_length=length), 100)
    random = Random(1)
    tiers = list(Priority)
    arrivals = [
        Arrival(random.choice(tiers), f"t{random.randrange(TENANTS)}", random.choice((1.0, 10.0)), 1e9)
        for _ in range(20_000)
    ]
    running: list[Ticket] = []
    for number in range(100 + waiting):
        ticket = admission.offer(arrivals[number], 0.0)
        if isinstance(ticket, Ticket) and not ticket.waiting:
            running.append(ticket)
    now = 0.0

    def work(count: int) -> None:
        nonlocal now
        for number in range(count):
            now += 1e-3
            admission.offer(arrivals[number % 20_000], now)
            admission.release(running.pop(), now)
            running.extend(ticket for ticket in admission.due(now) if ticket.refusal is None)

    return _timed(10_000, work)


def full(waiting: int) -> float:
    """Offer one to a full queue: it is refused, or another gives way."""
    admission = Admission(AdmissionSettings(queue_length=waiting), 10)
    random = Random(1)
    tiers = list(Priority)
    arrivals = [
        Arrival(random.choice(tiers), f"t{random.randrange(TENANTS)}", 1.0, 1e9) for _ in range(20_000)
    ]
    for number in range(waiting + 10):
        admission.offer(arrivals[number], 0.0)

    def work(count: int) -> None:
        for number in range(count):
            admission.offer(arrivals[number % 20_000], 0.0)
            admission.due(0.0)

    return _timed(10_000, work)


def burst(real_time: float, *, tiers: bool) -> dict[str, float]:
    """The worst of ten seeds."""
    found: dict[str, float] = {}
    for seed in range(10):
        outcome = burst_of_batch(seed, real_time=real_time, tiers=tiers)
        refused = sum(count for (tier, _), count in outcome.refused.items() if tier is Priority.BATCH)
        lost = sum(count for (tier, _), count in outcome.refused.items() if tier is Priority.REAL_TIME)
        for name, value in {
            "real_time_p99_before_s": outcome.quantile(Priority.REAL_TIME, "before", 0.99),
            "real_time_p99_burst_s": outcome.quantile(Priority.REAL_TIME, "burst", 0.99),
            "real_time_refused": lost / outcome.offered[Priority.REAL_TIME],
            "batch_refused": refused / outcome.offered[Priority.BATCH],
        }.items():
            found[name] = round(max(found.get(name, 0.0), value), 4)
    return found


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="only the last line")
    options = parser.parse_args()
    costs = {
        "fast_us": fast(TenantLimits()),
        "fast_limited_us": fast(LIMITED),
        "queued_1000_us": queued(1000, 10**6),
        "queued_10000_us": queued(10_000, 10**6),
        "full_1000_us": full(1000),
        "full_10000_us": full(10_000),
    }
    result: dict[str, object] = {name: round(cost, 2) for name, cost in costs.items()}
    for real_time in (15.0, 30.0):
        result[f"burst_{real_time:g}"] = burst(real_time, tiers=True)
    result["burst_15_without_tiers"] = burst(15.0, tiers=False)
    if not options.json:
        for name, value in result.items():
            print(f"{name:<24} {value}")
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
