"""Who the demo's clients are: real networks of many countries, weighted by how many people are online there."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from random import Random

FILE = Path(__file__).parent / "data" / "clients.csv"
"""Country (ISO 3166-1 alpha-2), internet users in millions, /24 networks, which `choose_clients` writes.

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
class Client:
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


def client_of(country: Country, random: Random) -> Client:
    """Any client of a country."""
    network = random.choice(country.networks)
    return Client(country.code, network[1 + random.randrange(CLIENTS_PER_NETWORK)])


def pick(among: Sequence[Country], weights: Sequence[float], random: Random) -> Client:
    """A client of a country drawn by weight."""
    (country,) = random.choices(among, weights)
    return client_of(country, random)
