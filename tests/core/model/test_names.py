"""Which names exist, and which service a host name belongs to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.model.names import absolute, existing_names
from gtm.core.model.services import NameServer, RecordSet, Service, Zone
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.snapshot import Snapshot
from gtm.dns.protocol import wire
from gtm.dns.zone.static import static_content
from gtm.dns.zone.zones import Host, build_names, wire_name
from tests import worlds
from tests.core.strategies import quick

REGION = worlds.region("de")


def _service(name: str, *hosts: str, zone: str = "x.test") -> Service:
    return worlds.service(name, "de", hostnames=hosts, zone=zone)


def _zone(name: str, *records: RecordSet) -> Zone:
    return Zone(name, "ns.example.net", "h.example.net", (NameServer("ns.example.net"),), records=records)


def _snapshot(zones: tuple[Zone, ...], *services: Service) -> Snapshot:
    return compile_policy(worlds.policy(REGION, *zones, *services), ())


@pytest.mark.rfc("1035", "5.1", "names without a dot at the end are relative to the zone, and @ is the zone")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("@", "x.test"),
        ("www", "www.x.test"),
        ("A.b", "a.b.x.test"),
        ("www.x.test.", "www.x.test"),
        ("*", "*.x.test"),
        ("*.models", "*.models.x.test"),
    ],
)
def test_names_as_in_zone_files(name: str, expected: str) -> None:
    """A dot at the end makes a name absolute, and case does not count."""
    assert absolute(name, "x.test") == expected


def test_what_exists() -> None:
    """All names written, and those between them and their zone's apex, in whichever zone is closest."""
    zones = (
        _zone("x.test", RecordSet("a.b", "A", ("192.0.2.1",)), RecordSet("*.w", "A", ("192.0.2.1",))),
        replace(_zone("deep.sub.x.test"), name_servers=(NameServer("ns.deep.sub.x.test", ("192.0.2.2",)),)),
    )
    policy = worlds.policy(REGION, *zones, _service("chat", "h.o.x.test"))
    assert existing_names(policy) == {
        *("x.test", "a.b.x.test", "b.x.test", "*.w.x.test", "w.x.test", "h.o.x.test", "o.x.test"),
        *("deep.sub.x.test", "sub.x.test", "ns.deep.sub.x.test"),
    }


@pytest.mark.rfc("4592", "3.3.1", "only the wildcard right below the closest encloser counts")
@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("a.m.x.test", "any"),
        ("a.b.m.x.test", "any"),
        ("own.m.x.test", "own"),
        ("a.own.m.x.test", None),
        ("written.m.x.test", None),
        ("a.written.m.x.test", None),
        ("empty.m.x.test", None),
        ("a.empty.m.x.test", None),
        ("full.empty.m.x.test", "own"),
        ("cut.m.x.test", None),
        ("a.cut.m.x.test", None),
        ("a.zone.m.x.test", None),
        ("m.x.test", None),
        ("*.m.x.test", "any"),
        ("none", None),
        ("", None),
    ],
)
def test_service_of_a_host_name(host: str, expected: str | None) -> None:
    """A wildcard covers what does not exist below it, as in DNS."""
    records = (
        RecordSet("written.m", "TXT", ("x",)),
        RecordSet("cut.m", "NS", ("ns.example.net.",)),
    )
    zones = (_zone("x.test", *records), _zone("zone.m.x.test"))
    snapshot = _snapshot(
        zones, _service("any", "*.m.x.test"), _service("own", "own.m.x.test", "full.empty.m.x.test")
    )
    found = snapshot.host_of(host)
    assert (None if found is None else snapshot.hostnames[found.name]) == expected


LABELS = st.sampled_from(["a", "b", "*"])
NAMES = st.lists(LABELS, min_size=1, max_size=4).map(".".join)
HOSTS = st.lists(NAMES.map(lambda name: f"{name}.x.test"), max_size=4, unique=True)


@given(HOSTS, st.lists(NAMES, max_size=4, unique=True), st.lists(LABELS, max_size=5))
@quick(300)
def test_http_and_dns_agree_on_host_names(hosts: list[str], written: list[str], labels: list[str]) -> None:
    """The service that a Host header names is the one whose addresses DNS gives."""
    records = tuple(RecordSet(name, "TXT", ("x",)) for name in written)
    snapshot = _snapshot((_zone("x.test", *records),), _service("chat", *hosts))
    asked = ".".join([*labels, "x.test"])
    found = static_content(build_names(snapshot), wire_name(asked), wire.A)
    host = snapshot.host_of(asked)
    assert (None if host is None else snapshot.hostnames[host.name]) == (
        found.service if isinstance(found, Host) else None
    )
