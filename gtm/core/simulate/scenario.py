"""What may happen beside a change of policy: regions fail or are drained, capacity changes, demand grows, a day comes.

A scenario is of the world after; the world before is the present.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gtm.core.capacity.supply import Supply
from gtm.core.demand.cells import SEPARATOR
from gtm.core.model.joined import cut
from gtm.core.model.policy import Policy
from gtm.core.model.regions import AdminState
from gtm.core.model.state import EndpointHealth, HealthStatus


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
    def regions(self) -> frozenset[str]:
        """All regions that it names."""
        return self.down | self.drain | frozenset(self.capacity)

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
        return {cell: rate * self._factor(cell) for cell, rate in rates.items()}

    def _factor(self, cell: str) -> float:
        return self.demand * self.services.get(cut(SEPARATOR, cell)[0], 1.0)


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
