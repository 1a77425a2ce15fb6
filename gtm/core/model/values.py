"""The values that flow through gtm: policy as written by operators, requests, and health.

Everything here is a frozen dataclass, a named tuple or an enum. What a policy *means* is worked out by
`gtm.core.policy.compile`; limits of single fields (ranges, lengths, patterns) are held by
`gtm.documents.schema`, the one place where outside documents become these values.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import urlsplit


class AdminState(StrEnum):
    """What the operator wants of a region, whatever its health says."""

    ACTIVE = "active"
    DRAINING = "draining"
    """Takes no new clients."""
    DISABLED = "disabled"
    """Out of service, and not probed."""


class Steering(StrEnum):
    """How a service orders the regions inside the fence."""

    LATENCY = "latency"
    """Lowest estimated round-trip time first."""
    GEO = "geo"
    """Shortest great-circle distance first."""
    WEIGHTED = "weighted"
    """In proportion to the members' weights."""
    FAILOVER = "failover"
    """The first usable member in the order written."""


PLANNED = frozenset({Steering.LATENCY, Steering.GEO})
"""Steering that leaves the planner room. The others are the operator's own word."""


class Affinity(StrEnum):
    """What keeps a client on its region while several are eligible."""

    NONE = "none"
    CLIENT_NETWORK = "client_network"
    KEY = "key"
    """The request's affinity key; the client network where none is given."""


class OnUnusable(StrEnum):
    """What to do when the fence holds regions, but none that is usable."""

    REFUSE = "refuse"
    IGNORE_HEALTH = "ignore_health"
    """Serve from the fence's regions as if they were healthy (probes may be wrong). Never crosses the fence,
    never picks a draining or disabled region."""


class OnOverload(StrEnum):
    """What becomes of requests that the plan has no capacity for."""

    SHED = "shed"
    """Refuse them over HTTP, the lowest priority first (503; 429 to a tenant beyond its fair share). DNS cannot
    refuse a part of its answers; there it is as `queue`."""
    QUEUE = "queue"
    """Send them to their home region all the same, to wait there."""


class Priority(StrEnum):
    """How urgent a request is. When demand exceeds all capacity, the lowest tier is shed first."""

    REAL_TIME = "real_time"
    NEAR_REAL_TIME = "near_real_time"
    BATCH = "batch"


class RuleMode(StrEnum):
    """Whether a residency rule binds."""

    ENFORCE = "enforce"
    MONITOR = "monitor"
    """Only recorded: the answer names the rule and what it would have excluded."""


class OnUnknownLocation(StrEnum):
    """What a residency rule about client countries makes of a client whose country is not known well enough."""

    MATCH = "match"
    """The client may be in any country, so the rule concerns it."""
    IGNORE = "ignore"
    """The rule concerns only clients known to be in its countries."""


class OnAnonymous(StrEnum):
    """What a residency rule about client countries makes of a client behind a VPN, a proxy, Tor or a hosting provider.

    The address says where that is, not where the client is.
    """

    MATCH = "match"
    """The client may be in any country, so the rule concerns it."""
    TRUST = "trust"
    """The client counts as being where its address is."""


class EdgeScope(StrEnum):
    """Which edges may handle the requests that a residency rule concerns."""

    ANYWHERE = "anywhere"
    IN_FENCE = "in_fence"
    """Those that stand in the rule's allowed places (`gtm.core.policy.edges`)."""


class OnDoubtfulLocation(StrEnum):
    """What a residency rule about client countries makes of a client whose location measured round trips contradict."""

    MATCH = "match"
    """It counts as one whose country is not known: see `on_unknown_location`."""
    TRUST = "trust"
    """The client counts as being where the location database says."""


class ProbeType(StrEnum):
    """The protocol of a health check."""

    HTTP = "http"
    HTTPS = "https"
    TCP = "tcp"


