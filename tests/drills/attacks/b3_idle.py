"""More idle connections than a process has descriptors by default, at an edge and at control."""

from __future__ import annotations

import resource
import socket
from contextlib import ExitStack
from urllib.parse import urlsplit

from tests.drills.arena import Arena, attack, held

_IDLE = 1100
_ASK = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"


@attack("B3", "1,100 idle connections, at the edge and at control")
def idle_connections(arena: Arena) -> str:
    """Each has asked once and waits; a new client is served all the same."""
    running = arena.shared
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * _IDLE)), hard))
    for name, url in (("the edge", running.edge), ("control", running.control)):
        place = urlsplit(url)
        with ExitStack() as stack:
            for number in range(_IDLE + 1):
                client = socket.create_connection((place.hostname, place.port), 10)
                stack.enter_context(client)
                client.sendall(_ASK)
                try:
                    answer = client.recv(4096)
                except TimeoutError:
                    answer = b""
                held(answer.startswith(b"HTTP/1.1 200"), f"client {number + 1} of {name} got {answer[:40]!r}")
    return f"client {_IDLE + 1} was served by both"
