"""A Problem as arrays: a column for each class and region it may go to, a row for each bound.

A column's variable is the rate that its region serves of its class. By Little's law that rate holds rate × service
time slots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain
from math import isfinite

import numpy as np
import numpy.typing as npt

from gtm.core.capacity.supply import Supply
from gtm.core.model.policy import SpilloverRule
from gtm.core.plan.problem import ClassDemand, PlanError, PlanProblem
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
        if self.rows.bound[row] > BoundKind.SERVICE_RATE:
            return self.quota(row)
        return self.regions[int(self.rows.owner[row])]

    def quota(self, row: int) -> QuotaText:
        """What the quota of a row is called: a rule, or what a region takes of others' demand."""
        owner = int(self.rows.owner[row])
        if self.rows.bound[row] == BoundKind.QUOTA:
            return QuotaName(self.quotas[owner].name).text
        return QuotaName(self.regions[owner], into=True).text


def build(problem: PlanProblem) -> Model:
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


def check(problem: PlanProblem) -> None:
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


# --- The bounds of a Problem as rows of a sparse matrix over its columns (a class and a region it may go to). ---


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]


class BoundKind(IntEnum):
    """What a row bounds. The first four are capacities: what a region can serve, whosever demand."""

    SLOTS = 0
    RATE = 1
    SERVICE_SLOTS = 2
    SERVICE_RATE = 3
    SPILL_IN_SLOTS = 4
    SPILL_IN_RATE = 5
    SPILL_IN_SERVICE_SLOTS = 6
    SPILL_IN_SERVICE_RATE = 7
    QUOTA = 8


_SPILL_IN = {
    BoundKind.SLOTS: BoundKind.SPILL_IN_SLOTS,
    BoundKind.RATE: BoundKind.SPILL_IN_RATE,
    BoundKind.SERVICE_SLOTS: BoundKind.SPILL_IN_SERVICE_SLOTS,
    BoundKind.SERVICE_RATE: BoundKind.SPILL_IN_SERVICE_RATE,
}


@dataclass(frozen=True, slots=True)
class SparseMatrix:
    """A sparse matrix: its entries, column by column. Those of column `n` are `starts[n]` to `starts[n + 1]`."""

    count: int
    """The number of rows."""
    row: Ints
    column: Ints
    value: Floats
    starts: Ints

    @classmethod
    def of(cls, rows: int, columns: int, entries: tuple[Ints, Ints, Floats]) -> SparseMatrix:
        """From rows, columns and values in any order; no place twice."""
        row, column, value = entries
        order = np.lexsort((row, column))
        starts = np.searchsorted(column[order], np.arange(columns + 1))
        return cls(rows, row[order], column[order], value[order], starts)

    def dot(self, vector: Floats) -> Floats:
        """The matrix times a vector: what rates use of each bound."""
        return total(self.row, self.value * vector[self.column], self.count)

    def transposed_dot(self, vector: Floats) -> Floats:
        """The transposed matrix times a vector: what a request of each column costs at the bounds' prices."""
        return total(self.column, self.value * vector[self.row], len(self.starts) - 1)


@dataclass(frozen=True, slots=True)
class Rows:
    """Bounds: `matrix` (rows × columns) times the columns' rates is at most `limits`.

    `bound` holds each row's Bound, `owner` the number of its region, or of its quota.
    """

    matrix: SparseMatrix
    limits: Floats
    bound: Ints
    owner: Ints


@dataclass(frozen=True, slots=True)
class Columns:
    """The variables: the class and region of each, whether the region is not the class's home, and its service."""

    classes: Ints
    regions: Ints
    foreign: Flags
    services: Ints


