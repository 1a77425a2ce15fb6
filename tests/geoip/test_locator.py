from __future__ import annotations

import os
import random
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from databases import CITY_DE, CITY_US, COUNTRY_SE, FLAT_JP, write_mmdb

from gtm.core.model.geometry import great_circle_km
from gtm.core.model.requests import Location
from gtm.geoip.reader import SHIPPED_DATABASE, GeoIPError, Locator, keep
from tests.memory import held


def assert_near(location: Location, lat: float, lon: float, km: float) -> None:
    """The location has coordinates, and they are within so many km of a point."""
    assert location.lat is not None
    assert location.lon is not None
    assert great_circle_km(lat, lon, location.lat, location.lon) < km


@pytest.fixture
def city(tmp_path: Path) -> Path:
    """A GeoIP2 City database with four networks."""
    return write_mmdb(
        tmp_path / "city.mmdb",
        {"11.0.0.0/8": CITY_US, "12.1.2.0/24": CITY_DE, "2a00:1::/32": CITY_DE, "13.0.0.0/8": {"x": 1}},
    )


def test_city_record(city: Path) -> None:
    """A GeoIP2 City record gives every field, with the network it holds for; the owner's country is not used."""
    assert Locator(city).locate("11.2.3.4") == Location(
        country="US",
        subdivision="US-KS",
        continent="NA",
        lat=37.751,
        lon=-97.822,
        asn=64500,
        network="11.0.0.0/8",
        prefix_length=8,
        source="geoip",
    )


def test_a_database_that_is_kept_is_read_once(city: Path, tmp_path: Path) -> None:
    """Whatever forks workers reads it for all of them; a file that took its place since is read anew."""
    keep("")
    tracemalloc.start()
    shipped = Locator()
    assert tracemalloc.get_traced_memory()[1] < SHIPPED_DATABASE.stat().st_size / 4
    tracemalloc.stop()
    shipped.close()
    keep(str(city))
    write_mmdb(tmp_path / "new", {"11.0.0.0/8": CITY_DE}).replace(city)
    assert Locator(city).locate("11.2.3.4").country == "DE"
    keep(str(tmp_path / "missing.mmdb"))  # whoever opens it says what is wrong


def test_a_file_that_is_written_over_with_its_size_and_time_kept_is_noticed(tmp_path: Path) -> None:
    """As `rsync --inplace --times` writes one: all that it cannot set is when the file itself was changed."""
    path = write_mmdb(tmp_path / "city.mmdb", {"11.0.0.0/8": CITY_US, "12.0.0.0/8": CITY_DE})
    other = write_mmdb(tmp_path / "other.mmdb", {"11.0.0.0/8": CITY_DE, "12.0.0.0/8": CITY_US}).read_bytes()
    keep(str(path))
    locator, was = Locator(path), path.stat()
    assert len(other) == was.st_size
    assert (locator.locate("11.2.3.4").country, locator.reload_if_changed(), locator.loads) == (
        "US",
        False,
        1,
    )
    path.write_bytes(other)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert locator.reload_if_changed()
    assert (locator.locate("11.2.3.4").country, locator.loads) == ("DE", 2)


def test_country_record(tmp_path: Path) -> None:
    """A GeoIP2 Country record has no coordinates: the client is in the middle of the country's addresses."""
    path = write_mmdb(tmp_path / "country.mmdb", {"11.0.0.0/8": COUNTRY_SE}, kind="GeoLite2-Country")
    location = Locator(path).locate("11.0.0.1")
    assert (location.country, location.continent, location.source) == ("SE", "EU", "geoip")
    assert location.network == "11.0.0.0/8"
    assert_near(location, 59.33, 18.07, 300)


