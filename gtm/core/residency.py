"""The fence: where the law lets a request be served.

Laws:
  1. Several rules match: their allowed sets intersect.
  2. What a request does not say counts as a match: tenant or data class not stated, the rules scoped by them apply.
     So saying less never opens a fence.
  3. A client that may be in a rule's countries counts as being there: its country is unknown, a code that is none
     (`EU`, `A1` in some databases), not located to within the rule's bound, or that of an anonymising network. A rule
     can say otherwise of each; none lets go of a client that is located in its countries. Operators' overrides are
     believed.
  4. A rule in monitor mode never excludes; it is only reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from gtm.core.countries import COUNTRIES
from gtm.core.model import Location, OnAnonymous, OnUnknownLocation, Request
from gtm.core.snapshot import CompiledRule

NOT_STATED = "not stated"
"""What ends a phrase about a dimension that matched because the request says nothing of it."""


class LocationFacts(NamedTuple):
    """All of a location that a fence depends on: locations with equal facts have equal fences.

    `country` None: unknown. `accuracy_km`: 0 where an operator vouches for the country, infinite where nobody says.
    """

    country: str | None
    anonymous: bool
    accuracy_km: float


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


def location_facts(location: Location) -> LocationFacts:
    """What a fence looks at of a location; fit to be part of a key under which fences are remembered."""
    country = location.country if location.country in COUNTRIES else None
    if location.source == "override":
        return LocationFacts(country, anonymous=False, accuracy_km=0.0)
    accuracy = inf if location.accuracy_km is None else location.accuracy_km
    return LocationFacts(country, location.anonymous, accuracy)


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
        phrase = _match_location(rule, rule.countries, facts)
        if phrase is None:
            return None
        phrases.append(phrase)
    for wanted, said, what in (
        (rule.tenants, request.tenant, "tenant"),
        (rule.data_classes, request.data_class, "data class"),
    ):
        if wanted is None:
            continue
        if said is None:
            phrases.append(f"{what} {NOT_STATED}")
        elif said in wanted:
            phrases.append(f"{what} {said}")
        else:
            return None
    return tuple(phrases) or ("every request",)


def _match_location(rule: CompiledRule, countries: frozenset[str], facts: LocationFacts) -> str | None:
    """Why a rule about these countries concerns a client; None if it does not."""
    country, settings = facts.country, rule.rule
    where = f"client country {country or 'unknown'}"
    if country in countries:
        return where
    if facts.anonymous and settings.on_anonymous is OnAnonymous.MATCH:
        return f"{where} by an anonymising network"
    bound = settings.max_accuracy_km
    certain = country is not None and (bound is None or facts.accuracy_km <= bound)
    if certain or settings.on_unknown_location is OnUnknownLocation.IGNORE:
        return None
    if country is None:
        return where
    accuracy = (
        "with unknown accuracy" if facts.accuracy_km == inf else f"to within {facts.accuracy_km:g} km only"
    )
    return f"{where} {accuracy}"
