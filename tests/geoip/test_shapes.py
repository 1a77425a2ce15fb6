"""Databases of other makers are read as MaxMind's are: a model of each maker's documentation, beside what gtm makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gtm.geoip.reader import Locator
from gtm.geoip.records import GeoIPError, Place, read_anonymity, read_record
from tests.geoip.databases import CITY_US, FLAT_JP, write_mmdb

LITE = {
    "asn": "AS13335",
    "as_name": "Cloudflare, Inc.",
    "as_domain": "cloudflare.com",
    "continent": "Oceania",
    "continent_code": "OC",
    "country": "Australia",
    "country_code": "AU",
}
OLD_FREE = {
    "asn": "AS2497",
    "as_name": "Internet Initiative Japan Inc.",
    "as_domain": "iij.ad.jp",
    "continent": "AS",
    "continent_name": "Asia",
    "country": "JP",
    "country_name": "Japan",
}
SHAPES: dict[str, tuple[dict[str, Any], Place]] = {
    "ipinfo lite": (LITE, Place("AU", None, "OC", asn=13335)),
    "ipinfo country_asn": (OLD_FREE, Place("JP", None, "AS", asn=2497)),
    "ipinfo country": (
        {"continent": "EU", "continent_name": "Europe", "country": "SE", "country_name": "Sweden"},
        Place("SE", None, "EU"),
    ),
    "ipinfo country, of a network of several": (
        {"continent": "EU", "continent_name": "Europe"},
        Place(None, None, "EU"),
    ),
    "ipinfo location": (
        {
            "city": "Mountain View",
            "country": "US",
            "lat": "37.38605",
            "lng": "-122.08385",
            "region": "California",
        },
        Place("US", "California", "NA", 37.386, -122.0838),
    ),
    "ipinfo location with codes": (
        {"country": "US", "region": "California", "region_code": "CA", "lat": 37.4, "lng": -122.1},
        Place("US", "US-CA", "NA", 37.4, -122.1),
    ),
    "db-ip country lite": (
        {
            "continent": {"code": "EU", "names": {"en": "Europe"}},
            "country": {"iso_code": "DE", "is_in_european_union": True},
        },
        Place("DE", None, "EU"),
    ),
    "db-ip city lite": (
        {
            "city": {"names": {"en": "Berlin"}},
            "continent": {"code": "EU"},
            "country": {"iso_code": "DE"},
            "location": {"latitude": 52.52, "longitude": 13.405},
            "subdivisions": [{"names": {"en": "Land Berlin"}}],
        },
        Place("DE", "Land Berlin", "EU", 52.52, 13.405),
    ),
    "db-ip location and isp": (
        {"country": {"iso_code": "DE"}, "traits": {"autonomous_system_number": 3320, "isp": "Telekom"}},
        Place("DE", None, "EU", asn=3320),
    ),
    "geoip2 city": (CITY_US, Place("US", "US-KS", "NA", 37.751, -97.822, 64500)),
    "ip-location-db": (FLAT_JP, Place("JP", "Tokyo", "AS", 35.6916, 139.768, 64501)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_of_makers(shape: str) -> None:
    """What a maker's documentation gives as an example is read whole.

    fujiapple852/trippy issue 1784: "Support for IPinfo Lite mmdb", whose `country` is a name. adulau/mmdb-server issue 4: IPinfo's country
    database, whose `country` is a code.
    """
    record, place = SHAPES[shape]
    assert read_record(record) == place


@pytest.mark.parametrize(
    "asn", ["AS0", "AS4294967296", "as13335", "AS13335 ", "AS", "ASAS1", "13335x", "AS١٢", "", True, -1, "-1"]
)
def test_what_is_no_as_number(asn: object) -> None:
    """It is unknown; the country stays."""
    assert read_record({**LITE, "asn": asn}) == Place("AU", None, "OC")


@pytest.mark.parametrize("lat", ["north", "1e9", "91.0", "nan", "٣٧", "", None, True])
def test_what_is_no_latitude(lat: object) -> None:
    """It is unknown; the country stays."""
    found = read_record({"country": "US", "lat": lat, "lng": "-122.1"})
    assert (found.country, found.lat, found.lon) == ("US", None, None)


def test_what_is_no_country_as_a_code() -> None:
    """A name is none, nor is a region of several countries."""
    for wrong in ("Germany", "EU", "ZZ", "de", {"iso_code": "ZZ"}, ["DE"], 49):
        assert read_record({"country": wrong}).country is None


def test_ipinfo_privacy_is_anonymity() -> None:
    """Its flags are texts in some editions; an empty one is no."""
    flags = {"hosting": "", "proxy": "", "relay": "", "tor": "", "vpn": ""}
    assert not read_anonymity(flags)
    assert read_anonymity({**flags, "vpn": "true"})
    assert read_anonymity({**flags, "relay": True})
    assert not read_anonymity({**flags, "vpn": "false", "is_anonymous": 0})


def test_a_file_of_ipinfo_says_what_it_lacks(tmp_path: Path) -> None:
    """With its name and its day, once for each file; what it has is read."""
    path = write_mmdb(tmp_path / "lite.mmdb", {"11.0.0.0/8": LITE}, kind="ipinfo ipinfo_lite.mmdb")
    locator = Locator(path)
    found = locator.locate("11.1.2.3")
    assert (found.country, found.asn, found.central) == ("AU", 13335, True)
    (said,) = locator.lacking
    assert f"`{path}` (ipinfo ipinfo_lite.mmdb, built 20" in said
    assert (
        "has no coordinates, no subdivisions: each client is where its country's addresses are on average"
        in said
    )
    full = write_mmdb(tmp_path / "full.mmdb", {"11.0.0.0/8": CITY_US})
    assert Locator(full).lacking == ()
    assert Locator().lacking == ()  # docs/geoip.md has it of the shipped one


def test_a_database_without_countries_says_what_it_has(tmp_path: Path) -> None:
    """Its fields are named, so that a new shape can be told from the wrong file."""
    path = write_mmdb(tmp_path / "odd.mmdb", {"11.0.0.0/8": {"land": "DE", "asn": "AS1"}}, kind="other")
    with pytest.raises(
        GeoIPError, match=r"\(other, built [\d-]+\) tells no countries.*; its records have asn, land$"
    ):
        Locator(path)
