"""The full way: every packet, through dnspython. Slow and complete; `gtm.dns.answer.fast` must agree with it.

What is answered before a question is looked at, in this order: packets that are no queries are dropped; other
operations are NOTIMP; what cannot be read is FORMERR; an EDNS version that we don't speak is BADVERS; a cookie without a
question gets a cookie; and questions about the server itself never reach the zones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import dns.edns
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.rrset

from gtm.core.model.requests import UNKNOWN_LOCATION, Location
from gtm.dns.protocol import wire
from gtm.dns.protocol.cookies import CookieVerdict
from gtm.dns.protocol.options import NO_OPTIONS, ServerOptions, chaos_reply, chaos_text, reply_options
from gtm.dns.protocol.subnet import Subnet, SubnetError, read_subnet
from gtm.dns.zone.content import Content, Record

_IN = dns.rdataclass.IN
_COMPRESSED = 16
"""Labels at the end of the name asked to which names of the reply are pointed: those of zones and owners are few."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a well-formed query asks. `name` is in lower-case wire form."""

    name: bytes
    rdtype: int
    rdclass: int


@dataclass(frozen=True, slots=True)
class Query:
    """A well-formed query and what its answer needs of it. `edns_flags` is None without EDNS."""

    message: dns.message.Message
    question: Question
    edns_flags: int | None
    payload: int
    """The UDP payload size that the client states, 512 without EDNS."""
    subnet: Subnet | None
    subnet_option: dns.edns.Option | None
    options: bytes = b""
    """Options of the reply that depend on nothing but the query and the server, in wire form."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A packet that asks nothing of the zones: the reply and its rcode, or the reason it is dropped."""

    reply: bytes | None
    rcode: int = 0
    dropped: str = ""


class _Asked(dns.name.Name):
    """The name asked, which a client has made up, as it is written in a reply.

    dnspython looks for each of a name's ends in its table of compression. Hashing them takes the square of their number, and all that begin with a label
    of zero bytes have the same hash: 220 bytes took 50 ms. So here the whole name is looked for, and its last labels are entered.
    """

    def to_wire(
        self,
        file: Any | None = None,
        compress: dict[dns.name.Name, int] | None = None,
        origin: dns.name.Name | None = None,
        canonicalize: bool = False,
    ) -> bytes | None:
        """As dnspython's, but for that (RFC 1035 §4.1.4)."""
        if file is None or compress is None:
            return super().to_wire(file, compress, origin, canonicalize)
        at = compress.get(self)
        if at is not None:
            file.write((0xC000 | at).to_bytes(2))
            return None
        at = file.tell()
        for place, label in enumerate(self.labels):
            if not place or 1 < len(self.labels) - place <= _COMPRESSED:
                compress[dns.name.Name(self.labels[place:])] = at
            file.write(bytes((len(label),)) + label)
            at += 1 + len(label)
        return None


def read_query(
    packet: bytes, source: str = "", server: ServerOptions = NO_OPTIONS, *, tcp: bool = False
) -> Query | Rejected:
    """Read a packet. Never raises.

    Args:
        packet: as it came.
        source: the client's address as text.
        server: what the reply may say of the server.
        tcp: it came over TCP.
    """
    if len(packet) < wire.HEADER_SIZE:
        return Rejected(None, dropped="short")
    if packet[2] & 0x80:
        return Rejected(None, dropped="response")
    try:
        outline = wire.outline(packet)
    except wire.MalformedError:
        rcode = wire.NOTIMP if packet[2] & 0x78 else wire.FORMERR
        return Rejected(wire.bare_reply(packet, rcode), rcode)
    opt = outline.opts[0] if outline.opts else None
    rcode = _objection(packet, outline)
    if rcode == wire.NOERROR:
        try:
            asked = () if opt is None else wire.options(opt.options)
            verdict, options = reply_options(asked, source, server, tcp=tcp)
            if outline.questions == 1:
                return _asked(packet, outline, options, server)
            if verdict is not None:
                # A cookie by itself (RFC 7873 §5.4).
                rcode = wire.BADCOOKIE if verdict is CookieVerdict.BAD else wire.NOERROR
                return _rejected(packet, rcode, outline, options)
        except (dns.exception.DNSException, ValueError):
            pass
        rcode = wire.FORMERR  # one question otherwise (RFC 9619 §4)
    return _rejected(packet, rcode, outline)


def _objection(packet: bytes, outline: wire.Outline) -> int:
    """What a readable message is rejected for before its records are looked at: an rcode, or NOERROR."""
    if packet[2] & 0x78:
        return wire.NOTIMP
    if outline.questions > 1 or len(outline.opts) > 1:  # RFC 9619 §4, RFC 6891 §6.1.1
        return wire.FORMERR
    if outline.opts and outline.opts[0].version > 0:  # RFC 6891 §6.1.3
        return wire.BADVERS
    return wire.NOERROR


