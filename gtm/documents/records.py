"""Records as operators write them: what may stand in a zone, and whether it can be read (RFC 1035 §5, RFC 3597 §5)."""

from __future__ import annotations

from collections.abc import Iterable

import dns.exception
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
from dns.rdatatype import RdataType

from gtm.core.model.names import absolute
from gtm.core.model.services import RecordSet

MAX_SET = 64_000
"""Octets of all records of one name and type: with a signature they must fit into a message (RFC 1035 §4.2.2)."""

_LONG = 250
"""Characters of ASCII data and zone together up to which no name in the data can be too long (RFC 1035 §2.3.4)."""

_REFUSED = {
    RdataType.SOA: "a zone's SOA is made from its fields",
    RdataType.DNAME: "DNAME is not served: an alias for all names below another is a CNAME at `*.<name>`",
    RdataType.NULL: "NULL has no place in zones (RFC 1035 §3.3.10)",
    RdataType.OPT: "OPT belongs to messages, not to zones (RFC 6891 §6.1.1)",
    **dict.fromkeys(
        (
            RdataType.DNSKEY,
            RdataType.CDNSKEY,
            RdataType.CDS,
            RdataType.RRSIG,
            RdataType.NSEC,
            RdataType.NSEC3,
            RdataType.NSEC3PARAM,
            RdataType.SIG,
            RdataType.NXT,
        ),
        "keys, signatures and proofs are made by gtm where `dnssec` is on",
    ),
}


class RecordError(ValueError):
    """A record that cannot stand in a zone; the message says why."""


def record_type(text: str) -> str:
    """The mnemonic of a type, in upper case; `TYPE` and its number if it has none.

    Raises:
        RecordError: there is no such type, or it is none of records in zones.
    """
    try:
        rdtype = dns.rdatatype.from_text(text)
    except (dns.rdatatype.UnknownRdatatype, ValueError) as error:
        message = (
            f"`{text}` is no record type known here: write its mnemonic, or `TYPE` and its number (RFC 3597)"
        )
        raise RecordError(message) from error
    if rdtype in _REFUSED:
        raise RecordError(_REFUSED[rdtype])
    if rdtype in (0, 65535) or 128 <= rdtype <= 255:  # RFC 6895 §3.1
        raise RecordError(f"`{text}` is a type of questions and messages, not of records in zones")
    return dns.rdatatype.to_text(rdtype)


def read_data(rdtype: str, text: str, origin: str = "") -> bytes:
    """The data of a record in canonical wire form (RFC 4034 §6.2).

    Args:
        rdtype: as `record_type` gives it.
        text: in presentation form.
        origin: what names without a dot at the end are relative to.

    Raises:
        RecordError: it cannot be read.
    """
    base = dns.name.from_text(origin)
    try:
        rdata = dns.rdata.from_text(dns.rdataclass.IN, rdtype, text, origin=base, relativize=False)
        wire = rdata.to_digestable()
    except (dns.exception.DNSException, ValueError) as error:
        raise RecordError(f"`{text}` is no data of {rdtype} records: {error}") from error
    if rdata.rdcomment is not None:
        raise RecordError(
            f"`{text}` would end at the semicolon, where comments begin: write it in double quotes"
        )
    return wire


def check_sets(records: Iterable[RecordSet], zone: str) -> None:
    """Check that each set of records fits into a message, and holds nothing twice (RFC 2181 §5).

    Args:
        records: of the zone, each of which can be read by itself.
        zone: its name.

    Raises:
        RecordError: of the first that does not.
    """
    sets: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for index, record in enumerate(records):
        known = sets.setdefault((absolute(record.name, zone), record.type), [])
        known += [(index, text) for text in record.data]
    for (name, rdtype), written in sets.items():
        # Reading takes long. One record alone can only be wrong where its names become too long in the zone.
        text = written[0][1]
        if len(written) > 1 or len(text) + len(zone) > _LONG or not text.isascii():
            _check_set(name, rdtype, written, zone)


def _check_set(name: str, rdtype: str, written: Iterable[tuple[int, str]], zone: str) -> None:
    known: dict[bytes, str] = {}
    size = 0
    for index, text in written:
        try:
            wire = read_data(rdtype, text, zone)
        except RecordError as error:
            raise RecordError(f"records[{index}]: {error}") from error
        if wire in known:
            same = "twice" if known[wire] == text else f"twice: it is the same as `{known[wire]}`"
            raise RecordError(f"records[{index}]: `{name}` has the {rdtype} record `{text}` {same}")
        known[wire] = text
        size += 12 + len(wire)
        if size > MAX_SET:
            message = (
                f"the {rdtype} records of `{name}` are more than {MAX_SET} octets, and fit into no answer"
            )
            raise RecordError(f"records[{index}]: {message}")
