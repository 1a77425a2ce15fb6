"""Dead addresses leave answers: DNS against a model written from docs/concepts.md#addresses, over worlds of regions, addresses and verdicts."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import dns.message
import pytest

from gtm.core.decision.decide import decide
from gtm.core.decision.explain import answer, lines
from gtm.core.decision.router import Router
from gtm.core.health.addresses import answered, lost_families
from gtm.core.model.policy import Policy
from gtm.core.model.regions import Endpoint
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Member, Steering, Zone
from gtm.core.model.state import EndpointHealth, HealthStatus, State
from gtm.dns.answer.answerer import Answerer
from gtm.telemetry import Counts
from tests import worlds
from tests.dns.world import REFUSAL, addresses, both, errors_of, locate, query, service

FAMILIES = {"ipv4": "A", "ipv6": "AAAA"}
REFUSED = {"ipv4": "192.0.2.250", "ipv6": "2001:db8::250"}
UP, DOWN = HealthStatus.UP, HealthStatus.DOWN
Told = dict[tuple[str, str], HealthStatus]


@dataclass(frozen=True)
class World:
    """Regions in the order of failover with their endpoints; the URLs that are up, and what is known of addresses (by URL and address)."""

    regions: Mapping[str, tuple[Endpoint, ...]]
    up: frozenset[str]
    known: Told = field(default_factory=dict)

    def alive(self, region: str, family: str) -> list[str]:
        """The addresses that the docs let DNS answer: by their own verdict, or else by their URL's."""
        found = []
        for endpoint in self.regions[region]:
            by_url = UP if endpoint.url in self.up else DOWN
            given = getattr(endpoint, family)
            found += [text for text in given if self.known.get((endpoint.url, text), by_url) is UP]
        return list(dict.fromkeys(found))

    def lost(self, region: str, family: str) -> bool:
        """Whether a region is down for a family by its addresses: none is left, and one is known to be down, or one of the other family to be up."""

        def told(of: str) -> set[HealthStatus]:
            given = {(one.url, text) for one in self.regions[region] for text in getattr(one, of)}
            return {verdict for one, verdict in self.known.items() if one in given}

        (other,) = FAMILIES.keys() - {family}
        if self.alive(region, family) or not any(getattr(one, family) for one in self.regions[region]):
            return False
        return DOWN in told(family) or UP in told(other)

    def chosen(self) -> str | None:
        """The region of a decision: the first whole one, or else the first with anything left."""
        usable = [name for name in self.regions if any(self.alive(name, family) for family in FAMILIES)]
        whole = [name for name in usable if not any(self.lost(name, family) for family in FAMILIES)]
        return next(iter(whole or usable), None)

    def answer(self, family: str) -> list[str]:
        """What a question of a family gets; nothing: the region chosen never had an address to lose."""
        region = self.chosen()
        if region is None or self.lost(region, family):
            return [REFUSED[family]]
        return self.alive(region, family)

    def router(self, **changes: object) -> Router:
        """The same world, as production knows it."""
        policy = Policy(
            regions=tuple(worlds.region(name, *ends, at="de") for name, ends in self.regions.items()),
            zones=(Zone("demo.test", "ns.example.net", "hostmaster.example.net"),),
            services=(service("web", " ".join(self.regions), steering=Steering.FAILOVER, **changes),),
        )
        health = {
            name: {one.url: EndpointHealth(UP if one.url in self.up else DOWN) for one in ends}
            for name, ends in self.regions.items()
        }
        told: dict[str, dict[str, dict[str, EndpointHealth]]] = {family: {} for family in FAMILIES}
        for name, ends in self.regions.items():
            for one in ends:
                for family in FAMILIES:
                    for text in getattr(one, family):
                        if (one.url, text) in self.known:
                            verdict = EndpointHealth(self.known[one.url, text], detail="connection refused")
                            told[family].setdefault(name, {})[f"{text} {one.url}"] = verdict
        return Router(worlds.view(policy, State(epoch=1, health=health, addresses=told), shipped=()))

    def ask(self, family: str, **changes: object) -> dns.message.Message:
        """The reply of production, the same by the short way and by the full one."""
        server = Answerer(self.router(**changes), locate, Counts())
        return both(server, query("web.demo.test", FAMILIES[family], edns=True))