def _rejected(packet: bytes, rcode: int, outline: wire.Outline, options: bytes = b"") -> Rejected:
    """A reply without records. Other operations have other sections (RFC 2136 §2), so nothing of them is echoed.

    A reply to a query with an OPT has one even if that OPT is what was wrong (RFC 6891 §7).
    """
    end = wire.HEADER_SIZE if packet[2] & 0x78 else outline.question_end
    flags = outline.opts[0].flags if outline.opts else None
    return Rejected(wire.bare_reply(packet, rcode, question_end=end, opt_flags=flags, options=options), rcode)


def _asked(packet: bytes, outline: wire.Outline, options: bytes, server: ServerOptions) -> Query | Rejected:
    """Take what matters from a message with one question.

    Args:
        packet: the message.
        outline: of it.
        options: of the reply.
        server: what the reply may say of the server.

    Raises:
        dns.exception.DNSException: a record cannot be read.
        SubnetError: the client subnet is wrong, or there are two.
    """
    message = dns.message.from_wire(wire.essence(packet, outline))
    asked = message.question[0]
    question = Question((asked.name.to_wire() or b"\0").lower(), int(asked.rdtype), int(asked.rdclass))
    subnets = [item for item in message.options if item.otype == wire.OPTION_SUBNET]
    if len(subnets) > 1:
        raise SubnetError("more than one")
    subnet = read_subnet(subnets[0].to_wire() or b"") if subnets else None
    flags = outline.opts[0].flags if outline.opts else None
    if question.rdclass == wire.CLASS_CHAOS:
        text = chaos_text(question.name, question.rdtype, server)
        if text:
            opt = b"" if flags is None else wire.opt_record(flags, options)
            return Rejected(chaos_reply(packet, outline.question_end, text, opt))
    return Query(
        message=message,
        question=question,
        edns_flags=flags,
        payload=wire.PLAIN_PAYLOAD if flags is None else message.payload,
        subnet=subnet,
        subnet_option=subnets[0] if subnets else None,
        options=options,
    )


def render(query: Query, content: Content, location: Location = UNKNOWN_LOCATION, *, tcp: bool) -> bytes:
    """The reply as bytes: as long as the transport allows, or else truncated to no records (RFC 2181 §9)."""
    limit = wire.TCP_PAYLOAD if tcp else wire.udp_limit(query.payload)
    try:
        reply = _message(query, content, location).to_wire(want_shuffle=False, max_size=wire.TCP_PAYLOAD)
        if len(reply) <= limit:
            return reply
    except dns.exception.TooBig:
        pass
    truncated = _message(query, replace(content, records=(), authority=(), additional=()), location)
    truncated.flags |= dns.flags.TC
    return truncated.to_wire(want_shuffle=False)


def _message(query: Query, content: Content, location: Location) -> dns.message.Message:
    question = query.message.question[0]
    asked = dns.rrset.RRset(_Asked(question.name.labels), question.rdclass, question.rdtype)
    reply = dns.message.Message(id=query.message.id)
    reply.flags = dns.flags.QR | (query.message.flags & dns.flags.RD)
    if content.authoritative:
        reply.flags |= dns.flags.AA
    reply.question = [asked]
    reply.answer = _rrsets(content.records, asked.name)
    authority: Sequence[Record] = content.authority
    if content.delegation is not None and not (query.edns_flags or 0) & wire.DO:
        # DS records come with a referral for those who ask for DNSSEC (RFC 4035 §3.1.4).
        authority = [record for record in authority if record.rdtype != wire.DS]
    reply.authority = _rrsets(authority, asked.name)
    reply.additional = _rrsets(content.additional, asked.name)
    if query.edns_flags is not None:
        reply.use_edns(
            0, query.edns_flags & wire.ECHOED, wire.UDP_PAYLOAD, options=_options(query, content, location)
        )
    reply.set_rcode(dns.rcode.Rcode(content.rcode))
    return reply


def _options(query: Query, content: Content, location: Location) -> list[dns.edns.Option]:
    """The options of a reply: client subnet only if it was in the query (RFC 7871 §7.2.1)."""
    options: list[dns.edns.Option] = []
    if query.subnet is not None and isinstance(query.subnet_option, dns.edns.ECSOption):
        scope = query.subnet.scope(location) if content.tailored else 0
        options.append(dns.edns.ECSOption(query.subnet_option.address, query.subnet.source, scope))
    if content.error is not None:
        options.append(dns.edns.EDEOption(dns.edns.EDECode(content.error.code), content.error.text or None))
    options += [
        dns.edns.GenericOption(dns.edns.OptionType.make(code), data)
        for code, data in wire.options(query.options)
    ]
    return options


def _rrsets(records: Sequence[Record], asked: dns.name.Name) -> list[dns.rrset.RRset]:
    """Records as RRsets, each of neighbours that have name and type in common."""
    found: list[dns.rrset.RRset] = []
    for (owner, rdtype), group in groupby(records, key=lambda record: (record.owner, record.rdtype)):
        name = asked if owner is None else dns.name.from_wire(owner, 0)[0]
        rrset = list(group)
        kind = dns.rdatatype.RdataType.make(rdtype)
        rdatas = [dns.rdata.from_wire(_IN, kind, one.rdata, 0, len(one.rdata)) for one in rrset]
        found.append(dns.rrset.from_rdata_list(name, rrset[0].ttl, rdatas))
    return found
