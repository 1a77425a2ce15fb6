"""How many addresses services answer with, for how long, and what their HTTPS records say."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from ipaddress import ip_network

import dns.rcode
import dns.rdtypes.svcbbase as svcb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.core.decision.choice import pick
from gtm.core.decision.decide import decide
from gtm.core.decision.router import Router
from gtm.core.decision.view import build_view
from gtm.core.model.regions import Endpoint
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import HttpsRecord
from gtm.core.model.state import EndpointHealth, HealthStatus, Plan, State
from gtm.dns.answer.answerer import Answerer
from gtm.dns.protocol import wire
from gtm.dns.zone.content import MAX_TURNS, host_content, second_draw, turns
from gtm.dns.zone.zones import build_names, wire_name
from gtm.telemetry import Counts
from tests import worlds
from tests.dns.world import (
    HALF,
    POLICY,
    REGIONS,
    SECURE,
    SERVICES,
    addresses,
    answerer,
    both,
    errors_of,
    locate,
    query,
    router,
    service,
    subnet_of,
)
from tests.effort import examples

DE, US = "10.1.2.0/24", "10.2.3.0/24"


def _answers(made: Router, name: str, rdtype: int) -> list[list[bytes]]:
    """The data of every turn."""
    host = build_names(made.view.snapshot).hosts[wire_name(f"{name}.demo.test")]
    request = Request(name, locate("10.1.0.1"))
    option = pick(made.choices[made.ranker.ranking(request).group], request, 0.5, sheds=False)
    count = turns(made.view, host, rdtype, option)
    return [
        [record.rdata for record in host_content(made.view, host, rdtype, option, turn=turn).records]
        for turn in range(count)
    ]


def _world(count: int, most: int | None) -> Router:
    """A service of one region with so many addresses."""
    end = Endpoint("https://one", tuple(f"192.0.2.{number}" for number in range(1, count + 1)))
    chat = service("chat", "one", max_answers=most, https_record=HttpsRecord())
    return router(policy=worlds.policy(worlds.region("one", end, at="de"), *POLICY.zones, chat))


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 40), st.none() | st.integers(1, 45), st.sampled_from([wire.A, wire.HTTPS]))
def test_every_address_comes_first_as_often(count: int, most: int | None, rdtype: int) -> None:
    """Over the turns of a region, answers are as long as said, hold nothing twice, and are fair to addresses."""
    answers = _answers(_world(count, most), "chat", rdtype)
    if rdtype == wire.HTTPS:
        hints = [
            data.partition(b"\0\4" + (4 * min(count, most or count)).to_bytes(2, "big"))[2]
            for (data,) in answers
        ]
        answers = [[hint[at : at + 4] for at in range(0, len(hint), 4)] for hint in hints]
    assert {len(answer) for answer in answers} == {min(count, most or count)}
    assert all(len(set(answer)) == len(answer) for answer in answers)
    first = Counter(answer[0] for answer in answers)
    assert set(first.values()) == {1}
    if most is not None and most < count:
        given_out = Counter(address for answer in answers for address in answer)
        assert len(first) == count
        assert set(given_out.values()) == {most}
    else:
        assert len(first) == min(count, MAX_TURNS)


def test_draws_are_shared_evenly() -> None:
    """The draw that splits clients among regions turns addresses as well, without one leaning on the other."""
    drawn = [number / 4096 + 1 / 8192 for number in range(4096)]
    assert all(0 <= second_draw(draw) < 1 for draw in (*drawn, 0.0, 1 - 2**-53))
    fine = [(number + 0.5) / (1 << 20) for number in range(1 << 20)]
    for low, high in ((0.0, 0.25), (0.25, 0.5), (0.9, 1.0)):
        found = Counter(int(second_draw(draw) * 4) for draw in fine if low <= draw < high)
        assert max(found.values()) - min(found.values()) <= len(fine) / 1000


def test_answers_turn_both_ways() -> None:
    """A service of forty addresses and three to an answer gives three, other ones each time."""
    server = answerer()
    seen: set[str] = set()
    for number in range(200):
        found = addresses(both(server, query("few.demo.test"), draw=(number + 0.37) / 65536 / 200 + 0.25))
        assert len(found) == 3
        seen.update(found)
    assert seen == set(HALF.endpoints[0].ipv4)


@pytest.mark.rfc("9460", "7.1", "alpn lists the protocols")
@pytest.mark.rfc("9460", "7.2", "port says where, if not at 443")
@pytest.mark.rfc("9460", "7.3", "hints are addresses that A and AAAA give")
def test_https_records() -> None:
    """HTTPS answers with the protocols, and with port and addresses of the region chosen."""
    reply = both(answerer(), query("tls.demo.test", "HTTPS", subnet=DE), draw=0.0)
    assert addresses(reply) == [
        '1 . alpn="h2,h3" port="8443" ipv4hint="192.0.2.7,192.0.2.8,192.0.2.9" ipv6hint="2001:db8::7"'
    ]
    assert subnet_of(reply) == ("10.1.2.0", 24, 16)
    assert reply.answer[0].ttl == 30
    down = both(answerer("https://tls-1:8443"), query("tls.demo.test", "HTTPS", subnet=DE))
    assert addresses(down) == ['1 . alpn="h2,h3" port="8443" ipv4hint="192.0.2.9"']


def test_a_region_without_addresses_fails_for_https_too() -> None:
    """What DNS cannot name is SERVFAIL and never NODATA, which would take the record from everyone behind a resolver."""
    ends = Endpoint("https://bare"), Endpoint("https://down", ("192.0.2.5",))
    chat = service("chat", "bare", https_record=HttpsRecord())
    policy = worlds.policy(worlds.region("bare", *ends, at="de"), *POLICY.zones, chat)
    server = Answerer(router("https://down", policy=policy), locate, Counts())
    reply = both(server, query("chat.demo.test", "HTTPS", edns=True))
    assert (reply.rcode(), errors_of(reply)) == (dns.rcode.SERVFAIL, [0])


URLS = [(region.name, endpoint.url) for region in SECURE[:4] for endpoint in region.endpoints]
FENCED = {address for region in SECURE[:2] for end in region.endpoints for address in (*end.ipv4, *end.ipv6)}


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.sampled_from(HealthStatus), min_size=len(URLS), max_size=len(URLS)),
    st.sampled_from(["10.1.0.53", "10.4.7.1", "203.0.113.53", "2001:db8:1::53"]),
    st.none() | st.integers(1, 3),
    st.floats(0, 1, exclude_max=True),
)
def test_no_hint_crosses_the_fence(
    statuses: list[HealthStatus], client: str, most: int | None, draw: float
) -> None:
    """Whatever is up or down, whoever asks and whichever turn it is: hints are addresses inside the fence."""
    health: dict[str, dict[str, EndpointHealth]] = {}
    for (region, url), status in zip(URLS, statuses, strict=True):
        health.setdefault(region, {})[url] = EndpointHealth(status)
    chat = service("chat", "eu ie us", https_record=HttpsRecord(), max_answers=most)
    policy = replace(POLICY, regions=SECURE, services=(chat,))
    made = Router(worlds.view(policy, State(health=health), shipped=()))
    reply = both(Answerer(made, locate, Counts()), query("chat.demo.test", "HTTPS"), client=client, draw=draw)
    for record in reply.answer[0]:
        for key in (svcb.ParamKey.IPV4HINT, svcb.ParamKey.IPV6HINT):
            assert set(record.params[key].addresses if key in record.params else ()) <= FENCED


def test_a_refusal_s_https_record_says_nothing() -> None:
    """Refused clients learn no address but by A and AAAA; an empty answer would be kept for everyone behind a resolver."""
    reply = both(answerer("tls"), query("tls.demo.test", "HTTPS", subnet=DE))
    assert addresses(reply) == ["1 ."]
    assert errors_of(reply) == [0]
    assert subnet_of(reply) == ("10.1.2.0", 24, 16)


@pytest.mark.rfc("9460", "2.4.2", "at an apex, an alias is an HTTPS record in AliasMode")
def test_https_aliases() -> None:
    """A region with only a CNAME is an alias for every type, and in AliasMode at an apex."""
    region = worlds.region("cdn", Endpoint("https://cdn", cname="LB.Example.net"), at="de")
    spare = Endpoint("https://spare", ("192.0.2.5",), ("2001:db8::5",))
    apex = worlds.region("apex", region.endpoints[0], spare, at="de")
    services = (
        service("below", "cdn", https_record=HttpsRecord()),
        service("top", "apex", https_record=HttpsRecord(), hostnames=("alias.test",), zone="alias.test"),
    )
    policy = replace(POLICY, regions=(region, apex), services=services, residency_rules=())
    server = Answerer(router("https://spare", policy=policy), locate, Counts())
    assert addresses(both(server, query("below.demo.test", "HTTPS"))) == ["lb.example.net."]
    assert addresses(both(server, query("alias.test", "HTTPS"))) == ["0 lb.example.net."]


def test_without_https_record_there_is_none() -> None:
    """A service that does not ask for them has no HTTPS records."""
    reply = both(answerer(), query("web.demo.test", "HTTPS", subnet=DE))
    assert (reply.rcode(), reply.answer) == (dns.rcode.NOERROR, [])


@pytest.mark.parametrize(
    ("plan", "ttl"), [(Plan(), 300), (Plan(moving={"chat": 1.0}), 300), (Plan(moving={"web": 1.0}), 5)]
)
def test_answers_are_kept_shortly_while_traffic_moves(plan: Plan, ttl: int) -> None:
    """While the plan moves a service's traffic its answers and look-ups carry `min_ttl`, what they deny as well."""
    before = router().view
    view = build_view(before.basis, replace(before.state, plan=plan), before.window)
    server = Answerer(Router(view), locate, Counts())
    assert both(server, query("web.demo.test", subnet=US)).answer[0].ttl == ttl
    assert both(server, query("web.demo.test", "MX", subnet=US)).authority[0].ttl == min(ttl, 60)
    assert decide(view, Request("web", locate("10.2.0.1")), 0.5).ttl == ttl


