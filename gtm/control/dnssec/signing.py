"""Making DNSSEC keys, and signing what key-signing keys sign (RFC 4034, RFC 6605; CDS and CDNSKEY: RFC 7344, 8078).

`zone_status` is what people see of them: states, what comes next and when, and the DS record that the parent should have.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import dns.dnssec
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdataset
import dns.rdatatype
from cryptography.hazmat.primitives.asymmetric import ec

from gtm.core.signing import rollover
from gtm.core.signing.keys import (
    ALGORITHM,
    CDNSKEY,
    CDS,
    DELETE_CDNSKEY,
    DELETE_CDS,
    DNSKEY,
    KSK_FLAGS,
    ZSK_FLAGS,
    SignedSet,
    dnskey_rdata,
    ds_digest,
    key_tag,
)
from gtm.core.signing.rollover import DAY, HOUR, Key, Keyring, KeyRole, KeyState, RolloverTimes, delegated
from gtm.storage.dnssec import StoredZone

SIGNATURE_LIFE = RolloverTimes().propagation
"""Seconds for which the signatures made here are valid: as long as an edge may go on without control."""
RESIGN_AFTER = DAY
"""Seconds after which they are made anew."""
_BEFORE = HOUR
"""They are valid from so many seconds ago on, for validators whose clocks are late."""
_TTL = int(RolloverTimes().key_ttl)
_SHA256 = 2
"""The digest type of DS records (RFC 4509)."""
_CURVE = ec.SECP256R1()


def generate(role: KeyRole, now: float, *, urgent: bool, taken: Collection[int]) -> tuple[Key, bytes]:
    """A new key and its private part (the scalar, 32 bytes).

    Args:
        role: what it will sign.
        now: POSIX seconds.
        urgent: see `gtm.core.signing.rollover.Key`.
        taken: tags of the zone's other keys; validators may give up on keys that share one.
    """
    flags = KSK_FLAGS if role is KeyRole.KSK else ZSK_FLAGS
    while True:
        private = ec.generate_private_key(_CURVE)
        point = private.public_key().public_numbers()
        dnskey = dnskey_rdata(flags, point.x.to_bytes(32, "big") + point.y.to_bytes(32, "big"))
        if key_tag(dnskey) not in taken:
            break
    key = Key(secrets.token_hex(8), role, KeyState.PUBLISHED, now, now, urgent, dnskey)
    return key, private.private_numbers().private_value.to_bytes(32, "big")


def sign_sets(
    zone: str, keys: Keyring, private: Mapping[str, bytes], now: float, *, withdrawing: bool
) -> tuple[SignedSet, ...]:
    """The DNSKEY set of a zone, and the CDS and CDNSKEY sets if the parent is to do something.

    Args:
        zone: its name.
        keys: all of it.
        private: private parts by key id, of the key-signing keys at least.
        now: POSIX seconds.
        withdrawing: the parent is to drop its DS records.
    """
    sets = {DNSKEY: [key.dnskey for key in keys]}
    trusted = delegated(keys)
    if withdrawing:
        sets |= {CDS: [DELETE_CDS], CDNSKEY: [DELETE_CDNSKEY]}
    elif trusted is not None:
        sets |= {CDS: [ds_rdata(zone, trusted.dnskey)], CDNSKEY: [trusted.dnskey]}
    signers = [key for key in keys if key.role is KeyRole.KSK]
    made = []
    for rdtype, rdatas in sets.items():
        records = dns.rdataset.from_rdata_list(_TTL, [_rdata(rdtype, rdata) for rdata in rdatas])
        signatures = tuple(_signature(zone, records, key, private[key.id], now) for key in signers)
        made.append(SignedSet(rdtype, _TTL, tuple(sorted(rdatas)), signatures))
    return tuple(made)


def ds_rdata(zone: str, dnskey: bytes) -> bytes:
    """RDATA of a key's DS record with a SHA-256 digest."""
    return key_tag(dnskey).to_bytes(2, "big") + bytes((ALGORITHM, _SHA256)) + ds_digest(zone, dnskey)


def ds_text(zone: str, dnskey: bytes) -> str:
    """A key's DS record as text, as registrars and zone files take it."""
    owner = dns.name.from_text(zone).to_text()
    return f"{owner} {_TTL} IN DS {key_tag(dnskey)} {ALGORITHM} {_SHA256} {ds_digest(zone, dnskey).hex().upper()}"


