"""Keys for the zones of the tests' world, and a validator of signed answers that shares no code with the signer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import dns.dnssec
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataset
import dns.rdatatype
import dns.rrset
from cryptography.hazmat.primitives.asymmetric import ec
from dns.dnssectypes import Algorithm
from dns.exception import ValidationFailure
from dns.rdtypes.ANY.NSEC import NSEC
from dns.rdtypes.ANY.RRSIG import RRSIG

from gtm.core.model.services import RecordSet
from gtm.core.signing.keys import ZSK_FLAGS, Keys, SignedSet, ZoneKeys, key_tag
from gtm.dns.answer.answerer import Answerer
from gtm.dns.protocol import wire
from gtm.dns.zone.dnssec import ZoneSigner
from gtm.telemetry import Counts
from tests import worlds
from tests.dns.world import POLICY, RESOLVER, locate, query, router

NOW = 1_800_000_000.0
SIGNED_ZONES = ("demo.test", "apex.test", "alias.test")
"""All but sub.demo.test, which so is an unsigned zone inside a signed one."""

MORE = (
    RecordSet("mixed", "MX", ("10 MX.Demo.test.", "5 mx.Example.net.")),
    RecordSet("one", "CNAME", ("two",)),
    RecordSet("two", "CNAME", ("Nothing",)),
    RecordSet("to-apex-test", "CNAME", ("nothing.apex.test.",)),
    RecordSet("to-sub", "CNAME", ("nothing.sub",)),
    RecordSet("top", "CNAME", ("@",)),
    RecordSet("child", "CNAME", ("sub",)),
)
SIGNED = worlds.changed(POLICY, "zones", "demo.test", records=(*POLICY.zones[0].records, *MORE))
"""The tests' world, with more aliases."""


Anchors = Mapping[dns.name.Name, dns.rdataset.Rdataset]
"""The DNSKEY sets that are trusted, by zone."""


def _wire(rdata: dns.rdata.Rdata) -> bytes:
    encoded = rdata.to_wire()
    assert encoded is not None
    return encoded


def zone_keys(zone: str, *, number: int = 1, now: float = NOW) -> ZoneKeys:
    """A zone's keys as control makes them, by dnspython: a key-signing and a zone-signing key, and what the first signs.

    Args:
        zone: its name.
        number: the keys follow from it and the zone's name.
        now: POSIX seconds around which the sets are valid.
    """
    name = dns.name.from_text(zone)
    secrets = [int.from_bytes(f"{number} {role} {zone}".encode()) for role in ("ksk", "zsk")]
    ksk, zsk = (ec.derive_private_key(secret, ec.SECP256R1()) for secret in secrets)
    ksk_record = dns.dnssec.make_dnskey(ksk.public_key(), Algorithm.ECDSAP256SHA256, 257)
    zsk_record = dns.dnssec.make_dnskey(zsk.public_key(), Algorithm.ECDSAP256SHA256, ZSK_FLAGS)
    ds = dns.dnssec.make_ds(name, ksk_record, "SHA256")
    sets = []
    for rdtype, rdatas in (
        (dns.rdatatype.DNSKEY, [_wire(ksk_record), _wire(zsk_record)]),
        (dns.rdatatype.CDS, [_wire(ds)]),
        (dns.rdatatype.CDNSKEY, [_wire(ksk_record)]),
    ):
        records = [dns.rdata.from_wire("IN", rdtype, data, 0, len(data)) for data in rdatas]
        rrset = dns.rrset.from_rdata_list(name, 3600, records)
        signature = dns.dnssec.sign(
            rrset, ksk, name, ksk_record, inception=now - 86400, expiration=now + 30 * 86400
        )
        sets.append(SignedSet(int(rdtype), 3600, tuple(sorted(rdatas)), (_wire(signature),)))
    return ZoneKeys(
        zone, tuple(sets), key_tag(_wire(zsk_record)), _wire(zsk_record), secrets[1].to_bytes(32, "big")
    )


def keys(zones: Iterable[str] = SIGNED_ZONES, *, number: int = 1, now: float = NOW) -> Keys:
    """Keys of these zones."""
    return Keys(1, tuple(zone_keys(zone, number=number, now=now) for zone in zones))


KEYS = keys()


def signing(*down: str, signer: ZoneSigner | None = None) -> Answerer:
    """An Answerer of `SIGNED` with the regions `down` down; it signs by `signer`, or else with `KEYS` at `NOW`."""
    return Answerer(
        router(*down, policy=SIGNED), locate, Counts(), signer=signer or ZoneSigner(KEYS, lambda: NOW)
    )


def trusted(known: Keys = KEYS) -> Anchors:
    """The DNSKEY sets of zones, to validate with."""
    found = {}
    for item in known.zones:
        ready = next(entry for entry in item.sets if entry.rdtype == dns.rdatatype.DNSKEY)
        records = [dns.rdata.from_wire("IN", "DNSKEY", data, 0, len(data)) for data in ready.rdatas]
        found[dns.name.from_text(item.zone)] = dns.rdataset.from_rdata_list(ready.ttl, records)
    return found


def ask(
    server: Answerer,
    name: str,
    rdtype: str = "A",
    *,
    compact_ok: bool = False,
    dnssec_ok: bool = True,
    client: str = RESOLVER,
    subnet: str | None = None,
    draw: float = 0.5,
) -> dns.message.Message:
    """The reply to a query over TCP."""
    flags = (wire.DO if dnssec_ok else 0) | (wire.CO if compact_ok else 0)
    packet = query(name, rdtype, subnet=subnet, edns=True, ednsflags=flags)
    reply = server.answer(packet, client, tcp=True, draw=draw)
    assert reply is not None
    return dns.message.from_wire(reply)


