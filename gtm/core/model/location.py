"""What a fence looks at of where a client is; of a subnet, of all its parts together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from typing import NamedTuple

from gtm.core.model.countries import COUNTRIES
from gtm.core.model.values import ANYWHERE, UNLOCATED, Location


class LocationFacts(NamedTuple):
    """All of a location that a fence depends on: locations with equal facts have equal fences.

    `countries` has one for each that some part is in, None for parts whose country is unknown. `anonymous`: some part
    is. `accuracy_km` is that of the worst part: 0 where an operator vouches for the country, infinite where nobody
    says. `mixed`: parts of a subnet differ; `anywhere`: there are too many to look at. `doubtful`: of some part that no
    operator vouches for.

    A rule concerns a part for its country, for its anonymity, for doubt, or for its accuracy, each by itself. So it concerns
    some part exactly if it concerns what all parts have together, and no more has to be kept of them.
    """

    countries: tuple[str | None, ...]
    anonymous: bool
    accuracy_km: float
    mixed: bool
    anywhere: bool
    doubtful: bool


_ALONE: Mapping[str | None, tuple[str | None, ...]] = {code: (code,) for code in COUNTRIES}
_NOWHERE: tuple[str | None, ...] = (None,)


def location_facts(location: Location) -> LocationFacts:
    """What a fence looks at of a location; fit to be part of a key under which fences are remembered."""
    accuracy = inf if location.accuracy_km is None else location.accuracy_km
    if location.spans:
        countries = tuple(code if code in COUNTRIES else None for code in location.spans)
        anywhere = location.spans == ANYWHERE
        return LocationFacts(countries, location.anonymous, accuracy, True, anywhere, location.doubtful)
    countries = _ALONE.get(location.country, _NOWHERE)
    if location.source == "override":
        return LocationFacts(countries, False, 0.0, False, False, False)
    # As `LocationFacts(…)`, in two thirds of the time: this is the one that nearly every client takes.
    return tuple.__new__(
        LocationFacts, (countries, location.anonymous, accuracy, False, False, location.doubtful)
    )


def spanning(first: Location, subnet: str, parts: Collection[LocationFacts] | None) -> Location:
    """The location of a client subnet.

    Args:
        first: the location of its first address. Its coordinates stay: they only rank, and a wrong rank costs time,
            while a wrong country opens a fence.
        subnet: its CIDR.
        parts: the facts of all its parts; None: they are too many to look at.
    """
    if parts is None:
        return first._replace(
            country=None,
            subdivision=None,
            continent=None,
            source="mixed",
            accuracy_km=None,
            subnet=subnet,
            spans=ANYWHERE,
        )
    if len(parts) == 1:
        return first._replace(subnet=subnet)
    spans = sorted(
        {country or UNLOCATED for facts in parts for country in facts.countries}, key=_unlocated_last
    )
    one = spans[0] if len(spans) == 1 and spans[0] != UNLOCATED else None
    worst = max(facts.accuracy_km for facts in parts)
    return first._replace(
        country=one,
        subdivision=None,
        continent=None if one is None else first.continent,
        source="mixed",
        anonymous=any(facts.anonymous for facts in parts),
        accuracy_km=None if worst == inf else worst,
        doubtful=any(facts.doubtful for facts in parts),
        subnet=subnet,
        spans=tuple(spans),
    )


def _unlocated_last(country: str) -> tuple[bool, str]:
    return country == UNLOCATED, country