class HealthStatus(StrEnum):
    """What probes say of an endpoint. Unknown is never treated as healthy."""

    UP = "up"
    DOWN = "down"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One ingress of a region.

    At least one of `ipv4`, `ipv6` and `cname` is needed for DNS answers; `url` is the base that redirects and
    lookups hand out (scheme, authority and an optional path prefix, without a trailing slash).
    """

    url: str
    ipv4: tuple[str, ...] = ()
    ipv6: tuple[str, ...] = ()
    cname: str | None = None


def https_port(endpoint: Endpoint) -> int:
    """The port of an endpoint's URL, which is one of https."""
    return urlsplit(endpoint.url).port or 443


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a region can hold: outstanding requests at once, and requests per second. None: not stated."""

    outstanding: int | None = None
    requests_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """A health check, made against every endpoint of a region (times in seconds).

    `http` and `https` replace the scheme of the endpoint's URL and request `path` relative to its authority;
    `port` overrides the URL's port. `body_regex` is an RE2 pattern searched in the first 64 KiB of the body.
    `json_field` is a dotted path into a JSON body that must equal `json_value`.
    """

    type: ProbeType = ProbeType.HTTP
    port: int | None = None
    path: str = "/healthz"
    host: str | None = None
    expected_status: tuple[int, ...] = (200,)
    body_regex: str | None = None
    json_field: str | None = None
    json_value: str | int | float | bool | None = None
    interval: float = 10.0
    timeout: float = 3.0
    up_threshold: int = 2
    down_threshold: int = 3
    verify_tls: bool = True


@dataclass(frozen=True, slots=True)
class SpillIn:
    """How much a region takes of other regions' demand: a share (0–1) of its usable capacity, requests per second."""

    max_share: float | None = None
    max_requests_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Region:
    """A place that serves requests. `country` is ISO 3166-1 alpha-2; its jurisdictions derive from it.

    `operator_country` is where whoever runs it is established (ISO 3166-1 alpha-2): a law may reach the operator
    wherever the machines stand. None: unknown.

    `reserve` is the share of its capacity that no plan uses. Over `slow_start` seconds after a failure its traffic
    ramps up; over `drain_deadline` seconds from `draining_since` on, clients with affinity leave it.
    """

    name: str
    lat: float
    lon: float
    country: str
    endpoints: tuple[Endpoint, ...]
    display_name: str = ""
    subdivision: str | None = None
    operator_country: str | None = None
    models: tuple[str, ...] = ()
    capacity: Capacity = Capacity()
    reserve: float = 0.1
    spill_in: SpillIn = SpillIn()
    slow_start: float = 30.0
    cost_weight: float = 1.0
    admin_state: AdminState = AdminState.ACTIVE
    draining_since: datetime | None = None
    drain_deadline: float = 300.0
    probe: Probe = Probe()


@dataclass(frozen=True, slots=True)
class Member:
    """A region's part in a service. Weight 0: only when no member with a weight is usable.

    `share` (0–1) makes it a canary: it serves this share of all clients that may go there, always the same ones, whatever
    the steering, and no others while another member is usable. None: it is a member like all others.

    `capacity` is what the region holds for this service alone, within the region's own.
    """

    region: str
    weight: float = 1.0
    capacity: Capacity = Capacity()
    share: float | None = None


@dataclass(frozen=True, slots=True)
class RefusalAddress:
    """Where DNS sends clients that may not be served: an address of the operator's that says why.

    DNS never answers a residency refusal with NXDOMAIN or NODATA, because resolvers would cache that negative
    answer for everyone behind them.
    """

    ipv4: tuple[str, ...] = ()
    ipv6: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HttpsRecord:
    """What the HTTPS records (RFC 9460) of a service's host names say beside what regions say: `alpn`, the protocols."""

    alpn: tuple[str, ...] = ("h2",)


@dataclass(frozen=True, slots=True)
class HostName:
    """A service's host name (or wildcard), and what it states of all requests by it. None: nothing.

    It stands for what a request would state itself, so that DNS, which can state nothing, has a tenant or data class.
    """

    name: str
    tenant: str | None = None
    data_class: str | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """What clients ask for by host name (`*.example.com`: any without records of its own) or by service name.

    A host name that states nothing is written as a string.

    `ttl` is how long answers may be kept, `min_ttl` the same while traffic is being moved (seconds, both).
    `max_answers` is how many addresses an answer has at most, None: all. `https_record`: None for none.

    `service_time_ms` is how long a request occupies its place in a region, as far as no load report says it.
    `exploration` is the share (0–1) of requests spread over the other eligible regions, to measure the way there.
    """

    name: str
    members: tuple[Member, ...]
    display_name: str = ""
    hostnames: tuple[str | HostName, ...] = ()
    zone: str | None = None
    ttl: int = 30
    min_ttl: int = 5
    max_answers: int | None = None
    https_record: HttpsRecord | None = None
    steering: Steering = Steering.LATENCY
    model: str | None = None
    affinity: Affinity = Affinity.NONE
    refusal: RefusalAddress = RefusalAddress()
    on_unusable: OnUnusable = OnUnusable.REFUSE
    on_overload: OnOverload = OnOverload.SHED
    priority: Priority = Priority.REAL_TIME
    service_time_ms: float | None = None
    exploration: float = 0.0

    @property
    def names(self) -> tuple[HostName, ...]:
        """The host names, with what they state."""
        return tuple(HostName(item) if isinstance(item, str) else item for item in self.hostnames)


