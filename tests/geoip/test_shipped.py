"""The database inside the package, against addresses taken from the full one (public_addresses.csv)."""

from __future__ import annotations

import csv
from ipaddress import ip_address
from pathlib import Path

import pytest

from gtm.core.model.countries import COUNTRIES
from gtm.core.model.geometry import great_circle_km
from gtm.geoip.centres import CONTINENTS, country_centres
from gtm.geoip.reader import SHIPPED_DATABASE, Locator
from tests.release.geoip.evaluate import LARGE_COUNTRIES

Row = tuple[str, str, float, float]


@pytest.fixture(scope="module")
def locator() -> Locator:
    """The shipped database."""
    return Locator()


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Address, country, latitude and longitude from the full database."""
    with (Path(__file__).parent / "public_addresses.csv").open(newline="") as file:
        return [
            (row["address"], row["country"], float(row["lat"]), float(row["lon"]))
            for row in csv.DictReader(file)
        ]


def test_addresses_are_many_and_spread(rows: list[Row]) -> None:
    """The sample has at least 200 addresses, 40 countries and 100 /8s, of both families."""
    addresses = [ip_address(row[0]) for row in rows]
    assert len(rows) >= 200
    assert len({row[1] for row in rows}) >= 40
    assert len({address.packed[0] for address in addresses if address.version == 4}) >= 100
    assert sum(address.version == 6 for address in addresses) >= 100


def test_countries_are_exact(locator: Locator, rows: list[Row]) -> None:
    """Every address is in the country that the full database says, and on that country's continent."""
    for address, country, _, _ in rows:
        location = locator.locate(address)
        assert (location.country, location.continent) == (country, CONTINENTS[country]), address


def test_parts_of_large_countries_are_told_apart(locator: Locator, rows: list[Row]) -> None:
    """IPv4 addresses of large countries lie within 400 km of where the full database has them."""
    checked = 0
    for address, country, lat, lon in rows:
        if country in LARGE_COUNTRIES and ":" not in address:
            location = locator.locate(address)
            assert location.lat is not None
            assert location.lon is not None
            assert great_circle_km(lat, lon, location.lat, location.lon) < 400, address
            checked += 1
    assert checked >= 80


@pytest.mark.parametrize("text", ["10.1.2.3", "127.0.0.1", "192.168.1.1", "224.0.0.1", "::1", "fc00::1"])
def test_private_addresses_are_unknown(locator: Locator, text: str) -> None:
    """Addresses of no place are unknown, with a network."""
    location = locator.locate(text)
    assert (location.country, location.lat, location.source) == (None, None, "none")
    assert location.prefix_length > 0


def test_every_country_has_a_centre() -> None:
    """Every country that a database or an override can say has coordinates, and nothing else has."""
    assert set(country_centres()) == COUNTRIES
    for lat, lon in country_centres().values():
        assert -90 <= lat <= 90
        assert -180 <= lon <= 180


@pytest.mark.parametrize(
    ("country", "lat", "lon", "km"),
    [
        ("XK", 42.67, 21.17, 30),  # Pristina
        ("GI", 36.14, -5.35, 10),
        ("VA", 41.90, 12.45, 10),
        ("MC", 43.73, 7.42, 10),
        ("PN", -25.07, -130.10, 50),
        ("SJ", 78.22, 15.65, 50),  # Longyearbyen
        ("GF", 4.94, -52.33, 150),  # Cayenne, not Paris
        ("FJ", -18.14, 178.44, 150),  # Suva
        ("TK", -9.20, -171.85, 150),
        ("SG", 1.35, 103.82, 20),
        ("US", 39.83, -98.58, 900),
        ("RU", 55.76, 37.62, 900),  # Moscow: most of the addresses are in the west
    ],
)
def test_centres(country: str, lat: float, lon: float, km: float) -> None:
    """Centres are where the country is, and where its people are if it is large."""
    assert great_circle_km(*country_centres()[country], lat, lon) < km


def test_centres_are_near_the_countrys_addresses(rows: list[Row]) -> None:
    """Outside large countries, addresses lie within 1,100 km of their country's centre."""
    for address, country, lat, lon in rows:
        if country not in LARGE_COUNTRIES:
            assert great_circle_km(lat, lon, *country_centres()[country]) < 1100, address


def test_attribution_and_size(locator: Locator) -> None:
    """The file says whose data it is, lies beside the licence, and stays small."""
    assert "IP Geolocation by DB-IP (https://db-ip.com), CC BY 4.0" in locator.description
    assert "https://db-ip.com" in (SHIPPED_DATABASE.parent / "LICENSE-DB-IP.txt").read_text()
    assert SHIPPED_DATABASE.stat().st_size <= 12_000_000
