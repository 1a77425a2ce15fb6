"""Signed answers: what a client that asks for DNSSEC gets (RFC 4035 §3.1).

Law: only what is this server's to say is signed: no delegation and no glue (RFC 4035 §2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import groupby
from struct import Struct

import dns.rdata
import dns.rdataclass
import dns.rdatatype
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils

from gtm.core.signing.keys import ALGORITHM, CDS, DELETE_CDS, Keys, SignedSet, ZoneKeys
from gtm.dns.protocol import wire
from gtm.dns.zone.content import Content, Record
from gtm.dns.zone.zones import Names, ZoneCut, ZoneData, suffixes, wire_name

# --- Proofs that a name or a type is not there, made for one question: compact denial of existence (RFC 9824). ---
#
# Each is one NSEC record at the name asked, which covers no other name. Its type bitmap is a statement to everyone:
# resolvers may keep it and answer other questions from it (RFC 8198 §5.3). So it lists every type that the name may have
# for any client, whatever the client that asks would get, but for the type that it denies.


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


# --- RRSIG records (RFC 4034 §3) by ECDSA P-256 (RFC 6605), made once a period and kept. ---
#
# Laws:
#   1. Equal record sets get equal signatures for a whole period, on every edge: times are rounded to it, and ECDSA is
#      deterministic (RFC 6979). So what is made ready of signed answers can be kept until the period ends.
#   2. A signature made now is valid for two more days at least: longer than resolvers keep what it signs.


PERIOD = 86_400
"""Seconds for which the times in signatures stay."""
VALIDITY = 3 * PERIOD
"""Seconds from the start of a period to the end of its signatures."""
SKEW = 3600
"""Signatures begin so many seconds before their period, for validators whose clock is behind."""

LIMIT = 1 << 16
"""Signatures in one generation of the memory; there are two."""

_ECDSA = ec.ECDSA(utils.Prehashed(hashes.SHA256()), deterministic_signing=True)
_RRSIG = Struct("!HBBIIIH")
"""RDATA up to the signer's name."""
_TYPE_CLASS_TTL = Struct("!HHI")
_WITH_NAMES = frozenset({2, 3, 4, 5, 6, 7, 8, 9, 12, 14, 15, 17, 18, 21, 26, 33, 35, 36, 39})
"""Types whose data holds names that are signed in lower case (RFC 4034 §6.2, but for those of RFC 6840 §5.1).

NS, MD, MF, CNAME, SOA, MB, MG, MR, PTR, MINFO, MX, RP, AFSDB, RT, PX, SRV, NAPTR, KX, DNAME.
"""


class Signatures:
    """Signatures made before.

    Those not asked for during a whole generation are forgotten. So names that nobody asks for twice neither make it
    grow without bound, nor push out those that many ask for.
    """

    __slots__ = ("_old", "_young")

    def __init__(self) -> None:
        self._young: dict[bytes, bytes] = {}
        self._old: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def of(self, message: bytes, key: ZoneKey) -> bytes:
        """The signature of a message."""
        digest = sha256(message).digest()
        entry = key.tag + digest
        found = self._young.get(entry)
        if found is None:
            found = self._old.get(entry) or key.sign(digest)
            if len(self._young) >= LIMIT:
                self._old, self._young = self._young, {}
            self._young[entry] = found
        return found


class ZoneKey:
    """A zone's key, ready to sign, and the record sets that come signed with it.

    Args:
        keys: as they came from control.
        made: where signatures are kept.
    """

    __slots__ = ("_made", "_private", "keys", "name", "sets", "tag")

    def __init__(self, keys: ZoneKeys, made: Signatures) -> None:
        self._made = made
        self.keys = keys
        self.name = wire_name(keys.zone)
        self._private = ec.derive_private_key(int.from_bytes(keys.private), ec.SECP256R1())
        self.sets: dict[int, SignedSet] = {item.rdtype: item for item in keys.sets}
        self.tag = sha256(keys.dnskey).digest()[:8]
        """Tells this key's signatures from all others."""

    def rrsig(self, owner: bytes, rdtype: int, ttl: int, rdatas: Iterable[bytes], period: int) -> bytes:
        """RDATA of the RRSIG record over a record set of the zone.

        Args:
            owner: in lower-case wire form. It is signed as it is: no record set says that it comes of a wildcard.
            rdtype: the set's type.
            ttl: its TTL in seconds.
            rdatas: RDATA of its records, in any order.
            period: the number of the period that the signature is for.
        """
        begin = period * PERIOD
        times = (begin + VALIDITY & 0xFFFFFFFF, begin - SKEW & 0xFFFFFFFF)
        head = _RRSIG.pack(rdtype, ALGORITHM, _labels(owner), ttl, *times, self.keys.key_tag) + self.name
        common = owner + _TYPE_CLASS_TTL.pack(rdtype, wire.CLASS_IN, ttl)
        canonical = sorted({_canonical(rdtype, data) for data in rdatas})
        records = (common + len(data).to_bytes(2) + data for data in canonical)
        return head + self._made.of(head + b"".join(records), self)

    def sign(self, digest: bytes) -> bytes:
        """The signature of a SHA-256 digest, as in RRSIG records: r and s (RFC 6605 §4)."""
        r, s = utils.decode_dss_signature(self._private.sign(digest, _ECDSA))
        return r.to_bytes(32) + s.to_bytes(32)


