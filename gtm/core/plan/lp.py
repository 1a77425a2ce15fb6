"""The linear programme of one problem, on as few columns as prove to be enough.

Theory. A column x[c,r] ≥ 0 is the rate (requests/s) of class c that region r serves, of cost k[c,r]: its latency and the
region's own cost in ms, less the least of the class, because only differences matter. Two more of each class, v[c] and w[c], are
what stays unserved, up to `UnservedParts.most` at `UnservedParts.cost`; and a column that the previous plan has is there a second time, up to
the rate of then, for `keep_ms` less, so that nothing moves for a gain that nobody feels.

  least  Σ k[c,r] x[c,r] + Σ cost v + Σ cost w
  bounds Σ a[i,(c,r)] x[c,r] ≤ b[i]           for each capacity and quota i (`gtm.core.plan.model`); a is 1, or a service time
  demand Σ over r of x[c,r] + v[c] + w[c] = d[c]  for each class

It always has a solution where everything may stay unserved. Tiers of priority are not one objective: `gtm.core.plan.solve`
runs it tier after tier, each with more demand, and with more than what the tiers above left unserved in their own run priced
out of reach. Of the two parts of a class in its turn, the dear one is what its tenants ask within their fair shares.

Prices. The dual value π[i] ≥ 0 of a bound is by how much the sum would fall for one more unit of b[i]: the price of what is full,
0 where there is room. That of a class's demand, y[c], is what its last request costs. A column is worth adding if its
reduced cost k[c,r] + Σ a[i,(c,r)] π[i] - y[c] is below 0.

Few columns. The solver first sees only the `_NEAREST` of each class, and those of the previous plan. Prices then judge all others.
However much is added, no class can send more than d[c], so the sum can fall by no more than Σ d[c] × (the largest gain of
a request of c): while that bound is above the gap, the best columns of each class go in (column generation).

Warm start. Every run goes on from the last one's basis. Columns join at 0, and classes with all their demand where it costs
least or, where a bound is in the way, unserved (`_begin` puts that column, or v[c], into the basis in place of the demand's own
row), which keeps it primal feasible: the primal simplex method goes on, from an optimum if nothing is full. Where only
bounds change it is dual feasible still, and the dual one takes the fewest steps. Nothing is kept from tick to tick but
the plan, so that the same question has the same answer.

Laws:
  1. The answer serves or leaves unserved the demand exactly, and exceeds no bound, both within rounding: `_verify` believes no
     solver.
  2. After `refine`, no other answer is better by more than its gap per request. `solve` promises that only while something
     stays unserved: until the last tier is in, latency may wait, refusals may not.
  3. Prices are never negative.

Example. Clients in Germany ask for 12 requests/s (Frankfurt 10 ms, Dublin 40 ms away), those in Ireland for 4 (10 ms, 35 ms).
Frankfurt serves 10/s, so two of the Germans go to Dublin. One more request/s there would spare one of them 30 ms: its price.
The Irish do not go there, for their 25 ms more and 30 ms for the place are a reduced cost of 55 ms.

>>> from gtm.core.capacity.supply import Supply
>>> from gtm.core.model.services import Priority
>>> from gtm.core.plan.model import build
>>> from gtm.core.plan.problem import ClassDemand, PlanProblem
>>> def solved(german):
...     one = ClassDemand("de", "chat", Priority.REAL_TIME, ("fra", "dub"), (10.0, 40.0), german)
...     other = ClassDemand("ie", "chat", Priority.REAL_TIME, ("dub", "fra"), (10.0, 35.0), 4.0)
...     model = build(PlanProblem((one, other), {"fra": Supply(rate=10.0), "dub": Supply(rate=8.0)}))
...     programme = Programme(model, np.zeros(4), Knobs())
...     unserved = UnservedParts(np.array([model.rate, [0.0, 0.0]]), np.full((2, 2), 1000.0))
...     answer = programme.refine(programme.solve(model.rate, unserved, gap_ms=GAP_MS), gap_ms=GAP_MS)
...     return [numbers.round(6).tolist() for numbers in (answer.flow, answer.unserved, answer.price)]
>>> solved(12.0)  # de to fra and dub, ie to dub and fra; unserved; prices of fra and dub
[[10.0, 2.0, 4.0, 0.0], [0.0, 0.0], [30.0, 0.0]]

Of 16 requests/s two find no place, and the prices become those of the refusal, 1,000 ms less the way there: a number without a
meaning of its own, which `gtm.core.plan.solve` caps.

>>> solved(16.0)
[[10.0, 4.0, 4.0, 0.0], [2.0, 0.0], [1000.0, 970.0]]

Sources: Dantzig, "Linear Programming and Extensions" (1963), duals as prices; Ford and Fulkerson, "A suggested computation for
maximal multi-commodity network flows" (1958) and Dantzig and Wolfe, "Decomposition principle for linear programs" (1960), columns
by price; Lübbecke and Desrosiers, "Selected topics in column generation" (2005), the bound; Huangfu and Hall (2018), HiGHS;
docs/decisions/0006-planner.md, what was measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np

from gtm.core.plan.model import Flags, Floats, Ints, Model, total
from gtm.core.plan.problem import Knobs, PlanError

GAP_MS = 0.1
"""How much better than the answer another could be at most, in ms per request."""
_NEAREST = 4
_ADDED = 8
_ROUNDING = 1e-7
_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class UnservedParts:
    """Demand that may stay unserved, in two parts of each class (rows): at most `most` (requests/s) at `cost` (ms)."""

    most: Floats
    cost: Floats


@dataclass(frozen=True, slots=True)
class Allocation:
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
        self._cost, self._most = np.zeros(0), np.zeros(0)  # of these columns, as the solver sees them
        self._flow = np.zeros(len(of_class))
        self._active = np.zeros(len(of_class), dtype=np.bool_)
        self._demand = np.zeros(count)

    def solve(self, demand: Floats, parts: UnservedParts, *, gap_ms: float) -> Allocation:
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

    def refine(self, answer: Allocation, *, gap_ms: float) -> Allocation:
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
        # All that a class sends cannot gain more than its best column does: the bound by duality.
        if -(reduced[best] * demand[of_class[best]]).sum() <= gap_ms * demand.sum():
            return False
        self._add(order[place < _ADDED])
        return True

    def _join(self, joining: Flags, demand: Floats) -> None:
        """Let classes in that had no demand."""
        classes, of_class = np.flatnonzero(joining), self.model.columns.classes
        first = len(self._columns)
        near = np.arange(len(of_class)) - self.model.offsets[of_class] < _NEAREST
        self._add(np.flatnonzero(near & joining[of_class]))
        kept = np.flatnonzero((self._kept > 0) & joining[of_class])
        self._add(kept, self._kept[kept])
        self._simplex.change_rows(classes + self._first, demand[classes])
        self._begin(first, classes, demand)
        self._demand = demand

    def _begin(self, first: int, classes: Ints, demand: Floats) -> None:
        """Give the solver a basis that is feasible, and the best one where nothing is full.

        Each class that joins begins with its demand where that costs least; those that meet a bound so begin unserved.

        Args:
            first: of the solver's columns those from here on are theirs.
            classes: those that join.
            demand: of each class.
        """
        joined, model = self._columns[first:], self.model
        order = np.lexsort((self._cost[first:], model.columns.classes[joined]))
        column = joined[order]
        of_class = model.columns.classes[column]
        most = np.minimum(self._most[first:][order], demand[of_class])
        starts = np.searchsorted(of_class, classes)
        before = np.cumsum(most) - most
        before -= np.repeat(before[starts], np.diff(np.append(starts, len(column))))
        rate = np.clip(demand[of_class] - before, 0.0, most)
        rate[rate <= _ROUNDING * demand[of_class]] = 0.0
        used = model.rows.matrix.dot(self._flow + total(column, rate, len(self._flow)))
        meeting = model.rows.matrix.transposed_dot((used > model.rows.limits).astype(np.float64))[column] > 0
        unserved = np.zeros(len(demand), dtype=np.bool_)
        unserved[of_class[meeting & (rate > 0)]] = True
        sending = (rate > 0) & ~unserved[of_class]
        last = sending & ~np.append(sending[1:] & (of_class[1:] == of_class[:-1]), False)
        place = order + first + 2 * len(demand)
        entering = np.concatenate((place[last], np.flatnonzero(unserved)))
        rows = np.concatenate((of_class[last], np.flatnonzero(unserved))) + self._first
        self._simplex.enter(entering, rows, place[sending & ~last])

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
        self._cost, self._most = np.concatenate((self._cost, cost)), np.concatenate((self._most, most))

    def _run(self, *, primal: bool) -> Allocation:
        """The optimum over the columns that the solver sees."""
        model, count = self.model, len(self._demand)
        found = self._simplex.run(primal=primal)
        rate = np.maximum(found.rate, 0.0)
        unserved = rate[:count] + rate[count : 2 * count]
        unserved[unserved <= _ROUNDING * np.maximum(self._demand, 1.0)] = 0.0
        dual = found.dual * self._unit
        # The dual of an upper limit is what more of it would change the cost by, at most 0: its price is the opposite.
        price = np.maximum(-dual[: self._first], 0.0)
        answer = Allocation(total(self._columns, rate[2 * count :], len(self.relative)), unserved, price)
        self._verify(answer)
        self._flow = answer.flow
        reduced = self.relative + model.rows.matrix.transposed_dot(price)
        self._reduced = reduced - dual[self._first :][model.columns.classes]
        return answer

    def _verify(self, answer: Allocation) -> None:
        """Trust no solver: demand and bounds must hold within rounding."""
        model, demand = self.model, self._demand
        served = total(model.columns.classes, answer.flow, len(demand)) + answer.unserved
        over = model.rows.matrix.dot(answer.flow) - model.rows.limits
        wrong = np.abs(served - demand) > _TOLERANCE * np.maximum(demand, 1.0)
        if wrong.any() or (over > _TOLERANCE * np.maximum(model.rows.limits, 1.0)).any():
            raise PlanError("the solver's answer breaks its own bounds: numerical trouble")


# --- A linear programme that the simplex method solves again and again, each time from the last basis.
#
# HiGHS (Huangfu and Hall 2018) through its own Python package. One thread, and the same input gives the same answer.


_DUAL, _PRIMAL = 1, 4
_DANTZIG = 0
_FINAL = (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kTimeLimit)
_BASIC = highspy.HighsBasisStatus.kBasic
_LOWER = highspy.HighsBasisStatus.kLower
_UPPER = highspy.HighsBasisStatus.kUpper


@dataclass(frozen=True, slots=True)
class Optimum:
    """Rates of the columns, and by how much the objective grows with each row's bound."""

    rate: Floats
    dual: Floats


