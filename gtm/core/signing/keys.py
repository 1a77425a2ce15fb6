"""DNSSEC as it travels from control to edges (docs/dnssec.md).

That is the record sets signed by a zone's key-signing key, and the key that signs answers. Algorithm 13, ECDSA P-256 with
SHA-256, throughout (RFC 6605).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256

ALGORITHM = 13
"""ECDSAP256SHA256 (RFC 6605)."""
PROTOCOL = 3
"""The only value of a DNSKEY's protocol field (RFC 4034 §2.1.2)."""
ZSK_FLAGS = 256
"""A zone key (RFC 4034 §2.1.1)."""
KSK_FLAGS = 257
"""A zone key that is a secure entry point (RFC 4034 §2.1.1)."""

DNSKEY = 48
CDS = 59
CDNSKEY = 60

DELETE_CDS = bytes(5)
"""RDATA `0 0 0 00` of a CDS record: the parent is to drop its DS records (RFC 8078 §4)."""
DELETE_CDNSKEY = b"\0\0\3\0\0"
"""RDATA `0 3 0 AA==` of a CDNSKEY record: likewise."""

_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Of the curve P-256 (NIST SP 800-186 §3.2.1.3)."""


@dataclass(frozen=True, slots=True)
class SignedSet:
    """A record set at the zone's apex that control signed.

    Args:
        rdtype: its type's number (DNSKEY, CDS or CDNSKEY).
        ttl: in seconds, of the records and of the signatures.
        rdatas: RDATA of each record in wire format, in canonical order (RFC 4034 §6.3).
        signatures: RDATA of the RRSIG records over it in wire format.
    """

    rdtype: int
    ttl: int
    rdatas: tuple[bytes, ...]
    signatures: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class ZoneKeys:
    """What an edge needs to sign a zone's answers.

    Args:
        zone: its name as in the policy's snapshot.
        sets: ready to be served as they are.
        key_tag: of the zone-signing key (RFC 4034 appendix B).
        dnskey: RDATA of its DNSKEY record; the public key is what follows the first four bytes.
        private: its private key: the scalar, 32 bytes big-endian.
    """

    zone: str
    sets: tuple[SignedSet, ...]
    key_tag: int
    dnskey: bytes
    private: bytes = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse what no key can be.

        Raises:
            ValueError: the private key is not a scalar of the curve, or the DNSKEY not one of this algorithm.
        """
        if len(self.private) != 32 or not 0 < int.from_bytes(self.private, "big") < _ORDER:
            raise ValueError("the private key is not one of ECDSA P-256")
        if len(self.dnskey) != 68 or self.dnskey[:4] != dnskey_rdata(ZSK_FLAGS, b""):
            raise ValueError("the DNSKEY is not a zone-signing key of algorithm 13")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of all signed zones. `version` grows with each change; 0: none were ever made."""

    version: int = 0
    zones: tuple[ZoneKeys, ...] = ()


NO_KEYS = Keys()


def trusted_zones(keys: Keys) -> frozenset[str]:
    """The zones whose CDS records ask for a DS record, which their parents may therefore have (RFC 7344, RFC 8078 §4)."""
    return frozenset(
        zone.zone
        for zone in keys.zones
        if any(one.rdtype == CDS and DELETE_CDS not in one.rdatas for one in zone.sets)
    )


def expiry(keys: Keys) -> int:
    """When the first of control's signatures ends, in POSIX seconds (RFC 4034 §3.1.5); 0 if there are none."""
    ends = [
        int.from_bytes(signature[8:12], "big")
        for zone in keys.zones
        for one in zone.sets
        for signature in one.signatures
    ]
    return min(ends, default=0)


def dnskey_rdata(flags: int, public: bytes) -> bytes:
    """RDATA of a DNSKEY record (RFC 4034 §2.1). `public`: the curve point, x then y, 64 bytes (RFC 6605 §4)."""
    return flags.to_bytes(2, "big") + bytes((PROTOCOL, ALGORITHM)) + public


def key_tag(dnskey: bytes) -> int:
    """The key tag of a DNSKEY's RDATA (RFC 4034 appendix B)."""
    total = sum(byte << 8 if index % 2 == 0 else byte for index, byte in enumerate(dnskey))
    return (total + (total >> 16 & 0xFFFF)) & 0xFFFF


def ds_digest(zone: str, dnskey: bytes) -> bytes:
    """The SHA-256 digest of a key's DS record (RFC 4034 §5.1.4, RFC 4509 §2.1)."""
    labels = [label.encode("ascii") for label in zone.lower().rstrip(".").split(".")]
    owner = b"".join(bytes((len(label),)) + label for label in labels) + b"\0"
    return sha256(owner + dnskey).digest()
