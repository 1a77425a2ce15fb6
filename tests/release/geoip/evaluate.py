"""Measures a built database against its source: `python -m tests.release.geoip.evaluate --source DIR_OR_TGZ --database PATH`.

Countries are compared for every address of the source: each of its prefixes must lie inside one of the database's
prefixes of the same country, and both must cover equally many addresses, so that none is added. Distances between
the two databases' coordinates are measured on a random sample of addresses.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import maxminddb

from gtm.core.model.geometry import great_circle_km
from gtm.geoip.records import GeoIPError
from tests.release.geoip.source import PACKAGE, Family, read_source

LARGE_COUNTRIES = frozenset(
    (
        "AR",
        "AU",
        "BR",
        "CA",
        "CD",
        "CN",
        "DZ",
        "ID",
        "IN",
        "IR",
        "KZ",
        "LY",
        "MN",
        "MX",
        "RU",
        "SA",
        "SD",
        "US",
    )
)
"""The 18 largest states by area (United Nations, Demographic Yearbook, table 3)."""
FAR_KM = 1500.0
DEFAULT_SAMPLE = 300_000
DEFAULT_SEED = 1


@dataclass(frozen=True, slots=True)
class Agreement:
    """Countries compared over all of a family's prefixes. `extra`: addresses that only the database has."""

    prefixes: int
    wrong: int
    extra: int


@dataclass(frozen=True, slots=True)
class Distances:
    """How far the database's coordinates are from the source's, in km, and the share of more than 1,500 km."""

    sample: int
    median: float
    p95: float
    p99: float
    far: float

    def __str__(self) -> str:
        return (
            f"{self.sample:>9,} addresses: median {self.median:5.0f} km, p95 {self.p95:5.0f} km, "
            f"p99 {self.p99:5.0f} km, over {FAR_KM:,.0f} km {self.far:.2%}"
        )


def compare_countries(family: Family, reader: maxminddb.Reader) -> Agreement:
    """Compare the countries of all addresses of the source."""
    wrong = 0
    for index in range(len(family)):
        record, length = reader.get_with_prefix_len(_text(family.start(index), family.bits))
        country = family.places[family.place_of[index]][0]
        if _country(record) != country or length > family.lengths[index]:
            wrong += 1
    covered = sum(
        network.num_addresses for network, _ in reader if network.version == (4 if family.bits == 32 else 6)
    )
    return Agreement(len(family), wrong, covered - sum(family.size(index) for index in range(len(family))))


def sample_addresses(family: Family, count: int, rng: random.Random) -> list[tuple[int, int]]:
    """(prefix's index, address) for so many addresses, drawn evenly from all that the source has."""
    total = sum(family.size(index) for index in range(len(family)))
    drawn = sorted(rng.randrange(total) for _ in range(count))
    sample: list[tuple[int, int]] = []
    index, before = 0, 0
    for position in drawn:
        while position >= before + family.size(index):
            before += family.size(index)
            index += 1
        sample.append((index, family.start(index) + position - before))
    return sample


def sample_prefixes(family: Family, count: int, rng: random.Random) -> list[tuple[int, int]]:
    """(prefix's index, address) for so many prefixes of the source, each as likely as any other."""
    indexes = sorted(rng.randrange(len(family)) for _ in range(count))
    return [(index, family.start(index) + rng.randrange(family.size(index))) for index in indexes]


def distances(
    family: Family,
    reader: maxminddb.Reader,
    sample: Sequence[tuple[int, int]],
    countries: frozenset[str] | None = None,
) -> Distances | None:
    """Measure the distances of a sample, or of its part inside some countries; None if there is no such part."""
    found: list[float] = []
    for index, address in sample:
        country, lat, lon = family.places[family.place_of[index]]
        if countries is not None and country not in countries:
            continue
        record = reader.get(_text(address, family.bits))
        if not isinstance(record, dict) or not isinstance(location := record.get("location"), dict):
            raise GeoIPError(f"the database has no coordinates for `{_text(address, family.bits)}`")
        found.append(
            great_circle_km(lat, lon, float(str(location["latitude"])), float(str(location["longitude"])))
        )
    if not found:
        return None
    found.sort()
    rank = len(found) - 1
    return Distances(
        len(found),
        found[rank // 2],
        found[int(rank * 0.95)],
        found[int(rank * 0.99)],
        sum(distance > FAR_KM for distance in found) / len(found),
    )


def _text(number: int, bits: int) -> str:
    return str(IPv4Address(number) if bits == 32 else IPv6Address(number))


def _country(record: object) -> object:
    country = record.get("country") if isinstance(record, dict) else None
    return country.get("iso_code") if isinstance(country, dict) else None


def evaluate(source: Path, database: Path, count: int, seed: int) -> bool:
    """Measure and print; True if all countries agree."""
    exact = True
    families = read_source(source).families
    with maxminddb.open_database(database) as reader:
        for family in families:
            name = "IPv4" if family.bits == 32 else "IPv6"
            agreement = compare_countries(family, reader)
            exact = exact and agreement.wrong == 0 and agreement.extra == 0
            print(
                f"{name}: countries of {agreement.prefixes:,} prefixes of the source: "
                f"{agreement.prefixes - agreement.wrong:,} agree; "
                f"{agreement.extra:,} addresses beyond the source"
            )
            for label, draw in (("addresses", sample_addresses), ("prefixes", sample_prefixes)):
                sample = draw(family, count, random.Random(seed))
                print(f"{name}, evenly over {label}, everywhere:      {distances(family, reader, sample)}")
                large = distances(family, reader, sample, LARGE_COUNTRIES)
                print(f"{name}, evenly over {label}, large countries: {large}")
        prefixes = {4: 0, 6: 0}
        for network, _ in reader:
            prefixes[network.version] += 1
        print(
            f"prefixes: {prefixes[4]:,} IPv4, {prefixes[6]:,} IPv6; nodes: {reader.metadata().node_count:,}"
        )
    return exact


def main(arguments: list[str] | None = None) -> int:
    """Evaluate. Exit codes: 0 all countries agree, 1 some don't, 2 a file is unusable."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.release.geoip.evaluate", description="Measure a database against its source."
    )
    parser.add_argument("--source", type=Path, required=True, help=f"{PACKAGE}: the archive, or unpacked")
    parser.add_argument("--database", type=Path, required=True, help="the database built from it")
    parser.add_argument("--sample", type=int, default=DEFAULT_SAMPLE, help="addresses per family")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    options = parser.parse_args(arguments)
    try:
        return 0 if evaluate(options.source, options.database, options.sample, options.seed) else 1
    except (GeoIPError, OSError, maxminddb.InvalidDatabaseError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
