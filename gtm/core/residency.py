"""The fence: where the law lets a request be served.

Laws:
  1. Several rules match: their allowed sets intersect.
  2. What a request does not say counts as a match. Location unknown: every location-scoped rule applies; tenant or
     data class not stated: the rules scoped by them apply. So saying less never opens a fence. A country code that is
     none (`EU`, `A1` in some databases) says nothing either.
  3. A rule in monitor mode never excludes; it is only reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gtm.core.countries import COUNTRIES
from gtm.core.model import Request
from gtm.core.snapshot import CompiledRule


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
        rules: the rules in force for the request's service.
        members: mask of the service's regions.
        request: what is known of the request.
    """
    allowed = members
    matched: list[MatchedRule] = []
    for rule in rules:
        because = _match(rule, request)
        if because is None:
            continue
        matched.append(MatchedRule(rule, because))
        if rule.enforced:
            allowed &= rule.allowed
    return Fence(allowed, tuple(matched))


def _match(rule: CompiledRule, request: Request) -> tuple[str, ...] | None:
    """Why the rule concerns the request, a phrase per dimension; None if it does not."""
    phrases: list[str] = []
    country = request.location.country
    for wanted, said, what in (
        (rule.countries, country if country in COUNTRIES else None, "client country"),
        (rule.tenants, request.tenant, "tenant"),
        (rule.data_classes, request.data_class, "data class"),
    ):
        if wanted is None:
            continue
        if said is None:
            phrases.append(f"{what} {'unknown' if what == 'client country' else 'not stated'}")
        elif said in wanted:
            phrases.append(f"{what} {said}")
        else:
            return None
    return tuple(phrases) or ("every request",)
