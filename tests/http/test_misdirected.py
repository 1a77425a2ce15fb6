"""An edge that stands outside of a rule: it answers by the head, with 421, and says who may."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_network

import pytest

from gtm.core.model.policy import EdgeScope, Policy
from gtm.core.model.services import NameServer, Zone
from gtm.core.policy.edges import EdgePlace
from tests import worlds
from tests.http.world import Edge

GERMAN, AMERICAN = "81.2.69.1", "198.51.100.1"


def _bound(policy: Policy) -> Policy:
    """The rule gdpr binds edges, and one name server stands inside."""
    bound = worlds.changed(policy, "residency_rules", "gdpr", edges=EdgeScope.IN_FENCE)
    inside = NameServer("fra.example.net", country="DE")
    zone = Zone(
        "eu.test",
        "fra.example.net",
        "hostmaster.eu.test",
        (inside, NameServer("nyc.example.net", country="US")),
    )
    return replace(bound, zones=(*policy.zones, zone))


@pytest.fixture
def outside(run_edge: Callable[..., Edge]) -> Edge:
    """An edge in the US that trusts the loopback to say who asks."""
    edge = run_edge(
        load=False, place=EdgePlace("US"), trusted_proxies=(ip_network("127.0.0.0/8"),), open_lookups=True
    )
    edge.load(change=_bound)
    return edge


def _from(client: str, host: str = "chat.demo.test") -> dict[str, str]:
    return {"host": host, "x-forwarded-for": client}


def test_a_redirect_is_refused(outside: Edge) -> None:
    """421 with the rule, the edge's place and a name server inside; the connection ends."""
    reply = outside.get("/v1/completions?q=1", headers=_from(GERMAN))
    assert (reply.status_code, reply.headers["connection"]) == (421, "close")
    assert reply.headers["content-type"] == "application/problem+json"
    assert "location" not in reply.headers
    problem = reply.json()
    assert (problem["code"], problem["outcome"], problem["region"]) == ("refused_edge", "refused_edge", None)
    assert problem["edge"] == {
        "country": "US",
        "operator_country": None,
        "rules": ["gdpr"],
        "inside": [{"name": "fra.example.net", "country": "DE", "ipv4": [], "ipv6": []}],
    }
    assert problem["detail"] == (
        "this edge stands in US, outside of residency rules that bind edges (gdpr); send the request to an edge inside, "
        "such as fra.example.net (DE)"
    )
    assert "gtm_decisions_total\tchat\t\trefused_edge\tredirect" in outside.counts.take()


def test_others_are_redirected(outside: Edge) -> None:
    """Clients and services that the rule does not concern are as ever; one of unknown place may be concerned."""
    assert outside.get("/", headers=_from(AMERICAN)).status_code == 307
    assert outside.get("/", headers=_from(GERMAN, "web.demo.test")).status_code == 307
    assert outside.get("/", headers=_from("203.0.113.1")).status_code == 421


def test_look_ups_are_refused_whoever_asks(outside: Edge) -> None:
    """What a caller asks about another client reveals it; in a batch, items are refused one by one."""
    reply = outside.route(service="chat", client_ip=GERMAN, explain="1")
    assert (reply.status_code, reply.headers["connection"]) == (421, "close")
    assert reply.json()["candidates"]
    items = [{"service": "chat", "client_ip": GERMAN}, {"service": "chat", "client_ip": AMERICAN}]
    with outside.client() as client:
        results = client.post("/v1/route:batch", json={"requests": items}).json()["results"]
    assert [item["outcome"] for item in results] == ["refused_edge", "served"]
    assert results[0]["status"] == 421
    targets = outside.get("/v1/beacon-targets?service=chat", headers={"x-forwarded-for": GERMAN})
    assert targets.status_code == 421


def test_an_edge_inside_answers(run_edge: Callable[..., Edge]) -> None:
    """The same from an edge in the EEA; and one that says nothing of itself is outside."""
    for place, status in ((EdgePlace("IE"), 200), (EdgePlace(), 421)):
        edge = run_edge(load=False, place=place, open_lookups=True)
        edge.load(change=_bound)
        assert edge.route(service="chat", client_ip=GERMAN).status_code == status


@pytest.mark.parametrize("expect", [b"", b"Expect: 100-continue\r\n"])
def test_a_body_is_not_asked_for(outside: Edge, expect: bytes) -> None:
    """The answer comes while not a byte of 10 MB has been sent, and nobody is told to continue."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: chat.demo.test\r\nX-Forwarded-For: %b\r\n%b" % (
        GERMAN.encode(),
        expect,
    )
    with socket.create_connection(("127.0.0.1", outside.port), timeout=20) as connection:
        connection.sendall(head + b"Content-Length: 10000000\r\n\r\n")
        received = b""
        with suppress(ConnectionResetError):
            while chunk := connection.recv(65536):
                received += chunk
    assert received.startswith(b"HTTP/1.1 421 Misdirected Request\r\n")
    assert b"connection: close\r\n" in received
