"""Control as tests of its API have it, and servers that answer as a test says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from gtm.client import NEVER, Control, Options
from gtm.core.model.access import Role
from tests.api.conftest import TOKENS, Api, api, world

__all__ = ["api", "control", "scripted", "scripted_for_all", "world"]


class Scripted:
    """A server that answers each request with the next of the bytes given, and then with the last again; empty ones: it closes the connection."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.asked: list[bytes] = []
        self.before: Callable[[], None] = lambda: None
        """Done before an answer is sent."""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                asked = b""
                while b"\r\n\r\n" not in asked:
                    more = connection.recv(65536)
                    if not more:
                        break
                    asked += more
                self.asked.append(asked)
                self.before()
                connection.sendall(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])

    def close(self) -> None:
        """Listen no more."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


def http(status: int, body: str = "", *headers: str, kind: str = "application/json") -> bytes:
    """The bytes of an answer."""
    lines = [
        f"HTTP/1.1 {status} X",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *headers,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    """A server that answers as told."""
    found = Scripted()
    yield found
    found.close()


@pytest.fixture
def control(world: Api) -> Iterator[Control]:
    """Control with the world of the API's tests, and an admin's client."""
    with Control(world.url, TOKENS[Role.ADMIN], Options(retries=NEVER)) as found:
        yield found


@pytest.fixture(scope="module")
def scripted_for_all() -> Iterator[Scripted]:
    """The same, for all examples of a test."""
    found = Scripted()
    yield found
    found.close()
