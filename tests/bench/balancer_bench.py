"""gtm's balancer beside others, live: `python tests/bench/balancer_bench.py [--rounds 3] [--seconds 2] [--only gtm haproxy]`.

All balancers of `balancer_peers.py` run at once in front of the same four model servers, and are loaded one after the other, in turns
(A B C, B C A, …), so that a slow minute of a shared machine hits all. The balancer has one core; load and model servers (two programs in
C, `balancer_load.c` and `balancer_backend.c`: several times cheaper than what is measured) share another. Processor time is that of
the balancer's processes from /proc, less what they take while idle. Connections are kept on both sides; each load has a warm-up.

    chat     short chat completions, 64 connections: as many as it serves; then at a fixed rate, which gives the latency that it adds
             to the model server's own (the row `direct`)
    get      the same for a short GET, as many as it serves
    streams  N streams × 50 tokens a second, an event each: processor time and added latency of a chunk, streams that flow at the end
    pairs    with `--pairs N --beside OTHER`, nothing but this: chats of 2 KB, gtm of both checkouts by turns, N slices each: the median of the
             ratios of their processor time, and the range of the middle half
    held     2,000 requests that wait for their answer: how much more memory is resident, for each; in a process that has served little

choose() alone is `choose_bench.py`. The last line is one JSON object: server → rps, added_p50_ms, added_p99_ms, cpu_us_per_request,
cpu_us_per_chunk and more; medians of the rounds, beside `range` with the least and the most.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from operator import truediv
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from balancer_peers import ALL, SLOW, AbsentError, Running, Start, own
from measure import CLIENT_CORE, cpu_seconds, listening, missing
from rich.console import Console
from rich.table import Table

from tests.ports import free_port

BENCH = Path(__file__).parent
BUILD = BENCH.parents[1] / "build" / "bench"
DIRECT, BESIDE, OTHERWISE = "direct", "gtm beside", "gtm by --python"
BACKENDS = 4
CONNECTIONS = 64
HELD = 2000
WARM = 0.5
SLOWLY = 5
"""Times longer, what is measured of those that are slow; they stand still (SIGSTOP) while it is others' turn, and get no more than"""
SLOW_STREAMS = 50
"""so many streams."""

Figures = dict[str, float]
Load = dict[str, float]


def compiled(name: str, *libraries: str) -> Path:
    """A program in C of this folder's."""
    BUILD.mkdir(parents=True, exist_ok=True)
    program = BUILD / name
    source = BENCH / f"{name}.c"
    subprocess.run(["cc", "-O2", "-Wall", "-o", str(program), str(source), *libraries], check=True)
    return program


@contextmanager
def backends(program: Path) -> Iterator[list[int]]:
    """Model servers; their ports."""
    ports = [free_port() for _ in range(BACKENDS)]
    process = subprocess.Popen(["taskset", "-c", CLIENT_CORE, str(program), *map(str, ports)])
    try:
        while not all(listening(port) for port in ports):
            time.sleep(0.05)
        yield ports
    finally:
        process.kill()
        process.wait()


def processes(pid: int) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from processes(int(child))


