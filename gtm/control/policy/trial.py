"""What a change would do, without doing it: dry runs. Pure but for `planned`, which reads what a stranger wrote."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from gtm.control.errors import BadRequest, ManagedResource
from gtm.control.live.compiled import compiled
from gtm.control.policy.approvals import fingerprint
from gtm.control.policy.gone import Remembered
from gtm.control.policy.managers import PolicyWriter, Settled, settle
from gtm.control.policy.simulation import Situation
from gtm.core.change.protections import deletions, opened
from gtm.core.change.safety import PROTECTED, SafetyRule, SafetyVerdict, judge, unsigned
from gtm.core.model.access import Role, permits
from gtm.core.model.kinds import KINDS
from gtm.core.model.policy import Policy
from gtm.core.model.problems import Problem
from gtm.core.plan.problem import PlanError
from gtm.core.policy.snapshot import Snapshot
from gtm.core.signing.keys import NO_KEYS, Keys
from gtm.dns.zone.leads import leads_of
from gtm.documents.diff import ResourceChange, diff_policies
from gtm.documents.parts import DraftDocument, Held, ResourceName
from gtm.documents.plausibility import all_findings, refuse_errors
from gtm.storage.deletions import Deferred
from gtm.storage.resources import Key, Managed


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """What a change did. `revision` is the one in force afterwards (0: none yet); it is new if `changes` is not empty.

    `held` are the resources that had to be as they were read, with their entity tags from now on.
    `managed` are the resources of it that another tool manages, `claimed` says whether some have another manager since. `findings` are what is probably not meant
    (`gtm.core.findings.report`), `deferred` the deletions that wait, of this writer's and of earlier changes, `safety` what the safety rules say; only dry runs have them.
    """

    revision: int
    changes: tuple[ResourceChange, ...]
    warnings: tuple[str, ...]
    findings: tuple[Problem, ...] = ()
    safety: SafetyVerdict | None = None
    managed: tuple[ManagedResource, ...] = ()
    claimed: bool = False
    held: tuple[Held, ...] = ()
    deferred: tuple[Deferred, ...] = ()

    def document(self, *, dry_run: bool) -> dict[str, Any]:
        """The outcome as it is answered."""
        told = ("changes", "findings", "safety", "managed", "deferred", "revision", "warnings")
        held = [one.model_dump() for one in self.held]
        return {"dry_run": dry_run, **{name: getattr(self, name) for name in told}, "held": held}


@dataclass(frozen=True, slots=True)
class Rules:
    """What the safety rules are for somebody.

    Args:
        max_moved: the share (0–1) of the present demand that may move at once.
        role: of the token that asks for the change.
        keys: what edges sign zones with.
        approvals: how many others have to approve of a change that opens a fence.
    """

    max_moved: float
    role: Role = Role.OPERATOR
    keys: Keys = NO_KEYS
    approvals: int = 0

    def verdict(
        self, situation: Situation, before: Policy, after: Snapshot, revision: int, gone: Remembered
    ) -> SafetyVerdict:
        """What the rules say of a change to a revision. `gone`: what the policy had and has no more."""
        verdict = _judge(situation, before, after, gone, self.max_moved)
        found = (*verdict.breaches, *unsigned(before, after.policy, self.keys))
        rules = {breach.rule for breach in found}
        to_approve = self.approvals > 0 and SafetyRule.FENCE in rules
        named = fingerprint(revision, before, after.policy) if to_approve else None
        may_force = permits(self.role, Role.FENCE_ADMIN) or rules.isdisjoint(PROTECTED)
        return replace(verdict, breaches=found, fingerprint=named, may_force=may_force)


def _judge(
    situation: Situation, before: Policy, after: Snapshot, gone: Remembered, max_moved: float
) -> SafetyVerdict:
    running = compiled(before)
    opening = opened(running, after, situation.now, leads_of, gone.former())
    lasting = (*opening, *deletions(before, after.policy))
    world = situation.world if situation.demand else situation.bare
    old, new = world(running), world(after)
    try:
        found = judge(old, new, situation.demand, max_moved=max_moved)
    except PlanError as error:
        # A planner that fails must not keep operators from mending what makes it fail.
        found = judge(old, new, {}, max_moved=max_moved)
        found = SafetyVerdict(found.breaches, (f"capacity and moved: the planner failed ({error})",))
    return replace(found, breaches=(*lasting, *found.breaches))


def tried(
    before: Policy,
    after: Policy,
    revision: int,
    now: datetime,
    *,
    judged: Callable[[Snapshot], SafetyVerdict] | None,
    settled: Callable[[Sequence[ResourceChange]], Settled],
) -> ChangeOutcome:
    """What a change to a revision would do.

    Raises:
        PolicyError: what it makes of the policy does not compile, or has errors that the policy had not.
    """
    snapshot = compiled(after)
    refuse_errors(lambda: compiled(before), snapshot)
    changes = diff_policies(before, after)
    safety = judged(snapshot) if judged is not None and changes else None
    found = all_findings(snapshot, now.timestamp())
    return ChangeOutcome(revision, changes, snapshot.warnings, found, safety, settled(changes).others)


def written(draft: DraftDocument) -> set[Key]:
    """What a draft says how it is to be."""
    return {(kind, one.name) for kind in KINDS for one in getattr(draft.policy, kind)}


def narrowed(
    draft: DraftDocument, managed: Mapping[Key, Managed], writer: PolicyWriter, *, only_own: bool
) -> DraftDocument:
    """A draft that deletes what its tool manages and it does not hold, and nothing else but what it names, if that is wanted.

    Raises:
        BadRequest: it is, for nobody's tool.
    """
    if not only_own:
        return draft
    if writer.manager is None:
        raise BadRequest("`only_own` needs the header `GTM-Managed-By`: whose own?")
    held: Collection[Key] = written(draft)
    own = [key for key, one in managed.items() if one.manager == writer.manager and key not in held]
    gone = tuple(ResourceName.model_validate({"kind": kind, "name": name}) for kind, name in sorted(own))
    return draft.model_copy(update={"partial": True, "delete": (*draft.delete, *gone)})


@dataclass(frozen=True, slots=True)
class Trial:
    """What a dry run has to know besides the draft: who asks, for which tool, who manages what, and what is gone."""

    rules: Rules
    writer: PolicyWriter
    managed: Mapping[Key, Managed]
    gone: Remembered


def planned(
    trial: Trial,
    draft: DraftDocument,
    running: Policy,
    revision: int,
    situation: Situation,
    *,
    only_own: bool,
) -> dict[str, Any]:
    """What a draft would change, as `policy:apply` says it of a dry run, but for how far the revision has got.

    Raises:
        BadRequest: `only_own` for nobody's tool.
        PolicyError: it does not compile.
    """
    now = datetime.fromtimestamp(situation.now, UTC)
    wanted = narrowed(draft, trial.managed, trial.writer, only_own=only_own).within(running, now)
    found = tried(
        running,
        wanted,
        revision,
        now,
        judged=lambda after: trial.rules.verdict(situation, running, after, revision, trial.gone),
        settled=lambda changes: settle(trial.writer, trial.managed, changes, written(draft)),
    )
    return found.document(dry_run=True)
