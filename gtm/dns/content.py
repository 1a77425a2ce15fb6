"""What the answer to a question says, before it becomes bytes. Both ways of answering take it from here.

Laws:
  1. A name that exists is never refused by NXDOMAIN or NODATA: resolvers would keep that for everyone behind them.
     Clients that may not be served get the service's refusal addresses; where there is none to give, SERVFAIL.
  2. Addresses come from the region of the decision and from nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from socket import AF_INET, AF_INET6, inet_pton

from gtm.core.choice import Option
from gtm.core.decide import Decision
from gtm.core.endpoints import serving
from gtm.core.model import Endpoint, Location, Service
from gtm.core.outcomes import Outcome, Reason
from gtm.core.view import View
from gtm.dns import wire
from gtm.dns.zones import Host, Names, ZoneData, name_exists, wire_name

SHORT_TTL = 30
"""The longest TTL, in seconds, of answers that should not outlive their cause: refusals, and health ignored."""

_EDE_OTHER, _EDE_PROHIBITED, _EDE_NOT_AUTHORITATIVE, _EDE_NOT_SUPPORTED, _EDE_INVALID_TYPE = 0, 18, 20, 21, 30

_HINFO = b"\x07RFC8482\x00"


@dataclass(frozen=True, slots=True)
class ExtendedError:
    """An extended DNS error (RFC 8914): INFO-CODE and EXTRA-TEXT."""

    code: int
    text: str = ""

    @property
    def option(self) -> bytes:
        """The EDNS option."""
        return wire.option(wire.OPTION_ERROR, self.code.to_bytes(2, "big") + self.text.encode())


@dataclass(frozen=True, slots=True)
class Record:
    """A record: TTL in seconds, data in uncompressed wire form. `owner` in lower-case wire form; None: the name asked."""

    rdtype: int
    ttl: int
    rdata: bytes
    owner: bytes | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """An answer, by sections. `zone` is the one it comes from, None for no zone of this server.

    `tailored`: it depends on where the client is, and carries the scope of its location; all others hold for everyone
    and have scope 0 (RFC 7871 §7.2.1; §7.4 for negative answers).
    """

    rcode: int = wire.NOERROR
    authoritative: bool = True
    records: tuple[Record, ...] = ()
    authority: tuple[Record, ...] = ()
    additional: tuple[Record, ...] = ()
    error: ExtendedError | None = None
    tailored: bool = False
    zone: ZoneData | None = None


def denial(zone: ZoneData, rcode: int = wire.NOERROR) -> Content:
    """A negative answer, with the zone's SOA (RFC 2308 §2): NODATA, or with NXDOMAIN for a name that is not there."""
    return Content(rcode, authority=(Record(wire.SOA, zone.negative_ttl, zone.soa, zone.name),), zone=zone)


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


def static_content(names: Names, name: bytes, rdtype: int) -> Content | Host:
    """The answer for everyone, or the host whose answer takes a decision.

    Args:
        names: the names of the policy.
        name: the question's, in lower-case wire form.
        rdtype: the question's.
    """
    if rdtype in _ERRORS:
        error = ExtendedError(_EDE_INVALID_TYPE, "no type of data")
        return Content(_ERRORS[rdtype], authoritative=False, error=error)
    # A DS record lives on the parent's side of a zone cut (RFC 4035 §3.1.4.1).
    zone = (names.zone_of(name, above=True) if rdtype == wire.DS else None) or names.zone_of(name)
    if zone is None:
        return NOT_AUTHORITATIVE
    if rdtype in (wire.AXFR, wire.IXFR):
        return NO_TRANSFER
    records = _apex_records(zone, rdtype) if name == zone.name else ()
    host = names.hosts.get(name)
    if not records and host is not None and host.zone is zone:
        return host
    records = records or _server_records(names, name, rdtype, zone)
    if records:
        return Content(records=records, zone=zone)
    return denial(zone, wire.NOERROR if name_exists(names, name, zone) else wire.NXDOMAIN)


def _apex_records(zone: ZoneData, rdtype: int) -> tuple[Record, ...]:
    """What every zone answers at its apex (RFC 1034 §4.2.1)."""
    if rdtype == wire.SOA:
        return (Record(wire.SOA, zone.ttl, zone.soa),)
    if rdtype == wire.ANY:
        return (_minimal_any(zone.ttl),)
    if rdtype == wire.NS:
        return tuple(Record(wire.NS, zone.ttl, server) for server in zone.name_servers)
    return ()


def _server_records(names: Names, name: bytes, rdtype: int, zone: ZoneData) -> tuple[Record, ...]:
    """The addresses of a name server that lies in one of our zones."""
    server = names.servers.get(name)
    if server is None or server.zone is not zone:
        return ()
    if rdtype == wire.ANY:
        return (_minimal_any(server.ttl),)
    content = _addresses(rdtype, server.ipv4, server.ipv6, server.ttl)
    return () if content is None else content.records


