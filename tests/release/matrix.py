"""The installation with other versions of pip and Python: `make matrix`; `.ci/run` tries the ends of it.

Each lock is installed into an empty virtual environment by each pip, as `make run` and `make test` do it, and `gtm version`
answers from there. With `--suite` the tests of `make test` run in each Python's environment, too. Debian 12 has pip 23.0.1 and Python 3.11.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.check_lock import CHECKOUT, LOCKS

PIPS = ("23.0.1", "23.2.1", "24.2", "newest")
PYTHONS = ("3.11", "3.12", "3.13")
TOO_OLD = {("3.12", "23.0.1"), ("3.13", "23.0.1")}
"""Pythons and pips that do not go together: pip 23.2 is the first that runs on Python 3.12."""


def find(version: str) -> str | None:
    """A program of that Python: in the search path, or where pyenv keeps them; this one for `this` and its own version."""
    if version in ("this", "{}.{}".format(*sys.version_info)):
        return sys.executable
    kept = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    return str(kept[-1]) if kept else shutil.which(f"python{version}")


def _run(command: list[str], **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=CHECKOUT,
        env={**os.environ, **environment},
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{done.stdout[-4000:]}")
    return done.stdout


def install(python: str, pip: str, lock: str, venv: Path) -> str:
    """Install a lock by a pip into a new environment; pip's version there."""
    _run([python, "-m", "venv", str(venv)])
    program = str(venv / "bin" / "python")
    _run([program, "-m", "pip", "install", "-q", "-U", "pip" if pip == "newest" else f"pip=={pip}"])
    _run(
        [python, "deploy/install.py", str(venv), lock], PIP_NO_COMPILE="1"
    )  # which takes longer than all else
    assert "unknown" not in _run([str(venv / "bin" / "gtm"), "version"])
    return _run([program, "-m", "pip", "--version"]).split()[1]


def main() -> None:
    """Try each combination, and print a line each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pip", nargs="+", default=PIPS, metavar="VERSION", help="or: newest")
    parser.add_argument("--python", nargs="+", default=PYTHONS, metavar="VERSION", help="or: this")
    parser.add_argument("--suite", action="store_true", help="run the tests in each Python's environment")
    asked = parser.parse_args()
    for version in asked.python:
        python = find(version)
        if python is None:
            print(f"Python {version}: not on this machine")
            continue
        for pip in asked.pip:
            if (version, pip) in TOO_OLD:
                print(f"Python {version}, pip {pip}: this pip does not run on this Python")
                continue
            for lock in LOCKS:
                with tempfile.TemporaryDirectory(prefix="gtm-matrix-") as folder:
                    begun = time.monotonic()
                    found = install(python, pip, lock, Path(folder) / "venv")
                    print(
                        f"Python {version}, pip {found}, {lock}: installed in {time.monotonic() - begun:.0f} s",
                        flush=True,
                    )
        if asked.suite:
            with tempfile.TemporaryDirectory(prefix="gtm-matrix-") as folder:
                install(python, "newest", "requirements-dev.lock", Path(folder) / "venv")
                begun = time.monotonic()
                program = str(Path(folder) / "venv" / "bin" / "python")
                said = _run([program, "-m", "pytest", "-q", "-r", "", "-m", "not drill"])
                print(f"Python {version}, the tests: {said.strip().splitlines()[-1]}", flush=True)


if __name__ == "__main__":
    main()
