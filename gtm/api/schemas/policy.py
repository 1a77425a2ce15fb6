"""Answers about the policy: changes, revisions, jurisdictions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from gtm.api.schemas.base import Changed, ManagedSchema, Schema
from gtm.core.change.safety import SafetyRule
from gtm.documents.diff import Action
from gtm.documents.parts import Held
from gtm.documents.rules import JurisdictionDocument
from gtm.documents.schema import PolicyDocument


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
    may_force: bool
    """Whether whoever asks may overrule the rules that it breaks, by giving a reason."""


class ManagedResourceSchema(ManagedSchema):
    """A resource that a tool manages."""

    kind: str
    name: str


class DeferredSchema(Schema):
    """A resource that is to be deleted as soon as nothing keeps it."""

    kind: str
    name: str
    manager: str | None
    """For which tool; null: for a person."""
    asked_by: str
    asked_at: datetime
    why: str
    """What keeps the resource, in a sentence."""
    refused: bool
    """Whether the safety rules keep it, and not a resource that names it."""


class PolicyChanged(Changed):
    """What applying a policy or rolling back did, or would do (`dry_run`)."""

    dry_run: bool = False
    changes: list[ResourceChangeSchema]
    managed: list[ManagedResourceSchema]
    """What of it another tool manages: without `on_managed` it is refused."""
    findings: list[FindingSchema]
    """Of a dry run; otherwise empty."""
    safety: SafetySchema | None = None
    """Only of dry runs that change something."""
    deferred: tuple[DeferredSchema, ...] = ()
    """The deletions that wait, of this change and of earlier ones. Not of dry runs."""
    held: tuple[Held, ...] = ()
    """The resources of `unless_changed` with their entity tags from now on; empty ones where there is none any more. Not of dry runs."""


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
    """The differences between two revisions."""

    revision: int
    against: int
    changes: list[ResourceChangeSchema]


class LostSchema(Schema):
    """Revisions that the database has lost: those after one, up to another."""

    after: int
    up_to: int


class AcceptedView(Schema):
    """What followers held that the database has lost, and go back from."""

    lost: list[LostSchema]


class AdequacySchema(Schema):
    """A decision of the European Commission under Art. 45 GDPR or its predecessor."""

    country: str
    article: str
    """The ground it was taken on, and that it stands on."""
    act: str
    date: str
    """The date on which the decision was adopted."""
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
