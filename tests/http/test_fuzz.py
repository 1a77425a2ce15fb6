"""Whatever a request holds, it gets an answer, and the answer is no bug's."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import Awaitable, Callable
from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gtm.http.answers.routes import HOSTS, Locate, LookupRoute, Routes
from gtm.http.app import EdgeOptions
from gtm.http.requests import incoming
from gtm.http.requests.lookup import Lookup
from tests.effort import examples
from tests.http.world import Edge, locate, regions

_PATHS = st.sampled_from(
    [
        "/",
        "/v1/route",
        "/v1/route:batch",
        "/v1/beacons",
        "/v1/latency-samples",
        "/v1/beacon-targets",
        "/v1/beacon.js",
        "/healthz",
        "/readyz",
        "/metrics",
        "/r/web/x",
        "/r/chat",
        "//x",
    ]
) | st.text().map(lambda text: "/" + text)
_HOSTS = st.sampled_from([b"web.demo.test", b"chat.demo.test:80", b"127.0.0.1:8081", b"[::1]:80", b""])
_NAMES = st.sampled_from(
    [
        b"host",
        b"authorization",
        b"x-forwarded-for",
        b"forwarded",
        b"x-gtm-tenant",
        b"x-gtm-data-class",
        b"x-gtm-affinity",
        b"content-type",
        b"content-length",
        b"content-encoding",
        b"Host",
    ]
)
_KEYS = ("service", "client_ip", "tenant", "data_class", "model", "affinity", "explain", "x")
_VALUES = st.sampled_from(
    ["web", "chat", "split", "nowhere", "81.2.69.142", "::1", "clinic", "health", "1", ""]
)
_QUERIES = st.lists(st.tuples(st.sampled_from(_KEYS), _VALUES | st.text())).map(
    lambda pairs: "&".join(f"{key}={value}" for key, value in pairs).encode("utf-8", "replace")
)
_ITEMS = st.dictionaries(st.sampled_from(_KEYS), _VALUES | st.none() | st.booleans() | st.integers())
_BODIES = (
    st.binary()
    | st.lists(_ITEMS | st.text()).map(lambda items: json.dumps({"requests": items}).encode())
    | st.lists(_ITEMS).map(lambda items: json.dumps({"samples": items}).encode())
)
_ENDPOINTS = tuple(endpoint.url.encode() for region in regions() for endpoint in region.endpoints)


def _edge(find: Locate = locate) -> Edge:
    options = EdgeOptions(open_lookups=True, trusted_proxies=(ip_network("127.0.0.0/8"),))
    edge = Edge(options, find=find)
    edge.load()
    return edge


EDGE = _edge()


@settings(max_examples=examples(400), deadline=None)
@given(
    path=_PATHS,
    raw=st.none() | st.binary(),
    query=_QUERIES | st.binary(),
    host=_HOSTS | st.binary(),
    headers=st.lists(
        st.tuples(_NAMES | st.binary(), st.binary() | st.sampled_from([b"application/json", b"text/plain"])),
        max_size=6,
    ),
    method=st.sampled_from(["GET", "HEAD", "POST", "OPTIONS", "TRACE", "x"]),
    client=st.sampled_from([None, ("127.0.0.1", 1), ("::1", 1), ("/run/x.sock", 0), ("", 0)]),
    body=st.lists(_BODIES, min_size=1, max_size=3),
    version=st.sampled_from(["1.0", "1.1", "2"]),
)
def test_any_scope_gets_one_well_formed_answer(**given_: Any) -> None:
    """Status and body fit, no header can be split, no redirect leaves the policy, and it is never a 500."""
    sent: list[dict[str, Any]] = []
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in given_["body"]]
    messages[-1]["more_body"] = False

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    scope = {
        "type": "http",
        "method": given_["method"],
        "path": given_["path"],
        "query_string": given_["query"],
        "headers": [(b"host", given_["host"]), *given_["headers"]],
        "client": given_["client"],
        "http_version": given_["version"],
    }
    if given_["raw"] is not None:
        scope["raw_path"] = given_["raw"]
    asyncio.run(EDGE.app(scope, receive, send))
    start, *bodies = sent
    assert start["type"] == "http.response.start"
    assert start["status"] != 500
    headers = dict(start["headers"])
    assert not [value for value in headers.values() if set(value) & set(b"\r\n\0")]
    body = b"".join(message["body"] for message in bodies)
    assert [message.get("more_body", False) for message in bodies] == [True] * (len(bodies) - 1) + [False]
    if headers.get(b"content-type", b"").endswith(b"json"):
        json.loads(body)
    if start["status"] == 307:
        assert any(headers[b"location"].startswith(url + b"/") for url in _ENDPOINTS)


@settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.binary(max_size=200)
    | st.tuples(_QUERIES, st.binary(max_size=40)).map(
        lambda parts: b"GET /v1/route?" + parts[0] + b" HTTP/1.1\r\nHost: x\r\nA: " + parts[1] + b"\r\n\r\n"
    )
)
def test_any_bytes_leave_the_server_answering(edge: Edge, data: bytes) -> None:
    """After whatever came over a socket, the next request is answered."""
    edge.raw(data)
    assert edge.get("/healthz").status_code == 200
    assert not [key for key in edge.counts if key.endswith("\t500")]


def test_other_protocols_are_turned_away() -> None:
    """A WebSocket is closed; the server's start and stop are confirmed."""
    sent: list[Any] = []
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def send(message: Any) -> None:
        sent.append(message["type"])

    async def receive() -> Any:
        return messages.pop(0)

    asyncio.run(EDGE.app({"type": "lifespan"}, receive, send))
    asyncio.run(EDGE.app({"type": "websocket", "path": "/"}, receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete", "websocket.close"]


def _post(body: Callable[[], Awaitable[Any]], edge: Edge = EDGE) -> list[dict[str, Any]]:
    """What is sent in answer to a batch whose body arrives so."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"x"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/route:batch", "headers": headers}
    asyncio.run(edge.app(scope, body, send))
    return sent


def test_a_body_that_does_not_arrive_is_408(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that stalls does not hold a connection for ever."""
    monkeypatch.setattr(incoming, "BODY_TIMEOUT", 0.05)

    async def stall() -> Any:
        await asyncio.sleep(60)

    start, body = _post(stall)
    assert start["status"] == 408
    assert json.loads(body["body"])["code"] == "request_timeout"


def test_a_bug_is_a_500_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """If gtm itself fails the client is told so, without internals; half a batch is never passed off as a whole one."""

    def fail(_: object) -> Any:
        raise RuntimeError("secret")

    edge = _edge(fail)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        body = {"requests": [{"service": "web", "client_ip": "192.0.2.1"}]}
        return {"type": "http.request", "body": json.dumps(body).encode()}

    scope = {"type": "http", "method": "GET", "path": "/v1/route", "headers": [(b"host", b"x")]}
    scope |= {"query_string": b"service=web", "client": ("192.0.2.1", 1)}
    asyncio.run(edge.app(scope, receive, send))
    assert sent[0]["status"] == 500
    assert json.loads(sent[1]["body"])["code"] == "internal_error"
    assert b"secret" not in sent[1]["body"]
    assert "secret" in caplog.text
    with pytest.raises(RuntimeError):
        _post(receive, edge)


def test_memory_is_bounded() -> None:
    """However many hosts and queries come, only so many are remembered, and answers stay the same."""
    routes = Routes(EDGE.current.router, locate, limit=3)
    for number in range(20):
        assert routes.service_of(b"host-%d" % number) is None
        assert routes.service_of(b"web.demo.test") == ("web", None)
        route = LookupRoute(routes.resolve(Lookup("web"), None, "/v1/route"), routes.prepared)
        routes.remember(routes.lookups, number, route)
        assert routes.lookups[number] is route
        assert len(routes.lookups) <= 3
        assert routes.again(number) is False
        assert routes.again(number) is True
        assert len(routes.marks) <= 4 * 3


def test_what_is_long_is_not_remembered() -> None:
    """A head may have 32 KiB: memory that is bounded by a number of answers takes in only what is short."""
    edge = _edge()
    routes = edge.app.routes()
    tracemalloc.start()
    for number in range(300):
        assert routes.service_of(b"x" * 32_000 + b"%d" % number) is None
    assert routes.service_of(b"web.demo.test" + b" " * 32_000) == ("web", None)
    assert tracemalloc.get_traced_memory()[0] < 3 * HOSTS  # two generations; all 300 would be 9 MB
    tracemalloc.stop()

    def ask(path: str, query: bytes, host: bytes, forwarded: bytes) -> int:
        sent: list[dict[str, Any]] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            pytest.fail("no body is asked for")

        headers = [(b"host", host), (b"x-forwarded-for", forwarded)]
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "headers": headers,
            "client": ("127.0.0.1", 1),
        }
        asyncio.run(edge.app(scope | {"query_string": query}, receive, send))
        status = sent[0]["status"]
        assert isinstance(status, int)
        return status

    long = b", ".join([b"192.0.2.1"] * 3000)
    assert ask("/", b"", b"web.demo.test", long) in (307, 451)
    assert ask("/v1/route", b"service=web", b"edge", long) in (200, 451)
    assert (routes.redirects, routes.lookups) == ({}, {})
    for times in range(3):  # a look-up that is made once is not remembered either
        ask("/", b"", b"web.demo.test", b"192.0.2.1")
        ask("/v1/route", b"service=web", b"edge", b"192.0.2.1")
        assert (len(routes.redirects), len(routes.lookups)) == (1, min(times, 1))


def test_a_client_that_leaves_in_the_middle_is_no_error() -> None:
    """Nothing is sent to nobody."""

    async def send(message: Any) -> None:
        pytest.fail(f"sent {message}")

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    headers = [(b"host", b"x"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/route:batch", "headers": headers}
    asyncio.run(EDGE.app(scope, receive, send))
