"""gtm behind Unbound, BIND 9, PowerDNS Recursor and Knot Resolver."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import dns.edns
import dns.flags
import dns.message
import dns.rcode
import pytest

from tests.dns.world import addresses
from tests.resolvers.harness import (
    AMERICAN,
    AMERICAN_TOO,
    GERMAN,
    GERMAN_TOO,
    JAPANESE,
    MANY,
    NOWHERE,
    OPTIONS,
    Authority,
    Resolver,
    authority,
    bind,
    knot,
    powerdns,
    subnet_unbound,
    unbound,
    validating_unbound,
)

pytestmark = pytest.mark.drill

Start = Callable[[Path, int], contextlib.AbstractContextManager[Resolver]]
Pair = tuple[Authority, Resolver]

PLAIN: dict[str, Start] = {"unbound": unbound, "bind": bind, "knot": knot}
SUBNETS: dict[str, Start] = {"unbound": subnet_unbound, "powerdns": powerdns}
EUROPE, AMERICA, IRELAND, REFUSAL = {"192.0.2.1", "192.0.2.2"}, {"192.0.2.4"}, {"192.0.2.3"}, {"192.0.2.250"}
FENCED = EUROPE | IRELAND | REFUSAL
"""All that a client in the EEA may ever be told of `chat`."""


@contextlib.contextmanager
def pair(start: Start, directory: Path, *down: str) -> Iterator[Pair]:
    """gtm, and a resolver in front of it."""
    with authority(directory, *down) as asked, start(directory, asked.port) as resolver:
        yield asked, resolver


@pytest.fixture(scope="module", params=PLAIN)
def plain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A resolver that tells nothing of its clients, itself in the US."""
    with pair(PLAIN[request.param], tmp_path_factory.mktemp(request.param)) as made:
        yield made