def drawn(seed: int) -> World:
    """A world by chance: up to three regions of up to two endpoints with up to two addresses of each family."""
    rng = random.Random(seed)
    regions = {}
    number = 0
    for region in ("one", "two", "three")[: rng.randint(1, 3)]:
        ends = []
        for place in range(rng.randint(1, 2)):
            texts: dict[str, tuple[str, ...]] = {}
            for family, form in (("ipv4", "192.0.2.{}"), ("ipv6", "2001:db8::{}")):
                many = rng.randint(0, 2) if family == "ipv6" else rng.randint(1, 2)
                texts[family] = tuple(form.format(number + step + 1) for step in range(many))
                number += many
            ends.append(Endpoint(f"http://{region}-{place}.test", texts["ipv4"], texts["ipv6"]))
        regions[region] = tuple(ends)
    every = [one for ends in regions.values() for one in ends]
    known = {
        (one.url, text): verdict
        for one in every
        for text in (*one.ipv4, *one.ipv6)
        if (verdict := rng.choice((UP, DOWN, None))) is not None
    }
    return World(regions, frozenset(one.url for one in every if rng.random() < 0.7), known)


def test_answers_are_those_of_the_model() -> None:
    """In each world and family: the addresses of one region that are left, and never one that is known to be down."""
    for seed in range(150):
        world = drawn(seed)
        for family in FAMILIES:
            found = addresses(world.ask(family))
            assert sorted(found) == sorted(world.answer(family)), (seed, family)
            dead = {text for (_, text), verdict in world.known.items() if verdict is DOWN}
            assert dead.isdisjoint(found), (seed, family)


def test_what_is_not_known_changes_nothing() -> None:
    """Until an address was up, its URL's verdict stands: the answers of an upgrade are those of before."""
    for seed in range(60):
        world = replace(drawn(seed), known={})
        for family in FAMILIES:
            up = [name for name, ends in world.regions.items() if any(one.url in world.up for one in ends)]
            given = [text for one in world.regions[up[0]] if one.url in world.up for text in getattr(one, family)] if up else [REFUSED[family]]  # fmt: skip
            assert sorted(addresses(world.ask(family))) == sorted(given), (seed, family)


EU = (Endpoint("http://eu.test:9999", ("192.0.2.1",), ("2001:db8::1",)),)
US = (Endpoint("http://us.test:9999", ("192.0.2.2",), ("2001:db8::2",)),)
BOTH = frozenset({"http://eu.test:9999", "http://us.test:9999"})
V4_DEAD: Told = {("http://eu.test:9999", "192.0.2.1"): DOWN, ("http://eu.test:9999", "2001:db8::1"): UP}


@pytest.mark.parametrize("family", FAMILIES)
def test_both_families_follow_one_region(family: str) -> None:
    """A region that is down for a family is left by both, while another is whole: one decision for a client."""
    found = addresses(World({"eu": EU, "us": US}, BOTH, V4_DEAD).ask(family))
    assert found == [{"ipv4": "192.0.2.2", "ipv6": "2001:db8::2"}[family]]


def test_the_last_region_keeps_the_family_that_it_has() -> None:
    """With no other region, the family that is left is answered, and of the other the refusal address says that nobody is there."""
    world = World({"eu": EU}, BOTH, V4_DEAD)
    assert addresses(world.ask("ipv6")) == ["2001:db8::1"]
    reply = world.ask("ipv4", ttl=300)
    assert addresses(reply) == [REFUSED["ipv4"]]
    assert errors_of(reply) == [0]
    assert reply.answer[0].ttl <= 30
    assert REFUSAL.ipv4 == (REFUSED["ipv4"],)


