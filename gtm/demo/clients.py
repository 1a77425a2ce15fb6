"""Who the demo's clients are: real networks of many countries, weighted by how many people are online there.

And how demand is spread over countries and time, which is pure: the time comes in as seconds since the start.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network
from math import cos, pi
from pathlib import Path
from random import Random

FILE = Path(__file__).parent / "data" / "clients.csv"
"""Country (ISO 3166-1 alpha-2), internet users in millions, /24 networks, which `tests/release/demo_clients.py` writes.

The users are those of around 2023, by country: population times the share of people online (ITU, World Bank), rounded. Only the
proportions matter.
"""

CLIENTS_PER_NETWORK = 50
"""Clients of one network. They share a resolver with the rest of their country."""


@dataclass(frozen=True, slots=True)
class Country:
    """A country's part in the world: internet users in millions, and networks of its clients."""

    code: str
    users: float
    networks: tuple[IPv4Network, ...]


@dataclass(frozen=True, slots=True)
class DemoClient:
    """Somebody who sends requests: an address, in a country, behind that country's resolver."""

    country: str
    address: IPv4Address

    @property
    def subnet(self) -> IPv4Network:
        """What a resolver tells of the address (RFC 7871 §11.1 recommends /24)."""
        return IPv4Network((int(self.address) >> 8 << 8, 24))


def countries(path: Path = FILE) -> tuple[Country, ...]:
    """All of them, by code."""
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(
            Country(
                row["country"],
                float(row["users_millions"]),
                tuple(IPv4Network(text) for text in row["networks"].split()),
            )
            for row in csv.DictReader(file)
        )


def client_of(country: Country, random: Random) -> DemoClient:
    """Any client of a country."""
    network = random.choice(country.networks)
    return DemoClient(country.code, network[1 + random.randrange(CLIENTS_PER_NETWORK)])


def pick(among: Sequence[Country], weights: Sequence[float], random: Random) -> DemoClient:
    """A client of a country drawn by weight."""
    (country,) = random.choices(among, weights)
    return client_of(country, random)


SWING = 0.9
"""How far demand rises above and falls below its mean in the course of a day, as a share of the mean."""
PEAK_HOUR = 20.0
"""Local solar time at which demand is highest."""
BURST_FACTOR = 5.0
BURST_EVERY = 60.0
BURST_FROM = 10.0
BURST_UNTIL = 30.0
"""A burst lasts from second 10 to second 30 of each minute."""


class DemandProfile(StrEnum):
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

    profile: DemandProfile = DemandProfile.STEADY
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
    if demand.profile is DemandProfile.FOLLOW_THE_SUN:
        hour = 24 * at / demand.day_seconds + longitude / 15
        return 1 + SWING * cos(2 * pi * (hour - PEAK_HOUR) / 24)
    if demand.profile is DemandProfile.BURST and country.code == demand.burst_country:
        return BURST_FACTOR if BURST_FROM <= at % BURST_EVERY < BURST_UNTIL else 1.0
    return 1.0
