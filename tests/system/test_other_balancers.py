"""HAProxy and NGINX as regions: `gtm report` tells control what they have, and the plan moves who finds no slot there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.adapters.test_balancers import _clients, _model_server, _running
from tests.ports import free_port
from tests.system.balancers import regions
from tests.system.harness import Process, System, eventually, system
from tests.tools import tool

pytestmark = [pytest.mark.system, pytest.mark.drill]

SLOTS, HELD = 2, 5
BERLIN, MOUNTAIN_VIEW = "95.90.1.1", "8.8.8.8"
PLACES = {"fra": ("DE", 50.1, 8.7), "iad": ("US", 39.0, -77.5), "gru": ("BR", -23.5, -46.6)}


def policy(ports: dict[str, int]) -> dict[str, Any]:
    """Frankfurt and Ashburn say what they can take; São Paulo has room by declaration. Nobody has to stay anywhere."""
    found = regions(PLACES, ports, {"type": "tcp"})
    next(one for one in found if one["name"] == "gru")["capacity"] = {"outstanding": 1000}
    return {
        "regions": found,
        "services": [
            {"name": "chat", "service_time_ms": 1000, "members": [{"region": name} for name in PLACES]}
        ],
    }


def haproxy(folder: Path, front: int, stats: int, backend: int) -> list[str]:
    """HAProxy with so many slots, and its exporter."""
    config = folder / "haproxy.cfg"
    config.write_text(
        "defaults\n mode http\n timeout connect 5s\n timeout client 300s\n timeout server 300s\n timeout queue 300s\n"
        f"frontend in\n bind 127.0.0.1:{front}\n default_backend models\n"
        f"frontend stats\n bind 127.0.0.1:{stats}\n"
        " http-request use-service prometheus-exporter if { path /metrics }\n"
        f"backend models\n server one 127.0.0.1:{backend} maxconn {SLOTS}\n"
    )
    return [tool("haproxy"), "-db", "-f", str(config)]


def nginx(folder: Path, front: int, backend: int) -> list[str]:
    """NGINX, which knows no queue and no limit, and its status."""
    config = folder / "nginx.conf"
    config.write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/log;\n"
        "events {}\n"
        f"http {{ access_log off; client_body_temp_path {folder}/a; proxy_temp_path {folder}/b;\n"
        f" fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;\n"
        f" server {{ listen 127.0.0.1:{front}; location = /status {{ stub_status; }}\n"
        f"  location / {{ proxy_read_timeout 300s; proxy_pass http://127.0.0.1:{backend}; }} }} }}\n"
    )
    return [tool("nginx"), "-c", str(config)]


@dataclass
class World:
    """gtm, and two balancers that hold requests until `release`."""

    system: System
    ports: dict[str, int]
    stats: int
    release: threading.Event
    folder: Path
    stack: ExitStack

    def report(self) -> None:
        """Let `gtm report` begin, of each balancer with a token of its own."""
        reads = {
            "fra": ("--haproxy", f"http://127.0.0.1:{self.stats}/metrics"),
            "iad": ("--nginx", f"http://127.0.0.1:{self.ports['iad']}/status", "--limit", str(SLOTS)),
        }
        for name, arguments in reads.items():
            body = {"name": f"{name}-reporter", "role": "reporter", "regions": name}
            token = self.system.api("POST", "/v1/tokens", json=body).json()["token"]
            command = ["report", "--control", self.system.control, "--region", name, *arguments]
            process = Process(command, self.folder / f"{name}.log", {"GTM_TOKEN": token})
            self.stack.callback(process.popen.wait)
            self.stack.callback(process.popen.kill)

    def load(self, region: str) -> dict[str, Any]:
        """What control knows of a region."""
        regions = self.system.api("GET", "/v1/load").json()["regions"]
        found: dict[str, Any] = next(one for one in regions if one["region"] == region)["load"] or {}
        return found

    def led(self, client: str) -> str | None:
        """Where a client is sent."""
        answer = httpx.get(
            f"{self.system.edge}/v1/route",
            params={"service": "chat"},
            headers={"X-Forwarded-For": client},
            timeout=10,
            trust_env=False,
        )
        region: str | None = answer.json().get("region")
        return region


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """It, up."""
    with ExitStack() as stack:
        backend, release = stack.enter_context(_model_server())
        ports, stats = {name: free_port() for name in PLACES} | {"gru": backend}, free_port()
        stack.enter_context(_running(haproxy(tmp_path, ports["fra"], stats, backend), stats))
        stack.enter_context(_running(nginx(tmp_path, ports["iad"], backend), ports["iad"]))
        running = stack.enter_context(system(tmp_path / "data", "--trusted-proxies", "127.0.0.0/8"))
        applied = running.api(
            "POST", "/v1/policy:apply?force=true&force_reason=test", json={"policy": policy(ports)}
        )
        assert applied.status_code == 200, applied.text
        stack.callback(release.set)
        yield World(running, ports, stats, release, tmp_path, stack)


def test_the_plan_moves_who_finds_no_slot(world: World) -> None:
    """Each is its clients' home; full, and said to be, the plan sends most of them to where room is."""
    homes = {BERLIN: "fra", MOUNTAIN_VIEW: "iad"}
    for client, home in homes.items():
        eventually(lambda client=client, home=home: world.led(client) == home, f"{home} is up")
    done = threading.Event()
    asked: dict[str, list[str | None]] = {client: [] for client in homes}

    def ask(client: str) -> None:
        while not done.wait(0.05):
            asked[client].append(world.led(client))

    threads = [threading.Thread(target=ask, args=(client,)) for client in homes]
    with ExitStack() as stack:
        for region in homes.values():
            stack.enter_context(_clients(f"http://127.0.0.1:{world.ports[region]}/", HELD))
        stack.callback(world.release.set)
        world.report()
        eventually(lambda: world.load("fra").get("queue") == HELD - SLOTS, "control sees HAProxy's queue")
        eventually(lambda: world.load("iad").get("outstanding") == HELD, "control sees NGINX's requests")
        haproxy_says, nginx_says = world.load("fra"), world.load("iad")
        assert (haproxy_says["outstanding"], haproxy_says["limit"]) == (SLOTS, SLOTS)
        assert (nginx_says["queue"], nginx_says["limit"]) == (None, SLOTS), "it has no queue to tell of"
        for thread in threads:
            thread.start()
        try:
            for client, home in homes.items():

                def moved(client: str = client) -> bool:
                    last = asked[client][-40:]
                    return len(last) == 40 and last.count("gru") > 20

                eventually(moved, f"most clients of {home} are sent to where room is")
        finally:
            done.set()
            for thread in threads:
                thread.join()
