"""Who may be served where: services by jurisdictions of clients, and the rules that say so.

What holds here is what `gtm.core.decision.fence` makes of a client that is located in a country for certain (neither anonymous, nor
doubtful, nor inaccurately), or not at all. Clients of one jurisdiction need not be alike: a rule may concern some of its countries
only, and then a cell has several parts. Services that share their rules share the work.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from gtm.core.decision.fence import matches_statement
from gtm.core.findings.coverage import CLIENTS, UNKNOWN, concerned
from gtm.core.model.policy import OnUnknownLocation, ResidencyRule
from gtm.core.policy.jurisdictions import countries_at
from gtm.core.policy.snapshot import CompiledRule, CompiledService, Snapshot, bits

EVERYWHERE = -1
"""The mask of all regions, however many there are."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: the clients of some countries, of `coverage.UNKNOWN` those that nobody can locate.

    `name` is a jurisdiction's or a country's; empty for clients of all countries that no other column has.
    """

    name: str
    countries: frozenset[str]


@dataclass(frozen=True, slots=True)
class Inquiry:
    """What requests state, and when they are made (POSIX seconds). None: nothing, so that every rule about it counts."""

    now: float
    tenant: str | None = None
    data_class: str | None = None


@dataclass(frozen=True, slots=True)
class MatrixPart:
    """Clients of one column that are alike: the regions that may serve them, and the enforced rules that concern them."""

    countries: frozenset[str]
    allowed: int
    rules: tuple[str, ...]


Kinds = tuple[MatrixPart, ...]
"""All clients by what rules make of them, whatever the service's members are."""


Naming = Mapping[str, Sequence[float]]
"""Jurisdictions and countries that rules name for their clients: when each of those rules ends, in ascending order (POSIX seconds)."""


def clients_named(snapshot: Snapshot) -> Naming:
    """Find the jurisdictions and countries that rules name for their clients."""
    found: dict[str, list[float]] = {}
    for rule in snapshot.policy.residency_rules:
        ends = inf if rule.effective_until is None else rule.effective_until.timestamp()
        for name in {*rule.match.client_jurisdictions, *rule.match.client_countries}:
            found.setdefault(name, []).append(ends)
    return {name: sorted(ends) for name, ends in found.items()}


def columns(snapshot: Snapshot, naming: Naming, now: float, most: int) -> tuple[list[Column], int]:
    """The jurisdictions that rules name for their clients, those that most rules name first; then everybody else, and the unlocated.

    Args:
        snapshot: the policy.
        naming: its `clients_named`. Rules that have ended do not count.
        now: POSIX seconds.
        most: columns of jurisdictions.

    Returns:
        The columns, and how many jurisdictions more are named.
    """
    named = {name: len(ends) - bisect_right(ends, now) for name, ends in naming.items()}
    order = sorted((name for name in named if named[name]), key=lambda name: (-named[name], name))
    found = [column(snapshot, name, now) for name in order[:most]]
    rest = frozenset(CLIENTS).difference({UNKNOWN}, *(one.countries for one in found))
    return [*found, Column("", rest), Column(UNKNOWN, frozenset({UNKNOWN}))], max(0, len(order) - most)


def column(snapshot: Snapshot, name: str, now: float) -> Column:
    """The clients of one jurisdiction, or country, at a POSIX time.

    Raises:
        KeyError: there is none of that name.
    """
    return Column(name, countries_at(snapshot.jurisdictions[name], now))


class Matrix:
    """The cells of one policy, for requests that state the same.

    Args:
        asked: what they state, and when.
    """

    def __init__(self, asked: Inquiry) -> None:
        self._asked = asked
        self._known: dict[tuple[int, ...], Kinds] = {}

    def kinds(self, service: CompiledService) -> Kinds:
        """All clients of a service, by what its rules make of them."""
        key = tuple(map(id, service.rules))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = kinds(binding(service.rules, self._asked))
        return found

    def cell(self, service: CompiledService, clients: Column) -> list[MatrixPart]:
        """Where a service may serve some clients: those who are most first. Of rules that leave the same, all are named."""
        found = []
        for one in self.kinds(service):
            countries = one.countries & clients.countries
            if countries:
                found.append(MatrixPart(countries, one.allowed & service.mask, one.rules))
        return sorted(found, key=lambda part: (-len(part.countries), min(part.countries)))


def binding(rules: Iterable[CompiledRule], asked: Inquiry) -> list[CompiledRule]:
    """The enforced rules that may concern some client's request at a moment."""
    return [
        rule
        for rule in rules
        if rule.enforced
        and rule.starts <= asked.now < rule.ends
        and matches_statement(rule.tenants, asked.tenant)
        and matches_statement(rule.data_classes, asked.data_class)
    ]


def kinds(rules: Sequence[CompiledRule]) -> Kinds:
    """All clients by which of some rules concern them."""
    # Rules name few different sets of countries: what those of one set say together is worked out once.
    alike: dict[tuple[frozenset[str] | None, OnUnknownLocation], list[CompiledRule]] = {}
    for rule in rules:
        alike.setdefault((rule.countries, rule.rule.on_unknown_location), []).append(rule)
    groups = list(alike.values())
    marks = dict.fromkeys(CLIENTS, 0)
    for number, group in enumerate(groups):
        for country in concerned(group[0]):
            marks[country] |= 1 << number
    clients: dict[int, list[str]] = {}
    for country, mark in marks.items():
        clients.setdefault(mark, []).append(country)
    return tuple(_part(countries, groups, mark) for mark, countries in clients.items())


def _part(countries: Iterable[str], groups: Sequence[Sequence[CompiledRule]], mark: int) -> MatrixPart:
    allowed = EVERYWHERE
    names: dict[str, None] = {}
    for number in bits(mark):
        for rule in groups[number]:
            allowed &= rule.allowed
            names[rule.rule.name] = None
    return MatrixPart(frozenset(countries), allowed, tuple(names))


def unruled(snapshot: Snapshot, now: float) -> Iterator[tuple[str, bool]]:
    """Services that no enforced rule concerns, now or later, and whether rules in monitor mode watch them.

    A policy without rules has nothing to forget.
    """
    if not snapshot.policy.residency_rules:
        return
    for name, service in snapshot.services.items():
        if not any(rule.enforced and rule.ends > now for rule in service.rules):
            yield name, any(rule.ends > now for rule in service.rules)


def naming(rules: Iterable[ResidencyRule]) -> Mapping[str, list[str]]:
    """Jurisdiction → the rules that name it, of clients, tenants or places."""
    found: dict[str, list[str]] = {}
    for rule in rules:
        named = [*rule.match.client_jurisdictions, *rule.match.tenant_jurisdictions]
        for places in (rule.allow, rule.deny):
            named += [*places.jurisdictions, *places.operator_jurisdictions]
        for name in dict.fromkeys(named):
            found.setdefault(name, []).append(rule.name)
    return found
