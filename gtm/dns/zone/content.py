"""What the answer to a question says, before it becomes bytes. Both ways of answering take it from here.

Laws:
  1. A name that exists is never refused by NXDOMAIN or NODATA: resolvers would keep that for everyone behind them.
     Clients that may not be served get the service's refusal addresses; where there is none to give, SERVFAIL.
  2. Addresses come from the region of the decision and from nowhere else: what it has none of is NODATA, whatever others have.
     Where a family has a pool of its own (`families: separate`), the decision was made among those that have some.
  3. What is denied of a service's name is kept no longer than what it answers (RFC 2308 §5: the lesser TTL holds).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from socket import AF_INET, AF_INET6, inet_pton

from gtm.core.decision.decide import Decision
from gtm.core.decision.fence import NOT_STATED
from gtm.core.decision.options import Option, serving
from gtm.core.decision.view import View
from gtm.core.model.outcomes import Outcome, Reason
from gtm.core.model.references import some
from gtm.core.model.regions import Endpoint, https_port
from gtm.core.model.requests import Request
from gtm.core.model.services import Families, HttpsRecord, Service
from gtm.core.policy.snapshot import Snapshot
from gtm.dns.protocol import wire
from gtm.dns.zone.zones import Host, ZoneCut, ZoneData, suffixes, wire_name

# --- The data of HTTPS records (RFC 9460) that services answer with. ---


_ALPN, _PORT, _IPV4_HINT, _IPV6_HINT = 1, 3, 4, 6
"""SvcParamKeys (RFC 9460 §14.3.2)."""
_DEFAULT_PORT = 443

BARE = b"\0\1\0"
"""ServiceMode with this name as its own target and no parameters: nothing but that https is spoken here."""


def alias_data(target: bytes) -> bytes:
    """AliasMode (RFC 9460 §2.4.2), which can stand where no CNAME can: at a zone's apex."""
    return b"\0\0" + target


def https_data(
    record: HttpsRecord, endpoints: Iterable[Endpoint], ipv4: Iterable[str], ipv6: Iterable[str]
) -> bytes:
    """ServiceMode, with a region's port and addresses.

    Args:
        record: what the service says of all its regions.
        endpoints: the region's. Those with addresses have one port, which compiling a policy sees to.
        ipv4: the region's, to hint at.
        ipv6: likewise.
    """
    port = next(https_port(endpoint) for endpoint in endpoints if endpoint.ipv4 or endpoint.ipv6)
    values = {
        _ALPN: b"".join(bytes((len(name),)) + name.encode() for name in record.alpn),
        _PORT: b"" if port == _DEFAULT_PORT else port.to_bytes(2, "big"),
        _IPV4_HINT: b"".join(inet_pton(AF_INET, address) for address in ipv4),
        _IPV6_HINT: b"".join(inet_pton(AF_INET6, address) for address in ipv6),
    }
    # In ascending order of keys (RFC 9460 §2.2), and none that is empty.
    return BARE + b"".join(
        key.to_bytes(2, "big") + len(value).to_bytes(2, "big") + value
        for key, value in values.items()
        if value
    )


# --- What the answer to a question says, before it becomes bytes. Both ways of answering take it from here. ---


SHORT_TTL = 30
"""The longest TTL, in seconds, of answers that should not outlive their cause: refusals, and health ignored."""

MAX_TURNS = 8
"""How many orders of a region's addresses there are, where an answer has them all."""

_EDE_OTHER, _EDE_PROHIBITED = 0, 18

_FAMILIES = {wire.A: "ipv4", wire.AAAA: "ipv6"}
_HINFO = b"\x07RFC8482\x00"


