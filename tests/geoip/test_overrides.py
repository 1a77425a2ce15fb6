from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path

import pytest
from databases import CITY_DE, CITY_US, write_mmdb
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.model.countries import COUNTRIES
from gtm.core.model.geometry import great_circle_km
from gtm.core.model.requests import Location
from gtm.geoip.centres import country_centres
from gtm.geoip.overrides import Override, OverrideIndex, load_overrides
from gtm.geoip.reader import GeoIPError, Locator
from gtm.geoip.records import Place


def write(folder: Path, text: str) -> Path:
    """A file of overrides with this text."""
    path = folder / "overrides.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def city(tmp_path: Path) -> Path:
    """A GeoIP2 City database with two networks."""
    return write_mmdb(tmp_path / "city.mmdb", {"11.0.0.0/8": CITY_US, "2a00::/16": CITY_DE})


def test_override_wins_whole(tmp_path: Path, city: Path) -> None:
    """An override replaces everything that the database says; without coordinates it has its country's."""
    path = write(
        tmp_path,
        """
overrides:
  - {network: 11.4.0.0/16, country: NO}
  - network: 2a00:4::/32
    country: SE
    subdivision: SE-AB
    lat: 59.33
    lon: 18.07
    asn: 64500
""",
    )
    locator = Locator(city, path)
    lat, lon = country_centres()["NO"]
    assert great_circle_km(lat, lon, 59.91, 10.75) < 200
    assert locator.locate("11.4.5.6") == Location(
        "NO", None, "EU", lat, lon, None, "11.4.0.0/16", 16, "override", central=True
    )
    assert locator.locate("2a00:4::1") == Location(
        "SE", "SE-AB", "EU", 59.33, 18.07, 64500, "2a00:4::/32", 32, "override"
    )


def test_every_country_alone(tmp_path: Path, city: Path) -> None:
    """An override with nothing but a country has coordinates, whichever country it is."""
    networks = {country: f"11.{number}.0.0/16" for number, country in enumerate(sorted(COUNTRIES))}
    items = ", ".join(f"{{network: {network}, country: {country}}}" for country, network in networks.items())
    locator = Locator(city, write(tmp_path, f"overrides: [{items}]"))
    for country, network in networks.items():
        location = locator.locate(network.removesuffix("/16"))
        assert (location.country, location.source) == (country, "override")
        assert (location.lat, location.lon) == country_centres()[country]


def test_networks_are_narrowed(tmp_path: Path, city: Path) -> None:
    """Neither the database's network nor a wider override's reaches into a more specific override."""
    path = write(
        tmp_path,
        "overrides: [{network: 11.128.0.0/9, country: FR}, {network: 11.128.0.0/24, country: BE}]",
    )
    locator = Locator(city, path)
    assert locator.locate("11.0.0.1").network == "11.0.0.0/9"
    assert locator.locate("11.128.0.1").network == "11.128.0.0/24"
    assert locator.locate("11.128.1.1").network == "11.128.1.0/24"
    assert locator.locate("11.129.0.1").network == "11.129.0.0/16"
    assert locator.locate("11.255.0.1").network == "11.192.0.0/10"
    assert [locator.locate(text).country for text in ("11.128.0.1", "11.128.1.1")] == ["BE", "FR"]


def test_json_and_mapped_networks(tmp_path: Path, city: Path) -> None:
    """JSON is read as well, and an IPv4-mapped network is the IPv4 network."""
    path = write(tmp_path, '{"overrides": [{"network": "::ffff:11.4.0.0/112", "country": "NO", "asn": 7}]}')
    assert Locator(city, path).locate("11.4.0.1").country == "NO"


def test_empty_file(tmp_path: Path) -> None:
    """A file with nothing in it is no override."""
    assert load_overrides(write(tmp_path, "# none yet\n")) == ()


