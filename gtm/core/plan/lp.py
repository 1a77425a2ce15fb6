"""The linear programme, solved by HiGHS through scipy on as few columns as prove to be enough.

Two things make it quick. Each class's cheapest region takes what no other column takes, so it needs no variable, and
the solver starts from everybody there instead of from nothing. And the solver sees only a few columns of each class at
first: its dual values price the columns left out, and those with a negative reduced cost are added until what they
could gain together, a bound by duality, is less than `GAP_MS` per request (column generation: Ford and Fulkerson 1958,
Dantzig and Wolfe 1960).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csc_array, vstack

from gtm.core.plan.knobs import Knobs
from gtm.core.plan.model import Model
from gtm.core.plan.problem import PlanError
from gtm.core.plan.rows import Flags, Floats, Ints, total

GAP_MS = 0.1
"""How much better than the answer another could be at most, in ms per request."""
_NEAREST = 4
_ADDED = 8
_DEAR = 0.03  # of the span: unused columns whose reduced cost is above leave the solver's sight again,
_PRUNINGS = 6  # but not for ever
_TOLERANCE = 1e-6
_SHORT = 1e-3


@dataclass(frozen=True, slots=True)
class Parts:
    """Demand that may stay unserved, in parts of classes: at most `most` (requests/s) at `cost` (ms) per request."""

    classes: Ints
    most: Floats
    cost: Floats


@dataclass(frozen=True, slots=True)
class Answer:
    """Rates of columns, what stays unserved by class, and the rows' dual values (ms per unit of their limit)."""

    flow: Floats
    unserved: Floats
    price: Floats
    optimal: bool = False


@dataclass(slots=True)
class Programme:
    """The linear programme of one problem, solved several times with other demand and parts.

    `kept` is the rate of each column that the previous plan has: up to it the column is cheaper by `keep_ms`. `relative`
    are the costs above the class's cheapest column, in ms, `span` the largest. `active` are the columns that the
    solver sees.
    """

    model: Model
    kept: Floats
    knobs: Knobs
    relative: Floats
    span: float
    cheapest: Ints
    active: Flags

    @classmethod
    def of(cls, model: Model, kept: Floats, knobs: Knobs) -> Programme:
        """Set up for a model with columns."""
        of_class = model.columns.classes
        relative = model.cost - np.minimum.reduceat(model.cost, model.offsets)[of_class]
        first = np.flatnonzero(relative == 0)
        cheapest = first[np.searchsorted(of_class[first], np.arange(len(model.classes)))]
        active = (np.arange(len(of_class)) - model.offsets[of_class] < _NEAREST) | (kept > 0)
        span = max(float(relative.max()), 1.0) + knobs.keep_ms
        return cls(model, kept, knobs, relative, span, cheapest, active)

    def solve(self, demand: Floats, parts: Parts, *, gap_ms: float = GAP_MS, patience: float = inf) -> Answer:
        """Serve the demand (requests/s by class) at least cost.

        Args:
            demand: of each class.
            parts: of it that may stay unserved.
            gap_ms: how much better another answer could be at most, in ms per request.
            patience: after so many runs of the solver stop, not optimal, if a good part seems to stay unserved.

        Raises:
            PlanError: the solver gave up, or its answer does not hold.
        """
        asked = demand[parts.classes] > 0
        parts = Parts(parts.classes[asked], parts.most[asked], parts.cost[asked])
        of_class = self.model.columns.classes
        runs = 0
        while True:
            answer, reduced = self._run(demand, parts)
            runs += 1
            gain = np.minimum.reduceat(
                np.where(self.active, 0.0, np.minimum(reduced, 0.0)), self.model.offsets
            )
            if -(gain * demand).sum() <= gap_ms * demand.sum():
                return replace(answer, optimal=True)
            if runs >= patience and answer.unserved.sum() > _SHORT * demand.sum():
                return answer
            if runs <= _PRUNINGS:
                self.active &= (reduced < _DEAR * self.span) | (answer.flow > 0)
            missed = np.flatnonzero(~self.active & (reduced < 0) & (demand[of_class] > 0))
            order = missed[np.lexsort((reduced[missed], of_class[missed]))]
            place = np.arange(len(order)) - np.searchsorted(of_class[order], of_class[order])
            self.active[order[place < _ADDED]] = True

    def _run(self, demand: Floats, parts: Parts) -> tuple[Answer, Floats]:
        """The optimum over the active columns, and the reduced cost of all columns."""
        model, unit = self.model, self.span / 10  # costs near 1 suit the solver's tolerances
        wanted = demand[model.columns.classes] > 0
        columns = np.setdiff1d(np.flatnonzero(self.active & wanted), self.cheapest, assume_unique=True)
        kept = np.flatnonzero((self.kept > 0) & wanted)
        picked = np.concatenate((columns, kept))
        of_class = np.concatenate((model.columns.classes[picked], parts.classes))
        cost = np.concatenate((self.relative[columns], self.relative[kept] - self.knobs.keep_ms, parts.cost))
        upper = np.concatenate((np.full(len(columns), np.inf), self.kept[kept], parts.most))
        asking = np.flatnonzero(demand)
        limits = model.rows.limits - model.rows.matrix[:, self.cheapest] @ demand
        found = linprog(
            cost / unit,
            self._matrix(picked, of_class, demand),
            np.concatenate((limits, demand[asking])),
            bounds=np.column_stack((np.zeros(len(upper)), upper)),
            method="highs-ds",
            options={"time_limit": self.knobs.time_limit_s, "presolve": False},
        )
        if found.status != 0:
            raise PlanError(f"the solver found no plan: {found.message}")
        rate = np.maximum(found.x, 0.0)
        flow = np.zeros(len(self.relative))
        flow[self.cheapest] = np.maximum(demand - total(of_class, rate, len(demand)), 0.0)
        np.add.at(flow, picked, rate[: len(picked)])
        price = np.maximum(-found.ineqlin.marginals[: len(limits)] * unit, 0.0)
        unserved = total(parts.classes, rate[len(picked) :], len(demand))
        answer = Answer(flow, unserved, price)
        self._verify(answer, demand)
        reduced = self.relative + model.rows.matrix.T @ price
        worth = reduced[self.cheapest]
        worth[asking] += found.ineqlin.marginals[len(limits) :] * unit
        return answer, reduced - worth[model.columns.classes]

    def _matrix(self, picked: Ints, of_class: Ints, demand: Floats) -> Any:
        """Bounds, then classes with demand: what a request takes, less what it would take in its cheapest region."""
        matrix, size = self.model.rows.matrix, len(of_class)
        used = matrix[:, picked]
        ends = np.append(used.indptr, np.full(size - len(picked), used.indptr[-1]))
        used = csc_array((used.data, used.indices, ends), shape=(matrix.shape[0], size))
        row = (np.cumsum(demand > 0) - 1)[of_class]
        rows = csc_array((np.ones(size), row, np.arange(size + 1)), shape=(np.count_nonzero(demand), size))
        return vstack((used - matrix[:, self.cheapest[of_class]], rows), format="csc")

    def _verify(self, answer: Answer, demand: Floats) -> None:
        """Trust no solver: demand and bounds must hold within rounding."""
        model = self.model
        served = total(model.columns.classes, answer.flow, len(demand)) + answer.unserved
        over = model.rows.matrix @ answer.flow - model.rows.limits
        wrong = np.abs(served - demand) > _TOLERANCE * np.maximum(demand, 1.0)
        if wrong.any() or (over > _TOLERANCE * np.maximum(model.rows.limits, 1.0)).any():
            raise PlanError("the solver's answer breaks its own bounds: numerical trouble")
