"""Backends for tests: in the test's own event loop, or in a thread of their own for clients that block."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

import uvloop

from gtm.demo.backend.faults import InjectedFault
from gtm.demo.backend.profile import Profile
from gtm.demo.backend.server import Backend
from tests import uvloops
from tests.patience import PATIENCE

MODEL = "llama"
QUICK = Profile(step_s=0.0005, step_per_sequence_s=0.0, prefill_tokens_per_second=1e6)
"""A server with which a test of 50 tokens takes 30 ms."""

T = TypeVar("T")


def ask(
    answer: int | None = 8, *, stream: bool = False, text: str = "hello", model: str = MODEL, **more: Any
) -> bytes:
    """The body of a chat request."""
    body = {"model": model, "messages": [{"role": "user", "content": text}], "stream": stream, **more}
    return json.dumps(body if answer is None else {**body, "max_tokens": answer}).encode()


def running(test: Callable[[Backend], Awaitable[T]], profile: Profile = QUICK, **given: Any) -> T:
    """Run a test beside a backend, in one event loop."""

    async def both() -> T:
        backend = Backend(profile, [MODEL], **given)
        await backend.start()
        try:
            async with asyncio.timeout(PATIENCE):
                return await test(backend)
        finally:
            backend.stop()
            while Client.all:
                Client.all.pop().close()
            await asyncio.sleep(0.01)  # uvloop closes no loop on which connections are still closing

    return uvloops.run(both())


class Apart:
    """A backend in a thread of its own."""

    def __init__(self, backend: Backend, loop: asyncio.AbstractEventLoop) -> None:
        self.backend = backend
        self._loop = loop

    @property
    def url(self) -> str:
        """Of OpenAI's API."""
        return f"{self.backend.url}/v1"

    def do(self, what: Coroutine[Any, Any, T]) -> T:
        """Run something in its loop."""
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(PATIENCE)

    def fail(self, fault: InjectedFault) -> None:
        """Make it fail."""
        self.do(self.backend.switch(fault))


@contextmanager
def apart(profile: Profile = QUICK, **given: Any) -> Iterator[Apart]:
    """A backend in a thread of its own."""
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> Backend:
        backend = Backend(profile, [MODEL], **given)
        await backend.start()
        return backend

    async def stop() -> None:
        backend.stop()
        await asyncio.sleep(0)

    backend = asyncio.run_coroutine_threadsafe(start(), loop).result(PATIENCE)
    try:
        yield Apart(backend, loop)
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(PATIENCE)
        loop.call_soon_threadsafe(loop.stop)  # and never closed: see tests/uvloops.py
        thread.join(PATIENCE)


class Client:
    """A bare connection: what a test wants to see of bytes and their end."""

    all: ClassVar[list[Client]] = []
    """Of the test that runs, to be closed when it ends."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.all.append(self)

    @classmethod
    async def to(cls, backend: Backend) -> Client:
        """A connection to a backend."""
        host, _, port = backend.url.removeprefix("http://").rpartition(":")
        return await cls.at(host, int(port))

    @classmethod
    async def at(cls, host: str, port: int) -> Client:
        """A connection to an address."""
        return cls(*await asyncio.open_connection(host, port))

    def send(self, method: str, path: str, body: bytes = b"", *headers: str) -> None:
        """Send a request."""
        lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + body)

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of an answer."""
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = (line.partition(": ") for line in lines if line)
        return int(first.split(" ")[1]), {name.lower(): value for name, _, value in pairs}

    async def answer(self) -> tuple[int, Any]:
        """An answer in one piece."""
        status, headers = await self.head()
        body = await self.reader.readexactly(int(headers["content-length"]))
        return status, json.loads(body) if headers["content-type"] == "application/json" and body else body

    async def ask(self, method: str, path: str, body: bytes = b"", *headers: str) -> tuple[int, Any]:
        """Ask, and read the answer."""
        self.send(method, path, body, *headers)
        return await self.answer()

    async def chunk(self) -> bytes:
        """The next chunk of a stream; empty at its end."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def events(self) -> list[bytes]:
        """All chunks up to the end."""
        found = []
        while chunk := await self.chunk():
            found.append(chunk)
        return found

    def close(self) -> None:
        """Go away."""
        self.writer.transport.abort()


def words(events: list[bytes]) -> str:
    """The text of a chat stream's chunks."""
    documents = [json.loads(one[6:]) for one in events if one.startswith(b"data: {")]
    return "".join(
        choice["delta"].get("content") or ""
        for document in documents
        for choice in document.get("choices", ())
    )
