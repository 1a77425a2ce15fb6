"""What both ways of answering need to know of DNS messages as bytes (RFC 1035 §4, RFC 6891 §6)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

HEADER_SIZE = 12
MAX_NAME = 255
"""Octets of a name in wire form (RFC 1035 §2.3.4)."""
MAX_LABEL = 63
"""Octets of a label (RFC 1035 §2.3.4)."""
UDP_PAYLOAD = 1232
"""The largest answer over UDP, and the size that our OPT states: it fits an IPv6 minimum MTU unfragmented."""
PLAIN_PAYLOAD = 512
"""The largest answer over UDP to a client without EDNS (RFC 1035 §4.2.1), and the least an OPT can ask for."""
TCP_PAYLOAD = 65535

QR = 0x8000
AA = 0x0400
TC = 0x0200
RD = 0x0100
OPCODE_MASK = 0x7800
DO = 0x8000
"""DNSSEC OK, in the flags of an OPT record (RFC 3225)."""
CO = 0x4000
"""Compact Answers OK, likewise (RFC 9824 §5.1)."""
ECHOED = DO | CO
"""The flags of a query's OPT record that its reply has too. All others are cleared (RFC 6891 §6.1.4)."""

NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, BADVERS, BADCOOKIE = 0, 1, 2, 3, 4, 5, 16, 23
RCODE_NAMES = {
    NOERROR: "NOERROR",
    FORMERR: "FORMERR",
    SERVFAIL: "SERVFAIL",
    NXDOMAIN: "NXDOMAIN",
    NOTIMP: "NOTIMP",
    REFUSED: "REFUSED",
    BADVERS: "BADVERS",
    BADCOOKIE: "BADCOOKIE",
}

CLASS_IN, CLASS_CHAOS = 1, 3
A, NS, CNAME, SOA, PTR, HINFO, MX, TXT, AAAA, SRV, OPT, DS, HTTPS = (
    1,
    2,
    5,
    6,
    12,
    13,
    15,
    16,
    28,
    33,
    41,
    43,
    65,
)
RRSIG, NSEC, DNSKEY, NXNAME = 46, 47, 48, 128
TKEY, TSIG, IXFR, AXFR, MAILB, MAILA, ANY = 249, 250, 251, 252, 253, 254, 255
_TYPE_NAMES = {
    A: "A",
    NS: "NS",
    CNAME: "CNAME",
    SOA: "SOA",
    PTR: "PTR",
    HINFO: "HINFO",
    MX: "MX",
    TXT: "TXT",
    AAAA: "AAAA",
    SRV: "SRV",
    DS: "DS",
    RRSIG: "RRSIG",
    NSEC: "NSEC",
    DNSKEY: "DNSKEY",
    HTTPS: "HTTPS",
    IXFR: "IXFR",
    AXFR: "AXFR",
    ANY: "ANY",
}

OPTION_NSID, OPTION_SUBNET, OPTION_COOKIE, OPTION_KEEPALIVE, OPTION_PADDING, OPTION_ERROR = (
    3,
    8,
    10,
    11,
    12,
    15,
)

MAX_RECORDS = 64
"""More records than this in a query are hostile: no client sends any but OPT and a signature."""
MAX_OPTIONS = 64
"""More EDNS options than this in a query are hostile: not half as many are assigned."""

HEADER = Struct("!6H")
RECORD = Struct("!HHIH")
"""A record after its owner, up to its data: type, class, TTL, length."""
_OPT = Struct("!BHHBBHH")


class MalformedError(ValueError):
    """A packet that cannot be read as a DNS message."""


@dataclass(frozen=True, slots=True)
class Opt:
    """An OPT record: EDNS version, flags, and the options as they came; `record` is all of it."""

    version: int
    flags: int
    options: bytes
    record: bytes


@dataclass(frozen=True, slots=True)
class Outline:
    """Where things are in a query.

    `question_end` is where the question ends, or the header if there is not exactly one question.

    `opts` gives each OPT record of the additional section.
    """

    questions: int
    question_end: int
    opts: tuple[Opt, ...]


def essence(packet: bytes, outline: Outline) -> bytes:
    """A query without what has no bearing on its answer: header, question, and OPT with the client subnet alone.

    Other records may take long to read, and signatures are not checked: without keys, TSIG is a record like any other.
    Other options may hold anything, right or wrong (RFC 6891 §6.1.2).

    Raises:
        MalformedError: an option is cut short, or there are too many.
    """
    records = b"".join(_with_subnets(opt) for opt in outline.opts)
    header = packet[:4] + HEADER.pack(0, 0, outline.questions, 0, 0, len(outline.opts))[4:]
    return header + packet[HEADER_SIZE : outline.question_end] + records


def _with_subnets(opt: Opt) -> bytes:
    """An OPT record without any options but client subnets."""
    kept = b"".join(option(code, data) for code, data in options(opt.options) if code == OPTION_SUBNET)
    return opt.record[: -2 - len(opt.options)] + len(kept).to_bytes(2) + kept


def type_label(rdtype: int) -> str:
    """A query type as a metric's label: a closed set, whatever clients ask."""
    return _TYPE_NAMES.get(rdtype, "other")


