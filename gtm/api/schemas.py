"""Answers, as the OpenAPI document describes them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from gtm.control.lead.edges import SyncState
from gtm.control.lead.election import Standing
from gtm.core.capacity.load import Freshness
from gtm.core.capacity.processing import TimeSource
from gtm.core.change.safety import SafetyRule
from gtm.core.model.access import Role
from gtm.core.model.values import AdminState, HealthStatus
from gtm.documents.diff import Action
from gtm.documents.schema import JurisdictionDocument, PolicyDocument
from gtm.storage.resources import PutOutcome

T = TypeVar("T")


class Schema(BaseModel):
    """Base of all answers."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class ErrorSchema(Schema):
    """One thing wrong."""

    path: str
    """Where: `services.chat.members[0].region`."""
    code: str
    message: str


class ProblemSchema(Schema):
    """What went wrong (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    """The path asked for."""
    code: str
    """The type in a word."""
    errors: list[ErrorSchema] = []


class SilentSchema(Schema):
    """An edge not heard of for 10 seconds: the revision that it had, and when it was last heard of."""

    name: str
    revision: int
    since: datetime


class SyncSchema(Schema):
    """How far a revision has got."""

    revision: int
    state: SyncState
    """PENDING: a live edge lacks the revision, or no edge is live. STALE: every live edge has it, but a silent one had an
    older. IN_SYNC: every live edge has it, and so had the silent ones when they were last heard of."""
    in_sync: list[str]
    pending: list[str]
    unreachable: list[str]
    """Edges not heard of for 10 seconds."""
    silent: list[SilentSchema]
    """The same, with what they had."""


class Page(Schema, Generic[T]):
    """Part of a list. The next part: the same request with `cursor` set to `next_cursor`; null at the end."""

    items: list[T]
    next_cursor: str | None


class Changed(Schema):
    """What a change did."""

    revision: int
    """The revision in force now; a change that changes nothing makes no new one."""
    sync: SyncSchema
    warnings: list[str]


class ResourceChanged(Changed, Generic[T]):
    """What a put did."""

    outcome: PutOutcome
    resource: T


class FieldChangeSchema(Schema):
    """A field that differs."""

    path: str
    before: Any
    after: Any


class ResourceChangeSchema(Schema):
    """A resource that differs."""

    kind: str
    name: str
    action: Action
    fields: list[FieldChangeSchema]


class FindingSchema(Schema):
    """Something legal in a policy that is probably not meant."""

    path: str
    code: str
    message: str


class BreachSchema(Schema):
    """A safety rule that a change breaks: `value` exceeds `limit`, both in `unit`."""

    rule: SafetyRule
    message: str
    value: float
    limit: float
    unit: str


class SafetySchema(Schema):
    """What the safety rules say of a change."""

    breaches: list[BreachSchema]
    """Empty: it is safe."""
    unchecked: list[str]
    """Rules that could not be applied, and why."""
    moved: float | None
    """The share of the present requests that would leave their region; null: no demand is known."""
    moved_by_law: float | None
    """The part of it whose fence is tightened: it is not held against the change."""
    short: list[float] | None
    """Requests per second without capacity, before and after."""
    fingerprint: str | None
    """What the change goes by for those who have to approve of it; null: nobody has to."""


class PolicyChanged(Changed):
    """What applying a policy or rolling back did, or would do (`dry_run`)."""

    dry_run: bool = False
    changes: list[ResourceChangeSchema]
    findings: list[FindingSchema]
    """Of a dry run; otherwise empty."""
    safety: SafetySchema | None = None
    """Only of dry runs that change something."""


class PolicyView(Schema):
    """The whole policy in force."""

    revision: int
    policy: PolicyDocument


class RevisionSchema(Schema):
    """A revision without its policy."""

    number: int
    created_at: datetime
    author: str
    comment: str
    sha256: str
    summary: dict[str, dict[str, int]]
    """Kind → created, updated, deleted → how many."""


class RevisionView(RevisionSchema):
    """A revision with its policy."""

    policy: PolicyDocument


class DiffView(Schema):
    """What differs between two revisions."""

    revision: int
    against: int
    changes: list[ResourceChangeSchema]


class AdequacySchema(Schema):
    """A decision of the European Commission under Art. 45 GDPR or its predecessor."""

    country: str
    article: str
    """The ground it was taken on, and that it stands on."""
    act: str
    date: str
    """When it was adopted."""
    scope: str
    url: str
    until: str | None
    """The day on which it lapses, and the membership with it (its start, UTC)."""
    status: str
    """What is known of challenges and renewals."""
    checked: str
    """Where number and dates were compared, and when, or `unverified`."""


class PastMembershipSchema(Schema):
    """A membership that is over: it counts in questions about past days (`at`)."""

    country: str
    since: str | None
    """Null: from ever, as far as kept (the GDPR applies since 25 May 2018)."""
    until: str
    """The first day on which it did not hold any more."""
    source: str
    checked: str


class LawSchema(Schema):
    """A law that concerns where data may be processed."""

    country: str
    act: str
    note: str
    url: str


class JurisdictionView(JurisdictionDocument):
    """A jurisdiction with all that is known of it."""

    origin: str = Field(json_schema_extra={"enum": ["shipped", "operator", "country"]})
    """`shipped` with gtm, an `operator`'s own, or a `country` (every ISO 3166-1 code is a jurisdiction)."""
    countries: list[str]
    """All countries it covers now, members of members included."""
    decisions: list[AdequacySchema]
    past: list[PastMembershipSchema]
    laws: list[LawSchema]


