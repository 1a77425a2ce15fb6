"""One world, all ways: a request gets the same region, or the same refusal, by look-up, redirect, carrying, forward-auth and DNS."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import ip_address
from random import Random
from typing import Any

import dns.rcode

from gtm.core.model.policy import DataClass, EdgeScope, Policy
from gtm.core.model.services import HostName, HttpAnswer, RefusalAddress
from gtm.core.policy.edges import EdgePlace
from gtm.dns.answer.answerer import Answerer
from gtm.http.answers.routes import CarriedRequest
from gtm.http.app import EdgeOptions
from gtm.http.problems import Response
from gtm.http.requests.incoming import Incoming
from gtm.settings import LOOPBACK
from gtm.telemetry import Counts
from tests import worlds
from tests.dns.world import addresses, both, query
from tests.effort import examples
from tests.http.world import ALL_UP, Edge, locate

CLIENTS = ("81.2.69.7", "198.51.100.7", "2001:db8::7", "192.0.2.7")
FIELDS = {b"x-gtm-tenant": ("", "clinic", "shop", "nobody"), b"x-gtm-data-class": ("", "health", "payment")}
SERVICES = ("chat", "web", "split", "sticky", "records", "nowhere", "unknown")


REFUSAL = "192.0.2.250"


def _host(service: str, tenant: str | None, data_class: str | None) -> str:
    """The host name of a service that states a tenant and a data class, or leaves them open."""
    return f"{tenant or 'any'}-{data_class or 'any'}.{service}.demo.test"


def _every_way(policy: Policy) -> Policy:
    """All services are carried, and have host names for DNS, which can state nothing itself; each endpoint has an address of its own, a rule binds edges, and one is about data."""
    number = 0
    for region in policy.regions:
        endpoints = []
        for endpoint in region.endpoints:
            number += 1
            endpoints.append(replace(endpoint, ipv4=(f"198.18.0.{number}",)))
        policy = worlds.changed(policy, "regions", region.name, endpoints=tuple(endpoints))
    for service in policy.services:
        hosts = tuple(
            HostName(_host(service.name, tenant, data_class), tenant, data_class)
            for tenant in (None, "clinic", "shop")
            for data_class in (None, "health", "payment")
        )
        changes = {"hostnames": hosts, "zone": "demo.test", "refusal": RefusalAddress((REFUSAL,))}
        policy = worlds.changed(policy, "services", service.name, answer=HttpAnswer.CARRY, **changes)
    policy = worlds.changed(policy, "residency_rules", "clinic", edges=EdgeScope.IN_FENCE)
    health = worlds.rule("health", "DE", services="split sticky", data_classes="health")
    return replace(
        policy,
        residency_rules=(*policy.residency_rules, health),
        data_classes=(*policy.data_classes, DataClass("payment")),
    )


def _edge(place: EdgePlace | None) -> Edge:
    # Its clocks stand still: on a slow machine one that goes on would part from the other, until no handoff is signed.
    edge = Edge(EdgeOptions(open_lookups=True, trusted_proxies=LOOPBACK), place, boot=lambda: 0.0)
    edge.sign()
    return edge


def _told(answer: Any) -> tuple[int, str | None]:
    """Status of a refusal, or 200, and the region."""
    if isinstance(answer, CarriedRequest):
        return 200, answer.option.region
    assert isinstance(answer, Response)
    fields = dict(answer.head.headers)
    region = fields.get(b"x-gtm-region")
    status = answer.head.status
    return (200 if status == 307 else status), None if region is None else region.decode()


def _server(edge: Edge) -> Answerer:
    """What answers DNS at an edge."""
    router = edge.current.router
    assert router is not None
    return Answerer(router, locate, Counts())


def _resolved(server: Answerer, name: str, client: str, draw: float) -> tuple[int, str | None]:
    """What DNS says, in HTTP's words: it has one refusal for all that no edge may serve, and refuses by itself what another edge is to answer."""
    reply = both(server, query(name, subnet=f"{client}/{ip_address(client).max_prefixlen}"), draw=draw)
    if reply.rcode() != dns.rcode.NOERROR:
        return {dns.rcode.REFUSED: 421, dns.rcode.NXDOMAIN: 404}[reply.rcode()], None
    of = {
        address: region.name
        for region in server.router.view.snapshot.regions
        for endpoint in region.endpoints
        for address in endpoint.ipv4
    }
    found = {of.get(address) for address in addresses(reply)}
    (region,) = found
    return (451, None) if region is None else (200, region)


def test_all_ways_agree() -> None:
    """Over random requests, health and draws; an edge outside of a rule carries nothing that the rule concerns, and redirects to the same region.

    DNS is told the client's whole address, and by the host name whose request it is.
    """
    rng = Random(46)
    edges = {place: _edge(place) for place in (EdgePlace("DE"), EdgePlace("US"), EdgePlace())}
    carried = resolved = 0
    for number in range(examples(100_000, 3000)):
        if number % 50 == 0:
            up = [name for name in ALL_UP if rng.random() < 0.7]
            for edge in edges.values():
                edge.load(up, _every_way)
            servers = {place: _server(edge) for place, edge in edges.items()}
        place, edge = rng.choice(list(edges.items()))
        service, client, draw = rng.choice(SERVICES), rng.choice(CLIENTS), rng.random()
        said = {name: value.encode() for name, values in FIELDS.items() if (value := rng.choice(values))}
        edge.draw = lambda draw=draw: draw  # type: ignore[misc]
        lines = [(b"host", b"edge.test"), (b"x-forwarded-for", client.encode()), *said.items()]

        def incoming(target: str, lines: Any = tuple(lines)) -> Incoming:
            return Incoming("GET", target.encode(), lines, "127.0.0.1", "1.1")

        query = "".join(
            f"&{name}={said[field].decode()}"
            for field, name in ((b"x-gtm-tenant", "tenant"), (b"x-gtm-data-class", "data_class"))
            if field in said
        )
        looked_up = edge.app.answer(incoming(f"/v1/route?service={service}{query}"))
        assert looked_up is not None
        wanted = looked_up.head.status, json.loads(looked_up.body).get("region")
        redirected = edge.app.answer(incoming(f"/r/{service}/x"))
        authorized = edge.app.answer(incoming(f"/v1/authorize?service={service}"))
        head = incoming(f"/r/{service}/x")
        assert head.read_headers() is None
        taken, _ = edge.app.carried(head)
        where = number, place, service, client, said, draw
        assert _told(redirected) == wanted, where
        assert _told(authorized) == wanted, where
        assert _told(taken) == wanted, where
        tenant, data_class = ((said.get(field) or b"").decode() or None for field in FIELDS)
        if tenant != "nobody":  # of whom no name speaks
            by_name = 451 if wanted[0] == 503 else wanted[0], wanted[1]
            assert _resolved(servers[place], _host(service, tenant, data_class), client, draw) == by_name, (
                where
            )
            resolved += 1
        if isinstance(taken, CarriedRequest):
            carried += 1
            rules = {match.compiled.rule.name for match in taken.resolved.routing.ranking.within.matched}
            assert place == EdgePlace("DE") or not rules - {"watch"}, where
    assert carried > 100
    assert resolved > 100
