"""The coarse picture of the world."""

from __future__ import annotations

from gtm.geoip.centres import INHABITED_FILE, country_centres, inhabited
from tests.release.geoip.draw import picture


def test_the_picture_is_one_of_the_world() -> None:
    """It has its rows and columns, and cities but not oceans; drawn from its own centres it stays the same."""
    text = INHABITED_FILE.read_text()
    assert [len(line) for line in text.splitlines()] == [144] * 72
    assert picture(inhabited()) == text
    tiles = {(lat // 2.5, lon // 2.5) for lat, lon in inhabited()}
    for lat, lon in ((52.5, 13.4), (40.7, -74.0), (-33.9, 151.2), (35.7, 139.7)):
        assert (lat // 2.5, lon // 2.5) in tiles
    for lat, lon in ((0.0, -30.0), (40.0, -45.0), (-30.0, 80.0)):
        assert (lat // 2.5, lon // 2.5) not in tiles
    assert len(country_centres()) < len(tiles) < 72 * 144 / 2


def test_edges_of_the_world_are_inside() -> None:
    """Poles and the date line fall into tiles at the rim."""
    lines = picture([(90.0, 180.0), (-90.0, -180.0)]).splitlines()
    assert (lines[0][0], lines[-1][0]) == ("#", "#")