@dataclass(slots=True)
class RowBuilder:
    """Collects rows, many at once, as coordinates of a sparse matrix."""

    columns: int
    _limits: list[Floats] = field(default_factory=list)
    _bounds: list[Ints] = field(default_factory=list)
    _owners: list[Ints] = field(default_factory=list)
    _entries: list[tuple[Ints, Ints, Floats]] = field(default_factory=list)
    _count: int = 0

    def add(self, bound: BoundKind, limits: Floats, owners: Ints, key: Ints, use: Floats) -> None:
        """Add a row for each finite limit that some column counts against.

        Args:
            bound: what the rows bound.
            limits: of each key.
            owners: region or quota of each key.
            key: of each column.
            use: how much of its key's limit one request a second of each column takes; 0: nothing.
        """
        counted = np.flatnonzero(np.isfinite(limits)[key] & (use > 0))
        if len(counted):
            self.put(bound, limits, owners, (key[counted], counted, use[counted]))

    def put(self, bound: BoundKind, limits: Floats, owners: Ints, entries: tuple[Ints, Ints, Floats]) -> None:
        """Add rows from coordinates: keys, columns, and how much each uses."""
        key, column, use = entries
        present, row = np.unique(key, return_inverse=True)
        self._entries.append((row + self._count, column, use))
        self._limits.append(limits[present])
        self._owners.append(owners[present])
        self._bounds.append(np.full(len(present), bound, dtype=np.intp))
        self._count += len(present)

    def rows(self) -> Rows:
        """All rows so far as one sparse matrix, in the order in which they were put."""
        none = np.zeros(0, dtype=np.intp)
        row = np.concatenate([none, *(entry[0] for entry in self._entries)])
        column = np.concatenate([none, *(entry[1] for entry in self._entries)])
        use = np.concatenate([np.zeros(0), *(entry[2] for entry in self._entries)])
        return Rows(
            SparseMatrix.of(self._count, self.columns, (row, column, use)),
            np.concatenate([np.zeros(0), *self._limits]),
            np.concatenate([none, *self._bounds]),
            np.concatenate([none, *self._owners]),
        )


def add_supply(
    rows: RowBuilder, columns: Columns, supply: Sequence[Supply], services: Sequence[str], times: Floats
) -> None:
    """Add what regions can serve, and what they take of others' demand.

    A share of spill-in holds for each bound of the region. `times` are the service times of the columns, in seconds.
    """
    region = np.arange(len(supply), dtype=np.intp)
    owner = np.tile(region, len(services))
    by_service = columns.services * len(supply) + columns.regions
    one = np.ones(len(times))
    capacities = (
        (BoundKind.SLOTS, _vector(supply, lambda one: one.slots), region, columns.regions, times),
        (BoundKind.RATE, _vector(supply, lambda one: one.rate), region, columns.regions, one),
        (
            BoundKind.SERVICE_SLOTS,
            table([one.service_slots for one in supply], services, np.inf).ravel(),
            owner,
            by_service,
            times,
        ),
        (
            BoundKind.SERVICE_RATE,
            table([one.service_rate for one in supply], services, np.inf).ravel(),
            owner,
            by_service,
            one,
        ),
    )
    share = _vector(supply, lambda one: one.spill_in_share)
    taken = np.where(share == 0, 0.0, _vector(supply, lambda one: one.spill_in_rate))
    away = one * columns.foreign
    rows.add(BoundKind.SPILL_IN_RATE, taken, region, columns.regions, away)
    for bound, limits, owners, key, use in capacities:
        rows.add(bound, limits, owners, key, use)
        part = np.full(len(limits), np.inf)
        np.multiply(share[owners], limits, out=part, where=np.isfinite(share[owners]) & np.isfinite(limits))
        rows.add(_SPILL_IN[bound], part, owners, key, use * columns.foreign)


def add_quotas(rows: RowBuilder, quotas: Sequence[Ints], limits: Floats) -> None:
    """Add a row for each rule with a finite limit. `quotas` holds the columns that each rule counts."""
    bounded = [number for number, limit in enumerate(limits) if np.isfinite(limit) and len(quotas[number])]
    if bounded:
        key = np.repeat(np.array(bounded, dtype=np.intp), [len(quotas[number]) for number in bounded])
        column = np.concatenate([quotas[number] for number in bounded])
        rows.put(BoundKind.QUOTA, limits, np.arange(len(limits)), (key, column, np.ones(len(column))))


def table(values: Sequence[Mapping[str, float]], services: Sequence[str], absent: float) -> Floats:
    """Numbers by service (rows) and region (columns)."""
    number = {name: index for index, name in enumerate(services)}
    found = np.full((len(services), len(values)), absent)
    for column, by_service in enumerate(values):
        for name, value in by_service.items():
            if name in number:
                found[number[name], column] = value
    return found


def _vector(supply: Sequence[Supply], read: Callable[[Supply], float | None]) -> Floats:
    """One number of each region, infinite where it states none."""
    return np.array([np.inf if (value := read(one)) is None else value for one in supply], dtype=np.float64)


def total(numbers: Ints, values: Floats, count: int) -> Floats:
    """Sums of values by number: of columns by class, for instance."""
    sums: Floats = np.bincount(numbers, values, minlength=count).astype(np.float64, copy=False)
    return sums
