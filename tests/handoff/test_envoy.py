"""The configuration for Envoy in docs/handoff.md, run by Envoy, with keys from an edge."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from gtm.core.handoff.keys import key_text
from gtm.handoff import jwks
from gtm.handoff.jwt import HandoffSigner, made
from tests.docs.blocks import ROOT
from tests.handoff.test_jwt import CLAIMS
from tests.ports import free_port
from tests.tools import tool

pytestmark = pytest.mark.drill

KEY, OTHER = made(), made()
PATIENCE = 60.0
NOW = int(time.time())
VALID = replace(CLAIMS, region="eu-west", issued=NOW, expires=NOW + 3600, once=False)


class Answers(BaseHTTPRequestHandler):
    """An edge's JWK set, and a model server that says what it was asked."""

    def do_GET(self) -> None:
        """The keys by their path; else the request's line and headers."""
        body = f"{self.requestline}\n{self.headers}".encode()
        if self.path == jwks.PATH:
            body = jwks.written([key_text(KEY.public)])
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def envoy_running(directory: Path, routes: str | None = None) -> Iterator[int]:
    """Envoy with the page's configuration; the port that it listens on. `routes` take the place of the page's."""
    program = tool("envoy")
    behind = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=behind.serve_forever, daemon=True).start()
    page = (ROOT / "docs/handoff.md").read_text().partition("### Envoy")[2]
    block = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert block is not None
    port, text = free_port(), block[1]
    for old, new in ((10000, port), (8000, behind.server_port), (8081, behind.server_port)):
        assert f"port_value: {old}" in text
        text = text.replace(f"port_value: {old}", f"port_value: {new}")
    if routes is not None:
        text, count = re.subn(r"routes: \[.*\]", routes, text)
        assert count == 1
    (directory / "envoy.yaml").write_text(text)
    command = [program, "-c", str(directory / "envoy.yaml"), "--use-dynamic-base-id", "--concurrency", "1"]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([*command, "--log-level", "warning"], stdout=log, stderr=log)
        try:
            end = time.monotonic() + PATIENCE
            while not listens(port):
                assert process.poll() is None, (directory / "log").read_text()
                assert time.monotonic() < end, (directory / "log").read_text()
                time.sleep(0.05)
            yield port
        finally:
            process.terminate()
            process.wait(20)
            behind.shutdown()


def listens(port: int) -> bool:
    """Whether a server answers on a port."""
    try:
        httpx.get(f"http://127.0.0.1:{port}/", trust_env=False)
    except httpx.TransportError:
        return False
    return True


@pytest.fixture(scope="module")
def envoy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Its port."""
    with envoy_running(tmp_path_factory.mktemp("envoy")) as port:
        yield port


def _ask(port: int, token: bytes | None, *, query: bool = False, **headers: str) -> httpx.Response:
    path = "/v1/chat?a=1"
    if token is not None and query:
        path += f"&gtm_handoff={token.decode()}"
    elif token is not None:
        headers["gtm-handoff"] = token.decode()
    return httpx.get(f"http://127.0.0.1:{port}{path}", headers=headers, trust_env=False, timeout=20)


@pytest.mark.parametrize("query", [False, True], ids=["header", "parameter"])
def test_who_was_sent_here_gets_in(envoy: int, query: bool) -> None:
    """The model server sees the tenant that the handoff states, and no handoff."""
    answer = _ask(envoy, HandoffSigner(KEY).sign(VALID), query=query, **{"x-gtm-tenant": "forged"})
    assert answer.status_code == 200, answer.text
    assert "x-gtm-tenant: acme" in answer.text.lower()
    assert "forged" not in answer.text
    assert "handoff" not in answer.text


@pytest.mark.parametrize(
    "token",
    [
        None,
        HandoffSigner(KEY).sign(replace(VALID, region="us-east")),
        HandoffSigner(KEY).sign(replace(VALID, expires=NOW - 5)),
        HandoffSigner(OTHER).sign(VALID),
        HandoffSigner(KEY).sign(VALID)[:-4] + b"AAAA",
        b"x.y.z",
    ],
    ids=["none", "elsewhere", "expired", "unknown key", "changed", "garbage"],
)
def test_nobody_else_does(envoy: int, token: bytes | None) -> None:
    """421: an edge says where they belong."""
    assert _ask(envoy, token).status_code == 421
