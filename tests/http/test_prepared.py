"""What is prepared or shared between clients is, byte for byte, what each would get alone."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gtm.core.decision.decide import routed
from gtm.core.decision.ranking import Ranking
from gtm.core.decision.router import Ranker, Router
from gtm.core.decision.view import View, view_of
from gtm.core.latency.doubt import Doubt, claim_of
from gtm.core.latency.table import LatencyTable
from gtm.core.model.regions import AdminState
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Member, Priority, Steering
from gtm.core.model.state import State
from gtm.core.policy.compile import compile_policy
from gtm.geoip.address import parse_address
from gtm.geoip.client import ClientAddress
from gtm.http.answers.routes import Prepared, ResolvedRequest
from gtm.http.problems import ProblemError, Response, json_response
from gtm.http.requests.lookup import Queries, parse_query
from tests import worlds as usual
from tests.core.strategies import COUNTRIES, DATA_CLASSES, SHIPPED, TENANTS, World, quick, requests, worlds

CLIENTS = tuple(
    ClientAddress.plain(text) for text in ("192.0.2.1", "198.51.100.77", "192.0.2.200", "2001:db8:7::1")
)
NETWORK = "192.0.2.0/24"
"""What the table of measured worlds knows most of."""


LEVELS = st.sets(st.sampled_from(["networks", "asns", "countries", "doubts"]))


def alone(view: View, request: Request, client: str, draw: float) -> Response:
    """The response to one look-up by a process that remembers nothing."""
    address = parse_address(client)
    routing = routed(view, request, address.packed)
    option = routing.pick(draw)
    resolved = ResolvedRequest(Router(view), routing, ClientAddress.of(address), "/v1/route", False, None)
    status, document, headers = resolved.rendered(option)
    return json_response(status, document, headers, resolved.counted_as(option, "lookup"))


def lively(world: World) -> World:
    """The same with all regions up and open, and each service's requests spread over them: most have several ways to end."""
    policy = replace(
        world.policy,
        regions=tuple(replace(region, admin_state=AdminState.ACTIVE) for region in world.policy.regions),
        services=tuple(
            replace(
                service,
                steering=Steering.WEIGHTED,
                members=tuple(Member(member.region) for member in service.members),
            )
            for service in world.policy.services
        ),
    )
    state = State(epoch=3, health=usual.health(policy.regions))
    view = view_of(compile_policy(policy, SHIPPED, revision=7), state, world.window)
    return World(policy, state, world.window, view)


def measured(world: World, location: Location, levels: set[str]) -> View:
    """A view of the world in which some of these were measured: countries, operators, networks; or doubts are known."""
    names = [region.name for region in world.policy.regions]

    def row(ms: float) -> dict[str, tuple[float, float]]:
        return {name: (ms * (place + 1), 30.0) for place, name in enumerate(names)}

    claim = claim_of(location)
    doubts = {NETWORK: Doubt(claim, doubtful=True, fastest={names[-1]: 3.0})} if claim else {}
    known: dict[str, dict[str, Any]] = {
        "networks": {"198.51.100.0/24": row(-9.0)},
        "asns": {"64500|DE": row(25.0)},
        "countries": {"DE": row(7.0), "US": row(-5.0)},
        "doubts": doubts,
    }
    table = LatencyTable(1, **{level: rows for level, rows in known.items() if level in levels})
    return view_of(world.view.snapshot, world.state, world.window, table)


def like(request: Request, world: World) -> list[Request]:
    """Requests that differ from one in a single fact each: what must not be mixed up."""
    here = request.location
    located = Location("DE", lat=50.0, lon=8.0, source="geoip", network=NETWORK, prefix_length=24)
    places = [
        *(here._replace(country=country) for country in (None, "EU", *COUNTRIES[:3])),
        *(here._replace(accuracy_km=radius) for radius in (None, 20.0, 5000.0)),
        *(here._replace(network=network) for network in (None, NETWORK, "198.51.100.0/24")),
        here._replace(anonymous=not here.anonymous),
        here._replace(doubtful=not here.doubtful),
        here._replace(source="geoip"),
        here._replace(source="override"),
        here._replace(asn=64500),
        here._replace(lat=10.0, lon=20.0),
        here._replace(lat=-30.0, lon=150.0),
        here._replace(lat=None, lon=None),
        here._replace(subnet="192.0.0.0/16", spans=("DE", "US")),
        here._replace(subnet="192.0.0.0/16", spans=("FR", "?"), country=None),
        here._replace(subnet="192.0.0.0/16", spans=("*",), country=None),
        located,
        located._replace(asn=64500),
        located._replace(network="10.0.0.0/8", subnet="192.0.0.0/16"),
        located._replace(
            network="10.0.0.0/8", subnet="192.0.0.0/16", parts=((NETWORK, claim_of(here) or ""),)
        ),
    ]
    models = sorted({model for region in world.policy.regions for model in region.models})
    return [
        request,
        *(request._replace(location=place) for place in places),
        *(request._replace(tenant=tenant) for tenant in (None, *TENANTS)),
        *(request._replace(data_class=name) for name in (None, *DATA_CLASSES)),
        *(request._replace(model=model) for model in (None, *models)),
        *(request._replace(affinity=key) for key in (None, "alice", "bob", "carol")),
        *(request._replace(priority=priority) for priority in (None, *Priority)),
        *(request._replace(service=service.name) for service in world.policy.services),
    ]


