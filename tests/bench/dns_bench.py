"""gtm's name server beside gdnsd, PowerDNS, Knot and bare echoes: `make bench`, or `python tests/bench/dns_bench.py`.

Every server runs on one core and is loaded by dnsperf from another, in turn, several rounds; medians are printed, with
ratios to gdnsd and to the echo in Python. The last line is JSON: workload → server → numbers. Workloads:

  one_name   one name, client subnets of 10,000 networks
  large      1,000 names × 100,000 networks, both by Zipf's law; residency rules, and a plan that splits every class
  signed     as one_name, with signatures
  swaps      one_name, and a new plan each second
  malformed  one_name, and as many malformed packets, at a fixed rate

Debian has the peers (`make bench-tools`); one that is not installed is said to be missing.
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
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import dns.message
import dns_load
import dns_queries
import dns_world
from dns_peers import PEERS, Setting, write_database
from measure import CLIENT_CORE, missing, server
from rich.console import Console
from rich.table import Table

BENCH = Path(__file__).parent
LARGE_QUERIES = 400_000
FLOOD_RATE = 15_000
"""Good queries per second in `malformed`, and malformed packets beside them."""
SAMPLE = 200
"""Queries by which each server's answers are checked before it is measured."""
WARM = 30.0
"""Seconds that a server may take to see every query once, before it is measured."""
_PATIENCE = 180.0


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked, and of which servers."""

    world: str = "demo"
    networks: int = 10_000
    signed: bool = False
    swaps: bool = False
    flood: bool = False


WORKLOADS = {
    "one_name": Workload(),
    "large": Workload(world="large", networks=100_000),
    "signed": Workload(signed=True),
    "swaps": Workload(swaps=True),
    "malformed": Workload(flood=True),
}
SERVERS = ("gtm", *PEERS)
BASES = ("gdnsd", "echo_python")
"""What ratios are to."""


@dataclass(slots=True)
class Measured:
    """A server's numbers, one of each for every round."""

    full: list[dns_load.Full] = field(default_factory=list)
    half: list[dns_load.Half] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Asked:
    """A workload with its client networks and queries; in files, as dnsperf reads them, the queries and malformed ones."""

    workload: Workload
    nets: list[int]
    queries: list[bytes]
    path: Path
    malformed: Path


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers."""

    port: int
    pid: int


def asked_of(workload: Workload, seed: int, folder: Path) -> Asked:
    """The queries of a workload, written into a folder."""
    generator = random.Random(seed)
    nets = dns_world.networks(workload.networks, generator)
    names = dns_world.hostnames(workload.world)
    if len(names) == 1:
        queries = dns_queries.each(names[0], nets, dnssec_ok=workload.signed)
        generator.shuffle(queries)
    else:
        queries = dns_queries.by_zipf(names, nets, LARGE_QUERIES, generator)
    asked = Asked(workload, nets, queries, folder / "queries", folder / "malformed")
    asked.path.write_bytes(dns_queries.file_of(queries))
    asked.malformed.write_bytes(dns_queries.file_of(dns_queries.malformed(queries, 1000, generator)))
    return asked


def wanted(workload: Workload, chosen: Sequence[str]) -> tuple[list[str], list[str]]:
    """The servers that a workload is for, and why others are left out."""
    run, out = [], []
    for name in chosen:
        peer = PEERS.get(name)
        if peer is None:
            run.append(name)
        elif peer.missing():
            out.append(f"{name}: not installed ({', '.join(peer.missing())}; see make bench-tools)")
        elif workload.signed and peer.answers and not peer.signs:
            out.append(f"{name}: does not sign such answers")
        elif workload.swaps and name not in BASES:
            out.append(f"{name}: has no plans to swap")
        else:
            run.append(name)
    return run, out


@contextmanager
def running(asked: Asked, chosen: Sequence[str], seed: int, folder: Path) -> Iterator[dict[str, Running]]:
    """The servers, each on a port of its own, until the block ends.

    Raises:
        SystemExit: one did not start, or gives other answers than gtm may.
    """
    workload = asked.workload
    answers = dns_world.answers_of(workload.world, asked.nets)
    cells = len(set(answers.cells.values()))
    print(
        f"  {len(answers.hostnames):,} names, {len(asked.nets):,} networks, {answers.classes} ranking classes ",
        end="",
    )
    print(f"in {len(answers.families)} families; {cells} sets of clients for the peers")
    database = folder / "clients.mmdb"
    write_database(database, answers)
    with ExitStack() as stack:
        found: dict[str, Running] = {}
        for name in chosen:
            port = _port()
            own = folder / name
            own.mkdir()
            if name == "gtm":
                command = _gtm(workload, port, seed)
            else:
                command = PEERS[name].command(Setting(own, port, answers, database, workload.signed))
            pid = stack.enter_context(
                server(command, partial(answered, port, asked.queries[0], signed=False), patience=_PATIENCE)
            )
            found[name] = Running(port, pid)
            if name == "gtm" or PEERS[name].answers:
                good = agreeing(found[name], answers, asked.queries[:SAMPLE])
                if good != SAMPLE:
                    raise SystemExit(f"{name}: {good} of {SAMPLE} answers are those expected")
        yield found


def _port() -> int:
    """A port that is free for both transports, below those that the kernel gives to clients."""
    while True:
        port = random.randrange(20_000, 30_000)
        try:
            for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                with socket.socket(socket.AF_INET, kind) as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return port


def _gtm(workload: Workload, port: int, seed: int) -> list[str]:
    options = ["--world", workload.world, "--networks", str(workload.networks), "--seed", str(seed)]
    options += ["--swaps"] * workload.swaps + ["--signed"] * workload.signed
    return [sys.executable, str(BENCH / "dns_app.py"), str(port), *options]


def agreeing(one: Running, answers: dns_world.Answers, queries: Sequence[bytes]) -> int:
    """How many of these queries get one address, and one of those that the query's client may get."""
    good = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(2)
        sock.connect(("127.0.0.1", one.port))
        for query in queries:
            sock.send(query)
            reply = dns.message.from_wire(sock.recv(4096))
            family = answers.hostnames[reply.question[0].name.to_text(omit_final_dot=True)]
            cell = answers.cells[int.from_bytes(query[-3:])]
            may = {address for address, _ in answers.by_cell[family, cell]}
            got = [item.to_text() for rrset in reply.answer if rrset.rdtype == 1 for item in rrset]
            good += len(got) == 1 and got[0] in may
    return good


