"""This checkout beside another, in one run: `python tests/bench/compare.py OTHER [--pairs 20] [--only lookup dns_large]`.

A shared machine changes its speed by half from one minute to the next, so that two runs one after the other say nothing
about a few per cent. Here both checkouts' servers run at once (each from its own `.venv` and its own files), one is
loaded while the other waits, in slices of a second, and the order changes with each pair. What is compared is the
server's CPU time for an answer within a pair; printed are the median of the ratios and the range of their middle half.

Needs wrk and dnsperf (`make bench-tools`). The last line is one JSON object: case → ratio, quartiles, µs of both.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import dns_load
import dns_queries
import dns_world
import httpx
from measure import SERVER_CORE, http_load, missing, server
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parents[2]
BENCH = Path("tests/bench")

Slice = Callable[[], float]
"""CPU µs of one answer, measured over a slice of time."""


@dataclass(frozen=True, slots=True)
class Found:
    """A case's numbers: ratios of this checkout to the other, a pair each, and medians of both in CPU µs."""

    ratios: list[float]
    other_us: float
    this_us: float

    def quartiles(self) -> tuple[float, float, float]:
        """Lower quartile, median and upper quartile of the ratios."""
        low, middle, high = statistics.quantiles(self.ratios, n=4)
        return low, middle, high


def paired(other: Slice, this: Slice, pairs: int) -> Found:
    """Slices of both in turn, first one ahead, then the other."""
    others, mine = [], []
    for number in range(pairs):
        if number % 2:
            mine.append(this())
            others.append(other())
        else:
            others.append(other())
            mine.append(this())
    ratios = [b / a for a, b in zip(others, mine, strict=True)]
    return Found(ratios, statistics.median(others), statistics.median(mine))


def _python(checkout: Path) -> str:
    return str(checkout / ".venv" / "bin" / "python")


def _port(kind: socket.SocketKind) -> int:
    """A port below those that the kernel gives to clients."""
    while True:
        port = random.randrange(20_000, 30_000)
        try:
            with socket.socket(socket.AF_INET, kind) as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return port


@contextmanager
def decisions(checkout: Path) -> Iterator[dict[str, Slice]]:
    """`decide()` in a process of the checkout's."""
    process = subprocess.Popen(
        ["taskset", "-c", SERVER_CORE, _python(checkout), str(BENCH / "decide_loop.py")],
        cwd=checkout,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def turn(which: int) -> float:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        return float(process.stdout.readline().split()[which])

    try:
        yield {"decide_cold": partial(turn, 0), "decide_remembered": partial(turn, 1)}
    finally:
        process.kill()
        process.wait()


@contextmanager
def http(checkout: Path, seconds: float) -> Iterator[dict[str, Slice]]:
    """The checkout's edge over HTTP."""
    port = _port(socket.SOCK_STREAM)
    base = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        try:
            return httpx.get(f"{base}/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    with server([_python(checkout), str(checkout / BENCH / "edge_app.py"), str(port)], ready) as pid:

        def load(url: str, *options: str) -> float:
            found = http_load(url, pid, seconds, *options)
            if found.errors:
                raise SystemExit(f"{url}: {found.errors} answers were errors")
            return found.cpu_us

        yield {
            "lookup": lambda: load(f"{base}/v1/route?service=chat&client_ip=81.2.69.142"),
            "lookup_new_clients": lambda: load(base, "-s", str(HERE / BENCH / "clients.lua")),
            "redirect": lambda: load(f"{base}/r/web/hello?x=1"),
            "redirect_by_host": lambda: load(f"{base}/hello?x=1", "-H", "Host: web.demo.test"),
        }


@contextmanager
def dns(checkout: Path, name: str, world: str, networks: int, seconds: float) -> Iterator[dict[str, Slice]]:
    """The checkout's name server, warm with every query."""
    generator = random.Random(1)
    nets = dns_world.networks(networks, generator)
    names = dns_world.hostnames(world)
    if len(names) == 1:
        queries = dns_queries.each(names[0], nets, dnssec_ok=False)
        generator.shuffle(queries)
    else:
        queries = dns_queries.by_zipf(names, nets, 400_000, generator)
    port = _port(socket.SOCK_DGRAM)
    command = [_python(checkout), str(checkout / BENCH / "dns_app.py"), str(port), "--world", world]

    def ready() -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(0.5)
            sock.connect(("127.0.0.1", port))
            try:
                sock.send(queries[0])
                return bool(sock.recv(4096))
            except OSError:
                return False

    with (
        tempfile.NamedTemporaryFile() as file,
        server([*command, "--networks", str(networks)], ready, patience=180) as pid,
    ):
        file.write(dns_queries.file_of(queries))
        file.flush()
        path = Path(file.name)
        dns_load.warm(path, port, 30.0)

        def load() -> float:
            found = dns_load.full(path, port, pid, seconds)
            if found.failed:
                raise SystemExit(f"{name}: {found.failed} answers were failures")
            return found.cpu_us

        yield {name: load}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "other", type=Path, help="another checkout, with a .venv of its own (make .venv/.dev)"
    )
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a slice")
    parser.add_argument("--only", nargs="+", default=[], metavar="CASE")
    options = parser.parse_args()
    if absent := missing("wrk", "dnsperf", "taskset"):
        parser.error(f"not installed: {', '.join(absent)} (make bench-tools)")
    seconds: float = options.seconds
    groups = (
        (("decide_cold", "decide_remembered"), decisions),
        (("lookup", "lookup_new_clients", "redirect", "redirect_by_host"), partial(http, seconds=seconds)),
        (
            ("dns_one_name",),
            partial(dns, name="dns_one_name", world="demo", networks=10_000, seconds=seconds),
        ),
        (("dns_large",), partial(dns, name="dns_large", world="large", networks=100_000, seconds=seconds)),
    )
    known = [case for cases, _ in groups for case in cases]
    if strange := sorted({*options.only} - {*known}):
        parser.error(f"no such case: {', '.join(strange)}; there are {', '.join(known)}")
    wanted = options.only or known
    print(f"load average {os.getloadavg()[0]:.2f}, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
    table = Table(title=f"CPU µs an answer, medians of {options.pairs} pairs")
    for column in ("case", "other", "this", "this ÷ other", "middle half"):
        table.add_column(column, justify="left" if column == "case" else "right")
    result: dict[str, object] = {}
    for cases, group in groups:
        chosen = [case for case in cases if case in wanted]
        if not chosen:
            continue
        with ExitStack() as stack:
            other = stack.enter_context(group(options.other.resolve()))
            this = stack.enter_context(group(HERE))
            for case in chosen:
                found = paired(other[case], this[case], options.pairs)
                low, middle, high = found.quartiles()
                table.add_row(
                    case,
                    f"{found.other_us:.2f}",
                    f"{found.this_us:.2f}",
                    f"{middle:.3f}",
                    f"{low:.3f}–{high:.3f}",
                )
                result[case] = {
                    "ratio": middle, "low": low, "high": high, "other_us": found.other_us, "this_us": found.this_us
                }  # fmt: skip
    Console(width=100).print(table)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
