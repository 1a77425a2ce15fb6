"""What edges and balancers report to control, and what it answers.

The bounds of a field stand beside its type: `gtm.api.reported` describes reports and checks them by these. msgspec, which reads reports, goes by
the types alone, so that everything that is wrong with a report is told at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

from gtm.core.capacity.durations import BOUNDS, MOST_TOLD, Took, TookBy
from gtm.core.handoff.keys import MOST
from gtm.core.health.history import Probed
from gtm.core.latency.doubt import Witness
from gtm.core.latency.samples import Delta
from gtm.core.model.certificates import ShownCertificate
from gtm.core.model.state import EndpointHealth, Plan
from gtm.core.policy.edges import NOWHERE, EdgePlace
from gtm.core.quota.leases import LeaseGrant, LeaseUse

MAX_REVISION = 2**63 - 1
MAX_DELTAS = 20_000
"""Deltas in one report, and as many witnesses."""
MAX_PUSHES = 1000
"""Kinds of pushes that control takes in one report."""
MAX_TIMED = 10**9
"""Requests in one bucket of one report."""

MAX_SHOWN = 256
"""Model servers that one report shows, and tenants."""
MAX_SHOWN_NAMES = 16
"""Models of a server that one report shows, and adapters."""
MAX_SHOWN_TEXT = 300
"""Characters of a name there, and of why."""
MAX_SHOWN_TEXTS = 256 * 1024
"""Characters of all of these together."""
MAX_SHOWN_NUMBER = 10**12

OPAQUE = "opaque"
"""Beside a type: it is not described further."""


@dataclass(frozen=True, slots=True)
class FieldBounds:
    """What a value must keep to: numbers from `least` to `most`; a text, a list or an object of no more than `length`; a text of a `pattern`."""

    least: int | None = None
    most: int | None = None
    length: int | None = None
    pattern: str | None = None


Count: TypeAlias = Annotated[int, FieldBounds(0)]
Amounts: TypeAlias = dict[str, Annotated[float, FieldBounds(0)]]
Number: TypeAlias = Annotated[int, FieldBounds(0, MAX_REVISION)]
"""A revision or an epoch."""
Period: TypeAlias = Annotated[float, FieldBounds(0, 3600)]
"""Seconds that counts are of."""
Keys: TypeAlias = Annotated[
    tuple[Annotated[str, FieldBounds(pattern="^[A-Za-z0-9_-]{43}$")], ...], FieldBounds(length=MOST)
]
Deltas: TypeAlias = Annotated[tuple[Delta, ...], FieldBounds(length=MAX_DELTAS)]
Witnesses: TypeAlias = Annotated[tuple[Witness, ...], FieldBounds(length=MAX_DELTAS)]


@dataclass(frozen=True, slots=True)
class DnsLimits:
    """What an edge's DNS grants a client prefix (/24 or /56) each second and process (`gtm.settings.DnsSettings`)."""

    replies: Count
    """Over UDP; 0: any number."""
    excess_bytes: Count
    """Beyond twice those of the queries."""
    slip: Count
    """Each so-many-th limited reply is sent, without records; 0: none."""
    exempt: Count = 0
    """Networks that are not limited."""


