"""What gtm control takes and answers, by its OpenAPI document. Written by `make client`."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from gtm.client.objects import JsonObject


class AcceptOlderRequest(TypedDict):
    """Why going back is meant."""

    reason: NotRequired[str]
    """Kept in the audit log."""


class AcceptedView(JsonObject):
    """What followers held that the database has lost, and go back from."""

    lost: list[LostSchema]


Action: TypeAlias = Literal["created", "updated", "deleted"]
"""The change that is made to a resource."""

AddressFamily: TypeAlias = Literal["ipv4", "ipv6"]
"""A family of addresses, by the name of its field in an endpoint and in a refusal."""


class AddressView(JsonObject):
    """An address of an endpoint that is probed by itself: one that is down is left out of DNS answers."""

    status: HealthStatus
    since: float
    """POSIX time of the last change, in seconds."""
    detail: str
    latency_ms: float | None
    address: str
    vantages: dict[str, EndpointHealthSchema]
    """By edge: what each sees; unknown: it was never up from there."""


class AdequacySchema(JsonObject):
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


AdminState: TypeAlias = Literal["active", "draining", "disabled"]
"""What the operator wants of a region, whatever its health says."""

Affinity: TypeAlias = Literal["none", "client_network", "key"]
"""What keeps a client on its region while several are eligible."""


class AnswersSeries(JsonObject):
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


class AnswersView(JsonObject):
    """How requests were answered, step by step."""

    since: str
    until: str
    step_seconds: float
    times: list[float]
    """The beginnings of steps of which a minute was recorded, in POSIX seconds."""
    series: list[AnswersSeries]
    """Those with most requests first."""
    left_out: int
    """Series with fewer requests that are not told."""


class ApplyRequest(TypedDict):
    """A whole policy to put in force: what it does not hold is deleted, unless it says that it is a part
    of one.
    """

    policy: PolicyDocument
    partial: NotRequired[bool]
    """Whether resources that the policy does not hold stay as they are; otherwise they are deleted."""
    delete: NotRequired[list[ResourceName]]
    """What is deleted although the policy is partial."""
    dry_run: NotRequired[bool]
    """Only say what would change."""
    comment: NotRequired[str]
    """Kept with the revision."""
    unless_changed: NotRequired[list[Held]]
    """Resources that must be as they were read."""
    defer: NotRequired[bool]
    """Whether what is in `delete` may wait until nothing refers to it and no fence opens by it: a later
    change makes the deletion then. For tools that make changes one by one.
    """
    only_own: NotRequired[bool]
    """Whether of what the policy does not hold only that is deleted which the tool of `GTM-Managed-By`
    manages.
    """


class ApprovalList(JsonObject):
    """The latest approvals."""

    items_: list[ApprovalView]


class ApprovalRequest(TypedDict):
    """A change to approve of."""

    sha256: str
    """The change's fingerprint, as its refusal or a dry run of it names it."""
    reason: str
    """Kept with the revision."""
    expires_at: NotRequired[str | None]
    """Absent: in an hour."""


class ApprovalView(JsonObject):
    """Somebody's approval of one change to one revision."""

    sha256: str
    approver: str
    owner: str | None
    """Whose the token or session was that approved; null: unknown."""
    reason: str
    created_at: str
    expires_at: str
    objection: str | None
    """Why it would not count for a change by whoever asks: who counts as one with whom; null: it counts
    as long as it stands.
    """


class BalancerList(JsonObject):
    """All of them."""

    items_: list[BalancerView]


class BalancerView(JsonObject):
    """A region's balancer, as it last said."""

    name: str
    region: str
    """Empty: it is older than gtm's balancers that say so."""
    token: str
    """The name of the token that it reports with."""
    version: str
    age: float
    """Seconds since its last report."""
    tiers: dict[str, TierSchema]


class BreachSchema(JsonObject):
    """A safety rule that a change breaks: `value` exceeds `limit`, both in `unit`."""

    rule: SafetyRule
    message: str
    value: float
    limit: float
    unit: str


class CalendarView(JsonObject):
    """What begins and ends by itself, the next first."""

    revision: int
    at: float
    """POSIX seconds, after which it comes."""
    items_: list[EventSchema]
    left_out: int
    """Moments beyond the limit."""


class CapacityDocument(TypedDict):
    """What a region can hold; absent: not stated."""

    outstanding: NotRequired[int | None]
    """Requests at once."""
    requests_per_second: NotRequired[float | None]
    """Requests per second."""


class CauseSchema(JsonObject):
    """A rule, a membership or an adequacy decision that begins or ends."""

    what: What
    name: str
    """The rule's, or the jurisdiction's."""
    countries: list[str]
    """The countries whose membership begins or ends."""
    rules: list[str]
    """Rules that name the jurisdiction; none: nothing follows from it."""
    monitor: bool
    """A rule in monitor mode, which changes nothing."""
    rules_left_out: int
    decisions: list[AdequacySchema]
    """The adequacy decisions that lapse."""


class CellCount(JsonObject):
    """A demand cell and how many requests it had."""

    service: str
    country: str | None
    lat: float | None
    lon: float | None
    tenant: str | None
    data_class: str | None
    model: str | None
    priority: Priority
    anonymous: bool
    accuracy_km: float | None
    spans: list[str]
    """The countries of a client subnet that is in several; `?`: parts that nobody can locate, `*`: too
    many parts.
    """
    doubtful: bool
    count: float


class CellDocument(TypedDict):
    """So many requests that are alike."""

    country: NotRequired[CountryCode | None]
    """Without coordinates, the mean position of its addresses."""
    lat: NotRequired[float | None]
    lon: NotRequired[float | None]
    anonymous: NotRequired[bool]
    """Behind a VPN, a proxy, Tor or a hosting provider."""
    doubtful: NotRequired[bool]
    """Measured round trips contradict the place."""
    accuracy_km: NotRequired[float | None]
    spans: NotRequired[list[Literal["?", "*"] | CountryCode]]
    """In place of the country: those of a client subnet that is in several; `?`: parts that nobody can
    locate, `*` alone: too many parts to look at.
    """
    service: Name
    tenant: NotRequired[Name | None]
    data_class: NotRequired[Name | None]
    model: NotRequired[str | None]
    priority: NotRequired[Priority | None]
    """Left out: the service's."""
    family: NotRequired[AddressFamily | None]
    """Of the addresses that DNS is asked for, at a service whose `families` are separate; left out: none
    is asked for.
    """
    count: float


class CellPart(JsonObject):
    """Clients of a column that are alike."""

    countries: list[str] | None
    """Null: all of the column."""
    regions: list[str]
    """Those that may serve them; none: they are refused."""
    rules: list[str]
    """Enforced rules that concern them; none: any of the service's regions may serve them."""
    rules_left_out: int


class CellSchema(JsonObject):
    """A demand cell: a kind of request. Coordinates are of the centre of 5° by 5°."""

    service: str
    country: str | None
    lat: float | None
    lon: float | None
    tenant: str | None
    data_class: str | None
    model: str | None
    priority: Priority
    anonymous: bool
    accuracy_km: float | None
    spans: list[str]
    """The countries of a client subnet that is in several; `?`: parts that nobody can locate, `*`: too
    many parts.
    """
    doubtful: bool


class CertificateSchema(JsonObject):
    """A certificate that an endpoint showed to the edge's last probe of it."""

    sha256: str
    """The SHA-256 of the certificate's DER, in hex."""
    not_before: str
    not_after: str
    subject: str
    """Empty, as are `issuer` and `names`, where the probe does not verify certificates (`verify_tls:
    false`).
    """
    issuer: str
    names: list[str]
    """Of its subject alternative name: the first 20."""
    region: str
    endpoint: str
    days_left: float
    """Negative: it has ended."""
    ends_soon: bool
    """Within 21 days, or it has ended."""


class ChallengePut(TypedDict):
    """What is to be at the name of a challenge."""

    values: list[str]
    """Texts without spaces, quotes and backslashes, each of a TXT record."""
    type: NotRequired[Literal["TXT"]]
    """Challenges have no other."""
    ttl: NotRequired[int]
    """How long resolvers keep them, in seconds."""
    add: NotRequired[bool]
    """Whether the values that are there stay; otherwise these replace them."""


class ChallengeView(JsonObject):
    """What is at the name of a challenge."""

    zone: str
    name: str
    """Written out."""
    type: str
    values_: list[str]
    ttl: int
    """How long resolvers keep them, in seconds."""
    revision: int
    """The revision in force."""
    sync: SyncSchema
    """Whether all edges answer from it."""


class ChangePage(JsonObject):
    """Changes, the newest first."""

    items_: list[ChangeView]
    next_cursor: str | None
    complete: bool
    """False: the database is away, and what is older than an hour is missing."""


class ChangeSchema(JsonObject):
    """What it changes for clients in some countries."""

    services: list[str]
    countries: list[str]
    unknown: bool
    """For clients that nobody can locate, too."""
    before: list[str]
    after: list[str]
    """Regions that may serve them from then on; none: they are refused."""


class ChangeView(JsonObject):
    """A verdict that became another."""

    at: str
    """When control heard of it, by its clock: the order of what edges with wrong clocks say."""
    region: str
    endpoint: str
    vantage: str | None
    """The edge whose verdict it is; null: that of all together."""
    before: HealthStatus
    """`unknown`: it is the first that is known."""
    after: HealthStatus
    detail: str
    """What the probe met that failed, in words; empty: it answered as it should."""
    status: int | None
    """HTTP's, of the probe that decided it, where there was one."""
    latency_ms: float | None
    """What that probe took, where there was a whole exchange."""
    edge_at: str | None
    """When it was by the edge's own clock, but not later than `at`; null: that of all together."""


class Changed(JsonObject):
    """The outcome of a change."""

    revision: int
    """The revision in force now; a change that changes nothing makes no new one."""
    sync: SyncSchema
    warnings: list[str]


class ClientLocationSchema(JsonObject):
    """The client's location, as the location database has it."""

    country: str | None
    lat: float | None
    lon: float | None
    asn: int | None
    network: str | None
    doubtful: bool
    """Measured round trips contradict it: the client is somewhere else."""


ClientsKind: TypeAlias = Literal["jurisdiction", "others", "unknown"]
"""The kind of clients that a column of the matrix is about."""


class ClientsSchema(JsonObject):
    """A column: clients of a jurisdiction, of all countries that no other column has, or such as nobody
    can locate.
    """

    kind: ClientsKind
    name: str | None
    """The jurisdiction's, or the country's."""
    countries: list[str]


class ComparisonSchema(JsonObject):
    """Both policies side by side."""

    moved: float
    """The share of requests whose region, or refusal, differs."""
    newly_served: float
    """The part of `moved` that was refused before."""
    moves: list[MoveSchema]
    """The same by where it goes, the largest first."""
    before: ProjectionSchema
    after: ProjectionSchema


class CorsDocument(TypedDict):
    """Which pages of other origins may read what gtm itself answers for the service (CORS)."""

    origins: list[str]
    """Origins such as `https://app.example.com`; `*`: any."""
    methods: NotRequired[list[str]]
    """Methods that they may ask for; absent: any."""
    fields: NotRequired[list[str]]
    """Header fields that they may send; absent: any."""
    credentials: NotRequired[bool]
    """Whether they may send cookies; not with the origin `*`."""


CountryCode: TypeAlias = str


class CountrySchema(JsonObject):
    """Where most of a country's requests for a service go; a region of null: they are refused."""

    service: str
    country: str | None
    share: float
    before: str | None
    after: str | None


class DataClassDocument(TypedDict):
    """A kind of data that rules may single out."""

    name: Name
    """What it is called; it cannot be renamed."""
    display_name: NotRequired[str]
    """The name that people read."""


class DataClassDocumentPut(TypedDict):
    """A kind of data that rules may single out. The name may be left out: it is in the URL."""

    name: NotRequired[Name | None]
    """What it is called; it cannot be renamed."""
    display_name: NotRequired[str]
    """The name that people read."""


