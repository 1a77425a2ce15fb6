"""A Problem as arrays: a column for each class and region it may go to, a row for each bound.

A column's variable is the rate that its region serves of its class. By Little's law that rate holds rate × service
time slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import isfinite

import numpy as np

from gtm.core.capacity.supply import Supply
from gtm.core.model.policy import SpilloverRule
from gtm.core.plan.problem import ClassDemand, PlanError, Problem
from gtm.core.plan.rows import (
    Bound,
    Columns,
    Flags,
    Floats,
    Ints,
    RowBuilder,
    Rows,
    add_quotas,
    add_supply,
    table,
    total,
)
from gtm.core.quota.names import QuotaName, QuotaText


@dataclass(frozen=True, slots=True)
class Model:
    """A Problem as arrays. Classes without demand or without regions are left out.

    `columns` are sorted by class, each class's from `offsets` on, its home first; `cost` is in ms per request. `work`
    is a class's mean service time in seconds, 0 where none is known. `led` says of all that the classes list which
    became columns: the others are forbidden by spillover rules.
    """

    classes: tuple[ClassDemand, ...]
    regions: tuple[str, ...]
    quotas: tuple[SpilloverRule, ...]
    rate: Floats
    work: Floats
    offsets: Ints
    columns: Columns
    cost: Floats
    led: Flags
    rows: Rows

    def label(self, row: int) -> str:
        """What an exhausted row is called: a region, `spill_in:REGION`, or a rule's name."""
        if self.rows.bound[row] > Bound.SERVICE_RATE:
            return self.quota(row)
        return self.regions[int(self.rows.owner[row])]

    def quota(self, row: int) -> QuotaText:
        """What the quota of a row is called: a rule, or what a region takes of others' demand."""
        owner = int(self.rows.owner[row])
        if self.rows.bound[row] == Bound.QUOTA:
            return QuotaName(self.quotas[owner].name).text
        return QuotaName(self.regions[owner], into=True).text


def build(problem: Problem) -> Model:
    """Turn a problem into arrays.

    Raises:
        PlanError: a number is negative or not finite, or a class has not one latency for each region.
    """
    check(problem)
    classes = tuple(one for one in problem.classes if one.rate > 0 and one.regions)
    names = dict.fromkeys(chain(problem.supply, chain.from_iterable(one.regions for one in classes)))
    number = {name: index for index, name in enumerate(names)}
    services = tuple(dict.fromkeys(one.service for one in classes))
    supply = [problem.supply.get(name, Supply()) for name in number]
    rate = np.array([one.rate for one in classes], dtype=np.float64)
    columns, offsets = _columns(classes, services, number)
    latency = np.array([*chain.from_iterable(one.latency_ms for one in classes)], dtype=np.float64)
    moving = np.array([0.0 if one.fixed else one.rate for one in classes], dtype=np.float64)
    keep, covered, limits = _quotas(problem.quotas, number, moving, columns, offsets=offsets, latency=latency)
    place = np.cumsum(keep) - 1
    columns = Columns(
        columns.classes[keep], columns.regions[keep], columns.foreign[keep], columns.services[keep]
    )
    times = table([one.service_time_s for one in supply], services, 0.0)[columns.services, columns.regions]
    rows = RowBuilder(len(times))
    add_supply(rows, columns, supply, services, times)
    add_quotas(rows, [place[one[keep[one]]] for one in covered], limits)
    counted = np.bincount(columns.classes[times > 0], minlength=len(classes))
    return Model(
        classes=classes,
        regions=tuple(number),
        quotas=problem.quotas,
        rate=rate,
        work=total(columns.classes, times, len(classes)) / np.maximum(counted, 1),
        offsets=place[offsets],
        columns=columns,
        cost=latency[keep] + np.array([one.cost_ms for one in supply], dtype=np.float64)[columns.regions],
        led=keep,
        rows=rows.rows(),
    )


