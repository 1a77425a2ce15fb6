"""Where addresses are at all, as a coarse picture of the world: land, more or less, to draw other things on.

`python -m tests.release.geoip.draw` writes it anew from the shipped database.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path

TILE_DEGREES = 2.5
"""Height and width of a tile of the grid that the shipped database is made on, too."""

INHABITED_FILE = Path(__file__).parent / "data" / "inhabited.txt"
"""A line for every 2.5° of latitude, from north to south, a character for every 2.5° of longitude from 180° W on; `#`
where addresses are. Made from the shipped database, under its licence (docs/geoip.md)."""

COUNTRY_TILES_FILE = Path(__file__).parent / "data" / "country-tiles.csv"
"""Country, and the tiles of the same grid in which it has addresses, as `row:column` from the north-west, by spaces."""


@cache
def inhabited() -> tuple[tuple[float, float], ...]:
    """The centres of the tiles that have addresses, as latitude and longitude in degrees. Read once by a process."""
    lines = INHABITED_FILE.read_text(encoding="ascii").splitlines()
    return tuple(
        _centre(row, column)
        for row, line in enumerate(lines)
        for column, mark in enumerate(line)
        if mark == "#"
    )


@cache
def country_tiles() -> Mapping[str, tuple[tuple[float, float], ...]]:
    """Country → the centres of the tiles in which it has addresses, in degrees. Read once by a process."""
    with COUNTRY_TILES_FILE.open(encoding="ascii", newline="") as file:
        return {
            row["country"]: tuple(_centre(*map(int, tile.split(":"))) for tile in row["tiles"].split())
            for row in csv.DictReader(file)
        }


def _centre(row: int, column: int) -> tuple[float, float]:
    return 90 - (row + 0.5) * TILE_DEGREES, (column + 0.5) * TILE_DEGREES - 180
