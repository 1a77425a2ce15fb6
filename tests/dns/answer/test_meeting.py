"""Pools of a family each, dead addresses, aliases between services, canaries and residency rules in one world, by both ways of DNS.

The model says what docs/dns.md (two families, aliases), docs/concepts.md (the fence, addresses) and docs/policy.md (members) say, and reads nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

import dns.rcode
import pytest

from gtm.core.decision.decide import Exclusion
from gtm.core.decision.router import Router
from gtm.core.decision.view import build_view
from gtm.core.model.policy import Policy
from gtm.core.model.regions import AddressFamily, Endpoint
from gtm.core.model.requests import Request
from gtm.core.model.services import Families, Member, OnUnusable, Steering
from gtm.core.model.state import EndpointHealth, HealthStatus, State
from gtm.dns.answer.answerer import Answerer
from gtm.telemetry import Counts
from tests import worlds
from tests.core.strategies import examples
from tests.dns.world import POLICY, REFUSAL, RESOLVER, addresses, both, locate, query, service

UP, DOWN = HealthStatus.UP, HealthStatus.DOWN
TYPES = {"A": AddressFamily.IPV4, "AAAA": AddressFamily.IPV6}
CLIENTS = {"DE": "10.1.2.0/24", "US": "10.2.3.0/24"}
DRAWS = (0.1, 0.4, 0.6, 0.9)
REFUSED = {AddressFamily.IPV4: frozenset(REFUSAL.ipv4), AddressFamily.IPV6: frozenset(REFUSAL.ipv6)}
EMPTY, FAILED = frozenset[str](), frozenset({"SERVFAIL"})
Answers = set[frozenset[str]]


@dataclass(frozen=True)
class Health:
    """The URLs that are up, and the verdicts on addresses that were up once, by URL and address."""

    up: frozenset[str]
    known: dict[tuple[str, str], HealthStatus]


@dataclass(frozen=True)
class Pool:
    """A service: its members in order, the last of them perhaps a canary or, for want of all others, of weight 0."""

    members: tuple[str, ...]
    separate: bool
    weighted: bool
    canary: bool
    last_resort: bool
    stubborn: bool


@dataclass(frozen=True)
class World:
    """Where regions stand, their endpoints, the services over them, and rules: services, clients' country, and the country allowed."""

    homes: dict[str, str]
    ends: dict[str, tuple[Endpoint, ...]]
    pools: dict[str, Pool]
    rules: tuple[tuple[tuple[str, ...], str, str], ...]

    def law(self, name: str, client: str) -> set[str]:
        """The regions, members or not, that the rules about a service leave to a client."""
        about = [allow for whom, clients, allow in self.rules if name in whom and clients in ("", client)]
        return {region for region, home in self.homes.items() if all(home == allow for allow in about)}

    def has(self, region: str, family: AddressFamily) -> bool:
        """Whether the policy gives a region an address of a family."""
        return any(one.addresses(family) for one in self.ends[region])

    def led(self, name: str, client: str, seen: frozenset[str] = EMPTY) -> set[str]:
        """Where a service, and those that its regions' aliases lead to, may send a client."""
        own = self.law(name, client) & {*self.pools[name].members}
        further = {alias for region in own for one in self.ends[region] if (alias := _service(one.cname))}
        seen |= {name}
        return own.union(*(self.led(one, client, seen) for one in further - seen))


def _service(alias: str | None) -> str | None:
    return None if alias is None or not alias.endswith(".demo.test") else alias.partition(".")[0]


