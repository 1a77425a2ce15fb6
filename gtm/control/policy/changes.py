"""Changing the policy.

Law: one transaction writes the rows, compiles the whole, stores a numbered revision and notifies; or nothing happens.

Deletions that wait: of resources that something still names, or whose deletion alone would open a fence.

A tool that makes its changes one by one (Terraform deletes a region before it changes the services that name it) says of a
deletion that it may wait. It is made by the change that takes away what keeps it, in the same revision.

Laws:
  1. A deletion that waits never keeps another change from being made: if a change with it would be refused, it waits on.
  2. A deletion of an earlier change is judged by itself, after the change that lets it go, and never forced: nobody gave a reason for it.
  3. What is written anew waits for its deletion no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from gtm.control.errors import PreconditionFailed, UnsafeChange
from gtm.control.live.compiled import compiled
from gtm.control.policy.gone import in_policy, remember, remembered
from gtm.control.policy.managers import (
    PERSON,
    PolicyWriter,
    Settled,
    keep,
    named,
    only_state,
    require,
    settle,
)
from gtm.control.policy.safety import Passed, SafetyCheck
from gtm.control.policy.trial import ChangeOutcome, narrowed, tried, written
from gtm.core.model.kinds import KINDS, label
from gtm.core.model.policy import Policy
from gtm.core.model.problems import PolicyError, Problem
from gtm.core.policy.snapshot import Snapshot
from gtm.documents.diff import Action, ResourceChange, diff_policies, summary
from gtm.documents.parts import DraftDocument, Held, merged
from gtm.documents.plausibility import refuse_errors
from gtm.documents.referrers import referrers
from gtm.storage.deletions import Deferred, Gone
from gtm.storage.documents import policy_sha256
from gtm.storage.errors import StorageUnavailable
from gtm.storage.history.audit import Actor
from gtm.storage.resources import Key, Managed, Stored
from gtm.storage.session import Database, Transaction

_LAW = frozenset(("residency_rules", "jurisdictions"))
"""Kinds whose deletion may open a fence: without them the others may go."""


def without(policy: Policy, keys: Collection[Key]) -> Policy:
    """A policy without some of its resources."""
    return merged(policy, Policy(), keys) if keys else policy


class Obstacle(NamedTuple):
    """Why a resource is not deleted yet; `refused`: because of the safety rules, and not of a resource that names it."""

    why: str
    refused: bool


def freed(policy: Policy, keys: Collection[Key]) -> tuple[Snapshot, dict[Key, Obstacle]]:
    """The policy without as many of some resources as nothing else names; and of the others, what keeps them.

    Raises:
        PolicyError: the policy does not compile with all of them.
    """
    referring, left, kept = referrers(policy) if keys else {}, set(keys), dict[Key, Obstacle]()
    while True:
        named = {
            key: f"{one.kind}.{one.name}.{one.path} names it"
            for key in left
            for one in reversed(referring.get(key, ()))
            if (one.kind, one.name) not in left
        }
        if not named:
            break
        kept |= {key: Obstacle(why, refused=False) for key, why in named.items()}
        left -= named.keys()
    try:
        return compiled(without(policy, left)), kept
    except PolicyError as error:
        if not left:
            raise
        first = error.problems[0]  # nothing names them, and without them the policy is wrong in another way
        wrong = Obstacle(f"without it, {first.path}: {first.message}", refused=False)
        return compiled(policy), kept | dict.fromkeys(left, wrong)


def attempts(keys: Collection[Key]) -> Iterator[frozenset[Key]]:
    """Which of the deletions that wait a change is tried with: all, those that are no law, none."""
    told = frozenset(keys)
    yield from dict.fromkeys((told, frozenset(key for key in told if key[0] not in _LAW), frozenset[Key]()))


async def deferral_warnings(database: Database) -> list[str]:
    """What status says of deletions that wait; nothing while the database is down."""
    try:
        async with database.transaction() as transaction:
            return [_sentence(one) for one in await transaction.deferred.list()]
    except StorageUnavailable:
        return []


def _sentence(one: Deferred) -> str:
    who = one.manager or one.asked_by
    return (
        f"{label(one.kind)} `{one.name}` is to be deleted since {one.asked_at:%Y-%m-%d %H:%M} UTC, as `{who}` asked, and waits: "
        f"{one.why}"
    )


_last: dict[str, Policy] = {}
"""The policy that was in force when it was last asked for, by its checksum."""


class Edit:
    """A policy change under way: `policy` is what was in force when it began, and `managed` what tools managed of it.

    `written` is what the writer says how it is to be; None: what it creates or updates. `deferrable` are resources that are to be
    deleted, and may wait for that. `outcome` is set at its end, and `managed` is what holds from then on.
    """

    def __init__(
        self, transaction: Transaction, policy: Policy, revision: int, managed: Mapping[Key, Managed]
    ) -> None:
        self.transaction = transaction
        self.policy = policy
        self.revision = revision
        self.managed = managed
        self.written: Collection[Key] | None = None
        self.deferrable: Collection[Key] = ()
        self.outcome = ChangeOutcome(revision, (), ())


@dataclass(frozen=True, slots=True)
class Intent:
    """Who changes the policy, and why."""

    by: Actor
    comment: str = ""
    """What whoever makes the change gave as its reason: kept with the revision."""
    check: SafetyCheck | None = None
    """Asked whether the change is safe; None: nobody is. In a dry run, it says what it would say."""
    writer: PolicyWriter = PERSON
    """For which tool the change is made."""
    expected: int | None = None
    """The revision that must be in force; None: any."""
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When regions begin to drain that did not before; findings are of this moment."""


