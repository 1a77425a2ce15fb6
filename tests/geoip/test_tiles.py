"""The coarse picture of the world: in which tiles a country has addresses."""

from __future__ import annotations

from gtm.geoip.centres import COUNTRY_TILES_FILE, TILE_DEGREES, country_centres, country_tiles
from tests.release.geoip.draw import by_country


def test_the_picture_is_one_of_the_world() -> None:
    """It has cities but not oceans; drawn from its own centres it stays the same."""
    places = [(country, *centre) for country, centres in country_tiles().items() for centre in centres]
    assert by_country(places) == COUNTRY_TILES_FILE.read_text()
    tiles = {(lat // TILE_DEGREES, lon // TILE_DEGREES) for _, lat, lon in places}
    for lat, lon in ((52.5, 13.4), (40.7, -74.0), (-33.9, 151.2), (35.7, 139.7)):
        assert (lat // TILE_DEGREES, lon // TILE_DEGREES) in tiles
    for lat, lon in ((0.0, -30.0), (40.0, -45.0), (-30.0, 80.0)):
        assert (lat // TILE_DEGREES, lon // TILE_DEGREES) not in tiles
    assert len(country_centres()) < len(tiles) < 72 * 144 / 2


def test_edges_of_the_world_are_inside() -> None:
    """Poles and the date line fall into tiles at the rim."""
    assert by_country([("AQ", 90.0, 180.0), ("AQ", -90.0, -180.0)]) == "country,tiles\nAQ,0:0 71:0\n"
