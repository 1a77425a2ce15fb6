"""From an address to a `Location`, as the answer path needs it: no lock, no disk, no error.

Laws:
  1. The most specific override wins over the database, whole.
  2. The network of a location is the widest prefix around the address for which it holds: never across an override.
  3. What nobody knows is unknown (`source` "none"), with the network for which that holds. Nothing is guessed.
  4. A country without coordinates has those of its addresses' mean position. `source` stays what said the country.
  5. An address that the database of anonymising networks has, or that a damaged part of it would tell of, is
     anonymous, but for what an override says. The network of a location then holds for both.
  6. Files are replaced all together by one reference, or not at all.
"""

from __future__ import annotations

import os
from contextlib import suppress
from ipaddress import IPv6Network
from pathlib import Path

from gtm.core.model.requests import Location
from gtm.files import FileState, state_of
from gtm.geoip.address import Address, from_packed, network_text, normal, parse_address
from gtm.geoip.centres import country_centres
from gtm.geoip.database import GeoIPDatabase
from gtm.geoip.database import keep as keep_file
from gtm.geoip.overrides import Override, OverrideIndex, load_overrides
from gtm.geoip.records import ANONYMITY, NOWHERE, PLACES, GeoIPError, Place

__all__ = ["SHIPPED_DATABASE", "GeoIPError", "Locator", "parse_address"]

SHIPPED_DATABASE = Path(__file__).parent / "data" / "gtm-location.mmdb"
"""The database inside the package: countries exact, coordinates coarse (docs/geoip.md)."""

DEFAULT_CACHE_SIZE = 65_536

_MAPPED = Override(IPv6Network("::ffff:0:0/96"), NOWHERE)
"""IPv4-mapped addresses are looked up as IPv4: networks of IPv6 stop short of them (law 2)."""
_PLACELESS = tuple(
    Override(IPv6Network(network), NOWHERE)
    for network in (
        # Databases keep IPv4 here. The IPv6 addresses that would meet it (RFC 4291 §2.5.5.1) are nobody's, and
        # overrides of IPv4 networks don't reach them.
        "::/96",
        # Carried over IPv4 from anywhere: Teredo, 6to4, NAT64 (RFC 4380, 3056, 6052, 8215). Databases give these the
        # place of whoever registered the prefix, or of a relay.
        "2001::/32",
        "2002::/16",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
    )
)
"""Networks whose addresses say nothing of where they are, whatever a database says. Operators may override them."""

_BLOCK = {32: 24, 128: 48}
"""Bits of an address → the length of the networks whose addresses are located together."""

_Key = str | bytes | Address


def keep(source: str) -> None:
    """Hold a database in memory for all processes that this one forks. What is wrong with it they find out.

    Args:
        source: as for `Locator`; an empty one is the shipped database.
    """
    path = Path(source) if source else SHIPPED_DATABASE
    with suppress(OSError):
        for file in _files(path):
            keep_file(file)


def _files(source: Path) -> list[Path]:
    if not source.is_dir():
        return [source]
    return sorted(path for path in source.iterdir() if path.suffix == ".mmdb")


_BY_COUNTRY = ": each client is where its country's addresses are on average (docs/geoip.md)"

_Signature = tuple[tuple[str, FileState | None], ...]