@dataclass(frozen=True, slots=True)
class ExtendedError:
    """An extended DNS error (RFC 8914): INFO-CODE and EXTRA-TEXT."""

    code: int
    text: str = ""

    @property
    def option(self) -> bytes:
        """The EDNS option that tells it (RFC 8914 §2)."""
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
    and have scope 0 (RFC 7871 §7.2.1; §7.4 for negative answers). `delegation`: the answer is a referral to the name
    servers of another zone; its DS records, if any, are in `authority` for those who ask for DNSSEC.
    """

    rcode: int = wire.NOERROR
    authoritative: bool = True
    records: tuple[Record, ...] = ()
    authority: tuple[Record, ...] = ()
    additional: tuple[Record, ...] = ()
    error: ExtendedError | None = None
    tailored: bool = False
    zone: ZoneData | None = None
    delegation: ZoneCut | None = None


def denial(zone: ZoneData, rcode: int = wire.NOERROR, *, most: int | None = None) -> Content:
    """A negative answer, with the zone's SOA (RFC 2308 §2): NODATA, or with NXDOMAIN for a name that is not there.

    `most`: it is kept no longer than so many seconds, which the SOA's TTL says (RFC 2308 §5).
    """
    ttl = zone.negative_ttl if most is None else min(zone.negative_ttl, most)
    return Content(rcode, authority=(Record(wire.SOA, ttl, zone.soa, zone.name),), zone=zone)


def failure(text: str, zone: ZoneData | None = None) -> Content:
    """An answer that resolvers keep for seconds only: something is wrong here, in words."""
    return Content(wire.SERVFAIL, authoritative=False, error=ExtendedError(_EDE_OTHER, text), zone=zone)


def minimal_any(ttl: int) -> Record:
    """ANY gets one synthesized record (RFC 8482 §4.2)."""
    return Record(wire.HINFO, ttl, _HINFO)


def second_draw(draw: float) -> float:
    """Another draw from the same: uniform in [0, 1) too, and as good as independent of the first 16 bits of it."""
    return draw * 65_536 % 1.0


ELSEWHERE = Content(
    wire.REFUSED,
    authoritative=False,
    error=ExtendedError(
        _EDE_PROHIBITED, "this edge stands outside a residency rule; ask another name server"
    ),
    tailored=True,
)
"""The answer where a rule that binds edges concerns the client and this edge stands outside of it.

