"""What becomes of each member region in a decision, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from gtm.core.decision.fence import Fence
from gtm.core.decision.ranking import Ranking
from gtm.core.decision.view import View


class Exclusion(StrEnum):
    """Why a member region is no candidate. The first that applies, in this order."""

    RESIDENCY = "residency"
    DISABLED = "disabled"
    DRAINING = "draining"
    MODEL_UNAVAILABLE = "model_unavailable"
    HEALTH_UNKNOWN = "health_unknown"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True, slots=True)
class Candidate:
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


class Objections:
    """Which rules exclude a region: names of those enforced, and of those monitored.

    Rules may be thousands, but few differ in what they allow: regions that the same ones exclude share their names.
    """

    def __init__(self, within: Fence) -> None:
        self._rules = [match.compiled for match in within.matched]
        self._masks = tuple(dict.fromkeys(rule.allowed for rule in self._rules))
        self._known: dict[tuple[int, ...], tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def to(self, number: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the rules enforced that exclude a region, and of those monitored that would."""
        against = tuple(mask for mask in self._masks if not mask >> number & 1)
        names = self._known.get(against)
        if names is None:
            found = [rule for rule in self._rules if not rule.allowed >> number & 1]
            names = self._known[against] = (
                tuple(rule.rule.name for rule in found if rule.enforced),
                tuple(rule.rule.name for rule in found if not rule.enforced),
            )
        return names


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges the members for one kind of request.

    `shares` are those of the request's class, `eligible` the mask they were made from.
    """

    view: View
    ranking: Ranking
    objections: Objections
    shares: Mapping[int, float]
    eligible: int

    def candidate(self, rank: int, number: int) -> Candidate:
        """The member of this number, at its place in the order of preference."""
        region = self.view.snapshot.regions[number]
        path = self.ranking.paths.get(number)
        processing = self.view.basis.processing.get(self.ranking.group.service.service.name, {}).get(number)
        enforced, monitored = self.objections.to(number)
        return Candidate(
            region=region.name,
            rank=rank,
            share=self.shares.get(number, 0.0),
            estimate_ms=None if path is None else round(path.estimate_ms, 1),
            distance_km=None if path is None else round(path.distance_km, 1),
            excluded=self._exclusion(number),
            rules=enforced,
            monitored=monitored,
            source=None if path is None else path.source,
            processing_ms=processing,
        )

    def _exclusion(self, number: int) -> Exclusion | None:
        bit = 1 << number
        group = self.ranking.group
        if not group.allowed & bit:
            return Exclusion.RESIDENCY
        if not self.view.snapshot.active & bit:
            return Exclusion(self.view.snapshot.regions[number].admin_state.value)
        if not group.willing & bit:
            return Exclusion.MODEL_UNAVAILABLE
        if self.eligible & bit:
            return None
        return Exclusion.HEALTH_UNKNOWN if self.view.unknown & bit else Exclusion.UNHEALTHY