@dataclass(frozen=True, slots=True)
class Validated:
    """What a validated answer says: `secure` sets, `insecure` ones of zones without keys, and what it proves."""

    secure: tuple[dns.rrset.RRset, ...]
    insecure: tuple[dns.rrset.RRset, ...]
    proofs: tuple[dns.rrset.RRset, ...]


def validate(
    message: dns.message.Message,
    anchors: Anchors,
    *,
    now: float = NOW,
) -> Validated:
    """Check every set of the answer and authority section as a validator does (RFC 4035 §5.3).

    A set of a zone that has keys must be signed by them, unless it is a delegation.

    Raises:
        ValidationFailure: a set is not, or a denial is not proved.
    """
    secure: list[dns.rrset.RRset] = []
    insecure: list[dns.rrset.RRset] = []
    for section in (message.answer, message.authority):
        signatures = [rrset for rrset in section if rrset.rdtype == dns.rdatatype.RRSIG]
        for rrset in section:
            if rrset.rdtype == dns.rdatatype.RRSIG:
                continue
            covering = [
                item for item in signatures if item.name == rrset.name and item.covers == rrset.rdtype
            ]
            zone = _zone(rrset, anchors)
            if not covering and (zone is None or (rrset.rdtype == dns.rdatatype.NS and _refers(message))):
                insecure.append(rrset)
                continue
            if len(covering) != 1:
                raise ValidationFailure(f"{rrset.name} {rrset.rdtype!r} is not signed once")
            for signature in covering[0]:
                assert isinstance(signature, RRSIG)
                if signature.labels != len(rrset.name) - 1 - rrset.name.is_wild():
                    raise ValidationFailure("no record set comes of a wildcard")
                if covering[0].ttl != rrset.ttl or signature.original_ttl != rrset.ttl:
                    raise ValidationFailure("the signature has another TTL")
            dns.dnssec.validate(rrset, covering[0], anchors, now=now)  # type: ignore[arg-type]
            secure.append(rrset)
    proofs = tuple(
        rrset for rrset in message.authority if rrset.rdtype == dns.rdatatype.NSEC and rrset in secure
    )
    if _refers(message):
        _check_referral(message, proofs, anchors)
    else:
        _check_denial(message, proofs, anchors)
    return Validated(tuple(secure), tuple(insecure), proofs)


def types_of(proof: dns.rrset.RRset) -> set[str]:
    """The types that an NSEC record lists."""
    (record,) = proof
    assert isinstance(record, NSEC)
    return {
        dns.rdatatype.to_text(dns.rdatatype.RdataType.make(window << 8 | octet << 3 | bit))
        for window, bits in record.windows
        for octet, value in enumerate(bits)
        for bit in range(8)
        if value & 0x80 >> bit
    }


def _zone(rrset: dns.rrset.RRset, anchors: Anchors) -> dns.name.Name | None:
    """The signed zone that a set is in; sub.demo.test is a zone without keys."""
    unsigned = dns.name.from_text("sub.demo.test")
    if rrset.name.is_subdomain(unsigned) and rrset.rdtype not in (dns.rdatatype.DS, dns.rdatatype.NSEC):
        return unsigned if unsigned in anchors else None
    above = [zone for zone in anchors if rrset.name.is_subdomain(zone)]
    return max(above, key=len) if above else None


def _refers(message: dns.message.Message) -> bool:
    return not message.flags & dns.flags.AA and any(
        rrset.rdtype == dns.rdatatype.NS for rrset in message.authority
    )


def _check_referral(
    message: dns.message.Message,
    proofs: tuple[dns.rrset.RRset, ...],
    anchors: Anchors,
) -> None:
    """A referral out of a signed zone has DS records, or an NSEC at the cut with NS and without DS (RFC 4035 §5.2)."""
    (servers,) = [rrset for rrset in message.authority if rrset.rdtype == dns.rdatatype.NS]
    if _zone(servers, anchors) is None or any(
        rrset.rdtype == dns.rdatatype.DS and rrset.name == servers.name for rrset in message.authority
    ):
        return
    matching = [types_of(proof) for proof in proofs if proof.name == servers.name]
    if len(matching) != 1 or "NS" not in matching[0] or matching[0] & {"DS", "SOA"}:
        raise ValidationFailure(f"no proof that {servers.name} is not signed")


def _check_denial(
    message: dns.message.Message,
    proofs: tuple[dns.rrset.RRset, ...],
    anchors: Anchors,
) -> None:
    """An answer without data of the type asked needs an NSEC at the name where it ends (RFC 4035 §5.4, RFC 9824 §3)."""
    asked = message.question[0]
    name = asked.name
    for rrset in message.answer:
        if rrset.name == name and rrset.rdtype == dns.rdatatype.CNAME and asked.rdtype != rrset.rdtype:
            name = rrset[0].target
    soa = [rrset for rrset in message.authority if rrset.rdtype == dns.rdatatype.SOA]
    if not soa or soa[0].name not in anchors:
        return
    matching = [proof for proof in proofs if proof.name == name]
    if len(matching) != 1:
        raise ValidationFailure(f"no proof at {name}")
    types = types_of(matching[0])
    if dns.rdatatype.to_text(asked.rdtype) in types or "CNAME" in types or not types >= {"RRSIG", "NSEC"}:
        raise ValidationFailure(f"{sorted(types)} proves nothing about {asked.rdtype!r}")
    if message.rcode() == dns.rcode.NXDOMAIN and "NXNAME" not in types:
        raise ValidationFailure("NXDOMAIN of a name that exists")
    # Unless it is the parent's, a proof of a zone cut says nothing about what is below it (RFC 6840 §4.1, §4.4).
    if "NS" in types and "SOA" not in types and asked.rdtype != dns.rdatatype.DS:
        raise ValidationFailure("a proof of the parent's")
