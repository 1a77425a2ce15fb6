"""Balancers of one region with unlike servers: each group's slots are shared among them, and not the region's as one."""

# ruff: noqa: SLF001 - what the parts of a carrier go by is their own

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import cast

from gtm.core.balance.admission.values import Arrival, Ticket
from gtm.core.balance.backends import Condition
from gtm.core.balance.sharing import AHEAD, LAG
from gtm.core.quota.leases import LeaseParts
from gtm.feed.current import CurrentView
from gtm.geoip.reader import Locator
from gtm.runtime.balancer.backends_file import BackendsFile
from gtm.runtime.balancer.carrier import Carrier
from gtm.runtime.balancer.workers.pool import merged_state
from tests import uvloops
from tests.balancer.test_backends_file import settings
from tests.runtime.balancer.test_reload import _Nowhere

CHAT, EMBEDS = "http://127.0.0.1:1", "http://127.0.0.1:2"
SLOTS = 8
MOST = SLOTS + ceil(AHEAD * SLOTS)
"""With those that are filled ahead."""
_FILE = {
    "service": "chat",
    "backends": [
        {"url": CHAT, "slots": SLOTS, "models": ["llama"]},
        {"url": EMBEDS, "slots": SLOTS, "models": ["bge"]},
    ],
}


def _made(folder: Path, name: str) -> Carrier:
    file = folder / "balancer.yaml"
    file.write_text(json.dumps(_FILE))
    told = settings(folder, file)
    carrier = Carrier(
        told,
        name,
        current=CurrentView(lambda: 0.0),
        file=BackendsFile(told),
        locator=cast("Locator", _Nowhere()),
        parts=LeaseParts(0, 0.0, {}),
    )
    carrier._picker.conditions({url: Condition(healthy=True) for url in (CHAT, EMBEDS)})
    carrier._health.resize()
    return carrier


def _begun(carrier: Carrier, model: str, count: int) -> int:
    """How many of so many requests begin at once."""
    admission, now = carrier._admission.admission, carrier._loop.time()
    found = [admission.offer(Arrival(model=model), now) for _ in range(count)]
    return sum(isinstance(one, Ticket) and not one.waiting for one in found)


async def _tell(one: Carrier, other: Carrier) -> None:
    """Each hears of the other, and what it asked for counts."""
    for _ in range(2):
        for speaker, hearer in ((one, other), (other, one)):
            hearer.heard({speaker.member: speaker.words()[speaker.member]})
        await asyncio.sleep(LAG)


def test_balancers_share_the_slots_of_each_group(tmp_path: Path) -> None:
    """All chats that may run do, in both together; and the other server stays free for what it is there for."""

    async def main() -> None:
        one, other = _made(tmp_path, "one"), _made(tmp_path, "other")
        await _tell(one, other)
        for _ in range(3):
            chats = sum(_begun(carrier, "llama", SLOTS) for carrier in (one, other))
            await _tell(one, other)
        assert not chats
        running = one._admission.admission.running + other._admission.admission.running
        assert SLOTS <= running <= MOST
        # All of the chat server is taken, and chats wait; all of the other is there to be had.
        assert SLOTS // 2 <= _begun(one, "bge", SLOTS) <= MOST
        assert _begun(other, "bge", 1)
        for carrier in (one, other):
            await carrier.close()

    uvloops.run(main())


def test_what_another_has_at_a_group_s_servers_counts_though_it_knows_of_no_groups(tmp_path: Path) -> None:
    """It was started before balancers told each other of groups, or has not seen yet what the servers have."""

    async def main() -> None:
        one, other = _made(tmp_path, "one"), _made(tmp_path, "other")
        for _ in range(SLOTS):
            one._picker.flights.of(CHAT).begin(1.0)
        word = replace(one.words()["one"], groups={})
        other.heard({"one": word})
        assert _begun(other, "llama", SLOTS) <= MOST - SLOTS
        assert _begun(other, "bge", SLOTS) >= SLOTS // 2
        for carrier in (one, other):
            await carrier.close()

    uvloops.run(main())


def test_what_is_shown_of_groups(tmp_path: Path) -> None:
    """Who watches sees what runs and waits for the chat server, and that the other is free; of several processes the sum."""

    async def main() -> None:
        carrier = _made(tmp_path, "one")
        begun = _begun(carrier, "llama", MOST + 3)
        assert begun < MOST + 3
        _begun(carrier, "bge", 2)
        state = await carrier.state()
        shown = {tuple(one["backends"]): one for one in state["groups"].values()}
        assert shown == {
            (CHAT,): {"backends": [CHAT], "limit": SLOTS, "running": begun, "waiting": MOST + 3 - begun},
            (EMBEDS,): {"backends": [EMBEDS], "limit": SLOTS, "running": 2, "waiting": 0},
        }
        both = merged_state([state, state])["groups"]
        chats = next(name for name, one in both.items() if one["backends"] == [CHAT])
        assert both[chats] == {
            "backends": [CHAT],
            "limit": SLOTS,
            "running": 2 * begun,
            "waiting": 2 * (MOST + 3 - begun),
        }
        metrics = (await carrier.metrics()).decode()
        assert f'gtm_balancer_group_running{{group="{chats}"}} {begun}' in metrics
        assert f'gtm_balancer_group_backend{{group="{chats}",backend="{CHAT}"}} 1' in metrics
        assert f'gtm_balancer_group_slots{{group="{chats}"}} {SLOTS}' in metrics
        await carrier.close()

    uvloops.run(main())
