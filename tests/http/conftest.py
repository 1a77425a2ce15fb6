"""Edges over a real uvicorn on loopback."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn

from gtm.core.policy.edges import EdgePlace
from gtm.http.app import EdgeOptions
from gtm.runtime.process.http import server_config
from tests.http.world import Edge


@pytest.fixture
def run_edge() -> Iterator[Callable[..., Edge]]:
    """Start edges over real servers; they stop with the test."""
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(*, load: bool = True, place: EdgePlace | None = None, **options: Any) -> Edge:
        edge = Edge(EdgeOptions(**options), place)
        if load:
            edge.load()
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        edge.port = listener.getsockname()[1]
        server = uvicorn.Server(server_config(edge.app, grace=3, answer=edge.app.answer_head))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        running.append((server, thread))
        edge.stop = lambda: stop(running)
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.005)
        return edge

    yield start
    stop(running)


def stop(running: list[tuple[uvicorn.Server, threading.Thread]]) -> None:
    """End servers, and wait for it."""
    for server, thread in running:
        server.should_exit = True
        thread.join(20)
    running.clear()


@pytest.fixture
def edge(run_edge: Callable[..., Edge]) -> Edge:
    """An edge with open look-ups, everything up."""
    return run_edge(open_lookups=True)
