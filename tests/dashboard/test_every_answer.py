"""What every answer of control's address says, whoever asks for whatever: nobody frames it, takes it for something else, or keeps what is somebody's."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import httpx
import pytest

from gtm.core.model.access import Role
from gtm.dashboard.pages import routes
from gtm.dashboard.static_files import url
from tests.api.conftest import Api
from tests.dashboard.conftest import HTML, People

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE")
OTHERS = (
    *("/", "/nothing", "//evil.example", "/sign-in", "/sign-in/x", "/sign-in/oidc", "/sign-out", "/static/x/y", "/%2e%2e/%2e%2e/etc"),
    *("/docs", "/docs/start.js", "/docs/nothing", "/v1/status", "/v1/nothing", "/openapi.json", "/healthz", "/readyz", "/metrics"),
)  # fmt: skip


def _paths() -> Iterator[str]:
    """One address of each route, of things that there are and are not, and others."""
    names = {"name": "eu-west", "kind": "regions", "number": "1", "code": "DE", "token": "x"}
    for route in routes():
        for one in (names, {}) if route.path != "/sign-out" else ():  # which is among the last
            yield re.sub(r"{(\w+)(:\w+)?}", lambda found, one=one: one.get(found[1], "nowhere"), route.path)
    yield from OTHERS


def _answers(client: httpx.Client, csrf: str) -> Iterator[tuple[str, str, httpx.Response]]:
    for path in dict.fromkeys(_paths()):
        for method in METHODS:
            headers = {**HTML, "X-CSRF-Token": csrf}
            with client.stream(method, path, headers=headers, follow_redirects=False) as answer:
                yield method, path, answer


@pytest.mark.parametrize("role", [None, Role.VIEWER, Role.ADMIN])
def test_every_answer_is_guarded(world: Api, people: People, role: Role | None) -> None:
    """Pages, parts, streams, redirects, errors, files and the API: signed in or not, by any method."""
    if role is None:
        client, csrf = httpx.Client(base_url=world.url, trust_env=False, timeout=60), ""
    else:
        person = people(role)
        person.page("/")
        client, csrf = person.client, person.csrf
    seen = 0
    for method, path, answer in _answers(client, csrf):
        where = (method, path, answer.status_code, dict(answer.headers))
        assert answer.status_code < 500, where
        for name in ("content-security-policy", "x-content-type-options", "x-frame-options"):
            assert len(answer.headers.get_list(name)) == 1, (name, where)
        policy = answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy, where
        assert "base-uri 'none'" in policy, where
        assert "default-src 'none'" in policy, where
        assert answer.headers["x-content-type-options"] == "nosniff", where
        if "x-gtm-tier" not in answer.headers:  # of the dashboard
            assert answer.headers["cache-control"] == "no-store", where
            assert (answer.status_code == 405) == ("allow" in answer.headers), where
        if method == "HEAD" and path.startswith("/live/") and answer.status_code == 200:
            assert answer.read() == b""
        seen += 1
        if role is not None and path == "/sign-out" and method == "POST":
            break  # the last of those that need somebody
    assert seen > 300


@pytest.mark.reads
def test_one_address_answers_by_what_is_asked_for(world: Api) -> None:
    """And says so to whoever keeps answers."""
    for accept in ("text/html", "application/json"):
        answer = httpx.get(world.url, headers={"Accept": accept}, trust_env=False)
        assert answer.headers["vary"] == "Accept"


@pytest.mark.parametrize(
    "path",
    ["../security.py", "..%2f..%2fsecurity.py", "%2e%2e/%2e%2e/app.py", "/etc/passwd", "gtm.css%00.js", "gtm.css/", "", "vendor", "..;/gtm.css", "GTM.CSS"],
)  # fmt: skip
@pytest.mark.reads
def test_files_are_those_that_there_are(world: Api, path: str) -> None:
    """By their names to the letter; nothing of the disk is looked at."""
    home = url("gtm.css").removesuffix("gtm.css")
    request = httpx.Request("GET", world.url + home)
    request.url = request.url.copy_with(raw_path=(home + path).encode())
    with httpx.Client(trust_env=False) as client:
        answer = client.send(request)
    assert answer.status_code == 404
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.reads
def test_a_file_of_another_version_is_not_kept(world: Api) -> None:
    """While two versions run, one may be asked for a file of the other's, and whoever keeps it would keep the wrong one for good."""
    right = httpx.get(
        world.url + url("gtm.css"), headers={"Range": "bytes=0-3", "If-None-Match": "*"}, trust_env=False
    )
    assert (right.status_code, right.headers["vary"]) == (200, "Accept-Encoding")
    assert "immutable" in right.headers["cache-control"]
    other = httpx.get(f"{world.url}/static/0123456789abcdef/gtm.css", trust_env=False)
    assert other.headers["cache-control"] == "no-cache"
    plain = httpx.get(world.url + url("gtm.css"), headers={"Accept-Encoding": "gzip;q=0"}, trust_env=False)
    assert "content-encoding" not in plain.headers
    assert plain.text == right.text


@pytest.mark.parametrize("hosts", [[], ["a.example", "b.example"], ["a.example", "a.example"]])
@pytest.mark.parametrize("path", ["/sign-in", "/v1/status", "/"])
@pytest.mark.reads
def test_a_request_names_one_host(world: Api, hosts: list[str], path: str) -> None:
    """Two could be understood in two ways; without one, nobody knows whose forms are ours."""
    lines = "".join(f"Host: {one}\r\n" for one in hosts)
    at = httpx.URL(world.url)
    with socket.create_connection((at.host, at.port or 80), timeout=30) as raw:
        raw.sendall(f"GET {path} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: raw.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"frame-ancestors" in answer
