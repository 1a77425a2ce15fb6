"""Which region should serve this request?

Law: every decision carries its reasons: the rank, estimate and share of each candidate, a code for each exclusion, the
rules that matched, the policy revision and the epoch.

The work is in three parts, by how long each holds. `ranking.rank` holds for a kind of request until policy, rules in
force or latency table change; `choice.choice` for a ranking class until anything changes; `choice.pick` is made for each
request. A `Routing` holds the three together, and its `explained` tells all of it as one value: whoever decides something
goes through one, so that what explains a decision cannot drift from what made it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from operator import and_
from typing import NamedTuple

from gtm.core.decision.choice import Choice, choice, pick
from gtm.core.decision.fence import Fence
from gtm.core.decision.options import Afford, Option, endpoint_for
from gtm.core.decision.ranking import Ranking, RankingClass, classes_of, rank
from gtm.core.decision.view import View
from gtm.core.model.outcomes import Outcome, Reason
from gtm.core.model.regions import Endpoint
from gtm.core.model.requests import Request
from gtm.core.model.services import Affinity
from gtm.core.model.state import HealthStatus


@dataclass(frozen=True, slots=True)
class RuleTrace:
    """A residency rule that matched, and why."""

    name: str
    mode: str
    legal_basis: str
    because: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer. `number` is the region's place in `Snapshot.regions`, -1 for a refusal.

    `ranking_class` names the requests that are planned together with this one; `shed` is the share of them that is
    refused for want of capacity.
    """

    service: str
    outcome: Outcome
    reason: Reason
    region: str | None
    number: int
    ttl: int
    revision: int
    epoch: int
    candidates: tuple[RegionCandidate, ...]
    rules: tuple[RuleTrace, ...]
    ranking_class: str = ""
    shed: float = 0.0


class Routing(NamedTuple):  # a frozen dataclass takes about twice as long to make
    """One kind of request on its way to an answer, the same for whoever asks: DNS, look-up, redirect, `check`, `explain`.

    `choice` is that of the ranking's class in `view`. `client` is the client's address in network order, empty where it is
    unknown.
    """

    view: View
    ranking: Ranking
    choice: Choice
    request: Request
    client: bytes = b""

    @property
    def key(self) -> str:
        """What ties the client to one endpoint of its region: its affinity key, or its /24 or /48.

        Not the network of its location: that may be as wide as a country's provider, and would not spread load.
        """
        if self.choice.affinity is Affinity.KEY and self.request.affinity is not None:
            return self.request.affinity
        return self.client[: 3 if len(self.client) == 4 else 6].hex()

    def pick(self, draw: float, afford: Afford | None = None, *, sheds: bool = True) -> Option:
        """How one such request ends: `gtm.core.decision.choice.pick`."""
        return pick(self.choice, self.request, draw, afford, sheds=sheds)

    def endpoint(self, option: Option) -> Endpoint | None:
        """The ingress that the client is handed, None for a refusal."""
        return endpoint_for(self.view, option, self.key)

    def explained(self, option: Option) -> Decision:
        """An option with everything that led to it."""
        return explained(self.view, self.ranking, self.choice, option)


def explained(view: View, ranking: Ranking, chosen: Choice, option: Option) -> Decision:
    """An option of a kind of request, with everything that led to it."""
    group = ranking.group
    # A refusal because of where the edge stands was made without a look at health: the regions' own state is told.
    eligible = group.usable(view.up_for(group.family)) if group.outside else chosen.eligible
    return Decision(
        service=group.service.service.name,
        outcome=option.outcome,
        reason=option.reason,
        region=option.region,
        number=option.number,
        ttl=_ttl(view, group, option),
        revision=view.snapshot.revision,
        epoch=view.state.epoch,
        candidates=candidates(view, ranking, chosen.shares, eligible),
        rules=_traces(ranking.within),
        ranking_class=group.key,
        shed=chosen.shed_share(ranking.request.tenant),
    )


def _ttl(view: View, group: RankingClass, option: Option) -> int:
    """How long an answer may be kept, in seconds: by free slots no longer than traffic that moves."""
    found = view.ttl_of(group.service)
    return min(found, group.service.service.min_ttl) if option.reason is Reason.FREE_SLOTS else found


def routed(view: View, request: Request, client: bytes = b"") -> Routing:
    """Find a request's way, without a memory (`gtm.core.decision.router` has one).

    Args:
        view: the policy and the state of the world.
        request: what is known of the request.
        client: the client's address in network order, empty where it is unknown.

    Raises:
        UnknownNameError: the service, tenant, data class or model is not in the policy.
    """
    ranking = rank(view.basis, request, classes_of(view.snapshot))
    return Routing(view, ranking, choice(view, ranking.group), request, client)


def decide(view: View, request: Request, draw: float) -> Decision:
    """Decide one request.

    Args:
        view: the policy and the state of the world.
        request: what is known of the request.
        draw: uniform in [0, 1); used where several regions share such clients and no affinity ties them.

    Raises:
        UnknownNameError: the service, tenant, data class or model is not in the policy.
    """
    routing = routed(view, request)
    return routing.explained(routing.pick(draw))


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


