"""Connections that never finish asking."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from gtm.runtime.http import PatientProtocol, PatientServer


async def app(_scope: Any, _receive: Any, send: Any) -> None:
    """Say ok."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


class _Hasty(PatientProtocol):
    head_timeout = 0.2


@pytest.fixture
def port() -> Iterator[int]:
    """Where a server with little patience for heads listens."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, http=_Hasty, lifespan="off", log_config=None))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.parametrize("head", [b"", b"GET / HTTP/1.1\r\nHost: a\r\nX: "])
def test_heads_that_do_not_arrive_end_the_connection(port: int, head: bytes) -> None:
    """Whether nothing was sent or half a head, the connection does not stay."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(head)
        assert connection.recv(100) == b""


def test_kept_connections_may_wait_between_requests(port: int) -> None:
    """The deadline is for heads alone: a connection that waits longer after an answer is good for another request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/")
    assert connection.getresponse().read() == b"ok"
    kept = connection.sock
    with socket.create_connection(("127.0.0.1", port), timeout=30) as other:
        assert other.recv(1) == b""  # the deadline has passed
    connection.request("GET", "/")
    assert connection.getresponse().read() == b"ok"
    assert connection.sock is kept
    connection.close()


@contextmanager
def finishing() -> Iterator[tuple[PatientServer, threading.Thread, tuple[str, int]]]:
    """A server that accepts connections, its thread, and its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    address = listening.getsockname()
    started = threading.Event()
    config = uvicorn.Config(app, http=PatientProtocol, lifespan="off", log_config=None)
    server = PatientServer(config, started.set)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
    thread.start()
    assert started.wait(20)
    try:
        yield server, thread, address
    finally:
        server.finish(0.0)
        thread.join(20)
        assert not thread.is_alive()


def test_a_server_that_finishes_lets_its_clients_close() -> None:
    """With grace, a kept connection gets its next response, which asks to close it; nothing new is accepted."""
    with finishing() as (server, thread, address):
        kept = http.client.HTTPConnection(*address, timeout=20)
        kept.request("GET", "/")
        first = kept.getresponse()
        assert (first.read(), first.headers["connection"]) == (b"ok", None)
        server.finish(3600.0)
        eventually_refused(address)
        kept.request("GET", "/")
        reply = kept.getresponse()
        assert (reply.read(), reply.headers["connection"]) == (b"ok", "close")
        thread.join(20)
        assert not thread.is_alive()


def test_the_time_to_finish_is_only_shortened() -> None:
    """A server that waits for its clients ends at once when it is told so."""
    with finishing() as (server, thread, address), socket.create_connection(address):
        server.finish(3600.0)
        eventually_refused(address)
        server.finish(0.0)
        server.finish(3600.0)
        thread.join(20)
        assert not thread.is_alive()


def eventually_refused(address: tuple[str, int]) -> None:
    """Wait until nothing accepts there."""
    while True:
        try:
            socket.create_connection(address, 20).close()
        except ConnectionError:
            return
