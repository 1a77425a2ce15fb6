"""The database of anonymising networks beside that of places."""

from __future__ import annotations

import random
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from databases import CITY_DE, CITY_US, write_mmdb
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.core.model.requests import Location
from gtm.geoip.reader import GeoIPError, Locator
from gtm.geoip.records import read_anonymity, read_record
from tests.effort import examples

VPN = {"is_anonymous": True, "is_anonymous_vpn": True}
FLAGS = (
    "is_anonymous",
    "is_anonymous_vpn",
    "is_hosting_provider",
    "is_public_proxy",
    "is_residential_proxy",
    "is_tor_exit_node",
)


@pytest.fixture
def city(tmp_path: Path) -> Path:
    """Places of three networks."""
    records = {"11.0.0.0/8": CITY_US, "12.1.2.0/24": CITY_DE, "2a00:1::/32": CITY_DE}
    return write_mmdb(tmp_path / "city.mmdb", records)


def _hidden(path: Path, *networks: str, ip_version: int = 6) -> Path:
    return write_mmdb(path, dict.fromkeys(networks, VPN), ip_version=ip_version, kind="GeoIP2-Anonymous-IP")


def _seen(locator: Locator, address: str) -> tuple[bool, str | None, str | None]:
    found = locator.locate(address)
    return found.anonymous, found.country, found.network


def test_hidden_clients_are_anonymous_where_they_seem_to_be(tmp_path: Path, city: Path) -> None:
    """Country and position stay; the network is the narrower of the two databases', on either side."""
    hidden = _hidden(tmp_path / "hidden.mmdb", "11.1.0.0/16", "12.0.0.0/8", "2a00:1:5::/48", "99.0.0.0/8")
    locator = Locator(city, anonymous=hidden)
    assert _seen(locator, "11.1.2.3") == (True, "US", "11.1.0.0/16")
    assert _seen(locator, "11.0.0.1") == (False, "US", "11.0.0.0/16")
    assert _seen(locator, "11.128.0.1") == (False, "US", "11.128.0.0/9")
    assert _seen(locator, "12.1.2.3") == (True, "DE", "12.1.2.0/24")
    assert _seen(locator, "2a00:1:5::1") == (True, "DE", "2a00:1:5::/48")
    assert _seen(locator, "2a00:1::1") == (False, "DE", "2a00:1::/46")
    assert _seen(locator, "99.1.1.1") == (True, None, "99.0.0.0/8")
    assert locator.locate("11.1.2.3").lat == locator.locate("11.0.0.1").lat
    assert locator.description == "a test database"
    locator.close()


def test_an_override_is_believed(tmp_path: Path, city: Path) -> None:
    """What an operator places is not anonymous, and narrows what is around it."""
    overrides = tmp_path / "overrides.yaml"
    overrides.write_text("overrides: [{network: 11.1.2.0/24, country: FR}]")
    hidden = _hidden(tmp_path / "hidden.mmdb", "11.1.0.0/16", "11.1.2.128/25")
    locator = Locator(city, overrides, anonymous=hidden)
    assert _seen(locator, "11.1.2.200") == (False, "FR", "11.1.2.0/24")
    assert _seen(locator, "11.1.3.1") == (True, "US", "11.1.3.0/24")


@pytest.mark.parametrize("flag", FLAGS)
def test_any_flag_will_do(tmp_path: Path, city: Path, flag: str) -> None:
    """One kind of anonymity is enough; a flag that is false, or no flag, is none."""
    records = {"11.1.0.0/16": {flag: True}, "11.2.0.0/16": {flag: False}, "11.3.0.0/16": {"x": 1}}
    locator = Locator(city, anonymous=write_mmdb(tmp_path / "hidden.mmdb", records))
    assert [locator.locate(f"11.{n}.0.1").anonymous for n in (1, 2, 3)] == [True, False, False]


def test_a_database_of_ipv4_says_nothing_of_ipv6(tmp_path: Path, city: Path) -> None:
    """IPv6 clients are then not anonymous, and their networks as wide as ever."""
    locator = Locator(city, anonymous=_hidden(tmp_path / "hidden.mmdb", "11.1.0.0/16", ip_version=4))
    assert _seen(locator, "11.1.2.3") == (True, "US", "11.1.0.0/16")
    assert _seen(locator, "2a00:1::1") == (False, "DE", "2a00:1::/32")


def test_wrong_and_missing_files_are_named(tmp_path: Path, city: Path) -> None:
    """A database of places is no database of anonymising networks."""
    with pytest.raises(
        GeoIPError, match=r"city\.mmdb` \(Test-City, built [\d-]+\) tells no anonymising networks; give a"
    ):
        Locator(city, anonymous=city)
    with pytest.raises(GeoIPError, match=r"cannot read .*none\.mmdb"):
        Locator(city, anonymous=tmp_path / "none.mmdb")


