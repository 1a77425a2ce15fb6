"""What an edge's agent makes of losing control."""

from __future__ import annotations

from gtm.core.state import NO_PLAN, ClassPlan, Plan
from gtm.runtime.agent import PLAN_KEPT, kept_plan


def test_the_last_plan_is_followed_for_a_while() -> None:
    """Without control an edge keeps the plan for as long as demand is likely to look the same, and no longer."""
    plan = Plan(1.0, {"class": ClassPlan({"de": 1.0})}, {"de": 3.0})
    assert kept_plan(plan, 0.0) is plan
    assert kept_plan(plan, PLAN_KEPT) is plan
    assert kept_plan(plan, PLAN_KEPT + 1) is NO_PLAN
