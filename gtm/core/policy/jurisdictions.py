"""Which countries a body of law covers, and when.

Every ISO 3166-1 country code is a jurisdiction of its own. Named jurisdictions (EU, EEA, …) list countries or other
jurisdictions; the shipped ones and their sources are data (`gtm/documents/data/jurisdictions.yaml`). A membership may
have terms: an adequacy decision begins, and lapses.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import inf
from types import MappingProxyType

from gtm.core.model.countries import COUNTRIES
from gtm.core.model.policy import Jurisdiction
from gtm.core.model.problems import Problem

Periods = tuple[tuple[float, frozenset[str]], ...]
"""From each POSIX time (in seconds, ascending, the first minus infinity) until the next: the countries covered."""

_COUNTRIES: Mapping[str, Periods] = {code: ((-inf, frozenset((code,))),) for code in COUNTRIES}

Membership = Mapping[str, Periods]
"""Name of a jurisdiction → the countries it covers, over time."""

MAX_PERIODS = 100
"""Most periods of a jurisdiction, or of a rule: each is compiled for itself."""

_Dated = tuple[float, float, Periods]


def resolve(
    shipped: Iterable[Jurisdiction], operators: Iterable[Jurisdiction]
) -> tuple[Membership, list[Problem]]:
    """Expand every jurisdiction to its countries.

    Args:
        shipped: what comes with gtm.
        operators: what the policy adds; it may build on shipped names, but not redefine them.

    Returns:
        The membership (country codes included, each covering itself) and everything that was wrong: names already
        taken, members that exist nowhere, circles, terms of nobody or of no time.
    """
    problems: list[Problem] = []
    named: dict[str, Jurisdiction] = {item.name: item for item in shipped}
    for item in operators:
        if item.name in named or item.name in COUNTRIES:
            message = (
                f"`{item.name}` is already defined; choose another name and list `{item.name}` as a member"
            )
            problems.append(Problem(f"jurisdictions.{item.name}.name", "duplicate", message))
        else:
            named[item.name] = item
    resolved = dict(_COUNTRIES)
    for name in named:
        _expand(name, named, resolved, (), problems)
    return MappingProxyType(resolved), problems


def joined(membership: Membership, names: Iterable[str]) -> Periods:
    """The countries that any of some jurisdictions covers, over time; unknown names cover none."""
    return _union([(-inf, inf, membership[name]) for name in names if name in membership])


def countries_at(periods: Periods, moment: float) -> frozenset[str]:
    """The countries covered at a POSIX time."""
    return periods[bisect_right(periods, moment, key=lambda period: period[0]) - 1][1]


def posix_seconds(path: str, moment: datetime | None, default: float, problems: list[Problem]) -> float:
    """POSIX seconds; `default` for None. Without an offset every machine would read it in its own time zone."""
    if moment is None:
        return default
    if moment.utcoffset() is None:
        message = f"`{moment.isoformat()}` needs a UTC offset, as in `{moment.isoformat()}Z`"
        problems.append(Problem(path, "missing", message))
        return default
    return moment.timestamp()


def _expand(
    name: str,
    named: Mapping[str, Jurisdiction],
    resolved: dict[str, Periods],
    trail: tuple[str, ...],
    problems: list[Problem],
) -> Periods:
    """The countries of one jurisdiction; `trail` holds the names being expanded, to find circles."""
    if name in resolved:
        return resolved[name]
    terms = _terms(named[name], problems)
    dated: list[_Dated] = []
    for index, member in enumerate(named[name].members):
        path = f"jurisdictions.{name}.members[{index}]"
        if member in (*trail, name):
            circle = " → ".join((*trail, name, member))
            problems.append(Problem(path, "circular", f"jurisdictions contain each other: {circle}"))
        elif member in named or member in resolved:
            periods = _expand(member, named, resolved, (*trail, name), problems)
            dated += [(starts, ends, periods) for starts, ends in terms.get(member, ((-inf, inf),))]
        else:
            message = f"`{member}` is neither a country code (ISO 3166-1 alpha-2) nor a known jurisdiction"
            problems.append(Problem(path, "unknown_reference", message))
    found = _union(dated)
    if len(found) > MAX_PERIODS:
        message = f"its countries change {len(found) - 1} times; the most accepted is {MAX_PERIODS - 1}"
        problems.append(Problem(f"jurisdictions.{name}.terms", "out_of_range", message))
        found = found[:MAX_PERIODS]
    # Inside a circle the set is not whole yet; the policy is rejected anyway, and remembering it ends the recursion.
    resolved[name] = found
    return found


def _terms(item: Jurisdiction, problems: list[Problem]) -> dict[str, list[tuple[float, float]]]:
    """Member → when it is one. It may be one several times."""
    found: dict[str, list[tuple[float, float]]] = {}
    for index, term in enumerate(item.terms):
        path = f"jurisdictions.{item.name}.terms[{index}]"
        starts = posix_seconds(f"{path}.effective_from", term.effective_from, -inf, problems)
        ends = posix_seconds(f"{path}.effective_until", term.effective_until, inf, problems)
        if term.member not in item.members:
            message = f"`{term.member}` is not among the members"
            problems.append(Problem(f"{path}.member", "unknown_reference", message))
        if starts >= ends:
            message = "must be later than `effective_from`: the membership would never hold"
            problems.append(Problem(f"{path}.effective_until", "out_of_range", message))
        found.setdefault(term.member, []).append((starts, ends))
    return found


def _union(dated: Sequence[_Dated]) -> Periods:
    """What any of some dated members covers, each within its own span of time."""
    moments = {-inf}
    for starts, ends, periods in dated:
        moments |= {starts, ends} | {start for start, _ in periods if starts < start < ends}
    found: list[tuple[float, frozenset[str]]] = []
    for moment in sorted(moments - {inf}):
        covered = (
            countries_at(periods, moment) for starts, ends, periods in dated if starts <= moment < ends
        )
        countries = frozenset[str]().union(*covered)
        if not found or found[-1][1] != countries:
            found.append((moment, countries))
    return tuple(found)
