"""What a TLS certificate says, as far as people need it who have to renew it in time."""

from __future__ import annotations

from dataclasses import dataclass

ENDS_SOON = 21 * 86_400.0
"""Seconds before its end from which on a certificate is warned of: three weeks, as the shortest of usual renewals leave."""


MAX_NAMES = 20
"""Names kept of a certificate: the first."""
MAX_TEXT = 200
"""Characters kept of its subject, of its issuer and of each name."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate (RFC 5280) that a server has shown. Times are POSIX seconds, `subject` and `issuer` as in RFC 4514.

    Where it was not verified, these and `names` are empty: what an endpoint merely says of itself goes no further.
    """

    sha256: str
    """The SHA-256 of the certificate's DER, in hex."""
    not_before: float
    not_after: float
    subject: str = ""
    """Empty, as are `issuer` and `names`, where the probe does not verify certificates (`verify_tls: false`)."""
    issuer: str = ""
    names: tuple[str, ...] = ()
    """Of its subject alternative name: the first 20."""


@dataclass(frozen=True, slots=True)
class ShownCertificate:
    """A certificate, and the endpoint (region, URL) that showed it to a probe."""

    region: str
    url: str
    certificate: Certificate
