"""What starting costs: `python tests/bench/start_bench.py [--rounds 3] [--parts help serve demo] [--settle 5]`.

  help     `gtm --help`: CPU and wall seconds, the least of some rounds
  serve    `gtm serve`, on a data directory that is made, and on one that is there
  demo     `gtm serve --demo`, likewise

CPU is user and system time of the supervisor and all that it starts, dead ones included, until `serve.json` says that it is ready: what
a child that has ended took stands with its parent. PSS (each page shared out among those who hold it) is of the processes that live `--settle` seconds
later; it takes root to read it. Modules are loaded from cached bytecode, as in a wheel that pip installed.

Medians of the rounds. The last line is JSON: {"help": {"cpu_s", "wall_s"}, "serve": {"fresh": {"cpu_s", "wall_s", "pss_mb", "kinds": {KIND: [CPU, PSS, processes]}}, "again": …}, "demo": …}.
"""

from __future__ import annotations

import argparse
import compileall
import ctypes
import json
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parent.parent.parent
_PR_SET_CHILD_SUBREAPER = 36
_TICK = os.sysconf("SC_CLK_TCK")
_KINDS = (
    ("fork server", r"forkserver"),
    ("supervisor", r"gtm\.cli serve"),
    ("control", r"gtm\.runtime\.serve\.control"),
    ("edge agent", r"-m gtm\.runtime\.edge\.agent"),
    ("edge worker dns", r"gtm\.runtime\.edge\.worker dns"),
    ("edge worker http", r"gtm\.runtime\.edge\.worker http"),
    ("demo world", r"demo_world"),
    ("postgres", r"postgres"),
)
"""By what stands in the command line."""
_PATIENCE = 120.0


def environment() -> dict[str, str]:
    """As a shell would have it: nothing of gtm's, and bytecode is kept."""
    without = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    return {
        name: value
        for name, value in os.environ.items()
        if name not in without and not name.startswith("GTM_")
    }


def command_line(pid: int) -> str:
    """A process's command line."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()


def kind(pid: int) -> str:
    """What a process is."""
    line = command_line(pid)
    return next((name for name, pattern in _KINDS if re.search(pattern, line)), line or "?")


def tree() -> list[int]:
    """All that descends from this process."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(entry.parent.name))
    found, todo = [], [os.getpid()]
    while todo:
        below = parents.get(todo.pop(), [])
        found += below
        todo += below
    return found


def spent(pid: int) -> float:
    """CPU seconds of a process, and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICK


def proportional(pid: int) -> float:
    """Its PSS in MB."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except PermissionError:
        return float("nan")
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def start(data_dir: Path, options: list[str], settle: float) -> dict[str, Any]:
    """Start a `gtm serve`, and stop it; what it took."""
    command = [sys.executable, "-m", "gtm.cli", "serve", "--data-dir", str(data_dir)]
    command += ["--control-port=0", "--edge-port=0", "--dns-port=0", *options]
    with tempfile.TemporaryFile() as log:
        began = time.monotonic()
        process = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment(), cwd=_ROOT
        )
        try:
            while not (data_dir / "serve.json").exists():
                if process.poll() is not None or time.monotonic() - began > _PATIENCE:
                    log.seek(0)
                    raise SystemExit(f"gtm serve did not start:\n{log.read().decode(errors='replace')}")
                time.sleep(0.01)
            wall = time.monotonic() - began
            kinds: dict[str, list[float]] = {}
            for pid in tree():
                with suppress(OSError):
                    row = kinds.setdefault(kind(pid), [0.0, 0.0, 0])
                    row[0] += spent(pid)
            time.sleep(settle)
            for pid in tree():
                with suppress(OSError):
                    row = kinds.setdefault(kind(pid), [0.0, 0.0, 0])
                    row[1] += proportional(pid)
                    row[2] += 1
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    (data_dir / "serve.json").unlink(missing_ok=True)
    return {
        "cpu_s": sum(row[0] for row in kinds.values()),
        "wall_s": wall,
        "pss_mb": sum(row[1] for row in kinds.values()),
        "kinds": kinds,
    }


def median(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Of each number."""
    names = {name: None for one in found for name in one["kinds"]}
    rows = {name: [one["kinds"].get(name, [0.0, 0.0, 0]) for one in found] for name in names}
    return {
        **{
            key: round(statistics.median(one[key] for one in found), 2)
            for key in ("cpu_s", "wall_s", "pss_mb")
        },
        "kinds": {
            name: [round(statistics.median(column), 2) for column in zip(*row, strict=True)]
            for name, row in rows.items()
        },
    }


def serve(rounds: int, options: list[str], settle: float) -> dict[str, Any]:
    """On fresh data directories, and on each once more."""
    found: dict[str, list[dict[str, Any]]] = {"fresh": [], "again": []}
    for _ in range(rounds):
        home = Path(tempfile.mkdtemp(prefix="gtm-start-"))
        home.chmod(0o755)
        try:
            for one in found.values():
                one.append(start(home / "data", options, settle))
        finally:
            shutil.rmtree(home, ignore_errors=True)
    return {name: median(one) for name, one in found.items()}


def say(title: str, one: dict[str, Any]) -> None:
    """A table."""
    print(f"{title}: {one['cpu_s']:.2f} CPU s, {one['wall_s']:.2f} s, {one['pss_mb']:.0f} MB PSS")
    for name, (cpu, pss, count) in one["kinds"].items():
        print(f"  {name:18} {cpu:6.2f} s  {pss:6.1f} MB  ×{count:.0f}")


def helped(rounds: int) -> dict[str, Any]:
    """`gtm --help`."""
    best: tuple[float, float] | None = None
    for _ in range(2 * rounds):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "gtm.cli", "--help"],
            check=True,
            capture_output=True,
            env=environment(),
            cwd=_ROOT,
        )
        after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        best = min(best or (cpu, wall), (cpu, wall))
    assert best is not None
    print(f"gtm --help: {best[0]:.2f} CPU s, {best[1]:.2f} s")
    return {"cpu_s": round(best[0], 3), "wall_s": round(best[1], 3)}


def main() -> None:
    """Measure the parts that were asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", nargs="*", default=["help", "serve", "demo"])
    parser.add_argument("--settle", type=float, default=5.0)
    given = parser.parse_args()
    # Whatever loses its parent becomes this one's, and counts.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for folder in ("gtm", "migrations"):
        compileall.compile_dir(_ROOT / folder, quiet=2)
    found: dict[str, Any] = {}
    if "help" in given.parts:
        found["help"] = helped(given.rounds)
    for part, options in (("serve", []), ("demo", ["--demo"])):
        if part in given.parts:
            found[part] = serve(given.rounds, options, given.settle)
            for name, one in found[part].items():
                say(f"gtm serve {' '.join(options)} ({name})", one)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
