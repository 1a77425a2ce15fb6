"""What edges can be made to fetch or to give away: probes of their own machine, secrets of processes, metrics."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from tests.drills.arena import Arena, attack, held
from tests.patience import PATIENCE
from tests.system.harness import command_line, descendants, eventually


@contextmanager
def secret_service() -> Iterator[tuple[int, list[str]]]:
    """A service of this machine that tells a secret to whoever connects: its port, and who did."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = b'{"secret": "hunter2"}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port, asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _region(url: str) -> dict[str, Any]:
    probe = {"json_field": "secret", "json_value": "x", "interval": 1, "timeout": 1}
    return {"lat": 50.1, "lon": 8.7, "country": "DE", "endpoints": [{"url": url}], "probe": probe}


@attack("B5", "regions at loopback, link-local and metadata addresses, whose fields a viewer reads")
def fetched(arena: Arena) -> str:
    """None is connected to where the edge was not told to, by address or by name; no value is repeated where it was."""
    with secret_service() as (port, asked):
        urls = {
            "loopback": f"http://127.0.0.1:{port}",
            "name": f"http://localhost:{port}",
            "link-local": "http://169.254.169.254",
            "mapped": "http://[::ffff:169.254.169.254]",
        }
        with arena.own("--probe-allow", "192.0.2.0/24") as running:
            for name, url in urls.items():
                running.api("PUT", f"/v1/regions/{name}", json=_region(url)).raise_for_status()

            def details() -> dict[str, str]:
                found = running.api("GET", "/v1/health").json()["regions"]
                return {one["region"]: one["endpoints"][0]["detail"] for one in found}

            eventually(lambda: all("not probed" in text for text in details().values()), "refused", PATIENCE)
            held(not asked, f"the service was asked for {asked}")
            held("GTM_PROBE_ALLOW" in details()["loopback"], "the detail does not say what to set")
        running = arena.shared  # a demo, which probes this machine
        try:
            running.api("PUT", "/v1/regions/loopback", json=_region(urls["loopback"])).raise_for_status()
            eventually(
                lambda: "json field secret" in running.api("GET", "/v1/health").text, "probed", PATIENCE
            )
            held("hunter2" not in running.api("GET", "/v1/health").text, "a field's value is shown")
        finally:
            running.api("DELETE", "/v1/regions/loopback", params={"force": True, "force_reason": "drill"})
    return "4 refused; a value is not shown"


@attack("B5", "the environments of what answers DNS and HTTP, and the metrics from elsewhere")
def environments(arena: Arena) -> str:
    """No worker has a token or the database's URL; metrics through a proxy take a token."""
    running = arena.shared
    workers = [
        pid
        for pid in descendants(running.process.popen.pid)
        if "gtm.runtime.edge.worker" in command_line(pid)
    ]
    held(len(workers) >= 2, f"{len(workers)} workers found")
    for pid in workers:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        held(b"GTM_TOKEN=" not in environment, "a worker has the token")
        held(b"GTM_DATABASE_URL=" not in environment, "a worker has the database's URL")
    for url in (running.edge, running.control):
        answer = httpx.get(f"{url}/metrics", headers={"X-Forwarded-For": "198.51.100.7"})
        held(answer.status_code == 401, f"metrics for anybody: {answer.status_code}")
    return f"{len(workers)} workers have no secret; metrics 401"
