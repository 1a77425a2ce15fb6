"""What people filed against proxies that ask others whether a request may go on, and against those whom they ask, tried here: each test names its source."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable

import httpx
import pytest

from gtm.settings import LOOPBACK
from tests.http.test_proxies import Running, proxy
from tests.http.world import Edge

__all__ = ["proxy"]

GERMAN, AMERICAN = "81.2.69.7", "198.51.100.7"
PATH = "/v1/authorize?service=chat"
TOLD = ("x-gtm-region", "x-gtm-upstream", "x-gtm-upstream-url", "gtm-handoff", "gtm-push")
"""What the proxies of docs/proxies.md hand on."""


@pytest.fixture
def edge(run_edge: Callable[..., Edge]) -> Edge:
    """An edge that this machine's proxies may ask."""
    found = run_edge(trusted_proxies=LOOPBACK)
    found.sign()
    return found


def _ask(edge: Edge, path: str = PATH, method: str = "GET", **fields: str) -> httpx.Response:
    headers = [("x-forwarded-for", GERMAN), *fields.items()]
    with edge.client() as session:
        return session.request(method, path, headers=headers)


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        pytest.param(
            "GET",
            {
                "connection": "Upgrade",
                "upgrade": "websocket",
                "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
                "sec-websocket-version": "13",
            },
            id="caddyserver/caddy#5430",
        ),
        pytest.param(
            "OPTIONS",
            {"origin": "https://page.test", "access-control-request-method": "POST"},
            id="traefik/traefik#1019, authelia/authelia#648",
        ),
        pytest.param(
            "GET",
            {
                "if-none-match": "*",
                "if-modified-since": "Sat, 29 Oct 2044 19:43:31 GMT",
                "range": "bytes=0-1",
            },
            id="authelia/authelia#394",
        ),
        pytest.param(
            "HEAD", {"accept": "text/html", "x-requested-with": "x"}, id="oauth2-proxy/oauth2-proxy#1023"
        ),
    ],
)
def test_what_a_client_asks_of_its_service_is_not_asked_here(
    edge: Edge, method: str, fields: dict[str, str]
) -> None:
    """A switch of protocols, a preflight, a condition: the auth server answered them itself (101, 204, 304, 302), and the proxy took that for a yes, a no, or an error.

    With each yes come all the fields: of one that is missing some proxies hand the client's own on (caddyserver/caddy#7545, caddyserver/caddy#6610,
    apache/apisix#13183).
    """
    answer = _ask(edge, method=method, **fields)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["x-gtm-region"] == "eu-central"
    assert all(answer.headers[name] for name in TOLD)