def signal_all(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process and all below it."""
    for one in processes(pid):
        os.kill(one, number)


def resident(pid: int) -> int:
    """Bytes of memory that a process and all below it have (proportional set size)."""
    total = 0
    for one in processes(pid):
        text = Path(f"/proc/{one}/smaps_rollup").read_text()
        total += 1024 * sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total


class Bench:
    """One balancer under load."""

    def __init__(self, program: Path, running: Running, seconds: float, name: str) -> None:
        self._program = program
        self._running = running
        self._slow = name in SLOW
        self._times = SLOWLY if self._slow else 1
        self._seconds = seconds * self._times
        self._direct = name == DIRECT
        self._idle = 0.0

    def load(
        self, mode: str, connections: int, *, rate: float = 0.0, warm: float = WARM
    ) -> tuple[Load, float]:
        """What the load saw, and the balancer's processor seconds meanwhile (less those it takes idle)."""
        command = [
            *("taskset", "-c", CLIENT_CORE, str(self._program), str(self._running.port), mode),
            *(str(connections), str(warm * self._times), str(self._seconds), str(rate)),
        ]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            if process.stdout.readline() != "begin\n":
                raise AbsentError(f"the load ended: {' '.join(command)}")
            before = self._cpu()
            line = process.stdout.readline()
            spent = self._cpu() - before
        seen: Load = json.loads(line)
        return seen, max(0.0, spent - self._idle * seen["seconds"])

    def _cpu(self) -> float:
        return 0.0 if self._direct else cpu_seconds(self._running.pid)

    def idle(self) -> None:
        """Find what it takes while nobody asks."""
        before, began = self._cpu(), time.monotonic()
        time.sleep(1.0)
        self._idle = (self._cpu() - before) / (time.monotonic() - began)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """While the block runs, it is this one's turn."""
        if self._slow:
            signal_all(self._running.pid, signal.SIGCONT)
            time.sleep(1.0)
        try:
            yield
        finally:
            if self._slow:
                signal_all(self._running.pid, signal.SIGSTOP)

    def requests(self, rate: float) -> Figures:
        """See `chat` and `get` above.

        Args:
            rate: requests a second at the fixed rate; half of what it serves if that is less.
        """
        full, spent = self.load("chat", CONNECTIONS)
        rps = full["answers"] / full["seconds"]
        at, spent_at = self.load("chat", CONNECTIONS, rate=min(rate, rps / 2))
        short, spent_short = self.load("get", CONNECTIONS)
        return {
            "rps": rps,
            "rate": min(rate, rps / 2),
            "p50_ms": at["p50_us"] / 1e3,
            "p99_ms": at["p99_us"] / 1e3,
            "cpu_us_per_request": 1e6 * spent / max(1, full["answers"]),
            "cpu_us_per_request_at_rate": 1e6 * spent_at / max(1, at["answers"]),
            "get_rps": short["answers"] / short["seconds"],
            "cpu_us_per_get": 1e6 * spent_short / max(1, short["answers"]),
            "errors": full["errors"] + at["errors"] + short["errors"],
        }

    def streams(self, count: int) -> Figures:
        """See above."""
        if self._slow and count > SLOW_STREAMS:
            return {}
        seen, spent = self.load("stream", count, warm=1.0)
        return {
            f"chunks_per_s_{count}": seen["answers"] / seen["seconds"],
            f"cpu_us_per_chunk_{count}": 1e6 * spent / max(1, seen["answers"]),
            f"chunk_p50_ms_{count}": seen["p50_us"] / 1e3,
            f"chunk_p99_ms_{count}": seen["p99_us"] / 1e3,
            f"kept_{count}": seen["kept"],
        }

    def held(self) -> Figures:
        """See above."""
        self.load("chat", CONNECTIONS)
        time.sleep(0.5)
        before = resident(self._running.pid)
        command = [str(self._program), str(self._running.port), "hold", str(HELD), "2", "0.5"]
        with subprocess.Popen(
            ["taskset", "-c", CLIENT_CORE, *command], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(1.0)
            grown = resident(self._running.pid) - before
            said, _ = process.communicate("")
        kept = json.loads(said)["kept"]
        time.sleep(1.0)
        return {"held": kept, "held_kb_each": grown / 1024 / HELD}


def wanted(options: argparse.Namespace) -> dict[str, Start]:
    """The balancers that are asked for."""
    every = dict(ALL)
    if options.beside:
        every = {"gtm": every.pop("gtm"), BESIDE: own(options.beside.resolve()), **every}
    if options.python:
        every = {"gtm": every.pop("gtm"), OTHERWISE: own(python=options.python), **every}
    return {
        name: start
        for name, start in every.items()
        if not options.only or name in (*options.only, BESIDE, OTHERWISE)
    }


def paired(one: Bench, other: Bench, pairs: int) -> None:
    """Print the ratio of the processor time that a chat of 2 KB takes at both (see above)."""
    spent: dict[Bench, list[float]] = {one: [], other: []}
    for number in range(pairs):
        for bench in (one, other) if number % 2 else (other, one):
            seen, seconds = bench.load("chat2k", CONNECTIONS, warm=0.1)
            spent[bench].append(1e6 * seconds / max(1, seen["answers"]))
    low, middle, high = statistics.quantiles(map(truediv, spent[one], spent[other]), n=4)
    print(
        f"chat of 2 KB: {statistics.median(spent[one]):.1f} µs; beside it {statistics.median(spent[other]):.1f}"
    )
    print(f"{pairs} pairs: {middle:.3f} ({low:.3f}–{high:.3f})")


@contextmanager
def alone(start: Start, ports: list[int]) -> Iterator[Running]:
    """A balancer with a directory of its own, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="balancer-bench-") as home:
        Path(home).chmod(0o755)  # a server may give up its rights
        with start(ports, Path(home)) as running:
            yield running


def memory(
    chosen: dict[str, Start], ports: list[int], measure: Callable[[Running], Figures]
) -> tuple[dict[str, Figures], dict[str, str]]:
    """What held requests take, each balancer alone in a new process; and why others are not here."""
    found, absent = {}, {}
    for name, start in chosen.items():
        try:
            with alone(start, ports) as running:
                found[name] = measure(running)
        except AbsentError as error:
            absent[name] = str(error)
            print(f"not measured: {name}: {error}", flush=True)
    return found, absent


def summary(rounds: dict[str, list[Figures]], levels: list[int]) -> dict[str, dict[str, object]]:
    """Medians of all rounds, and their ranges; added latency against the model server's own."""
    result: dict[str, dict[str, object]] = {}
    own_ms: Figures = {}
    for name, figures in rounds.items():
        keys = {key: None for one in figures for key in one}
        values = {key: [one[key] for one in figures if key in one] for key in keys}
        middle = {key: statistics.median(found) for key, found in values.items()}
        if name == DIRECT:
            own_ms = middle
        for old, new in [("p50_ms", "added_p50_ms"), ("p99_ms", "added_p99_ms")] + [
            (f"chunk_{part}_ms_{level}", f"chunk_added_{part}_ms_{level}")
            for level in levels
            for part in ("p50", "p99")
        ]:
            if old in middle:
                middle[new] = middle[old] - own_ms.get(old, 0.0)
        each = [
            middle[f"cpu_us_per_chunk_{level}"] for level in levels if f"cpu_us_per_chunk_{level}" in middle
        ]
        middle["cpu_us_per_chunk"] = each[min(len(levels) // 2, len(each) - 1)]
        result[name] = {
            **{key: round(value, 3) for key, value in middle.items()},
            "range": {key: [round(min(found), 3), round(max(found), 3)] for key, found in values.items()},
        }
    return result


def cell(result: dict[str, dict[str, object]], name: str, key: str, places: int) -> str:
    """A figure of a server, and between what it lay where rounds differ."""
    found, between = result[name].get(key), result[name]["range"]
    assert isinstance(between, dict)
    if found is None or (name == DIRECT and "cpu" in key):
        return "–"
    least, most = between.get(key, (0, 0))
    more = "" if least == most else f" ({least:,.{places}f}–{most:,.{places}f})"
    return f"{found:,.{places}f}{more}"


def tables(
    console: Console, result: dict[str, dict[str, object]], running: dict[str, Running], levels: list[int]
) -> None:
    """Print what was found."""
    groups = [
        (
            "Short requests, 64 connections: median (least–most)",
            [
                ("chat/s", "rps", 0),
                ("CPU µs", "cpu_us_per_request", 1),
                ("µs at rate", "cpu_us_per_request_at_rate", 1),
                ("rate", "rate", 0),
                ("added p50 ms", "added_p50_ms", 2),
                ("added p99 ms", "added_p99_ms", 2),
                ("GET/s", "get_rps", 0),
                ("CPU µs, GET", "cpu_us_per_get", 1),
                ("errors", "errors", 0),
            ],
        )
    ]
    groups += [
        (
            f"{level} streams × 50 tokens/s",
            [
                ("chunks/s", f"chunks_per_s_{level}", 0),
                ("CPU µs each", f"cpu_us_per_chunk_{level}", 1),
                ("added p50 ms", f"chunk_added_p50_ms_{level}", 2),
                ("added p99 ms", f"chunk_added_p99_ms_{level}", 2),
                ("kept", f"kept_{level}", 0),
            ],
        )
        for level in levels
    ]
    groups.append((f"{HELD} held requests", [("KB each", "held_kb_each", 1), ("held", "held", 0)]))
    for title, columns in groups:
        table = Table(title=title)
        table.add_column("server")
        for heading, _, _ in columns:
            table.add_column(heading, justify="right")
        for name, figures in result.items():
            if columns[0][1] not in figures:
                continue
            said = f"{name} {running[name].version}" if name in running and name != "gtm" else name
            table.add_row(said, *(cell(result, name, key, places) for _, key, places in columns))
        console.print(table)


def aims(result: dict[str, dict[str, object]], levels: list[int]) -> Iterator[str]:
    """What was aimed at, and whether it was met."""

    def figure(name: str, key: str) -> float | None:
        found = result.get(name, {}).get(key)
        return float(found) if isinstance(found, int | float) else None

    def against(what: str, key: str, other: str, most: float) -> str:
        mine, theirs = figure("gtm", key), figure(other, key)
        if mine is None or not theirs:
            return f"{what}: not measured"
        return f"{what}: {mine / theirs:.2f}, aim at most {most:g}: {'met' if mine / theirs <= most else 'missed'}"

    yield against("CPU of a chat completion ÷ HAProxy's", "cpu_us_per_request", "haproxy", 1.8)
    yield against("  the same at a fixed rate", "cpu_us_per_request_at_rate", "haproxy", 1.8)
    yield against("  of a short GET", "cpu_us_per_get", "haproxy", 1.8)
    for level in levels:
        yield against(
            f"CPU of a chunk ÷ HAProxy's, {level} streams", f"cpu_us_per_chunk_{level}", "haproxy", 1.25
        )
    mine, between = figure("gtm", "rps"), result.get("litellm", {}).get("range")
    if mine is not None and isinstance(between, dict):
        theirs = between["rps"][1]  # its best round
        said = "met" if mine >= 10 * theirs else "missed"
        yield (
            f"chat/s ÷ LiteLLM's best: {mine / theirs:.1f}, aim at least 10: {said}"
            if theirs
            else "LiteLLM answered nothing"
        )
    most = levels[-1]
    flows, kept = figure("gtm", f"chunks_per_s_{most}"), figure("gtm", f"kept_{most}")
    if flows is not None:
        said = "met" if kept == most and flows >= 0.99 * 50 * most else "missed"
        yield f"{most} streams × 50 tokens/s: {kept:.0f} kept, {flows:,.0f} chunks/s: {said}"
    each, held = figure("gtm", "held_kb_each"), figure("gtm", "held")
    if each is not None:
        said = "met" if each <= 60 and held == HELD else "missed"
        yield f"{HELD} held requests: {each:.1f} KB each, aim at most 60: {said}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each measurement")
    parser.add_argument("--rate", type=float, default=1000.0, help="requests a second at the fixed rate")
    parser.add_argument("--streams", type=int, nargs="+", default=[50, 250, 1000])
    parser.add_argument("--only", nargs="+", default=[], metavar="SERVER", choices=list(ALL))
    parser.add_argument(
        "--beside", type=Path, help="another checkout, with a .venv, whose gtm balancer runs too"
    )
    parser.add_argument(
        "--python", type=Path, help="another interpreter of the same version: gtm runs by it too"
    )
    parser.add_argument("--pairs", type=int, default=0, help="compare with --beside alone, by so many pairs")
    options = parser.parse_args()
    if options.pairs:
        if not options.beside:
            parser.error("--pairs needs --beside")
        options.only = ["gtm"]
    if absent := missing("taskset", "cc"):
        parser.error(f"not installed: {', '.join(absent)} (make bench-tools)")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # not without ending what was started
    os.sched_setaffinity(0, {int(CLIENT_CORE)})
    program = compiled("balancer_load", "-lm")
    levels: list[int] = options.streams
    rounds: dict[str, list[Figures]] = defaultdict(list)
    loads = [os.getloadavg()[0]]
    with backends(compiled("balancer_backend")) as ports, ExitStack() as stack:
        chosen = wanted(options)
        held, absent_ones = memory(chosen, ports, lambda one: Bench(program, one, WARM, "").held())
        running = {name: stack.enter_context(alone(chosen[name], ports)) for name in held}
        every = {DIRECT: Running(ports[0], 0, ""), **running}
        measured = {name: Bench(program, one, options.seconds, name) for name, one in every.items()}
        if options.pairs:
            paired(measured["gtm"], measured[BESIDE], options.pairs)
            return
        for number in range(options.rounds):
            names = list(measured)
            first = number % len(names)
            turn = {name: measured[name] for name in names[first:] + names[:first]}
            found: dict[str, Figures] = {name: {} for name in turn}
            for one in turn.values():
                with one.turn():
                    one.idle()
            steps = [
                partial(Bench.requests, rate=options.rate),
                *(partial(Bench.streams, count=level) for level in levels),
            ]
            for step in steps:
                for name, one in turn.items():
                    with one.turn():
                        found[name] |= step(one)
            loads.append(os.getloadavg()[0])
            print(f"round {number + 1}: load average {loads[-1]:.1f}", flush=True)
            for name in names:
                rounds[name].append(found[name])
    for name, figures in held.items():
        rounds[name][0] |= figures
    result = summary(rounds, levels)
    console = Console(width=170)
    tables(console, result, running, levels)
    for line in aims(result, levels):
        print(line)
    print(
        f"load average {', '.join(f'{one:.1f}' for one in loads)}; {os.cpu_count()} cores; Python {sys.version.split()[0]}"
    )
    print(json.dumps({**result, "absent": absent_ones, "load_average": loads}))


if __name__ == "__main__":
    main()