def test_every_problem_has_its_line(tmp_path: Path) -> None:
    """All that is wrong is listed at once, each with its line."""
    path = write(
        tmp_path,
        """overrides:
  - network: 11.0.0.1/8
    country: ZZ
  - network: nowhere
  - country: FR
    lat: 1.5
    colour: red
  - {network: 12.0.0.0/8, country: FR, lat: .nan, lon: 181}
  - {network: 13.0.0.0/8, country: FR, asn: 0, asn: 1}
  - {network: 14.0.0.0/8, country: [FR]}
  - {network: 15.0.0.0/8, country: FR}
  - {network: 15.0.0.0/8, country: DE}
  - 16.0.0.0/8
  - {network: "fe80::%1/64", country: FR, subdivision: ""}
""",
    )
    with pytest.raises(GeoIPError) as caught:
        load_overrides(path)
    assert [line.strip() for line in str(caught.value).splitlines()[1:]] == [
        "line 2: `11.0.0.1/8` is not a network in CIDR notation; did you mean `11.0.0.0/8`?",
        "line 3: `ZZ` is not a country code (ISO 3166-1 alpha-2, in capitals)",
        "line 4: `country` is missing",
        "line 4: `nowhere` is not a network in CIDR notation",
        "line 7: `colour` is no field here; known: network, country, subdivision, lat, lon, asn",
        "line 5: `network` is missing",
        "line 5: `lat` and `lon` go together",
        "line 8: `lat` must be degrees from -90 to 90, not `.nan`",
        "line 8: `lon` must be degrees from -180 to 180, not `181`",
        "line 9: `asn` is given twice",
        "line 9: `asn` must be a number from 1 to 4294967295, not `0`",
        "line 10: `country` must be a single value",
        "line 12: `15.0.0.0/8` is given before, on line 11",
        "line 13: expected an override with `network` and `country`",
        "line 14: `fe80::%1/64` has a scope id",
        "line 14: `subdivision` must have 1 to 64 characters",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"overrides: [", "not YAML .*line 2"),
        (b"overrides: {}", "line 1: `overrides` must be a list"),
        (b"- 1", "line 1: expected `overrides:`"),
        (b"{}", "line 1: `overrides` is missing"),
        (b"\x00", "not YAML"),
        (b"[" * 20_000, "nested deeper than 100"),
        (b"overrides: []\n---\noverrides: []\n", "more than one document"),
        pytest.param(
            b"a: &a [" + b"x, " * 999 + b"x]\noverrides:\n" + b"- *a\n" * 2000,
            "anchors make more of it than 10 times",
            id="anchors",
        ),
        pytest.param(b" " * 10_485_761, "larger than 10 MiB", id="large"),
    ],
)
def test_unreadable_file(tmp_path: Path, content: bytes, message: str) -> None:
    """A file of another form is a clear error."""
    path = tmp_path / "overrides.yaml"
    path.write_bytes(content)
    with pytest.raises(GeoIPError, match=message):
        load_overrides(path)


def test_missing_file(tmp_path: Path, city: Path) -> None:
    """A missing file of overrides is an error at start."""
    with pytest.raises(GeoIPError, match=r"cannot read the overrides .*none\.yaml"):
        Locator(city, tmp_path / "none.yaml")


def small_networks(bits: int) -> st.SearchStrategy[IPv4Network | IPv6Network]:
    """Networks that differ in their last 8 bits only, so that they nest and touch often."""
    base = int(ip_address("10.0.0.0" if bits == 32 else "2a00::"))

    def network(value: tuple[int, int]) -> IPv4Network | IPv6Network:
        length, low = value
        packed = (base | low).to_bytes(bits // 8, "big")
        return ip_network((packed, bits - 8 + length), strict=False)

    return st.tuples(st.integers(0, 8), st.integers(0, 255)).map(network)


@pytest.mark.parametrize("bits", [32, 128])
def test_index_agrees_with_search(bits: int) -> None:
    """For random overrides, matches are those of a plain search, and the networks the widest that are uniform."""
    base = int(ip_address("10.0.0.0" if bits == 32 else "2a00::"))

    @given(st.lists(small_networks(bits), unique=True, max_size=8), st.integers(0, 8))
    def check(networks: list[IPv4Network | IPv6Network], length: int) -> None:
        overrides = [Override(network, Place(asn=number + 1)) for number, network in enumerate(networks)]
        index = OverrideIndex(overrides, bits)

        def expected(address: int) -> Override | None:
            around = [
                item
                for item in overrides
                if address >> bits - item.network.prefixlen
                == int(item.network.network_address) >> bits - item.network.prefixlen
            ]
            return max(around, key=lambda item: item.network.prefixlen, default=None)

        answers = [expected(base | low) for low in range(256)]
        for low, answer in enumerate(answers):
            match = index.match(base | low)
            assert match == (None if answer is None else (answer.place, answer.network.prefixlen))
            outer = bits - 8 + length if match is None else match[1]
            narrowed = index.narrowed(base | low, outer)

            def uniform(size: int, low: int = low, answer: Override | None = answer) -> bool:
                first = low >> size << size
                return all(other is answer for other in answers[first : first + (1 << size)])

            size = bits - narrowed
            assert uniform(size)
            assert narrowed == outer or not uniform(size + 1)

    check()
