"""Answers about demand and of drafts tried out, as the OpenAPI document describes them.

Rates are in requests per second, shares 0 to 1, latencies in ms, `start` in POSIX seconds.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from gtm.api.schemas.base import Schema
from gtm.core.demand.cells import Cell
from gtm.core.simulate.compare import MainPlace, MainRegion
from gtm.core.simulate.project import RegionRoom
from gtm.dns.zone.content import ExtendedError
from gtm.storage.history.demand import DemandStep


class CellSchema(Schema, of=Cell, without=("family",)):
    """A demand cell: a kind of request. Coordinates are of the centre of 5° by 5°."""

    spans: list[str]
    """The countries of a client subnet that is in several; `?`: parts that nobody can locate, `*`: too many parts."""


class DemandRow(Schema):
    """Requests that are counted apart from others."""

    region: str | None
    """null: refused."""
    outcome: str
    via: str
    """`dns` rates are answers, not requests."""
    ranking_class: str
    preferred: str | None
    """The region that its class likes best, whether that is usable or not; null: none may serve it, or the class is of none known here."""
    cell: CellSchema
    rate: float | None
    """As edges count; null: of recorded demand only the requests are known."""
    requests_per_second: float
    """The requests that it stands for."""


class RecordedMinute(Schema):
    """The minute that recorded demand is of."""

    start: float
    """The beginning of the minute, in POSIX seconds."""
    seconds: float
    """For how many seconds of it control was there to count: 60, or fewer where it started or ended then. Rates are per second of these."""
    revision: int | None
    """Of the policy, the one in force when it began; null: none was."""


class DemandView(Schema):
    """Demand now or of a recorded minute, the largest rows first. `rate`, `served` and `refused` are of all rows, in requests per second."""

    at: float
    """When, in POSIX seconds: now, or when the recorded minute began."""
    recorded: RecordedMinute | None
    """Null: it is of now."""
    rate: float
    """DNS answers count as the requests that they stand for."""
    served: dict[str, float]
    """Requests a second that were served, by region."""
    refused: dict[str, float]
    """Requests a second that were refused, by outcome."""
    rows: list[DemandRow]
    left_out: int
    """Rows beyond the limit."""


class CellCount(CellSchema):
    """A demand cell and how many requests it had."""

    count: float


class SampleSchema(Schema):
    """The requests of some time."""

    seconds: float
    start: float | None
    cells: list[CellCount]


class StepSchema(Schema, of=DemandStep):
    """A step of the timeline."""


class TimelineView(Schema):
    """How many requests were recorded, step by step. Steps without any recorded minute are left out."""

    since: datetime
    until: datetime
    step: float
    """Seconds."""
    items: list[StepSchema]


class AnswersSeries(Schema):
    """Requests that were answered alike."""

    service: str
    via: str
    """The tier that answered: `dns`, `lookup`, `redirect`, `carry`, `authorize`."""
    region: str | None
    """Null: refused."""
    outcome: str
    requests: float
    """How many the whole time had."""
    rates: list[float]
    """Per second of the time that was watched, step by step, as `times` are."""


class AnswersView(Schema):
    """How requests were answered, step by step."""

    since: datetime
    until: datetime
    step_seconds: float
    times: list[float]
    """The beginnings of steps of which a minute was recorded, in POSIX seconds."""
    series: list[AnswersSeries]
    """Those with most requests first."""
    left_out: int
    """Series with fewer requests that are not told."""


class RecordedView(SampleSchema):
    """Recorded traffic: fit to be sent as `traffic` of a simulation once `timeline` is taken out."""

    peak: SampleSchema | None
    timeline: list[StepSchema]


class PeakSchema(Schema):
    """The busiest interval."""

    start: float | None
    seconds: float
    rate: float


class TrafficSummary(Schema):
    """The traffic that was simulated."""

    requests: float
    seconds: float
    rate: float
    start: float | None
    peak: PeakSchema


class RegionPlace(Schema):
    """A region of either policy."""

    region: str
    display_name: str
    country: str
    lat: float
    lon: float


class RoomSchema(Schema, of=RegionRoom):
    """What of a region is in use; null: no bound, or no service time, is known."""

    utilization: float | None


class RegionTraffic(Schema):
    """A region's part."""

    region: str
    rate: float
    share: float
    queued: float
    """Requests that wait there because they fit nowhere."""
    room: RoomSchema
    price_ms: float
    """What one more request a second there would cost all others, in ms of latency."""
    exhausted: bool
    """Whether the region can take no more."""


