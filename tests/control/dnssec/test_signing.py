"""Keys and the sets they sign, read by another implementation (dnspython's validator)."""

from __future__ import annotations

from dataclasses import replace

import dns.dnssec
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdataset
import dns.rdatatype
import dns.rrset
import pytest

from gtm.control.dnssec import signing
from gtm.control.dnssec.signing import SIGNATURE_LIFE, ds_text, generate, sign_sets
from gtm.core.signing.keys import CDNSKEY, CDS, DNSKEY, SignedSet, key_tag
from gtm.core.signing.rollover import HOUR, Keyring, KeyRole, KeyState

NOW = 1_800_000_000.0
ZONE = "demo.test"
NAME = dns.name.from_text(ZONE)


def ring() -> tuple[Keyring, dict[str, bytes]]:
    """A zone's first keys: the key-signing key may have a DS record."""
    ksk, ksk_private = generate(KeyRole.KSK, NOW, urgent=True, taken=())
    zsk, zsk_private = generate(KeyRole.ZSK, NOW, urgent=True, taken=())
    keys = (replace(ksk, state=KeyState.READY), replace(zsk, state=KeyState.ACTIVE))
    return keys, {ksk.id: ksk_private, zsk.id: zsk_private}


def rrset(rdtype: int, ttl: int, rdatas: tuple[bytes, ...]) -> dns.rrset.RRset:
    """Records from what an edge serves."""
    found = [dns.rdata.from_wire(dns.rdataclass.IN, rdtype, wire, 0, len(wire)) for wire in rdatas]
    return dns.rrset.from_rdata_list(NAME, ttl, found)


def valid(signed: SignedSet, keys: tuple[bytes, ...], now: float) -> bool:
    """Whether a validator that trusts these keys takes a set at a time."""
    records = rrset(signed.rdtype, signed.ttl, signed.rdatas)
    signatures = rrset(dns.rdatatype.RRSIG, signed.ttl, signed.signatures)
    trusted = {NAME: rrset(DNSKEY, 60, keys).to_rdataset()}
    try:
        dns.dnssec.validate(records, signatures, trusted, now=now)
    except dns.dnssec.ValidationFailure:
        return False
    return True


@pytest.mark.rfc("7344", "4.1", "CDS and CDNSKEY are signed by the key that the DS set points to")
@pytest.mark.rfc("6605", "4", "DNSKEY sets are signed with ECDSA P-256 and validate")
def test_sets_validate_with_the_ksk_alone() -> None:
    """DNSKEY, CDS and CDNSKEY validate with the key-signing key for 30 days, and with no other key."""
    keys, private = ring()
    sets = sign_sets(ZONE, keys, private, NOW, withdrawing=False)
    assert [one.rdtype for one in sets] == [DNSKEY, CDS, CDNSKEY]
    for one in sets:
        assert valid(one, (keys[0].dnskey,), NOW - HOUR + 1)
        assert valid(one, (keys[0].dnskey,), NOW + SIGNATURE_LIFE - 1)
        assert not valid(one, (keys[0].dnskey,), NOW + SIGNATURE_LIFE + 1)
        assert not valid(one, (keys[0].dnskey,), NOW - HOUR - 1)
        assert not valid(one, (keys[1].dnskey,), NOW)
        assert list(one.rdatas) == sorted(one.rdatas)


def test_every_ksk_signs() -> None:
    """While two key-signing keys are there, a validator that trusts either takes the sets."""
    keys, private = ring()
    other, other_private = generate(KeyRole.KSK, NOW, urgent=False, taken=())
    sets = sign_sets(ZONE, (*keys, other), {**private, other.id: other_private}, NOW, withdrawing=False)
    for one in sets:
        assert len(one.signatures) == 2
        assert valid(one, (keys[0].dnskey,), NOW)
        assert valid(one, (other.dnskey,), NOW)


@pytest.mark.rfc("7344", "4", "CDS and CDNSKEY say the same")
def test_cds_points_to_the_key_that_ds_should_have() -> None:
    """CDS, CDNSKEY and the DS record for people all name the newest key-signing key that is ready, and only it."""
    keys, private = ring()
    ksk = keys[0]
    _, cds, cdnskey = sign_sets(ZONE, keys, private, NOW, withdrawing=False)
    dnskey = dns.rdata.from_wire(dns.rdataclass.IN, DNSKEY, ksk.dnskey, 0, len(ksk.dnskey))
    ds = dns.dnssec.make_ds(NAME, dnskey, "SHA256")
    assert cds.rdatas == (ds.to_wire(),)
    assert cdnskey.rdatas == (ksk.dnskey,)
    owner, ttl, _, kind, *words = ds_text(ZONE, ksk.dnskey).split()
    assert (owner, ttl, kind) == ("demo.test.", "3600", "DS")
    assert dns.rdata.from_text("IN", "DS", " ".join(words)) == ds


def test_no_ds_is_asked_for_too_early() -> None:
    """While the only key-signing key is too new, there is neither CDS nor CDNSKEY."""
    keys, private = ring()
    early = (replace(keys[0], state=KeyState.PUBLISHED), keys[1])
    (dnskeys,) = sign_sets(ZONE, early, private, NOW, withdrawing=False)
    assert dnskeys.rdtype == DNSKEY


@pytest.mark.rfc("8078", "4", "the records that ask the parent to drop DS are `0 0 0 00` and `0 3 0 AA==`")
def test_withdrawing_asks_for_no_ds() -> None:
    """CDS and CDNSKEY then ask for the removal of the DS records, and validate."""
    keys, private = ring()
    _, cds, cdnskey = sign_sets(ZONE, keys, private, NOW, withdrawing=True)
    texts = [rrset(one.rdtype, one.ttl, one.rdatas)[0].to_text() for one in (cds, cdnskey)]
    assert texts == ["0 0 0 00", "0 3 0 AA=="]
    assert valid(cds, (keys[0].dnskey,), NOW)
    assert valid(cdnskey, (keys[0].dnskey,), NOW)


def test_no_two_keys_share_a_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key whose tag another of the zone has is not used."""
    tags = iter([7, 7, 8])
    monkeypatch.setattr(signing, "key_tag", lambda _: next(tags))
    key, _ = generate(KeyRole.ZSK, NOW, urgent=False, taken=(7,))
    assert next(tags, None) is None
    assert 0 <= key_tag(key.dnskey) < 2**16