def _signature(zone: str, records: dns.rdataset.Rdataset, key: Key, private: bytes, now: float) -> bytes:
    """RDATA of the RRSIG record over a set at the zone's apex."""
    name = dns.name.from_text(zone)
    made = dns.dnssec.sign(
        (name, records),
        ec.derive_private_key(int.from_bytes(private, "big"), _CURVE),
        name,
        _rdata(DNSKEY, key.dnskey),  # type: ignore[arg-type]  # its class follows from its type
        inception=int(now - _BEFORE),
        expiration=int(now + SIGNATURE_LIFE),
    )
    return bytes(made.to_wire() or b"")


def _rdata(rdtype: int, wire: bytes) -> dns.rdata.Rdata:
    kind = dns.rdatatype.RdataType.make(rdtype)
    return dns.rdata.from_wire(dns.rdataclass.IN, kind, wire, 0, len(wire))


@dataclass(frozen=True, slots=True)
class KeyStatus:
    """A key of a signed zone, with what it is at."""

    id: str
    tag: int
    """As in DS and RRSIG records (RFC 4034 appendix B)."""
    role: KeyRole
    state: KeyState
    created_at: datetime
    since: datetime
    """When it came into its state."""
    next_at: datetime | None
    """When time alone brings its next state; null: something else has to happen, or nothing will."""
    urgent: bool
    """Its steps wait for edges in reach alone."""


@dataclass(frozen=True, slots=True)
class ZoneStatus:
    """A zone with keys, and what they wait for."""

    zone: str
    signed: bool
    """Whether the policy has it signed; keys of zones that it no longer has signed are kept."""
    withdrawing: bool
    """Whether the parent is asked to drop its DS records."""
    keys: tuple[KeyStatus, ...]
    """Oldest first."""
    ds: tuple[str, ...]
    """The DS records that the parent should have, and no others."""
    ds_from: datetime | None
    """When they may be put there; null: at once."""
    waits_for: str
    """What somebody has to do, in words; empty: nothing."""
    signatures_until: datetime
    """Edges without control answer validly until then."""
    problem: str
    """Why keys cannot be made, rolled or read now; empty if they can."""


def zone_status(zone: StoredZone, times: RolloverTimes, *, asks: bool, problem: str = "") -> ZoneStatus:
    """The state of a zone's keys.

    Args:
        zone: as stored.
        times: that its steps wait for.
        asks: whether control asks a resolver for the parents' DS records.
        problem: of all keys.
    """
    keys = tuple(one.key for one in zone.keys)
    trusted = rollover.delegated(keys) or next(key for key in keys if key.role is KeyRole.KSK)
    early = trusted.state is KeyState.PUBLISHED
    signed = zone.paused_at is None
    return ZoneStatus(
        zone=zone.name,
        signed=signed,
        withdrawing=zone.withdrawing,
        keys=tuple(
            KeyStatus(
                id=key.id,
                tag=key_tag(key.dnskey),
                role=key.role,
                state=key.state,
                created_at=_moment(key.created),
                since=_moment(key.since),
                next_at=_if_known(rollover.next_step(key, keys, times)) if signed else None,
                urgent=key.urgent,
            )
            for key in keys
        ),
        ds=() if zone.withdrawing or not signed else (ds_text(zone.name, trusted.dnskey),),
        ds_from=_if_known(rollover.next_step(trusted, keys, times)) if early and signed else None,
        waits_for=_waits_for(zone, keys, times, asks=asks),
        signatures_until=_moment(zone.signed_at + SIGNATURE_LIFE),
        problem=problem,
    )


def _waits_for(zone: StoredZone, keys: Keyring, times: RolloverTimes, *, asks: bool) -> str:
    if zone.paused_at is not None:
        return "the policy to have the zone signed again; its keys are kept"
    if zone.withdrawing:
        days = times.parent / rollover.DAY
        return f"the parent to drop its DS records; {days:.0f} days after that, `dnssec: false` in the policy breaks nobody"
    key = rollover.delegated(keys)
    if key is not None and key.state is KeyState.READY:
        look = "control looks for it every five minutes" if asks else "then run"
        confirm = "" if asks else f" `gtm dnssec roll {zone.name} --ds-seen`"
        return f"the DS record of key {key_tag(key.dnskey)} at the parent, in place of any other; {look}{confirm}"
    return ""


def _if_known(posix: float | None) -> datetime | None:
    return None if posix is None else _moment(posix)


def _moment(posix: float) -> datetime:
    return datetime.fromtimestamp(posix, UTC)
