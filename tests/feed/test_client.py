"""An edge's line to control says what it met."""

from __future__ import annotations

import asyncio
import socket

import pytest

from gtm.feed.client import ControlUnreachable, FeedClient, TokenRefused


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


def met(url: str) -> str:
    """How following control at a URL fails."""

    async def ask() -> str:
        async with FeedClient(url, "gtm_none", "edge") as client:
            with pytest.raises(ControlUnreachable) as failed:
                await anext(client.messages(None))
        return f"{failed.type.__name__}: {failed.value}"

    return asyncio.run(ask())
