"""An edge's line to control says what it met."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.signing.keys import NO_KEYS
from gtm.feed import client as feed_client
from gtm.feed.client import BalancerFeedClient, ControlUnreachable, FeedClient, NameRefused, TokenRefused
from gtm.feed.wire import HeartbeatMessage, KeysMessage, Message, SealedKeysMessage, encode
from tests.core.strategies import quick
from tests.feed.feeds import feeding, messages_of


def test_nobody_listens() -> None:
    """A control that is not running is told as a refused connection, not as the library's general failure."""
    with socket.socket() as bound:  # bound but not listening: connections are refused
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        assert met(url) == f"ControlUnreachable: {url}: connection refused"


def test_token_refused() -> None:
    """A refused token is an error of its own, which says where to get one."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async def ask() -> None:
        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, FeedClient(f"http://127.0.0.1:{port}", "gtm_none", "edge") as client:
            with pytest.raises(TokenRefused, match=r"HTTP 401.*gtm token create NAME --role edge"):
                await anext(client.messages(None))

    asyncio.run(ask())


def test_a_balancer_takes_no_keys() -> None:
    """Whatever control sends: keys, sealed or not, are left out and said to be; the rest is handed on."""
    sent: tuple[Message, ...] = (KeysMessage(NO_KEYS), SealedKeysMessage(b"sealed"), HeartbeatMessage(1.0))
    lines = b"".join(encode(message) for message in sent)
    heads: list[bytes] = []

    async def feed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(lines), lines)
        )
        await writer.drain()
        writer.close()

    skipped: list[str] = []
    found: list[Message] = []

    async def ask() -> None:
        server = await asyncio.start_server(feed, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, BalancerFeedClient(url, "gtm_none", "fra 1", skipped=skipped.append) as client:
            messages = client.messages(None)
            found.append(await anext(messages))
            with pytest.raises(ControlUnreachable, match="closed the feed"):
                await anext(messages)

    asyncio.run(ask())
    assert found == [HeartbeatMessage(1.0)]
    assert skipped == ["zone-signing keys, which no balancer is to have"] * 2
    assert heads[0].startswith(b"GET /v1/balancers/fra%201/feed?revision=0 HTTP/1.1\r\n")
    assert b"gtm-edge-key" not in heads[0].lower()


def met(url: str) -> str:
    """How following control at a URL fails."""

    async def ask() -> str:
        async with FeedClient(url, "gtm_none", "edge") as client:
            with pytest.raises(ControlUnreachable) as failed:
                await anext(client.messages(None))
        return f"{failed.type.__name__}: {failed.value}"

    return asyncio.run(ask())


def test_a_name_that_the_token_is_not_for() -> None:
    """Such a refusal says what control said, and which name the token is for, if it is for one alone."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        edges = b"fra-1" if b"edge=one" in head else b"fra-*"
        body = b'{"detail": "start the edge as another"}'
        writer.write(
            b"HTTP/1.1 403 Forbidden\r\nGTM-Edge-Name: %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
            % (edges, len(body), body)
        )
        await writer.drain()
        writer.close()

    async def ask() -> None:
        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            for edge, name in (("one", "fra-1"), ("two", "")):
                async with FeedClient(url, "gtm_none", edge) as client:
                    with pytest.raises(
                        NameRefused, match=r"start the edge as another \(HTTP 403\)"
                    ) as refused:
                        await anext(client.messages(None))
                assert refused.value.name == name

    asyncio.run(ask())


def served(chunks: Iterable[bytes]) -> tuple[list[Message], list[str]]:
    """The messages that a feed of these bytes brings, and what was skipped of it."""
    skipped: list[str] = []

    async def read() -> list[Message]:
        async with (
            feeding(chunks) as url,
            FeedClient(url, "gtm_none", "edge", skipped=skipped.append) as client,
        ):
            return await messages_of(client)

    return asyncio.run(read()), skipped


@quick(200)
@given(
    st.lists(st.sampled_from(["good", "long", "broken", "unknown"]), max_size=6),
    st.lists(st.integers(1, 90), min_size=1),
)
def test_no_message_ends_the_feed(kinds: list[str], sizes: list[int]) -> None:
    """Messages that are too long or broken are skipped and counted; every good one arrives, however the bytes are cut."""
    good = encode(HeartbeatMessage(1.0))
    texts = {
        "good": good,
        "long": b'{"type": "heartbeat", "body": {"now": 1.0, "x": "%b"}}\n' % (b"x" * 200),
        "broken": b'{"type": "state", "body": [}\n',
        "unknown": b'{"type": "later", "body": {}}\n',
    }
    stream, chunks = b"".join(texts[kind] for kind in kinds), []
    while stream:
        size = sizes[len(chunks) % len(sizes)]
        chunks.append(stream[:size])
        stream = stream[size:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed_client, "MAX_LINE", 150)
        messages, skipped = served(chunks)
    assert messages == [HeartbeatMessage(1.0)] * kinds.count("good")
    assert len(skipped) == kinds.count("long") + kinds.count("broken")
