"""Measured round trips through the whole system: from a balancer's post to another order of regions."""

from __future__ import annotations

import os
import signal
from typing import Any

import httpx
import pytest

from tests.system.harness import System, eventually

pytestmark = [pytest.mark.system, pytest.mark.drill]

MEASURED = [
    f"134.130.{number}.1" for number in range(1, 31)
]  # RWTH Aachen's, one network of the shipped database
NEIGHBOUR = "134.130.200.1"


def candidates(running: System) -> dict[str, dict[str, Any]]:
    """The explanation of a look-up for a client of the network that nobody measured himself."""
    answer = running.route(service="web", client_ip=NEIGHBOUR, explain="1").json()
    return {item["region"]: item for item in answer["candidates"]}


def post(running: System) -> dict[str, Any]:
    """Post that Dublin is much nearer to the network than Frankfurt, as a balancer saw it."""
    made = running.api("POST", "/v1/tokens", json={"name": "balancer-1", "role": "reporter"}).json()
    times = {"eu-central": 70.0, "eu-west": 22.0}
    samples = [
        {"client": client, "region": region, "rtt_ms": ms}
        for client in MEASURED
        for region, ms in times.items()
    ]
    body, headers = {"samples": samples}, {"Authorization": f"Bearer {made['token']}"}
    answers: list[httpx.Response] = []

    def known() -> bool:
        answers.append(
            httpx.post(f"{running.edge}/v1/latency-samples", json=body, headers=headers, timeout=20)
        )
        return answers[-1].status_code != 401

    eventually(known, "the edge knows the token that was just made")
    found: dict[str, Any] = answers[-1].json()
    return found


def test_what_a_network_measures_moves_its_ranking(shared_demo: System) -> None:
    """What thirty sources of a network say decides its ranking, is explained, and survives a restart of control."""
    running = shared_demo
    before = candidates(running)
    assert before["eu-central"]["rank"] < before["eu-west"]["rank"]
    assert before["eu-central"]["estimate_source"] == "model"
    loopback = {"samples": [{"region": region, "rtt_ms": 0.2} for region in before]}
    beacon = httpx.post(f"{running.edge}/v1/beacons", json=loopback, timeout=20).json()
    assert beacon["accepted"] == 0
    assert post(running) == {"accepted": 60, "refused": {}}

    def moved() -> bool:
        now = candidates(running)
        return bool(now["eu-west"]["rank"] < now["eu-central"]["rank"])

    eventually(moved, "the network's ranking follows what was measured")
    after = candidates(running)
    assert after["eu-west"]["rank"] == 1
    assert after["eu-west"]["estimate_source"] == after["eu-central"]["estimate_source"] == "network"
    assert after["eu-west"]["estimate_ms"] < before["eu-west"]["estimate_ms"]
    shown = running.api("GET", "/v1/latency", params={"client": NEIGHBOUR}).json()
    assert shown["rows"]["network"] == 1
    assert shown["estimates"]["regions"][0]["region"] == "eu-west"
    for pid in running.processes("gtm.runtime.serve.control"):
        os.kill(pid, signal.SIGTERM)

    def known_again() -> bool:
        answer = running.api("GET", "/v1/latency")
        if answer.status_code != 200:  # 503: it has no policy yet
            return False
        found = answer.json()
        return bool(found["version"] > shown["version"] and found["rows"] == shown["rows"])

    eventually(known_again, "the control that was started again knows what the one before learned")
    assert moved()
