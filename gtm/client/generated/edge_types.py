"""What gtm edge takes and answers, by its OpenAPI document. Written by `make client`."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from gtm.client.objects import JsonObject


class Batch(TypedDict):
    """Look-ups."""

    requests: list[Lookup]


class BatchAnswer(JsonObject):
    """Answers in the order asked."""

    results: list[Route | Refusal | Problem]


class Beacons(TypedDict):
    """What a browser measured."""

    samples: list[dict[str, Any]]


class Candidate(JsonObject):
    """A member region, and what became of it."""

    region: str
    display_name: str
    country: str
    operator_country: str | None
    rank: int
    share: float
    """Of such requests, 0 to 1."""
    estimate_ms: float | None
    """Estimated round trip."""
    estimate_source: str | None
    """What that rests on."""
    processing_ms: float | None
    """What the region itself takes."""
    distance_km: float | None
    excluded: (
        Literal[
            "residency",
            "disabled",
            "draining",
            "no_address",
            "model_unavailable",
            "health_unknown",
            "unhealthy",
            "addresses_down",
        ]
        | None
    )
    rules: list[str]
    """Those that exclude it."""
    monitored: list[str]
    """Those that would, if they were enforced."""
    why: str
    endpoints: list[JsonObject]


class Client(JsonObject):
    """Whom the answer is about."""

    ip: str | None
    country: str | None
    network: str | None
    """The database's network that the address lies in."""
    source: Literal["geoip", "override", "none"]
    subnet: str
    spans: list[str]


class Endpoint(JsonObject):
    """Where to send the request."""

    url: str
    ipv4: list[str]
    ipv6: list[str]
    cname: str | None


class Liveness(JsonObject):
    """It lives."""

    status: str


class Lookup(TypedDict):
    """One look-up of a batch."""

    service: NotRequired[str | None]
    """Name of the service; required unless `host` is given."""
    client_ip: NotRequired[str | None]
    """IPv4 or IPv6 address of the client. Left out: whoever asks. Others than yourself take a token."""
    tenant: NotRequired[str | None]
    """A tenant of the policy."""
    data_class: NotRequired[str | None]
    """A data class of the policy."""
    host: NotRequired[str | None]
    """A host name of the service, in place of `service`: with the tenant and data class that it states."""
    model: NotRequired[str | None]
    """Only regions that serve this model are candidates."""
    affinity: NotRequired[str | None]
    """Any text: keeps the client on its region, for services with `affinity: key`."""
    priority: NotRequired[Literal["real_time", "near_real_time", "batch"] | None]
    """How urgent it is; the service's own if left out, and where a higher one is stated. The lowest is
    shed first.
    """
    explain: NotRequired[bool | None]
    """The whole decision."""


