"""Two balancers with few slots under control: what finds no slot in Ashburn is served in Frankfurt, never the other way round for Europeans."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ports import free_port
from tests.system.balancers import (
    BERLIN,
    HOST,
    MOUNTAIN_VIEW,
    REGIONS,
    Backends,
    balancer_token,
    followed_balancer,
)
from tests.system.harness import eventually, system
from tests.system.test_balancer_fleet import Fleet, policy

pytestmark = [pytest.mark.system, pytest.mark.drill]

SLOTS = {"fra": 3, "iad": 1}
"""Of Frankfurt's three a report lets each of three senders (two balancers, an edge) use one."""
RATE = 2.0
"""Requests per second that may leave Ashburn."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Everything, up: one model server a region."""
    folder: Path = tmp_path_factory.mktemp("pushes")
    with ExitStack() as stack:
        backends = Backends(folder / "backends.log", 2)
        stack.callback(backends.process.popen.kill)
        ports, admin = {name: free_port() for name in REGIONS}, {name: free_port() for name in REGIONS}
        running = stack.enter_context(
            system(folder / "data", "--trusted-proxies", "127.0.0.0/8", "--probe-allow", "127.0.0.0/8")
        )
        rule = {"name": "out", "from_region": "iad", "to_regions": ["fra"], "max_requests_per_second": RATE}
        document: dict[str, Any] = policy(ports) | {"spillover_rules": [rule]}
        for region in document["regions"]:
            region["slow_start"] = 0  # one that has just come up takes nothing of others'
        body = {"policy": document}
        applied = running.api("POST", "/v1/policy:apply?force=true&force_reason=test", json=body)
        assert applied.status_code == 200, applied.text
        processes = []
        for number, name in enumerate(REGIONS):
            servers = {"backends": [{"url": backends.urls[number], "slots": SLOTS[name]}]}
            token = balancer_token(running, name)
            process = followed_balancer(
                running, folder, name, token, servers, ports=(ports[name], admin[name])
            )
            stack.callback(process.popen.kill)
            processes.append(process)
        found = Fleet(running, backends, ports, admin)
        for name, address in (("fra", BERLIN), ("iad", MOUNTAIN_VIEW)):
            eventually(partial(_serves, found, name, address), f"{name} serves", of=processes)
        yield found


def _ask(address: str, tokens: int, *, stream: bool = False) -> dict[str, Any]:
    content = json.dumps(
        {
            "model": "demo",
            "messages": [{"role": "user", "content": "Say."}],
            "max_tokens": tokens,
            "stream": stream,
        }
    )
    return {
        "content": content,
        "headers": {
            "Host": HOST,
            "X-Forwarded-For": address,
            "gtm-timeout": "4",
            "Content-Type": "application/json",
        },
    }


def _url(fleet: Fleet, region: str) -> str:
    return f"http://127.0.0.1:{fleet.ports[region]}/v1/chat/completions"


def _served(fleet: Fleet, region: str, address: str) -> str | None:
    """The region that serves a request of somebody who asks a region; None: none did."""
    try:
        answer = httpx.post(_url(fleet, region), **_ask(address, 1), timeout=20, trust_env=False)
    except httpx.HTTPError:
        return None
    return answer.headers.get("x-gtm-region") if answer.status_code == 200 else None


def _serves(fleet: Fleet, region: str, address: str) -> bool:
    return _served(fleet, region, address) == region


@contextmanager
def _filled(fleet: Fleet, region: str, address: str) -> Iterator[None]:
    """Streams that go on for long have the region's slots."""
    with ExitStack() as stack:
        for _ in range(SLOTS[region]):
            stream = stack.enter_context(
                httpx.stream(
                    "POST",
                    _url(fleet, region),
                    **_ask(address, 4_000, stream=True),
                    timeout=60,
                    trust_env=False,
                )
            )
            assert stream.status_code == 200
            assert stream.headers["x-gtm-region"] == region
        yield


def _seen(fleet: Fleet, region: str) -> int:
    return int(fleet.backends.state()[list(REGIONS).index(region)]["arrived"])


def _state(fleet: Fleet, region: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"http://127.0.0.1:{fleet.admin[region]}/state", trust_env=False).json()
    return found


def _pushes_seen(fleet: Fleet) -> set[tuple[str, str | None, str]]:
    """What `gtm top` has of pushes."""
    found = fleet.system.api("GET", "/v1/top").json()["pushes"]
    return {(one["from"], one["to"], one["why"]) for one in found if one["requests_per_second"] > 0}


def test_keys_of_balancers_are_for_balancers(fleet: Fleet) -> None:
    """Others' verifiers go by edges' keys alone: they cannot tell a push."""
    published = httpx.get(f"{fleet.system.control}/v1/handoff/jwks.json", trust_env=False).json()["keys"]
    assert len(published) == 1, "the edge's"


def test_an_american_is_served_in_frankfurt_while_ashburn_is_full(fleet: Fleet) -> None:
    """By the balancer of Ashburn, under the rule's quota: tokens are leased to it once it has asked for some, though no edge is asked."""
    with _filled(fleet, "iad", MOUNTAIN_VIEW):

        def pushed() -> bool:
            return _served(fleet, "iad", MOUNTAIN_VIEW) == "fra"

        try:
            eventually(pushed, "Frankfurt serves it", 50)
        except AssertionError as error:
            raise AssertionError(f"{error}: {_state(fleet, 'iad')}") from None
        pushes = {(one["region"], one["why"]): one["requests"] for one in _state(fleet, "iad")["pushes"]}
        assert pushes["fra", "moved"] >= 1
        assert "gtm_balancer_pushes_total{" in fleet.metrics("iad")
        assert "gtm_balancer_pushes_untold_total 0" in fleet.metrics("iad")
        eventually(lambda: ("iad", "fra", "moved") in _pushes_seen(fleet) or None, "control has heard of it")
    assert "gtm_balancer_handoff_flaws_total{" not in fleet.metrics("fra")
    eventually(lambda: not _state(fleet, "iad")["at_peers"] or None, "nothing is left at peers")


def test_a_european_waits_in_frankfurt_while_ashburn_is_free(fleet: Fleet) -> None:
    """It is served where it may be, once there is room; nothing of it reaches a model server in America."""
    before = _seen(fleet, "iad")
    with ThreadPoolExecutor(1) as pool:
        with _filled(fleet, "fra", BERLIN):
            asked = pool.submit(_served, fleet, "fra", BERLIN)

            def waits() -> bool | None:
                tiers = _state(fleet, "fra")["tiers"]
                return any(one["waiting"] for one in tiers.values()) or None

            eventually(waits, "it waits")
        assert asked.result(30) == "fra"
    assert _seen(fleet, "iad") == before