def check(problem: Problem) -> None:
    """Refuse a problem that makes no sense.

    Raises:
        PlanError: says which class or region, and what is wrong with it.
    """
    seen: set[str] = set()
    for one in problem.classes:
        if one.key in seen:
            raise PlanError(f"class `{one.key}` is there twice: each class is one entry")
        seen.add(one.key)
        if len(one.regions) != len(one.latency_ms):
            raise PlanError(
                f"class `{one.key}`: {len(one.regions)} regions but {len(one.latency_ms)} latencies"
            )
        # A sum is finite only if all its parts are; latencies are far from where a sum of finite ones overflows.
        if not isfinite(sum(one.latency_ms)):
            raise PlanError(f"class `{one.key}`: a latency is not finite")
        if not (isfinite(one.rate) and one.rate >= 0 and min(one.tenants.values(), default=0.0) >= 0):
            raise PlanError(f"class `{one.key}`: a rate is negative or not finite")
    for name, supply in problem.supply.items():
        bounds = [supply.slots, supply.rate, supply.spill_in_rate, supply.spill_in_share]
        bounds += [*supply.service_slots.values(), *supply.service_rate.values()]
        finite = isfinite(supply.cost_ms) and all(isfinite(time) for time in supply.service_time_s.values())
        bounds += supply.service_time_s.values()
        if not (finite and all(bound is None or bound >= 0 for bound in bounds)):
            raise PlanError(f"region `{name}`: a number of its supply is negative or not a number")


def _columns(
    classes: Sequence[ClassDemand], services: Sequence[str], number: dict[str, int]
) -> tuple[Columns, Ints]:
    """Every class with every region it lists, and where each class begins."""
    lengths = np.array([len(one.regions) for one in classes], dtype=np.intp)
    offsets = np.cumsum(lengths) - lengths
    of_class = np.repeat(np.arange(len(classes), dtype=np.intp), lengths)
    listed = chain.from_iterable(one.regions for one in classes)
    region = np.fromiter(map(number.__getitem__, listed), dtype=np.intp, count=len(of_class))
    place = {name: index for index, name in enumerate(services)}
    service = np.array([place[one.service] for one in classes], dtype=np.intp)
    return Columns(of_class, region, region != region[offsets][of_class], service[of_class]), offsets


def _quotas(
    quotas: Sequence[SpilloverRule],
    number: dict[str, int],
    rate: Floats,
    columns: Columns,
    *,
    offsets: Ints,
    latency: Floats,
) -> tuple[Flags, list[Ints], Floats]:
    """Which columns the rules leave, which of all columns each rule counts, and the rate each allows: shares are of the rates given."""
    keep = np.ones(len(latency), dtype=np.bool_)
    homes = columns.regions[offsets]
    home = homes[columns.classes]
    added = latency - latency[offsets][columns.classes]
    ruled = {
        name: np.flatnonzero((home == number.get(name, -1)) & columns.foreign)
        for name in {q.from_region for q in quotas}
    }
    led = np.zeros(len(latency), dtype=np.bool_)
    covered, limits = [], np.full(len(quotas), np.inf)
    for index, quota in enumerate(quotas):
        candidates = ruled[quota.from_region]
        to = np.zeros(len(number), dtype=np.bool_)
        to[[number[name] for name in quota.to_regions if name in number]] = True
        mine = candidates[to[columns.regions[candidates]]]
        led[mine] = True
        if quota.max_added_latency_ms is not None:
            keep[mine[added[mine] > quota.max_added_latency_ms]] = False
        if quota.max_share is not None:
            limits[index] = quota.max_share * rate[homes == number.get(quota.from_region, -1)].sum()
        if quota.max_requests_per_second is not None:
            limits[index] = min(limits[index], quota.max_requests_per_second)
        covered.append(mine)
    for candidates in ruled.values():
        keep[candidates[~led[candidates]]] = False
    return keep, covered, limits
