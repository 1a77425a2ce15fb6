"""A run of tests that is cut off leaves no process and no file behind (`tests/warden.py`)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.effort import ALL
from tests.system.harness import alive, command_line, descendants, eventually

pytestmark = [pytest.mark.system, pytest.mark.drill]
"""`tests/test_warden.py` holds the same of smaller runs."""

CHECKOUT = Path(__file__).parent.parent.parent
TESTS = {
    "test_system.py": """
import time
from pathlib import Path
from tests.system.harness import System

def test_system(tmp_path):
    System(tmp_path / "data", *ARGUMENTS).wait()
    Path(__file__).with_name("system").write_text(str(tmp_path))
    time.sleep(600)
""",
    "test_postgres.py": """
import subprocess
import tempfile
import time
from pathlib import Path
from gtm.storage.embedded import EmbeddedPostgres

def test_postgres():
    with tempfile.TemporaryDirectory() as name:
        elsewhere = Path(name)
        with EmbeddedPostgres(elsewhere / "postgres"):
            subprocess.Popen(["sh", "-c", "trap '' TERM INT; sleep 600 & sleep 600"], start_new_session=True)
            Path(__file__).with_name("postgres").write_text(name)
            time.sleep(600)
""",
}
"""A system with all that belongs to it, and perhaps a demo world; servers of a test itself, and a program that does not listen to signals."""
PYTEST = """
import signal, sys, pytest
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever those who started us do with it
sys.exit(pytest.main())
"""

SLOW = ("schemathesis", "hypothesispytest", "pytest_cov", "anyio")
"""Plugins that these tests do without: each process of theirs would load them for two seconds."""

WAYS: dict[str, Callable[[int], None]] = {
    "Ctrl-C": lambda run: os.killpg(run, signal.SIGINT),
    "SIGTERM": lambda run: os.kill(run, signal.SIGTERM),
    "kill -9": lambda run: os.kill(run, signal.SIGKILL),
}


@pytest.mark.endurance
@pytest.mark.parametrize("way", WAYS)
def test_nothing_survives(way: str, tmp_path: Path) -> None:
    """Of servers, workers, databases and their directories, in two processes of tests."""
    arguments = ["--demo"] if ALL or way == "kill -9" else []
    for name, text in TESTS.items():
        (tmp_path / name).write_text(text.replace("*ARGUMENTS", f"*{arguments}"))
    configuration = ["-c", CHECKOUT / "pyproject.toml", "--rootdir", tmp_path, "-p", "tests.conftest"]
    configuration += [part for name in SLOW for part in ("-p", f"no:{name}")]
    with (tmp_path / "log").open("wb") as log:
        run = subprocess.Popen(
            [sys.executable, "-c", PYTEST, *configuration, "-n", "2", "-p", "no:cacheprovider", tmp_path],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=CHECKOUT,
            start_new_session=True,
        )
    places = [tmp_path / "system", tmp_path / "postgres"]
    started: list[int] = []
    try:
        eventually(lambda: all(map(Path.exists, places)), "both run", 240.0)
        started = descendants(run.pid)
        lines = [command_line(pid) for pid in started]
        for part in ("gtm.cli serve", "gtm.runtime.edge.worker", "postgres -D", "postgres: ", "sleep 600"):
            assert any(part in line for line in lines), (part, lines)
        WAYS[way](run.pid)
        run.wait(60)
        left = [Path(place.read_text()) for place in places]
        eventually(lambda: not any(map(alive, started)), "every process has ended")
        eventually(lambda: not any(map(Path.exists, left)), "the directories are gone")
    except AssertionError as error:
        living = {pid: command_line(pid) for pid in started if alive(pid)}
        raise AssertionError(f"{error}\n{living}\n{(tmp_path / 'log').read_text()}") from error
    finally:
        for pid in (run.pid, *started):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        run.wait()
