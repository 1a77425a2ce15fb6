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
    """A certificate (RFC 5280) that a server has shown. Times are POSIX seconds.

    `sha256` is that of its DER, in hex. `subject`, `issuer` (RFC 4514) and `names` (of its subject alternative name) are empty where
    the certificate was not verified: what an endpoint merely says of itself goes no further.
    """

    sha256: str
    not_before: float
    not_after: float
    subject: str = ""
    issuer: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownCertificate:
    """A certificate, and the endpoint (region, URL) that showed it to a probe."""

    region: str
    url: str
    certificate: Certificate
