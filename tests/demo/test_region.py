"""Regions of the demo world without control: real balancers before real simulated servers, several in one event loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from gtm.core.model.access import Access
from gtm.demo.servers import ModelServers
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.feed import lastgood
from gtm.feed.wire import AccessMessage, SnapshotMessage
from gtm.geoip.reader import Locator
from gtm.runtime.balancer.carrier import LOOK_EVERY
from gtm.runtime.serve.demo_world import QUEUE_PER_SLOT, DemoRegion
from gtm.settings import LOOPBACK, BalancerSettings
from tests import uvloops
from tests.ports import free_port
from tests.system.balancers import BERLIN, HOST, MOUNTAIN_VIEW, REGIONS, policy

SLOTS = 3
PATH = "/v1/chat/completions"


class Control:
    """Takes load reports, and nothing else."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        """Listen; the URL."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def of(self, region: str) -> list[dict[str, Any]]:
        """What was reported of a region."""
        return [report for report in self.reports if report["region"] == region]

    def served(self, region: str) -> float:
        """Requests that were reported of it."""
        return float(sum(report["requests_per_second"] for report in self.of(region)))

    def stop(self) -> None:
        """End."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                if not head.startswith("post /v1/load-reports "):
                    break
                length = int(head.partition("content-length:")[2].split("\r\n", 1)[0])
                self.reports.append(json.loads(await reader.readexactly(length)))
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()


def settings(data_dir: Path, region: str, ports: dict[str, int], control: str) -> BalancerSettings:
    """Of a balancer that finds its policy on disk."""
    home = data_dir / f"balancer-{region}"
    home.mkdir(parents=True)
    snapshot = SnapshotMessage.of(1, 1.0, policy(ports), shipped_jurisdictions())
    lastgood.save(home / "edge-last-good", [AccessMessage(Access()), snapshot])
    return BalancerSettings(
        data_dir=data_dir,
        bind=("127.0.0.1",),
        geoip_db=None,
        geoip_overrides=None,
        metrics_allow=LOOPBACK,
        probe_allow=LOOPBACK,
        log_level="info",
        control_url=control,
        token="gtm_test",
        name=f"{region}-1",
        region=region,
        backend=(),
        file=None,
        service=None,
        balancer_port=ports[region],
        admin_port=0,
        trusted_proxies=LOOPBACK,
        ca_file=None,
        drain_time=0.0,
        user=None,
    )


@dataclass
class Stage:
    """Two regions, and somebody who asks them."""

    regions: dict[str, DemoRegion]
    ports: dict[str, int]
    failures: list[str]
    client: httpx.AsyncClient
    control: Control

    async def ask(
        self, region: str, tokens: int = 2, client: str = BERLIN, host: str = HOST, **more: Any
    ) -> httpx.Response:
        """Ask for a completion."""
        body = {"model": "demo", "messages": [{"role": "user", "content": "hi"}], "max_tokens": tokens}
        headers = {"Host": host, "X-Forwarded-For": client}
        return await self.client.post(
            f"http://127.0.0.1:{self.ports[region]}{PATH}", json=body | more, headers=headers
        )

    async def until(self, region: str, holds: Callable[[dict[str, Any]], bool]) -> None:
        """Wait for a state."""
        async with asyncio.timeout(20):
            while not holds(self.regions[region].state()):  # noqa: ASYNC110 - a region tells nobody of its changes
                await asyncio.sleep(0.01)


def staged(tmp_path: Path, test: Callable[[Stage], Awaitable[None]], overrides: Path | None = None) -> None:
    """Run a test with two regions."""

    async def run() -> None:
        ports = {name: free_port() for name in REGIONS}
        failures: list[str] = []
        control = Control()
        url = await control.start()
        with closing(Locator(None, overrides)) as locator:
            regions = {
                name: DemoRegion(
                    settings(tmp_path, name, ports, url),
                    ModelServers(["127.0.0.1"] * 2, SLOTS, 0),
                    locator,
                    lambda name=name: failures.append(name),  # type: ignore[misc]
                )
                for name in REGIONS
            }
            try:
                async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
                    assert {region.state()["state"] for region in regions.values()} == {"starting"}
                    await asyncio.gather(*(region.start() for region in regions.values()))
                    assert {region.state()["state"] for region in regions.values()} == {"up"}
                    await test(Stage(regions, ports, failures, client, control))
            finally:
                control.stop()
                await asyncio.gather(*(region.kill() for region in regions.values()))
        assert failures == []
        await asyncio.sleep(0.05)  # uvloop closes no loop on which connections are still closing

    uvloops.run(run())


@pytest.mark.drill
def test_clients_are_where_the_newest_files_say(tmp_path: Path) -> None:
    """Overrides that change while balancers run count for all of them within seconds, for clients that were served before too."""
    file = tmp_path / "overrides.yaml"
    file.write_text("overrides: []\n")

    async def becomes(stage: Stage, client: str, region: str, served: bool) -> None:
        async with asyncio.timeout(30):
            while ((await stage.ask(region, client=client)).status_code == 200) is not served:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def test(stage: Stage) -> None:
        assert (await stage.ask("iad", client=MOUNTAIN_VIEW)).status_code == 200
        assert (await stage.ask("iad", client=BERLIN)).status_code != 200
        file.write_text(
            f"overrides:\n- {{network: {MOUNTAIN_VIEW}/32, country: DE}}\n- {{network: {BERLIN}/32, country: US}}\n"
        )
        await becomes(stage, MOUNTAIN_VIEW, "iad", served=False)
        await becomes(stage, BERLIN, "iad", served=True)
        file.write_text("overrides: nothing\n")  # cannot be used: what counted goes on
        await asyncio.sleep(2 * LOOK_EVERY)
        assert (await stage.ask("iad", client=BERLIN)).status_code == 200
        file.write_text("overrides: []\n")
        await becomes(stage, BERLIN, "iad", served=False)

    staged(tmp_path, test, file)


def test_regions_in_one_loop_are_regions(tmp_path: Path) -> None:
    """Each judges for itself: a European's request is served in Frankfurt, and not in Ashburn."""

    async def test(stage: Stage) -> None:
        served = await stage.ask("fra")
        assert (served.status_code, served.headers["x-gtm-region"]) == (200, "fra")
        assert served.json()["usage"]["completion_tokens"] == 2
        assert "server-timing" not in served.headers
        refused = await stage.ask("iad")
        assert refused.status_code in (421, 503)  # nobody says that Frankfurt is up
        assert (await stage.ask("iad", client=MOUNTAIN_VIEW)).headers["x-gtm-region"] == "iad"
        # Who names no service is judged by the strictest, and may be anywhere.
        assert (await stage.ask("fra", host="127.0.0.1", client="127.0.0.1")).status_code == 200
        assert (
            await stage.ask("iad", host="127.0.0.1", client="127.0.0.1")
        ).status_code == refused.status_code
        listed = await stage.client.get(f"http://127.0.0.1:{stage.ports['fra']}/v1/models")
        assert [model["id"] for model in listed.json()["data"]] == ["demo"]
        admin = await stage.client.get(f"{stage.regions['fra'].state()['admin']}/state")
        assert admin.json()["region"] == "fra"

    staged(tmp_path, test)


