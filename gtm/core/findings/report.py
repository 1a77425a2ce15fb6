"""What is legal to write in a policy, and yet probably not meant.

Every finding is a `Problem` with a path and a code, but none that keeps a policy from being put in force.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from gtm.core.findings.capacity import capacity_findings
from gtm.core.findings.coverage import coverage
from gtm.core.findings.edges import edge_findings
from gtm.core.findings.effects import effect_findings
from gtm.core.findings.families import family_findings
from gtm.core.findings.matrix import naming, unruled
from gtm.core.findings.pinned import pinned
from gtm.core.findings.redirected import redirect_findings
from gtm.core.findings.shadows import find_shadows
from gtm.core.findings.zones import zone_findings
from gtm.core.model.policy import OnAnonymous, OnDoubtfulLocation, OnUnknownLocation, Policy, ResidencyRule
from gtm.core.model.problems import Problem
from gtm.core.model.references import some, utc
from gtm.core.policy.jurisdictions import Membership, countries_at
from gtm.core.policy.snapshot import Snapshot

ERRORS = frozenset({"empty_a"})
"""Findings that `gtm check` fails for: clients would lose a service by them. What is in force stays in force."""
SOON = 180 * 86_400.0
"""Seconds before the end of a membership from which on it is mentioned."""
SHORT_AGE = 10.0
"""Seconds within which an edge notices that its line to control is gone (5 s of silence), and has another."""


def findings(snapshot: Snapshot, now: float) -> tuple[Problem, ...]:
    """Everything about a policy that its authors may want to look at again.

    Args:
        snapshot: the policy; its size is bounded by `gtm.documents.schema`, and the time this takes by that (seconds).
        now: POSIX seconds.

    Returns:
        By code: `rule_over`, `matches_nobody`, `without_effect`, `short_policy_age`, `shadowed`, `not_compared`,
        `membership_ends`, `no_rule`, and those of `gtm.core.findings.coverage`, `gtm.core.findings.pinned`, `gtm.core.findings.edges`,
        `gtm.core.findings.capacity`, `gtm.core.findings.redirected`, `gtm.core.findings.families` and `gtm.core.findings.zones`.
    """
    return (
        *_of_rules(snapshot, now),
        *_of_shadows(snapshot, now),
        *_of_memberships(snapshot, now),
        *_of_unruled(snapshot, now),
        *coverage(snapshot, now),
        *pinned(snapshot, now),
        *edge_findings(snapshot, now),
        *capacity_findings(snapshot.policy),
        *effect_findings(snapshot.policy),
        *redirect_findings(snapshot.policy),
        *family_findings(snapshot, now),
        *zone_findings(snapshot),
    )


def _of_rules(snapshot: Snapshot, now: float) -> Iterator[Problem]:
    membership = snapshot.jurisdictions
    for rule in snapshot.policy.residency_rules:
        path = f"residency_rules.{rule.name}"
        if rule.effective_until is not None and rule.effective_until.timestamp() <= now:
            text = "was in force until then, and is no more: it matches nothing now"
            yield Problem(f"{path}.effective_until", "rule_over", text)
        elif _covers_nobody(rule.match.client_countries, rule.match.client_jurisdictions, membership, now):
            text = "these jurisdictions cover no country: only clients of uncertain location match"
            yield Problem(f"{path}.match.client_jurisdictions", "matches_nobody", text)
        elif _covers_nobody(rule.match.tenants, rule.match.tenant_jurisdictions, membership, now):
            text = "these jurisdictions cover no country: only tenants of unknown establishment match"
            yield Problem(f"{path}.match.tenant_jurisdictions", "matches_nobody", text)
        yield from _of_establishment(path, rule, snapshot.policy)
        if rule.max_policy_age is not None and rule.max_policy_age < SHORT_AGE:
            text = (
                f"{rule.max_policy_age:g} s is less than the {SHORT_AGE:g} s within which an edge notices a lost line to "
                "control and has another: short losses will refuse what the rule concerns"
            )
            yield Problem(f"{path}.max_policy_age", "short_policy_age", text)
        yield from _without_effect(path, rule)


def _covers_nobody(
    named: tuple[str, ...], jurisdictions: tuple[str, ...], membership: Membership, now: float
) -> bool:
    """Whether jurisdictions that a rule names, and nothing beside, are nobody's, now and later."""
    if named or not jurisdictions:
        return False
    return not any(
        countries
        for name in jurisdictions
        for countries in (
            countries_at(membership[name], now),
            *(later for moment, later in membership[name] if moment > now),
        )
    )


def _of_establishment(path: str, rule: ResidencyRule, policy: Policy) -> Iterator[Problem]:
    """Tenants whom a rule by establishment concerns only because nobody wrote where they are established."""
    unknown = [tenant.name for tenant in policy.tenants if tenant.country is None]
    if rule.match.tenant_jurisdictions and unknown:
        text = f"concerns {some(unknown, 'tenants')} too, for want of their `country`"
        yield Problem(f"{path}.match.tenant_jurisdictions", "establishment_unknown", text)


def _without_effect(path: str, rule: ResidencyRule) -> Iterator[Problem]:
    unlocated = rule.on_unknown_location is OnUnknownLocation.IGNORE
    scoped = rule.match.client_countries or rule.match.client_jurisdictions
    for field, given in (
        ("on_unknown_location", unlocated),
        ("on_anonymous", rule.on_anonymous is OnAnonymous.TRUST),
        ("on_doubtful_location", rule.on_doubtful_location is OnDoubtfulLocation.TRUST),
        ("max_accuracy_km", rule.max_accuracy_km is not None),
    ):
        if given and not scoped:
            text = "has no effect on a rule that does not look at where clients are"
            yield Problem(f"{path}.{field}", "without_effect", text)
        elif given and unlocated and field in {"max_accuracy_km", "on_doubtful_location"}:
            text = "has no effect beside `on_unknown_location: ignore`"
            yield Problem(f"{path}.{field}", "without_effect", text)


def _of_shadows(snapshot: Snapshot, now: float) -> Iterator[Problem]:
    shadows = find_shadows(snapshot, now)
    for shadow in shadows.found:
        text = f"adds nothing: `{shadow.by}` concerns everyone whom it concerns, and excludes every region it excludes"
        yield Problem(f"residency_rules.{shadow.rule}", "shadowed", text)
    if shadows.unchecked:
        text = f"{shadows.unchecked} rules were not compared with the others: too many are alike in whom they concern"
        yield Problem("residency_rules", "not_compared", text)


def _of_memberships(snapshot: Snapshot, now: float) -> Iterator[Problem]:
    """Countries that have left, or soon leave, a jurisdiction that rules name."""
    for name, rules in sorted(naming(snapshot.policy.residency_rules).items()):
        periods = snapshot.jurisdictions[name]
        today = countries_at(periods, now)
        for (_, before), (moment, after) in pairwise(periods):
            lost = before - after - (today if moment <= now else frozenset())
            if not lost or moment > now + SOON:
                continue
            text = (
                f"does not cover {', '.join(sorted(lost))} from {utc(moment)} on; "
                f"it is named by {some(rules, 'rules')}"
            )
            yield Problem(f"jurisdictions.{name}", "membership_ends", text)


def _of_unruled(snapshot: Snapshot, now: float) -> Iterator[Problem]:
    """Services that no enforced rule concerns, now or later. A policy without rules has nothing to forget."""
    for name, watched in unruled(snapshot, now):
        monitored = "; those in monitor mode only watch it" if watched else ""
        text = f"no residency rule concerns it: its clients may be served in any of its regions{monitored}"
        yield Problem(f"services.{name}", "no_rule", text)