class DeferredSchema(JsonObject):
    """A resource that is to be deleted as soon as nothing keeps it."""

    kind: str
    name: str
    manager: str | None
    """For which tool; null: for a person."""
    asked_by: str
    asked_at: str
    why: str
    """What keeps the resource, in a sentence."""
    refused: bool
    """Whether the safety rules keep it, and not a resource that names it."""


class DemandRow(JsonObject):
    """Requests that are counted apart from others."""

    region: str | None
    """null: refused."""
    outcome: str
    via: str
    """`dns` rates are answers, not requests."""
    ranking_class: str
    preferred: str | None
    """The region that its class likes best, whether that is usable or not; null: none may serve it, or
    the class is of none known here.
    """
    cell: CellSchema
    rate: float | None
    """As edges count; null: of recorded demand only the requests are known."""
    requests_per_second: float
    """The requests that it stands for."""


class DemandView(JsonObject):
    """Demand now or of a recorded minute, the largest rows first. `rate`, `served` and `refused` are of
    all rows, in requests per second.
    """

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


class DiffView(JsonObject):
    """The differences between two revisions."""

    revision: int
    against: int
    changes: list[ResourceChangeSchema]


class DisputedSchema(JsonObject):
    """A network that is not where the location database claims, by the round trips that balancers
    measured.
    """

    network: str
    country: str | None
    """The country that its reporters claim."""
    place: str
    """The place that its reporters claim, in whole degrees."""
    doubtful: bool
    """By enough votes: rules and estimates no longer believe the location."""
    reporters: list[str]
    """Whose votes count: the first 16 hexadecimal digits of the SHA-256 of their tokens."""
    edges: list[str]
    """Through whose tokens they came."""
    fastest_ms: dict[str, float]
    """The quickest round trip to each region that light could not have made from the claimed place."""


class DnsAnswers(JsonObject):
    """DNS answers of one kind."""

    type: str
    """Of the question; `other`: one that gtm has no name for."""
    rcode: str
    transport: str
    per_second: float


class DnsAnswersSchema(JsonObject):
    """The addresses that DNS would answer with."""

    name: str
    client_subnet: str | None
    """As the resolver would state it; null: it states none, and stands where the client is."""
    replies: list[DnsReplySchema]


class DnsLimitsSchema(JsonObject):
    """What DNS grants a client prefix (/24 or /56) each second and process."""

    replies: int
    """Over UDP; 0: any number."""
    excess_bytes: int
    """Beyond twice those of the queries."""
    slip: int
    """Each so-many-th limited reply is sent, without records; 0: none."""
    exempt: int
    """Networks that are not limited."""


class DnsRates(JsonObject):
    """What an edge's DNS does, per second, smoothed over 3 s."""

    answered: list[DnsAnswers]
    """The most first."""
    limited: dict[str, float]
    """Replies over UDP beyond a client prefix's budget, by what became of them: `slipped` (sent without
    records, with TC) or `dropped`.
    """
    dropped: dict[str, float]
    """Packets that were no questions, by why."""


class DnsRecordSchema(JsonObject):
    """A record of an answer, `data` as in a zone file."""

    name: str
    ttl: int
    type: str
    data: str


class DnsReplySchema(JsonObject):
    """The answer to a question of one type."""

    type: str
    rcode: str
    records: list[DnsRecordSchema]
    """Empty with NOERROR: there is nothing of this type."""
    scope: int | None
    """SCOPE PREFIX-LENGTH: the resolver keeps the answer for so long a prefix of the client's address
    (RFC 7871 §7.2.1); null: the question stated no subnet.
    """
    error: ExtendedErrorSchema | None


class DoubtsSchema(JsonObject):
    """Claimed locations that measurements contradict."""

    votes: int
    """The number of reporters that have to agree."""
    doubtful: int
    disputed: list[DisputedSchema]
    """The doubtful ones first."""
    set_aside: list[str]
    """Reporters that dispute too much to have a vote."""


class EdgeDetail(JsonObject):
    """An edge, with what its DNS does and the certificates that it meets.  What an edge of an earlier
    version does not tell is null, as is everything of an edge that is not live.
    """

    name: str
    version: str
    address: str
    revision: int
    kept: int | None
    """The revision on its disk, by which it would answer after a restart without control (0: none);
    null: not known, as of an edge that is not live.
    """
    epoch: int
    last_seen: str
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
    """Per second by tier (`dns`, `lookup`, `redirect`, `carry`, `authorize`), smoothed; a DNS answer is
    one. Null: not known, as of an edge that is not live.
    """
    dns: DnsRates | None
    dns_limits: DnsLimitsSchema | None
    certificates: list[CertificateSchema] | None
    """Those that end first come first."""


class EdgeList(JsonObject):
    """All edges."""

    items_: list[EdgeSchema]


class EdgeSchema(JsonObject):
    """An edge as last heard of."""

    name: str
    version: str
    address: str
    revision: int
    kept: int | None
    """The revision on its disk, by which it would answer after a restart without control (0: none);
    null: not known, as of an edge that is not live.
    """
    epoch: int
    last_seen: str
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
    """Per second by tier (`dns`, `lookup`, `redirect`, `carry`, `authorize`), smoothed; a DNS answer is
    one. Null: not known, as of an edge that is not live.
    """


EdgeScope: TypeAlias = Literal["anywhere", "in_fence"]
"""Which edges may handle the requests that a residency rule concerns."""


class Ended(JsonObject):
    """The number of sessions that have ended."""

    ended: int


class EndpointDocument(TypedDict):
    """One ingress of a region."""

    url: str
    """Base URL that redirects and lookups hand out (http or https, host, optional path prefix)."""
    ipv4: NotRequired[list[str]]
    """Addresses for DNS A answers."""
    ipv6: NotRequired[list[str]]
    """Addresses for DNS AAAA answers."""
    cname: NotRequired[HostName | None]
    """Canonical name for DNS, instead of addresses."""


class EndpointHealthSchema(JsonObject):
    """What a vantage, or all together, say of an endpoint."""

    status: HealthStatus
    since: float
    """POSIX time of the last change, in seconds."""
    detail: str
    latency_ms: float | None


class EndpointView(JsonObject):
    """An endpoint's health."""

    status: HealthStatus
    since: float
    """POSIX time of the last change, in seconds."""
    detail: str
    latency_ms: float | None
    url: str
    vantages: dict[str, EndpointHealthSchema]
    """The health that each edge sees, by the edge's name."""
    addresses: list[AddressView]


class EntryView(JsonObject):
    """Something that was done."""

    id: int
    at: str
    who: str
    """A token's name, a person, or `gtm`: control itself. Empty: nobody knows."""
    role: Role | None
    via: Via
    """`api` (commands too), `dashboard`, `direct` (a command on the database itself), or `control` by
    itself.
    """
    action: str
    """A family and a verb: `policy.apply`, `region.drain`, `token.revoke`."""
    target: str
    """The thing that it was done to: a resource's kind and name, or a token."""
    revision: int | None
    """The one that it made, if it made one."""
    reason: str
    """What whoever did it gave as such."""
    detail: str
    """What else is worth knowing, in words."""
    forced: bool
    """Whether safety rules were overruled."""
    count: int
    """How often it happened: more than 1 of failed sign-ins alone."""


class ErrorSchema(JsonObject):
    """One thing wrong."""

    path: str
    """The place of the fault: `services.chat.members[0].region`."""
    code: str
    message: str


class EstimateSchema(JsonObject):
    """The round trip to one region; null where the client has no coordinates."""

    region: str
    rtt_ms: float | None
    source: Source | None
    """The finest level of knowledge in the estimate."""
    model_ms: float | None
    """The estimate that geography alone gives, in ms."""
    distance_km: float | None
    measured: list[MeasuredSchema]


class EstimatesSchema(JsonObject):
    """Estimates for one client, nearest first."""

    location: ClientLocationSchema
    regions: list[EstimateSchema]


class EventSchema(JsonObject):
    """A moment."""

    at: str
    causes: list[CauseSchema]
    changes: list[ChangeSchema]
    left_out: int
    """Services beyond those looked at whose rules change then."""


class ExplainRequest(TypedDict):
    """One request, and the draft to decide it by; without one, the policy in force decides."""

    country: NotRequired[CountryCode | None]
    """Without coordinates, the mean position of its addresses."""
    lat: NotRequired[float | None]
    lon: NotRequired[float | None]
    anonymous: NotRequired[bool]
    """Behind a VPN, a proxy, Tor or a hosting provider."""
    doubtful: NotRequired[bool]
    """Measured round trips contradict the place."""
    accuracy_km: NotRequired[float | None]
    spans: NotRequired[list[Literal["?", "*"] | CountryCode]]
    """In place of the country: those of a client subnet that is in several; `?`: parts that nobody can
    locate, `*` alone: too many parts to look at.
    """
    service: Name
    tenant: NotRequired[Name | None]
    data_class: NotRequired[Name | None]
    model: NotRequired[str | None]
    priority: NotRequired[Priority | None]
    """Left out: the service's."""
    family: NotRequired[AddressFamily | None]
    """Of the addresses that DNS is asked for, at a service whose `families` are separate; left out: none
    is asked for.
    """
    client_ip: NotRequired[str | None]
    """An address, or a subnet as a resolver states it; in place of country and coordinates."""
    city: NotRequired[str | None]
    """A city that is known here, in place of country and coordinates."""
    affinity: NotRequired[str | None]
    over: NotRequired[Literal["http", "dns"]]
    """How it is asked. Over DNS nobody states a model, an affinity key or a priority, and the host name
    alone a tenant and a data class; an address is told as the subnet that resolvers tell.
    """
    host: NotRequired[HostName | None]
    """The host name that is asked for. Left out: over DNS, the service's first that states this tenant
    and data class.
    """
    policy: NotRequired[PolicyDocument | None]
    at: NotRequired[str | None]
    """When, by the law of that day, from 2018-05-25 on; left out: now. Health, plan and latency are
    those of now.
    """


class ExplanationView(JsonObject):
    """A decision with all that led to it."""

    service: str
    outcome: str
    region: str | None
    endpoint: JsonObject | None
    ttl: int
    reason: str
    reasons: list[str]
    client: JsonObject
    rules: list[JsonObject]
    revision: int
    epoch: int
    request: JsonObject
    ranking_class: str
    shed: float
    candidates: list[JsonObject]
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


class ExtendedErrorSchema(JsonObject):
    """Why there is no better answer (RFC 8914)."""

    code: int
    text: str


Families: TypeAlias = Literal["together", "separate"]
"""What A and AAAA answers of a service have in common."""


class FamilyHealth(JsonObject):
    """Whether clients of a family are answered with the region: down, if it is up and none of its
    addresses of that family is left.
    """

    ipv4: HealthStatus
    ipv6: HealthStatus
    """Unknown: the region has no address of the family, or nothing is known of the region."""


class FieldChangeSchema(JsonObject):
    """A field that differs."""

    path: str
    before: Any
    after: Any


class FindingSchema(JsonObject):
    """Something legal in a policy that is probably not meant."""

    path: str
    """The place of the fault: `services.chat.members[0].region`."""
    code: str
    message: str


class ForgetSchema(TypedDict):
    """The token whose word is no longer believed."""

    token: str
    """The name of a token of role `edge`, `balancer` or `reporter`."""


Freshness: TypeAlias = Literal["fresh", "stale", "lost", "never"]
"""How far a load can be relied on."""

Handoff: TypeAlias = Literal["none", "sign"]
"""Whether edges vouch for the requests of a service that they send to a region (docs/handoff.md)."""


class HeaderSchema(JsonObject):
    """A header of HTTP."""

    name: str
    value: str


HealthStatus: TypeAlias = Literal["up", "down", "unknown"]
"""What probes say of an endpoint. Unknown is never treated as healthy."""


