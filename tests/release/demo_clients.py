"""Chooses the demo's client networks: `python -m tests.release.demo_clients` writes those of `data/clients.csv` anew.

From every country that the file lists, so many /24 networks of the shipped location database, each in proportion to its
number of addresses. The same database gives the same networks.
"""

from __future__ import annotations

import csv
from collections.abc import Container, Iterator
from ipaddress import IPv4Network
from random import Random

import maxminddb

from gtm.demo.clients import FILE, countries
from gtm.geoip.reader import SHIPPED_DATABASE

NETWORKS = 10
"""Networks of each country."""
_SEED = 1


def main() -> None:
    """Write the file."""
    users = {country.code: country.users for country in countries()}
    chosen: dict[str, list[tuple[float, IPv4Network]]] = {country: [] for country in users}
    random = Random(_SEED)
    for country, network in _networks(users):
        # Weighted sampling without replacement in one pass (Efraimidis and Spirakis, 2006): the highest keys stay.
        held = chosen[country]
        key = random.random() ** (1 / network.num_addresses)
        if len(held) < NETWORKS or key > held[-1][0]:
            held.append((key, network))
            held.sort(key=lambda item: item[0], reverse=True)
            del held[NETWORKS:]
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("country", "users_millions", "networks"))
        for country, held in sorted(chosen.items()):
            networks = sorted(_one_of(network, random) for _, network in held)
            writer.writerow((country, f"{users[country]:g}", " ".join(map(str, networks))))


def _networks(wanted: Container[str]) -> Iterator[tuple[str, IPv4Network]]:
    """The database's IPv4 networks of at least 256 addresses in the countries wanted, with their country."""
    with maxminddb.open_database(SHIPPED_DATABASE) as reader:
        for network, record in reader:
            if isinstance(network, IPv4Network) and network.prefixlen <= 24 and isinstance(record, dict):
                country = record.get("country")
                code = country.get("iso_code") if isinstance(country, dict) else None
                if isinstance(code, str) and code in wanted:
                    yield code, network


def _one_of(network: IPv4Network, random: Random) -> IPv4Network:
    """One of the /24 networks in a network."""
    start = int(network.network_address) + random.randrange(1 << 24 - network.prefixlen) * 256
    return IPv4Network((start, 24))


if __name__ == "__main__":
    main()
