"""The names an edge answers for: made once per policy revision, from zones and the services' host names.

A name belongs to the closest zone above it, whatever other zones are configured (RFC 1034 §4.3.2).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from socket import AF_INET, AF_INET6, inet_pton

import dns.exception
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype

from gtm.core.model.names import absolute, closest
from gtm.core.model.regions import AddressFamily
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import RecordSet, Zone
from gtm.core.policy.snapshot import Snapshot
from gtm.dns.protocol import wire

logger = logging.getLogger(__name__)

_ROOT = b"\0"
_STAR = b"\x01*"
_FAMILIES = {wire.A: AddressFamily.IPV4, wire.AAAA: AddressFamily.IPV6}


@dataclass(frozen=True, slots=True, eq=False)
class ZoneData:
    """A zone in wire form: lower-case `name`, rdata uncompressed, TTLs in seconds."""

    name: bytes
    soa: bytes
    name_servers: tuple[bytes, ...]
    ttl: int
    negative_ttl: int
    """Of the SOA record in a negative answer: the lesser of its own TTL and its minimum (RFC 2308 §5)."""
    explanations: bool = True
    """Whether TXT at services' names explains answers."""


@dataclass(frozen=True, slots=True, eq=False)
class Host:
    """A host name of a service. `apex`: the name is its zone's own, where no CNAME can stand (RFC 1034 §3.6.2).

    `tenant` and `data_class` are what it states of who asks; None: nothing. `pools` has the types whose answers are decided
    among the members with such addresses (`families: separate`), with their family.
    """

    service: str
    zone: ZoneData
    apex: bool
    tenant: str | None = None
    data_class: str | None = None
    pools: Mapping[int, AddressFamily] = field(default_factory=dict)

    def request(self, location: Location, rdtype: int) -> Request:
        """The request of a client that asks for records of a type."""
        family = self.pools.get(rdtype)
        return Request(self.service, location, self.tenant, self.data_class, family=family)


class Rdatas:
    """Data of the records of one name and type. TTL in seconds.

    What operators wrote is read when it is first asked for: zones are large, and few of their names are asked for often.

    Args:
        ttl: of all of them.
        data: in uncompressed wire form; None: to be read.
        written: what to read it from, with the zone that names are relative to.
    """

    __slots__ = ("_data", "ttl", "written")

    def __init__(
        self, ttl: int, data: tuple[bytes, ...] | None = None, written: tuple[tuple[RecordSet, str], ...] = ()
    ) -> None:
        self.ttl = ttl
        self.written = written
        self._data = data

    @property
    def data(self) -> tuple[bytes, ...]:
        """In uncompressed wire form; none if this gtm cannot read all of it, so that the question fails here."""
        if self._data is None:
            self._data = _read(self.written)
        return self._data


@dataclass(frozen=True, slots=True, eq=False)
class ZoneCut:
    """A delegation: where `zone` ends and another one, of others, begins (RFC 1034 §4.2.1).

    `ds` is None where there are no DS records. `glue` holds the known addresses of its name servers: name, type, data.
    """

    name: bytes
    zone: ZoneData
    servers: Rdatas
    ds: Rdatas | None
    glue: tuple[tuple[bytes, int, Rdatas], ...]


