"""Certificates that endpoints show to probes, read.

Law: of one that was not verified only its time and its hash are told. What it says of itself is what an endpoint sends, and whoever
reads of health may not read what edges can (`gtm.prober.checks`, law 5).
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256

from cryptography.x509 import (
    Certificate as Parsed,
)
from cryptography.x509 import (
    DNSName,
    ExtensionNotFound,
    IPAddress,
    SubjectAlternativeName,
    load_der_x509_certificate,
)

from gtm.core.model.certificates import Certificate

MAX_NAMES = 20
"""Names kept of a certificate: the first."""
MAX_TEXT = 200
"""Characters kept of its subject, of its issuer and of each name."""


@lru_cache(maxsize=1024)
def read(der: bytes, *, verified: bool) -> Certificate | None:
    """What a certificate says; None if it cannot be read.

    Args:
        der: as the server sent it.
        verified: whether it was, for the name that was asked for.
    """
    try:
        parsed = load_der_x509_certificate(der)
        times = parsed.not_valid_before_utc.timestamp(), parsed.not_valid_after_utc.timestamp()
        if not verified:
            return Certificate(sha256(der).hexdigest(), *times)
        return Certificate(
            sha256(der).hexdigest(),
            *times,
            subject=parsed.subject.rfc4514_string()[:MAX_TEXT],
            issuer=parsed.issuer.rfc4514_string()[:MAX_TEXT],
            names=_names(parsed),
        )
    except ValueError:
        return None


def _names(parsed: Parsed) -> tuple[str, ...]:
    try:
        found = parsed.extensions.get_extension_for_class(SubjectAlternativeName).value
    except ExtensionNotFound:
        return ()
    names = [*found.get_values_for_type(DNSName), *map(str, found.get_values_for_type(IPAddress))]
    return tuple(name[:MAX_TEXT] for name in names[:MAX_NAMES])
