"""Redirects by host name and by path."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gtm.core.model.policy import Policy
from gtm.core.model.regions import Endpoint
from gtm.core.model.state import EndpointHealth, HealthStatus, State
from gtm.feed.wire import StateMessage
from gtm.http.app import EdgeOptions
from tests.core.model.accepts import ACCEPTS
from tests.http.world import Edge

HOST = {"host": "web.demo.test"}
BASE = "http://us-east-1.test:9000/base"


def ask(
    edge: Edge, path: bytes, query: bytes = b"", host: bytes = b"web.demo.test"
) -> tuple[int, dict[str, str]]:
    """One request straight to the application, with bytes that no client would send."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http",
        "method": "GET",
        "path": path.decode("latin-1"),
        "raw_path": path,
        "query_string": query,
        "headers": [(b"host", host)],
        "client": ("127.0.0.1", 1),
    }
    asyncio.run(edge.app(scope, receive, send))
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers


@pytest.fixture
def app() -> Edge:
    """An edge without a server."""
    edge = Edge(EdgeOptions())
    edge.load()
    return edge


@pytest.mark.parametrize(
    "host", ["web.demo.test", "WEB.Demo.TEST", "web.demo.test.", "web.demo.test:8081", "web.demo.test.:80"]
)
def test_a_service_host_redirects_to_its_region(edge: Edge, host: str) -> None:
    """Case, port and a trailing dot make no other host."""
    response = edge.get("/a/b?x=1", headers={"host": host})
    assert response.status_code == 307
    assert response.headers["location"] == f"{BASE}/a/b?x=1"
    assert response.headers["cache-control"] == "private, no-store"
    assert response.headers["x-gtm-region"] == "us-east"
    assert response.headers["x-gtm-reason"] == "lowest_latency"
    assert response.headers["x-gtm-revision"] == "7"
    assert response.content == b""


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_every_method_is_redirected_as_it_is(edge: Edge, method: str) -> None:
    """307 keeps the method and body; the body itself is not read here."""
    with edge.client() as client:
        for _ in range(2):
            response = client.request(method, "/x", headers=HOST, content=b"y" * 300_000)
            assert (response.status_code, response.headers["location"]) == (307, f"{BASE}/x")


@pytest.mark.parametrize(
    "target",
    [
        b"/",
        b"/a%2Fb/%e4%BD%A0?q=%20+%2B&q=a%26b&=&&",
        b"//evil.test/",
        b"///evil.test",
        b"/\\evil.test",
        b"/@evil.test",
        b"/:80@evil.test/",
        b"/.evil.test",
        b"/../../x",
        b"/%0d%0aset-cookie:%20a=b",
        b"/v1/route?service=web",
        b"/healthz",
        b"/r/chat/x",
        b"/<script>?'\"",
    ],
)
def test_path_and_query_arrive_byte_for_byte_and_change_nothing_else(edge: Edge, target: bytes) -> None:
    """Whatever the path, the Location is the endpoint's URL and then exactly what was sent."""
    request = b"GET " + target + b" HTTP/1.1\r\nHost: web.demo.test\r\nConnection: close\r\n\r\n"
    head = edge.raw(request).partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert head[0].startswith(b"HTTP/1.1 307")
    assert [line for line in head if line.startswith(b"location:")] == [
        b"location: " + BASE.encode() + target
    ]
    assert not [line for line in head if line.startswith(b"set-cookie")]


@pytest.mark.parametrize("bad", [b"\r\nx: y", b"\n", b"\0", b" ", b"\t", b"\x7f", b"\xc3\xa4"])
def test_bytes_that_have_no_place_in_a_header_are_rejected(app: Edge, bad: bytes) -> None:
    """Control characters, spaces and raw non-ASCII bytes are 400, in the path and in the query."""
    assert ask(app, b"/a" + bad)[0] == 400
    assert ask(app, b"/a", b"q=" + bad)[0] == 400
    assert ask(app, b"/r/web/a" + bad, host=b"edge")[0] == 400
    assert ask(app, b"*")[0] == 400
    assert ask(app, b"evil.test:443")[0] == 400


