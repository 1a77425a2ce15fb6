"""Client subnets (RFC 7871), beside what `tests/dns/protocol/test_protocol.py` holds of them."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, ip_network
from itertools import combinations
from pathlib import Path

import dns.flags
import dns.message
import dns.rcode
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.core.model.requests import Location
from gtm.core.model.services import Service
from gtm.dns.answer import clients
from gtm.dns.answer.answerer import Answerer
from gtm.geoip.reader import Locator
from gtm.telemetry import Counts
from tests.dns.protocol.test_protocol import ecs, opt, with_opt
from tests.dns.world import (
    NETWORKS,
    POLICY,
    addresses,
    answerer,
    both,
    errors_of,
    locate,
    query,
    router,
    subnet_of,
)
from tests.effort import examples
from tests.geoip.databases import write_mmdb

SERVERS = (answerer(), answerer("eu", "ie"), answerer("us"), answerer("eu", "ie", "us", "jp", "big"))
NAMES = [host for service in POLICY.services for host in service.hostnames]


def option_of(packet: bytes) -> bytes:
    """The data of the one option of a packet made by `query`."""
    return dns.message.from_wire(packet).options[0].to_wire() or b""


@st.composite
def asked(draw: st.DrawFn) -> tuple[int, bytes]:
    """Source prefix length and truncated address of a client subnet, near the networks that are known."""
    network = draw(st.sampled_from([ip_network(text) for text in (*NETWORKS, "203.0.113.0/24", "::/0")]))
    host = draw(st.integers(int(network.network_address), int(network.broadcast_address)))
    size = network.max_prefixlen
    source = draw(st.integers(0, size))
    kept = host >> size - source << size - source if source else 0
    return source, kept.to_bytes(size // 8, "big")


@pytest.mark.rfc("7871", "6", "family 1 and 2, and as few octets of address as the prefix needs, both ways")
@pytest.mark.rfc("7871", "11.2", "the full option of the query comes back, against birthday attacks")
@settings(max_examples=examples(150), deadline=None)
@given(asked(), st.sampled_from([*NAMES, "demo.test", "nope.demo.test", "example.com"]), st.booleans())
def test_the_option_comes_back_for_every_prefix(client: tuple[int, bytes], name: str, tailors: bool) -> None:
    """Family, source and address of the reply are the query's, octet by octet; no scope exceeds the family's bits."""
    source, address = client
    family = 1 if len(address) == 4 else 2
    data = ecs(family, source, 0, address[: (source + 7) // 8])
    packet = with_opt(opt(data), name=name) if tailors else query(name, "SOA", edns=True)
    reply = both(SERVERS[0], packet)
    if not tailors:
        assert not any(option.otype == 8 for option in reply.options)
        return
    returned = next(option for option in reply.options if option.otype == 8).to_wire() or b""
    assert returned[:3] + b"\0" + returned[4:] == data[4:]
    assert returned[3] <= len(address) * 8


@pytest.mark.rfc(
    "7871", "7.2.1", "a query with the option gets one back, whether or not the answer needed it"
)
@pytest.mark.parametrize(
    ("name", "rdtype"),
    [
        ("demo.test", "SOA"),
        ("demo.test", "NS"),
        ("demo.test", "ANY"),
        ("ns1.demo.test", "A"),
        ("chat.demo.test", "MX"),
        ("nope.demo.test", "A"),
        ("example.com", "A"),
        ("demo.test", "AXFR"),
        ("www.demo.test", "A"),
        ("to-www.demo.test", "A"),
        ("x.any.demo.test", "TXT"),
        ("ns1.demo.test", "AAAA"),
    ],
)
def test_answers_for_everyone_have_scope_zero(name: str, rdtype: str) -> None:
    """Answers that need no location say that they hold for everyone, the rcode whatever it is."""
    assert subnet_of(both(answerer(), query(name, rdtype, subnet="10.1.2.0/24"))) == ("10.1.2.0", 24, 0)


@pytest.mark.rfc("7871", "7.4", "referrals have scope 0, and glue ignores the client's network")
@pytest.mark.parametrize("name", ["lab.demo.test", "x.lab.demo.test", "y.plain.cuts.demo.test"])
def test_delegations_have_scope_zero(name: str) -> None:
    """A referral holds for everyone: it is the same for every client network."""
    replies = [both(answerer(), query(name, subnet=network)) for network in ("10.1.2.0/24", "10.2.3.0/24")]
    assert not replies[0].flags & dns.flags.AA
    assert [subnet_of(reply) for reply in replies] == [("10.1.2.0", 24, 0), ("10.2.3.0", 24, 0)]
    first, second = ([*map(str, reply.authority), *map(str, reply.additional)] for reply in replies)
    assert first == second != []


@pytest.mark.rfc(
    "7871", "7.2.1", "of sets in one answer the longest scope counts: an alias to a service has the service's"
)
@pytest.mark.parametrize(
    "name", ["to-chat.apex.test", "to-drawn.demo.test", "x.wild.demo.test", "to-wild.demo.test"]
)
def test_aliases_and_wildcards_of_services_are_tailored(name: str) -> None:
    """Names that lead to a service carry the scope of its answer."""
    assert subnet_of(both(answerer(), query(name, subnet="10.1.2.0/24"))) == ("10.1.2.0", 24, 16)


@pytest.mark.rfc("7871", "7.2.1", "a server fault is marked as none that holds for a network")
def test_failures_have_scope_zero() -> None:
    """SERVFAIL is tied to no network."""
    reply = both(answerer(), query("url-only.demo.test", subnet="10.1.2.0/24"))
    assert reply.rcode() == dns.rcode.SERVFAIL
    assert subnet_of(reply) == ("10.1.2.0", 24, 0)


@pytest.mark.rfc("7871", "7.2.1", "space for the OPT is reserved: a truncated answer has its option")
@pytest.mark.rfc("7871", "7.3", "the answer over TCP, after TC, has the same option as the truncated one")
def test_truncated_answers_keep_the_option() -> None:
    """TC leaves the option in place, with the scope that the whole answer has."""
    packet = query("big.demo.test", subnet="10.2.3.0/24")
    short, whole = both(answerer(), packet), both(answerer(), packet, tcp=True)
    assert short.flags & dns.flags.TC
    assert not whole.flags & dns.flags.TC
    assert subnet_of(short) == subnet_of(whole) == ("10.2.3.0", 24, 15)


@pytest.mark.rfc("7871", "7.2.1", "a refusal is an answer for the client's network, with its scope")
def test_refusals_are_for_the_network_they_concern() -> None:
    """A residency refusal is kept for the network refused and for no other."""
    reply = both(answerer("eu", "ie"), query("chat.demo.test", subnet="10.1.2.0/24"))
    assert errors_of(reply) == [18]
    assert subnet_of(reply) == ("10.1.2.0", 24, 16)


@pytest.fixture(scope="module")
def located(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Answerer]]:
    """Answerers that locate clients as edges do: by the shipped database, and by what the operator says."""
    overrides = tmp_path_factory.mktemp("geoip") / "overrides.yaml"
    overrides.write_text(
        "overrides:\n"
        + "".join(
            f"  - {{network: '{network}', country: {country}, lat: {lat}, lon: {lon}}}\n"
            for network, (country, lat, lon) in NETWORKS.items()
        )
    )
    locator = Locator(overrides=overrides)
    yield [Answerer(router(*down), locator.locate, Counts()) for down in ((), ("eu", "ie"), ("us",))]
    locator.close()


ANYWHERE = [
    ip_network(text) for text in (*NETWORKS, "10.0.0.0/8", "2.0.0.0/7", "2a00::/12", "::ffff:10.0.0.0/104")
]


@st.composite
def anywhere(draw: st.DrawFn) -> IPv4Network | IPv6Network:
    """A client subnet, also of real networks and of IPv4-mapped ones."""
    network = draw(st.sampled_from(ANYWHERE))
    host = draw(st.integers(int(network.network_address), int(network.broadcast_address)))
    return ip_network((host, draw(st.integers(1, network.max_prefixlen))), strict=False)


def answered(server: Answerer, client: IPv4Network | IPv6Network) -> tuple[dns.message.Message, int]:
    """The reply to a client subnet, and its scope."""
    reply = both(server, query("chat.demo.test", subnet=str(client)))
    returned = subnet_of(reply)
    assert returned is not None
    return reply, returned[2]


@pytest.mark.rfc(
    "7871", "7.2.1", "no longer tailored answer lies within a shorter one, whatever is asked first"
)
@settings(max_examples=examples(40), deadline=None)
@given(st.lists(anywhere(), min_size=2, max_size=6))
def test_tailored_answers_never_overlap(
    located: list[Answerer], clients: list[IPv4Network | IPv6Network]
) -> None:
    """Of the networks that answers are for, none holds another, so that the order of queries changes nothing."""
    scopes = {
        ip_network((client.network_address, answered(located[0], client)[1]), strict=False)
        for client in clients
    }
    by_family = [[scope for scope in scopes if scope.version == version] for version in (4, 6)]
    for family in by_family:
        assert not any(one.overlaps(other) for one, other in combinations(family, 2))


@pytest.mark.rfc("7871", "7.3.1", "whoever is inside the scope of an answer would get that answer")
@settings(max_examples=examples(150), deadline=None)
@given(anywhere(), st.integers(0, 2**128 - 1), st.integers(0, 128), st.integers(0, 2))
def test_caches_give_nobody_what_they_would_not_have_got(
    located: list[Answerer], client: IPv4Network | IPv6Network, other: int, length: int, number: int
) -> None:
    """What a resolver caches for a scope is what any client in it would have got, with a network of any length.

    A scope longer than the source means that the network asked about is too wide to tell; a resolver keeps such an answer
    for questions of the same length alone.
    """
    reply, scope = answered(located[number], client)
    if scope > client.prefixlen:
        return
    bits = client.max_prefixlen
    kept = ip_network((client.network_address, scope), strict=False)
    inside = int(kept.network_address) | other % (1 << bits - scope)
    same, _ = answered(located[number], ip_network((inside, max(scope, min(length, bits))), strict=False))
    assert (addresses(same), same.rcode()) == (addresses(reply), reply.rcode())


HIDDEN = {"8.8.8.128/25": {"is_anonymous": True}}


@pytest.mark.rfc("7871", "7.3.1", "an answer for a network suits every part of it, anonymising networks too")
@pytest.mark.parametrize(
    ("client", "region"),
    [
        ("8.8.8.0/24", "eea"),  # half of it is anonymous
        ("8.8.8.0/25", "us"),
        ("8.8.8.128/25", "eea"),
        ("10.0.0.0/13", "eea"),  # DE, US and IE
        ("10.2.0.0/15", "us"),
        ("10.8.0.0/15", "eea"),  # JP and nobody knows
        ("8.0.0.0/6", "eea"),
    ],
)
def test_answers_suit_every_part_of_a_subnet(tmp_path: Path, client: str, region: str) -> None:
    """Whatever is in a client's network counts, not what its first address is."""
    overrides = tmp_path / "overrides.yaml"
    networks = [(network, place) for network, (place, _, _) in NETWORKS.items()]
    overrides.write_text(
        "overrides:\n" + "".join(f"  - {{network: '{text}', country: {place}}}\n" for text, place in networks)
    )
    hidden = write_mmdb(tmp_path / "hidden.mmdb", HIDDEN, kind="GeoIP2-Anonymous-IP")
    locator = Locator(overrides=overrides, anonymous=hidden)
    reply, _ = answered(Answerer(router(), locator.locate, Counts()), ip_network(client))
    inside = set(addresses(reply)) <= {"192.0.2.1", "192.0.2.2", "192.0.2.3"}
    assert inside if region == "eea" else addresses(reply) == ["192.0.2.4"]
    locator.close()