class HealthView(JsonObject):
    """Health as the edges vote."""

    epoch: int
    regions: list[RegionHealthSchema]


class Held(TypedDict):
    """A resource as somebody has read it."""

    kind: Literal[
        "regions",
        "zones",
        "services",
        "residency_rules",
        "spillover_rules",
        "jurisdictions",
        "tenants",
        "data_classes",
    ]
    name: HostName | JurisdictionName
    tag: str
    """Its entity tag; empty: there was none."""


HostName: TypeAlias = str


class HostNameDocument(TypedDict):
    """A host name that states whose requests come by it, for DNS, which can state nothing."""

    name: ServiceHost
    """The host name."""
    tenant: NotRequired[Name | None]
    """Absent: it states none."""
    data_class: NotRequired[Name | None]
    """Absent: it states none."""


HttpAnswer: TypeAlias = Literal["redirect", "carry"]
"""How edges answer a service's requests over HTTP (docs/carry.md)."""


class HttpsRecordDocument(TypedDict):
    """HTTPS records (RFC 9460) for the host names: port and address hints are the chosen region's."""

    alpn: NotRequired[list[str]]
    """The protocols that every region speaks, beside `http/1.1`."""


class InsideList(JsonObject):
    """What balancers showed within 30 seconds."""

    items_: list[InsideView]


class InsideView(JsonObject):
    """The inside of a region, as one of its balancers showed it."""

    name: str
    region: str
    token: str
    """The name of the token that it reports with."""
    age: float
    """Seconds since it showed it."""
    servers: list[ShownServerView]
    tenants: list[ShownTenantView]
    servers_left_out: int
    """More that its report, or this answer, had no place for."""
    tenants_left_out: int


class Inventory(JsonObject):
    """Resources of the policy in force, by kind and name."""

    revision: int
    """The revision in force."""
    counts: dict[str, int]
    """Kind → how many there are."""
    matching: dict[str, int]
    """Kind → how many of them are found by the search."""
    items_: list[InventoryItem]
    next_cursor: str | None


class InventoryItem(JsonObject):
    """One resource."""

    kind: str
    name: str
    resource: JsonObject
    """The resource's document."""
    managed_by: ManagedSchema | None
    """Who manages it; null: no tool."""


class JurisdictionDocument(TypedDict):
    """A body of law and where it binds."""

    name: JurisdictionName
    """What it is called; it cannot be renamed."""
    display_name: NotRequired[str]
    """The name that people read."""
    members: list[JurisdictionName]
    """ISO 3166-1 alpha-2 country codes, or names of other jurisdictions."""
    source: NotRequired[str]
    """The law or treaty that says so."""
    terms: NotRequired[list[TermDocument]]
    """When memberships begin or end; a member without a term is one at all times."""


class JurisdictionDocumentPut(TypedDict):
    """A body of law and where it binds. The name may be left out: it is in the URL."""

    name: NotRequired[JurisdictionName | None]
    """What it is called; it cannot be renamed."""
    display_name: NotRequired[str]
    """The name that people read."""
    members: list[JurisdictionName]
    """ISO 3166-1 alpha-2 country codes, or names of other jurisdictions."""
    source: NotRequired[str]
    """The law or treaty that says so."""
    terms: NotRequired[list[TermDocument]]
    """When memberships begin or end; a member without a term is one at all times."""


JurisdictionName: TypeAlias = str


class JurisdictionView(JsonObject):
    """A jurisdiction with all that is known of it."""

    name: JurisdictionName
    """What it is called; it cannot be renamed."""
    display_name: str
    """The name that people read."""
    members: list[JurisdictionName]
    """ISO 3166-1 alpha-2 country codes, or names of other jurisdictions."""
    source: str
    """The law or treaty that says so."""
    terms: list[TermDocument]
    """When memberships begin or end; a member without a term is one at all times."""
    origin: Literal["shipped", "operator", "country"]
    """`shipped` with gtm, an `operator`'s own, or a `country` (every ISO 3166-1 code is a jurisdiction)."""
    countries: list[str]
    """All countries it covers now, members of members included."""
    decisions: list[AdequacySchema]
    past: list[PastMembershipSchema]
    laws: list[LawSchema]


KeyRole: TypeAlias = Literal["ksk", "zsk"]
"""What a key signs (RFC 6781 §3.1): the key set only, or the zone's data."""


class KeySchema(JsonObject):
    """A key of a zone."""

    id: str
    tag: int
    """As in DS and RRSIG records (RFC 4034 appendix B)."""
    role: KeyRole
    state: KeyState
    created_at: str
    since: str
    """When it came into its state."""
    next_at: str | None
    """When time alone brings its next state; null: something else has to happen, or nothing will."""
    urgent: bool
    """Its steps wait for edges in reach alone."""


KeyState: TypeAlias = Literal["published", "ready", "active", "retired"]
"""Where a key stands in its life. All of these are in the DNSKEY set, and key-signing keys sign it in
each.
"""


class LatencySchema(JsonObject):
    """Total latency of what is served to clients whose place is known."""

    mean: float
    p50: float
    p90: float
    p99: float
    quantiles: list[float]
    """Of 0 %, 1 %, … 100 %."""


class LatencyView(JsonObject):
    """The table of measured round trips that the edges estimate with."""

    version: int
    """It grows with every change; 0: nothing was measured yet."""
    half_life: float
    """Seconds after which a sample counts half."""
    rows: RowsSchema
    doubts: DoubtsSchema
    estimates: EstimatesSchema | None
    """Only if a client, a country or coordinates are given."""


class LawSchema(JsonObject):
    """A law that concerns where data may be processed."""

    country: str
    act: str
    note: str
    url: str


Level: TypeAlias = Literal["region", "network", "asn", "country", "place"]
"""What a statistic of round trips is about."""


class LineProblem(JsonObject):
    """Something wrong with a text."""

    path: str
    """The place of the fault: `services.chat.members[0].region`."""
    code: str
    message: str
    line: int | None
    """From 1; null: it is nowhere in the text, but wrong because of it."""


class LinkView(JsonObject):
    """A link that signs somebody in once."""

    path: str
    """The path of the link, to be appended to this control's address."""
    url: str | None
    """The whole address, if control knows where people find it (`GTM_DASHBOARD_URL`)."""
    expires_in: float
    """Seconds."""


class ListSchema(JsonObject):
    """Where requests of a service and data class may go."""

    service: str
    data_class: str | None
    """Null: requests of all classes, so that their fence is the intersection of those of all."""
    holds_for: float | None
    """For how many seconds it may be gone by while control says nothing newer: until a rule begins to
    restrict, or the policy is older than a rule accepts. Null: no rule bounds it.
    """
    regions: list[ListedRegionSchema]
    """In order of preference; none: all such requests are refused."""


class ListedEndpoint(JsonObject):
    """An endpoint that is up."""

    url: str
    ipv4: list[str]
    """Of its addresses, those that are up."""
    ipv6: list[str]


class ListedRegionSchema(JsonObject):
    """A region that such requests may be sent to now."""

    region: str
    share: float
    """Its part of such requests, 0 to 1; 0: it stands in where the others fail."""
    standby: bool
    """The service has it for that alone: of weight 0, or a canary that takes no share now."""
    endpoints: list[ListedEndpoint]


class ListsView(JsonObject):
    """Where requests may go, by service and data class."""

    revision: int
    epoch: int
    lists: list[ListSchema]


class Liveness(JsonObject):
    """The process runs."""

    status: str


class LoadSchema(JsonObject):
    """What all reporters that count say together; null: none of them says it."""

    outstanding: float | None
    queue: float | None
    limit: float | None
    service_time_ms: float | None
    queue_wait_ms: float | None
    requests_per_second: float | None
    tokens_per_second: float | None
    input_tokens_per_second: float | None
    gpu_memory_used_bytes: float | None
    gpu_memory_total_bytes: float | None
    kv_cache_usage: float | None
    utilization: float | None
    models: list[str] | None
    sources: int
    """The number of reporters."""


class LoadView(JsonObject):
    """Load and usable capacity of every region."""

    at: float
    """The time of the figures, in POSIX seconds."""
    regions: list[RegionCapacityView]


class LostSchema(JsonObject):
    """Revisions that the database has lost: those after one, up to another."""

    after: int
    up_to: int


class ManagedResourceSchema(JsonObject):
    """A resource that a tool manages."""

    manager: str
    """The tool, and what of it owns the resource: `terraform/prod-network`."""
    since: str
    kind: str
    name: str


class ManagedSchema(JsonObject):
    """The manager of a resource."""

    manager: str
    """The tool, and what of it owns the resource: `terraform/prod-network`."""
    since: str


class ManagerList(JsonObject):
    """Every tool that manages something, by name."""

    items_: list[ManagerView]


class ManagerView(JsonObject):
    """A tool, and what it manages."""

    manager: str
    """`terraform/prod-network`: the tool, and what of it owns the resources."""
    since: str
    """Since when it manages the first of them."""
    resources: dict[str, int]
    """Kind → how many. `GET /v1/resources?managed_by=…` lists them."""


class MatchDocument(TypedDict):
    """Whom a rule concerns. Dimensions are joined by AND; an empty one matches everybody."""

    services: NotRequired[list[Name]]
    """Requests for these services; empty: for any."""
    client_countries: NotRequired[list[CountryCode]]
    """Clients in these countries (ISO 3166-1 alpha-2)."""
    client_jurisdictions: NotRequired[list[JurisdictionName]]
    """Clients in these jurisdictions."""
    tenants: NotRequired[list[Name]]
    """Requests on behalf of these tenants; empty: of any."""
    tenant_jurisdictions: NotRequired[list[JurisdictionName]]
    """Where tenants are established, one dimension with `tenants`. Unknown establishment matches."""
    data_classes: NotRequired[list[Name]]
    """Requests that carry data of these classes; empty: of any."""


class MatrixRow(JsonObject):
    """A service."""

    service: str
    members: list[str]
    """All its regions."""
    cells: list[list[CellPart]]
    """One for each column, in their order."""


class MatrixView(JsonObject):
    """The regions in which each kind of clients may be served."""

    revision: int
    at: float
    """The time that the matrix is of, in POSIX seconds."""
    tenant: str | None
    data_class: str | None
    clients: list[ClientsSchema]
    clients_left_out: int
    """Jurisdictions that rules name beyond these: ask for one by `client`."""
    items_: list[MatrixRow]
    services: int
    """How many there are, on all pages."""
    next_cursor: str | None
    unruled: UnruledSchema


class MeasuredSchema(JsonObject):
    """What was measured of one region at one level of the client's location."""

    level: Level
    key: str
    """The network, the operator and country, the country, or the place (whole degrees)."""
    residual_ms: float
    """Measured less what the geographic model says."""
    spread_ms: float
    samples: float
    """As they count now: older ones count less."""
    sources: int
    """How many different networks they came from, at least (at most 63 are told apart)."""
    published: bool
    """Whether the edges estimate with it; it takes some samples and sources to be."""


class MemberDocument(TypedDict):
    """A region's part in a service."""

    region: Name
    """The region's name."""
    weight: NotRequired[float]
    """0: only when no member with a weight is usable."""
    share: NotRequired[float | None]
    """A canary: the share of all clients that it serves, always the same ones; no others while another
    member is usable.
    """
    capacity: NotRequired[CapacityDocument]
    """What the region holds for this service alone, within its own capacity."""


class MonitoredRule(JsonObject):
    """A rule in monitor mode. Counts are of requests."""

    rule: str
    legal_basis: str
    effective_from: str | None
    effective_until: str | None
    concerned: float
    narrowed: float
    """Would have lost some of the regions that other rules leave them."""
    refused: float
    """Would have lost all."""
    countries: list[RefusedCountry]
    """Whose requests would have been refused, the most first."""


class MonitoredView(JsonObject):
    """Rules in monitor mode."""

    revision: int
    since: str
    seconds: float
    """How long demand was recorded since then; 0: never, and nothing is known."""
    requests: float
    items_: list[MonitoredRule]