@dataclass(frozen=True, slots=True)
class EdgeReport:
    """Edge → control, `POST /v1/edges/{name}/report`: what this vantage sees, what it answers from, and what it was asked.

    Revision and epoch are those of the View in use. `demand` counts by row (`gtm.telemetry.decision_key`, without its first part), `leases` is what was
    done with the quotas' leases. `overruled` is `gtm.core.health.verdicts.overruled`'s, `handoff_keys` are `gtm.core.handoff.keys.key_text`'s,
    `addresses` is `gtm.core.health.addresses`', `dns` counts `gtm.telemetry.dns_part`. What edges of before do not tell is None.
    """

    version: Annotated[str, FieldBounds(length=100, pattern="^[!-~]*$")]
    revision: Number
    epoch: Number
    health: dict[str, dict[str, EndpointHealth]]
    """Region → endpoint URL → health."""
    demand: Amounts = field(default_factory=dict)
    """Decisions by row over the last `seconds`."""
    seconds: Period = 0.0
    leases: LeaseUse | None = None
    latency: Deltas = ()
    """What was learned of round trips: level, key, region, trusted, samples, sources (63 bits), centre and spread in ms, POSIX seconds."""
    witnesses: Witnesses = ()
    """What balancers' samples say of claimed locations: network, claim, region, reporter, samples against it, samples that fit it, quickest round trip in ms, POSIX seconds."""
    plan: Annotated[Plan, OPAQUE] | None = None
    """The plan that the edge follows, as the feed sent it, if the last reply wanted it."""
    overruled: Annotated[tuple[str, ...], FieldBounds(length=10_000)] = ()
    """Regions for which it goes by its own probes against the common verdict."""
    place: EdgePlace = NOWHERE
    """Where the edge stands, who runs it, and the region it runs in; absent: unknown."""
    handoff_keys: Keys = ()
    """The public keys (Ed25519, base64url) that it signs handoffs with, will or did."""
    corrections: Amounts = field(default_factory=dict)
    """Requests moved by free slots over the last `seconds`: the region that the plan chose (empty: it refused them), a tab, the region that took them."""
    dns: Annotated[Amounts, FieldBounds(length=500)] | None = None
    """What DNS did over the last `seconds`, tabs between: `answered`, type, response code and transport; `limited` and what became of the reply; `dropped` and why."""
    dns_limits: DnsLimits | None = None
    """What DNS grants a client prefix each second and process."""
    probed: Annotated[tuple[Probed, ...], FieldBounds(length=10_000)] | None = None
    """Outcomes of probes since the last report: region, endpoint URL, ms, HTTP status, failure (empty: none)."""
    certificates: (
        Annotated[tuple[Annotated[ShownCertificate, OPAQUE], ...], FieldBounds(length=10_000)] | None
    ) = None
    """What endpoints showed to their last probe: region, url, and the certificate. Null: no news."""
    kept: Number | None = None
    """The revision on its disk; absent: not told."""
    addresses: dict[str, Annotated[dict[str, dict[str, EndpointHealth]], OPAQUE]] | None = None
    """Family (`ipv4`, `ipv6`) → region → address, a space, endpoint URL → health as above; unknown: never up from here. Null: an edge of an earlier version."""


@dataclass(frozen=True, slots=True)
class EdgeReply:
    """Control → edge, in answer to its report."""

    leases: LeaseGrant | None = None
    wants_plan: bool = False
    """Control has just started: the next report should hold the plan."""
    notice: str = ""
    """For people: what is wrong with this edge."""


Shown: TypeAlias = Annotated[str, FieldBounds(length=MAX_SHOWN_TEXT)]
ShownNames: TypeAlias = Annotated[tuple[Shown, ...], FieldBounds(length=MAX_SHOWN_NAMES)]
Measure: TypeAlias = Annotated[float, FieldBounds(0, MAX_SHOWN_NUMBER)]
ShownCount: TypeAlias = Annotated[int, FieldBounds(0, MAX_SHOWN_NUMBER)]


@dataclass(frozen=True, slots=True)
class ServerShown:
    """A model server, as one balancer sees it."""

    url: Shown
    state: Shown
    """By its checks and its answers: `up`, `down` or what else docs/backend-health.md names."""
    why: Shown = ""
    """In words; empty: nothing is wrong."""
    usable: bool = True
    """Whether requests are sent there."""
    in_flight: ShownCount = 0
    """Requests that this balancer has there."""
    outstanding: Measure = 0.0
    """Requests that it takes to be there, those of others among them."""
    work_s: Measure = 0.0
    """Seconds of work that it expects of its own."""
    slots: ShownCount | None = None
    """Null: unknown."""
    memory: Measure | None = None
    """The used part of its KV cache, or else of its GPU memory. Null: it does not say."""
    models: ShownNames | None = None
    """Those that are loaded. Null: it does not say."""
    adapters: ShownNames | None = None
    """LoRA adapters that are loaded. Null: it does not say."""
    version: Shown = ""
    """What the balancer's file says of its version."""
    ejections: ShownCount = 0
    """So far, since the balancer knows it."""


@dataclass(frozen=True, slots=True)
class TenantShown:
    """What one balancer has of a tenant; without a name: requests that state none."""

    name: Shown
    weight: Measure = 1.0
    """Its share beside other tenants' where slots are scarce."""
    running: ShownCount = 0
    waiting: ShownCount = 0
    requests_per_second: Measure = 0.0
    """Requests that ended."""
    errors_per_second: Measure = 0.0
    """Requests that ended in an error of the servers (5xx)."""
    refused_per_second: Measure = 0.0
    """Requests that were not admitted: the tenant's budget is spent, or they would have waited too long."""


