"""A and AAAA of one name: one decision, or with `families: separate` a pool for each (docs/dns.md#two-families)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import dns.message
import dns.rcode
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.decision.decide import decide
from gtm.core.decision.router import Router
from gtm.core.model.policy import Policy
from gtm.core.model.problems import PolicyError
from gtm.core.model.regions import AddressFamily, Endpoint
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Affinity, Families, HttpsRecord, Steering
from gtm.core.model.state import State
from gtm.core.policy.compile import compile_policy
from gtm.dns.answer.answerer import Answerer
from gtm.telemetry import Counts
from tests import worlds
from tests.core.strategies import quick
from tests.dns.world import EEA, POLICY, REFUSAL, addresses, both, locate, query, service

TYPES = {"A": AddressFamily.IPV4, "AAAA": AddressFamily.IPV6}
SEPARATE = Families.SEPARATE
_TTL = 300


@dataclass(frozen=True)
class Place:
    """An endpoint: what it has of each family, and whether it is up."""

    ipv4: bool
    ipv6: bool
    up: bool

    def has(self, rdtype: str) -> bool:
        return self.ipv4 if rdtype == "A" else self.ipv6


World = list[list[Place]]
"""Members in the order of failover, with their endpoints."""


def _answer(world: World, families: Families, rdtype: str) -> set[tuple[int, int]] | str:
    """What the documents promise: member and endpoint of each address, `empty`, or `refused`."""
    pool = [number for number, member in enumerate(world) if any(place.has(rdtype) for place in member)]
    by_itself = families is SEPARATE and bool(pool)
    for number, member in enumerate(world):
        up = [place.up and (place.has(rdtype) or not by_itself) for place in member]
        if any(up):
            found = {(number, index) for index, place in enumerate(member) if place.up and place.has(rdtype)}
            return found or "empty"
    return "refused"


def _address(rdtype: str, number: int, index: int) -> str:
    return f"192.0.2.{10 * number + index + 1}" if rdtype == "A" else f"2001:db8::{10 * number + index + 1}"


def _server(world: World, families: Families, **fields: object) -> Answerer:
    regions = tuple(
        worlds.region(
            f"r{number}",
            *(
                Endpoint(
                    f"https://r{number}-{index}",
                    (_address("A", number, index),) if place.ipv4 else (),
                    (_address("AAAA", number, index),) if place.ipv6 else (),
                )
                for index, place in enumerate(member)
            ),
            at="de",
        )
        for number, member in enumerate(world)
    )
    members = " ".join(region.name for region in regions)
    usual = {"steering": Steering.FAILOVER, "ttl": _TTL}
    made = service("s", members, families=families, **{**usual, **fields})
    zones = (replace(POLICY.zones[0], records=(), minimum=86_400, ttl=86_400),)
    policy = Policy(regions=regions, services=(made,), zones=zones)
    down = {
        f"https://r{number}-{index}"
        for number, member in enumerate(world)
        for index, place in enumerate(member)
        if not place.up
    }
    state = State(health=worlds.health(regions, down))
    return Answerer(Router(worlds.view(policy, state, shipped=())), locate, Counts())


def _places() -> st.SearchStrategy[Place]:
    kinds = st.sampled_from([(True, True), (True, False), (False, True)])
    return st.builds(lambda kind, up: Place(*kind, up), kinds, st.booleans())


_WORLDS = st.lists(st.lists(_places(), min_size=1, max_size=2), min_size=1, max_size=3)


def _said(reply: dns.message.Message, rdtype: str) -> set[str] | str:
    assert reply.rcode() == dns.rcode.NOERROR
    found = set(addresses(reply))
    if found & {*REFUSAL.ipv4, *REFUSAL.ipv6}:
        return "refused"
    if not found:
        assert reply.authority[0].ttl == _TTL, "an empty answer is kept no longer than another"
        return "empty"
    assert all(rrset.rdtype == dns.rdatatype.from_text(rdtype) for rrset in reply.answer)
    return found


@quick(150)
@given(_WORLDS, st.sampled_from(Families))
def test_each_type_is_answered_as_the_documents_say(world: World, families: Families) -> None:
    """Together: what the one region chosen has. Separate: the first member that is up with such an address."""
    server = _server(world, families)
    for rdtype in TYPES:
        expected = _answer(world, families, rdtype)
        if not isinstance(expected, str):
            expected = {_address(rdtype, *place) for place in expected}
        assert _said(both(server, query("s.demo.test", rdtype)), rdtype) == expected


@quick(50)
@given(_WORLDS, st.sampled_from(Families))
def test_http_asks_for_no_family(world: World, families: Families) -> None:
    """Look-ups and redirects go to the first member that is up, whatever addresses it has."""
    view = _server(world, families).router.view
    up = [f"r{number}" for number, member in enumerate(world) if any(place.up for place in member)]
    assert decide(view, Request("s"), 0.0).region == (up[0] if up else None)


FOUR, SIX, DUAL = Place(True, False, up=True), Place(False, True, up=True), Place(True, True, up=True)


def test_both_families_of_a_network_are_of_one_region_by_affinity() -> None:
    """Whatever is drawn for each question (docs/decisions/0051-draws-of-two-families.md); without affinity they may be of two."""

    def placed(address: object) -> Location:
        return Location("DE", 52.5, 13.4, network=f"{address}/32", prefix_length=32, source="geoip")

    def regions(affinity: Affinity, number: int) -> list[int]:
        view = _server(
            [[DUAL], [DUAL]], Families.TOGETHER, steering=Steering.WEIGHTED, affinity=affinity
        ).router.view
        server = Answerer(Router(view), placed, Counts())
        client = f"198.51.100.{number}"
        found = []
        for rdtype, draw in (("A", 0.1), ("AAAA", 0.9)):
            [given] = addresses(both(server, query("s.demo.test", rdtype), client=client, draw=draw))
            found.append([_address(rdtype, region, 0) for region in (0, 1)].index(given))
        return found

    stuck = [regions(Affinity.CLIENT_NETWORK, number) for number in range(20)]
    assert all(ipv4 == ipv6 for ipv4, ipv6 in stuck)
    assert {ipv4 for ipv4, _ in stuck} == {0, 1}
    assert regions(Affinity.NONE, 0) == [0, 1]


def test_two_pools_of_one_name() -> None:
    """IPv4 servers in some places and IPv6 servers in others: every query is answered with the nearest of its family.

    gdnsd/gdnsd issue 145: a name of two pools, since not every place had both families; one of them was left without answer.
    """
    server = _server([[FOUR], [SIX], [DUAL]], SEPARATE, steering=Steering.WEIGHTED)
    for draw in (0.0, 0.3, 0.6, 0.9):
        for rdtype in TYPES:
            reply = both(server, query("s.demo.test", rdtype), draw=draw)
            assert len(addresses(reply)) == 1
    first = both(server, query("s.demo.test", "A"), draw=0.9)
    assert addresses(first) == [_address("A", 2, 0)]


def test_a_family_fails_over_by_itself() -> None:
    """IPv6 moves on when its own addresses die, and leaves IPv4 where it is.

    F5Networks/f5-cloud-failover-extension issue 76: IPv6 addresses failed over only where IPv4 addresses did.
    """
    dead_six = [FOUR, replace(SIX, up=False)]
    server = _server([dead_six, [DUAL]], SEPARATE)
    assert addresses(both(server, query("s.demo.test", "A"))) == [_address("A", 0, 0)]
    assert addresses(both(server, query("s.demo.test", "AAAA"))) == [_address("AAAA", 1, 0)]


def test_a_family_never_leaves_its_fence() -> None:
    """Where the fence has no IPv6 region, AAAA is refused inside of it, though one outside has addresses."""
    regions = (
        worlds.region("eu", Endpoint("https://eu", ("192.0.2.1",)), at="de"),
        worlds.region("us", Endpoint("https://us", ("192.0.2.2",), ("2001:db8::2",))),
    )
    made = service("s", "eu us", families=SEPARATE)
    rules = (worlds.rule("gdpr", "EEA", client_jurisdictions="EEA"),)
    policy = Policy(
        regions=regions, services=(made,), zones=POLICY.zones[:1], residency_rules=rules, jurisdictions=(EEA,)
    )
    state = State(health=worlds.health(regions, set()))
    server = Answerer(Router(worlds.view(policy, state, shipped=())), locate, Counts())
    here, there = "10.1.2.0/24", "10.2.3.0/24"
    assert addresses(both(server, query("s.demo.test", "A", subnet=here))) == ["192.0.2.1"]
    assert addresses(both(server, query("s.demo.test", "AAAA", subnet=here))) == list(REFUSAL.ipv6)
    assert addresses(both(server, query("s.demo.test", "AAAA", subnet=there))) == ["2001:db8::2"]


def test_services_that_differ_in_their_families_are_decided_apart() -> None:
    """What is remembered of one service is not another's that has the same members in one pool."""
    regions = (
        worlds.region("de", Endpoint("https://de", ("192.0.2.1",))),
        worlds.region("us", Endpoint("https://us", (), ("2001:db8::2",))),
    )
    usual = {"steering": Steering.FAILOVER}
    made = (service("one", "de us", **usual), service("two", "de us", families=SEPARATE, **usual))
    policy = Policy(regions=regions, services=made, zones=POLICY.zones[:1])
    state = State(health=worlds.health(regions, set()))
    server = Answerer(Router(worlds.view(policy, state, shipped=())), locate, Counts())
    assert addresses(both(server, query("one.demo.test", "AAAA"))) == []
    assert addresses(both(server, query("two.demo.test", "AAAA"))) == ["2001:db8::2"]
    assert addresses(both(server, query("one.demo.test", "AAAA"))) == []


def test_an_https_record_of_two_pools_names_no_addresses() -> None:
    """One record would have to name both families, which are decided apart: A and AAAA say them."""
    server = _server([[FOUR], [SIX]], SEPARATE, https_record=HttpsRecord())
    assert addresses(both(server, query("s.demo.test", "HTTPS"))) == ['1 . alpn="h2"']


def test_an_alias_has_no_place_in_two_pools() -> None:
    """A CNAME answers both types, so that a member of a service with two pools has none."""
    region = worlds.region(
        "de", Endpoint("https://de", ("192.0.2.1",)), Endpoint("https://b", cname="lb.test")
    )
    policy = Policy(
        regions=(region,), services=(service("s", "de", families=SEPARATE),), zones=POLICY.zones[:1]
    )
    with pytest.raises(PolicyError, match=r"`lb\.test`.*answers A and AAAA alike"):
        compile_policy(policy, ())
