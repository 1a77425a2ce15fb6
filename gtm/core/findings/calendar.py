"""What a policy will make of itself as time goes by: rules and memberships that begin or end, and what each such moment changes.

Laws:
  1. A moment changes what the compiled rules say that it changes: a service's fences just before it and from it on are compared.
  2. Rules in monitor mode begin and end too, and change nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import inf, nextafter

from gtm.core.decision.fence import matches_statement
from gtm.core.findings.coverage import CLIENTS, UNKNOWN, concerned
from gtm.core.model.countries import COUNTRIES
from gtm.core.model.policy import OnUnknownLocation, ResidencyRule, RuleMode
from gtm.core.policy.jurisdictions import countries_at
from gtm.core.policy.snapshot import CompiledRule, CompiledService, Snapshot, bits


class What(StrEnum):
    """The kind of a change that happens without anybody's doing."""

    RULE_BEGINS = "rule_begins"
    RULE_ENDS = "rule_ends"
    MEMBERSHIP_BEGINS = "membership_begins"
    MEMBERSHIP_ENDS = "membership_ends"


@dataclass(frozen=True, slots=True)
class Cause:
    """What begins or ends: a rule, or the membership of `countries` in a jurisdiction, which `rules` name."""

    what: What
    name: str
    countries: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    monitor: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """Of services, the regions (a mask) that may serve clients of some countries, before a moment and from it on."""

    services: tuple[str, ...]
    countries: frozenset[str]
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Event:
    """A moment (POSIX seconds) at which something begins or ends. `left_out`: services beyond those looked at."""

    at: float
    causes: tuple[Cause, ...]
    changes: tuple[Change, ...]
    left_out: int


Causes = Mapping[float, Sequence[Cause]]
"""What begins or ends, by POSIX time."""


def causes(snapshot: Snapshot) -> Causes:
    """All that a policy ever makes begin or end."""
    found: dict[float, list[Cause]] = {}
    for moment, cause in (*_of_rules(snapshot), *_of_memberships(snapshot)):
        found.setdefault(moment, []).append(cause)
    return found


def coming(
    snapshot: Snapshot, known: Causes, asked: Asked, *, most: int, services: int
) -> tuple[list[Event], int]:
    """What begins or ends after a moment, the next first.

    Args:
        snapshot: the policy.
        known: its causes.
        asked: what the requests state whose fences are compared; what comes later than its time is told.
        most: events that are told.
        services: of each event, the services whose fences are compared.

    Returns:
        The events, and how many more there are.
    """
    moments = sorted(moment for moment in known if asked.now < moment < inf)
    found = [_event(snapshot, asked, moment, known[moment], services) for moment in moments[:most]]
    return found, max(0, len(moments) - most)


def _of_rules(snapshot: Snapshot) -> Iterator[tuple[float, Cause]]:
    for rule in snapshot.policy.residency_rules:
        for what, moment in (
            (What.RULE_BEGINS, rule.effective_from),
            (What.RULE_ENDS, rule.effective_until),
        ):
            if moment is not None:
                yield moment.timestamp(), Cause(what, rule.name, monitor=rule.mode is RuleMode.MONITOR)


def _of_memberships(snapshot: Snapshot) -> Iterator[tuple[float, Cause]]:
    rules = naming(snapshot.policy.residency_rules)
    for name, periods in snapshot.jurisdictions.items():
        if name in COUNTRIES:
            continue
        for (_, before), (moment, after) in pairwise(periods):
            for what, countries in (
                (What.MEMBERSHIP_ENDS, before - after),
                (What.MEMBERSHIP_BEGINS, after - before),
            ):
                if countries:
                    yield moment, Cause(what, name, tuple(sorted(countries)), tuple(rules.get(name, ())))


def _event(snapshot: Snapshot, asked: Asked, moment: float, causes: Sequence[Cause], services: int) -> Event:
    concerned = sorted(_changing(snapshot, moment))
    before = Asked(nextafter(moment, -inf), asked.tenant, asked.data_class)
    after = Asked(moment, asked.tenant, asked.data_class)
    alike: dict[tuple[int, ...], Mapping[frozenset[str], tuple[int, int]]] = {}
    same: dict[tuple[frozenset[str], int, int], list[str]] = {}
    for name in concerned[:services]:
        service = snapshot.services[name]
        key = tuple(map(id, service.rules))
        if key not in alike:
            alike[key] = _both(service, before, after)
        for (was, becomes), countries in _seen(alike[key], service.mask).items():
            same.setdefault((frozenset(countries), was, becomes), []).append(name)
    changes = tuple(
        Change(tuple(names), countries, was, becomes) for (countries, was, becomes), names in same.items()
    )
    return Event(moment, tuple(causes), changes, max(0, len(concerned) - services))


