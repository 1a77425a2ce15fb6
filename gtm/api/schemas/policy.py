"""Answers about the policy: changes, revisions, jurisdictions."""

from __future__ import annotations

from pydantic import Field

from gtm.api.schemas.base import Changed, ManagedSchema, Schema
from gtm.core.change.safety import Breach, SafetyVerdict
from gtm.core.model.problems import Problem
from gtm.documents.diff import FieldChange, ResourceChange
from gtm.documents.jurisdictions import AdequacyDecision, LawNote, PastMembership
from gtm.documents.parts import Held
from gtm.documents.resources import JurisdictionDocument
from gtm.documents.schema import PolicyDocument
from gtm.storage.deletions import Deferred
from gtm.storage.revisions import Revision


class FieldChangeSchema(Schema, of=FieldChange):
    """A field that differs."""


class ResourceChangeSchema(Schema, of=ResourceChange):
    """A resource that differs."""


class FindingSchema(Schema, of=Problem):
    """Something legal in a policy that is probably not meant."""


class BreachSchema(Schema, of=Breach):
    """A safety rule that a change breaks: `value` exceeds `limit`, both in `unit`."""


class SafetySchema(Schema, of=SafetyVerdict):
    """What the safety rules say of a change."""


class ManagedResourceSchema(ManagedSchema):
    """A resource that a tool manages."""

    kind: str
    name: str


class DeferredSchema(Schema, of=Deferred):
    """A resource that is to be deleted as soon as nothing keeps it."""


class PolicyChanged(Changed):
    """What applying a policy or rolling back did, or would do (`dry_run`)."""

    dry_run: bool = False
    changes: list[ResourceChangeSchema]
    managed: list[ManagedResourceSchema]
    """What of it another tool manages: without `on_managed` it is refused."""
    findings: list[FindingSchema]
    """What is probably not meant, as a dry run finds it; otherwise empty."""
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


class RevisionSchema(Schema, of=Revision):
    """A revision without its policy."""


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


class AdequacySchema(Schema, of=AdequacyDecision):
    """A decision of the European Commission under Art. 45 GDPR or its predecessor."""


class PastMembershipSchema(Schema, of=PastMembership):
    """A membership that is over: it counts in questions about past days (`at`)."""


class LawSchema(Schema, of=LawNote):
    """A law that concerns where data may be processed."""


class JurisdictionView(JurisdictionDocument):
    """A jurisdiction with all that is known of it."""

    origin: str = Field(json_schema_extra={"enum": ["shipped", "operator", "country"]})
    """`shipped` with gtm, an `operator`'s own, or a `country` (every ISO 3166-1 code is a jurisdiction)."""
    countries: list[str]
    """All countries it covers now, members of members included."""
    decisions: list[AdequacySchema]
    past: list[PastMembershipSchema]
    laws: list[LawSchema]
