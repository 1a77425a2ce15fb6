"""From demand cells to the planner's question: which classes there are, where each may go, and how far that is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from gtm.core.capacity.supply import Supply
from gtm.core.decision.ranking import Ranking, ranked
from gtm.core.decision.router import Ranker
from gtm.core.decision.view import View
from gtm.core.demand.cells import Cell
from gtm.core.demand.rows import ClassKey
from gtm.core.model.outcomes import UnknownNameError
from gtm.core.model.services import PLANNED, OnOverload, Priority
from gtm.core.plan.problem import ClassDemand, PlanProblem

Demand = Mapping[tuple[str, str], float]
"""Ranking class and demand cell → requests per second."""


Rankings = Callable[[str], Ranking | None]
"""The ranking of a demand cell by this policy; None where the policy does not know it (`ranking_of`)."""


def by_class(demand: Demand, ranking: Rankings) -> dict[str, list[tuple[Ranking, float]]]:
    """Demand that can be planned, by ranking class and with the ranking of each cell.

    Whom this policy gives other regions than the name says under which they were counted, they count with those who may go where they may.
    Rates are smoothed, so that names by a policy of before stay for minutes; and what an edge reports under a wrong name, by mistake or to
    mislead, decides nothing about those whose name it is.
    """
    classes: dict[str, list[tuple[Ranking, float]]] = defaultdict(list)
    for (key, cell), rate in demand.items():
        known = ranking(cell)
        if known is not None and rate > 0 and known.group.service.service.steering in PLANNED:
            now = known.group.key
            classes[key if _kind(key) == _kind(now) else now].append((known, rate))
    return classes


def problem_of(
    view: View,
    ranking: Rankings,
    demand: Demand,
    fixed: Mapping[tuple[str, str], float],
    supply: dict[str, Supply],
) -> PlanProblem:
    """The planner's question in one state of the world.

    Args:
        view: policy and health.
        ranking: by the view's basis.
        demand: of services whose steering can be planned; cells that this policy does not know are left out.
        fixed: service and region → requests per second of the other services, which only take up capacity.
        supply: what each region can take.
    """
    asked = [_class_demand(view, key, cells) for key, cells in sorted(by_class(demand, ranking).items())]
    policy = view.snapshot.policy
    return PlanProblem(
        classes=(*(one for one in asked if one is not None), *_pinned(view, fixed)),
        supply=supply,
        quotas=policy.spillover_rules,
        tenant_weights={tenant.name: tenant.weight for tenant in policy.tenants if tenant.weight != 1.0},
    )


def ranking_of(ranker: Ranker, cell: str) -> Ranking | None:
    """The ranking of a demand cell; None if it is damaged, or the policy no longer knows what it names."""
    try:
        return ranker.ranking(Cell.parse(cell).request)
    except (ValueError, UnknownNameError):
        return None


def _class_demand(view: View, key: str, cells: list[tuple[Ranking, float]]) -> ClassDemand | None:
    """A class as the planner sees it; None while no region of its is usable.

    The class's name has the order of preference that its clients have. Their cells, which are coarser, only say how
    far the regions are on average; a region is never taken to be nearer than one that the clients prefer.
    """
    group = max(cells, key=lambda cell: cell[1])[0].group
    service = group.service
    regions = view.snapshot.regions
    numbers = ranked(service, group.order, group.eligible(view.up_for(group.family)))
    if not numbers:
        return None
    named = {name: place for place, name in enumerate(_preferred(key))}
    distance = {
        number: _mean_latency(view, group.service.service.name, cells, number, place)
        for place, number in enumerate(numbers)
    }
    order = sorted(
        numbers, key=lambda number: (named.get(regions[number].name, len(named)), distance[number])
    )
    latency: list[float] = []
    for number in order:
        latency.append(max(distance[number], latency[-1] if latency else 0.0))
    tenants: dict[str, float] = {}
    for one, rate in cells:
        tenant = one.request.tenant or ""
        tenants[tenant] = tenants.get(tenant, 0.0) + rate
    return ClassDemand(
        key=key,
        service=service.service.name,
        priority=group.priority,
        regions=tuple(regions[number].name for number in order),
        latency_ms=tuple(latency),
        rate=sum(tenants.values()),
        tenants=tenants,
        on_overload=service.service.on_overload,
    )


def _preferred(key: str) -> tuple[str, ...]:
    """The regions in a class's name, in order; none, if an edge made one up."""
    try:
        return ClassKey.parse(key).order
    except ValueError:
        return ()


def _kind(key: str) -> list[str]:
    """What of a class's name does not hang on where in a cell a client is: all but the order of its regions."""
    parts = key.split("|")
    return parts[:2] + parts[3:]


def _mean_latency(
    view: View, service: str, cells: list[tuple[Ranking, float]], number: int, place: int
) -> float:
    """Network and processing, weighted by the cells' rates; the place in the order where locations are unknown."""
    total = weight = 0.0
    for ranking, rate in cells:
        path = ranking.paths.get(number)
        if path is not None:
            total += rate * path.estimate_ms
            weight += rate
    processing = view.basis.processing.get(service, {}).get(number, 0.0)
    return total / weight + processing if weight else float(place)


def _pinned(view: View, fixed: Mapping[tuple[str, str], float]) -> list[ClassDemand]:
    """Demand that nothing moves: it takes up its regions' capacity, before all others since it comes in any case."""
    services = view.snapshot.services
    return [
        ClassDemand(
            key=f"{service}@{region}",
            service=service,
            priority=Priority.REAL_TIME,
            regions=(region,),
            latency_ms=(0.0,),
            rate=rate,
            tenants={"": rate},
            on_overload=OnOverload.QUEUE,
            fixed=True,
        )
        for (service, region), rate in sorted(fixed.items())
        if service in services and region in view.snapshot.region_numbers and rate > 0
    ]
