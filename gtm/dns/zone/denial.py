"""Proofs that a name or a type is not there, made for one question: compact denial of existence (RFC 9824).

Each is one NSEC record at the name asked, which covers no other name. Its type bitmap is a statement to everyone:
resolvers may keep it and answer other questions from it (RFC 8198 §5.3). So it lists every type that the name may have
for any client, whatever the client that asks would get, but for the type that it denies.
"""

from __future__ import annotations

from collections.abc import Iterable

from gtm.dns.protocol import wire
from gtm.dns.zone.zones import Names, ZoneData

_HOST_TYPES = frozenset({wire.A, wire.AAAA, wire.TXT, wire.HTTPS})
"""What a service's host name has in one region or another, now or after the next change."""


def nsec(name: bytes, zone: ZoneData, types: Iterable[int], *, cut: bool = False) -> bytes:
    """RDATA of the NSEC record at a name (RFC 4034 §4.1), which has `types` and those of every signed name.

    Args:
        name: in lower-case wire form.
        zone: that holds it.
        types: their numbers.
        cut: the name is where another zone begins; the names below it are then passed over (RFC 9824 §3.4).
    """
    following = _sibling(name, zone) if cut else successor(name, zone)
    return following + _bitmap({*types, wire.RRSIG, wire.NSEC})


def types_at(names: Names, name: bytes, zone: ZoneData) -> frozenset[int]:
    """The types that a name of a zone may have for anyone; none for one that only has others below it.

    Regions that answer by an alias don't show as CNAME: a proof that has it proves nothing about other types
    (RFC 6840 §4.3).
    """
    if is_cut(names, name, zone):
        return frozenset({wire.NS})
    source = names.source_of(name, zone)
    if source is None:
        return frozenset()
    types = frozenset(names.records.get(source, ()))
    return types | _HOST_TYPES if source in names.hosts else types


def is_cut(names: Names, name: bytes, zone: ZoneData) -> bool:
    """Whether another zone begins at a name of a zone, here or elsewhere."""
    return name != zone.name and (name in names.zones or name in names.cuts)


def successor(name: bytes, zone: ZoneData) -> bytes:
    """The name that comes right after one in canonical order (RFC 4471 §3.1.1): the first that could be below it."""
    return b"\1\0" + name if len(name) + 2 <= wire.MAX_NAME else _sibling(name, zone)


def _sibling(name: bytes, zone: ZoneData) -> bytes:
    """The first name after all below one; the zone's own, where its last name points (RFC 4034 §4.1.1), if none is."""
    if name == zone.name:
        return name
    size = name[0]
    label, above = name[1 : 1 + size], name[1 + size :]
    if size < wire.MAX_LABEL and len(name) < wire.MAX_NAME:
        return bytes((size + 1,)) + label + b"\0" + above
    label = label.rstrip(b"\xff")
    if not label:
        return _sibling(above, zone)
    # Upper-case letters sort as lower-case ones (RFC 4034 §6.1), so they come after nothing here.
    last = ord("[") if label[-1] == ord("@") else label[-1] + 1
    return bytes((len(label),)) + label[:-1] + bytes((last,)) + above


def _bitmap(types: Iterable[int]) -> bytes:
    """The Type Bit Maps field (RFC 4034 §4.1.2)."""
    windows: dict[int, bytearray] = {}
    for rdtype in sorted(types):
        window = windows.setdefault(rdtype >> 8, bytearray())
        octet, bit = divmod(rdtype & 0xFF, 8)
        window.extend(bytes(octet + 1 - len(window)))
        window[octet] |= 0x80 >> bit
    return b"".join(bytes((number, len(bits))) + bits for number, bits in windows.items())