@dataclass(slots=True)
class Names:
    """Names in lower-case wire form, and what is there.

    `hosts` are the services', wildcards included. `existing` holds every name of every zone, empty non-terminals
    included. `records` are those that hold for everyone, SOA and NS of each zone among them, by name and type. A name
    below a delegation is in `existing`, but belongs to `cuts`. `aliasing` are the services that a region's alias for a name of
    the policy's zones may answer for; where there are any, `owners` has the mask of the regions that have an address (packed).
    """

    zones: dict[bytes, ZoneData] = field(default_factory=dict)
    hosts: dict[bytes, Host] = field(default_factory=dict)
    existing: frozenset[bytes] = frozenset()
    records: dict[bytes, dict[int, Rdatas]] = field(default_factory=dict)
    cuts: dict[bytes, ZoneCut] = field(default_factory=dict)
    aliasing: frozenset[str] = frozenset()
    owners: dict[bytes, int] = field(default_factory=dict)

    def zone_of(self, name: bytes, *, above: bool = False) -> ZoneData | None:
        """The closest zone that holds a name; with `above`, that holds what lies above it."""
        for index, suffix in enumerate(suffixes(name)):
            zone = self.zones.get(suffix)
            if zone is not None and not (above and index == 0):
                return zone
        return None

    def cut_of(self, name: bytes, zone: ZoneData) -> ZoneCut | None:
        """The delegation out of a zone that a name lies in, or is."""
        if not self.cuts:
            return None
        for suffix in suffixes(name):
            if suffix == zone.name:
                return None
            cut = self.cuts.get(suffix)
            if cut is not None:
                return cut
        return None

    def source_of(self, name: bytes, zone: ZoneData) -> bytes | None:
        """The name whose records answer for a name of a zone: itself, or else the wildcard that stands for it.

        That is the one right below the closest encloser, the closest name above that exists (RFC 4592 §3.3.1). None:
        the name does not exist.
        """
        if name in self.existing:
            return name
        encloser = next(suffix for suffix in suffixes(name) if suffix in self.existing or suffix == zone.name)
        wildcard = _STAR + encloser
        return wildcard if wildcard in self.existing else None


def suffixes(name: bytes) -> Iterator[bytes]:
    """A wire-form name, and each name above it, down to the root."""
    at = 0
    while name[at]:
        yield name[at:]
        at += 1 + name[at]
    yield _ROOT


def wire_name(text: str) -> bytes:
    """A domain name without escapes, in lower-case wire form (RFC 1035 §3.1).

    Raises:
        ValueError: a label is empty or too long, or a character is not ASCII.
    """
    labels = [label.encode("ascii") for label in text.removesuffix(".").lower().split(".")]
    if not all(0 < len(label) <= wire.MAX_LABEL for label in labels):
        raise ValueError(f"`{text}` is not a domain name")
    return b"".join([bytes((len(label),)) + label for label in labels]) + _ROOT


def build_names(snapshot: Snapshot, elsewhere: frozenset[str] = frozenset()) -> Names:
    """Prepare the names of a policy. Cost: linear in zones, records and host names.

    Args:
        snapshot: the policy.
        elsewhere: zones inside others that are referred to, not answered for (`gtm.core.policy.edges.zones_elsewhere`).
    """
    names = Names(
        zones={
            wire_name(zone.name): _zone_data(zone, snapshot.revision)
            for zone in snapshot.policy.zones
            if zone.name not in elsewhere
        },
        existing=frozenset(wire_name(name) for name in snapshot.existing),
        aliasing=_aliasing(snapshot),
    )
    if names.aliasing:
        names.owners = _owners(snapshot)
    for hostname, service in snapshot.hostnames.items():
        if closest(snapshot.zones, hostname) in elsewhere:
            continue
        name = wire_name(hostname)
        zone = names.zone_of(name)
        if zone is not None:
            said = snapshot.stated.get(hostname)
            tenant, data_class = (None, None) if said is None else (said.tenant, said.data_class)
            families = snapshot.services[service].pools
            pools = {rdtype: family for rdtype, family in _FAMILIES.items() if family in families}
            names.hosts[name] = Host(service, zone, name == zone.name, tenant, data_class, pools)
    for written in snapshot.policy.zones:
        if written.name in elsewhere:
            _refer(names, written)
            continue
        zone = names.zones[wire_name(written.name)]
        apex = names.records.setdefault(zone.name, {})
        apex[wire.SOA] = Rdatas(zone.ttl, (zone.soa,))
        apex[wire.NS] = Rdatas(zone.ttl, zone.name_servers)
        for server in written.name_servers:
            _add_addresses(names.records, wire_name(server.name), wire.A, server.ipv4, written.ttl)
            _add_addresses(names.records, wire_name(server.name), wire.AAAA, server.ipv6, written.ttl)
        for record in written.sets:
            ttl = written.ttl if record.ttl is None else record.ttl
            sets = names.records.setdefault(wire_name(absolute(record.name, written.name)), {})
            rdtype = dns.rdatatype.from_text(record.type)
            before = sets[rdtype].written if rdtype in sets else ()
            sets[rdtype] = Rdatas(ttl, written=(*before, (record, written.name)))
    _cut(names)
    return names