@pytest.mark.parametrize("framing", ["Content-Length: 77", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("service", ["chat", "nowhere"])
def test_a_body_that_is_said_and_does_not_come(edge: Edge, framing: str, service: str) -> None:
    """bitly/oauth2_proxy#442, oauth2-proxy/oauth2-proxy#2149, apache/apisix#10927: proxies said the client's Content-Length and sent no body.

    Auth servers waited for it; or took what the proxy asked next for it, so that another client's question was lost, and a client that chose the
    length chose where the next question begins. The connection ends with the answer instead.
    """
    question = f"GET /v1/authorize?service={service} HTTP/1.1\r\nHost: edge\r\nX-Forwarded-For: {GERMAN}\r\n"
    with socket.create_connection(("127.0.0.1", edge.port), timeout=5) as connection:
        connection.sendall(f"{question}{framing}\r\n\r\n".encode())
        got = b""
        while piece := connection.recv(65536):  # it ends, and at once
            got += piece
    assert got.startswith(b"HTTP/1.1 200" if service == "chat" else b"HTTP/1.1 451")
    assert b"connection: close\r\n" in got
    assert got.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "path",
    [
        "/../../healthz",
        "/%2e%2e/%2e%2e/healthz",
        "/..;/..;/healthz",
        "//healthz",
        "/%2F..%2Fhealthz",
        "/x" * 4000,
        "/?service=web&deny=403",
    ],
)
def test_a_clients_path_leads_to_no_other_page(edge: Edge, path: str) -> None:
    """envoyproxy/envoy#6435, istio/istio#27409: what the auth server took a path for was not what was asked; a page of its own that says 200 would be a yes."""
    fields = {"x-gtm-service": "chat", "x-gtm-authorize": "1"}
    edge.load(("us-east",))
    raw = f"GET /v1/authorize{path} HTTP/1.1\r\nHost: edge\r\nX-Forwarded-For: {GERMAN}\r\nConnection: close\r\n"
    answer = edge.raw((raw + "".join(f"{name}: {fields[name]}\r\n" for name in fields) + "\r\n").encode())
    assert answer.startswith(b"HTTP/1.1 451 ")


@pytest.mark.parametrize(
    "fields",
    [
        {"x_forwarded_for": AMERICAN, "x.forwarded.for": AMERICAN, "x-real-ip": AMERICAN},
        {"x_gtm_service": "web", "x.gtm.service": "web", "x-forwarded-host": "web.demo.test"},
        {
            "x-forwarded-uri": "/v1/authorize?service=web",
            "x-original-url": "/healthz",
            "x-forwarded-method": "OPTIONS",
        },
        {"connection": "x-forwarded-for, x-gtm-tenant, host"},
        {"forwarded": f"for={AMERICAN}"},
    ],
)
def test_fields_that_clients_may_have_said(edge: Edge, fields: dict[str, str]) -> None:
    """Who was believed was the client, not the proxy.

    traefik/traefik#12961 (`_` and `.` for `-`), oauth2-proxy/oauth2-proxy#3506 (the path in a field), traefik/traefik#2132 (the host),
    traefik/traefik#11077 (named by Connection), traefik/traefik#12657 (Forwarded).

    With Forwarded that contradicts, nobody knows whose request it is, which is the strictest fence.
    """
    edge.load(("us-east",))
    assert _ask(edge, **fields).status_code == 451


@pytest.mark.parametrize(
    "twice", ["X-GTM-Data-Class", "X-GTM-Tenant", "X-Forwarded-Host", "Authorization", "Content-Type"]
)
def test_what_is_said_twice_is_refused_like_anything_else(edge: Edge, twice: str) -> None:
    """envoyproxy/envoy#30815, istio/api#1926: nobody knew what a field is that the client sent twice. It is an error of the client's, and told so that NGINX hands it on."""
    lines = [("x-forwarded-for", GERMAN), (twice, "health"), (twice, "x")]
    with edge.client() as session:
        for path, fields in (
            (f"{PATH}&deny=403", []),
            ("/v1/authorize/x", [("x-gtm-service", "chat"), ("x-gtm-deny", "403")]),
        ):
            answer = session.get(path, headers=[*lines, *fields])
            assert (answer.status_code, answer.headers["x-gtm-status"]) == (403, "400")
            assert twice.lower() in json.loads(answer.headers["x-gtm-problem"])["detail"].lower()


@pytest.mark.parametrize("said", ["x" * 256, "é" * 256, "\U0001f600" * 256, '"' * 256])
@pytest.mark.parametrize("field", ["x-gtm-tenant", "x-gtm-data-class", "x-gtm-model", "x-forwarded-host"])
def test_a_refusals_head_is_one_that_proxies_take(edge: Edge, field: str, said: str) -> None:
    """vouch/vouch-proxy#426, oauth2-proxy/oauth2-proxy#1164, Azure/EasyAuthForK8s#79: NGINX takes a head of 4 KiB, and a longer one is an error of the auth server's.

    A client's own words are in it, escaped, and twice.
    """
    path = "/v1/authorize" if field == "x-forwarded-host" else PATH
    lines = f"GET {path} HTTP/1.1\r\nHost: edge\r\nX-Forwarded-For: {GERMAN}\r\nConnection: close\r\n{field}: {said}\r\n\r\n"
    head, _, body = edge.raw(lines.encode()).partition(b"\r\n\r\n")
    assert head.split()[1] in (b"422", b"404")
    assert len(head) + 4 <= 4096
    assert json.loads(body)["detail"]


# --- with the proxies themselves ---


def _through(proxy: Running, *lines: tuple[str, str]) -> httpx.Response:
    url = f"http://127.0.0.1:{proxy.port}/v1/chat"
    return httpx.get(url, headers=list(lines), trust_env=False, timeout=20)


@pytest.mark.drill
def test_who_was_said_last_is_the_client(proxy: Running) -> None:
    """haproxy/haproxy#44, hasura/graphql-engine#6290: another proxy adds a line of its own behind what the client has said, and the lines were read in another order, or one of them."""
    for said, region in (
        ((AMERICAN, GERMAN), "eu-central"),
        ((GERMAN, AMERICAN), "us-east"),
        ((GERMAN, GERMAN, AMERICAN), "us-east"),
        ((AMERICAN, AMERICAN, GERMAN), "eu-central"),
    ):
        answer = _through(proxy, *(("x-forwarded-for", one) for one in said))
        assert answer.text.startswith(region), (said, answer.text[:200])


@pytest.mark.drill
def test_what_a_client_says_twice_goes_nowhere(proxy: Running) -> None:
    """envoyproxy/envoy#30815: whichever line counted, a server behind could have read the other."""
    answer = _through(
        proxy, ("x-forwarded-for", GERMAN), ("x-gtm-tenant", "shop"), ("x-gtm-tenant", "clinic")
    )
    assert answer.status_code in (400, 403, 422)
    assert answer.json()["status"] in (400, 422)


@pytest.mark.drill
@pytest.mark.parametrize("tenant", ["nobody", "\U0001f600" * 256])
def test_a_refusal_is_told_whatever_the_client_said(proxy: Running, tenant: str) -> None:
    """vouch/vouch-proxy#426: with longer words NGINX told its own error instead."""
    url = f"http://127.0.0.1:{proxy.port}/v1/chat"
    fields = [(b"x-forwarded-for", GERMAN.encode()), (b"x-gtm-tenant", tenant.encode())]
    answer = httpx.get(url, headers=fields, trust_env=False, timeout=20)
    assert answer.json()["code"] == "unknown_tenant"


@pytest.mark.drill
def test_no_field_of_gtms_is_named_away(proxy: Running) -> None:
    """traefik/traefik#8318, traefik/traefik#11077 (CVE-2021-32813, CVE-2024-45410): a client named the proxy's fields in Connection, and they did not arrive."""
    names = "x-forwarded-for, gtm-handoff, gtm-push, x-gtm-region, x-gtm-service, x-gtm-authorize"
    answer = _through(proxy, ("x-forwarded-for", GERMAN), ("connection", names))
    if answer.status_code != 400:  # so Envoy says
        assert answer.text.startswith("eu-central")
        assert "\ngtm-push: 1\n" in answer.text.lower()
