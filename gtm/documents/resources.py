"""Documents of every kind of resource, and what all documents have in common.

Documents are what operators write, with every limit on single fields. Field names are those of `gtm.core.model`, where
each is explained at length; what fields say of each other across resources is checked by `gtm.core.policy.compile`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Generic, Self, TypeVar, cast

import msgspec
from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    StrictInt,
    StrictStr,
    Tag,
    model_validator,
)

from gtm.core.model.kinds import Resource
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
from gtm.core.model.regions import AdminState, ProbeType, Region
from gtm.core.model.services import (
    Affinity,
    Families,
    Handoff,
    HttpAnswer,
    OnOverload,
    OnUnusable,
    Priority,
    Push,
    RecordSet,
    Service,
    Steering,
    Zone,
)
from gtm.documents import fields as f
from gtm.documents.described import Described
from gtm.documents.records import RecordError, check_sets, read_data


def with_drain_start(region: Region, before: Region | None, now: datetime | None) -> Region:
    """The region with `draining_since` as its admin state wants it.

    A drain keeps its beginning for as long as it lasts; one that begins later has a beginning of its own.

    Args:
        region: as wanted.
        before: the region of this name in force, None if it is new.
        now: the beginning of a drain that begins; None: not known, and left out.
    """
    if region.admin_state is not AdminState.DRAINING:
        return replace(region, draining_since=None)
    if region.draining_since is not None:
        return region
    went_on = before is not None and before.admin_state is AdminState.DRAINING
    since = before.draining_since if before is not None and went_on else None
    beginning = now.replace(microsecond=0) if now is not None else None
    return replace(region, draining_since=since or beginning)


MAX_RESOURCES = 10_000
"""Most resources of one kind in a policy document."""

C = TypeVar("C", bound=Resource)


class Document(Described):
    """Base of all documents: unknown fields are errors, and so are values of another type."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ResourceDocument(Document, Generic[C]):
    """Base of the documents that have a name and a core value."""

    name: f.Name
    """What it is called; it cannot be renamed."""

    def to_core(self, kind: type[C], before: Resource | None = None, now: datetime | None = None) -> C:
        """The core value.

        Args:
            kind: its class.
            before: the resource of this name in force, whose admin state and challenges stay where the document has none.
            now: when a drain begins that the document starts without saying when; None: that stays open.
        """
        document = self.model_dump(mode="json")
        known = before if isinstance(before, Region) else None
        if document.get("admin_state", ...) is None:
            document["admin_state"] = (known.admin_state if known else AdminState.ACTIVE).value
        if document.get("challenges", ...) is None:
            document["challenges"] = (
                msgspec.to_builtins(before.challenges) if isinstance(before, Zone) else ()
            )
        value = msgspec.convert(document, kind)
        return cast("C", with_drain_start(value, known, now)) if isinstance(value, Region) else value


class EndpointDocument(Document):
    """One ingress of a region."""

    url: f.Url
    """Base URL that redirects and lookups hand out (http or https, host, optional path prefix)."""
    ipv4: Annotated[tuple[f.IPv4, ...], Field(max_length=32)] = ()
    """Addresses for DNS A answers."""
    ipv6: Annotated[tuple[f.IPv6, ...], Field(max_length=32)] = ()
    """Addresses for DNS AAAA answers."""
    cname: f.HostName | None = None
    """Canonical name for DNS, instead of addresses."""


class CapacityDocument(Document):
    """What a region can hold; absent: not stated."""

    outstanding: f.Count | None = None
    """Requests at once."""
    requests_per_second: Annotated[f.Number, Field(ge=0, le=1e9)] | None = None
    """Requests per second."""


class SpillInDocument(Document):
    """How much a region takes of other regions' demand; absent: as much as it has capacity for."""

    max_share: Annotated[f.Number, Field(ge=0, le=1)] | None = None
    """The largest share of the region's usable capacity that may be spilled in."""
    max_requests_per_second: Annotated[f.Number, Field(ge=0, le=1e9)] | None = None
    """Requests per second."""