@dataclass(frozen=True, slots=True)
class RegionShown:
    """The inside of a region as one of its balancers sees it; what a report has no place for is counted."""

    servers: Annotated[tuple[ServerShown, ...], FieldBounds(length=MAX_SHOWN)] = ()
    tenants: Annotated[tuple[TenantShown, ...], FieldBounds(length=MAX_SHOWN)] = ()
    servers_left_out: ShownCount = 0
    tenants_left_out: ShownCount = 0

    def texts(self) -> int:
        """Characters of all names and words."""
        named = sum(len(one.name) for one in self.tenants)
        return named + sum(
            sum(
                map(
                    len,
                    (one.url, one.state, one.why, one.version, *(one.models or ()), *(one.adapters or ())),
                )
            )
            for one in self.servers
        )


Bucket: TypeAlias = tuple[
    Annotated[int, FieldBounds(0, len(BOUNDS))], Annotated[int, FieldBounds(1, MAX_TIMED)]
]
"""The place of its upper bound (`gtm.core.capacity.durations.BOUNDS`), and how many requests are in it."""
Buckets: TypeAlias = Annotated[tuple[Bucket, ...], FieldBounds(length=len(BOUNDS) + 1)]


@dataclass(frozen=True, slots=True)
class TimesTold:
    """What requests of a service and a model took; each bucket once."""

    service: Shown
    model: Shown = ""
    """Empty: they name none; `other`: all that nobody has declared."""
    first_byte: Buckets = ()
    """These are counted by the seconds to the first byte of the answer's body."""
    end: Buckets = ()
    """These are counted by the seconds to the answer's end."""

    @classmethod
    def of(cls, table: TookBy) -> tuple[TimesTold, ...]:
        """A table as it is told."""
        return tuple(
            cls(service, model, tuple(sorted(took.first_bytes.items())), tuple(sorted(took.ends.items())))
            for (service, model), took in table.items()
        )


def table_of(told: Iterable[TimesTold]) -> TookBy:
    """The table that was told."""
    return {(one.service, one.model): Took(dict(one.first_byte), dict(one.end)) for one in told}


@dataclass(frozen=True, slots=True)
class BalancerReport:
    """Balancer → control, `POST /v1/balancers/{name}/report`: what was done with the quotas' leases, and its public keys.

    `latency` and `witnesses` are what was learned of round trips to its clients and of their claimed locations since the last report, of its own region
    alone; who speaks is the token, whatever a witness says.
    """

    leases: LeaseUse | None = None
    handoff_keys: Keys = ()
    """The public keys (Ed25519, base64url) that it signs pushes with, will or did."""
    region: str = ""
    """The region that it is of."""
    version: str = ""
    tiers: dict[str, tuple[Count, Count]] = field(default_factory=dict)
    """Requests that run and that wait, by tier."""
    latency: Deltas = ()
    witnesses: Witnesses = ()
    address: Annotated[str, FieldBounds(length=60)] = ""
    """Where other balancers of the region reach it by UDP: an address and a port; empty: nowhere. They are told of it if the report comes from there, an endpoint of the region is there, or GTM_PEER_ALLOW has it."""
    pushes: Annotated[Amounts, FieldBounds(length=MAX_PUSHES)] = field(default_factory=dict)
    """Requests that found no slot over the last `seconds`: the service, a tab, the region that took them (empty: none), a tab, why. Without a region and `came` as why: requests that it served because another region had no slot."""
    seconds: Period = 1.0
    inside: RegionShown | None = None
    """Its model servers and tenants. Null: no news."""
    times: Annotated[tuple[TimesTold, ...], FieldBounds(length=MOST_TOLD)] = ()
    """What requests took that its model servers had and that ended since the last report, by service and model."""
    run: Annotated[str, FieldBounds(length=64)] = ""
    """What tells this start of it from others."""
    number: Number = 0
    """Of this report, growing within a run: `times` and `pushes` of a report with a number that is not above the last one's are not counted again. 0: it has none, and tells no times."""


@dataclass(frozen=True, slots=True)
class BalancerReply:
    """Control → balancer, in answer to its report: the quotas' leases it holds from now on."""

    leases: LeaseGrant | None = None
    notice: str = ""
    """For people, to be said in the balancer's log; empty: nothing."""