def answered_alike(service: Service, family: str) -> bool:
    """Whether all regions of a service have addresses of a family or an alias, or none has."""
    regions = {region.name: region for region in POLICY.regions}
    has = {
        any(getattr(endpoint, family) or endpoint.cname for endpoint in regions[member.region].endpoints)
        for member in service.members
    }
    return len(has) == 1


@pytest.mark.rfc(
    "7871", "7.4", "a name and type has positive answers or negative ones, if its regions are alike"
)
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(("rdtype", "family"), [("A", "ipv4"), ("AAAA", "ipv6")])
def test_positive_and_negative_answers_are_not_mixed(rdtype: str, family: str, server: Answerer) -> None:
    """Where all regions have a family, nobody gets NODATA for it, down or refused: caches would give it to others."""
    networks = [*NETWORKS, "203.0.113.0/24", "2001:db8:ffff::/48"]
    services = [service for service in POLICY.services if answered_alike(service, family)]
    assert len(services) >= len(POLICY.services) // 2
    for name in [host for service in services for host in service.hostnames]:
        replies = [both(server, query(name, rdtype, subnet=network)) for network in networks]
        empty = {reply.rcode() == dns.rcode.NOERROR and not reply.answer for reply in replies}
        assert len(empty) == 1, name
        assert all(reply.rcode() != dns.rcode.NXDOMAIN for reply in replies)