class ProbeDocument(Document):
    """A health check, made against every endpoint of a region (times in seconds)."""

    type: ProbeType = ProbeType.HTTP
    port: f.Port | None = None
    """Overrides the port of the endpoint's URL."""
    path: f.ProbePath = "/healthz"
    """The path that an HTTP probe asks for."""
    host: f.HostName | None = None
    """Host header and TLS server name, if not the URL's host."""
    expected_status: Annotated[tuple[f.Status, ...], Field(min_length=1, max_length=100)] = (200,)
    """HTTP status codes that count as up."""
    body_regex: f.Regex | None = None
    """RE2 pattern searched in the first 64 KiB of the body."""
    json_field: f.JsonField | None = None
    """Dotted path into a JSON body that must equal `json_value`."""
    json_value: (
        f.Flag
        | f.JsonInt
        | f.Number
        | Annotated[StrictStr, Field(pattern=f.LINE_PATTERN, max_length=1000)]
        | None
    ) = None
    """What it must be equal to."""
    interval: Annotated[f.Number, Field(ge=1, le=3600)] = 10.0
    """Seconds from one probe to the next."""
    timeout: Annotated[f.Number, Field(ge=0.1, le=60)] = 3.0
    """Seconds until a probe has failed; at most the interval."""
    up_threshold: f.Threshold = 2
    """Good results in a row until a failed endpoint is up again."""
    down_threshold: f.Threshold = 3
    """Bad results in a row until an endpoint is down."""
    verify_tls: f.Flag = True
    """Whether the endpoint's certificate must be valid for its name."""
    addresses: f.Flag = True
    """Whether each `ipv4` and `ipv6` address is probed by itself too, so that DNS leaves out those that are down."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.json_field is None) != (self.json_value is None):
            raise f.invalid("missing", "`json_field` and `json_value` need each other")
        if self.type is ProbeType.TCP and (self.body_regex is not None or self.json_field is not None):
            raise f.invalid("overlap", "a `tcp` probe has no body to check: use `http` or `https`")
        return self


class RegionDocument(ResourceDocument[Region]):
    """A place that serves requests."""

    display_name: f.Line = ""
    """The name that people read."""
    lat: Annotated[f.Number, Field(ge=-90, le=90)]
    """Latitude in degrees north."""
    lon: Annotated[f.Number, Field(ge=-180, le=180)]
    """Longitude in degrees east."""
    country: f.CountryCode
    """ISO 3166-1 alpha-2; the region's jurisdictions derive from it."""
    subdivision: f.Subdivision | None = None
    """ISO 3166-2."""
    operator_country: f.CountryCode | None = None
    """Where whoever runs it is established; absent: unknown."""
    endpoints: Annotated[tuple[EndpointDocument, ...], Field(min_length=1, max_length=64)]
    """What answers requests there; clients are sent to those that are up."""
    models: Annotated[tuple[f.ModelName, ...], Field(max_length=1000)] = ()
    """Names of the models served here."""
    capacity: CapacityDocument = CapacityDocument()
    reserve: Annotated[f.Number, Field(ge=0, le=0.95)] = 0.1
    """The share of its capacity that no plan uses."""
    spill_in: SpillInDocument = SpillInDocument()
    slow_start: Annotated[f.Number, Field(ge=0, le=3600)] = 30.0
    """Seconds over which its traffic ramps up after a failure."""
    cost_weight: Annotated[f.Number, Field(ge=0, le=1e6)] = 1.0
    """What a request costs there, relative to other regions; 1 more counts as 10 ms of latency."""
    admin_state: AdminState | None = None
    """Absent: what is in force stays (a new region is active)."""
    draining_since: f.Moment | None = None
    """When it began to drain; absent while it drains: what is in force stays, or now."""
    drain_deadline: Annotated[f.Number, Field(ge=0, le=86_400)] = 300.0
    """Seconds over which clients with affinity leave it once it drains."""
    probe: ProbeDocument = ProbeDocument()


class NameServerDocument(Document):
    """A name server of a zone. Inside the zone it needs its addresses here: nobody else could say them."""

    name: f.HostName
    """The name server's host name."""
    ipv4: Annotated[tuple[f.IPv4, ...], Field(max_length=16)] = ()
    """IPv4 addresses."""
    ipv6: Annotated[tuple[f.IPv6, ...], Field(max_length=16)] = ()
    """IPv6 addresses."""
    country: f.CountryCode | None = None
    """Where it stands; absent: unknown, and so outside of every residency rule that binds edges."""
    operator_country: f.CountryCode | None = None
    """Where whoever runs it is established; absent: unknown."""