@asynccontextmanager
async def edit(
    database: Database, intent: Intent, action: str, comment: str | None = None
) -> AsyncIterator[Edit]:
    """Change rows inside the block; at its end the policy is compiled and, if it changed, becomes a revision.

    Args:
        database: where.
        intent: who, and why.
        action: the action's name in the audit log.
        comment: kept with the revision; None: what the intent has.

    Raises:
        PreconditionFailed: another revision is in force than expected.
        PolicyError: the policy would not compile, or would have errors that it had not; nothing was changed.
        ManagedByAnother: another tool manages a part of it; nothing was changed.
        UnsafeChange: the safety rules say no; nothing was changed.
        Forbidden: it says that whoever forces the change may not; nothing was changed.
        StorageUnavailable: the database cannot be reached.
    """
    by, check, writer, reason = intent.by, intent.check, intent.writer, intent.comment
    async with database.change() as transaction:
        latest = await transaction.revisions.latest()
        managed = await transaction.policy.managed()
        number = latest.number if latest else 0
        current = Edit(transaction, await transaction.policy.load(), number, managed)
        _expect(intent.expected, number)
        yield current
        written = await transaction.policy.load()
        asked = diff_policies(current.policy, without(written, current.deferrable))
        settled = settle(writer, managed, asked, current.written)
        overruled = require(writer, settled)
        own, earlier = await _waiting(transaction, current, asked)
        waiting = own | earlier
        gone = await transaction.gone.list() if asked or earlier else []
        judge = partial(_judged, transaction, current.revision, gone)
        if not earlier:
            snapshot, passed, kept = await judge(current.policy, written, attempts(own), check)
        else:  # all at once, or the earlier ones by themselves, for no reason that was given for the change
            unforced = None if check is None else replace(check, reason=None)
            try:
                snapshot, passed, kept = await judge(current.policy, written, [frozenset(waiting)], unforced)
            except UnsafeChange:
                snapshot, passed, kept = await judge(current.policy, written, attempts(own), check)
                snapshot, _, more = await judge(snapshot.policy, snapshot.policy, attempts(earlier), unforced)
                kept |= more
        after = snapshot.policy
        changes = diff_policies(current.policy, after)
        if changes:
            await asyncio.to_thread(refuse_errors, lambda: compiled(current.policy), snapshot)
        later = await _made(transaction, waiting, kept, by=by, writer=writer)
        made = None
        if changes:
            forced = passed.said
            if current.revision:
                await remember(
                    transaction,
                    current.policy,
                    snapshot,
                    gone,
                    revision=current.revision,
                    released=passed.released,
                )
            comment = "; ".join(
                filter(None, (reason if comment is None else comment, overruled, *later, forced))
            )
            made = await transaction.revisions.add(
                after, author=by.name, comment=comment, summary=summary(changes)
            )
            current.revision = made.number
            await _mark(transaction, changes, made.number)
            reasons = dict.fromkeys(filter(None, (reason, check.reason if check is not None else None)))
            await transaction.audit.add(
                by,
                action,
                named([(one.kind, one.name) for one in changes]),
                revision=made.number,
                reason="; ".join(reasons),
                detail=comment,
                forced=bool(forced),
            )
        await keep(transaction, settled, writer, by=by, revision=made.number if made else None)
        current.managed = await transaction.policy.managed() if settled.claimed else managed
        current.outcome = ChangeOutcome(
            current.revision,
            changes,
            snapshot.warnings,
            managed=settled.others,
            claimed=bool(settled.claimed),
            deferred=tuple(await transaction.deferred.list()) if waiting else (),
        )


