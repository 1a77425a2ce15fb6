"""What proxies are answered that ask by forward-auth: the decision of a redirect, told in fields."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.core.handoff.claims import Claims
from gtm.core.handoff.keys import PublicKey, PublicKeys
from gtm.feed.wire import HandoffKeysMessage
from gtm.handoff.verifier import Verifier
from gtm.http.app import EdgeOptions
from gtm.http.requests.incoming import Incoming
from gtm.settings import LOOPBACK
from tests.effort import examples
from tests.http.world import ALL_UP, NOW, Edge

GERMAN, AMERICAN = "81.2.69.7", "198.51.100.7"


@pytest.fixture
def asked(run_edge: Callable[..., Edge]) -> Callable[..., httpx.Response]:
    """Ask an edge as a trusted proxy; `up` are the regions that are."""
    edge = run_edge(trusted_proxies=LOOPBACK)
    edge.sign()

    def ask(
        path: str = "/v1/authorize?service=chat",
        *,
        client: str = GERMAN,
        up: str = "",
        method: str = "GET",
        **fields: str,
    ) -> httpx.Response:
        edge.load(up.split() if up else ALL_UP)
        headers = {name.replace("_", "-"): value for name, value in fields.items()}
        with edge.client() as session:
            return session.request(method, path, headers={"x-forwarded-for": client, **headers})

    return ask


def test_a_request_that_may_go_on(asked: Callable[..., httpx.Response]) -> None:
    """Where it goes stands in fields, as a redirect says it; there is no body, whatever the method."""
    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"):
        answer = asked(method=method)
        assert (answer.status_code, answer.content) == (200, b""), method
        assert answer.headers["x-gtm-region"] == "eu-central"
        assert answer.headers["x-gtm-upstream"].endswith(".test:9000")
        assert answer.headers["x-gtm-upstream-url"] == f"http://{answer.headers['x-gtm-upstream']}/base"
    assert asked(client=AMERICAN).headers["x-gtm-region"] == "us-east"


def test_a_refusal(asked: Callable[..., httpx.Response]) -> None:
    """By its own status, or by the one that the proxy understands; told whole in the body, and in a field."""
    for query, status in (("", 451), ("&deny=403", 403), ("&deny=401", 401), ("&deny_5xx=403", 451)):
        answer = asked(f"/v1/authorize?service=chat{query}", up="us-east")
        assert answer.status_code == status, query
        assert answer.headers["x-gtm-status"] == "451"
        assert answer.headers["x-gtm-code"] == "refused_residency"
        document = answer.json()
        assert json.loads(answer.headers["x-gtm-problem"]) == document
        assert document["status"] == 451
        assert document["error"]["message"] == document["detail"]
    answer = asked("/v1/authorize?service=web&deny_5xx=403", up="nowhere")
    assert (answer.status_code, answer.headers["x-gtm-status"]) == (403, "503")
    assert int(answer.headers["retry-after"]) > 0


def test_without_a_key_that_balancers_know(run_edge: Callable[..., Edge]) -> None:
    """The region's balancer would judge by where the proxy stands: nothing goes on. Once the key is published it does, and not once it is withdrawn."""
    edge = run_edge(trusted_proxies=LOOPBACK)

    def status() -> int:
        return edge.get("/v1/authorize?service=chat", headers={"x-forwarded-for": GERMAN}).status_code

    assert status() == 503
    edge.sign()
    assert status() == 200
    edge.current.apply(HandoffKeysMessage(PublicKeys((), 2)))
    assert status() == 503


def test_who_is_no_proxy_of_the_operators(run_edge: Callable[..., Edge]) -> None:
    """Nobody knows whose request it is: the answer says what to do."""
    answer = run_edge().get("/v1/authorize?service=chat", headers={"x-forwarded-for": GERMAN})
    assert (answer.status_code, answer.json()["code"]) == (403, "untrusted_proxy")
    assert "GTM_TRUSTED_PROXIES" in answer.json()["detail"]


