"""What the names of a policy lead to, found by the function that answers for them (`gtm.dns.zone.static`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from socket import AF_INET, AF_INET6, inet_ntop

import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.rdtypes.svcbbase as svcb

from gtm.core.change.leads import NOWHERE, Decider, Led, servers_of
from gtm.core.policy.snapshot import Snapshot
from gtm.dns.protocol import wire
from gtm.dns.zone.content import Content
from gtm.dns.zone.static import Alias, loops, static_content
from gtm.dns.zone.zones import Host, Rdatas, build_names, wire_name

_SVCB = int(dns.rdatatype.SVCB)
_ASKED = (wire.A, wire.AAAA, wire.HTTPS, _SVCB, wire.SRV)
"""The types that clients ask for to connect (RFC 9460 §3, RFC 2782)."""
_LEADING = frozenset((*_ASKED, wire.CNAME))


class NameEnd(Enum):
    """What the questions for a name's addresses find in the end."""

    ADDRESS = auto()
    SERVICE = auto()
    """A service decides."""
    ELSEWHERE = auto()
    """A name outside of the policy's zones, or in a delegated one: others answer for it."""
    EMPTY = auto()
    """The name exists, and has no address (NODATA)."""
    MISSING = auto()
    """The name does not exist (NXDOMAIN)."""
    LOOP = auto()
    """The aliases lead to each other."""
    UNREADABLE = auto()
    """A record that this gtm cannot read stands there."""


@dataclass(frozen=True, slots=True)
class NameRoute:
    """Where the questions for a name's addresses go: by `aliases`, each name that one leads to, to an `end`.

    `host` is what decides there, where a service does.
    """

    end: NameEnd
    aliases: tuple[str, ...] = ()
    host: Host | None = None


_kept: deque[tuple[Snapshot, ZoneLeads]] = deque(maxlen=3)
"""Policies, by which of them they are, and what their names lead to."""


def leads_of(snapshot: Snapshot) -> ZoneLeads:
    """What a policy's names lead to. Of the last few policies it is kept: one after the other is asked about the same two."""
    for kept, found in tuple(_kept):
        if kept is snapshot:
            return found
    made = ZoneLeads(snapshot)
    _kept.append((snapshot, made))
    return made