class MoveSchema(JsonObject):
    """Requests per second that go elsewhere than before; a region of null: refused."""

    from_: str | None
    to: str | None
    rate: float


Name: TypeAlias = str


class NameServerDocument(TypedDict):
    """A name server of a zone. Inside the zone it needs its addresses here: nobody else could say them."""

    name: HostName
    """The name server's host name."""
    ipv4: NotRequired[list[str]]
    """IPv4 addresses."""
    ipv6: NotRequired[list[str]]
    """IPv6 addresses."""
    country: NotRequired[CountryCode | None]
    """Where it stands; absent: unknown, and so outside of every residency rule that binds edges."""
    operator_country: NotRequired[CountryCode | None]
    """Where whoever runs it is established; absent: unknown."""


class Names(JsonObject):
    """What requests may name, by name; of each kind the first so many."""

    revision: int
    """The revision in force."""
    services: list[str]
    tenants: list[str]
    data_classes: list[str]
    models: list[str]
    """Those that some region serves."""
    regions: list[RegionNamed]
    left_out: dict[str, int]
    """Kind → how many are not listed."""


OnAnonymous: TypeAlias = Literal["match", "trust"]
"""What a residency rule about client countries makes of a client behind a VPN, a proxy, Tor or a hosting
provider.  The address says where that is, not where the client is.
"""

OnDoubtfulLocation: TypeAlias = Literal["match", "trust"]
"""What a residency rule about client countries makes of a client whose location measured round trips
contradict.
"""

OnManaged: TypeAlias = Literal["override", "take_over"]
"""What somebody wants who writes what another tool manages."""

OnOverload: TypeAlias = Literal["shed", "queue"]
"""What becomes of requests that the plan has no capacity for."""

OnUnknownLocation: TypeAlias = Literal["match", "ignore"]
"""What a residency rule about client countries makes of a client whose country is not known well enough."""

OnUnusable: TypeAlias = Literal["refuse", "ignore_health"]
"""What to do when the fence holds regions, but none that is usable."""


class PageEntryView(JsonObject):
    """PageEntryView."""

    items_: list[EntryView]
    next_cursor: str | None


class PageRevisionSchema(JsonObject):
    """PageRevisionSchema."""

    items_: list[RevisionSchema]
    next_cursor: str | None


class PageTokenView(JsonObject):
    """PageTokenView."""

    items_: list[TokenView]
    next_cursor: str | None


class PastMembershipSchema(JsonObject):
    """A membership that is over: it counts in questions about past days (`at`)."""

    country: str
    since: str | None
    """Null: from ever, as far as kept (the GDPR applies since 25 May 2018)."""
    until: str
    """The first day on which it did not hold any more."""
    source: str
    checked: str


class PeakSchema(JsonObject):
    """The busiest interval."""

    start: float | None
    seconds: float
    rate: float


class PlaceChangeSchema(JsonObject):
    """Where most of the requests from a place go; a region of null: they are refused."""

    lat: float | None
    lon: float | None
    share: float
    before: str | None
    after: str | None


class PlacesDocument(TypedDict):
    """A set of regions, named directly, by jurisdiction (a country code is one too), or by their
    operators'.
    """

    jurisdictions: NotRequired[list[JurisdictionName]]
    """Jurisdictions in which regions stand."""
    regions: NotRequired[list[Name]]
    """Regions by name."""
    operator_jurisdictions: NotRequired[list[JurisdictionName]]
    """Where regions' operators are established. Unknown is in no `allow` and in every `deny`."""


class PlanClass(JsonObject):
    """How the requests of one ranking class are spread."""

    class_: str
    service: str
    priority: Priority | None
    requests_per_second: float
    home: str | None
    """The region that it prefers of those that are usable; null while there is no demand."""
    weights: dict[str, float]
    """Region → share of what is served."""
    planned: dict[str, float]
    """Region → requests per second that it is to serve, tenants' own shares considered; what is missing
    to the whole is refused.
    """
    shed: float
    """The share that is refused for want of capacity."""
    tenants: dict[str, float]
    """Tenants whose share differs, because they are beyond their fair share or within it."""
    idle_since: float | None
    """Since when there has been no demand, in POSIX seconds."""


class PlanFacts(JsonObject):
    """When the plan was made, and how."""

    epoch: int
    """Of the state that the edges hold."""
    made: float | None
    """When, in POSIX seconds; null: there is none yet."""
    age: float | None
    """Seconds."""
    tick_ms: float
    """The time that making the plan took, in ms."""
    error: str | None
    """Why the last tick made none, and the plan before it stays."""


class PlanHistoryView(JsonObject):
    """The plans of the past, minute by minute."""

    since: str
    until: str
    step_seconds: float
    times: list[float]
    """When steps with a recorded minute began, in POSIX seconds."""
    regions: list[RegionHistory]


class PlanRequest(TypedDict):
    """A whole policy that might be put in force, or a part of one."""

    policy: PolicyDocument
    partial: NotRequired[bool]
    """Whether resources that the policy does not hold stay as they are; otherwise they are deleted."""
    delete: NotRequired[list[ResourceName]]
    """What is deleted although the policy is partial."""
    only_own: NotRequired[bool]
    """Whether of what the policy does not hold only that would be deleted which the tool of
    `GTM-Managed-By` manages.
    """


class PlanView(JsonObject):
    """The last plan."""

    epoch: int
    """Of the state that the edges hold."""
    made: float | None
    """When, in POSIX seconds; null: there is none yet."""
    age: float | None
    """Seconds."""
    tick_ms: float
    """The time that making the plan took, in ms."""
    error: str | None
    """Why the last tick made none, and the plan before it stays."""
    classes: list[PlanClass]
    prices: dict[str, float]
    """What one more request a second in a region would cost all others, in ms of latency."""
    moving: list[str]
    """Services with traffic on its way to where the plan wants it: their answers carry `min_ttl`."""
    quotas: list[QuotaUse]
    binding: list[str]
    """Regions and quotas that are exhausted."""
    queued: dict[str, float]
    """By class, requests per second beyond capacity that wait at home, where the service does not shed."""


class PolicyChanged(JsonObject):
    """What applying a policy or rolling back did, or would do (`dry_run`)."""

    revision: int
    """The revision in force now; a change that changes nothing makes no new one."""
    sync: SyncSchema
    warnings: list[str]
    dry_run: bool
    changes: list[ResourceChangeSchema]
    managed: list[ManagedResourceSchema]
    """What of it another tool manages: without `on_managed` it is refused."""
    findings: list[FindingSchema]
    """What is probably not meant, as a dry run finds it; otherwise empty."""
    safety: SafetySchema | None
    """Only of dry runs that change something."""
    deferred: list[DeferredSchema]
    """The deletions that wait, of this change and of earlier ones. Not of dry runs."""
    held: list[Held]
    """The resources of `unless_changed` with their entity tags from now on; empty ones where there is
    none any more. Not of dry runs.
    """


class PolicyDocument(TypedDict):
    """A whole policy: a list of documents for each kind of resource."""

    regions: NotRequired[list[RegionDocument]]
    zones: NotRequired[list[ZoneDocument]]
    services: NotRequired[list[ServiceDocument]]
    residency_rules: NotRequired[list[ResidencyRuleDocument]]
    spillover_rules: NotRequired[list[SpilloverRuleDocument]]
    jurisdictions: NotRequired[list[JurisdictionDocument]]
    tenants: NotRequired[list[TenantDocument]]
    data_classes: NotRequired[list[DataClassDocument]]


class PolicyView(JsonObject):
    """The whole policy in force."""

    revision: int
    policy: PolicyDocument


Priority: TypeAlias = Literal["real_time", "near_real_time", "batch"]
"""How urgent a request is. When demand exceeds all capacity, the lowest tier is shed first."""


class ProbeDocument(TypedDict):
    """A health check, made against every endpoint of a region (times in seconds)."""

    type: NotRequired[ProbeType]
    port: NotRequired[int | None]
    """Overrides the port of the endpoint's URL."""
    path: NotRequired[str]
    """The path that an HTTP probe asks for."""
    host: NotRequired[HostName | None]
    """Host header and TLS server name, if not the URL's host."""
    expected_status: NotRequired[list[int]]
    """HTTP status codes that count as up."""
    body_regex: NotRequired[str | None]
    """RE2 pattern searched in the first 64 KiB of the body."""
    json_field: NotRequired[str | None]
    """Dotted path into a JSON body that must equal `json_value`."""
    json_value: NotRequired[bool | int | float | str | None]
    """What it must be equal to."""
    interval: NotRequired[float]
    """Seconds from one probe to the next."""
    timeout: NotRequired[float]
    """Seconds until a probe has failed; at most the interval."""
    up_threshold: NotRequired[int]
    """Good results in a row until a failed endpoint is up again."""
    down_threshold: NotRequired[int]
    """Bad results in a row until an endpoint is down."""
    verify_tls: NotRequired[bool]
    """Whether the endpoint's certificate must be valid for its name."""
    addresses: NotRequired[bool]
    """Whether each `ipv4` and `ipv6` address is probed by itself too, so that DNS leaves out those that
    are down.
    """


ProbeType: TypeAlias = Literal["http", "https", "tcp"]
"""The protocol of a health check."""


class ProblemSchema(JsonObject):
    """A problem document (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None
    """The path asked for."""
    code: str
    """The type in a word."""
    errors: list[ErrorSchema]


class ProjectionSchema(JsonObject):
    """What one policy makes of the traffic."""

    rate: float
    regions: list[RegionTraffic]
    latency_ms: LatencySchema | None
    spill: list[JsonObject]
    """`from` and `to` a region, and the `rate`."""
    refused: RefusedSchema
    queued: float
    exhausted: list[str]
    """Quotas of spillover that are used up."""


Push: TypeAlias = Literal["carry", "redirect", "never"]
"""How a region's balancer without room sends a request of a service to a peer that has some
(docs/spill-back.md).
"""

PutOutcome: TypeAlias = Literal["created", "updated", "unchanged"]
"""The outcome of a PUT."""


class QuotaUse(JsonObject):
    """A spillover rule, or what a region takes of others' demand (`spill_in:REGION`), in requests per
    second.
    """

    name: str
    from_: str | None
    to: list[str]
    allowed: float | None
    planned: float
    binding: bool
    """The plan has exhausted it."""


class RateBoundSchema(JsonObject):
    """A bound as the policy declares it, and what of it new clients may use; null: no bound is known."""

    declared: float | None
    usable: float | None


class ReadRequest(TypedDict):
    """A text to read."""

    text: str
    """YAML, as in a file of a policy."""
    partial: NotRequired[bool]
    """Whether resources that it does not hold stay as they are."""
    delete: NotRequired[list[ResourceName]]
    """What is deleted although the text is partial."""


class ReadView(JsonObject):
    """The documents that a text holds, and what is wrong with it."""

    problems: list[LineProblem]
    """By line. Empty: it is sound."""
    compiled: bool
    """Whether names and their effects were looked at, too; larger policies are only read here, and
    compiled when they are planned.
    """
    policy: JsonObject | None
    """What it holds, as `policy:apply` takes it; null: it has problems."""
    revision: int
    """The revision in force, that a partial text was read with."""


class Readiness(JsonObject):
    """Answers are correct."""

    status: str
    revision: int


class ReassignRequest(TypedDict):
    """Who is to manage what a tool manages."""

    manager: str
    """The manager that the resource has now."""
    to: NotRequired[str | None]
    """The manager that it shall have; left out: none."""
    resources: NotRequired[list[ResourceName] | None]
    """Which resources; left out: all that it manages."""
    reason: str
    """Why; kept in the audit log."""


class ReassignView(JsonObject):
    """The resources that another tool manages now, or nobody."""

    resources: list[ResourceName]


class RecordSetDocument(TypedDict):
    """Records of a zone that have name and type in common, as in a zone file (RFC 1035 §5)."""

    name: str
    """Relative to the zone unless a dot ends it; `@` is the zone's apex, `*.x` stands for what is below
    x.
    """
    type: str
    """A mnemonic, or `TYPE` and a number (RFC 3597)."""
    data: list[str]
    """Each record's data in presentation form."""
    ttl: NotRequired[int | None]
    """The TTL in seconds; absent: the zone's."""