def test_slots_bound_what_is_served_and_the_queue_what_waits(tmp_path: Path) -> None:
    """Slots are those of both model servers; what finds no slot waits, is told how long, and beyond the queue turned away."""

    async def test(stage: Stage) -> None:
        most = SLOTS + SLOTS * QUEUE_PER_SLOT
        running = [asyncio.ensure_future(stage.ask("fra", 12)) for _ in range(most)]
        await stage.until("fra", lambda state: state["queue"] == most - SLOTS)
        state = stage.regions["fra"].state()
        assert (state["slots"], state["outstanding"]) == (SLOTS, SLOTS)
        assert [(one["slots"], one["outstanding"]) for one in state["backends"]] == [(2, 2), (1, 1)]
        assert (await stage.ask("fra")).status_code == 503
        answers = await asyncio.gather(*running)
        assert {answer.status_code for answer in answers} == {200}
        waits = [answer.headers.get("server-timing") for answer in answers]
        assert waits.count(None) == SLOTS
        assert all(wait is None or float(wait.removeprefix("queue;dur=")) > 0 for wait in waits)
        await stage.until("fra", lambda state: not state["outstanding"])

    staged(tmp_path, test)


def test_what_waits_takes_no_slot_by_the_reports_either(tmp_path: Path) -> None:
    """Little's law holds of what is reported: no more request-seconds are served than there are slots; waits are told apart."""

    async def test(stage: Stage) -> None:
        loop = asyncio.get_running_loop()
        count = SLOTS * (1 + QUEUE_PER_SLOT)
        began = loop.time()
        answers = await asyncio.gather(*(stage.ask("fra", 8) for _ in range(count)))
        took = loop.time() - began
        assert {answer.status_code for answer in answers} == {200}

        def told(signal: str) -> float:
            reports = [one for one in stage.control.of("fra") if "service_time_ms" in one]
            return float(sum(one[signal] / 1000 * one["requests_per_second"] for one in reports))

        async with asyncio.timeout(20):
            while stage.control.served("fra") < count - 0.5:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)
        assert 0 < told("service_time_ms") <= SLOTS * took * 1.2
        stated = sum(float(one.headers.get("server-timing", "=0").rpartition("=")[2]) for one in answers)
        assert told("queue_wait_ms") == pytest.approx(stated / 1000, rel=0.01)
        assert (
            stated / 1000 > SLOTS * took
        )  # four rounds of five waited, for two rounds and a half on average
        assert {one["limit"] for one in stage.control.of("fra")} == {SLOTS}
        assert {one["source"] for one in stage.control.of("fra")} == {"fra-1"}
        assert all(one["requests_per_second"] == 0 for one in stage.control.of("iad"))

    staged(tmp_path, test)


