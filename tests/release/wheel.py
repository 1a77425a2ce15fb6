"""The distribution, tried alone: `make wheel-test`.

Builds the sdist, and the wheel from it; holds the wheel's contents against the sources; installs it into an empty virtual
environment with what it declares, and there, far from the checkout, runs the command, the check of the shipped policy,
and the demo with a look-up and a DNS answer.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dns.message
import dns.query
import httpx

from tests.check_lock import declared, follow, read_lock

CHECKOUT = Path(__file__).resolve().parents[2]
SOURCES = {"gtm": "gtm", "migrations": "gtm/_migrations", "policies/demo": "gtm/_policies/demo"}
"""Which folders of the sources are in the wheel, and where."""
LOCK = "gtm/requirements.lock"
"""Where the wheel has the lock of what it needs."""

PATIENCE = 180.0


def wanted(source: Path) -> set[str]:
    """The files that a wheel of a source tree holds beside its metadata."""
    return {
        f"{target}/{file.relative_to(source / folder)}"
        for folder, target in SOURCES.items()
        for file in (source / folder).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    } | {LOCK}


def held(wheel: Path) -> set[str]:
    """The files in a wheel, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.split("/")[0].endswith(".dist-info")}


def build(folder: Path) -> Path:
    """Build the sdist, and the wheel from what that holds.

    Args:
        folder: an empty one, outside of the checkout.

    Returns:
        The wheel's path.
    """
    _run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)], CHECKOUT)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], source)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """Install a wheel and what it declares, in the versions of the lock file, into a new virtual environment.

    What only the build needs stays out, so that code which imports something undeclared fails here.

    Returns:
        The environment's folder of programs.
    """
    text = (CHECKOUT / "requirements.lock").read_text()
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    needed, _ = follow(read_lock(text), declared(project, []))
    lines = re.findall(r"^[a-z0-9].*(?:\n +--hash.*)*", text, re.MULTILINE)
    lock = folder / "requirements.txt"
    lock.write_text("\n".join(line for line in lines if re.split("[=<>! ]", line, maxsplit=1)[0] in needed))
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / "bin"
    pip = [str(programs / "python"), "-m", "pip", "--disable-pip-version-check"]
    _run([*pip, "install", "-q", "--no-deps", "--require-hashes", "-r", str(lock)], folder)
    _run([*pip, "install", "-q", "--no-deps", str(wheel)], folder)
    _run([*pip, "check"], folder)
    return programs


def try_commands(programs: Path, folder: Path) -> None:
    """The command answers, says its version, and finds the shipped policy sound."""
    gtm = str(programs / "gtm")
    assert "global traffic manager" in _run([gtm, "--help"], folder)
    version = _run([gtm, "version"], folder).strip()
    assert "unknown" not in version, version
    locate = "from gtm.demo.policy import demo_folder; print(demo_folder())"
    policy = _run([str(programs / "python"), "-c", locate], folder).strip()
    assert Path(policy).is_relative_to(programs.parent), policy
    assert "the policy is sound" in _run([gtm, "check", policy], folder)


def try_demo(programs: Path, folder: Path) -> None:
    """The demo world comes up, and answers a look-up and a DNS question for a client in Germany with Frankfurt."""
    with _demo(programs, folder) as facts:
        about = {"service": "chat", "client_ip": "141.30.66.200"}
        _until(
            lambda: (
                httpx.get(f"{facts['edge']}/v1/route", params=about, timeout=5).json()["region"]
                == "eu-central"
            ),
            "a look-up is answered with Frankfurt",
        )
        host, _, port = facts["dns"].rpartition(":")
        question = dns.message.make_query("chat.demo.test", "A")
        answer = dns.query.udp(question, host.strip("[]"), port=int(port), timeout=5)
        assert answer.answer, answer


@contextmanager
def _demo(programs: Path, folder: Path) -> Iterator[dict[str, Any]]:
    data, log = folder / "data", folder / "serve.log"
    ports = [part for name in ("control", "edge", "dns") for part in (f"--{name}-port", "0")]
    command = [str(programs / "gtm"), "serve", "--demo", "--data-dir", str(data), *ports]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, env=_environment(), stdout=out, stderr=out)
    try:
        facts = data / "serve.json"
        _until(lambda: facts.exists() or process.poll() is not None, "the demo is up")
        assert process.poll() is None, log.read_text(errors="replace")
        yield json.loads(facts.read_text())
    finally:
        process.terminate()
        ended = process.wait(PATIENCE)
    assert ended == 0, log.read_text(errors="replace")


def _until(check: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    last: object = None
    while time.monotonic() < deadline:
        try:
            last = check()
            if last:
                return
        except (httpx.HTTPError, KeyError) as error:
            last = error
        time.sleep(0.1)
    raise AssertionError(f"not within {PATIENCE:.0f} s: {what}; last: {last!r}")


def _environment() -> dict[str, str]:
    """Nothing of the checkout, and no settings."""
    hidden = ("GTM_", "PYTHON", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(hidden)}


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env=_environment(), check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"
    return done.stdout


def main() -> None:
    """Do all of it, and say what was done."""
    with tempfile.TemporaryDirectory(prefix="gtm-wheel-") as name:
        folder = Path(name)
        wheel = build(folder)
        missing, strange = wanted(CHECKOUT) - held(wheel), held(wheel) - wanted(CHECKOUT)
        assert not missing, f"not in the wheel: {sorted(missing)}"
        assert not strange, f"in the wheel, but no source: {sorted(strange)}"
        print(
            f"{wheel.name}: {len(held(wheel))} files, {wheel.stat().st_size / 1e6:.1f} MB, those of the sources"
        )
        programs = install(wheel, folder)
        print("installed alone, with what it declares")
        try_commands(programs, folder)
        print("the command runs, and the shipped policy is sound")
        try_demo(programs, folder)
        print("the demo answered a look-up and a DNS question, and stopped in order")


if __name__ == "__main__":
    main()