class RecordedMinute(JsonObject):
    """The minute that recorded demand is of."""

    start: float
    """The beginning of the minute, in POSIX seconds."""
    seconds: float
    """For how many seconds of it control was there to count: 60, or fewer where it started or ended
    then. Rates are per second of these.
    """
    revision: int | None
    """Of the policy, the one in force when it began; null: none was."""


class RecordedView(JsonObject):
    """Recorded traffic: fit to be sent as `traffic` of a simulation once `timeline` is taken out."""

    seconds: float
    start: float | None
    cells: list[CellCount]
    peak: SampleSchema | None
    timeline: list[StepSchema]


class RedirectSchema(JsonObject):
    """What an edge would answer to `GET path`, with `host` as its host name (null: any of the edge's
    own).
    """

    path: str
    host: str | None
    status: int
    headers: list[HeaderSchema]
    body: str
    """The problem document of a refusal."""


class ReferenceSchema(JsonObject):
    """A resource that refers to the one asked about."""

    kind: str
    name: str
    path: str
    """The place of the reference in the document: `members[0].region`."""


class References(JsonObject):
    """The resources that refer to a resource."""

    revision: int
    items_: list[ReferenceSchema]
    left_out: int
    """References beyond the most that are listed."""


class RefusalDocument(TypedDict):
    """Where DNS sends clients that may not be served: addresses of yours that say why."""

    ipv4: NotRequired[list[str]]
    """IPv4 addresses."""
    ipv6: NotRequired[list[str]]
    """IPv6 addresses."""


class RefusedCountry(JsonObject):
    """Requests that a rule would have refused; a country of null: of unknown location, or of subnets in
    several.
    """

    country: str | None
    refused: float


class RefusedSchema(JsonObject):
    """Requests refused, by reason; and by residency rule (one counts for each rule that keeps it from a
    region).
    """

    rate: float
    share: float
    reasons: dict[str, float]
    rules: dict[str, float]


class RegionCapacityView(JsonObject):
    """Load and usable capacity of a region as a whole, and of its services."""

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


class RegionDocument(TypedDict):
    """A place that serves requests."""

    name: Name
    """What it is called; it cannot be renamed."""
    display_name: NotRequired[str]
    """The name that people read."""
    lat: float
    """Latitude in degrees north."""
    lon: float
    """Longitude in degrees east."""
    country: CountryCode
    """ISO 3166-1 alpha-2; the region's jurisdictions derive from it."""
    subdivision: NotRequired[str | None]
    """ISO 3166-2."""
    operator_country: NotRequired[CountryCode | None]
    """Where whoever runs it is established; absent: unknown."""
    endpoints: list[EndpointDocument]
    """What answers requests there; clients are sent to those that are up."""
    models: NotRequired[list[str]]
    """Names of the models served here."""
    capacity: NotRequired[CapacityDocument]
    reserve: NotRequired[float]
    """The share of its capacity that no plan uses."""
    spill_in: NotRequired[SpillInDocument]
    slow_start: NotRequired[float]
    """Seconds over which its traffic ramps up after a failure."""
    cost_weight: NotRequired[float]
    """What a request costs there, relative to other regions; 1 more counts as 10 ms of latency."""
    admin_state: NotRequired[AdminState | None]
    """Absent: what is in force stays (a new region is active)."""
    draining_since: NotRequired[str | None]
    """When it began to drain; absent while it drains: what is in force stays, or now."""
    drain_deadline: NotRequired[float]
    """Seconds over which clients with affinity leave it once it drains."""
    probe: NotRequired[ProbeDocument]


class RegionDocumentPut(TypedDict):
    """A place that serves requests. The name may be left out: it is in the URL."""

    name: NotRequired[Name | None]
    """What it is called; it cannot be renamed."""
    display_name: NotRequired[str]
    """The name that people read."""
    lat: float
    """Latitude in degrees north."""
    lon: float
    """Longitude in degrees east."""
    country: CountryCode
    """ISO 3166-1 alpha-2; the region's jurisdictions derive from it."""
    subdivision: NotRequired[str | None]
    """ISO 3166-2."""
    operator_country: NotRequired[CountryCode | None]
    """Where whoever runs it is established; absent: unknown."""
    endpoints: list[EndpointDocument]
    """What answers requests there; clients are sent to those that are up."""
    models: NotRequired[list[str]]
    """Names of the models served here."""
    capacity: NotRequired[CapacityDocument]
    reserve: NotRequired[float]
    """The share of its capacity that no plan uses."""
    spill_in: NotRequired[SpillInDocument]
    slow_start: NotRequired[float]
    """Seconds over which its traffic ramps up after a failure."""
    cost_weight: NotRequired[float]
    """What a request costs there, relative to other regions; 1 more counts as 10 ms of latency."""
    admin_state: NotRequired[AdminState | None]
    """Absent: what is in force stays (a new region is active)."""
    draining_since: NotRequired[str | None]
    """When it began to drain; absent while it drains: what is in force stays, or now."""
    drain_deadline: NotRequired[float]
    """Seconds over which clients with affinity leave it once it drains."""
    probe: NotRequired[ProbeDocument]


class RegionHealthSchema(JsonObject):
    """A region's health: up if any endpoint is."""

    region: str
    admin_state: str
    status: HealthStatus
    disputed: bool
    """Its verdict is withdrawn while a health alarm is on: edges go by their own probes."""
    families: FamilyHealth
    """By the addresses that DNS gives out."""
    endpoints: list[EndpointView]


class RegionHistory(JsonObject):
    """A region's past: columns as long as `times`; null: nothing was recorded then. Where `column` asks
    for one of them, the others are missing.
    """

    region: str
    whole: RegionWhole
    minutes: list[int | None]
    demand: list[float | None]
    planned: list[float | None]
    away: list[float | None]
    refused: list[float | None]
    use: list[float | None]
    most_use: list[float | None]
    price_ms: list[float | None]
    most_price_ms: list[float | None]
    exhausted: list[float | None]


class RegionNamed(JsonObject):
    """A region, and where it is."""

    name: str
    display_name: str
    country: str | None
    lat: float
    lon: float


class RegionPlace(JsonObject):
    """A region of either policy."""

    region: str
    display_name: str
    country: str
    lat: float
    lon: float


class RegionTraffic(JsonObject):
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


class RegionWhole(JsonObject):
    """A region over all of the time. Rates in requests per second, means of the minutes that were
    recorded.
    """

    minutes: int
    """The number of minutes that were recorded."""
    demand: float
    """Requests per second of clients whose home the region is."""
    planned: float
    """The requests a second that the plan had it serve."""
    away: float
    """Of `demand`, what went to other regions."""
    refused: float
    """Of `demand`, what was refused for want of capacity."""
    use: float | None
    """The share of its limit that it reported outstanding; null: it never did."""
    most_use: float | None
    """The highest share in a minute."""
    price_ms: float
    most_price_ms: float
    exhausted: float
    """The share of the time at which it was full."""


class RequestTimesView(JsonObject):
    """What requests took, step by step."""

    since: str
    until: str
    step_seconds: float
    times: list[float]
    """The beginnings of steps in which requests ended, in POSIX seconds."""
    series: list[TookSeries]
    """Those with most requests first."""
    left_out: int
    """Series with fewer requests that are not told."""


class ResidencyRuleDocument(TypedDict):
    """Where matching requests may be served: inside `allow` (everywhere, if empty) and not inside
    `deny`.
    """

    name: Name
    """What it is called; it cannot be renamed."""
    match: NotRequired[MatchDocument]
    allow: NotRequired[PlacesDocument]
    deny: NotRequired[PlacesDocument]
    mode: NotRequired[RuleMode]
    """`monitor` only records what the rule would have excluded."""
    edges: NotRequired[EdgeScope]
    """`in_fence`: only edges that stand in the rule's allowed places may handle what it concerns."""
    on_unknown_location: NotRequired[OnUnknownLocation]
    """Whether the rule concerns clients whose country is not known well enough."""
    on_anonymous: NotRequired[OnAnonymous]
    """Whether the rule concerns all clients behind anonymising networks, or those located in its
    countries.
    """
    on_doubtful_location: NotRequired[OnDoubtfulLocation]
    """Whether a location that measured round trips contradict counts as not known, or is believed."""
    max_accuracy_km: NotRequired[float | None]
    """A client not located to within this radius counts as one whose country is not known."""
    legal_basis: NotRequired[str]
    """The law behind the rule, handed out with refusals."""
    effective_from: NotRequired[str | None]
    """The first moment at which it holds; absent: from ever."""
    effective_until: NotRequired[str | None]
    """The first moment at which it holds no more; absent: for good."""
    max_policy_age: NotRequired[float | None]
    """Seconds without a word from control after which an edge refuses what the rule concerns."""
    acknowledge_empty_fence: NotRequired[bool]
    """The rule leaves some service without any region, and that is meant."""


class ResidencyRuleDocumentPut(TypedDict):
    """Where matching requests may be served: inside `allow` (everywhere, if empty) and not inside
    `deny`. The name may be left out: it is in the URL.
    """

    name: NotRequired[Name | None]
    """What it is called; it cannot be renamed."""
    match: NotRequired[MatchDocument]
    allow: NotRequired[PlacesDocument]
    deny: NotRequired[PlacesDocument]
    mode: NotRequired[RuleMode]
    """`monitor` only records what the rule would have excluded."""
    edges: NotRequired[EdgeScope]
    """`in_fence`: only edges that stand in the rule's allowed places may handle what it concerns."""
    on_unknown_location: NotRequired[OnUnknownLocation]
    """Whether the rule concerns clients whose country is not known well enough."""
    on_anonymous: NotRequired[OnAnonymous]
    """Whether the rule concerns all clients behind anonymising networks, or those located in its
    countries.
    """
    on_doubtful_location: NotRequired[OnDoubtfulLocation]
    """Whether a location that measured round trips contradict counts as not known, or is believed."""
    max_accuracy_km: NotRequired[float | None]
    """A client not located to within this radius counts as one whose country is not known."""
    legal_basis: NotRequired[str]
    """The law behind the rule, handed out with refusals."""
    effective_from: NotRequired[str | None]
    """The first moment at which it holds; absent: from ever."""
    effective_until: NotRequired[str | None]
    """The first moment at which it holds no more; absent: for good."""
    max_policy_age: NotRequired[float | None]
    """Seconds without a word from control after which an edge refuses what the rule concerns."""
    acknowledge_empty_fence: NotRequired[bool]
    """The rule leaves some service without any region, and that is meant."""


class ResourceChangeSchema(JsonObject):
    """A resource that differs."""

    kind: str
    name: str
    action: Action
    fields: list[FieldChangeSchema]


class ResourceChangedDataClassDocument(JsonObject):
    """ResourceChangedDataClassDocument."""

    revision: int
    """The revision in force now; a change that changes nothing makes no new one."""
    sync: SyncSchema
    warnings: list[str]
    outcome: PutOutcome
    resource: DataClassDocument
    managed_by: ManagedSchema | None
    """Who manages it from now on."""


class ResourceChangedJurisdictionDocument(JsonObject):
    """ResourceChangedJurisdictionDocument."""

    revision: int
    """The revision in force now; a change that changes nothing makes no new one."""
    sync: SyncSchema
    warnings: list[str]
    outcome: PutOutcome
    resource: JurisdictionDocument
    managed_by: ManagedSchema | None
    """Who manages it from now on."""