def _aliasing(snapshot: Snapshot) -> frozenset[str]:
    """The services of which a member's alias is a name of the policy's zones."""
    regions = {
        region.name
        for region in snapshot.regions
        for endpoint in region.endpoints
        if endpoint.cname is not None and closest(snapshot.zones, endpoint.cname) is not None
    }
    return frozenset(
        name
        for name, compiled in (snapshot.services.items() if regions else ())
        if not regions.isdisjoint(member.region for member in compiled.service.members)
    )


def _owners(snapshot: Snapshot) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for number, region in enumerate(snapshot.regions):
        for endpoint in region.endpoints:
            for family, addresses in ((AF_INET, endpoint.ipv4), (AF_INET6, endpoint.ipv6)):
                for address in addresses:
                    packed = inet_pton(family, address)
                    found[packed] = found.get(packed, 0) | 1 << number
    return found


def _refer(names: Names, zone: Zone) -> None:
    """Make a zone of the policy a delegation out of the one around it, with the addresses known of its servers."""
    servers = {server.name for server in zone.name_servers}
    targets = tuple(wire_name(name) for name in dict.fromkeys(server.name for server in zone.name_servers))
    names.records.setdefault(wire_name(zone.name), {})[wire.NS] = Rdatas(zone.ttl, targets)
    for server in zone.name_servers:
        _add_addresses(names.records, wire_name(server.name), wire.A, server.ipv4, zone.ttl)
        _add_addresses(names.records, wire_name(server.name), wire.AAAA, server.ipv6, zone.ttl)
    for record in zone.records:
        if record.type in ("A", "AAAA") and absolute(record.name, zone.name) in servers:
            ttl = zone.ttl if record.ttl is None else record.ttl
            sets = names.records.setdefault(wire_name(absolute(record.name, zone.name)), {})
            sets[dns.rdatatype.from_text(record.type)] = Rdatas(ttl, written=((record, zone.name),))


def _add_addresses(
    records: dict[bytes, dict[int, Rdatas]], name: bytes, rdtype: int, addresses: Sequence[str], ttl: int
) -> None:
    if addresses:
        family = AF_INET if rdtype == wire.A else AF_INET6
        data = tuple(inet_pton(family, each) for each in addresses)
        records.setdefault(name, {})[rdtype] = Rdatas(ttl, data)


def _read(written: Iterable[tuple[RecordSet, str]]) -> tuple[bytes, ...]:
    found = []
    for record, zone in written:
        origin = dns.name.from_text(zone)
        try:
            for text in record.data:
                rdata = dns.rdata.from_text(
                    dns.rdataclass.IN, record.type, text, origin=origin, relativize=False
                )
                found.append(rdata_wire(rdata))
        except (dns.exception.DNSException, ValueError) as error:
            what = f"{record.name} {record.type} of {zone}"
            logger.error("records cannot be read, and are answered by SERVFAIL: %s: %s", what, error)
            return ()
    return tuple(found)


def _cut(names: Names) -> None:
    """Take delegations, and what lies below them, out of the records that are answered."""
    apexes = names.zones.keys()
    owners = [name for name, sets in names.records.items() if wire.NS in sets and name not in apexes]
    for name in owners:
        zone = names.zone_of(name)
        if zone is not None:
            sets = names.records[name]
            known = (
                (server.lower(), rdtype) for server in sets[wire.NS].data for rdtype in (wire.A, wire.AAAA)
            )
            glue = tuple(
                (server, rdtype, found)
                for server, rdtype in known
                if (found := names.records.get(server, {}).get(rdtype)) is not None
            )
            names.cuts[name] = ZoneCut(name, zone, sets[wire.NS], sets.get(wire.DS), glue)
    for name in list(names.records) if names.cuts else ():
        zone = names.zone_of(name)
        if zone is None or names.cut_of(name, zone) is not None:
            del names.records[name]


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
        explanations=zone.explanations,
    )


def rdata_wire(rdata: dns.rdata.Rdata) -> bytes:
    """Record data in uncompressed wire form."""
    encoded = rdata.to_wire()
    return encoded if encoded is not None else b""


def _absolute(name: str) -> str:
    return name if name.endswith(".") else f"{name}."
