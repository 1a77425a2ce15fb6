"""Values of a judgement: what a balancer sees of a request, what may be wrong with a handoff, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from gtm.core.decision.decide import Routing
from gtm.core.handoff.claims import Claims
from gtm.core.model.regions import Endpoint
from gtm.core.model.requests import UNKNOWN_LOCATION, Location
from gtm.core.model.services import Priority
from gtm.core.policy.snapshot import CompiledService


class Flaw(StrEnum):
    """Why a handoff counts as none, or as less. Its value is the code that answers, counters and logs have."""

    MALFORMED = "handoff_malformed"
    UNKNOWN_KEY = "handoff_unknown_key"
    BAD_SIGNATURE = "handoff_bad_signature"
    UNVERIFIED = "handoff_unverified"
    """Not looked at: so many of the same client network's were not believed a moment ago."""
    WRONG_ISSUER = "handoff_wrong_issuer"
    WRONG_REGION = "handoff_wrong_region"
    EXPIRED = "handoff_expired"
    EARLY = "handoff_early"
    TOO_LONG = "handoff_too_long"
    UNKNOWN_NAME = "handoff_unknown_name"
    MISMATCH = "handoff_mismatch"
    REPLAYED = "handoff_replayed"
    UNPROVEN = "handoff_unproven"
    ELSEWHERE = "handoff_elsewhere"
    """Believed, but for what it states: the client is not in the network that it was given to."""
    FENCE_DIFFERS = "handoff_fence_differs"
    """Believed, but nobody else is handed the request: the edge's fence was another."""


class Code(StrEnum):
    """The outcome of judging a request."""

    SERVE = "serve"
    WRONG_REGION = "wrong_region"
    WRONG_REGION_AGAIN = "wrong_region_again"
    FENCE_EMPTY = "fence_empty"
    FENCE_UNUSABLE = "fence_unusable"
    NONE_USABLE = "none_usable"
    UNKNOWN_SERVICE = "unknown_service"
    UNKNOWN_TENANT = "unknown_tenant"
    UNKNOWN_DATA_CLASS = "unknown_data_class"
    UNKNOWN_MODEL = "unknown_model"

    @property
    def status(self) -> int:
        """The HTTP status: 421 (RFC 9110 §15.5.20), 451 (RFC 7725)."""
        return _STATUS[self]

    @property
    def words(self) -> str:
        """The same for people."""
        return _WORDS[self]


_STATUS = {
    Code.SERVE: 200,
    Code.WRONG_REGION: 421,
    Code.WRONG_REGION_AGAIN: 421,
    Code.FENCE_EMPTY: 451,
    Code.FENCE_UNUSABLE: 451,
    Code.NONE_USABLE: 503,
    Code.UNKNOWN_SERVICE: 404,
    Code.UNKNOWN_TENANT: 404,
    Code.UNKNOWN_DATA_CLASS: 404,
    Code.UNKNOWN_MODEL: 404,
}
_WORDS = {
    Code.SERVE: "this region serves it",
    Code.WRONG_REGION: "this region may not serve this request, another one may: send it there",
    Code.WRONG_REGION_AGAIN: "this region may not serve this request, and it was sent on once: ask an edge where it belongs",
    Code.FENCE_EMPTY: "residency rules forbid every region of the service for this request",
    Code.FENCE_UNUSABLE: "no region in which this request may be served is usable now, and residency rules forbid the others",
    Code.NONE_USABLE: "no region of the service is usable now",
    Code.UNKNOWN_SERVICE: "neither host name nor handoff says which service this is for: ask by its host name, or through an edge",
    Code.UNKNOWN_TENANT: "the policy has no tenant of the name that the host name or key states",
    Code.UNKNOWN_DATA_CLASS: "the policy has no data class of the name that the host name or key states",
    Code.UNKNOWN_MODEL: "no region serves a model of this name",
}


# --- How urgent a request is at a region's balancer: who may claim what.
#
# Theory. A priority takes slots from others, so a request may claim no more than somebody grants it, and anybody may claim less. Granted
# is, by whom:
#
#     the policy         the service's own priority, to everybody
#     the balancer's     the tenant's `priority`: in its place to who shows a key of the tenant; to others only if it is lower,
#     file               for a host name names a tenant without proof
#     the file's         any, to who connects from one of these networks
#     `priority_from`
#     a balancer         what it granted itself, which its handoff says: exactly that of a push, that at the most of a redirect
#
# What an edge's handoff says of it is a statement like the header `gtm-priority`: edges sign what clients state.


