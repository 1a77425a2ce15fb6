"""A linear programme that the simplex method solves again and again, each time from the last basis.

HiGHS (Huangfu and Hall 2018) through its own Python package. One thread, and the same input gives the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np

from gtm.core.plan.problem import PlanError
from gtm.core.plan.rows import Floats, Ints

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
