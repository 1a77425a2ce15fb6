"""The linear programme of one problem, on as few columns as prove to be enough.

Two things make it quick. The solver sees only a few columns of each class at first: its dual values price the columns
left out, and those with a negative reduced cost are added until what they could gain together, a bound by duality, is
less than `GAP_MS` per request (column generation: Ford and Fulkerson 1958, Dantzig and Wolfe 1960). And every run
starts from the last one's basis: after columns were added that is feasible still, and the primal simplex method goes
on; after bounds changed it is dual feasible still, and the dual one does. Classes that join answer the prices of the
moment, which keeps it so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gtm.core.plan.knobs import Knobs
from gtm.core.plan.model import Model
from gtm.core.plan.problem import PlanError
from gtm.core.plan.rows import Flags, Floats, Ints, total
from gtm.core.plan.simplex import Simplex

GAP_MS = 0.1
"""How much better than the answer another could be at most, in ms per request."""
_NEAREST = 4
_ADDED = 8
_ROUNDING = 1e-7
_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Parts:
    """Demand that may stay unserved, in two parts of each class (rows): at most `most` (requests/s) at `cost` (ms)."""

    most: Floats
    cost: Floats


@dataclass(frozen=True, slots=True)
class Answer:
    """Rates of columns, what stays unserved by class, and the rows' dual values (ms per unit of their limit)."""

    flow: Floats
    unserved: Floats
    price: Floats


class Programme:
    """The linear programme of one problem, solved several times with more and more demand, and other parts.

    Args:
        model: with columns.
        kept: the rate of each column that the previous plan has: up to it the column is cheaper by `keep_ms`.
        knobs: the planner's.
    """

    def __init__(self, model: Model, kept: Floats, knobs: Knobs) -> None:
        self.model = model
        of_class = model.columns.classes
        self.relative = model.cost - np.minimum.reduceat(model.cost, model.offsets)[of_class]
        self.span = max(float(self.relative.max()), 1.0) + knobs.keep_ms
        """The largest difference in cost between two columns of a class, in ms."""
        count = len(model.classes)
        self._kept, self._keep_ms = kept, knobs.keep_ms
        self._unit = self.span / 10  # costs near 1 suit the solver's tolerances
        self._simplex = Simplex(model.rows.limits, count, knobs.time_limit_s)
        self._first = len(model.rows.limits)  # the row of the first class
        rows = np.tile(np.arange(count) + self._first, 2)
        self._simplex.add(
            np.zeros(2 * count), np.zeros(2 * count), (np.arange(2 * count), rows, np.ones(2 * count))
        )
        self._columns = np.zeros(0, dtype=np.intp)
        self._active = np.zeros(len(of_class), dtype=np.bool_)
        self._demand = np.zeros(count)

    def solve(self, demand: Floats, parts: Parts, *, gap_ms: float) -> Answer:
        """Serve the demand (requests/s by class) at least cost, unless all is served: `refine` then finds the best.

        Args:
            demand: of each class. Classes that had demand before keep it.
            parts: of it that may stay unserved.
            gap_ms: how much better another answer could be at most, in ms per request.

        Raises:
            PlanError: the solver gave up, or its answer does not hold.
        """
        self._simplex.change_columns(
            np.arange(parts.most.size), parts.cost.ravel() / self._unit, parts.most.ravel()
        )
        joining = (demand > 0) & (self._demand == 0)
        if joining.any():
            self._join(joining, demand)
        answer = self._run(primal=bool(joining.any()))
        while answer.unserved.any() and self._price_in(gap_ms):
            answer = self._run(primal=True)
        return answer

    def refine(self, answer: Answer, *, gap_ms: float) -> Answer:
        """Go on from the last answer of `solve` until no other could be better by more than the gap.

        Raises:
            PlanError: as `solve`.
        """
        while self._price_in(gap_ms):
            answer = self._run(primal=True)
        return answer

    def _price_in(self, gap_ms: float) -> bool:
        """Add columns that could help, if together they could by more than the gap; whether they could."""
        of_class, demand, reduced = self.model.columns.classes, self._demand, self._reduced
        missed = np.flatnonzero(~self._active & (reduced < 0) & (demand[of_class] > 0))
        order = missed[np.lexsort((reduced[missed], of_class[missed]))]
        place = np.arange(len(order)) - np.searchsorted(of_class[order], of_class[order])
        best = order[place == 0]
        if -(reduced[best] * demand[of_class[best]]).sum() <= gap_ms * demand.sum():
            return False
        self._add(order[place < _ADDED])
        return True

    def _join(self, joining: Flags, demand: Floats) -> None:
        """Let classes in that had no demand. They begin unserved, so that the basis stays feasible."""
        classes, of_class = np.flatnonzero(joining), self.model.columns.classes
        near = np.arange(len(of_class)) - self.model.offsets[of_class] < _NEAREST
        self._add(np.flatnonzero(near & joining[of_class]))
        kept = np.flatnonzero((self._kept > 0) & joining[of_class])
        self._add(kept, self._kept[kept])
        self._simplex.change_rows(classes + self._first, demand[classes])
        self._simplex.enter(classes, classes + self._first)
        self._demand = demand

    def _add(self, columns: Ints, most: Floats | None = None) -> None:
        """Let the solver see columns, or the parts of them (`most`, in requests/s) that the previous plan has."""
        matrix, of_class = self.model.rows.matrix, self.model.columns.classes
        lengths = np.diff(matrix.starts)[columns] + 1
        starts = np.cumsum(lengths) - lengths
        rows = np.empty(lengths.sum(), dtype=np.intp)
        values = np.ones(len(rows))
        rows[starts] = of_class[columns] + self._first
        inside = np.ones(len(rows), dtype=np.bool_)
        inside[starts] = False
        entry = np.repeat(matrix.starts[columns] - starts - 1, lengths) + np.arange(len(rows))
        rows[inside], values[inside] = matrix.row[entry[inside]], matrix.value[entry[inside]]
        cost = self.relative[columns]
        if most is None:
            most = np.full(len(columns), np.inf)
            self._active[columns] = True
        else:
            cost = cost - self._keep_ms
        self._simplex.add(cost / self._unit, most, (starts, rows, values))
        self._columns = np.concatenate((self._columns, columns))

    def _run(self, *, primal: bool) -> Answer:
        """The optimum over the columns that the solver sees."""
        model, count = self.model, len(self._demand)
        found = self._simplex.run(primal=primal)
        rate = np.maximum(found.rate, 0.0)
        unserved = rate[:count] + rate[count : 2 * count]
        unserved[unserved <= _ROUNDING * np.maximum(self._demand, 1.0)] = 0.0
        dual = found.dual * self._unit
        price = np.maximum(-dual[: self._first], 0.0)
        answer = Answer(total(self._columns, rate[2 * count :], len(self.relative)), unserved, price)
        self._verify(answer)
        reduced = self.relative + model.rows.matrix.transposed_dot(price)
        self._reduced = reduced - dual[self._first :][model.columns.classes]
        return answer

    def _verify(self, answer: Answer) -> None:
        """Trust no solver: demand and bounds must hold within rounding."""
        model, demand = self.model, self._demand
        served = total(model.columns.classes, answer.flow, len(demand)) + answer.unserved
        over = model.rows.matrix.dot(answer.flow) - model.rows.limits
        wrong = np.abs(served - demand) > _TOLERANCE * np.maximum(demand, 1.0)
        if wrong.any() or (over > _TOLERANCE * np.maximum(model.rows.limits, 1.0)).any():
            raise PlanError("the solver's answer breaks its own bounds: numerical trouble")
