"""What a control process that starts takes over from the one before: the plan in force, as the edges follow it.

Laws:
  1. Until demand has been heard of for a while, edges keep the plan they have: one made from too little demand would
     send everybody to the nearest region at once.
  2. Planning then goes on from that plan by steps, as if control had never been away.
  3. Edges only carry the plan: it is taken over if a control on this database made it, of several the latest. An edge
     that lies can withhold it, or offer an older one; it cannot make one up.
"""

from __future__ import annotations

import asyncio
import hmac
from dataclasses import replace

import msgspec

from gtm.core.model.state import NO_PLAN, Plan
from gtm.storage.errors import StorageUnavailable
from gtm.storage.session import Database

LISTENING = 10.0
"""Seconds of reports before the first plan, where a plan is in force: all edges are back by then, and rates are steady."""
GATHERING = 5.0
"""Seconds for which edges may still come and say that they follow a plan. If none does there is none to keep."""
MAX_AHEAD = 60.0
"""Seconds by which a plan may be ahead of this control's clock; one from later still was made by nobody."""
MAX_CLASSES = 50_000
"""Ranking classes that a plan from outside may have."""
_KEY = "plan"
_RETRY = 1.0
_ROUNDING = 1e-6


class PlanSeal:
    """Marks plans as made by control, and tells them from others: HMAC-SHA-256 (RFC 2104) over all that edges follow.

    Args:
        key: known to the control processes on one database alone.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def sealed(self, plan: Plan) -> Plan:
        """The plan, marked."""
        return replace(plan, seal=self._of(plan))

    def made(self, plan: Plan) -> bool:
        """Whether the plan is one that was marked, and nothing of it was changed since."""
        return hmac.compare_digest(self._of(plan), plan.seal) if plan.seal.isascii() else False

    def _of(self, plan: Plan) -> str:
        followed = (plan.made, plan.classes, plan.prices, plan.moving)
        return hmac.digest(self._key, msgspec.json.encode(followed, order="deterministic"), "sha256").hex()


async def load_seal(database: Database) -> PlanSeal:
    """The seal of the control processes on a database; waits for as long as the database is away."""
    while True:
        try:
            async with database.transaction() as transaction:
                return PlanSeal(await transaction.secrets.key(_KEY))
        except StorageUnavailable:
            await asyncio.sleep(_RETRY)


class Takeover:
    """The first seconds of one control process. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.plan = NO_PLAN
        self.over = False
        self.seal: PlanSeal | None = None
        """Tells whether control made a plan; None: not known yet, and then no plan is taken over."""
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

    def wants(self, plan: Plan) -> bool:
        """Whether a plan that an edge says it follows may be taken over: control made it. One that plans nothing needs no proof."""
        if self.over:
            return False
        if not plan.classes:
            return True
        return self.seal is not None and len(plan.classes) <= MAX_CLASSES and self.seal.made(plan)

    def sealed(self, plan: Plan) -> Plan:
        """A plan as it is published."""
        return plan if self.seal is None else self.seal.sealed(plan)

    def end(self, now: float) -> bool:
        """Whether plans may be published from now on."""
        if self._began is not None and not self.over:
            wait = LISTENING if self.plan.classes else GATHERING
            self.over = now - self._began >= wait
        return self.over


def plan_problem(plan: Plan) -> str | None:
    """What is wrong with a plan that an edge says it follows; None if nothing is."""
    for key, one in plan.classes.items():
        shares = (*one.weights.values(), one.shed, *one.tenants.values())
        if not all(0 <= share <= 1 + _ROUNDING for share in shares):
            return f"shares of class `{key[:200]}` must be between 0 and 1"
        if abs(sum(one.weights.values()) - 1) > _ROUNDING:
            return f"weights of class `{key[:200]}` must sum to 1"
    return None
