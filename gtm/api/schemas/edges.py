"""Answers about edges."""

from __future__ import annotations

from datetime import datetime

from gtm.api.schemas.base import Schema


class EdgeSchema(Schema):
    """An edge as last heard of."""

    name: str
    version: str
    address: str
    revision: int
    kept: int | None
    """The revision on its disk, by which it would answer after a restart without control (0: none); null: not known, as of an edge that is not live."""
    epoch: int
    last_seen: datetime
    live: bool
    instances: int
    """How many edges run under this name: 1, unless two were given the same."""
    token: str | None
    """The token that it reports with, while it is live."""
    overruled: list[str]
    """Regions for which it goes by its own probes against the common verdict."""
    country: str | None
    """Where it stands; null: unknown, and so outside of every residency rule that binds edges."""
    operator_country: str | None
    """Where whoever runs it is established; null: unknown."""
    decisions: dict[str, float] | None
    """Per second by tier (`dns`, `lookup`, `redirect`), smoothed; a DNS answer is one. Null: not known, as of an edge that is not live."""


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


class DnsLimitsSchema(Schema):
    """What DNS grants a client prefix (/24 or /56) each second and process."""

    replies: int
    """Over UDP; 0: any number."""
    excess_bytes: int
    """Beyond twice those of the queries."""
    slip: int
    """Each so-many-th limited reply is sent, without records; 0: none."""
    exempt: int
    """Networks that are not limited."""


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