@dataclass(frozen=True, slots=True)
class Match:
    """Whom a residency rule concerns. Dimensions are joined by AND; an empty one matches everybody.

    Countries and jurisdictions are one dimension: a client in any of them matches. So are tenants and the jurisdictions
    that tenants are established in. What a request does not say (location, tenant, data class), and what is not known of
    a tenant's establishment, counts as a match: the most restrictive reading wins.
    """

    services: tuple[str, ...] = ()
    client_countries: tuple[str, ...] = ()
    client_jurisdictions: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    data_classes: tuple[str, ...] = ()
    tenant_jurisdictions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Places:
    """A set of regions, named directly, by jurisdiction (a country code is one too), or by their operators'.

    Where the places `jurisdictions` and `regions` and the operators are both named, `allow` holds the regions that
    satisfy both, and `deny` those that satisfy either. A region of unknown operator is in no `allow` by operator, and
    in every `deny` by operator: the most restrictive reading.
    """

    jurisdictions: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    operator_jurisdictions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResidencyRule:
    """Where matching requests may be served: inside `allow` (everywhere, if empty) and not inside `deny`.

    A rule about client countries also concerns clients that may be in them: those whose country is unknown, in doubt
    (`on_doubtful_location`) or not known to within `max_accuracy_km` (`on_unknown_location`), and those behind an
    anonymising network (`on_anonymous`). None of these lets go of a client that is located in the rule's countries.

    `edges` says whether the rule binds the edges that handle such requests too.
    """

    name: str
    match: Match = Match()
    allow: Places = Places()
    deny: Places = Places()
    mode: RuleMode = RuleMode.ENFORCE
    edges: EdgeScope = EdgeScope.ANYWHERE
    on_unknown_location: OnUnknownLocation = OnUnknownLocation.MATCH
    on_anonymous: OnAnonymous = OnAnonymous.MATCH
    on_doubtful_location: OnDoubtfulLocation = OnDoubtfulLocation.MATCH
    max_accuracy_km: float | None = None
    legal_basis: str = ""
    effective_from: datetime | None = None
    effective_until: datetime | None = None
    max_policy_age: float | None = None
    """Seconds without a word from control after which an edge refuses what the rule concerns; None: it never does."""
    acknowledge_empty_fence: bool = False
    """The operator knows that this rule leaves some service without any region, and means it."""


@dataclass(frozen=True, slots=True)
class SpilloverRule:
    """How much of a region's demand may be served elsewhere (share 0–1, requests/s, added round trip in ms)."""

    name: str
    from_region: str
    to_regions: tuple[str, ...]
    max_share: float | None = None
    max_requests_per_second: float | None = None
    max_added_latency_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Term:
    """The time for which a jurisdiction has a member: from one moment (always, if None) until before another."""

    member: str
    effective_from: datetime | None = None
    effective_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Jurisdiction:
    """A body of law and where it binds. `members` are ISO 3166-1 alpha-2 codes or other jurisdictions' names.

    A member without a term in `terms` is one at all times.
    """

    name: str
    display_name: str = ""
    members: tuple[str, ...] = ()
    source: str = ""
    terms: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class Tenant:
    """A customer whose requests rules may single out. Requests that name any other are rejected.

    When a priority tier does not fit, its tenants share what there is in proportion to `weight`. `country` is where it is
    established (ISO 3166-1 alpha-2): some laws follow a controller's or processor's establishment wherever the data is
    (GDPR Art. 3(1)). None: unknown.
    """

    name: str
    display_name: str = ""
    weight: float = 1.0
    country: str | None = None


@dataclass(frozen=True, slots=True)
class DataClass:
    """A kind of data that rules may single out. Requests that name any other are rejected."""

    name: str
    display_name: str = ""


@dataclass(frozen=True, slots=True)
class NameServer:
    """A name server of a zone. Inside the zone it needs its addresses here: nobody else could say them.

    `country` is where it stands, `operator_country` where whoever runs it is established. None: unknown, and so outside
    of every residency rule that binds edges.
    """

    name: str
    ipv4: tuple[str, ...] = ()
    ipv6: tuple[str, ...] = ()
    country: str | None = None
    operator_country: str | None = None


