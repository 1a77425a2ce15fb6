"""Safety rules at work: no change of policy that breaks one, unless somebody who may says why it has to be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from gtm.control.errors import BadRequest, Forbidden, UnsafeChange
from gtm.control.policy.approvals import Approved, Author, standing
from gtm.control.policy.gone import Remembered
from gtm.control.policy.simulation import Situation
from gtm.control.policy.trial import Rules
from gtm.core.change.safety import PROTECTED, SafetyRule, SafetyVerdict
from gtm.core.model.access import UNKNOWN_HANDS, Hands, Role
from gtm.core.model.policy import Policy
from gtm.core.model.problems import Problem
from gtm.core.policy.snapshot import Snapshot
from gtm.core.signing.keys import NO_KEYS, Keys
from gtm.storage.approvals import Approval
from gtm.storage.session import Transaction


@dataclass(frozen=True, slots=True)
class Passed:
    """A change may be made: `said` is against which rules it was forced, why, and who approved of it. Empty if it breaks none.

    `released`: somebody who may has let out what it opens.
    """

    said: str = ""
    released: bool = False


@dataclass(frozen=True, slots=True)
class SafetyCheck:
    """Judges the changes of one request.

    Args:
        situation: the present.
        max_moved: the share (0–1) of the present demand that may move at once.
        author: the name of the token that asks for the change.
        role: that token's.
        hands: in whose that token is.
        reason: why a change is made that breaks rules; None: it is not.
        keys: what edges sign zones with.
        approvals: how many others have to approve of a change that opens a fence.
    """

    situation: Callable[[], Awaitable[Situation]]
    max_moved: float
    author: str = ""
    role: Role = Role.OPERATOR
    hands: Hands = UNKNOWN_HANDS
    reason: str | None = None
    keys: Keys = NO_KEYS
    approvals: int = 0

    @property
    def rules(self) -> Rules:
        """The same, without who waits for the answer."""
        return Rules(self.max_moved, self.role, self.keys, self.approvals)

    async def require(
        self,
        transaction: Transaction,
        before: Policy,
        after: Snapshot,
        revision: int,
        gone: Remembered = Remembered(),  # noqa: B008 - it is immutable
    ) -> Passed:
        """Let a change to a revision pass, or not, worked out beside the event loop.

        Returns:
            What is to be kept with the new one.

        Raises:
            UnsafeChange: it breaks rules, and no reason is given, or nobody has approved of it who has to.
            Forbidden: a reason is given by somebody who may not overrule one of the rules.
        """
        situation = await self.situation()
        verdict = await asyncio.to_thread(self.rules.verdict, situation, before, after, revision, gone)
        if verdict.safe:
            return Passed()
        needed = self._needed(verdict)
        if self.reason is None:
            raise UnsafeChange(verdict.breaches, needed, verdict.fingerprint, may_force=verdict.may_force)
        if not verdict.may_force:
            problems = [
                Problem(breach.rule.value, "unsafe_change", breach.message)
                for breach in verdict.breaches
                if breach.rule in PROTECTED
            ]
            raise Forbidden(f"{needed}; nothing was changed", problems)
        rules = ", ".join(dict.fromkeys(breach.rule.value for breach in verdict.breaches))
        said = f"forced against the safety rules {rules}: {self.reason}"
        released = any(breach.rule is SafetyRule.FENCE for breach in verdict.breaches)
        if verdict.fingerprint is None:
            return Passed(said, released)
        found = await standing(transaction, verdict.fingerprint, Author(self.author, self.hands))
        given = [one.approval for one in found if one.objection is None]
        if len(given) < self.approvals:
            needed = "; ".join((needed, *_objections(found)))
            raise UnsafeChange(verdict.breaches, needed, verdict.fingerprint, may_force=verdict.may_force)
        approved = (f"approved by {one.approver}{_whose(one)}: {one.reason}" for one in given)
        return Passed("; ".join((said, *approved)), released)

    def _needed(self, verdict: SafetyVerdict) -> str:
        """What forcing a change takes beside a reason."""
        parts = []
        if not verdict.may_force:
            rules = dict.fromkeys(f"`{one.rule}`" for one in verdict.breaches if one.rule in PROTECTED)
            parts.append(
                f"to force a change against {' and '.join(rules)} takes a token of role `{Role.FENCE_ADMIN}`; "
                f"yours is `{self.role}`"
            )
        elif SafetyRule.MOVED in {breach.rule for breach in verdict.breaches} and not any(
            breach.rule in PROTECTED for breach in verdict.breaches
        ):
            parts.append("a fence may be tightened by force, too, by any operator who gives the reason")
        if verdict.fingerprint is not None:
            parts.append(
                f"somebody else has to approve of it first: `gtm fence approve {verdict.fingerprint} --reason TEXT`, with "
                f"a token of role `{Role.FENCE_ADMIN}` that is in no hand in which yours is, `{self.author}`"
            )
        return "; ".join(parts)


def _objections(found: Sequence[Approved]) -> list[str]:
    """Which approvals do not count, why, and whose would."""
    said = [
        f"the approval by `{one.approval.approver}` does not count: {one.objection}"
        for one in found
        if one.objection is not None
    ]
    help_ = (
        "a second person signs in by an identity provider, or has a token that no other made "
        f"(`gtm token create NAME --role {Role.FENCE_ADMIN} --owner PERSON --direct`)"
    )
    return [*said, help_] if said else []


def _whose(approval: Approval) -> str:
    """The owner, where the name does not say it."""
    owner = approval.hands.owner
    return "" if owner in (None, approval.approver) else f" ({owner})"


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
