"""A9: networks that are not where the location database says."""

from __future__ import annotations

from typing import Any

import httpx

from tests.drills.arena import Arena, attack, held
from tests.system.harness import System, eventually

MOVED = "128.32"
"""A university's /16 in California, by the shipped database; here it stands in Frankfurt."""
SLANDERED = "128.59"
"""Another, in New York, of which one token says the same."""
TIMES = {"eu-central": 2.0, "eu-west": 24.0, "us-east": 92.0}


@attack("A9", "a network that the location database has on another continent")
def mislocated(arena: Arena) -> str:
    """Balancers of two regions see that a network is in Europe; of another one token says so, however often."""
    with arena.own("--demo") as demo:
        before = _decided(demo, "chat", MOVED)
        held(before["region"].startswith("us-"), f"the database has {MOVED} in {before['client']}")
        tokens = {region: _token(demo, region) for region in TIMES}
        for region in ("eu-central", "eu-west"):
            _post(demo, tokens[region], MOVED, {region: TIMES[region]})
        _post(demo, tokens["us-east"], SLANDERED, {"eu-central": 2.0, "eu-west": 24.0})

        def in_doubt() -> bool:
            return _decided(demo, "chat", MOVED)["region"] == "eu-central"

        eventually(in_doubt, "the network's clients are inside the fence of those whom nobody can locate")
        _post(demo, tokens["us-east"], MOVED, {"us-east": TIMES["us-east"]})  # it sees nothing wrong
        after = _decided(demo, "chat", MOVED)
        because = [phrase for rule in after["rules"] for phrase in rule["because"]]
        held("client country US in doubt" in because, f"rules: {after['rules']}")
        nearest = {item["region"]: item for item in _decided(demo, "web", MOVED)["candidates"]}["eu-central"]
        held(nearest["estimate_source"] == "network", f"estimated from {nearest['estimate_source']}")
        held(nearest["estimate_ms"] < 10, f"estimated {nearest['estimate_ms']} ms instead of 2")
        seen = demo.api("GET", "/v1/latency").json()
        verdicts = {one["network"]: one["doubtful"] for one in seen["doubts"]["disputed"]}
        held(verdicts == {"128.32.0.0/16": True, "128.59.0.0/16": False}, f"disputed: {verdicts}")
        held(seen["rows"]["place"] == 0, "a doubtful network taught a place")
        spared = _decided(demo, "chat", SLANDERED)
        held(not spared["rules"], f"one token restricted a network: {spared['rules']}")
        return (
            f"{MOVED} to eu-central, {nearest['estimate_ms']:.0f} ms; {SLANDERED} stays at {spared['region']}"
        )


def _decided(running: System, service: str, network: str) -> dict[str, Any]:
    found: dict[str, Any] = running.route(service=service, client_ip=f"{network}.9.9", explain="1").json()
    return found


def _token(running: System, region: str) -> str:
    made = running.api("POST", "/v1/tokens", json={"name": f"balancer-{region}", "role": "reporter"})
    return str(made.json()["token"])


def _post(running: System, token: str, network: str, times: dict[str, float]) -> None:
    """Post what a balancer saw of thirty clients."""
    samples = [
        {"client": f"{network}.{number}.1", "region": region, "rtt_ms": ms}
        for number in range(30)
        for region, ms in times.items()
    ]

    def taken() -> bool:  # once the edge knows the token
        answer = httpx.post(
            f"{running.edge}/v1/latency-samples",
            json={"samples": samples},
            headers={"Authorization": f"Bearer {token}"},
            timeout=20,
            trust_env=False,
        )
        return answer.status_code == 200 and answer.json() == {"accepted": len(samples), "refused": {}}

    eventually(taken, "the edge takes the samples in")
