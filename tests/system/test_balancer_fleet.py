"""Control, an edge and the balancers of two regions, together: by redirect and by DNS, and where requests come that do not belong."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import openai
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
    regions,
)
from tests.system.harness import Process, System, eventually, system

pytestmark = [pytest.mark.system, pytest.mark.drill]

HELLO = [{"role": "user", "content": "Say something about the sea."}]


@dataclass
class Fleet:
    """All of it."""

    system: System
    backends: Backends
    ports: dict[str, int]
    admin: dict[str, int]

    def arrived(self, region: str) -> int:
        """Requests that a region's model servers have seen."""
        number = list(REGIONS).index(region)
        return sum(int(one["arrived"]) for one in self.backends.state()[2 * number : 2 * number + 2])

    def client(self, base: str, address: str, host: str | None = None) -> openai.OpenAI:
        """A client somewhere, as a proxy would say."""
        headers = {"X-Forwarded-For": address} | ({"Host": host} if host else {})
        return openai.OpenAI(
            base_url=base,
            api_key="none",
            max_retries=0,
            default_headers=headers,
            http_client=httpx.Client(trust_env=False, timeout=60, follow_redirects=True),
        )

    def metrics(self, region: str) -> str:
        """A balancer's."""
        return httpx.get(f"http://127.0.0.1:{self.admin[region]}/metrics", trust_env=False).text

    def sends_on(self) -> bool:
        """Whether Ashburn's balancer sends a European's request on to Frankfurt."""
        headers = {"Host": HOST, "X-Forwarded-For": BERLIN}
        url = f"http://127.0.0.1:{self.ports['iad']}/v1/models"
        return httpx.get(url, headers=headers, trust_env=False).status_code == 421


