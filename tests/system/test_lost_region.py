"""A balancer of a region that the policy does not have: it says so wherever it is asked, and serves once there is one."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ports import free_port
from tests.system.balancers import REGIONS, Backends, balancer_token, followed_balancer
from tests.system.harness import Process, System, eventually, system
from tests.system.test_balancer_fleet import policy

pytestmark = pytest.mark.system

NOPE = ("nope", "nada")
"""Regions that the policy does not have at first."""


def words(region: str) -> str:
    """What is said of one that is not there."""
    return f"there is no region `{region}`"


def _apply(running: System, document: dict[str, Any]) -> None:
    applied = running.api("POST", "/v1/policy:apply?force=true&force_reason=test", json={"policy": document})
    assert applied.status_code == 200, applied.text


def _says(port: int, path: str) -> tuple[int, str]:
    answer = httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False, timeout=5)
    said = answer.json()
    return answer.status_code, said.get("detail") or said.get("status") or ""


def test_regions_that_are_not_there_yet_and_are_deleted(tmp_path: Path) -> None:
    """`/healthz`, `/readyz`, the log once, and `gtm status`; until the policy has them, and again when it has them no more.

    One's balancer is one process, the other's are two workers.
    """
    ports = {name: free_port() for name in (*REGIONS, *NOPE)}
    backends = Backends(tmp_path / "backends.log", 1)
    balancers: list[Process] = []
    asked: list[tuple[str, int, str]] = []
    try:
        with system(tmp_path / "data", "--probe-allow", "127.0.0.0/8") as running:
            without = policy(ports)
            places = [{**json.loads(json.dumps(without["regions"][0])), "name": name} for name in NOPE]
            for place in places:
                place["endpoints"] = [{"url": f"http://127.0.0.1:{ports[place['name']]}"}]
            having = {**without, "regions": [*without["regions"], *places]}
            _apply(running, without)
            for workers, name in enumerate(NOPE, 1):
                admin = free_port()
                balancers.append(
                    followed_balancer(
                        running,
                        tmp_path,
                        name,
                        balancer_token(running, name),
                        {"service": "chat", "backends": [{"url": backends.urls[0], "slots": 1}]},
                        "--workers",
                        str(workers),
                        ports=(ports[name], admin),
                    )
                )
                asked += [(name, ports[name], "/healthz"), (name, admin, "/readyz")]

            def told(what: str) -> int:
                warnings = "".join(running.api("GET", "/v1/status").json()["warnings"])
                return sum(f"{words(name)}, and balancers{what}" in warnings for name in NOPE)

            def gone(name: str, port: int, path: str) -> bool:
                return _says(port, path) == (503, words(name))

            for one in asked:
                eventually(partial(gone, *one), "it says so", of=balancers)
            eventually(lambda: told(" say") == len(NOPE), "control says so", of=balancers)
            _apply(running, having)
            for _, port, path in asked:
                eventually(lambda of=(port, path): _says(*of)[0] == 200, "it is ready", of=balancers)
            eventually(lambda: told("") == 0, "and control knows")
            _apply(running, without)
            for one in asked:
                eventually(partial(gone, *one), "it is gone", of=balancers)
            for name, process in zip(NOPE, balancers, strict=True):
                assert process.output.count(f"{words(name)} in revision") == 2, process.output
    finally:
        for process in (*balancers, backends.process):
            process.stop()
