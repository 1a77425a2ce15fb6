"""Documents of rules, and of whom and where they name: residency, spillover, jurisdictions, tenants, data classes."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gtm.core.model.policy import (
    DataClass,
    EdgeScope,
    Jurisdiction,
    OnAnonymous,
    OnDoubtfulLocation,
    OnUnknownLocation,
    ResidencyRule,
    RuleMode,
    SpilloverRule,
    Tenant,
)
from gtm.documents import fields as f
from gtm.documents.resources import MAX_RESOURCES, Document, ResourceDocument


class MatchDocument(Document):
    """Whom a rule concerns. Dimensions are joined by AND; an empty one matches everybody."""

    services: Annotated[tuple[f.Name, ...], Field(max_length=1000)] = ()
    """Requests for these services; empty: for any."""
    client_countries: Annotated[tuple[f.CountryCode, ...], Field(max_length=300)] = ()
    """Clients in these countries (ISO 3166-1 alpha-2)."""
    client_jurisdictions: Annotated[tuple[f.JurisdictionName, ...], Field(max_length=300)] = ()
    """Clients in these jurisdictions."""
    tenants: Annotated[tuple[f.Name, ...], Field(max_length=MAX_RESOURCES)] = ()
    """Requests on behalf of these tenants; empty: of any."""
    tenant_jurisdictions: Annotated[tuple[f.JurisdictionName, ...], Field(max_length=300)] = ()
    """Where tenants are established, one dimension with `tenants`. Unknown establishment matches."""
    data_classes: Annotated[tuple[f.Name, ...], Field(max_length=1000)] = ()
    """Requests that carry data of these classes; empty: of any."""


class PlacesDocument(Document):
    """A set of regions, named directly, by jurisdiction (a country code is one too), or by their operators'."""

    jurisdictions: Annotated[tuple[f.JurisdictionName, ...], Field(max_length=300)] = ()
    """Jurisdictions in which regions stand."""
    regions: Annotated[tuple[f.Name, ...], Field(max_length=1000)] = ()
    """Regions by name."""
    operator_jurisdictions: Annotated[tuple[f.JurisdictionName, ...], Field(max_length=300)] = ()
    """Where regions' operators are established. Unknown is in no `allow` and in every `deny`."""


class ResidencyRuleDocument(ResourceDocument[ResidencyRule]):
    """Where matching requests may be served: inside `allow` (everywhere, if empty) and not inside `deny`."""

    match: MatchDocument = MatchDocument()
    allow: PlacesDocument = PlacesDocument()
    deny: PlacesDocument = PlacesDocument()
    mode: RuleMode = RuleMode.ENFORCE
    """`monitor` only records what the rule would have excluded."""
    edges: EdgeScope = EdgeScope.ANYWHERE
    """`in_fence`: only edges that stand in the rule's allowed places may handle what it concerns."""
    on_unknown_location: OnUnknownLocation = OnUnknownLocation.MATCH
    """Whether the rule concerns clients whose country is not known well enough."""
    on_anonymous: OnAnonymous = OnAnonymous.MATCH
    """Whether the rule concerns all clients behind anonymising networks, or those located in its countries."""
    on_doubtful_location: OnDoubtfulLocation = OnDoubtfulLocation.MATCH
    """Whether a location that measured round trips contradict counts as not known, or is believed."""
    max_accuracy_km: Annotated[f.Number, Field(ge=0, le=20_040)] | None = None
    """A client not located to within this radius counts as one whose country is not known."""
    legal_basis: f.Text = ""
    """The law behind the rule, handed out with refusals."""
    effective_from: f.Moment | None = None
    """The first moment at which it holds; absent: from ever."""
    effective_until: f.Moment | None = None
    """The first moment at which it holds no more; absent: for good."""
    max_policy_age: Annotated[f.Number, Field(ge=1, le=31_536_000)] | None = None
    """Seconds without a word from control after which an edge refuses what the rule concerns."""
    acknowledge_empty_fence: f.Flag = False
    """The rule leaves some service without any region, and that is meant."""


class SpilloverRuleDocument(ResourceDocument[SpilloverRule]):
    """How much of a region's demand may be served elsewhere."""

    from_region: f.Name
    """The region that is full."""
    to_regions: Annotated[tuple[f.Name, ...], Field(min_length=1, max_length=1000)]
    """Where its requests go, the preferred first."""
    max_share: Annotated[f.Number, Field(ge=0, le=1)] | None = None
    """Of the demand of `from_region`, at most this part may go."""
    max_requests_per_second: Annotated[f.Number, Field(ge=0, le=1e9)] | None = None
    """At most so many requests per second may go."""
    max_added_latency_ms: Annotated[f.Number, Field(ge=0, le=60_000)] | None = None
    """Only where the round trip grows by no more than this (milliseconds)."""


class TermDocument(Document):
    """The time for which a jurisdiction has a member. A member may have several."""

    member: f.JurisdictionName
    """The country or jurisdiction."""
    effective_from: f.Moment | None = None
    """The first moment at which it is a member; absent: from ever."""
    effective_until: f.Moment | None = None
    """The first moment at which it is none any more; absent: for good."""


class JurisdictionDocument(ResourceDocument[Jurisdiction]):
    """A body of law and where it binds."""

    name: f.JurisdictionName
    """What it is called; it cannot be renamed."""
    display_name: f.Line = ""
    """The name that people read."""
    members: Annotated[tuple[f.JurisdictionName, ...], Field(min_length=1, max_length=300)]
    """ISO 3166-1 alpha-2 country codes, or names of other jurisdictions."""
    source: f.Text = ""
    """The law or treaty that says so."""
    terms: Annotated[tuple[TermDocument, ...], Field(max_length=300)] = ()
    """When memberships begin or end; a member without a term is one at all times."""


class TenantDocument(ResourceDocument[Tenant]):
    """A customer whose requests rules may single out."""

    display_name: f.Line = ""
    """The name that people read."""
    weight: Annotated[f.Number, Field(gt=0, le=1e6)] = 1.0
    """Its part of a priority tier that does not fit, relative to the other tenants'."""
    country: f.CountryCode | None = None
    """Where it is established. Left out: unknown, which every rule by establishment takes for a match."""


class DataClassDocument(ResourceDocument[DataClass]):
    """A kind of data that rules may single out."""

    display_name: f.Line = ""
    """The name that people read."""