def test_a_killed_region_refuses_connections_until_it_is_restored(tmp_path: Path) -> None:
    """What goes on breaks off, nothing listens, the other region does not notice; both may be asked for twice."""

    async def test(stage: Stage) -> None:
        region = stage.regions["fra"]
        running = asyncio.ensure_future(stage.ask("fra", 4000))
        await stage.until("fra", lambda state: state["outstanding"] == 1)
        servers = [one["url"] for one in region.state()["backends"]]
        for _ in range(2):
            await region.kill()
            state = region.state()
            assert (state["state"], state["slots"], state["outstanding"]) == ("failed", SLOTS, 0)
            for url in (*servers, f"http://127.0.0.1:{stage.ports['fra']}"):
                with pytest.raises(httpx.ConnectError):
                    await stage.client.get(f"{url}/v1/models")
        with pytest.raises(httpx.TransportError):
            await running
        assert (await stage.ask("iad", client=MOUNTAIN_VIEW)).status_code == 200
        for _ in range(2):
            await region.start()
            assert region.state()["state"] == "up"
            assert (await stage.ask("fra")).status_code == 200

    staged(tmp_path, test)


def test_a_region_gets_other_slots_while_it_serves(tmp_path: Path) -> None:
    """More begin once there are more; a single slot leaves one server out; what runs goes on."""

    async def test(stage: Stage) -> None:
        region = stage.regions["fra"]
        running = [asyncio.ensure_future(stage.ask("fra", 4000)) for _ in range(SLOTS + 4)]
        await stage.until("fra", lambda state: state["queue"] == 4)
        region.resize(SLOTS + 3)
        assert region.state()["slots"] == SLOTS + 3
        await stage.until("fra", lambda state: state["queue"] == 1)
        region.resize(1)
        assert [one["slots"] for one in region.state()["backends"]] == [1, 0]
        await asyncio.sleep(1.5 * LOOK_EVERY)
        assert not any(request.done() for request in running)
        for request in running:
            request.cancel()
        await stage.until("fra", lambda state: (state["outstanding"], state["queue"]) == (0, 0))
        both = [asyncio.ensure_future(stage.ask("fra", 20)) for _ in range(2)]
        await stage.until("fra", lambda state: (state["outstanding"], state["queue"]) == (1, 1))
        assert {answer.status_code for answer in await asyncio.gather(*both)} == {200}

    staged(tmp_path, test)


def test_model_servers_serve_as_many_as_they_have_slots() -> None:
    """Asked past any balancer: what finds no slot waits in the server, and begins once there are more."""

    async def run() -> None:
        servers = ModelServers(["127.0.0.1"] * 2, 2, 0)
        await servers.start()
        url = servers.urls[0]
        body = {"model": "demo", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4000}
        async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
            asked = [asyncio.ensure_future(client.post(f"{url}{PATH}", json=body)) for _ in range(5)]

            async def until(running: int, waiting: int) -> None:
                async with asyncio.timeout(20):
                    found = (0, 0)
                    while found != (running, waiting):
                        state = (await client.get(f"{url}/demo/state")).json()
                        found = (state["running"], state["waiting"])

            await until(1, 4)
            servers.resize(6)
            await until(3, 2)
            servers.resize(2)
            asked.append(asyncio.ensure_future(client.post(f"{url}{PATH}", json=body)))
            await until(3, 3)
            assert not any(one.done() for one in asked)
            servers.stop()
            assert all(
                isinstance(one, httpx.TransportError)
                for one in await asyncio.gather(*asked, return_exceptions=True)
            )

    uvloops.run(run())


def test_a_balancer_that_ends_by_itself_is_told_of(tmp_path: Path) -> None:
    """Its address is taken, say: the world ends, and is started again."""

    async def run() -> None:
        ports = dict.fromkeys(REGIONS, free_port())
        failed = asyncio.Event()
        taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", ports["fra"])
        with closing(Locator()) as locator:
            servers = ModelServers(["127.0.0.1"] * 2, SLOTS, 0)
            region = DemoRegion(
                settings(tmp_path, "fra", ports, "http://127.0.0.1:1"), servers, locator, failed.set
            )
            await region.start()
            async with asyncio.timeout(20):
                await failed.wait()
            await region.kill()
        taken.close()

    uvloops.run(run())
