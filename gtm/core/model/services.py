"""Services as a policy describes them: members and steering, host names, and the zones that these lie in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from gtm.core.model.cors import Cors
from gtm.core.model.names import absolute
from gtm.core.model.regions import Capacity


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


class Families(StrEnum):
    """What A and AAAA answers of a service have in common."""

    TOGETHER = "together"
    """One decision, whatever the type asked for: both families are those of the region chosen."""
    SEPARATE = "separate"
    """A pool for each: A is decided among members that have IPv4 addresses, AAAA among those that have IPv6 ones."""


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


class Handoff(StrEnum):
    """Whether edges vouch for the requests of a service that they send to a region (docs/handoff.md)."""

    NONE = "none"
    SIGN = "sign"
    """Redirects and look-ups carry a signed handoff, which the region's balancer verifies."""


class Push(StrEnum):
    """How a region's balancer without room sends a request of a service to a peer that has some (docs/spill-back.md)."""

    CARRY = "carry"
    """The balancer carries it there and back."""
    REDIRECT = "redirect"
    """It answers 307, and the client goes there."""
    NEVER = "never"
    """The balancer pushes nothing: the request waits."""


class HttpAnswer(StrEnum):
    """How edges answer a service's requests over HTTP (docs/carry.md)."""

    REDIRECT = "redirect"
    """307 to the region's endpoint."""
    CARRY = "carry"
    """The edge takes the request to the region and its answer back."""


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
    `families` says whether A and AAAA have one pool or two.
    `max_answers` is how many addresses an answer has at most, None: all. `https_record`: None for none.

    `service_time_ms` is how long a request occupies its place in a region, as far as no load report says it.
    `exploration` is the share (0–1) of requests spread over the other eligible regions, to measure the way there.
    `cors`: which pages may read gtm's own answers, None: those of no other origin.
    """

    name: str
    members: tuple[Member, ...]
    display_name: str = ""
    hostnames: tuple[str | HostName, ...] = ()
    zone: str | None = None
    ttl: int = 30
    min_ttl: int = 5
    families: Families = Families.TOGETHER
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
    answer: HttpAnswer = HttpAnswer.REDIRECT
    handoff: Handoff = Handoff.NONE
    push: Push = Push.CARRY
    cors: Cors | None = None

    @property
    def names(self) -> tuple[HostName, ...]:
        """The host names, with what they state."""
        return tuple(HostName(item) if isinstance(item, str) else item for item in self.hostnames)


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
    """A DNS zone that the edges answer for. Times in seconds (RFC 1035 §3.3.13, RFC 2308 §4 for `minimum`).

    `explanations`: names of services explain their answers to who asks for TXT. `challenges` are answers to certificate authorities
    (RFC 8555 §8.4), which ACME clients write one by one: as little a part of a zone as code as a drain is of a region.
    """

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
    explanations: bool = True
    challenges: tuple[RecordSet, ...] = ()

    @property
    def sets(self) -> tuple[RecordSet, ...]:
        """All that it answers beside services, challenges included: where records have a TXT set, a challenge is in it, with its TTL (RFC 2181 §5.2)."""
        if not self.challenges:
            return self.records
        ttls = {absolute(one.name, self.name): one.ttl for one in self.records if one.type == "TXT"}
        return self.records + tuple(
            replace(one, ttl=ttls.get(absolute(one.name, self.name), one.ttl)) for one in self.challenges
        )
