"""The options that requests have: a region, or a refusal; and the one place where they are made.

Law: an `Option` that names a region is made in `Maker.served`, which checks the fence, whoever worked out the mask.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from gtm.core.decision.ranking import RankingClass
from gtm.core.decision.view import View
from gtm.core.decision.weights import quotas_by_plan
from gtm.core.model.affinity import key_hash, rendezvous
from gtm.core.model.outcomes import FenceError, Outcome, Reason
from gtm.core.model.regions import Endpoint
from gtm.core.model.services import PLANNED
from gtm.core.model.state import ClassPlan
from gtm.core.quota.names import QuotaText

Afford = Callable[[tuple[QuotaText, ...]], bool]
"""Takes one token of each quota named, or none and says no."""


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """One way in which a request can end. `number` is the region's place in `Snapshot.regions`, -1 for a refusal.

    `quotas` are those that a request taking this way counts against.
    """

    number: int
    region: str | None
    outcome: Outcome
    reason: Reason
    quotas: tuple[QuotaText, ...] = ()


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes the options of one class in one View."""

    view: View
    group: RankingClass

    def share(self, number: int, home: int, main: Reason, plan: ClassPlan | None) -> Option:
        """The option of a region that has a share."""
        if number == home or main in (Reason.WEIGHTED, Reason.HEALTH_IGNORED):
            return self.served(number, main)
        planned = self.group.service.service.steering in PLANNED and bool(self.view.state.plan.prices)
        if plan is not None:
            planned = self.view.snapshot.regions[number].name in plan.weights
        if not planned:
            return self.served(number, Reason.SLOW_START)
        return self.served(number, Reason.SPILLOVER, quotas_by_plan(self.view, self.group, home, number))

    def served(self, number: int, reason: Reason, quotas: tuple[QuotaText, ...] = ()) -> Option:
        """The only place where an Option names a region.

        Raises:
            FenceError: the region is outside the fence (a bug in gtm: better no answer than that one).
        """
        name = self.view.snapshot.regions[number].name
        if not self.group.allowed >> number & 1:
            raise FenceError(f"region {name} is outside the fence")
        return Option(number, name, Outcome.SERVED, reason, quotas)

    def refused(self, outcome: Outcome, reason: Reason) -> Option:
        """An option that names no region and counts against no quota."""
        return Option(-1, None, outcome, reason)

    def refusal(self, *, usable_anywhere: bool) -> Option:
        """The refusal of a class that no region can serve."""
        if not self.group.allowed:
            return self.refused(Outcome.REFUSED_RESIDENCY, Reason.FENCE_EMPTY)
        if usable_anywhere:
            return self.refused(Outcome.REFUSED_RESIDENCY, Reason.FENCE_UNUSABLE)
        return self.refused(Outcome.REFUSED_UNAVAILABLE, Reason.NONE_USABLE)


# --- Which ingress of the chosen region a client is sent to. ---


class Ending(Protocol):
    """How a request ends. Options and Decisions are such."""

    @property
    def number(self) -> int:
        """The region's number, -1 for a refusal."""

    @property
    def reason(self) -> Reason:
        """Why it ends so."""


def serving(view: View, option: Ending) -> tuple[Endpoint, ...]:
    """The endpoints of the option's region that may be handed out; empty for a refusal.

    These are the ones that are up, or all of them where the service ignores health for want of anything better.
    """
    if option.number < 0:
        return ()
    if option.reason is Reason.HEALTH_IGNORED:
        return view.snapshot.regions[option.number].endpoints
    return view.endpoints[option.number]


def endpoint_for(view: View, option: Ending, key: str, but: Collection[str] = ()) -> Endpoint | None:
    """One serving endpoint: the same one for the same key while it is up, spread evenly over keys.

    Args:
        view: the View the option was made from.
        option: any option.
        key: what the client is known by (its affinity key or its network).
        but: URLs of endpoints that are left out.

    Returns:
        None for a refusal, and where all are left out.
    """
    usable = serving(view, option)
    usable = tuple(endpoint for endpoint in usable if endpoint.url not in but) if but else usable
    if len(usable) <= 1:
        return usable[0] if usable else None
    hashes = tuple(key_hash(endpoint.url) for endpoint in usable)
    return usable[rendezvous(key_hash(key), hashes, (1.0,) * len(usable))]
