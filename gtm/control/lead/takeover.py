"""What a control process that starts takes over from the one before: the plan in force, as the edges follow it.

Laws:
  1. Until demand has been heard of for a while, edges keep the plan they have: one made from too little demand would
     send everybody to the nearest region at once.
  2. Planning then goes on from that plan by steps, as if control had never been away.
"""

from __future__ import annotations

from collections.abc import Iterable

from gtm.core.model.state import NO_PLAN, ClassPlan, Plan

LISTENING = 10.0
"""Seconds of reports before the first plan, where a plan is in force: all edges are back by then, and rates are steady."""
GATHERING = 5.0
"""Seconds for which edges may still come and say that they follow a plan. If none does there is none to keep."""
MAX_AHEAD = 60.0
"""Seconds by which a plan may be ahead of this control's clock; one from later still was made by nobody."""
MAX_CLASSES = 50_000
"""Ranking classes that a plan from outside may have."""
_ROUNDING = 1e-6


class Takeover:
    """The first seconds of one control process. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.plan = NO_PLAN
        self.over = False
        self._began: float | None = None
        self._told: set[str] = set()

    def take(self, edge: str, plan: Plan | None, now: float) -> bool:
        """Take in a report, with the plan that the edge follows if it says so; whether the edge should say it next."""
        if self.over:
            return False
        if self._began is None:
            self._began = now
        if plan is not None:
            self._told.add(edge)
            if plan.classes and plan.made >= self.plan.made:
                self.plan = plan
        return edge not in self._told

    def end(self, now: float) -> bool:
        """Whether plans may be published from now on."""
        if self._began is not None and not self.over:
            wait = LISTENING if self.plan.classes else GATHERING
            self.over = now - self._began >= wait
        return self.over


def plan_problem(plan: Plan) -> str | None:
    """What is wrong with a plan that an edge says it follows; None if nothing is."""
    for key, one in plan.classes.items():
        if not _are_shares((*one.weights.values(), one.shed, *one.tenants.values())):
            return f"shares of class `{key[:200]}` must be between 0 and 1"
        if not _sums_to_one(one):
            return f"weights of class `{key[:200]}` must sum to 1"
    return None


def _are_shares(values: Iterable[float]) -> bool:
    return all(0 <= value <= 1 + _ROUNDING for value in values)


def _sums_to_one(plan: ClassPlan) -> bool:
    return abs(sum(plan.weights.values()) - 1) <= _ROUNDING
