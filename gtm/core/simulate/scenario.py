"""What may happen beside a change of policy: regions fail or are drained, capacity changes, demand grows, a day comes.

A scenario is of the world after; the world before is the present.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from gtm.core.capacity.supply import Supply
from gtm.core.decision.choice import choice
from gtm.core.decision.ranking import MOST_CLASSES, Ranking, alike_services
from gtm.core.decision.router import Ranker
from gtm.core.decision.view import Basis, View
from gtm.core.demand.cells import SEPARATOR
from gtm.core.health.verdicts import HealthTable
from gtm.core.memory import Memory
from gtm.core.model.joined import cut
from gtm.core.model.policy import Policy
from gtm.core.model.regions import AdminState
from gtm.core.model.state import EndpointHealth, HealthStatus
from gtm.core.plan.build import ranking_of


@dataclass(frozen=True, slots=True)
class Scenario:
    """See above.

    `down`: regions whose endpoints all fail. `drain`: regions that drain. `capacity`: region → what it can take, as a multiple of
    what it can take now. `demand` multiplies all requests, `services` besides those of each. `at`: the law and the policy's dates are
    those of this POSIX time in seconds; None: of now.
    """

    down: frozenset[str] = frozenset()
    drain: frozenset[str] = frozenset()
    capacity: Mapping[str, float] = field(default_factory=dict)
    demand: float = 1.0
    services: Mapping[str, float] = field(default_factory=dict)
    at: float | None = None

    @property
    def grows(self) -> bool:
        """Whether there are other requests than before."""
        return self.demand != 1.0 or any(factor != 1.0 for factor in self.services.values())

    def policy(self, policy: Policy) -> Policy:
        """A policy with what drains draining."""
        regions = tuple(
            replace(one, admin_state=AdminState.DRAINING)
            if one.name in self.drain and one.admin_state is AdminState.ACTIVE
            else one
            for one in policy.regions
        )
        return replace(policy, regions=regions) if self.drain else policy

    def health(
        self, health: Mapping[str, Mapping[str, EndpointHealth]], policy: Policy, now: float
    ) -> dict[str, dict[str, EndpointHealth]]:
        """Health by region and endpoint, with what fails down since a POSIX time."""
        failed = EndpointHealth(HealthStatus.DOWN, since=now, detail="simulated")
        found = {name: dict(endpoints) for name, endpoints in health.items()}
        for region in policy.regions:
            if region.name in self.down:
                found[region.name] = dict.fromkeys((item.url for item in region.endpoints), failed)
        return found

    def supply(self, supply: Mapping[str, Supply]) -> dict[str, Supply]:
        """What regions can take; what has no bound still has none."""
        return {name: _scaled(one, self.capacity.get(name, 1.0)) for name, one in supply.items()}

    def grown(self, rates: Mapping[str, float]) -> dict[str, float]:
        """Requests by demand cell, multiplied."""
        return {
            cell: rate * self.demand * self.services.get(cut(SEPARATOR, cell)[0], 1.0)
            for cell, rate in rates.items()
        }


NOTHING = Scenario()
"""All as it is."""


def _scaled(supply: Supply, factor: float) -> Supply:
    if factor == 1.0:
        return supply

    def part(bound: float | None) -> float | None:
        return None if bound is None else bound * factor

    return replace(
        supply,
        slots=part(supply.slots),
        rate=part(supply.rate),
        service_slots={name: bound * factor for name, bound in supply.service_slots.items()},
        service_rate={name: bound * factor for name, bound in supply.service_rate.items()},
    )


# --- A policy in a state of the world, and how it ranks the demand cells of some traffic. ---


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedWorld:
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

    def __init__(self, world: SimulatedWorld, cells: Iterable[str], other: Ranked | None = None) -> None:
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
