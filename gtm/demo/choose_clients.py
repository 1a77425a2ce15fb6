"""Chooses the demo's client networks: `python -m gtm.demo.choose_clients` writes `data/clients.csv`.

From every country, so many /24 networks of the shipped location database, each in proportion to its number of
addresses. The same database gives the same networks.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from ipaddress import IPv4Network
from random import Random

import maxminddb

from gtm.demo.clients import FILE
from gtm.geoip.reader import SHIPPED_DATABASE

NETWORKS = 10
"""Networks of each country."""
_SEED = 1

# Internet users in millions around 2023, by country: population times the share of people online (ITU, World Bank),
# rounded. Only the proportions matter.
USERS_MILLIONS = {
    "CN": 1060,
    "IN": 730,
    "US": 310,
    "ID": 200,
    "BR": 180,
    "RU": 127,
    "PK": 90,
    "JP": 105,
    "NG": 80,
    "MX": 105,
    "PH": 85,
    "BD": 65,
    "EG": 80,
    "VN": 78,
    "DE": 78,
    "TR": 71,
    "IR": 70,
    "GB": 66,
    "TH": 61,
    "FR": 57,
    "IT": 51,
    "KR": 50,
    "ES": 45,
    "ZA": 43,
    "CO": 38,
    "AR": 40,
    "PL": 33,
    "CA": 36,
    "UA": 30,
    "SA": 35,
    "MY": 32,
    "MA": 33,
    "KE": 20,
    "DZ": 32,
    "IQ": 33,
    "UZ": 27,
    "PE": 25,
    "TW": 22,
    "NL": 17,
    "AU": 24,
    "CL": 17,
    "RO": 17,
    "KZ": 18,
    "BE": 11,
    "SE": 10,
    "CZ": 9.5,
    "GR": 8.6,
    "PT": 8.8,
    "HU": 8.8,
    "AT": 8.5,
    "CH": 8.4,
    "IL": 8.3,
    "AE": 9.4,
    "DK": 5.8,
    "FI": 5.3,
    "NO": 5.4,
    "IE": 4.9,
    "NZ": 4.9,
    "SG": 5.6,
    "HK": 7.0,
    "GH": 23,
    "ET": 21,
    "TZ": 19,
    "LK": 14,
    "NP": 15,
    "EC": 13,
    "GT": 10,
    "VE": 17,
}


def main() -> None:
    """Write the file."""
    chosen: dict[str, list[tuple[float, IPv4Network]]] = {country: [] for country in USERS_MILLIONS}
    random = Random(_SEED)
    for country, network in _networks():
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
            writer.writerow((country, USERS_MILLIONS[country], " ".join(map(str, networks))))


def _networks() -> Iterator[tuple[str, IPv4Network]]:
    """The database's IPv4 networks of at least 256 addresses in the countries wanted, with their country."""
    with maxminddb.open_database(SHIPPED_DATABASE) as reader:
        for network, record in reader:
            if isinstance(network, IPv4Network) and network.prefixlen <= 24 and isinstance(record, dict):
                country = record.get("country")
                code = country.get("iso_code") if isinstance(country, dict) else None
                if isinstance(code, str) and code in USERS_MILLIONS:
                    yield code, network


def _one_of(network: IPv4Network, random: Random) -> IPv4Network:
    """One of the /24 networks in a network."""
    start = int(network.network_address) + random.randrange(1 << 24 - network.prefixlen) * 256
    return IPv4Network((start, 24))


if __name__ == "__main__":
    main()