class ResourceChangedRegionDocument(JsonObject):
    """ResourceChangedRegionDocument."""

    revision: int
    """The revision in force now; a change that changes nothing makes no new one."""
    sync: SyncSchema
    warnings: list[str]
    outcome: PutOutcome
    resource: RegionDocument
    managed_by: ManagedSchema | None
    """Who manages it from now on."""


class ResourceChangedResidencyRuleDocument(JsonObject):
    """ResourceChangedResidencyRuleDocument."""

    revision: int
    """The revision in force now; a change that changes nothing makes no new one."""
    sync: SyncSchema
    warnings: list[str]
    outcome: PutOutcome
    resource: ResidencyRuleDocument
    managed_by: ManagedSchema | None
    """Who manages it from now on."""


class ResourceChangedServiceDocument(JsonObject):
    """ResourceChangedServiceDocument."""

    revision: int
    """The revision in force now; a change that changes nothing makes no new one."""
    sync: SyncSchema
    warnings: list[str]
    outcome: PutOutcome
    resource: ServiceDocument
    managed_by: ManagedSchema | None
    """Who manages it from now on."""


class ResourceChangedSpilloverRuleDocument(JsonObject):
    """ResourceChangedSpilloverRuleDocument."""

    revision: int
    """The revision in force now; a change that changes nothing makes no new one."""
    sync: SyncSchema
    warnings: list[str]
    outcome: PutOutcome
    resource: SpilloverRuleDocument
    managed_by: ManagedSchema | None
    """Who manages it from now on."""


class ResourceChangedTenantDocument(JsonObject):
    """ResourceChangedTenantDocument."""

    revision: int
    """The revision in force now; a change that changes nothing makes no new one."""
    sync: SyncSchema
    warnings: list[str]
    outcome: PutOutcome
    resource: TenantDocument
    managed_by: ManagedSchema | None
    """Who manages it from now on."""


class ResourceChangedZoneDocument(JsonObject):
    """ResourceChangedZoneDocument."""

    revision: int
    """The revision in force now; a change that changes nothing makes no new one."""
    sync: SyncSchema
    warnings: list[str]
    outcome: PutOutcome
    resource: ZoneDocument
    managed_by: ManagedSchema | None
    """Who manages it from now on."""


class ResourceName(TypedDict):
    """A resource of the policy."""

    kind: Literal[
        "regions",
        "zones",
        "services",
        "residency_rules",
        "spillover_rules",
        "jurisdictions",
        "tenants",
        "data_classes",
    ]
    name: HostName | JurisdictionName


class ResourcePageDataClassDocument(JsonObject):
    """ResourcePageDataClassDocument."""

    items_: list[DataClassDocument]
    next_cursor: str | None
    managed_by: dict[str, ManagedSchema]
    """Name → who manages it; resources that no tool manages are left out."""
    etags: dict[str, str]
    """Name → its entity tag, for If-Match and `unless_changed`."""


class ResourcePageJurisdictionView(JsonObject):
    """ResourcePageJurisdictionView."""

    items_: list[JurisdictionView]
    next_cursor: str | None
    managed_by: dict[str, ManagedSchema]
    """Name → who manages it; resources that no tool manages are left out."""
    etags: dict[str, str]
    """Name → its entity tag, for If-Match and `unless_changed`."""


class ResourcePageRegionDocument(JsonObject):
    """ResourcePageRegionDocument."""

    items_: list[RegionDocument]
    next_cursor: str | None
    managed_by: dict[str, ManagedSchema]
    """Name → who manages it; resources that no tool manages are left out."""
    etags: dict[str, str]
    """Name → its entity tag, for If-Match and `unless_changed`."""


class ResourcePageResidencyRuleDocument(JsonObject):
    """ResourcePageResidencyRuleDocument."""

    items_: list[ResidencyRuleDocument]
    next_cursor: str | None
    managed_by: dict[str, ManagedSchema]
    """Name → who manages it; resources that no tool manages are left out."""
    etags: dict[str, str]
    """Name → its entity tag, for If-Match and `unless_changed`."""


class ResourcePageServiceDocument(JsonObject):
    """ResourcePageServiceDocument."""

    items_: list[ServiceDocument]
    next_cursor: str | None
    managed_by: dict[str, ManagedSchema]
    """Name → who manages it; resources that no tool manages are left out."""
    etags: dict[str, str]
    """Name → its entity tag, for If-Match and `unless_changed`."""


class ResourcePageSpilloverRuleDocument(JsonObject):
    """ResourcePageSpilloverRuleDocument."""

    items_: list[SpilloverRuleDocument]
    next_cursor: str | None
    managed_by: dict[str, ManagedSchema]
    """Name → who manages it; resources that no tool manages are left out."""
    etags: dict[str, str]
    """Name → its entity tag, for If-Match and `unless_changed`."""


class ResourcePageTenantDocument(JsonObject):
    """ResourcePageTenantDocument."""

    items_: list[TenantDocument]
    next_cursor: str | None
    managed_by: dict[str, ManagedSchema]
    """Name → who manages it; resources that no tool manages are left out."""
    etags: dict[str, str]
    """Name → its entity tag, for If-Match and `unless_changed`."""


class ResourcePageZoneDocument(JsonObject):
    """ResourcePageZoneDocument."""

    items_: list[ZoneDocument]
    next_cursor: str | None
    managed_by: dict[str, ManagedSchema]
    """Name → who manages it; resources that no tool manages are left out."""
    etags: dict[str, str]
    """Name → its entity tag, for If-Match and `unless_changed`."""


class RevisionSchema(JsonObject):
    """A revision without its policy."""

    number: int
    created_at: str
    author: str
    comment: str
    sha256: str
    summary: dict[str, dict[str, int]]
    """Kind → created, updated, deleted → how many."""


class RevisionView(JsonObject):
    """A revision with its policy."""

    number: int
    created_at: str
    author: str
    comment: str
    sha256: str
    summary: dict[str, dict[str, int]]
    """Kind → created, updated, deleted → how many."""
    policy: PolicyDocument


Role: TypeAlias = Literal[
    "viewer", "operator", "fence-admin", "admin", "edge", "reporter", "balancer", "acme"
]
"""What a bearer token may do. Viewer < operator < fence-admin < admin; `edge`, `balancer`, `reporter`
and `acme` have a work of their own.
"""


class RollRequest(TypedDict):
    """The key that is to be replaced."""

    role: KeyRole
    urgent: NotRequired[bool]
    """Wait for edges in reach alone: those that have lost control for an hour break."""


class RollbackRequest(TypedDict):
    """The options of rolling back."""

    dry_run: NotRequired[bool]
    """Only say what would change."""
    comment: NotRequired[str]
    """Kept with the new revision."""


class RoomSchema(JsonObject):
    """What of a region is in use; null: no bound, or no service time, is known."""

    used_slots: float | None
    usable_slots: float | None
    used_rate: float
    usable_rate: float | None
    utilization: float | None


class RotateRequest(TypedDict):
    """How to replace a token's text."""

    grace_seconds: NotRequired[float]
    """For how long the old text works yet."""
    owner: NotRequired[str | None]
    """Another owner. Absent: the one it has."""
    sha256: NotRequired[str | None]
    """Of the new text, if whoever asks has drawn it."""


class RowsSchema(JsonObject):
    """Rows of the table, by level: `region` counts pairs of regions that measured each other."""

    region: int
    network: int
    asn: int
    country: int
    place: int


RuleMode: TypeAlias = Literal["enforce", "monitor"]
"""Whether a residency rule binds."""

SafetyRule: TypeAlias = Literal["reach", "capacity", "moved", "dnssec", "fence", "deletion"]
"""The code by which a refusal names its rule."""


class SafetySchema(JsonObject):
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


class SampleDocument(TypedDict):
    """The requests of some time."""

    seconds: float
    """The duration of the sample, in seconds."""
    start: NotRequired[float | None]
    """When it began, in POSIX seconds."""
    cells: list[CellDocument]


class SampleSchema(JsonObject):
    """The requests of some time."""

    seconds: float
    start: float | None
    cells: list[CellCount]


class ScenarioDocument(TypedDict):
    """What happens beside the draft; factors are multiples of what is now."""

    down: NotRequired[list[Name]]
    """Regions that fail: all their endpoints are down."""
    drain: NotRequired[list[Name]]
    """Regions that drain."""
    capacity: NotRequired[dict[str, float]]
    """Region → what it can take, 0 to 1000 times what it can take now, where a bound is known."""
    demand: NotRequired[float]
    """All requests, up to 1000 times as many."""
    services: NotRequired[dict[str, float]]
    """Service → its requests, besides."""
    at: NotRequired[str | None]
    """By the law, and the policy's dates, of this moment to come; left out: of now."""


class SeriesView(JsonObject):
    """An endpoint as one vantage sees it."""

    endpoint: str
    vantage: str | None
    """An edge; null: all together."""
    steps: list[StepView]
    """The oldest first. Time in which nothing was heard has none."""


class ServiceCapacity(JsonObject):
    """Load and usable capacity of one service in a region."""

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
    service: str


class ServiceDocument(TypedDict):
    """What clients ask for by host name or by service name."""

    name: Name
    """What it is called; it cannot be renamed."""
    display_name: NotRequired[str]
    """The name that people read."""
    members: list[MemberDocument]
    """The regions that serve it; their order is the order of failover."""
    hostnames: NotRequired[list[ServiceHost | HostNameDocument]]
    """`*.x` stands for every name below x that has nothing of its own. A name may state a tenant and a
    data class.
    """
    zone: NotRequired[HostName | None]
    """The zone that the host names lie in."""
    ttl: NotRequired[int]
    """Of DNS answers and lookups, in seconds."""
    min_ttl: NotRequired[int]
    """The same while the plan moves traffic or a region drains."""
    families: NotRequired[Families]
    """Whether A and AAAA are one decision, or each is decided among the regions that have such
    addresses.
    """
    max_answers: NotRequired[int | None]
    """Addresses in a DNS answer; absent: all that the region has."""
    https_record: NotRequired[HttpsRecordDocument | None]
    """Absent: the host names have no HTTPS records."""
    steering: NotRequired[Steering]
    model: NotRequired[str | None]
    """Only regions that serve this model are candidates."""
    affinity: NotRequired[Affinity]
    refusal: NotRequired[RefusalDocument]
    on_unusable: NotRequired[OnUnusable]
    """What to do when the fence holds regions, but none that is usable."""
    on_overload: NotRequired[OnOverload]
    """What becomes of requests that the plan has no capacity for."""
    priority: NotRequired[Priority]
    """Of requests that do not state their own."""
    service_time_ms: NotRequired[float | None]
    """How long a request occupies its place in a region, as far as no load report says it."""
    exploration: NotRequired[float]
    """The share of requests spread over the other eligible regions, to measure the way there."""
    answer: NotRequired[HttpAnswer]
    """How edges answer over HTTP: a redirect to the region chosen, or they carry the request there and
    its answer back.
    """
    handoff: NotRequired[Handoff]
    """Whether edges sign what they decided, in redirects and look-ups, for the region's balancer to
    verify.
    """
    push: NotRequired[Push]
    """How a balancer without room sends a request to a peer region: it carries it, answers 307, or never
    does.
    """
    cors: NotRequired[CorsDocument | None]
    """Absent: pages of other origins read no answer of gtm's own."""


