"""The lists of paths for NGINX and Envoy in docs/balancer.md, run by these: what is listed arrives as it came, and nothing else arrives."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gtm.balancer.wire.endpoints import INFERENCE, Paths
from tests.adapters.test_balancers import _running
from tests.docs.blocks import ROOT
from tests.handoff.test_nginx import _MAIN
from tests.ports import free_port
from tests.tools import tool

pytestmark = pytest.mark.drill


class Models(BaseHTTPRequestHandler):
    """A model server that keeps the first line of what it is asked."""

    arrived: list[str]

    def do_GET(self) -> None:
        """Every method is answered alike."""
        self.arrived.append(self.requestline)
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    do_POST = do_HEAD = do_DELETE = do_PUT = do_GET  # noqa: N815 - as `http.server` names them

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(params=["nginx", "envoy"])
def proxy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[int, list[str]]]:
    """A proxy's port, and what arrives behind it."""
    program = tool(request.param)
    handler = type("_Models", (Models,), {"arrived": []})
    models = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=models.serve_forever, daemon=True).start()
    page = (ROOT / "docs/balancer.md").read_text().partition("### Paths of other proxies")[2]
    kind = {"nginx": "nginx", "envoy": "yaml"}[request.param]
    block = re.search(rf"```{kind}\n(.*?)```", page, re.DOTALL)
    assert block is not None
    port, text = free_port(), block[1]
    for old, new in ((10003, port), (10004, port), (8000, models.server_port)):
        text = re.sub(rf"\b{old}\b", str(new), text)
    file = tmp_path / "conf"
    if request.param == "nginx":
        file.write_text(_MAIN.format(tmp_path, text))
        command = [program, "-c", str(file)]
    else:
        file = file.with_suffix(".yaml")
        file.write_text(text)
        command = [
            program,
            "-c",
            str(file),
            "--use-dynamic-base-id",
            "--concurrency",
            "1",
            "--log-level",
            "warning",
        ]
    try:
        with _running(command, port):
            handler.arrived.clear()
            yield port, handler.arrived
    finally:
        models.shutdown()


def _ask(port: int, line: str) -> int:
    """The status of a request, its first line sent as it stands."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=20)) as asking:
        asking.sendall(
            f"{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode()
        )
        answer = asking.makefile("rb").readline().split()
    return int(answer[1])


CARRIED = (
    "POST /v1/chat/completions",
    "POST /v1/chat/completions?a=/../x",
    "POST /v1/embeddings",
    "POST /v1/messages/count_tokens",
    "GET /v1/models",
    "HEAD /v1/models",
    "GET /v1/models/meta/llama-3.1:8b",
)
REFUSED = (
    "POST /v1/load_lora_adapter",
    "POST /sleep?level=1",
    "GET /metrics",
    "POST /v1/models",
    "GET /v1/chat/completions",
    "POST /v1/chat/completions/",
    "POST /v1/chat/completionsx",
    "POST /V1/chat/completions",
    "GET /v1/models/../../metrics",
    "GET /v1/models/..",
    "GET /v1/models/x/%2e%2e/%2e%2e/%2e%2e/metrics",
    "GET /v1/models/x%2f..%2f..%2fmetrics",
    "GET /v1/models/x%5c..%5cmetrics",
    "POST /v2/repository/models/x/load",
    "DELETE /v1/models/x",
    "GET /v1/models/x;/../../metrics",
)


def test_what_is_listed_arrives_and_nothing_else(proxy: tuple[int, list[str]]) -> None:
    """Each of what is carried, as it came; of the rest nothing, whatever it is written like."""
    port, arrived = proxy
    for line in CARRIED:
        assert _ask(port, line) == 200, line
    assert [line.rpartition(" ")[0] for line in arrived] == list(CARRIED)
    arrived.clear()
    for line in REFUSED:
        assert _ask(port, line) in (400, 404), line
    assert not arrived
    for line in (*CARRIED, *REFUSED):  # gtm's own list holds them alike
        method, target = line.encode().split()
        assert (Paths([INFERENCE]).refusal(method, target) is None) is (line in CARRIED), line