@dataclass(frozen=True)
class Model:
    """What the documents promise of a world in one state of health."""

    world: World
    health: Health

    def alive(self, region: str, family: AddressFamily) -> frozenset[str]:
        """The addresses that DNS may give: by their own verdict, or else by their URL's."""
        return frozenset(
            text
            for one in self.world.ends[region]
            for text in one.addresses(family)
            if self.health.known.get((one.url, text), UP if one.url in self.health.up else DOWN) is UP
        )

    def alias(self, region: str) -> str | None:
        """The alias that a region answers with: of the first endpoint that is up, where no address is left."""
        if any(self.alive(region, family) for family in AddressFamily):
            return None
        up = (one.cname for one in self.world.ends[region] if one.cname and one.url in self.health.up)
        return next(up, None)

    def lost(self, region: str, family: AddressFamily) -> bool:
        """Whether a region is down for a family: nothing is left that answers it, and an address of it is down, or one of the other family up."""

        def known(of: AddressFamily) -> list[HealthStatus | None]:
            every = ((one.url, text) for one in self.world.ends[region] for text in one.addresses(of))
            return [self.health.known.get(one) for one in every]

        (other,) = {*AddressFamily} - {family}
        told = DOWN in known(family) or (bool(known(family)) and UP in known(other))
        return told and not self.alive(region, family) and self.alias(region) is None

    def pool(self, name: str, family: AddressFamily) -> AddressFamily | None:
        """The family that a question is decided by; None: by one decision for both."""
        pool = self.world.pools[name]
        some = any(self.world.has(region, family) for region in pool.members)
        return family if pool.separate and some else None

    def able(self, name: str, client: str, family: AddressFamily | None) -> list[str]:
        """The members inside the fence that have what the pool asks for."""
        lawful = self.world.law(name, client)
        return [
            one
            for one in self.world.pools[name].members
            if one in lawful and (family is None or self.world.has(one, family))
        ]

    def usable(self, name: str, client: str, family: AddressFamily | None) -> list[str]:
        """Those of them that may be chosen: of one decision for both first those that are down for no family, but nobody else's canary."""
        pool, able = self.world.pools[name], self.able(name, client, family)
        if family is not None:
            return [one for one in able if self.alive(one, family)]
        up = [one for one in able if self.alias(one) or any(self.alive(one, each) for each in AddressFamily)]
        whole = [one for one in up if not any(self.lost(one, each) for each in AddressFamily)]
        others = [one for one in up if not (pool.canary and one == pool.members[-1])]
        return whole if set(whole) & set(others) or (not others and whole) else up

    def ends(self, name: str, client: str, family: AddressFamily | None) -> tuple[set[str], bool]:
        """The regions that some such client is sent to; and whether health is ignored."""
        pool, usable = self.world.pools[name], self.usable(name, client, family)
        able = self.able(name, client, family)
        ignored = pool.stubborn and bool(able) and not usable
        found = able if ignored else usable
        canary = {pool.members[-1]} & {*found} if pool.canary else set[str]()
        spare = {pool.members[-1]} if pool.canary or pool.last_resort else set[str]()
        others = [one for one in found if one not in spare] or found
        chosen = {*others} if pool.weighted else {*others[:1]}
        return chosen if ignored else chosen | canary, ignored

    def answers(self, name: str, client: str, rdtype: str) -> Answers:
        """What questions of a type may be answered with."""
        family = TYPES[rdtype]
        chosen, ignored = self.ends(name, client, self.pool(name, family))
        if ignored:
            every = Model(self.world, Health(frozenset(_urls(self.world)), {}))
            return {every.given(name, region, client, family) for region in chosen}
        return {self.given(name, region, client, family) for region in chosen} or {REFUSED[family]}

    def given(self, name: str, region: str, client: str, family: AddressFamily) -> frozenset[str]:
        """What a region answers a family with."""
        alias = self.alias(region)
        if alias is None:
            return REFUSED[family] if self.lost(region, family) else self.alive(region, family)
        led = _service(alias)
        if led is not None and not self.world.led(led, client) <= self.world.law(name, client):
            return REFUSED[family]
        return FAILED if led == name else frozenset({f"{alias}."})

    def excluded(self, name: str, client: str, region: str, family: AddressFamily | None) -> Exclusion | None:
        """Why a member is no candidate."""
        if region not in self.world.law(name, client):
            return Exclusion.RESIDENCY
        if family is not None and not self.world.has(region, family):
            return Exclusion.NO_ADDRESS
        if region in self.usable(name, client, family) or self.ends(name, client, family)[1]:
            return None
        left = any(one.url in self.health.up for one in self.world.ends[region])
        left |= any(self.alive(region, each) for each in AddressFamily)
        down = any(self.lost(region, each) for each in (AddressFamily if family is None else (family,)))
        return Exclusion.ADDRESSES_DOWN if left and down else Exclusion.UNHEALTHY


