"""RRSIG records (RFC 4034 §3) by ECDSA P-256 (RFC 6605), made once a period and kept.

Laws:
  1. Equal record sets get equal signatures for a whole period, on every edge: times are rounded to it, and ECDSA is
     deterministic (RFC 6979). So what is made ready of signed answers can be kept until the period ends.
  2. A signature made now is valid for two more days at least: longer than resolvers keep what it signs.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from struct import Struct

import dns.rdata
import dns.rdataclass
import dns.rdatatype
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils

from gtm.core.signing.keys import ALGORITHM, SignedSet, ZoneKeys
from gtm.dns.protocol import wire
from gtm.dns.zone.zones import suffixes, wire_name

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
