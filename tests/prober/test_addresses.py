"""Each address of an endpoint is probed by itself, with real sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gtm.core.model.regions import AdminState, Endpoint, Probe, Region
from gtm.core.model.state import HealthStatus
from gtm.prober import Prober, schedule
from gtm.prober.checks import Checker
from gtm.runtime.edge.agent.agent import ADDRESSES, addresses_up, keep_addresses_up
from gtm.settings import LOOPBACK
from tests.descriptors import none_left
from tests.prober.servers import Server, http, raw_http, serve
from tests.prober.test_schedule import FAST, UP, snapshot, switch, until

pytestmark = pytest.mark.anyio

DOWN, UNKNOWN = HealthStatus.DOWN, HealthStatus.UNKNOWN
PROBE = replace(FAST, up_threshold=1, down_threshold=2)


def _region(url: str, *addresses: str, probe: Probe = PROBE, **changes: object) -> Region:
    return replace(Region("eu", 50.0, 8.0, "DE", (Endpoint(url, addresses),), probe=probe), **changes)  # type: ignore[arg-type]


@asynccontextmanager
async def _probing(region: Region, ever_up: frozenset[str] = frozenset()) -> AsyncIterator[Prober]:
    prober = Prober(lambda: None, time.time, allowed=LOOPBACK, ever_up=ever_up)
    prober.start()
    try:
        prober.update(snapshot(region))
        yield prober
    finally:
        await prober.stop()


def _status(prober: Prober, url: str, address: str) -> HealthStatus:
    return prober.addresses()["ipv4"]["eu"][f"{address} {url}"].status


async def test_an_address_that_dies_is_known_by_itself() -> None:
    """The URL's name leads to one address, the policy has another: each has its own verdict, and the request names the URL's host."""
    async with serve(http()) as server:
        url = f"http://localhost:{server.port}"
        async with _probing(_region(url, "127.0.0.1", "127.0.0.9")) as prober:
            await until(lambda: _status(prober, url, "127.0.0.1") is UP)
            await until(lambda: prober.addresses()["ipv4"]["eu"][f"127.0.0.9 {url}"].detail)
            assert _status(prober, url, "127.0.0.9") is UNKNOWN
            assert prober.ever_up == {f"127.0.0.1 {url}"}
    assert server.heads
    assert all(f"host: localhost:{server.port}".encode() in head.lower() for head in server.heads)


async def test_a_dead_address_goes_down_after_its_threshold_and_a_restart_remembers_it(
    tmp_path: Path,
) -> None:
    """It was up, and is down once it failed as often as ever; with the file of the last run its first failure counts."""
    async with serve(http()) as server:
        url = f"http://localhost:{server.port}"
        region = _region(url, "127.0.0.1")
        async with _probing(region) as prober:
            await until(lambda: _status(prober, url, "127.0.0.1") is UP)
            keep_addresses_up(tmp_path, prober.ever_up)
    assert addresses_up(tmp_path) == {f"127.0.0.1 {url}"}
    async with _probing(region, addresses_up(tmp_path)) as prober:
        assert await prober.first_round(30)
        assert _status(prober, url, "127.0.0.1") is DOWN
    async with _probing(replace(region, endpoints=()), addresses_up(tmp_path)) as prober:
        assert not prober.ever_up  # the policy gave it up
    async with _probing(region) as prober:
        await until(lambda: prober.addresses()["ipv4"]["eu"][f"127.0.0.1 {url}"].detail)
        assert _status(prober, url, "127.0.0.1") is UNKNOWN


async def test_what_is_kept_may_be_missing_or_damaged(tmp_path: Path) -> None:
    """Then nothing was ever up, which takes nothing away."""
    assert addresses_up(tmp_path) == frozenset()
    (tmp_path / ADDRESSES).write_bytes(b"\xff\xfe 1\n")
    assert addresses_up(tmp_path) == frozenset()
    keep_addresses_up(tmp_path / "missing", {"a b"})


@pytest.mark.parametrize(
    "changes",
    [
        {"probe": replace(PROBE, addresses=False)},
        {"admin_state": AdminState.DISABLED},
        {"endpoints": (Endpoint("http://127.0.0.1:9", ("127.0.0.1",)),)},
    ],
)
async def test_what_is_not_probed_by_itself(changes: dict[str, object]) -> None:
    """Switched off; of a disabled region; and an address that is the URL's own host, whose check is the URL's."""
    async with _probing(_region("http://localhost:9", "127.0.0.1", **changes)) as prober:
        assert not any(prober.addresses().values())


async def test_addresses_are_probed_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ones beyond it are as their URL says, and say why."""
    monkeypatch.setattr(schedule, "MOST_ADDRESSES", 2)
    url = "http://localhost:9"
    async with _probing(_region(url, "127.0.0.1", "127.0.0.2", "127.0.0.3")) as prober:
        found = prober.addresses()["ipv4"]["eu"]
        assert len(found) == 3
        assert [key for key, one in found.items() if "more" in one.detail] == [f"127.0.0.3 {url}"]


