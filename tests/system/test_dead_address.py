"""An address dies while its endpoint's URL goes on: the whole system, with real sockets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.address_bench import ALLOW, EU, US, WELL, policy, serve
from tests.ports import free_port
from tests.system.harness import System, eventually, system

pytestmark = [pytest.mark.system, pytest.mark.drill]


def _answer(running: System) -> list[str]:
    return running.addresses("web.example.test")


def test_a_dead_address_leaves_answers_and_a_restart_brings_it_not_back(tmp_path: Path) -> None:
    """It is said by family and with its reason, and a `gtm serve` that starts while it is dead never answers it."""
    port = free_port()
    kept = [serve(address, port) for address in WELL]
    dying = serve(EU, port)
    try:
        with system(tmp_path / "data", *ALLOW) as running:
            applied = running.api(
                "POST", "/v1/policy:apply?force=true&force_reason=test", json={"policy": policy(port)}
            )
            assert applied.status_code == 200, applied.text
            eventually(lambda: _answer(running) == [EU], "it answers")

            def vantages() -> list[str]:
                [region] = running.api("GET", "/v1/health?region=eu").json()["regions"]
                return [one["status"] for one in region["endpoints"][0]["addresses"]]

            eventually(lambda: vantages() == ["up", "up"], "both addresses are known")
            dying.shutdown()
            dying.server_close()
            eventually(lambda: _answer(running) == [US], "the address left the answers")

            def families() -> dict[str, str]:
                [region] = running.api("GET", "/v1/health?region=eu").json()["regions"]
                assert region["status"] == "up"
                return dict(region["families"])

            eventually(lambda: families() == {"ipv4": "down", "ipv6": "up"}, "control heard of it")
            said = running.api("GET", "/v1/status").json()["warnings"]
            assert any("region `eu` is down for IPv4" in one and EU in one for one in said), said
            eventually(lambda: any(tmp_path.rglob("addresses-up")), "the edge keeps what was up")
            running.process.stop()
            running.revived()
            eventually(lambda: bool(_answer(running)), "it answers again")
            assert _answer(running) == [US]
    finally:
        for server in kept:
            server.shutdown()
            server.server_close()
