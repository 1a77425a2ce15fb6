"""Which region should serve this request?

Laws:
  1. The fence is absolute. A `Decision` that names a region is made in one place (`_Maker.served`), from a mask that was
     intersected with the fence, and that place checks it again. Nothing here reads a fallback from elsewhere.
  2. Nothing usable inside the fence: the answer is a refusal that says why. If a usable region stands outside, the
     law is the reason (451); if nothing is usable anywhere, it is availability (503). A fence without any region is
     the law's doing whatever the health of the regions outside (451): to come back later would not help.
  3. Every decision carries its reasons: the rank, estimate and share of each candidate, a code for each exclusion, the
     rules that matched, the policy revision and the epoch.

The work is in two halves. `choice` does everything that depends on the request's kind only (who, from where, for what)
and can be remembered for as long as a View lives; `pick` does what differs from request to request.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

from gtm.core.affinity import key_hash, rendezvous
from gtm.core.candidates import Candidate, Judge, Objections
from gtm.core.latency import NetworkPath, network_path
from gtm.core.model import Affinity, Location, OnUnusable, Request, Steering
from gtm.core.residency import Fence, fence
from gtm.core.snapshot import CompiledService
from gtm.core.view import View


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
    """How a request ends."""

    SERVED = "served"
    REFUSED_RESIDENCY = "refused_residency"
    """The law forbids every region that could serve (HTTP 451, RFC 7725)."""
    REFUSED_UNAVAILABLE = "refused_unavailable"
    """No region can serve, whatever the law says (HTTP 503)."""


class Reason(StrEnum):
    """Why this answer and no other."""

    LOWEST_LATENCY = "lowest_latency"
    NEAREST = "nearest"
    WEIGHTED = "weighted"
    AFFINITY = "affinity"
    FAILOVER_ORDER = "failover_order"
    LOCATION_UNKNOWN = "location_unknown"
    """Nothing to rank by: the members stand in the order written."""
    HEALTH_IGNORED = "health_ignored"
    FENCE_EMPTY = "fence_empty"
    """The rules leave none of the service's regions."""
    FENCE_UNUSABLE = "fence_unusable"
    """The rules leave regions, none of them usable, while others outside are."""
    NONE_USABLE = "none_usable"


