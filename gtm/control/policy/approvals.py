"""Second persons' approvals of changes that open a fence (GTM_FENCE_APPROVALS).

Law: an approval is of one change to one revision, by somebody else than who makes it, and ends by itself, or with its
approver's token: one that is revoked, or replaced without a grace, because it was stolen leaves none behind. Of somebody who signed in by an
identity provider it ends with the session.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from gtm.control.errors import Invalid
from gtm.core.model.access import Role, permits
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
        made = await transaction.approvals.put(change, by.name, reason, expires_at)
        until = f"until {expires_at:%Y-%m-%d %H:%M} UTC"
        await transaction.audit.add(by, "fence.approve", f"change {change}", reason=reason, detail=until)
    return made


async def list_all(database: Database) -> list[Approval]:
    """Every approval that is kept, those that have ended included, the latest first."""
    async with database.transaction() as transaction:
        return await transaction.approvals.list()


async def standing(transaction: Transaction, change: str, author: str) -> list[Approval]:
    """The approvals of a change that hold now: of tokens that may give one still, but for the author's own.

    A person without a token (whom an identity provider knows) speaks for as long as they are signed in.
    """
    now = datetime.now(UTC)
    since: dict[str, datetime] = {}
    for token in (await transaction.tokens.live()).values():
        if permits(token.role, Role.FENCE_ADMIN) and (token.ends_at is None or token.ends_at > now):
            since[token.name] = min(token.created_at, since.get(token.name, token.created_at))
    for session in await transaction.sessions.live(_MOST_SESSIONS):
        if not session.token and permits(session.role, Role.FENCE_ADMIN):
            since[session.name] = min(session.created_at, since.get(session.name, session.created_at))
    return [
        one
        for one in await transaction.approvals.of(change)
        if one.approver != author
        and one.expires_at > now
        # A name that is used anew does not speak for who had it before.
        and (began := since.get(one.approver)) is not None
        and began <= one.created_at
    ]