@quick(60)
@given(st.data())
def test_a_prepared_answer_is_that_of_a_process_that_remembers_nothing(data: st.DataObject) -> None:
    """Status, headers, body and what is counted, in random worlds, however clients follow each other, and after forgetting."""
    world = data.draw(worlds())
    if data.draw(st.booleans()):
        world = lively(world)
    first = data.draw(requests(world.policy))._replace(family=None)  # which nobody asks for over HTTP
    view = measured(world, first.location, data.draw(LEVELS))
    router = Router(view, Ranker(view.basis, limit=data.draw(st.sampled_from([3, 65_536]))))
    prepared = Prepared(router, room=data.draw(st.sampled_from([1, 6_000, 1 << 24])))
    # One drawn seed: 50 orders, clients and draws of hypothesis's own leave it no room for worlds.
    generator = random.Random(data.draw(st.integers(0, 1 << 30)))
    asked = like(first, world)
    generator.shuffle(asked)
    for request in [*asked, *asked[:9]]:
        client, draw = generator.choice(CLIENTS), generator.random()
        resolved = ResolvedRequest(
            router, router.routing(request, client.packed), client, "/v1/route", False, None
        )
        option = resolved.routing.pick(draw)
        found, wanted = prepared.response(resolved, option), alone(view, request, client.text, draw)
        assert (found.head, found.body) == (wanted.head, wanted.body)
        assert found.counted_as == wanted.counted_as
        choice = resolved.routing.choice
        others = {*choice.options, *choice.sticky, choice.home, choice.refused, choice.over_share}
        for other in others - {None}:  # and not the drawn one alone
            status, document, headers = resolved.rendered(other)
            rendered, found = json_response(status, document, headers), prepared.response(resolved, other)
            assert (found.head, found.body) == (rendered.head, rendered.body)


@quick(60)
@given(st.data())
def test_a_shared_ranking_is_that_of_each_who_shares_it(data: st.DataObject) -> None:
    """Fence, reasons why rules match, ways to regions and class are those of the request alone."""
    world = data.draw(worlds())
    if data.draw(st.booleans()):
        world = lively(world)
    first = data.draw(requests(world.policy))._replace(family=None)  # which nobody asks for over HTTP
    view = measured(world, first.location, data.draw(LEVELS))
    router = Router(view)
    asked = like(first, world)
    random.Random(data.draw(st.integers(0, 1 << 30))).shuffle(asked)
    for request in asked:
        assert told(router.ranker.ranking(request)) == told(routed(view, request).ranking)


def told(ranking: Ranking) -> tuple[object, ...]:
    """What a ranking says."""
    group = ranking.group
    return (
        ranking.within,
        ranking.paths,
        ranking.request.tenant,
        group.key,
        group.allowed,
        group.order,
        group.outside,
    )


FIELDS = st.sampled_from(
    [
        "service=web",
        "service=chat",
        "client_ip=192.0.2.1",
        "client_ip=192.0.2.2",
        "client_ip=2001:db8::1",
        "client_ip=::ffff:192.0.2.3",
        "client_ip=%31.2.3.4",
        "client%5Fip=1.2.3.4",
        "client_ip=",
        "client_ip=1.2.3",
        "client_ip=01.2.3.4",
        "client_ip=fe80::1%25eth0",
        "xclient_ip=1.2.3.4",
        "service=client_ip=1.2.3.4",
        "service=client_ip=5.6.7.8",
        "affinity=client_ip=5.6.7.8",
        "tenant=acme",
        "affinity=a%26client_ip=1.1.1.1",
        "explain=1",
        "explain=0",
        "host=a.test",
        "",
    ]
)


def read(reader: object, query: bytes) -> object:
    """What a reader makes of a query, or says against it."""
    try:
        return reader(query)  # type: ignore[operator]
    except ProblemError as error:
        return error.code, error.detail, error.headers


@quick(300)
@given(st.lists(st.lists(FIELDS, max_size=4).map("&".join), max_size=30), st.sampled_from([1, 1200, 1 << 20]))
def test_queries_read_before_are_read_alike(queries: list[str], room: int) -> None:
    """A memory of queries says what reading each anew says, of good ones and bad ones, in any order."""
    memory = Queries(room)
    for text in queries:
        query = text.encode()
        assert read(memory.read, query) == read(parse_query, query)
