"""Changing the policy.

Law: one transaction writes the rows, compiles the whole, stores a numbered revision and notifies; or nothing happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from gtm.control.errors import PreconditionFailed
from gtm.control.live.compiled import compiled
from gtm.control.policy.safety import SafetyCheck
from gtm.core.change.safety import Verdict
from gtm.core.model.kinds import KINDS
from gtm.core.model.policy import Policy
from gtm.core.model.problems import Problem
from gtm.core.policy.snapshot import Snapshot
from gtm.documents.diff import ResourceChange, diff_policies, summary
from gtm.documents.plausibility import all_findings
from gtm.documents.schema import PolicyDocument
from gtm.storage.session import Database, Transaction


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a change did. `revision` is the one in force afterwards (0: none yet); it is new if `changes` is not empty.

    `findings` are what is probably not meant (`gtm.core.findings.report`), `safety` what the safety rules say; only dry runs
    have them.
    """

    revision: int
    changes: tuple[ResourceChange, ...]
    warnings: tuple[str, ...]
    findings: tuple[Problem, ...] = ()
    safety: Verdict | None = None


class Edit:
    """A policy change under way: `policy` is what was in force when it began. `outcome` is set at its end."""

    def __init__(self, transaction: Transaction, policy: Policy, revision: int) -> None:
        self.transaction = transaction
        self.policy = policy
        self.revision = revision
        self.outcome = Outcome(revision, (), ())


@asynccontextmanager
async def edit(
    database: Database, *, author: str, comment: str = "", check: SafetyCheck | None = None
) -> AsyncIterator[Edit]:
    """Change rows inside the block; at its end the policy is compiled and, if it changed, becomes a revision.

    Args:
        database: where.
        author: who.
        comment: why.
        check: asked whether the change is safe; None: nobody is.

    Raises:
        PolicyError: the policy would not compile; nothing was changed.
        UnsafeChange: the safety rules say no; nothing was changed.
        Forbidden: it says that whoever forces the change may not; nothing was changed.
        StorageUnavailable: the database cannot be reached.
    """
    async with database.transaction() as transaction:
        await transaction.policy.lock()
        latest = await transaction.revisions.latest()
        current = Edit(transaction, await transaction.policy.load(), latest.number if latest else 0)
        yield current
        after = await transaction.policy.load()
        snapshot = await _compiled(after)
        changes = diff_policies(current.policy, after)
        if changes:
            forced = ""
            if check is not None:
                forced = await check.require(transaction, current.policy, snapshot, current.revision)
            made = await transaction.revisions.add(
                after,
                author=author,
                comment="; ".join(filter(None, (comment, forced))),
                summary=summary(changes),
            )
            current.revision = made.number
        current.outcome = Outcome(current.revision, changes, snapshot.warnings)


async def apply(
    database: Database,
    document: PolicyDocument,
    *,
    author: str,
    now: datetime,
    comment: str = "",
    dry_run: bool = False,
    expected: int | None = None,
    check: SafetyCheck | None = None,
) -> Outcome:
    """Make a whole document the policy: what it does not hold is deleted.

    Args:
        database: where.
        document: the policy wanted. Regions without an admin state keep theirs.
        author: who.
        now: when regions begin to drain that did not before; findings are of this moment.
        comment: why.
        dry_run: only say what would change, and what of it is probably not meant.
        expected: the revision that must be in force, None for any.
        check: asked whether the change is safe; in a dry run, what it would say.

    Raises:
        PolicyError: the document does not compile.
        PreconditionFailed: another revision is in force.
        UnsafeChange: the safety rules say no.
    """
    if dry_run:
        policy, revision = await current_policy(database)
        _expect(expected, revision)
        wanted = document.to_core(policy, now)
        snapshot = await _compiled(wanted)
        found = await asyncio.to_thread(all_findings, snapshot, now.timestamp())
        changes = diff_policies(policy, wanted)
        safety = await check.judge(policy, snapshot, revision) if check is not None and changes else None
        return Outcome(revision, changes, snapshot.warnings, found, safety)
    async with edit(database, author=author, comment=comment, check=check) as change:
        _expect(expected, change.revision)
        await _write(change, document.to_core(change.policy, now))
    return change.outcome


async def rollback(
    database: Database, policy: Policy, *, author: str, comment: str, check: SafetyCheck | None = None
) -> Outcome:
    """Publish the policy of an earlier revision as a new one. Regions keep their admin state of today.

    Raises:
        PolicyError: it does not compile any more.
        UnsafeChange: the safety rules say no.
    """
    async with edit(database, author=author, comment=comment, check=check) as change:
        today = {region.name: region for region in change.policy.regions}
        regions = tuple(
            replace(region, admin_state=kept.admin_state, draining_since=kept.draining_since)
            for region in policy.regions
            for kept in (today.get(region.name, region),)
        )
        await _write(change, replace(policy, regions=regions))
    return change.outcome


async def current_policy(database: Database) -> tuple[Policy, int]:
    """The policy in force and its revision (0: none yet)."""
    async with database.transaction() as transaction:
        latest = await transaction.revisions.latest()
        return await transaction.policy.load(), latest.number if latest else 0


def _expect(expected: int | None, revision: int) -> None:
    if expected is not None and expected != revision:
        raise PreconditionFailed(f"revision {revision} is in force, not {expected}: read the policy again")


async def _write(change: Edit, wanted: Policy) -> None:
    """Make the rows those of a policy. A name defined twice is left to the compiler, before any row is written."""
    await _compiled(wanted)
    for kind in KINDS:
        repository = change.transaction.resources(kind)
        before = {item.name: item for item in getattr(change.policy, kind)}
        after = {item.name: item for item in getattr(wanted, kind)}
        for name in before.keys() - after.keys():
            await repository.delete(name)
        for name, item in after.items():
            if before.get(name) != item:
                await repository.put(item)


async def _compiled(policy: Policy) -> Snapshot:
    """Compile beside the event loop, which feeds the edges meanwhile.

    Raises:
        PolicyError: it does not compile.
    """
    return await asyncio.to_thread(compiled, policy)
