"""What a policy will make of itself as time goes by: rules and memberships that begin or end, and what each such moment changes.

Laws:
  1. A moment changes what the compiled rules say that it changes: a service's fences just before it and from it on are compared.
  2. Rules in monitor mode begin and end too, and change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import inf, nextafter

from gtm.core.findings.matrix import Inquiry, Kinds, binding, kinds, naming
from gtm.core.model.countries import COUNTRIES
from gtm.core.model.policy import RuleMode
from gtm.core.policy.snapshot import CompiledService, Snapshot


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
    """The rule's, or the jurisdiction's."""
    countries: tuple[str, ...] = ()
    """The countries whose membership begins or ends."""
    rules: tuple[str, ...] = ()
    """Rules that name the jurisdiction; none: nothing follows from it."""
    monitor: bool = False
    """A rule in monitor mode, which changes nothing."""


@dataclass(frozen=True, slots=True)
class FenceChange:
    """Of services, the regions (a mask) that may serve clients of some countries, before a moment and from it on."""

    services: tuple[str, ...]
    countries: frozenset[str]
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Event:
    """A moment (POSIX seconds) at which something begins or ends."""

    at: float
    causes: tuple[Cause, ...]
    changes: tuple[FenceChange, ...]
    left_out: int
    """Services beyond those looked at whose rules change then."""


Causes = Mapping[float, Sequence[Cause]]
"""What begins or ends, by POSIX time."""


def causes(snapshot: Snapshot) -> Causes:
    """All that a policy ever makes begin or end."""
    found: dict[float, list[Cause]] = {}
    for moment, cause in (*_of_rules(snapshot), *_of_memberships(snapshot)):
        found.setdefault(moment, []).append(cause)
    return found


def coming(
    snapshot: Snapshot, known: Causes, asked: Inquiry, *, most: int, services: int
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


def _event(
    snapshot: Snapshot, asked: Inquiry, moment: float, causes: Sequence[Cause], services: int
) -> Event:
    concerned = sorted(_changing(snapshot, moment))
    before = Inquiry(nextafter(moment, -inf), asked.tenant, asked.data_class)
    after = Inquiry(moment, asked.tenant, asked.data_class)
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
        FenceChange(tuple(names), countries, was, becomes)
        for (countries, was, becomes), names in same.items()
    )
    return Event(moment, tuple(causes), changes, max(0, len(concerned) - services))


def _changing(snapshot: Snapshot, moment: float) -> Iterator[str]:
    """The services that some enforced rule begins or ceases to bind then, or binds otherwise."""
    for group in snapshot.timed:
        if moment in group.beginnings or moment in group.endings:
            yield from (name for name, _ in group.services)


def _both(
    service: CompiledService, before: Inquiry, after: Inquiry
) -> Mapping[frozenset[str], tuple[int, int]]:
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
