"""How long a dead region stays in the answers: `python tests/bench/failover_bench.py [--trials 10]`.

Starts a demo system, kills the region that serves a client, and measures until DNS and HTTP answer with another, again
and again. The bound is interval × down threshold + 1 s. The last line is one JSON object (seconds).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from tests.system.harness import System, eventually, system

CLIENT = "91.198.174.192"


def trial(running: System) -> tuple[float, float]:
    """Kill Frankfurt; the seconds until HTTP and until DNS answer with another region."""
    old = running.addresses("chat.demo.test", f"{CLIENT}/24")
    running.demo("fail", "eu-central")
    begin = time.monotonic()
    waiting: dict[str, Callable[[], bool]] = {
        "http": lambda: running.region(service="chat", client_ip=CLIENT) != "eu-central",
        "dns": lambda: running.addresses("chat.demo.test", f"{CLIENT}/24") != old,
    }
    taken = {}
    while waiting:
        for name, gone in list(waiting.items()):
            if gone():
                taken[name] = time.monotonic() - begin
                del waiting[name]
        time.sleep(0.01)
    running.demo("restore", "eu-central")
    eventually(lambda: running.region(service="chat", client_ip=CLIENT) == "eu-central", "it is back")
    return taken["http"], taken["dns"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=10)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, system(Path(folder) / "data", "--demo") as running:
        probe = running.api("GET", "/v1/regions/eu-central").json()["probe"]
        bound = probe["interval"] * probe["down_threshold"] + 1
        taken = [trial(running) for _ in range(arguments.trials)]
    result: dict[str, object] = {"load_average": os.getloadavg()[0], "bound": bound}
    for name, values in zip(("http", "dns"), zip(*taken, strict=True), strict=True):
        result[name] = {"median": statistics.median(values), "max": max(values)}
        print(
            f"{name}: median {statistics.median(values):.2f} s, max {max(values):.2f} s, bound {bound:.1f} s"
        )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