def test_answers_are_kept_shortly_while_a_region_drains() -> None:
    """A member that drains shortens the TTL of its services until its deadline; `min_ttl` never lengthens one."""
    server = answerer(drained=["us"])
    assert (
        both(server, query("web.demo.test", subnet=DE)).answer[0].ttl == 300
    )  # its deadline has long passed
    made = router(drained=["us"])
    view = replace(made.view, drains={[region.name for region in REGIONS].index("us"): 0.5})
    server = Answerer(Router(view), locate, Counts())
    assert both(server, query("web.demo.test", subnet=DE)).answer[0].ttl == 5
    assert both(server, query("tls.demo.test", subnet=DE)).answer[0].ttl == 30
    services = tuple(replace(item, min_ttl=600) for item in SERVICES)
    made = router(drained=["us"], policy=replace(POLICY, services=services))
    view = replace(made.view, drains={2: 0.5})
    assert both(Answerer(Router(view), locate, Counts()), query("web.demo.test")).answer[0].ttl == 300


def test_a_client_without_a_network_is_no_example_for_those_with_one() -> None:
    """Where affinity goes by networks, others at its place stick to their region after it came, as they did before."""
    view = router().view
    here = locate("10.1.0.1")

    def placed(address: object) -> Location:
        network = str(ip_network(f"{address}/24", strict=False))
        return here._replace(network=None if network == "192.0.2.0/24" else network)

    packet = query("sticky.demo.test")
    clients = [f"198.51.{number}.7" for number in range(40)]
    draws = [0.1, 0.6, 0.9]
    server = Answerer(Router(view), placed, Counts(), draw=lambda: draws[0])
    for _ in range(3):
        for _ in range(2):  # found, and remembered
            server.udp(packet, "192.0.2.7")
            for one in clients:
                assert server.udp(packet, one) == server.answer_fully(packet, one, tcp=False, draw=draws[0])
        draws.append(draws.pop(0))