@pytest.mark.rfc("7871", "7.5", "a query is never refused for giving 0 address bits")
@pytest.mark.rfc("7871", "7.1.2", "source 0 of either family, over any transport, is well-formed")
@pytest.mark.parametrize("family", [1, 2])
@pytest.mark.parametrize("client", ["10.1.0.53", "2001:db8:1::53"])
def test_source_zero_of_either_family(family: int, client: str) -> None:
    """The family of an option without an address says nothing: the resolver's address decides."""
    for tcp in (False, True):
        reply = both(answerer(), with_opt(opt(ecs(family, 0, 0, b""))), client=client, tcp=tcp)
        assert addresses(reply) == ["192.0.2.1", "192.0.2.2"]
        assert subnet_of(reply) == ("0.0.0.0" if family == 1 else "::", 0, 0)


@pytest.mark.rfc("7871", "6", "an option is well-formed with every source prefix length of its family")
@pytest.mark.parametrize(("family", "bits"), [(1, 32), (2, 128)])
def test_every_length_is_answered(family: int, bits: int) -> None:
    """No length of prefix is an error in itself."""
    for source in range(bits + 1):
        data = ecs(family, source, 0, bytes((source + 7) // 8))
        assert both(answerer(), with_opt(opt(data))).rcode() == dns.rcode.NOERROR


@pytest.mark.rfc(
    "7871", "6", "IPv4-mapped IPv6 clients are located as IPv4, with a scope in their own family"
)
def test_mapped_addresses_are_located() -> None:
    """A client subnet inside ::ffff:0:0/96 is located, and its scope is that IPv4 network, mapped."""

    def mapped(address: str | bytes) -> Location:
        plain = (
            address[12:]
            if isinstance(address, bytes) and address[:12] == bytes(10) + b"\xff\xff"
            else address
        )
        return locate(plain)

    reply = both(
        Answerer(router(), mapped, Counts()),
        with_opt(opt(ecs(2, 120, 0, bytes(10) + b"\xff\xff\x0a\1\2"))),
    )
    assert addresses(reply) == ["192.0.2.1", "192.0.2.2"]
    assert subnet_of(reply) == ("::ffff:10.1.2.0", 120, 112)


@pytest.mark.rfc("7871", "9", "DNSSEC OK neither removes nor changes the option")
@pytest.mark.rfc("7871", "7.2.1", "both transports give one scope")
def test_the_option_depends_on_no_flag_and_no_transport() -> None:
    """DO, other options, payload sizes and transports leave the option as it is."""
    client = ecs(1, 24, 0, b"\x0a\1\2")
    for tcp in (False, True):
        for flags in (0, 0x8000):
            for more in (b"", bytes((0, 12, 0, 3, 0, 0, 0))):
                packet = with_opt(opt(client + more, flags=flags, size=4096))
                assert subnet_of(both(answerer(), packet, tcp=tcp)) == ("10.1.2.0", 24, 16)


@pytest.mark.rfc(
    "7871", "10", "a private address that nobody located is an unknown place, for that network alone"
)
def test_private_addresses_are_like_others() -> None:
    """Operators may locate private networks (their own resolvers send these); one not located has every rule against it."""
    reply = both(answerer(), query("chat.demo.test", subnet="192.168.7.0/24"))
    assert addresses(reply) == ["192.0.2.1", "192.0.2.2"]
    assert subnet_of(reply) == ("192.168.7.0", 24, 24)


@pytest.mark.rfc("7871", "11.3", "what is remembered of client subnets is bounded, whatever resolvers send")
def test_memory_of_subnets_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subnets made up by the million displace what is remembered, and grow nothing."""
    monkeypatch.setattr(clients, "LIMIT", 4)
    server = answerer()
    for third in range(50):
        server.answer(
            query("chat.demo.test", subnet=f"10.1.{third}.0/24"), f"10.3.0.{third}", tcp=False, draw=0.5
        )
        assert len(server.clients.records) <= 4
        assert len(server.clients.sources) <= 4


def test_names_are_of_the_world() -> None:
    """The names above are there, so that nothing is held of none."""
    assert len(NAMES) > 10
    assert option_of(query("chat.demo.test", subnet="10.1.2.0/24")) == bytes((0, 1, 24, 0, 10, 1, 2))
