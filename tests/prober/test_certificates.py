"""What is read of the certificates that endpoints show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from ipaddress import ip_address

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import (
    CertificateBuilder,
    DNSName,
    IPAddress,
    Name,
    NameAttribute,
    SubjectAlternativeName,
    random_serial_number,
)
from cryptography.x509.oid import NameOID

from gtm.core.model.certificates import MAX_NAMES
from gtm.prober.checks import read_certificate

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def made(*names: str) -> bytes:
    """A certificate in DER, of names and one address."""
    key = generate_private_key(SECP256R1())
    builder = (
        CertificateBuilder()
        .subject_name(Name([NameAttribute(NameOID.COMMON_NAME, "eu.example.com")]))
        .issuer_name(Name([NameAttribute(NameOID.COMMON_NAME, "Example CA")]))
        .public_key(key.public_key())
        .serial_number(random_serial_number())
        .not_valid_before(BEGAN)
        .not_valid_after(BEGAN + timedelta(days=90))
    )
    if names:
        among = [*map(DNSName, names), IPAddress(ip_address("192.0.2.1"))]
        builder = builder.add_extension(SubjectAlternativeName(among), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def test_what_it_says_is_told_if_it_was_verified() -> None:
    """Whose it is, by whom, and for which names; of one that was not verified when it ends, and which it is."""
    der = made("eu.example.com", "*.eu.example.com")
    found = read_certificate(der, verified=True)
    assert found is not None
    assert (found.subject, found.issuer) == ("CN=eu.example.com", "CN=Example CA")
    assert found.names == ("eu.example.com", "*.eu.example.com", "192.0.2.1")
    assert (found.not_before, found.not_after) == (
        BEGAN.timestamp(),
        (BEGAN + timedelta(days=90)).timestamp(),
    )
    assert found.sha256 == sha256(der).hexdigest()
    bare = read_certificate(der, verified=False)
    assert bare is not None
    assert (bare.subject, bare.issuer, bare.names) == ("", "", ())
    assert (bare.not_after, bare.sha256) == (found.not_after, found.sha256)


def test_it_may_have_no_names_or_very_many() -> None:
    """Names are bounded; one without an extension has none; what is no certificate is None."""
    many = read_certificate(made(*(f"{number}.example.com" for number in range(500))), verified=True)
    none = read_certificate(made(), verified=True)
    assert many is not None
    assert none is not None
    assert (len(many.names), none.names) == (MAX_NAMES, ())
    assert read_certificate(b"no certificate", verified=True) is None
    assert read_certificate(made("a.example.com")[:-20], verified=False) is None
