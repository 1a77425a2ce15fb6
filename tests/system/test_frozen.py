"""A model server, or its engine, is stopped under load: `tests/bench/frozen_bench.py`, played short."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.bench import frozen_bench
from tests.ports import free_port
from tests.system.balancers import BERLIN, HOST, lone_balancer
from tests.system.harness import eventually

pytestmark = [pytest.mark.system, pytest.mark.drill]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("fault", "workers"), [("server stopped", "1"), ("engine stopped", "1"), ("server stopped", "2")]
)
def test_nobody_without_a_byte_is_left(fault: str, workers: str) -> None:
    """Whoever waited there is answered by the other server once the first is judged down, by each process of the balancer; only streams that had begun break off."""
    found = frozen_bench.tried(
        frozen_bench.gtm(frozen_bench.peers.HERE, "--workers", workers), fault, before=2.0, after=4.0
    )
    assert found["unanswered"] == 0, found
    assert found["verdict"] is None or found["longest"] < frozen_bench.PATIENCE, found
    assert found["requests"], found


class _Server(ThreadingHTTPServer):
    """A model server that answers once it may. `drains`: its health is 503 from then on; `hangs`: it says nothing any more."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.drains, self.hangs, self.answers = threading.Event(), threading.Event(), threading.Event()
        self.asked = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Answers(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.server.hangs.is_set():
            self.server.answers.wait()
        self._say(503 if self.server.drains.is_set() else 200)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.set()
        self.server.answers.wait()
        self._say(200)

    def _say(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Nothing."""


@contextmanager
def _serving() -> Iterator[_Server]:
    with _Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.answers.set()
            server.shutdown()
            thread.join()


def test_who_drains_ends_what_it_has(tmp_path: Path) -> None:
    """A server that says 503 to its checks, as vLLM and others do once they are told to end, answers what it has; what waits at one that says nothing is refused meanwhile.

    envoyproxy/envoy#2295: connections that were closed when a check failed had requests that would have been answered.
    """
    with ExitStack() as stack:
        draining, hanging = (stack.enter_context(_serving()) for _ in range(2))
        ports = {"fra": free_port(), "iad": free_port()}
        urls = f"{draining.url},{hanging.url}"
        balancer = stack.enter_context(
            lone_balancer(tmp_path, "fra", ports, "--backend", urls, "--service", "chat")
        )

        def post() -> int:
            who = {"Host": HOST, "X-Forwarded-For": BERLIN}
            url, asked = f"{balancer.url}/v1/responses", {"model": "demo", "input": "Say."}
            return httpx.post(url, json=asked, headers=who, trust_env=False, timeout=60).status_code

        def is_down(server: _Server) -> bool:
            return (
                next(one["state"] for one in balancer.state()["backends"] if one["url"] == server.url)
                == "down"
            )

        eventually(lambda: all(one["usable"] for one in balancer.state()["backends"]), "both are up")
        with ThreadPoolExecutor(2) as clients:
            both = [clients.submit(post) for _ in range(2)]
            eventually(lambda: draining.asked.is_set() and hanging.asked.is_set(), "each has one")
            draining.drains.set()
            eventually(lambda: is_down(draining), "who drains is down")
            hanging.hangs.set()
            eventually(lambda: any(one.done() for one in both), "what waits at the silent one is ended")
            assert balancer.in_flight() == 1
            draining.answers.set()
            assert sorted(one.result() for one in both) == [200, 504]
