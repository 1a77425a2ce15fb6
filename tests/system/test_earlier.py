"""A start after `kill -9` of `gtm serve` waits for what that left, or says what it is and how to end it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.system.harness import System, eventually, stopped, system

pytestmark = [pytest.mark.system, pytest.mark.drill, pytest.mark.endurance]


def kill(running: System, lock: str) -> int:
    """What kills `gtm serve` while the holder of a lock hangs, which that is; the next start wants the same ports."""
    ports = (urlsplit(running.control).port, urlsplit(running.edge).port, running.dns_port)
    options = ("--control-port", "--edge-port", "--dns-port")
    named = [part for option, port in zip(options, ports, strict=True) for part in (option, str(port))]
    running.arguments[3:9] = named
    left = int((running.data_dir / lock).read_text())
    os.kill(left, signal.SIGSTOP)
    eventually(lambda: stopped(left), "it hangs")
    running.process.signal(signal.SIGKILL)
    running.process.end()
    running.process = running.start()
    return left


@pytest.mark.parametrize(("what", "lock"), [("control", "control.lock"), ("edge", "edge.lock")])
def test_a_next_start_waits_for_what_was_left_or_names_it(what: str, lock: str, tmp_path: Path) -> None:
    """One that does not end is named with how to end it; one that comes to is waited for."""
    with system(tmp_path / "data") as running:
        left = kill(running, lock)
        try:
            assert running.process.end() == 5
            last = running.process.error
            assert (
                f"the {what} of an earlier start on `{running.data_dir}` (process {left}) may hold it" in last
            )
            assert last.endswith(f"end it with `kill -9 {left}`, and start again")
            running.process = running.start()
            waits = f"waiting for the {what} of an earlier start (process {left}) to end"
            eventually(lambda: running.process.output.count(waits) == 2, "it waits", of=[running.process])
        finally:
            os.kill(left, signal.SIGCONT)
        running.wait()
        assert running.api("GET", "/v1/tokens").status_code == 200


def test_a_strangers_port_is_not_the_edges(tmp_path: Path) -> None:
    """An edge that is left over has said which ports are its own: whoever has another is not waited for."""
    with system(tmp_path / "data") as running, socket.create_server(("127.0.0.1", 0)) as stranger:
        running.process.signal(signal.SIGKILL)
        running.process.end()
        running.arguments[5:7] = ["--edge-port", str(stranger.getsockname()[1])]
        running.process = running.start()
        assert running.process.end() == 5
        assert running.process.error.endswith("is in use; choose another with --edge-port")
        assert "earlier start" not in running.process.output


@pytest.mark.skipif(os.geteuid() != 0, reason="agents show their descriptors to root alone")
def test_an_edge_of_another_directory_is_named(tmp_path: Path) -> None:
    """It goes on until something starts there, or is told to end: a start elsewhere says so. One that is looked after is not named."""
    with system(tmp_path / "first") as first:
        second = System(tmp_path / "second", "--edge-port", str(urlsplit(first.edge).port))
        assert second.process.end() == 5
        assert second.process.error.endswith("is in use; choose another with --edge-port")
        first.process.signal(signal.SIGKILL)
        first.process.end()
        second.process = second.start()
        assert second.process.end() == 5
        advice = f"gtm edge --stop --data-dir {first.data_dir}"
        assert second.process.error.endswith(f"or end the edge with `{advice}`")
        command = [sys.executable, "-m", "gtm.cli", *advice.split()[1:]]
        subprocess.run(command, check=True, capture_output=True)
        with system(tmp_path / "second", *second.arguments[9:]) as third:
            assert third.edge == first.edge