def test_which_service(asked: Callable[..., httpx.Response]) -> None:
    """By the query, by the client's host as the proxy says it, or by fields below the path; the client's own path and query say nothing."""
    assert asked("/v1/authorize", x_forwarded_host="chat.demo.test").headers["x-gtm-region"] == "eu-central"
    below = "/v1/authorize/v1/chat?service=web&deny=403"
    fields = {"x_gtm_service": "chat", "x_gtm_authorize": "1"}
    assert asked(below, up="us-east", host="chat.demo.test", **fields).status_code == 451
    assert asked(below, up="us-east", **fields, x_gtm_deny="403").status_code == 403
    # On the path itself fields of a client are not the proxy's word.
    assert asked("/v1/authorize?service=chat", up="us-east", x_gtm_service="web").status_code == 451
    answer = asked("/v1/authorize", x_gtm_service="web")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_service")
    many = "?" + "&".join(f"service{n}=chat" for n in range(20))
    for wrong in (
        *("?service=chat&service=web", "?server=chat", "?service=chat&deny=200", "?service=none"),
        *(many, "?service=chat" + "&" * 20 + "x"),
    ):
        answer = asked(f"/v1/authorize{wrong}")
        assert 400 <= answer.status_code < 500, wrong
        assert answer.json()["detail"]


def test_a_services_own_host_keeps_its_paths(asked: Callable[..., httpx.Response]) -> None:
    """`/v1/authorize` of a service is redirected, as all of its paths are."""
    answer = asked("/v1/authorize", host="web.demo.test")
    assert answer.status_code == 307
    assert answer.headers["location"].endswith("/base/v1/authorize")


def test_the_handoff_is_the_clients(run_edge: Callable[..., Edge]) -> None:
    """The region's balancer sees the proxy: the handoff says whose request it is, and is used for others of the same client."""
    edge = run_edge(trusted_proxies=LOOPBACK)
    public = edge.sign()
    tokens = [
        edge.get("/v1/authorize?service=chat", headers={"x-forwarded-for": client}).headers["gtm-handoff"]
        for client in (GERMAN, GERMAN, AMERICAN)
    ]
    assert tokens[0] == tokens[1] != tokens[2]
    claims = Verifier(PublicKeys((PublicKey("fra-1", public),), 1)).verify(tokens[0].encode())
    assert isinstance(claims, Claims)
    assert claims.carried
    assert (claims.client, claims.region) == ("81.2.69.0/24", "eu-central")
    assert claims.expires <= NOW + 60


@given(
    path=st.sampled_from(["", "/", "/v1/chat", "/%2e%2e/x", "x"]),
    query=st.dictionaries(
        st.sampled_from(["service", "deny", "deny_5xx", "x"]), st.text(max_size=6), max_size=4
    ),
    fields=st.dictionaries(
        st.sampled_from(
            [b"x-gtm-service", b"x-gtm-deny", b"x-gtm-authorize", b"x-gtm-tenant", b"x-forwarded-host"]
        ),
        st.binary(max_size=12),
        max_size=4,
    ),
)
@settings(max_examples=examples(200))
def test_whatever_is_asked_is_answered(path: str, query: dict[str, str], fields: dict[bytes, bytes]) -> None:
    """And every field of an answer is one line."""
    edge = Edge(EdgeOptions(trusted_proxies=LOOPBACK))
    edge.load()
    target = f"/v1/authorize{path}?{httpx.QueryParams(query)}".encode()
    lines: list[tuple[bytes, bytes]] = [(b"host", b"edge.test"), *fields.items()]
    answer: Any = edge.app.answer(Incoming("GET", target, lines, "127.0.0.1", "1.1"))
    assert answer.head.status < 500
    assert answer.head.lines.count(b"\r\n") == len(answer.head.headers)
