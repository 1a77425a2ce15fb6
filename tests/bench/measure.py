"""What the benchmarks share: server processes on free loopback ports, their CPU time, and load from outside."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SERVER_CORE = "0"
CLIENT_CORE = str((os.cpu_count() or 2) - 1)
"""Server and client run on cores of their own, where there are two."""


def cpu_seconds(pid: int) -> float:
    """User and system CPU time of a process and its children, in seconds, from /proc."""
    total = 0.0
    for process in [pid, *_children(pid)]:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [child for one in text.split() for child in (int(one), *_children(int(one)))]


@contextmanager
def server(
    arguments: list[str],
    ready: Callable[[], bool],
    environment: dict[str, str] | None = None,
    *,
    patience: float = 30,
) -> Iterator[int]:
    """Run a server pinned to the server core until the block ends; its process id once it is ready.

    Raises:
        SystemExit: it ended, or was not ready within `patience` seconds; says what it wrote.
    """
    with tempfile.TemporaryFile() as log:
        pinned = ["taskset", "-c", SERVER_CORE, *arguments] if shutil.which("taskset") else arguments
        process = subprocess.Popen(pinned, stdout=log, stderr=log, env={**os.environ, **(environment or {})})
        try:
            deadline = time.monotonic() + patience
            while not ready():
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise SystemExit(f"{arguments[0]} did not start:\n{log.read().decode(errors='replace')}")
                time.sleep(0.05)
            yield process.pid
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def listening(port: int) -> bool:
    """Whether something accepts TCP on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass(frozen=True, slots=True)
class Load:
    """What a load generator saw: answers per second, and the server's CPU microseconds per answer."""

    rate: float
    cpu_us: float
    errors: int


def http_load(url: str, pid: int, seconds: float, *options: str) -> Load:
    """Load by wrk, with 32 connections on the client core."""
    command = ["taskset", "-c", CLIENT_CORE, "wrk", "-t1", "-c32", f"-d{seconds:g}s", url, *options]
    before = cpu_seconds(pid)
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    spent = cpu_seconds(pid) - before
    count = int(_found(r"(\d+) requests in", text))
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    return Load(
        float(_found(r"Requests/sec:\s+([\d.]+)", text)), 1e6 * spent / count, int(bad[1]) if bad else 0
    )


def dns_load(queries: bytes, port: int, pid: int, seconds: float) -> Load:
    """Load by dnsperf, with length-prefixed whole messages (-B), so that each query carries its own client subnet."""
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(queries)
        file.flush()
        command = [
            "taskset",
            "-c",
            CLIENT_CORE,
            "dnsperf",
            "-s",
            "127.0.0.1",
            "-p",
            str(port),
            "-B",
            "-d",
            file.name,
        ]
        before = cpu_seconds(pid)
        text = subprocess.run(
            [*command, "-l", f"{seconds:g}", "-q", "100"], check=True, capture_output=True, text=True
        ).stdout
        spent = cpu_seconds(pid) - before
    done = int(_found(r"Queries completed:\s+(\d+)", text))
    lost = int(_found(r"Queries lost:\s+(\d+)", text))
    return Load(float(_found(r"Queries per second:\s+([\d.]+)", text)), 1e6 * spent / done, lost)


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise SystemExit(f"the load generator said something unexpected:\n{text}")
    return match[1]


def missing(*programs: str) -> list[str]:
    """Which programs are not installed."""
    return [program for program in programs if shutil.which(program) is None]