def test_continent_alone_has_no_coordinates(tmp_path: Path) -> None:
    """A record that knows the continent only, or whose country is a placeholder, has no coordinates."""
    records = {
        "11.0.0.0/8": {"continent": {"code": "EU"}},
        "12.0.0.0/8": {"continent": {"code": "EU"}, "country": {"iso_code": "EU"}},
        "13.0.0.0/8": COUNTRY_SE,
    }
    locator = Locator(write_mmdb(tmp_path / "country.mmdb", records, kind="GeoLite2-Country"))
    for address in ("11.0.0.1", "12.0.0.1"):
        location = locator.locate(address)
        assert (location.continent, location.country, location.lat, location.lon) == ("EU", None, None, None)


def test_flat_record(tmp_path: Path) -> None:
    """A flat ip-location-db record is read too; its continent comes from the country."""
    path = write_mmdb(tmp_path / "flat.mmdb", {"11.0.0.0/8": FLAT_JP}, ip_version=4, kind="city ipv4")
    location = Locator(path).locate("11.0.0.1")
    assert (location.country, location.subdivision, location.continent) == ("JP", "Tokyo", "AS")
    assert (location.lat, location.lon, location.asn) == (35.6916, 139.768, 64501)
    assert Locator(path).locate("2a00:1::1") == Location(network="2000::/3", prefix_length=3)


def test_directory_with_one_file_for_each_family(tmp_path: Path) -> None:
    """A directory joins an IPv4 and an IPv6 database; two of the same kind are an error."""
    write_mmdb(tmp_path / "v4.mmdb", {"11.0.0.0/8": FLAT_JP}, ip_version=4)
    write_mmdb(tmp_path / "v6.mmdb", {"2a00:1::/32": CITY_DE})
    locator = Locator(tmp_path)
    assert locator.locate("11.0.0.1").country == "JP"
    assert locator.locate("2a00:1::1").country == "DE"
    write_mmdb(tmp_path / "v6b.mmdb", {"2a00:1::/32": CITY_DE})
    with pytest.raises(GeoIPError, match="several databases of IP version 6"):
        Locator(tmp_path)


def test_unknown_has_its_network(city: Path) -> None:
    """An address that is not in the database is unknown, and so is the widest network around it without a record."""
    assert Locator(city).locate("12.1.3.4") == Location(network="12.1.3.0/24", prefix_length=24)
    assert Locator(city).locate("200.1.2.3") == Location(network="128.0.0.0/1", prefix_length=1)


def test_record_of_another_kind_is_unknown(city: Path) -> None:
    """A record without any field of a location is unknown."""
    assert Locator(city).locate("13.1.1.1") == Location(network="13.0.0.0/8", prefix_length=8)


@pytest.mark.parametrize("code", ["", "ZZ", "EU", "AP", "A1", "us", "USA", 7, None])
def test_placeholder_country_is_unknown(tmp_path: Path, code: object) -> None:
    """Only assigned ISO codes are countries."""
    record = {"country_code": code} if code is not None else {"city": "x"}
    path = write_mmdb(tmp_path / "a.mmdb", {"11.0.0.0/8": record, "12.0.0.0/8": FLAT_JP})
    assert Locator(path).locate("11.0.0.1") == Location(network="11.0.0.0/8", prefix_length=8)


@pytest.mark.parametrize(
    ("lat", "lon"), [(91.0, 0.0), (0.0, 180.5), (float("nan"), 0.0), (0.0, float("inf")), ("1", "2")]
)
def test_impossible_coordinates(tmp_path: Path, lat: object, lon: object) -> None:
    """Coordinates that are not on Earth count as missing: the country stays, with its own."""
    record = {"country_code": "JP", "latitude": lat, "longitude": lon}
    location = Locator(write_mmdb(tmp_path / "a.mmdb", {"11.0.0.0/8": record})).locate("11.0.0.1")
    assert location.country == "JP"
    assert_near(location, 35.69, 139.69, 400)


