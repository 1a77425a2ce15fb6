"""HTTP/1.1 connections: requests in, whole answers or streams out, on asyncio's transports and httptools."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast
from urllib.parse import parse_qsl

import httptools

from gtm.demo.backend import wire
from gtm.demo.backend.errors import ApiError, bad_request

MAX_HEAD = 32 * 1024
MAX_HEADERS = 100
MAX_BODY = 4 * 1024 * 1024
LINGER = 2.0
"""Seconds for which a client may go on sending what nobody reads, so that it gets to read why."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request. Names of headers are in lower case, of those that came twice the last one counts."""

    method: str
    target: bytes
    headers: Mapping[str, str]
    body: bytes
    chunks: bool
    """Whether the client reads chunks (HTTP/1.1)."""
    keep_alive: bool

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition(b"?")[0].decode("latin-1")


Handler = Callable[["Connection", Request], None]


class Connection(asyncio.Protocol):
    """A client's connection. One request is answered at a time; the next waits, and what is behind it is not read.

    Args:
        handler: answers a request, at once or later, by `respond`, or `open` and `write` and `close_stream`.
        connections: of the server; this one is in it while it is open.
        lasts: seconds for one request and its answer, after which the connection ends; None: it is kept for others, however long.
    """

    def __init__(self, handler: Handler, connections: set[Connection], lasts: float | None = None) -> None:
        self._handler = handler
        self._lasts = lasts
        self._connections = connections
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._parser = httptools.HttpRequestParser(self)
        self.on_lost: Callable[[], None] | None = None
        """Called once if the client goes before its answer has ended."""
        self.on_resumed: Callable[[], None] | None = None
        """Called when the client takes more of a stream after `paused`."""
        self.paused = False
        """Whether the client is behind with what was written."""
        self._request: Request | None = None
        """The request that is being answered."""
        self._next: list[Request] = []
        self._dead = False
        self._begin()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._transport = cast("asyncio.Transport", transport)
        self._connections.add(self)
        if self._lasts is not None:
            asyncio.get_running_loop().call_later(self._lasts, self._transport.abort)

    def connection_lost(self, _: Exception | None) -> None:
        """The client is gone."""
        self._dead = True
        self._connections.discard(self)
        lost, self.on_lost, self.on_resumed = self.on_lost, None, None
        if lost is not None:
            lost()

    def pause_writing(self) -> None:
        """The client is behind."""
        self.paused = True

    def resume_writing(self) -> None:
        """The client has caught up with what was sent."""
        self.paused = False
        if self.on_resumed is not None:
            self.on_resumed()

    def data_received(self, data: bytes) -> None:
        """Some of a request, or of several."""
        if self._dead:
            return
        try:
            self._arrived += len(data)
            self._parser.feed_data(data)
            if not self._in_body and self._arrived > 2 * MAX_HEAD:  # the parser keeps what it cannot tell yet
                self._refuse(
                    _head_too_large(f"the request's head is larger than the {MAX_HEAD} bytes accepted")
                )
        except httptools.HttpParserUpgrade:
            self._refuse(bad_request("no other protocol is spoken here"))
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(
                cause if isinstance(cause, ApiError) else bad_request(f"this is no HTTP request: {error}")
            )

    # The parser calls these.

    def on_message_begin(self) -> None:
        """A request begins."""
        self._begin()

    def on_url(self, url: bytes) -> None:
        """Some of its target."""
        self._target += url
        if len(self._target) > MAX_HEAD:
            raise _head_too_large(f"the request's target is longer than the {MAX_HEAD} bytes accepted")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header line."""
        self._lines += 1
        self._line_bytes += len(name) + len(value)
        if self._line_bytes > MAX_HEAD:
            raise _head_too_large(f"the request's header lines take more than the {MAX_HEAD} bytes accepted")
        if self._lines > MAX_HEADERS:
            raise _head_too_large(f"the request has more than the {MAX_HEADERS} header lines accepted")
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The end of its head."""
        self._in_body = True
        length = self._headers.get("content-length", "0")
        if length.isdigit() and int(length) > MAX_BODY:
            raise _too_large()
        if self._headers.get("expect", "").lower() == "100-continue" and self._request is None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Some of its body."""
        self._body_bytes += len(body)
        if self._body_bytes > MAX_BODY:
            raise _too_large()
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The request has come to its end."""
        request = Request(
            method=self._parser.get_method().decode("ascii"),
            target=self._target,
            headers=self._headers,
            body=b"".join(self._body),
            chunks=self._parser.get_http_version() != "1.0",
            keep_alive=self._lasts is None and self._parser.should_keep_alive(),
        )
        self._begin()
        if self._request is None:
            self._serve(request)
        else:
            self._next.append(request)
            self._transport.pause_reading()

    # The handler calls these.

    def respond(
        self,
        status: HTTPStatus,
        body: bytes,
        content_type: str = wire.JSON,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Answer the request whole."""
        request = self._request
        if self._dead or request is None:
            return
        lines = {"content-type": content_type, "content-length": str(len(body)), **(headers or {})}
        if not request.keep_alive:
            lines["connection"] = "close"
        self._transport.write(wire.head(status, lines) + (b"" if request.method == "HEAD" else body))
        self._ended()

    def fail(self, error: ApiError) -> None:
        """Answer the request with an error."""
        self.respond(error.status, *_error(error))

    def open(self) -> None:
        """Begin to answer by a stream."""
        request = self._request
        if self._dead or request is None:
            return
        lines = {"content-type": wire.EVENTS, "cache-control": "no-cache"}
        if request.chunks:
            lines["transfer-encoding"] = "chunked"
        if not request.keep_alive or not request.chunks:
            lines["connection"] = "close"
        self._transport.write(wire.head(HTTPStatus.OK, lines))

    def write(self, data: bytes) -> None:
        """Send more of a stream."""
        if not self._dead:
            self._transport.write(data)

    def close_stream(self) -> None:
        """The stream is over, as its bytes say."""
        if not self._dead and self._request is not None:
            self._ended(closes=not self._request.chunks)

    def reset(self) -> None:
        """End the connection by a reset: what was sent and not read is lost."""
        if self._dead:
            return
        sock: socket.socket | None = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def abort(self) -> None:
        """End the connection at once."""
        self._transport.abort()

    def _begin(self) -> None:
        self._target = b""
        self._headers: dict[str, str] = {}
        self._lines = self._line_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._arrived = 0
        self._in_body = False

    def _serve(self, request: Request) -> None:
        self._request = request
        self._handler(self, request)

    def _ended(self, *, closes: bool = False) -> None:
        """The request is answered."""
        request, self._request = self._request, None
        self.on_lost = self.on_resumed = None
        if closes or (request is not None and not request.keep_alive):
            self._dead = True
            self._transport.close()
        elif self._next:
            self._transport.resume_reading()
            asyncio.get_running_loop().call_soon(self._serve_next)

    def _serve_next(self) -> None:
        if self._next and self._request is None and not self._dead:
            self._serve(self._next.pop(0))

    def _refuse(self, error: ApiError) -> None:
        """Answer what cannot be read; the connection ends."""
        self._dead = True
        if self._request is None:
            body, content_type, headers = _error(error)
            lines = {
                "content-type": content_type,
                "content-length": str(len(body)),
                "connection": "close",
                **headers,
            }
            self._transport.write(wire.head(error.status, lines) + body)
            # Closed while the client still sends, the connection would be reset, and the answer be lost (RFC 9112 §9.6).
            self._transport.write_eof()
            asyncio.get_running_loop().call_later(LINGER, self._transport.abort)
        else:
            self._transport.close()


class HttpServer:
    """Serves one address.

    Args:
        handler: answers a request.
        lasts: see `Connection`.
    """

    def __init__(self, handler: Handler, lasts: float | None = None) -> None:
        self._lasts = lasts
        self.connections: set[Connection] = set()
        """The connections that are open."""
        self.handler = handler
        self._server: asyncio.Server | None = None

    @property
    def listening(self) -> bool:
        """Whether the server takes connections."""
        return self._server is not None

    async def listen(self, host: str, port: int) -> int:
        """Listen on an address from now on, on a free port for port 0; return the port.

        Raises:
            OSError: the address is taken.
        """
        self._server = await asyncio.get_running_loop().create_server(
            self._connection, host, port, backlog=4096, reuse_address=True
        )
        taken: int = self._server.sockets[0].getsockname()[1]
        return taken

    async def adopt(self, listening: socket.socket) -> None:
        """Serve a socket that listens already."""
        self._server = await asyncio.get_running_loop().create_server(self._connection, sock=listening)

    def stop(self) -> None:
        """Stop listening, and break off what is open."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self.connections):
            connection.abort()

    def _connection(self) -> Connection:
        return Connection(self.handler, self.connections, self._lasts)


def _error(error: ApiError) -> tuple[bytes, str, dict[str, str]]:
    headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    return json.dumps(error.document()).encode(), wire.JSON, headers


def _head_too_large(message: str) -> ApiError:
    return ApiError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message, "head_too_large")


def _too_large() -> ApiError:
    return ApiError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the body is larger than the {MAX_BODY} bytes accepted",
        "body_too_large",
    )


def query(request: Request) -> dict[str, str]:
    """The parameters of a request's target."""
    return dict(parse_qsl(request.target.partition(b"?")[2].decode("latin-1")))
