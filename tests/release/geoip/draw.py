"""Draws where addresses are, as `gtm.geoip.centres` reads it: `python -m tests.release.geoip.draw`, from the shipped database."""

from __future__ import annotations

from collections.abc import Iterable
from math import floor
from pathlib import Path

import maxminddb

from gtm.geoip.centres import COUNTRY_TILES_FILE, TILE_DEGREES
from gtm.geoip.reader import SHIPPED_DATABASE
from gtm.geoip.records import read_record

_ROWS, _COLUMNS = int(180 / TILE_DEGREES), int(360 / TILE_DEGREES)


def _tile(lat: float, lon: float) -> tuple[int, int]:
    row = min(max(floor((90 - lat) / TILE_DEGREES), 0), _ROWS - 1)
    return row, floor((lon + 180) / TILE_DEGREES) % _COLUMNS


def by_country(places: Iterable[tuple[str, float, float]]) -> str:
    """The text of the countries' file for addresses at some places (country, latitude and longitude in degrees)."""
    tiles: dict[str, set[tuple[int, int]]] = {}
    for country, lat, lon in places:
        tiles.setdefault(country, set()).add(_tile(lat, lon))
    lines = (
        f"{country},{' '.join(f'{row}:{column}' for row, column in sorted(found))}\n"
        for country, found in sorted(tiles.items())
    )
    return "country,tiles\n" + "".join(lines)


def _places(database: Path) -> set[tuple[str, float, float]]:
    """Every place that a database has coordinates and a country of."""
    with maxminddb.open_database(database) as reader:
        places = (read_record(record) for _, record in reader)
        return {
            (place.country, place.lat, place.lon)
            for place in places
            if place.country is not None and place.lat is not None and place.lon is not None
        }


if __name__ == "__main__":
    COUNTRY_TILES_FILE.write_text(by_country(_places(SHIPPED_DATABASE)), encoding="ascii")