@pytest.fixture(scope="module", params=SUBNETS)
def subnets(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A resolver that tells gtm its clients' networks."""
    with pair(SUBNETS[request.param], tmp_path_factory.mktemp(f"subnets-{request.param}")) as made:
        yield made


def told(reply: dns.message.Message) -> set[str]:
    """The addresses of an answer without errors."""
    assert reply.rcode() == dns.rcode.NOERROR
    return set(addresses(reply))


# --- any resolver ------------------------------------------------------------------------------------------------


@pytest.mark.rfc("1034", "4.3.2", "resolvers find answers, empty answers, denials and zones inside zones")
def test_resolvers_resolve(plain: Pair) -> None:
    """Each kind of answer arrives as meant."""
    _, resolver = plain
    assert told(resolver.ask("chat.demo.test")) == AMERICA
    assert told(resolver.ask("sticky.demo.test", "A")) <= EUROPE | IRELAND | AMERICA
    assert told(resolver.ask("a.b.deep.demo.test")) == AMERICA
    assert told(resolver.ask("apex.test")) == AMERICA
    assert told(resolver.ask("ns1.demo.test", "AAAA")) == {"2001:db8::53"}
    assert "region=us" in str(told(resolver.ask("chat.demo.test", "TXT")))
    assert told(resolver.ask("v4.demo.test", "AAAA")) == set()
    assert told(resolver.ask("b.deep.demo.test")) == set()
    assert told(resolver.ask("sub.demo.test", "NS")) == {"ns.example.net."}
    for name in ("nope.demo.test", "x.nope.demo.test", "x.sub.demo.test"):
        denial = resolver.ask(name)
        assert denial.rcode() == dns.rcode.NXDOMAIN
        assert 0 < denial.authority[0].ttl <= 3600


@pytest.mark.rfc(
    "4592", "4.1", "resolvers find records, aliases and wildcards that are the same for everyone"
)
@pytest.mark.rfc("3597", "3", "resolvers hand on records of types that they don't know")
@pytest.mark.parametrize(
    ("name", "rdtype", "expected"),
    [
        ("www.demo.test", "A", {"192.0.2.101", "192.0.2.102"}),
        ("mail.demo.test", "MX", {"10 mx1.demo.test.", "20 mx2.example.net."}),
        ("_dns._udp.demo.test", "SRV", {"0 5 53 ns1.demo.test."}),
        ("new.demo.test", "TYPE65280", {"\\# 3 010203"}),
        ("svc.demo.test", "SVCB", {'1 www.demo.test. alpn="dot" port="853"'}),
        ("to-to-www.demo.test", "A", {"to-www.demo.test.", "www.demo.test.", "192.0.2.101", "192.0.2.102"}),
        ("to-chat.apex.test", "A", {"chat.demo.test.", "192.0.2.4"}),
        ("x.any.demo.test", "TXT", {'"any"'}),
        ("x.alias-any.demo.test", "AAAA", {"www.demo.test.", "2001:db8::101"}),
        ("x.y.wild.demo.test", "A", {"192.0.2.4"}),
    ],
)
def test_records(plain: Pair, name: str, rdtype: str, expected: set[str]) -> None:
    """Records of zones, wildcards and chains of aliases arrive as they were written."""
    found = {text.lower() for text in told(plain[1].ask(name, rdtype))}
    assert found == expected


@pytest.mark.rfc("7766", "5", "resolvers follow TC to TCP and get the whole answer")
def test_long_answers_arrive(plain: Pair) -> None:
    """An answer that needs TCP comes whole through resolvers."""
    assert len(told(plain[1].ask("big.demo.test"))) == MANY


@pytest.mark.rfc(
    "7871", "7.2.1", "without client subnets the resolver's address tailors the answer, for all behind it"
)
def test_without_subnets_the_resolver_s_place_decides(plain: Pair) -> None:
    """All clients of one resolver get one answer from its cache, and gtm is asked once."""
    asked, resolver = plain
    before = len(asked.subnets("web.demo.test"))
    answers = {
        frozenset(told(resolver.ask("web.demo.test", client=client)))
        for client in (GERMAN, AMERICAN, NOWHERE)
    }
    assert answers == {frozenset(AMERICA)}
    assert set(asked.subnets("web.demo.test")[before:]) == {None}


@pytest.mark.rfc("2308", "5", "resolvers keep denials and empty answers, and don't ask again")
def test_denials_are_kept(plain: Pair) -> None:
    """A name or type that is not there is asked for once."""
    asked, resolver = plain
    for name, rdtype in (("gone.demo.test", "A"), ("chat.demo.test", "MX")):
        first = resolver.ask(name, rdtype)
        count = len(asked.asked)
        assert resolver.ask(name, rdtype, client=GERMAN).rcode() == first.rcode()
        assert len(asked.asked) == count


@pytest.mark.rfc("7871", "7.2.1", "resolvers of several places give their own clients what holds for them")
@pytest.mark.parametrize("start", PLAIN.values(), ids=PLAIN)
def test_a_resolver_inside_the_fence(start: Start, tmp_path: Path) -> None:
    """Behind a German resolver everyone is taken for German: inside the fence."""

    def german(directory: Path, port: int) -> contextlib.AbstractContextManager[Resolver]:
        return start(directory, port, source=GERMAN)  # type: ignore[call-arg]

    with pair(german, tmp_path) as (_, resolver):
        for client in (GERMAN, AMERICAN, NOWHERE):
            assert told(resolver.ask("chat.demo.test", client=client)) == EUROPE


@pytest.mark.rfc("4343", "4.1", "resolvers that mix case against forgers (0x20) accept the answers")
def test_mixed_case(tmp_path: Path) -> None:
    """Unbound with 0x20 sees its question come back as it was, and falls back for nothing."""

    def caps(directory: Path, port: int) -> contextlib.AbstractContextManager[Resolver]:
        return unbound(directory, port, server="  use-caps-for-id: yes\n")

    with pair(caps, tmp_path) as (asked, resolver):
        for name in ("chat.demo.test", "sticky.demo.test", "big.demo.test"):
            assert told(resolver.ask(name))
        assert resolver.ask("nope.demo.test").rcode() == dns.rcode.NXDOMAIN
        names = [name for name, _ in asked.asked]
        assert any(name != name.lower() for name in names)
        # Unbound asks three times over where case does not come back. `big` comes twice: UDP, then TCP.
        assert max(Counter(name.lower() for name in names if name.lower() != "demo.test").values()) <= 2


@pytest.mark.rfc("9018", "4", "a resolver takes the cookie that it is given, and proves its address with it")
@pytest.mark.rfc("7873", "5.3", "a client sends the server cookie that it got with its next questions")
def test_cookies_of_resolvers(tmp_path: Path) -> None:
    """BIND returns gtm's cookie from the second question on, and gtm finds it good."""
    with pair(bind, tmp_path) as (asked, resolver):
        for name in ("chat.demo.test", "v4.demo.test", "nope.demo.test"):
            resolver.ask(name)
        assert OPTIONS.cookies is not None
        proven = [OPTIONS.cookies.answer(data, client)[0].proven for client, data in asked.cookies]
        assert proven[:1] == [False]
        assert proven[1:] == [True] * (len(proven) - 1) != []


def test_weights_behind_one_cache(plain: Pair, record_property: Callable[[str, object], None]) -> None:
    """A resolver without subnets gives all its clients the one region that it was told, until the TTL is over."""
    _, resolver = plain
    seen = Counter(
        frozenset(told(resolver.ask("drawn.demo.test", client=f"127.{number}.0.1")))
        for number in range(1, 41)
    )
    record_property("shares", {"+".join(sorted(key)): count for key, count in seen.items()})
    assert set(seen) <= {frozenset(EUROPE), frozenset(AMERICA)}
    assert len(seen) == 1


# --- resolvers with client subnets -------------------------------------------------------------------------------


@pytest.mark.rfc("7871", "7.2.1", "clients of one resolver get the answers of their own networks")
@pytest.mark.rfc(
    "7871", "7.3.1", "a client inside a scope is answered from the cache, one outside is asked for anew"
)
def test_caches_honour_scopes(subnets: Pair) -> None:
    """One question of gtm for each scope: the second client of a network is answered by the resolver alone."""
    asked, resolver = subnets
    for first, second, expected in ((GERMAN, GERMAN_TOO, EUROPE), (AMERICAN, AMERICAN_TOO, AMERICA)):
        network = first.rpartition(".")[0] + ".0/24"
        counted = asked.queries()
        assert told(resolver.ask("chat.demo.test", client=first)) == expected
        assert asked.subnets("chat.demo.test")[-1] == network
        assert asked.queries() > counted
        count = len(asked.subnets("chat.demo.test"))
        assert told(resolver.ask("chat.demo.test", client=second)) == expected
        assert told(resolver.ask("chat.demo.test", client=first)) == expected
        assert len(asked.subnets("chat.demo.test")) == count


@pytest.mark.rfc(
    "7871", "7.3.1", "what is cached for one network never reaches a client that it is forbidden for"
)
def test_nobody_gets_what_others_may(subnets: Pair) -> None:
    """Whatever others ask before, clients in the EEA and of unknown place are told of nothing outside their fence."""
    _, resolver = subnets
    for number in range(0, 250, 25):
        assert told(resolver.ask("chat.demo.test", client=f"127.2.{number}.7")) == AMERICA
        assert told(resolver.ask("chat.demo.test", client=f"127.1.{number}.7")) <= FENCED
        assert told(resolver.ask("chat.demo.test", client=f"127.99.{number}.7")) <= FENCED


@pytest.mark.rfc(
    "7871", "7.2.1", "an alias that comes with a tailored answer is kept for that network, with it"
)
@pytest.mark.parametrize("name", ["to-chat.apex.test", "to-to-www.demo.test", "any.name.wild.demo.test"])
def test_aliases_and_wildcards_by_network(subnets: Pair, name: str) -> None:
    """Aliases to services and wildcards of services are answered by network through caches; records are the same for all."""
    _, resolver = subnets
    static = {"192.0.2.101", "192.0.2.102"}
    for client, expected in (
        (GERMAN, EUROPE),
        (AMERICAN, AMERICA),
        (GERMAN_TOO, EUROPE),
        (AMERICAN_TOO, AMERICA),
    ):
        found = {text for text in told(resolver.ask(name, client=client)) if text[0].isdigit()}
        assert found == (static if "www" in name else expected)


@pytest.mark.rfc("7871", "7.5", "a client subnet that a resolver forwards counts as the client's")
def test_subnets_of_clients_are_forwarded(subnets: Pair) -> None:
    """A client that states a network of its own, as a forwarder does, gets that network's answer."""
    asked, resolver = subnets
    assert (
        told(resolver.ask("sticky.demo.test", client=AMERICAN, subnet="127.1.77.0/24"))
        <= EUROPE | IRELAND | AMERICA
    )
    assert asked.subnets("sticky.demo.test")[-1] == "127.1.77.0/24"
    assert told(resolver.ask("apex.test", client=AMERICAN, subnet="127.1.78.0/24")) == EUROPE
    assert told(resolver.ask("apex.test", client=GERMAN, subnet="127.2.78.0/24")) == AMERICA
    assert told(resolver.ask("apex.test", client=AMERICAN, subnet="2001:db8:1:4200::/56")) == EUROPE
    assert told(resolver.ask("apex.test", client=GERMAN, subnet="2001:db8:2:4200::/56")) == AMERICA
    assert asked.subnets("apex.test")[-1] == "2001:db8:2:4200::/56"


@pytest.mark.rfc("7871", "7.1.2", "a client that hides, with source 0, is hidden from gtm by its resolver")
def test_hidden_clients(subnets: Pair) -> None:
    """The resolver's place decides for a client that wants to stay hidden, and gtm learns nothing of its network."""
    asked, resolver = subnets
    reply = resolver.ask("v4.demo.test", client=GERMAN, subnet="0.0.0.0/0")
    assert told(reply) == AMERICA
    stated = asked.subnets("v4.demo.test")
    assert stated
    assert not any(subnet and subnet.startswith("127.1.") for subnet in stated)
    assert "country=DE" not in str(
        addresses(resolver.ask("web.demo.test", "TXT", client=GERMAN, subnet="0.0.0.0/0"))
    )


@pytest.mark.rfc("7871", "7.4", "negative answers, of scope 0, are kept for clients of every network")
def test_denials_are_kept_for_everyone(subnets: Pair) -> None:
    """A name that is not there is asked for by the first client's resolver alone, whoever asks."""
    asked, resolver = subnets
    for client in (GERMAN, AMERICAN, JAPANESE, NOWHERE):
        assert resolver.ask("gone.demo.test", client=client).rcode() == dns.rcode.NXDOMAIN
    # Once, or again by a resolver that did not wait for the answer.
    assert len(set(asked.subnets("gone.demo.test"))) == 1


@pytest.mark.rfc("7871", "7.2.1", "a refusal is kept for the network it concerns and for no other")
@pytest.mark.parametrize("start", SUBNETS.values(), ids=SUBNETS)
def test_refusals_reach_only_whom_they_concern(start: Start, tmp_path: Path) -> None:
    """With Europe down, Germans are refused and Americans served, through one cache and in any order."""
    with pair(start, tmp_path, "eu", "ie") as (_, resolver):
        for _ in range(2):
            assert told(resolver.ask("chat.demo.test", client=GERMAN)) == REFUSAL
            assert told(resolver.ask("chat.demo.test", client=AMERICAN)) == AMERICA
            assert told(resolver.ask("chat.demo.test", client=NOWHERE)) == REFUSAL


def test_weights_behind_scopes(subnets: Pair, record_property: Callable[[str, object], None]) -> None:
    """Each scope draws anew: shares come out by networks, and every answer is one of the regions planned."""
    asked, resolver = subnets
    seen = Counter(
        frozenset(told(resolver.ask("drawn.demo.test", client=f"127.{net}.{number}.1")))
        for net in (1, 2, 3)
        for number in range(20)
    )
    record_property("shares", {"+".join(sorted(key)): count for key, count in seen.items()})
    assert set(seen) <= {frozenset(EUROPE), frozenset(AMERICA)}
    assert len(set(asked.subnets("drawn.demo.test"))) == 3


# --- validation --------------------------------------------------------------------------------------------------


@pytest.mark.rfc("4035", "5.2", "a validating resolver with a trust anchor refuses a zone without signatures")
def test_the_validator_validates(tmp_path: Path) -> None:
    """The validating Unbound that other tests use takes nothing that is not signed."""
    anchor = "demo.test. IN DS 12345 13 2 " + "ab" * 32
    with (
        authority(tmp_path) as asked,
        validating_unbound(tmp_path, "demo.test", anchor, asked.port) as resolver,
    ):
        assert resolver.ask("chat.demo.test").rcode() == dns.rcode.SERVFAIL