@dataclass(frozen=True, slots=True)
class RuleTrace:
    """A residency rule that matched, and why."""

    name: str
    mode: str
    legal_basis: str
    because: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer. `number` is the region's place in `Snapshot.regions`, -1 for a refusal."""

    service: str
    outcome: Outcome
    reason: Reason
    region: str | None
    number: int
    ttl: int
    revision: int
    epoch: int
    candidates: tuple[Candidate, ...]
    rules: tuple[RuleTrace, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """All possible decisions for one kind of request in one View, and the odds of each.

    Exactly one decision if it is a refusal or certain. `weights` are above 0, `cumulative` their running sums divided
    by the total; `hashes` are the regions' for rendezvous hashing. `sticky` are the same decisions with the reason that
    holds where affinity, and not the draw, picks among them.
    """

    decisions: tuple[Decision, ...]
    weights: tuple[float, ...]
    cumulative: tuple[float, ...]
    hashes: tuple[int, ...]
    affinity: Affinity
    sticky: tuple[Decision, ...] = ()


def decide(view: View, request: Request, draw: float) -> Decision:
    """Decide one request.

    Args:
        view: the policy and the state of the world.
        request: what is known of the request.
        draw: uniform in [0, 1); used where weights split clients and no affinity ties them.

    Raises:
        UnknownNameError: the service, tenant, data class or model is not in the policy.
    """
    return pick(choice(view, request), request, draw)


def pick(chosen: Choice, request: Request, draw: float) -> Decision:
    """One of the decisions of a choice: the client's own by affinity, else by the draw."""
    decisions = chosen.decisions
    if len(decisions) == 1:
        return decisions[0]
    if chosen.affinity is not Affinity.NONE:
        key = request.affinity if chosen.affinity is Affinity.KEY else None
        if key is None:
            key = request.location.network
        if key is not None:
            return chosen.sticky[rendezvous(key_hash(key), chosen.hashes, chosen.weights)]
    return decisions[min(bisect_right(chosen.cumulative, draw), len(decisions) - 1)]


def choice(view: View, request: Request) -> Choice:
    """Everything about a request that does not depend on its affinity or the draw.

    Raises:
        UnknownNameError: the service, tenant, data class or model is not in the policy.
    """
    snapshot = view.snapshot
    service = snapshot.services.get(request.service)
    if service is None:
        raise UnknownNameError("service", request.service)
    if request.tenant is not None and request.tenant not in snapshot.tenants:
        raise UnknownNameError("tenant", request.tenant)
    if request.data_class is not None and request.data_class not in snapshot.data_classes:
        raise UnknownNameError("data class", request.data_class)
    if request.model is not None and request.model not in snapshot.models:
        raise UnknownNameError("model", request.model)
    within = fence(view.rules[request.service], service.mask, request)
    paths = _paths(view, service, request.location)
    order = _order(service, paths)
    willing = service.mask & snapshot.active & _with_models(view, service, request)
    usable = willing & view.up
    eligible, ignored = within.allowed & usable, False
    if not eligible and service.service.on_unusable is OnUnusable.IGNORE_HEALTH:
        eligible, ignored = within.allowed & willing, True
    shares = _shares(service, order, eligible)
    judge = Judge(view, paths, within, Objections(within), shares, willing, eligible)
    candidates = tuple(judge.candidate(rank, member) for rank, member in enumerate(order, 1))
    maker = _Maker(view, service, within, candidates, _traces(within))
    if not shares:
        refusal = maker.refusal(usable_anywhere=bool(usable))
        return Choice((refusal,), (1.0,), (1.0,), (0,), Affinity.NONE)
    reason = Reason.HEALTH_IGNORED if ignored else _reason(service.service.steering, located=bool(paths))
    decisions = sticky = tuple(maker.served(number, reason) for number in shares)
    if reason is Reason.WEIGHTED and len(shares) > 1 and service.service.affinity is not Affinity.NONE:
        sticky = tuple(maker.served(number, Reason.AFFINITY) for number in shares)
    return Choice(
        decisions=decisions,
        weights=tuple(shares.values()),
        cumulative=tuple(accumulate(shares.values())),
        hashes=tuple(key_hash(snapshot.regions[number].name) for number in shares),
        affinity=service.service.affinity,
        sticky=sticky,
    )


def _with_models(view: View, service: CompiledService, request: Request) -> int:
    """The members that serve every model asked for, by the service and by the request."""
    wanted = {name for name in (service.service.model, request.model) if name is not None}
    if not wanted:
        return service.mask
    regions = view.snapshot.regions
    return sum(1 << number for number in service.members if wanted.issubset(regions[number].models))


def _paths(view: View, service: CompiledService, location: Location) -> dict[int, NetworkPath]:
    """The way from the client to each member; empty if its location is unknown."""
    regions = view.snapshot.regions
    found = {
        number: network_path(location, regions[number].lat, regions[number].lon) for number in service.members
    }
    return {number: path for number, path in found.items() if path is not None}


def _order(service: CompiledService, paths: dict[int, NetworkPath]) -> tuple[int, ...]:
    """The members in the order of preference. Members of weight 0 come last, whatever the steering."""
    position = {number: index for index, number in enumerate(service.members)}
    steering = service.service.steering

    def rank(number: int) -> tuple[bool, float, int]:
        reserve = service.weights[number] == 0
        if steering is Steering.WEIGHTED:
            return reserve, -service.weights[number], position[number]
        if steering is Steering.FAILOVER or not paths:
            return reserve, 0.0, position[number]
        path = paths[number]
        length = path.distance_km if steering is Steering.GEO else path.estimate_ms
        return reserve, length, position[number]

    return tuple(sorted(service.members, key=rank))


def _shares(service: CompiledService, order: tuple[int, ...], eligible: int) -> dict[int, float]:
    """Each eligible region's part of the requests (sums to 1), in rank order; empty if none is eligible.

    A plan will take this function's place where there is one: it too yields shares among the eligible.
    """
    ranked = [number for number in order if eligible >> number & 1]
    if not ranked:
        return {}
    if service.service.steering is not Steering.WEIGHTED:
        return {ranked[0]: 1.0}
    total = sum(service.weights[number] for number in ranked)
    if total <= 0:
        return {number: 1 / len(ranked) for number in ranked}
    shares = {number: service.weights[number] / total for number in ranked}
    return {number: share for number, share in shares.items() if share > 0}


def _reason(steering: Steering, *, located: bool) -> Reason:
    """In one word, what decided among the eligible regions, affinity aside."""
    if steering is Steering.FAILOVER:
        return Reason.FAILOVER_ORDER
    if steering is Steering.WEIGHTED:
        return Reason.WEIGHTED
    if not located:
        return Reason.LOCATION_UNKNOWN
    return Reason.NEAREST if steering is Steering.GEO else Reason.LOWEST_LATENCY


def _traces(within: Fence) -> tuple[RuleTrace, ...]:
    return tuple(
        RuleTrace(
            match.compiled.rule.name,
            match.compiled.rule.mode.value,
            match.compiled.rule.legal_basis,
            match.because,
        )
        for match in within.matched
    )


@dataclass(frozen=True, slots=True)
class _Maker:
    """Turns a finished judgement into Decisions, which all share its candidates and rules."""

    view: View
    service: CompiledService
    within: Fence
    candidates: tuple[Candidate, ...]
    rules: tuple[RuleTrace, ...]

    def served(self, number: int, reason: Reason) -> Decision:
        """The only place where a Decision names a region.

        Raises:
            FenceError: the region is outside the fence (a bug in gtm: better no answer than that one).
        """
        if not self.within.allowed >> number & 1:
            raise FenceError(f"region {self.view.snapshot.regions[number].name} is outside the fence")
        return self._decision(Outcome.SERVED, reason, number)

    def refusal(self, *, usable_anywhere: bool) -> Decision:
        if not self.within.allowed:
            return self._decision(Outcome.REFUSED_RESIDENCY, Reason.FENCE_EMPTY, -1)
        if usable_anywhere:
            return self._decision(Outcome.REFUSED_RESIDENCY, Reason.FENCE_UNUSABLE, -1)
        return self._decision(Outcome.REFUSED_UNAVAILABLE, Reason.NONE_USABLE, -1)

    def _decision(self, outcome: Outcome, reason: Reason, number: int) -> Decision:
        return Decision(
            service=self.service.service.name,
            outcome=outcome,
            reason=reason,
            region=self.view.snapshot.regions[number].name if number >= 0 else None,
            number=number,
            ttl=self.service.service.ttl,
            revision=self.view.snapshot.revision,
            epoch=self.view.state.epoch,
            candidates=self.candidates,
            rules=self.rules,
        )
