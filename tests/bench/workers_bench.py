"""What more workers give on this machine: `python tests/bench/workers_bench.py [--rounds 3] [--seconds 3] [--workers 1,2]`.

`gtm balancer --workers N` before the model servers in C of `balancer_bench.py`, all of them run at once and loaded in turns by 64 connections that
are kept, with short chat completions as fast as they are answered. Nothing is bound to a core: load, model servers and workers share all that
there are. The last line is JSON: workers → {"rps", "p50_ms", "p99_ms", "cpu_us_per_request"}; medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from tests.ports import free_port

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from tests.bench.balancer_bench import backends, compiled
from tests.bench.measure import cpu_seconds
from tests.system.balancers import LoneBalancer, lone_balancer

CONNECTIONS = 64


def load(program: Path, of: LoneBalancer, seconds: float) -> dict[str, float]:
    """One turn."""
    command = [str(program), str(of.port), "chat", str(CONNECTIONS), "0.5", str(seconds), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "begin\n":
            raise SystemExit("the load ended")
        before = cpu_seconds(of.process.popen.pid)
        seen = json.loads(process.stdout.readline())
        spent = cpu_seconds(of.process.popen.pid) - before
    count = seen["answers"]
    return {
        "rps": count / seen["seconds"],
        "p50_ms": seen["p50_us"] / 1000,
        "p99_ms": seen["p99_us"] / 1000,
        "cpu_us_per_request": 1e6 * spent / count,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--workers", default="1,2")
    given = parser.parse_args()
    program = compiled("balancer_load", "-lm")
    found: dict[str, list[dict[str, float]]] = {}
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports = stack.enter_context(backends(compiled("balancer_backend")))
        file = home / "balancer.yaml"
        rows = [{"url": f"http://127.0.0.1:{port}", "slots": 4096} for port in ports]
        file.write_text(json.dumps({"service": "chat", "backends": rows}))
        running: dict[str, LoneBalancer] = {}
        for count in given.workers.split(","):
            places = {"fra": free_port(), "iad": free_port()}
            arguments = ("--file", str(file), "--workers", count, "--log-level", "warning")
            (home / count).mkdir()
            running[count] = stack.enter_context(lone_balancer(home / count, "fra", places, *arguments))
        for _ in range(given.rounds):
            for count, of in running.items():
                found.setdefault(count, []).append(load(program, of, given.seconds))
                print(count, found[count][-1], flush=True)
    print(
        json.dumps(
            {
                count: {key: round(median(one[key] for one in rounds), 3) for key in rounds[0]}
                for count, rounds in found.items()
            }
        )
    )


if __name__ == "__main__":
    main()