async def _waiting(
    transaction: Transaction, change: Edit, asked: Sequence[ResourceChange]
) -> tuple[dict[Key, Deferred | None], dict[Key, Deferred | None]]:
    """The deletions that a change asks for and may wait, and those that wait from before.

    What is written anew waits no more, and neither does what is deleted at once; a region that is drained does.
    """
    known = {one.key: one for one in await transaction.deferred.list()}
    touched = {(one.kind, one.name): one.action for one in asked if not only_state(one)}
    own = {key: known.pop(key, None) for key in change.deferrable if touched.get(key) is Action.DELETED}
    anew = known.keys() & {*touched, *(change.written or ())}
    await transaction.deferred.forget(anew)
    return own, {key: one for key, one in known.items() if key not in anew}


async def _judged(  # noqa: PLR0917 - a change, and what judges it
    transaction: Transaction,
    revision: int,
    gone: Sequence[Gone],
    before: Policy,
    written: Policy,
    tries: Iterable[frozenset[Key]],
    check: SafetyCheck | None,
) -> tuple[Snapshot, Passed, dict[Key, Obstacle]]:
    """What a change makes of a policy, with as many deletions as can be of those that may wait; and of the others, what keeps them.

    Args:
        transaction: of the change.
        revision: the one that it changes.
        gone: what was gone before.
        before: the policy that it changes.
        written: what it makes of it without any.
        tries: which deletions it is tried with, one after the other.
        check: asked whether that is safe.

    Raises:
        PolicyError: without any of them it does not compile.
        UnsafeChange: with the last of the tries the safety rules say no.
        Forbidden: it is forced by somebody who may not.
    """
    refused: dict[Key, Obstacle] = {}
    wrong: Exception = AssertionError("it is tried at least once")
    for keys in tries:
        snapshot, kept = await asyncio.to_thread(freed, written, keys)
        passed = Passed()
        try:
            if check is not None and snapshot.policy != before:
                back = await remembered(transaction, gone, in_policy(before, snapshot))
                passed = await check.require(transaction, before, snapshot, revision, back)
        except UnsafeChange as error:
            wrong = error
            refused |= dict.fromkeys(keys, Obstacle(error.problems[0].message, refused=True))
            continue
        return snapshot, passed, {key: refused[key] for key in refused.keys() - keys} | kept
    raise wrong


async def _made(
    transaction: Transaction,
    waiting: Mapping[Key, Deferred | None],
    kept: Mapping[Key, Obstacle],
    *,
    by: Actor,
    writer: PolicyWriter,
) -> list[str]:
    """Delete what nothing keeps any more, and have the others wait; what of that an earlier change asked for, in words."""
    done = [key for key in waiting if key not in kept]
    for kind, name in done:
        await transaction.resources(kind).delete(name)
    await transaction.deferred.forget(done)
    now = datetime.now(UTC)
    await transaction.deferred.put(
        replace(
            waiting[key] or Deferred(*key, writer.manager, by.name, now, "", refused=False),
            why=one.why,
            refused=one.refused,
        )
        for key, one in kept.items()
    )
    new = [key for key in kept if waiting[key] is None]
    if new:
        detail = "; ".join(dict.fromkeys(kept[key].why for key in new))
        await transaction.audit.add(by, "policy.defer", named(new), detail=detail)
    earlier = [one for key in done if (one := waiting[key]) is not None]
    return [
        f"deletes {label(one.kind)} {one.name}, as {one.manager or one.asked_by} asked earlier"
        for one in earlier
    ]


async def _mark(transaction: Transaction, changes: Sequence[ResourceChange], revision: int) -> None:
    """Say which revision has written what it wrote."""
    for kind in dict.fromkeys(one.kind for one in changes):
        names = [one.name for one in changes if one.kind == kind and one.action is not Action.DELETED]
        await transaction.resources(kind).written(names, revision)


