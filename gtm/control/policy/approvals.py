"""Second persons' approvals of changes that open a fence (GTM_FENCE_APPROVALS).

Laws:
  1. An approval is of one change to one revision, and ends by itself, or with what it was given with: a token that is revoked, or replaced without a
     grace, because it was stolen leaves none behind. Of somebody who signed in by an identity provider it ends with the session.
  2. It counts only if nobody has both in hand, what gave it and what makes the change (`gtm.core.model.access.in_one_hand`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from gtm.control.errors import Invalid
from gtm.core.model.access import Accounts, Hands, HandsReason, Role, in_one_hand, permits
from gtm.core.model.policy import Policy
from gtm.core.model.problems import Problem
from gtm.storage.approvals import Approval
from gtm.storage.documents import policy_sha256
from gtm.storage.history.audit import Actor
from gtm.storage.resources import sort_policy
from gtm.storage.session import Database, Transaction

_MOST_SESSIONS = 100_000
LONGEST = timedelta(days=7)
"""How long an approval may stand."""


@dataclass(frozen=True, slots=True)
class Author:
    """Who makes a change: what it is made with is called so, and is in these hands."""

    name: str
    hands: Hands


def fingerprint(revision: int, before: Policy, after: Policy) -> str:
    """What a change goes by: a SHA-256 in hex of the revision in force, its policy, and what becomes of it.

    When a drain began is left out: it is set anew each time the change is tried.
    """
    named = [revision, _sum(before), _sum(after)]
    return sha256(json.dumps(named).encode()).hexdigest()


def _sum(policy: Policy) -> str:
    regions = tuple(replace(region, draining_since=None) for region in policy.regions)
    return policy_sha256(sort_policy(replace(policy, regions=regions)))


async def approve(
    database: Database, change: str, *, by: Actor, reason: str, now: datetime, expires_at: datetime
) -> Approval:
    """Approve of a change, in place of an earlier approval of it by the same person.

    Raises:
        Invalid: it would have ended already, or end too late.
    """
    if not reason.strip():
        problem = Problem("reason", "missing", "say why: it is kept with the revision")
        raise Invalid(f"{problem}", (problem,))
    if not now < expires_at <= now + LONGEST:
        problem = Problem(
            "expires_at", "out_of_range", f"must be in the future, and within {LONGEST.days} days"
        )
        raise Invalid(f"{problem}", (problem,))
    async with database.transaction() as transaction:
        made = await transaction.approvals.put(change, by, reason, expires_at)
        until = f"until {expires_at:%Y-%m-%d %H:%M} UTC"
        await transaction.audit.add(by, "fence.approve", f"change {change}", reason=reason, detail=until)
    return made


@dataclass(frozen=True, slots=True)
class Approved:
    """An approval, and why it does not count for a change that somebody makes; None: it does."""

    approval: Approval
    objection: str | None


async def list_all(database: Database, author: Author) -> list[Approved]:
    """Every approval that is kept, those that have ended included, the latest first; and what is said against each where that author makes the change."""
    async with database.transaction() as transaction:
        found = await transaction.approvals.list()
        accounts = await transaction.accounts.by_name()
    return [Approved(one, objection(author, one, accounts)) for one in found]


async def standing(transaction: Transaction, change: str, author: Author) -> list[Approved]:
    """The approvals of a change that have not ended, with what is said against each where that author makes it."""
    now = datetime.now(UTC)
    live = await _live(transaction, now)
    accounts = await transaction.accounts.by_name()
    return [
        Approved(one, objection(author, one, accounts))
        for one in await transaction.approvals.of(change)
        if one.expires_at > now and one.credential in live
    ]


async def _live(transaction: Transaction, now: datetime) -> set[str]:
    """What approvals may have been given with that work now: tokens, and sessions of people without one."""
    found = {
        f"token {token.id}"
        for token in (await transaction.tokens.live()).values()
        if permits(token.role, Role.FENCE_ADMIN) and (token.ends_at is None or token.ends_at > now)
    }
    return found | {
        f"session {session.id}"
        for session in await transaction.sessions.live(_MOST_SESSIONS)
        if not session.token and permits(session.role, Role.FENCE_ADMIN)
    }


def objection(author: Author, approval: Approval, accounts: Accounts) -> str | None:
    """Who counts as one with whom, and why, in words; None: nobody has both in hand."""
    shared = in_one_hand(author.hands, approval.hands, accounts)
    if shared is None:
        return None
    first, second, who = f"`{author.name}`", f"`{approval.approver}`", f"`{shared.who}`"
    if shared.why in (HandsReason.UNKNOWN_FIRST, HandsReason.UNKNOWN_SECOND):
        unknown = first if shared.why is HandsReason.UNKNOWN_FIRST else second
        return (
            f"{unknown} counts as one with everybody: in whose hands it is was not written down, or in whose that was which made it "
            "(`gtm token rotate NAME --owner OWNER --direct` does)"
        )
    if shared.why is HandsReason.OWNER and author.name == approval.approver:
        return f"nobody approves of a change of their own, and both are {who}'s"
    said = {
        HandsReason.OWNER: f"both are {who}'s",
        HandsReason.FIRST_MADE_SECOND: f"the owner of {first} ({who}) made {second}, or what that was made with",
        HandsReason.SECOND_MADE_FIRST: f"the owner of {second} ({who}) made {first}, or what that was made with",
        HandsReason.MAKER: f"{who} made both, or what they were made with",
    }
    return f"{second} counts as one with {first}: {said[shared.why]}"
