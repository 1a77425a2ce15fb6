"""What becomes of each member region in a decision, and why."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import reduce
from operator import and_
from typing import NamedTuple

from gtm.core.decision.fence import Fence
from gtm.core.decision.ranking import Ranking, RankingClass
from gtm.core.decision.view import View
from gtm.core.model.state import HealthStatus


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


class Candidate(NamedTuple):  # made for each member and place: a frozen dataclass takes four times as long
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
) -> tuple[Candidate, ...]:
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
        found.append(tuple.__new__(Candidate, candidate))  # as `Candidate(…)`, in half of the time
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
