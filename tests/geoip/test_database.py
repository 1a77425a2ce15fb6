"""Look-ups beside those of maxminddb's own reader."""

from __future__ import annotations

import random
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import maxminddb
import pytest
from databases import FLAT_JP, write_mmdb

from gtm.geoip.database import GeoIPDatabase
from gtm.geoip.reader import SHIPPED_DATABASE
from gtm.geoip.records import NOWHERE, PLACES, read_record


def assert_same(path: Path, numbers: list[tuple[int, int]]) -> None:
    """The database answers as maxminddb does, for addresses as (number, bits)."""
    database = GeoIPDatabase(path, PLACES)
    with maxminddb.open_database(path) as reader:
        for number, bits in numbers:
            address = IPv4Address(number) if bits == 32 else IPv6Address(number)
            record, length = reader.get_with_prefix_len(address)
            place = NOWHERE if record is None else read_record(record)
            assert database.find(number, bits) == (place, length), address


def test_shipped_database() -> None:
    """Random addresses in the shipped database, most of them inside its prefixes, twice for what is remembered."""
    rng = random.Random(5)
    ipv4 = [(rng.randrange(2**32), 32) for _ in range(5000)]
    ipv6 = [(rng.choice((0x20, 0x24, 0x26, 0x2A)) << 120 | rng.randrange(2**120), 128) for _ in range(5000)]
    assert_same(SHIPPED_DATABASE, (ipv4 + ipv6) * 2)


@pytest.mark.parametrize("record_size", [24, 28, 32])
@pytest.mark.parametrize("ip_version", [4, 6])
def test_record_sizes(tmp_path: Path, record_size: int, ip_version: int) -> None:
    """Trees with records of 24, 28 and 32 bits are read right."""
    rng = random.Random(6)
    networks = {
        f"{rng.randrange(1, 224)}.{rng.randrange(256)}.0.0/{rng.randrange(16, 25)}" for _ in range(300)
    }
    records = {network: FLAT_JP | {"city": str(number)} for number, network in enumerate(sorted(networks))}
    path = write_mmdb(tmp_path / "a.mmdb", records, ip_version=ip_version, record_size=record_size)
    numbers = [(int(IPv4Address(network.split("/")[0])) | 3, 32) for network in networks]
    assert_same(path, numbers + [(rng.randrange(2**32), 32) for _ in range(500)])


def test_record_beyond_24_bits(tmp_path: Path) -> None:
    """The highest bits of 28-bit records are read right: they reach data behind the first 16 MiB."""
    records = {f"11.{n}.0.0/16": {"country_code": "JP", "city": f"{n:02}" * 250_000} for n in range(36)}
    path = write_mmdb(tmp_path / "a.mmdb", records | {"12.0.0.0/8": FLAT_JP, "13.0.0.0/8": {"x": 1}})
    numbers = [(int(IPv4Address(text)), 32) for text in ("11.0.0.1", "11.35.0.1", "12.0.0.1", "13.0.0.1")]
    with maxminddb.open_database(path) as reader:
        assert reader.metadata().record_size == 28
    assert_same(path, numbers)
