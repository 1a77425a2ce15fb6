"""The fence: where the law lets a request be served.

Whether a rule concerns a request is decided here and nowhere else: by `matches_statement` for what requests state, by
`matches_place` for where clients are. Whoever looks at many requests at once (what a change opens, which clients have no
region, which rules add nothing) asks these two about one request of each kind.

Laws:
  1. Several rules match: their allowed sets intersect.
  2. What a request does not say counts as a match: tenant or data class not stated, the rules scoped by them apply; so
     does a rule by tenants' establishment, where that of the tenant is not known. So saying less never opens a fence.
  3. A client that may be in a rule's countries counts as being there: its country is unknown, a code that is none
     (`EU`, `A1` in some databases), in doubt because round trips contradict it, not located to within the rule's
     bound, or that of an anonymising network. A rule can say otherwise of each; none lets go of a client that is located in its countries. Operators' overrides are
     believed.
  4. A client subnet concerns every rule that concerns some part of it, so that its fence is the intersection of those of
     its parts; one of too many parts to look at concerns every rule about clients' places, whatever the rule says.
  5. A rule in monitor mode never excludes; it is only reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

from gtm.core.model.policy import OnAnonymous, OnDoubtfulLocation, OnUnknownLocation, ResidencyRule
from gtm.core.model.requests import LocationFacts, Request, location_facts
from gtm.core.policy.snapshot import CompiledRule

NOT_STATED = "not stated"
"""What ends a phrase about a dimension that matched because the request says nothing of it."""
OUTDATED = "policy is older than max_policy_age"
"""Said of a rule that allows nothing because control was not heard for longer than it accepts."""


@dataclass(frozen=True, slots=True)
class MatchedRule:
    """A rule that concerned a request, and why (`client country DE`, `tenant not stated`)."""

    compiled: CompiledRule
    because: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fence:
    """Where a request may be served (a mask of regions), and the rules that say so."""

    allowed: int
    matched: tuple[MatchedRule, ...]


def fence(rules: Iterable[CompiledRule], members: int, request: Request) -> Fence:
    """Intersect the members of a service with what every matching rule allows.

    Args:
        rules: the rules in force for the request's service, the periods of one rule next to each other.
        members: mask of the service's regions.
        request: what is known of the request.
    """
    allowed = members
    facts = location_facts(request.location)
    matched: list[MatchedRule] = []
    for rule in rules:
        because = _match(rule, request, facts)
        if because is None:
            continue
        found = MatchedRule(rule, because)
        if matched and matched[-1].compiled.rule is rule.rule:
            found = _joined(matched.pop(), found)
        matched.append(found)
        if rule.enforced:
            allowed &= rule.allowed
    return Fence(allowed, tuple(matched))


def _joined(one: MatchedRule, other: MatchedRule) -> MatchedRule:
    """Two periods of a rule that both bind, because the clock has stepped back across the moment between them."""
    compiled = replace(one.compiled, allowed=one.compiled.allowed & other.compiled.allowed)
    return MatchedRule(compiled, tuple(dict.fromkeys(one.because + other.because)))


def _match(rule: CompiledRule, request: Request, facts: LocationFacts) -> tuple[str, ...] | None:
    """Why the rule concerns the request, a phrase per dimension; None if it does not."""
    phrases: list[str] = []
    if rule.countries is not None:
        phrase = matches_place(rule.rule, rule.countries, facts)
        if phrase is None:
            return None
        phrases.append(phrase)
    for wanted, said, what in (
        (rule.tenants, request.tenant, "tenant"),
        (rule.data_classes, request.data_class, "data class"),
    ):
        if wanted is None:
            continue
        if not matches_statement(wanted, said):
            return None
        if said is None:
            phrases.append(f"{what} {NOT_STATED}")
        else:
            phrases.append(f"{what} {said}{_establishment(rule, said) if what == 'tenant' else ''}")
    if rule.outdated:
        phrases = [*(phrases or ["every request"]), OUTDATED]
    return tuple(phrases) or ("every request",)


def _establishment(rule: CompiledRule, tenant: str) -> str:
    """What of a tenant's establishment a rule matched by; nothing where it names the tenant itself."""
    if tenant in rule.rule.match.tenants or tenant not in rule.established:
        return ""
    country = rule.established[tenant]
    return f" established in {country}" if country else " of unknown establishment"


def matches_statement(wanted: frozenset[str] | None, said: str | None) -> bool:
    """Whether a rule about some tenants, or data classes, concerns a request by what it states of them (law 2).

    Args:
        wanted: whom the rule is about; None: everybody.
        said: what the request states; None: nothing.
    """
    return wanted is None or said is None or said in wanted


def matches_place(settings: ResidencyRule, countries: frozenset[str], facts: LocationFacts) -> str | None:
    """Why a rule about the clients of some countries concerns one, in words; None if it does not (laws 3 and 4).

    Args:
        settings: the rule as written, which says how it takes clients of uncertain location.
        countries: those that it is about.
        facts: where the client is.
    """
    where, part = _where(facts), ", in part" if facts.mixed else ""
    if facts.anywhere or not countries.isdisjoint(facts.countries):
        return where
    if facts.anonymous and settings.on_anonymous is OnAnonymous.MATCH:
        return f"{where}{part} by an anonymising network"
    unknown, bound = None in facts.countries, settings.max_accuracy_km
    doubtful = facts.doubtful and settings.on_doubtful_location is OnDoubtfulLocation.MATCH
    certain = not unknown and not doubtful and (bound is None or facts.accuracy_km <= bound)
    if certain or settings.on_unknown_location is OnUnknownLocation.IGNORE:
        return None
    if unknown:
        return where
    if doubtful:
        return f"{where}{part} in doubt"
    accuracy = (
        "with unknown accuracy" if facts.accuracy_km == inf else f"to within {facts.accuracy_km:g} km only"
    )
    return f"{where}{part} {accuracy}"


def settings_of(rule: ResidencyRule) -> ResidencyRule:
    """A rule with nothing left in it but what `matches_place` looks at: what it found for one holds for all alike."""
    return ResidencyRule(
        "",
        on_unknown_location=rule.on_unknown_location,
        on_anonymous=rule.on_anonymous,
        on_doubtful_location=rule.on_doubtful_location,
        max_accuracy_km=rule.max_accuracy_km,
    )


def _where(facts: LocationFacts, most: int = 6) -> str:
    """Where a client may be, in words."""
    if facts.anywhere:
        return "client subnet of too many networks to look at"
    if not facts.mixed:
        return f"client country {facts.countries[0] or 'unknown'}"
    names = [country or "unknown places" for country in facts.countries]
    if len(names) == 1:
        return f"client subnet in {names[0]}"
    if len(names) > most:
        names[most - 1 :] = [f"{len(names) - most + 1} more"]
    return f"client subnet spans {', '.join(names[:-1])} and {names[-1]}"
