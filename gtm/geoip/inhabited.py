"""Where addresses are at all, as a coarse picture of the world: land, more or less, to draw other things on.

`python -m gtm.geoip.inhabited` writes it anew from the shipped database.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from functools import cache
from math import floor
from pathlib import Path

import maxminddb

from gtm.geoip.build import CELL_DEGREES
from gtm.geoip.reader import SHIPPED_DATABASE
from gtm.geoip.records import read_record

INHABITED_FILE = Path(__file__).parent / "data" / "inhabited.txt"
"""A line for every 2.5° of latitude, from north to south, a character for every 2.5° of longitude from 180° W on; `#`
where addresses are. Made from the shipped database, under its licence (docs/geoip.md)."""

COUNTRY_CELLS_FILE = Path(__file__).parent / "data" / "country-cells.csv"
"""Country, and the cells of the same grid in which it has addresses, as `row:column` from the north-west, by spaces."""

_ROWS, _COLUMNS = int(180 / CELL_DEGREES), int(360 / CELL_DEGREES)


@cache
def inhabited() -> tuple[tuple[float, float], ...]:
    """The centres of the cells that have addresses, as latitude and longitude in degrees. Read once by a process."""
    lines = INHABITED_FILE.read_text(encoding="ascii").splitlines()
    return tuple(
        _centre(row, column)
        for row, line in enumerate(lines)
        for column, mark in enumerate(line)
        if mark == "#"
    )


@cache
def country_cells() -> Mapping[str, tuple[tuple[float, float], ...]]:
    """Country → the centres of the cells in which it has addresses, in degrees. Read once by a process."""
    with COUNTRY_CELLS_FILE.open(encoding="ascii", newline="") as file:
        return {
            row["country"]: tuple(_centre(*map(int, cell.split(":"))) for cell in row["cells"].split())
            for row in csv.DictReader(file)
        }


def _centre(row: int, column: int) -> tuple[float, float]:
    return 90 - (row + 0.5) * CELL_DEGREES, (column + 0.5) * CELL_DEGREES - 180


def _cell(lat: float, lon: float) -> tuple[int, int]:
    row = min(max(floor((90 - lat) / CELL_DEGREES), 0), _ROWS - 1)
    return row, floor((lon + 180) / CELL_DEGREES) % _COLUMNS


def picture(points: Iterable[tuple[float, float]]) -> str:
    """The text of the file for addresses at some points (latitude and longitude in degrees)."""
    marks = [["."] * _COLUMNS for _ in range(_ROWS)]
    for lat, lon in points:
        row, column = _cell(lat, lon)
        marks[row][column] = "#"
    return "".join("".join(row) + "\n" for row in marks)


def by_country(places: Iterable[tuple[str, float, float]]) -> str:
    """The text of the countries' file for addresses at some places (country, latitude and longitude in degrees)."""
    cells: dict[str, set[tuple[int, int]]] = {}
    for country, lat, lon in places:
        cells.setdefault(country, set()).add(_cell(lat, lon))
    lines = (
        f"{country},{' '.join(f'{row}:{column}' for row, column in sorted(found))}\n"
        for country, found in sorted(cells.items())
    )
    return "country,cells\n" + "".join(lines)


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
    _FOUND = _places(SHIPPED_DATABASE)
    INHABITED_FILE.write_text(picture((lat, lon) for _, lat, lon in _FOUND), encoding="ascii")
    COUNTRY_CELLS_FILE.write_text(by_country(_FOUND), encoding="ascii")
