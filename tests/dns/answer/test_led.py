"""Regions whose alias is a name of the policy's: what clients get by it, held against the fence of the service that they asked for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import Any

import dns.rcode
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from gtm.core.model.policy import Policy, ResidencyRule, RuleMode, Tenant
from gtm.core.model.problems import PolicyError
from gtm.core.model.regions import Endpoint, Region
from gtm.core.model.services import HostName, RecordSet, Steering
from gtm.dns.answer.answerer import Answerer
from gtm.dns.zone.static import MAX_ALIASES
from gtm.telemetry import Counts
from tests import worlds
from tests.core.strategies import quick
from tests.dns.world import (
    POLICY,
    REFUSAL,
    addresses,
    answerer,
    both,
    errors_of,
    locate,
    query,
    router,
    service,
)

DE, US = "10.1.2.0/24", "10.2.3.0/24"
REFUSED = [*REFUSAL.ipv4]
HERE = worlds.region("here", Endpoint("http://here", ("192.0.2.1",)), at="de")
THERE = worlds.region("there", Endpoint("http://there", ("192.0.2.9",)), at="us")


def by(alias: str, name: str = "led") -> Region:
    """A region in Germany that has an alias alone."""
    return worlds.region(name, Endpoint(f"http://{name}", cname=f"{alias}.demo.test"), at="de")


def rule(services: str, countries: str = "", name: str = "keep", **changes: Any) -> ResidencyRule:
    """Services, by clients of some countries, are served in Germany only."""
    return worlds.rule(name, "DE", services=services, client_countries=countries, **changes)


def world(*parts: Any, records: tuple[RecordSet, ...] = ()) -> Policy:
    """A policy of some regions, services and rules in the zone `demo.test`."""
    zone = replace(POLICY.zones[0], records=records)
    return worlds.policy(HERE, THERE, zone, *parts)


def asked(policy: Policy, name: str = "chat", client: str = DE) -> list[str]:
    """The answer's data."""
    return addresses(both(answerer(policy=policy), query(f"{name}.demo.test", subnet=client)))


CHAT = service("chat", "led")
WEB = service("web", "there")


def test_an_alias_leads_out() -> None:
    """The service that it leads to sends clients where the rule of the one asked for keeps them from: they are refused, and others are not."""
    led = world(by("web"), CHAT, WEB)
    assert asked(led) == ["web.demo.test."]
    assert asked(world(by("web"), CHAT, WEB, rule("chat"))) == REFUSED
    some = world(by("web"), CHAT, WEB, rule("chat", "DE"))
    assert asked(some) == REFUSED
    assert asked(some, client=US) == ["web.demo.test."]
    assert asked(world(by("web"), CHAT, WEB, rule("chat")), "web") == ["192.0.2.9"]
    reply = both(answerer(policy=some), query("chat.demo.test", subnet=DE, edns=True))
    assert errors_of(reply) == [18]
    assert "alias of the region chosen leads to regions that residency rules forbid" in reply.to_text()


def test_an_alias_that_stays_inside() -> None:
    """The rule concerns both services, or the other has one of its own; what its own rule forbids it does not lead to."""
    wide = service("web", "there here")
    assert asked(world(by("web"), CHAT, wide, rule("chat"))) == REFUSED
    assert asked(world(by("web"), CHAT, wide, rule("chat web"))) == ["web.demo.test."]
    assert asked(world(by("web"), CHAT, wide, rule("chat"), rule("web", name="own"))) == ["web.demo.test."]
    assert asked(world(by("web"), CHAT, service("web", "here"), rule("chat"))) == ["web.demo.test."], (
        "a region inside the fence, though no member"
    )


def test_which_rules_keep() -> None:
    """All that concern the client together, and none that only watches; regions that the other service's rules forbid lead nowhere."""
    assert asked(world(by("web"), CHAT, WEB, rule("chat", mode=RuleMode.MONITOR))) == ["web.demo.test."]
    wide = worlds.rule("wide", "DE US", services="chat")
    assert asked(world(by("web"), CHAT, WEB, rule("chat"), wide)) == REFUSED
    assert asked(world(by("web"), CHAT, WEB, wide, rule("chat"))) == REFUSED
    away = replace(by("web", "away"), country="US")
    led = world(by("mid"), away, CHAT, service("mid", "here away"), WEB, rule("chat mid"))
    assert asked(led) == ["mid.demo.test."]


