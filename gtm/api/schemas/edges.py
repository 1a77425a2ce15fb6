"""Answers about edges."""

from __future__ import annotations

from datetime import datetime

from gtm.api.schemas.base import Schema
from gtm.control.lead.edges import EdgeView
from gtm.feed.reports import DnsLimits


class EdgeSchema(Schema, of=EdgeView):
    """An edge as last heard of."""


class DnsAnswers(Schema):
    """DNS answers of one kind."""

    type: str
    """Of the question; `other`: one that gtm has no name for."""
    rcode: str
    transport: str
    per_second: float


class DnsRates(Schema):
    """What an edge's DNS does, per second, smoothed over 3 s."""

    answered: list[DnsAnswers]
    """The most first."""
    limited: dict[str, float]
    """Replies over UDP beyond a client prefix's budget, by what became of them: `slipped` (sent without records, with TC) or `dropped`."""
    dropped: dict[str, float]
    """Packets that were no questions, by why."""


class DnsLimitsSchema(Schema, of=DnsLimits):
    """What DNS grants a client prefix (/24 or /56) each second and process."""


class CertificateSchema(Schema):
    """A certificate that an endpoint showed to the edge's last probe of it."""

    region: str
    endpoint: str
    sha256: str
    """The SHA-256 of the certificate's DER, in hex."""
    subject: str
    """Empty, as are `issuer` and `names`, where the probe does not verify certificates (`verify_tls: false`)."""
    issuer: str
    names: list[str]
    """Of its subject alternative name: the first 20."""
    not_before: datetime
    not_after: datetime
    days_left: float
    """Negative: it has ended."""
    ends_soon: bool
    """Within 21 days, or it has ended."""


class EdgeDetail(EdgeSchema):
    """An edge, with what its DNS does and the certificates that it meets.

    What an edge of an earlier version does not tell is null, as is everything of an edge that is not live.
    """

    dns: DnsRates | None
    dns_limits: DnsLimitsSchema | None
    certificates: list[CertificateSchema] | None
    """Those that end first come first."""