def _urls(world: World) -> Iterable[str]:
    return (one.url for ends in world.ends.values() for one in ends)


def drawn_world(rng: random.Random) -> World:
    """Up to four regions in two countries, and three services over them."""
    homes = {name: rng.choice(("DE", "US")) for name in "pqrs"[: rng.randint(2, 4)]}
    number, ends = 0, {}
    for region in homes:
        made = []
        for place in range(rng.randint(1, 2)):
            url = f"http://{region}-{place}.test"
            if rng.random() < 0.25:
                alias = rng.choice(("a.demo.test", "b.demo.test", "c.demo.test", "lb.example.net"))
                made.append(Endpoint(url, cname=alias))
                continue
            four, six = rng.choice(((1, 1), (1, 0), (0, 1), (2, 2), (2, 0), (1, 2)))
            texts = [f"192.0.2.{number + at}" for at in range(1, four + 1)]
            made.append(
                Endpoint(url, tuple(texts), tuple(f"2001:db8::{number + at}" for at in range(1, six + 1)))
            )
            number += 2
        ends[region] = tuple(made)
    pools = {}
    for name in "abc":
        members = tuple(rng.sample([*homes], rng.randint(1, len(homes))))
        aliases = any(one.cname for region in members for one in ends[region])
        pools[name] = Pool(
            members,
            separate=not aliases and rng.random() < 0.6,
            weighted=rng.random() < 0.4,
            canary=(spare := rng.choice(("canary", "last", "", "")) if len(members) > 1 else "") == "canary",
            last_resort=spare == "last",
            stubborn=rng.random() < 0.2,
        )
    rules = tuple(
        (
            tuple(rng.sample("abc", rng.randint(1, 2))),
            rng.choice(("", "DE", "US")),
            rng.choice(("DE", "US")),
        )
        for _ in range(rng.randint(0, 3))
    )
    return World(homes, ends, pools, rules)


def drawn_health(rng: random.Random, world: World) -> Health:
    """Some URLs down, and verdicts on some addresses."""
    weights = rng.choice(((6, 1, 3), (2, 5, 3), (1, 1, 8)))
    given = [
        (one.url, text) for ends in world.ends.values() for one in ends for text in (*one.ipv4, *one.ipv6)
    ]
    said = dict(zip(given, rng.choices((UP, DOWN, None), weights, k=len(given)), strict=True))
    living = rng.choice((0.5, 0.8))
    up = frozenset(url for url in _urls(world) if rng.random() < living)
    return Health(up, {key: verdict for key, verdict in said.items() if verdict is not None})


def policy_of(world: World) -> Policy:
    """The world as production has it."""
    regions = [
        replace(worlds.region(name, *ends, at="de"), country=world.homes[name])
        for name, ends in world.ends.items()
    ]
    services = []
    for name, pool in world.pools.items():
        made = service(
            name,
            " ".join(pool.members),
            steering=Steering.WEIGHTED if pool.weighted else Steering.FAILOVER,
            families=Families.SEPARATE if pool.separate else Families.TOGETHER,
            on_unusable=OnUnusable.IGNORE_HEALTH if pool.stubborn else OnUnusable.REFUSE,
        )
        if pool.canary:
            made = replace(made, members=(*made.members[:-1], Member(pool.members[-1], share=0.5)))
        if pool.last_resort:
            made = replace(made, members=(*made.members[:-1], Member(pool.members[-1], weight=0)))
        services.append(made)
    law = [
        worlds.rule(
            f"r{at}", allow, services=" ".join(whom), client_countries=clients, acknowledge_empty_fence=True
        )
        for at, (whom, clients, allow) in enumerate(world.rules)
    ]
    return worlds.policy(*regions, replace(POLICY.zones[0], records=()), *services, *law)


