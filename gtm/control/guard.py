"""Safety rules at work: no change of policy that breaks one, unless somebody says why it has to be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from gtm.control.errors import BadRequest, UnsafeChange
from gtm.control.jurisdictions import shipped_jurisdictions
from gtm.control.situation import Situation
from gtm.core.compile import compile_policy
from gtm.core.dnssec import NO_KEYS, Keys
from gtm.core.model import Policy
from gtm.core.plan.problem import PlanError
from gtm.core.safety import Verdict, judge, unsigned
from gtm.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Guard:
    """Judges the changes of one request.

    Args:
        situation: the present.
        max_moved: the share (0–1) of the present demand that may move at once.
        reason: why a change is made that breaks rules; None: it is not.
        keys: what edges sign zones with.
    """

    situation: Callable[[], Situation]
    max_moved: float
    reason: str | None = None
    keys: Keys = NO_KEYS

    async def judge(self, before: Policy, after: Snapshot) -> Verdict:
        """What the rules say of a change, worked out beside the event loop."""
        verdict = await asyncio.to_thread(_judge, self.situation(), before, after, self.max_moved)
        return replace(verdict, breaches=(*verdict.breaches, *unsigned(before, after.policy, self.keys)))

    async def require(self, before: Policy, after: Snapshot) -> str:
        """Let a change pass, or not.

        Returns:
            What is to be kept with the revision: which rules it was forced against, and why. Empty if it breaks none.

        Raises:
            UnsafeChange: it breaks rules, and no reason is given.
        """
        verdict = await self.judge(before, after)
        if verdict.safe:
            return ""
        if self.reason is None:
            raise UnsafeChange(verdict.breaches)
        rules = ", ".join(dict.fromkeys(breach.rule.value for breach in verdict.breaches))
        return f"forced against the safety rules {rules}: {self.reason}"


def force_reason(*, force: bool, reason: str) -> str | None:
    """The reason of a request that forces its change; None if it does not.

    Raises:
        BadRequest: one is given without the other.
    """
    if force and not reason.strip():
        raise BadRequest("a forced change needs a reason: give `force_reason` as well")
    if reason.strip() and not force:
        raise BadRequest("`force_reason` without `force` means nothing: set `force=true` as well")
    return reason.strip() if force else None


def _judge(situation: Situation, before: Policy, after: Snapshot, max_moved: float) -> Verdict:
    old = situation.world(compile_policy(before, shipped_jurisdictions()))
    new = situation.world(after)
    try:
        return judge(old, new, situation.demand, max_moved=max_moved)
    except PlanError as error:
        # A planner that fails must not keep operators from mending what makes it fail.
        found = judge(old, new, {}, max_moved=max_moved)
        return Verdict(found.breaches, (f"capacity and moved: the planner failed ({error})",))