class RecordSetDocument(Document):
    """Records of a zone that have name and type in common, as in a zone file (RFC 1035 §5)."""

    name: f.RecordName
    """Relative to the zone unless a dot ends it; `@` is the zone's apex, `*.x` stands for what is below x."""
    type: f.RecordType
    """A mnemonic, or `TYPE` and a number (RFC 3597)."""
    data: Annotated[tuple[f.RecordData, ...], Field(min_length=1, max_length=100)]
    """Each record's data in presentation form."""
    ttl: f.Ttl | None = None
    """The TTL in seconds; absent: the zone's."""

    @model_validator(mode="after")
    def _readable(self) -> Self:
        for index, text in enumerate(self.data):
            try:
                read_data(self.type, text)
            except RecordError as error:
                raise f.invalid("invalid_format", f"data[{index}]: {error}") from error
        return self


class ZoneDocument(ResourceDocument[Zone]):
    """A DNS zone that the edges answer for (times in seconds; RFC 1035 §3.3.13, RFC 2308 §4)."""

    name: f.HostName
    """The zone's name."""
    primary_ns: f.HostName
    """The SOA record's MNAME."""
    hostmaster: f.HostName
    """The SOA record's RNAME: the contact's mailbox written as a domain name, `hostmaster.example.com`."""
    name_servers: Annotated[tuple[NameServerDocument, ...], Field(max_length=32)] = ()
    """The zone's NS records; the primary alone, if there are none."""
    ttl: f.Ttl = 3600
    """Seconds for which resolvers keep its NS and SOA records."""
    refresh: f.Seconds31 = 7200
    """SOA REFRESH in seconds."""
    retry: f.Seconds31 = 900
    """SOA RETRY in seconds."""
    expire: f.Seconds31 = 1209600
    """SOA EXPIRE in seconds."""
    minimum: f.Ttl = 60
    """How long resolvers keep negative answers."""
    records: Annotated[tuple[RecordSetDocument, ...], Field(max_length=10_000)] = ()
    """What the zone holds beside services."""
    dnssec: f.Flag = False
    """Its answers are signed. To switch it off, the DS records at the parent go first."""
    explanations: f.Flag = True
    """Host names of services explain their answers to who asks for TXT; otherwise they have no TXT records but those of the zone."""
    challenges: Annotated[tuple[RecordSetDocument, ...], Field(max_length=1000)] | None = None
    """Answers to certificate authorities, which ACME clients write one by one; absent: they stay as they are."""

    @model_validator(mode="after")
    def _sets(self) -> Self:
        zone: str | None = self.name
        if zone is None:  # left to a URL: what is read then is read again with it
            return self
        try:
            every = (*self.records, *(self.challenges or ()))
            check_sets([RecordSet(item.name, item.type, item.data) for item in every], zone)
        except RecordError as error:
            raise f.invalid("invalid_format", str(error)) from error
        return self


class MemberDocument(Document):
    """A region's part in a service."""

    region: f.Name
    """The region's name."""
    weight: Annotated[f.Number, Field(ge=0, le=1e6)] = 1.0
    """0: only when no member with a weight is usable."""
    share: Annotated[f.Number, Field(gt=0, lt=1)] | None = None
    """A canary: the share of all clients that it serves, always the same ones; no others while another member is usable."""
    capacity: CapacityDocument = CapacityDocument()
    """What the region holds for this service alone, within its own capacity."""


class RefusalDocument(Document):
    """Where DNS sends clients that may not be served: addresses of yours that say why."""

    ipv4: Annotated[tuple[f.IPv4, ...], Field(max_length=32)] = ()
    """IPv4 addresses."""
    ipv6: Annotated[tuple[f.IPv6, ...], Field(max_length=32)] = ()
    """IPv6 addresses."""


class HttpsRecordDocument(Document):
    """HTTPS records (RFC 9460) for the host names: port and address hints are the chosen region's."""

    alpn: Annotated[tuple[f.Alpn, ...], Field(max_length=8)] = ("h2",)
    """The protocols that every region speaks, beside `http/1.1`."""


