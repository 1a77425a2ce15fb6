"""DNSSEC keys at an edge's agent: kept on disk for its owner only, for a start without control."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from gtm.core.access import Access
from gtm.core.dnssec import Keys, SignedSet, ZoneKeys, dnskey_rdata
from gtm.feed.wire import AccessMessage, KeysMessage, Message, MetricsMessage
from gtm.runtime.agent import Agent
from gtm.runtime.crew import concerns
from gtm.settings import EdgeSettings

ZONE = ZoneKeys(
    "demo.test", (SignedSet(48, 3600, (b"\1",), (b"\2",)),), 7, dnskey_rdata(256, bytes(64)), b"\1" * 32
)


def agent(data_dir: Path) -> Agent:
    """An edge that reaches nobody."""
    return Agent(EdgeSettings(data_dir, "http://127.0.0.1:1", "token", "edge"))


@pytest.mark.anyio
async def test_keys_outlive_a_restart_without_control(tmp_path: Path) -> None:
    """Keys that came over the feed are there again after a start with the last-good file alone, for new workers too."""
    before = agent(tmp_path)
    await before._receive(KeysMessage(Keys(3, (ZONE,))))
    assert stat.S_IMODE(before._last_good.stat().st_mode) == 0o600
    after = agent(tmp_path)
    await after._load_last_good()
    assert after._holder.keys == Keys(3, (ZONE,))
    assert KeysMessage(Keys(3, (ZONE,))) in after._everything()


@pytest.mark.anyio
async def test_an_edge_without_signed_zones_keeps_no_keys(tmp_path: Path) -> None:
    """Where no keys were ever sent there are none in the last-good file; none any more is kept as news, too."""
    edge = agent(tmp_path)
    await edge._save()
    assert b"keys" not in edge._last_good.read_bytes()
    await edge._receive(KeysMessage(Keys(3, (ZONE,))))
    await edge._receive(KeysMessage(Keys(4)))
    again = agent(tmp_path)
    await again._load_last_good()
    assert again._holder.keys == Keys(4)


def test_private_keys_go_to_dns_workers_alone() -> None:
    """HTTP workers, which sign nothing, get no private key; each kind gets what it serves, and both the rest."""
    messages: list[Message] = [
        KeysMessage(Keys(3, (ZONE,))),
        MetricsMessage("x 1\n"),
        AccessMessage(Access()),
    ]
    assert [concerns("dns-1", message) for message in messages] == [True, False, True]
    assert [concerns("http-2", message) for message in messages] == [False, True, True]
