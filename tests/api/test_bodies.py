"""Bodies that hurt: large ones from nobody, and ones that never end."""

from __future__ import annotations

import socket
import time
from urllib.parse import urlsplit

import pytest

from gtm.nesting import DEEPER, MAX_DEPTH
from tests.api.conftest import Api

JSON = {"Content-Type": "application/json"}


@pytest.mark.reads
def test_large_bodies_are_read_for_known_tokens_only(api: Api) -> None:
    """Parsing megabytes takes seconds: without a token that counts they are refused unread, stated length or not."""
    garbage = b"[" * 100_000
    for content in (garbage, iter([garbage])):
        assert api.anonymous.put("/v1/tenants/a", content=content, headers=JSON).status_code == 401
    for authorization in ("Bearer gtm_forged", "Bearer ", "Basic YTpi"):
        headers = {**JSON, "Authorization": authorization.strip()}
        answer = api.anonymous.put("/v1/tenants/a", content=garbage, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert api.operator.put("/v1/tenants/a", content=garbage, headers=JSON).status_code == 400


def test_a_client_that_hangs_up_is_no_error(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """A report that breaks off leaves no error in the log."""
    url = urlsplit(api.url)
    with socket.create_connection((url.hostname, url.port)) as connection:
        connection.sendall(
            b"POST /v1/edges/a/report HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer gtm_test_edge\r\nContent-Length: 100\r\n\r\n{"
        )
    deadline = time.monotonic() + 30
    counted = 'route="/v1/edges/{name}/report",status="400"'
    while counted not in api.viewer.get("/metrics").text:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]


@pytest.mark.parametrize(
    ("who", "method", "path", "around"),
    [
        ("operator", "PUT", "/v1/tenants/a", b"%b"),
        ("operator", "POST", "/v1/policy:plan", b'{"policy": %b}'),
        ("viewer", "POST", "/v1/route:explain", b'{"service": %b}'),
        ("edge", "POST", "/v1/edges/a/report", b'{"more": %b}'),
        ("balancer", "POST", "/v1/balancers/a/report", b'{"more": %b}'),
        ("balancer", "POST", "/v1/balancers/a/room?region=eu-central", b'{"more": %b}\n'),
        ("reporter", "POST", "/v1/load-reports", b'{"more": %b}'),
    ],
)
@pytest.mark.reads
def test_bodies_are_nested_as_deeply_as_they_may_be(
    world: Api, who: str, method: str, path: str, around: bytes
) -> None:
    """And no deeper, whoever reads them: the framework, or gtm itself."""
    for levels, deep in ((MAX_DEPTH, False), (MAX_DEPTH + 1, True), (25_000, True)):
        inner = levels - (around != b"%b")
        content = around % (b"[" * inner + b"]" * inner)
        answer = getattr(world, who).request(method, path, content=content, headers=JSON)
        assert (DEEPER in answer.text) is deep, answer.text
        assert answer.status_code < 500


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/v1/regions/x"),
        ("PUT", "/v1/tenants/x"),
        ("POST", "/v1/policy:apply"),
        ("POST", "/v1/policy:plan"),
        ("POST", "/v1/policy:simulate"),
        ("POST", "/v1/route:explain"),
        ("POST", "/v1/load-reports"),
    ],
)
@pytest.mark.reads
def test_a_member_twice_is_refused(api: Api, method: str, path: str) -> None:
    """One reader takes the first and another the last: `{"country": "SG", "country": "ID"}` made a region Indonesian."""
    body = b'{"policy": {"regions": [{"name": "x", "country": "SG", "country": "ID"}]}}'
    client = api.reporter if path == "/v1/load-reports" else api.admin
    answer = client.request(method, path, content=body, headers=JSON)
    assert answer.status_code == 400, answer.text
    assert "the member `country` twice" in answer.json()["detail"]
    assert api.revision() == 1
