"""The linear programme, solved by HiGHS through scipy on as few columns as prove to be enough.

Most classes go to one of their nearest regions, so the solver sees only those at first. Its dual values then price
every column left out: one with a negative reduced cost could improve the plan and is added; when there is none, the
answer is optimal among all columns (column generation: Ford and Fulkerson 1958, Dantzig and Wolfe 1960).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csc_array

from gtm.core.plan.knobs import Knobs
from gtm.core.plan.model import Model
from gtm.core.plan.problem import PlanError
from gtm.core.plan.rows import Flags, Floats, Ints

_NEAREST = 4
_SMALL = 4_000
_ADDED = 3
_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Parts:
    """Demand that may stay unserved, in parts of classes: at most `most` (requests/s) at `cost` (ms) per request."""

    classes: Ints
    most: Floats
    cost: Floats


@dataclass(frozen=True, slots=True)
class Answer:
    """Optimal rates of columns and of unserved parts, and the rows' dual values (ms per unit of their limit)."""

    flow: Floats
    unserved: Floats
    price: Floats


@dataclass(slots=True)
class Programme:
    """The linear programme of one problem, solved several times with other demand and parts.

    `kept` is the rate of each column that the previous plan has: up to it the column is cheaper by `keep_ms`. `span`
    is the largest difference in cost between two regions of a class, in ms. `active` are the columns that proved
    worth the solver's while.
    """

    model: Model
    kept: Floats
    knobs: Knobs
    relative: Floats
    span: float
    active: Flags

    @classmethod
    def of(cls, model: Model, kept: Floats, knobs: Knobs) -> Programme:
        """Set up for a model with columns."""
        of_class = model.columns.classes
        relative = model.cost - np.minimum.reduceat(model.cost, model.offsets)[of_class]
        position = np.arange(len(of_class)) - model.offsets[of_class]
        active = (position < _NEAREST) | (relative == 0) | (kept > 0) | (len(of_class) <= _SMALL)
        return cls(model, kept, knobs, relative, max(float(relative.max()), 1.0) + knobs.keep_ms, active)

    def solve(self, demand: Floats, parts: Parts) -> Answer:
        """Serve the demand (requests/s by class) at least cost.

        Raises:
            PlanError: the solver gave up, or its answer does not hold.
        """
        wanted = demand[self.model.columns.classes] > 0
        while True:
            columns = np.flatnonzero(self.active & wanted)
            answer, reduced = self._restricted(columns, demand, parts)
            missed = np.flatnonzero(wanted & ~self.active & (reduced < -_TOLERANCE * self.span))
            if not len(missed):
                return answer
            order = missed[np.lexsort((reduced[missed], self.model.columns.classes[missed]))]
            of_class = self.model.columns.classes[order]
            first = np.searchsorted(of_class, of_class)
            self.active[order[np.arange(len(order)) - first < _ADDED]] = True

    def _restricted(self, columns: Ints, demand: Floats, parts: Parts) -> tuple[Answer, Floats]:
        """The optimum over some columns, and the reduced cost of all."""
        model, unit = self.model, self.span / 10  # costs near 1 suit the solver's tolerances
        kept = columns[self.kept[columns] > 0]
        picked = np.concatenate((columns, kept))
        of_class = np.concatenate((model.columns.classes[picked], parts.classes))
        size = len(of_class)
        cost = np.concatenate((self.relative[columns], self.relative[kept] - self.knobs.keep_ms, parts.cost))
        upper = np.concatenate((np.full(len(columns), np.inf), self.kept[kept], parts.most))
        bounded = model.rows.matrix[:, picked]
        ends = np.concatenate((bounded.indptr, np.full(len(parts.classes), bounded.indptr[-1])))
        found = linprog(
            cost / unit,
            csc_array((bounded.data, bounded.indices, ends), shape=(len(model.rows.limits), size)),
            model.rows.limits,
            csc_array((np.ones(size), of_class, np.arange(size + 1)), shape=(len(demand), size)),
            demand,
            np.column_stack((np.zeros(size), upper)),
            method="highs-ds",
            options={"time_limit": self.knobs.time_limit_s},
        )
        if found.status != 0:
            raise PlanError(f"the solver found no plan: {found.message}")
        rate = np.maximum(found.x, 0.0)
        flow = np.zeros(len(self.relative))
        np.add.at(flow, picked, rate[: len(picked)])
        answer = Answer(flow, rate[len(picked) :], np.maximum(-found.ineqlin.marginals * unit, 0.0))
        self._verify(answer, demand, parts)
        reduced = self.relative - unit * found.eqlin.marginals[model.columns.classes]
        return answer, reduced - model.rows.matrix.T @ (found.ineqlin.marginals * unit)

    def _verify(self, answer: Answer, demand: Floats, parts: Parts) -> None:
        """Trust no solver: demand and bounds must hold within rounding."""
        model = self.model
        served = np.bincount(model.columns.classes, answer.flow, minlength=len(demand))
        served += np.bincount(parts.classes, answer.unserved, minlength=len(demand))
        used = model.rows.matrix @ answer.flow
        wrong = np.abs(served - demand) > _TOLERANCE * np.maximum(demand, 1.0)
        over = used - model.rows.limits > _TOLERANCE * np.maximum(model.rows.limits, 1.0)
        if wrong.any() or over.any():
            raise PlanError("the solver's answer breaks its own bounds: numerical trouble")