async def apply(
    database: Database,
    draft: DraftDocument,
    intent: Intent,
    *,
    dry_run: bool = False,
    held: Sequence[Held] = (),
    only_own: bool = False,
    defer: bool = False,
) -> ChangeOutcome:
    """Make a whole document the policy: what it does not hold is deleted. Or put a part of one into the policy in force.

    A tool manages from then on what its document holds.

    Args:
        database: where.
        draft: the policy wanted, or a part of it. Regions without an admin state keep theirs.
        intent: who applies it, and why.
        dry_run: only say what would change, and what of it is probably not meant.
        held: resources that must be as they were read.
        only_own: of what the document does not hold, only that is deleted which the tool manages.
        defer: what the document deletes by name may wait until nothing keeps it (`gtm.control.policy.changes`).

    Raises:
        BadRequest: `only_own` for nobody's tool.
        PolicyError: the document does not compile.
        ManagedByAnother: another tool manages a part of what changes, or of the document of this one.
        PreconditionFailed: another revision is in force, or a resource has been changed.
        UnsafeChange: the safety rules say no.
    """
    said, writer = written(draft), intent.writer
    if dry_run:
        async with database.transaction() as transaction:
            await _expect_held(transaction, held)
            managed = await transaction.policy.managed()
        policy, revision = await current_policy(database)
        _expect(intent.expected, revision)
        wanted = narrowed(draft, managed, writer, only_own=only_own).within(policy, intent.now)
        settled = partial(settle, writer, managed, written=said)
        return await _tried(database, policy, wanted, revision, intent, settled=settled)
    async with edit(database, intent, "policy.apply") as change:
        await _expect_held(change.transaction, held)
        change.written = said
        own = narrowed(draft, change.managed, writer, only_own=only_own)
        if defer:
            change.deferrable = [(one.kind, one.name) for one in own.delete]
            own = own.model_copy(update={"delete": ()})
        await _write(change, own.within(change.policy, intent.now))
        tags = await _tags(change.transaction, held)
    return replace(change.outcome, held=tags)


async def rollback(database: Database, policy: Policy, intent: Intent) -> ChangeOutcome:
    """Publish the policy of an earlier revision as a new one. Regions keep their admin state of today.

    Resources keep their managers of today; what comes back comes back without one, for a tool that has seen it go knows nothing of it.

    Raises:
        PolicyError: it does not compile any more.
        ManagedByAnother: another tool manages a part of what changes.
        PreconditionFailed: another revision is in force than expected.
        UnsafeChange: the safety rules say no.
    """
    async with edit(database, intent, "policy.rollback") as change:
        await _write(change, _with_states_of(policy, change.policy))
    return change.outcome


async def try_rollback(database: Database, policy: Policy, intent: Intent) -> ChangeOutcome:
    """What `rollback` would do, as a dry run of `apply` says it.

    Raises:
        PolicyError: it does not compile any more.
    """
    before, revision = await current_policy(database)
    _expect(intent.expected, revision)
    async with database.transaction() as transaction:
        managed = await transaction.policy.managed()
    settled = partial(settle, intent.writer, managed)
    return await _tried(database, before, _with_states_of(policy, before), revision, intent, settled=settled)


def _with_states_of(policy: Policy, today: Policy) -> Policy:
    """An earlier policy whose regions are drained or disabled as they are today, and whose zones have today's challenges."""
    known = {region.name: region for region in today.regions}
    regions = tuple(
        replace(region, admin_state=kept.admin_state, draining_since=kept.draining_since)
        for region in policy.regions
        for kept in (known.get(region.name, region),)
    )
    challenges = {zone.name: zone.challenges for zone in today.zones}
    zones = tuple(replace(zone, challenges=challenges.get(zone.name, ())) for zone in policy.zones)
    return replace(policy, regions=regions, zones=zones)


async def _tried(
    database: Database,
    before: Policy,
    after: Policy,
    revision: int,
    intent: Intent,
    *,
    settled: Callable[[Sequence[ResourceChange]], Settled],
) -> ChangeOutcome:
    """What a change to a revision would do, without doing it."""
    judged, check = None, intent.check
    if check is not None and before != after:
        snapshot = await _compiled(after)
        async with database.transaction() as transaction:
            gone = await remembered(transaction, await transaction.gone.list(), in_policy(before, snapshot))
        judged = partial(check.rules.verdict, await check.situation(), before, revision=revision, gone=gone)
    return await asyncio.to_thread(tried, before, after, revision, intent.now, judged=judged, settled=settled)