# --- What becomes of each member region in a decision, and why. ---


class Exclusion(StrEnum):
    """Why a member region is no candidate. The first that applies, in this order."""

    RESIDENCY = "residency"
    DISABLED = "disabled"
    DRAINING = "draining"
    NO_ADDRESS = "no_address"
    """It has no address of the family asked for, and the service has a pool for each (`families: separate`)."""
    MODEL_UNAVAILABLE = "model_unavailable"
    HEALTH_UNKNOWN = "health_unknown"
    UNHEALTHY = "unhealthy"
    ADDRESSES_DOWN = "addresses_down"
    """In DNS alone: up by its URL or another address, and all of its addresses of a family are down."""


class RegionCandidate(
    NamedTuple
):  # made for each member and place: a frozen dataclass takes four times as long
    """A member region as one decision saw it.

    `rank` counts from 1 in the order of preference, `share` is its part of such requests (0–1), `estimate_ms` the
    round-trip time, `source` what it rests on and `distance_km` the great circle, all None where the client's location is
    unknown; `processing_ms` is what the region itself takes, where it is known. `rules` names the residency rules that
    exclude it, `monitored` those that would if they were enforced.
    """

    region: str
    rank: int
    share: float
    estimate_ms: float | None
    distance_km: float | None
    excluded: Exclusion | None = None
    rules: tuple[str, ...] = ()
    monitored: tuple[str, ...] = ()
    source: str | None = None
    processing_ms: float | None = None


_Names = tuple[str, ...]
_NONE: tuple[_Names, _Names] = ((), ())


class Objections:
    """Which rules exclude a region: names of those enforced, and of those monitored.

    Rules may be thousands, but few differ in what they allow: regions that the same ones exclude share their names.
    """

    def __init__(self, within: Fence) -> None:
        self._rules = [match.compiled for match in within.matched]
        self._masks = tuple(dict.fromkeys([rule.allowed for rule in self._rules]))
        self._by_all = reduce(and_, self._masks, -1)
        self._known: dict[tuple[int, ...], tuple[_Names, _Names]] = {}

    def to(self, number: int) -> tuple[_Names, _Names]:
        """The names of the rules enforced that exclude a region, and of those monitored that would."""
        if self._by_all >> number & 1:
            return _NONE
        against = tuple(mask for mask in self._masks if not mask >> number & 1)
        names = self._known.get(against)
        if names is None:
            found = [rule for rule in self._rules if not rule.allowed >> number & 1]
            names = self._known[against] = (
                tuple(rule.rule.name for rule in found if rule.enforced),
                tuple(rule.rule.name for rule in found if not rule.enforced),
            )
        return names


def candidates(
    view: View, ranking: Ranking, shares: Mapping[int, float], eligible: int
) -> tuple[RegionCandidate, ...]:
    """All members of a service, for one kind of request, in its order of preference.

    Args:
        view: what is decided from.
        ranking: of the request.
        shares: those of the request's class.
        eligible: the mask they were made from.
    """
    group, paths = ranking.group, ranking.paths
    regions = view.snapshot.regions
    processing = view.basis.processing.get(group.service.service.name, {})
    objections = Objections(ranking.within)
    open_to_all = eligible & group.willing & group.allowed & view.snapshot.active
    found = []
    for place, number in enumerate(group.order, 1):
        path = paths.get(number)
        enforced, monitored = objections.to(number)
        candidate = (
            regions[number].name,
            place,
            shares.get(number, 0.0),
            None if path is None else round(path.estimate_ms, 1),
            None if path is None else round(path.distance_km, 1),
            None if open_to_all >> number & 1 else _exclusion(view, group, number),
            enforced,
            monitored,
            None if path is None else path.source,
            processing.get(number),
        )
        found.append(
            tuple.__new__(RegionCandidate, candidate)
        )  # as `RegionCandidate(…)`, in half of the time
    return tuple(found)


def _exclusion(view: View, group: RankingClass, number: int) -> Exclusion:
    """Why a member that is no candidate is none."""
    bit = 1 << number
    if not group.allowed & bit:
        return Exclusion.RESIDENCY
    if not view.snapshot.active & bit:
        return Exclusion(view.snapshot.regions[number].admin_state.value)
    if not group.willing & bit:
        pooled = group.family is None or group.service.pools[group.family] & bit
        return Exclusion.MODEL_UNAVAILABLE if pooled else Exclusion.NO_ADDRESS
    known = view.state.health.get(view.snapshot.regions[number].name, {})
    lives = view.up & bit or any(one.status is HealthStatus.UP for one in known.values())
    lost = view.lost["ipv4"] | view.lost["ipv6"] if group.family is None else view.lost[group.family]
    if lives and lost & bit:
        return Exclusion.ADDRESSES_DOWN
    return Exclusion.HEALTH_UNKNOWN if view.unknown & bit else Exclusion.UNHEALTHY
