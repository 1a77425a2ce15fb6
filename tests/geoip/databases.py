"""MMDB fixtures, written by mmdb-writer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmdb_writer import MMDBWriter, TreeWriter
from netaddr import IPSet

CITY_US = {
    "continent": {"code": "NA"},
    "country": {"iso_code": "US"},
    "registered_country": {"iso_code": "FR"},
    "location": {"latitude": 37.751, "longitude": -97.822},
    "subdivisions": [{"iso_code": "KS", "names": {"en": "Kansas"}}],
    "traits": {"autonomous_system_number": 64500},
}
CITY_DE = {"country": {"iso_code": "DE"}, "location": {"latitude": 50.11, "longitude": 8.68}}
FLAT_JP = {
    "country_code": "JP",
    "state1": "Tokyo",
    "city": "Chiyoda",
    "latitude": 35.6916,
    "longitude": 139.768,
    "autonomous_system_number": 64501,
}
COUNTRY_SE = {"continent": {"code": "EU"}, "country": {"iso_code": "SE"}}


class Tree(TreeWriter):
    """A tree whose records may be larger than they need to be."""

    least = 24

    def _adjust_record_size(self) -> None:
        super()._adjust_record_size()
        self.record_size = max(self.record_size, self.least)
        self.data_offset = self.record_size * 2 / 8 * self._node_counter


def write_mmdb(
    path: Path,
    records: Mapping[str, Any],
    *,
    ip_version: int = 6,
    kind: str = "Test-City",
    record_size: int = 24,
) -> Path:
    """An MMDB file with these records by network, its tree with records of at least so many bits."""
    writer = MMDBWriter(
        ip_version=ip_version,
        ipv4_compatible=ip_version == 6,
        database_type=kind,
        languages=["en"],
        description="a test database",
        float_type="f64",
    )
    for network, record in records.items():
        writer.insert_network(IPSet([network]), record)
    tree = Tree(writer.tree, writer._build_meta(), float_type="f64")  # noqa: SLF001 - the library offers no other way to another tree
    tree.least = record_size
    tree.write(str(path))
    return path
