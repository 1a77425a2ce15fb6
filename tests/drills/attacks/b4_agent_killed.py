"""Kill -9 of an edge's agent, with a supervisor and without one, while clients ask."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import dns.message
import httpx

from tests.drills.arena import Arena, attack, held
from tests.system.harness import alive, eventually
from tests.system.lone import NAME, lone_edge

_PATIENCE = 10.0
"""Seconds that a client waits for its answer. Resolvers ask again after one; here nobody does."""
_PAUSE = 0.02


class _Clients:
    """Clients that ask at a steady rate, however long the answers before took."""

    def __init__(self, name: str, dns_port: int, edge: str, path: str) -> None:
        self.asked: Counter[str] = Counter()
        self.lost: list[str] = []
        self._query = dns.message.make_query(name, "A").to_wire()
        self._dns = ("127.0.0.1", dns_port)
        self._url = edge + path
        self._stopping = threading.Event()
        self._waiting: list[threading.Thread] = []

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Ask while the block runs; then wait for what has not been answered yet."""
        thread = threading.Thread(target=self._ask)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()
            for waiting in self._waiting:
                waiting.join()

    def _ask(self) -> None:
        while not self._stopping.wait(_PAUSE):
            for ask in (self._udp, self._tcp, self._http):
                self._waiting.append(threading.Thread(target=self._one, args=(ask,)))
                self._waiting[-1].start()

    def _one(self, ask: Callable[[], object]) -> None:
        kind = ask.__name__.lstrip("_")
        self.asked[kind] += 1
        try:
            ask()
        except (OSError, httpx.HTTPError, AssertionError) as error:
            self.lost.append(f"{kind}: {error!r}")

    def _udp(self) -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as client:
            client.settimeout(_PATIENCE)
            client.connect(self._dns)
            client.send(self._query)
            assert client.recv(4096)[:2] == self._query[:2]

    def _tcp(self) -> None:
        with socket.create_connection(self._dns, _PATIENCE) as client:
            client.sendall(struct.pack("!H", len(self._query)) + self._query)
            assert client.recv(4)[2:4] == self._query[:2]

    def _http(self) -> None:
        assert httpx.get(self._url, timeout=_PATIENCE).status_code == 200

    def verdict(self) -> str:
        """What was asked, if nothing was lost."""
        total = sum(self.asked.values())
        held(not self.lost, f"{len(self.lost)} of {total} not answered, the first: {self.lost[:1]}")
        return f"0 of {total} unanswered over {', '.join(sorted(self.asked))}"


@attack("B4", "kill -9 of the agent under gtm serve, twice")
def supervised(arena: Arena) -> str:
    """The supervisor starts another agent; until it answers, and while it takes over, the workers do."""
    running = arena.shared
    clients = _Clients("web.demo.test", running.dns_port, running.edge, "/v1/route?service=web")
    with clients.asking():
        for _ in range(2):
            (agent,) = running.processes("-m gtm.runtime.edge.agent")
            workers = running.processes("gtm.runtime.edge.worker")
            os.kill(agent, signal.SIGKILL)
            eventually(lambda gone=workers: not any(map(alive, gone)), "the next agent has taken over")  # type: ignore[misc]
    return clients.verdict()


@attack("B4", "kill -9 of an agent that nobody starts again")
def unsupervised(arena: Arena) -> str:
    """The workers answer alone, say so, and a next agent takes them over."""
    folder = arena.fresh()
    folder.mkdir()
    with lone_edge(folder) as edge:
        first = edge.start()
        edge.until_ready(first)
        url = f"http://127.0.0.1:{edge.http_port}"
        clients = _Clients(NAME, edge.dns_port, url, "/v1/route?service=chat")
        with clients.asking():
            workers = edge.workers(first)
            first.signal(signal.SIGKILL)
            first.end()
            time.sleep(2.0)
            held(all(map(alive, workers)), "workers ended with their agent")
            said = httpx.get(f"{url}/readyz").json()
            held("alone_seconds" in said, f"/readyz does not say that the agent is gone: {said}")
            edge.until_ready(edge.start())
            eventually(lambda: not any(map(alive, workers)), "they have handed over")
    return clients.verdict()