_ORDER = {priority: number for number, priority in enumerate(Priority)}
"""A priority's place, counted from the highest one."""


class PriorityGrant(NamedTuple):
    """What a balancer's own file grants a request.

    `setting`: the priority that it has for the tenant, None: none. `proven`: a key shows that the request is that tenant's. `free`: it
    comes from a network whose clients may claim any priority.
    """

    setting: Priority | None = None
    proven: bool = False
    free: bool = False


NOBODY = PriorityGrant()


def lower(one: Priority, other: Priority) -> Priority:
    """The less urgent of two priorities."""
    return one if _ORDER[one] >= _ORDER[other] else other


def no_higher(stated: Priority, service: CompiledService | None) -> Priority | None:
    """What counts of a priority that is stated at an edge: it takes capacity from others, so it lowers the service's own, and never raises it."""
    if service is None:
        return stated
    own = service.service.priority
    return None if lower(own, stated) is own else stated  # remembered as those that state none


def higher(one: Priority, other: Priority) -> Priority:
    """The more urgent of two priorities."""
    return one if _ORDER[one] <= _ORDER[other] else other


def priority_of(
    service: Priority, stated: Priority | None, grant: PriorityGrant, claims: Claims | None
) -> Priority:
    """The priority that a request has.

    Args:
        service: the service's own.
        stated: what the request's header says; None: nothing that can be read.
        grant: what the balancer's file grants.
        claims: of a handoff that is believed and counts for this client; None: there is none.
    """
    signed = None if claims is None else claims.priority
    if claims is not None and claims.is_push and signed is not None:
        return signed
    own = service
    if grant.setting is not None:
        own = grant.setting if grant.proven else lower(grant.setting, service)
    most = Priority.REAL_TIME if grant.free else own
    if claims is not None and claims.hop and signed is not None:
        most = higher(most, signed)
    wanted = stated or signed
    return own if wanted is None else lower(wanted, most)


# --- What a balancer saw, and what it makes of it. ---


@dataclass(frozen=True, slots=True)
class Seen:
    """What a balancer finds out by itself of a request.

    `service`, `tenant` and `data_class` are those of the host name that it came by, or of a verified key; a header is
    neither. `client` is the address in network order, empty where it is unknown, and `location` where that is. `model`
    and `priority` are as the request states them: no fence depends on these. `grant` says what priority it may claim. None: nothing
    says it. `otherwise` is the service that the balancer's file names for requests whose host name says none; the handoff of a carried request counts before it.
    """

    location: Location = UNKNOWN_LOCATION
    client: bytes = b""
    service: str | None = None
    tenant: str | None = None
    data_class: str | None = None
    model: str | None = None
    priority: Priority | None = None
    affinity: str | None = None
    grant: PriorityGrant = NOBODY
    otherwise: str | None = None


class Reuse(StrEnum):
    """What a balancer remembers of a handoff's nonce."""

    NEW = "new"
    USED = "used"
    FULL = "full"
    """Nothing, and there is no room: whether it was used is not known."""


@dataclass(frozen=True, slots=True)
class Presented:
    """A handoff whose signature was verified, by a key of the issuer that it names.

    `location` is where the network in the claims is, by the balancer's own data, `pushed` where that of a pushed request's client
    is: `UNKNOWN_LOCATION` if they name none.
    """

    claims: Claims
    location: Location = UNKNOWN_LOCATION
    pushed: Location = UNKNOWN_LOCATION


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a request.

    `region` and `endpoint` are where it belongs, of `WRONG_REGION` only. `allowed` is the mask of the regions in which
    the law lets it be served, `reach` of those that it may be pushed to, both of the View's snapshot. `flaws` say what was
    not believed of the handoff, `believed` what of it was. `routing` is what the rest goes by (tenant, class, reasons);
    None where the request is about nothing known. `unproven`: a handoff alone states its tenant, whose requests show a key here.
    """

    code: Code
    region: str | None = None
    endpoint: Endpoint | None = None
    allowed: int = 0
    reach: int = 0
    flaws: tuple[Flaw, ...] = ()
    believed: Claims | None = None
    routing: Routing | None = None
    unproven: bool = False

    @property
    def payer(self) -> str | None:
        """The tenant in whose limits it counts: by the law it may be another's, for that only restricts."""
        return None if self.unproven or self.routing is None else self.routing.request.tenant
