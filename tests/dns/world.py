"""A small world to ask about: four regions, services of each kind, and a GeoIP table of a few networks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

import dns.edns
import dns.message
import dns.rdatatype

from gtm.core.decision.router import Router
from gtm.core.model.policy import Jurisdiction, Policy
from gtm.core.model.regions import AdminState, Endpoint
from gtm.core.model.requests import UNKNOWN_LOCATION, Location
from gtm.core.model.services import (
    Affinity,
    HttpsRecord,
    NameServer,
    OnUnusable,
    RecordSet,
    RefusalAddress,
    Service,
    Steering,
    Zone,
)
from gtm.core.model.state import State
from gtm.core.policy.edges import EdgePlace
from gtm.dns.answer.answerer import Answerer
from gtm.telemetry import Counts
from tests import worlds

EEA = Jurisdiction("EEA", members=("DE", "FR", "IE"))
REFUSAL = RefusalAddress(("192.0.2.250",), ("2001:db8::250",))

NETWORKS = {
    "10.1.0.0/16": ("DE", 50.1, 8.7),
    "10.2.0.0/15": ("US", 39.0, -77.5),
    "10.4.7.0/26": ("IE", 53.3, -6.3),
    "10.8.0.0/16": ("JP", 35.7, 139.7),
    "2001:db8:1::/48": ("DE", 50.1, 8.7),
    "2001:db8:2::/47": ("US", 39.0, -77.5),
}
_PARSED = [(ip_network(text), text, place) for text, place in NETWORKS.items()]
RESOLVER = "10.3.0.53"
"""A resolver in the US."""


def locate(address: str | bytes) -> Location:
    """Where an address is, by the table above; elsewhere it is unknown."""
    host = ip_address(address)
    network: IPv4Network | IPv6Network
    for network, text, (country, lat, lon) in _PARSED:
        if host in network:
            return Location(
                country, lat=lat, lon=lon, network=text, prefix_length=network.prefixlen, source="geoip"
            )
    return UNKNOWN_LOCATION


EU = worlds.region(
    "eu",
    Endpoint("http://eu-1", ("192.0.2.1",), ("2001:db8::1",)),
    Endpoint("http://eu-2", ("192.0.2.2", "192.0.2.1")),
    at="de",
)
IE = worlds.region("ie", Endpoint("http://ie", ("192.0.2.3",), ("2001:db8::3",)))
US = worlds.region("us", Endpoint("http://us", ("192.0.2.4",)))
JP = worlds.region("jp", Endpoint("http://jp", cname="LB.Example.net"))
MANY = tuple(f"198.51.{block}.{host}" for block in (100, 101) for host in range(1, 101))
BIG = worlds.region("big", Endpoint("http://big", MANY), at="us")
HALF = worlds.region("half", Endpoint("http://half", MANY[:40]), at="us")
# Regions whose only addresses belong to endpoints that are down: what is up, DNS cannot name.
URL_ONLY = worlds.region(
    "url-only", Endpoint("http://url-only"), Endpoint("http://url-only-down", ("192.0.2.5",)), at="us"
)
ALIAS_ONLY = worlds.region(
    "alias-only",
    Endpoint("http://a", cname="LB.Example.net"),
    Endpoint("http://a-down", ("192.0.2.6",)),
    at="jp",
)
TLS = worlds.region(
    "tls",
    Endpoint("https://tls-1:8443", ("192.0.2.7", "192.0.2.8"), ("2001:db8::7",)),
    Endpoint("https://tls-2:8443", ("192.0.2.9",)),
    at="de",
)
ALWAYS_DOWN = {"http://url-only-down", "http://a-down"}
REGIONS = (EU, IE, US, JP, BIG, HALF, URL_ONLY, ALIAS_ONLY, TLS)
SECURE = tuple(
    replace(
        region,
        endpoints=tuple(
            replace(endpoint, url=endpoint.url.replace("http:", "https:")) for endpoint in region.endpoints
        ),
    )
    for region in REGIONS
)
"""The same over HTTPS."""


def service(name: str, members: str, **fields: object) -> Service:
    """A service with host name `<name>.demo.test` unless `fields` say otherwise."""
    usual = {"hostnames": (f"{name}.demo.test",), "zone": "demo.test", "refusal": REFUSAL}
    return worlds.service(name, members, **{**usual, **fields})


SERVICES = (
    service("chat", "eu ie us"),
    service("web", "eu us jp", ttl=300),
    service("sticky", "eu ie us", steering=Steering.WEIGHTED, affinity=Affinity.CLIENT_NETWORK),
    service("drawn", "eu us", steering=Steering.WEIGHTED),
    service("alias", "jp"),
    service("v4", "us", refusal=RefusalAddress(("192.0.2.250",))),
    service("alias-first", "jp us", steering=Steering.FAILOVER),
    service("big", "big"),
    service("half", "half"),
    service("url-only", "url-only"),
    service("stubborn", "eu us", ttl=300, on_unusable=OnUnusable.IGNORE_HEALTH),
    service("deep", "us", hostnames=("a.b.deep.demo.test",)),
    service("apex", "eu us", hostnames=("apex.test",), zone="apex.test"),
    service("wild", "eu us", hostnames=("*.wild.demo.test", "own.wild.demo.test")),
    service("few", "half", max_answers=3),
    service("tls", "tls", https_record=HttpsRecord(("h2", "h3"))),
    service("apex-alias", "alias-only", hostnames=("alias.test",), zone="alias.test"),
)
RECORDS = (
    RecordSet("www", "A", ("192.0.2.101", "192.0.2.102"), ttl=120),
    RecordSet("WWW.demo.test.", "AAAA", ("2001:db8::101",)),
    RecordSet("mail", "MX", ("10 mx1", "20 mx2.example.net.")),
    RecordSet("txt", "TXT", ('"a b" "c;d"',)),
    RecordSet("_dns._udp", "SRV", ("0 5 53 ns1",)),
    RecordSet("4", "PTR", ("www",)),
    RecordSet("_443._tcp.www", "TLSA", ("3 1 1 " + "ab" * 32,)),
    RecordSet("svc", "SVCB", ("1 www alpn=dot port=853",)),
    RecordSet("new", "TYPE65280", ("\\# 3 010203",)),
    RecordSet("a.ent", "TXT", ("leaf",)),
    RecordSet("*.any", "TXT", ("any",)),
    RecordSet("*.any", "MX", ("5 mail",)),
    RecordSet("here.any", "A", ("192.0.2.103",)),
    RecordSet("below.ent.any", "A", ("192.0.2.104",)),
    RecordSet("*.alias-any", "CNAME", ("www",)),
    RecordSet("to-www", "CNAME", ("www",), ttl=60),
    RecordSet("to-to-www", "CNAME", ("To-WWW",)),
    RecordSet("to-drawn", "CNAME", ("drawn",)),
    RecordSet("to-alias", "CNAME", ("alias",)),
    RecordSet("to-wild", "CNAME", ("x.wild",)),
    RecordSet("to-nowhere", "CNAME", ("nope",)),
    RecordSet("to-ent", "CNAME", ("ent",)),
    RecordSet("to-away", "CNAME", ("www.example.net.",)),
    RecordSet("to-lab", "CNAME", ("x.lab",)),
    RecordSet("to-failing", "CNAME", ("url-only",)),
    RecordSet("loop-1", "CNAME", ("loop-2",)),
    RecordSet("loop-2", "CNAME", ("loop-1",)),
    *(RecordSet(f"far-{number}", "CNAME", (f"far-{number + 1}",)) for number in range(9)),
    RecordSet("far-9", "A", ("192.0.2.105",)),
    RecordSet("lab", "NS", ("ns1.lab", "ns.www2", "ns.example.net."), ttl=600),
    RecordSet("lab", "DS", ("1 13 2 " + "cd" * 32,)),
    RecordSet("ns1.lab", "A", ("192.0.2.106",)),
    RecordSet("ns1.lab", "AAAA", ("2001:db8::106",)),
    RecordSet("ns.www2", "A", ("192.0.2.107",)),
    RecordSet("plain.cuts", "NS", ("ns.example.net.",)),
)
"""Of demo.test."""
ZONES = (
    Zone(
        "demo.test",
        "ns1.demo.test",
        "hostmaster.demo.test",
        (NameServer("ns1.demo.test", ("192.0.2.53",), ("2001:db8::53",)), NameServer("ns2.example.net")),
        records=RECORDS,
    ),
    Zone("sub.demo.test", "ns.example.net", "hostmaster.example.net", minimum=7200, ttl=600),
    Zone(
        "apex.test",
        "ns.example.net",
        "hostmaster.example.net",
        records=(
            RecordSet("@", "MX", ("10 mail",)),
            RecordSet("@", "TXT", ('"v=spf1 -all"',)),
            RecordSet("@", "CAA", ('0 issue "ca.example.net"',)),
            RecordSet("@", "HTTPS", ("1 . alpn=h2",)),
            RecordSet("to-chat", "CNAME", ("chat.demo.test.",)),
        ),
    ),
    Zone("alias.test", "ns.example.net", "hostmaster.example.net"),
)
RULES = (
    worlds.rule("gdpr", "EEA", services="chat", client_jurisdictions="EEA", legal_basis="GDPR chapter V"),
)
POLICY = Policy(regions=REGIONS, zones=ZONES, services=SERVICES, residency_rules=RULES, jurisdictions=(EEA,))


def router(
    *down: str, policy: Policy = POLICY, drained: Iterable[str] = (), edge: EdgePlace | None = None
) -> Router:
    """A Router of the world in which the endpoints of the regions named `down`, or so called, are down.

    `edge` is where the edge stands that answers.
    """
    for name in drained:
        policy = worlds.changed(policy, "regions", name, admin_state=AdminState.DRAINING)
    state = State(epoch=3, health=worlds.health(policy.regions, {*down, *ALWAYS_DOWN}))
    return Router(worlds.view(policy, state, shipped=(), edge=edge))


def answerer(*down: str, counts: Counts | None = None, **fields: object) -> Answerer:
    """An Answerer of `router(*down)`."""
    return Answerer(router(*down, **fields), locate, Counts() if counts is None else counts)  # type: ignore[arg-type]


def query(
    name: str, rdtype: str = "A", *, subnet: str | None = None, edns: bool = False, **fields: object
) -> bytes:
    """A query; with `subnet` (`10.1.0.0/24`) it has that client subnet."""
    options = []
    if subnet is not None:
        address, length = subnet.split("/")
        options.append(dns.edns.ECSOption(address, int(length)))
    use_edns = 0 if edns or options or fields else None
    message = dns.message.make_query(name, rdtype, use_edns=use_edns, options=options or None, **fields)  # type: ignore[arg-type]
    return message.to_wire()


def both(
    server: Answerer, packet: bytes, *, client: str = RESOLVER, tcp: bool = False, draw: float = 0.5
) -> dns.message.Message:
    """The reply, which must be the same both ways."""
    reply = server.answer(packet, client, tcp=tcp, draw=draw)
    slow = server.answer_fully(packet, client, tcp=tcp, draw=draw)
    assert reply is not None
    assert slow is not None
    message, slow_message = dns.message.from_wire(reply), dns.message.from_wire(slow)
    # Compression may lend names in the data the question's case (RFC 4343 §4.1).
    assert message.to_text().lower() == slow_message.to_text().lower()
    assert reply[:12] == slow[:12]
    assert message.id == int.from_bytes(packet[:2])
    return message


def addresses(message: dns.message.Message) -> list[str]:
    """The data of the answer section, as text."""
    return [rdata.to_text() for rrset in message.answer for rdata in rrset]


def subnet_of(message: dns.message.Message) -> tuple[str, int, int] | None:
    """Address, source and scope of the reply's client subnet."""
    for option in message.options:
        if isinstance(option, dns.edns.ECSOption):
            return option.address, option.srclen, option.scopelen
    return None


def errors_of(message: dns.message.Message) -> list[int]:
    """The extended errors of a reply."""
    return [int(option.code) for option in message.options if isinstance(option, dns.edns.EDEOption)]
