"""One world, all ways: a request gets the same region, or the same refusal, by look-up, redirect, carrying and forward-auth."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from gtm.core.model.policy import Policy
from gtm.core.model.services import HttpAnswer
from gtm.core.policy.edges import EdgePlace
from gtm.http.answers.routes import CarriedRequest
from gtm.http.app import EdgeOptions
from gtm.http.problems import Response
from gtm.http.requests.incoming import Incoming
from gtm.settings import LOOPBACK
from tests import worlds
from tests.effort import examples
from tests.http.world import ALL_UP, Edge

CLIENTS = ("81.2.69.7", "198.51.100.7", "2001:db8::7", "192.0.2.7")
FIELDS = {b"x-gtm-tenant": ("", "clinic", "shop", "nobody"), b"x-gtm-data-class": ("", "health")}
SERVICES = ("chat", "web", "split", "sticky", "records", "nowhere", "unknown")


def _carried(policy: Policy) -> Policy:
    for service in policy.services:
        policy = worlds.changed(policy, "services", service.name, answer=HttpAnswer.CARRY)
    return policy


def _edge(place: EdgePlace | None) -> Edge:
    edge = Edge(EdgeOptions(open_lookups=True, trusted_proxies=LOOPBACK), place)
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


def test_all_ways_agree() -> None:
    """Over random requests, health and draws; an edge outside of a rule carries nothing that the rule concerns, and redirects to the same region."""
    rng = Random(46)
    edges = {place: _edge(place) for place in (EdgePlace("DE"), EdgePlace("US"), EdgePlace())}
    carried = 0
    for number in range(examples(100_000, 3000)):
        if number % 50 == 0:
            up = [name for name in ALL_UP if rng.random() < 0.7]
            for edge in edges.values():
                edge.load(up, _carried)
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
        if isinstance(taken, CarriedRequest):
            carried += 1
            rules = {match.compiled.rule.name for match in taken.resolved.routing.ranking.within.matched}
            assert place == EdgePlace("DE") or not rules - {"watch"}, where
    assert carried > 100