class CorsDocument(Document):
    """Which pages of other origins may read what gtm itself answers for the service (CORS)."""

    origins: Annotated[tuple[f.Origin, ...], Field(min_length=1, max_length=100)]
    """Origins such as `https://app.example.com`; `*`: any."""
    methods: Annotated[tuple[f.FieldName, ...], Field(max_length=20)] = ()
    """Methods that they may ask for; absent: any."""
    fields: Annotated[tuple[f.FieldName, ...], Field(max_length=100)] = ()
    """Header fields that they may send; absent: any."""
    credentials: f.Flag = False
    """Whether they may send cookies; not with the origin `*`."""

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.credentials and "*" in self.origins:
            raise f.invalid(
                "invalid_format",
                "with `credentials` browsers take no `*`: list the origins (Fetch standard §3.2.5)",
            )
        return self


class HostNameDocument(Document):
    """A host name that states whose requests come by it, for DNS, which can state nothing."""

    name: f.ServiceHost
    """The host name."""
    tenant: f.Name | None = None
    """Absent: it states none."""
    data_class: f.Name | None = None
    """Absent: it states none."""


def _kind_of_host(value: Any) -> str:
    return "str" if isinstance(value, str) else "object"


def _plain_host(value: str | HostNameDocument) -> str | HostNameDocument:
    """A name that states nothing is its string, however it was written."""
    if isinstance(value, str) or value.tenant is not None or value.data_class is not None:
        return value
    return value.name


_Host = Annotated[
    Annotated[f.ServiceHost, Tag("str")] | Annotated[HostNameDocument, Tag("object")],
    Discriminator(_kind_of_host),
    AfterValidator(_plain_host),
]


class ServiceDocument(ResourceDocument[Service]):
    """What clients ask for by host name or by service name."""

    display_name: f.Line = ""
    """The name that people read."""
    members: Annotated[tuple[MemberDocument, ...], Field(min_length=1, max_length=1000)]
    """The regions that serve it; their order is the order of failover."""
    hostnames: Annotated[tuple[_Host, ...], Field(max_length=1000)] = ()
    """`*.x` stands for every name below x that has nothing of its own. A name may state a tenant and a data class."""
    zone: f.HostName | None = None
    """The zone that the host names lie in."""
    ttl: f.Ttl = 30
    """Of DNS answers and lookups, in seconds."""
    min_ttl: f.Ttl = 5
    """The same while the plan moves traffic or a region drains."""
    families: Families = Families.TOGETHER
    """Whether A and AAAA are one decision, or each is decided among the regions that have such addresses."""
    max_answers: Annotated[StrictInt, Field(ge=1, le=100)] | None = None
    """Addresses in a DNS answer; absent: all that the region has."""
    https_record: HttpsRecordDocument | None = None
    """Absent: the host names have no HTTPS records."""
    steering: Steering = Steering.LATENCY
    model: f.ModelName | None = None
    """Only regions that serve this model are candidates."""
    affinity: Affinity = Affinity.NONE
    refusal: RefusalDocument = RefusalDocument()
    on_unusable: OnUnusable = OnUnusable.REFUSE
    """What to do when the fence holds regions, but none that is usable."""
    on_overload: OnOverload = OnOverload.SHED
    """What becomes of requests that the plan has no capacity for."""
    priority: Priority = Priority.REAL_TIME
    """Of requests that do not state their own."""
    service_time_ms: Annotated[f.Number, Field(gt=0, le=3_600_000)] | None = None
    """How long a request occupies its place in a region, as far as no load report says it."""
    exploration: Annotated[f.Number, Field(ge=0, le=0.2)] = 0.0
    """The share of requests spread over the other eligible regions, to measure the way there."""
    answer: HttpAnswer = HttpAnswer.REDIRECT
    """How edges answer over HTTP: a redirect to the region chosen, or they carry the request there and its answer back."""
    handoff: Handoff = Handoff.NONE
    """Whether edges sign what they decided, in redirects and look-ups, for the region's balancer to verify."""
    push: Push = Push.CARRY
    """How a balancer without room sends a request to a peer region: it carries it, answers 307, or never does."""
    cors: CorsDocument | None = None
    """Absent: pages of other origins read no answer of gtm's own."""


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
