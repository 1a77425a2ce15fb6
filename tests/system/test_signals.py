"""SIGHUP, from operators, log rotation or a terminal that is closed: servers look at their files, and none of their processes ends."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.system.balancers import LoneBalancer
from tests.system.harness import alive, descendants, eventually

pytestmark = pytest.mark.system

TOOK_IN = "took in the file of backends"


def _written(folder: Path, *urls: str) -> Path:
    file = folder / "balancer.yaml"
    file.write_text(json.dumps({"service": "chat", "backends": [{"url": url} for url in urls]}))
    return file


def _backends(balancer: LoneBalancer) -> set[str]:
    return {one["url"] for one in balancer.state()["backends"]}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_balancer_reads_its_file_again(tmp_path: Path, workers: int) -> None:
    """Changed or not, in each worker, and whatever process of its is told; what cannot be used is said, and what was in it stays."""
    ports = {"fra": free_port(), "iad": free_port()}
    first, second = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    file = _written(tmp_path, first)
    balancer = LoneBalancer(tmp_path, "fra", ports, "--file", str(file), "--workers", str(workers))
    try:
        eventually(lambda: _backends(balancer) == {first}, "it shows its backends", 30.0)
        family = [balancer.process.popen.pid, *descendants(balancer.process.popen.pid)]
        for pid in family:
            os.kill(pid, signal.SIGHUP)
        eventually(
            lambda: balancer.process.output.count(TOOK_IN) == workers,
            "each has read it, although it is the same",
        )
        balancer.process.signal(signal.SIGHUP)
        eventually(
            lambda: balancer.process.output.count(TOOK_IN) == 2 * workers, "each has read it once more"
        )
        _written(tmp_path, second)
        balancer.process.signal(signal.SIGHUP)
        eventually(lambda: _backends(balancer) == {second}, "it has what the file says now")
        file.write_text("nonsense")
        balancer.process.signal(signal.SIGHUP)
        eventually(lambda: "cannot be used, going on" in balancer.process.output, "it says what is wrong")
        file.unlink()
        balancer.process.signal(signal.SIGHUP)
        eventually(lambda: "cannot be found, going on" in balancer.process.output, "it says what is missing")
        assert _backends(balancer) == {second}
        assert all(map(alive, family)), balancer.process.output
        assert balancer.process.stop() == 0
    finally:
        balancer.process.popen.kill()
        balancer.process.popen.wait()


@pytest.mark.drill
def test_a_balancer_outlives_its_terminal(tmp_path: Path) -> None:
    """The terminal that controls it is closed: it goes on, and can write nothing there."""
    ports = {"fra": free_port(), "iad": free_port()}
    first, *others = (f"http://127.0.0.1:{free_port()}" for _ in range(3))
    balancer = LoneBalancer(tmp_path, "fra", ports, "--file", str(_written(tmp_path, first)))
    eventually(balancer.state, "it is there", 30.0)
    balancer.process.stop()
    pid, terminal = pty.fork()
    if pid == 0:
        told = {**os.environ, "GTM_TOKEN": "gtm_test"}
        os.execve(sys.executable, [sys.executable, "-m", "gtm.cli", *balancer.arguments], told)  # noqa: S606 - ourselves
    try:
        eventually(lambda: _backends(balancer) == {first}, "it runs at the terminal", 30.0)
        os.close(terminal)
        for url in others:
            _written(tmp_path, url)
            eventually(lambda url=url: _backends(balancer) == {url}, "it goes on")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_sighup_ends_no_server_that_is_starting() -> None:
    """From the moment at which a command that runs servers has read its options."""
    program = """
import os, signal
from gtm.cli.servers.declared import with_options
with_options()(lambda given: os.kill(os.getpid(), signal.SIGHUP))()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