def test_over_records_and_other_services() -> None:
    """Aliases of records, wildcards, and aliases of the other service's regions are followed."""
    record = (RecordSet("a", "CNAME", ("web",)),)
    assert asked(world(by("a"), CHAT, WEB, rule("chat"), records=record)) == REFUSED
    any_name = service("web", "there", hostnames=("*.web.demo.test",))
    assert asked(world(by("x.web"), CHAT, any_name, rule("chat"))) == REFUSED
    chain = by("mid"), by("web", "next"), CHAT, service("mid", "next")
    assert asked(world(*chain, WEB, rule("chat mid"))) == REFUSED
    assert asked(world(*chain, service("web", "here"), rule("chat mid"))) == ["mid.demo.test."]
    there = replace(THERE, endpoints=(Endpoint("http://there", ("192.0.2.9",), ("2001:db8::9",)),))
    for kind, address in (("A", "192.0.2.9"), ("AAAA", "2001:db8::9")):
        own = worlds.changed(
            world(by("a"), CHAT, rule("chat"), records=(RecordSet("a", kind, (address,)),)),
            "regions",
            "there",
            endpoints=there.endpoints,
        )
        assert asked(own) == REFUSED, "a record with the address of a region outside"
    for address in ("192.0.2.1", "192.0.2.77"):
        inside = (RecordSet("a", "A", (address,)),)
        assert asked(world(by("a"), CHAT, rule("chat"), records=inside)) == ["a.demo.test."]
    shared = worlds.region("shared", Endpoint("http://shared", ("192.0.2.9",)), at="de")
    record = (RecordSet("a", "A", ("192.0.2.9",)),)
    both_have = world(by("a"), shared, CHAT, rule("chat"), records=record)
    for regions in (both_have.regions, both_have.regions[::-1]):
        assert asked(replace(both_have, regions=regions)) == ["a.demo.test."]
    out = (RecordSet("a", "CNAME", ("lb.example.net.",)),)
    assert asked(world(by("a"), CHAT, rule("chat"), records=out)) == ["a.demo.test."]


def test_what_the_other_host_name_states() -> None:
    """It is asked as its host name says: for a tenant whom no rule concerns it leads out."""
    stated = service("web", "there here", hostnames=(HostName("web.demo.test", tenant="other"),))
    one = rule("chat web", tenants="bank")
    assert asked(world(by("web"), CHAT, stated, one, Tenant("bank"), Tenant("other"))) == REFUSED
    assert asked(world(by("web"), CHAT, WEB, rule("chat", tenants="bank"), Tenant("bank"))) == REFUSED
    unstated = service("web", "there here")
    assert asked(world(by("web"), CHAT, unstated, one, Tenant("bank"))) == ["web.demo.test."]


def test_the_short_way_answers_by_aliases_too() -> None:
    """Clients of one class whom the other service tells apart get answers of their own, counted as by the full way, and the short way has them."""
    names = "chat.demo.test", "x.wild.demo.test"
    chat = service("chat", "led here", steering=Steering.WEIGHTED, hostnames=(names[0], "*.wild.demo.test"))
    only_for_us = rule("chat", name="keep"), worlds.rule("web", "DE", services="web", client_countries="US")
    policy = world(by("web"), chat, service("web", "there here"), *only_for_us)
    counts = Counts(), Counts()
    short, full = (answerer(policy=policy, counts=one) for one in counts)
    for client, name, rdtype, draw in product((DE, US), names * 2, ("A", "AAAA"), (0.2, 0.7)):
        packet = query(name, rdtype, subnet=client)
        both(answerer(policy=policy), packet, draw=draw)
        short.answer(packet, "10.3.0.1", tcp=False, draw=draw)  # were it the full way, that would be counted
        full.answer_fully(packet, "10.3.0.1", tcp=False, draw=draw)
    counted, expected = counts[0].take(), counts[1].take()
    assert counted == expected
    assert [key.split("\t")[-1][:7] for key in counted if "refused_residency" in key] == ["chat|DE"]


def test_it_is_kept_no_longer_than_it_holds() -> None:
    """The rule that keeps the other service inside ends in five seconds: the alias ends before."""
    ends = datetime.fromtimestamp(5, UTC)
    policy = world(
        by("web"),
        CHAT,
        service("web", "there here"),
        rule("chat"),
        rule("web", name="own", effective_until=ends),
    )
    reply = both(answerer(policy=policy), query("chat.demo.test", subnet=DE))
    assert [(rrset.ttl, rrset.to_text().split()[-1]) for rrset in reply.answer] == [(4, "web.demo.test.")]


@pytest.mark.parametrize(("length", "answer"), [(MAX_ALIASES, ["s1.demo.test."]), (MAX_ALIASES + 1, REFUSED)])
def test_long_ways(length: int, answer: list[str]) -> None:
    """What leads over more services than resolvers follow aliases is not followed to its end, and refused."""
    regions = [by(f"s{number}", f"r{number - 1}") for number in range(1, length)]
    services = [service(f"s{number}", f"r{number}") for number in range(1, length)]
    last = by(f"s{length}", f"r{length - 1}"), service(f"s{length}", "here")
    policy = world(*regions, *services, *last, service("chat", "r0"), rule("chat"))
    assert asked(policy) == answer


