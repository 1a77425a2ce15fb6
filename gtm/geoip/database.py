"""MMDB files (https://maxmind.github.io/MaxMind-DB/): opening them safely and looking addresses up.

The tree is walked here, and records are decoded by maxminddb's Python code: its C extension ends the process with a
segmentation fault on some damaged files, and an edge must outlive them. The way through the upper levels and the
records met are remembered. Costs and alternatives: docs/decisions/0004-own-mmdb-tree-walk.md.
"""

from __future__ import annotations

import io
import struct
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

import maxminddb
from maxminddb.decoder import Decoder

from gtm.files import FileState, state_of
from gtm.geoip.records import GeoIPError, RecordSchema

T = TypeVar("T")

_word = struct.Struct(">I").unpack_from
_SAMPLE = 1000
_NAMED = 12
_SEPARATOR = 16
_REMEMBERED = 65_536
_LEVELS = 32
"""How many levels of the tree are skipped for an IPv6 address when they have been walked before."""


def _day(epoch: int) -> str:
    try:
        return datetime.fromtimestamp(epoch, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return "on no day that is one"


_kept: dict[FileState | None, bytes] = {}


def keep(path: Path) -> None:
    """Hold a file in memory for all processes that this one forks: they have it together, for as long as it stays the same file.

    Raises:
        OSError: it cannot be read.
    """
    file, content = _content(path)
    _kept[file] = content


def _content(path: Path) -> tuple[FileState | None, bytes]:
    with path.open("rb") as opened:
        file = state_of(opened.fileno())
        kept = _kept.get(file)
        return file, opened.read() if kept is None else kept


class GeoIPDatabase(Generic[T]):
    """One MMDB file, held in memory: what happens to the file on disk changes nothing.

    Any number of threads may look up at once.
    """

    def __init__(self, path: Path, schema: RecordSchema[T]) -> None:
        """Read and check.

        Raises:
            GeoIPError: missing, unreadable, damaged, or a database of another kind than the schema's.
        """
        try:
            _, content = _content(path)
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
        said = [schema.read(record) for record in records]
        self.called = f"`{path}` ({metadata.database_type}, built {_day(self.build_epoch)})"
        """Its name for people: the file, its kind and its day."""
        if not any(map(schema.tells, said)):
            fields = sorted({str(name) for record in records if isinstance(record, dict) for name in record})
            has = f"; its records have {', '.join(fields[:_NAMED])}" if fields else ""
            raise GeoIPError(f"{self.called} {schema.complaint}{has}")
        self.lacks = tuple(what for what, has_it in schema.may.items() if not any(map(has_it, said)))
        """What its first networks, and so most likely all, do not tell."""
        self.path = path
        self._schema = schema
        self._content = content
        self._count = metadata.node_count
        self._width = metadata.record_size
        self._data = metadata.search_tree_size + _SEPARATOR
        self._decoder = Decoder(content, self._data)
        self._records: dict[int, T] = {}
        self._jumps: dict[int, tuple[int, int]] = {}
        self._blocks: list[list[tuple[int, int]] | None] = [None] * 256
        self._ipv4_root = 0 if self.ip_version == 4 else self._walk(0, 0, 96, 0, 96)[0]

    def find(self, number: int, bits: int) -> tuple[T, int]:
        """What the database says of an address of 32 or 128 bits, and the length of the prefix around it for which it does.

        Raises:
            GeoIPError: the part of the file that it needs is damaged.
        """
        if bits == 32:
            block = self._blocks[number >> 24] or self._block(number >> 24)
            node, depth = block[number >> 16 & 0xFF]
        else:
            node, depth = self._jump(number >> bits - _LEVELS)
        if node < self._count:
            node, depth = self._walk(node, number, bits, depth, bits)
        if node == self._count:
            return self._schema.nothing, depth
        offset = node - self._count - _SEPARATOR
        said = self._records.get(offset)
        return self._record(offset) if said is None else said, depth

    def _block(self, first: int) -> list[tuple[int, int]]:
        """Where the tree is after 16 levels, for each second octet after a first one; (record, depth), remembered.

        They are found together, level by level: a client that is new to a process is in a /8 that is not.
        """
        found = [self._walk(self._ipv4_root, first << 24, 32, 0, 8)]
        for depth in range(8, 16):
            above, found = found, []
            for record in above:
                if record[1] == depth and record[0] < self._count:
                    left, right = self._children(record[0])
                    found += ((left, depth + 1), (right, depth + 1))
                else:  # a leaf further up
                    found += (record, record)
        self._blocks[first] = found
        return found

    def _children(self, node: int) -> tuple[int, int]:
        """Both records of a node of the tree, in one read."""
        width, size = self._width, self._width // 4
        both = self._content[node * size : (node + 1) * size]
        if len(both) < size:
            raise self._cut_short()
        number = int.from_bytes(both)
        if width != 28:
            return number >> width, number & (1 << width) - 1
        # The highest four bits of each stand together in the middle.
        return number >> 4 & 0xF000000 | number >> 32, number & 0xFFFFFFF

    def _cut_short(self) -> GeoIPError:
        return GeoIPError(f"the GeoIP database `{self.path}` is damaged: its tree is cut short")

    def _jump(self, above: int) -> tuple[int, int]:
        """Where the tree is after the first bits of an IPv6 address; (record, depth), remembered."""
        jump = self._jumps.get(above)
        if jump is None:
            jump = self._walk(0, above << 128 - _LEVELS, 128, 0, _LEVELS)
            if len(self._jumps) >= _REMEMBERED:
                self._jumps = {}
            self._jumps[above] = jump
        return jump

    def close(self) -> None:
        """Give the memory back. Nothing may be looked up any more."""
        self._content = b""
        self._decoder = Decoder(b"", 0)

    def _walk(self, node: int, number: int, bits: int, depth: int, until: int) -> tuple[int, int]:
        """Follow the bits of an address from a node at `depth`, at most down to `until`; (record, depth)."""
        content, count, width = self._content, self._count, self._width
        size, right, spare = width // 4, width // 8, 32 - width
        shift, last = bits - depth, bits - until
        try:
            if width != 28:
                while node < count and shift > last:
                    shift -= 1
                    node = _word(content, node * size + (number >> shift & 1) * right)[0] >> spare
            while node < count and shift > last:
                shift -= 1
                if number >> shift & 1:
                    node = _word(content, node * size + right)[0] & 0xFFFFFFF
                else:  # the left record's highest four bits stand behind its others
                    word = _word(content, node * size)[0]
                    node = word >> 8 | (word & 0xF0) << 20
        except struct.error:
            raise self._cut_short() from None
        return node, bits - shift

    def _record(self, offset: int) -> T:
        """What the record at an offset of the data section says, remembered. A node that is no leaf has a negative one."""
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
