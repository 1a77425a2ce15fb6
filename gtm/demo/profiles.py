"""How demand is spread over countries and time. Pure: the time comes in as seconds since the start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import cos, pi

from gtm.demo.clients import Country

SWING = 0.9
"""How far demand rises above and falls below its mean in the course of a day, as a share of the mean."""
PEAK_HOUR = 20.0
"""Local solar time at which demand is highest."""
BURST_FACTOR = 5.0
BURST_EVERY = 60.0
BURST_FROM = 10.0
BURST_UNTIL = 30.0
"""A burst lasts from second 10 to second 30 of each minute."""


class Profile(StrEnum):
    """The way in which demand changes over a day."""

    STEADY = "steady"
    FOLLOW_THE_SUN = "follow-the-sun"
    """Each country's demand peaks in its evening."""
    BURST = "burst"
    """One country asks five times as much for 20 s of each minute."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked: requests per second over all countries, on a daily average.

    `day_seconds` is how long a day lasts, `burst_country` whose demand bursts.
    """

    profile: Profile = Profile.STEADY
    rps: float = 100.0
    day_seconds: float = 120.0
    burst_country: str = "IN"


def rates(
    demand: Demand, countries: Sequence[Country], longitudes: Mapping[str, float], at: float
) -> list[float]:
    """Requests per second of each country.

    Args:
        demand: what is asked.
        countries: weighted by their users.
        longitudes: of the countries, in degrees; 0 where unknown.
        at: seconds since the start, which is midnight UTC.
    """
    total = sum(country.users for country in countries)
    return [
        demand.rps * country.users / total * _factor(demand, country, longitudes.get(country.code, 0.0), at)
        for country in countries
    ]


def _factor(demand: Demand, country: Country, longitude: float, at: float) -> float:
    if demand.profile is Profile.FOLLOW_THE_SUN:
        hour = 24 * at / demand.day_seconds + longitude / 15
        return 1 + SWING * cos(2 * pi * (hour - PEAK_HOUR) / 24)
    if demand.profile is Profile.BURST and country.code == demand.burst_country:
        return BURST_FACTOR if BURST_FROM <= at % BURST_EVERY < BURST_UNTIL else 1.0
    return 1.0
