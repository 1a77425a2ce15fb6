"""A small HTTP/1.1 server on asyncio for the demo world: thousands of open requests cost a task each.

Every answer closes its connection, so that a region that fails does so for its clients at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote

logger = logging.getLogger(__name__)

PATIENCE = 10.0
"""Seconds in which a request must have arrived."""
_MAX_HEAD = 32 * 1024
_MAX_BODY = 1 << 20
_BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class Request:
    """One request, without its body. `path` is without the query, header names are in lower case."""

    method: str
    target: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back: a JSON document."""

    status: HTTPStatus
    document: object
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


def problem(status: HTTPStatus, detail: str, headers: Mapping[str, str] | None = None) -> Answer:
    """A problem document (RFC 9457)."""
    document = {"type": "about:blank", "title": status.phrase, "status": status.value, "detail": detail}
    return Answer(status, document, headers or {}, "application/problem+json")


Handler = Callable[[Request], Awaitable[Answer]]


class RequestError(ValueError):
    """A request that cannot be read; it is answered with 400."""


def parse_head(head: bytes) -> Request:
    """Read a request's line and headers (RFC 9112 §2–§5).

    Raises:
        RequestError: that is no request.
    """
    line, *fields = head.decode("latin-1").split("\r\n")
    parts = line.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or not parts[0].isalpha():
        raise RequestError("the request line is none")
    headers: dict[str, str] = {}
    for text in filter(None, fields):
        name, colon, value = text.partition(":")
        if not colon or not name or name != name.strip():
            raise RequestError("a header is malformed")
        headers[name.lower()] = value.strip()
    method, target, _ = parts
    path, _, query = target.partition("?")
    return Request(method.upper(), target, unquote(path), dict(parse_qsl(query)), headers)


class HttpServer:
    """Serves one address.

    Args:
        handler: answers a request; what it raises becomes a 500.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int) -> None:
        """Listen on an address from now on.

        Raises:
            OSError: it is taken.
        """
        self._server = await asyncio.start_server(
            self._serve, host, port, limit=_MAX_HEAD, backlog=_BACKLOG, reuse_address=True
        )

    async def adopt(self, listening: socket.socket) -> None:
        """Serve a socket that listens already."""
        self._server = await asyncio.start_server(self._serve, sock=listening, limit=_MAX_HEAD)

    async def close(self) -> None:
        """Stop listening, and break off what is open."""
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio runs this as one
        self._open.add(task)
        finished = False
        try:
            async with asyncio.timeout(PATIENCE):
                request = await _read(reader)
            writer.write(_bytes(await self._answer(request), head_only=request.method == "HEAD"))
            await writer.drain()
            finished = True
        except RequestError as error:
            writer.write(_bytes(problem(HTTPStatus.BAD_REQUEST, str(error))))
            finished = True
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError) as error:
            logger.debug("a request broke off: %r", error)
        finally:
            self._open.discard(task)
            if finished:
                with suppress(OSError):
                    writer.close()
            else:
                writer.transport.abort()

    async def _answer(self, request: Request) -> Answer:
        try:
            return await self._handler(request)
        except Exception:
            logger.exception("could not answer %s %s", request.method, request.target[:200])
            return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "this is a bug in gtm")


async def _read(reader: asyncio.StreamReader) -> Request:
    """A request; its body is read and thrown away.

    Raises:
        RequestError: it is malformed, or its body is too large or of unknown length.
    """
    request = parse_head((await reader.readuntil(b"\r\n\r\n"))[:-4])
    length = request.headers.get("content-length", "0")
    if "transfer-encoding" in request.headers or not (length.isascii() and length.isdigit()):
        raise RequestError("a body needs a Content-Length")
    if len(length) > 8 or int(length) > _MAX_BODY:
        raise RequestError(f"the body is larger than the {_MAX_BODY} bytes accepted")
    await reader.readexactly(int(length))
    return request


def _bytes(answer: Answer, *, head_only: bool = False) -> bytes:
    body = json.dumps(answer.document).encode() + b"\n"
    headers = {
        "Content-Type": answer.content_type,
        "Content-Length": str(len(body)),
        "Connection": "close",
        **answer.headers,
    }
    lines = [f"HTTP/1.1 {answer.status.value} {answer.status.phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    return head if head_only else head + body
