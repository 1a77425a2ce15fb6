"""Answers about residency, as the OpenAPI document describes them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from gtm.api.schemas.base import Schema
from gtm.api.schemas.policy import AdequacySchema
from gtm.core.findings.calendar import What


class ClientsKind(StrEnum):
    """The kind of clients that a column of the matrix is about."""

    JURISDICTION = "jurisdiction"
    OTHERS = "others"
    UNKNOWN = "unknown"


class ClientsSchema(Schema):
    """A column: clients of a jurisdiction, of all countries that no other column has, or such as nobody can locate."""

    kind: ClientsKind
    name: str | None
    """The jurisdiction's, or the country's."""
    countries: list[str]


class CellPart(Schema):
    """Clients of a column that are alike."""

    countries: list[str] | None
    """Null: all of the column."""
    regions: list[str]
    """Those that may serve them; none: they are refused."""
    rules: list[str]
    """Enforced rules that concern them; none: any of the service's regions may serve them."""
    rules_left_out: int


class MatrixRow(Schema):
    """A service."""

    service: str
    members: list[str]
    """All its regions."""
    cells: list[list[CellPart]]
    """One for each column, in their order."""


class UnruledService(Schema):
    """A service that no enforced rule concerns."""

    service: str
    monitored: bool
    """Rules in monitor mode watch it."""


class UnruledSchema(Schema):
    """All of them: the first by the policy's order."""

    count: int
    services: list[UnruledService]


class MatrixView(Schema):
    """The regions in which each kind of clients may be served."""

    revision: int
    at: float
    """The time that the matrix is of, in POSIX seconds."""
    tenant: str | None
    data_class: str | None
    clients: list[ClientsSchema]
    clients_left_out: int
    """Jurisdictions that rules name beyond these: ask for one by `client`."""
    items: list[MatrixRow]
    services: int
    """How many there are, on all pages."""
    next_cursor: str | None
    unruled: UnruledSchema


class CauseSchema(Schema):
    """A rule, a membership or an adequacy decision that begins or ends."""

    what: What
    name: str
    """The rule's, or the jurisdiction's."""
    countries: list[str]
    """The countries whose membership begins or ends."""
    rules: list[str]
    """Rules that name the jurisdiction; none: nothing follows from it."""
    rules_left_out: int
    monitor: bool
    """A rule in monitor mode, which changes nothing."""
    decisions: list[AdequacySchema]
    """The adequacy decisions that lapse."""


class ChangeSchema(Schema):
    """What it changes for clients in some countries."""

    services: list[str]
    countries: list[str]
    unknown: bool
    """For clients that nobody can locate, too."""
    before: list[str]
    after: list[str]
    """Regions that may serve them from then on; none: they are refused."""


class EventSchema(Schema):
    """A moment."""

    at: datetime
    causes: list[CauseSchema]
    changes: list[ChangeSchema]
    left_out: int
    """Services beyond those looked at whose rules change then."""


class CalendarView(Schema):
    """What begins and ends by itself, the next first."""

    revision: int
    at: float
    """POSIX seconds, after which it comes."""
    items: list[EventSchema]
    left_out: int
    """Moments beyond the limit."""


class RefusedCountry(Schema):
    """Requests that a rule would have refused; a country of null: of unknown location, or of subnets in several."""

    country: str | None
    refused: float


class MonitoredRule(Schema):
    """A rule in monitor mode. Counts are of requests."""

    rule: str
    legal_basis: str
    effective_from: datetime | None
    effective_until: datetime | None
    concerned: float
    narrowed: float
    """Would have lost some of the regions that other rules leave them."""
    refused: float
    """Would have lost all."""
    countries: list[RefusedCountry]
    """Whose requests would have been refused, the most first."""


class MonitoredView(Schema):
    """Rules in monitor mode."""

    revision: int
    since: datetime
    seconds: float
    """How long demand was recorded since then; 0: never, and nothing is known."""
    requests: float
    items: list[MonitoredRule]