class ZoneLeads:
    """What the names of one policy lead to; see `gtm.core.change.leads.Leads`.

    Args:
        snapshot: the policy.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._names = build_names(snapshot)
        self._zones = snapshot.zones
        self._known: dict[str, Led] = {}
        self._routes: dict[str, NameRoute] = {}
        self._records: dict[tuple[str, int], tuple[bytes, ...] | None] = {}

    @property
    def names(self) -> Collection[str]:
        """The names that have records that lead somewhere, or are delegated."""
        led = (name for name, sets in self._names.records.items() if not sets.keys().isdisjoint(_LEADING))
        return [_text(name) for name in {*led, *self._names.cuts}]

    def at(self, name: str) -> Led:
        """What a name leads to, itself or by a wildcard, and the name servers that answer for it."""
        if name not in self._known:
            try:
                start = wire_name(name)
            except ValueError:  # no name that could be asked for
                return Led()
            services: set[Decider] = set()
            targets: set[str] = set()
            ahead, seen = [start], {start}
            while ahead:
                for found in self._from(ahead.pop()):
                    if isinstance(found, Host):
                        services.add(Decider(found.service, found.tenant, found.data_class))
                    elif isinstance(found, str):
                        targets.add(found)
                    elif found not in seen:
                        seen.add(found)
                        ahead.append(found)
            servers = servers_of(self._zones, name)
            self._known[name] = Led(frozenset(services), frozenset(targets - NOWHERE), servers)
        return self._known[name]

    def route(self, name: str) -> NameRoute:
        """Where the questions for a name's addresses end, as the name server answers them."""
        if name not in self._routes:
            self._routes[name] = self._routed(name)
        return self._routes[name]

    def records(self, name: str, rdtype: int) -> tuple[bytes, ...] | None:
        """The data of the records of a type at a name, or where its aliases lead, in wire form; None: others answer for it.

        A service's own answers are none.
        """
        if (name, rdtype) not in self._records:
            self._records[name, rdtype] = self._found(name, rdtype)
        return self._records[name, rdtype]

    def _found(self, name: str, rdtype: int) -> tuple[bytes, ...] | None:
        try:
            at = wire_name(name)
        except ValueError:  # no name that could be asked for
            return None
        seen = set()
        while at not in seen:
            seen.add(at)
            found = static_content(self._names, at, rdtype)
            if isinstance(found, (Host, Alias)):
                return ()
            if found.delegation is not None or found.rcode not in (wire.NOERROR, wire.NXDOMAIN):
                return None
            last = found.records[-1] if found.records and not found.rcode else None
            if last is None or last.rdtype != wire.CNAME:
                return tuple(record.rdata for record in found.records if record.rdtype == rdtype)
            at = last.rdata.lower()
        return None

    def _routed(self, name: str) -> NameRoute:
        try:
            at = wire_name(name)
        except ValueError:  # no name that could be asked for
            return NameRoute(NameEnd.ELSEWHERE)
        aliases: list[str] = []
        while True:
            found = static_content(self._names, at, wire.A)
            if isinstance(found, Host):
                return NameRoute(NameEnd.SERVICE, tuple(aliases), found)
            if isinstance(found, Alias):
                aliases += (_text(record.rdata) for record in found.records)
                return NameRoute(NameEnd.SERVICE, tuple(aliases), found.host)
            led = [record for record in found.records if record.rdtype == wire.CNAME]
            aliases += (_text(record.rdata) for record in led)
            if not led or found.records[-1].rdtype != wire.CNAME or found.rcode:
                return NameRoute(self._end(at, found), tuple(aliases))
            # An answer ends with an alias where others go on, where nothing is, and after as many as one answer follows.
            at = led[-1].rdata.lower()
            if len(set(aliases)) < len(aliases):
                return NameRoute(NameEnd.LOOP, tuple(aliases))

    def _end(self, name: bytes, found: Content) -> NameEnd:
        """What an answer to the question for an IPv4 address is the end of."""
        if loops(found):
            return NameEnd.LOOP
        if found.delegation is not None or found.rcode == wire.REFUSED:
            return NameEnd.ELSEWHERE
        if found.rcode == wire.NXDOMAIN:
            return NameEnd.MISSING
        if found.rcode:
            return NameEnd.UNREADABLE
        if found.records:
            return NameEnd.ADDRESS
        other = static_content(self._names, name, wire.AAAA)
        return NameEnd.ADDRESS if isinstance(other, Content) and other.records else NameEnd.EMPTY

    def _from(self, name: bytes) -> Iterator[Host | str | bytes]:
        """What one question after the other finds: who decides, a target, or another name of the policy to ask for."""
        for rdtype in _ASKED:
            content = static_content(self._names, name, rdtype)
            if isinstance(content, (Host, Alias)):
                yield content if isinstance(content, Host) else content.host
                continue
            if content.delegation is not None:
                yield from map(_text, content.delegation.servers.data)
                for _, _, glue in content.delegation.glue:
                    yield from _addresses(glue)
            owner = name
            for record in content.records:
                owner = name if record.owner is None else record.owner
                if record.rdtype in (wire.A, wire.AAAA):
                    yield _address(record.rdata)
                elif record.rdtype in (wire.HTTPS, _SVCB):
                    yield from self._bound(record.rdtype, record.rdata, owner)
                elif record.rdtype == wire.SRV and record.rdata[6:] != b"\0":
                    yield from self._named(record.rdata[6:].lower())
            last = content.records[-1] if content.records else None
            if last is not None and last.rdtype == wire.CNAME:
                yield from self._named(last.rdata.lower())

    def _named(self, name: bytes) -> Iterator[str | bytes]:
        """A name that is led to: to be asked for, if it is the policy's."""
        yield name if self._names.zone_of(name) is not None else _text(name)

    def _bound(self, rdtype: int, data: bytes, owner: bytes) -> Iterator[str | bytes]:
        """The target and the hints of a service binding (RFC 9460 §2.2, §7.3)."""
        kind = dns.rdatatype.RdataType.make(rdtype)
        record = dns.rdata.from_wire(dns.rdataclass.IN, kind, data, 0, len(data))
        if not isinstance(record, svcb.SVCBBase):
            return
        target = (record.target.to_wire() or b"\0").lower()
        if target not in (b"\0", owner):
            yield from self._named(target)
        for value in record.params.values():
            if isinstance(value, (svcb.IPv4HintParam, svcb.IPv6HintParam)):
                yield from map(str, value.addresses)


def _addresses(rdatas: Rdatas) -> Iterator[str]:
    return map(_address, rdatas.data)


def _address(data: bytes) -> str:
    return inet_ntop(AF_INET if len(data) == 4 else AF_INET6, data)


def _text(name: bytes) -> str:
    """A name in lower-case wire form as policies write it."""
    labels, at = [], 0
    while name[at]:
        labels.append(name[at + 1 : at + 1 + name[at]].decode("latin-1"))
        at += 1 + name[at]
    return ".".join(labels).lower()
