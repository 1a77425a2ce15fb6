"""Whenever the first start is ended, the next one shows the first admin token, which counts (`gtm serve`)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gtm.runtime.serve.facts import ServeFacts
from tests.system.harness import System, eventually, kill_remains, marked, system

pytestmark = [pytest.mark.system, pytest.mark.drill, pytest.mark.endurance]

MOMENTS: dict[str, Callable[[System], bool]] = {
    "the database is being made": lambda one: (one.data_dir / "postgres" / "data").is_dir(),
    "the token is on disk": lambda one: (one.data_dir / "first-admin-token").exists(),
    "control listens": lambda one: "control listens" in one.process.output,
    "the edge starts": lambda one: "following control" in one.process.output,
}


def printed(running: System) -> list[str]:
    """The first admin tokens that its starts have shown."""
    return re.findall(r"GTM_TOKEN=(gtm_\S+)", running.process.output)


@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGKILL])
def test_the_first_start_that_gets_ready_shows_it(way: signal.Signals, tmp_path: Path) -> None:
    """One start after the other is ended, each a little later."""
    running = System(tmp_path / "data")
    for number, (what, came) in enumerate(MOMENTS.items()):
        if number:
            running.process = running.start()
        eventually(lambda came=came: came(running), what, of=[running.process])
        running.process.signal(way)
        running.process.end()
        if printed(running):
            break  # it was ready before it heard of its end, and the first one to be
    kill_remains(running.data_dir)
    with system(tmp_path / "data") as ready:
        # One that was ended as it showed the token leaves the next to show it, too.
        (text,) = set(printed(ready))
        assert ready.api("GET", "/v1/tokens").status_code == 200
        eventually(lambda: not (ready.data_dir / "first-admin-token").exists(), "it is forgotten")
        ready.process.stop()
        ready.revived()
        assert set(printed(ready)) == {text}
        assert "The admin token was printed at the first start" in ready.process.output


def test_what_nobody_could_read_is_shown_again(tmp_path: Path) -> None:
    """A start whose output goes into a pipe that nobody reads (`gtm serve | head -1`) keeps the token for the next."""
    data = tmp_path / "data"
    unread, pipe = os.pipe()
    os.close(unread)
    ports = ("--control-port", "0", "--edge-port", "0", "--dns-port", "0")
    with (tmp_path / "errors").open("wb") as errors:
        first = subprocess.Popen(
            [sys.executable, "-m", "gtm.cli", "serve", "--data-dir", str(data), *ports],
            stdout=pipe,
            stderr=errors,
            env=os.environ | marked(data),
        )
    os.close(pipe)
    try:
        eventually(lambda: ServeFacts.path(data).exists() or first.poll() is not None, "it is ready")
        assert first.poll() is None, (tmp_path / "errors").read_text()
        assert (data / "first-admin-token").exists()
    finally:
        first.send_signal(signal.SIGINT)
        first.wait()
    with system(data) as ready:
        assert len(printed(ready)) == 1
        assert ready.api("GET", "/v1/tokens").status_code == 200
