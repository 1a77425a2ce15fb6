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


# --- The continent of every country, in the codes of GeoIP2 databases (AF, AN, AS, EU, NA, OC, SA).
#
# From the Countries data set (https://github.com/annexare/Countries, MIT licence), as of December 2025. Countries on
# two continents count where that data set puts them first, but Russia counts to Europe as in GeoIP2 databases.


_OF_CONTINENTS: dict[str, str] = {
    "AF": (
        "AO BF BI BJ BW CD CF CG CI CM CV DJ DZ EG EH ER ET GA GH GM GN GQ GW KE KM LR LS LY MA MG ML MR MU MW MZ "
        "NA NE NG RE RW SC SD SH SL SN SO SS ST SZ TD TG TN TZ UG YT ZA ZM ZW"
    ),
    "AN": "AQ BV GS HM TF",
    "AS": (
        "AE AF AM AZ BD BH BN BT CC CN CX GE HK ID IL IN IO IQ IR JO JP KG KH KP KR KW KZ LA LB LK MM MN MO MV MY "
        "NP OM PH PK PS QA SA SG SY TH TJ TM TR TW UZ VN YE"
    ),
    "EU": (
        "AD AL AT AX BA BE BG BY CH CY CZ DE DK EE ES FI FO FR GB GG GI GR HR HU IE IM IS IT JE LI LT LU LV MC MD "
        "ME MK MT NL NO PL PT RO RS RU SE SI SJ SK SM UA VA XK"
    ),
    "NA": (
        "AG AI AW BB BL BM BQ BS BZ CA CR CU CW DM DO GD GL GP GT HN HT JM KN KY LC MF MQ MS MX NI PA PM PR SV SX "
        "TC TT US VC VG VI"
    ),
    "OC": "AS AU CK FJ FM GU KI MH MP NC NF NR NU NZ PF PG PN PW SB TK TL TO TV UM VU WF WS",
    "SA": "AR BO BR CL CO EC FK GF GY PE PY SR UY VE",
}

CONTINENTS: dict[str, str] = {
    country: continent for continent, countries in _OF_CONTINENTS.items() for country in countries.split()
}
"""ISO 3166-1 alpha-2 code → continent code."""


# --- Where addresses are at all, as a coarse picture of the world: land, more or less, to draw other things on.
#
# `python -m tests.release.geoip.draw` writes it anew from the shipped database.


TILE_DEGREES = 2.5
"""Height and width of a tile of the grid that the shipped database is made on, too."""

COUNTRY_TILES_FILE = Path(__file__).parent / "data" / "country-tiles.csv"
"""Country, and the tiles of the same grid in which it has addresses, as `row:column` from the north-west, by spaces. Made from
the shipped database, under its licence (docs/geoip.md)."""


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