async def current_policy(database: Database) -> tuple[Policy, int]:
    """The policy in force and its revision (0: none yet). The last one is kept: to read a large one takes most of a second."""
    async with database.transaction() as transaction:
        latest = await transaction.revisions.latest()
        found = _last.get(latest.sha256) if latest is not None else None
        if found is None:
            found = await transaction.policy.load()
            if latest is not None and await asyncio.to_thread(policy_sha256, found) == latest.sha256:
                _last.clear()
                _last[latest.sha256] = found
        return found, latest.number if latest else 0


def _expect(expected: int | None, revision: int) -> None:
    if expected is not None and expected != revision:
        raise PreconditionFailed(f"revision {revision} is in force, not {expected}: read the policy again")


async def _expect_held(transaction: Transaction, held: Sequence[Held]) -> None:
    waiting = {one.key for one in await transaction.deferred.list()} if held else set()
    there = await _there(transaction, held)
    for one in held:
        stored = there.get((one.kind, one.name))
        if not one.tag and (one.kind, one.name) in waiting:
            continue  # to whoever had it deleted there is none
        if one.tag == (f'"{stored.version}"' if stored else ""):
            continue
        named = f"{label(one.kind)} `{one.name}`"
        problem = Problem(f"{one.kind}.{one.name}", "exists" if not one.tag else "changed", "")
        if stored is None:
            text = f"{named} does not exist any more: read it again, then repeat the change"
            raise PreconditionFailed(text, [replace(problem, message=text)])
        text = "exists already" if not one.tag else "has been changed since you read it"
        raise await not_as_read(transaction, stored, f"{named} {text}", problem)


async def _tags(transaction: Transaction, held: Sequence[Held]) -> tuple[Held, ...]:
    """The same resources with their entity tags of now."""
    there = await _there(transaction, held)
    return tuple(
        one.model_copy(update={"tag": f'"{stored.version}"' if stored else ""})
        for one in held
        for stored in (there.get((one.kind, one.name)),)
    )


async def _there(transaction: Transaction, held: Sequence[Held]) -> dict[Key, Stored[Any]]:
    """Those of the resources that there are, asked for by kind: one by one they would take as long as the rest of a small change."""
    found: dict[Key, Stored[Any]] = {}
    for kind in dict.fromkeys(one.kind for one in held):
        names = [one.name for one in held if one.kind == kind]
        stored = await transaction.resources(kind).named(names)
        found |= {(kind, name): one for name, one in stored.items()}
    return found


async def not_as_read(
    transaction: Transaction, stored: Stored[Any], said: str, problem: Problem | None = None
) -> PreconditionFailed:
    """That a resource is not what the client thinks, and who has made it what it is.

    Args:
        transaction: where it is.
        stored: the resource.
        said: what is not as it should be.
        problem: where that is; its message is the whole.
    """
    parts = [said]
    members: dict[str, Any] = {}
    revision = await transaction.revisions.get(stored.revision) if stored.revision else None
    if revision is not None:
        parts.append(
            f"revision {revision.number} of {revision.created_at:%Y-%m-%d %H:%M:%S} UTC, by `{revision.author}`, "
            "wrote it last"
        )
        members = {"revision": revision.number, "author": revision.author}
    if stored.managed is not None:
        parts.append(f"`{stored.managed.manager}` manages it")
        members["managed_by"] = stored.managed
    text = "; ".join(parts)
    problems = [] if problem is None else [replace(problem, message=text)]
    return PreconditionFailed(text, problems, members=members)


async def _write(change: Edit, wanted: Policy) -> None:
    """Make the rows those of a policy. A name defined twice is left to the compiler, before any row is written."""
    await _compiled(wanted)
    for kind in KINDS:
        repository = change.transaction.resources(kind)
        before = {item.name: item for item in getattr(change.policy, kind)}
        after = {item.name: item for item in getattr(wanted, kind)}
        for name in before.keys() - after.keys():
            await repository.delete(name)
        await repository.put_all(item for name, item in after.items() if before.get(name) != item)


async def _compiled(policy: Policy) -> Snapshot:
    """Compile beside the event loop, which feeds the edges meanwhile.

    Raises:
        PolicyError: it does not compile.
    """
    return await asyncio.to_thread(compiled, policy)
