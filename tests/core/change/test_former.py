"""What a change takes away and brings back, of that which keeps its rules (docs/simulate.md, "What is gone")."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from gtm.core.change.leads import (
    NOTHING_FORMER,
    OUTSIDE,
    Decider,
    Led,
    Owners,
    may_be_back,
    moves,
    servers_of,
    targets_led_to,
)
from gtm.core.model.policy import Policy
from gtm.core.model.services import NameServer, RefusalAddress, Zone
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.snapshot import Snapshot
from tests import worlds

ZONE = Zone("test", "ns.example", "hostmaster.example")
CHAT = worlds.service("chat", "de us", hostnames=("chat.test",), refusal=RefusalAddress(("192.0.2.200",)))
FENCED = worlds.policy(*worlds.regions("de us"), ZONE, CHAT, worlds.rule("eu", "EU", services="chat"))


@dataclass
class Host:
    """What names lead to: host names to their services, and one more name to an address."""

    snapshot: Snapshot

    @property
    def names(self) -> Collection[str]:
        """The name that has a record."""
        return ["record.test"]

    def at(self, name: str) -> Led:
        """What a name leads to."""
        if name == "record.test":
            return Led(targets=frozenset({"203.0.113.1"}))
        service = self.snapshot.hostnames.get(name)
        return Led() if service is None else Led(frozenset({Decider(service)}))


def compiled(policy: Policy) -> Snapshot:
    """The policy, compiled."""
    return compile_policy(policy, worlds.SHIPPED)


def test_what_goes_is_remembered_while_a_rule_binds() -> None:
    """A host name, its service, and the addresses of a region; and only then."""
    left = replace(FENCED, regions=FENCED.regions[:1], services=(), residency_rules=())
    made = moves(compiled(FENCED), compiled(left), Host, frozenset(), released=False)
    assert (made.names, made.services) == ({"chat.test"}, {"chat"})
    assert {(target, region.name) for target, region in made.targets} == {
        ("192.0.2.2", "us"),
        ("us.test", "us"),
    }
    free = replace(FENCED, residency_rules=())
    unbound = moves(compiled(free), compiled(left), Host, frozenset(), released=False)
    assert (unbound.names, unbound.services) == (frozenset(), frozenset())
    assert unbound.targets == made.targets, "whose an address was matters to the next rule, too"


def test_what_comes_back_is_forgotten() -> None:
    """A name that a service decides again, or that leads anywhere once that is released; a service; an address."""
    left = replace(FENCED, services=(), residency_rules=())
    gone = frozenset({"chat.test", "record.test"})
    back = moves(compiled(left), compiled(FENCED), Host, gone, released=False)
    assert back.names_back == {"chat.test"}
    assert moves(compiled(left), compiled(FENCED), Host, gone, released=True).names_back == gone
    assert back.services_back == {"chat"}
    assert "192.0.2.2" in back.targets_back
    nothing = moves(compiled(FENCED), compiled(FENCED), Host, gone, released=True)
    assert nothing.names_back | nothing.targets_back == frozenset()


def test_all_that_a_policy_leads_to() -> None:
    """Endpoints, records and refusal addresses."""
    snapshot = compiled(FENCED)
    assert targets_led_to(snapshot, Host(snapshot)) == {
        *("192.0.2.1", "de.test", "192.0.2.2", "us.test"),
        *("203.0.113.1", "192.0.2.200"),
    }


def test_what_may_be_back() -> None:
    """A name that is there, that a wildcard covers, or whose zone other name servers answer for."""
    wild = replace(FENCED, services=(replace(CHAT, hostnames=("*.a.test",)),))
    for name, expected in (
        ("chat.test", False),
        ("x.a.test", True),
        ("*.a.test", True),
        ("x.y.a.test", True),
    ):
        assert may_be_back(name, FENCED, compiled(wild)) is expected, name
    other = replace(
        FENCED,
        services=(),
        residency_rules=(),
        zones=(replace(ZONE, name_servers=(NameServer("ns.evil.example"),)),),
    )
    assert may_be_back("chat.test", FENCED, compiled(other))
    assert not may_be_back("chat.elsewhere", FENCED, compiled(other))


def test_name_servers_are_those_of_the_closest_zone() -> None:
    """The one that stands for them, where none are listed; none, where no zone is."""
    inner = Zone("a.test", "ns.inner.example", "hostmaster.example", (NameServer("ns2.inner.example"),))
    zones = {zone.name: zone for zone in (ZONE, inner)}
    assert servers_of(zones, "x.a.test") == {NameServer("ns2.inner.example")}
    assert servers_of(zones, "a.b.test") == {NameServer("ns.example")}
    assert servers_of(zones, "example") == frozenset()


def test_where_name_servers_stand() -> None:
    """The region that has the address, else where the policy says, else nobody knows; what was there before stands nowhere new."""
    owners = Owners(compiled(FENCED), compiled(FENCED), NOTHING_FORMER)
    here, said, run, unknown = (
        NameServer("ns1.example", ("192.0.2.2",), country="DE"),
        NameServer("ns2.example", ("203.0.113.2",), country="DE"),
        NameServer("ns3.example", country="FR", operator_country="US"),
        NameServer("ns4.example"),
    )
    assert owners.standing([here], []) == {"us"}
    assert owners.standing([said, run, unknown], []) == {
        *("ns2.example in DE", "ns3.example in FR, run from US", OUTSIDE),
    }
    places = {name: (one.country, one.operator_country) for name, one in owners.others.items()}
    assert places == {"ns2.example in DE": ("DE", None), "ns3.example in FR, run from US": ("FR", "US")}
    assert owners.standing([said, unknown], [said, unknown]) == frozenset()
    assert owners.standing([replace(unknown, ipv6=("2001:db8::4",))], [unknown]) == {OUTSIDE}
