"""A policy in a state of the world, and how it ranks the demand cells of some traffic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from gtm.core.capacity.supply import Supply
from gtm.core.decision.choice import choice
from gtm.core.decision.ranking import MOST_CLASSES, Ranking, alike_services
from gtm.core.decision.router import Ranker
from gtm.core.decision.view import Basis, View
from gtm.core.health.verdicts import HealthTable
from gtm.core.memory import Memory
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

    Args:
        world: what ranks them.
        cells: what is ranked.
        other: the same cells as another world ranks them; what both rank alike is taken from there.
    """

    def __init__(self, world: World, cells: Iterable[str], other: Ranked | None = None) -> None:
        self.world = world
        self.rankings: dict[str, Ranking] = {}
        self.choices = Memory(partial(choice, world.view), MOST_CLASSES)
        """What becomes of a class where no plan says it."""
        ranker = Ranker(world.view.basis)
        same = frozenset[str]() if other is None else _alike(other.world.view.basis, world.view.basis)
        for cell in cells:
            known = None if other is None else other.rankings.get(cell)
            if known is None or known.group.service.service.name not in same:
                known = ranking_of(ranker, cell)
            if known is not None:
                self.rankings[cell] = known


def _alike(one: Basis, other: Basis) -> frozenset[str]:
    """The services that two Bases rank alike."""
    return alike_services(one, other, one.snapshot.active ^ other.snapshot.active)
