"""DNSSEC's values: the bytes of keys as RFC 4034 and RFC 6605 have them."""

from __future__ import annotations

from base64 import b64decode

import pytest

from gtm.core.dnssec import KSK_FLAGS, Keys, ZoneKeys, dnskey_rdata, ds_digest, key_tag

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
    assert keys.of("demo.test") is keys.zones[0]
    assert keys.of("test") is None


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