Resolvers keep REFUSED for nobody and ask another name server, while a refusal address would be kept for clients who can be
served there."""


def turns(view: View, host: Host, rdtype: int, option: Option) -> int:
    """How many answers `host_content` has that differ in which addresses they give, or in their order only.

    The arguments are those of `host_content`. Of turns drawn evenly, each address of a region comes first as often as
    any other; where there are many and all are given, only 8 of them do.
    """
    service = view.snapshot.services[host.service].service
    hints = rdtype == wire.HTTPS and _hints(service) and option.outcome is Outcome.SERVED
    if rdtype not in (wire.A, wire.AAAA) and not hints:
        return 1
    if option.outcome is Outcome.REFUSED_EDGE:
        return 1
    offered = _offered(view, service, option)
    families = {wire.A: (offered.ipv4,), wire.AAAA: (offered.ipv6,)}.get(rdtype, (offered.ipv4, offered.ipv6))
    return max(_turns(len(addresses), service.max_answers) for addresses in families)


def _hints(service: Service) -> bool:
    """Whether HTTPS records name addresses: A and AAAA must be answered with the same (RFC 9460 §7.3).

    Pools of a family each are decided by themselves: of those an HTTPS record, which has both families, could not say so.
    """
    return service.https_record is not None and service.families is Families.TOGETHER


def _turns(count: int, most: int | None) -> int:
    return count if most is not None and most < count else max(1, min(count, MAX_TURNS))


def _turned(addresses: tuple[str, ...], most: int | None, turn: int) -> tuple[str, ...]:
    """The addresses of a turn: a window over them as over a ring, as wide as an answer."""
    count = len(addresses)
    if count <= 1:
        return addresses
    start = turn % count
    if most is None or most >= count:
        number = _turns(count, most)
        start, most = turn % number * count // number, count
    return (addresses + addresses)[start : start + most]


@dataclass(frozen=True, slots=True)
class _Offered:
    """What a request can be answered with: each address once (RFC 2181 §5), and the endpoints they are of."""

    ipv4: tuple[str, ...]
    ipv6: tuple[str, ...]
    endpoints: tuple[Endpoint, ...] = ()


def _offered(view: View, service: Service, option: Option) -> _Offered:
    if option.outcome is not Outcome.SERVED:
        return _Offered(
            tuple(dict.fromkeys(service.refusal.ipv4)), tuple(dict.fromkeys(service.refusal.ipv6))
        )
    endpoints = serving(view, option)
    return _Offered(
        tuple(dict.fromkeys(address for endpoint in endpoints for address in endpoint.ipv4)),
        tuple(dict.fromkeys(address for endpoint in endpoints for address in endpoint.ipv6)),
        endpoints,
    )


def host_content(
    view: View, host: Host, rdtype: int, option: Option, explanation: Sequence[str] = (), *, turn: int = 0
) -> Content:
    """What a service's host name answers, given how the request ends.

    Args:
        view: what the option was made from.
        host: the name's service and zone.
        rdtype: the question's.
        option: for this client.
        explanation: the strings of a TXT answer (`explanation`); none: there is no such record.
        turn: which of the region's addresses come, and which first: less than `turns`.
    """
    if option.outcome is Outcome.REFUSED_EDGE:
        return replace(ELSEWHERE, zone=host.zone)
    compiled = view.snapshot.services[host.service]
    service, ttl = compiled.service, view.ttl_of(compiled)
    if option.outcome is not Outcome.SERVED or option.reason is Reason.HEALTH_IGNORED:
        ttl = min(ttl, SHORT_TTL)
    offered = _offered(view, service, option)
    offered = replace(
        offered,
        ipv4=_turned(offered.ipv4, service.max_answers, turn),
        ipv6=_turned(offered.ipv6, service.max_answers, turn),
    )
    if option.outcome is Outcome.SERVED:
        lost = _FAMILIES.get(rdtype)
        if (
            lost is not None
            and view.lost[lost] >> option.number & 1
            and option.reason is not Reason.HEALTH_IGNORED
        ):
            return replace(_lost(service, rdtype, min(ttl, SHORT_TTL), lost), zone=host.zone)
        content = _served(view, offered, host, rdtype, ttl)
    else:
        content = _refusal(view, host, option, offered, rdtype=rdtype, ttl=ttl)
    if content is not None:
        return replace(content, zone=host.zone)
    if rdtype == wire.ANY:
        return Content(records=(minimal_any(ttl),), zone=host.zone)
    if rdtype == wire.TXT and explanation:
        text = b"".join(_character_string(part) for part in explanation)
        return Content(records=(Record(wire.TXT, ttl, text),), tailored=True, zone=host.zone)
    # That a type is not there depends on the region too: it is kept no longer than an address would be.
    return denial(host.zone, most=ttl)


def _lost(service: Service, rdtype: int, ttl: int, family: str) -> Content:
    """The answer in a family of which the region chosen has no address left, nor any other region: as for a refusal (law 1)."""
    offered = _Offered(tuple(dict.fromkeys(service.refusal.ipv4)), tuple(dict.fromkeys(service.refusal.ipv6)))
    text = f"no {family} address of the region chosen answers"
    content = _addresses(rdtype, offered, ttl)
    return failure(text) if content is None else replace(content, error=ExtendedError(_EDE_OTHER, text))


def _served(view: View, offered: _Offered, host: Host, rdtype: int, ttl: int) -> Content | None:
    """Addresses or an alias from the endpoints of the region chosen; None if they don't answer this type.

    Endpoints with addresses come before those with only a name. An alias is the whole answer for any type (RFC 1034
    §3.6.2) and there is one at most (RFC 2181 §10.1): the first usable endpoint's. It cannot stand at an apex, and one
    that leads back here is none (RFC 1034 §3.6.2: an error).
    """
    service = view.snapshot.services[host.service].service
    if offered.ipv4 or offered.ipv6:
        if rdtype == wire.HTTPS and service.https_record is not None:
            hints = (offered.ipv4, offered.ipv6) if _hints(service) else ((), ())
            data = https_data(service.https_record, offered.endpoints, *hints)
            return Content(records=(Record(rdtype, ttl, data),), tailored=True)
        return _addresses(rdtype, offered, ttl)
    alias = _alias(offered)
    if alias is not None and _leads_back(view.snapshot, host, alias):
        return failure("the region chosen has only an alias, which leads back here")
    if alias is not None and not host.apex:
        return Content(records=(Record(wire.CNAME, ttl, wire_name(alias)),), tailored=True)
    secure = rdtype == wire.HTTPS and service.https_record is not None
    if alias is not None and secure:
        return Content(records=(Record(rdtype, ttl, alias_data(wire_name(alias))),), tailored=True)
    if rdtype in (wire.A, wire.AAAA) or secure:
        return failure(
            "the region chosen has no address in DNS"
            if alias is None
            else "the region chosen has only an alias, which cannot stand at a zone's apex"
        )
    return None


def _alias(offered: _Offered) -> str | None:
    return next((endpoint.cname for endpoint in offered.endpoints if endpoint.cname is not None), None)


def answered_alias(view: View, service: Service, option: Option) -> str | None:
    """The alias that a service answers with for an option that names a region; None if it has addresses, or neither."""
    offered = _offered(view, service, option)
    return None if offered.ipv4 or offered.ipv6 else _alias(offered)


def _leads_back(snapshot: Snapshot, host: Host, alias: str) -> bool:
    """Whether a name is decided as a host name is: by the same service, for a request that states the same."""
    led = snapshot.host_of(alias)
    if led is None or snapshot.hostnames[led.name] != host.service:
        return False
    return (led.tenant, led.data_class) == (host.tenant, host.data_class)


def _refusal(
    view: View, host: Host, option: Option, offered: _Offered, *, rdtype: int, ttl: int
) -> Content | None:
    """The refusal addresses, with the reason; None if the type is none that a refusal changes.

    A family that no member ever answers in stays an honest NODATA: nobody is refused by it. An HTTPS record says nothing
    but its own name then: NODATA would be kept for everyone, and take from others what their records say.
    """
    compiled, error = view.snapshot.services[host.service], _refusal_error(option)
    if rdtype == wire.HTTPS and compiled.service.https_record is not None:
        return Content(records=(Record(rdtype, ttl, BARE),), error=error, tailored=True)
    content = _addresses(rdtype, offered, ttl)
    if content is not None:
        return replace(content, error=error)
    if rdtype not in (wire.A, wire.AAAA):
        return None
    family = _FAMILIES[rdtype]
    # Compiling a policy asks for the addresses that this would miss; the law is held here all the same.
    missed = not (offered.ipv4 or offered.ipv6) or any(
        getattr(endpoint, family) or endpoint.cname is not None
        for number in compiled.members
        for endpoint in view.snapshot.regions[number].endpoints
    )
    return Content(wire.SERVFAIL, authoritative=False, error=error) if missed else None


def _addresses(rdtype: int, offered: _Offered, ttl: int) -> Content | None:
    """A or AAAA records; None without any."""
    if rdtype == wire.A:
        family, addresses = AF_INET, offered.ipv4
    elif rdtype == wire.AAAA:
        family, addresses = AF_INET6, offered.ipv6
    else:
        return None
    records = tuple(Record(rdtype, ttl, inet_pton(family, address)) for address in addresses)
    return Content(records=records, tailored=True) if records else None


def _refusal_error(option: Option) -> ExtendedError:
    """Residency is a prohibition; for want of a usable region there is no code of its own (RFC 8914 §4)."""
    if option.outcome is Outcome.REFUSED_UNAVAILABLE:
        return ExtendedError(_EDE_OTHER, "no region can serve now")
    if option.reason is Reason.FENCE_EMPTY:
        return ExtendedError(_EDE_PROHIBITED, "residency rules allow no region for this client")
    return ExtendedError(_EDE_PROHIBITED, "residency rules allow no usable region for this client")


def explains(host: Host, name: bytes) -> bool:
    """Whether a host name's TXT answer explains the decision, by the question's name in lower-case wire form.

    Names with a label that begins with an underscore hold what programs read (RFC 8552): to `_acme-challenge` or `_dmarc` below a
    wildcard an explanation would be a wrong answer, where none is a right one.
    """
    return host.zone.explanations and not any(suffix[1:2] == b"_" for suffix in suffixes(name))


def explanation(decision: Decision, request: Request) -> list[str]:
    """The decision in words, as TXT strings."""
    location = request.location
    parts = [
        f"service={decision.service}",
        f"outcome={decision.outcome.value}",
        f"region={decision.region or ''}",
        f"reason={decision.reason.value}",
        f"country={'+'.join(location.spans) or location.country or 'unknown'}",
        f"network={location.subnet or location.network or 'unknown'}",
    ]
    parts += [f"tenant={request.tenant}"] if request.tenant else []
    parts += [f"data_class={request.data_class}"] if request.data_class else []
    parts += [
        f"rule={rule.name} mode={rule.mode} because={', '.join(rule.because)}" for rule in decision.rules
    ]
    parts += _pinned(decision)
    return [*parts, f"revision={decision.revision}", f"epoch={decision.epoch}"]


def _pinned(decision: Decision) -> Iterator[str]:
    """For each rule that takes regions from everyone, since DNS does not state whom it is about: a sentence."""
    for rule in decision.rules:
        unstated = [phrase for phrase in rule.because if phrase.endswith(NOT_STATED)]
        left = [item.region for item in decision.candidates if rule.name not in item.rules]
        if unstated and len(left) < len(decision.candidates):
            whom = " and ".join(unstated)
            yield f"dns_pinned={rule.name}: {whom}, so it leaves every such client {some(left, 'regions') or 'no region'}"


def _character_string(text: str) -> bytes:
    """A <character-string> (RFC 1035 §3.3): at most 255 octets."""
    encoded = text.encode()[:255]
    return bytes((len(encoded),)) + encoded