def _changing(snapshot: Snapshot, moment: float) -> Iterator[str]:
    """The services that some enforced rule begins or ceases to bind then, or binds otherwise."""
    for group in snapshot.timed:
        if moment in group.beginnings or moment in group.endings:
            yield from (name for name, _ in group.services)


def _both(service: CompiledService, before: Asked, after: Asked) -> Mapping[frozenset[str], tuple[int, int]]:
    """Clients → the regions that all rules together leave them, before and after; only where that differs."""
    was, becomes = (kinds(binding(service.rules, asked)) for asked in (before, after))
    return {countries: (one, other) for countries, one, other in _crossed(was, becomes) if one != other}


def _crossed(was: Kinds, becomes: Kinds) -> Iterator[tuple[frozenset[str], int, int]]:
    for one in was:
        for other in becomes:
            countries = one.countries & other.countries
            if countries:
                yield countries, one.allowed, other.allowed


def _seen(
    both: Mapping[frozenset[str], tuple[int, int]], members: int
) -> Mapping[tuple[int, int], frozenset[str]]:
    """The same of a service's members: before and after → clients; only where that differs."""
    found: dict[tuple[int, int], frozenset[str]] = {}
    for countries, (was, becomes) in both.items():
        pair = was & members, becomes & members
        if pair[0] != pair[1]:
            found[pair] = found.get(pair, frozenset()) | countries
    return found


# --- Who may be served where: services by jurisdictions of clients, and the rules that say so.
#
# What holds here is what `gtm.core.decision.fence` makes of a client that is located in a country for certain (neither anonymous, nor
# doubtful, nor inaccurately), or not at all. Clients of one jurisdiction need not be alike: a rule may concern some of its countries
# only, and then a cell has several parts. Services that share their rules share the work.


EVERYWHERE = -1
"""The mask of all regions, however many there are."""


@dataclass(frozen=True, slots=True)
class Clients:
    """A column: the clients of some countries, of `coverage.UNKNOWN` those that nobody can locate.

    `name` is a jurisdiction's or a country's; empty for clients of all countries that no other column has.
    """

    name: str
    countries: frozenset[str]


@dataclass(frozen=True, slots=True)
class Asked:
    """What requests state, and when they are made (POSIX seconds). None: nothing, so that every rule about it counts."""

    now: float
    tenant: str | None = None
    data_class: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Clients of one column that are alike: the regions that may serve them, and the enforced rules that concern them."""

    countries: frozenset[str]
    allowed: int
    rules: tuple[str, ...]


Kinds = tuple[Part, ...]
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


def columns(snapshot: Snapshot, naming: Naming, now: float, most: int) -> tuple[list[Clients], int]:
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
    return [*found, Clients("", rest), Clients(UNKNOWN, frozenset({UNKNOWN}))], max(0, len(order) - most)


def column(snapshot: Snapshot, name: str, now: float) -> Clients:
    """The clients of one jurisdiction, or country, at a POSIX time.

    Raises:
        KeyError: there is none of that name.
    """
    return Clients(name, countries_at(snapshot.jurisdictions[name], now))


class Matrix:
    """The cells of one policy, for requests that state the same.

    Args:
        asked: what they state, and when.
    """

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._known: dict[tuple[int, ...], Kinds] = {}

    def kinds(self, service: CompiledService) -> Kinds:
        """All clients of a service, by what its rules make of them."""
        key = tuple(map(id, service.rules))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = kinds(binding(service.rules, self._asked))
        return found

    def cell(self, service: CompiledService, clients: Clients) -> list[Part]:
        """Where a service may serve some clients: those who are most first. Of rules that leave the same, all are named."""
        found = []
        for one in self.kinds(service):
            countries = one.countries & clients.countries
            if countries:
                found.append(Part(countries, one.allowed & service.mask, one.rules))
        return sorted(found, key=lambda part: (-len(part.countries), min(part.countries)))


def binding(rules: Iterable[CompiledRule], asked: Asked) -> list[CompiledRule]:
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


def _part(countries: Iterable[str], groups: Sequence[Sequence[CompiledRule]], mark: int) -> Part:
    allowed = EVERYWHERE
    names: dict[str, None] = {}
    for number in bits(mark):
        for rule in groups[number]:
            allowed &= rule.allowed
            names[rule.rule.name] = None
    return Part(frozenset(countries), allowed, tuple(names))


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
