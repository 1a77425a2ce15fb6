"""A control that does nothing but send a feed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

from gtm.feed.client import ControlUnreachable, FeedClient
from gtm.feed.wire import Message


@asynccontextmanager
async def feeding(chunks: Iterable[bytes]) -> AsyncIterator[str]:
    """Its URL; whoever follows the feed gets these chunks one by one, and then its end."""

    async def feed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
        writer.writelines(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(feed, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def messages_of(client: FeedClient) -> list[Message]:
    """All that a feed brings to its end."""
    messages, found = client.messages(None), list[Message]()
    with suppress(ControlUnreachable):
        while True:
            found.append(await anext(messages))
    return found
