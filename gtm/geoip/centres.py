"""Where a country is when nothing better is known: the mean position of its addresses (docs/geoip.md)."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path

COUNTRIES_FILE = Path(__file__).parent / "data" / "countries.csv"
"""Country (ISO 3166-1 alpha-2), latitude and longitude in degrees; written by `tests.release.geoip.build`."""


@cache
def country_centres() -> Mapping[str, tuple[float, float]]:
    """Country → latitude and longitude in degrees, for every code of `gtm.core.model.countries`. Read once by a process."""
    with COUNTRIES_FILE.open(encoding="utf-8", newline="") as file:
        return {row["country"]: (float(row["lat"]), float(row["lon"])) for row in csv.DictReader(file)}
