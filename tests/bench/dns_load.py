"""Load on a name server: as much as it takes, and at half of that with the latency of each answer."""

from __future__ import annotations

import re
import subprocess
import tempfile
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from measure import CLIENT_CORE, cpu_seconds

OUTSTANDING = 100
BURST = 200
"""Outstanding at a fixed rate. dnsperf that comes late sends as many at once, and the socket buffer that servers get by
default holds hardly more."""
_TIMEOUT = "2"


@dataclass(frozen=True, slots=True)
class Full:
    """A server at its limit: answers per second, CPU µs of the server for each, share of its core, and what was lost.

    `failed` counts answers with another code than NOERROR.
    """

    qps: float
    cpu_us: float
    busy: float
    lost: int
    failed: int


@dataclass(frozen=True, slots=True)
class Half:
    """A server under half its load: latencies in ms, CPU µs of the server for each answer, and what was lost."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    cpu_us: float
    lost: int


def warm(queries: Path, port: int, most: float) -> None:
    """Every query once, in `most` seconds at the longest."""
    _dnsperf(queries, port, most, "-n", "1", "-q", str(OUTSTANDING))


def full(queries: Path, port: int, pid: int, seconds: float) -> Full:
    """As many queries as the server answers, by dnsperf with 100 outstanding.

    Raises:
        SystemExit: dnsperf said something unexpected, or no query was answered.
    """
    before = cpu_seconds(pid)
    text = _dnsperf(queries, port, seconds, "-q", str(OUTSTANDING))
    spent = cpu_seconds(pid) - before
    done = int(_found(r"Queries completed:\s+(\d+)", text))
    if not done:
        raise SystemExit(f"no query was answered:\n{text}")
    good = re.search(r"NOERROR (\d+)", text)
    took = float(_found(r"Run time \(s\):\s+([\d.]+)", text))
    return Full(
        done / took,
        1e6 * spent / done,
        spent / took,
        int(_found(r"Queries lost:\s+(\d+)", text)),
        done - (int(good[1]) if good else 0),
    )


def half(queries: Path, port: int, pid: int, seconds: float, rate: float) -> Half:
    """So many queries per second, by dnsperf, which says how long each took.

    Raises:
        SystemExit: dnsperf said something unexpected.
    """
    before = cpu_seconds(pid)
    text = _dnsperf(queries, port, seconds, "-q", str(BURST), "-Q", str(int(rate)), "-v")
    spent = cpu_seconds(pid) - before
    answered = (line for line in text.splitlines() if line.startswith("> ") and line[2:4] != "T ")
    took = array("d", sorted(float(line.rpartition(" ")[2]) for line in answered))
    if not took:
        raise SystemExit(f"no query was answered:\n{text}")
    return Half(
        1e3 * _quantile(took, 0.5),
        1e3 * _quantile(took, 0.99),
        1e3 * _quantile(took, 0.999),
        1e6 * spent / len(took),
        int(_found(r"Queries lost:\s+(\d+)", text)),
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _dnsperf(queries: Path, port: int, seconds: float, *options: str) -> str:
    command = ["taskset", "-c", CLIENT_CORE, "dnsperf", "-s", "127.0.0.1", "-p", str(port), "-B", "-d"]
    with tempfile.TemporaryFile("w+") as out:
        subprocess.run(
            [*command, str(queries), "-l", f"{seconds:g}", "-t", _TIMEOUT, *options],
            check=True,
            stdout=out,
            stderr=subprocess.DEVNULL,
        )
        out.seek(0)
        return out.read()


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise SystemExit(f"dnsperf said something unexpected:\n{text[-2000:]}")
    return match[1]