class LatencySchema(Schema):
    """Total latency of what is served to clients whose place is known."""

    mean: float
    p50: float
    p90: float
    p99: float
    quantiles: list[float]
    """Of 0 %, 1 %, … 100 %."""


class RefusedSchema(Schema):
    """Requests refused, by reason; and by residency rule (one counts for each rule that keeps it from a region)."""

    rate: float
    share: float
    reasons: dict[str, float]
    rules: dict[str, float]


class ProjectionSchema(Schema):
    """What one policy makes of the traffic."""

    rate: float
    regions: list[RegionTraffic]
    latency_ms: LatencySchema | None
    spill: list[dict[str, Any]]
    """`from` and `to` a region, and the `rate`."""
    refused: RefusedSchema
    queued: float
    exhausted: list[str]
    """Quotas of spillover that are used up."""


class MoveSchema(Schema):
    """Requests per second that go elsewhere than before; a region of null: refused."""

    from_: str | None = Field(alias="from")
    to: str | None
    rate: float


class ComparisonSchema(Schema):
    """Both policies side by side."""

    moved: float
    """The share of requests whose region, or refusal, differs."""
    newly_served: float
    """The part of `moved` that was refused before."""
    moves: list[MoveSchema]
    """The same by where it goes, the largest first."""
    before: ProjectionSchema
    after: ProjectionSchema


class CountrySchema(Schema, of=MainRegion):
    """Where most of a country's requests for a service go; a region of null: they are refused."""

    before: str | None
    after: str | None


class PlaceChangeSchema(Schema, of=MainPlace):
    """Where most of the requests from a place go; a region of null: they are refused."""

    before: str | None
    after: str | None


class SimulationView(Schema):
    """The changes that a draft would bring to traffic."""

    traffic: TrafficSummary
    moved: float
    newly_served: float
    regions: list[RegionPlace]
    average: ComparisonSchema
    peak: ComparisonSchema
    countries: list[CountrySchema]
    places: list[PlaceChangeSchema]
    warnings: list[str]
    revision: int
    """The revision in force: `before`."""


class DnsRecordSchema(Schema):
    """A record of an answer, `data` as in a zone file."""

    name: str
    ttl: int
    type: str
    data: str


class ExtendedErrorSchema(Schema, of=ExtendedError):
    """Why there is no better answer (RFC 8914)."""


class DnsReplySchema(Schema):
    """The answer to a question of one type."""

    type: str
    rcode: str
    records: list[DnsRecordSchema]
    """Empty with NOERROR: there is nothing of this type."""
    scope: int | None
    """SCOPE PREFIX-LENGTH: the resolver keeps the answer for so long a prefix of the client's address (RFC 7871 §7.2.1); null: the
    question stated no subnet."""
    error: ExtendedErrorSchema | None


class DnsAnswersSchema(Schema):
    """The addresses that DNS would answer with."""

    name: str
    client_subnet: str | None
    """As the resolver would state it; null: it states none, and stands where the client is."""
    replies: list[DnsReplySchema]


class HeaderSchema(Schema):
    """A header of HTTP."""

    name: str
    value: str


class RedirectSchema(Schema):
    """What an edge would answer to `GET path`, with `host` as its host name (null: any of the edge's own)."""

    path: str
    host: str | None
    status: int
    headers: list[HeaderSchema]
    body: str
    """The problem document of a refusal."""


class ExplanationView(Schema):
    """A decision with all that led to it."""

    service: str
    outcome: str
    region: str | None
    endpoint: dict[str, Any] | None
    ttl: int
    reason: str
    reasons: list[str]
    client: dict[str, Any]
    rules: list[dict[str, Any]]
    revision: int
    epoch: int
    request: dict[str, Any]
    ranking_class: str
    shed: float
    candidates: list[dict[str, Any]]
    lines: list[str]
    """The whole of it in words: the refusal, if it is one, then every member region in rank order."""
    draft: bool
    """Whether it is of the draft in the request, and not of the policy in force."""
    over: Literal["http", "dns"]
    host: str | None
    """The host name asked for; null: none."""
    dns: DnsAnswersSchema | None
    """What DNS would answer, of a question over DNS; of several ways of one that is likely."""
    redirect: RedirectSchema | None
    """Where an edge would send the request, of a question over HTTP."""
    unknown: list[str]
    """What only the edge knows that is asked, and could change its answer: sentences."""