def test_all_forms_of_an_address_are_the_same(city: Path) -> None:
    """Text, packed bytes, `ipaddress` values and IPv4-mapped IPv6 addresses find the same object."""
    locator = Locator(city)
    first = locator.locate("12.1.2.3")
    mapped = ip_address("::ffff:12.1.2.77")
    for form in ("12.1.2.9", b"\x0c\x01\x02\x03", ip_address("12.1.2.3"), mapped, mapped.packed, str(mapped)):
        assert locator.locate(form) is first
    assert first.network == "12.1.2.0/24"


def test_ipv4_compatible_addresses_are_unknown(city: Path) -> None:
    """The part of IPv6 where MMDB files keep IPv4 leads to no IPv4 record."""
    assert Locator(city).locate("::11.0.0.1") == Location(network="::/96", prefix_length=96)


def test_networks_of_ipv6_stop_short_of_mapped_addresses(city: Path) -> None:
    """What is looked up as IPv4 lies inside no network of IPv6, though databases know nothing around it."""
    for address in ("::fffe:ffff:ffff", "::1:0:0:0", "::fff0:0:1"):
        network = Locator(city).locate(address).network
        assert network is not None
        assert not ip_network(network).overlaps(ip_network("::ffff:0:0/96"))


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("2001:0:5102:458e:8000:63bf:3fff:fdd2", "2001::/32"),
        ("2002:5102:458e::1", "2002::/16"),
        ("64:ff9b::5102:458e", "64:ff9b::/96"),
        ("64:ff9b:1:2::5102:458e", "64:ff9b:1::/48"),
    ],
)
def test_addresses_of_transition_mechanisms_are_unknown(tmp_path: Path, address: str, network: str) -> None:
    """Whoever registered such a prefix, its users may be in any country; an override can still place it."""
    path = write_mmdb(tmp_path / "six.mmdb", {"2000::/3": CITY_US, "64::/16": CITY_US})
    found = Locator(path).locate(address)
    assert (found.country, found.lat, found.source, found.network) == (None, None, "none", network)
    beside = Locator(path).locate("2003::1")
    assert (beside.country, beside.network) == ("US", "2003::/16")
    overrides = tmp_path / "overrides.yaml"
    overrides.write_text(f"overrides:\n  - network: {network}\n    country: DE\n")
    assert Locator(path, overrides).locate(address).country == "DE"


def test_cache_is_bounded(city: Path) -> None:
    """However many addresses are asked for, only so many are remembered, and answers stay right."""
    locator = Locator(city, cache_size=16)

    def work() -> None:
        for number in range(20_000):
            assert locator.locate(f"11.{number >> 8}.{number & 255}.7").country == "US"
            assert locator.locate(f"2a00:1:{number:x}::7").country == "DE"
            assert locator.locate("12.1.2.3").country == "DE"

    assert held(work) < 200_000  # a dictionary of 20,000 alone takes more


def test_reload(tmp_path: Path, city: Path) -> None:
    """A replaced file is taken in, and no file is read again without need."""
    locator = Locator(city)
    assert locator.locate("11.0.0.1").country == "US"
    assert not locator.reload_if_changed()
    write_mmdb(tmp_path / "new", {"11.0.0.0/8": FLAT_JP}).replace(city)
    assert locator.locate("11.0.0.1").country == "US"
    assert locator.reload_if_changed()
    assert locator.locate("11.0.0.1").country == "JP"
    assert not locator.reload_if_changed()