@dataclass(frozen=True, slots=True)
class RecordSet:
    """Records of a zone that have name and type in common, written as in a zone file (RFC 1035 §5).

    `name` is relative to the zone unless a dot ends it; `@` is the zone's apex. So are names in `data`. `type` is a
    mnemonic in upper case, or `TYPE` and a number (RFC 3597 §5). `ttl` in seconds; None: the zone's.
    """

    name: str
    type: str
    data: tuple[str, ...]
    ttl: int | None = None


@dataclass(frozen=True, slots=True)
class Zone:
    """A DNS zone that the edges answer for. Times in seconds (RFC 1035 §3.3.13, RFC 2308 §4 for `minimum`)."""

    name: str
    primary_ns: str
    hostmaster: str
    name_servers: tuple[NameServer, ...] = ()
    ttl: int = 3600
    refresh: int = 7200
    retry: int = 900
    expire: int = 1209600
    minimum: int = 60
    records: tuple[RecordSet, ...] = ()
    dnssec: bool = False
    """Whether its answers are signed (docs/dnssec.md)."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything operators write, as one value. Its compiled form is `gtm.core.policy.snapshot.Snapshot`."""

    regions: tuple[Region, ...] = ()
    zones: tuple[Zone, ...] = ()
    services: tuple[Service, ...] = ()
    residency_rules: tuple[ResidencyRule, ...] = ()
    spillover_rules: tuple[SpilloverRule, ...] = ()
    jurisdictions: tuple[Jurisdiction, ...] = ()
    tenants: tuple[Tenant, ...] = ()
    data_classes: tuple[DataClass, ...] = ()


class Location(NamedTuple):  # made for each client that is new: a frozen dataclass takes four times as long
    """Where a client is, as far as a GeoIP database or an operator's override says. None: unknown.

    `network` is the widest CIDR around the client for which all of this holds: its length is the SCOPE
    PREFIX-LENGTH of a DNS answer (RFC 7871 §7.2.1). `source` names what said so: `geoip`, `override` or `none`.
    `anonymous`: the network is a VPN, a proxy, Tor or a hosting provider, so that the client may be anywhere.
    `accuracy_km` is the radius around the coordinates within which the database expects the client. `central`: nobody
    said coordinates, and these are the middle of its country. `doubtful`: measured round trips contradict it
    (docs/latency.md); whoever locates clients leaves it False, for a ranking finds out by its latency table.

    A client may be a subnet, of which DNS resolvers keep the answer for every part. `subnet` is it, where it holds more
    than `network`. `spans` are its countries, where what a fence looks at differs inside it: `?` for parts that nobody
    can locate, `*` alone for one of too many parts to look at. Then `anonymous` says that some part is, `accuracy_km` is
    the worst, and `country` the one that all parts are in. `parts` are its networks and what is claimed of each
    (`gtm.core.latency.doubt.claim_of`), but those that an override places.
    """

    country: str | None = None
    subdivision: str | None = None
    continent: str | None = None
    lat: float | None = None
    lon: float | None = None
    asn: int | None = None
    network: str | None = None
    prefix_length: int = 0
    source: str = "none"
    anonymous: bool = False
    accuracy_km: float | None = None
    subnet: str | None = None
    spans: tuple[str, ...] = ()
    central: bool = False
    parts: tuple[tuple[str, str], ...] = ()
    doubtful: bool = False


UNKNOWN_LOCATION = Location()
UNLOCATED = "?"
"""Among the countries that a subnet spans: a part of it that nobody can locate."""
ANYWHERE = ("*",)
"""What a subnet spans that has too many parts to look at."""


class Request(NamedTuple):  # made for each question
    """One question: which region should serve this? None: the request does not say."""

    service: str
    location: Location = UNKNOWN_LOCATION
    tenant: str | None = None
    data_class: str | None = None
    model: str | None = None
    affinity: str | None = None
    priority: Priority | None = None


@dataclass(frozen=True, slots=True)
class EndpointHealth:
    """An endpoint's health. `since` is a POSIX time in seconds, `detail` the last failure in words.

    `recovered`: it is up after having been down, so that slow start counts from `since`.
    """

    status: HealthStatus = HealthStatus.UNKNOWN
    since: float = 0.0
    detail: str = ""
    latency_ms: float | None = None
    recovered: bool = False


UNKNOWN_HEALTH = EndpointHealth()
