"""Slips that are legal to write: places outside their country, seconds taken for milliseconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gtm.core.model.regions import Probe, Region
from gtm.documents.plausibility import plausibility
from tests import worlds

FRANKFURT = worlds.region("r", at="de")


def _found(region: Region) -> list[tuple[str, str, str]]:
    return [(item.path, item.code, item.message) for item in plausibility(worlds.policy(region))]


@pytest.mark.parametrize(
    ("country", "lat", "lon"),
    [
        ("DE", 50.11, 8.68),
        ("US", 61.2, -149.9),  # Anchorage
        ("US", 21.3, -157.9),  # Honolulu
        ("RU", 43.1, 131.9),  # Vladivostok
        ("SG", 1.35, 103.82),
        ("AU", -31.95, 115.86),
        ("NO", 69.65, 18.96),
        ("CL", -53.16, -70.92),
        ("FJ", -18.14, 178.44),
    ],
)
def test_cities_are_in_their_countries(country: str, lat: float, lon: float) -> None:
    """Far corners and small islands included."""
    assert _found(replace(FRANKFURT, country=country, lat=lat, lon=lon)) == []


@pytest.mark.parametrize(
    ("country", "lat", "lon"), [("DE", 8.68, 50.11), ("US", -77.46, 39.04), ("SG", 103.82, 1.35)]
)
def test_swapped_coordinates_are_told(country: str, lat: float, lon: float) -> None:
    """Also where the longitude is no latitude at all (which documents refuse)."""
    ((path, code, message),) = _found(replace(FRANKFURT, country=country, lat=lat, lon=lon))
    assert (path, code) == ("regions.r.lat", "place")
    assert "swapped" in message


def test_another_country_is_told() -> None:
    """Coordinates of Dublin in a region that says Germany."""
    ((_, code, message),) = _found(replace(FRANKFURT, lat=53.35, lon=-6.26))
    assert code == "place"
    assert "far from DE" in message
    assert "swapped" not in message


def test_intervals_in_milliseconds_are_told() -> None:
    """2000 s between probes; a minute is nobody's slip."""
    ((path, code, message),) = _found(replace(FRANKFURT, probe=Probe(interval=2000.0)))
    assert (path, code) == ("regions.r.probe.interval", "unit")
    assert "33 minutes" in message
    assert _found(replace(FRANKFURT, probe=Probe(interval=60.0))) == []
