"""DNSSEC's values: the bytes of keys as RFC 4034 and RFC 6605 have them."""

from __future__ import annotations

from base64 import b64decode

import pytest

from gtm.core.change.safety import SafetyRule, unsigned
from gtm.core.model.policy import Policy
from gtm.core.model.services import Zone
from gtm.core.signing.keys import (
    CDS,
    DELETE_CDS,
    DNSKEY,
    KSK_FLAGS,
    NO_KEYS,
    Keys,
    SignedSet,
    ZoneKeys,
    dnskey_rdata,
    ds_digest,
    expiry,
    key_tag,
    trusted_zones,
)

# RFC 6605 §6.1.
PUBLIC = b64decode("GojIhhXUN/u4v54ZQqGSnyhWJwaubCvTmeexv7bR6edbkrSqQpF64cYbcB7wNcP+e+MAnLr+Wi9xMWyQLc8NAA==")
PRIVATE = b64decode("GU6SnQ/Ou+xC5RumuIUIuJZteXT2z0O/ok1s38Et6mQ=")
DS = "b4c8c1fe2e7477127b27115656ad6256f424625bf5c1e2770ce6d6e37df61d17"


@pytest.mark.rfc("6605", "6.1", "the example key has the tag and the SHA-256 digest given")
def test_the_key_of_the_rfc_has_its_tag_and_digest() -> None:
    """The key of RFC 6605's example has the tag 55648 and the DS record given there."""
    ksk = dnskey_rdata(KSK_FLAGS, PUBLIC)
    assert key_tag(ksk) == 55648
    assert ds_digest("example.net", ksk).hex() == DS
    assert ds_digest("Example.NET.", ksk).hex() == DS


def test_no_private_key_is_shown() -> None:
    """What logs print of keys has no private key in it."""
    keys = Keys(1, (ZoneKeys("demo.test", (), 1, dnskey_rdata(256, PUBLIC), PRIVATE),))
    assert "private" not in repr(keys)


@pytest.mark.parametrize(
    ("dnskey", "private"),
    [
        (dnskey_rdata(256, PUBLIC), bytes(32)),
        (dnskey_rdata(256, PUBLIC), b"\xff" * 32),
        (dnskey_rdata(256, PUBLIC), PRIVATE[1:]),
        (dnskey_rdata(257, PUBLIC), PRIVATE),
        (dnskey_rdata(256, PUBLIC[1:]), PRIVATE),
    ],
)
def test_what_is_no_key_is_refused(dnskey: bytes, private: bytes) -> None:
    """Scalars outside the curve's order, and DNSKEY records of another kind, make no value."""
    with pytest.raises(ValueError, match="is not"):
        ZoneKeys("demo.test", (), 1, dnskey, private)


def signed(zone: str, *sets: SignedSet) -> ZoneKeys:
    """A zone with these sets."""
    return ZoneKeys(zone, sets, 1, dnskey_rdata(256, PUBLIC), PRIVATE)


def test_zones_that_parents_may_trust() -> None:
    """A zone counts as trusted from its first CDS record on, until that asks for the DS record's end."""
    keys = Keys(
        1,
        (
            signed("young.test", SignedSet(DNSKEY, 60, (b"",), ())),
            signed("demo.test", SignedSet(CDS, 60, (b"\1",), ())),
            signed("leaving.test", SignedSet(CDS, 60, (DELETE_CDS,), ())),
        ),
    )
    assert trusted_zones(keys) == {"demo.test"}
    zones = [Zone(one.zone, "ns.test", "h.test", dnssec=True) for one in keys.zones]
    before = Policy(zones=(*zones, Zone("plain.test", "ns.test", "h.test")))
    off = Policy(zones=tuple(Zone(zone.name, "ns.test", "h.test") for zone in before.zones))
    (breach,) = unsigned(before, off, keys)
    assert (breach.rule, "`demo.test`" in breach.message) == (SafetyRule.DNSSEC, True)
    assert unsigned(before, before, keys) == unsigned(off, off, keys) == unsigned(before, off, NO_KEYS) == ()
    assert unsigned(before, Policy(), keys) == ()


def test_the_first_signature_to_end() -> None:
    """The earliest expiration of all signatures; 0 without any."""
    ends = [b"\0" * 8 + end.to_bytes(4, "big") + b"\xff" for end in (2**32 - 1, 1_800_000_000)]
    keys = Keys(1, (signed("demo.test", SignedSet(DNSKEY, 60, (b"",), tuple(ends))),))
    assert expiry(keys) == 1_800_000_000
    assert expiry(NO_KEYS) == 0
