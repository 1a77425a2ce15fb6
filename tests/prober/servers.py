"""Real servers to probe, on loopback."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter, bytes], Awaitable[None]]


@dataclass
class Server:
    """A server that hands each connection's request head to `answer`, and keeps count."""

    answer: Answer
    port: int = 0
    heads: list[bytes] = field(default_factory=list)
    open: int = 0
    most_open: int = 0

    @property
    def url(self) -> str:
        """Where it listens, as an endpoint's URL."""
        return f"http://127.0.0.1:{self.port}"

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                await self.answer(reader, writer, head)
                await writer.drain()
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def serve(answer: Answer, tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[Server]:
    """Run a server; its connections end with it."""
    server = Server(answer)
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await server.connected(reader, writer)
        except asyncio.CancelledError:
            writer.close()

    listener = await asyncio.start_server(connected, "127.0.0.1", port, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def http(status: int = 200, body: bytes = b"", headers: bytes = b"") -> Answer:
    """Always the same HTTP answer."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: bytes) -> None:
        writer.write(raw_http(status, body, headers))

    return answer


def raw_http(status: int = 200, body: bytes = b"", headers: bytes = b"") -> bytes:
    """The bytes of an HTTP answer."""
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n%s\r\n" % (status, len(body), headers) + body


def raw(data: bytes, then: float = 0) -> Answer:
    """Some bytes, and after a pause in seconds the end."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: bytes) -> None:
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(then)

    return answer
