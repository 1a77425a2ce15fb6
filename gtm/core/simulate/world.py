"""A policy in a state of the world, and how it ranks the demand cells of some traffic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gtm.core.capacity.supply import Supply
from gtm.core.decision.choice import Choice, choice
from gtm.core.decision.ranking import Ranking, RankingClass
from gtm.core.decision.router import Ranker
from gtm.core.decision.view import View
from gtm.core.health.verdicts import HealthTable
from gtm.core.model.policy import Policy
from gtm.core.model.state import EndpointHealth, HealthStatus
from gtm.core.plan.build import ranking_of


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """A policy with health, latencies and the time (`view`), and what each region can take (by name)."""

    view: View
    supply: Mapping[str, Supply]


def all_up(policy: Policy, at: float) -> dict[str, dict[str, EndpointHealth]]:
    """The health of a world in which every endpoint is up, since a POSIX time."""
    up = EndpointHealth(HealthStatus.UP, since=at)
    return {
        region.name: dict.fromkeys((item.url for item in region.endpoints), up) for region in policy.regions
    }


def presumed_up(policy: Policy, health: HealthTable, at: float) -> dict[str, dict[str, EndpointHealth]]:
    """Health as it is, with endpoints up that nobody has probed yet: those that only a draft has."""
    found = all_up(policy, at)
    for name, endpoints in found.items():
        for url, item in health.get(name, {}).items():
            if url in endpoints and item.status is not HealthStatus.UNKNOWN:
                endpoints[url] = item
    return found


class Ranked:
    """The demand cells of some traffic as one world ranks them.

    `rankings` maps a cell to its ranking; cells that the policy does not know are left out.
    """

    def __init__(self, world: World, cells: Iterable[str]) -> None:
        self.world = world
        self.ranker = Ranker(world.view.basis)
        self.rankings: dict[str, Ranking] = {}
        for cell in cells:
            ranking = ranking_of(self.ranker, cell)
            if ranking is not None:
                self.rankings[cell] = ranking
        self._choices: dict[RankingClass, Choice] = {}

    def choice(self, group: RankingClass) -> Choice:
        """What becomes of a class where no plan says it."""
        found = self._choices.get(group)
        if found is None:
            found = self._choices[group] = choice(self.world.view, group)
        return found