def test_explanations_say_that_addresses_are_down() -> None:
    """The region that its URL says is up, and DNS leaves, has a reason of its own; HTTP goes by the URL."""
    router = World({"eu": EU, "us": US}, BOTH, V4_DEAD).router()
    request = next(iter(Answerer(router, locate, Counts()).names.hosts.values())).request(
        locate("10.1.0.1"), 1
    )  # type: ignore[union-attr]
    in_dns, in_http = router.in_dns.decide(request, 0.5), router.decide(request, 0.5)
    assert (in_dns.region, in_http.region) == ("us", "eu")
    assert [one.excluded for one in in_dns.candidates if one.region == "eu"] == ["addresses_down"]
    said = lines(router.in_dns.view, request, in_dns)
    assert "eu: its addresses of a family that DNS gives out are all down" in said
    trace = answer(router.in_dns.view, request, in_dns, client=None, endpoint=None, full=True)
    assert trace["candidates"][0]["why"].endswith("are all down (connection refused)")


def test_a_url_that_is_the_services_own_name() -> None:
    """All URLs resolve to what the service answers, so they die with the first region; its addresses tell the regions apart."""
    known = {**V4_DEAD, ("http://eu.test:9999", "2001:db8::1"): DOWN}
    known |= {("http://us.test:9999", "192.0.2.2"): UP, ("http://us.test:9999", "2001:db8::2"): UP}
    world = World({"eu": EU, "us": US}, frozenset(), known)
    assert addresses(world.ask("ipv4")) == ["192.0.2.2"]


def test_caches_that_are_down_over_one_family_leave_rotation() -> None:
    """apache/trafficcontrol issue 923: caches down over IPv6 stayed in rotation, since their health was checked over IPv4 alone."""
    pool = tuple(
        Endpoint(f"http://cache{number}.test", (f"192.0.2.{number}",), (f"2001:db8::{number}",))
        for number in (1, 2)
    )
    urls = frozenset(one.url for one in pool)
    world = World({"pool": pool}, urls, {("http://cache1.test", "2001:db8::1"): DOWN})
    assert addresses(world.ask("ipv6")) == ["2001:db8::2"]
    assert sorted(addresses(world.ask("ipv4"))) == ["192.0.2.1", "192.0.2.2"]


def test_one_of_many_addresses_of_a_name_fails_alone() -> None:
    """envoyproxy/envoy issue 32088: of a host name with five addresses one fails; the other four go on being given out."""
    name = Endpoint("http://host.test", tuple(f"192.0.2.{number}" for number in range(1, 6)))
    world = World({"only": (name,)}, frozenset({name.url}), {(name.url, "192.0.2.3"): DOWN})
    assert sorted(addresses(world.ask("ipv4"))) == ["192.0.2.1", "192.0.2.2", "192.0.2.4", "192.0.2.5"]


HALF_SEEN: Told = {
    ("http://eu.test:9999", "192.0.2.1"): DOWN,
    ("http://eu.test:9999", "192.0.2.3"): UP,
}
"""As of an edge without IPv6, or that lost it: the family is not known, and the URL resolved to the address that died."""


@pytest.mark.parametrize(("others", "expected"), [({"us": US}, "2001:db8::2"), ({}, REFUSED["ipv6"])])
def test_no_family_is_empty_while_the_other_lives(
    others: Mapping[str, tuple[Endpoint, ...]], expected: str
) -> None:
    """The URL is down, IPv4 has an address that lives, and IPv6 cannot be judged from here: an empty answer was given for IPv6.

    envoyproxy/envoy#30743 (a check that goes by the first address of a name alone) and daeuniverse/dae#1040 (a family that cannot be
    checked counts as alive).
    """
    eu = (replace(EU[0], ipv4=("192.0.2.1", "192.0.2.3")),)
    world = World({"eu": eu, **others}, BOTH - {"http://eu.test:9999"}, HALF_SEEN)
    reply = world.ask("ipv6", ttl=300)
    assert addresses(reply) == [expected]
    assert others or (errors_of(reply) == [0] and reply.answer[0].ttl <= 30)
    assert addresses(world.ask("ipv4")) == (["192.0.2.2"] if others else ["192.0.2.3"])


def test_nothing_dead_costs_nothing() -> None:
    """The View of DNS is the common one where no address is down: nothing is made twice."""
    router = World({"eu": EU, "us": US}, BOTH, {("http://eu.test:9999", "192.0.2.1"): UP}).router()
    assert router.in_dns is router


