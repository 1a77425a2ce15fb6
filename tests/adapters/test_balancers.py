"""A real HAProxy and a real NGINX before servers that hold their requests: what is read is what is there."""

from __future__ import annotations

import http.server
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from gtm.adapters.scrape import signals
from gtm.adapters.servers import ServerType, read_server
from gtm.adapters.watch import Fixed, ScrapeTarget, Watch
from tests.ports import free_port
from tests.system.harness import eventually
from tests.tools import tool

SLOTS = 2


class _Held(http.server.BaseHTTPRequestHandler):
    """Answers once it is let."""

    release: threading.Event

    def do_GET(self) -> None:
        self.release.wait(60)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def _model_server() -> Iterator[tuple[int, threading.Event]]:
    release = threading.Event()
    handler = type("Held", (_Held,), {"release": release})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port, release
    finally:
        release.set()
        server.shutdown()
        server.server_close()


@contextmanager
def _running(command: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def listens() -> bool:
        assert process.poll() is None, process.stderr and process.stderr.read()
        with socket.create_connection(("127.0.0.1", port), 1):
            return True

    try:
        eventually(listens, f"{command[0]} listens")
        yield
    finally:
        process.terminate()
        process.wait(30)
        if process.stderr is not None:
            process.stderr.close()


@contextmanager
def _clients(url: str, count: int) -> Iterator[None]:
    """So many requests under way."""
    threads = [
        threading.Thread(target=lambda: httpx.get(url, timeout=60, trust_env=False)) for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join(60)


def _holds(url: str, server_type: ServerType, wanted: dict[str, float]) -> None:
    def reads() -> bool:
        found = signals(None, read_server(server_type, httpx.get(url, trust_env=False).text, 0.0))
        return found == pytest.approx(wanted)

    eventually(reads, f"{url} says {wanted}")


@pytest.mark.drill
def test_haproxy(tmp_path: Path) -> None:
    """Five requests for two slots: two outstanding, three waiting, a limit of two."""
    program, front, stats = tool("haproxy"), free_port(), free_port()
    with _model_server() as (backend, release):
        config = tmp_path / "haproxy.cfg"
        config.write_text(
            f"defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n timeout queue 60s\n"
            f"frontend in\n bind 127.0.0.1:{front}\n default_backend models\n"
            f"frontend stats\n bind 127.0.0.1:{stats}\n"
            f" http-request use-service prometheus-exporter if {{ path /metrics }}\n"
            f"backend models\n server one 127.0.0.1:{backend} maxconn {SLOTS}\n"
        )
        url = f"http://127.0.0.1:{stats}/metrics"
        with _running([program, "-db", "-f", str(config)], stats):
            with _clients(f"http://127.0.0.1:{front}/", 5):
                _holds(url, ServerType.HAPROXY, {"outstanding": SLOTS, "queue": 3, "limit": SLOTS})
                release.set()
            _holds(url, ServerType.HAPROXY, {"outstanding": 0, "queue": 0, "limit": SLOTS})
            before = read_server(ServerType.HAPROXY, httpx.get(url, trust_env=False).text, 0.0)
            assert before.totals.requests == 5.0


@pytest.mark.drill
def test_nginx(tmp_path: Path) -> None:
    """Three requests under way are three outstanding; the one that asks is not among them."""
    program, port = tool("nginx"), free_port()
    with _model_server() as (backend, release):
        config = tmp_path / "nginx.conf"
        config.write_text(
            f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/log;\n"
            "events {}\n"
            f"http {{ access_log off; client_body_temp_path {tmp_path}/a; proxy_temp_path {tmp_path}/b;\n"
            f" fastcgi_temp_path {tmp_path}/c; uwsgi_temp_path {tmp_path}/d; scgi_temp_path {tmp_path}/e;\n"
            f" server {{ listen 127.0.0.1:{port}; location = /status {{ stub_status; }}\n"
            f"  location / {{ proxy_pass http://127.0.0.1:{backend}; }} }} }}\n"
        )
        url = f"http://127.0.0.1:{port}/status"
        with _running([program, "-c", str(config)], port):
            with _clients(f"http://127.0.0.1:{port}/", 3):
                _holds(url, ServerType.NGINX, {"outstanding": 3})
                release.set()
            _holds(url, ServerType.NGINX, {"outstanding": 0})


@contextmanager
def _metrics(answer: Callable[[], tuple[int, bytes]]) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answer()
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()


def test_what_is_wrong_is_said_once_and_never_reported_as_idle() -> None:
    """A server that is away, damaged, huge or another: no report, one line; then again when it is back."""
    answers: list[tuple[int, bytes]] = []
    good = b"vllm:num_requests_running 3\nvllm:num_requests_waiting 0\n"
    with _metrics(lambda: answers[0]) as url, httpx.Client(trust_env=False) as client:
        target = ScrapeTarget(ServerType.VLLM, url)
        watch = Watch([target], Fixed("eu", "chat", 64.0), client, time.monotonic)
        for answer, words in (
            ((200, good), None),
            ((500, b""), "status 500"),
            ((200, b"<html>"), "no metrics"),
            ((200, b"x" * (9 << 20)), "more than"),
        ):
            answers[:] = [answer]
            reports, news = watch.look()
            if words is None:
                expected = {"region": "eu", "service": "chat", "source": target.source}
                assert reports == [expected | {"outstanding": 3.0, "queue": 0.0, "limit": 64.0}]
                assert news == []
            else:
                assert reports == []
                (line,) = news
                assert words in line
                assert watch.look() == ([], [])
        answers[:] = [(200, b"process_open_fds 12\n")]
        reports, news = watch.look()
        assert reports == []
        assert "unknown, which is not idle" in news[0]
        answers[:] = [(200, good)]
        assert watch.look()[1] == [f"{url}: all is read again"]
        watch.close()
