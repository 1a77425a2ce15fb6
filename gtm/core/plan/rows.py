"""The bounds of a Problem as rows of a sparse matrix over its columns (a class and a region it may go to)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from gtm.core.capacity.supply import Supply

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]


class Bound(IntEnum):
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
    Bound.SLOTS: Bound.SPILL_IN_SLOTS,
    Bound.RATE: Bound.SPILL_IN_RATE,
    Bound.SERVICE_SLOTS: Bound.SPILL_IN_SERVICE_SLOTS,
    Bound.SERVICE_RATE: Bound.SPILL_IN_SERVICE_RATE,
}


@dataclass(frozen=True, slots=True)
class Matrix:
    """A sparse matrix: its entries, column by column. Those of column `n` are `starts[n]` to `starts[n + 1]`."""

    count: int
    """The number of rows."""
    row: Ints
    column: Ints
    value: Floats
    starts: Ints

    @classmethod
    def of(cls, rows: int, columns: int, entries: tuple[Ints, Ints, Floats]) -> Matrix:
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

    matrix: Matrix
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

    def add(self, bound: Bound, limits: Floats, owners: Ints, key: Ints, use: Floats) -> None:
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

    def put(self, bound: Bound, limits: Floats, owners: Ints, entries: tuple[Ints, Ints, Floats]) -> None:
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
            Matrix.of(self._count, self.columns, (row, column, use)),
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
        (Bound.SLOTS, _vector(supply, lambda one: one.slots), region, columns.regions, times),
        (Bound.RATE, _vector(supply, lambda one: one.rate), region, columns.regions, one),
        (
            Bound.SERVICE_SLOTS,
            table([one.service_slots for one in supply], services, np.inf).ravel(),
            owner,
            by_service,
            times,
        ),
        (
            Bound.SERVICE_RATE,
            table([one.service_rate for one in supply], services, np.inf).ravel(),
            owner,
            by_service,
            one,
        ),
    )
    share = _vector(supply, lambda one: one.spill_in_share)
    taken = np.where(share == 0, 0.0, _vector(supply, lambda one: one.spill_in_rate))
    away = one * columns.foreign
    rows.add(Bound.SPILL_IN_RATE, taken, region, columns.regions, away)
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
        rows.put(Bound.QUOTA, limits, np.arange(len(limits)), (key, column, np.ones(len(column))))


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
