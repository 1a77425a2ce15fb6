"""The configuration for NGINX in docs/handoff.md, run by NGINX, with Envoy as the verifier."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from gtm.handoff.jwt import HandoffSigner
from tests.adapters.test_balancers import _running
from tests.docs.blocks import ROOT
from tests.handoff.test_envoy import KEY, OTHER, VALID, Answers, envoy_running
from tests.ports import free_port
from tests.tools import tool

pytestmark = pytest.mark.drill

_MAIN = """
daemon off; master_process off; pid {0}/pid; error_log {0}/error;
events {{}}
http {{
    access_log off;
    client_body_temp_path {0}/a; proxy_temp_path {0}/b; fastcgi_temp_path {0}/c;
    uwsgi_temp_path {0}/d; scgi_temp_path {0}/e;
    {1}
}}
"""


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Its port."""
    program = tool("nginx")
    directory: Path = tmp_path_factory.mktemp("nginx")
    page = (ROOT / "docs/handoff.md").read_text().partition("### NGINX")[2]
    route, block = (
        re.search(r"```yaml\n(.*?)```", page, re.DOTALL),
        re.search(r"```nginx\n(.*?)```", page, re.DOTALL),
    )
    assert route is not None
    assert block is not None
    models = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=models.serve_forever, daemon=True).start()
    with envoy_running(directory, route[1].strip()) as verifier:
        port, text = free_port(), block[1]
        for old, new in ((10001, port), (10000, verifier), (8000, models.server_port)):
            assert f":{old}" in text
            text = text.replace(f":{old}", f":{new}")
        (directory / "conf").write_text(_MAIN.format(directory, text))
        try:
            with _running([program, "-c", str(directory / "conf")], port):
                yield port
        finally:
            models.shutdown()


def _ask(port: int, **headers: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{port}/v1/chat?a=1", headers=headers, trust_env=False, timeout=20)


def test_who_was_sent_here_gets_in(nginx: int) -> None:
    """By the header, which goes no further."""
    answer = _ask(nginx, **{"gtm-handoff": HandoffSigner(KEY).sign(VALID).decode()})
    assert answer.status_code == 200, answer.text
    assert "GET /v1/chat?a=1" in answer.text
    assert "handoff" not in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"gtm-handoff": HandoffSigner(OTHER).sign(VALID).decode()},
        {"gtm-handoff": HandoffSigner(KEY).sign(replace(VALID, region="us-east")).decode()},
    ],
    ids=["none", "unknown key", "elsewhere"],
)
def test_nobody_else_does(nginx: int, headers: dict[str, str]) -> None:
    """421: an edge says where they belong."""
    assert _ask(nginx, **headers).status_code == 421
