"""Connections that never finish asking."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from gtm.runtime.http import PatientProtocol


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
