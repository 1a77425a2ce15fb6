"""A small HTTP/1.1 client on asyncio: says when the first byte came, and keeps connections to one server if asked to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

TIMEOUT = 60.0
"""Seconds for a whole exchange."""
_MAX_HEAD = 64 * 1024
_MAX_BODY = 1 << 20

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class FetchError(Exception):
    """No answer came: refused, broken off, too late, or not HTTP."""


@dataclass(frozen=True, slots=True)
class FetchReply:
    """An answer. Header names are in lower case; `first_byte` is in seconds since the request was begun."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    first_byte: float


def parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    """Status and headers of an answer.

    Raises:
        FetchError: it is none.
    """
    line, *fields = head.decode("latin-1").split("\r\n")
    version, _, rest = line.partition(" ")
    code = rest[:3]
    if not version.startswith("HTTP/1.") or not (code.isascii() and code.isdigit() and len(code) == 3):
        raise FetchError("the answer is not HTTP")
    pairs = (text.partition(":") for text in fields if text)
    return int(code), {name.strip().lower(): value.strip() for name, _, value in pairs}


async def exchange(stream: Stream, request: bytes, began: float) -> FetchReply:
    """Send a request, and read its answer, which must state its length.

    Raises:
        FetchError: what comes back is no answer.
    """
    reader, writer = stream
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    first = time.perf_counter() - began
    status, headers = parse_head(head[:-4])
    length = headers.get("content-length", "")
    if not (length.isascii() and length.isdigit() and len(length) <= 8) or int(length) > _MAX_BODY:
        raise FetchError("the answer's length is unknown or too large")
    return FetchReply(status, headers, await reader.readexactly(int(length)), first)


def post(host: str, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """A POST request of a JSON document as bytes; what is in its head must be free of control characters."""
    lines = [
        f"POST {target} HTTP/1.1",
        f"Host: {host}",
        *(f"{key}: {value}" for key, value in headers.items()),
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


class Pool:
    """Connections to one server, kept open between requests."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._free: list[Stream] = []

    async def fetch(self, request: bytes) -> FetchReply:
        """One exchange. A kept connection that the server has closed meanwhile is replaced.

        Raises:
            FetchError: no answer came.
        """
        began = time.perf_counter()
        while True:
            kept = self._free.pop() if self._free else None
            stream = kept
            try:
                async with asyncio.timeout(TIMEOUT):
                    if stream is None:
                        stream = await asyncio.open_connection(self._host, self._port, limit=_MAX_HEAD)
                    reply = await exchange(stream, request, began)
            except BaseException as error:
                if stream is not None:
                    stream[1].transport.abort()
                if not isinstance(error, _ERRORS):
                    raise
                if kept is not None and not isinstance(error, TimeoutError):
                    continue
                raise FetchError(_why(error)) from error
            self._free.append(stream)
            return reply

    def abort(self) -> None:
        """Break off what is kept."""
        for _, writer in self._free:
            writer.transport.abort()

    async def close(self) -> None:
        """Close what is kept."""
        for _, writer in self._free:
            with suppress(OSError):
                writer.close()
        self._free.clear()


async def once(host: str, port: int, request: bytes) -> FetchReply:
    """One exchange on a connection of its own.

    Raises:
        FetchError: no answer came.
    """
    pool = Pool(host, port)
    try:
        return await pool.fetch(request)
    finally:
        pool.abort()


_ERRORS = (FetchError, OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT:g} s"
    if isinstance(error, asyncio.IncompleteReadError):
        return "the connection broke off"
    return str(error) or type(error).__name__
