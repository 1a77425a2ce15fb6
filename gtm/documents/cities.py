"""Cities with data centres, to place regions by a name: country and coordinates, to within some ten kilometres."""

from __future__ import annotations

import csv
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path

CITIES_FILE = Path(__file__).parent / "data" / "cities.csv"
"""City (in ASCII), country (ISO 3166-1 alpha-2), latitude and longitude in degrees."""


class UnknownCityError(LookupError):
    """No city of that name is known; the message has those that are like it."""


@dataclass(frozen=True, slots=True)
class City:
    """A city. Degrees north and east."""

    name: str
    country: str
    lat: float
    lon: float


@cache
def cities() -> Mapping[str, City]:
    """Folded name → city. Read once by a process."""
    with CITIES_FILE.open(encoding="ascii", newline="") as file:
        found = [
            City(row["city"], row["country"], float(row["lat"]), float(row["lon"]))
            for row in csv.DictReader(file)
        ]
    return {folded(city.name): city for city in found}


def city(name: str) -> City:
    """The city of a name, whatever its case, accents and hyphens.

    Raises:
        UnknownCityError: there is none.
    """
    known = cities()
    found = known.get(folded(name))
    if found is None:
        close = [known[key].name for key in get_close_matches(folded(name), known, n=3)]
        meant = f"; did you mean {' or '.join(close)}?" if close else ""
        raise UnknownCityError(f"the city `{name[:80]}` is not known here{meant}")
    return found


def folded(name: str) -> str:
    """A name without case, accents, hyphens and spaces: São Paulo, sao-paulo and SAO PAULO are one."""
    plain = unicodedata.normalize("NFKD", name.replace("ß", "ss").replace("ø", "o").replace("Ø", "O"))
    return "".join(char for char in plain.lower() if char.isalnum() and char.isascii())
