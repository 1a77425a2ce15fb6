"""When a stream's tokens came: to the first from the request, and from one to the next, as the plane's own counts have it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gtm.balancer.decide.queueing import MOST_TOTALS, OTHER, OTHERS, QueueAdmission
from gtm.balancer.plane.proxy import Proxy
from gtm.balancer.plane.stats import EACH
from gtm.core.balance.admission import settings as limits
from gtm.core.balance.admission import values as core
from gtm.core.balance.backends import Condition
from gtm.runtime.process.connections import MAX_CONNECTIONS, Connections
from tests import uvloops
from tests.balancer.health.test_live import Admission, Gate
from tests.balancer.health.test_orca import region

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TOKEN = b"7\r\ndata: x\r\n"


@pytest.mark.parametrize("together", [False, True], ids=["head first", "head with the first token"])
def test_times_of_tokens(together: bool) -> None:
    """A head that goes out before the first token is none; of an answer in one piece nothing lies between."""

    async def test() -> None:
        async with region() as here:
            loop, times = asyncio.get_running_loop(), [100.0]
            gates: list[asyncio.StreamWriter] = []

            async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.readuntil(b"\r\n\r\n")
                gates.append(writer)
                await reader.read()
                writer.close()

            server = await asyncio.start_server(answer, "127.0.0.1", 0)
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            backend = here.picker.pool.candidates[0].backend
            here.picker.configure([type(backend)(url)], here.picker.pool.settings)
            here.picker.conditions({url: Condition(healthy=True)})
            proxy = Proxy(
                Gate(),
                Admission(),
                here.picker,
                room=Connections(MAX_CONNECTIONS),
                loop=loop,
                region="fra",
            )
            proxy.now = lambda: times[0]
            listening = await loop.create_server(proxy.connection, "127.0.0.1", 0)
            reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname()[:2])
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            async with asyncio.timeout(20):
                while not gates:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
                pieces = [HEAD + TOKEN] if together else [HEAD, TOKEN]
                for second, piece in enumerate((*pieces, TOKEN, TOKEN)):
                    times[0] = 101.0 + second
                    gates[0].write(piece)
                    if piece == HEAD:
                        await reader.readuntil(b"\r\n\r\n")
                    else:
                        await reader.readuntil(b"data: x\r\n")
                gates[0].write(b"0\r\n\r\n")
                await reader.readuntil(b"0\r\n\r\n")
            proxy.stats.settle()
            first, between = proxy.stats.first_bytes[url], proxy.stats.between[url]
            assert first.total == (1.0 if together else 2.0)
            assert (sum(between.counts), between.total) == (1, 1.0)
            writer.close()
            listening.close()
            proxy.close()
            server.close()

    uvloops.run(test())


def test_one_choice_of_some_is_timed() -> None:
    """And every choice is made."""

    async def test() -> None:
        async with region() as here:
            for _ in range(2 * EACH + 1):
                assert (await here.ask()).endswith(b"ok")
            stats = here.proxy.stats
            assert (stats.picks, stats.decisions) == (2 * EACH + 1, 2)
            assert 0 < stats.decision_seconds < 20

    uvloops.run(test())


def test_totals_by_tenant_and_model_are_bounded() -> None:
    """Errors are failures of servers, not clients that left; names that clients make up end under one."""

    async def test() -> None:
        declared = {"llama", "llama\n", *(f"listed-{number}" for number in range(2 * MOST_TOTALS))}
        queue = QueueAdmission(
            limits.AdmissionSettings(),
            loop=asyncio.get_running_loop(),
            cost=lambda _: 1.0,
            declared=declared.__contains__,
        )

        now = 10.0

        def ended(model: str, status: int, took: float) -> None:
            nonlocal now
            ticket = queue.admission.offer(core.Arrival(tenant="acme", model=model), now)
            exchange: Any = SimpleNamespace(admission=ticket, status=status, meter=None)
            now += took
            queue.ended(exchange, now)

        for status in (200, 404, 500, 0):
            ended("llama", status, 2.0)
        totals = queue.totals["acme", "llama"]
        assert (totals.requests, totals.errors, totals.seconds) == (4, 1, 8.0)
        for number in range(2 * MOST_TOTALS):
            ended(f"made-up-{number}", 200, 1.0)
        ended("llama\n", 200, 1.0)
        assert queue.totals.keys() == {("acme", "llama"), ("acme", OTHER)}
        assert queue.totals["acme", OTHER].requests == 2 * MOST_TOTALS + 1
        for number in range(2 * MOST_TOTALS):
            ended(f"listed-{number}", 200, 1.0)
        assert len(queue.totals) == MOST_TOTALS + 1
        assert queue.totals[OTHERS].requests == MOST_TOTALS + 2
        assert sum(one.requests for one in queue.totals.values()) == 4 + 4 * MOST_TOTALS + 1

    uvloops.run(test())