async def test_addresses_go_through_the_one_judge() -> None:
    """A metadata service as an endpoint's address is not connected to, whatever the URL's host is."""
    result = await Checker(lambda: 1.0).check("http://localhost:80", PROBE, "169.254.169.254")
    assert result is not None
    assert not result.ok
    assert "169.254.169.254, a link-local address" in result.detail


async def test_addresses_that_cannot_be_reached_keep_no_url_waiting() -> None:
    """As many as are checked at once hold their slots, and the URL of another region gets its verdict all the same."""
    arrived: list[bytes] = []
    gate = asyncio.Event()

    async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        arrived.append(head)
        await gate.wait()
        writer.write(raw_http(200))

    many = tuple(f"127.1.{number}.1" for number in range(schedule.CONCURRENCY + 1))
    async with serve(http()) as well:
        listener = await asyncio.start_server(Server(hold).connected, "0.0.0.0", 0)
        port = listener.sockets[0].getsockname()[1]
        held = _region(f"http://localhost:{port}", *many, probe=replace(PROBE, timeout=60.0))
        other = Region("other", 50.0, 8.0, "DE", (Endpoint(well.url),), probe=PROBE)
        prober = Prober(lambda: None, time.time, allowed=LOOPBACK)
        prober.start()
        try:
            prober.update(snapshot(held))
            await until(lambda: len(arrived) > schedule.ADDRESSES_AT_ONCE)
            prober.update(snapshot(held, other))
            await until(lambda: prober.health()["other"][well.url].status is UP)
            assert len(arrived) == schedule.ADDRESSES_AT_ONCE + 1  # and the URL itself
        finally:
            gate.set()
            await prober.stop()
            listener.close()


async def test_a_url_that_comes_up_has_its_addresses_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were never up are checked seldom, but at once when their URL has another verdict."""
    monkeypatch.setattr(schedule, "UNSEEN", 1_000_000)
    plan = [False]
    async with serve(switch(plan)) as server:
        url = f"http://localhost:{server.port}"
        async with _probing(_region(url, "127.0.0.1")) as prober:
            assert await prober.first_round(30)
            await until(lambda: prober.addresses()["ipv4"]["eu"][f"127.0.0.1 {url}"].detail)
            plan[0] = True
            await until(lambda: _status(prober, url, "127.0.0.1") is UP)


async def test_who_checks_an_address_no_more_votes_no_more() -> None:
    """As for endpoints: after so many checks that could not be made, others are told nothing of it, and this process goes on by what it saw."""
    async with serve(http()) as server:
        url = f"http://localhost:{server.port}"
        async with _probing(_region(url, "127.0.0.1")) as prober:
            await until(lambda: _status(prober, url, "127.0.0.1") is UP)

            def vote() -> HealthStatus:
                return prober.address_votes()["ipv4"]["eu"][f"127.0.0.1 {url}"].status

            assert vote() is UP
            with none_left():
                await until(lambda: vote() is UNKNOWN)
                assert _status(prober, url, "127.0.0.1") is UP
            await until(lambda: vote() is UP)
