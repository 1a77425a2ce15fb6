"""What backends say of their load in the heads of their answers, through the data plane: ORCA's header in all of its forms."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gtm.adapters.orca import MAX_HEADER
from gtm.balancer.config import load
from gtm.balancer.decide import picking
from gtm.balancer.decide.picking import PoolPicker
from gtm.balancer.health.check_settings import CheckSettings
from gtm.balancer.health.checks import load_in_header
from gtm.balancer.plane.backend.backends import Route
from gtm.balancer.plane.contracts import SentRequest
from gtm.balancer.plane.proxy import Proxy
from gtm.core.balance.backends import Backend
from gtm.core.balance.choosing.values import ChoosingSettings
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.settings import HealthSettings
from gtm.core.balance.health.values import BackendLoad
from gtm.runtime.process.connections import MAX_CONNECTIONS, Connections
from tests import uvloops
from tests.balancer.health.test_live import Admission, Gate

TEXT = b"endpoint-load-metrics: TEXT named_metrics.kv_cache_usage_perc=0.5,named_metrics.num_requests_running=7,named_metrics.num_requests_waiting=2\r\n"
JSON = b'Endpoint-Load-Metrics: JSON {"named_metrics": {"kv_cache_usage_perc": 0.5}}\r\n'
BINARY = b"endpoint-load-metrics-bin: Qh4KE2t2X2NhY2hlX3VzYWdlX3BlcmMRAAAAAAAA4D8=\r\n"


@dataclass
class Region:
    """A balancer with one backend, which says `says` in the head of each answer."""

    picker: PoolPicker
    health: BackendHealth
    proxy: Proxy
    url: str = ""
    port: int = 0
    says: bytes = b""
    asked: list[bytes] = field(default_factory=list)

    def memory(self, after: float = 0.0) -> float | None:
        """As it is known so many seconds from now."""
        now = asyncio.get_running_loop().time() + after
        self.health.tick(now)
        return self.health.condition(self.url, now).memory

    async def ask(self) -> bytes:
        """A request, and its whole answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        async with asyncio.timeout(20):
            answer = await reader.read()
        writer.close()
        return answer


@asynccontextmanager
async def region(
    asks: bytes = b"",
    *,
    corrects: bool = False,
    read_load: Callable[[bytes], BackendLoad | None] = load_in_header,
) -> AsyncGenerator[Region]:
    """It, up."""
    loop = asyncio.get_running_loop()
    here: Region

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                here.asked.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n" + here.says + b"\r\nok")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    backends = (Backend(url),)
    health = BackendHealth(
        HealthSettings(checks=CheckSettings(health=None).thresholds()), backends, loop.time()
    )
    picker = PoolPicker(
        backends, ChoosingSettings(), health, loop=loop, route=Route, read_load=read_load, corrects=corrects
    )
    picker.conditions(health.tick(loop.time()))
    proxy = Proxy(
        Gate(), Admission(), picker, room=Connections(MAX_CONNECTIONS), loop=loop, region="fra", asks=asks
    )
    listening = await loop.create_server(proxy.connection, "127.0.0.1", 0)
    here = Region(picker, health, proxy, url, listening.sockets[0].getsockname()[1])
    try:
        yield here
    finally:
        listening.close()
        proxy.close()
        server.close()


