"""The names an edge answers for: made once per policy revision, from zones and the services' host names.

A name belongs to the closest zone above it, whatever other zones are configured (RFC 1034 §4.3.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype

from gtm.core.model import Zone
from gtm.core.snapshot import Snapshot

_ROOT = b"\0"


@dataclass(frozen=True, slots=True, eq=False)
class ZoneData:
    """A zone in wire form: lower-case `name`, rdata uncompressed, TTLs in seconds."""

    name: bytes
    soa: bytes
    name_servers: tuple[bytes, ...]
    ttl: int
    negative_ttl: int
    """Of the SOA record in a negative answer: the lesser of its own TTL and its minimum (RFC 2308 §5)."""


@dataclass(frozen=True, slots=True, eq=False)
class Host:
    """A host name of a service. `apex`: the name is its zone's own, where no CNAME can stand (RFC 1034 §3.6.2)."""

    service: str
    zone: ZoneData
    apex: bool


@dataclass(frozen=True, slots=True, eq=False)
class Server:
    """A name server inside a zone of ours, and its addresses as text. TTL in seconds."""

    zone: ZoneData
    ttl: int
    ipv4: tuple[str, ...]
    ipv6: tuple[str, ...]


@dataclass(slots=True)
class Names:
    """Names in lower-case wire form. `existing` holds every name below an apex, empty non-terminals included."""

    zones: dict[bytes, ZoneData] = field(default_factory=dict)
    hosts: dict[bytes, Host] = field(default_factory=dict)
    existing: set[bytes] = field(default_factory=set)
    servers: dict[bytes, Server] = field(default_factory=dict)

    def zone_of(self, name: bytes, *, above: bool = False) -> ZoneData | None:
        """The closest zone that holds a name; with `above`, that holds what lies above it."""
        for index, suffix in enumerate(suffixes(name)):
            zone = self.zones.get(suffix)
            if zone is not None and not (above and index == 0):
                return zone
        return None


def suffixes(name: bytes) -> Iterator[bytes]:
    """A wire-form name, and each name above it, down to the root."""
    at = 0
    while name[at]:
        yield name[at:]
        at += 1 + name[at]
    yield _ROOT


def wire_name(text: str) -> bytes:
    """A domain name in lower-case wire form."""
    return dns.name.from_text(text).to_digestable()


def build_names(snapshot: Snapshot) -> Names:
    """Prepare the names of a policy. Cost: linear in zones and host names."""
    names = Names(
        {wire_name(zone.name): _zone_data(zone, snapshot.revision) for zone in snapshot.policy.zones}
    )
    for hostname, service in snapshot.hostnames.items():
        name = wire_name(hostname)
        zone = names.zone_of(name)
        if zone is not None:
            names.hosts[name] = Host(service, zone, apex=name == zone.name)
            _add_existing(names, name, zone)
    for zone in names.zones.values():
        # A name server inside a zone is a name of that zone even while no address is known for it, and a zone's apex
        # is a name of the zone around it.
        for name in (*zone.name_servers, zone.name):
            around = names.zone_of(name, above=name == zone.name)
            if around is not None:
                _add_existing(names, name, around)
    for written in snapshot.policy.zones:
        for server in written.name_servers:
            name = wire_name(server.name)
            within = names.zone_of(name)
            if within is not None and (server.ipv4 or server.ipv6):
                names.servers[name] = Server(within, written.ttl, server.ipv4, server.ipv6)
    return names


def _add_existing(names: Names, name: bytes, zone: ZoneData) -> None:
    """A name exists, hence so do all above it up to the apex: as empty non-terminals, if nothing else (RFC 8020)."""
    for suffix in suffixes(name):
        if suffix == zone.name:
            return
        names.existing.add(suffix)


def _zone_data(zone: Zone, revision: int) -> ZoneData:
    # The serial follows the policy's revision, but 0 has no place in serial arithmetic's start (RFC 1912 §2.2).
    serial = max(1, revision) & 0xFFFFFFFF
    text = (
        f"{_absolute(zone.primary_ns)} {_absolute(zone.hostmaster)} "
        f"{serial} {zone.refresh} {zone.retry} {zone.expire} {zone.minimum}"
    )
    soa = dns.rdata.from_text(dns.rdataclass.IN, dns.rdatatype.SOA, text)
    servers = [server.name for server in zone.name_servers] or [zone.primary_ns]
    return ZoneData(
        name=wire_name(zone.name),
        soa=rdata_wire(soa),
        name_servers=tuple(dict.fromkeys(wire_name(server) for server in servers)),
        ttl=zone.ttl,
        negative_ttl=min(zone.ttl, zone.minimum),
    )


def rdata_wire(rdata: dns.rdata.Rdata) -> bytes:
    """Record data in uncompressed wire form."""
    encoded = rdata.to_wire()
    return encoded if encoded is not None else b""


def _absolute(name: str) -> str:
    return name if name.endswith(".") else f"{name}."


def name_exists(names: Names, name: bytes, zone: ZoneData) -> bool:
    """Whether a name that lies in `zone` is there at all; if not, the answer is NXDOMAIN."""
    return name == zone.name or name in names.existing
