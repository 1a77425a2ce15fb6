"""Signed answers: what a client that asks for DNSSEC gets (RFC 4035 §3.1).

Law: only what is this server's to say is signed: no delegation and no glue (RFC 4035 §2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

from gtm.core.signing.keys import CDS, DELETE_CDS, Keys
from gtm.dns.protocol import wire
from gtm.dns.zone.content import Content, Record
from gtm.dns.zone.denial import is_cut, nsec, types_at
from gtm.dns.zone.signatures import PERIOD, Signatures, ZoneKey
from gtm.dns.zone.zones import Cut, Names, ZoneData, wire_name


class Signer:
    """Signs the answers of zones that have keys; those of other zones pass through it as they are.

    Args:
        keys: of all signed zones.
        clock: POSIX seconds.
        predecessor: the Signer that this one takes over from; signatures made with keys that stay are kept.
    """

    __slots__ = ("_clock", "keys", "made", "zones")

    def __init__(self, keys: Keys, clock: Callable[[], float], predecessor: Signer | None = None) -> None:
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

    def signs(self, zone: ZoneData) -> bool:
        """Whether it has keys of a zone."""
        return zone.name in self.zones

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
        if child is None or CDS not in child.sets or zone is None or not self.signs(zone):
            return None
        asked = (data for data in child.sets[CDS].rdatas if data != DELETE_CDS)
        records = tuple(Record(wire.DS, zone.ttl, data) for data in asked)
        return Content(records=records, zone=zone) if records else None

    def _referral(self, content: Content, cut: Cut, names: Names) -> Content:
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
