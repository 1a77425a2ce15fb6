"""How requests end, and why: the codes that answers, counters and logs share."""

from __future__ import annotations

from enum import StrEnum


class FenceError(RuntimeError):
    """A region outside the fence was about to be named. Never raised unless gtm itself is wrong."""


class UnknownNameError(LookupError):
    """A request names a service, tenant, data class or model that the policy does not know.

    Guessing would be a way out of the fence: a misspelt tenant would match no rule.
    """

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"there is no {kind} `{name}`")
        self.kind = kind
        self.name = name


class Outcome(StrEnum):
    """The outcome of a request."""

    SERVED = "served"
    REFUSED_RESIDENCY = "refused_residency"
    """The law forbids every region that could serve (HTTP 451, RFC 7725)."""
    REFUSED_UNAVAILABLE = "refused_unavailable"
    """No region can serve, whatever the law says (HTTP 503)."""
    REFUSED_EDGE = "refused_edge"
    """Another edge may answer: a rule that binds edges concerns the request, and this edge stands outside of it (HTTP
    421)."""
    REFUSED_OVERLOAD = "refused_overload"
    """Regions could serve, but the plan has no capacity left for this request (HTTP 503, or 429 to a tenant beyond
    its fair share)."""


class Reason(StrEnum):
    """Why this answer and no other."""

    LOWEST_LATENCY = "lowest_latency"
    NEAREST = "nearest"
    WEIGHTED = "weighted"
    AFFINITY = "affinity"
    FAILOVER_ORDER = "failover_order"
    SPILLOVER = "spillover"
    """The plan sends a part of such requests here, because regions that rank before it have no room for them."""
    SLOW_START = "slow_start"
    """A region that ranks before it recovered lately and takes only a part of its requests yet."""
    DRAINING_SESSION = "draining_session"
    """The region drains, and this client's affinity keeps it there for now."""
    CANARY = "canary"
    """The client is among the share of clients that a canary serves."""
    EXPLORATION = "exploration"
    """One of the few requests spread over all eligible regions, to measure the way there."""
    QUOTA_EXHAUSTED = "quota_exhausted"
    """The plan would spill the request, but a spillover quota is used up: it goes to its home region."""
    FREE_SLOTS = "free_slots"
    """The region has free slots, and what the plan chose for this one request has none: an edge's correction, over HTTP."""
    LOCATION_UNKNOWN = "location_unknown"
    """Nothing to rank by: the members stand in the order written."""
    HEALTH_IGNORED = "health_ignored"
    FENCE_EMPTY = "fence_empty"
    """The rules leave none of the service's regions."""
    FENCE_UNUSABLE = "fence_unusable"
    """The rules leave regions, none of them usable, while others outside are."""
    EDGE_OUTSIDE = "edge_outside"
    """The edge that was asked stands outside of a rule that binds edges."""
    NONE_USABLE = "none_usable"
    SHED = "shed"
    """Demand exceeds all capacity, and requests of this priority are shed first."""
    OVER_FAIR_SHARE = "over_fair_share"
    """Demand exceeds capacity, and this tenant asks for more than its fair share of it."""