def policy(ports: dict[str, int]) -> dict[str, Any]:
    """Two regions; what Europeans ask stays in the EEA; edges sign what they decide."""
    return {
        "regions": regions(REGIONS, ports, {"type": "http", "path": "/healthz"}),
        "zones": [
            {
                "name": "demo.test",
                "primary_ns": "ns1.demo.test",
                "hostmaster": "hostmaster.demo.test",
                "name_servers": [{"name": "ns1.demo.test", "ipv4": ["192.0.2.53"]}],
            }
        ],
        "services": [
            {
                "name": "chat",
                "members": [{"region": name} for name in REGIONS],
                "hostnames": [HOST],
                "zone": "demo.test",
                "refusal": {"ipv4": ["192.0.2.250"]},
                "handoff": "sign",
            }
        ],
        "residency_rules": [
            {
                "name": "gdpr",
                "match": {"services": ["chat"], "client_jurisdictions": ["EEA"]},
                "allow": {"jurisdictions": ["EEA"]},
                "legal_basis": "Art. 44 GDPR",
            }
        ],
    }


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Everything, up."""
    folder: Path = tmp_path_factory.mktemp("fleet")
    with ExitStack() as stack:
        backends = Backends(folder / "backends.log", 4, "--speed", "5")
        stack.callback(backends.process.popen.kill)
        ports, admin = {name: free_port() for name in REGIONS}, {name: free_port() for name in REGIONS}
        running = stack.enter_context(
            system(
                folder / "data",
                *("--control-port", str(free_port())),  # the same when it is started again
                *("--trusted-proxies", "127.0.0.0/8", "--probe-allow", "127.0.0.0/8"),
            )
        )
        _apply(running, policy(ports))
        processes = []
        for number, name in enumerate(REGIONS):
            urls = backends.urls[2 * number : 2 * number + 2]
            servers = {"backends": [{"url": url, "slots": 1} for url in urls]}
            token = balancer_token(running, name)
            several = ("--workers", "2") if name == "fra" else ()
            process = followed_balancer(
                running, folder, name, token, servers, *several, ports=(ports[name], admin[name])
            )
            stack.callback(process.popen.kill)
            processes.append(process)
        found = Fleet(running, backends, ports, admin)

        def leads(address: str, region: str) -> bool:
            location = running.redirect(HOST, "/", address).headers.get("location", "")
            return location.startswith(f"http://127.0.0.1:{ports[region]}/")

        def knows(region: str) -> bool:
            state = httpx.get(f"http://127.0.0.1:{admin[region]}/state", trust_env=False).json()
            return bool(state["handoff_keys"]) and all(
                one["state"] in ("up", "warming") for one in state["backends"]
            )

        eventually(lambda: leads(BERLIN, "fra"), "Frankfurt serves", of=processes)
        eventually(lambda: leads(MOUNTAIN_VIEW, "iad"), "Ashburn serves", of=processes)
        for name in REGIONS:
            eventually(lambda name=name: knows(name), f"the balancer of {name} knows all", of=processes)
        eventually(found.sends_on, "Ashburn knows that Frankfurt is up", of=processes)
        yield found


@pytest.fixture
def fleet(started: Fleet) -> Fleet:
    """Everything runs, and an edge answers."""
    started.system.revived()
    eventually(
        lambda: started.system.redirect(HOST, "/", BERLIN).status_code == 307, "an edge sends clients on"
    )
    eventually(started.sends_on, "Ashburn knows that Frankfurt is up")
    for address in (
        BERLIN,
        MOUNTAIN_VIEW,
    ):  # an edge signs once its key is published, which balancers hear a moment later
        eventually(lambda client=address: _believed(started, client), "a region believes the edge's handoffs")
    return started


def _believed(fleet: Fleet, client: str) -> bool:
    """Whether the region of a client takes what an edge sends it."""
    there = fleet.system.redirect(HOST, "/v1/models", client).headers["location"]
    return httpx.get(there, headers={"X-Forwarded-For": client}, trust_env=False).status_code == 200


@pytest.mark.parametrize(("address", "region"), [(BERLIN, "fra"), (MOUNTAIN_VIEW, "iad")])
def test_by_redirect(fleet: Fleet, address: str, region: str) -> None:
    """An edge sends the client on with a signed handoff, by which the balancer knows the service; it streams."""
    before, flaws = fleet.arrived(region), _flaws(fleet, region)
    with fleet.client(f"{fleet.system.edge}/v1", address, HOST) as asking:
        stream = asking.chat.completions.create(model="demo", messages=HELLO, max_tokens=10, stream=True)
        assert stream.response.headers["x-gtm-region"] == region
        assert "gtm_handoff=" in str(stream.response.url)
        assert len([chunk for chunk in stream if chunk.choices and chunk.choices[0].delta.content]) == 10
    assert fleet.arrived(region) == before + 1
    assert _flaws(fleet, region) == flaws


def _flaws(fleet: Fleet, region: str) -> list[str]:
    """How often a region's balancer did not believe a handoff, by why."""
    lines = fleet.metrics(region).splitlines()
    return sorted(line for line in lines if line.startswith("gtm_balancer_handoff_flaws_total{"))


def test_by_dns(fleet: Fleet) -> None:
    """The name leads to the region's address; its balancer knows the service by the Host header."""
    assert fleet.system.addresses(HOST, "95.90.1.0/24") == ["127.0.0.1"]
    with fleet.client(f"http://127.0.0.1:{fleet.ports['fra']}/v1", BERLIN, HOST) as asking:
        answer = asking.chat.completions.create(model="demo", messages=HELLO, max_tokens=4)
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 4


def test_what_belongs_elsewhere_is_sent_there(fleet: Fleet) -> None:
    """A European's request at Ashburn (a stale answer, a forged subnet): 421 with where it belongs; no model server sees it."""
    before = fleet.arrived("iad")
    with (
        fleet.client(f"http://127.0.0.1:{fleet.ports['iad']}/v1", BERLIN, HOST) as asking,
        pytest.raises(openai.APIStatusError) as refused,
    ):
        asking.chat.completions.create(model="demo", messages=HELLO)
    answer = refused.value.response
    assert (answer.status_code, json.loads(answer.text)["code"]) == (421, "wrong_region")
    assert answer.headers["location"].startswith(f"http://127.0.0.1:{fleet.ports['fra']}/v1/chat/completions")
    assert fleet.arrived("iad") == before