def _labels(owner: bytes) -> int:
    """The Labels field: neither the root counts nor a leading asterisk (RFC 4034 §3.1.3)."""
    return sum(1 for _ in suffixes(owner)) - 1 - owner.startswith(b"\1*")


def _canonical(rdtype: int, data: bytes) -> bytes:
    """RDATA in canonical form (RFC 4034 §6.2). Data without capitals is in it."""
    if rdtype not in _WITH_NAMES or data == data.lower():
        return data
    return dns.rdata.from_wire(
        dns.rdataclass.IN, dns.rdatatype.RdataType.make(rdtype), data, 0, len(data)
    ).to_digestable()


# --- Signed answers: what a client that asks for DNSSEC gets (RFC 4035 §3.1). ---


class ZoneSigner:
    """Signs the answers of zones that have keys; those of other zones pass through it as they are.

    Args:
        keys: of all signed zones.
        clock: POSIX seconds.
        predecessor: the ZoneSigner that this one takes over from; signatures made with keys that stay are kept.
    """

    __slots__ = ("_clock", "keys", "made", "zones")

    def __init__(self, keys: Keys, clock: Callable[[], float], predecessor: ZoneSigner | None = None) -> None:
        self.keys = keys
        self._clock = clock
        self.made: Signatures = Signatures() if predecessor is None else predecessor.made
        before: dict[bytes, ZoneKey] = {} if predecessor is None else predecessor.zones
        self.zones: dict[bytes, ZoneKey] = {}
        for item in keys.zones:
            name = wire_name(item.zone)
            known = before.get(name)
            self.zones[name] = known if known is not None and known.keys == item else ZoneKey(item, self.made)

    def period(self) -> int:
        """The number of the period that signatures are made for now. Those of another should be used no more."""
        return int(self._clock()) // PERIOD

    def signed(
        self,
        content: Content,
        name: bytes,
        rdtype: int,
        names: Names,
        *,
        dnssec_ok: bool,
        compact_ok: bool = False,
    ) -> Content:
        """An answer with what DNSSEC adds to it.

        Args:
            content: the answer without DNSSEC.
            name: the question's, in lower-case wire form.
            rdtype: the question's.
            names: that `content` was made from.
            dnssec_ok: the query has the DO flag. Without it there are neither signatures nor proofs, but for those
                that the question asks for by type (RFC 4035 §3.1).
            compact_ok: the query has the CO flag: NXDOMAIN may stand beside its proof (RFC 9824 §5.1).
        """
        if not self.zones:
            return content
        content = self._asked_for(content, name, rdtype, names)
        if not dnssec_ok:
            return content
        if content.delegation is not None:
            return self._referral(content, content.delegation, names)
        proof, absent = self._proof(content, name, rdtype, names)
        return replace(
            content,
            rcode=wire.NOERROR if absent and not compact_ok else content.rcode,
            records=self._section(content.records, name, names),
            authority=self._section(content.authority, name, names) + proof,
            additional=self._section(content.additional, name, names),
        )

    def _asked_for(self, content: Content, name: bytes, rdtype: int, names: Names) -> Content:
        """The answer to a question for records of DNSSEC: these are the zone's, whatever else is at the name."""
        if content.delegation is not None:
            return content
        absent = content.rcode == wire.NXDOMAIN
        own = self._own(name, rdtype, names, absent=absent and not content.records)
        if own is not None:
            return own
        end = _end_of_aliases(content.records, name)
        if end != name and self._own(end, rdtype, names, absent=absent) is not None:
            return replace(content, rcode=wire.NOERROR, authority=())  # resolvers ask on from there
        return content

    def _own(self, name: bytes, rdtype: int, names: Names, *, absent: bool) -> Content | None:
        """The records of a type that signing adds at a name; None if it adds none there."""
        if rdtype == wire.DS:
            return self._delegation(name, names)
        zone = names.zone_of(name)
        key = None if zone is None else self.zones.get(zone.name)
        if zone is None or key is None:
            return None
        ready = key.sets.get(rdtype) if name == zone.name else None
        if ready is not None:
            return Content(records=tuple(Record(rdtype, ready.ttl, data) for data in ready.rdatas), zone=zone)
        if rdtype not in (wire.NSEC, wire.RRSIG):
            return None
        types = {wire.NXNAME} if absent else self._types(names, name, zone)
        record = Record(wire.NSEC, zone.negative_ttl, nsec(name, zone, types))
        if rdtype == wire.RRSIG:  # one is an answer, as it is to ANY (RFC 8482 §4.1)
            record = self._signature(key, [record], name)
        return Content(records=(record,), zone=zone)

    def _delegation(self, name: bytes, names: Names) -> Content | None:
        """The DS records of a signed zone inside another of ours: those that it asks for by CDS (RFC 7344 §4)."""
        child, zone = self.zones.get(name), names.zone_of(name, above=True)
        if child is None or CDS not in child.sets or zone is None or zone.name not in self.zones:
            return None
        asked = (data for data in child.sets[CDS].rdatas if data != DELETE_CDS)
        records = tuple(Record(wire.DS, zone.ttl, data) for data in asked)
        return Content(records=records, zone=zone) if records else None

    def _referral(self, content: Content, cut: ZoneCut, names: Names) -> Content:
        """A referral with its DS records signed, or the proof that there are none (RFC 4035 §3.1.4).

        A zone of ours that other edges answer for has those that it asks for, as where it is answered here.
        """
        key = self.zones.get(cut.zone.name)
        if key is None:
            return content
        proof = [record for record in content.authority if record.rdtype == wire.DS]
        own = self._delegation(cut.name, names) if not proof else None
        if own is not None:
            proof = [replace(record, owner=cut.name) for record in own.records]
        if not proof:
            data = nsec(cut.name, cut.zone, {wire.NS}, cut=True)
            proof = [Record(wire.NSEC, cut.zone.negative_ttl, data, cut.name)]
        servers = (record for record in content.authority if record.rdtype == wire.NS)
        return replace(content, authority=(*servers, *proof, self._signature(key, proof, cut.name)))

    def _proof(
        self, content: Content, name: bytes, rdtype: int, names: Names
    ) -> tuple[tuple[Record, ...], bool]:
        """What proves a negative answer, and whether it is the name that is not there."""
        soa = next((record for record in content.authority if record.rdtype == wire.SOA), None)
        zone = None if soa is None else names.zones[soa.owner or name]
        key = None if zone is None else self.zones.get(zone.name)
        if soa is None or zone is None or key is None:
            return (), False
        denied = _end_of_aliases(content.records, name)
        absent = content.rcode == wire.NXDOMAIN
        types = {wire.NXNAME} if absent else self._types(names, denied, zone) - {rdtype}
        data = nsec(denied, zone, types, cut=is_cut(names, denied, zone))
        # As long as a negative answer is kept (RFC 9077 §3).
        record = Record(wire.NSEC, soa.ttl, data, None if denied == name else denied)
        return (record, self._signature(key, [record], denied)), absent

    def _types(self, names: Names, name: bytes, zone: ZoneData) -> set[int]:
        """The types at a name, at the apex with those that come with the keys."""
        added = self.zones[zone.name].sets if name == zone.name else ()
        return {*types_at(names, name, zone), *added}

    def _section(self, records: Sequence[Record], name: bytes, names: Names) -> tuple[Record, ...]:
        """Records, with the signatures of each set right after it."""
        signed: list[Record] = []
        for (owner, rdtype), group in groupby(records, key=lambda record: (record.owner, record.rdtype)):
            rrset = list(group)
            signed += rrset
            at = name if owner is None else owner
            zone = names.zone_of(at, above=rdtype == wire.DS)
            key = None if zone is None else self.zones.get(zone.name)
            if key is None or rdtype == wire.RRSIG:
                continue
            ready = key.sets.get(rdtype) if at == key.name else None
            if ready is not None:
                signed += [Record(wire.RRSIG, ready.ttl, data, owner) for data in ready.signatures]
            else:
                signed.append(self._signature(key, rrset, at))
        return tuple(signed)

    def _signature(self, key: ZoneKey, rrset: Sequence[Record], owner: bytes) -> Record:
        """The RRSIG record over a record set, with the set's TTL (RFC 4034 §3)."""
        first = rrset[0]
        rdatas = [record.rdata for record in rrset]
        data = key.rrsig(owner, first.rdtype, first.ttl, rdatas, self.period())
        return Record(wire.RRSIG, first.ttl, data, first.owner)


def _end_of_aliases(records: Sequence[Record], name: bytes) -> bytes:
    """The name that a chain of CNAME records leads to, in lower case."""
    for record in records:
        if record.rdtype == wire.CNAME and (name if record.owner is None else record.owner) == name:
            name = record.rdata.lower()
    return name