class Locator:
    """Tells where addresses are.

    Any number of threads may call `locate`; `reload_if_changed` belongs to one of them.

    Args:
        database: an MMDB file, or a directory with one for IPv4 and one for IPv6; None: the shipped one.
        overrides: a file of overrides (docs/geoip.md).
        anonymous: an MMDB file of anonymising networks in the shape of GeoIP2 Anonymous IP; None: none is known.
        cache_size: how many addresses and, apart from them, networks are remembered at most.

    Raises:
        GeoIPError: a file is missing, damaged or wrong.
    """

    def __init__(
        self,
        database: str | os.PathLike[str] | None = None,
        overrides: str | os.PathLike[str] | None = None,
        *,
        anonymous: str | os.PathLike[str] | None = None,
        cache_size: int = DEFAULT_CACHE_SIZE,
    ) -> None:
        self._source = SHIPPED_DATABASE if database is None else Path(database)
        self._overrides = None if overrides is None else Path(overrides)
        self._anonymous = None if anonymous is None else Path(anonymous)
        self._cache_size = cache_size
        self.loads = 1
        """How often files were taken in: what was made of a location before the last time may be wrong."""
        self._signature = self._look()
        self._loaded = self._load()

    @property
    def description(self) -> str:
        """The databases in use, in their own words: for logs and the attribution their licences ask for."""
        loaded = self._loaded
        descriptions = [database.description for database in loaded.databases]
        if loaded.anonymity is not None:
            descriptions.append(loaded.anonymity.description)
        return "; ".join(dict.fromkeys(descriptions))

    @property
    def lacking(self) -> tuple[str, ...]:
        """What the operator's databases do not tell of addresses, a sentence for each; what the shipped one lacks is in docs/geoip.md."""
        if self._source == SHIPPED_DATABASE:
            return ()
        return tuple(
            f"the GeoIP database {database.called} has no {', no '.join(database.lacks)}"
            f"{_BY_COUNTRY if 'coordinates' in database.lacks else ''}"
            for database in self._loaded.databases
            if database.lacks
        )

    @property
    def build_epoch(self) -> int:
        """When the oldest database of places in use was built, as a POSIX time in seconds."""
        return min(database.build_epoch for database in self._loaded.databases)

    @property
    def damaged_lookups(self) -> int:
        """How many look-ups met a damaged part of a database in use, and were answered "unknown" or "anonymous"."""
        return self._loaded.damaged_lookups

    def locate(self, address: _Key) -> Location:
        """Where an address is, given as text, as 4 or 16 bytes in network order, or as an `ipaddress` value.

        Raises:
            ValueError: it is no address (see `parse_address`).
        """
        loaded = self._loaded
        location = loaded.recent.get(address)
        if location is not None:
            return location
        return loaded.locate(address)

    def reload_if_changed(self) -> bool:
        """Take the files in again if they have changed (`gtm.files.state_of`); True if they were.

        Raises:
            GeoIPError: the changed files cannot be used. What was in use stays. Raised once for every change.
        """
        signature = self._look()
        if signature == self._signature:
            return False
        self._signature = signature
        self._loaded = self._load()
        self.loads += 1
        return True

    def close(self) -> None:
        """Give the databases' memory back. Nothing may be looked up any more."""
        for database in self._loaded.databases:
            database.close()
        if self._loaded.anonymity is not None:
            self._loaded.anonymity.close()

    def _look(self) -> _Signature:
        try:
            paths = _files(self._source)
        except OSError:
            paths = []
        others = (file for file in (self._overrides, self._anonymous) if file is not None)
        return tuple((str(path), state_of(path)) for path in (*paths, *others))

    def _load(self) -> _Loaded:
        try:
            paths = _files(self._source)
        except OSError as error:
            raise GeoIPError(f"cannot read the directory `{self._source}`: {error.strerror}") from None
        databases = [GeoIPDatabase(path, PLACES) for path in paths]
        if not databases:
            raise GeoIPError(f"the directory `{self._source}` holds no .mmdb file")
        for version in (4, 6):
            same = [database for database in databases if database.ip_version == version]
            if len(same) > 1:
                raise GeoIPError(
                    f"`{self._source}` holds several databases of IP version {version}: give one file"
                )
        overrides = () if self._overrides is None else load_overrides(self._overrides)
        anonymity = None if self._anonymous is None else GeoIPDatabase(self._anonymous, ANONYMITY)
        return _Loaded(databases, overrides, anonymity, self._cache_size)