def test_an_alias_that_leads_back() -> None:
    """An alias for the very name, or another of the service, is no answer: it is SERVFAIL, as a loop of records is.

    coredns/coredns#6421: an alias for its own name, ten times in one answer that says all is well.
    """
    for policy in (
        world(by("chat"), CHAT),
        world(by("other"), service("chat", "led", hostnames=("chat.demo.test", "other.demo.test"))),
        world(by("x.of"), service("chat", "led", hostnames=("chat.demo.test", "*.of.demo.test"))),
    ):
        reply = both(Answerer(router(policy=policy), locate, Counts()), query("chat.demo.test"))
        assert (reply.rcode(), addresses(reply)) == (dns.rcode.SERVFAIL, [])
    stated = service("chat", "led", hostnames=("chat.demo.test", HostName("of.demo.test", tenant="bank")))
    assert asked(world(by("of"), stated, Tenant("bank"))) == ["of.demo.test."], (
        "asked otherwise, it may decide otherwise"
    )


_HOMES = {"one": "DE", "two": "US", "three": "DE", "four": "US"}
"""Regions of the random worlds, each with where it stands; it has an address, or an alias for a service."""
_RULES = st.lists(
    st.tuples(
        st.lists(st.sampled_from("abc"), min_size=1, max_size=2, unique=True),
        st.sampled_from(["", "DE", "US"]),
        st.sampled_from(["DE", "US"]),
    ),
    max_size=3,
)


@given(
    st.fixed_dictionaries({name: st.sampled_from(["", "", "a", "b", "c"]) for name in _HOMES}),
    st.fixed_dictionaries(
        {name: st.lists(st.sampled_from([*_HOMES]), min_size=1, max_size=2, unique=True) for name in "abc"}
    ),
    _RULES,
)
@quick(100)
def test_aliases_in_random_worlds(
    aliases: dict[str, str], members: dict[str, list[str]], rules: list[tuple[list[str], str, str]]
) -> None:
    """Whoever follows answers to their end is in no region that the rules of the service asked for keep the client from; nobody else is refused."""
    numbers = {name: f"192.0.2.{number}" for number, name in enumerate(_HOMES, 1)}
    regions = [
        replace(
            by(aliases[name], name)
            if aliases[name]
            else worlds.region(name, Endpoint("http://x", (numbers[name],)), at="de"),
            country=home,
        )
        for name, home in _HOMES.items()
    ]
    services = [service(name, " ".join(these), steering=Steering.WEIGHTED) for name, these in members.items()]
    law = [
        worlds.rule(
            f"r{at}", allow, services=" ".join(whom), client_countries=clients, acknowledge_empty_fence=True
        )
        for at, (whom, clients, allow) in enumerate(rules)
    ]
    policy = worlds.policy(*regions, POLICY.zones[0], *services, *law)
    try:
        server = answerer(policy=replace(policy, zones=(replace(POLICY.zones[0], records=()),)))
    except PolicyError:  # rules that leave a service nothing together
        assume(False)
        raise

    def lawful(name: str, country: str) -> set[str]:
        """The regions that the rules about a service leave to a client, members of it or not."""
        return {
            region
            for region, home in _HOMES.items()
            if all(
                home == allow for whom, clients, allow in rules if name in whom and clients in ("", country)
            )
        }

    def led(name: str, country: str, seen: frozenset[str]) -> set[str]:
        """Where a service, and those that its regions' aliases lead to, may send a client."""
        own = lawful(name, country) & {*members[name]}
        further = {aliases[region] for region in own} - {"", *seen}
        return own.union(*(led(one, country, seen | further) for one in further))

    for country, client in (("DE", DE), ("US", US)):
        for name, these in members.items():
            given_out = set()
            for draw in (0.1, 0.4, 0.6, 0.9):
                reply = both(server, query(f"{name}.demo.test", subnet=client), draw=draw)
                given_out.add(addresses(reply)[0] if reply.answer else "SERVFAIL")
            own = lawful(name, country) & {*these}
            expected = set()
            for region in own:
                if not (alias := aliases[region]):
                    expected.add(numbers[region])
                elif alias == name:
                    expected.add(
                        "SERVFAIL"
                        if led(name, country, frozenset(name)) <= lawful(name, country)
                        else REFUSED[0]
                    )
                else:
                    inside = led(alias, country, frozenset(alias)) <= lawful(name, country)
                    expected.add(f"{alias}.demo.test." if inside else REFUSED[0])
            event(f"{sorted({'alias' if 'demo' in one else one for one in expected})}")
            assert given_out == (expected or {REFUSED[0]})