@pytest.mark.parametrize("damage", ["truncate", "text", "remove", "empty"])
def test_bad_new_file_changes_nothing(city: Path, damage: str) -> None:
    """A file spoiled in place is an error, once; what was in use goes on, also for addresses not asked before."""
    good = city.read_bytes()
    locator = Locator(city)
    if damage == "remove":
        city.unlink()
    elif damage == "truncate":
        os.truncate(city, len(good) // 2)
    else:
        city.write_text("" if damage == "empty" else "not a database\n" * 100)
    with pytest.raises(GeoIPError, match=str(city)):
        locator.reload_if_changed()
    assert not locator.reload_if_changed()
    assert locator.locate("11.9.9.9").country == "US"
    assert locator.locate("2a00:1::1").country == "DE"
    city.write_bytes(good)
    assert locator.reload_if_changed()


def test_bad_overrides_keep_all_in_use(tmp_path: Path, city: Path) -> None:
    """New overrides that are wrong keep the overrides and the database in use."""
    overrides = tmp_path / "overrides.yaml"
    overrides.write_text("overrides: [{network: 11.1.0.0/16, country: FR}]")
    locator = Locator(city, overrides)
    overrides.write_text("overrides: [{network: 11.1.0.0/16, country: Frankreich}]")
    with pytest.raises(GeoIPError, match="line 1: `Frankreich` is not a country code"):
        locator.reload_if_changed()
    assert locator.locate("11.1.2.3").country == "FR"


def test_locate_while_reloading(tmp_path: Path) -> None:
    """Threads that look up while files are swapped get whole answers of one of the files, and no error."""
    path = tmp_path / "a.mmdb"
    files = []
    for number, record in enumerate((CITY_US, CITY_DE)):
        networks = {"11.0.0.0/8": record, f"2a00:{number + 1}::/32": record}
        files.append(write_mmdb(tmp_path / f"{number}", networks).read_bytes())

    def put(content: bytes) -> None:
        new = tmp_path / "new"
        new.write_bytes(content)
        new.replace(path)

    put(files[0])
    right = set()
    for content in files:
        put(content)
        right.add(Locator(path).locate("11.0.0.1"))
    assert len(right) == 2
    locator = Locator(path, cache_size=8)
    done = threading.Event()

    def ask(seed: int) -> set[Location]:
        rng = random.Random(seed)
        answers: set[Location] = set()
        while not done.is_set():
            answers.add(locator.locate((11 << 24 | rng.randrange(64)).to_bytes(4, "big")))
        return answers

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask, seed) for seed in range(4)]
        try:
            for number in range(20):
                put(files[number % 2])
                assert locator.reload_if_changed()
        finally:
            done.set()
        for future in asking:
            assert future.result() <= right


@pytest.mark.drill
def test_what_clients_of_a_block_share_is_what_each_finds_alone(tmp_path: Path) -> None:
    """A locator that has met every neighbour answers as one that has met nobody, whatever is narrower than a /24 or /48."""
    path = write_mmdb(
        tmp_path / "city.mmdb",
        {
            "11.0.0.0/8": CITY_US,
            "11.1.2.128/26": CITY_DE,
            "12.1.2.0/24": CITY_DE,
            "2a00:1::/32": CITY_DE,
            "2a00:1:0:7::/64": CITY_US,
        },
    )
    hidden = write_mmdb(
        tmp_path / "anonymous.mmdb",
        {"11.1.3.8/29": {"is_anonymous": True}, "2a00:1:1::/64": {"is_anonymous": True}},
    )
    overrides = tmp_path / "overrides.yaml"
    overrides.write_text(
        "overrides:\n  - network: 11.1.4.16/28\n    country: JP\n  - network: 2a00:1:2:8::/61\n    country: FR\n"
    )
    generator = random.Random(7)
    addresses = [
        ip_address(f"{first}.1.{third}.{generator.randrange(256)}").packed
        for first in (11, 12)
        for third in range(1, 6)
        for _ in range(40)
    ]
    addresses += [
        ip_address(f"2a00:1:{third:x}:{generator.randrange(16):x}::{generator.randrange(9):x}").packed
        for third in range(4)
        for _ in range(40)
    ]
    addresses += [ip_address(f"::ffff:11.1.2.{last}").packed for last in range(0, 256, 16)]
    generator.shuffle(addresses)
    locator = Locator(path, overrides, anonymous=hidden, cache_size=64)
    for address in addresses:
        assert locator.locate(address) == Locator(path, overrides, anonymous=hidden).locate(address)