class ServiceDocumentPut(TypedDict):
    """What clients ask for by host name or by service name. The name may be left out: it is in the URL."""

    name: NotRequired[Name | None]
    """What it is called; it cannot be renamed."""
    display_name: NotRequired[str]
    """The name that people read."""
    members: list[MemberDocument]
    """The regions that serve it; their order is the order of failover."""
    hostnames: NotRequired[list[ServiceHost | HostNameDocument]]
    """`*.x` stands for every name below x that has nothing of its own. A name may state a tenant and a
    data class.
    """
    zone: NotRequired[HostName | None]
    """The zone that the host names lie in."""
    ttl: NotRequired[int]
    """Of DNS answers and lookups, in seconds."""
    min_ttl: NotRequired[int]
    """The same while the plan moves traffic or a region drains."""
    families: NotRequired[Families]
    """Whether A and AAAA are one decision, or each is decided among the regions that have such
    addresses.
    """
    max_answers: NotRequired[int | None]
    """Addresses in a DNS answer; absent: all that the region has."""
    https_record: NotRequired[HttpsRecordDocument | None]
    """Absent: the host names have no HTTPS records."""
    steering: NotRequired[Steering]
    model: NotRequired[str | None]
    """Only regions that serve this model are candidates."""
    affinity: NotRequired[Affinity]
    refusal: NotRequired[RefusalDocument]
    on_unusable: NotRequired[OnUnusable]
    """What to do when the fence holds regions, but none that is usable."""
    on_overload: NotRequired[OnOverload]
    """What becomes of requests that the plan has no capacity for."""
    priority: NotRequired[Priority]
    """Of requests that do not state their own."""
    service_time_ms: NotRequired[float | None]
    """How long a request occupies its place in a region, as far as no load report says it."""
    exploration: NotRequired[float]
    """The share of requests spread over the other eligible regions, to measure the way there."""
    answer: NotRequired[HttpAnswer]
    """How edges answer over HTTP: a redirect to the region chosen, or they carry the request there and
    its answer back.
    """
    handoff: NotRequired[Handoff]
    """Whether edges sign what they decided, in redirects and look-ups, for the region's balancer to
    verify.
    """
    push: NotRequired[Push]
    """How a balancer without room sends a request to a peer region: it carries it, answers 307, or never
    does.
    """
    cors: NotRequired[CorsDocument | None]
    """Absent: pages of other origins read no answer of gtm's own."""


ServiceHost: TypeAlias = str


class SessionList(JsonObject):
    """All of them."""

    items_: list[SessionView]


class SessionView(JsonObject):
    """A browser in which somebody is signed in."""

    id: str
    name: str
    role: Role
    agent: str
    """The name that the browser gives itself (`User-Agent`)."""
    created_at: str
    seen_at: str
    """When it was used last, to a minute."""
    expires_at: str


class ShownServerView(JsonObject):
    """A model server, as one balancer sees it."""

    url: str
    state: str
    """By its checks and its answers: `up`, `down` or what else docs/backend-health.md names."""
    why: str
    """In words; empty: nothing is wrong."""
    usable: bool
    """Whether requests are sent there."""
    in_flight: int
    """Requests that this balancer has there."""
    outstanding: float
    """Requests that it takes to be there, those of others among them."""
    work_s: float
    """Seconds of work that it expects of its own."""
    slots: int | None
    """Null: unknown."""
    memory: float | None
    """The used part of its KV cache, or else of its GPU memory. Null: it does not say."""
    models: list[str] | None
    """Those that are loaded. Null: it does not say."""
    adapters: list[str] | None
    """LoRA adapters that are loaded. Null: it does not say."""
    version: str
    """What the balancer's file says of its version."""
    ejections: int
    """So far, since the balancer knows it."""


class ShownTenantView(JsonObject):
    """What one balancer has of a tenant."""

    name: str
    weight: float
    """Its share beside other tenants' where slots are scarce."""
    running: int
    waiting: int
    requests_per_second: float
    """Requests that ended."""
    errors_per_second: float
    """Requests that ended in an error of the servers (5xx)."""
    refused_per_second: float
    """Requests that were not admitted: the tenant's budget is spent, or they would have waited too long."""


class SilentSchema(JsonObject):
    """An edge not heard of for 10 seconds: the revision that it had, and when it was last heard of."""

    name: str
    revision: int
    since: str


class SimulateRequest(TypedDict):
    """A draft, what happens besides, and the traffic to try them with."""

    policy: NotRequired[PolicyDocument]
    """Left out: the policy in force, but for what `delete` names."""
    partial: NotRequired[bool]
    """Whether resources that the policy does not hold stay as they are; otherwise they are deleted."""
    delete: NotRequired[list[ResourceName]]
    """What is deleted although the policy is partial."""
    scenario: NotRequired[ScenarioDocument]
    traffic: NotRequired[Literal["recorded", "current"] | TrafficDocument]
    """`recorded` since a moment, the `current` rates, or any other."""
    traffic_csv: NotRequired[TrafficFile | None]
    """Traffic as CSV, in place of `traffic`."""
    since: NotRequired[str | None]
    """For recorded traffic; left out: 24 hours ago."""


class SimulationView(JsonObject):
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


class SlotBoundSchema(JsonObject):
    """A bound of requests at once, which reports may set, too."""

    declared: float | None
    usable: float | None
    reported: float | None


Source: TypeAlias = Literal["model", "regions", "country", "nearby", "place", "asn", "network"]
"""The finest level of knowledge in an estimate."""


class SpillInDocument(TypedDict):
    """How much a region takes of other regions' demand; absent: as much as it has capacity for."""

    max_share: NotRequired[float | None]
    """The largest share of the region's usable capacity that may be spilled in."""
    max_requests_per_second: NotRequired[float | None]
    """Requests per second."""


class SpilloverRuleDocument(TypedDict):
    """How much of a region's demand may be served elsewhere."""

    name: Name
    """What it is called; it cannot be renamed."""
    from_region: Name
    """The region that is full."""
    to_regions: list[Name]
    """Where its requests go, the preferred first."""
    max_share: NotRequired[float | None]
    """Of the demand of `from_region`, at most this part may go."""
    max_requests_per_second: NotRequired[float | None]
    """At most so many requests per second may go."""
    max_added_latency_ms: NotRequired[float | None]
    """Only where the round trip grows by no more than this (milliseconds)."""


class SpilloverRuleDocumentPut(TypedDict):
    """How much of a region's demand may be served elsewhere. The name may be left out: it is in the URL."""

    name: NotRequired[Name | None]
    """What it is called; it cannot be renamed."""
    from_region: Name
    """The region that is full."""
    to_regions: list[Name]
    """Where its requests go, the preferred first."""
    max_share: NotRequired[float | None]
    """Of the demand of `from_region`, at most this part may go."""
    max_requests_per_second: NotRequired[float | None]
    """At most so many requests per second may go."""
    max_added_latency_ms: NotRequired[float | None]
    """Only where the round trip grows by no more than this (milliseconds)."""


class SpilloverSeries(JsonObject):
    """Requests of a service that did not stay at home."""

    service: str
    from_: str
    to: str
    by: Literal["edges", "balancers"]
    """Who sent them: edges, away from the region that their class likes best; or balancers of that
    region, for want of a slot.
    """
    requests: float
    """How many the whole time had."""
    rates: list[float]
    """Per second of the time that was watched, step by step, as `times` are."""


class SpilloverView(JsonObject):
    """What went from region to region, step by step."""

    since: str
    until: str
    step_seconds: float
    times: list[float]
    """The beginnings of steps of which a minute was recorded, in POSIX seconds."""
    series: list[SpilloverSeries]
    """Those with most requests first."""
    left_out: int
    """Series with fewer requests that are not told."""


Standing: TypeAlias = Literal["active", "standby", "adrift"]
"""The part that a control process plays: active, standing by or adrift."""


class StatusView(JsonObject):
    """The state of the control tier at a glance."""

    version: str
    epoch: int
    control: Standing
    """active; standby: another one is; adrift: it lost the database while others stood by, and neither
    plans nor leases.
    """
    active: str
    """Who is active, if it is another control and known."""
    standbys: int
    """How many control processes stand by for this one."""
    database: Literal["up", "read_only", "busy", "unfit", "down"]
    """up: it takes changes; read_only and busy: it answers and takes none now; unfit: it has to be
    changed; down: it cannot be reached.
    """
    sync: SyncSchema
    warnings: list[str]
    """The warnings of the policy in force."""


Steering: TypeAlias = Literal["latency", "geo", "weighted", "failover"]
"""How a service orders the regions inside the fence."""


class StepSchema(JsonObject):
    """A step of the timeline."""

    start: str
    minutes: int
    """Of the step, how many were recorded."""
    seconds: float
    """For how many seconds control was there to count: fewer than 60 of a minute in which it started or
    ended.
    """
    requests: float


class StepView(JsonObject):
    """What was heard of a series in the five minutes from `start` on."""

    start: str
    worst: HealthStatus
    """The worst verdict at any time in it."""
    probes: int | None
    """Null: not told, as by edges of earlier versions, and of all together."""
    failed: int
    p50_ms: float | None
    """Of the probes that were answered as they should: half took no longer."""
    p99_ms: float | None
    changes: int
    """Of the verdict; beyond ten of one step they are counted here alone."""
    detail: str
    """The last failure in words."""


class StepsPage(JsonObject):
    """Series by endpoint, that of all together first."""

    items_: list[SeriesView]
    next_cursor: str | None
    since: str
    until: str
    step_seconds: float
    complete: bool
    """False: the database is away, and what control has not heard within the last hour is missing."""


class SyncSchema(JsonObject):
    """How far a revision has got."""

    revision: int
    state: SyncState
    """PENDING: a live edge lacks the revision, or no edge is live. STALE: no live edge waits for it, but
    a silent one had an older, or a live one has an older on its disk, or one keeps a revision that
    the database has lost. IN_SYNC: every live edge has it, and so had the silent ones when they were
    last heard of.
    """
    in_sync: list[str]
    pending: list[str]
    unreachable: list[str]
    """Edges not heard of for 10 seconds."""
    silent: list[SilentSchema]
    """The same edges, with the revisions that they had."""
    unsaved: list[str]
    """Live edges that have it and cannot keep it on their disk."""
    lost: list[str]
    """Live edges that keep a revision which the database has lost; they are sent this one once
    `revisions:accept-older` says so.
    """


SyncState: TypeAlias = Literal["PENDING", "STALE", "IN_SYNC"]
"""Whether a revision is in force everywhere."""


class TenantDocument(TypedDict):
    """A customer whose requests rules may single out."""

    name: Name
    """What it is called; it cannot be renamed."""
    display_name: NotRequired[str]
    """The name that people read."""
    weight: NotRequired[float]
    """Its part of a priority tier that does not fit, relative to the other tenants'."""
    country: NotRequired[CountryCode | None]
    """Where it is established. Left out: unknown, which every rule by establishment takes for a match."""


class TenantDocumentPut(TypedDict):
    """A customer whose requests rules may single out. The name may be left out: it is in the URL."""

    name: NotRequired[Name | None]
    """What it is called; it cannot be renamed."""
    display_name: NotRequired[str]
    """The name that people read."""
    weight: NotRequired[float]
    """Its part of a priority tier that does not fit, relative to the other tenants'."""
    country: NotRequired[CountryCode | None]
    """Where it is established. Left out: unknown, which every rule by establishment takes for a match."""


class TermDocument(TypedDict):
    """The time for which a jurisdiction has a member. A member may have several."""

    member: JurisdictionName
    """The country or jurisdiction."""
    effective_from: NotRequired[str | None]
    """The first moment at which it is a member; absent: from ever."""
    effective_until: NotRequired[str | None]
    """The first moment at which it is none any more; absent: for good."""


class TierSchema(JsonObject):
    """Requests of a tier: those that backends have, and those in the queue."""

    running: int
    waiting: int


TimeSource: TypeAlias = Literal["reported", "inferred", "declared", "other_regions", "unknown"]
"""What says how long a request is served."""


class TimelineView(JsonObject):
    """How many requests were recorded, step by step. Steps without any recorded minute are left out."""

    since: str
    until: str
    step: float
    """Seconds."""
    items_: list[StepSchema]


