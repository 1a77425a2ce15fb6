"""Reading records of the shapes in use: nested (GeoIP2, DB-IP) and flat (ip-location-db, IPinfo); of anonymising networks likewise.

Law: shapes are told apart field by field, never by what else a record holds: IPinfo Lite calls a name `country` and a code `country_code`,
its older files call the code `country`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeGuard, TypeVar

from gtm.core.model.countries import COUNTRIES
from gtm.geoip.centres import CONTINENTS

_CONTINENT_CODES = frozenset(CONTINENTS.values())
_MAX_ASN = 2**32 - 1
_HALFWAY_KM = 20_040.0
"""No two points on Earth are farther apart."""
_ANONYMITY = (
    "is_anonymous",
    "is_anonymous_vpn",
    "is_hosting_provider",
    "is_public_proxy",
    "is_residential_proxy",
    "is_tor_exit_node",
    *("hosting", "proxy", "relay", "tor", "vpn"),
)
"""The flags of GeoIP2 Anonymous IP (https://dev.maxmind.com/geoip/docs/databases/anonymous-ip/), and those of IPinfo's privacy detection."""
_YES = (True, "true")

_DECIMAL = re.compile(r"-?[0-9]{1,3}(\.[0-9]{1,15})?")
_SUBDIVISION = re.compile(r"[A-Z0-9]{1,3}")
_AS = re.compile(r"(?:AS)?([0-9]{1,10})")

T = TypeVar("T")


class Place(NamedTuple):
    """What is known of an address.

    Country: ISO 3166-1 alpha-2. Subdivision: ISO 3166-2 (`US-CA`) where the database has codes, else its name for it.
    Continent: as in `gtm.geoip.centres`. Coordinates in degrees, both or neither; `accuracy_km` is the radius
    around them within which the database expects the client.
    """

    country: str | None = None
    subdivision: str | None = None
    continent: str | None = None
    lat: float | None = None
    lon: float | None = None
    asn: int | None = None
    accuracy_km: float | None = None


NOWHERE = Place()


@dataclass(frozen=True, slots=True)
class RecordSchema(Generic[T]):
    """What the databases of one kind say of addresses.

    `nothing` is said of addresses that are not in one. `read` takes from a record what can be believed, and `tells`
    whether that is anything at all; a database whose records all tell nothing is of another kind: `complaint`. `may` are
    things that one may tell of addresses or not, and whether it does of one.
    """

    nothing: T
    read: Callable[[object], T]
    tells: Callable[[T], bool]
    complaint: str
    may: Mapping[str, Callable[[T], bool]] = field(default_factory=dict)


def read_record(record: object) -> Place:
    """Take from a record what can be believed. Anything unknown or malformed in it is None.

    `registered_country` (where the network's owner sits) and `represented_country` (whose army base it is) say
    nothing of where the client is, and are not used.
    """
    if not isinstance(record, dict):
        return NOWHERE
    found = record.get
    country = (
        country_code(_member(record, "country", "iso_code"))
        or country_code(found("country_code"))
        or country_code(found("country"))
    )
    continent = (
        _continent(_member(record, "continent", "code"))
        or _continent(found("continent_code"))
        or _continent(found("continent"))
        or CONTINENTS.get(country or "")
    )
    lat, lon = coordinates(_member(record, "location", "latitude"), _member(record, "location", "longitude"))
    if lat is None:
        lat, lon = coordinates(found("latitude"), found("longitude"))
    if lat is None:
        lat, lon = coordinates(_number(found("lat")), _number(found("lng")))
    subdivision = (
        _subdivision(found("subdivisions"), country)
        or _coded(found("region_code"), country)
        or _text(found("state1"))
        or _text(found("region"))
    )
    accuracy = _accuracy(_member(record, "location", "accuracy_radius")) or _accuracy(
        found("accuracy_radius")
    )
    asn = (
        _asn(found("autonomous_system_number"))
        or _asn(_member(record, "traits", "autonomous_system_number"))
        or _asn(found("asn"))
    )
    return Place(country, subdivision, continent, lat, lon, asn, accuracy)


def read_anonymity(record: object) -> bool:
    """Whether a record says that its network hides where its clients are, in whatever way."""
    return isinstance(record, dict) and any(record.get(flag) in _YES for flag in _ANONYMITY)


def country_code(value: object) -> str | None:
    """The country's code, if it is one; placeholders such as `ZZ`, `EU` and `AP` are None."""
    return value if isinstance(value, str) and value in COUNTRIES else None


def coordinates(lat: object, lon: object) -> tuple[float, float] | tuple[None, None]:
    """Latitude and longitude in degrees, to four decimals (11 m); None for both unless both are on Earth."""
    if not _is_number(lat) or not _is_number(lon):
        return None, None
    if not (-90 <= lat <= 90 and -180 <= lon <= 180):  # false for NaN too
        return None, None
    return round(float(lat), 4), round(float(lon), 4)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value)


def _member(record: dict[str, Any], name: str, key: str) -> Any:
    inner = record.get(name)
    return inner.get(key) if isinstance(inner, dict) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _continent(value: object) -> str | None:
    return value if isinstance(value, str) and value in _CONTINENT_CODES else None


def _subdivision(value: object, country: str | None) -> str | None:
    """The widest subdivision, which GeoIP2 lists first."""
    if not isinstance(value, list) or not value or not isinstance(value[0], dict):
        return None
    code = _text(value[0].get("iso_code"))
    if code is not None and country is not None:
        return f"{country}-{code}"
    return _text(_member(value[0], "names", "en"))


def _number(value: object) -> object:
    """A number that may be written as text, as IPinfo does."""
    return float(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else value


def _coded(value: object, country: str | None) -> str | None:
    """A subdivision by its code alone (the `CA` of `US-CA`, ISO 3166-2)."""
    fits = country is not None and isinstance(value, str) and _SUBDIVISION.fullmatch(value)
    return f"{country}-{value}" if fits else None


def _asn(value: object) -> int | None:
    """A number, or a text as `AS13335`."""
    if isinstance(value, str) and (written := _AS.fullmatch(value)):
        value = int(written[1])
    valid = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MAX_ASN
    return value if valid else None  # type: ignore[return-value]


def _accuracy(value: object) -> float | None:
    """A radius in kilometres; none of 0, which databases write where they know none."""
    return float(value) if _is_number(value) and 0 < value <= _HALFWAY_KM else None


PLACES = RecordSchema(
    NOWHERE,
    read_record,
    lambda place: place.country is not None,
    "tells no countries; give a GeoIP2/GeoLite2 City or Country database, or a flat one with `country_code`",
    {
        "coordinates": lambda place: place.lat is not None,
        "subdivisions": lambda place: place.subdivision is not None,
        "AS numbers": lambda place: place.asn is not None,
    },
)
ANONYMITY = RecordSchema(
    nothing=False,
    read=read_anonymity,
    tells=bool,
    complaint="tells no anonymising networks; give a database in the shape of GeoIP2 Anonymous IP",
)


# --- What goes wrong with the files behind locations. ---


class GeoIPError(Exception):
    """A GeoIP database or a file of overrides that cannot be used. The message says which, why and what to do."""
