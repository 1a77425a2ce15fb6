"""beacon.js in a real browser."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from gtm.core.latency.estimator import Estimator
from gtm.core.latency.samples import Level, SampleMethod
from gtm.core.model.policy import Policy
from gtm.core.model.regions import Endpoint
from gtm.core.model.state import EndpointHealth, HealthStatus, State
from gtm.feed.wire import StateMessage
from tests.http.world import Edge, locate, policy
from tests.tools import tool

pytestmark = pytest.mark.drill

DELAYS = {"eu-central": 0.06, "eu-west": 0.09, "us-east": 0.25}
"""Seconds that each region takes to answer: more than light in fibre takes from New York."""
PATIENCE = 120.0


@contextmanager
def server(
    body: bytes, delay: float, headers: dict[str, str] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """A server on loopback that answers everything alike; its URL, and the paths it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.path)
            time.sleep(delay)
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", asked
        running.shutdown()
        thread.join()


@contextmanager
def browser(url: str, profile: Path) -> Iterator[None]:
    """Chromium without a window, on a page."""
    command = [
        tool("chromium-headless-shell"),
        "--headless",
        "--no-sandbox",  # it does not start as root otherwise
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--no-proxy-server",
        "--remote-debugging-port=0",  # or it would leave as soon as the page has loaded
        f"--user-data-dir={profile}",
        url,
    ]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def measured(edge: Edge) -> dict[str, float]:
    """Region → residual in ms, as soon as a beacon has arrived."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        deltas = edge.app.intake.end_interval(SampleMethod.BEACON).deltas
        if deltas:
            return {delta.region: delta.centre for delta in deltas if delta.level is Level.COUNTRY}
        time.sleep(0.1)
    raise AssertionError(f"no beacon within {PATIENCE:.0f} s; requests: {dict(edge.counts)}")


@pytest.mark.parametrize("detailed", [False, True], ids=["whole requests", "Timing-Allow-Origin"])
def test_a_browser_measures_its_regions(
    run_edge: Callable[..., Edge], tmp_path: Path, *, detailed: bool
) -> None:
    """A page with the script makes a browser measure each region on a warm connection, and tell the edge."""
    edge = run_edge(trusted_proxies=(ip_network("10.0.0.0/8"),))
    headers = {"Timing-Allow-Origin": "*"} if detailed else {}
    with ExitStack() as stack:
        regions = {name: stack.enter_context(server(b"ok", delay, headers)) for name, delay in DELAYS.items()}

        def on_loopback(before: Policy) -> Policy:
            moved = (
                replace(region, endpoints=(Endpoint(regions[region.name][0], ("127.0.0.1",)),))
                for region in before.regions
            )
            return replace(before, regions=tuple(moved))

        edge.load(change=on_loopback)
        health = {name: {url: EndpointHealth(HealthStatus.UP, 1.0)} for name, (url, _) in regions.items()}
        edge.current.apply(StateMessage(State(epoch=2, health=health)))
        page = (
            f'<!doctype html><script async src="http://127.0.0.1:{edge.port}/v1/beacon.js" '
            'data-service="web" data-rate="1"></script>'
        )
        url, _ = stack.enter_context(server(page.encode(), 0.0))
        stack.enter_context(browser(url, tmp_path / "profile"))
        found = measured(edge)
    assert set(found) == set(DELAYS)
    models = Estimator(policy().regions).paths(locate(ip_address("127.0.0.1")), range(len(DELAYS)))
    for number, (name, delay) in enumerate(DELAYS.items()):
        assert found[name] + models[number].estimate_ms >= delay * 1000 - 1
    for _, asked in regions.values():
        assert len(asked) == 2
        assert all(path.startswith("/healthz?gtm=") for path in asked)
    assert "gtm_http_requests_total\tbeacons\t200" in edge.counts