def test_a_path_without_its_raw_form_is_encoded(app: Edge) -> None:
    """A server that hands over no raw path still gets a valid Location."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "GET", "path": "/ä b", "headers": [(b"host", b"web.demo.test")]}
    asyncio.run(app.app(scope, receive, send))
    assert dict(sent[0]["headers"])[b"location"].endswith(b"/%C3%A4%20b")


def test_by_path(edge: Edge) -> None:
    """`/r/{service}/...` works on any host that is no service's, and for services without host names."""
    assert edge.get("/r/web/a//b%2F?x=%20").headers["location"] == f"{BASE}/a//b%2F?x=%20"
    assert edge.get("/r/web").headers["location"] == f"{BASE}/"
    assert edge.get("/r/web?x=1").headers["location"] == f"{BASE}/?x=1"
    assert edge.get("/r/split/").status_code == 307
    for path in ("/r/nope/x", "/r/", "/r//x", "/r/%77eb/x"):
        assert edge.get(path).json()["code"] == "unknown_service"


def test_a_slash_after_an_endpoint_url_is_not_doubled(app: Edge) -> None:
    """An endpoint written with a trailing slash leads to the same place."""
    url = "http://slash.test/\r\nx: y/"

    def change(before: Policy) -> Policy:
        regions = tuple(
            replace(region, endpoints=(Endpoint(url, ("192.0.2.1",)),)) for region in before.regions
        )
        return replace(before, regions=regions)

    app.load((), change)
    table = {name: {url: EndpointHealth(HealthStatus.UP)} for name in ("eu-central", "eu-west", "us-east")}
    app.current.apply(StateMessage(State(epoch=2, health=table)))
    assert ask(app, b"/a")[1]["location"] == "http://slash.test/%0D%0Ax:%20y/a"


def test_an_unknown_host_is_404(edge: Edge) -> None:
    """A host that no service has is not guessed."""
    response = edge.get("/x", headers={"host": "other.demo.test"})
    assert response.status_code == 404
    assert "`other.demo.test`" in response.json()["detail"]


def test_what_a_request_says_of_itself_counts(edge: Edge) -> None:
    """Tenant, data class, model and affinity come in X-GTM headers, since query and path are the service's."""
    assert edge.get("/r/records/x").headers["x-gtm-region"] == "eu-central"
    free = edge.get("/r/records/x?tenant=clinic", headers={"x-gtm-tenant": "shop"})
    assert free.headers["x-gtm-region"] == "us-east"
    assert (
        edge.get("/r/records/x", headers={"X-GTM-Tenant": "clinic"}).headers["x-gtm-region"] == "eu-central"
    )
    for name in ("X-GTM-Tenant", "X-GTM-Data-Class", "X-GTM-Model"):
        assert edge.get("/r/web/", headers={name: "nope"}).status_code == 422
        assert edge.get("/r/web/", headers={name: ""}).status_code == 400
        twice = f"GET /r/web/ HTTP/1.0\r\n{name}: shop\r\n{name}: clinic\r\n\r\n".encode()
        assert b" 400 " in edge.raw(twice).partition(b"\r\n")[0]
    assert edge.get("/r/web/", headers={b"x-gtm-tenant": b"\xff"}).status_code == 400
    seen = {
        edge.get("/r/sticky/", headers={"x-gtm-affinity": "one"}).headers["x-gtm-region"] for _ in range(5)
    }
    assert len(seen) == 1
    edge.load(up=("eu-central", "eu-west"))
    assert edge.get("/r/web/x").headers["x-gtm-region"] == "eu-west"
    refused = edge.get("/r/web/x", headers={"x-gtm-model": "llama"})
    assert (refused.status_code, refused.json()["code"]) == (503, "refused_unavailable")


def test_refusals_over_redirect(edge: Edge) -> None:
    """The law refuses with 451, want of regions with 503; nobody is sent anywhere."""
    response = edge.get("/r/nowhere/secret?x=1")
    assert response.status_code == 451
    assert "location" not in response.headers
    assert response.json()["reason"] == "fence_empty"
    assert response.json()["instance"] == "/r/nowhere"
    edge.load(up=())
    response = edge.get("/x", headers=HOST)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "10"
    assert response.json()["reason"] == "none_usable"