class Simplex:
    """Least cost of columns ≥ 0 under rows: first upper limits, then equalities, all 0 to begin with."""

    def __init__(self, limits: Floats, equalities: int, time_limit_s: float) -> None:
        self._highs = highspy.Highs()
        options = {
            "output_flag": False,
            "solver": "simplex",
            "presolve": "off",
            "threads": 1,
            "simplex_dual_edge_weight_strategy": _DANTZIG,
            "simplex_primal_edge_weight_strategy": _DANTZIG,
            "time_limit": time_limit_s,
        }
        for name, value in options.items():
            self._highs.setOptionValue(name, value)
        count = len(limits) + equalities
        lower = np.concatenate((np.full(len(limits), -np.inf), np.zeros(equalities)))
        upper = np.concatenate((limits, np.zeros(equalities)))
        none = np.zeros(0, dtype=np.int32)
        self._highs.addRows(count, lower, upper, 0, np.zeros(count, dtype=np.int32), none, np.zeros(0))

    def add(self, cost: Floats, upper: Floats, entries: tuple[Ints, Ints, Floats]) -> None:
        """Add columns at 0. `entries`: where each column begins, then rows and values, column by column."""
        starts, rows, values = entries
        self._highs.addCols(
            len(cost),
            cost,
            np.zeros(len(cost)),
            upper,
            len(rows),
            starts.astype(np.int32),
            rows.astype(np.int32),
            values,
        )

    def change_columns(self, columns: Ints, cost: Floats, upper: Floats) -> None:
        """Set cost and upper bound of columns."""
        index = columns.astype(np.int32)
        self._highs.changeColsCost(len(index), index, cost)
        self._highs.changeColsBounds(len(index), index, np.zeros(len(index)), upper)

    def change_rows(self, rows: Ints, values: Floats) -> None:
        """Set the right-hand sides of equalities, by number of all rows. The basis stays dual feasible."""
        self._highs.changeRowsBounds(len(rows), rows.astype(np.int32), values, values)

    def enter(self, columns: Ints, rows: Ints, full: Ints) -> None:
        """Let columns take the place of rows in the basis, and others (`full`) stand at their upper bound."""
        basis = self._highs.getBasis()
        of_columns, of_rows = basis.col_status, basis.row_status
        for column, row in zip(columns.tolist(), rows.tolist(), strict=True):
            of_columns[column], of_rows[row] = _BASIC, _LOWER
        for column in full.tolist():
            of_columns[column] = _UPPER
        basis.col_status, basis.row_status, basis.valid = of_columns, of_rows, True
        self._highs.setBasis(basis)

    def run(self, *, primal: bool) -> Optimum:
        """Solve from the last basis: `primal` if it is feasible, as after adding columns.

        Raises:
            PlanError: the solver gave up.
        """
        self._highs.setOptionValue("simplex_strategy", _PRIMAL if primal else _DUAL)
        self._highs.run()
        if self._highs.getModelStatus() not in _FINAL:
            self._highs.clearSolver()  # rounding may have spoilt the basis: once more from none
            self._highs.run()
        status = self._highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise PlanError(f"the solver found no plan: {self._highs.modelStatusToString(status)}")
        found = self._highs.getSolution()
        return Optimum(np.array(found.col_value), np.array(found.row_dual))
