"""MMDB files (https://maxmind.github.io/MaxMind-DB/): opening them safely and looking addresses up.

The tree is walked here, and records are decoded by maxminddb's Python code: its C extension ends the process with a
segmentation fault on some damaged files, and an edge must outlive them. The way through the upper levels and the
records met are remembered. Costs and alternatives: docs/decisions/0004-own-mmdb-tree-walk.md.
"""

from __future__ import annotations

import io
from itertools import islice
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import maxminddb
from maxminddb.decoder import Decoder

from gtm.geoip.errors import GeoIPError
from gtm.geoip.records import Schema

T = TypeVar("T")

_SAMPLE = 1000
_SEPARATOR = 16
_REMEMBERED = 65_536
_LEVELS = {32: 16, 128: 32}
"""Bits of an address → how many levels of the tree are skipped when they have been walked before."""


class Found(NamedTuple, Generic[T]):
    """What a database says of an address, and the length of the prefix around it for which it says so."""

    said: T
    prefix_length: int


class Database(Generic[T]):
    """One MMDB file, held in memory: what happens to the file on disk changes nothing.

    Any number of threads may look up at once.
    """

    def __init__(self, path: Path, schema: Schema[T]) -> None:
        """Read and check.

        Raises:
            GeoIPError: missing, unreadable, damaged, or a database of another kind than the schema's.
        """
        try:
            content = path.read_bytes()
        except OSError as error:
            raise GeoIPError(f"cannot read the GeoIP database `{path}`: {error.strerror}") from None
        if not content:
            raise GeoIPError(f"the GeoIP database `{path}` is empty")
        try:
            reader = maxminddb.open_database(io.BytesIO(content), maxminddb.MODE_FD)
            metadata = reader.metadata()
            records = [record for _, record in islice(reader, _SAMPLE)]
            self.build_epoch = int(metadata.build_epoch)
            self.description = str(metadata.description.get("en") or metadata.database_type)
            self.ip_version = int(metadata.ip_version)
        except Exception:  # noqa: BLE001 - damage makes the library raise nearly anything
            raise GeoIPError(
                f"`{path}` is not a readable MMDB file, or it is damaged; fetch it again"
            ) from None
        if self.ip_version not in (4, 6):
            raise GeoIPError(f"the GeoIP database `{path}` has IP version {self.ip_version}, not 4 or 6")
        if not any(schema.tells(schema.read(record)) for record in records):
            raise GeoIPError(f"`{path}` ({metadata.database_type}) {schema.complaint}")
        self.path = path
        self._schema = schema
        self._content = content
        self._count = metadata.node_count
        self._width = metadata.record_size
        self._data = metadata.search_tree_size + _SEPARATOR
        self._decoder = Decoder(content, self._data)
        self._records: dict[int, T] = {}
        self._jumps: dict[tuple[int, int], tuple[int, int]] = {}
        self._ipv4_root = 0 if self.ip_version == 4 else self._walk(0, 0, 96, 0, 96)[0]

    def find(self, number: int, bits: int) -> Found[T]:
        """Look an address of 32 or 128 bits up.

        Raises:
            GeoIPError: the part of the file that it needs is damaged.
        """
        levels = _LEVELS[bits]
        key = (bits, number >> bits - levels)
        jump = self._jumps.get(key)
        if jump is None:
            root = self._ipv4_root if bits == 32 else 0
            jump = self._walk(root, number, bits, 0, levels)
            if len(self._jumps) >= _REMEMBERED:
                self._jumps = {}
            self._jumps[key] = jump
        node, depth = jump
        if depth == levels and node < self._count:
            node, depth = self._walk(node, number, bits, depth, bits)
        if node == self._count:
            return Found(self._schema.nothing, depth)
        return Found(self._record(node - self._count - _SEPARATOR), depth)

    def close(self) -> None:
        """Give the memory back. Nothing may be looked up any more."""
        self._content = b""
        self._decoder = Decoder(b"", 0)

    def _walk(self, node: int, number: int, bits: int, depth: int, until: int) -> tuple[int, int]:
        """Follow the bits of an address from a node at `depth`, at most down to `until`; (record, depth)."""
        content, count, width = self._content, self._count, self._width
        size, mask = width // 4, (1 << width) - 1
        while depth < until and node < count:
            depth += 1
            both = int.from_bytes(content[node * size : node * size + size], "big")
            if number >> bits - depth & 1:
                node = both & mask
            elif width == 28:  # the left record's highest four bits stand behind its others
                node = both >> 32 | (both >> 4 & 0xF000000)
            else:
                node = both >> width
        return node, depth

    def _record(self, offset: int) -> T:
        """What the record at an offset of the data section says. A node that is no leaf has a negative one."""
        said = self._records.get(offset)
        if said is None:
            if not 0 <= offset < len(self._content) - self._data:
                raise GeoIPError(f"the GeoIP database `{self.path}` is damaged: it points out of its data")
            try:
                record, _ = self._decoder.decode(self._data + offset)
            except Exception as error:  # noqa: BLE001 - as above
                raise GeoIPError(f"the GeoIP database `{self.path}` is damaged: {error}") from None
            said = self._schema.read(record)
            if len(self._records) >= _REMEMBERED:
                self._records = {}
            self._records[offset] = said
        return said