def test_a_canary_stays_one_while_another_member_is_up() -> None:
    """docs/policy.md#members: nobody else is sent to a canary while another member is usable; one that is down for a family has no clients.

    envoyproxy/envoy issue 39952: those who are no canary's clients went to any server, canaries among them.
    """

    def regions(world: World) -> set[str | None]:
        router = world.router()
        first, *others = world.regions
        members = (Member(first), *(Member(name, share=0.05) for name in others))
        policy = worlds.changed(router.view.snapshot.policy, "services", "web", members=members)
        view = worlds.view(policy, router.view.state, shipped=()).in_dns
        return {
            decide(view, Request("web", Location(network=f"10.{number}.0.0/16")), 0.5).region
            for number in range(100)
        }

    world = World({"eu": EU, "us": US}, BOTH)
    six = ("http://us.test:9999", "2001:db8::2")
    assert regions(world) == {"eu", "us"}
    assert regions(replace(world, known=V4_DEAD)) == {"eu", "us"}
    assert regions(replace(world, known={six: DOWN})) == {"eu"}
    assert regions(replace(world, known={**V4_DEAD, six: DOWN})) == {"eu", "us"}
    assert regions(replace(world, up=frozenset({US[0].url}))) == {"us"}
    jp = (Endpoint("http://jp.test", ("192.0.2.3",), ("2001:db8::3",)),)
    several = World({"jp": jp, "eu": EU, "us": US}, BOTH, V4_DEAD)
    assert regions(several) == {"us"}, "with canaries alone, one that is whole stands in"


def test_an_alias_that_is_left_answers_both_families() -> None:
    """A region that has lost all its addresses and has an endpoint with a name goes on with that: no family is refused, and none moves.

    dmachard/CoreDNS-GSLB pull request 169 (issue 150): where all addresses are down, a CNAME to fall back to had no place.
    """
    named = Endpoint("http://name.test", cname="lb.example.net")
    four = (Endpoint("http://eu.test:9999", ("192.0.2.1",)), named)
    world = World({"eu": four, "us": US}, BOTH | {named.url}, {(four[0].url, "192.0.2.1"): DOWN})
    for family in FAMILIES:
        assert addresses(world.ask(family)) == ["lb.example.net."]
    six = (Endpoint("http://eu.test:9999", ("192.0.2.1",), ("2001:db8::1",)), named)
    beside = replace(world, regions={"eu": six}, known=V4_DEAD)
    assert addresses(beside.ask("ipv4")) == [REFUSED["ipv4"]], "addresses come before names"


def test_what_is_left_of_former_addresses_says_nothing() -> None:
    """Verdicts on addresses that the policy gave up, or probes by its URLs alone since, take no family from a region."""
    ends = (
        Endpoint("http://a.test", ("192.0.2.1",)),
        Endpoint("http://b.test", ("192.0.2.2",), ("2001:db8::2",)),
    )
    stale = {"ipv4": {"eu": {"192.0.2.9 http://a.test": EndpointHealth(DOWN)}}}
    own = {"ipv4": {"eu": {"192.0.2.1 http://a.test": EndpointHealth(DOWN)}}}
    usual = worlds.region("eu", *ends, at="de")
    by_urls = replace(usual, probe=replace(usual.probe, addresses=False))
    health = {"http://a.test": EndpointHealth(DOWN), "http://b.test": EndpointHealth(DOWN)}
    for region, told in ((usual, stale), (by_urls, own)):
        assert lost_families(region, answered(region, health, told), told) == ()
    assert lost_families(usual, answered(usual, health, own), own) == ("ipv4",)


def test_a_region_that_lives_by_its_other_family_is_not_said_to_be_down() -> None:
    """Its URL fails and its IPv6 address answers: DNS leaves it for a whole one because its IPv4 address is down, and says so."""
    router = World({"eu": EU, "us": US}, BOTH - {EU[0].url}, V4_DEAD).router().in_dns
    decision = router.decide(Request("web"), 0.5)
    assert (decision.region, decision.candidates[0].excluded) == ("us", "addresses_down")
    none = {**V4_DEAD, (EU[0].url, "2001:db8::1"): DOWN}
    for up, why in ((BOTH, "addresses_down"), (BOTH - {EU[0].url}, "unhealthy")):
        router = World({"eu": EU, "us": US}, up, none).router().in_dns
        assert router.decide(Request("web"), 0.5).candidates[0].excluded == why
