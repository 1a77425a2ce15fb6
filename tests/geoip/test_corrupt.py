from __future__ import annotations

import random
from pathlib import Path

import pytest
from databases import CITY_DE, CITY_US, FLAT_JP, write_mmdb

from gtm.core.model.requests import Location
from gtm.geoip.reader import GeoIPError, Locator

MARKER = b"\xab\xcd\xefMaxMind.com"


@pytest.fixture
def good(tmp_path: Path) -> bytes:
    """An MMDB file with more records than are looked at when it is opened."""
    records = {
        f"{n}.{m}.0.0/16": FLAT_JP | {"postcode": f"{n}-{m}"} for n in range(11, 18) for m in range(256)
    }
    return write_mmdb(
        tmp_path / "good.mmdb", records | {"19.0.0.0/8": CITY_US, "2a00:1::/32": CITY_DE}
    ).read_bytes()


def test_missing_file(tmp_path: Path) -> None:
    """A missing file is named."""
    with pytest.raises(GeoIPError, match=r"cannot read .*none.mmdb`: No such file"):
        Locator(tmp_path / "none.mmdb")


def test_directory_without_database(tmp_path: Path) -> None:
    """A directory without databases is named."""
    with pytest.raises(GeoIPError, match=r"holds no \.mmdb file"):
        Locator(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 4096,
        random.Random(1).randbytes(100_000),
        b"country,from,to\n" * 1000,
        MARKER,
        random.Random(2).randbytes(1000) + MARKER + random.Random(3).randbytes(200),
    ],
    ids=["empty", "zeros", "random", "text", "marker", "random with marker"],
)
def test_no_database(tmp_path: Path, content: bytes) -> None:
    """A file that is no MMDB is a clear error."""
    path = tmp_path / "bad.mmdb"
    path.write_bytes(content)
    with pytest.raises(GeoIPError, match=r"bad\.mmdb` is (empty|not a readable MMDB file)"):
        Locator(path)


def test_truncated(tmp_path: Path, good: bytes) -> None:
    """A file cut before its metadata is an error; one cut inside them is an error or still answers right."""
    path = tmp_path / "cut.mmdb"
    marker = good.rindex(MARKER)
    for length in range(0, marker, 4999):
        path.write_bytes(good[:length])
        with pytest.raises(GeoIPError):
            Locator(path)
    refused = 0
    for length in range(marker, len(good)):
        path.write_bytes(good[:length])
        try:
            locator = Locator(path)
        except GeoIPError:
            refused += 1
            continue
        assert locator.locate("11.1.2.3").country == "JP"
    assert refused > (len(good) - marker) // 2


def test_database_of_another_kind(tmp_path: Path) -> None:
    """A database about something else than places is refused by what it is."""
    record = {"autonomous_system_number": 64500}
    path = write_mmdb(tmp_path / "asn.mmdb", {"11.0.0.0/8": record}, kind="GeoLite2-ASN")
    with pytest.raises(
        GeoIPError, match=r"\(GeoLite2-ASN, built 20\d\d-\d\d-\d\d\) tells no countries; give a"
    ):
        Locator(path)


@pytest.mark.drill
def test_flipped_bits(tmp_path: Path, good: bytes) -> None:
    """Whatever bits are wrong, opening fails clearly or every look-up answers with a location or unknown."""
    rng = random.Random(4)
    path = tmp_path / "flipped.mmdb"
    addresses = [f"{n}.{m}.3.4" for n in (11, 16, 17, 19, 99) for m in range(0, 256, 25)] + [
        "2a00:1::1",
        "::2:0:0",
    ]
    opened = damaged = 0
    for _ in range(200):
        content = bytearray(good)
        for _ in range(rng.choice((1, 8, 32))):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        try:
            locator = Locator(path)
        except GeoIPError:
            continue
        opened += 1
        for address in addresses:
            assert isinstance(locator.locate(address), Location)
        damaged += locator.damaged_lookups
    assert opened
    assert damaged


def test_map_key_that_is_no_text(tmp_path: Path, good: bytes) -> None:
    """A record whose key is a number is damage that look-ups survive."""
    path = tmp_path / "key.mmdb"
    key = b"\x48latitude"
    assert key in good
    path.write_bytes(good.replace(key, b"\x68" + key[1:]))
    locator = Locator(path)
    assert isinstance(locator.locate("11.1.2.3"), Location)
