"""DNSSEC keys at an edge's agent: kept on disk for its owner only, for a start without control."""

from __future__ import annotations

import asyncio
import stat
from hashlib import sha256
from pathlib import Path

import pytest

from gtm.core.handoff.keys import PublicKey, PublicKeys
from gtm.core.model.access import Access
from gtm.core.model.state import State
from gtm.core.signing.keys import Keys, SignedSet, ZoneKeys, dnskey_rdata
from gtm.feed.sealing import Seal, SealingKey
from gtm.feed.wire import (
    SEALING_KEY,
    AccessMessage,
    HandoffKeysMessage,
    KeysMessage,
    StateMessage,
    encode,
)
from gtm.handoff.jwt import made
from gtm.runtime.edge.agent.agent import Agent, concerns
from gtm.runtime.edge.line import MetricsMessage, SigningMessage, ToWorker, WorkerKind
from gtm.runtime.following.following import LAST_GOOD
from gtm.settings import EdgeSettings

ZONE = ZoneKeys(
    "demo.test", (SignedSet(48, 3600, (b"\1",), (b"\2",)),), 7, dnskey_rdata(256, bytes(64)), b"\1" * 32
)


def agent(data_dir: Path) -> Agent:
    """An edge that reaches nobody."""
    return Agent(EdgeSettings(data_dir, control_url="http://127.0.0.1:1", token="token", name="edge"))


@pytest.mark.anyio
async def test_keys_outlive_a_restart_without_control(tmp_path: Path) -> None:
    """Keys that came over the feed are there again after a start with the last-good file alone, for new workers too."""
    before = agent(tmp_path)
    await before.receive(KeysMessage(Keys(3, (ZONE,))))
    assert stat.S_IMODE((tmp_path / LAST_GOOD).stat().st_mode) == 0o600
    after = agent(tmp_path)
    await after.load()
    assert after.current.keys == Keys(3, (ZONE,))
    assert KeysMessage(Keys(3, (ZONE,))) in after.everything()


@pytest.mark.anyio
async def test_an_edge_signs_by_the_key_on_its_disk_without_control(tmp_path: Path) -> None:
    """It reports its public keys, and keeps what the feed had of all others; a new name is told to workers with the key."""
    before = agent(tmp_path)
    await before.load()
    (signing,) = (one for one in before.everything() if isinstance(one, SigningMessage))
    others = HandoffKeysMessage(PublicKeys((PublicKey("lon-1", "x" * 43),), 5))
    await before.receive(others)
    after = agent(tmp_path)
    await after.load()
    assert signing.issuer == "edge"
    assert {signing, others} == {
        one for one in after.everything() if isinstance(one, SigningMessage | HandoffKeysMessage)
    }
    assert after.current.handoff_keys == others.keys
    assert after.report(1).handoff_keys == signing.public


@pytest.mark.anyio
async def test_an_edge_without_signed_zones_keeps_no_keys(tmp_path: Path) -> None:
    """Where no keys were ever sent there are none in the last-good file; none any more is kept as news, too."""
    edge = agent(tmp_path)
    await edge.receive(AccessMessage(Access()))
    assert b"keys" not in (tmp_path / LAST_GOOD).read_bytes()
    await edge.receive(KeysMessage(Keys(3, (ZONE,))))
    await edge.receive(KeysMessage(Keys(4)))
    again = agent(tmp_path)
    await again.load()
    assert again.current.keys == Keys(4)


@pytest.mark.anyio
async def test_an_edge_opens_what_is_sealed_to_the_key_in_its_data_directory(tmp_path: Path) -> None:
    """It tells control that key at each start, and takes in what comes; what is sealed to another leaves it as it was."""
    told: list[str] = []

    async def control(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        told.append(next(line.split(": ")[1] for line in head.splitlines() if line.startswith(SEALING_KEY)))
        hashed = sha256(b"token").hexdigest()
        ours, other = Seal(told[-1], "edge", hashed), Seal(SealingKey().public, "edge", hashed)
        version = len(told)
        lines = (
            ours.seal(encode(KeysMessage(Keys(version, (ZONE,))))),
            other.seal(encode(KeysMessage(Keys(9)))),
        )
        writer.write(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b"".join(lines) + encode(StateMessage(State(1)))
        )
        await writer.drain()
        await reader.read()  # until the edge goes
        writer.close()

    server = await asyncio.start_server(control, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        for version in (1, 2):
            edge = Agent(EdgeSettings(tmp_path, control_url=url, token="token", name="edge"))
            following = asyncio.ensure_future(edge.follow())
            await asyncio.wait_for(edge.due.wait(), 20)  # it follows
            assert edge.current.keys == Keys(version, (ZONE,))
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    assert told[0] == told[1] == SealingKey.kept(tmp_path).public


def test_private_keys_go_to_those_who_sign_with_them() -> None:
    """Each kind gets the private keys that it signs with, and what it serves, and both the rest."""
    pair = made()
    messages: list[ToWorker] = [
        SigningMessage("edge", pair, ()),
        HandoffKeysMessage(PublicKeys(version=1)),
        KeysMessage(Keys(3, (ZONE,))),
        MetricsMessage("x 1\n"),
        AccessMessage(Access()),
    ]
    assert [concerns(WorkerKind.DNS, message) for message in messages] == [False, False, True, False, True]
    assert [concerns(WorkerKind.HTTP, message) for message in messages] == [True, True, False, True, True]
