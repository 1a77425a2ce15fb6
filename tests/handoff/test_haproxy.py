"""What docs/handoff.md says of HAProxy, by HAProxy: what it cannot verify, and the configuration with Envoy behind it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gtm.handoff.jwt import HandoffSigner
from tests.adapters.test_balancers import _running
from tests.docs.blocks import ROOT
from tests.handoff.test_envoy import KEY, OTHER, VALID, envoy_running
from tests.ports import free_port
from tests.tools import tool

pytestmark = pytest.mark.drill


@pytest.fixture(scope="module")
def haproxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The page's configuration; its port."""
    directory = tmp_path_factory.mktemp("haproxy")
    page = (ROOT / "docs/handoff.md").read_text().partition("### HAProxy")[2]
    block = re.search(r"```haproxy\n(.*?)```", page, re.DOTALL)
    assert block is not None
    with envoy_running(directory) as verifier:
        port, text = free_port(), block[1]
        for old, new in ((10002, port), (10000, verifier)):
            assert f":{old}" in text
            text = text.replace(f":{old}", f":{new}")
        (directory / "haproxy.cfg").write_text(text)
        with _running([tool("haproxy"), "-db", "-f", str(directory / "haproxy.cfg")], port):
            yield port


def _ask(port: int, **headers: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{port}/v1/chat?a=1", headers=headers, trust_env=False, timeout=20)


def test_who_was_sent_here_gets_in(haproxy: int) -> None:
    """Through both; the handoff goes no further."""
    answer = _ask(haproxy, **{"gtm-handoff": HandoffSigner(KEY).sign(VALID).decode()})
    assert answer.status_code == 200, answer.text
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
def test_nobody_else_does(haproxy: int, headers: dict[str, str]) -> None:
    """421: an edge says where they belong."""
    assert _ask(haproxy, **headers).status_code == 421


def _pem(folder: Path) -> Path:
    """The key that valid handoffs are signed with, as HAProxy reads keys."""
    key = Ed25519PublicKey.from_public_bytes(KEY.public)
    file = folder / "key.pem"
    file.write_bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return file


def test_with_a_variable_it_starts_and_lets_nobody_in(tmp_path: Path) -> None:
    """Not even by the key of the one that signed."""
    port, config = free_port(), tmp_path / "haproxy.cfg"
    config.write_text(
        "defaults\n mode http\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n"
        f"frontend in\n bind 127.0.0.1:{port}\n"
        " http-request set-var(txn.alg) req.hdr(gtm-handoff),jwt_header_query('$.alg')\n"
        f' http-request return status 200 if {{ req.hdr(gtm-handoff),jwt_verify(txn.alg,"{_pem(tmp_path)}") 1 }}\n'
        " http-request return status 404\n"
    )
    with _running([tool("haproxy"), "-db", "-f", str(config)], port):
        assert _ask(port, **{"gtm-handoff": HandoffSigner(KEY).sign(VALID).decode()}).status_code == 404


def test_it_verifies_no_ed25519_itself(tmp_path: Path) -> None:
    """Asked for it, it does not start. Where this fails, HAProxy has learned it: then the page can do without Envoy."""
    pem = _pem(tmp_path)
    config = tmp_path / "haproxy.cfg"
    config.write_text(
        "defaults\n mode http\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n"
        "frontend in\n bind 127.0.0.1:1\n"
        f' http-request deny unless {{ req.hdr(gtm-handoff),jwt_verify("EdDSA","{pem}") 1 }}\n'
    )
    done = subprocess.run(
        [tool("haproxy"), "-c", "-f", str(config)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert "unknown JWT algorithm" in done.stderr
