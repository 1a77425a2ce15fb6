"""Capacities that bound nothing: they are declared, and no plan can be kept by them."""

from __future__ import annotations

from collections.abc import Iterator

from gtm.core.model.policy import Policy
from gtm.core.model.problems import Problem
from gtm.core.model.references import some
from gtm.core.model.regions import Capacity, Region
from gtm.core.model.services import PLANNED, Service, Steering


def capacity_findings(policy: Policy) -> Iterator[Problem]:
    """Capacity of regions and members that no plan looks at, or only once reports say more: code `bounds_nothing`."""
    served: dict[str, list[Service]] = {region.name: [] for region in policy.regions}
    for service in policy.services:
        for index, member in enumerate(service.members):
            served[member.region].append(service)
            if member.capacity == Capacity():
                continue
            path = f"services.{service.name}.members[{index}].capacity"
            if service.steering not in PLANNED:
                text = f"bounds nothing: steering `{service.steering}` sends clients whatever room there is"
                yield Problem(path, "bounds_nothing", text)
            elif member.capacity.outstanding is not None and service.service_time_ms is None:
                yield Problem(f"{path}.outstanding", "bounds_nothing", _unless_reported([service]))
    for region in policy.regions:
        if served[region.name]:
            yield from _of_region(region, served[region.name])


def _of_region(region: Region, services: list[Service]) -> Iterator[Problem]:
    path, capacity = f"regions.{region.name}.capacity", region.capacity
    planned = [service for service in services if service.steering in PLANNED]
    timeless = [service for service in planned if service.service_time_ms is None]
    if capacity != Capacity() and not planned:
        own = " or ".join(f"`{steering}`" for steering in Steering if steering not in PLANNED)
        text = f"bounds nothing: every service here has steering {own}, which sends clients whatever room there is"
        yield Problem(path, "bounds_nothing", text)
    elif capacity.outstanding is not None and timeless:
        yield Problem(f"{path}.outstanding", "bounds_nothing", _unless_reported(timeless))


def _unless_reported(services: list[Service]) -> str:
    names = some([f"`{service.name}`" for service in services], "services")
    return (
        f"bounds nothing for {names} unless the region reports its load (docs/operations.md#load-reports): how many requests "
        "a second fill it follows from how long one takes; declare `service_time_ms` of the service"
    )
