"""What names of a policy lead to: the services that decide, and the targets of records, however they are written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gtm.core.change.leads import Decider, Led
from gtm.core.model.services import HostName, NameServer, RecordSet, Zone
from gtm.core.policy.compile import compile_policy
from gtm.dns.zone.leads import leads_of
from tests.core.strategies import SHIPPED
from tests.worlds.control import WORLD

_CHAT = frozenset({Decider("chat")})


def led(
    name: str,
    *records: tuple[str, str, str],
    zones: tuple[Zone, ...] = (),
    hosts: tuple[str | HostName, ...] = ("chat",),
) -> Led:
    """What a name of `demo.test` leads to beside its name servers, where the zone has some records and service `chat` some host names."""
    return replace(at(name, *records, zones=zones, hosts=hosts), servers=frozenset())


def at(
    name: str,
    *records: tuple[str, str, str],
    zones: tuple[Zone, ...] = (),
    hosts: tuple[str | HostName, ...] = ("chat",),
) -> Led:
    """All that it leads to."""
    zone = replace(
        WORLD.zones[0], records=tuple(RecordSet(owner, kind, (data,)) for owner, kind, data in records)
    )
    named = tuple(
        replace(host, name=f"{host.name}.demo.test") if isinstance(host, HostName) else f"{host}.demo.test"
        for host in hosts
    )
    policy = replace(
        WORLD, zones=(zone, *zones), services=tuple(replace(one, hostnames=named) for one in WORLD.services)
    )
    return leads_of(compile_policy(policy, SHIPPED)).at(f"{name}.demo.test" if name else "demo.test")


@pytest.mark.parametrize(
    ("record", "targets"),
    [
        (("x", "A", "192.0.2.7"), {"192.0.2.7"}),
        (("X", "A", "192.0.2.7"), {"192.0.2.7"}),
        (("x.demo.test.", "AAAA", "2001:DB8:0::7"), {"2001:db8::7"}),
        (("x", "TYPE1", "\\# 4 c0000207"), {"192.0.2.7"}),
        (("x", "A", "\\# 4 c0000207"), {"192.0.2.7"}),
        (("x", "CNAME", "Other.Example."), {"other.example"}),
        (
            ("x", "HTTPS", "1 . alpn=h2 ipv4hint=192.0.2.7,192.0.2.8 ipv6hint=2001:db8::7"),
            {"192.0.2.7", "192.0.2.8", "2001:db8::7"},
        ),
        (("x", "HTTPS", "0 other.example."), {"other.example"}),
        (("x", "SVCB", "1 other.example. ipv4hint=192.0.2.7"), {"192.0.2.7", "other.example"}),
        (("x", "TYPE65", "\\# 15 0001 00 0004 0008 c0000207c0000208"), {"192.0.2.7", "192.0.2.8"}),
        (("x", "NS", "ns.other.example."), {"ns.other.example"}),
        (("*", "A", "192.0.2.7"), {"192.0.2.7"}),
        (("x", "A", "0.0.0.0"), set()),
        (("x", "MX", "10 other.example."), set()),
        (("x", "TXT", '"192.0.2.7"'), set()),
        (("y", "A", "192.0.2.7"), set()),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_targets(record: tuple[str, str, str], targets: set[str]) -> None:
    """Of each type that clients ask for to connect."""
    assert led("x", record) == Led(targets=frozenset(targets))


def test_services() -> None:
    """A host name, an alias of an alias to it, an HTTPS record whose target it is, and a wildcard with what it states."""
    assert led("chat") == Led(_CHAT)
    assert led("a", ("a", "CNAME", "b"), ("b", "CNAME", "chat")) == Led(_CHAT)
    assert led("a", ("a", "HTTPS", "0 chat")) == Led(_CHAT)
    assert led("a", ("a", "HTTPS", "1 chat ipv4hint=192.0.2.7")) == Led(_CHAT, frozenset({"192.0.2.7"}))
    stated = HostName("*.of", tenant="clinic")
    assert led("any.of", hosts=(stated,)) == Led(frozenset({Decider("chat", "clinic")}))
    assert led("any.of", ("any.of", "TXT", "x"), hosts=(stated,)) == Led(), "what exists blocks the wildcard"
    assert led("", hosts=("chat",)) == Led()


def test_chains_end() -> None:
    """A loop leads nowhere; a chain that is longer than a server follows leads where it ends all the same; so does one of service bindings."""
    assert led("a", ("a", "CNAME", "b"), ("b", "CNAME", "a")) == Led()
    assert led("a", ("a", "HTTPS", "0 b"), ("b", "HTTPS", "0 a")) == Led()
    long = [(f"n{number}", "CNAME", f"n{number + 1}") for number in range(20)]
    assert led("n0", *long, ("n20", "A", "192.0.2.7")) == Led(targets=frozenset({"192.0.2.7"}))


def test_zones_within_zones() -> None:
    """The closest zone answers; what is delegated belongs to its name servers, whose addresses count where they are known."""
    child = Zone(
        "eu.demo.test",
        "ns1.demo.test",
        "hostmaster.demo.test",
        records=(RecordSet("@", "A", ("192.0.2.7",)),),
    )
    assert led("eu", zones=(child,)) == Led(targets=frozenset({"192.0.2.7"}))
    cut = ("sub", "NS", "ns.sub"), ("ns.sub", "A", "192.0.2.8")
    assert led("www.sub", *cut) == Led(targets=frozenset({"ns.sub.demo.test", "192.0.2.8"}))
    assert led("a", ("a", "CNAME", "www.sub"), *cut) == Led(
        targets=frozenset({"ns.sub.demo.test", "192.0.2.8"})
    )
    served = replace(child, records=(), name_servers=(NameServer("www.eu.demo.test", ("192.0.2.9",)),))
    assert led("www.eu", zones=(served,)) == Led(targets=frozenset({"192.0.2.9"})), (
        "a name server's addresses are records"
    )


def test_name_servers() -> None:
    """Those of the closest zone, whatever stands at the name; where none are listed, the one that stands for them."""
    other = NameServer("ns.other.example", country="DE")
    child = Zone("eu.demo.test", other.name, "hostmaster.demo.test", name_servers=(other,))
    assert at("chat").servers == {NameServer("ns1.demo.test")}
    assert at("nothing").servers == {NameServer("ns1.demo.test")}
    for name in ("eu", "www.eu"):
        assert at(name, zones=(child,)).servers == {other}
