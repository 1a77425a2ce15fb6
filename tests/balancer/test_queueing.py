"""What of a request counts in the queue."""

from __future__ import annotations

import asyncio

import pytest

from gtm.balancer.decide.queueing import QueueAdmission
from gtm.core.balance.admission.settings import AdmissionSettings, ModelLimits
from tests.balancer.world import Backend, Message, Peer, answering, run, world

_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.parametrize(
    ("given", "least", "most"), [(b"2.5", 2, 2.5), (b"86400", 200, 300), (b"1e300", 200, 300)]
)
def test_nobody_waits_longer_than_some_tier_may(given: bytes, least: float, most: float) -> None:
    """A real-time request waits 5 s, or as long as it says, and no longer than batch: else one stranger holds the queue for a day."""

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            loop = asyncio.get_running_loop()
            queue = w.proxy.admission = QueueAdmission(AdmissionSettings(), loop=loop, cost=lambda _: 1.0)
            queue.resize(0, usable=True)
            client = await w.client()
            before = loop.time()
            client.send(b"GET / HTTP/1.1\r\nHost: a\r\ngtm-timeout: %b\r\n\r\n" % given)
            await w.until(lambda: queue.admission.waiting == 1)
            deadline = queue.admission.next_deadline()
            assert deadline is not None
            assert before + least <= deadline <= loop.time() + most
            queue.resize(1)
            assert (await client.response()).status == 200

    run(main)


def test_one_network_keeps_no_other_out() -> None:
    """A crowd fills the queue; who comes from elsewhere finds a place in it, and is served before most of the crowd."""

    async def main() -> None:
        seen: list[Message] = []
        async with world(await Backend(answering(_OK, seen=seen)).start()) as w:
            settings = AdmissionSettings(queue_length=50)
            queue = w.proxy.admission = QueueAdmission(
                settings, loop=asyncio.get_running_loop(), cost=lambda _: 1.0
            )
            queue.resize(0, usable=True)
            ask = b"GET /%b HTTP/1.1\r\nHost: a\r\ngtm-timeout: 300\r\n\r\n"
            address = {b"/crowd": b"\xc0\0\2\1", b"/other": b"\xc6\x33\x64\1"}
            w.gate.client = lambda exchange: address[exchange.head.path]  # type: ignore[method-assign]
            crowd = [await w.client() for _ in range(60)]
            for one in crowd:
                one.send(ask % b"crowd")
            await w.until(lambda: w.proxy.stats.refusals["queue_full"] == 10)
            other = await w.client()
            other.send(ask % b"other")
            await w.until(lambda: w.proxy.stats.refusals["preempted"] == 1)
            queue.resize(1)
            assert (await other.response()).status == 200
            assert b"/other" in b" ".join(one.start for one in seen[:2])

    run(main)


@pytest.mark.parametrize(
    ("answer", "errors"),
    [
        (b"", 0),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nab", 0),
        (b"HTTP/1.1 500 No\r\ncontent-length: 9\r\n\r\nab", 1),
    ],
    ids=["before an answer", "within one", "within an error"],
)
def test_who_leaves_is_no_error(answer: bytes, errors: int) -> None:
    """NVIDIA/nvcf#524, stephenhillier/starlette_exporter#77, mostlygeek/llama-swap#1029: clients that left looked like failures of the servers, or like successes."""

    async def main() -> None:
        came = asyncio.Event()

        async def script(peer: Peer) -> None:
            await peer.request()
            peer.send(answer)
            came.set()
            await peer.reader.read()

        async with world(await Backend(script).start()) as w:
            queue = w.proxy.admission = QueueAdmission(
                AdmissionSettings(), loop=asyncio.get_running_loop(), cost=lambda _: 1.0
            )
            client = await w.client()
            client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await came.wait()
            if answer:
                await client.reader.readuntil(b"ab")
            client.abort()
            await w.until(lambda: bool(queue.totals))
            (totals,) = queue.totals.values()
            assert (totals.requests, totals.errors) == (1, errors)

    run(main)


def test_no_answer_is_an_error() -> None:
    """Of a server: its client is told 502."""

    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.request()
            peer.close()

        async with world(await Backend(script).start()) as w:
            queue = w.proxy.admission = QueueAdmission(
                AdmissionSettings(), loop=asyncio.get_running_loop(), cost=lambda _: 1.0
            )
            assert (await w.ask(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")).status == 502
            (totals,) = queue.totals.values()
            assert (totals.requests, totals.errors) == (1, 1)

    run(main)


@pytest.mark.parametrize("limited", ["llama3", "llama3:latest"])
@pytest.mark.parametrize("asked", [b"llama3", b"llama3:latest"])
def test_no_name_of_a_model_passes_its_limit(limited: str, asked: bytes) -> None:
    """Where servers take `llama3` for `llama3:latest`, a limit of the one is a limit of the other."""

    async def script(peer: Peer) -> None:
        request = await peer.request()
        if b"llama3:8b" in request.body:
            peer.send(_OK)
        await peer.reader.read()

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            settings = AdmissionSettings(models={limited: ModelLimits(concurrency=1)})
            queue = w.proxy.admission = QueueAdmission(
                settings, loop=asyncio.get_running_loop(), cost=lambda _: 1.0
            )
            queue.resize(4)

            def chat(model: bytes) -> bytes:
                body = b'{"model": "%b", "messages": []}' % model
                head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b"
                return head % (len(body), body)

            (await w.client()).send(chat(b"llama3"))
            await w.until(lambda: queue.admission.snapshot().models == {limited: 1})
            assert b"model_concurrency" in (await w.ask(chat(asked))).body
            assert (await w.ask(chat(b"llama3:8b"))).status == 200

    run(main)
