"""An edge that carries, beside Envoy and HAProxy as the extra hop before the same balancer: `python tests/bench/carry_bench.py [--rounds 3] [--seconds 2]`.

All hops run at once before one `gtm balancer`, which stands before four model servers in C, and are loaded one after the other, in turns. `direct` asks the balancer itself. Each hop has one
core; load, balancer and model servers share the other. Processor time is the hop's own process's (of the edge its HTTP worker), less what it takes idle; added
latency is at a fixed rate, less that of `direct`. Loads are those of `balancer_bench.py`.

    chat     short chat completions with an API key, 64 connections: as many as are served; then at a fixed rate
    streams  N streams × 50 tokens a second, an event each: processor time and added latency of a chunk, and the memory that an open stream takes

The last line is one JSON object: hop → figures; medians of the rounds, beside `range` with the least and the most.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from balancer_bench import CONNECTIONS, DIRECT, Bench, Figures, backends, cell, compiled, resident, summary
from balancer_peers import MODEL, AbsentError, Running, Start, envoy, haproxy
from measure import CLIENT_CORE, SERVER_CORE, missing

from tests.drills.carrying import CarriedWorld, carrying
from tests.system.balancers import HOST

EDGE = "gtm edge"
OTHERS: dict[str, Start] = {"haproxy": haproxy, "envoy": envoy}
STREAMS = 250
"""Open streams by which memory is measured."""


@contextmanager
def _region(folder: Path, ports: list[int]) -> Iterator[CarriedWorld]:
    """The edge on the one core, the balancer on the other."""
    servers = [{"url": f"http://127.0.0.1:{port}", "slots": 4096, "models": [MODEL]} for port in ports]
    file = {"service": "chat", "backends": servers}
    folder.mkdir()
    with carrying(
        folder, {"fra": file}, host=HOST, service={"on_unusable": "ignore_health"}
    ) as world:  # a busy machine is no dead region
        os.sched_setaffinity(world.balancers["fra"].popen.pid, {int(CLIENT_CORE)})
        os.sched_setaffinity(_worker(world), {int(SERVER_CORE)})
        yield world


def _worker(world: CarriedWorld) -> int:
    """The process of the edge that answers HTTP."""
    (found,) = world.system.processes("gtm.runtime.edge.worker http-")
    return found


def _memory(program: Path, running: Running) -> Figures:
    """Bytes that a stream takes while it is open."""
    Bench(program, running, 0.5, "").load("chat", CONNECTIONS)
    time.sleep(1.0)
    before = resident(running.pid)
    command = [
        "taskset",
        "-c",
        CLIENT_CORE,
        str(program),
        str(running.port),
        "stream",
        str(STREAMS),
        "2",
        "1",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        grown = resident(running.pid) - before
        kept = json.loads(process.stdout.readline())["kept"]
    return {"kb_a_stream": grown / 1024 / max(1, kept)}


def _told(result: dict[str, dict[str, object]], levels: list[int], versions: dict[str, str]) -> None:
    """Print the table, and how many times as much the edge takes."""
    columns = [("rps", 0), ("cpu_us_per_request", 1), ("cpu_us_per_request_at_rate", 1)]
    columns += [("added_p50_ms", 2), ("added_p99_ms", 2), ("get_rps", 0), ("cpu_us_per_get", 1)]
    for level in levels:
        columns += [(f"cpu_us_per_chunk_{level}", 1), (f"chunk_added_p50_ms_{level}", 2)]
        columns += [(f"chunk_added_p99_ms_{level}", 2), (f"kept_{level}", 0)]
    columns += [("kb_a_stream", 1), ("errors", 0)]
    print("| | " + " | ".join(f"{name} {versions.get(name, '')}".strip() for name in result) + " |")
    print("|---|" + "---:|" * len(result))
    for key, places in columns:
        print(f"| {key} | " + " | ".join(cell(result, name, key, places) for name in result) + " |")
    costs = [key for key, _ in columns if "cpu" in key or key == "kb_a_stream"]
    for other in OTHERS:
        if other not in result:
            continue
        pairs = {key: (result[EDGE].get(key), result[other].get(key)) for key in costs}
        ratios = {
            key: round(mine / theirs, 2)
            for key, (mine, theirs) in pairs.items()
            if isinstance(mine, int | float) and isinstance(theirs, int | float) and theirs
        }
        print(f"{EDGE} ÷ {other}: {ratios}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each measurement")
    parser.add_argument("--rate", type=float, default=300.0, help="requests a second at the fixed rate")
    parser.add_argument("--streams", type=int, nargs="+", default=[50, 250, 1000])
    options = parser.parse_args()
    if absent := missing("taskset", "cc"):
        parser.error(f"not installed: {', '.join(absent)} (make bench-tools)")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    program = compiled("balancer_load", "-lm")
    rounds: dict[str, list[Figures]] = defaultdict(list)
    loads = [os.getloadavg()[0]]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="carry-bench-")))
        folder.chmod(0o755)  # a server may give up its rights
        ports = stack.enter_context(backends(compiled("balancer_backend")))
        world = stack.enter_context(_region(folder / "gtm", ports))
        edge = int(world.system.edge.rpartition(":")[2])
        every = {DIRECT: Running(world.ports["fra"], 0, ""), EDGE: Running(edge, _worker(world), "")}
        for name, start in OTHERS.items():
            (folder / name).mkdir()
            try:
                every[name] = stack.enter_context(start([world.ports["fra"]], folder / name))
            except AbsentError as error:
                print(f"not measured: {name}: {error}", flush=True)
        memory = {name: _memory(program, one) for name, one in every.items() if name != DIRECT}
        measured = {name: Bench(program, one, options.seconds, name) for name, one in every.items()}
        for number in range(options.rounds):
            names = list(measured)
            first = number % len(names)
            turn = names[first:] + names[:first]
            found: dict[str, Figures] = {name: {} for name in names}
            for name in turn:
                measured[name].idle()
                found[name] |= measured[name].requests(options.rate)
            for level in options.streams:
                for name in turn:
                    found[name] |= measured[name].streams(level)
            loads.append(os.getloadavg()[0])
            print(f"round {number + 1}: load average {loads[-1]:.1f}", flush=True)
            for name in names:
                rounds[name].append(found[name])
    for name, figures in memory.items():
        rounds[name][0] |= figures
    result = summary(rounds, options.streams)
    _told(result, options.streams, {name: one.version for name, one in every.items()})
    middle = statistics.median(loads)
    print(f"load average {middle:.1f}; {os.cpu_count()} cores; Python {sys.version.split()[0]}")
    print(json.dumps({**result, "load_average": loads}))


if __name__ == "__main__":
    main()
