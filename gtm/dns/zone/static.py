"""Answers that are the same for everyone: records of zones, aliases, delegations, and names that are not there.

The algorithm is that of RFC 1034 §4.3.2, with wildcards as RFC 4592 has them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gtm.dns.protocol import wire
from gtm.dns.zone.content import Content, ExtendedError, Record, denial, failure, minimal_any
from gtm.dns.zone.zones import Host, Names, Rdatas, ZoneCut, ZoneData

MAX_ALIASES = 8
"""How many aliases are followed for one question; resolvers follow the rest."""

_EDE_NOT_AUTHORITATIVE, _EDE_NOT_SUPPORTED, _EDE_INVALID_TYPE = 20, 21, 30

_UNREADABLE = "this server cannot read the record"
_LOOP = "the aliases form a loop"

NOT_AUTHORITATIVE = Content(
    wire.REFUSED,
    authoritative=False,
    error=ExtendedError(_EDE_NOT_AUTHORITATIVE, "not a zone of this server"),
)
NO_TRANSFER = Content(
    wire.REFUSED, authoritative=False, error=ExtendedError(_EDE_NOT_SUPPORTED, "zones are not transferred")
)
_ERRORS = {
    wire.OPT: wire.FORMERR,
    wire.TKEY: wire.FORMERR,
    wire.TSIG: wire.FORMERR,
    wire.NXNAME: wire.FORMERR,
    wire.MAILA: wire.NOTIMP,
    wire.MAILB: wire.NOTIMP,
}
"""Types that are no question about data (RFC 6895 §3.1, RFC 9824 §3.5; MAILA and MAILB: obsolete, RFC 1035 §3.2.3)."""


@dataclass(frozen=True, slots=True)
class Alias:
    """Aliases that end at a service's host name: the answer takes a decision. `name` is that host name."""

    records: tuple[Record, ...]
    name: bytes
    host: Host

    def before(self, content: Content) -> Content:
        """The whole answer, where `content` is what the host name answers."""
        return _after(self.records, self.name, content)


def static_content(names: Names, name: bytes, rdtype: int) -> Content | Host | Alias:
    """The answer for everyone, or the host whose answer takes a decision.

    Args:
        names: the names of the policy.
        name: the question's, in lower-case wire form.
        rdtype: the question's.
    """
    if rdtype in _ERRORS:
        error = ExtendedError(_EDE_INVALID_TYPE, "no type of data")
        return Content(_ERRORS[rdtype], authoritative=False, error=error)
    zone = _zone_of(names, name, rdtype)
    if zone is None:
        return NOT_AUTHORITATIVE
    if rdtype in (wire.AXFR, wire.IXFR):
        return NO_TRANSFER
    found = _look_up(names, name, rdtype, zone)
    return _followed(names, name, rdtype, zone, found) if isinstance(found, Rdatas) else found


def loops(content: Content) -> bool:
    """Whether an answer fails because aliases lead to each other."""
    return content.error is not None and content.error.text == _LOOP


def _followed(names: Names, name: bytes, rdtype: int, zone: ZoneData, alias: Rdatas) -> Content | Alias:
    """What an alias leads to, through others if need be (RFC 1034 §4.3.2, step 3a)."""
    chain: tuple[Record, ...] = ()
    seen = {name}
    found: Content | Host | Rdatas = alias
    while isinstance(found, Rdatas):
        (target,) = found.data
        chain += (Record(wire.CNAME, found.ttl, target, name if chain else None),)
        name = target.lower()
        if name in seen:
            return failure(_LOOP, zone)  # RFC 1034 §3.6.2: an error
        seen.add(name)
        following = _zone_of(names, name, rdtype)
        if following is None:
            return Content(records=chain, zone=zone)
        zone = following
        found = _look_up(names, name, rdtype, zone)
        if isinstance(found, Rdatas) and len(chain) == MAX_ALIASES:
            return Content(records=chain, zone=zone)
    return Alias(chain, name, found) if isinstance(found, Host) else _after(chain, name, found)


def _zone_of(names: Names, name: bytes, rdtype: int) -> ZoneData | None:
    # A DS record lives on the parent's side of a zone cut (RFC 4035 §3.1.4.1).
    return (names.zone_of(name, above=True) if rdtype == wire.DS else None) or names.zone_of(name)


def _look_up(names: Names, name: bytes, rdtype: int, zone: ZoneData) -> Content | Host | Rdatas:
    """What a name answers: everything, or the host that does, or the alias to follow."""
    cut = names.cut_of(name, zone)
    if cut is not None and (rdtype != wire.DS or name != cut.name):
        return _referral(cut)
    if cut is not None:
        return denial(zone) if cut.ds is None else _answer(rdtype, cut.ds, zone)
    source = names.source_of(name, zone)
    return denial(zone, wire.NXDOMAIN) if source is None else _at(names, source, rdtype, zone)


def _at(names: Names, source: bytes, rdtype: int, zone: ZoneData) -> Content | Host | Rdatas:
    """What the records of an existing name, or the service that it is a host name of, answer."""
    records = names.records.get(source, {})
    if rdtype in records:
        return _answer(rdtype, records[rdtype], zone)
    alias = records.get(wire.CNAME)
    if alias is not None:
        return alias if alias.data and rdtype != wire.ANY else _answer(wire.CNAME, alias, zone)
    if records and rdtype == wire.ANY:
        return Content(records=(minimal_any(min(each.ttl for each in records.values())),), zone=zone)
    host = names.hosts.get(source)
    return host if host is not None and host.zone is zone else denial(zone)


def _answer(rdtype: int, rdatas: Rdatas, zone: ZoneData) -> Content:
    if not rdatas.data:
        return failure(_UNREADABLE, zone)
    return Content(records=_records(rdtype, rdatas), zone=zone)


def _records(rdtype: int, rdatas: Rdatas, owner: bytes | None = None) -> tuple[Record, ...]:
    return tuple(Record(rdtype, rdatas.ttl, data, owner) for data in rdatas.data)


def _referral(cut: ZoneCut) -> Content:
    """Where to ask instead, with the addresses known of those servers (RFC 1034 §4.3.2, step 3b; RFC 9471 §3)."""
    # Without DS records that are there, validators would take the zone for unsigned.
    if not cut.servers.data or (cut.ds is not None and not cut.ds.data):
        return failure(_UNREADABLE, cut.zone)
    authority = _records(wire.NS, cut.servers, cut.name)
    if cut.ds is not None:
        authority += _records(wire.DS, cut.ds, cut.name)
    return Content(
        authoritative=False,
        authority=authority,
        additional=tuple(
            record for name, rdtype, data in cut.glue for record in _records(rdtype, data, name)
        ),
        zone=cut.zone,
        delegation=cut,
    )


def _after(chain: tuple[Record, ...], name: bytes, content: Content) -> Content:
    """An answer with the aliases that led to its name. The rcode is that of the last name (RFC 6604 §3)."""
    if content.rcode in (wire.SERVFAIL, wire.REFUSED):
        return content
    if content.delegation is not None:
        return Content(records=chain, zone=content.zone)  # resolvers ask on from there
    owned = tuple(
        replace(record, owner=name) if record.owner is None else record for record in content.records
    )
    return replace(content, records=chain + owned)
