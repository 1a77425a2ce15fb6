"""An edge that carries requests to regions, whole: control, the edge, and a balancer a region before servers of a test's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from tests.ports import free_port
from tests.system.balancers import balancer_token, followed_balancer, regions
from tests.system.harness import Process, System, eventually, system

HOST = "localhost"
"""A host name of the service's that every client finds without being told."""
PLACES = {"fra": ("DE", 50.1, 8.7), "ams": ("NL", 52.4, 4.9), "iad": ("US", 39.0, -77.5)}
INSIDE = ("fra", "ams")
"""Regions where Europeans may be served."""


@dataclass(frozen=True)
class CarriedWorld:
    """All of it: `balancers`, by region, and where each says what it does (`admin`)."""

    system: System
    balancers: dict[str, Process]
    ports: dict[str, int]
    admin: dict[str, str]

    @property
    def by_path(self) -> str:
        """Where the service is, on every host of the edge."""
        return f"{self.system.edge}/r/chat"

    @property
    def by_host(self) -> str:
        """Where it is by its own name."""
        return f"http://{HOST}:{self.system.edge.rpartition(':')[2]}"

    def in_flight(self) -> int:
        """Requests at all regions' servers."""
        return sum(int(one["in_flight"]) for name in self.admin for one in self.state(name)["backends"])

    def state(self, region: str) -> dict[str, Any]:
        """What a region's balancer knows."""
        return _state(self.admin[region])

    def counted(self, name: str) -> dict[str, float]:
        """What the edge has counted: labels as they are written → how many."""
        text = httpx.get(f"{self.system.edge}/metrics", trust_env=False, timeout=5).text
        lines = [line.rpartition(" ") for line in text.splitlines() if line.startswith(name + "{")]
        return {labels.removeprefix(name): float(value) for labels, _, value in lines}


@contextmanager
def carrying(
    folder: Path,
    servers: Mapping[str, Mapping[str, Any]],
    *,
    inside: bool = True,
    service: Mapping[str, object] = {},
    arguments: Sequence[str] = (),
    host: str = HOST,
    addresses: Mapping[str, str] = {},
    of_balancers: Sequence[str] = (),
) -> Iterator[CarriedWorld]:
    """Start it; each region's balancer has proven to the edge that it is one when the block begins.

    Args:
        folder: for data and logs.
        servers: region → its balancer's file.
        inside: whether the edge stands inside the fence of Europeans.
        service: more fields of the service.
        arguments: more of `gtm serve`.
        host: the service's host name.
        addresses: region → where its balancer listens, in place of 127.0.0.1: there all have one port.
        of_balancers: more of `gtm balancer`.
    """
    port = free_port()
    ports = {name: port if name in addresses else free_port() for name in servers}
    at = {name: addresses.get(name, "127.0.0.1") for name in servers}
    admin_ports = {name: free_port() for name in servers}
    admin = {name: f"http://{at[name]}:{admin_ports[name]}" for name in servers}
    with ExitStack() as stack:
        running = stack.enter_context(
            system(
                folder / "data",
                *("--trusted-proxies", "127.0.0.0/8", "--probe-allow", "127.0.0.0/8"),
                *("--country", "DE" if inside else "US", *arguments),
            )
        )
        places = {name: PLACES[name] for name in servers}
        document = policy(places, ports, service, host, addresses)
        applied = running.api(
            "POST", "/v1/policy:apply?force=true&force_reason=test", json={"policy": document}
        )
        assert applied.status_code == 200, applied.text
        balancers = {}
        for name, file in servers.items():
            balancers[name] = followed_balancer(
                running,
                folder,
                name,
                balancer_token(running, name),
                dict(file),
                *("--bind", at[name], *of_balancers),
                ports=(ports[name], admin_ports[name]),
            )
            stack.callback(balancers[name].popen.kill)
        world = CarriedWorld(running, balancers, ports, admin)
        for name in servers:
            eventually(
                partial(_ready, admin[name]), f"the balancer of {name} is ready", of=balancers.values()
            )
        for name in servers:
            eventually(partial(_up, running, name), f"{name} is up", of=balancers.values())
        eventually(partial(_keyed, running), "the edge's key is known", of=balancers.values())
        yield world


def _state(admin: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{admin}/state", trust_env=False, timeout=5).json()
    return found


def _ready(admin: str) -> bool:
    state = _state(admin)
    healthy = all(one["state"] in ("up", "warming") for one in state["backends"])
    return bool(state["handoff_keys"]) and healthy


def _keyed(running: System) -> bool:
    """Balancers answer what is asked here themselves."""
    asked = httpx.head(f"{running.edge}/r/chat/healthz", trust_env=False, timeout=5)
    return asked.headers.get("x-gtm-not-carried") != "edge_without_key"


def _up(running: System, region: str) -> bool:
    found = running.route(service="chat", explain="1").json()["candidates"]
    health = [point["health"] for one in found if one["region"] == region for point in one["endpoints"]]
    return bool(health) and set(health) == {"up"}


def policy(
    places: Mapping[str, tuple[str, float, float]],
    ports: Mapping[str, int],
    service: Mapping[str, object],
    host: str = HOST,
    addresses: Mapping[str, str] = {},
) -> dict[str, Any]:
    """Regions; what Europeans ask stays in the EEA, and is carried."""
    zone = host if "." not in host else host.partition(".")[2]
    return {
        "regions": regions(places, ports, {"type": "http", "path": "/healthz"}, addresses),
        "zones": [
            {
                "name": zone,
                "primary_ns": f"ns1.{zone}",
                "hostmaster": f"hostmaster.{zone}",
                "name_servers": [{"name": f"ns1.{zone}", "ipv4": ["127.0.0.1"]}],
            }
        ],
        "services": [
            {
                "name": "chat",
                "members": [{"region": name} for name in places],
                "hostnames": [host],
                "zone": zone,
                "refusal": {"ipv4": ["192.0.2.250"]},
                "answer": "carry",
                **service,
            }
        ],
        "tenants": [{"name": "acme"}],
        "residency_rules": [
            {
                "name": "gdpr",
                "match": {"services": ["chat"], "client_jurisdictions": ["EEA"]},
                "allow": {"jurisdictions": ["EEA"]},
                "legal_basis": "Art. 44 GDPR",
            }
        ],
    }