@pytest.mark.parametrize("said", [TEXT, JSON, BINARY], ids=["text", "json", "binary"])
def test_a_backend_says_its_load(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each form it is read, and no client sees it; silence afterwards makes it unknown, never idle."""
    monkeypatch.setattr(picking, "LOADS_EVERY", 0.0)

    async def test() -> None:
        async with region() as here:
            assert here.memory() is None
            here.says = said
            for _ in range(3):  # a head that was read before is read again
                answer = await here.ask()
                assert answer.endswith(b"\r\n\r\nok")
                assert b"endpoint-load" not in answer.lower()
            assert here.memory() == 0.5
            assert b"endpoint-load" not in here.asked[0].lower(), "nobody asked for it"
            here.says = b""
            await here.ask()
            assert here.memory() == 0.5
            assert here.memory(after=6.0) is None, "stale"
            assert here.picker.flights.of(here.url).beyond(0.0) is None, "scrapes correct counts"

    uvloops.run(test())


def test_what_is_said_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest counts, but not more often than is read; where nothing is scraped it corrects counts."""
    monkeypatch.setattr(picking, "LOADS_EVERY", 1000.0)

    async def test() -> None:
        async with region(b"endpoint-load-metrics-format: TEXT\r\n", corrects=True) as here:
            here.says = TEXT
            await here.ask()
            assert b"\r\nendpoint-load-metrics-format: TEXT\r\n" in here.asked[0]
            assert here.picker.flights.of(here.url).beyond(asyncio.get_running_loop().time()) == 8.0
            here.says = TEXT.replace(b"0.5", b"0.9")
            await here.ask()
            assert here.memory() == 0.5
            monkeypatch.setattr(picking, "LOADS_EVERY", 0.0)
            await here.ask()
            assert here.memory() == 0.9

    uvloops.run(test())


@pytest.mark.parametrize(
    "said",
    [
        b"endpoint-load-metrics:\r\n",
        b"endpoint-load-metrics: TEXT\r\n",
        b"endpoint-load-metrics: TEXT named_metrics.kv_cache_usage_perc=7\r\n",
        b"endpoint-load-metrics: TEXT named_metrics.kv_cache_usage_perc=-1\r\n",
        b"endpoint-load-metrics: JSON " + b"[" * 1000 + b"\r\n",
        b"endpoint-load-metrics: \xff\xfe\x80\r\n",
        b'endpoint-load-metrics: JSON {"rps_fractional": ' + b"9" * 400 + b"}\r\n",
        b"endpoint-load-metrics: TEXT a=" + b"1" * MAX_HEADER + b"\r\n",
        b"endpoint-load-metrics-bin: \xff\r\n",
        b"endpoint-load-metrics-bin: QgA\r\n",
        JSON + JSON,
    ],
)
def test_what_cannot_be_read_says_nothing(said: bytes) -> None:
    """The answer is the client's all the same, and the load unknown."""

    async def test() -> None:
        async with region() as here:
            here.says = said
            answer = await here.ask()
            assert answer.startswith(b"HTTP/1.1 200")
            assert answer.endswith(b"ok")
            assert b"endpoint-load" not in answer.lower()
            assert here.memory() is None

    uvloops.run(test())


def test_what_cannot_be_read_is_not_tried_more_often() -> None:
    """It takes as long to read."""
    read: list[bytes] = []

    def damaged(said: bytes) -> None:
        read.append(said)

    async def test() -> None:
        async with region(read_load=damaged) as here:
            sent: Any = SentRequest(here.picker.routes()[0], None)  # type: ignore[arg-type]
            for now in (0.0, 0.05, 0.099, 0.11, 0.15, 0.22):
                here.picker.loaded(sent, b"nonsense", now)
            assert len(read) == 3

    uvloops.run(test())


def test_a_server_that_is_gone_says_nothing() -> None:
    """Out of the configuration while it answered."""

    async def test() -> None:
        async with region() as here:
            sent: Any = SentRequest(Route("http://127.0.0.1:1"), None)  # type: ignore[arg-type]
            here.picker.loaded(sent, TEXT.partition(b": ")[2], 0.0)

    uvloops.run(test())


def test_the_file_says_whether_to_ask(tmp_path: Path) -> None:
    """By default nothing is asked for."""
    file = tmp_path / "balancer.yaml"
    file.write_text("backends: [{url: http://10.0.0.5:8000}]\n")
    assert load(file).checks.asks() == b""
    file.write_text("backends: [{url: http://10.0.0.5:8000}]\nchecks: {orca: json}\n")
    assert load(file).checks.asks() == b"endpoint-load-metrics-format: JSON\r\n"