class Problem(JsonObject):
    """What went wrong (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: Literal[
        "invalid_request",
        "contradiction",
        "unauthorized",
        "forbidden",
        "untrusted_proxy",
        "origin_not_allowed",
        "not_found",
        "unknown_service",
        "method_not_allowed",
        "request_timeout",
        "content_too_large",
        "uri_too_long",
        "unsupported_media_type",
        "foreign_host",
        "refused_edge",
        "unknown_tenant",
        "unknown_data_class",
        "unknown_model",
        "over_fair_share",
        "refused_residency",
        "internal_error",
        "not_ready",
        "refused_overload",
        "refused_unavailable",
    ]
    error: JsonObject
    """The same in OpenAI's form (`message`, `type`, `code`, `param`): where a service is asked by its
    host name or `/r/`.
    """


class Readiness(JsonObject):
    """It answers."""

    status: str
    revision: int
    epoch: int


class Refusal(JsonObject):
    """Why a request is served nowhere, or not by this edge: a problem with the decision."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: Literal[
        "invalid_request",
        "contradiction",
        "unauthorized",
        "forbidden",
        "untrusted_proxy",
        "origin_not_allowed",
        "not_found",
        "unknown_service",
        "method_not_allowed",
        "request_timeout",
        "content_too_large",
        "uri_too_long",
        "unsupported_media_type",
        "foreign_host",
        "refused_edge",
        "unknown_tenant",
        "unknown_data_class",
        "unknown_model",
        "over_fair_share",
        "refused_residency",
        "internal_error",
        "not_ready",
        "refused_overload",
        "refused_unavailable",
    ]
    service: str
    outcome: Literal["served", "refused_residency", "refused_unavailable", "refused_edge", "refused_overload"]
    region: None
    endpoint: None
    ttl: int
    """Seconds for which the answer may be acted on; 0: for this request."""
    reason: Literal[
        "lowest_latency",
        "nearest",
        "weighted",
        "affinity",
        "failover_order",
        "spillover",
        "slow_start",
        "draining_session",
        "canary",
        "exploration",
        "quota_exhausted",
        "free_slots",
        "location_unknown",
        "health_ignored",
        "fence_empty",
        "fence_unusable",
        "edge_outside",
        "none_usable",
        "shed",
        "over_fair_share",
    ]
    reasons: list[str]
    """The same in sentences: why this region, and why none that ranks before it."""
    client: Client
    rules: list[Rule]
    """Residency rules that matched."""
    revision: int
    """Of the policy that the answer comes from."""
    epoch: int
    """Of the state of the world."""
    request: JsonObject
    """The request as it was understood."""
    ranking_class: str
    """The requests planned together with this one."""
    shed: float
    """The share of them that is refused for want of capacity."""
    candidates: list[Candidate]
    """Every member region in rank order."""
    free_slots: JsonObject
    """What came of asking for free slots, where balancers report them."""
    error: JsonObject
    """The same in OpenAI's form (`message`, `type`, `code`, `param`): where a service is asked by its
    host name or `/r/`.
    """
    edge: JsonObject
    """Where this edge stands, and which stand inside."""


class Route(JsonObject):
    """Where a request is served."""

    service: str
    outcome: Literal["served", "refused_residency", "refused_unavailable", "refused_edge", "refused_overload"]
    region: str
    endpoint: Endpoint
    ttl: int
    """Seconds for which the answer may be acted on; 0: for this request."""
    reason: Literal[
        "lowest_latency",
        "nearest",
        "weighted",
        "affinity",
        "failover_order",
        "spillover",
        "slow_start",
        "draining_session",
        "canary",
        "exploration",
        "quota_exhausted",
        "free_slots",
        "location_unknown",
        "health_ignored",
        "fence_empty",
        "fence_unusable",
        "edge_outside",
        "none_usable",
        "shed",
        "over_fair_share",
    ]
    reasons: list[str]
    """The same in sentences: why this region, and why none that ranks before it."""
    client: Client
    rules: list[Rule]
    """Residency rules that matched."""
    revision: int
    """Of the policy that the answer comes from."""
    epoch: int
    """Of the state of the world."""
    request: JsonObject
    """The request as it was understood."""
    ranking_class: str
    """The requests planned together with this one."""
    shed: float
    """The share of them that is refused for want of capacity."""
    candidates: list[Candidate]
    """Every member region in rank order."""
    free_slots: JsonObject
    """What came of asking for free slots, where balancers report them."""
    handoff: str
    """To be sent to the endpoint as header `gtm-handoff`, for `ttl` seconds."""


class Rule(JsonObject):
    """A residency rule that matched."""

    name: str
    mode: Literal["enforce", "monitor"]
    legal_basis: str
    because: list[str]


class Samples(TypedDict):
    """What a balancer measured."""

    samples: list[dict[str, Any]]


class Taken(JsonObject):
    """What became of samples."""

    accepted: int
    refused: dict[str, int]
    """How many, by reason."""


class Targets(JsonObject):
    """Regions to measure."""

    targets: list[JsonObject]
