"""A balancer of a region that the policy does not have: it says so wherever it is asked, and serves once there is one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ports import free_port
from tests.system.balancers import REGIONS, Backends, balancer_token, followed_balancer
from tests.system.harness import System, eventually, system
from tests.system.test_balancer_fleet import policy

pytestmark = pytest.mark.system

WORDS = "there is no region `nope`"


def _apply(running: System, document: dict[str, Any]) -> None:
    applied = running.api("POST", "/v1/policy:apply?force=true&force_reason=test", json={"policy": document})
    assert applied.status_code == 200, applied.text


def _says(port: int, path: str) -> tuple[int, str]:
    answer = httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False, timeout=5)
    said = answer.json()
    return answer.status_code, said.get("detail") or said.get("status") or ""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_region_that_is_not_there_yet_and_is_deleted(tmp_path: Path, workers: int) -> None:
    """`/healthz`, `/readyz`, the log once, and `gtm status`; until the policy has it, and again when it has it no more."""
    ports, admin = {name: free_port() for name in (*REGIONS, "nope")}, free_port()
    backends = Backends(tmp_path / "backends.log", 1)
    try:
        with system(tmp_path / "data", "--probe-allow", "127.0.0.0/8") as running:
            without = policy(ports)
            place = {**json.loads(json.dumps(without["regions"][0])), "name": "nope"}
            place["endpoints"] = [{"url": f"http://127.0.0.1:{ports['nope']}"}]
            having = {**without, "regions": [*without["regions"], place]}
            _apply(running, without)
            process = followed_balancer(
                running,
                tmp_path,
                "nope",
                balancer_token(running, "nope"),
                {"service": "chat", "backends": [{"url": backends.urls[0], "slots": 1}]},
                "--workers",
                str(workers),
                ports=(ports["nope"], admin),
            )
            try:
                asked = ((ports["nope"], "/healthz"), (admin, "/readyz"))
                for place_of in asked:
                    eventually(lambda one=place_of: _says(*one) == (503, WORDS), "it says so", of=[process])
                warnings = lambda: "".join(running.api("GET", "/v1/status").json()["warnings"])  # noqa: E731
                eventually(
                    lambda: f"{WORDS}, and balancers say" in warnings(), "control says so", of=[process]
                )
                _apply(running, having)
                for place_of in asked:
                    eventually(lambda one=place_of: _says(*one)[0] == 200, "it is ready", of=[process])
                eventually(lambda: f"{WORDS}, and balancers" not in warnings(), "and control knows")
                _apply(running, without)
                for place_of in asked:
                    eventually(lambda one=place_of: _says(*one) == (503, WORDS), "it is gone", of=[process])
                assert process.output.count(f"{WORDS} in revision") == 2, process.output
            finally:
                process.stop()
    finally:
        backends.process.stop()
