"""Name servers that stand outside of a rule: what they refuse, what they refer to, and what they answer as ever."""

from __future__ import annotations

from dataclasses import replace

import dns.flags
import dns.message
import dns.rcode
import pytest

from gtm.core.decision.router import Router
from gtm.core.decision.view import Window, view_of
from gtm.core.model.policy import EdgeScope
from gtm.core.model.services import NameServer, RecordSet, Zone
from gtm.core.policy.edges import EdgePlace
from gtm.dns.answer.answerer import Answerer
from gtm.telemetry import Counts
from tests.dns.world import (
    POLICY,
    RULES,
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

DE, US = "10.1.2.0/24", "10.2.3.0/24"
BOUND = replace(RULES[0], match=replace(RULES[0].match, services=("chat", "inner")), edges=EdgeScope.IN_FENCE)
INNER = Zone(
    "eu.demo.test",
    "ns1.eu.demo.test",
    "hostmaster.demo.test",
    (
        NameServer("ns1.eu.demo.test", ("192.0.2.54",), ("2001:db8::54",), country="DE"),
        NameServer("ns2.eu.demo.test", country="IE"),
        NameServer("ns.example.net", country="FR"),
    ),
    records=(
        RecordSet("ns2", "A", ("192.0.2.55",)),
        RecordSet("www", "A", ("192.0.2.56",)),
        RecordSet("lab", "NS", ("ns.example.net.",)),
    ),
    ttl=900,
)
SERVICE = service("inner", "eu us", hostnames=("eu.demo.test", "*.eu.demo.test"), zone="eu.demo.test")
WORLD = replace(
    POLICY,
    residency_rules=(BOUND,),
    zones=(*POLICY.zones, INNER),
    services=(*POLICY.services, SERVICE),
)
INSIDE, OUTSIDE = EdgePlace("FR"), EdgePlace("US")


@pytest.mark.rfc("8914", "4.19", "Prohibited, where this server may not answer this client")
@pytest.mark.parametrize("rdtype", ["A", "AAAA", "HTTPS", "TXT", "MX", "ANY"])
@pytest.mark.parametrize("place", [OUTSIDE, EdgePlace()])
def test_a_client_whom_the_rule_concerns_is_refused(rdtype: str, place: EdgePlace) -> None:
    """REFUSED sends the resolver to another name server, and is kept for nobody; the client's scope is told."""
    counts = Counts()
    server = answerer(policy=WORLD, edge=place, counts=counts)
    reply = both(server, query("chat.demo.test", rdtype, subnet=DE))
    assert reply.rcode() == dns.rcode.REFUSED
    assert not reply.flags & dns.flags.AA
    assert not (reply.answer)
    assert not (reply.authority)
    assert errors_of(reply) == [18]
    assert subnet_of(reply) == ("10.1.2.0", 24, 16)
    keys = counts.take()
    assert "gtm_decisions_total\tchat\t\trefused_edge\tdns" in keys
    assert not [key for key in keys if key.startswith("demand")]  # another edge will count it


def test_others_are_answered_as_ever() -> None:
    """Clients whom the rule does not concern, names of other services and records, and all of it at an edge inside."""
    plain, outside, inside = (answerer(policy=WORLD, edge=place) for place in (None, OUTSIDE, INSIDE))
    for name, rdtype, subnet in (
        ("chat.demo.test", "A", US),
        ("web.demo.test", "A", DE),
        ("www.demo.test", "A", DE),
        ("demo.test", "SOA", DE),
        ("nope.demo.test", "A", DE),
    ):
        packet = query(name, rdtype, subnet=subnet)
        assert both(outside, packet).to_text() == both(plain, packet).to_text()
    for name in (
        "chat.demo.test",
        "eu.demo.test",
        "x.eu.demo.test",
        "www.eu.demo.test",
        "a.lab.eu.demo.test",
    ):
        packet = query(name, subnet=DE)
        assert both(inside, packet).to_text() == both(plain, packet).to_text()


def test_a_warm_server_goes_on_refusing() -> None:
    """What was made ready for those who are answered is never given to those who are not."""
    server = answerer(policy=WORLD, edge=OUTSIDE)
    for _ in range(3):
        for subnet, rcode in ((US, dns.rcode.NOERROR), (DE, dns.rcode.REFUSED)):
            reply = server.udp(query("chat.demo.test", subnet=subnet), "10.3.0.53")
            assert reply is not None
            assert dns.message.from_wire(reply).rcode() == rcode


def test_an_alias_leads_to_no_half_answer() -> None:
    """An alias to a name that is refused is refused as a whole."""
    records = (*WORLD.zones[0].records, RecordSet("to-chat", "CNAME", ("chat",)))
    zones = (replace(WORLD.zones[0], records=records), *WORLD.zones[1:])
    server = answerer(policy=replace(WORLD, zones=zones), edge=OUTSIDE)
    reply = both(server, query("to-chat.demo.test", subnet=DE))
    assert (reply.rcode(), reply.answer) == (dns.rcode.REFUSED, [])
    assert addresses(both(server, query("to-chat.demo.test", subnet=US)))[0] == "chat.demo.test."


@pytest.mark.rfc(
    "1034", "4.3.2", "a zone that others answer for is referred to, with the addresses of its servers"
)
@pytest.mark.parametrize("name", ["eu.demo.test", "x.eu.demo.test", "www.eu.demo.test", "a.lab.eu.demo.test"])
@pytest.mark.parametrize("rdtype", ["A", "TXT", "SOA", "NS", "DNSKEY"])
@pytest.mark.parametrize("subnet", [DE, US])
def test_a_zone_of_its_own_is_referred_to(name: str, rdtype: str, subnet: str) -> None:
    """A server outside sends everybody to the zone's own name servers, whoever asks and for whatever in it."""
    reply = both(answerer(policy=WORLD, edge=OUTSIDE), query(name, rdtype, subnet=subnet))
    assert (reply.rcode(), reply.answer) == (dns.rcode.NOERROR, [])
    assert not reply.flags & dns.flags.AA
    (servers,) = reply.authority
    assert (servers.name.to_text(), servers.ttl) == ("eu.demo.test.", 900)
    assert {item.to_text() for item in servers} == {
        "ns1.eu.demo.test.",
        "ns2.eu.demo.test.",
        "ns.example.net.",
    }
    glue = {(item.name.to_text(), data.to_text()) for item in reply.additional for data in item}
    assert glue == {
        ("ns1.eu.demo.test.", "192.0.2.54"),
        ("ns1.eu.demo.test.", "2001:db8::54"),
        ("ns2.eu.demo.test.", "192.0.2.55"),
    }
    scope = subnet_of(reply)
    assert scope is not None
    assert scope[2] == 0  # for everyone


def test_ds_is_the_outer_zones_to_answer() -> None:
    """The zone around it answers for its DS records: there are none, and that is said with authority."""
    reply = both(answerer(policy=WORLD, edge=OUTSIDE), query("eu.demo.test", "DS"))
    assert reply.flags & dns.flags.AA
    assert reply.authority[0].name.to_text() == "demo.test."


def test_without_a_zone_around_it_there_is_nobody_to_refer() -> None:
    """A zone with a name server of unknown country is answered for, but for whom the rule concerns."""
    stray = replace(INNER, name_servers=(*INNER.name_servers[:2], NameServer("ns.example.net")))
    server = answerer(policy=replace(WORLD, zones=(*POLICY.zones, stray)), edge=OUTSIDE)
    assert both(server, query("x.eu.demo.test", subnet=DE)).rcode() == dns.rcode.REFUSED
    assert addresses(both(server, query("x.eu.demo.test", subnet=US))) == ["192.0.2.4"]
    assert addresses(both(server, query("www.eu.demo.test", subnet=DE))) == ["192.0.2.56"]


def test_names_follow_the_rules_in_force() -> None:
    """When the rule ends, the same server answers for the zone; what it remembers otherwise stays."""
    first = router(policy=WORLD, edge=OUTSIDE)
    before = Answerer(first, locate, Counts())
    same = Answerer(Router(first.view, first.ranker), locate, Counts(), before)
    assert same.names is before.names
    view = view_of(first.view.snapshot, first.view.state, Window(0.0, 0.0), edge=INSIDE)
    after = Answerer(Router(view), locate, Counts(), before)
    assert addresses(both(after, query("x.eu.demo.test", subnet=DE)))
    assert both(before, query("x.eu.demo.test", subnet=DE)).answer == []