def host_content(
    view: View, host: Host, rdtype: int, option: Option, explanation: Sequence[str] = ()
) -> Content:
    """What a service's host name answers, given how the request ends.

    Args:
        view: what the option was made from.
        host: the name's service and zone.
        rdtype: the question's.
        option: for this client.
        explanation: the strings of a TXT answer (`explanation`); of no other.
    """
    service = view.snapshot.services[host.service].service
    if option.outcome is Outcome.SERVED:
        ignored = option.reason is Reason.HEALTH_IGNORED
        ttl = min(service.ttl, SHORT_TTL) if ignored else service.ttl
        content = _from_endpoints(serving(view, option), host, rdtype, ttl)
    else:
        content = _refusal(view, service, host, rdtype, option)
        ttl = min(service.ttl, SHORT_TTL)
    if content is not None:
        return replace(content, zone=host.zone)
    if rdtype == wire.ANY:
        return Content(records=(_minimal_any(ttl),), zone=host.zone)
    if rdtype == wire.TXT:
        text = b"".join(_character_string(part) for part in explanation)
        return Content(records=(Record(wire.TXT, ttl, text),), tailored=True, zone=host.zone)
    return denial(host.zone)


def _from_endpoints(endpoints: tuple[Endpoint, ...], host: Host, rdtype: int, ttl: int) -> Content | None:
    """Addresses or an alias from the endpoints of the region chosen; None if they don't answer this type.

    Endpoints with addresses come before those with only a name. An alias is the whole answer for any type (RFC 1034
    §3.6.2) and there is one at most (RFC 2181 §10.1): the first usable endpoint's. It cannot stand at an apex.
    """
    if any(endpoint.ipv4 or endpoint.ipv6 for endpoint in endpoints):
        return _addresses(
            rdtype,
            tuple(address for endpoint in endpoints for address in endpoint.ipv4),
            tuple(address for endpoint in endpoints for address in endpoint.ipv6),
            ttl,
        )
    alias = next((endpoint.cname for endpoint in endpoints if endpoint.cname is not None), None)
    if alias is not None and not host.apex:
        return Content(records=(Record(wire.CNAME, ttl, wire_name(alias)),), tailored=True)
    if rdtype in (wire.A, wire.AAAA):
        return _failure(
            "the region chosen has no address in DNS"
            if alias is None
            else "the region chosen has only an alias, which cannot stand at a zone's apex"
        )
    return None


def _refusal(view: View, service: Service, host: Host, rdtype: int, option: Option) -> Content | None:
    """The refusal addresses, with the reason; None if the type is none that a refusal changes.

    A family that no member ever answers in stays an honest NODATA: nobody is refused by it.
    """
    error = _refusal_error(option)
    content = _addresses(rdtype, service.refusal.ipv4, service.refusal.ipv6, min(service.ttl, SHORT_TTL))
    if content is not None:
        return Content(records=content.records, error=error, tailored=True)
    if rdtype not in (wire.A, wire.AAAA):
        return None
    family = "ipv4" if rdtype == wire.A else "ipv6"
    # Compiling a policy asks for the addresses that this would miss; the law is held here all the same.
    missed = not (service.refusal.ipv4 or service.refusal.ipv6) or any(
        getattr(endpoint, family) or endpoint.cname is not None
        for number in view.snapshot.services[host.service].members
        for endpoint in view.snapshot.regions[number].endpoints
    )
    return Content(wire.SERVFAIL, authoritative=False, error=error) if missed else None


def _addresses(rdtype: int, ipv4: tuple[str, ...], ipv6: tuple[str, ...], ttl: int) -> Content | None:
    """A or AAAA records, each address once (RFC 2181 §5); None without any."""
    if rdtype == wire.A:
        family, addresses = AF_INET, ipv4
    elif rdtype == wire.AAAA:
        family, addresses = AF_INET6, ipv6
    else:
        return None
    packed = dict.fromkeys(inet_pton(family, address) for address in addresses)
    records = tuple(Record(rdtype, ttl, rdata) for rdata in packed)
    return Content(records=records, tailored=True) if records else None


def _failure(text: str) -> Content:
    return Content(wire.SERVFAIL, authoritative=False, error=ExtendedError(_EDE_OTHER, text))


def _refusal_error(option: Option) -> ExtendedError:
    """Residency is a prohibition; for want of a usable region there is no code of its own (RFC 8914 §4)."""
    if option.outcome is Outcome.REFUSED_UNAVAILABLE:
        return ExtendedError(_EDE_OTHER, "no region can serve now")
    if option.reason is Reason.FENCE_EMPTY:
        return ExtendedError(_EDE_PROHIBITED, "residency rules allow no region for this client")
    return ExtendedError(_EDE_PROHIBITED, "residency rules allow no usable region for this client")


def _minimal_any(ttl: int) -> Record:
    """ANY gets one synthesized record (RFC 8482 §4.2)."""
    return Record(wire.HINFO, ttl, _HINFO)


def explanation(decision: Decision, location: Location) -> list[str]:
    """The decision in words, as TXT strings."""
    parts = [
        f"service={decision.service}",
        f"outcome={decision.outcome.value}",
        f"region={decision.region or ''}",
        f"reason={decision.reason.value}",
        f"country={location.country or 'unknown'}",
        f"network={location.network or 'unknown'}",
    ]
    parts += [f"rule={rule.name} mode={rule.mode}" for rule in decision.rules]
    return [*parts, f"revision={decision.revision}", f"epoch={decision.epoch}"]


def _character_string(text: str) -> bytes:
    """A <character-string> (RFC 1035 §3.3): at most 255 octets."""
    encoded = text.encode()[:255]
    return bytes((len(encoded),)) + encoded
