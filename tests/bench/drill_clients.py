"""Clients of a balancer drill, on one event loop: streams of which it is known to the byte how they ended; and pages that are polled."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

import httptools
import numpy as np

from tests.patience import PATIENCE
from tests.system.balancers import BERLIN, HOST

_HEAD = (
    "POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-For: {client}\r\n"
    "Content-Type: application/json\r\n{more}Content-Length: {length}\r\n\r\n"
)


class Ask(asyncio.Protocol):
    """A stream of tokens over a connection of its own.

    Args:
        tokens: how many it asks for.
        headers: further ones.
    """

    def __init__(self, tokens: int, **headers: str) -> None:
        self.tokens = tokens
        self.began = time.perf_counter()
        self.first: float | None = None
        """Seconds to the first byte of the answer's body."""
        self.status = 0
        self.body = bytearray()
        self.complete = False
        """Whether the message has ended as HTTP says that it does (RFC 9112 §6.3, §7.1: its last chunk)."""
        self.over = asyncio.Event()
        self._headers = headers
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        self.transport = cast("asyncio.Transport", transport)
        said = [{"role": "user", "content": "Say."}]
        content = {"model": "demo", "messages": said, "max_tokens": self.tokens, "stream": True}
        body = json.dumps(content)
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in self._headers.items())
        head = _HEAD.format(host=HOST, client=BERLIN, more=more, length=len(body))
        self.transport.write((head + body).encode())

    def data_received(self, data: bytes) -> None:
        """A part of the answer."""
        self._parser.feed_data(data)

    def on_headers_complete(self) -> None:
        """The answer's head."""
        self.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        """A piece of its body."""
        if self.first is None:
            self.first = time.perf_counter() - self.began
        self.body += data

    def on_message_complete(self) -> None:
        """It has come whole."""
        self.complete = True
        self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - how it ended is in what came
        """No more of it will come."""
        self.over.set()

    @property
    def live(self) -> bool:
        """Whether it has begun and goes on."""
        return self.status == 200 and self.first is not None and not self.over.is_set()

    @property
    def end(self) -> str:
        """How it ended.

        `whole`: all tokens, `[DONE]` and the last chunk. `told`: broken off, and its last event says so. `broken`: its connection
        broke off. `refused`: an answer, but no stream. `lost`: no answer at all. `false`: it looks whole, and is not.
        """
        if not self.status:
            return "lost"
        if self.status != 200:
            return "refused"
        *events, rest = bytes(self.body).split(b"\n\n")
        done = b"data: [DONE]" in events
        read = [json.loads(event[6:]) for event in events if event.startswith(b"data: {")]
        tokens = sum(
            bool(choice["delta"].get("content")) for event in read for choice in event.get("choices", ())
        )
        if done and self.complete and tokens == self.tokens and not rest:
            return "whole"
        if done or self.complete:
            return "false"
        return "told" if read and "error" in read[-1] else "broken"

    @property
    def code(self) -> str:
        """Of a refusal: its status and its code."""
        try:
            return f"{self.status} {json.loads(bytes(self.body))['code']}"
        except (ValueError, KeyError, TypeError):
            return str(self.status)


async def ask(port: int, tokens: int, **headers: str) -> Ask:
    """Begin one. A connection that is refused is one that is over."""
    made = Ask(tokens, **headers)
    try:
        await asyncio.get_running_loop().create_connection(lambda: made, "127.0.0.1", port)
    except OSError:
        made.over.set()
    return made


async def begin(port: int, count: int, tokens: int) -> list[Ask]:
    """Begin so many, and wait until each has its first byte, or is over."""
    streams = list(await asyncio.gather(*(ask(port, tokens) for _ in range(count))))
    await until(lambda: all(one.first is not None or one.over.is_set() for one in streams), "all have begun")
    return streams


async def over(streams: Iterable[Ask]) -> list[str]:
    """Wait until all are over; how each ended."""
    found = []
    async with asyncio.timeout(2 * PATIENCE):
        for one in streams:
            await one.over.wait()
            found.append(one.end)
    return found


def live(streams: Iterable[Ask]) -> int:
    """How many go on."""
    return sum(one.live for one in streams)


async def page(port: int, path: str) -> Any:
    """A page of JSON, over a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        raw = await reader.read()
    finally:
        writer.close()
    return json.loads(raw.partition(b"\r\n\r\n")[2])


async def until(check: Callable[[], bool | Awaitable[bool]], what: str, pause: float = 0.02) -> None:
    """Wait until something holds; what cannot be asked does not hold yet.

    Raises:
        AssertionError: it never did.
    """
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            found = check()
            if found if isinstance(found, bool) else await found:
                return
        except (OSError, ValueError):
            pass
        await asyncio.sleep(pause)
    raise AssertionError(f"not within {PATIENCE:.0f} s: {what}")


def quantile_ms(seconds: Iterable[float | None], part: float) -> float | None:
    """A quantile of times, in ms; None: there are none."""
    known = [one for one in seconds if one is not None]
    return round(1000 * float(np.quantile(known, part)), 1) if known else None
