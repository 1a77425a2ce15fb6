"""The files of docs/proxies.md, run by the proxies that they are for, which ask a real edge and carry to two regions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from gtm.core.model.policy import Policy
from gtm.core.model.regions import Endpoint
from gtm.settings import LOOPBACK
from tests import worlds
from tests.adapters.test_balancers import _running
from tests.http.proxies import command, on_page, with_ports
from tests.http.world import Edge
from tests.ports import free_port

pytestmark = pytest.mark.drill

GERMAN, AMERICAN = "81.2.69.7", "198.51.100.7"


class Region(ThreadingHTTPServer):
    """A region that says which it is, and what it was asked."""

    def __init__(self, name: str) -> None:
        super().__init__(("127.0.0.1", 0), Says)
        self.region = name
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Says(BaseHTTPRequestHandler):
    """One request to a region."""

    protocol_version = "HTTP/1.1"
    server: Region

    def do_POST(self) -> None:
        """Answer it."""
        self.rfile.read(int(self.headers.get("content-length", 0)))
        body = f"{self.server.region}\n{self.requestline}\n{self.headers}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST  # noqa: N815 - the name that the library calls

    def log_message(self, *_: object) -> None:
        """Nothing."""


class Running(NamedTuple):
    """A proxy that asks an edge."""

    name: str
    port: int
    edge: Edge
    change: Callable[[Policy], Policy]

    def ask(self, client: str, path: str = "/v1/chat?service=web&deny=200") -> httpx.Response:
        """One request of a client, through the proxy. Its query would say something else to the edge, if that read it."""
        url = f"http://127.0.0.1:{self.port}{path}"
        headers = {"x-forwarded-for": client, "authorization": "Bearer sk-1", "x-gtm-service": "web"}
        return httpx.post(url, content=b"x" * 100_000, headers=headers, trust_env=False, timeout=20)


@pytest.fixture(params=["nginx", "envoy", "haproxy", "caddy"])
def proxy(request: pytest.FixtureRequest, tmp_path: Path, run_edge: Callable[..., Edge]) -> Iterator[Running]:
    """A proxy with the page's file, in front of two regions."""
    german, american = Region("eu-central"), Region("us-east")
    edge = run_edge(trusted_proxies=LOOPBACK)
    change = _led_to(german, american)
    edge.load(change=change)
    edge.sign()
    port = free_port()
    ports = {8081: edge.port, 9001: german.server_port, 9002: american.server_port}
    ports |= dict.fromkeys((10000, 10001, 10002, 10003), port)

    def filled(heading: str, language: str) -> str:
        return with_ports(on_page(heading, language), ports)

    try:
        with _running(command(request.param, tmp_path, filled), port):
            yield Running(request.param, port, edge, change)
    finally:
        german.shutdown()
        american.shutdown()


def _led_to(german: Region, american: Region) -> Callable[[Policy], Policy]:
    """A change of the policy by which its regions are these."""

    def change(policy: Policy) -> Policy:
        for one in (german, american):
            endpoint = Endpoint(f"http://127.0.0.1:{one.server_port}", ("127.0.0.1",))
            policy = worlds.changed(policy, "regions", one.region, endpoints=(endpoint,))
        return policy

    return change


def test_each_client_in_its_region(proxy: Running) -> None:
    """With its key, its path and its body; what the client says in gtm's fields of the service says nothing."""
    for client, region in ((GERMAN, "eu-central"), (AMERICAN, "us-east")):
        answer = proxy.ask(client)
        assert answer.status_code == 200, answer.text
        assert answer.text.startswith(region), answer.text
        assert "POST /v1/chat?service=web&deny=200" in answer.text
        assert "Bearer sk-1" in answer.text
        fields = dict(line.lower().split(": ", 1) for line in answer.text.split("\n")[2:] if ": " in line)
        assert fields["gtm-push"] == "1"
        assert fields["gtm-handoff"].count(".") == 2


def test_a_refusal_reaches_the_client(proxy: Running) -> None:
    """With its status, but for Envoy's 5xx, and with why."""
    proxy.edge.load(("us-east",), change=proxy.change)
    answer = proxy.ask(GERMAN)
    assert answer.status_code == 451, answer.text
    assert answer.json()["code"] == "refused_residency"
    proxy.edge.load((), change=proxy.change)
    answer = proxy.ask(AMERICAN)
    assert answer.status_code == (403 if proxy.name == "envoy" else 503), answer.text
    assert answer.json()["code"] == "refused_unavailable"
    assert int(answer.headers["retry-after"]) > 0


def test_without_an_edge_nobody_gets_through(proxy: Running) -> None:
    """Whatever is told: no request reaches a region."""
    proxy.edge.stop()
    answer = proxy.ask(AMERICAN)
    assert answer.status_code >= 500, answer.text
    assert "us-east" not in answer.text