def test_reload(tmp_path: Path, city: Path) -> None:
    """A new file is taken in; a spoiled one changes nothing."""
    path = _hidden(tmp_path / "hidden.mmdb", "11.1.0.0/16")
    locator = Locator(city, anonymous=path)
    assert locator.locate("11.1.2.3").anonymous
    assert not locator.reload_if_changed()
    _hidden(tmp_path / "new", "11.2.0.0/16").replace(path)
    assert locator.reload_if_changed()
    assert [locator.locate(f"11.{n}.0.1").anonymous for n in (1, 2)] == [False, True]
    path.write_bytes(b"no database")
    with pytest.raises(GeoIPError, match=r"hidden\.mmdb` is not a readable MMDB file"):
        locator.reload_if_changed()
    assert [locator.locate(f"11.{n}.0.9").anonymous for n in (1, 2)] == [False, True]


@pytest.mark.drill
def test_damage_hides_nobody(tmp_path: Path, city: Path) -> None:
    """Whatever bits are wrong, opening fails clearly or every look-up answers; an unreadable record is anonymous."""
    records = {f"11.{n}.{m}.0/24": VPN | {"id": f"{n}-{m}"} for n in range(6) for m in range(256)}
    good = write_mmdb(tmp_path / "good.mmdb", records).read_bytes()
    rng = random.Random(7)
    path = tmp_path / "flipped.mmdb"
    addresses = [f"11.{n}.{m}.3" for n in range(8) for m in range(0, 256, 9)] + ["2a00:1::1"]
    opened = damaged = 0
    for _ in range(150):
        content = bytearray(good)
        for _ in range(rng.choice((1, 8, 32))):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        try:
            locator = Locator(city, anonymous=path)
        except GeoIPError:
            continue
        opened += 1
        for address in addresses:
            before = locator.damaged_lookups
            found = locator.locate(address)
            assert isinstance(found, Location)
            if locator.damaged_lookups > before:
                assert found.anonymous
                assert found.network == str(ip_network(address))
        damaged += locator.damaged_lookups
    assert opened
    assert damaged


_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FLAGS), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=examples(300), deadline=None)
@given(st.dictionaries(st.sampled_from((*FLAGS, "accuracy_radius", "country_code")), _values) | _values)
def test_records_of_any_shape(record: object) -> None:
    """Only a flag that is true counts, and only a radius that is one, in whatever a record holds beside."""
    true = isinstance(record, dict) and any(record.get(flag) is True for flag in FLAGS)
    assert read_anonymity(record) is true
    accuracy = read_record(record).accuracy_km
    assert accuracy is None or 0 < accuracy <= 20_040


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_a_location_holds_for_all_of_its_network(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every address of a network has the same location: resolvers reuse an answer for it."""
    folder = tmp_path_factory.mktemp("networks")
    lengths = st.integers(9, 26)
    hidden = {
        str(ip_network((11 << 24 | data.draw(st.integers(0, 2**24 - 1)), data.draw(lengths)), strict=False))
        for _ in range(4)
    }
    placed = {f"11.{data.draw(st.integers(0, 255))}.0.0/{data.draw(st.integers(16, 24))}" for _ in range(3)}
    locator = Locator(
        write_mmdb(folder / "city", dict.fromkeys(sorted(placed), CITY_DE) | {"12.0.0.0/8": CITY_US}),
        anonymous=_hidden(folder / "hidden", *sorted(hidden)),
    )
    around = data.draw(st.sampled_from(sorted(hidden | placed)))
    found = locator.locate(ip_network(around).network_address)
    network = ip_network(str(found.network))
    for _ in range(10):
        offset = data.draw(st.integers(0, network.num_addresses - 1))
        assert locator.locate(ip_address(int(network.network_address) + offset)) == found


def test_accuracy(tmp_path: Path) -> None:
    """The radius of a City record comes along; a country without one, or with one of no sense, has none."""
    records = {
        "11.0.0.0/8": CITY_DE | {"location": {"latitude": 50.0, "longitude": 8.0, "accuracy_radius": 200.0}},
        "12.0.0.0/8": CITY_DE | {"location": {"accuracy_radius": 0.0}},
        "13.0.0.0/8": CITY_DE,
        "14.0.0.0/8": {"country_code": "JP", "accuracy_radius": 5.0},
    }
    locator = Locator(write_mmdb(tmp_path / "a.mmdb", records))
    assert [locator.locate(f"{n}.0.0.1").accuracy_km for n in (11, 12, 13, 14)] == [200.0, None, None, 5.0]