class TokenView(Schema):
    """A token, without its text."""

    id: str
    name: str
    role: Role
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    """When it was revoked; in the future, when it will be, as another one has replaced it."""
    edges: str | None
    """Of role `edge`: the edge that it speaks for, or a pattern of names."""


class TokenCreated(TokenView):
    """A new token."""

    token: str
    """The token's text. It is shown this once and stored nowhere."""


class EdgeSchema(Schema):
    """An edge as last heard of."""

    name: str
    version: str
    address: str
    revision: int
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


class EndpointHealthSchema(Schema):
    """What a vantage, or all together, say of an endpoint."""

    status: HealthStatus
    since: float
    """POSIX time of the last change, in seconds."""
    detail: str
    latency_ms: float | None


class EndpointView(EndpointHealthSchema):
    """An endpoint's health."""

    url: str
    vantages: dict[str, EndpointHealthSchema]
    """By edge: what each sees."""


class RegionHealthSchema(Schema):
    """A region's health: up if any endpoint is."""

    region: str
    admin_state: str
    status: HealthStatus
    disputed: bool
    """Its verdict is withdrawn while a health alarm is on: edges go by their own probes."""
    endpoints: list[EndpointView]


class HealthView(Schema):
    """Health as the edges vote."""

    epoch: int
    regions: list[RegionHealthSchema]


class LoadSchema(Schema):
    """What all reporters that count say together; null: none of them says it."""

    sources: int
    """How many reporters there are."""
    outstanding: float | None
    queue: float | None
    limit: float | None
    service_time_ms: float | None
    queue_wait_ms: float | None
    requests_per_second: float | None
    tokens_per_second: float | None
    gpu_memory_used_bytes: float | None
    gpu_memory_total_bytes: float | None
    kv_cache_usage: float | None
    utilization: float | None
    models: list[str] | None


class RateBoundSchema(Schema):
    """A bound as the policy declares it, and what of it new clients may use; null: no bound is known."""

    declared: float | None
    usable: float | None


class SlotBoundSchema(RateBoundSchema):
    """The same for requests at once, where reports may set a limit too."""

    reported: float | None


class CapacityBase(Schema):
    """Load and usable capacity."""

    freshness: Freshness
    age: float | None
    """Seconds since the newest report; null: there was none, or none of this service alone."""
    load: LoadSchema | None
    slots: SlotBoundSchema
    requests_per_second: RateBoundSchema
    backlog: float
    """Requests that wait for a slot."""
    service_time_ms: float | None
    service_time_source: TimeSource
    processing_ms: float
    """Wait, and service time beyond that of the fastest region, as rankings use it."""


class ServiceCapacity(CapacityBase):
    """Of one service in a region."""

    service: str


class RegionCapacityView(CapacityBase):
    """Of a region as a whole, and of its services."""

    region: str
    admin_state: AdminState
    """Only an active region has capacity for new clients."""
    health: float
    """The share of its endpoints that are up."""
    slow_start: float
    """How far, 0 to 1, those that came back have ramped up."""
    reserve: float
    """The share that no plan uses."""
    services: list[ServiceCapacity]


class LoadView(Schema):
    """Load and usable capacity of every region."""

    at: float
    """When, in POSIX seconds."""
    regions: list[RegionCapacityView]


class StatusView(Schema):
    """The state of the control tier at a glance."""

    version: str
    epoch: int
    control: Standing
    """active; standby: another one is; adrift: it lost the database while others stood by, and neither plans nor leases."""
    active: str
    """Who is active, if it is another control and known."""
    standbys: int
    """How many control processes stand by for this one."""
    database: str = Field(json_schema_extra={"enum": ["up", "down"]})
    sync: SyncSchema
    warnings: list[str]
    """Of the policy in force."""


class Liveness(Schema):
    """The process runs."""

    status: str


class Readiness(Liveness):
    """Answers are correct."""

    revision: int


_WORDS = {
    400: "The request cannot be understood.",
    401: "No token, or none that counts.",
    403: "The token's role is not enough.",
    404: "There is no such thing.",
    409: "What is there stands against it.",
    412: "The resource is not what the client thinks.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "The content is wrong; `errors` lists everything that is.",
    503: "The database cannot be reached; nothing was changed.",
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of an endpoint that needs a token: the statuses given, and those that any such may end in."""
    schema = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemSchema"}}}
    return {
        status: {"description": _WORDS[status], "content": schema}
        for status in sorted({*statuses, 400, 401, 403, 422, 503})
    }