def state_of(world: World, health: Health) -> State:
    """The state of the world as production has it."""
    by_url = {
        name: {one.url: EndpointHealth(UP if one.url in health.up else DOWN) for one in ends}
        for name, ends in world.ends.items()
    }
    told: dict[str, dict[str, dict[str, EndpointHealth]]] = {family: {} for family in AddressFamily}
    for name, ends in world.ends.items():
        for one in ends:
            for family in AddressFamily:
                for text in one.addresses(family):
                    if (one.url, text) in health.known:
                        verdict = EndpointHealth(health.known[one.url, text])
                        told[family].setdefault(name, {})[f"{text} {one.url}"] = verdict
    return State(epoch=1, health=by_url, addresses=told)


class Draws:
    """The draw of the next question."""

    next = 0.0

    def __call__(self) -> float:
        return self.next


def hold_http(model: Model, router: Router, seed: int) -> None:
    """HTTP goes to the first member inside the fence whose URL is up, and knows nothing of addresses."""
    for country, subnet in CLIENTS.items():
        for name, pool in model.world.pools.items():
            found = {
                (decision := router.decide(Request(name, locate(subnet.partition("/")[0])), draw)).region
                for draw in DRAWS
            }
            able = model.able(name, country, None)
            up = [one for one in able if any(end.url in model.health.up for end in model.world.ends[one])]
            assert found <= {*(up or (able if pool.stubborn else []) or [None])}, (seed, name, country)
            assert Exclusion.ADDRESSES_DOWN not in {one.excluded for one in decision.candidates}


def hold(model: Model, server: Answerer, draws: Draws, seed: int) -> None:
    """Hold the answers, repeated ones too, and the explanations of DNS against the model."""
    for country, subnet in CLIENTS.items():
        for name, pool in model.world.pools.items():
            at = seed, name, country
            for rdtype in TYPES:
                found: Answers = set()
                for draw in DRAWS:
                    packet = query(f"{name}.demo.test", rdtype, subnet=subnet)
                    reply, draws.next = both(server, packet, draw=draw), draw
                    again = [server.udp(packet, RESOLVER) for _ in range(2)]
                    assert again == [server.answer(packet, RESOLVER, tcp=False, draw=draw)] * 2
                    failed = reply.rcode() == dns.rcode.SERVFAIL
                    found.add(FAILED if failed else frozenset(addresses(reply)))
                expected = model.answers(name, country, rdtype)
                assert found <= expected if pool.canary else found == expected, (at, rdtype)
            for other in ("TXT", "HTTPS"):
                both(server, query(f"{name}.demo.test", other, subnet=subnet))
            location = locate(subnet.partition("/")[0])
            for family in (None, *AddressFamily):
                asked = None if family is None else model.pool(name, family)
                decision = server.router.decide(Request(name, location, family=family), 0.5)
                for one in decision.candidates:
                    why = model.excluded(name, country, one.region, asked)
                    assert one.excluded == why, (at, family, one.region)


@pytest.mark.endurance
def test_worlds_in_which_all_of_it_meets() -> None:
    """Each answer is one that the documents allow, the same by both ways, before and after addresses die; HTTP goes by URLs."""
    for seed in range(examples(120)):
        rng = random.Random(seed)
        world = drawn_world(rng)
        first, then = drawn_health(rng, world), drawn_health(rng, world)
        view = worlds.view(policy_of(world), state_of(world, first), shipped=())
        router = Router(view)
        draws = Draws()
        before = Answerer(router, locate, Counts(), draw=draws)
        hold(Model(world, first), before, draws, seed)
        later = Router(build_view(view.basis, state_of(world, then), view.window), router.ranker)
        hold(Model(world, then), Answerer(later, locate, Counts(), before, draw=draws), draws, seed)
        hold_http(Model(world, then), later, seed)