def test_a_request_without_host_or_with_two_is_400(edge: Edge) -> None:
    """RFC 9112 §3.2. HTTP/1.0 knows no Host."""
    assert b" 400 " in edge.raw(b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n").partition(b"\r\n")[0]
    two = b"GET / HTTP/1.1\r\nHost: web.demo.test\r\nHost: chat.demo.test\r\nConnection: close\r\n\r\n"
    assert b" 400 " in edge.raw(two).partition(b"\r\n")[0]
    assert b" 200 " in edge.raw(b"GET /healthz HTTP/1.0\r\n\r\n").partition(b"\r\n")[0]


def test_long_paths(edge: Edge) -> None:
    """8,000 bytes pass (RFC 9110 §4.1), more than 16 KiB do not."""
    path = "/" + "a" * 8000
    assert edge.get(path, headers=HOST).headers["location"] == BASE + path
    assert edge.get("/" + "a" * 17_000, headers=HOST).status_code == 414


def test_without_a_policy_nobody_is_redirected(run_edge: Callable[..., Edge]) -> None:
    """Before the first policy no host is known."""
    edge = run_edge(load=False)
    assert edge.get("/r/web/x").status_code == 503
    assert edge.get("/x", headers=HOST).status_code == 404


def test_a_wildcard_host_redirects_as_its_service(app: Edge) -> None:
    """Names below a wildcard host name are its service's, but for those that exist by themselves."""

    def wild(before: Policy) -> Policy:
        chat, web, *others = before.services
        web = replace(web, hostnames=("*.models.demo.test", "a.own.models.demo.test"))
        return replace(before, services=(chat, web, *others))

    app.load(change=wild)
    for host in (b"x.models.demo.test", b"X.Y.Models.demo.test.:443", b"a.own.models.demo.test"):
        assert ask(app, b"/", host=host)[0] == 307
    for host in (b"models.demo.test", b"own.models.demo.test", b"x.own.models.demo.test"):
        assert ask(app, b"/", host=host)[0] == 404


@pytest.mark.parametrize(
    ("path", "host", "status", "code", "kind"),
    [
        ("/r/nowhere/v1/messages", "edge.test", 451, "refused_residency", "permission_error"),
        (
            "/r/nowhere/v1/messages/count_tokens?beta=true",
            "edge.test",
            451,
            "refused_residency",
            "permission_error",
        ),
        ("/r/none/v1/messages", "edge.test", 404, "unknown_service", "not_found_error"),
        ("/v1/messages", "none.demo.test", 404, "not_found", "not_found_error"),
    ],
)
def test_clients_of_anthropics_api_read_why(  # noqa: PLR0917
    edge: Edge, path: str, host: str, status: int, code: str, kind: str
) -> None:
    """The document of other paths, but for the two types: it is an error of that API's, of which SDKs have classes."""
    found = edge.get(path, headers={"host": host})
    said = found.json()
    assert (found.status_code, found.headers["content-type"]) == (status, "application/json")
    assert (said["type"], said["code"], said["status"]) == ("error", code, status)
    other = edge.get(path.partition("/messages")[0] + "/chat/completions", headers={"host": host})
    assert other.headers["content-type"] == "application/problem+json"
    assert said["error"] == {**other.json()["error"], "type": kind}
    own = {"type", "error", "instance"}
    assert {name: one for name, one in said.items() if name not in own} == {
        name: one for name, one in other.json().items() if name not in own
    }


@pytest.mark.parametrize(("path", "accept", "media", "anthropics"), ACCEPTS)
@pytest.mark.parametrize("service", ["nowhere", "none"])
def test_a_refusal_has_the_form_that_its_client_takes(
    edge: Edge, service: str, path: str, accept: str, media: str, *, anthropics: bool
) -> None:
    """As at a balancer (tests/balancer/test_refusals.py): whether a policy refuses it, or nobody knows the service."""
    found = edge.get(f"/r/{service}{path}", headers={"accept": accept})
    said = found.json()
    assert found.headers["content-type"] == media
    assert (said["type"] == "error") is anthropics
    assert said["error"]["message"] == said["detail"]


@pytest.mark.parametrize(
    ("path", "host", "status", "code"),
    [
        ("/r/nowhere/v1/chat/completions", "edge.test", 451, "refused_residency"),
        ("/r/none/v1/models", "edge.test", 404, "unknown_service"),
        ("/v1/models", "none.demo.test", 404, "not_found"),
        (f"/r/web/{'x' * 20_000}", "edge.test", 414, "uri_too_long"),
    ],
)
def test_clients_of_model_apis_read_why(edge: Edge, path: str, host: str, status: int, code: str) -> None:
    """OpenAI's SDK for Node says "451 status code (no body)" of a problem without `error`. Those of look-ups have none."""
    for _ in range(2):
        found = edge.get(path, headers={"host": host})
        said = found.json()
        assert (found.status_code, said["status"], said["code"]) == (status, status, code)
        assert (said["error"]["message"], said["error"]["code"]) == (said["detail"], code)
    assert "error" not in edge.route(service="nowhere").json()
    assert "error" not in edge.route(service="none").json()
