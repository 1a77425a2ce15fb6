"""Where addresses are at all, as a coarse picture of the world: land, more or less, to draw other things on.

`python -m gtm.geoip.inhabited` writes it anew from the shipped database.
"""

from __future__ import annotations

from collections.abc import Iterable
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

_ROWS, _COLUMNS = int(180 / CELL_DEGREES), int(360 / CELL_DEGREES)


@cache
def inhabited() -> tuple[tuple[float, float], ...]:
    """The centres of the cells that have addresses, as latitude and longitude in degrees. Read once by a process."""
    lines = INHABITED_FILE.read_text(encoding="ascii").splitlines()
    return tuple(
        (90 - (row + 0.5) * CELL_DEGREES, (column + 0.5) * CELL_DEGREES - 180)
        for row, line in enumerate(lines)
        for column, mark in enumerate(line)
        if mark == "#"
    )


def picture(points: Iterable[tuple[float, float]]) -> str:
    """The text of the file for addresses at some points (latitude and longitude in degrees)."""
    marks = [["."] * _COLUMNS for _ in range(_ROWS)]
    for lat, lon in points:
        row = min(max(floor((90 - lat) / CELL_DEGREES), 0), _ROWS - 1)
        marks[row][floor((lon + 180) / CELL_DEGREES) % _COLUMNS] = "#"
    return "".join("".join(row) + "\n" for row in marks)


def _points(database: Path) -> set[tuple[float, float]]:
    """Every place that a database has."""
    with maxminddb.open_database(database) as reader:
        places = (read_record(record) for _, record in reader)
        return {(place.lat, place.lon) for place in places if place.lat is not None and place.lon is not None}


if __name__ == "__main__":
    INHABITED_FILE.write_text(picture(_points(SHIPPED_DATABASE)), encoding="ascii")