def outline(packet: bytes) -> Outline:
    """Walk over a message without interpreting its records.

    Raises:
        MalformedError: the counts of the header and the packet's content don't agree.
    """
    _, _, questions, answers, authorities, additionals = HEADER.unpack_from(packet)
    if questions + answers + authorities + additionals > MAX_RECORDS:
        raise MalformedError("too many records")
    at = HEADER_SIZE
    for _ in range(questions):
        start, at = at, _skip_name(packet, at, pointers=False) + 4
        if at - 4 - start > MAX_NAME:
            raise MalformedError("a name is too long")
    if at > len(packet):
        raise MalformedError("the question is cut short")
    question_end = at if questions == 1 else HEADER_SIZE
    opts: list[Opt] = []
    for index in range(answers + authorities + additionals):
        owner, at = at, _skip_name(packet, at)
        if at + RECORD.size > len(packet):
            raise MalformedError("a record is cut short")
        rdtype, _, ttl, length = RECORD.unpack_from(packet, at)
        at += RECORD.size + length
        if rdtype == OPT and index >= answers + authorities:
            options = packet[at - length : at]
            opts.append(Opt(ttl >> 16 & 0xFF, ttl & 0xFFFF, options, packet[owner:at]))
    if at != len(packet):
        raise MalformedError("records and packet don't end together")
    return Outline(questions, question_end, tuple(opts))


def _skip_name(packet: bytes, at: int, *, pointers: bool = True) -> int:
    """Where the name at `at` ends. A compression pointer ends it (RFC 1035 §4.1.4); a question has none to point to."""
    while True:
        if at >= len(packet):
            raise MalformedError("a name is cut short")
        length = packet[at]
        if length == 0:
            return at + 1
        if length >= 0xC0 and pointers:
            return at + 2
        if length > 63:
            raise MalformedError("a label has an undefined type")
        at += 1 + length


def is_name(data: bytes) -> bool:
    """Whether bytes are one whole uncompressed name in wire form."""
    try:
        return len(data) <= MAX_NAME and _skip_name(data, 0, pointers=False) == len(data)
    except MalformedError:
        return False


def opt_record(flags: int, options: bytes = b"", *, extended_rcode: int = 0) -> bytes:
    """Our OPT record (RFC 6891 §6.1.2), with those of the client's flags that come back."""
    return _OPT.pack(0, OPT, UDP_PAYLOAD, extended_rcode, 0, flags & ECHOED, len(options)) + options


def option(code: int, data: bytes) -> bytes:
    """An EDNS option: code, length, data (RFC 6891 §6.1.2)."""
    return code.to_bytes(2, "big") + len(data).to_bytes(2, "big") + data


def options(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The code and data of each option of an OPT record.

    Raises:
        MalformedError: one is cut short, or there are too many.
    """
    at = 0
    for _ in range(MAX_OPTIONS):
        if at == len(data):
            return
        end = at + 4 + int.from_bytes(data[at + 2 : at + 4])
        if at + 4 > len(data) or end > len(data):
            raise MalformedError("an option is cut short")
        yield int.from_bytes(data[at : at + 2]), data[at + 4 : end]
        at = end
    if at != len(data):
        raise MalformedError("too many options")


def first_option(data: bytes, code: int) -> bytes | None:
    """The data of the first option with a code; None if there is none, or `data` cannot be read."""
    try:
        return next((found for number, found in options(data) if number == code), None)
    except MalformedError:
        return None


def reply_flags(query_flags: int, *, authoritative: bool = False, truncated: bool = False) -> int:
    """The flags of a reply, without its rcode: opcode and RD copied; RA, AD and CD clear (RFC 4035 §3.1.6).

    RD is a question's alone (RFC 6895 §2.1, RFC 1035 §4.1.1): what else a bit means in other operations, nobody here knows.
    """
    opcode = query_flags & OPCODE_MASK
    flags = QR | (opcode or query_flags & RD)
    return flags | (AA if authoritative else 0) | (TC if truncated else 0)


def bare_reply(
    packet: bytes,
    rcode: int,
    *,
    question_end: int = HEADER_SIZE,
    opt_flags: int | None = None,
    options: bytes = b"",
    truncated: bool = False,
) -> bytes:
    """A reply without records.

    Args:
        packet: the query, of at least 12 bytes.
        rcode: up to 12 bits; more than 4 need an OPT.
        question_end: where the question to copy ends; by default none is copied.
        opt_flags: the flags of the query's OPT; None: it has none, so neither has the reply (RFC 6891 §7).
        options: of the reply's OPT.
        truncated: the client should ask again over TCP.
    """
    query_id, flags, *_ = HEADER.unpack_from(packet)
    opt = b"" if opt_flags is None else opt_record(opt_flags, options, extended_rcode=rcode >> 4)
    questions = int(question_end > HEADER_SIZE)
    flags = reply_flags(flags, truncated=truncated) | rcode & 0xF
    header = HEADER.pack(query_id, flags, questions, 0, 0, int(bool(opt)))
    return header + packet[HEADER_SIZE:question_end] + opt


def udp_limit(stated: int) -> int:
    """How long an answer over UDP may be to a client whose OPT states a payload size (RFC 6891 §6.2.3–§6.2.5)."""
    return min(max(stated, PLAIN_PAYLOAD), UDP_PAYLOAD)
