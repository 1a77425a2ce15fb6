"""Balancers without control, in front of simulated model servers: they serve from a last-good file that a test has written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from gtm.core.model.access import Access
from gtm.core.model.policy import Match, Places, Policy, ResidencyRule, Tenant
from gtm.core.model.regions import Endpoint, Region
from gtm.core.model.services import Member, NameServer, RefusalAddress, Service, Zone
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.feed import lastgood
from gtm.feed.wire import AccessMessage, SnapshotMessage
from tests.ports import free_port
from tests.system.harness import Process, System, eventually

HOST = "chat.demo.test"
BERLIN, MOUNTAIN_VIEW = "95.90.1.1", "8.8.8.8"
REGIONS = {"fra": ("DE", 50.1, 8.7), "iad": ("US", 39.0, -77.5)}


def policy(ports: dict[str, int]) -> Policy:
    """A region in Germany and one in the United States; what Europeans ask stays in the EEA."""
    regions = tuple(
        Region(name, lat, lon, country, (Endpoint(f"http://127.0.0.1:{ports[name]}", ("192.0.2.7",)),))
        for name, (country, lat, lon) in REGIONS.items()
    )
    rule = ResidencyRule(
        "gdpr",
        Match(client_jurisdictions=("EEA",)),
        Places(jurisdictions=("EEA",)),
        legal_basis="Art. 44 GDPR",
    )
    servers = (NameServer("ns1.demo.test", ("192.0.2.53",)),)
    zone = Zone("demo.test", "ns1.demo.test", "hostmaster.demo.test", servers)
    service = Service(
        "chat",
        tuple(Member(name) for name in REGIONS),
        hostnames=(HOST,),
        zone="demo.test",
        refusal=RefusalAddress(("192.0.2.250",)),
    )
    return Policy(regions, (zone,), (service,), residency_rules=(rule,), tenants=(Tenant("acme"),))


def regions(
    places: Mapping[str, tuple[str, float, float]],
    ports: Mapping[str, int],
    probe: Mapping[str, object],
    addresses: Mapping[str, str] = {},
) -> list[dict[str, Any]]:
    """Regions of a document, at these places (country, latitude, longitude), ports and addresses (127.0.0.1) of this machine; each is used at once."""
    at = {name: addresses.get(name, "127.0.0.1") for name in places}
    return [
        {
            "name": name,
            "country": country,
            "lat": lat,
            "lon": lon,
            "endpoints": [{"url": f"http://{at[name]}:{ports[name]}", "ipv4": [at[name]]}],
            "probe": {**probe, "interval": 1, "timeout": 0.8, "up_threshold": 1, "down_threshold": 2},
            "slow_start": 0,
        }
        for name, (country, lat, lon) in places.items()
    ]


class Backends:
    """Simulated model servers in one process."""

    def __init__(self, log: Path, count: int, *more: str) -> None:
        arguments = [
            "demo",
            "backend",
            "--count",
            str(count),
            "--port",
            "0",
            "--admin-port",
            "0",
            "--json",
            *more,
        ]
        self.process = Process(arguments, log)

        def started() -> bool:
            return "\n" in self.process.output

        eventually(started, "model servers are up", 60.0)
        facts = json.loads(self.process.output.splitlines()[0])
        self.urls: list[str] = facts["backends"]
        self.admin: str = facts["admin"]

    def state(self) -> list[dict[str, Any]]:
        """What each does now."""
        found: list[dict[str, Any]] = httpx.get(f"{self.admin}/demo/state", trust_env=False).json()[
            "backends"
        ]
        return found

    def fail(self, number: int, mode: str, **more: Any) -> None:
        """Make one fail."""
        sent = httpx.post(
            f"{self.admin}/demo/fail",
            params={"backend": number},
            json={"mode": mode, **more},
            trust_env=False,
        )
        sent.raise_for_status()


class LoneBalancer:
    """A running `gtm balancer`."""

    def __init__(self, data_dir: Path, region: str, ports: dict[str, int], *arguments: str) -> None:
        self.region, self.port, self.admin_port = region, ports[region], free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        home = data_dir / f"balancer-{region}"
        home.mkdir(parents=True, exist_ok=True)
        snapshot = SnapshotMessage.of(1, 1.0, policy(ports), shipped_jurisdictions())
        lastgood.save(home / "edge-last-good", [AccessMessage(Access()), snapshot])
        self.arguments = [
            *("balancer", "--region", region, "--name", f"{region}-1", "--data-dir", str(data_dir)),
            *("--control", "http://127.0.0.1:1", "--balancer-port", str(self.port)),
            *("--admin-port", str(self.admin_port), "--trusted-proxies", "127.0.0.0/8", *arguments),
        ]
        self.log = data_dir / f"{region}.log"
        self.process = self.start()

    def start(self, *more: str) -> Process:
        """Start a process with these settings."""
        return Process([*self.arguments, *more], self.log, {"GTM_TOKEN": "gtm_test"})

    def wait(self) -> LoneBalancer:
        """Until it serves."""
        eventually(self.ready, f"the balancer of {self.region} is ready: {self.log}", 30.0)
        return self

    def revived(self) -> LoneBalancer:
        """Itself, ready: started again if a test has ended it."""
        if self.process.popen.poll() is not None:
            self.process = self.start()
            self.wait()
        return self

    def ready(self) -> bool:
        """Whether it says so."""
        url = f"http://127.0.0.1:{self.admin_port}/readyz"
        return httpx.get(url, trust_env=False, timeout=2).status_code == 200

    def state(self) -> dict[str, Any]:
        """What it knows."""
        found: dict[str, Any] = httpx.get(
            f"http://127.0.0.1:{self.admin_port}/state", trust_env=False, timeout=5
        ).json()
        return found

    def in_flight(self) -> int:
        """Requests at all its backends."""
        return sum(int(one["in_flight"]) for one in self.state()["backends"])


@contextmanager
def lone_balancer(
    data_dir: Path, region: str, ports: dict[str, int], *arguments: str
) -> Iterator[LoneBalancer]:
    """One, ready, and ended at the end."""
    running = LoneBalancer(data_dir, region, ports, *arguments)
    try:
        yield running.wait()
    finally:
        running.process.popen.kill()
        running.process.popen.wait()


class Streams:
    """Streams of a model server through a balancer, each over a connection of its own: which have begun, and what each got."""

    def __init__(self, url: str, count: int, tokens: int) -> None:
        self.begun = [False] * count
        self.got = [0] * count
        self.failed: list[str] = []
        self._tokens = tokens
        self._url = url
        self._pool = ThreadPoolExecutor(count)
        for number in range(count):
            self._pool.submit(self._read, number)
        self._pool.shutdown(wait=False)

    def _read(self, number: int) -> None:
        content = {
            "model": "demo",
            "messages": [{"role": "user", "content": "Say."}],
            "max_tokens": self._tokens,
            "stream": True,
        }
        headers = {"Host": HOST, "X-Forwarded-For": BERLIN}
        url = f"{self._url}/v1/chat/completions"
        try:
            with httpx.stream(
                "POST", url, json=content, headers=headers, timeout=120, trust_env=False
            ) as answer:
                if answer.status_code != 200:
                    self.failed.append(answer.read().decode())
                for line in answer.iter_lines():
                    if line.startswith("data: {"):
                        self.begun[number] = True
                        choices = json.loads(line[6:]).get("choices")
                        self.got[number] += bool(choices and choices[0]["delta"].get("content"))
        except httpx.HTTPError as error:
            self.failed.append(repr(error))

    @property
    def whole(self) -> bool:
        """Whether all have ended as they should; one that broke off is an error at once.

        Raises:
            AssertionError: one did.
        """
        assert not self.failed, self.failed
        return self.got == [self._tokens] * len(self.got)


PATIENT = {"waits": {"real_time": 120.0}}
"""Admission on a machine that may be slow: what waits is served some time."""


def balancer_token(running: System, region: str) -> str:
    """A token for a region's balancers."""
    body = {"name": f"{region}-balancer", "role": "balancer", "regions": region}
    made = running.api("POST", "/v1/tokens", json=body)
    assert made.status_code == 201, made.text
    found: str = made.json()["token"]
    return found


def followed_balancer(
    running: System,
    folder: Path,
    region: str,
    token: str,
    document: dict[str, Any],
    *arguments: str,
    ports: tuple[int, int],
    name: str = "",
) -> Process:
    """A balancer that follows control, on its port and its admin port, with its file in the folder."""
    name = name or f"{region}-1"
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps(document))
    return Process(
        [
            *("balancer", "--region", region, "--name", name, "--data-dir", str(folder / name)),
            *("--control", running.control, "--balancer-port", str(ports[0]), "--admin-port", str(ports[1])),
            *("--trusted-proxies", "127.0.0.0/8", "--file", str(file), *arguments),
        ],
        folder / f"{name}.log",
        {"GTM_TOKEN": token},
    )
