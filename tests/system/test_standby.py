"""Two real controls on one real Postgres; the active one dies without a word."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import pytest

from gtm.core.model.access import Role
from tests.api.conftest import TOKENS
from tests.ports import free_port
from tests.system.harness import Process, eventually

pytestmark = [pytest.mark.system, pytest.mark.drill]


def test_a_standby_takes_over_from_a_control_that_was_killed(tmp_path: Path, prepared_url: str) -> None:
    """After kill -9 the second is active, accepts reports and changes, and the first comes back as its standby."""
    ports = [free_port(), free_port()]

    def start(number: int) -> Process:
        environment = {"GTM_DATABASE_URL": prepared_url, "GTM_DATA_DIR": str(tmp_path / f"data-{number}")}
        arguments = ["control", "--control-port", str(ports[number]), "--no-prepare"]
        return Process(arguments, tmp_path / f"control-{number}.log", environment)

    def standing(number: int) -> str:
        headers = {"Authorization": f"Bearer {TOKENS[Role.VIEWER]}"}
        url = f"http://127.0.0.1:{ports[number]}/v1/status"
        found: str = httpx.get(url, headers=headers, timeout=5).json()["control"]
        return found

    def ready(number: int) -> int:
        return httpx.get(f"http://127.0.0.1:{ports[number]}/readyz", timeout=5).status_code

    running = [start(0)]
    try:
        eventually(lambda: standing(0) == "active" and ready(0) == 200, "the first is active")
        running.append(start(1))
        eventually(lambda: standing(1) == "standby", "the second stands by")
        assert ready(1) == 503
        assert f":{ports[0]}" in httpx.get(f"http://127.0.0.1:{ports[1]}/readyz", timeout=5).json()["detail"]
        running[0].signal(signal.SIGKILL)
        running[0].end()
        eventually(lambda: standing(1) == "active" and ready(1) == 200, "the second takes over")
        report = httpx.post(
            f"http://127.0.0.1:{ports[1]}/v1/edges/edge/report",
            headers={"Authorization": f"Bearer {TOKENS[Role.EDGE]}"},
            json={"version": "1", "revision": 1, "epoch": 1, "health": {}},
            timeout=5,
        )
        assert report.status_code == 200, report.text
        running.append(start(0))
        eventually(lambda: standing(0) == "standby", "the first comes back, and stands by")
        assert standing(1) == "active"
    finally:
        for process in running:
            if process.popen.poll() is None:
                process.stop()