def answered(port: int, query: bytes, *, signed: bool) -> bool:
    """Whether a server answers a query: with records, and NOERROR unless it is an echo."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.5)
        sock.connect(("127.0.0.1", port))
        try:
            sock.send(query)
            reply = sock.recv(4096)
        except OSError:
            return False
    return bool(reply[2] & 0x80) and not reply[3] & 0xF and (not signed or len(reply) > 150)


@contextmanager
def flood(path: Path, port: int) -> Iterator[None]:
    """Malformed packets at `FLOOD_RATE`, until the block ends."""
    command = ["taskset", "-c", CLIENT_CORE, sys.executable, str(BENCH / "dns_flood.py")]
    process = subprocess.Popen([*command, str(path), str(port), str(FLOOD_RATE)])
    try:
        yield
        if process.poll() is not None:
            raise SystemExit("the sender of malformed packets ended")
    finally:
        process.kill()
        process.wait()


def measure(name: str, chosen: Sequence[str], options: argparse.Namespace) -> dict[str, Measured]:
    """Load the servers of a workload in turn, round by round."""
    workload = WORKLOADS[name]
    print(f"{name}: load average {os.getloadavg()[0]:.2f}", flush=True)
    run, out = wanted(workload, chosen)
    for reason in out:
        print(f"  left out: {reason}")
    measured = {item: Measured() for item in run}
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        asked = asked_of(workload, options.seed, folder)
        with running(asked, run, options.seed, folder) as servers:
            for item, one in servers.items():
                if item == "gtm" or PEERS[item].answers:
                    dns_load.warm(asked.path, one.port, WARM)
                    if workload.signed and not answered(one.port, asked.queries[0], signed=True):
                        raise SystemExit(f"{item} does not sign its answers")
            for _ in range(options.rounds):
                for item, one in servers.items():
                    _load(measured[item], asked, one, options.seconds)
    print(f"  load average {os.getloadavg()[0]:.2f}", flush=True)
    return measured


def _load(into: Measured, asked: Asked, one: Running, seconds: float) -> None:
    if asked.workload.flood:
        with flood(asked.malformed, one.port):
            time.sleep(0.5)
            into.half.append(dns_load.half(asked.path, one.port, one.pid, seconds, FLOOD_RATE))
        return
    limit = dns_load.full(asked.path, one.port, one.pid, seconds)
    into.full.append(limit)
    into.half.append(dns_load.half(asked.path, one.port, one.pid, seconds, limit.qps / 2))


def summary(measured: Measured) -> dict[str, float]:
    """Medians over the rounds; sums of what was lost."""
    full, half = measured.full, measured.half
    found: dict[str, float] = {}
    if full:
        found["qps"] = round(statistics.median(item.qps for item in full))
        found["cpu_us"] = round(statistics.median(item.cpu_us for item in full), 2)
        found["busy"] = round(statistics.median(item.busy for item in full), 2)
        found["failed"] = sum(item.failed for item in full)
    else:
        found["qps"] = FLOOD_RATE
        found["cpu_us"] = round(statistics.median(item.cpu_us for item in half), 2)
    for key in ("p50_ms", "p99_ms", "p999_ms"):
        found[key] = round(statistics.median(getattr(item, key) for item in half), 3)
    found["lost"] = sum(item.lost for item in (*full, *half))
    return found


def show(name: str, numbers: dict[str, dict[str, float]]) -> None:
    """A table of a workload's servers, with ratios of CPU time."""
    table = Table(title=f"{name}: one core each, latencies at half load")
    columns = ("server", "qps", "CPU µs", "× gdnsd", "× echo", "busy", "p50 ms", "p99 ms", "p99.9 ms", "lost")
    for column in columns:
        table.add_column(column, justify="left" if column == "server" else "right")
    for server_name, found in numbers.items():
        ratios = [
            f"{found['cpu_us'] / numbers[peer]['cpu_us']:.2f}" if peer in numbers else "–" for peer in BASES
        ]
        busy = f"{found['busy']:.0%}" if "busy" in found else "–"
        latencies = (f"{found[key]:.2f}" for key in ("p50_ms", "p99_ms", "p999_ms"))
        table.add_row(
            server_name,
            f"{found['qps']:,.0f}",
            f"{found['cpu_us']:.1f}",
            *ratios,
            busy,
            *latencies,
            f"{found['lost']:.0f}",
        )
    Console(width=110).print(table)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each load")
    parser.add_argument("--rounds", type=int, default=5, help="how often each server is loaded")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the last line only")
    options = parser.parse_args()
    if missing("dnsperf", "taskset"):
        raise SystemExit(f"not installed: {', '.join(missing('dnsperf', 'taskset'))}; see make bench-tools")
    out = sys.stdout
    result: dict[str, object] = {"load_average": [round(os.getloadavg()[0], 2)]}
    if options.json:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - for the life of the process
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, seed {options.seed}")
    for name in options.workloads:
        measured = measure(name, options.servers, options)
        numbers = {item: summary(found) for item, found in measured.items()}
        show(name, numbers)
        result[name] = numbers
    load = result["load_average"]
    assert isinstance(load, list)
    load.append(round(os.getloadavg()[0], 2))
    print(json.dumps(result), file=out)


if __name__ == "__main__":
    main()
