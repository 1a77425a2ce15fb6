"""Whenever the first start is ended, the next one shows the first admin token, which counts (`gtm serve`)."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.harness import System, eventually, kill_remains, system

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
        assert printed(running) == []
    kill_remains(running.data_dir)
    with system(tmp_path / "data") as ready:
        (text,) = printed(ready)
        assert ready.api("GET", "/v1/tokens").status_code == 200
        eventually(lambda: not (ready.data_dir / "first-admin-token").exists(), "it is forgotten")
        ready.process.stop()
        ready.revived()
        assert printed(ready) == [text]
        assert ready.process.output.count("The admin token was printed at the first start") == 1