class _Loaded:
    """Databases and overrides that belong together, and what was looked up in them.

    Each cache has two generations: what is asked for moves to the young one; when that is full, it becomes the old
    one, and the old one goes. Threads that race can at worst look up twice.
    """

    def __init__(
        self,
        databases: list[GeoIPDatabase[Place]],
        overrides: tuple[Override, ...],
        anonymity: GeoIPDatabase[bool] | None,
        cache_size: int,
    ) -> None:
        self.databases = databases
        self.anonymity = anonymity
        by_version = {database.ip_version: database for database in databases}
        self._database4 = by_version.get(4) or by_version.get(6)
        self._database6 = by_version.get(6)
        self._overrides4 = OverrideIndex(overrides, 32) or None
        stated = {override.network for override in overrides}
        known = (_MAPPED,) if self._database6 is None else (_MAPPED, *_PLACELESS)
        placeless = (override for override in known if override.network not in stated)
        self._overrides6 = OverrideIndex((*overrides, *placeless), 128) or None
        self._centres = country_centres()
        self._cache_size = cache_size
        self.recent: dict[_Key, Location] = {}
        self._earlier: dict[_Key, Location] = {}
        self._blocks: dict[int, Location] = {}
        self._earlier_blocks: dict[int, Location] = {}
        self._networks: dict[tuple[int, int, int], Location] = {}
        self._earlier_networks: dict[tuple[int, int, int], Location] = {}
        self.damaged_lookups = 0

    def locate(self, key: _Key) -> Location:
        """`Locator.locate` for an address that is not among the recent ones."""
        location = self._earlier.get(key)
        if location is None:
            if isinstance(key, bytes):
                if len(key) == 4:
                    return self._in_block(key, 32, int.from_bytes(key))
                address = from_packed(key)
                return self._in_block(key, address.max_prefixlen, int(address))
            address = parse_address(key) if isinstance(key, str) else normal(key)
            location = self._in_block(key, address.max_prefixlen, int(address))
        self._keep(key, location)
        return location

    def _in_block(self, key: _Key, bits: int, number: int) -> Location:
        """`locate` by way of the address's /24 or /48: clients of one that is in one place share what is known of it."""
        block = number >> 8 if bits == 32 else number >> 80 | 1 << 48
        location = self._blocks.get(block)
        if location is not None:
            return location
        location = self._earlier_blocks.get(block) or self._find(bits, number)
        if location.prefix_length > _BLOCK[bits]:
            self._keep(key, location)
            return location
        if len(self._blocks) >= self._cache_size:
            self._earlier_blocks = self._blocks
            self._blocks = {}
        self._blocks[block] = location
        return location

    def _keep(self, key: _Key, location: Location) -> None:
        recent = self.recent
        if len(recent) >= self._cache_size:
            self._earlier = recent
            self.recent = recent = {}
        recent[key] = location

    def _find(self, bits: int, number: int) -> Location:
        overrides = self._overrides4 if bits == 32 else self._overrides6
        matched = None if overrides is None else overrides.match(number)
        if matched is not None:
            place, length = matched
            source = "none" if place is NOWHERE else "override"
        else:
            place, length = self._ask_database(bits, number)
            source = "none" if place == NOWHERE else "geoip"
        anonymous = False
        if self.anonymity is not None and source != "override":
            anonymous, hidden = self._ask_anonymity(self.anonymity, number, bits)
            length = max(length, hidden)
        if overrides is not None:
            length = overrides.narrowed(number, length)
        shift = bits - length
        start = number >> shift << shift
        key = (bits, start, length)
        wide = length < _BLOCK[bits]  # else `_in_block` remembers all of it
        location = (self._networks.get(key) or self._earlier_networks.get(key)) if wide else None
        if location is None:
            country, subdivision, continent, lat, lon, asn, accuracy_km = place
            centre = None
            if lat is None and (centre := self._centres.get(country or "")) is not None:
                lat, lon = centre
            network, central = network_text(start, length, bits), centre is not None
            said = country, subdivision, continent, lat, lon, asn, network, length, source, anonymous
            # As `Location(…)`, in half of the time.
            location = tuple.__new__(Location, (*said, accuracy_km, None, (), central, (), False))
        if wide:
            if len(self._networks) >= self._cache_size:
                self._earlier_networks = self._networks
                self._networks = {}
            self._networks[key] = location
        return location

    def _ask_database(self, bits: int, number: int) -> tuple[Place, int]:
        """What the database of the address's family says, and the length of the prefix for which it does."""
        database = self._database4 if bits == 32 else self._database6
        if database is None:
            return NOWHERE, 0
        try:
            return database.find(number, bits)
        except GeoIPError:
            self.damaged_lookups += 1
            return NOWHERE, bits

    def _ask_anonymity(self, database: GeoIPDatabase[bool], number: int, bits: int) -> tuple[bool, int]:
        """Whether an address is that of an anonymising network, and the length of the prefix for which that holds."""
        if bits == 128 and database.ip_version == 4:
            return False, 0
        try:
            return database.find(number, bits)
        except GeoIPError:
            self.damaged_lookups += 1
            return True, bits