def test_a_handoff_opens_no_fence(fleet: Fleet) -> None:
    """A handoff that an American got, replayed by a European: the fence is that of both."""
    first = httpx.get(
        f"{fleet.system.edge}/v1/models",
        headers={"Host": HOST, "X-Forwarded-For": MOUNTAIN_VIEW},
        follow_redirects=False,
        trust_env=False,
    )
    url = first.headers["location"]
    assert url.startswith(f"http://127.0.0.1:{fleet.ports['iad']}/v1/models?gtm_handoff=")
    before = fleet.arrived("iad")
    stolen = httpx.get(url, headers={"X-Forwarded-For": BERLIN}, trust_env=False)
    assert stolen.status_code == 421
    assert fleet.arrived("iad") == before


@contextmanager
def full(fleet: Fleet, region: str, client: str) -> Iterator[None]:
    """Streams that take the two slots of a region, one after the other, for as long as this lasts."""
    ending = threading.Event()

    def hold() -> None:
        with fleet.client(f"http://127.0.0.1:{fleet.ports[region]}/v1", client, HOST) as asking:
            while not ending.is_set():
                try:
                    stream = asking.chat.completions.create(
                        model="demo", messages=HELLO, max_tokens=7000, stream=True
                    )
                    with stream:
                        for _ in stream:
                            if ending.is_set():
                                break
                except openai.APIStatusError:  # a queue that is full
                    ending.wait(0.1)

    holding = [threading.Thread(target=hold) for _ in range(2)]
    for one in holding:
        one.start()
    try:
        yield
    finally:
        ending.set()
        for one in holding:
            one.join(30)


def test_a_full_region_s_requests_go_elsewhere_inside_the_fence(fleet: Fleet) -> None:
    """Americans may be served anywhere: while Ashburn is full some go to Frankfurt. Europeans stay, full or not."""

    def led(address: str) -> tuple[str | None, str | None]:
        headers = fleet.system.redirect(HOST, "/", address).headers
        return headers.get("x-gtm-region"), headers.get("x-gtm-reason")

    def slots(region: str) -> float | None:
        regions = fleet.system.api("GET", "/v1/top").json()["regions"]
        found = next(one for one in regions if one["region"] == region)["free_slots"]
        return None if found is None else float(found["open"])

    def corrected() -> bool:
        flows = fleet.system.api("GET", "/v1/top").json()["corrections"]
        return any((one["from"], one["to"]) == ("iad", "fra") for one in flows)

    def stay() -> bool:
        """On a busy machine a probe may time out, and they are refused: never led elsewhere."""
        found = {led(BERLIN) for _ in range(20)}
        assert {region for region, _ in found} <= {"fra", None}
        return found == {("fra", "lowest_latency")}

    for region in REGIONS:
        eventually(lambda region=region: slots(region) == 2, f"{region} has two free slots")
    assert led(MOUNTAIN_VIEW) == ("iad", "lowest_latency")
    with full(fleet, "iad", MOUNTAIN_VIEW):
        eventually(lambda: slots("iad") == 0, "Ashburn is full")
        eventually(lambda: led(MOUNTAIN_VIEW) == ("fra", "free_slots"), "an American goes to Frankfurt")
        with fleet.client(f"{fleet.system.edge}/v1", BERLIN, HOST) as asking:
            stream = asking.chat.completions.create(model="demo", messages=HELLO, max_tokens=5, stream=True)
            assert stream.response.headers["x-gtm-region"] == "fra"
            assert len(list(stream)) > 1
        eventually(corrected, "control shows what was corrected")
        metrics = f"{fleet.system.edge}/metrics"
        eventually(lambda: 'why="moved"' in httpx.get(metrics, trust_env=False).text, "the edge counts it")
    eventually(lambda: slots("iad") == 2, "Ashburn has room again")
    eventually(lambda: led(MOUNTAIN_VIEW) == ("iad", "lowest_latency"), "Americans stay")
    with full(fleet, "fra", BERLIN):
        eventually(lambda: slots("fra") == 0, "Frankfurt is full")
        eventually(
            stay, "Europeans stay", every=1.0
        )  # what is asked is demand: more than a slot serves is refused
    eventually(lambda: slots("fra") == 2, "Frankfurt has room again")


