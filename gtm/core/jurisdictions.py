"""Which countries a body of law covers.

Every ISO 3166-1 country code is a jurisdiction of its own. Named jurisdictions (EU, EEA, …) list countries or other
jurisdictions; the shipped ones and their sources are data (`gtm/control/data/jurisdictions.yaml`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from gtm.core.countries import COUNTRIES
from gtm.core.model import Jurisdiction
from gtm.core.problems import Problem

Membership = Mapping[str, frozenset[str]]
"""Name of a jurisdiction → the countries it covers."""


def resolve(
    shipped: Iterable[Jurisdiction], operators: Iterable[Jurisdiction]
) -> tuple[Membership, list[Problem]]:
    """Expand every jurisdiction to its countries.

    Args:
        shipped: what comes with gtm.
        operators: what the policy adds; it may build on shipped names, but not redefine them.

    Returns:
        The membership (country codes included, each covering itself) and everything that was wrong: names already
        taken, members that exist nowhere, circles.
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
    resolved: dict[str, frozenset[str]] = {code: frozenset((code,)) for code in COUNTRIES}
    for name in named:
        _expand(name, named, resolved, (), problems)
    return MappingProxyType(resolved), problems


def _expand(
    name: str,
    named: Mapping[str, Jurisdiction],
    resolved: dict[str, frozenset[str]],
    trail: tuple[str, ...],
    problems: list[Problem],
) -> frozenset[str]:
    """The countries of one jurisdiction; `trail` holds the names being expanded, to find circles."""
    if name in resolved:
        return resolved[name]
    countries: set[str] = set()
    for index, member in enumerate(named[name].members):
        path = f"jurisdictions.{name}.members[{index}]"
        if member in (*trail, name):
            circle = " → ".join((*trail, name, member))
            problems.append(Problem(path, "circular", f"jurisdictions contain each other: {circle}"))
        elif member in named or member in resolved:
            countries |= _expand(member, named, resolved, (*trail, name), problems)
        else:
            message = f"`{member}` is neither a country code (ISO 3166-1 alpha-2) nor a known jurisdiction"
            problems.append(Problem(path, "unknown_reference", message))
    # Inside a circle the set is not whole yet; the policy is rejected anyway, and remembering it ends the recursion.
    resolved[name] = frozenset(countries)
    return resolved[name]
