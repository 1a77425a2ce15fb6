"""Residency rules that add nothing, because another one concerns everyone they do and leaves no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import inf
from typing import TypeVar

from gtm.core.decision.fence import matches_place, settings_of
from gtm.core.model.policy import ResidencyRule
from gtm.core.model.requests import LocationFacts
from gtm.core.policy.snapshot import CompiledRule, Snapshot

MOST_COMPARISONS = 10_000_000
"""After so many the search ends: a second or two."""

_WIDE = 200
"""A rule with more values in a dimension is looked at whatever the value: an index of them all would not fit."""
_PROBED = 20
"""How many values of a rule are tried, to find the one that the fewest others name."""

_ELSEWHERE = "ZZ"
"""A country that is in no rule (ISO 3166-1 leaves it to its users)."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shadow:
    """An enforced rule without effect, and one that has all of it."""

    rule: str
    by: str


@dataclass(frozen=True, slots=True)
class Shadows:
    """What was found, and how many rules were not looked at because the search took too long."""

    found: tuple[Shadow, ...]
    unchecked: int


@dataclass(frozen=True, slots=True)
class _Period:
    """A period of a rule. `excluded`: the regions it takes from the services it concerns. `settings`: as `settings_of`."""

    order: int
    compiled: CompiledRule
    dimensions: tuple[frozenset[str] | None, ...]
    excluded: int
    settings: ResidencyRule


def find_shadows(snapshot: Snapshot, now: float) -> Shadows:
    """The enforced rules, now or later in force, that exclude nothing which another one alone does not exclude.

    Of rules that are alike the first counts. Rules that exclude no region of any service are no matter of this: they
    may wait for regions to come.
    """
    periods = _periods(snapshot, now)
    index = _Index(periods)
    first = {period.order: period for period in reversed(periods)}
    found: list[Shadow] = []
    budget, unchecked = MOST_COMPARISONS, 0
    for order, one in first.items():
        own = [period for period in index.of_rule[order] if period.excluded]
        if not own:
            continue
        if budget <= 0:
            unchecked += 1
            continue
        for other in index.candidates(own[0]):
            budget -= 1
            if own[0].excluded & other.compiled.allowed or other.order == order or not _covers(other, own[0]):
                continue
            others = [period for period in index.of_rule[other.order] if period.excluded]
            if _covers_all(others, own, earlier=other.order < order):
                found.append(Shadow(one.compiled.rule.name, other.compiled.rule.name))
                break
    return Shadows(tuple(found), unchecked)


def _periods(snapshot: Snapshot, now: float) -> list[_Period]:
    members = {name: service.mask for name, service in snapshot.services.items()}
    every = 0
    for mask in members.values():
        every |= mask
    compiled: dict[int, CompiledRule] = {}
    for service in snapshot.services.values():
        compiled.update((id(rule), rule) for rule in service.rules if rule.enforced and rule.ends > now)
    orders = {rule.name: order for order, rule in enumerate(snapshot.policy.residency_rules)}
    found = []
    for rule in compiled.values():
        services = frozenset(rule.rule.match.services) or None
        concerned = every
        if services is not None:
            concerned = 0
            for name in services:
                concerned |= members[name]
        dimensions = (services, rule.countries, rule.tenants, rule.data_classes)
        excluded = concerned & ~rule.allowed
        settings = settings_of(rule.rule)
        found.append(_Period(orders[rule.rule.name], rule, dimensions, excluded, settings))
    return sorted(found, key=lambda period: (period.order, period.compiled.starts))


class _Index:
    """Periods by what they name, to find those that may cover another."""

    def __init__(self, periods: Sequence[_Period]) -> None:
        self.of_rule: dict[int, list[_Period]] = {}
        self._naming: dict[tuple[int, str], list[_Period]] = {}
        self._always: dict[int, list[_Period]] = {number: [] for number in range(4)}
        for period in periods:
            self.of_rule.setdefault(period.order, []).append(period)
            for number, values in enumerate(period.dimensions):
                if values is None or len(values) > _WIDE:
                    self._always[number].append(period)
                    continue
                for value in values:
                    self._naming.setdefault((number, value), []).append(period)

    def candidates(self, period: _Period) -> Iterator[_Period]:
        """All that may cover a period: those that name one of its values, or none at all, in some dimension."""
        best: tuple[list[_Period], list[_Period]] | None = None
        for number, values in enumerate(period.dimensions):
            naming: list[_Period] = []
            if values:
                tried = [
                    self._naming.get((number, value), [])
                    for value, _ in zip(values, range(_PROBED), strict=False)
                ]
                naming = min(tried, key=len)
            choice = naming, self._always[number]
            if best is None or sum(map(len, choice)) < sum(map(len, best)):
                best = choice
        for part in best or ():
            yield from part


def _covers_all(others: Sequence[_Period], own: Sequence[_Period], *, earlier: bool) -> bool:
    """Whether each period of a rule is covered by one of another's, which is earlier or not covered in turn.

    Both are those that exclude something: a period that does not, on one side alone, would let two rules that are alike
    cover each other, and the advice would be to delete both.
    """
    if not all(any(_covers(other, period) for other in others) for period in own):
        return False
    return earlier or not all(any(_covers(period, other) for period in own) for other in others)


def _covers(other: _Period, period: _Period) -> bool:
    """Whether one binds everyone whom a period binds, for as long, and leaves no region that the period excludes."""
    if period.excluded & other.compiled.allowed:
        return False
    one, by = period.compiled, other.compiled
    if by.starts > one.starts or by.ends < one.ends:
        return False
    accepted = one.rule.max_policy_age
    if accepted is not None and not (by.rule.max_policy_age or inf) <= accepted:
        return False  # an edge without control refuses whom it concerns
    if not all(map(_includes, other.dimensions, period.dimensions)):
        return False
    return by.countries is None or _as_strict(other.settings, period.settings)


def _includes(wide: frozenset[str] | None, narrow: frozenset[str] | None) -> bool:
    return wide is None or (narrow is not None and wide >= narrow)


@lru_cache(maxsize=4096)
def _as_strict(by: ResidencyRule, one: ResidencyRule) -> bool:
    """Whether rules of some settings concern every client in none of their countries whom those of others do.

    Asked for a client of every kind that the two may tell apart. Both: as `settings_of` has them.
    """
    radii = {0.0, inf, *(bound for bound in (by.max_accuracy_km, one.max_accuracy_km) if bound is not None)}
    combined = product((None, _ELSEWHERE), (False, True), (False, True), radii)
    clients = [
        LocationFacts((country,), anonymous, km, False, False, doubtful)
        for country, anonymous, doubtful, km in combined
    ]
    return all(
        matches_place(by, frozenset(), client) is not None
        for client in clients
        if matches_place(one, frozenset(), client) is not None
    )
