"""What of a request counts in the queue."""

from __future__ import annotations

import asyncio

import pytest

from gtm.balancer.decide.queueing import QueueAdmission
from gtm.core.balance.admission import Settings
from tests.balancer.world import Backend, answering, run, world

_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.parametrize(
    ("given", "least", "most"), [(b"2.5", 2, 2.5), (b"86400", 200, 300), (b"inf", 4, 5), (b"soon", 4, 5)]
)
def test_nobody_waits_longer_than_some_tier_may(given: bytes, least: float, most: float) -> None:
    """A real-time request waits 5 s, or as long as it says, and no longer than batch: else one stranger holds the queue for a day."""

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            loop = asyncio.get_running_loop()
            queue = w.proxy.admission = QueueAdmission(Settings(), loop=loop, cost=lambda _: 1.0)
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