class TokenCreated(JsonObject):
    """A new token."""

    id: str
    name: str
    role: Role
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    """When it was revoked; in the future, when it will be, as another one has replaced it."""
    edges: str | None
    """Of role `edge`: the edge that it speaks for, or a pattern of names."""
    regions: str | None
    """Of roles `balancer` and `reporter`: the region that it may report on, or a pattern of names; null
    of a reporter: any.
    """
    names: str | None
    """Of role `acme`: the name at which it may write challenges, or a pattern of names."""
    owner: str | None
    """The person or automation that stands behind it; null: it is from before that was written down."""
    makers: list[str]
    """In whose hands that was which it was made with: they count as one with it. `*`: that was not
    written down.
    """
    token: str | None
    """The token's text. It is shown this once and stored nowhere. Null: whoever asked has drawn it."""


class TokenRequest(TypedDict):
    """A token to make."""

    name: Name
    role: Role
    expires_at: NotRequired[str | None]
    """Absent: never."""
    edges: NotRequired[str | None]
    """Of role `edge`: the edge that it speaks for, or a pattern of names (`fra-*`). Absent: the edge of
    its own name.
    """
    regions: NotRequired[str | None]
    """Of role `balancer`, and if wanted of role `reporter`: the region that it may report on, or a
    pattern of names (`eu-*`). Absent, a reporter may report on any.
    """
    names: NotRequired[str | None]
    """Of role `acme`: the name for whose certificates it may write challenges, or a pattern of names
    (`*.example.com`, which includes `example.com`).
    """
    owner: NotRequired[str | None]
    """The person or automation that stands behind it, people as they are called when they sign in.
    Absent: the owner of what it is made with.
    """
    sha256: NotRequired[str | None]
    """Of a text that whoever asks has drawn, from at least 128 bits of chance, and that control never
    sees. Absent: control draws one.
    """


class TokenView(JsonObject):
    """A token, without its text."""

    id: str
    name: str
    role: Role
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    """When it was revoked; in the future, when it will be, as another one has replaced it."""
    edges: str | None
    """Of role `edge`: the edge that it speaks for, or a pattern of names."""
    regions: str | None
    """Of roles `balancer` and `reporter`: the region that it may report on, or a pattern of names; null
    of a reporter: any.
    """
    names: str | None
    """Of role `acme`: the name at which it may write challenges, or a pattern of names."""
    owner: str | None
    """The person or automation that stands behind it; null: it is from before that was written down."""
    makers: list[str]
    """In whose hands that was which it was made with: they count as one with it. `*`: that was not
    written down.
    """


class TookSeries(JsonObject):
    """What requests took that a region served for a service; columns as long as `times`, null: no
    request ended then.
    """

    region: str
    service: str
    model: str | None
    """Empty: they named none; `other`: all that nobody has declared. Null: models are not told apart."""
    whole: TookView
    """Over all of the time, from the sums of what was counted."""
    requests: list[int | None]
    first_byte_p50_ms: list[float | None]
    first_byte_p99_ms: list[float | None]
    p50_ms: list[float | None]
    p99_ms: list[float | None]


class TookView(JsonObject):
    """What requests took, from when their heads had come: half of them took no longer than a p50, 99 of
    100 no longer than a p99. Null: there was none.
    """

    requests: int
    first_byte_p50_ms: float | None
    """Half of the answers with a body had its first byte, a stream's first token, by then."""
    first_byte_p99_ms: float | None
    p50_ms: float | None
    """Half of them had ended by then."""
    p99_ms: float | None


class TopCorrection(JsonObject):
    """What edges send elsewhere than the plan chose, for want of a free slot there; in requests per
    second.
    """

    from_: str | None
    to: str
    requests_per_second: float


class TopEdge(JsonObject):
    """An edge heard of within the last 10 seconds."""

    name: str
    age: float
    revision: int
    epoch: int


class TopPush(JsonObject):
    """What found no slot at a region's balancer, in requests per second."""

    from_: str
    to: str | None
    """The peer region that took it; null: it stayed."""
    why: str
    """`moved`: carried there; `redirected`: its client was sent there; `failed`: of those carried, what
    the peer did not take; else why it stayed.
    """
    requests_per_second: float
    quotas: list[str]
    """The rules that it counts against, where the region is its home."""


class TopRefusal(JsonObject):
    """Requests that are refused, by reason."""

    service: str
    outcome: str
    requests_per_second: float


class TopRegion(JsonObject):
    """A region. Rates are in requests per second."""

    region: str
    country: str
    lat: float
    lon: float
    admin_state: AdminState
    managed_by: ManagedSchema | None
    """The tool that manages it; its admin state is operators' all the same."""
    health: HealthStatus
    freshness: Freshness
    """How old the region's last load report is."""
    report_age: float | None
    outstanding: float | None
    queue: float | None
    limit: float | None
    """Requests at once: the least of what is declared and reported."""
    usable: float | None
    """What of it new clients may use."""
    utilisation: float | None
    """Outstanding by limit."""
    requests_per_second: float | None
    """The requests a second that the region reports."""
    service_time_ms: float | None
    free_slots: TopSlots | None
    """Null: nothing is known. By these, edges correct the plan's choices of single requests."""
    demand: float
    """Requests per second of clients whose home the region is."""
    decided: float
    """The requests a second that edges send there."""
    planned: float
    price_ms: float
    exhausted: bool
    latency_p99_ms: float | None
    """Estimated, network and processing, of what is planned there."""
    measured: TookView | None
    """What requests took that ended there in the last one to two minutes, by the region's balancers;
    null: none of gtm's balancers tells of any.
    """


class TopSlots(JsonObject):
    """What a region's balancers say of their slots."""

    open: float
    """Free, less requests that wait."""
    counted: float
    """Those of them that edges and peers go by: no more than the policy's `capacity.outstanding` of the
    region, where it is stated.
    """
    limit: float
    waiting: float
    age: float
    """Seconds since the oldest of their reports that count."""


class TopSpill(JsonObject):
    """What goes to another region than home, in requests per second."""

    from_: str
    to: str
    requests_per_second: float
    """The requests a second that edges' decisions send on this way."""
    planned: float
    quotas: list[str]
    """The rules that it counts against."""


class TopView(JsonObject):
    """Everything at a glance."""

    at: float
    """The time of the figures, in POSIX seconds."""
    revision: int
    database: Literal["up", "down"]
    plan: PlanFacts
    edges: list[TopEdge]
    requests_per_second: float
    """All demand that the plan knows."""
    latency_p99_ms: float | None
    """Estimated, network and processing, over all that is planned."""
    decisions: dict[str, float]
    """Per second by tier: `dns`, `lookup`, `redirect`, `carry`, `authorize`. A DNS answer is one,
    however many requests follow.
    """
    regions: list[TopRegion]
    spill: list[TopSpill]
    corrections: list[TopCorrection]
    """Those of single requests, by free slots; the largest first. They are among `spill` where they
    leave home.
    """
    pushes: list[TopPush]
    """What balancers sent on to peers for want of a slot, and what they kept and why; the largest first."""
    quotas: list[QuotaUse]
    refusals: list[TopRefusal]


class TrafficDocument(TypedDict):
    """Traffic, and its busiest interval apart where it is known."""

    seconds: float
    """The duration of the sample, in seconds."""
    start: NotRequired[float | None]
    """When it began, in POSIX seconds."""
    cells: list[CellDocument]
    peak: NotRequired[SampleDocument | None]


class TrafficFile(TypedDict):
    """Traffic as the text of a CSV file (docs/simulate.md)."""

    text: str
    seconds: NotRequired[float]
    """How long its requests took, if it has no times."""


class TrafficSummary(JsonObject):
    """The traffic that was simulated."""

    requests: float
    seconds: float
    rate: float
    start: float | None
    peak: PeakSchema


class UnruledSchema(JsonObject):
    """All of them: the first by the policy's order."""

    count: int
    services: list[UnruledService]


class UnruledService(JsonObject):
    """A service that no enforced rule concerns."""

    service: str
    monitored: bool
    """Rules in monitor mode watch it."""


Via: TypeAlias = Literal["api", "dashboard", "direct", "control"]
"""The way on which somebody did something: API, dashboard, command line."""

What: TypeAlias = Literal["rule_begins", "rule_ends", "membership_begins", "membership_ends"]
"""The kind of a change that happens without anybody's doing."""


class WithdrawRequest(TypedDict):
    """Whether the parent is to drop its DS records."""

    withdrawing: NotRequired[bool]


class ZoneDocument(TypedDict):
    """A DNS zone that the edges answer for (times in seconds; RFC 1035 §3.3.13, RFC 2308 §4)."""

    name: HostName
    """The zone's name."""
    primary_ns: HostName
    """The SOA record's MNAME."""
    hostmaster: HostName
    """The SOA record's RNAME: the contact's mailbox written as a domain name, `hostmaster.example.com`."""
    name_servers: NotRequired[list[NameServerDocument]]
    """The zone's NS records; the primary alone, if there are none."""
    ttl: NotRequired[int]
    """Seconds for which resolvers keep its NS and SOA records."""
    refresh: NotRequired[int]
    """SOA REFRESH in seconds."""
    retry: NotRequired[int]
    """SOA RETRY in seconds."""
    expire: NotRequired[int]
    """SOA EXPIRE in seconds."""
    minimum: NotRequired[int]
    """How long resolvers keep negative answers."""
    records: NotRequired[list[RecordSetDocument]]
    """What the zone holds beside services."""
    dnssec: NotRequired[bool]
    """Its answers are signed. To switch it off, the DS records at the parent go first."""
    explanations: NotRequired[bool]
    """Host names of services explain their answers to who asks for TXT; otherwise they have no TXT
    records but those of the zone.
    """
    challenges: NotRequired[list[RecordSetDocument] | None]
    """Answers to certificate authorities, which ACME clients write one by one; absent: they stay as they
    are.
    """


class ZoneDocumentPut(TypedDict):
    """A DNS zone that the edges answer for (times in seconds; RFC 1035 §3.3.13, RFC 2308 §4). The name
    may be left out: it is in the URL.
    """

    name: NotRequired[HostName | None]
    """The zone's name."""
    primary_ns: HostName
    """The SOA record's MNAME."""
    hostmaster: HostName
    """The SOA record's RNAME: the contact's mailbox written as a domain name, `hostmaster.example.com`."""
    name_servers: NotRequired[list[NameServerDocument]]
    """The zone's NS records; the primary alone, if there are none."""
    ttl: NotRequired[int]
    """Seconds for which resolvers keep its NS and SOA records."""
    refresh: NotRequired[int]
    """SOA REFRESH in seconds."""
    retry: NotRequired[int]
    """SOA RETRY in seconds."""
    expire: NotRequired[int]
    """SOA EXPIRE in seconds."""
    minimum: NotRequired[int]
    """How long resolvers keep negative answers."""
    records: NotRequired[list[RecordSetDocument]]
    """What the zone holds beside services."""
    dnssec: NotRequired[bool]
    """Its answers are signed. To switch it off, the DS records at the parent go first."""
    explanations: NotRequired[bool]
    """Host names of services explain their answers to who asks for TXT; otherwise they have no TXT
    records but those of the zone.
    """
    challenges: NotRequired[list[RecordSetDocument] | None]
    """Answers to certificate authorities, which ACME clients write one by one; absent: they stay as they
    are.
    """


class ZoneKeysList(JsonObject):
    """All zones with keys."""

    items_: list[ZoneKeysSchema]
    problem: str
    """Why keys cannot be made, rolled or read now, as in each of the items; empty if they can."""


class ZoneKeysSchema(JsonObject):
    """The keys of a zone, and what they wait for."""

    zone: str
    signed: bool
    """Whether the policy has it signed; keys of zones that it no longer has signed are kept."""
    withdrawing: bool
    """Whether the parent is asked to drop its DS records."""
    keys_: list[KeySchema]
    """Oldest first."""
    ds: list[str]
    """The DS records that the parent should have, and no others."""
    ds_from: str | None
    """When they may be put there; null: at once."""
    waits_for: str
    """What somebody has to do, in words; empty: nothing."""
    signatures_until: str
    """Edges without control answer validly until then."""
    problem: str
    """Why keys cannot be made, rolled or read now; empty if they can."""
