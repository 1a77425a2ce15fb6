"""Revisions: what the policy was, who changed it, and the way back."""

from __future__ import annotations

from dataclasses import replace

from gtm.control.errors import Conflict, NotFound
from gtm.control.policy import changes as policies
from gtm.control.policy.changes import Intent
from gtm.control.policy.trial import ChangeOutcome
from gtm.core.model.policy import Policy
from gtm.documents.diff import ResourceChange, diff_policies
from gtm.storage.history.audit import Actor
from gtm.storage.revisions import Fork, Revision
from gtm.storage.session import Database, Transaction


async def list_page(database: Database, before: int | None, limit: int) -> list[Revision]:
    """At most `limit` revisions, newest first, below the number `before`."""
    async with database.transaction() as transaction:
        return await transaction.revisions.list(before, limit)


async def get(database: Database, number: int) -> tuple[Revision, Policy]:
    """A revision and its whole policy.

    Raises:
        NotFound: there is no such revision.
    """
    async with database.transaction() as transaction:
        revision = await transaction.revisions.get(number)
        policy = await _policy(transaction, number)
    if revision is None:
        raise NotFound(f"there is no revision {number}")
    return revision, policy


async def diff(
    database: Database, number: int, against: int | None
) -> tuple[int, tuple[ResourceChange, ...]]:
    """What a revision changed, and against which one.

    Args:
        database: where.
        number: the revision.
        against: the one to compare with; None: the one before (nothing, for the first).

    Raises:
        NotFound: there is no such revision.
    """
    async with database.transaction() as transaction:
        after = await _policy(transaction, number)
        other = await transaction.revisions.before(number) if against is None else against
        before = Policy() if other == 0 else await _policy(transaction, other)
    return other, diff_policies(before, after)


async def accept_older(database: Database, *, by: Actor, reason: str) -> list[Fork]:
    """Say that going back to what this database has is meant: who holds a later revision, which it has lost, is sent its own.

    Raises:
        Conflict: nobody holds one that it does not have.
    """
    async with database.change() as transaction:
        lost = await transaction.forks.accept()
        if not lost:
            raise Conflict("no edge or balancer holds a revision that this database does not have")
        shown = ", ".join(f"{fork.after + 1} to {fork.up_to}" for fork in lost)
        await transaction.audit.add(
            by, "revisions.accept-older", f"revisions {shown}", reason=reason, detail="", forced=False
        )
    return lost


async def rollback(
    database: Database,
    number: int,
    intent: Intent,
    *,
    dry_run: bool = False,
) -> ChangeOutcome:
    """Publish an earlier revision's policy as a new revision; see `gtm.control.policy.changes`.

    Raises:
        NotFound: there is no such revision.
        PolicyError: it does not compile any more.
        PreconditionFailed: another revision is in force than expected.
        ManagedByAnother: another tool manages a part of what changes.
        UnsafeChange: the safety rules say no.
    """
    async with database.transaction() as transaction:
        policy = await _policy(transaction, number)
    if dry_run:
        return await policies.try_rollback(database, policy, intent)
    comment = intent.comment or f"roll back to revision {number}"
    return await policies.rollback(database, policy, replace(intent, comment=comment))


async def _policy(transaction: Transaction, number: int) -> Policy:
    policy = await transaction.revisions.policy(number)
    if policy is None:
        raise NotFound(f"there is no revision {number}")
    return policy