def test_control_sees_the_load(fleet: Fleet) -> None:
    """Each balancer reports its region's load, and no other's."""

    def reporters(region: str) -> int:
        regions = fleet.system.api("GET", "/v1/load").json()["regions"]
        found = next(one for one in regions if one["region"] == region)
        return int(found["load"]["sources"]) if found.get("load") else 0

    for name in REGIONS:
        eventually(lambda name=name: reporters(name) == 1, f"{name} reports")

    def load() -> dict[str, Any] | None:
        """Of Frankfurt, a moment after it has generated some tokens."""
        with fleet.client(f"{fleet.system.edge}/v1", BERLIN, HOST) as asking:
            asking.chat.completions.create(model="demo", messages=HELLO, max_tokens=200)
        regions = fleet.system.api("GET", "/v1/load").json()["regions"]
        found: dict[str, Any] | None = next(one for one in regions if one["region"] == "fra")["load"]
        return found

    def told() -> bool:
        said = load() or {}
        known = "demo" in (said.get("models") or ()) and 0 <= (said.get("kv_cache_usage") or 0) <= 1
        return known and bool(said.get("tokens_per_second")) and bool(said.get("input_tokens_per_second"))

    eventually(told, "control sees tokens, memory and models")
    names = [(f"{name}-1", name, f"{name}-balancer") for name in sorted(REGIONS)]

    def listed() -> bool:
        items = fleet.system.api("GET", "/v1/balancers").json()["items"]
        ours = [one for one in items if one["region"] in REGIONS]  # others may have been there a moment ago
        assert [(one["name"], one["region"], one["token"]) for one in ours] == names
        return all({"running", "waiting"} == set(one["tiers"].get("real_time", ())) for one in ours)

    eventually(listed, "control lists the balancers")


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


def test_regions_that_are_not_there_yet_and_are_deleted(fleet: Fleet, tmp_path: Path) -> None:
    """`/healthz`, `/readyz`, the log once, and `gtm status`; until the policy has them, and again when it has them no more.

    One's balancer is one process, the other's are two workers.
    """
    running = fleet.system
    ports = fleet.ports | {name: free_port() for name in NOPE}
    balancers: list[Process] = []
    asked: list[tuple[str, int, str]] = []
    without = policy(ports)
    places = REGIONS | dict.fromkeys(NOPE, REGIONS["fra"])
    having = {**without, "regions": regions(places, ports, {"type": "http", "path": "/healthz"})}
    try:
        for workers, name in enumerate(NOPE, 1):
            admin = free_port()
            balancers.append(
                followed_balancer(
                    running,
                    tmp_path,
                    name,
                    balancer_token(running, name),
                    {"service": "chat", "backends": [{"url": fleet.backends.urls[0], "slots": 1}]},
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
        for process in balancers:
            process.stop()


def test_the_fence_holds_without_control(fleet: Fleet) -> None:
    """Control is gone: what is served here is served here, what is not, is not."""
    fleet.system.process.popen.kill()
    with fleet.client(f"http://127.0.0.1:{fleet.ports['fra']}/v1", BERLIN, HOST) as asking:
        assert asking.chat.completions.create(model="demo", messages=HELLO, max_tokens=2).usage is not None
    with (
        fleet.client(f"http://127.0.0.1:{fleet.ports['iad']}/v1", BERLIN, HOST) as asking,
        pytest.raises(openai.APIStatusError) as refused,
    ):
        asking.chat.completions.create(model="demo", messages=HELLO)
    assert refused.value.status_code in (421, 451, 503)
